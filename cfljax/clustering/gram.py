"""Inner products of points about one in their midst, and what is made of them.

Few points of many features, such as models, are clustered so at a cost that features
have a part in only twice: once for the products, once for the centres. Points are
stacked trees as well as rows: leaves are never laid side by side.
"""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from cfljax.base.tree import finite_rows, rows
from cfljax.base.types import Stacked

_BLOCK = 2048  # Features of a block of inner products.
_FAR = 2  # Times the least sum of distances, from where an origin is not in the midst.


def gram_matrix(
    points: Stacked, origin: Int[Array, ""] | None = None
) -> Float[Array, "points points"]:
    """Inner products of the points about one of them; rows and columns of those that
    are not finite are NaN.

    What all points have in common takes digits from differences; a point in their midst
    takes it away. The origin may be given, such as the only one that a centre starts
    at; else it is the point of median norm. Unlike the mean, the median norm is that of
    an honest point, or between two, as long as honest points are more than half: no far
    point can take the others' digits. A lie of that very norm, turned round, doubles
    what they have in common instead of taking it away.

    Cost: one product of the points with themselves, in blocks of features: few points
    of many features are fastest so, and nothing of their size is copied.
    """
    leaves = [leaf.reshape(leaf.shape[0], -1) for leaf in jax.tree.leaves(points)]
    if origin is not None:
        middles = [leaf[origin] for leaf in leaves]
    else:
        norms = [jnp.sum(jnp.square(leaf), axis=1) for leaf in leaves]
        norms = functools.reduce(jnp.add, norms)
        norms = jnp.where(jnp.isfinite(norms), norms, jnp.inf)
        usable = jnp.sum(jnp.isfinite(norms))
        median = jnp.argsort(norms)[jnp.maximum(usable - 1, 0) // 2]
        middles = [jnp.where(usable > 0, leaf[median], 0) for leaf in leaves]
    products = [_product(*pair) for pair in zip(leaves, middles, strict=True)]
    return functools.reduce(jnp.add, products)


def _product(
    points: Float[Array, "points features"], middle: Float[Array, " features"]
) -> Float[Array, "points points"]:
    """Inner products about a given point, in blocks."""
    number, features = points.shape

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


def squares_of(
    gram: Float[Array, "points points"],
) -> tuple[Float[Array, "points points"], Bool[Array, " points"]]:
    """Squared distances of the points, from inner products about any one origin, and
    which of them are finite: those whose diagonal entry is.

    All that cancels is this step: in precision eps, with points up to R from the origin
    of the inner products, squares have an absolute error of about `R^2 eps`. They are
    finite everywhere, because weights of 0 must hide what they multiply: 0 for points
    that are not, and at most an eighth of the largest float.
    """
    own = jnp.diagonal(gram)
    finite = jnp.isfinite(own)
    squares = jnp.maximum(own[:, None] + own[None, :] - 2 * gram, 0)
    largest = float(jnp.finfo(gram.dtype).max) / 8
    squares = jnp.where(squares < largest, squares, largest)
    return jnp.where(finite[:, None] & finite[None, :], squares, 0), finite


def central_gram_matrix(points: Stacked) -> Float[Array, "points points"]:
    """`gram_matrix` about a point in the midst of the others, wherever that is.

    Its distances to the others sum to at most twice the least such sum. No minority of
    far points moves it away, not even one of median norm.

    Cost: that of `gram_matrix`; twice where the point of median norm is not in the
    midst, or where the choice is mapped.
    """
    gram = gram_matrix(points)
    squares, finite = squares_of(gram)
    far = jnp.where(finite, jnp.sum(jnp.sqrt(squares), axis=1), jnp.inf)
    middle = jnp.argmin(far)
    origin = jnp.argmin(jnp.where(finite, jnp.diagonal(gram), jnp.inf))
    return jax.lax.cond(
        far[origin] > _FAR * far[middle],
        lambda points: gram_matrix(points, middle),
        lambda _: gram,
        points,
    )


def combine(
    weights: Float[Array, "centres points"],
    points: Stacked,
    finite: Bool[Array, " points"] | None = None,
) -> Stacked:
    """The combinations of the points, rows or leaves `[centres, ...]` as these are; NaN
    where one that is not finite has weight. Which are is looked up, at the cost of
    another pass, if it is not given."""
    if finite is None:
        finite = finite_rows(points)
    lost = jnp.any((weights != 0) & ~finite[None, :], axis=1)

    def product(leaf: Array) -> Array:
        side_by_side = leaf.reshape(leaf.shape[0], -1)
        combined = jnp.matmul(weights, side_by_side, precision="highest")
        return combined.reshape((weights.shape[0],) + leaf.shape[1:])

    def hidden(leaf: Array) -> Array:
        return product(jnp.where(rows(finite, leaf), leaf, 0))

    combined = jax.lax.cond(  # Hiding costs a copy of the points.
        jnp.all(finite),
        lambda points: jax.tree.map(product, points),
        lambda points: jax.tree.map(hidden, points),
        points,
    )
    return jax.tree.map(
        lambda leaf: jnp.where(rows(lost, leaf), jnp.nan, leaf), combined
    )
