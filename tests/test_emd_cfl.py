"""EMD-CFL: distances, neighbours and rounds in NumPy, its limits, and who is alone."""

import functools
from typing import Any

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from by_hand import close, compiled, differ, misuse

from cfljax.algorithms import emd_cfl, fedavg
from cfljax.algorithms.emd_cfl import halves, movers_distance, points_of
from cfljax.base.types import Layers, Task
from cfljax.models import linear

CLIENTS, SAMPLES, INPUTS, FEATURES, STEP, STEPS, POINTS = 5, 12, 4, 3, 0.05, 2, 6
KEPT = np.array([12, 8, 11, 12, 9])  # Real samples of each client.
GROUPS = np.array([0, 1, 0, 1, 1])
TOLERANCE = 0.3


def draw():
    """Inputs of the two groups point in different directions."""
    generator = np.random.default_rng(1)
    centres = np.array([[2.0, 0, 0, 1], [0, 2.0, -1, 0]])[GROUPS]
    noise = 0.4 * generator.normal(size=(CLIENTS, SAMPLES, INPUTS))
    inputs = centres[:, None] + noise
    truth = generator.normal(size=(CLIENTS, INPUTS))
    return by_hand.padded(inputs, np.einsum("csf,cf->cs", inputs, truth), KEPT)


DATA = draw()
START = {
    "body": np.random.default_rng(2).normal(size=(INPUTS, FEATURES)).astype("f4"),
    "head": np.array([0.5, -0.3, 0.2], "f4"),
}
LAYERS = Layers(
    embed=lambda params, inputs: inputs @ params["body"],
    answer=lambda params, features: features @ params["head"],
    losses=lambda outputs, targets: (outputs - targets) ** 2,
    is_head=lambda name: name == "head",
)
PREDICT = lambda params, inputs: LAYERS.answer(params, LAYERS.embed(params, inputs))
TASK = Task(
    init=lambda key: jax.tree.map(jnp.asarray, START),
    losses=lambda params, x, y: LAYERS.losses(PREDICT(params, x), y),
    predict=PREDICT,
    layers=LAYERS,
)
SETTINGS: dict[str, Any] = {
    "step_size": STEP,
    "num_steps": STEPS,
    "tolerance": TOLERANCE,
    "num_points": POINTS,
}


def build(**changes):
    return compiled(emd_cfl(TASK, **(SETTINGS | changes)))


PAPER = build()


def train_by_hand(model, x, y):
    body, head = model["body"].astype(float), model["head"].astype(float)
    for _ in range(STEPS):
        slope = 2 / len(y) * (x @ body @ head - y)
        moves = x.T @ np.outer(slope, head), (x @ body).T @ slope
        body, head = body - STEP * moves[0], head - STEP * moves[1]
    return {"body": body, "head": head}


def distance_by_hand(left, right):
    unit = lambda points: points / np.linalg.norm(points, axis=1, keepdims=True)
    cost = 1 - unit(left) @ unit(right).T
    rows, columns = scipy.optimize.linear_sum_assignment(cost)
    return cost[rows, columns].mean()


def parts(i):
    """What client i trains on and what it holds out, as many points of each."""
    x, y = by_hand.own(DATA, i)
    spread = lambda rows: rows[np.arange(POINTS) * len(rows) // POINTS]
    return (x[::2], y[::2]), spread(x[::2]), spread(x[1::2])


@functools.cache
def distances():
    table = np.zeros((CLIENTS, CLIENTS))
    for i in range(CLIENTS):
        own, kept, _ = parts(i)
        body = train_by_hand(START, *own)["body"]
        for j in range(CLIENTS):
            table[i, j] = distance_by_hand(kept @ body, parts(j)[2] @ body)
    return table


def neighbours_by_hand(mutual=True, own=True):
    table = distances()
    near = table - (np.diagonal(table)[:, None] if own else 0) < TOLERANCE
    return near & near.T if mutual else near


def rounds_by_hand(near, number):
    models = [START] * CLIENTS
    for _ in range(number):
        trained = [
            train_by_hand(models[i], *by_hand.own(DATA, i)) for i in range(CLIENTS)
        ]
        models = [mean_by_hand(trained, near[i]) for i in range(CLIENTS)]
    return models


def mean_by_hand(models, chosen):
    own = [models[j] for j in np.flatnonzero(chosen)]
    average = functools.partial(np.average, axis=0, weights=KEPT[chosen])
    return {name: average([model[name] for model in own]) for name in START}


def stacked(models, name):
    return np.stack([model[name] for model in models])


@functools.cache
def start():
    return PAPER.init(jax.random.key(0), DATA)


# Against equations


def test_neighbours_and_rounds_against_equations():
    near = neighbours_by_hand()
    np.testing.assert_array_equal(start().neighbours, near)
    np.testing.assert_array_equal(near, GROUPS[:, None] == GROUPS[None, :])
    state, info = by_hand.rounds(PAPER, start(), DATA)
    expected = rounds_by_hand(near, 2)
    for name in START:
        close(state.models[name], stacked(expected, name), rtol=1e-4, atol=1e-5)
    assert int(info.found) == 2
    assert info.assignment.tolist() == [0, 1, 0, 1, 1]
    alone = rounds_by_hand(np.eye(CLIENTS, dtype=bool), 2)
    differ(state.models["body"], stacked(alone, "body"), rtol=1e-3)


def test_neighbours_that_are_no_clique_mix_clusters():
    """0 and 1 are near 2, but not near each other."""
    near = np.eye(CLIENTS, dtype=bool)
    for a, b in ((0, 2), (1, 2)):
        near[a, b] = near[b, a] = True
    state = start()._replace(neighbours=jnp.asarray(near))
    state, info = by_hand.rounds(PAPER, state, DATA)
    expected = rounds_by_hand(near, 2)
    close(state.models["body"], stacked(expected, "body"), rtol=1e-4, atol=1e-5)
    assert int(info.found) == 5, "each has other neighbours"
    transitive = near.copy()
    transitive[0, 1] = transitive[1, 0] = True
    wrong = rounds_by_hand(transitive, 2)
    differ(state.models["body"], stacked(wrong, "body"), rtol=1e-3)


@pytest.mark.parametrize("number", [4, 7], ids=["listed", "hungarian"])
def test_the_distance_is_that_of_linear_programming(number):
    generator = np.random.default_rng(3)
    found = jax.jit(movers_distance)
    left, right = generator.normal(size=(2, number, 3)).astype("f4")
    close(found(left, right), distance_by_hand(left, right))
    close(found(left, 2 * left), 0.0, atol=1e-6)
    norms = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    in_order = np.mean(1 - np.sum(left * right, axis=1) / norms)
    assert float(found(left, right)) < in_order - 1e-3, "the order is no best plan"


def test_points_without_a_direction_are_at_one():
    left = np.array([[1, 0], [0, 0]], "f4")
    right = np.array([[1, 0], [np.inf, 1]], "f4")
    close(jax.jit(movers_distance)(left, right), 0.5)


@pytest.mark.long
def test_halves_and_points_skip_padding():
    mask = np.array([[1, 0, 1, 1, 0, 1, 1], [0, 0, 0, 1, 0, 0, 0]], bool)
    kept, held_out = halves(jnp.asarray(mask))
    assert np.flatnonzero(kept[0]).tolist() == [0, 3, 6]
    assert np.flatnonzero(held_out[0]).tolist() == [2, 5]
    assert np.asarray(kept)[1].sum() == 1 and not np.asarray(held_out)[1].any()
    inputs = jnp.arange(14.0).reshape(2, 7)
    found = points_of(inputs, jnp.asarray(mask), 3)
    assert found.tolist() == [[0, 2, 5], [10, 10, 10]]
    assert points_of(inputs, kept, 2)[0].tolist() == [0, 3]


def test_a_message_counts_the_points_of_the_first_round():
    model = 4 * (INPUTS * FEATURES + FEATURES)
    points = 4 * POINTS * INPUTS
    state, info = PAPER.step(jax.random.key(0), start(), DATA)
    assert info.received.tolist() == [model + CLIENTS * points] * CLIENTS
    assert info.sent.tolist() == [model + points + 4 * CLIENTS] * CLIENTS
    _, later = PAPER.step(jax.random.key(1), state, DATA)
    assert later.received.tolist() == later.sent.tolist() == [model] * CLIENTS


# Against theory: limits


def test_with_everybody_near_it_is_fedavg():
    everybody = start()._replace(neighbours=jnp.ones((CLIENTS, CLIENTS), bool))
    state, info = by_hand.rounds(PAPER, everybody, DATA)
    other = compiled(fedavg(TASK, step_size=STEP, num_steps=STEPS))
    begun = other.init(jax.random.key(0), DATA)
    expected, _ = by_hand.rounds(other, begun, DATA)
    assert int(info.found) == 1
    for name, leaf in expected.model.items():
        rows = np.broadcast_to(leaf, state.models[name].shape)
        close(state.models[name], rows, rtol=1e-4, atol=1e-5)


@pytest.mark.long
def test_the_tolerance_is_between_nobody_and_everybody():
    init = jax.jit(lambda tolerance: build(tolerance=tolerance).init(KEY, DATA))
    nobody = init(0.0).neighbours
    assert np.diagonal(nobody).all() and np.asarray(nobody).sum() < CLIENTS**2
    assert init(4.0).neighbours.all()


KEY = jax.random.key(0)


# Against itself


def test_lost_and_empty_clients_have_no_neighbours():
    empty = DATA._replace(mask=DATA.mask.at[2].set(False))
    wild = DATA._replace(inputs=DATA.inputs.at[2].multiply(1e25))
    others = np.arange(CLIENTS) != 2
    for data in (empty, wild):
        state = PAPER.init(KEY, data)
        assert not np.asarray(state.neighbours)[2].any()
        expected = neighbours_by_hand()[np.ix_(others, others)]
        found = np.asarray(state.neighbours)[np.ix_(others, others)]
        np.testing.assert_array_equal(found, expected)
        state, info = by_hand.rounds(PAPER, state, data)
        assert int(info.assignment[2]) == -1
        assert all(np.isfinite(leaf).all() for leaf in state.models.values())


def test_the_absent_follow_their_neighbours():
    half = build(participation=0.4)
    state, info = half.step(jax.random.key(3), start(), DATA)
    asked = np.isfinite(np.asarray(info.losses))
    assert asked.sum() == 2
    near = np.asarray(start().neighbours)
    trained = [train_by_hand(START, *by_hand.own(DATA, i)) for i in range(CLIENTS)]
    for i in range(CLIENTS):
        here = np.flatnonzero(near[i] & asked)
        expected = START["body"]
        if len(here):
            bodies = [trained[j]["body"] for j in here]
            expected = np.average(bodies, axis=0, weights=KEPT[here])
        close(state.models["body"][i], expected, rtol=1e-4, atol=1e-5)


# Against misuse


def test_a_task_without_layers_is_refused():
    with pytest.raises(ValueError, match="`task` must have `layers`"):
        emd_cfl(linear(INPUTS), **SETTINGS)


test_misuse_is_named = misuse(
    lambda **changes: emd_cfl(TASK, **(SETTINGS | changes)),
    ({"num_points": 0}, "`num_points` must be at least 1"),
    ({"num_local_steps": 0}, "`num_local_steps` must be at least 1"),
    ({"tolerance": -0.1}, "`tolerance` must not be negative, got -0.1"),
    ({"weights": "equal"}, "weights"),
)
