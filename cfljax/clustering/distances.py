"""Distances between sets of models."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from cfljax.base.tree import rows
from cfljax.base.types import Stacked


def euclidean(
    left: Float[Array, "rows features"], right: Float[Array, "columns features"]
) -> Float[Array, "rows columns"]:
    """Euclidean distance of every row of `left` to every row of `right`.

    By differences, not by inner products, which cancel where two models are close.
    Memory grows with `rows x columns x features`.
    """
    return jnp.linalg.norm(left[:, None, :] - right[None, :, :], axis=2)


def squared_euclidean(
    left: Float[Array, "rows features"], right: Float[Array, "columns features"]
) -> Float[Array, "rows columns"]:
    """Squares of `euclidean`, by differences as well and at the same cost."""
    return jnp.sum(jnp.square(left[:, None, :] - right[None, :, :]), axis=2)


def least_distance(models: Float[Array, "clusters features"]) -> Float[Array, ""]:
    """Delta, the least distance between two of the models; infinite for one model."""
    distances = euclidean(models, models)
    apart = ~jnp.eye(models.shape[0], dtype=bool)
    return jnp.min(jnp.where(apart, distances, jnp.inf))


def bottleneck_distance(
    left: Float[Array, "clusters features"], right: Float[Array, "clusters features"]
) -> Float[Array, ""]:
    """Largest distance of a matched pair, under the matching that makes it least.

    `min_p max_j ||left_j - right_p(j)||` over one-to-one matchings p: the quantity
    that Assumption 1 of IFCA bounds by `(1/2 - alpha_0) Delta`. NaN if a model is.

    Cost: one matching for each of the `clusters^2` candidate values.
    """
    distances = euclidean(left, right)

    def pairs_beyond(radius: Float[Array, ""]) -> Float[Array, ""]:
        beyond = (distances > radius).astype(distances.dtype)
        best = match_clusters(beyond)
        return jnp.sum(jnp.take_along_axis(beyond, best[:, None], axis=1))

    candidates = distances.ravel()
    feasible = jax.vmap(pairs_beyond)(candidates) == 0
    least = jnp.min(jnp.where(feasible, candidates, jnp.inf))
    return jnp.where(jnp.any(jnp.isnan(distances)), jnp.nan, least)


def inner_products(left: Stacked, right: Stacked) -> Float[Array, "rows columns"]:
    """Inner product of every model on the left with every one on the right, over all
    leaves: the Gram matrix where both sides are the same; NaN for a model that is not
    finite.

    Cost: `rows x columns x parameters` multiplications, one matrix product for each
    leaf. Memory: the result; leaves are not copied.
    """

    def of_leaf(a: Array, b: Array) -> Float[Array, "rows columns"]:
        a, b = a.reshape(a.shape[0], -1), b.reshape(b.shape[0], -1)
        product = jnp.matmul(a, b.T, precision=jax.lax.Precision.HIGHEST)
        return product.astype(jnp.result_type(float))

    products = jax.tree.leaves(jax.tree.map(of_leaf, left, right))
    return functools.reduce(jnp.add, products)


def norms(stacked: Stacked) -> Float[Array, " rows"]:
    """Euclidean norm of every model over all leaves, whose squares must not leave the
    floats' range."""

    def squares(leaf: Array) -> Float[Array, " rows"]:
        total = jnp.sum(jnp.square(leaf.reshape(leaf.shape[0], -1)), axis=1)
        return total.astype(jnp.result_type(float))

    leaves = jax.tree.leaves(stacked)
    return jnp.sqrt(functools.reduce(jnp.add, [squares(leaf) for leaf in leaves]))


def cosines(left: Stacked, right: Stacked) -> Float[Array, "rows columns"]:
    """Cosine of the angle between every two models, one of each side, in [-1, 1]; 0 for
    a model that is zero, which has no direction, NaN for one that is not finite.

    Cost: that of `inner_products`. Memory: a copy of both sides, in units of each
    model's largest entry, so that no square leaves the floats' range.
    """
    left, right = _scaled(left), _scaled(right)
    inverses = []
    for side in (left, right):
        length = norms(side)
        inverses.append(
            jnp.where(length == 0, 0, 1 / jnp.where(length == 0, 1, length))
        )
    products = inner_products(left, right)
    # Rounding may leave the range by a few units in the last place.
    return jnp.clip(products * inverses[0][:, None] * inverses[1][None, :], -1, 1)


def _scaled(stacked: Stacked) -> Stacked:
    """Every model in units of its largest entry; a model of zeros as it is."""
    flat = lambda leaf: jnp.abs(leaf.reshape(leaf.shape[0], -1))
    each = [jnp.max(flat(leaf), axis=1) for leaf in jax.tree.leaves(stacked)]
    largest = jnp.max(jnp.stack(each), axis=0)
    unit = jnp.where(largest == 0, 1, largest)
    return jax.tree.map(lambda leaf: leaf / rows(unit, leaf), stacked)


_LARGEST_ENUMERATED = 5  # 5! = 120 permutations: one gather, no loop on the device.


def match_clusters(cost: Float[Array, "clusters clusters"]) -> Int[Array, " clusters"]:
    """One-to-one matching of least total cost.

    Entry `j` of the result is the column matched to row `j`: the permutation `p`
    that minimises `sum_j cost[j, p[j]]`. Of several best permutations the first
    in lexicographic order is returned up to 5 clusters, any of them above.

    An entry that is NaN or infinite is worse than any finite one: the matching
    first uses as few of them as possible, then minimises the rest. So a diverged
    model never takes a partner away from a finite one, and a row without any
    finite entry gets the column that the others leave.

    Args:
      cost: cost of each pair, of any sign and unit; at least one cluster.

    Raises:
      ValueError: if `cost` is not square or has no rows.

    Cost: all `clusters!` permutations up to 5 clusters, the Hungarian algorithm,
    cubic, above. Both can be compiled and batched by vmap.
    """
    if cost.ndim != 2 or cost.shape[0] != cost.shape[1] or cost.shape[0] < 1:
        raise ValueError(
            f"`cost` must be a square matrix `[clusters, clusters]` with at least "
            f"one row, got shape {cost.shape}."
        )
    num_clusters = cost.shape[0]
    cost = _finite(cost)
    if num_clusters > _LARGEST_ENUMERATED:
        from optax.assignment import hungarian_algorithm  # Brings all of optax.

        rows, columns = hungarian_algorithm(cost)
        return columns[jnp.argsort(rows)]  # The rows come in any order.
    permutations = np.array(list(itertools.permutations(range(num_clusters))))
    totals = jnp.sum(cost[np.arange(num_clusters)[None, :], permutations], axis=1)
    return jnp.asarray(permutations)[jnp.argmin(totals)]


def _finite(cost: Float[Array, "clusters clusters"]) -> Float[Array, "..."]:
    """Costs scaled to (-2, 2), non-finite ones above every sum of finite ones."""
    finite = jnp.isfinite(cost)
    largest = jnp.max(jnp.abs(jnp.where(finite, cost, 0)))
    # By a power of two, which rounds nothing: equal totals stay equal.
    _, exponent = jnp.frexp(jnp.where(largest > 0, largest, 1))
    scaled = cost / jnp.ldexp(jnp.ones_like(largest), exponent - 1)
    penalty = 4 * cost.shape[0] + 1  # One swap saves at most 4 per row.
    # The Hungarian algorithm computes in the default precision.
    return jnp.where(finite, scaled, penalty).astype(jnp.result_type(float))
