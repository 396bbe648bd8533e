"""FlexCFL: cold starts and rounds by hand in NumPy, its limits, and directions."""

import dataclasses
import functools
from typing import Any

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import UPDATE, close, compiled, differ, misuse, padded, rounds

from cfljax.algorithms import fedavg, flexcfl
from cfljax.algorithms.flexcfl import (
    State,
    cosine_differences,
    decomposed_cosines,
    direction_cosines,
    group_updates,
    towards_others,
)
from cfljax.clustering.kmeans import k_means
from cfljax.models import linear

CLIENTS, SAMPLES, FEATURES, STEP, CLUSTERS = 5, 8, 3, 0.05, 2
KEPT = np.array([8, 2, 5, 8, 4])  # Real samples of each client.
GROUPS = np.array([0, 1, 0, 1, 1])
TASK = linear(FEATURES)
MODEL = 4 * FEATURES  # Bytes.


def draw():
    """Two groups, whose clients see much the same inputs."""
    generator = np.random.default_rng(1)
    axes = np.eye(FEATURES)[np.arange(SAMPLES) % FEATURES] * np.sqrt(FEATURES)
    inputs = axes + 0.2 * generator.normal(size=(CLIENTS, SAMPLES, FEATURES))
    truth = np.where(GROUPS == 0, 3.0, -3.0)[:, None] + generator.normal(size=(5, 3))
    return padded(inputs, np.einsum("csf,cf->cs", inputs, truth), KEPT)


DATA = draw()
SETTINGS: dict[str, Any] = {
    "num_clusters": CLUSTERS,
    "step_size": STEP,
    "num_steps": 2,
    "num_pretrain_steps": 3,
}


def build(**settings):
    return compiled(flexcfl(TASK, **settings))


PAPER = build(**SETTINGS)
PAPER = PAPER._replace(join=jax.jit(PAPER.join))
BETWEEN = build(**SETTINGS, inter_group_step_size=0.3)


def trained(i, theta, steps):
    return by_hand.trained(DATA, i, theta, step_size=STEP, num_steps=steps)


def means(rows, labels, weights):
    mean = lambda own: np.average(rows[own], axis=0, weights=weights[own])
    return np.stack([mean(labels == k) for k in range(CLUSTERS)])


def nearest(updates, directions):
    unit = lambda rows: rows / np.linalg.norm(rows, axis=1)[:, None]
    return np.argmin((1 - unit(updates) @ unit(directions).T) / 2, axis=1)


@functools.cache
def begun():
    return PAPER.init(jax.random.key(0), DATA)


# Against equations


@pytest.mark.parametrize(
    "clustering",
    ["decomposed_cosine", pytest.param("pairwise", marks=pytest.mark.slow)],
)
def test_the_group_cold_start_against_equations(clustering):
    state = begun()
    if clustering == "pairwise":
        other = build(**SETTINGS, clustering=clustering)
        state = other.init(jax.random.key(0), DATA)
    start, labels = np.asarray(state.start), np.asarray(state.clusters)
    np.testing.assert_array_equal(labels == labels[0], GROUPS[0] == GROUPS)
    local = np.stack([trained(i, start, 3) for i in range(CLIENTS)])
    alike = np.ones(CLIENTS)
    close(state.models, means(local, labels, alike))
    close(state.directions, means(local - start, labels, alike))
    assert np.asarray(state.started).all()
    differ(state.models, means(local, labels, KEPT))  # Clients weigh alike.


def test_rounds_against_equations():
    plain = between = begun()
    labels, models = np.asarray(plain.clusters), np.asarray(plain.models)
    mixed = models
    for seed in range(2):
        local = np.stack([trained(i, models[k], 2) for i, k in enumerate(labels)])
        plain, info = PAPER.step(jax.random.key(seed), plain, DATA)
        losses = [by_hand.loss(DATA, i, models[k]) for i, k in enumerate(labels)]
        np.testing.assert_allclose(info.losses, losses, rtol=1e-4)
        models = means(local, labels, KEPT)
        close(plain.models, models)
        # Of all members: not of the first alone, as some released means are.
        firsts = np.stack([local[np.argmax(labels == k)] for k in range(CLUSTERS)])
        differ(plain.models, firsts)
        local = np.stack([trained(i, mixed[k], 2) for i, k in enumerate(labels)])
        between, _ = BETWEEN.step(jax.random.key(seed), between, DATA)
        mixed = means(local, labels, KEPT)
        share = 0.3 / np.linalg.norm(mixed, axis=1)[::-1, None]
        mixed = (mixed + share * mixed[::-1]) / (1 + share)
        close(between.models, mixed)
        np.testing.assert_array_equal(info.assignment, labels)
        cold = MODEL * (not seed)
        np.testing.assert_array_equal(info.received, np.full(CLIENTS, MODEL + cold))
        np.testing.assert_array_equal(info.sent, np.full(CLIENTS, MODEL + cold))
    np.testing.assert_array_equal(plain.clusters, labels)
    answers = PAPER.predict(plain, DATA, DATA.inputs)
    close(answers, np.einsum("csf,cf->cs", DATA.inputs, models[labels]))


def test_no_learning_between_groups_is_no_step():
    traced = jax.jit(
        lambda step: flexcfl(TASK, **SETTINGS, inter_group_step_size=step).step(
            jax.random.key(0), begun(), DATA
        )[0]
    )
    plain, _ = PAPER.step(jax.random.key(0), begun(), DATA)
    np.testing.assert_allclose(traced(0.0).models, plain.models, rtol=1e-6)
    moved, _ = BETWEEN.step(jax.random.key(0), begun(), DATA)
    np.testing.assert_allclose(traced(0.3).models, moved.models, rtol=1e-6)
    differ(moved.models, plain.models, rtol=1e-2, atol=0)


PROXIMAL = dataclasses.replace(UPDATE, proximal=0.1)


@pytest.mark.long
@pytest.mark.parametrize(
    "update", [None, pytest.param(PROXIMAL, marks=pytest.mark.slow)]
)
def test_one_group_is_fedavg(update):
    settings: dict[str, Any] = {
        "step_size": STEP,
        "num_steps": 2 if update is None else 1,
        "participation": 0.6,
        "update": update,
    }
    alone = build(num_clusters=1, num_pretrain_steps=3, **settings)
    other = compiled(fedavg(TASK, **settings))
    state = alone.init(jax.random.key(0), DATA)
    theirs = other.init(jax.random.key(0), DATA)._replace(model=state.models[0])
    assert np.abs(np.asarray(state.models[0] - state.start)).max() > 0.1
    state, info = rounds(alone, state, DATA)
    theirs, expected = rounds(other, theirs, DATA)
    np.testing.assert_allclose(state.models[0], theirs.model, rtol=1e-6)
    np.testing.assert_allclose(info.losses, expected.losses, rtol=1e-5)
    np.testing.assert_array_equal(info.assignment, expected.assignment)


@pytest.mark.long
def test_the_others_take_the_nearest_direction():
    """And pay for their cold start in the first round that they take part in."""
    some = build(**SETTINGS, pretrain_scale=1, participation=0.4)
    first: State = some.init(jax.random.key(3), DATA)
    start, labels = np.asarray(first.start), np.asarray(first.clusters)
    local = np.stack([trained(i, start, 3) for i in range(CLIENTS)])
    is_first = np.asarray(first.started)
    assert is_first.sum() == CLUSTERS == len(set(labels[is_first]))
    directions = means((local - start)[is_first], labels[is_first], np.ones(2))
    close(first.directions, directions)
    np.testing.assert_array_equal(labels, nearest(local - start, directions))
    state, paid = first, np.zeros(CLIENTS, bool)
    for seed in range(2):
        state, info = some.step(jax.random.key(seed), state, DATA)
        there = ~np.isnan(np.asarray(info.losses))
        assert there.sum() == 2
        owing = (there | is_first if not seed else there) & ~paid
        for bytes_ in (info.received, info.sent):
            np.testing.assert_array_equal(bytes_, MODEL * (there * 1 + owing * 1))
        assert (owing & ~is_first).any()
        paid |= owing
        np.testing.assert_array_equal(info.assignment, np.where(there, labels, -1))


def test_newcomers_take_the_nearest_direction():
    state, new = begun(), jax.tree.map(lambda leaf: leaf[::-1], DATA)
    joined = PAPER.join(jax.random.key(1), state, new)
    start = np.asarray(state.start)
    updates = np.stack([trained(i, start, 3) - start for i in range(CLIENTS)])
    expected = nearest(updates, np.asarray(state.directions))
    np.testing.assert_array_equal(joined.clusters, expected[::-1])
    assert len(set(expected)) == 2
    wrong = nearest(updates + start, -np.asarray(state.models))
    assert (joined.clusters != wrong[::-1]).any(), "control: by the models themselves"
    np.testing.assert_array_equal(joined.models, state.models)
    nobody = state._replace(directions=state.directions.at[expected[0]].set(0.0))
    found = PAPER.join(jax.random.key(1), nobody, new).clusters
    np.testing.assert_array_equal(found, np.full(CLIENTS, 1 - expected[0]))


def test_diverged_and_empty_clients_have_no_group():
    inputs = np.asarray(DATA.inputs).copy()
    inputs[3] *= 1e30
    wild = DATA._replace(inputs=jnp.asarray(inputs), mask=DATA.mask.at[1].set(False))
    state = PAPER.init(jax.random.key(0), wild)
    labels = np.asarray(state.clusters)
    np.testing.assert_array_equal(labels[[1, 3]], -1)
    np.testing.assert_array_equal(labels[[0, 2, 4]] == labels[0], [True, True, False])
    after, info = PAPER.step(jax.random.key(0), state, wild)
    assert np.isfinite(after.models).all()
    np.testing.assert_array_equal(info.assignment, labels)
    assert info.sent.tolist()[1] == 0
    joined = PAPER.join(jax.random.key(0), state, wild)
    np.testing.assert_array_equal(joined.clusters, labels)
    lonely = DATA._replace(mask=DATA.mask & (jnp.arange(5) == 0)[:, None])
    state = PAPER.init(jax.random.key(0), lonely)
    empty = 1 - int(state.clusters[0])
    np.testing.assert_array_equal(state.models[empty], state.start)
    np.testing.assert_array_equal(state.directions[empty], 0)


# Against reference: directions of updates, by singular vectors, loops and formulas


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
    others = reference(updates[:, ::-1] ** 3, 3)
    differ(apart(found), apart(others), rtol=1e-7, atol=1e-2)


@pytest.mark.long
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
    wrong = np.abs(cosines[:, None] - cosines[None]).sum(2) / 4  # i and j counted.
    differ(found[off], wrong[off], rtol=1e-7, atol=1e-2)
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
        differ(found[g], total, rtol=1e-2, atol=0)  # A sum that is not divided.
    assert np.isnan(found[3]).all()
    np.testing.assert_array_equal(move(models, 0.0, used), models)


# Against misuse


test_misuse_is_named = misuse(
    functools.partial(flexcfl, TASK, **SETTINGS),
    ({"num_clusters": 0}, "`num_clusters` must be at least 1"),
    ({"num_pretrain_steps": 0}, "`num_pretrain_steps` must be at least 1"),
    ({"pretrain_scale": 0}, "`pretrain_scale` must be at least 1"),
    ({"num_restarts": 0}, "`num_restarts` must be at least 1"),
    (
        {"inter_group_step_size": -0.1},
        "`inter_group_step_size` must not be negative",
    ),
    ({"clustering": "k_means"}, "clustering"),
)
