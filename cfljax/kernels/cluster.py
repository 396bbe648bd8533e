"""Grouping and matching: which cluster is which."""

import itertools

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from optax.assignment import hungarian_algorithm

__all__ = ["match_clusters"]

_LARGEST_ENUMERATED = 5  # 5! = 120 permutations: one gather, no loop on the device.


def match_clusters(
    cost: Float[Array, "clusters clusters"],
) -> Int[Array, " clusters"]:
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
