"""The deeper network that CLoVE's experiments train on CIFAR-10."""

from collections.abc import Sequence

from cfljax.models.cnn import cnn
from cfljax.types import Task

__all__ = ["deep_cnn"]


def deep_cnn(
    *,
    channels: Sequence[int] = (32, 64, 128),
    hidden: Sequence[int] = (256,),
    dropout: float = 0.5,
    num_classes: int = 10,
) -> Task:
    """Convolutions with batch normalisation and linear layers with dropout.

    CLoVE (appendix C): "a deep convolutional neural network classifier, designed for
    32 x 32 RGB images. It uses batch normalization for stable training and dropout in
    fully connected layers". Depth, widths, kernels (here 3 x 3) and the probability
    are not given: all are a choice. Their network for MNIST, Fashion-MNIST and FEMNIST,
    of "5 x 5 kernels, Stride 1 (default) followed by ReLU and 2 x 2 max pooling", is
    the default of `cnn`, where the widths are a choice too.

    Args:
      channels: output channels of the convolutions, five at most; each halves height
        and width by its pool.
      hidden: widths of the hidden linear layers.
      dropout: probability in [0, 1) that a hidden unit is left out in training.
      num_classes: number of logits, at least 2.

    Returns:
      A task on images `[samples, 32, 32, 3]`, see `cnn`; its params are `Variables`.

    Raises:
      ValueError: see `cnn`.
    """
    return cnn(
        (32, 32, 3),
        channels=channels,
        kernel_size=3,
        hidden=hidden,
        num_classes=num_classes,
        batch_norm=True,
        dropout=dropout,
    )
