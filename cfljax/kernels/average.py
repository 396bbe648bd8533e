"""Server steps: what a centre makes of its clients' gradients and models."""

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, ScalarLike

from cfljax.kernels.tree import length, rows, select
from cfljax.types import Stacked

__all__ = ["Normalise", "cluster_mean", "gradient_step", "membership"]

# Divisor of a cluster's summed gradients. It changes the effective step size: for k
# balanced clusters under full participation "cluster" moves k times further.
#   all: m, as IFCA's line 14 prints; participants: |M_t|; cluster: its members.
Normalise = Literal["all", "participants", "cluster"]


def membership(
    assignment: Int[Array, " clients"], num_clusters: int
) -> Bool[Array, "clients clusters"]:
    """One-hot rows s_ij of the assignment; a row of `NO_CLUSTER` is all false."""
    return assignment[:, None] == jnp.arange(num_clusters)[None, :]


def gradient_step(
    models: Stacked,
    pullback: Callable[[Float[Array, "clients clusters"]], tuple[Stacked]],
    weights: Float[Array, "clients clusters"],
    *,
    step_size: ScalarLike,
    total: ScalarLike,
    per_cluster: bool,
) -> Stacked:
    """One gradient step of every cluster model (IFCA, Algorithm 2, line 14).

    The sum of the members' gradients is one pullback of the loss matrix with the
    weights as cotangent: no gradient of a single client is ever formed. For the same
    reason a client with a sample that is not finite spoils all models here, whatever
    its weight (0 x NaN): `ClientData` must be finite.

    Args:
      models: leaves `[clusters, ...]`.
      pullback: vector-Jacobian product of `models -> loss_matrix(models)`.
      weights: of client i's gradient in cluster j, 0 outside its cluster.
      step_size: gamma.
      total: divisor of the weighted sums, for all clusters alike.
      per_cluster: divide by the cluster's own weight instead.

    Returns:
      Leaves `[clusters, ...]`; a cluster without weight keeps its model, even one
      that is not finite.
    """
    sizes = jnp.sum(weights, axis=0)
    divisor = jnp.where(sizes > 0, sizes, 1) if per_cluster else total
    (gradient,) = pullback(weights / jnp.broadcast_to(divisor, weights.shape))
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
