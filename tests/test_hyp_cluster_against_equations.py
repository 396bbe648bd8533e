"""HypCluster: two rounds by hand in NumPy, its starts, and what other copies get wrong
in the same place.
"""

from typing import Any

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import optax
import pytest

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


def draw(seed=2):
    generator = np.random.default_rng(seed)
    inputs = generator.normal(size=(CLIENTS, SAMPLES, FEATURES)).astype("f4")
    truth = 2 * np.eye(FEATURES, dtype="f4")[OWNERS]
    targets = np.einsum("csf,cf->cs", inputs, truth)
    mask = np.arange(SAMPLES)[None] < KEPT[:, None]
    return ClientData(jnp.asarray(inputs), jnp.asarray(targets), jnp.asarray(mask))


DATA = draw()
START = (2 * np.eye(FEATURES)[:CLUSTERS] + 0.3).astype("f4")


def compiled(**settings):
    algorithm = hyp_cluster(linear(FEATURES), **(SETTINGS | settings))
    return algorithm._replace(
        init=jax.jit(algorithm.init), step=jax.jit(algorithm.step)
    )


PLAIN = compiled(
    num_steps=STEPS,
    server_step_size=SERVER_STEP,
    server_optimizer=lambda step: optax.sgd(step, momentum=MOMENTUM),
)


def begin(algorithm, models, data=DATA):
    """A state with these models, and the optimiser's first states."""
    state = algorithm.init(jax.random.key(0), data)
    return state._replace(models=jnp.asarray(models))


def own(data, i):
    keep = np.asarray(data.mask[i])
    return np.asarray(data.inputs[i])[keep], np.asarray(data.targets[i])[keep]


def losses_by_hand(data, models):
    losses = np.full((CLIENTS, len(models)), np.nan)
    for i in np.flatnonzero(np.asarray(data.mask).any(axis=1)):
        x, y = own(data, i)
        losses[i] = [np.mean((x @ theta - y) ** 2) for theta in models]
    return losses


def trained_by_hand(data, i, theta, steps=STEPS):
    x, y = own(data, i)
    for _ in range(steps):
        theta = theta - STEP * 2 / len(y) * x.T @ (x @ theta - y)
    return theta


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
        trained = [trained_by_hand(data, i, models[k]) for i in members]
        counts = np.asarray(data.mask).sum(axis=1)[members]
        gradient = models[k] - np.average(trained, axis=0, weights=counts)
        trace[k] = gradient + MOMENTUM * trace[k]
        models[k] = models[k] - SERVER_STEP * trace[k]
    return models, trace, chosen, losses


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)


def test_two_rounds_against_equations():
    state, models, trace = begin(PLAIN, START), START, np.zeros_like(START)
    for seed in range(2):
        state, info = PLAIN.step(jax.random.key(seed), state, DATA)
        models, trace, chosen, losses = round_by_hand(DATA, models, trace)
        np.testing.assert_array_equal(info.assignment, chosen)
        close(info.losses, losses)
        close(state.models, models)
    assert set(chosen.tolist()) == {0, 1, 2}


def test_a_mean_by_clients_is_told_from_one_by_samples():
    """Control: the round by hand weighs by samples, and sees that this one does not."""
    other = compiled(weights="clients", num_steps=STEPS)
    by_clients, _ = other.step(jax.random.key(0), begin(other, START), DATA)
    samples = compiled(num_steps=STEPS)
    by_samples, _ = samples.step(jax.random.key(0), begin(samples, START), DATA)
    for k, members in enumerate([(0, 3), (1, 4), (2, 5)]):
        trained = [trained_by_hand(DATA, i, START[k]) for i in members]
        share = KEPT[list(members)]
        close(by_clients.models[k], np.mean(trained, axis=0))
        close(by_samples.models[k], np.average(trained, axis=0, weights=share))
    with pytest.raises(AssertionError):
        close(by_clients.models, by_samples.models)


@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_a_plain_server_step_against_itself_is_ifca(participation):
    shared: dict[str, Any] = {"num_steps": STEPS, "participation": participation}
    left = compiled(**shared)
    other = ifca(
        linear(FEATURES),
        option="model",
        weights="samples",
        **SETTINGS,
        **shared,
    )
    key = jax.random.key(3)
    a, b = left.init(key, DATA), jax.jit(other.init)(key, DATA)
    np.testing.assert_array_equal(a.models, b.models)
    step = jax.jit(other.step)
    for seed in range(2):
        a, mine = left.step(jax.random.key(seed), a, DATA)
        b, theirs = step(jax.random.key(seed), b, DATA)
        close(a.models, b.models)
        jax.tree.map(np.testing.assert_array_equal, mine[2:], theirs[2:])
        np.testing.assert_array_equal(mine.assignment, theirs.assignment)
    half = compiled(server_step_size=0.5, **shared)
    moved, _ = half.step(jax.random.key(0), half.init(key, DATA), DATA)
    full, _ = left.step(jax.random.key(0), left.init(key, DATA), DATA)
    with pytest.raises(AssertionError):  # Control: half a step is another model.
        close(moved.models, full.models)


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
        with pytest.raises(AssertionError):
            close(kept(state.models), wrong)


def test_models_share_no_memory():
    """A copy that trains one object in place leaves all clusters with one model."""
    state, info = PLAIN.step(jax.random.key(0), begin(PLAIN, START), DATA)
    models, *_ = round_by_hand(DATA, START, np.zeros_like(START))
    alias = START[0].copy()
    for k in range(CLUSTERS):  # Members train, one cluster after the other.
        for i in np.flatnonzero(np.asarray(info.assignment) == k):
            alias = trained_by_hand(DATA, i, alias)
    close(state.models, models)
    with pytest.raises(AssertionError):
        close(state.models, np.broadcast_to(alias, START.shape))


def test_identical_centres_would_train_the_first_alone():
    for start in ("independent", "farthest"):
        models = np.asarray(compiled(start=start).init(jax.random.key(0), DATA).models)
        apart = np.abs(models[:, None] - models[None]).max(axis=2)
        assert np.all(apart[~np.eye(CLUSTERS, dtype=bool)] > 0)
    copies = np.broadcast_to(START[:1], START.shape)
    _, info = PLAIN.step(jax.random.key(0), begin(PLAIN, copies), DATA)
    assert set(np.asarray(info.assignment).tolist()) == {0}


def farthest_by_hand(trained, first, *, repeats=False):
    chosen, least = [first], np.full(CLIENTS, np.inf)
    for _ in range(CLUSTERS - 1):
        least = np.minimum(least, losses_by_hand(DATA, trained[chosen[-1:]])[:, 0])
        score = least.copy()
        if not repeats:
            score[chosen] = -np.inf
        chosen.append(int(score.argmax()))
    return chosen


def test_farthest_start_against_equations():
    algorithm = compiled(start="farthest", num_start_rounds=2)
    seen, repeated = set(), 0
    for seed in range(8):
        state = algorithm.init(jax.random.key(seed), DATA)
        models, (received, sent) = np.asarray(state.models), state.start_bytes
        first_key = jax.random.split(
            jax.random.fold_in(jax.random.key(seed), CLUSTERS), 3
        )[0]
        theta = np.asarray(linear(FEATURES).init(first_key))
        trained = np.stack(
            [trained_by_hand(DATA, i, theta, steps=2) for i in range(CLIENTS)]
        )
        givers = [int(np.abs(trained - m).max(axis=1).argmin()) for m in models]
        close(models, trained[givers])
        assert givers == farthest_by_hand(trained, givers[0])
        assert len(set(givers)) == CLUSTERS
        seen.add(givers[0])
        repeated += farthest_by_hand(trained, givers[0], repeats=True) != givers
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
    algorithm = compiled(start="farthest")
    state = algorithm.init(jax.random.key(0), few)
    received, sent = np.asarray(state.start_bytes)
    assert np.all(received[2:] == 0) and np.all(sent[2:] == 0)
    # Two clients give two centres; the third stays as it was drawn.
    assert np.sum(sent >= 4 * FEATURES) == 2
    drawn = compiled().init(jax.random.key(0), few).models
    np.testing.assert_array_equal(state.models[2], drawn[2])


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
    with pytest.raises(AssertionError):
        close((inputs[0] @ models[np.argmax(by_test)])[None], answers)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_clusters": 0}, "`num_clusters` must be at least 1"),
        ({"num_start_rounds": 0}, "`num_start_rounds` must be at least 1"),
        ({"num_clusters": 7, "start": "farthest"}, "`num_clusters` must not exceed"),
        ({"start": "nearest"}, "start"),
    ],
)
def test_misuse_is_named(settings, message):
    with pytest.raises((ValueError, jaxtyping.TypeCheckError), match=message):
        compiled(**settings).init(jax.random.key(0), DATA)
