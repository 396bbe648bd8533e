"""Server optimisers: how far a centre follows the mean of what its clients trained."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool

from cfljax.kernels.tree import select, trained_part, with_trained
from cfljax.types import Stacked

__all__ = ["ServerOptimizer", "server_start", "server_step"]

ServerOptimizer = Callable[[Any], optax.GradientTransformation]  # Of a step size.


def server_start(optimizer: optax.GradientTransformation, models: Stacked) -> Stacked:
    """The optimiser's first state for each centre, leaves `[clusters, ...]`.

    Args:
      optimizer: of the server.
      models: leaves `[clusters, ...]`.

    Memory: that of one state of the optimiser for each cluster.
    """
    return jax.vmap(optimizer.init)(trained_part(models))


def server_step(
    optimizer: optax.GradientTransformation,
    models: Stacked,
    means: Stacked,
    states: Stacked,
    used: Bool[Array, " clusters"],
) -> tuple[Stacked, Stacked]:
    """One step of every centre along its pseudo-gradient, `model - mean`.

    A plain step of size 1 lands on the mean, which is federated averaging. Statistics
    (`Variables`) are no weights: they become their mean.

    Source: Reddi et al., "Adaptive Federated Optimization", ICLR 2021, Algorithm 1.

    Args:
      optimizer: of the server.
      models: leaves `[clusters, ...]`, as broadcast.
      means: leaves `[clusters, ...]`, of what the members trained from them.
      states: of the optimiser, leaves `[clusters, ...]`.
      used: whether a cluster has members; one without keeps its model and state.

    Returns:
      New models and states, leaves `[clusters, ...]`.
    """
    weights = trained_part(models)
    gradient = jax.tree.map(jnp.subtract, weights, trained_part(means))
    changes, after = jax.vmap(optimizer.update)(gradient, states, weights)
    moved = with_trained(means, optax.apply_updates(weights, changes))
    return select(used, moved, models), select(used, after, states)
