"""Max-pooling and local response normalisation with gradients that a CPU likes.

XLA's own gradient of a window's maximum scatters one number at a time, ten times as
slow on a CPU as the comparisons used here. Where several entries of a window are
maximal, as on an empty background, each receives an equal share of the gradient, the
convention of `jax.numpy.max`; no corner of the window is preferred, so that rotated
images train rotated networks.
"""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

__all__ = ["local_response", "max_pool", "overlapping_max_pool"]


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
