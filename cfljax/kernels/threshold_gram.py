"""Threshold-Clustering by inner products: at a cost that features have no part in."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from cfljax.kernels.threshold import threshold_rounds
from cfljax.kernels.threshold_radius import Radius

__all__ = ["WeightThresholding", "combine", "gram_matrix", "threshold_clustering_gram"]


_BLOCK = 2048  # Features of a block of inner products.


class WeightThresholding(NamedTuple):
    """Centres as combinations of the points, and what was in their balls.

    weights: of each point in each centre, rows of sum 1; `combine` makes the centres.
    members: points in the ball of the last round, by which the centre moved last.
    counts: points in the ball of each round.
    radii: tau of each round, as given or as the rule made it.
    """

    weights: Float[Array, "centres points"]
    members: Bool[Array, "centres points"]
    counts: Int[Array, "centres rounds"]
    radii: Float[Array, "centres rounds"]


def threshold_clustering_gram(
    gram: Float[Array, "points points"],
    weights: Float[Array, "centres points"],
    *,
    num_rounds: int,
    radius: Radius,
    edge: str = "paper",
    centres_per_chunk: int | None = None,
) -> WeightThresholding:
    """`threshold_clustering` of centres that are affine combinations of the points.

    A centre `v = sum_i w_i z_i` with `sum_i w_i = 1` stays one in every round, and

        |z_j - v|^2 = sum_i w_i D_ij - (1/2) sum_il w_i D_il w_l,

    where D has the squared distances of the points. All that cancels is the step from
    inner products to D: in precision eps, with points up to R from the origin of the
    inner products, distances have an absolute error of about `R sqrt(eps)`, so R must
    be well below `radius / sqrt(eps)` (3,000 radii in single, 7e7 in double
    precision). `gram_matrix` chooses the origin; `-squared_distances(points) / 2` in
    the place of `gram` cancels nothing, and costs more for many features.

    Args:
      gram: inner products of the points about any one origin. A point that is not
        finite, or whose squared norm is not, has no finite diagonal entry and is in no
        ball.
      weights: of the points in each centre at the start, rows of sum 1: the identity
        where each client starts from its own gradient. A centre with weight on a
        point that is not finite is not finite either, and stays.
      num_rounds: M, at least 1.
      radius: see `threshold_clustering`.
      edge: see `threshold_clustering`.
      centres_per_chunk: see `threshold_clustering`.

    Raises:
      ValueError: as `threshold_clustering`.

    Cost: a product of `[centres, points]` and `[points, points]` in each round.
    """
    number = gram.shape[0]
    if gram.shape != (number, number) or weights.shape[1] != number:
        raise ValueError(
            f"`gram` must be square, of the points of `weights`, {weights.shape[1]}, "
            f"got shape {gram.shape}."
        )
    own = jnp.diagonal(gram)
    finite = jnp.isfinite(own)
    squares = jnp.maximum(own[:, None] + own[None, :] - 2 * gram, 0)
    # Finite everywhere, because weights of 0 must hide what they multiply.
    largest = float(jnp.finfo(gram.dtype).max) / 8
    squares = jnp.where(squares < largest, squares, largest)
    squares = jnp.where(finite[:, None] & finite[None, :], squares, 0)

    def distances_of(weights: Float[Array, " points"]) -> Float[Array, " points"]:
        means = jnp.matmul(weights, squares, precision="highest")
        found = jnp.maximum(means - jnp.sum(means * weights) / 2, 0)
        lost = jnp.any((weights != 0) & ~finite)
        known = finite & ~lost & (found < largest / 2)
        return jnp.where(known, jnp.sqrt(found), jnp.inf)

    found = threshold_rounds(
        weights,
        distances_of,
        lambda members: members,
        num_points=number,
        num_rounds=num_rounds,
        radius=radius,
        edge=edge,
        centres_per_chunk=centres_per_chunk,
    )
    return WeightThresholding(*found)


def gram_matrix(
    points: Float[Array, "points features"], origin: Int[Array, ""] | None = None
) -> Float[Array, "points points"]:
    """Inner products of the points about one of them.

    What all points have in common takes digits from differences; a point in their
    midst takes it away.

    Args:
      points: rows. Rows and columns of those that are not finite are NaN.
      origin: index of the point that becomes 0, such as the only one that a centre
        starts at; that of median norm if None. Unlike the mean, the median norm is
        that of an honest point, or between two, as long as honest points are more than
        half: no far point can take the others' digits. A lie of that very norm, turned
        round, doubles what they have in common instead of taking it away.

    Cost: one product of the points with themselves, in blocks of features: few points
    of many features are fastest so, and nothing of their size is copied.
    """
    number, features = points.shape
    if origin is not None:
        middle = points[origin]
    else:
        norms = jnp.sum(jnp.square(points), axis=1)
        norms = jnp.where(jnp.isfinite(norms), norms, jnp.inf)
        usable = jnp.sum(jnp.isfinite(norms))
        median = points[jnp.argsort(norms)[jnp.maximum(usable - 1, 0) // 2]]
        middle = jnp.where(usable > 0, median, 0)

    def product(block: Float[Array, "points some"], middle: Array) -> Array:
        moved = block - middle[None, :]
        return jnp.matmul(moved, moved.T, precision="highest")

    def add(index: Array, total: Array) -> Array:
        start = index * _BLOCK
        block = jax.lax.dynamic_slice(points, (0, start), (number, _BLOCK))
        own = jax.lax.dynamic_slice(middle, (start,), (_BLOCK,))
        return total + product(block, own)

    whole = features // _BLOCK
    total = product(points[:, whole * _BLOCK :], middle[whole * _BLOCK :])
    if not whole:
        return total
    return jax.lax.fori_loop(0, whole, add, total)


def combine(
    weights: Float[Array, "centres points"],
    points: Float[Array, "points features"],
    finite: Bool[Array, " points"] | None = None,
) -> Float[Array, "centres features"]:
    """The combinations of the points; NaN where one that is not finite has weight.

    Args:
      weights: of the points in each centre.
      points: rows.
      finite: which of them are; looked up if None, at the cost of another pass.
    """
    if finite is None:
        finite = jnp.all(jnp.isfinite(points), axis=1)
    lost = jnp.any((weights != 0) & ~finite[None, :], axis=1)

    def product(points: Float[Array, "points features"]) -> Array:
        return jnp.matmul(weights, points, precision="highest")

    combined = jax.lax.cond(  # Hiding costs a copy of the points.
        jnp.all(finite),
        product,
        lambda points: product(jnp.where(finite[:, None], points, 0)),
        points,
    )
    return jnp.where(lost[:, None], jnp.nan, combined)
