"""Scores that the tables of CLoVE and `compare` share."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from cfljax import metrics
from cfljax.kernels.evaluate import NO_CLUSTER

__all__ = ["rand_index"]


def rand_index(
    assignment: Int[Array, " clients"], truth: Int[Array, " clients"]
) -> Float[Array, ""]:
    """Adjusted Rand index of those who have a cluster, whatever its number is.

    NaN where no two of them are of one true cluster: there is nothing to find.

    Args:
      assignment: cluster of each client, `NO_CLUSTER` for none.
      truth: true cluster of each client.
    """
    present = assignment != NO_CLUSTER
    together = assignment[:, None] == assignment[None, :]
    first = jnp.argmax(together, axis=1)  # Now they are in `[0, clients)`.
    number = truth.shape[0]
    index = metrics.adjusted_rand_index(first, truth, number, number, present=present)
    alike = (truth[:, None] == truth[None, :]) & present[:, None] & present[None, :]
    return jnp.where(jnp.any(jnp.triu(alike, 1)), index, jnp.nan)
