"""The one-to-one matching of clusters, against scipy's linear assignment."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from cfljax.clustering.distances import match_clusters


def total(cost: np.ndarray, permutation: np.ndarray) -> float:
    return float(cost[np.arange(len(cost)), permutation].sum())


@pytest.mark.parametrize("num_clusters", range(1, 9))
def test_least_total_cost_against_reference(num_clusters):
    rng = np.random.default_rng(num_clusters)
    costs = rng.normal(size=(20, num_clusters, num_clusters)).astype(np.float32)
    found = jax.jit(jax.vmap(match_clusters))(jnp.asarray(costs))
    for cost, permutation in zip(costs, np.asarray(found), strict=True):
        assert sorted(permutation) == list(range(num_clusters))
        best = total(cost, linear_sum_assignment(cost)[1])
        assert total(cost, permutation) == pytest.approx(best, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("num_clusters", [3, 7])
def test_reversed_matching_is_worse(num_clusters):
    """Control: the comparison above tells a wrong matching from the right one."""
    rng = np.random.default_rng(num_clusters)
    cost = rng.normal(size=(num_clusters, num_clusters)).astype(np.float32)
    permutation = np.asarray(match_clusters(jnp.asarray(cost)))
    best = total(cost, linear_sum_assignment(cost)[1])
    assert total(cost, permutation[::-1]) > best + 1e-3


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("num_clusters", [2, 5, 7])
def test_bad_rows_take_what_is_left_against_reference(num_clusters, bad):
    rng = np.random.default_rng(num_clusters)
    cost = rng.normal(size=(num_clusters, num_clusters)).astype(np.float32)
    cost[1] = bad
    permutation = np.asarray(match_clusters(jnp.asarray(cost)))
    assert sorted(permutation) == list(range(num_clusters))
    kept = np.delete(cost, 1, axis=0)  # scipy accepts more columns than rows.
    rows, columns = linear_sum_assignment(kept)
    found = total(kept, np.delete(permutation, 1))
    assert found == pytest.approx(float(kept[rows, columns].sum()), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("num_clusters", [3, 7])
def test_fewest_bad_pairs_even_if_all_others_are_dear(num_clusters):
    """Avoiding one NaN is worth any finite cost, also near the largest number."""
    cost = np.full((num_clusters, num_clusters), 3e38, np.float32)
    np.fill_diagonal(cost, -3e38)
    cost[0, 0] = np.nan
    permutation = np.asarray(match_clusters(jnp.asarray(cost)))
    assert permutation[0] != 0


@pytest.mark.parametrize("num_clusters", [2, 7])
def test_nothing_finite_still_gives_a_permutation(num_clusters):
    cost = jnp.full((num_clusters, num_clusters), jnp.nan)
    assert sorted(np.asarray(match_clusters(cost))) == list(range(num_clusters))


def test_no_clusters_are_refused():
    with pytest.raises(ValueError, match=r"`cost` .* shape \(0, 0\)"):
        match_clusters(jnp.zeros((0, 0)))
