"""Directions of updates against NumPy's singular vectors, loops and formulas."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.algorithms.flexcfl import (
    cosine_differences,
    decomposed_cosines,
    direction_cosines,
    group_updates,
    towards_others,
)
from cfljax.clustering.kmeans import k_means

RANDOM = np.random.default_rng(0)
WIDE = RANDOM.normal(size=(6, 9)).astype("f4")
TALL = RANDOM.normal(size=(6, 4)).astype("f4")
COSINES = jax.jit(decomposed_cosines, static_argnums=1)
DIFFERENCES = jax.jit(cosine_differences)


def reference(updates, number):
    _, _, rows = np.linalg.svd(updates.astype("f8"), full_matrices=False)
    norms = np.linalg.norm(updates, axis=1)
    return (updates @ rows[:number].T) / norms[:, None]


def apart(rows):
    return np.linalg.norm(rows[:, None] - rows[None], axis=2)


@pytest.mark.parametrize("updates", [WIDE, TALL], ids=["wide", "tall"])
def test_cosines_to_the_singular_vectors(updates):
    found, expected = np.asarray(COSINES(updates, 3)), reference(updates, 3)
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=2e-5)
    np.testing.assert_allclose(apart(found), apart(expected), atol=2e-5)
    with pytest.raises(AssertionError):  # Control: other directions.
        np.testing.assert_allclose(
            apart(found), apart(reference(updates[:, ::-1] ** 3, 3)), atol=1e-2
        )


def test_signs_of_directions_do_not_matter():
    cosines = COSINES(WIDE, 3)

    @jax.jit
    def groups(rows):
        return k_means(jax.random.key(0), rows, 3).assignment

    plain = groups(cosines)
    np.testing.assert_array_equal(groups(cosines * jnp.array([[1.0, -1, -1]])), plain)
    one = jnp.ones((6, 1)).at[0].set(-1)
    assert (groups(cosines * one) != plain).any(), "control: of a client they do"


def test_scales_zeros_and_numbers_that_are_none():
    plain = np.abs(COSINES(WIDE, 3))
    for scale in (1e-30, 1e30):
        found = np.abs(COSINES(WIDE * np.float32(scale), 3))
        np.testing.assert_allclose(found, plain, atol=1e-5)
    each = np.array([[1e-3], [1], [1], [1], [1], [1]], "f4")
    many = np.abs(COSINES(np.concatenate([WIDE, 0 * WIDE[:1], np.nan * WIDE[:1]]), 3))
    np.testing.assert_allclose(many[:6], plain, atol=1e-5)
    np.testing.assert_array_equal(many[6], 0)
    assert np.isnan(many[7]).all()
    assert np.isfinite(COSINES(WIDE * each, 3)).all()


def test_directions_beyond_the_rank_are_absent():
    row = WIDE[:1]
    same = np.concatenate([row, 2 * row, -row, row])
    found = np.asarray(COSINES(same, 3))
    np.testing.assert_allclose(np.abs(found[:, 0]), 1, atol=1e-5)
    assert found[0, 0] == pytest.approx(-found[2, 0])
    np.testing.assert_array_equal(found[:, 1:], 0)
    np.testing.assert_array_equal(COSINES(row, 3)[:, 1:], 0)  # Fewer than K rows.


def test_small_directions_are_lost_in_single_precision_alone():
    """A direction of a 1e-5th is below the root of the precision, one of 1e-1 not."""

    def second(share, kind):
        updates = np.array([[1, share, 0], [1, -share, 0]]).astype(kind)
        return np.abs(COSINES(updates, 2))[:, 1]

    np.testing.assert_array_equal(second(1e-5, "f4"), 0)
    np.testing.assert_allclose(second(1e-1, "f4"), 0.0995, atol=1e-3)
    with jax.enable_x64(True):
        np.testing.assert_allclose(second(1e-5, "f8"), 1e-5, rtol=1e-3)


def test_differences_of_cosines_against_loops():
    unit = WIDE / np.linalg.norm(WIDE, axis=1, keepdims=True)
    cosines = unit @ unit.T
    expected = np.zeros((6, 6))
    for i in range(6):
        for j in range(6):
            rest = [z for z in range(6) if z not in (i, j)]
            expected[i, j] = np.abs(cosines[i, rest] - cosines[j, rest]).sum() / 4
    found = np.asarray(DIFFERENCES(WIDE))
    off = ~np.eye(6, dtype=bool)
    np.testing.assert_allclose(found[off], expected[off], atol=2e-6)
    with pytest.raises(AssertionError):  # Control: i and j themselves counted.
        wrong = np.abs(cosines[:, None] - cosines[None]).sum(2) / 4
        np.testing.assert_allclose(found[off], wrong[off], atol=1e-2)
    more = np.asarray(DIFFERENCES(np.concatenate([WIDE, np.nan * WIDE[:1]])))
    np.testing.assert_allclose(more[:6, :6][off], expected[off], atol=2e-6)
    assert np.isnan(more[6]).all()
    np.testing.assert_array_equal(DIFFERENCES(WIDE[:2])[0, 1], 0)


@pytest.mark.parametrize("clustering", ["decomposed_cosine", "pairwise"])
def test_two_kinds_of_directions_are_parted(clustering):
    kinds = np.array([0, 1, 1, 0, 1, 0])
    lengths = 10.0 ** RANDOM.uniform(-2, 2, size=(6, 1))
    updates = lengths * (np.eye(9)[kinds] + 0.1 * WIDE)
    updates[5] = np.inf
    groups = jax.jit(
        lambda rows: group_updates(jax.random.key(0), rows, 2, clustering=clustering)
    )(updates.astype("f4"))
    labels = np.asarray(groups)
    assert labels[5] == -1
    np.testing.assert_array_equal(labels[:5] == labels[0], kinds[:5] == kinds[0])


def test_cosines_of_one_update():
    directions = {"a": jnp.array([[1.0, 0], [0, 0], [3e30, 0]]), "b": jnp.ones((3, 1))}
    directions["b"] = directions["b"].at[1:].set(0.0)
    cosines = jax.jit(direction_cosines)
    update = {"a": jnp.array([1e-30, 0]), "b": jnp.array([0.0])}
    found = np.asarray(cosines(update, directions))
    np.testing.assert_allclose(found[[0, 2]], [np.sqrt(0.5), 1], rtol=1e-6)
    assert np.isnan(found[1]), "a direction that is none"
    nothing = jax.tree.map(jnp.zeros_like, update)
    np.testing.assert_array_equal(cosines(nothing, directions)[0], 0)
    bad = update | {"b": jnp.array([jnp.inf])}
    assert not np.isfinite(cosines(bad, directions)).any()


def test_learning_between_groups_against_its_formula():
    models = RANDOM.normal(size=(4, 3)).astype("f4")
    models[3] = np.nan  # Of a group that nobody is in.
    used = jnp.array([True, True, True, False])
    move = jax.jit(towards_others)
    found = np.asarray(move(models, 0.3, used))
    norms = np.linalg.norm(models, axis=1)
    for g in range(3):
        others = [k for k in range(3) if k != g]
        total = models[g] + 0.3 * sum(models[k] / norms[k] for k in others)
        expected = total / (1 + 0.3 * sum(1 / norms[k] for k in others))
        np.testing.assert_allclose(found[g], expected, rtol=1e-5)
        with pytest.raises(AssertionError):  # Control: a sum that is not divided.
            np.testing.assert_allclose(found[g], total, rtol=1e-2)
    assert np.isnan(found[3]).all()
    np.testing.assert_array_equal(move(models, 0.0, used), models)
