"""Ditto: rounds by hand in NumPy, its limits, and the server that never moves."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import optax
import pytest

from cfljax.algorithms import ditto, fedavg, local
from cfljax.base.types import ClientData, Task, Variables
from cfljax.federated.local_update import LocalUpdate
from cfljax.models import linear

CLIENTS, SAMPLES, FEATURES, STEP, PENALTY = 5, 8, 4, 0.05, 0.7
KEPT = np.array([8, 2, 5, 8, 4])  # Real samples of each client.


def draw():
    generator = np.random.default_rng(1)
    inputs = generator.normal(size=(CLIENTS, SAMPLES, FEATURES)).astype("f4")
    truth = generator.normal(size=(CLIENTS, FEATURES)).astype("f4")
    targets = np.einsum("csf,cf->cs", inputs, truth)
    mask = np.arange(SAMPLES)[None] < KEPT[:, None]
    return ClientData(jnp.asarray(inputs), jnp.asarray(targets), jnp.asarray(mask))


DATA = draw()
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


def compiled(constructor=ditto, **settings):
    algorithm = constructor(TASK, **settings)
    return algorithm._replace(
        init=jax.jit(algorithm.init), step=jax.jit(algorithm.step)
    )


PAPER = compiled(**SETTINGS)
REFERENCE = compiled(**SETTINGS, variant="reference")


def begin(algorithm):
    """A state with models that differ, so that no two rules agree by chance."""
    state = algorithm.init(jax.random.key(0), DATA)
    return state._replace(model=jnp.asarray(MODEL), personal=jnp.asarray(PERSONAL))


def gradient(i, theta):
    keep = np.asarray(DATA.mask[i])
    x, y = np.asarray(DATA.inputs[i])[keep], np.asarray(DATA.targets[i])[keep]
    return 2 / len(y) * x.T @ (x @ theta - y)


def common_by_hand(model):
    trained = []
    for i in range(CLIENTS):
        theta = model
        for _ in range(2):
            theta = theta - STEP * gradient(i, theta)
        trained.append(theta)
    return np.average(trained, axis=0, weights=KEPT)


def personal_by_hand(personal, anchor, penalty=PENALTY):
    """Steps towards each client's own data and its anchor, `[clients, features]`."""
    personal, anchor = personal.copy(), np.broadcast_to(anchor, personal.shape)
    for i in range(CLIENTS):
        for _ in range(3):
            pull = penalty * (personal[i] - anchor[i])
            personal[i] = personal[i] - 0.1 * (gradient(i, personal[i]) + pull)
    return personal


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)


def test_two_rounds_against_equations():
    state, model, personal = begin(PAPER), MODEL, PERSONAL
    for seed in range(2):
        losses = [
            np.mean(
                (np.asarray(DATA.inputs[i, :n]) @ personal[i] - DATA.targets[i, :n])
                ** 2
            )
            for i, n in enumerate(KEPT)
        ]
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
    with pytest.raises(AssertionError):
        close(state.personal, personal_by_hand(PERSONAL, anchor))


def test_the_released_server_never_moves():
    """And its personal models are pulled to where everything started."""
    paper, reference = begin(PAPER), begin(REFERENCE)
    personal = PERSONAL
    for seed in range(5):
        paper, _ = PAPER.step(jax.random.key(seed), paper, DATA)
        reference, info = REFERENCE.step(jax.random.key(seed), reference, DATA)
        personal = personal_by_hand(personal, MODEL)
    assert np.abs(np.asarray(reference.model) - MODEL).max() == 0.0
    assert np.abs(np.asarray(paper.model) - MODEL).max() > 0.1
    close(reference.personal, personal)
    with pytest.raises(AssertionError):
        close(paper.personal, personal)
    assert np.all(np.asarray(info.sent) == 4 * FEATURES), "it sends all the same"


def test_the_common_model_is_that_of_fedavg():
    """It is trained at w, not at the personal models, as the released code would."""
    state, info = PAPER.step(jax.random.key(0), begin(PAPER), DATA)
    other = compiled(fedavg, step_size=STEP, num_steps=2)
    start = other.init(jax.random.key(0), DATA)._replace(model=jnp.asarray(MODEL))
    expected, theirs = other.step(jax.random.key(0), start, DATA)
    np.testing.assert_array_equal(state.model, expected.model)
    np.testing.assert_array_equal(info.common_losses, theirs.losses)
    at_personal = MODEL - STEP * np.average(
        [gradient(i, PERSONAL[i]) for i in range(CLIENTS)], axis=0, weights=KEPT
    )
    with pytest.raises(AssertionError):
        close(state.model, at_personal)


UPDATE = LocalUpdate(
    batch_size=3,
    num_epochs=2,
    decay=0.9,
    optimizer=functools.partial(optax.sgd, momentum=0.9),
    keep_optimizer=True,
)


@pytest.mark.parametrize("update", [None, pytest.param(UPDATE, marks=pytest.mark.slow)])
def test_without_penalty_it_is_local(update):
    settings: dict[str, Any] = {"step_size": STEP, "update": update}
    alone = compiled(local, **settings)
    free = compiled(penalty=0.0, start="independent", **settings)
    pulled = compiled(penalty=0.1, start="independent", **settings)
    key = jax.random.key(4)
    states = [a.init(key, DATA) for a in (alone, free, pulled)]
    for seed in range(2):
        key = jax.random.key(seed)
        pairs = zip((alone, free, pulled), states, strict=True)
        states, infos = zip(*(a.step(key, s, DATA) for a, s in pairs), strict=True)
    np.testing.assert_allclose(states[1].personal, states[0].models, rtol=1e-6)
    np.testing.assert_allclose(infos[1].losses, infos[0].losses, rtol=1e-5)
    with pytest.raises(AssertionError):  # Control.
        np.testing.assert_allclose(states[2].personal, states[0].models, rtol=1e-3)


@pytest.mark.parametrize("variant", ["paper", "reference"])
def test_momentum_and_the_pull(variant):
    """The paper's objective has the pull in its gradient; the released code adds it
    after momentum, where it is `1 - momentum` times as strong."""
    settings: dict[str, Any] = SETTINGS | {
        "variant": variant,
        "personal_update": LocalUpdate(
            optimizer=functools.partial(optax.sgd, momentum=0.9)
        ),
    }
    algorithm = compiled(**settings)
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
    with pytest.raises(AssertionError):  # Control.
        close(state.personal, expected[variant != "paper"])


def test_a_strong_pull_is_the_common_model():
    """With `penalty = 1 / step` a step lands on w, but for the client's gradient."""
    algorithm = compiled(
        step_size=STEP, penalty=1e3, personal_step_size=1e-3, start="independent"
    )
    state, _ = algorithm.step(jax.random.key(0), begin(algorithm), DATA)
    expected = MODEL - 1e-3 * np.stack(
        [gradient(i, PERSONAL[i]) for i in range(CLIENTS)]
    )
    np.testing.assert_allclose(state.personal, expected, rtol=1e-4, atol=1e-5)


def test_the_absent_keep_their_models():
    half = compiled(participation=0.4, **SETTINGS)
    state, info = half.step(jax.random.key(3), begin(half), DATA)
    absent = np.isnan(np.asarray(info.losses))
    assert absent.sum() == 3
    np.testing.assert_array_equal(absent, np.isnan(np.asarray(info.common_losses)))
    np.testing.assert_array_equal(np.asarray(state.personal)[absent], PERSONAL[absent])
    expected = personal_by_hand(PERSONAL, MODEL)[~absent]
    close(np.asarray(state.personal)[~absent], expected)


def test_statistics_are_not_pulled():
    """Only weights are: statistics are measured, not trained."""

    def fit(key, params, inputs, targets, mask):
        losses = TASK.losses(params.weights, inputs, targets)
        return losses, params._replace(statistics=params.statistics + 1)

    task = Task(
        init=lambda key: Variables(jnp.asarray(MODEL), jnp.zeros(2)),
        losses=lambda params, x, y: TASK.losses(params.weights, x, y),
        predict=lambda params, x: TASK.predict(params.weights, x),
        fit=fit,
    )
    algorithm = ditto(task, **SETTINGS)
    state = algorithm.init(jax.random.key(0), DATA)
    after, _ = jax.jit(algorithm.step)(jax.random.key(0), state, DATA)
    np.testing.assert_array_equal(after.personal.statistics, np.full((CLIENTS, 2), 3.0))
    start = np.broadcast_to(MODEL, PERSONAL.shape)
    close(after.personal.weights, personal_by_hand(start, MODEL))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_personal_steps": 0}, "`num_personal_steps` must be at least 1"),
        ({"penalty": -0.1}, "`penalty` must not be negative, got -0.1"),
        ({"personal_update": LocalUpdate(proximal=0.1)}, "`personal_update` must have"),
        ({"variant": "code"}, "variant"),
        ({"start": "random"}, "start"),
    ],
)
def test_misuse_is_named(settings, message):
    with pytest.raises((ValueError, jaxtyping.TypeCheckError), match=message):
        ditto(TASK, step_size=STEP, **settings)
