"""Agglomerative clustering and silhouettes against SciPy's and scikit-learn's."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster
from scipy.cluster.hierarchy import linkage as scipy_linkage
from scipy.spatial.distance import pdist, squareform
from sklearn.metrics import adjusted_rand_score, silhouette_score

from cfljax.clustering.linkage import (
    agglomerate,
    agglomerate_distances,
    cut_distances,
    select_clusters,
    silhouette,
)

MOST = 6
NAME = "linkage"
BY_NUMBER: Any = jax.jit(agglomerate_distances, static_argnums=1, static_argnames=NAME)
BY_HEIGHT: Any = jax.jit(cut_distances, static_argnames=NAME)
MERGE: Any = jax.jit(agglomerate, static_argnums=1, static_argnames="linkage")


def points_of(seed, number=24):
    return np.random.default_rng(seed).normal(size=(number, 3)).astype(np.float32)


def assert_same(tree, labels, number, criterion="maxclust"):
    """The same partition as a cut of SciPy's tree."""
    expected = fcluster(tree, number, criterion=criterion)
    assert adjusted_rand_score(expected, np.asarray(labels)) == 1


@pytest.mark.parametrize("method", ["ward", "average", "complete", "single"])
def test_partitions_are_those_of_scipy(method):
    for seed in range(3):
        points = points_of(seed)
        found = np.asarray(MERGE(jnp.asarray(points), MOST, linkage=method))
        tree = scipy_linkage(points.astype(float), method)
        for number in range(1, MOST + 1):
            assert set(found[number - 1]) == set(range(number))
            assert_same(tree, found[number - 1], number)


@pytest.mark.long
@pytest.mark.parametrize("method", ["average", "complete", "single", "weighted"])
def test_distances_alone_are_clustered_as_by_scipy(method):
    for seed in range(3):
        pairs = pdist(points_of(seed).astype(float))
        tree = scipy_linkage(pairs, method)
        square = jnp.asarray(squareform(pairs), jnp.float32)
        shifted = square - 100  # Cosines, say, may be negative.
        found = BY_NUMBER(shifted, MOST, linkage=method)
        for number in range(1, MOST + 1):
            assert_same(tree, found[number - 1], number)
        height = (tree[-4, 2] + tree[-3, 2]) / 2
        for shift in (0, 100):
            labels = BY_HEIGHT(square - shift, height - shift, linkage=method)
            assert_same(tree, labels, height, "distance")
        assert set(np.asarray(labels)) == set(range(4))


@pytest.mark.long
def test_absent_points_and_infinite_distances():
    square = jnp.asarray(squareform(pdist(points_of(2, number=6))), jnp.float32)
    present = jnp.arange(6) != 2
    poisoned = square.at[2].set(jnp.nan).at[:, 2].set(jnp.nan)
    found = BY_NUMBER(poisoned, 3, linkage="complete", present=present)
    kept = np.delete(np.arange(6), 2)
    alone = BY_NUMBER(square[kept][:, kept], 3, linkage="complete")
    assert (np.asarray(found)[:, 2] == -1).all()
    np.testing.assert_array_equal(np.asarray(found)[:, kept], alone)
    split = square.at[:3, 3:].set(jnp.inf).at[3:, :3].set(jnp.inf)
    labels = BY_HEIGHT(split, 1e9, linkage="complete")
    assert labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert BY_HEIGHT(square, 1e9, linkage="complete").tolist() == [0] * 6
    with pytest.raises(ValueError, match="linkage"):
        agglomerate_distances(square, 2, linkage="ward")


def test_linkages_differ():
    points = jnp.asarray(points_of(0))
    ward, single = (MERGE(points, MOST, linkage=m) for m in ("ward", "single"))
    assert adjusted_rand_score(np.asarray(ward[2]), np.asarray(single[2])) < 1


def test_points_without_a_number_and_few_points():
    points = points_of(1, number=5)
    with_gap = np.insert(points, 2, np.nan, axis=0)
    found = np.asarray(MERGE(jnp.asarray(with_gap), 7))
    assert (found[:, 2] == -1).all()
    tree = scipy_linkage(points.astype(float), "ward")
    for number in range(1, 5):
        assert_same(tree, np.delete(found[number - 1], 2), number)
    # More clusters than points: each is a cluster.
    assert np.delete(found, 2, axis=1)[-1].tolist() == [0, 1, 2, 3, 4]
    nobody = MERGE(jnp.full((6, 3), jnp.nan), 7)
    assert (np.asarray(nobody) == -1).all()


def test_clusters_are_numbered_by_their_first_points():
    points = jnp.array([[5.0], [0.0], [5.1], [0.1], [9.0]])
    assert MERGE(points, 3)[2].tolist() == [0, 1, 0, 1, 2]


@pytest.mark.parametrize(
    "arguments", [{"max_clusters": 0}, {"max_clusters": 2, "linkage": "median"}]
)
def test_misuse_is_named(arguments):
    with pytest.raises(ValueError, match=r"`max_clusters`|`linkage`"):
        agglomerate(jnp.ones((3, 2)), **arguments)


def test_silhouette_is_that_of_scikit_learn():
    judge = jax.jit(lambda points, labels: silhouette(points, labels, 5))
    for seed in range(4):
        points = points_of(seed)
        labels = np.random.default_rng(seed).integers(0, 4, 24)
        labels[labels == 3] = 0
        labels[0] = 3  # Alone in its cluster.
        expected = silhouette_score(points.astype(float), labels)
        found = judge(jnp.asarray(points), jnp.asarray(labels))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
        assert abs(expected - silhouette_score(points, np.roll(labels, 1))) > 1e-4
        known = np.arange(24) != 7
        partly = judge(jnp.asarray(points), jnp.asarray(np.where(known, labels, -1)))
        expected = silhouette_score(points[known].astype(float), labels[known])
        np.testing.assert_allclose(partly, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.long
def test_silhouette_of_one_cluster_is_none():
    assert jnp.isnan(silhouette(jnp.ones((3, 2)), jnp.zeros(3, int), 2))


SELECT: Any = jax.jit(select_clusters, static_argnums=1)


def blobs(number, each, spread=0.05, seed=0):
    generator = np.random.default_rng(seed)
    centres = 3 * np.eye(number)
    points = np.repeat(centres, each, axis=0)
    return (points + spread * generator.normal(size=points.shape)).astype(np.float32)


@pytest.mark.parametrize("number", [2, 4])
def test_number_of_clusters_is_found(number):
    found = SELECT(jnp.asarray(blobs(number, 4)), 6)
    assert found.num_clusters == number
    assert adjusted_rand_score(np.repeat(range(number), 4), found.assignment) == 1
    assert int(jnp.nanargmax(found.scores)) == number - 1


@pytest.mark.long
def test_few_points_are_no_clusters_of_their_own():
    points = blobs(2, 2, spread=0.5)
    found = SELECT(jnp.asarray(points), 6)
    assert found.num_clusters == 2
    # As many clusters as points, or more, cannot be judged ...
    assert np.isnan(np.asarray(found.scores)[[0, 3, 4, 5]]).all()
    # ... but five copies of every point make singles of the points look perfect.
    copies = np.repeat(points, 5, axis=0)
    repeated = silhouette_score(copies, np.repeat(range(4), 5))
    assert repeated == 1 > found.scores[1]


@pytest.mark.long
@pytest.mark.parametrize("number", [0, 1, 2])
def test_too_few_points_are_one_cluster(number):
    points = jnp.where(jnp.arange(3)[:, None] < number, jnp.ones((3, 2)), jnp.nan)
    found = SELECT(points.at[0].multiply(2), 4)
    assert found.num_clusters == 1
    assert found.assignment.tolist() == [0] * number + [-1] * (3 - number)
