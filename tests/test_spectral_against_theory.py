"""K-means from the subspace of largest singular values finds what it is proved to."""

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.metrics import adjusted_rand_score

from cfljax.clustering.kmeans import spectral_k_means

TRUTH = np.arange(48) % 3
CLUSTER = jax.jit(lambda key, points: spectral_k_means(key, points, 3))


def points_of(seed, distance=6.0):
    """Three Gaussian clusters in the plane of two of twenty directions."""
    generator = np.random.default_rng(seed)
    centres = np.zeros((3, 20))
    centres[[1, 2], [0, 1]] = distance
    noise = generator.normal(size=(48, 20))
    return jnp.asarray((centres[TRUTH] + noise).astype(np.float32))


def test_separated_clusters_are_found_and_close_ones_are_not():
    for seed in range(3):
        found = CLUSTER(jax.random.key(seed), points_of(seed))
        assert adjusted_rand_score(TRUTH, found.assignment) == 1
        lost = CLUSTER(jax.random.key(seed), points_of(seed, distance=0.5))
        assert adjusted_rand_score(TRUTH, lost.assignment) < 0.5


def test_centres_are_the_means_of_their_points():
    points = np.array(points_of(3))
    points[5, 2] = np.inf
    found = CLUSTER(jax.random.key(0), jnp.asarray(points))
    labels = np.asarray(found.assignment)
    assert labels[5] == -1
    means = [points[labels == cluster].mean(axis=0) for cluster in range(3)]
    np.testing.assert_allclose(found.centres, means, rtol=1e-4, atol=1e-4)
    kept = labels >= 0
    squares = ((points[kept] - np.array(means)[labels[kept]]) ** 2).sum()
    np.testing.assert_allclose(found.inertia, squares, rtol=1e-4)


def test_fewer_points_than_clusters():
    points = jnp.full((48, 20), jnp.nan).at[0].set(1.0).at[1].set(2.0)
    found = CLUSTER(jax.random.key(0), points)
    assert found.assignment[0] != found.assignment[1]
    assert jnp.isfinite(found.centres).all() and found.inertia == 0
