"""Agglomerative clustering that can be compiled."""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from cfljax.kernels.checks import check_member, check_positive
from cfljax.kernels.evaluate import NO_CLUSTER

__all__ = ["Linkage", "agglomerate", "squared_distances"]

Linkage = Literal["ward", "average", "complete", "single"]


def agglomerate(
    points: Float[Array, "points features"],
    max_clusters: int,
    *,
    linkage: str = "ward",
) -> Int[Array, "partitions points"]:
    """Partitions into 1, 2, ..., `max_clusters` clusters, merged from single points.

    The two nearest clusters are merged again and again. Of equal distances the pair
    with the lowest indices is merged first.

    Args:
      points: rows; those that are not finite belong to no cluster.
      max_clusters: the largest number of clusters, at least 1.
      linkage: distance of two clusters, Euclidean: "ward", by the growth of the sum of
        squares; "average", "complete" and "single" over pairs.

    Returns:
      Row `k - 1` holds clusters 0 ... k - 1, numbered by their first points, and
      `NO_CLUSTER`; where there are fewer points, each is a cluster.

    Raises:
      ValueError: if `max_clusters` is below 1 or the linkage unknown.

    Cost: cubic in the points, a pass over all pairs for each merge; a hundred points
    take milliseconds, a thousand take seconds.
    """
    check_positive(max_clusters=max_clusters)
    check_member(Linkage, linkage=linkage)
    number = points.shape[0]
    finite = jnp.all(jnp.isfinite(points), axis=1)
    distances = squared_distances(jnp.where(finite[:, None], points, 0))
    if linkage != "ward":
        distances = jnp.sqrt(distances)
    apart = finite[:, None] & finite[None, :] & ~jnp.eye(number, dtype=bool)
    start = _Merging(
        distances=jnp.where(apart, distances, jnp.inf),
        sizes=finite.astype(points.dtype),
        leader=jnp.arange(number),
        partitions=jnp.broadcast_to(jnp.arange(number)[None], (max_clusters, number)),
    )
    merge = lambda _, state: _merged(state, linkage)
    partitions = jax.lax.fori_loop(0, number - 1, merge, start).partitions
    return jax.vmap(lambda leader: _numbered(leader, finite))(partitions)


class _Merging(NamedTuple):
    """Between two merges.

    distances: of clusters, in the rows of their first points; infinite elsewhere.
    sizes: of clusters, 0 in other rows.
    leader: first point of each point's cluster.
    partitions: leaders when there were 1, 2, ... clusters.
    """

    distances: Float[Array, "points points"]
    sizes: Float[Array, " points"]
    leader: Int[Array, " points"]
    partitions: Int[Array, "partitions points"]


def _merged(state: _Merging, linkage: str) -> _Merging:
    """The two nearest clusters made one; nothing once there is a single one."""
    distances, sizes, leader, partitions = state
    number = leader.shape[0]
    row = jnp.argmin(jnp.min(distances, axis=1))  # Lowest indices first.
    column = jnp.argmin(distances[row])
    first, second = jnp.minimum(row, column), jnp.maximum(row, column)
    nearest = distances[first, second]
    new = _distance(linkage, distances, sizes, first, second)
    index = jnp.arange(number)
    others = (sizes > 0) & (index != first) & (index != second)
    new = jnp.where(others, new, jnp.inf)
    moved = distances.at[first].set(new).at[:, first].set(new)
    moved = moved.at[second].set(jnp.inf).at[:, second].set(jnp.inf)
    after = _Merging(
        distances=moved,
        sizes=sizes.at[first].add(sizes[second]).at[second].set(0),
        leader=jnp.where(leader == second, first, leader),
        partitions=partitions,
    )
    left = jnp.sum(after.sizes > 0)
    kept = partitions.at[left - 1].set(after.leader, mode="drop")
    after = after._replace(partitions=kept)
    done = jnp.isinf(nearest)
    return jax.tree.map(lambda old, new: jnp.where(done, old, new), state, after)


def _distance(
    linkage: str,
    distances: Float[Array, "points points"],
    sizes: Float[Array, " points"],
    first: Int[Array, ""],
    second: Int[Array, ""],
) -> Float[Array, " points"]:
    """Distances of all clusters to the union of two (Lance and Williams, 1967)."""
    one, two = distances[first], distances[second]
    if linkage == "complete":
        return jnp.maximum(one, two)
    if linkage == "single":
        return jnp.minimum(one, two)
    a, b = sizes[first], sizes[second]
    if linkage == "average":
        return (a * one + b * two) / (a + b)
    between = distances[first, second]  # Squared, for Ward.
    total = a + b + sizes
    return ((a + sizes) * one + (b + sizes) * two - sizes * between) / total


def squared_distances(
    points: Float[Array, "points features"],
) -> Float[Array, "points points"]:
    """Squared distances of all pairs, without the cancellation of inner products.

    Cost: `[points, features]` numbers at a time.
    """

    def to_all(point: Float[Array, " features"]) -> Float[Array, " points"]:
        return jnp.sum(jnp.square(points - point[None, :]), axis=1)

    return jax.lax.map(to_all, points)


def _numbered(
    leader: Int[Array, " points"], finite: Bool[Array, " points"]
) -> Int[Array, " points"]:
    """Clusters 0, 1, ... in the order of their leaders."""
    leads = finite & (leader == jnp.arange(leader.shape[0]))
    rank = jnp.cumsum(leads) - 1
    return jnp.where(finite, rank[leader], NO_CLUSTER)
