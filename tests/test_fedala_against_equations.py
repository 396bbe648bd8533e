"""FedALA: rounds by hand in NumPy, weights of each client's own, and its limits."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import optax
import pytest

from cfljax.algorithms import fedala, fedavg, local
from cfljax.algorithms.fedala import Own, State
from cfljax.base.tree import repeat
from cfljax.base.types import NO_CLUSTER, ClientData
from cfljax.federated.local_update import LocalUpdate
from cfljax.federated.sharing import paths
from cfljax.models import linear, mlp

CLIENTS, SAMPLES, FEATURES, STEP, ETA = 5, 6, 3, 0.1, 0.1
KEPT = np.array([6, 2, 5, 6, 3])  # Real samples of each client.
FIRST, TOLERANCE = 16, 0.1


def draw():
    generator = np.random.default_rng(6)
    inputs = generator.normal(size=(CLIENTS, SAMPLES, FEATURES)).astype("f4")
    truth = 2 * generator.normal(size=(CLIENTS, FEATURES)).astype("f4")
    targets = np.einsum("csf,cf->cs", inputs, truth)
    mask = np.arange(SAMPLES)[None] < KEPT[:, None]
    return ClientData(jnp.asarray(inputs), jnp.asarray(targets), jnp.asarray(mask))


DATA = draw()
TASK = linear(FEATURES)
MODEL = np.array([1.0, -1.0, 0.5], "f4")
MODELS = np.broadcast_to(MODEL, (CLIENTS, FEATURES))
SETTINGS: dict[str, Any] = {
    "step_size": STEP,
    "weight_step_size": ETA,
    "num_steps": 2,
    "sample_share": 1.0,
    "tolerance": TOLERANCE,
    "num_initial_epochs": FIRST,
}


def compiled(constructor, **settings):
    algorithm = constructor(TASK, **settings)
    return algorithm._replace(
        init=jax.jit(algorithm.init), step=jax.jit(algorithm.step)
    )


PAPER = fedala(TASK, **SETTINGS)
NEVER: dict[str, Any] = {"weight_step_size": 0.0}


@jax.jit
def traced_step(key, state, data, weight_step_size):
    changed = SETTINGS | {"weight_step_size": weight_step_size}
    return fedala(TASK, **changed).step(key, state, data)


def step(key, state, data, weight_step_size=ETA):
    """A round; the rate of learning is traced, so that all share one program."""
    return traced_step(key, state, data, weight_step_size)


def begin(models=MODELS, weights=1.0, model=MODEL):
    """A state before the first round, without an optimiser's moments."""
    given = jnp.full((CLIENTS, FEATURES), weights, jnp.float32)
    own = Own(jnp.asarray(models), given, jnp.ones(CLIENTS, bool), ())
    return State(jnp.asarray(model), own, jnp.zeros((), jnp.int32))


def loss_and_gradient(i, theta):
    x, y = (np.asarray(leaf[i, : KEPT[i]]) for leaf in DATA[:2])
    error = x @ theta - y
    return np.mean(error**2), 2 / len(y) * x.T @ error


def learned(i, weights, own, received, is_new, clips=True):
    """Weights after learning, and its epochs."""
    if np.array_equal(own, received):
        return weights, 0
    losses = []
    while True:
        theta = own + (received - own) * weights
        value, slope = loss_and_gradient(i, theta)
        weights = weights - ETA * slope * (received - own)
        if clips:
            weights = np.clip(weights, 0, 1)
        losses.append(value)
        settled = len(losses) > 10 and np.std(losses[-10:]) < TOLERANCE
        if not is_new or settled or len(losses) == FIRST:
            return weights, len(losses)


def by_hand(models, weights, received, is_new, one_for_all=False, **how):
    """A round: models, weights, epochs, losses before training, and the mean."""
    weights, trained, epochs, losses = weights.copy(), models.copy(), [], []
    for i in range(CLIENTS):
        before = weights[i - 1] if one_for_all and i else weights[i]
        weights[i], count = learned(i, before, models[i], received, is_new, **how)
        theta = models[i] + (received - models[i]) * weights[i]
        losses.append(loss_and_gradient(i, theta)[0])
        for _ in range(2):
            theta = theta - STEP * loss_and_gradient(i, theta)[1]
        trained[i] = theta
        epochs.append(count)
    mean = np.average(trained, axis=0, weights=KEPT)
    return trained, weights, epochs, losses, mean


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_three_rounds_against_equations():
    """Nothing is learned in the first, until losses settle in the second, and for an
    epoch in the third."""
    state, models, model = begin(), MODELS, MODEL
    weights = np.ones((CLIENTS, FEATURES), "f4")
    for round_index in range(3):
        before = models, weights, model, round_index < 2
        state, info = step(jax.random.key(round_index), state, DATA)
        models, weights, epochs, losses, model = by_hand(*before)
        close(state.own.models, models)
        close(state.own.weights, weights)
        close(state.model, model)
        close(info.losses, losses)
        np.testing.assert_array_equal(info.epochs, epochs)
        np.testing.assert_array_equal(state.own.is_new, round_index == 0)
        if round_index == 1:  # Some settle early, some late, some never.
            assert len(set(epochs)) > 3
            assert {11, FIRST} <= set(epochs)
            assert weights.min() == 0 < np.mean(weights) < weights.max() == 1
            for wrong in ({"one_for_all": True}, {"clips": False}):
                with pytest.raises(AssertionError):
                    close(state.own.weights, by_hand(*before, **wrong)[1])
    after = PAPER, fedala(TASK, **SETTINGS, answer="merged")
    expected = models, models + (model - models) * weights
    for algorithm, own in zip(after, expected, strict=True):
        answers = jax.jit(algorithm.predict)(state, DATA, DATA.inputs)
        close(answers, np.einsum("csf,cf->cs", DATA.inputs, own))


UPDATE = LocalUpdate(
    batch_size=3,
    num_epochs=2,
    decay=0.9,
    optimizer=functools.partial(optax.sgd, momentum=0.9),
    keep_optimizer=True,
)


@pytest.mark.parametrize("update", [None, pytest.param(UPDATE, marks=pytest.mark.slow)])
def test_with_weights_of_one_it_is_fedavg_bit_for_bit(update):
    settings: dict[str, Any] = {"step_size": STEP, "update": update}
    settings |= {} if update else {"num_steps": 2}
    plain = compiled(fedavg, **settings)
    start = plain.init(jax.random.key(0), DATA)
    if update is None:
        state = begin(models=repeat(start.model, CLIENTS), model=start.model)
        frozen = functools.partial(step, **NEVER)
    else:
        learner = compiled(fedala, **settings, **NEVER)
        state, frozen = learner.init(jax.random.key(0), DATA), learner.step
    for seed in range(2):
        start, theirs = plain.step(jax.random.key(seed), start, DATA)
        state, info = frozen(jax.random.key(seed), state, DATA)
    np.testing.assert_array_equal(state.model, start.model)
    np.testing.assert_array_equal(info.sent, theirs.sent)
    np.testing.assert_allclose(info.losses, theirs.losses, rtol=1e-6)
    assert np.all(np.asarray(info.epochs) >= 11), "control: it did try to learn"


def test_with_weights_of_zero_it_is_local():
    alone = compiled(local, step_size=STEP, num_steps=2)
    theirs = alone.init(jax.random.key(0), DATA)._replace(models=jnp.asarray(MODELS))
    states = [begin(weights=0.0), begin(weights=0.5)]
    for seed in range(2):
        key = jax.random.key(seed)
        theirs, _ = alone.step(key, theirs, DATA)
        states = [step(key, state, DATA, **NEVER)[0] for state in states]
    np.testing.assert_allclose(states[0].own.models, theirs.models, rtol=1e-6)
    with pytest.raises(AssertionError):  # Control.
        np.testing.assert_allclose(states[1].own.models, theirs.models, rtol=1e-2)


def test_the_last_layer_is_merged_unless_told_otherwise():
    task = mlp((FEATURES,), hidden=(4,), num_classes=2)
    assert task.layers is not None
    key = jax.random.key(0)
    state = jax.eval_shape(fedala(task, step_size=STEP).init, key, DATA)
    names = paths(state.own.weights)
    assert names == [n for n in paths(state.model) if task.layers.is_head(n)]
    assert 0 < len(names) < len(paths(state.model))


def test_a_diverged_client_spoils_nobody_and_comes_back():
    """Its loss overflows. The others do as if it had no samples."""
    state, _ = step(jax.random.key(0), begin(), DATA)
    hopeless = DATA._replace(targets=DATA.targets.at[3].set(1e30))
    without = DATA._replace(mask=DATA.mask.at[3].set(False))
    spoiled, info = step(jax.random.key(1), state, hopeless)
    expected, _ = step(jax.random.key(1), state, without)
    assert info.assignment.tolist() == [0, 0, 0, NO_CLUSTER, 0]
    assert not np.isfinite(info.losses[3])
    assert info.sent[3] == 0 < info.sent[0]
    jax.tree.map(np.testing.assert_array_equal, tuple(spoiled), tuple(expected))
    back, info = step(jax.random.key(2), spoiled, DATA)
    assert info.assignment[3] == 0
    assert np.isfinite(back.own.models).all()


@pytest.mark.slow
def test_the_absent_keep_all_that_is_theirs():
    half = compiled(fedala, participation=0.4, **SETTINGS)
    before, _ = step(jax.random.key(0), begin(), DATA)
    state, info = half.step(jax.random.key(3), before, DATA)
    absent = np.isnan(np.asarray(info.losses))
    assert absent.sum() == 3
    np.testing.assert_array_equal(state.own.is_new, absent)
    rows = lambda own: jax.tree.map(lambda leaf: np.asarray(leaf)[absent], own)
    jax.tree.map(np.testing.assert_array_equal, rows(state.own), rows(before.own))
    moved = np.asarray(state.own.models) != np.asarray(before.own.models)
    assert moved.any(axis=1).tolist() == (~absent).tolist()


def test_newcomers_train_the_global_model_once():
    state = begin(models=np.zeros((CLIENTS, FEATURES), "f4"))
    new = jax.tree.map(lambda leaf: leaf[:2], DATA)
    joined = jax.jit(PAPER.join)(jax.random.key(0), state, new)
    expected, weights, *_ = by_hand(MODELS, np.ones_like(MODELS), MODEL, True)
    close(joined.own.models, expected[:2])
    np.testing.assert_array_equal(joined.own.weights, weights[:2])
    np.testing.assert_array_equal(joined.own.is_new, [True, True])
    np.testing.assert_array_equal(joined.model, MODEL)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"adaptive": lambda name: False}, "`adaptive` must be true of a leaf"),
        ({"weight_step_size": -1.0}, "`weight_step_size` must not be negative"),
        ({"sample_share": 0.0}, r"`sample_share` must be in \(0, 1\], got 0.0"),
        ({"sample_share": 1.5}, r"`sample_share` must be in \(0, 1\], got 1.5"),
        ({"tolerance": -0.1}, "`tolerance` must not be negative"),
        ({"num_initial_epochs": 0}, "`num_initial_epochs` must be at least 1"),
        ({"num_weight_epochs": 0}, "`num_weight_epochs` must be at least 1"),
        ({"answer": "received"}, "answer"),
    ],
)
def test_misuse_is_named(settings, message):
    with pytest.raises((ValueError, jaxtyping.TypeCheckError), match=message):
        fedala(TASK, step_size=STEP, **settings)
