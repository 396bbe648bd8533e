"""SCAFFOLD: rounds in NumPy, the optimum that it keeps, and corrections too large."""

import functools
from typing import Any

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import close, compiled, differ, misuse, rounds

from cfljax.algorithms import fedavg, scaffold
from cfljax.federated.local_update import LocalUpdate
from cfljax.models import linear

CLIENTS, FEATURES, STEP, STEPS = 5, 4, 0.05, 3
KEPT = np.array([8, 2, 5, 8, 4])  # Real samples of each client.
DATA = by_hand.draw(KEPT, num_samples=8, num_features=FEATURES, seed=1)
TASK = linear(FEATURES)
MODEL = np.array([1.0, -1.0, 0.5, 0.0], "f4")
OWN = np.random.default_rng(2).normal(size=(CLIENTS, FEATURES)).astype("f4")
COMMON = OWN.mean(axis=0)
SETTINGS: dict[str, Any] = {"step_size": STEP, "num_steps": STEPS}
gradient = functools.partial(by_hand.gradient, DATA)


@functools.cache
def build(**settings):
    return compiled(scaffold(TASK, **(SETTINGS | settings)))


def begin(algorithm, model=MODEL, common=COMMON, own=OWN):
    """A state with control variates that differ, so that no two rules agree."""
    state = algorithm.init(jax.random.key(0), DATA)
    rows = state.own._replace(control=jnp.asarray(own, jnp.float32))
    model, common = (jnp.asarray(leaf, jnp.float32) for leaf in (model, common))
    return state._replace(model=model, control=common, own=rows)


def by_the_paper(model, common, own, took_part, *, option="II", server=1.0, batches=0):
    """Algorithm 1 with its formulas as they are printed; `batches` divides by a number
    of its own in place of K, as the public copy that counts an epoch's does."""
    models, changes, after = [], [], own.copy()
    for i in np.flatnonzero(took_part):
        y = model
        for _ in range(STEPS):
            y = y - STEP * (gradient(i, y) - own[i] + common)
        if option == "II":
            after[i] = own[i] - common + (model - y) / ((batches or STEPS) * STEP)
        else:
            after[i] = gradient(i, model)
        models.append(y - model)
        changes.append(after[i] - own[i])
    share = len(models) / CLIENTS
    model = model + server * np.mean(models, axis=0)
    return model, common + share * np.mean(changes, axis=0), after


# Against equations


@pytest.mark.parametrize(
    ("option", "changes"),
    [("II", {}), ("I", {"control": "received"}), ("II", {"server_step_size": 0.6})],
    ids=["option II", "option I", "server step"],
)
def test_two_rounds_against_equations(option, changes):
    algorithm, everyone = build(**changes), np.ones(CLIENTS, bool)
    state, found = begin(algorithm), (MODEL, COMMON, OWN)
    server = changes.get("server_step_size", 1.0)
    for seed in range(2):
        losses = [by_hand.loss(DATA, i, found[0]) for i in range(CLIENTS)]
        state, info = algorithm.step(jax.random.key(seed), state, DATA)
        found = by_the_paper(*found, everyone, option=option, server=server)
        close(state.model, found[0])
        close(state.control, found[1], atol=1e-5)
        close(state.own.control, found[2], atol=1e-5)
        close(info.losses, losses)
    other = by_the_paper(MODEL, COMMON, OWN, everyone, option="I")
    if option == "II":
        differ(begin(algorithm).own.control, other[2])
        first, _ = algorithm.step(jax.random.key(0), begin(algorithm), DATA)
        differ(first.own.control, other[2])


def test_an_epochs_batches_are_not_all_steps():
    """A public copy divides by the batches of one of several epochs; its control
    variates are no gradients."""
    state, _ = build().step(jax.random.key(0), begin(build()), DATA)
    wrong = by_the_paper(MODEL, COMMON, OWN, np.ones(CLIENTS, bool), batches=1)
    differ(state.own.control, wrong[2])
    differ(state.control, wrong[1])
    mean = np.mean(np.asarray(state.own.control), axis=0)
    close(state.control, mean, atol=1e-5)
    # And adds up the server's changes, of which it should take the mean.
    change = np.asarray(state.control) - COMMON
    differ(state.control, COMMON + CLIENTS * change)


def test_the_absent_keep_theirs_and_the_mean_stays_a_mean():
    half = build(participation=0.4)
    state, info = half.step(jax.random.key(3), begin(half), DATA)
    took_part = np.isfinite(np.asarray(info.losses))
    assert took_part.sum() == 2
    model, common, own = by_the_paper(MODEL, COMMON, OWN, took_part)
    close(state.model, model)
    close(state.own.control, own, atol=1e-5)
    close(state.control, common, atol=1e-5)
    close(state.control, np.mean(state.own.control, axis=0), atol=1e-5)
    # Control: the mean change as if all had sent one.
    differ(state.control, COMMON + (common - COMMON) * CLIENTS / 2)


@pytest.mark.long
def test_epochs_of_batches_count_their_own_steps():
    """Clients of other sizes take other numbers of steps; all are averaged."""
    update = LocalUpdate(batch_size=3, num_epochs=2)
    algorithm = compiled(scaffold(TASK, step_size=STEP, update=update))
    state, _ = algorithm.step(jax.random.key(0), begin(algorithm), DATA)
    sent = np.asarray(state.own.control)
    # What all y_i have moved by is K_i eta (c_i+ - c_i + c), in the mean over clients.
    number = 2 * np.ceil(KEPT / 3)[:, None]
    moved = -STEP * np.mean(number * (sent - OWN + COMMON), axis=0)
    close(np.asarray(state.model) - MODEL, moved, atol=1e-5)
    one_epoch = -STEP * np.mean(number / 2 * (sent - OWN + COMMON), axis=0)
    differ(np.asarray(state.model) - MODEL, one_epoch)


# Against theory


def optimum():
    """Of the mean of the clients' losses."""
    slopes = [gradient(i, np.zeros(FEATURES)) for i in range(CLIENTS)]
    curves = [
        np.stack([gradient(i, e) - slopes[i] for e in np.eye(FEATURES)], axis=1)
        for i in range(CLIENTS)
    ]
    return np.linalg.solve(np.mean(curves, axis=0), -np.mean(slopes, axis=0))


def test_it_stays_at_the_optimum_that_fedavg_leaves():
    best = optimum().astype("f4")
    own = np.stack([gradient(i, best) for i in range(CLIENTS)]).astype("f4")
    state = begin(build(), best, np.zeros(FEATURES), own)
    state, _ = rounds(build(), state, DATA, 5)
    close(state.model, best, atol=1e-5)
    other = compiled(fedavg(TASK, weights="clients", **SETTINGS))
    start = other.init(jax.random.key(0), DATA)._replace(model=jnp.asarray(best))
    left, _ = rounds(other, start, DATA, 5)
    assert np.abs(np.asarray(left.model) - best).max() > 1e-2


@pytest.mark.long
def test_the_first_round_is_that_of_fedavg():
    """Nobody has a control variate yet."""
    asked: list[dict[str, Any]] = [
        {"weights": "clients"},
        {"weights": "samples", "participation": 0.4},
    ]
    for settings in asked:
        ours = build(**settings)
        theirs = compiled(fedavg(TASK, **SETTINGS, **settings))
        key, data = jax.random.key(5), DATA
        first, _ = ours.step(key, ours.init(key, data), data)
        expected, _ = theirs.step(key, theirs.init(key, data), data)
        np.testing.assert_array_equal(first.model, expected.model)
        second, _ = ours.step(key, first, data)
        differ(second.model, theirs.step(key, expected, data)[0].model)


def test_a_step_of_nothing_has_a_control_variate():
    """The printed formula divides by the step size, which a schedule may bring to 0."""
    algorithm = build(step_size=0.0)
    state, _ = algorithm.step(jax.random.key(0), begin(algorithm), DATA)
    close(state.model, MODEL)
    slopes = [gradient(i, MODEL) for i in range(CLIENTS)]
    close(state.own.control, slopes, atol=1e-5)


# Against failures


def test_a_diverged_client_keeps_what_it_had():
    lost = np.arange(CLIENTS) == 1
    inputs = np.where(lost[:, None, None], np.float32(1e25), DATA.inputs)
    wild = DATA._replace(inputs=jnp.asarray(inputs))
    state, info = build().step(jax.random.key(0), begin(build()), wild)
    model, common, own = by_the_paper(MODEL, COMMON, OWN, ~lost)
    close(state.model, model)
    close(state.own.control, own, atol=1e-5)
    close(state.control, common, atol=1e-5)
    assert info.sent.tolist() == [0 if one else 32 for one in lost]
    assert info.assignment.tolist() == [-1 if one else 0 for one in lost]


# Against misuse


test_misuse_is_named = misuse(
    functools.partial(scaffold, TASK, step_size=STEP),
    ({"control": "last"}, "control"),
    ({"server_step_size": -1.0}, "`server_step_size` must not be negative, got -1"),
    ({"num_steps": 0}, "`num_steps` must be at least 1"),
)
