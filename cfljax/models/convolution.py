"""Convolution whose gradients stay fast inside loops and under vmap on a CPU.

XLA's CPU backend multiplies matrices for a convolution in the layout of a forward
pass only. It brings the gradients into that layout at the top of a program, but not
in the body of a loop, where they fall to a naive nest up to 78 times as slow; and a
convolution of kernels under vmap becomes a grouped one, which is as bad. Here both
gradients are written as forward convolutions, and kernels under vmap take turns.
"""

import functools
import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from cfljax.kernels.backend import Order

__all__ = ["Padding", "convolution"]

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
    if order is None:
        order = "sequential" if jax.default_backend() == "cpu" else "batched"
    form = _forward if order == "sequential" else _plain
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
    return lax.conv_general_dilated(
        inputs, kernel, (1, 1), pads, dimension_numbers=names
    )


def _multiply(pads: _Pads, inputs: Array, kernel: Array) -> Array:
    """`_plain` in the form that the CPU computes fastest."""
    if pads != ((0, 0), (0, 0)):
        return _plain(pads, inputs, kernel)
    # Without any padding larger images take 2.5 times as long per output.
    wider = _plain(((0, 0), (0, 1)), inputs, kernel)
    return lax.optimization_barrier(wider)[:, :, :-1]


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
    """`function(pads, first, second)` with a batching rule of its own.

    merge: whether to merge the mapped axis into the samples where only `first` has
      it. Otherwise, and where `second` has it, a loop runs over that axis.
    """

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
