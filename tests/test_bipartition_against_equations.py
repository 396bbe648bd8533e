"""Cosines of models, and clusters cut in two, against NumPy and all possible cuts."""

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.algorithms.cfl_s import bisect_clusters, is_congruent, largest_across
from cfljax.clustering.distances import cosines, inner_products, norms

NUMBER, MOST = 16, 5
CUT = jax.jit(bisect_clusters, static_argnames=("linkage", "by_position"))
EVERYBODY = jnp.ones(NUMBER, bool)


def units(seed, number=NUMBER, features=4):
    points = np.random.default_rng(seed).normal(size=(number, features))
    return points / np.linalg.norm(points, axis=1)[:, None]


def one_cluster(number=NUMBER):
    return jnp.zeros((MOST, number), bool).at[0].set(True)


def cut(similarities, members, number, due, present=EVERYBODY, **settings: Any):
    similarities = jnp.asarray(similarities, jnp.float32)
    given = jnp.int32(number), jnp.asarray(due), present
    return CUT(similarities, members, *given, **settings)


def test_cosines_against_numpy():
    generator = np.random.default_rng(0)
    leaves = [generator.normal(size=(5, 2, 3)), generator.normal(size=(5, 4))]
    for leaf in leaves:
        leaf[3] = 0.0
    flat = np.concatenate([leaf.reshape(5, -1) for leaf in leaves], axis=1)
    tree = {"a": jnp.asarray(leaves[0], "f4"), "b": jnp.asarray(leaves[1], "f4")}
    three = jax.tree.map(lambda leaf: leaf[:3], tree)
    run = lambda t, u: (inner_products(t, u), norms(t), cosines(t, u))
    products, lengths, angles = jax.jit(run)(tree, three)
    sizes = np.linalg.norm(flat, axis=1)
    np.testing.assert_allclose(products, flat @ flat[:3].T, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(lengths, sizes, rtol=1e-6)
    sizes[3] = 1.0  # No direction.
    expected = flat @ flat[:3].T / sizes[:, None] / sizes[:3]
    np.testing.assert_allclose(angles, expected, rtol=1e-5, atol=1e-6)
    assert (np.asarray(angles[3]) == 0).all()
    assert np.abs(products - expected).max() > 0.1, "control: norms matter"


def hierarchy(groups):
    """Cosines of four groups, the first two and the last two nearer to each other."""
    centres = np.array([[2, 1, 0], [2, -1, 0], [-2, 0, 1], [-2, 0, -1]], float)
    points = centres[groups] + 0.1 * units(1, NUMBER, 3)
    points /= np.linalg.norm(points, axis=1)[:, None]
    return points @ points.T


def test_places_taken_for_clients_lose_half_of_them():
    """Four groups, split twice: 8 of 16 clients are then in no cluster, 8 in two."""
    groups = np.random.default_rng(5).permutation(np.arange(NUMBER) % 4)
    found = {}
    for by_position in (False, True):
        settings: Any = {"by_position": by_position}
        first = cut(
            hierarchy(groups), one_cluster(), 1, np.arange(MOST) < 1, **settings
        )
        assert int(first.number) == 2
        np.testing.assert_array_equal(first.parents, [0, -1, -1, -1])
        second = cut(
            hierarchy(groups), first.members, 2, np.arange(MOST) < 2, **settings
        )
        assert int(second.number) == 4
        np.testing.assert_array_equal(second.parents, [-1, 0, 1, -1])
        found[by_position] = np.asarray(second.members)
    times = found[True].sum(axis=0)
    np.testing.assert_array_equal(times, np.repeat([2, 0], 8))
    right = found[False]
    np.testing.assert_array_equal(right.sum(axis=0), np.ones(NUMBER))
    labels = right.argmax(axis=0)
    pairs = labels[:, None] == labels[None, :]
    np.testing.assert_array_equal(pairs, groups[:, None] == groups[None, :])


def test_single_linkage_is_the_optimal_bipartition():
    """No cut has a smaller largest similarity across; complete linkage may."""
    number, worse = 7, 0
    cuts = [np.array((0,) + c) for c in itertools.product((0, 1), repeat=number - 1)]
    for seed in range(12):
        unit = units(seed, number, 3)
        similarities = unit @ unit.T
        across = lambda part, s=similarities: s[np.ix_(part == 0, part == 1)].max()
        best = min(across(part) for part in cuts[1:])
        for linkage in ("single", "complete"):
            found = cut(
                similarities,
                one_cluster(number),
                1,
                np.arange(MOST) < 1,
                jnp.ones(number, bool),
                linkage=linkage,
            )
            value = across(np.asarray(found.members[1], int))
            if linkage == "single":
                np.testing.assert_allclose(value, best, rtol=1e-6)
            worse += value > best + 1e-3
    assert worse > 3, "control: complete linkage is another rule"


def test_incongruence_is_the_angle_within_a_distribution():
    """Gradients within gamma of one direction are never parted, and barely others."""
    generator, gamma = np.random.default_rng(2), 0.3
    centre = np.array([1.0, 0, 0])
    noise = gamma * units(3, 400, 3) * generator.uniform(0, 1, (400, 1)) ** 0.1
    points = centre + noise
    points /= np.linalg.norm(points, axis=1)[:, None]
    least = (points @ points.T).min()
    bound = 1 - 2 * gamma**2
    assert bound <= least < bound + 0.05
    congruent = jax.jit(is_congruent)
    assert congruent(jnp.float32(least), gamma)
    assert not congruent(jnp.float32(bound - 1e-3), gamma), "control"
    groups = np.random.default_rng(5).permutation(np.arange(NUMBER) % 4)
    similarities = hierarchy(groups)
    halves = groups < 2
    across = similarities[np.ix_(halves, ~halves)].max()
    jitted = jax.jit(largest_across)
    found = jitted(jnp.asarray(similarities, "f4"), jnp.asarray(halves), ~halves)
    np.testing.assert_allclose(found, across, rtol=1e-6)
    limit = np.sqrt((1 - across) / 2)
    for factor, number in ((0.99, 2), (1.01, 1)):
        due = np.arange(MOST) < 1
        given = jnp.float32(factor * limit)
        parted = cut(similarities, one_cluster(), 1, due, incongruence=given)
        assert int(parted.number) == number


def test_only_those_present_are_compared_and_room_is_kept():
    groups = np.arange(NUMBER) % 2 * 2
    similarities = hierarchy(groups)
    similarities[3] = similarities[:, 3] = np.nan
    present = EVERYBODY.at[3].set(False)
    due = np.arange(MOST) < 1
    found = cut(similarities, one_cluster(), 1, due, present)
    expected = (groups == 2) & (np.arange(NUMBER) != 3)
    np.testing.assert_array_equal(found.members[1], expected)
    np.testing.assert_array_equal(found.members[0], ~expected)
    nobody = cut(similarities, one_cluster(), 1, due & False, present)
    np.testing.assert_array_equal(nobody.members, one_cluster())
    alone = cut(
        similarities, one_cluster(), 1, due, EVERYBODY & (np.arange(NUMBER) < 1)
    )
    assert int(alone.number) == 1
    full = jnp.asarray(np.arange(NUMBER) % MOST == np.arange(MOST)[:, None])
    kept = cut(similarities, full, MOST, np.ones(MOST, bool), present)
    np.testing.assert_array_equal(kept.members, full)


@pytest.mark.parametrize("due", [(0, 1), (1, 0), (1, 1)])
def test_clusters_are_cut_apart_from_each_other(due):
    groups = np.random.default_rng(6).permutation(np.arange(NUMBER) % 4)
    start = one_cluster().at[0].set(jnp.asarray(groups < 2))
    start = start.at[1].set(jnp.asarray(groups >= 2))
    wanted = np.concatenate([np.array(due, bool), np.zeros(MOST - 2, bool)])
    found = cut(hierarchy(groups), start, 2, wanted)
    assert int(found.number) == 2 + sum(due)
    together = functools.reduce(
        np.logical_or, [np.outer(row, row) for row in np.asarray(found.members)]
    )
    scale = np.where(np.array(due, bool)[groups // 2], 1, 2)
    expected = groups // scale + 10 * scale
    np.testing.assert_array_equal(together, expected[:, None] == expected[None, :])
