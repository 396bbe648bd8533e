"""Convolution whose gradients stay fast inside loops and under vmap on a CPU.

XLA's CPU backend multiplies matrices for a convolution in the layout of a forward
pass only. It brings the gradients into that layout at the top of a program, but not
in the body of a loop, where they fall to a naive nest up to 78 times as slow; and a
convolution of kernels under vmap becomes a grouped one, which is as bad. Here both
gradients are written as forward convolutions, and kernels under vmap take turns.
"""

import functools
import itertools
import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from cfljax.federated.backend import Order, resolve

Padding = str | Sequence[tuple[int, int]]
_Pads = tuple[tuple[int, int], tuple[int, int]]
_BLOCK = 8  # Samples whose share of a kernel's gradient fits the cache.
_UNROLL = 8  # Blocks written out, at most: more would only take long to compile.


def convolution(
    inputs: Float[Array, "samples height width channels_in"],
    kernel: Float[Array, "kernel_height kernel_width channels_in channels_out"],
    padding: Padding = "SAME",
    *,
    order: Order | None = None,
) -> Float[Array, "samples new_height new_width channels_out"]:
    """Cross-correlation with stride 1, as neural networks call a convolution.

    Args:
      inputs: images, channels last.
      kernel: height, width, channels in, channels out.
      padding: "SAME" keeps height and width, "VALID" pads nothing, or zeros
        `((top, bottom), (left, right))`.
      order: "sequential" is the form for CPUs: kernels under vmap run one after the
        other, and inputs under vmap that share a kernel are merged into one batch.
        It is differentiable in reverse mode, to any order, not in forward mode.
        "batched" is XLA's own convolution. None chooses by the backend.

    Raises:
      ValueError: if the padding is none of these or nothing is left of the images.

    Cost: that of its products; each gradient costs as much as the forward pass.
    """
    pads = _explicit(padding, kernel.shape[:2])
    sizes = [
        size + sum(pad) - length + 1
        for size, pad, length in zip(
            inputs.shape[1:3], pads, kernel.shape[:2], strict=True
        )
    ]
    if min(sizes) < 1:
        raise ValueError(
            f"`kernel` of {kernel.shape[:2]} pixels must fit into the padded "
            f"`inputs`, got {inputs.shape[1:3]} with `padding` {padding!r}."
        )
    form = _forward if resolve(order) == "sequential" else _plain
    return form(pads, inputs, kernel)


def _explicit(padding: Padding, lengths: tuple[int, ...]) -> _Pads:
    """Zeros on either side, of height and of width."""
    if padding == "SAME":
        height, width = (((length - 1) // 2, length // 2) for length in lengths)
    elif padding == "VALID":
        height = width = (0, 0)
    else:
        try:
            (top, bottom), (left, right) = padding
            height, width = (int(top), int(bottom)), (int(left), int(right))
        except (TypeError, ValueError):
            raise ValueError(
                '`padding` must be "SAME", "VALID" or two pairs of integers, got '
                f"{padding!r}."
            ) from None
    return height, width


def _plain(pads: _Pads, inputs: Array, kernel: Array) -> Array:
    """XLA's convolution."""
    names = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(inputs, kernel, (1, 1), pads, None, None, names)


def _multiply(pads: _Pads, inputs: Array, kernel: Array) -> Array:
    """`_plain` in the form that the CPU computes fastest."""
    if pads != ((0, 0), (0, 0)):
        return _plain(pads, inputs, kernel)
    # Without any padding larger images take 2.5 times as long per output.
    return lax.optimization_barrier(_plain(((0, 0), (0, 1)), inputs, kernel))[:, :, :-1]


def _input_products(pads: _Pads, outputs: Array, kernel: Array) -> Array:
    """Adjoint of `_multiply` in its inputs: a full convolution of the outputs."""
    turned = jnp.swapaxes(kernel[::-1, ::-1], 2, 3)
    full = [
        (length - 1 - low, length - 1 - high)
        for length, (low, high) in zip(kernel.shape[:2], pads, strict=True)
    ]
    # The barriers keep XLA from folding transposes into a layout it computes slowly.
    return _multiply((full[0], full[1]), outputs, lax.optimization_barrier(turned))


def _kernel_products(pads: _Pads, inputs: Array, outputs: Array) -> Array:
    """Adjoint of `_multiply` in its kernel: samples and channels change places."""
    samples = inputs.shape[0]
    blocks = max(1, math.ceil(samples / _BLOCK))
    size = math.ceil(samples / blocks)

    def split(images: Array, axes: tuple[int, ...]) -> Array:
        missing = ((0, blocks * size - samples), (0, 0), (0, 0), (0, 0))
        images = jnp.pad(images, missing)  # Samples of zeros add nothing.
        images = images.reshape(blocks, size, *images.shape[1:])
        return jnp.transpose(images, (0, *axes))

    def add(total: Array, block: tuple[Array, Array]) -> tuple[Array, None]:
        return total + lax.optimization_barrier(_plain(pads, *block)), None

    pairs = split(inputs, (4, 2, 3, 1)), split(outputs, (2, 3, 1, 4))
    lengths = (
        size + sum(pad) - length + 1
        for size, pad, length in zip(
            inputs.shape[1:3], pads, outputs.shape[1:3], strict=True
        )
    )
    total = jnp.zeros((inputs.shape[3], *lengths, outputs.shape[3]), inputs.dtype)
    pairs = lax.optimization_barrier(pairs)
    total, _ = lax.scan(add, total, pairs, unroll=min(blocks, _UNROLL))
    return jnp.transpose(lax.optimization_barrier(total), (1, 2, 0, 3))


def _take_turns(function: Callable, merge: bool) -> Callable:
    """`function(pads, first, second)` that loops over a mapped axis; if `merge` and
    only `first` has that axis, it is merged into the samples instead."""

    @functools.cache
    def with_rule(pads: _Pads) -> Callable:
        @jax.custom_batching.custom_vmap
        def call(first: Array, second: Array) -> Array:
            return function(pads, first, second)

        @call.def_vmap
        def rule(
            axis_size: int, mapped: Sequence[bool], first: Array, second: Array
        ) -> tuple[Array, bool]:
            if merge and not mapped[1]:
                samples = first.shape[0] * first.shape[1]
                merged = call(first.reshape(samples, *first.shape[2:]), second)
                result = merged.reshape(*first.shape[:2], *merged.shape[1:])
            elif not mapped[1]:
                result = lax.map(lambda leaf: call(leaf, second), first)
            elif not mapped[0]:
                result = lax.map(lambda leaf: call(first, leaf), second)
            else:
                result = lax.map(lambda pair: call(*pair), (first, second))
            return result, True

        return call

    return lambda pads, first, second: with_rule(pads)(first, second)


# Three sides of one trilinear form: the gradients of each are the other two, so that
# derivatives of any order take the fast form.
_products = _take_turns(_multiply, merge=True)
_to_inputs = _take_turns(_input_products, merge=True)
_to_kernel = _take_turns(_kernel_products, merge=False)


def _keep(form: Callable) -> Callable:
    """Forward rule that keeps both arguments of `form`."""
    return lambda pads, first, second: (form(pads, first, second), (first, second))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _forward(pads: _Pads, inputs: Array, kernel: Array) -> Array:
    return _products(pads, inputs, kernel)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _input_gradient(pads: _Pads, outputs: Array, kernel: Array) -> Array:
    return _to_inputs(pads, outputs, kernel)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _kernel_gradient(pads: _Pads, inputs: Array, outputs: Array) -> Array:
    return _to_kernel(pads, inputs, outputs)


_forward.defvjp(
    _keep(_forward),
    lambda pads, pair, outputs: (
        _input_gradient(pads, outputs, pair[1]),
        _kernel_gradient(pads, pair[0], outputs),
    ),
)
_input_gradient.defvjp(
    _keep(_input_gradient),
    lambda pads, pair, inputs: (
        _forward(pads, inputs, pair[1]),
        _kernel_gradient(pads, inputs, pair[0]),
    ),
)
_kernel_gradient.defvjp(
    _keep(_kernel_gradient),
    lambda pads, pair, kernel: (
        _input_gradient(pads, pair[1], kernel),
        _forward(pads, pair[0], kernel),
    ),
)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def max_pool(
    images: Float[Array, "samples height width channels"], window: int = 2
) -> Float[Array, "samples new_height new_width channels"]:
    """Maximum over adjoining squares of `window` pixels.

    Raises:
      ValueError: if `window` is below 1 or divides not both height and width.
    """
    return _largest(images, window)


def _largest(images: Array, window: int) -> Array:
    return jnp.max(_squares(images, window), axis=(2, 4))


def _squares(images: Array, window: int) -> Array:
    """`[samples, rows, window, columns, window, channels]`."""
    samples, height, width, channels = images.shape
    if window < 1 or height % window or width % window:
        raise ValueError(
            f"`window` must divide the images' height and width, got {window} for "
            f"{height} x {width} pixels."
        )
    shape = (samples, height // window, window, width // window, window, channels)
    return images.reshape(shape)


def _max_pool_forward(images: Array, window: int) -> tuple[Array, tuple[Array, Array]]:
    largest = _largest(images, window)
    return largest, (images, largest)


def _max_pool_backward(
    window: int, kept: tuple[Array, Array], gradient: Array
) -> tuple[Array]:
    images, largest = kept
    squares = _squares(images, window)
    pixels = itertools.product(range(window), repeat=2)
    # Slices instead of a sum over the axes: one pass, three times as fast on a CPU.
    shares = _shares([squares[:, :, i, :, j] for i, j in pixels], largest, gradient)
    is_largest = squares == largest[:, :, None, :, None]
    shares = jnp.where(is_largest, shares[:, :, None, :, None], 0)
    return (shares.reshape(images.shape),)


def _shares(candidates: list[Array], largest: Array, gradient: Array) -> Array:
    """What each maximal entry of a window receives: the gradient over their number."""
    count = sum((entry == largest).astype(gradient.dtype) for entry in candidates)
    return gradient / count


max_pool.defvjp(_max_pool_forward, _max_pool_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def overlapping_max_pool(
    images: Float[Array, "samples height width channels"],
    window: int = 3,
    stride: int = 2,
) -> Float[Array, "samples new_height new_width channels"]:
    """Maximum over squares of `window` pixels, `stride` pixels apart.

    Padded as TensorFlow's "SAME": `ceil(size / stride)` squares on either axis, the
    missing pixels split between both ends, the odd one last; they never win.

    Raises:
      ValueError: if `stride` is not in 1 to `window`.
    """
    return _largest_strided(images, window, stride)


def _largest_strided(images: Array, window: int, stride: int) -> Array:
    return functools.reduce(jnp.maximum, _strided(images, window, stride))


def _margins(size: int, window: int, stride: int) -> tuple[int, int]:
    """Missing pixels before and after one axis."""
    missing = (math.ceil(size / stride) - 1) * stride + window - size
    missing = max(missing, 0)
    return missing // 2, missing - missing // 2


def _strided(images: Array, window: int, stride: int) -> list[Array]:
    """The entries of all windows, row by row: one array per place in the window."""
    if not 1 <= stride <= window:
        raise ValueError(f"`stride` must be in 1 to {window}, got {stride}.")
    height, width = images.shape[1:3]
    margins = [_margins(size, window, stride) for size in (height, width)]
    padded = jnp.pad(images, ((0, 0), *margins, (0, 0)), constant_values=-jnp.inf)
    rows, columns = (
        (math.ceil(size / stride) - 1) * stride for size in (height, width)
    )
    return [
        padded[:, i : i + rows + 1 : stride, j : j + columns + 1 : stride]
        for i, j in itertools.product(range(window), repeat=2)
    ]


def _overlapping_forward(
    images: Array, window: int, stride: int
) -> tuple[Array, tuple[Array, Array]]:
    largest = _largest_strided(images, window, stride)
    return largest, (images, largest)


def _overlapping_backward(
    window: int, stride: int, kept: tuple[Array, Array], gradient: Array
) -> tuple[Array]:
    images, largest = kept
    entries = _strided(images, window, stride)
    shares = lax.optimization_barrier(_shares(entries, largest, gradient))
    zero = jnp.zeros((), gradient.dtype)
    total = jnp.zeros_like(images)
    for (row, column), entry in zip(
        itertools.product(range(window), repeat=2), entries, strict=True
    ):
        spread = [
            _placement(size, window, stride, place)
            for size, place in zip(images.shape[1:3], (row, column), strict=True)
        ]
        mine = jnp.where(entry == largest, shares, 0)
        total = total + lax.pad(mine, zero, ((0, 0, 0), *spread, (0, 0, 0)))
    return (total,)


def _placement(size: int, window: int, stride: int, place: int) -> tuple[int, int, int]:
    """Padding that brings the entries at one place of the windows home."""
    before = place - _margins(size, window, stride)[0]
    last = (math.ceil(size / stride) - 1) * stride + before
    return before, size - 1 - last, stride - 1


overlapping_max_pool.defvjp(_overlapping_forward, _overlapping_backward)


def local_response(
    images: Float[Array, "samples height width channels"],
    *,
    radius: int = 4,
    bias: float = 1.0,
    alpha: float = 0.001 / 9,
) -> Float[Array, "samples height width channels"]:
    """Local response normalisation across channels (Krizhevsky et al. 2012, 3.3).

    Divides each entry by `(bias + alpha s) ** 0.75`, s the sum of squares of the
    channels at most `radius` away, in TensorFlow's convention: alpha is not divided
    by the number of channels summed. The defaults are those of its CIFAR-10 tutorial.
    """
    channel = np.arange(images.shape[-1])
    is_near = abs(channel[:, None] - channel[None, :]) <= radius
    # A product with zeros and ones: shifted sums are computed again by all that use
    # them, which trebles the time of a training step on a CPU.
    sums = lax.dot_general(
        jnp.square(images),
        jnp.asarray(is_near, images.dtype),
        (((3,), (0,)), ((), ())),
        precision=lax.Precision.HIGHEST,  # not TF32 on an accelerator
    )
    root = lax.rsqrt(bias + alpha * sums)  # Two roots are faster than a power.
    return images * root * jnp.sqrt(root)
