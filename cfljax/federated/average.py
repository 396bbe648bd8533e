"""Server steps: what the server makes of its clients' gradients and models."""

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, ScalarLike

from cfljax.base.tree import length, rows, select
from cfljax.base.types import Stacked
from cfljax.clustering.gram import combine
from cfljax.federated.backend import everywhere

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
    """One gradient step of every cluster model (IFCA, Algorithm 2, line 14); a cluster
    without weight keeps its model, even one that is not finite.

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
    """
    sizes = jnp.sum(weights, axis=0)
    divisor = jnp.where(sizes > 0, sizes, 1) if per_cluster else total
    (gradient,) = pullback(weights / jnp.broadcast_to(divisor, weights.shape))
    moved = jax.tree.map(lambda a, g: a - step_size * g, models, gradient)
    return select(sizes > 0, moved, models)


def mean_of_sums(
    sums: Stacked, totals: Float[Array, " clusters"], *, empty: Stacked
) -> Stacked:
    """Weighted mean of client values inside each cluster (line 15), from their sums,
    such as those of `sums.sum_in_clusters`, and the total weights of the members. A
    cluster of no weight, whose mean would be 0/0, keeps its row of `empty`."""
    used = totals > 0
    # Not a quotient, which the compiler makes a product in some programs only.
    inverse = 1 / jnp.where(used, totals, 1)
    means = jax.tree.map(lambda leaf: leaf * rows(inverse, leaf), sums)
    return select(used, means, empty)


def centres_of(
    models: Stacked,
    weights: Float[Array, " models"],
    clusters: Int[Array, " models"],
    *,
    empty: Stacked,
) -> Stacked:
    """Weighted mean of each cluster's models; one of weight 0, or of `NO_CLUSTER`,
    counts for nothing, not even NaN. A cluster without weight keeps its row of
    `empty`."""
    number, weights = length(empty), jnp.where(clusters >= 0, weights, 0)
    row = jnp.maximum(clusters, 0)

    @everywhere
    def add(row: Array, weights: Array) -> Array:
        return jax.ops.segment_sum(weights, row, number)

    @everywhere
    def add_weighed(row: Array, weights: Array, leaf: Array) -> Array:
        own = jnp.where(rows(weights > 0, leaf), rows(weights, leaf) * leaf, 0)
        return jax.ops.segment_sum(own, row, number)

    sums = jax.tree.map(lambda leaf: add_weighed(row, weights, leaf), models)
    return mean_of_sums(sums, add(row, weights), empty=empty)


def means_of_members(
    members: Bool[Array, "groups models"],
    weights: Float[Array, " models"],
    models: Stacked,
    *,
    empty: Stacked,
) -> Stacked:
    """Weighted mean of the members' models of each group, which may overlap; models of
    weight 0 count for nothing, not even NaN. A group without weight keeps its row of
    `empty`.

    Cost: a product of all groups with all models, which each device holds meanwhile.
    """
    each = jnp.where(members, weights[None, :], 0)
    total = jnp.sum(each, axis=1)
    share = each * (1 / jnp.where(total > 0, total, 1))[:, None]
    known = jax.tree.map(
        lambda leaf: jnp.where(rows(weights > 0, leaf), leaf, 0), models
    )
    return select(total > 0, everywhere(combine)(share, known), empty)
