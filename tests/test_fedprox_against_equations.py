"""FedProx: rounds by hand in NumPy, its fixed point, and FedAvg as its limit."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import optax
import pytest

from cfljax.algorithms import fedavg, fedprox
from cfljax.algorithms.fedavg import State as Plain
from cfljax.algorithms.fedprox import State
from cfljax.base.types import ClientData
from cfljax.federated.local_update import LocalUpdate
from cfljax.models import linear

CLIENTS, SAMPLES, FEATURES, STEP, PROXIMAL = 5, 6, 3, 0.05, 0.7
KEPT = np.array([6, 2, 5, 6, 3])  # Real samples of each client.


def draw():
    generator = np.random.default_rng(1)
    inputs = generator.normal(size=(CLIENTS, SAMPLES, FEATURES)).astype("f4")
    truth = generator.normal(size=(CLIENTS, FEATURES)).astype("f4")
    targets = np.einsum("csf,cf->cs", inputs, truth)
    mask = np.arange(SAMPLES)[None] < KEPT[:, None]
    return ClientData(jnp.asarray(inputs), jnp.asarray(targets), jnp.asarray(mask))


DATA = draw()
TASK = linear(FEATURES)
MODEL = np.array([1.0, -1.0, 0.5], "f4")


def compiled(constructor=fedprox, **settings):
    algorithm = constructor(TASK, **({"step_size": STEP} | settings))
    return algorithm._replace(
        init=jax.jit(algorithm.init), step=jax.jit(algorithm.step)
    )


def begin(model=MODEL):
    return State(jnp.asarray(model, "f4"))


def normal_equations(i):
    """Hessian and linear term of a client's loss."""
    x, y = (np.asarray(leaf[i, : KEPT[i]], "f8") for leaf in DATA[:2])
    return 2 / len(y) * x.T @ x, 2 / len(y) * x.T @ y


def by_hand(model, anchor=None, proximal=PROXIMAL, num_steps=3):
    """Clients' steps from one model, each held to its anchor, and their mean."""
    anchor = model if anchor is None else anchor
    trained = []
    for i in range(CLIENTS):
        hessian, linear_term = normal_equations(i)
        theta = model
        for _ in range(num_steps):
            slope = hessian @ theta - linear_term
            theta = theta - STEP * (slope + proximal * (theta - anchor))
        trained.append(theta)
    return np.average(trained, axis=0, weights=KEPT)


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)


def test_two_rounds_against_equations():
    algorithm = compiled(proximal=PROXIMAL, num_steps=3)
    state, model = begin(), MODEL
    for seed in range(2):
        losses = [
            np.mean((np.asarray(DATA.inputs[i, :n]) @ model - DATA.targets[i, :n]) ** 2)
            for i, n in enumerate(KEPT)
        ]
        state, info = algorithm.step(jax.random.key(seed), state, DATA)
        before, model = model, by_hand(model)
        close(state.model, model)
        close(info.losses, losses)
    for wrong in (
        by_hand(before, anchor=MODEL),  # The first round's model, not this one's.
        by_hand(before, anchor=np.zeros(FEATURES)),
        by_hand(before, proximal=PROXIMAL / 2),  # The square without its half is 2 mu.
        by_hand(before, proximal=2 * PROXIMAL),
    ):
        with pytest.raises(AssertionError):
            close(state.model, wrong)


def test_one_step_of_it_is_fedavg():
    """The proximal gradient is 0 where a round starts."""
    held, free = compiled(proximal=PROXIMAL), compiled(fedavg)
    found, _ = held.step(jax.random.key(0), begin(), DATA)
    expected, _ = free.step(jax.random.key(0), Plain(jnp.asarray(MODEL)), DATA)
    np.testing.assert_array_equal(found.model, expected.model)


def test_exact_minimisers_and_their_fixed_point():
    """Clients that minimise `F_i + mu / 2 |w - w_t|^2` are at rest at the w with

    sum_i p_i (w_i(w) - w) = 0, w_i(w) = (H_i + mu)^-1 (b_i + mu w),

    which is no minimiser of the mean loss.
    """
    maps, terms, hessians, linear_terms = [], [], [], []
    for i in range(CLIENTS):
        hessian, linear_term = normal_equations(i)
        inverse = np.linalg.inv(hessian + PROXIMAL * np.eye(FEATURES))
        maps.append(PROXIMAL * inverse)
        terms.append(inverse @ linear_term)
        hessians.append(hessian)
        linear_terms.append(linear_term)
    mean = functools.partial(np.average, axis=0, weights=KEPT)
    rest = np.linalg.solve(np.eye(FEATURES) - mean(maps), mean(terms))
    pooled = np.linalg.solve(mean(hessians), mean(linear_terms))
    algorithm = compiled(proximal=PROXIMAL, num_steps=600)
    moved, _ = algorithm.step(jax.random.key(0), begin(), DATA)
    close(moved.model, mean(maps) @ MODEL + mean(terms))
    stays, _ = algorithm.step(jax.random.key(0), begin(rest), DATA)
    close(stays.model, rest)
    leaves, _ = algorithm.step(jax.random.key(0), begin(pooled), DATA)
    assert np.abs(np.asarray(leaves.model) - pooled).max() > 0.01


UPDATE = LocalUpdate(
    batch_size=2,
    num_epochs=2,
    decay=0.9,
    optimizer=functools.partial(optax.sgd, momentum=0.9),
    keep_optimizer=True,
)


def test_without_the_term_it_is_fedavg_bit_for_bit():
    settings: dict[str, Any] = {"update": UPDATE, "participation": 0.6}
    trio = (
        compiled(fedavg, **settings),
        compiled(proximal=0.0, **settings),
        compiled(proximal=0.1, **settings),
    )
    plain = trio[0].init(jax.random.key(0), DATA)
    states = [plain, State(*plain), State(*plain)]
    for seed in range(2):
        pairs = zip(trio, states, strict=True)
        done = [a.step(jax.random.key(seed), state, DATA) for a, state in pairs]
        states, infos = zip(*done, strict=True)
    same = lambda a, b: jax.tree.map(np.testing.assert_array_equal, a, b)
    same(tuple(states[1]), tuple(states[0]))
    same(tuple(infos[1]), tuple(infos[0]))
    with pytest.raises(AssertionError):  # Control.
        np.testing.assert_allclose(states[2].model, states[0].model, rtol=1e-3)


def test_newcomers_are_answered_by_the_model():
    algorithm = compiled(proximal=PROXIMAL, num_steps=3)
    state, new = begin(), jax.tree.map(lambda leaf: leaf[:2], DATA)
    joined = algorithm.join(jax.random.key(0), state, new)
    answers = algorithm.predict(joined, new, new.inputs)
    close(answers, np.asarray(new.inputs) @ MODEL)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"proximal": -0.1}, "`proximal` must not be negative, got -0.1"),
        ({"proximal": float("nan")}, "`proximal` must not be negative, got nan"),
        ({"update": LocalUpdate(proximal=0.2)}, "`update` must have no other proximal"),
        ({"num_steps": 0}, "`num_steps` must be at least 1"),
        ({"weights": "equal"}, "weights"),
    ],
)
def test_misuse_is_named(settings, message):
    with pytest.raises((ValueError, jaxtyping.TypeCheckError), match=message):
        fedprox(TASK, **({"step_size": STEP, "proximal": 0.1} | settings))
