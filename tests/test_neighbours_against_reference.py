"""Nearest neighbours against scikit-learn, and where inner products lose digits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.neighbors import NearestNeighbors

from cfljax.algorithms.knn_per import nearest_samples, neighbour_mean

POINTS = np.random.default_rng(0).normal(size=(30, 6)).astype("f4")
QUERIES = np.random.default_rng(1).normal(size=(7, 6)).astype("f4")


def search(points, queries, mask=None, num_neighbours=4, **settings):
    mask = np.ones(len(points), bool) if mask is None else mask
    run = jax.jit(lambda p, m, q: nearest_samples(p, m, q, num_neighbours, **settings))
    return map(np.asarray, run(jnp.asarray(points), jnp.asarray(mask), queries))


@pytest.mark.parametrize("offset", [0.0, 1000.0])
@pytest.mark.parametrize("chunk", [None, 3])
def test_neighbours_against_scikit_learn(offset, chunk):
    points, queries = POINTS + np.float32(offset), QUERIES + np.float32(offset)
    indices, squares = search(points, queries, queries_per_chunk=chunk)
    known = NearestNeighbors(n_neighbors=4, algorithm="brute").fit(points.astype("f8"))
    distances, expected = known.kneighbors(queries.astype("f8"))
    np.testing.assert_array_equal(indices, expected)
    np.testing.assert_allclose(squares, distances**2, rtol=1e-4)


def test_inner_products_far_from_zero_would_be_wrong():
    """Control: without centring, the digits are gone."""
    points, queries = POINTS + np.float32(1000), QUERIES + np.float32(1000)
    _, squares = search(points, queries, num_neighbours=30)
    plain = (points**2).sum(1)[None] + (queries**2).sum(1)[:, None]
    plain = np.sort(plain - 2 * queries @ points.T, axis=1)
    exact = ((points[None].astype("f8") - queries[:, None]) ** 2).sum(axis=2)
    exact = np.sort(exact, axis=1)
    assert np.abs(squares - exact).max() < 1e-3 < np.abs(plain - exact).max()


def test_what_is_masked_or_not_finite_is_no_neighbour():
    points = POINTS[:5].copy()
    points[1] = np.nan
    mask = np.array([True, True, False, True, False])
    indices, squares = search(points, QUERIES, mask, num_neighbours=3)
    assert set(indices[:, :2].ravel().tolist()) == {0, 3}
    assert np.all(np.isinf(squares[:, 2])) and np.all(np.isfinite(squares[:, :2]))
    queries = QUERIES.copy()
    queries[0] = np.inf
    _, squares = search(points, queries, mask)
    assert np.all(np.isinf(squares[0])) and np.all(np.isfinite(squares[1:, :2]))


def test_ties_go_to_the_first_point():
    points = np.repeat(POINTS[:2], 3, axis=0)
    indices, _ = search(points, POINTS[:1])
    assert indices[0].tolist() == [0, 1, 2, 3]


def test_means_without_neighbours_are_zero_and_known_to_be():
    values = jnp.asarray([[1.0], [3.0]])
    indices = jnp.zeros((3, 2), jnp.int32).at[:, 1].set(1)
    squares = jnp.asarray([[0.0, 2.0], [1e4, np.inf], [np.inf, np.inf]])
    means, known = neighbour_mean(values, indices, squares, 2.0)
    share = np.exp(-1) / (1 + np.exp(-1))
    np.testing.assert_allclose(means[:, 0], [1 + 2 * share, 1, 0], rtol=1e-6)
    assert known.tolist() == [True, True, False]
