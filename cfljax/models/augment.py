"""Windows of images, distorted at random in training and central in evaluation."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from cfljax.models.cnn import check_images
from cfljax.types import Task

__all__ = ["central_window", "distort", "standardise", "windowed"]

Images = Float[Array, "samples height width channels"]
Windows = Float[Array, "samples window window channels"]


def windowed(
    task: Task,
    *,
    input_shape: Sequence[int],
    window: int,
    shared: bool = True,
    brightness: float = 0.0,
    contrast: tuple[float, float] = (1.0, 1.0),
) -> Task:
    """A task on images from a task on standardised windows of them.

    Training sees a random window of every image, see `distort`, evaluation and
    prediction see the central one; each window is standardised by itself.

    Args:
      task: on images `[samples, window, window, channels]`.
      input_shape: `(height, width, channels)` of the whole images.
      window: height and width of a window, in pixels.
      shared: see `distort`, like the two that follow.
      brightness: largest shift, in the units of the images.
      contrast: least and largest factor.

    Raises:
      ValueError: if the window does not fit into the images, `brightness` is
        negative or `contrast` is not an interval of positive numbers.
    """
    if len(input_shape) != 3 or not 1 <= window <= min(input_shape[:2]):
        raise ValueError(
            "`window` must fit into (height, width, channels) of `input_shape`, got "
            f"{window} and {tuple(input_shape)}."
        )
    if not brightness >= 0:
        raise ValueError(f"`brightness` must be at least 0, got {brightness}.")
    if not 0 < contrast[0] <= contrast[1]:
        raise ValueError(
            f"`contrast` must be an interval of positive numbers, got {contrast}."
        )

    def central(inputs: Images) -> Windows:
        check_images(inputs, input_shape)
        return standardise(central_window(inputs, window))

    def predict(params: PyTree, inputs: Images) -> Array:
        return task.predict(params, central(inputs))

    def losses(
        params: PyTree, inputs: Images, targets: Int[Array, " samples"]
    ) -> Float[Array, " samples"]:
        return task.losses(params, central(inputs), targets)

    def fit(
        key: PRNGKeyArray,
        params: PyTree,
        inputs: Images,
        targets: Int[Array, " samples"],
        mask: Bool[Array, " samples"],
    ) -> tuple[Float[Array, " samples"], PyTree]:
        check_images(inputs, input_shape)
        images_key, key = jax.random.split(key)
        images = standardise(
            distort(
                images_key,
                inputs,
                window=window,
                shared=shared,
                brightness=brightness,
                contrast=contrast,
            )
        )
        if task.fit is None:
            return task.losses(params, images, targets), params
        return task.fit(key, params, images, targets, mask)

    return Task(task.init, losses, predict, fit)


def distort(
    key: PRNGKeyArray,
    images: Images,
    *,
    window: int,
    shared: bool,
    brightness: float,
    contrast: tuple[float, float],
) -> Windows:
    """Random windows of images, flipped, brightened and of another contrast.

    Every image is mirrored left to right with probability 1/2. A shift uniform on
    `[-brightness, brightness)` is added to all its entries. Then its entries move
    away from the mean of their channel by a factor uniform on `contrast`.

    Args:
      key: of this batch.
      images: at least `window` pixels high and wide.
      window: height and width of the result.
      shared: one window, one shift and one factor for the batch, as where
        TensorFlow's operations for one image meet a batch; otherwise for each image.
      brightness: largest shift.
      contrast: least and largest factor.
    """
    samples, height, width, channels = images.shape
    corner_key, flip_key, shift_key, factor_key = jax.random.split(key, 4)
    draws = 1 if shared else samples
    rows, columns = (
        jax.random.randint(axis_key, (draws,), 0, size - window + 1)
        for axis_key, size in zip(
            jax.random.split(corner_key), (height, width), strict=True
        )
    )
    if shared:
        corner = (0, rows[0], columns[0], 0)
        images = lax.dynamic_slice(images, corner, (samples, window, window, channels))
    else:
        cut = lambda image, row, column: lax.dynamic_slice(
            image, (row, column, 0), (window, window, channels)
        )
        images = jax.vmap(cut)(images, rows, columns)

    def each(values: Array) -> Array:
        return values[:, None, None, None]

    is_mirrored = each(jax.random.bernoulli(flip_key, 0.5, (samples,)))
    images = jnp.where(is_mirrored, images[:, :, ::-1], images)
    shifts = jax.random.uniform(
        shift_key, (draws,), images.dtype, minval=-brightness, maxval=brightness
    )
    low, high = contrast
    factors = jax.random.uniform(
        factor_key, (draws,), images.dtype, minval=low, maxval=high
    )
    shifts, factors = (
        jnp.broadcast_to(each(values), (samples, 1, 1, 1))
        for values in (shifts, factors)
    )
    means = jnp.mean(images, axis=(1, 2), keepdims=True)
    return (images - means) * factors + means + shifts


def central_window(images: Images, window: int) -> Windows:
    """The middle of images; of two middles, the one nearer the upper left."""
    top, left = ((size - window) // 2 for size in images.shape[1:3])
    return images[:, top : top + window, left : left + window]


def standardise(images: Images) -> Images:
    """Each image with mean 0 and variance 1 over all its entries.

    As in TensorFlow, the standard deviation counts as at least one over the square
    root of the number of entries, so that a uniform image becomes zeros.
    """
    over = (1, 2, 3)
    centred = images - jnp.mean(images, axis=over, keepdims=True)
    variances = jnp.mean(jnp.square(centred), axis=over, keepdims=True)
    entries = images[0].size
    return centred / jnp.sqrt(jnp.maximum(variances, 1 / entries))
