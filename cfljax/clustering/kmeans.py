"""K-means that can be compiled: k-means++ starts, Lloyd's iterations, restarts."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from cfljax.base.checks import check_positive
from cfljax.base.decompositions import singular_vectors
from cfljax.base.tree import flat, length, like, num_features
from cfljax.base.types import NO_CLUSTER, Stacked
from cfljax.clustering.distances import euclidean, squared_euclidean
from cfljax.clustering.gram import central_gram_matrix, combine, squares_of

# From the centres' coordinates to the squared distances of all points.
Metric = Callable[
    [Float[Array, "clusters coordinates"]], Float[Array, "points clusters"]
]


class Clustering(NamedTuple):
    """A partition of points.

    assignment: centre of each point, `NO_CLUSTER` for one that is not finite.
    centres: `[clusters, features]`, or leaves `[clusters, ...]` where the points are
      such.
    inertia: sum of the squared distances of points to their centres.
    """

    assignment: Int[Array, " points"]
    centres: Stacked
    inertia: Float[Array, ""]


def k_means(
    key: PRNGKeyArray,
    points: Stacked,
    num_clusters: int,
    *,
    num_restarts: int = 10,
    num_iterations: int = 50,
) -> Clustering:
    """The best of several k-means clusterings.

    Starts by k-means++ (Arthur and Vassilvitskii, 2007), then Lloyd's iterations: each
    point joins its nearest centre, each centre moves to the mean of its points. A
    centre without points stays where it is. Points that are not finite are left out.

    Args:
      key: of the starts.
      points: rows, or leaves `[points, ...]`. Where there are more features than
        points, one whose squared norm is not finite counts as not finite either.
      num_clusters: K, at least 1; more than there are points leaves centres equal.
      num_restarts: starts; the clustering of least inertia wins.
      num_iterations: of Lloyd, at most.

    Raises:
      ValueError: if a number is below 1.

    Cost: a product of `[points, features]` and `[features, clusters]` and its reverse
    for each restart and iteration, all restarts at once until the last one has come to
    rest. Where there are more features than points, these are products of `[points,
    points]` and `[points, clusters]`, and features have a part only in the inner
    products of all points, before, and in the centres, after.

    Precision: squared distances come from inner products about a point in the midst of
    the others, or about the medians of the coordinates where these are few. With points
    up to R from it they have an error of about `R^2 eps`, whatever all points have in
    common; a far point takes digits from its own distances only.
    """
    check_positive(
        num_clusters=num_clusters,
        num_restarts=num_restarts,
        num_iterations=num_iterations,
    )
    if num_features(points) <= length(points):
        side_by_side = flat(points)
        finite = jnp.all(jnp.isfinite(side_by_side), axis=1)
        middle = jnp.where(finite[:, None], side_by_side, jnp.nan)
        middle = jnp.nanmedian(middle, axis=0)
        # Unlike the mean, it does not take the digits of most when others are far away.
        middle = jnp.where(jnp.isnan(middle), 0, middle)
        places = jnp.where(finite[:, None], side_by_side - middle[None, :], 0)
        metric = None
    else:
        gram = central_gram_matrix(points)
        squares, finite = squares_of(gram)
        # The points as combinations of themselves; means of combinations are some too.
        places, metric = jnp.eye(length(points), dtype=gram.dtype), _metric(squares)

    def restart(key: PRNGKeyArray) -> Clustering:
        centres = plus_plus(key, places, finite, num_clusters, metric=metric)
        centres = lloyd(
            places, finite, centres, num_iterations=num_iterations, metric=metric
        )
        nearest, squares = _nearest(centres, metric or _by_products(places))
        return Clustering(nearest, centres, jnp.sum(jnp.where(finite, squares, 0)))

    found = jax.vmap(restart)(jax.random.split(key, num_restarts))
    # Squares that overflow make no inertia the least.
    inertia = jnp.where(jnp.isnan(found.inertia), jnp.inf, found.inertia)
    best = jax.tree.map(lambda leaf: leaf[jnp.argmin(inertia)], found)
    if metric is None:
        centres = like(best.centres + middle[None, :], points)
    else:
        centres = combine(jnp.where(finite[None, :], best.centres, 0), points, finite)
    assignment = jnp.where(finite, best.assignment, NO_CLUSTER)
    return Clustering(assignment, centres, best.inertia)


def lloyd(
    points: Float[Array, "points features"],
    finite: Bool[Array, " points"],
    centres: Float[Array, "clusters features"],
    *,
    num_iterations: int,
    metric: Metric | None = None,
) -> Float[Array, "clusters features"]:
    """Centres after Lloyd's iterations from given ones, until nothing changes. Points
    are finite everywhere, those not `finite` count for nothing; `metric` has their
    squared distances, by products of their rows if None."""
    metric = metric or _by_products(points)

    def goes_on(carry: tuple[Array, Array, Array]) -> Bool[Array, ""]:
        iteration, moved, _ = carry
        return moved & (iteration < num_iterations)

    def move(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        iteration, _, centres = carry
        new = _moved(points, finite, centres, metric)
        return iteration + 1, jnp.any(new != centres), new

    start = (jnp.zeros((), jnp.int32), jnp.asarray(True), centres)
    return jax.lax.while_loop(goes_on, move, start)[2]


def _by_products(points: Float[Array, "points features"]) -> Metric:
    """Squared distances, by one matrix product."""
    own = jnp.sum(jnp.square(points), axis=1)

    def metric(centres: Float[Array, "clusters features"]) -> Array:
        theirs = jnp.sum(jnp.square(centres), axis=1)
        squares = own[:, None] + theirs[None, :] - 2 * (points @ centres.T)
        return jnp.maximum(squares, 0)

    return metric


def _metric(squares: Float[Array, "points points"]) -> Metric:
    """Squared distances to combinations of sum 1, from those of the points."""

    def metric(weights: Float[Array, "clusters points"]) -> Array:
        means = jnp.matmul(weights, squares, precision="highest")
        spread = jnp.sum(means * weights, axis=1, keepdims=True) / 2
        return jnp.maximum(means - spread, 0).T

    return metric


def _nearest(
    centres: Float[Array, "clusters features"], metric: Metric
) -> tuple[Int[Array, " points"], Float[Array, " points"]]:
    """Nearest centre of each point, and the squared distance."""
    squares = metric(centres)
    return jnp.argmin(squares, axis=1), jnp.min(squares, axis=1)


def _moved(
    points: Float[Array, "points features"],
    finite: Bool[Array, " points"],
    centres: Float[Array, "clusters features"],
    metric: Metric,
) -> Float[Array, "clusters features"]:
    """Centres at the means of their points."""
    nearest, _ = _nearest(centres, metric)
    members = nearest[:, None] == jnp.arange(centres.shape[0])[None, :]
    members = (members & finite[:, None]).astype(points.dtype)
    sizes = jnp.sum(members, axis=0)[:, None]
    means = (members.T @ points) / jnp.maximum(sizes, 1)
    return jnp.where(sizes > 0, means, centres)


def plus_plus(
    key: PRNGKeyArray,
    points: Float[Array, "points features"],
    finite: Bool[Array, " points"],
    num_clusters: int,
    *,
    metric: Metric | None = None,
) -> Float[Array, "clusters features"]:
    """Centres among the points, each drawn by squared distance to those before it;
    equal ones if there are fewer different points. Arguments as of `lloyd`."""
    metric = metric or _by_products(points)
    first_key, rest_key = jax.random.split(key)
    even = jnp.where(finite, 0.0, -jnp.inf).astype(points.dtype)
    first = points[jax.random.categorical(first_key, even)]
    centres = jnp.zeros((num_clusters, points.shape[1]), points.dtype)
    squares = metric(first[None, :])[:, 0]

    def add(index: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        centres, squares = carry
        # Only equal points are left if all squares are 0: any of them will do.
        weights = jnp.where(jnp.any((squares > 0) & finite), squares, 1)
        logits = jnp.where(finite & (weights > 0), jnp.log(weights), -jnp.inf)
        drawn = jax.random.categorical(jax.random.fold_in(rest_key, index), logits)
        centre = points[drawn]
        distance = metric(centre[None, :])[:, 0]
        return centres.at[index].set(centre), jnp.minimum(squares, distance)

    start = (centres.at[0].set(first), squares)
    return jax.lax.fori_loop(1, num_clusters, add, start)[0]


def spectral_k_means(
    key: PRNGKeyArray,
    points: Float[Array, "points features"],
    num_clusters: int,
    *,
    num_restarts: int = 10,
    num_iterations: int = 50,
) -> Clustering:
    """K-means with the start for which recovery is proved.

    Points are projected on the best subspace of `num_clusters` dimensions and clustered
    there. The points that are three times nearer to their own projected centre than to
    any other decide where Lloyd's iterations on all coordinates begin.

    Sources: Kumar and Kannan, "Clustering with spectral norm and the k-means
    algorithm", FOCS 2010; Awasthi and Sheffet, "Improved spectral-norm bounds for
    clustering", 2012 (factor 3). The approximate clustering of the projection that they
    leave open is `k_means`.

    Args:
      key: of the starts in the projection.
      points: rows; those that are not finite are left out.
      num_clusters: k, at least 1.
      num_restarts: of k-means in the projection.
      num_iterations: of Lloyd, at most, in the projection and after it.

    Raises:
      ValueError: if a number is below 1.

    Cost: `k_means` and a singular value decomposition of `[points, features]`.
    """
    finite = jnp.all(jnp.isfinite(points), axis=1)
    kept = jnp.where(finite[:, None], points, 0)
    directions = singular_vectors(kept)[1]  # [rank, features]
    directions = directions[: min(num_clusters, directions.shape[0])]
    # Coordinates in the subspace have the same distances as the projected points.
    projected = jnp.where(finite[:, None], kept @ directions.T, jnp.nan)
    first = k_means(
        key,
        projected,
        num_clusters,
        num_restarts=num_restarts,
        num_iterations=num_iterations,
    )
    centres = _centres_of_core(kept, projected, first)
    centres = lloyd(kept, finite, centres, num_iterations=num_iterations)
    squares = squared_euclidean(kept, centres)
    return Clustering(
        assignment=jnp.where(finite, jnp.argmin(squares, axis=1), NO_CLUSTER),
        centres=centres,
        inertia=jnp.sum(jnp.where(finite, jnp.min(squares, axis=1), 0)),
    )


def _centres_of_core(
    points: Float[Array, "points features"],
    projected: Float[Array, "points directions"],
    first: Clustering,
) -> Float[Array, "clusters features"]:
    """Means of the points that clearly belong to a projected centre: without any, of
    its members; without those, the point next to it."""
    distances = euclidean(projected, first.centres)
    own = jnp.arange(first.centres.shape[0])[None, :] == first.assignment[:, None]
    rival = jnp.min(jnp.where(own, jnp.inf, distances), axis=1)
    clear = 3 * jnp.min(distances, axis=1) <= rival
    core = own & clear[:, None]
    core = jnp.where(jnp.any(core, axis=0)[None, :], core, own)
    far = jnp.where(jnp.isnan(distances), jnp.inf, distances)
    nearest = jnp.arange(points.shape[0])[:, None] == jnp.argmin(far, axis=0)[None, :]
    core = jnp.where(jnp.any(core, axis=0)[None, :], core, nearest)
    weights = core.astype(points.dtype)
    return (weights.T @ points) / jnp.sum(weights, axis=0)[:, None]
