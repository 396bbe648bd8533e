"""How many clusters there are: the number of largest silhouette."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from cfljax.kernels.linkage import agglomerate, squared_distances

__all__ = ["Selection", "select_clusters", "silhouette"]


def silhouette(
    points: Float[Array, "points features"],
    assignment: Int[Array, " points"],
    num_clusters: int,
) -> Float[Array, ""]:
    """Mean silhouette of a partition (Rousseeuw, 1987), Euclidean.

    A point's silhouette is `(b - a) / max(a, b)`, where a is the mean distance to the
    other points of its cluster and b the least mean distance to another cluster; 0 for
    a point alone in its cluster, so that partitions into single points gain nothing.

    Args:
      points: rows.
      assignment: cluster of each point; points of `NO_CLUSTER` count for nothing.
      num_clusters: k.

    Returns:
      Between -1 and 1; NaN for fewer than two clusters with points.

    Cost: a product of `[points, points]` distances and `[points, clusters]` members.
    """
    known = assignment >= 0
    kept = jnp.where(known[:, None], points, 0)
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
    points: Float[Array, "points features"],
    max_clusters: int,
    *,
    linkage: str = "ward",
) -> Selection:
    """The number of clusters of largest silhouette (CLoVE, Algorithm 2).

    From 2 to `max_clusters`, but always fewer than there are points: with as many, each
    is a cluster and has no silhouette. The released code repeats the points five times
    where they are few, which gives every single point an exact copy and therefore a
    silhouette of 1; here it has 0. The smallest of equally good numbers is chosen, and
    1 where no number can be judged or none is better than 0, as with equal points.

    Args:
      points: rows; those that are not finite are left out.
      max_clusters: the upper bound, at least 1.
      linkage: of the partitions that are compared.

    Raises:
      ValueError: as `agglomerate`.

    Cost: that of `agglomerate`, and for each number a product of distances and members.
    """
    partitions = agglomerate(points, max_clusters, linkage=linkage)
    known = partitions[0] >= 0
    kept = jnp.where(known[:, None], points, 0)
    distances = jnp.sqrt(squared_distances(kept))
    judge = lambda assignment: _mean_score(distances, assignment, max_clusters)
    scores = jax.lax.map(judge, partitions)
    number = jnp.sum(known)
    judged = jnp.arange(1, max_clusters + 1)
    scores = jnp.where((judged > 1) & (judged < number), scores, jnp.nan)
    # One cluster has no score: it is the choice where no other is better than 0.
    best = jnp.argmax(jnp.where(jnp.isnan(scores), 0, scores).at[0].set(0))
    return Selection(partitions[best], best + 1, scores)
