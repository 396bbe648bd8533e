"""FlexCFL: cold starts and rounds by hand in NumPy, and its limits."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import optax
import pytest

from cfljax.algorithms import fedavg, flexcfl
from cfljax.algorithms.flexcfl import State
from cfljax.base.types import ClientData
from cfljax.federated.local_update import LocalUpdate
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
    targets = np.einsum("csf,cf->cs", inputs, truth).astype("f4")
    mask = np.arange(SAMPLES)[None] < KEPT[:, None]
    inputs = jnp.asarray(inputs.astype("f4"))
    return ClientData(inputs, jnp.asarray(targets), jnp.asarray(mask))


DATA = draw()
SETTINGS: dict[str, Any] = {
    "num_clusters": CLUSTERS,
    "step_size": STEP,
    "num_steps": 2,
    "num_pretrain_steps": 3,
}


def compiled(constructor=flexcfl, **settings):
    algorithm = constructor(TASK, **settings)
    return algorithm._replace(
        init=jax.jit(algorithm.init),
        step=jax.jit(algorithm.step),
        join=jax.jit(algorithm.join),
    )


PAPER = compiled(**SETTINGS)
BETWEEN = compiled(**SETTINGS, inter_group_step_size=0.3)


def trained(i, theta, steps, data=DATA):
    x = np.asarray(data.inputs[i])[: KEPT[i]]
    y = np.asarray(data.targets[i])[: KEPT[i]]
    for _ in range(steps):
        theta = theta - STEP * 2 / len(y) * x.T @ (x @ theta - y)
    return theta


def means(rows, labels, weights):
    return np.stack(
        [
            np.average(rows[labels == k], axis=0, weights=weights[labels == k])
            for k in range(CLUSTERS)
        ]
    )


def nearest(updates, directions):
    norms = np.linalg.norm(updates, axis=1)[:, None] * np.linalg.norm(
        directions, axis=1
    )
    return np.argmin((1 - updates @ directions.T / norms) / 2, axis=1)


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)


@functools.cache
def begun():
    return PAPER.init(jax.random.key(0), DATA)


@pytest.mark.parametrize(
    "clustering",
    ["decomposed_cosine", pytest.param("pairwise", marks=pytest.mark.slow)],
)
def test_the_group_cold_start_against_equations(clustering):
    state = begun()
    if clustering == "pairwise":
        other = compiled(**SETTINGS, clustering=clustering)
        state = other.init(jax.random.key(0), DATA)
    start, labels = np.asarray(state.start), np.asarray(state.clusters)
    np.testing.assert_array_equal(labels == labels[0], GROUPS[0] == GROUPS)
    local = np.stack([trained(i, start, 3) for i in range(CLIENTS)])
    alike = np.ones(CLIENTS)
    close(state.models, means(local, labels, alike))
    close(state.directions, means(local - start, labels, alike))
    assert np.asarray(state.started).all()
    with pytest.raises(AssertionError):  # Control: clients weigh alike.
        close(state.models, means(local, labels, KEPT))


def test_rounds_against_equations():
    plain = between = begun()
    labels, models = np.asarray(plain.clusters), np.asarray(plain.models)
    mixed = models
    for seed in range(2):
        local = np.stack([trained(i, models[k], 2) for i, k in enumerate(labels)])
        plain, info = PAPER.step(jax.random.key(seed), plain, DATA)
        errors = np.einsum("csf,cf->cs", DATA.inputs, models[labels]) - DATA.targets
        losses = np.where(DATA.mask, errors**2, 0).sum(1) / KEPT
        np.testing.assert_allclose(info.losses, losses, rtol=1e-4)
        models = means(local, labels, KEPT)
        close(plain.models, models)
        # Of all members: not of the first alone, as some released means are.
        firsts = np.stack([local[np.argmax(labels == k)] for k in range(CLUSTERS)])
        with pytest.raises(AssertionError):
            close(plain.models, firsts)
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
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(moved.models, plain.models, rtol=1e-2)


UPDATE = LocalUpdate(
    batch_size=3,
    num_epochs=2,
    decay=0.9,
    proximal=0.1,
    optimizer=functools.partial(optax.sgd, momentum=0.9),
    keep_optimizer=True,
)


@pytest.mark.parametrize("update", [None, pytest.param(UPDATE, marks=pytest.mark.slow)])
def test_one_group_is_fedavg(update):
    settings: dict[str, Any] = {
        "step_size": STEP,
        "num_steps": 2 if update is None else 1,
        "participation": 0.6,
        "update": update,
    }
    alone = compiled(num_clusters=1, num_pretrain_steps=3, **settings)
    other = compiled(fedavg, **settings)
    state = alone.init(jax.random.key(0), DATA)
    theirs = other.init(jax.random.key(0), DATA)._replace(model=state.models[0])
    assert np.abs(np.asarray(state.models[0] - state.start)).max() > 0.1
    for seed in range(2):
        key = jax.random.key(seed)
        state, info = alone.step(key, state, DATA)
        theirs, expected = other.step(key, theirs, DATA)
    np.testing.assert_allclose(state.models[0], theirs.model, rtol=1e-6)
    np.testing.assert_allclose(info.losses, expected.losses, rtol=1e-5)
    np.testing.assert_array_equal(info.assignment, expected.assignment)


def test_the_others_take_the_nearest_direction():
    """And pay for their cold start in the first round that they take part in."""
    some = compiled(**SETTINGS, pretrain_scale=1, participation=0.4)
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
    with pytest.raises(AssertionError):  # Control: by the models themselves.
        wrong = nearest(updates + start, -np.asarray(state.models))
        np.testing.assert_array_equal(joined.clusters, wrong[::-1])
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
    np.testing.assert_array_equal(
        PAPER.join(jax.random.key(0), state, wild).clusters, labels
    )
    lonely = DATA._replace(mask=DATA.mask & (jnp.arange(5) == 0)[:, None])
    state = PAPER.init(jax.random.key(0), lonely)
    empty = 1 - int(state.clusters[0])
    np.testing.assert_array_equal(state.models[empty], state.start)
    np.testing.assert_array_equal(state.directions[empty], 0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_clusters": 0}, "`num_clusters` must be at least 1"),
        ({"num_pretrain_steps": 0}, "`num_pretrain_steps` must be at least 1"),
        ({"pretrain_scale": 0}, "`pretrain_scale` must be at least 1"),
        ({"num_restarts": 0}, "`num_restarts` must be at least 1"),
        (
            {"inter_group_step_size": -0.1},
            "`inter_group_step_size` must not be negative",
        ),
        ({"clustering": "k_means"}, "clustering"),
    ],
)
def test_misuse_is_named(settings, message):
    with pytest.raises((ValueError, jaxtyping.TypeCheckError), match=message):
        flexcfl(TASK, **(SETTINGS | settings))
