"""Ditto: rounds in NumPy, its limits, and the released server that never moves."""

import functools
from typing import Any

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import MOMENTUM, UPDATE, close, compiled, counting, differ, misuse, rounds

from cfljax.algorithms import ditto, fedavg, local
from cfljax.federated.local_update import LocalUpdate
from cfljax.models import linear

CLIENTS, FEATURES, STEP, PENALTY = 5, 4, 0.05, 0.7
KEPT = np.array([8, 2, 5, 8, 4])  # Real samples of each client.


DATA = by_hand.draw(KEPT, num_samples=8, num_features=FEATURES, seed=1)
TASK = linear(FEATURES)
MODEL = np.array([1.0, -1.0, 0.5, 0.0], "f4")
PERSONAL = np.random.default_rng(2).normal(size=(CLIENTS, FEATURES)).astype("f4")
SETTINGS: dict[str, Any] = {
    "step_size": STEP,
    "penalty": PENALTY,
    "num_steps": 2,
    "num_personal_steps": 3,
    "personal_step_size": 0.1,
}


def build(**settings):
    return compiled(ditto(TASK, **settings))


PAPER = build(**SETTINGS)
REFERENCE = build(**SETTINGS, variant="reference")
gradient = functools.partial(by_hand.gradient, DATA)


def begin(algorithm):
    """A state with models that differ, so that no two rules agree by chance."""
    state = algorithm.init(jax.random.key(0), DATA)
    return state._replace(model=jnp.asarray(MODEL), personal=jnp.asarray(PERSONAL))


def common_by_hand(model):
    train = functools.partial(by_hand.trained, DATA, step_size=STEP, num_steps=2)
    trained = [train(i, model) for i in range(CLIENTS)]
    return np.average(trained, axis=0, weights=KEPT)


def personal_by_hand(personal, anchor, penalty=PENALTY):
    """Steps towards each client's own data and its anchor, `[clients, features]`."""
    personal, anchor = personal.copy(), np.broadcast_to(anchor, personal.shape)
    for i in range(CLIENTS):
        for _ in range(3):
            pull = penalty * (personal[i] - anchor[i])
            personal[i] = personal[i] - 0.1 * (gradient(i, personal[i]) + pull)
    return personal


# Against equations


def test_two_rounds_against_equations():
    state, model, personal = begin(PAPER), MODEL, PERSONAL
    for seed in range(2):
        losses = [by_hand.loss(DATA, i, personal[i]) for i in range(CLIENTS)]
        state, info = PAPER.step(jax.random.key(seed), state, DATA)
        model, personal = common_by_hand(model), personal_by_hand(personal, model)
        close(state.model, model)
        close(state.personal, personal)
        close(info.losses, losses)
    answers = PAPER.predict(state, DATA, DATA.inputs)
    close(answers, np.einsum("csf,cf->cs", DATA.inputs, personal))


@pytest.mark.parametrize(
    "anchor",
    [common_by_hand(MODEL), PERSONAL, np.zeros(FEATURES, "f4")],
    ids=["after the round", "its own start", "zero"],
)
def test_another_anchor_is_another_algorithm(anchor):
    state, _ = PAPER.step(jax.random.key(0), begin(PAPER), DATA)
    close(state.personal, personal_by_hand(PERSONAL, MODEL))
    differ(state.personal, personal_by_hand(PERSONAL, anchor))


def test_the_released_server_never_moves():
    """And its personal models are pulled to where everything started."""
    paper, _ = rounds(PAPER, begin(PAPER), DATA, 5)
    reference, info = rounds(REFERENCE, begin(REFERENCE), DATA, 5)
    personal = PERSONAL
    for _ in range(5):
        personal = personal_by_hand(personal, MODEL)
    assert np.abs(np.asarray(reference.model) - MODEL).max() == 0.0
    assert np.abs(np.asarray(paper.model) - MODEL).max() > 0.1
    close(reference.personal, personal)
    differ(paper.personal, personal)
    assert np.all(np.asarray(info.sent) == 4 * FEATURES), "it sends all the same"


# Against itself: its limits


def test_the_common_model_is_that_of_fedavg():
    """It is trained at w, not at the personal models, as the released code would."""
    state, info = PAPER.step(jax.random.key(0), begin(PAPER), DATA)
    other = compiled(fedavg(TASK, step_size=STEP, num_steps=2))
    start = other.init(jax.random.key(0), DATA)._replace(model=jnp.asarray(MODEL))
    expected, theirs = other.step(jax.random.key(0), start, DATA)
    np.testing.assert_array_equal(state.model, expected.model)
    np.testing.assert_array_equal(info.common_losses, theirs.losses)
    at_personal = MODEL - STEP * np.average(
        [gradient(i, PERSONAL[i]) for i in range(CLIENTS)], axis=0, weights=KEPT
    )
    differ(state.model, at_personal)


@pytest.mark.long
@pytest.mark.parametrize("update", [None, pytest.param(UPDATE, marks=pytest.mark.slow)])
def test_without_penalty_it_is_local(update):
    settings: dict[str, Any] = {"step_size": STEP, "update": update}
    independent: dict[str, Any] = settings | {"start": "independent"}
    runs = [
        rounds(algorithm, algorithm.init(jax.random.key(4), DATA), DATA)
        for algorithm in (
            compiled(local(TASK, **settings)),
            build(penalty=0.0, **independent),
            build(penalty=0.1, **independent),
        )
    ]
    (alone, theirs), (free, info), (pulled, _) = runs
    np.testing.assert_allclose(free.personal, alone.models, rtol=1e-6)
    np.testing.assert_allclose(info.losses, theirs.losses, rtol=1e-5)
    differ(pulled.personal, alone.models, rtol=1e-3, atol=0)


# Against equations: what the pull does and does not reach


@pytest.mark.parametrize("variant", ["paper", "reference"])
def test_momentum_and_the_pull(variant):
    """The paper's objective has the pull in its gradient; the released code adds it
    after momentum, where it is `1 - momentum` times as strong."""
    settings: dict[str, Any] = SETTINGS | {
        "variant": variant,
        "personal_update": LocalUpdate(optimizer=MOMENTUM),
    }
    algorithm = build(**settings)
    state, _ = algorithm.step(jax.random.key(0), begin(algorithm), DATA)
    expected = {}
    for inside in (True, False):
        theta, trace = PERSONAL.copy(), np.zeros_like(PERSONAL)
        for _ in range(3):
            slopes = np.stack([gradient(i, theta[i]) for i in range(CLIENTS)])
            pull = PENALTY * (theta - MODEL)
            trace = 0.9 * trace + slopes + inside * pull
            theta = theta - 0.1 * (trace + (not inside) * pull)
        expected[inside] = theta
    close(state.personal, expected[variant == "paper"])
    differ(state.personal, expected[variant != "paper"])


@pytest.mark.long
def test_a_strong_pull_is_the_common_model():
    """With `penalty = 1 / step` a step lands on w, but for the client's gradient."""
    algorithm = build(
        step_size=STEP, penalty=1e3, personal_step_size=1e-3, start="independent"
    )
    state, _ = algorithm.step(jax.random.key(0), begin(algorithm), DATA)
    expected = MODEL - 1e-3 * np.stack(
        [gradient(i, PERSONAL[i]) for i in range(CLIENTS)]
    )
    np.testing.assert_allclose(state.personal, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.long
def test_the_absent_keep_their_models():
    half = build(participation=0.4, **SETTINGS)
    state, info = half.step(jax.random.key(3), begin(half), DATA)
    absent = np.isnan(np.asarray(info.losses))
    assert absent.sum() == 3
    np.testing.assert_array_equal(absent, np.isnan(np.asarray(info.common_losses)))
    np.testing.assert_array_equal(np.asarray(state.personal)[absent], PERSONAL[absent])
    expected = personal_by_hand(PERSONAL, MODEL)[~absent]
    close(np.asarray(state.personal)[~absent], expected)


def test_statistics_are_not_pulled():
    """Only weights are: statistics are measured, not trained."""
    algorithm = ditto(counting(TASK, MODEL), **SETTINGS)
    state = algorithm.init(jax.random.key(0), DATA)
    after, _ = jax.jit(algorithm.step)(jax.random.key(0), state, DATA)
    np.testing.assert_array_equal(after.personal.statistics, np.full((CLIENTS, 2), 3.0))
    start = np.broadcast_to(MODEL, PERSONAL.shape)
    close(after.personal.weights, personal_by_hand(start, MODEL))


# Against misuse


test_misuse_is_named = misuse(
    functools.partial(ditto, TASK, step_size=STEP),
    ({"num_personal_steps": 0}, "`num_personal_steps` must be at least 1"),
    ({"penalty": -0.1}, "`penalty` must not be negative, got -0.1"),
    ({"personal_update": LocalUpdate(proximal=0.1)}, "`personal_update` must have"),
    ({"variant": "code"}, "variant"),
    ({"start": "random"}, "start"),
)
