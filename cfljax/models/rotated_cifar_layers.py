"""Layers of the Rotated CIFAR network, kept apart because flax is slow to import."""

import itertools
from collections.abc import Sequence

from flax import nnx
from jaxtyping import Array

from cfljax.models.cnn_layers import Convolution, truncated_normal
from cfljax.models.pooling import local_response, overlapping_max_pool

__all__ = ["RotatedCifar"]

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
