"""The network of LEAF's FEMNIST, which IFCA's section 6.3 trains."""

from cfljax.models.cnn import cnn
from cfljax.types import Task

__all__ = ["femnist_cnn"]


def femnist_cnn(*, hidden: int = 2048, num_classes: int = 62) -> Task:
    """LEAF's convolutional network for handwritten digits and letters.

    Two 5 x 5 convolutions of 32 and 64 channels, each with ReLU and a 2 x 2 pool, a
    hidden layer and the logits (Caldas et al. 2018, and IFCA's released code; Ghosh
    et al. 2020, section 6.3, gives the kinds of layers only). Weights start as
    TensorFlow's layers do: uniform with variance `2 / (fan_in + fan_out)`, biases 0.
    IFCA trains only what lies under the key "output" of the params in each cluster.

    Args:
      hidden: width of the hidden layer; the 2048 of the original hold 98 % of the
        6.6 million weights.
      num_classes: 62, digits and letters in both cases.

    Returns:
      A task on images `[samples, 28, 28]` in [0, 1], see `cnn`.

    Raises:
      ValueError: if `hidden` is below 1 or `num_classes` below 2.
    """
    return cnn(
        (28, 28), hidden=(hidden,), num_classes=num_classes, initialiser="glorot"
    )
