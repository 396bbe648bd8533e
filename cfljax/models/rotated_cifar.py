"""The network of IFCA's Rotated CIFAR (Ghosh et al. 2020, section 6.2)."""

import itertools
from collections.abc import Sequence
from typing import Literal

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, ScalarLike

from cfljax.base.checks import check_member
from cfljax.base.ranges import ranged
from cfljax.base.types import Task
from cfljax.losses import cross_entropy
from cfljax.models.convolution import local_response, overlapping_max_pool
from cfljax.models.image_networks import (
    Convolution,
    check_images,
    functions,
    truncated_normal,
)

Variant = Literal["code", "text"]

_INPUT = (32, 32, 3)
_WINDOW = 24


@ranged
def rotated_cifar_cnn(
    *, num_classes: int = 10, l2: ScalarLike = 0.004, variant: Variant = "code"
) -> Task:
    """Two convolutions and linear layers on random windows of CIFAR's images.

    The released code trains TensorFlow's CIFAR-10 tutorial (release 0.12): a 5 x 5
    convolution of 64 channels, ReLU, 3 x 3 pool with stride 2, local response
    normalisation; the same with the last two exchanged; hidden layers of 384 and
    192. Training sees a random 24 x 24 window, mirrored or not, of random brightness
    and contrast; evaluation the central one; both standardised image by image. The
    code chooses clusters on training images so distorted, `losses` on central ones.

    Where paper and code differ, `variant` says who is followed:

    - "code": hidden layers 384 and 192; window, brightness (which standardising
      removes again) and contrast (a factor in 0.2 to 1.8) are drawn for a whole
      batch, mirroring for each image.
    - "text": "2 fully connected layers", of which the first is 384 wide and the
      second makes the logits; "flipping and random cropping" alone, of each image.
      The text has no regulariser either, which `l2=0` says.

    Args:
      num_classes: number of logits, at least 2.
      l2: factor of half the squared entries of the hidden layers' kernels, added to
        every sample's loss. May be traced.
      variant: see above.

    Returns:
      A task on images `[samples, 32, 32, 3]` in [0, 1], already rotated, and integer
      labels. Params are nested dicts with keys "convolutions", "hidden", "output",
      as in `cnn`; their kernels start normal, drawn again beyond two standard
      deviations, which are 0.05, 0.04 and one over the last width.

    Raises:
      ValueError: if `num_classes` is below 2 or `variant` unknown.
    """
    if num_classes < 2:
        raise ValueError(f"`num_classes` must be at least 2, got {num_classes}.")
    check_member(Variant, variant=variant)
    hidden = (384, 192) if variant == "code" else (384,)
    init, apply, *_ = functions(
        lambda rngs: RotatedCifar(
            _WINDOW, hidden=hidden, num_classes=num_classes, rngs=rngs
        )
    )

    def predict(
        params: PyTree, images: Float[Array, "samples height width channels"]
    ) -> Float[Array, "samples classes"]:
        return apply(params, images)[0]

    def losses(
        params: PyTree,
        images: Float[Array, "samples height width channels"],
        targets: Int[Array, " samples"],
    ) -> Float[Array, " samples"]:
        layers = params["hidden"].values()
        squares = sum(jnp.sum(jnp.square(layer["kernel"])) for layer in layers)
        return cross_entropy(predict(params, images), targets) + l2 * squares / 2

    network = Task(init, losses, predict)
    if variant == "text":
        return windowed(network, input_shape=_INPUT, window=_WINDOW, shared=False)
    return windowed(
        network,
        input_shape=_INPUT,
        window=_WINDOW,
        brightness=63 / 255,
        contrast=(0.2, 1.8),
    )


_CHANNELS = 64


class RotatedCifar(nnx.Module):
    """TensorFlow's CIFAR-10 tutorial network, see `rotated_cifar_cnn`.

    window: height and width of the input, of three channels.
    hidden, num_classes: widths of the linear layers.
    """

    def __init__(
        self, window: int, *, hidden: Sequence[int], num_classes: int, rngs: nnx.Rngs
    ):
        self.convolutions = nnx.List(
            Convolution(
                5,
                channels_in,
                _CHANNELS,
                kernel_init=truncated_normal(0.05),
                bias_init=nnx.initializers.constant(bias),
                rngs=rngs,
            )
            for channels_in, bias in ((3, 0.0), (_CHANNELS, 0.1))
        )
        pooled = -(-window // 4)  # Two pools halve it, upwards.
        widths = (pooled**2 * _CHANNELS, *hidden)
        self.hidden = nnx.List(
            nnx.Linear(
                fan_in,
                fan_out,
                kernel_init=truncated_normal(0.04),
                bias_init=nnx.initializers.constant(0.1),
                rngs=rngs,
            )
            for fan_in, fan_out in itertools.pairwise(widths)
        )
        self.output = nnx.Linear(
            widths[-1],
            num_classes,
            kernel_init=truncated_normal(1 / widths[-1]),
            rngs=rngs,
        )

    def __call__(self, images: Array) -> Array:
        """Logits `[samples, classes]`."""
        first, second = self.convolutions
        # A pool commutes with the bias and ReLU, which then have a quarter of the work.
        images = _activate(overlapping_max_pool(first(images)), first)
        images = local_response(images)
        images = local_response(_activate(second(images), second))
        images = overlapping_max_pool(images)
        features = images.reshape(images.shape[0], -1)
        for layer in self.hidden:
            features = nnx.relu(layer(features))
        return self.output(features)


def _activate(images: Array, layer: Convolution) -> Array:
    assert layer.bias is not None
    return nnx.relu(images + layer.bias[...][None, None, None, :])


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
