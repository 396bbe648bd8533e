"""Models as tasks: pure functions over plain pytrees of parameters."""

from cfljax.models.cnn import cnn
from cfljax.models.femnist import femnist_cnn
from cfljax.models.linear import linear
from cfljax.models.mlp import mlp

__all__ = ["cnn", "femnist_cnn", "linear", "mlp"]
