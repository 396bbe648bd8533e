"""HypCluster: rounds by hand in NumPy, its starts, and what other copies get wrong."""

import functools
from typing import Any

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from by_hand import compiled, misuse, padded

from cfljax.algorithms import hyp_cluster, ifca
from cfljax.algorithms.hyp_cluster import State
from cfljax.base.types import NO_CLUSTER, ClientData, Task
from cfljax.losses import cross_entropy
from cfljax.models import linear

CLIENTS, CLUSTERS, SAMPLES, FEATURES, STEP = 6, 3, 8, 4, 0.05
KEPT = np.array([8, 2, 5, 8, 4, 3])  # Real samples of each client.
OWNERS = np.array([0, 1, 2, 0, 1, 2])
MOMENTUM, SERVER_STEP, STEPS = 0.9, 0.5, 2
SETTINGS: dict[str, Any] = {"num_clusters": CLUSTERS, "step_size": STEP}


INPUTS = np.random.default_rng(2).normal(size=(CLIENTS, SAMPLES, FEATURES)).astype("f4")
TRUTH = 2 * np.eye(FEATURES, dtype="f4")[OWNERS]
DATA = padded(INPUTS, np.einsum("csf,cf->cs", INPUTS, TRUTH), KEPT)
START = (2 * np.eye(FEATURES)[:CLUSTERS] + 0.3).astype("f4")


def build(**settings):
    return compiled(hyp_cluster(linear(FEATURES), **(SETTINGS | settings)))


PLAIN = build(
    num_steps=STEPS,
    server_step_size=SERVER_STEP,
    server_optimizer=lambda step: optax.sgd(step, momentum=MOMENTUM),
)


def begin(algorithm, models, data=DATA):
    """A state with these models, and the optimiser's first states."""
    state = algorithm.init(jax.random.key(0), data)
    return state._replace(models=jnp.asarray(models))


def losses_by_hand(data, models):
    of = functools.partial(by_hand.loss, data)
    return np.array([[of(i, theta) for theta in models] for i in range(CLIENTS)])


trained = functools.partial(by_hand.trained, step_size=STEP, num_steps=STEPS)
close = functools.partial(by_hand.close, atol=1e-6)
differ = functools.partial(by_hand.differ, atol=1e-6)


def round_by_hand(data, models, trace):
    """A server step with momentum along the mean move, weighted by samples."""
    losses = losses_by_hand(data, models)
    present = ~np.isnan(losses).all(axis=1)
    chosen = np.where(present, np.nan_to_num(losses, nan=9e9).argmin(axis=1), -1)
    models, trace = models.copy(), trace.copy()
    for k in range(CLUSTERS):
        members = np.flatnonzero(chosen == k)
        if not len(members):
            continue
        moved = [trained(data, i, models[k]) for i in members]
        counts = np.asarray(data.mask).sum(axis=1)[members]
        gradient = models[k] - np.average(moved, axis=0, weights=counts)
        trace[k] = gradient + MOMENTUM * trace[k]
        models[k] = models[k] - SERVER_STEP * trace[k]
    return models, trace, chosen, losses


# Against equations


def test_two_rounds_against_equations():
    state, models, trace = begin(PLAIN, START), START, np.zeros_like(START)
    for seed in range(2):
        state, info = PLAIN.step(jax.random.key(seed), state, DATA)
        models, trace, chosen, losses = round_by_hand(DATA, models, trace)
        np.testing.assert_array_equal(info.assignment, chosen)
        close(info.losses, losses)
        close(state.models, models)
    assert set(chosen.tolist()) == {0, 1, 2}


@pytest.mark.long
def test_a_mean_by_clients_is_told_from_one_by_samples():
    """Control: the round by hand weighs by samples, and sees that this one does not."""
    other = build(weights="clients", num_steps=STEPS)
    by_clients, _ = other.step(jax.random.key(0), begin(other, START), DATA)
    samples = build(num_steps=STEPS)
    by_samples, _ = samples.step(jax.random.key(0), begin(samples, START), DATA)
    for k, members in enumerate([(0, 3), (1, 4), (2, 5)]):
        moved = [trained(DATA, i, START[k]) for i in members]
        share = KEPT[list(members)]
        close(by_clients.models[k], np.mean(moved, axis=0))
        close(by_samples.models[k], np.average(moved, axis=0, weights=share))
    differ(by_clients.models, by_samples.models)


# Against itself


@pytest.mark.long
@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_a_plain_server_step_against_itself_is_ifca(participation):
    shared: dict[str, Any] = {"num_steps": STEPS, "participation": participation}
    left = build(**shared)
    other: dict[str, Any] = {"option": "model", "weights": "samples"} | SETTINGS
    right = compiled(ifca(linear(FEATURES), **other, **shared))
    key = jax.random.key(3)
    a, b = left.init(key, DATA), right.init(key, DATA)
    np.testing.assert_array_equal(a.models, b.models)
    for seed in range(2):
        a, mine = left.step(jax.random.key(seed), a, DATA)
        b, theirs = right.step(jax.random.key(seed), b, DATA)
        close(a.models, b.models)
        jax.tree.map(np.testing.assert_array_equal, mine[2:], theirs[2:])
        np.testing.assert_array_equal(mine.assignment, theirs.assignment)
    half = build(server_step_size=0.5, **shared)
    moved, _ = half.step(jax.random.key(0), half.init(key, DATA), DATA)
    full, _ = left.step(jax.random.key(0), left.init(key, DATA), DATA)
    differ(moved.models, full.models)  # Half a step is another model.


def test_an_empty_cluster_keeps_model_and_optimiser():
    """Neither zero nor its start: what it had learned stays, and its momentum."""
    first, _ = PLAIN.step(jax.random.key(0), begin(PLAIN, START), DATA)
    absent = DATA._replace(mask=DATA.mask & (OWNERS != 1)[:, None])
    state, info = PLAIN.step(jax.random.key(1), first, absent)
    assert np.all(np.asarray(info.assignment)[OWNERS == 1] == NO_CLUSTER)
    kept = lambda leaf: np.asarray(leaf)[1]
    jax.tree.map(
        lambda a, b: np.testing.assert_array_equal(kept(a), kept(b)),
        (state.models, state.server),
        (first.models, first.server),
    )
    assert np.abs(kept(first.models) - START[1]).max() > 0.01
    assert np.abs(kept(first.server[0].trace)).max() > 0
    assert np.abs(np.asarray(state.models - first.models)[0]).max() > 1e-4
    for wrong in (np.zeros(FEATURES), START[1]):  # Control: what other copies make.
        differ(kept(state.models), wrong)


def test_models_share_no_memory():
    """A copy that trains one object in place leaves all clusters with one model."""
    state, info = PLAIN.step(jax.random.key(0), begin(PLAIN, START), DATA)
    models, *_ = round_by_hand(DATA, START, np.zeros_like(START))
    alias = START[0].copy()
    for k in range(CLUSTERS):  # Members train, one cluster after the other.
        for i in np.flatnonzero(np.asarray(info.assignment) == k):
            alias = trained(DATA, i, alias)
    close(state.models, models)
    differ(state.models, np.broadcast_to(alias, START.shape))


@pytest.mark.long
def test_identical_centres_would_train_the_first_alone():
    for start in ("independent", "farthest"):
        models = np.asarray(build(start=start).init(jax.random.key(0), DATA).models)
        apart = np.abs(models[:, None] - models[None]).max(axis=2)
        assert np.all(apart[~np.eye(CLUSTERS, dtype=bool)] > 0)
    copies = np.broadcast_to(START[:1], START.shape)
    _, info = PLAIN.step(jax.random.key(0), begin(PLAIN, copies), DATA)
    assert set(np.asarray(info.assignment).tolist()) == {0}


# Against equations: starts


def farthest_by_hand(local, first, *, repeats=False):
    chosen, least = [first], np.full(CLIENTS, np.inf)
    for _ in range(CLUSTERS - 1):
        least = np.minimum(least, losses_by_hand(DATA, local[chosen[-1:]])[:, 0])
        score = least.copy()
        if not repeats:
            score[chosen] = -np.inf
        chosen.append(int(score.argmax()))
    return chosen


@pytest.mark.long
def test_farthest_start_against_equations():
    algorithm = build(start="farthest", num_start_rounds=2)
    seen, repeated = set(), 0
    for seed in range(8):
        state = algorithm.init(jax.random.key(seed), DATA)
        models, (received, sent) = np.asarray(state.models), state.start_bytes
        start_key = jax.random.fold_in(jax.random.key(seed), CLUSTERS)
        theta = np.asarray(linear(FEATURES).init(jax.random.split(start_key, 3)[0]))
        local = np.stack([trained(DATA, i, theta) for i in range(CLIENTS)])
        givers = [int(np.abs(local - m).max(axis=1).argmin()) for m in models]
        close(models, local[givers])
        assert givers == farthest_by_hand(local, givers[0])
        assert len(set(givers)) == CLUSTERS
        seen.add(givers[0])
        repeated += farthest_by_hand(local, givers[0], repeats=True) != givers
        model, loss = 4 * FEATURES, 4
        np.testing.assert_array_equal(received, np.full(CLIENTS, CLUSTERS * model))
        gives = np.isin(np.arange(CLIENTS), givers)
        np.testing.assert_array_equal(sent, (CLUSTERS - 1) * loss + model * gives)
    assert len(seen) > 2, "the first centre is drawn"
    assert repeated > 0, "control: the released rule takes a client twice"
    after, info = algorithm.step(jax.random.key(0), state, DATA)
    np.testing.assert_array_equal(info.received, 2 * received)
    assert np.all(np.asarray(after.start_bytes) == 0)


def test_clients_without_samples_give_no_centre():
    few = DATA._replace(mask=DATA.mask & (np.arange(CLIENTS) < 2)[:, None])
    algorithm = build(start="farthest")
    state = algorithm.init(jax.random.key(0), few)
    received, sent = np.asarray(state.start_bytes)
    assert np.all(received[2:] == 0) and np.all(sent[2:] == 0)
    # Two clients give two centres; the third stays as it was drawn.
    assert np.sum(sent >= 4 * FEATURES) == 2
    drawn = build().init(jax.random.key(0), few).models
    np.testing.assert_array_equal(state.models[2], drawn[2])


@pytest.mark.long
def test_the_choice_is_made_on_training_data():
    """Published copies of IFCA choose by accuracy on the test set."""
    predict = lambda kernel, inputs: inputs @ kernel
    task = Task(
        init=lambda key: jnp.zeros((2, 2)),
        losses=lambda kernel, x, y: cross_entropy(predict(kernel, x), y),
        predict=predict,
    )
    algorithm = hyp_cluster(task, num_clusters=2, step_size=0.1)
    inputs = np.random.default_rng(0).normal(size=(1, 6, 2)).astype("f4")
    labels = (inputs[:, :, 0] > 0).astype("i4")
    mask = jnp.ones((1, 6), bool)
    data = ClientData(jnp.asarray(inputs), jnp.asarray(labels), mask)
    kernel = np.array([[-5, 5], [0, 0]], "f4")
    models = np.stack([-kernel, kernel])
    answers = algorithm.predict(State(jnp.asarray(models), ()), data, data.inputs)
    predicted = np.asarray(answers).argmax(axis=2)
    np.testing.assert_array_equal(predicted, labels)
    tested = 1 - labels  # Control: a test set that asks for the opposite.
    by_test = [np.mean((inputs[0] @ m).argmax(axis=1) == tested[0]) for m in models]
    assert np.argmax(by_test) == 0
    differ((inputs[0] @ models[np.argmax(by_test)])[None], answers)


# Against misuse


test_misuse_is_named = misuse(
    lambda **changes: build(**changes).init(jax.random.key(0), DATA),
    ({"num_clusters": 0}, "`num_clusters` must be at least 1"),
    ({"num_start_rounds": 0}, "`num_start_rounds` must be at least 1"),
    ({"num_clusters": 7, "start": "farthest"}, "`num_clusters` must be at most 6, the"),
    ({"start": "nearest"}, "start"),
)
