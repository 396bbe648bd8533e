"""Models as tasks: pure functions over plain pytrees of parameters."""

from cfljax.models.autoencoder import autoencoder, convolutional_autoencoder
from cfljax.models.cnn import cnn
from cfljax.models.deep_cnn import deep_cnn
from cfljax.models.femnist import femnist_cnn
from cfljax.models.linear import linear
from cfljax.models.mlp import mlp
from cfljax.models.rotated_cifar import rotated_cifar_cnn
from cfljax.models.text_cnn import text_cnn

__all__ = [
    "autoencoder",
    "cnn",
    "convolutional_autoencoder",
    "deep_cnn",
    "femnist_cnn",
    "linear",
    "mlp",
    "rotated_cifar_cnn",
    "text_cnn",
]
