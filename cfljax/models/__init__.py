"""Models as tasks: pure functions over plain pytrees of parameters."""

from cfljax.models.linear import linear
from cfljax.models.mlp import mlp

__all__ = ["linear", "mlp"]
