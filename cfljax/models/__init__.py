"""Models as tasks: pure functions over plain pytrees of parameters."""

from cfljax.models.cnn import cnn
from cfljax.models.femnist import femnist_cnn
from cfljax.models.linear import linear
from cfljax.models.mlp import mlp
from cfljax.models.rotated_cifar import rotated_cifar_cnn

__all__ = ["cnn", "femnist_cnn", "linear", "mlp", "rotated_cifar_cnn"]
