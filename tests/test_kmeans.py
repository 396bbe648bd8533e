"""K-means against scikit-learn's, and from the subspace of largest singular values."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from leaves import as_leaves, side_by_side
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from cfljax.clustering.gram import central_gram_matrix, gram_matrix, squares_of
from cfljax.clustering.kmeans import k_means, spectral_k_means

KEY = jax.random.key(0)
CLUSTER: Any = jax.jit(
    lambda points, number=4, key=KEY: k_means(key, points, number), static_argnums=1
)


def blobs(seed, spread):
    generator = np.random.default_rng(seed)
    centres = generator.normal(size=(4, 3))
    points = centres[np.arange(60) % 4] + spread * generator.normal(size=(60, 3))
    return points.astype(np.float32)


def between(points):
    """Squared distances in double precision."""
    return cdist(points.astype(float), points.astype(float), "sqeuclidean")


# Against reference
@pytest.mark.long
@pytest.mark.parametrize("spread", [0.05, 0.5])
def test_inertia_is_the_reference_s(spread):
    once = {"num_iterations": 1, "num_restarts": 1}
    hasty = jax.jit(lambda points: k_means(KEY, points, 4, **once))
    for seed in range(3):
        points = blobs(seed, spread) + 100  # Far from the origin.
        found = CLUSTER(points)
        starts: Any = 10  # The stubs know of "auto" only.
        reference = KMeans(4, n_init=starts, random_state=0).fit(points.astype(float))
        assert reference.inertia_ is not None
        # Both search; neither may lose to the other by more than a per cent.
        assert found.inertia < 1.01 * reference.inertia_ + 1e-3
        own = ((points - np.asarray(found.centres)[found.assignment]) ** 2).sum()
        np.testing.assert_allclose(found.inertia, own, rtol=1e-3, atol=1e-3)
        assert hasty(points).inertia > found.inertia or spread == 0.05


@pytest.mark.long
def test_clear_clusters_are_found():
    found = CLUSTER(blobs(3, 0.01))
    labels = np.asarray(found.assignment)
    assert len({tuple(labels[i::4]) for i in range(4)}) == 4
    assert all(len(set(labels[i::4])) == 1 for i in range(4))


@pytest.mark.long
def test_points_of_many_coordinates_keep_their_digits_beside_far_ones():
    """Models have more coordinates than there are clients."""
    generator = np.random.default_rng(5)
    centres = 3 * generator.normal(size=(4, 90))
    points = centres[np.arange(24) % 4] + 0.01 * generator.normal(size=(24, 90))
    points = (points + 300).astype(np.float32)
    points[3], points[7] = 1e7, np.nan
    found = CLUSTER(points, 5)
    labels = np.delete(np.asarray(found.assignment), [3, 7])
    truth = np.delete(np.arange(24) % 4, [3, 7])
    assert found.assignment[7] == -1 and found.assignment[3] not in labels
    pairs = set(zip(labels.tolist(), truth.tolist(), strict=True))
    assert len(pairs) == 4 == len(set(labels.tolist()))
    # Control: about the mean, the far point takes the digits that tell them apart.
    mean = np.nanmean(points, axis=0)
    moved = np.delete(points - mean, [3, 7], axis=0).astype(np.float32)
    products = moved @ moved.T
    squares = np.diag(products)[:, None] + np.diag(products)[None] - 2 * products
    exact = between(moved)
    assert np.max(np.abs(squares - exact)) > exact[truth[:, None] != truth].min()


@pytest.mark.long
@pytest.mark.parametrize("spread", [0.05, 1.0])
def test_many_features_are_clustered_as_their_coordinates_are(spread):
    """Rotated into more dimensions than there are points, far from the origin."""
    generator = np.random.default_rng(6)
    turn, differs = np.linalg.qr(generator.normal(size=(100, 3)))[0], []
    for seed in range(3):
        few = blobs(seed, spread)
        many = (few.astype(float) @ turn.T + 100).astype(np.float32)
        many[[5, 6]], few[[5, 6]] = np.nan, np.nan
        key = jax.random.key(seed)
        found, expected = CLUSTER(many, 4, key), CLUSTER(few, 4, key)
        np.testing.assert_array_equal(found.assignment, expected.assignment)
        # 100 numbers near 100, rounded by up to 4e-6, beside a spread of .05.
        np.testing.assert_allclose(found.inertia, expected.inertia, rtol=1e-3)
        labels = np.asarray(found.assignment)
        means = [many[labels == cluster].mean(axis=0) for cluster in range(4)]
        np.testing.assert_allclose(found.centres, means, rtol=1e-5)
        other = CLUSTER(few, 4, jax.random.key(seed + 9))  # Control.
        differs.append(not np.array_equal(other.assignment, found.assignment))
    assert any(differs)


@pytest.mark.long
def test_leaves_are_clustered_as_if_side_by_side():
    points = np.random.default_rng(8).normal(size=(7, 12)).astype(np.float32)
    points[2, 11] = np.inf
    found, expected = CLUSTER(as_leaves(points)), CLUSTER(points)
    np.testing.assert_array_equal(found.assignment, expected.assignment)
    assert found.assignment[2] == -1
    np.testing.assert_allclose(found.inertia, expected.inertia, rtol=1e-5)
    rows = side_by_side(found.centres)
    np.testing.assert_allclose(rows, expected.centres, atol=1e-6)


def test_a_lie_of_median_norm_takes_no_digits():
    generator = np.random.default_rng(9)
    points = (300 + 0.01 * generator.normal(size=(5, 40))).astype(np.float32)
    norms = np.linalg.norm(points.astype(float), axis=1)
    points = np.concatenate([points, -points[np.argsort(norms)[[2]]]])
    points[5] *= np.float32(1 - 2e-7)
    exact = between(points[:5])
    error = lambda gram: np.abs(squares_of(gram)[0][:5, :5] - exact).max()
    assert error(jax.jit(central_gram_matrix)(points)) < 1e-3 * exact.max()
    assert error(jax.jit(gram_matrix)(points)) > exact.max()  # Control.


# From the subspace, against theory
THIRDS = np.arange(48) % 3
SPECTRAL = jax.jit(lambda key, points: spectral_k_means(key, points, 3))


def points_of(seed, distance=6.0):
    """Three Gaussian clusters in the plane of two of twenty directions."""
    centres = np.zeros((3, 20))
    centres[[1, 2], [0, 1]] = distance
    noise = np.random.default_rng(seed).normal(size=(48, 20))
    return jnp.asarray((centres[THIRDS] + noise).astype(np.float32))


@pytest.mark.long
def test_separated_clusters_are_found_and_close_ones_are_not():
    for seed in range(3):
        found = SPECTRAL(jax.random.key(seed), points_of(seed))
        assert adjusted_rand_score(THIRDS, found.assignment) == 1
        lost = SPECTRAL(jax.random.key(seed), points_of(seed, distance=0.5))
        assert adjusted_rand_score(THIRDS, lost.assignment) < 0.5


@pytest.mark.long
def test_centres_are_the_means_of_their_points():
    points = np.array(points_of(3))
    points[5, 2] = np.inf
    found = SPECTRAL(jax.random.key(0), jnp.asarray(points))
    labels = np.asarray(found.assignment)
    assert labels[5] == -1
    means = [points[labels == cluster].mean(axis=0) for cluster in range(3)]
    np.testing.assert_allclose(found.centres, means, rtol=1e-4, atol=1e-4)
    kept = labels >= 0
    squares = ((points[kept] - np.array(means)[labels[kept]]) ** 2).sum()
    np.testing.assert_allclose(found.inertia, squares, rtol=1e-4)


@pytest.mark.long
def test_fewer_points_than_clusters():
    points = jnp.full((48, 20), jnp.nan).at[0].set(1.0).at[1].set(2.0)
    found = SPECTRAL(jax.random.key(0), points)
    assert found.assignment[0] != found.assignment[1]
    assert jnp.isfinite(found.centres).all() and found.inertia == 0


# Against misuse
def test_a_point_that_is_no_number_joins_nothing():
    points = blobs(3, 0.01)
    points[7, 1] = np.nan
    found = CLUSTER(points)
    labels = np.asarray(found.assignment)
    assert labels[7] == -1
    assert np.isfinite(found.inertia)
    means = [points[labels == cluster].mean(axis=0) for cluster in range(4)]
    np.testing.assert_allclose(found.centres, means, rtol=1e-4, atol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("num_features", [2, 9])
def test_equal_points_and_too_many_clusters(num_features):
    found = CLUSTER(np.ones((3, num_features), np.float32), 5)
    np.testing.assert_allclose(found.centres, np.ones((5, num_features)))
    assert found.inertia == 0


@pytest.mark.parametrize("num_features", [2, 9])
def test_nobody_is_clustered_where_nobody_is_finite(num_features):
    found = CLUSTER(np.full((3, num_features), np.inf, np.float32), 5)
    np.testing.assert_array_equal(found.assignment, [-1, -1, -1])
    assert not jnp.any(jnp.isnan(found.centres))


@pytest.mark.parametrize("name", ["num_clusters", "num_restarts", "num_iterations"])
def test_misuse_is_named(name):
    with pytest.raises(ValueError, match=f"`{name}` must be at least 1"):
        k_means(KEY, jnp.ones((3, 2)), **({"num_clusters": 2} | {name: 0}))
