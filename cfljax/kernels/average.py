"""Server steps: what a centre makes of its clients' gradients and models."""

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, ScalarLike

from cfljax.kernels.tree import length, rows, select
from cfljax.types import Stacked

__all__ = ["Normalise", "cluster_mean", "gradient_step", "membership"]

Normalise = Literal["all", "participants", "cluster"]


def membership(
    assignment: Int[Array, " clients"], num_clusters: int
) -> Bool[Array, "clients clusters"]:
    """One-hot rows s_ij of the assignment; a row of `NO_CLUSTER` is all false."""
    return assignment[:, None] == jnp.arange(num_clusters)[None, :]


def gradient_step(
    models: Stacked,
    pullback: Callable[[Float[Array, "clients clusters"]], tuple[Stacked]],
    members: Bool[Array, "clients clusters"],
    *,
    step_size: ScalarLike,
    num_clients: int,
    normalise: Normalise,
) -> Stacked:
    """One gradient step of every cluster model (IFCA, Algorithm 2, line 14).

    The sum of the members' gradients is one pullback of the loss matrix with the
    membership as cotangent: no gradient of a single client is ever formed.

    Args:
      models: leaves `[clusters, ...]`.
      pullback: vector-Jacobian product of `models -> loss_matrix(models)`.
      members: whether client i takes part in cluster j; rows of the participants.
      step_size: gamma.
      num_clients: m, counting the clients that do not participate.
      normalise: the divisor of the summed gradients. "all": m, as the paper
        prints; "participants": the number of rows of `members`; "cluster": the
        size of the cluster, so that the step does not shrink with it. For k
        balanced clusters under full participation "cluster" moves k times
        further than the other two.

    Returns:
      Leaves `[clusters, ...]`; a cluster without members keeps its model, even
      one that is not finite.
    """
    weights = members.astype(jnp.result_type(*jax.tree.leaves(models)))
    sizes = jnp.sum(weights, axis=0)
    divisor = {
        "all": jnp.full_like(sizes, num_clients),
        "participants": jnp.full_like(sizes, members.shape[0]),
        "cluster": jnp.maximum(sizes, 1),
    }[normalise]
    (gradient,) = pullback(weights / divisor[None, :])
    moved = jax.tree.map(lambda a, g: a - step_size * g, models, gradient)
    return select(sizes > 0, moved, models)


def cluster_mean(
    values: Stacked,
    assignment: Int[Array, " clients"],
    weights: Float[Array, " clients"],
    *,
    empty: Stacked,
) -> Stacked:
    """Weighted mean of client values inside each cluster (line 15).

    Args:
      values: leaves `[clients, ...]`.
      assignment: cluster of each client; `NO_CLUSTER` leaves the client out.
      weights: non-negative, not necessarily normalised: ones, or sample counts.
      empty: leaves `[clusters, ...]`; kept by a cluster of zero total weight,
        whose mean would be 0/0.

    Returns:
      Leaves `[clusters, ...]`. A value that is not finite spoils its own cluster's
      mean and no other.
    """
    num_clusters = length(empty)
    weights = jnp.where(assignment >= 0, weights, 0)
    cluster = jnp.maximum(assignment, 0)
    total = jax.ops.segment_sum(weights, cluster, num_clusters)  # [clusters]
    used = total > 0

    def mean(value: Array, fallback: Array) -> Array:
        share = rows(weights, value) * value
        share = jnp.where(rows(weights > 0, value), share, 0)
        summed = jax.ops.segment_sum(share, cluster, num_clusters)
        divisor = rows(jnp.where(used, total, 1), summed)
        return jnp.where(rows(used, summed), summed / divisor, fallback)

    return jax.tree.map(mean, values, empty)
