"""FedProx: rounds by hand in NumPy, its fixed point, and FedAvg as its limit."""

import functools
from typing import Any

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import UPDATE, close, compiled, differ, misuse, rounds

from cfljax.algorithms import fedavg, fedprox
from cfljax.algorithms.fedavg import State as Plain
from cfljax.algorithms.fedprox import State
from cfljax.federated.local_update import LocalUpdate
from cfljax.models import linear

CLIENTS, FEATURES, STEP, PROXIMAL = 5, 3, 0.05, 0.7
KEPT = np.array([6, 2, 5, 6, 3])  # Real samples of each client.


DATA = by_hand.draw(KEPT, num_samples=6, num_features=FEATURES, seed=1)
TASK = linear(FEATURES)
MODEL = np.array([1.0, -1.0, 0.5], "f4")


def build(constructor=fedprox, **settings):
    return compiled(constructor(TASK, **({"step_size": STEP} | settings)))


PAPER = build(proximal=PROXIMAL, num_steps=3)


def begin(model=MODEL):
    return State(jnp.asarray(model, "f4"))


def round_by_hand(model, anchor=None, proximal=PROXIMAL, num_steps=3):
    """Clients' steps from one model, each held to its anchor, and their mean."""
    anchor = model if anchor is None else anchor
    trained = []
    for i in range(CLIENTS):
        theta = model
        for _ in range(num_steps):
            slope = by_hand.gradient(DATA, i, theta) + proximal * (theta - anchor)
            theta = theta - STEP * slope
        trained.append(theta)
    return np.average(trained, axis=0, weights=KEPT)


# Against equations


def test_two_rounds_against_equations():
    state, model = begin(), MODEL
    for seed in range(2):
        losses = [by_hand.loss(DATA, i, model) for i in range(CLIENTS)]
        state, info = PAPER.step(jax.random.key(seed), state, DATA)
        before, model = model, round_by_hand(model)
        close(state.model, model)
        close(info.losses, losses)
    for wrong in (
        round_by_hand(before, anchor=MODEL),  # The first round's model, not this one's.
        round_by_hand(before, anchor=np.zeros(FEATURES)),
        # The square without its half is 2 mu.
        round_by_hand(before, proximal=PROXIMAL / 2),
        round_by_hand(before, proximal=2 * PROXIMAL),
    ):
        differ(state.model, wrong)


@pytest.mark.long
def test_one_step_of_it_is_fedavg():
    """The proximal gradient is 0 where a round starts."""
    held, free = build(proximal=PROXIMAL), build(fedavg)
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
        x, y = by_hand.own(DATA, i)
        hessian, linear_term = 2 / len(y) * x.T @ x, 2 / len(y) * x.T @ y
        inverse = np.linalg.inv(hessian + PROXIMAL * np.eye(FEATURES))
        maps.append(PROXIMAL * inverse)
        terms.append(inverse @ linear_term)
        hessians.append(hessian)
        linear_terms.append(linear_term)
    mean = functools.partial(np.average, axis=0, weights=KEPT)
    rest = np.linalg.solve(np.eye(FEATURES) - mean(maps), mean(terms))
    pooled = np.linalg.solve(mean(hessians), mean(linear_terms))
    algorithm = build(proximal=PROXIMAL, num_steps=600)
    moved, _ = algorithm.step(jax.random.key(0), begin(), DATA)
    close(moved.model, mean(maps) @ MODEL + mean(terms))
    stays, _ = algorithm.step(jax.random.key(0), begin(rest), DATA)
    close(stays.model, rest)
    leaves, _ = algorithm.step(jax.random.key(0), begin(pooled), DATA)
    assert np.abs(np.asarray(leaves.model) - pooled).max() > 0.01


# Against itself


@pytest.mark.long
def test_without_the_term_it_is_fedavg_bit_for_bit():
    settings: dict[str, Any] = {"update": UPDATE, "participation": 0.6}
    plain = build(fedavg, **settings)
    start = plain.init(jax.random.key(0), DATA)
    expected, theirs = rounds(plain, start, DATA)
    free, info = rounds(build(proximal=0.0, **settings), State(*start), DATA)
    held, _ = rounds(build(proximal=0.1, **settings), State(*start), DATA)
    same = lambda a, b: jax.tree.map(np.testing.assert_array_equal, a, b)
    same(tuple(free), tuple(expected))
    same(tuple(info), tuple(theirs))
    differ(held.model, expected.model, rtol=1e-3, atol=0)


def test_newcomers_are_answered_by_the_model():
    new = jax.tree.map(lambda leaf: leaf[:2], DATA)
    joined = PAPER.join(jax.random.key(0), begin(), new)
    answers = PAPER.predict(joined, new, new.inputs)
    close(answers, np.asarray(new.inputs) @ MODEL)


# Against misuse


test_misuse_is_named = misuse(
    functools.partial(fedprox, TASK, step_size=STEP, proximal=0.1),
    ({"proximal": -0.1}, "`proximal` must not be negative, got -0.1"),
    ({"proximal": float("nan")}, "`proximal` must be finite, got nan"),
    ({"update": LocalUpdate(proximal=0.2)}, "`update` must have no other proximal"),
    ({"num_steps": 0}, "`num_steps` must be at least 1"),
    ({"weights": "equal"}, "weights"),
)
