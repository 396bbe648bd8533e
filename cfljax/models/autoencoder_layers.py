"""Layers of the convolutional autoencoder, kept apart: flax is slow to import."""

import itertools
from collections.abc import Sequence

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array

from cfljax.models.cnn_layers import Convolution, fan_in_uniform
from cfljax.models.pooling import max_pool

__all__ = ["ConvolutionalAutoencoder"]


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
        depths = (*reversed(channels), depth)
        self.decoder = nnx.List(_chain(kernel_size, depths, rngs))

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
