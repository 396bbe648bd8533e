"""Clusters of subspaces at known angles: lines of a plane, against SciPy's trees."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.cluster.hierarchy
import scipy.spatial.distance

from cfljax.algorithms.pacfl import (
    Subspaces,
    angles_between,
    group_subspaces,
    nearest_groups,
)

# Degrees. At 45 the plain mean to the three lines below is 34.3, that of WPGMA 31.5.
LINES = np.array([0.0, 10.0, 22.0, 45.0, 85.0])
LINKAGES = ["weighted", "average", "complete", "single"]
SLOWLY = ["weighted", *(pytest.param(x, marks=pytest.mark.slow) for x in LINKAGES[1:])]


def lines(degrees):
    """One vector for each client; none where the angle is not a number."""
    radians = np.deg2rad(np.asarray(degrees))
    vectors = np.stack([np.cos(radians), np.sin(radians)], axis=1)[:, :, None]
    kept = np.isfinite(vectors).all(axis=1)
    vectors = np.where(np.isnan(vectors), 0, vectors).astype("f4")
    return Subspaces(jnp.asarray(vectors), jnp.asarray(kept))


@functools.cache
def compiled(linkage, number):
    """Groups at a threshold."""
    run = lambda threshold, sent: group_subspaces(
        angles_between(sent, sent),
        jnp.any(sent.kept, axis=1),
        number,
        threshold=threshold,
        linkage=linkage,
    )
    return jax.jit(run)


def tree(linkage):
    pairs = scipy.spatial.distance.pdist(LINES[:, None])
    return scipy.cluster.hierarchy.linkage(pairs, linkage)


def numbered(labels):
    """Labels in the order of their first points."""
    return [list(dict.fromkeys(labels)).index(label) for label in labels]


@pytest.mark.parametrize("linkage", SLOWLY)
def test_groups_are_scipy_s(linkage):
    told, run = lines(LINES), compiled(linkage, len(LINES))
    for threshold in (0.0, 11.0, 21.0, 33.0, 50.0, 90.0):
        cut = scipy.cluster.hierarchy.fcluster(tree(linkage), threshold, "distance")
        clusters, found = run(threshold, told)
        assert clusters.tolist() == numbered(cut)
        assert int(found) == len(set(cut))


def test_what_the_released_code_calls_average_is_not():
    told = lines(LINES)
    weighted, _ = compiled("weighted", len(LINES))(33.0, told)
    average, _ = compiled("average", len(LINES))(33.0, told)
    assert weighted.tolist() == [0, 0, 0, 0, 1]
    assert average.tolist() == [0, 0, 0, 1, 2]


def test_too_few_groups_go_on_merging():
    told, run = lines(LINES), compiled("weighted", 3)
    clusters, found = run(11.0, told)
    assert clusters.tolist() == [0, 0, 0, 1, 2]
    assert int(found) == 4
    clusters, found = run(33.0, told)
    assert int(found) == 2 == len(set(clusters.tolist())), "control: enough"
    clusters, found = run(11.0, lines([np.nan, 0.0, 80.0, np.nan, 3.0]))
    assert clusters.tolist() == [-1, 0, 1, -1, 0]
    assert int(found) == 2
    clusters, found = run(11.0, lines([np.nan] * 5))
    assert clusters.tolist() == [-1] * 5
    assert int(found) == 0


@pytest.mark.parametrize("linkage", LINKAGES)
def test_newcomers_go_to_the_nearest(linkage):
    clusters = np.array([0, 1, 0, 3, -1])
    degrees = np.array([8.0, 14.0, 40.0, 80.0])
    run = lambda *sent: nearest_groups(
        angles_between(*sent), jnp.asarray(clusters), 4, linkage=linkage
    )
    found, angles = jax.jit(run)(lines([*degrees, np.nan]), lines(LINES))
    rule = {"single": np.min, "complete": np.max}.get(linkage, np.mean)
    apart = np.abs(degrees[:, None] - LINES[None])
    expected = np.full((4, 4), np.inf)  # Nobody is in cluster 2.
    for k in (0, 1, 3):
        expected[:, k] = rule(apart[:, clusters == k], axis=1)
    assert found.tolist() == [*expected.argmin(axis=1), -1]
    np.testing.assert_allclose(angles[:4], expected.min(axis=1), rtol=1e-4)
    assert np.isinf(angles[4])
    with pytest.raises(AssertionError):  # Control: the last client is in no cluster.
        np.testing.assert_allclose(angles[:4], apart.min(axis=1), rtol=1e-4)
