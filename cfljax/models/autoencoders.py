"""Autoencoders for images: tasks whose targets are their inputs."""

import itertools
from collections.abc import Callable, Sequence
from math import prod

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Num, PyTree

from cfljax.base.ranges import ranged
from cfljax.base.types import Task
from cfljax.losses import squared_error
from cfljax.models.convolution import max_pool
from cfljax.models.image_networks import (
    Convolution,
    check_images,
    fan_in_uniform,
    functions,
)
from cfljax.models.perceptron import LinearLayers


@ranged
def autoencoder(
    input_shape: Sequence[int], *, hidden: Sequence[int] = (128,), latent: int = 32
) -> Task:
    """Fully connected autoencoder with a sigmoid and the mean squared error.

    CLoVE (appendix C) reconstructs MNIST and Fashion-MNIST with such a network and
    gives no widths: those here are a choice. ReLU follows every layer but the last,
    the latent one included. Weights and biases start uniform on
    `(-1, 1) / sqrt(fan_in)`, the default of PyTorch's `Linear`.

    Args:
      input_shape: shape of one image, such as `(28, 28)`.
      hidden: widths of the hidden layers before the latent one; those behind it are
        the same in reverse.
      latent: width of the bottleneck.

    Returns:
      A task on images `[samples, *input_shape]` in [0, 1]. `losses` are the squared
      error averaged over the pixels and ignore the targets, so that labelled clients
      serve as they are; `predict` gives images of the same shape. Params have the key
      "layers", then a layer's number; they stack under vmap.

    Raises:
      ValueError: if a width is below 1; when called, if images have another shape.
    """
    if min(*input_shape, *hidden, latent) < 1:
        raise ValueError(
            "`input_shape`, `hidden` and `latent` must be positive integers, got "
            f"{tuple(input_shape)}, {tuple(hidden)} and {latent}."
        )
    size = prod(input_shape)
    widths = (size, *hidden, latent, *reversed(hidden), size)
    network = functions(lambda rngs: LinearLayers(widths, rngs))

    def predict(
        params: PyTree, images: Float[Array, "samples *image"]
    ) -> Float[Array, "samples *image"]:
        check_images(images, input_shape)
        outputs, _ = network.apply(params, images.reshape(images.shape[0], size))
        return nnx.sigmoid(outputs).reshape(images.shape)

    return Task(network.init, _reconstruction(predict), predict)


@ranged
def convolutional_autoencoder(
    input_shape: Sequence[int] = (32, 32, 3),
    *,
    channels: Sequence[int] = (32, 64),
    kernel_size: int = 3,
    latent: int = 128,
) -> Task:
    """Convolutional autoencoder with a dense bottleneck, a tanh and the squared error.

    CLoVE (appendix C) reconstructs CIFAR-10 with "a fully connected latent bottleneck
    and a Tanh output" and gives neither widths nor layers: those here are a choice. The
    encoder has a convolution, ReLU and 2 x 2 max-pool for each of `channels` and a
    linear layer; the decoder a linear layer with ReLU, then for each of `channels`
    reversed an enlargement by 2 that repeats pixels, and a convolution.

    Args:
      input_shape: `(height, width, channels)` of one image; every pool halves both.
      channels: output channels of the encoder's convolutions.
      kernel_size: height and width of all kernels, in pixels.
      latent: width of the bottleneck, which has no ReLU.

    Returns:
      A task on images `[samples, *input_shape]`, as `autoencoder`. Outputs are in
      (-1, 1): images in [0, 1] are within reach, and so are centred ones `2 x - 1`,
      whose losses are four times as large; the paper does not say which it had.

    Raises:
      ValueError: if a size is below 1 or height and width cannot be halved so often;
        when called, if images have another shape.
    """
    image = _checked(input_shape, channels, kernel_size, latent)
    network = functions(
        lambda rngs: ConvolutionalAutoencoder(
            image, channels=channels, kernel_size=kernel_size, latent=latent, rngs=rngs
        )
    )

    def predict(
        params: PyTree, images: Float[Array, "samples height width channels"]
    ) -> Float[Array, "samples height width channels"]:
        check_images(images, input_shape)
        return nnx.tanh(network.apply(params, images)[0])

    return Task(network.init, _reconstruction(predict), predict)


def _reconstruction(
    predict: Callable[[PyTree, Array], Array],
) -> Callable[[PyTree, Array, Array], Array]:
    """Losses of images against themselves, whatever the targets."""

    def losses(
        params: PyTree,
        images: Float[Array, "samples *image"],
        targets: Num[Array, "samples *any"],
    ) -> Float[Array, " samples"]:
        del targets
        return squared_error(predict(params, images), images)

    return losses


def _checked(
    input_shape: Sequence[int], channels: Sequence[int], kernel_size: int, latent: int
) -> tuple[int, int, int]:
    """Height, width and channels, once all sizes make sense."""
    if len(input_shape) != 3:
        raise ValueError(
            "`input_shape` must be (height, width, channels), got "
            f"{tuple(input_shape)}."
        )
    if not channels:
        raise ValueError("`channels` must name at least one convolution, got ().")
    if min(*input_shape, *channels, kernel_size, latent) < 1:
        raise ValueError(
            "`input_shape`, `channels`, `kernel_size` and `latent` must be positive "
            f"integers, got {tuple(input_shape)}, {tuple(channels)}, {kernel_size} and "
            f"{latent}."
        )
    height, width, depth = input_shape
    factor = 2 ** len(channels)
    if height % factor or width % factor:
        raise ValueError(
            f"`input_shape` must have multiples of {factor} as height and width, since "
            f"each of {len(channels)} pools halves them, got {tuple(input_shape)}."
        )
    return height, width, depth


class ConvolutionalAutoencoder(nnx.Module):
    """Encoder and decoder, see `convolutional_autoencoder`.

    image: height, width and channels of the input.
    channels, kernel_size: of the convolutions, which keep height and width.
    latent: width of the bottleneck.
    """

    def __init__(
        self,
        image: tuple[int, int, int],
        *,
        channels: Sequence[int],
        kernel_size: int,
        latent: int,
        rngs: nnx.Rngs,
    ):
        height, width, depth = image
        factor = 2 ** len(channels)
        self.small = (height // factor, width // factor, channels[-1])
        features = self.small[0] * self.small[1] * self.small[2]
        self.encoder = nnx.List(_chain(kernel_size, (depth, *channels), rngs))
        self.bottleneck = _linear(features, latent, rngs)
        self.widening = _linear(latent, features, rngs)
        self.decoder = nnx.List(_chain(kernel_size, (*reversed(channels), depth), rngs))

    def __call__(self, images: Array) -> Array:
        """Outputs before the tanh, of the images' shape."""
        for layer in self.encoder:
            # Pooling commutes with what follows, and leaves it a quarter of the work.
            images = max_pool(layer(images))
            images = nnx.relu(_with_bias(layer, images))
        latent = self.bottleneck(images.reshape(images.shape[0], -1))
        images = nnx.relu(self.widening(latent)).reshape(-1, *self.small)
        for index, layer in enumerate(self.decoder):
            images = jnp.repeat(jnp.repeat(images, 2, axis=1), 2, axis=2)
            images = _with_bias(layer, layer(images))
            if index + 1 < len(self.decoder):
                images = nnx.relu(images)
        return images


def _chain(size: int, depths: Sequence[int], rngs: nnx.Rngs) -> list[Convolution]:
    """Convolutions from each number of channels to the next."""
    found = []
    for channels_in, channels_out in itertools.pairwise(depths):
        weights, biases = fan_in_uniform(size**2 * channels_in, size**2 * channels_out)
        layer = Convolution(
            size,
            channels_in,
            channels_out,
            kernel_init=weights,
            bias_init=biases,
            rngs=rngs,
        )
        found.append(layer)
    return found


def _with_bias(layer: Convolution, images: Array) -> Array:
    bias = layer.bias
    return images if bias is None else images + bias[...][None, None, None, :]


def _linear(fan_in: int, fan_out: int, rngs: nnx.Rngs) -> nnx.Linear:
    weights, biases = fan_in_uniform(fan_in, fan_out)
    return nnx.Linear(fan_in, fan_out, kernel_init=weights, bias_init=biases, rngs=rngs)
