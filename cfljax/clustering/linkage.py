"""Agglomerative clustering that can be compiled."""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, ScalarLike

from cfljax.base.checks import check_member, check_positive
from cfljax.base.types import NO_CLUSTER

Linkage = Literal["ward", "average", "complete", "single"]
PairLinkage = Literal["average", "complete", "single", "weighted"]


def agglomerate(
    points: Float[Array, "points features"], max_clusters: int, *, linkage: str = "ward"
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
    finite = jnp.all(jnp.isfinite(points), axis=1)
    distances = squared_distances(jnp.where(finite[:, None], points, 0))
    if linkage != "ward":
        distances = jnp.sqrt(distances)
    return _partitions(distances, finite, max_clusters, linkage)


def agglomerate_distances(
    distances: Float[Array, "points points"],
    max_clusters: int,
    *,
    linkage: str,
    present: Bool[Array, " points"] | None = None,
) -> Int[Array, "partitions points"]:
    """`agglomerate` where nothing but the distances of all pairs is known.

    Distances are symmetric, of any sign; neither the diagonal nor those of points that
    are not `present` are looked at, and such points belong to no cluster. Clusters
    between which a distance is not finite are not merged. The linkage "weighted" gives
    both clusters that were merged equal weight, whatever their sizes (WPGMA).
    """
    check_positive(max_clusters=max_clusters)
    check_member(PairLinkage, linkage=linkage)
    if present is None:
        present = jnp.ones(distances.shape[0], bool)
    return _partitions(distances, present, max_clusters, linkage)


def cut_distances(
    distances: Float[Array, "points points"],
    height: ScalarLike,
    *,
    linkage: str,
    present: Bool[Array, " points"] | None = None,
) -> Int[Array, " points"]:
    """Clusters merged as long as the two nearest are no further apart than `height`,
    which may be traced: 0, 1, ..., numbered by their first points, and `NO_CLUSTER`.
    Other arguments as of `agglomerate_distances`."""
    check_member(PairLinkage, linkage=linkage)
    if present is None:
        present = jnp.ones(distances.shape[0], bool)
    start = _start(distances, present, 1)
    merge = lambda _, state: _merged(state, linkage, height)
    end = jax.lax.fori_loop(0, distances.shape[0] - 1, merge, start)
    return _numbered(end.leader, present)


def _partitions(
    distances: Float[Array, "points points"],
    present: Bool[Array, " points"],
    max_clusters: int,
    linkage: str,
) -> Int[Array, "partitions points"]:
    """What all merges leave behind."""
    start = _start(distances, present, max_clusters)
    merge = lambda _, state: _merged(state, linkage)
    end = jax.lax.fori_loop(0, distances.shape[0] - 1, merge, start)
    return jax.vmap(lambda leader: _numbered(leader, present))(end.partitions)


def _start(
    distances: Float[Array, "points points"],
    present: Bool[Array, " points"],
    max_clusters: int,
) -> "_Merging":
    """Every point a cluster."""
    number = distances.shape[0]
    apart = present[:, None] & present[None, :] & ~jnp.eye(number, dtype=bool)
    return _Merging(
        distances=jnp.where(apart & jnp.isfinite(distances), distances, jnp.inf),
        sizes=present.astype(distances.dtype),
        leader=jnp.arange(number),
        partitions=jnp.broadcast_to(jnp.arange(number)[None], (max_clusters, number)),
    )


class _Merging(NamedTuple):
    """Between two merges: distances and sizes are in the rows of the clusters' first
    points (infinite and 0 elsewhere), `partitions` leaders of 1, 2, ... clusters."""

    distances: Float[Array, "points points"]
    sizes: Float[Array, " points"]
    leader: Int[Array, " points"]
    partitions: Int[Array, "partitions points"]


def _merged(state: _Merging, linkage: str, height: ScalarLike = jnp.inf) -> _Merging:
    """The two nearest clusters made one; nothing once they are further apart than
    `height`, or there is a single one."""
    distances, sizes, leader, partitions = state
    number = leader.shape[0]
    row = jnp.argmin(jnp.min(distances, axis=1))  # Lowest indices first.
    column = jnp.argmin(distances[row])
    first, second = jnp.minimum(row, column), jnp.maximum(row, column)
    nearest = distances[first, second]
    new = _distance(linkage, distances, sizes, first, second)
    index = jnp.arange(number)
    new = jnp.where((sizes > 0) & (index != first) & (index != second), new, jnp.inf)
    moved = distances.at[first].set(new).at[:, first].set(new)
    moved = moved.at[second].set(jnp.inf).at[:, second].set(jnp.inf)
    after = _Merging(
        distances=moved,
        sizes=sizes.at[first].add(sizes[second]).at[second].set(0),
        leader=jnp.where(leader == second, first, leader),
        partitions=partitions,
    )
    kept = partitions.at[jnp.sum(after.sizes > 0) - 1].set(after.leader, mode="drop")
    after = after._replace(partitions=kept)
    done = jnp.isinf(nearest) | (nearest > height)
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
    if linkage == "weighted":
        return (one + two) / 2
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
    rank = jnp.cumsum(finite & (leader == jnp.arange(leader.shape[0]))) - 1
    return jnp.where(finite, rank[leader], NO_CLUSTER)


def silhouette(
    points: Float[Array, "points features"],
    assignment: Int[Array, " points"],
    num_clusters: int,
) -> Float[Array, ""]:
    """Mean silhouette of a partition (Rousseeuw, 1987), Euclidean, between -1 and 1;
    NaN for fewer than two clusters with points. Points of `NO_CLUSTER` count for
    nothing.

    A point's silhouette is `(b - a) / max(a, b)`, where a is the mean distance to the
    other points of its cluster and b the least mean distance to another cluster; 0 for
    a point alone in its cluster, so that partitions into single points gain nothing.
    """
    kept = jnp.where((assignment >= 0)[:, None], points, 0)
    return _mean_score(jnp.sqrt(squared_distances(kept)), assignment, num_clusters)


def _mean_score(
    distances: Float[Array, "points points"],
    assignment: Int[Array, " points"],
    num_clusters: int,
) -> Float[Array, ""]:
    """`silhouette` from the distances, of any size where a point has no cluster."""
    known = assignment >= 0
    members = (assignment[:, None] == jnp.arange(num_clusters)[None, :]).astype(
        distances.dtype
    )
    sizes = jnp.sum(members, axis=0)
    totals = distances @ members
    own = members > 0
    others = jnp.sum(jnp.where(own, sizes[None, :] - 1, 0), axis=1)
    inside = jnp.sum(jnp.where(own, totals, 0), axis=1) / jnp.maximum(others, 1)
    means = totals / jnp.maximum(sizes, 1)[None, :]
    outside = jnp.min(jnp.where(own | (sizes == 0)[None, :], jnp.inf, means), axis=1)
    largest = jnp.maximum(inside, outside)
    score = (outside - inside) / jnp.where(largest > 0, largest, 1)
    score = jnp.where(known & (others > 0), score, 0)
    mean = jnp.sum(score) / jnp.maximum(jnp.sum(known, dtype=score.dtype), 1)
    return jnp.where(jnp.sum(sizes > 0) > 1, mean, jnp.nan)


class Selection(NamedTuple):
    """A partition whose number of clusters was chosen.

    assignment: cluster of each point.
    num_clusters: how many clusters it has.
    scores: silhouettes of 1, 2, ... clusters, NaN where there is none.
    """

    assignment: Int[Array, " points"]
    num_clusters: Int[Array, ""]
    scores: Float[Array, " partitions"]


def select_clusters(
    points: Float[Array, "points features"], max_clusters: int, *, linkage: str = "ward"
) -> Selection:
    """The number of clusters of largest silhouette (CLoVE, Algorithm 2); points that
    are not finite are left out.

    From 2 to `max_clusters`, but always fewer than there are points: with as many, each
    is a cluster and has no silhouette. The released code repeats the points five times
    where they are few, which gives every single point an exact copy and therefore a
    silhouette of 1; here it has 0. The smallest of equally good numbers is chosen, and
    1, which Algorithm 2 never finds, where no number can be judged or none is better
    than 0, as with equal points.

    Cost: that of `agglomerate`, and for each number a product of distances and members.
    """
    partitions = agglomerate(points, max_clusters, linkage=linkage)
    known = partitions[0] >= 0
    distances = jnp.sqrt(squared_distances(jnp.where(known[:, None], points, 0)))
    judge = lambda assignment: _mean_score(distances, assignment, max_clusters)
    scores = jax.lax.map(judge, partitions)
    number = jnp.sum(known)
    judged = jnp.arange(1, max_clusters + 1)
    scores = jnp.where((judged > 1) & (judged < number), scores, jnp.nan)
    # One cluster has no score: it is the choice where no other is better than 0.
    best = jnp.argmax(jnp.where(jnp.isnan(scores), 0, scores).at[0].set(0))
    return Selection(partitions[best], best + 1, scores)
