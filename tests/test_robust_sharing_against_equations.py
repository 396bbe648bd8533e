"""Robust means of IFCA with shared weights, by hand in NumPy."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.algorithms.ifca import State, ifca
from cfljax.attacks import build, threat
from cfljax.base.types import ClientData, Task, Threat
from cfljax.federated.robust import Aggregate, median
from cfljax.federated.training import LocalState
from cfljax.losses import squared_error

CLIENTS, CLUSTERS, SAMPLES, FEATURES, STEP, STEPS = 6, 2, 4, 2, 0.1, 2
TRUTH = np.array([0, 0, 0, 0, 1, 1])


def outputs(params: Any, inputs: Any) -> Any:
    return jnp.sum(inputs * params["body"][None, :], axis=1) + params["head"][0]


TASK = Task(
    init=lambda key: {"body": jnp.zeros(FEATURES), "head": jnp.zeros(1)},
    losses=lambda params, inputs, targets: squared_error(
        outputs(params, inputs), targets
    ),
    predict=outputs,
)
HEADS = np.array([[2.5], [-2.5]])
BODY = np.array([0.7, -0.4])


def draw() -> ClientData:
    generator = np.random.default_rng(2)
    x = generator.normal(size=(CLIENTS, SAMPLES, FEATURES))
    y = x @ np.array([1.0, -1]) + 3 * np.array([1, -1])[TRUTH][:, None]
    y = y + 0.2 * generator.normal(size=y.shape)
    inputs, targets = (jnp.asarray(leaf.astype(np.float32)) for leaf in (x, y))
    return ClientData(inputs, targets, jnp.ones((CLIENTS, SAMPLES), bool))


DATA = draw()


def gradient(client: int, theta: np.ndarray) -> np.ndarray:
    """Of the body, then of the head."""
    x = np.asarray(DATA.inputs[client], float)
    x = np.concatenate([x, np.ones((SAMPLES, 1))], axis=1)
    return 2 / SAMPLES * x.T @ (x @ theta - np.asarray(DATA.targets[client], float))


def message(option: str, client: int, theta: np.ndarray) -> np.ndarray:
    if option == "gradient":
        return gradient(client, theta)
    for _ in range(STEPS):
        theta = theta - STEP * gradient(client, theta)
    return theta


def by_hand(
    option: str, normalise: str, rule: Callable, lie: Callable | None
) -> tuple[np.ndarray, np.ndarray]:
    """Body and heads after a round in which the last client lies to cluster 0."""
    chosen = TRUTH.copy()
    thetas = np.concatenate([np.tile(BODY, (CLUSTERS, 1)), HEADS], axis=1)
    if lie is not None:
        chosen[-1] = 0
    sent = np.array([message(option, i, thetas[chosen[i]]) for i in range(CLIENTS)])
    if lie is not None:
        sent[-1] = lie(sent[-1], thetas[0] if option == "model" else 0)
    body = rule(sent[:, :-1], axis=0)
    heads = np.array([[rule(sent[chosen == j, -1])] for j in range(CLUSTERS)])
    if option == "model":
        return body, heads
    shares = np.bincount(chosen)[:, None] / CLIENTS
    if normalise == "cluster":
        return BODY - STEP * body, HEADS - STEP * heads
    return BODY - STEP * body, HEADS - STEP * shares * heads


def run(
    option: str,
    data: ClientData,
    normalise: str = "all",
    threat: Threat | None = None,
    aggregate: Aggregate | None = None,
) -> dict[str, np.ndarray]:
    arguments: dict[str, Any] = {"option": option, "normalise": normalise}
    algorithm = ifca(
        TASK,
        num_clusters=CLUSTERS,
        step_size=STEP,
        num_steps=STEPS if option == "model" else 1,
        shared=lambda name: name == "body",
        threat=threat,
        aggregate=aggregate,
        **arguments,
    )
    rows = np.tile(BODY, (CLUSTERS, 1)), HEADS
    body, heads = (jnp.asarray(leaf.astype(np.float32)) for leaf in rows)
    memory = None if threat is None else LocalState(jnp.zeros((), jnp.int32), ())
    state = State({"body": body, "head": heads}, memory)
    return jax.jit(algorithm.step)(jax.random.key(0), state, data)[0].models


LAST = np.arange(CLIENTS) == CLIENTS - 1
LIES = {
    "noise": (build("noise", mean=50.0, deviation=0.0), lambda own, origin: 50.0),
    "boosting": (build("boosting", factor=3.0), lambda own, o: o + 3 * (own - o)),
}


@pytest.mark.parametrize(
    ("option", "normalise", "rule", "lie"),
    [
        ("gradient", "all", np.median, None),
        ("gradient", "cluster", np.median, "noise"),
        ("gradient", "all", np.mean, "boosting"),
        ("model", "all", np.median, None),
        ("model", "all", np.median, "noise"),
        ("model", "all", np.mean, "boosting"),
    ],
)
def test_common_leaves_are_the_mean_of_everybody(option, normalise, rule, lie):
    attack, told = LIES.get(lie, (None, None))
    liar = None if attack is None else threat(attack, LAST)
    aggregate = median() if rule is np.median else None
    found = run(option, DATA, normalise, liar, aggregate)
    body, heads = by_hand(option, normalise, rule, told)
    np.testing.assert_allclose(found["head"], heads, rtol=1e-5, atol=1e-6)
    for row in found["body"]:
        np.testing.assert_allclose(row, body, rtol=1e-5, atol=1e-6)
    # Control: with the first cluster's members alone the body is another.
    theta = np.append(BODY, HEADS[0])
    of_one = [message(option, i, theta)[:-1] for i in range(CLIENTS) if TRUTH[i] == 0]
    alone = rule(of_one, axis=0)
    alone = alone if option == "model" else BODY - STEP * alone
    assert np.abs(alone - body).max() > 1e-3


@pytest.mark.parametrize("aggregate", [None, median()])
@pytest.mark.parametrize("option", ["gradient", "model"])
def test_a_round_of_nobody_leaves_everything(option, aggregate):
    nobody = DATA._replace(mask=jnp.zeros_like(DATA.mask))
    found = run(option, nobody, aggregate=aggregate)
    np.testing.assert_array_equal(found["head"], HEADS.astype(np.float32))
    body = np.tile(BODY, (CLUSTERS, 1)).astype(np.float32)
    np.testing.assert_array_equal(found["body"], body)
