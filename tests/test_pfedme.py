"""pFedMe: rounds in NumPy, exact envelopes, and answers that are no local models."""

import functools
from typing import Any

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import close, compiled, counting, differ, misuse, rounds

from cfljax.algorithms import pfedme
from cfljax.models import linear

CLIENTS, FEATURES, STEP, OWN_STEP, PENALTY = 5, 4, 0.1, 0.05, 2.0
KEPT = np.array([8, 2, 5, 8, 4])  # Real samples of each client.
DATA = by_hand.draw(KEPT, num_samples=8, num_features=FEATURES, seed=1)
TASK = linear(FEATURES)
MODEL = np.array([1.0, -1.0, 0.5, 0.0], "f4")
PERSONAL = np.random.default_rng(2).normal(size=(CLIENTS, FEATURES)).astype("f4")
SETTINGS: dict[str, Any] = {
    "step_size": STEP,
    "personal_step_size": OWN_STEP,
    "penalty": PENALTY,
    "num_steps": 2,
    "num_personal_steps": 3,
}
gradient = functools.partial(by_hand.gradient, DATA)


@functools.cache
def build(**settings):
    return compiled(pfedme(TASK, **(SETTINGS | settings)))


def begin(algorithm):
    """Personal models that differ from the common one."""
    state = algorithm.init(jax.random.key(0), DATA)
    own = state.own._replace(models=jnp.asarray(PERSONAL))
    return state._replace(model=jnp.asarray(MODEL), own=own)


def work_by_hand(i, model, penalty=PENALTY, steps=2, own_steps=3):
    """A client's local and personal model."""
    local = theta = model
    for _ in range(steps):
        for _ in range(own_steps):
            pull = penalty * (theta - local)
            theta = theta - OWN_STEP * (gradient(i, theta) + pull)
        local = local - STEP * penalty * (local - theta)
    return local, theta


def all_by_hand(model, **how):
    worked = [work_by_hand(i, model, **how) for i in range(CLIENTS)]
    return map(np.stack, zip(*worked, strict=True))


# Against equations


def test_two_rounds_against_equations():
    beta = 1.5
    algorithm = build(server_step_size=beta)
    state, model, personal = begin(algorithm), MODEL, PERSONAL
    for seed in range(2):
        losses = [by_hand.loss(DATA, i, personal[i]) for i in range(CLIENTS)]
        state, info = algorithm.step(jax.random.key(seed), state, DATA)
        local, personal = all_by_hand(model)
        differ(state.model, local.mean(axis=0))
        model = (1 - beta) * model + beta * local.mean(axis=0)
        close(state.model, model)
        close(state.own.models, personal)
        close(info.losses, losses)
    answers = algorithm.predict(state, DATA, DATA.inputs)
    close(answers, np.einsum("csf,cf->cs", DATA.inputs, personal))
    # Public code's personal models are copies of the local ones by then.
    differ(answers, np.einsum("csf,cf->cs", DATA.inputs, local))


@pytest.mark.long
def test_weights_may_be_numbers_of_samples():
    algorithm = build(weights="samples")
    state, _ = algorithm.step(jax.random.key(0), begin(algorithm), DATA)
    local, _ = all_by_hand(MODEL)
    close(state.model, np.average(local, axis=0, weights=KEPT))
    differ(state.model, local.mean(axis=0))


# Against theory


def test_a_long_approach_is_the_gradient_of_the_envelope():
    """Theta in closed form; 300 steps contract by at least `1 - .05 * 2` each."""
    algorithm = build(num_steps=1, num_personal_steps=300)
    state, _ = algorithm.step(jax.random.key(0), begin(algorithm), DATA)
    exact = []
    for i in range(CLIENTS):
        x, y = by_hand.own(DATA, i)
        curve = 2 / len(y) * x.T @ x + PENALTY * np.eye(FEATURES)
        exact.append(np.linalg.solve(curve, 2 / len(y) * x.T @ y + PENALTY * MODEL))
    close(state.own.models, exact, atol=1e-5)
    slope = PENALTY * (MODEL - np.mean(exact, axis=0))
    close(state.model, MODEL - STEP * slope, atol=1e-5)
    # Which is the mean of the losses' gradients at theta, not at w.
    at_theta = np.mean([gradient(i, exact[i]) for i in range(CLIENTS)], axis=0)
    close(slope, at_theta, rtol=1e-4, atol=1e-4)
    differ(slope, np.mean([gradient(i, MODEL) for i in range(CLIENTS)], axis=0), 0.01)


@pytest.mark.long
def test_without_penalty_everybody_trains_alone_and_the_common_model_stays():
    algorithm = build(penalty=0.0)
    state, _ = rounds(algorithm, begin(algorithm), DATA)
    np.testing.assert_array_equal(state.model, MODEL)
    alone = [
        by_hand.trained(DATA, i, MODEL, step_size=OWN_STEP, num_steps=6)
        for i in range(CLIENTS)
    ]
    close(state.own.models, alone)
    differ(rounds(build(), begin(build()), DATA)[0].model, MODEL)


# Against itself


@pytest.mark.long
def test_the_absent_keep_their_models():
    half = build(participation=0.4)
    state, info = half.step(jax.random.key(3), begin(half), DATA)
    absent = np.isnan(np.asarray(info.losses))
    assert absent.sum() == 3
    local, personal = all_by_hand(MODEL)
    close(state.model, local[~absent].mean(axis=0))
    np.testing.assert_array_equal(state.own.models[absent], PERSONAL[absent])
    close(np.asarray(state.own.models)[~absent], personal[~absent])


def test_newcomers_work_for_a_round():
    state = begin(build())
    joined = build().join(jax.random.key(7), state, DATA)
    close(joined.own.models, list(all_by_hand(MODEL))[1])
    np.testing.assert_array_equal(joined.model, MODEL)


def test_statistics_are_measured_by_personal_models():
    """A pass of each personal step moves them; nothing pulls them."""
    algorithm = pfedme(counting(TASK, MODEL), **SETTINGS)
    state = algorithm.init(jax.random.key(0), DATA)
    after, _ = jax.jit(algorithm.step)(jax.random.key(0), state, DATA)
    np.testing.assert_array_equal(
        after.own.models.statistics, np.full((CLIENTS, 2), 6.0)
    )
    np.testing.assert_array_equal(after.model.statistics, np.full(2, 6.0))
    local, personal = all_by_hand(MODEL)
    close(after.own.models.weights, personal)
    close(after.model.weights, local.mean(axis=0))


# Against failures


def test_a_diverged_client_keeps_what_it_had():
    lost = np.arange(CLIENTS) == 1
    inputs = np.where(lost[:, None, None], np.float32(1e25), DATA.inputs)
    wild = DATA._replace(inputs=jnp.asarray(inputs))
    state, info = build().step(jax.random.key(0), begin(build()), wild)
    local, personal = all_by_hand(MODEL)
    close(state.model, local[~lost].mean(axis=0))
    close(state.own.models, np.where(lost[:, None], PERSONAL, personal))
    assert info.sent.tolist() == [0 if one else 16 for one in lost]


# Against misuse


test_misuse_is_named = misuse(
    functools.partial(pfedme, TASK, step_size=STEP, personal_step_size=OWN_STEP),
    ({"num_personal_steps": 0}, "`num_personal_steps` must be at least 1"),
    ({"penalty": -0.1}, "`penalty` must not be negative, got -0.1"),
    ({"personal_step_size": None}, "`personal_step_size` must be a number, got None"),
    ({"server_step_size": -1.0}, "`server_step_size` must not be negative, got -1"),
)
