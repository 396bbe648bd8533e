"""FeSEM: rounds by hand in NumPy, its limits, and means that are one client's model."""

import dataclasses
import functools
from typing import Any

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import UPDATE, close, compiled, differ, misuse, padded, rounds

from cfljax.algorithms import fedavg, fesem
from cfljax.algorithms.fesem import (
    State,
    leaves_of,
    middle_of,
    move_to_one,
    squares_to_centres,
)
from cfljax.federated.average import centres_of
from cfljax.models import linear, mlp

CLIENTS, SAMPLES, FEATURES, STEP, CLUSTERS = 5, 8, 3, 0.05, 2
KEPT = np.array([8, 2, 5, 8, 4])  # Real samples of each client.
TASK = linear(FEATURES)


def linear_data(inputs, truth):
    return padded(inputs, np.einsum("csf,cf->cs", inputs, truth), KEPT)


INPUTS = np.random.default_rng(1).normal(size=(CLIENTS, SAMPLES, FEATURES))
RANDOM = np.random.default_rng(21)  # Of which labels change and clusters are two.
DATA = linear_data(INPUTS, RANDOM.normal(size=(CLIENTS, FEATURES)))
CENTRES = (RANDOM.normal(size=(CLUSTERS, FEATURES)) / 2).astype("f4")
LOCAL = RANDOM.normal(size=(CLIENTS, FEATURES)).astype("f4")
GROUPS = np.array([0, 1, 0, 1, 1])
AXES = np.eye(FEATURES)[np.arange(SAMPLES) % FEATURES] * np.sqrt(FEATURES)
PARTED = linear_data(
    np.broadcast_to(AXES, INPUTS.shape),
    np.where(GROUPS == 0, 3.0, -3.0)[:, None] * np.ones((1, FEATURES)),
)
LABELS = np.array([0, 1, 1, 0, 1])
SETTINGS: dict[str, Any] = {"num_clusters": CLUSTERS, "step_size": STEP, "num_steps": 2}


def build(**settings):
    return compiled(fesem(TASK, **(SETTINGS | settings)))


PAPER = build()
REFERENCE = build(variant="reference", start="independent")
STATE = State(jnp.asarray(CENTRES), jnp.asarray(LABELS), jnp.asarray(LOCAL))


def trained(i, theta, data=DATA):
    return by_hand.trained(data, i, theta, step_size=STEP, num_steps=2)


def nearest(local, centres):
    return np.argmin(((local[:, None] - centres[None]) ** 2).sum(2), axis=1)


def mean(local, labels, centres, weights=KEPT):
    """The M-step; a centre without members stays."""
    new = centres.copy()
    for k in set(labels):
        new[k] = np.average(local[labels == k], axis=0, weights=weights[labels == k])
    return new


# Against equations


def test_two_rounds_against_equations():
    state, centres, labels = STATE, CENTRES, LABELS
    for seed in range(2):
        local = np.stack([trained(i, centres[k]) for i, k in enumerate(labels)])
        state, info = PAPER.step(jax.random.key(seed), state, DATA)
        before, old = labels, centres
        labels = nearest(local, old)
        centres = mean(local, labels, old)
        close(state.local, local)
        close(state.models, centres)
        np.testing.assert_array_equal(state.clusters, labels)
        np.testing.assert_array_equal(info.assignment, labels)
        losses = [by_hand.loss(DATA, i, old[k]) for i, k in enumerate(before)]
        np.testing.assert_allclose(info.losses, losses, rtol=1e-4)
        # Controls: clients that weigh alike, and means by the labels before training.
        differ(state.models, mean(local, labels, old, np.ones(CLIENTS)))
        if not seed:
            differ(state.models, mean(local, before, old))
    np.testing.assert_array_equal(info.received, np.full(CLIENTS, 4 * FEATURES))
    np.testing.assert_array_equal(info.sent, np.full(CLIENTS, 4 * FEATURES))
    answers = PAPER.predict(state, DATA, DATA.inputs)
    close(answers, np.einsum("csf,cf->cs", DATA.inputs, centres[labels]))


@pytest.mark.long
def test_the_absent_keep_their_models_and_get_labels_anew():
    half = build(participation=0.4)
    state, info = half.step(jax.random.key(3), STATE, DATA)
    there = ~np.isnan(np.asarray(info.losses))
    assert there.sum() == 2
    rows = [trained(i, CENTRES[LABELS[i]]) if there[i] else LOCAL[i] for i in range(5)]
    local = np.stack(rows)
    close(state.local, local)
    labels = nearest(local, CENTRES)
    np.testing.assert_array_equal(state.clusters, labels)
    assert (labels != LABELS)[~there].any()
    close(state.models, mean(local[there], labels[there], CENTRES, KEPT[there]))
    np.testing.assert_array_equal(info.assignment[~there], -1)
    assert np.asarray(info.received)[~there].sum() == 0


@pytest.mark.long
def test_one_start_is_parted_by_k_means_and_independent_centres_are_not():
    """From one start everybody may be nearest to one centre, for ever."""
    state = PAPER.init(jax.random.key(0), PARTED)
    assert (np.asarray(state.clusters) == -1).all()
    np.testing.assert_array_equal(state.models[0], state.models[1])
    origin = np.asarray(state.models)[0]
    state, info = PAPER.step(jax.random.key(1), state, PARTED)
    local = np.stack([trained(i, origin, PARTED) for i in range(CLIENTS)])
    close(state.local, local)
    labels = np.asarray(info.assignment)
    np.testing.assert_array_equal(labels == labels[0], GROUPS[0] == GROUPS)
    close(state.models, mean(local, labels, np.stack([origin] * 2)))
    away = ((np.asarray(state.models) - origin) ** 2).sum(1)
    assert away[0] < away[1], "numbered by distance from the start"
    lost = REFERENCE.init(jax.random.key(0), PARTED)
    assert len(set(np.asarray(lost.clusters).tolist())) == 1


# Against itself


@pytest.mark.parametrize(
    "participation", [1.0, pytest.param(0.6, marks=pytest.mark.slow)]
)
def test_one_cluster_is_fedavg(participation):
    update = None
    if participation < 1:
        update = dataclasses.replace(UPDATE, num_epochs=None)
    settings: dict[str, Any] = {"participation": participation, "update": update}
    alone = build(num_clusters=1, **settings)
    other = compiled(fedavg(TASK, step_size=STEP, num_steps=2, **settings))
    run = lambda a: rounds(a, a.init(jax.random.key(0), DATA), DATA, 3)
    (state, info), (theirs, expected) = run(alone), run(other)
    np.testing.assert_allclose(state.models[0], theirs.model, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(info.losses, expected.losses, rtol=1e-4)
    np.testing.assert_array_equal(info.assignment, expected.assignment)
    both, _ = run(PAPER)
    differ(both.models[0], theirs.model, rtol=1e-2, atol=0)  # Two clusters are not.


# Against equations: the released code, and faulty clients


def test_the_released_mean_is_the_first_member_s_model():
    """A list of weights with one entry pairs with one update: 1, 10 and 100 give 1,
    short of the guard of the divisor, where their mean is 37."""
    models, zero = jnp.array([[1.0], [10.0], [100.0], [np.nan]]), jnp.zeros((2, 1))
    members = jnp.array([0, 0, 0, -1])

    @jax.jit
    def both(order):
        means = centres_of(models, jnp.ones(4), members, empty=zero)
        return move_to_one(models, order, members, centres=zero, guard=1e-5), means

    first, means = both(jnp.arange(4))
    np.testing.assert_allclose(first, [[3 / (3 + 1e-5)], [0.0]], rtol=1e-7)
    assert 0.99999 < float(first[0, 0]) < 1
    np.testing.assert_allclose(means, [[37.0], [0.0]], rtol=1e-6)
    last, _ = both(jnp.array([3, 2, 1, 0]))
    np.testing.assert_allclose(last[0], 100.0, rtol=1e-5)


def test_the_released_rounds_against_equations():
    """E-step before training, then one member's model in place of their mean."""
    state, _ = REFERENCE.step(jax.random.key(0), STATE, DATA)
    labels = nearest(LOCAL, CENTRES)
    local = np.stack([trained(i, CENTRES[k]) for i, k in enumerate(labels)])
    close(state.local, local)
    np.testing.assert_array_equal(state.clusters, labels)
    for k in range(CLUSTERS):
        members = np.flatnonzero(labels == k)
        assert len(members) > 1
        far = np.abs(np.asarray(state.models)[k] - local[members]).max(1)
        assert (far < 1e-4).sum() == 1, "one member's, not the mean"
    begun = REFERENCE.init(jax.random.key(0), PARTED)
    after, info = REFERENCE.step(jax.random.key(1), begun, PARTED)
    (group,) = set(np.asarray(info.assignment).tolist())
    np.testing.assert_array_equal(after.models[1 - group], begun.models[1 - group])


def test_diverged_clients_and_empty_centres():
    """Whoever diverges counts for nothing, and comes back from the mean of centres."""
    far = STATE._replace(
        models=STATE.models.at[1].set(50.0), clusters=jnp.zeros(CLIENTS, jnp.int32)
    )
    plain, _ = PAPER.step(jax.random.key(0), far, DATA)
    np.testing.assert_array_equal(plain.models[1], far.models[1])
    inputs = np.asarray(DATA.inputs).copy()
    inputs[3] *= 1e30
    wild = DATA._replace(inputs=jnp.asarray(inputs))
    state, info = PAPER.step(jax.random.key(0), far, wild)
    assert info.assignment.tolist() == [0, 0, 0, -1, 0]
    assert info.sent.tolist()[3] == 0
    others = np.arange(CLIENTS) != 3
    close(
        state.models[0], np.average(plain.local[others], axis=0, weights=KEPT[others])
    )
    close(state.local[3], LOCAL[3])
    back, _ = PAPER.step(jax.random.key(1), state, DATA)
    close(back.local[3], trained(3, np.asarray(state.models).mean(0)))
    empty = DATA._replace(mask=DATA.mask.at[2].set(False))
    _, info = PAPER.step(jax.random.key(0), STATE, empty)
    assert info.assignment.tolist()[2] == -1


def test_newcomers_train_the_mean_of_centres():
    joined = jax.jit(fesem(TASK, **SETTINGS).join)(jax.random.key(0), STATE, PARTED)
    local = np.stack([trained(i, CENTRES.mean(0), PARTED) for i in range(CLIENTS)])
    close(joined.local, local)
    np.testing.assert_array_equal(joined.clusters, nearest(local, CENTRES))
    assert len(set(joined.clusters.tolist())) == 2
    np.testing.assert_array_equal(joined.models, CENTRES)
    same = jnp.full((3, 2), 0.1)
    np.testing.assert_array_equal(middle_of(same), same[0], "bit for bit")


@pytest.mark.long
def test_the_last_layer_alone_may_decide():
    task = mlp((2,), hidden=(3,), num_classes=2)
    shapes = {(2, 3, 2), (2, 2)}  # Of the last layers of two models.

    @jax.jit
    def found(key):
        """Nearest centres of models with one centre's head and the other's body."""
        centres = jax.vmap(task.init)(jax.random.split(key))
        take = lambda leaf: leaf if leaf.shape in shapes else 2 * leaf[::-1]
        mixed = jax.tree.map(take, centres)
        nearest = lambda leaves: jnp.argmin(
            squares_to_centres(leaves(mixed), leaves(centres)), axis=1
        )
        last, every = (leaves_of(task, which) for which in ("head", "all"))
        assert {leaf.shape for leaf in last(centres)} == shapes
        return nearest(last), nearest(every)

    last, every = found(jax.random.key(0))
    assert (last.tolist(), every.tolist()) == ([0, 1], [1, 0])


# Against misuse


test_misuse_is_named = misuse(
    functools.partial(fesem, TASK, **SETTINGS),
    ({"num_clusters": 0}, "`num_clusters` must be at least 1"),
    ({"num_restarts": 0}, "`num_restarts` must be at least 1"),
    ({"compared": "head"}, "`task` must have `layers`"),
    ({"compared": "first"}, "compared"),
    ({"variant": "code"}, "variant"),
    ({"variant": "reference"}, "`variant='reference'` needs"),
    ({"start": "identical"}, "start"),
)
