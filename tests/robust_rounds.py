"""Rounds of IFCA from single messages, client by client, in NumPy."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cfljax.algorithms.ifca import State, ifca
from cfljax.base.types import ClientData
from cfljax.federated.robust import centred_clipping, mean, median, trimmed_mean
from cfljax.federated.training import LocalState
from cfljax.models import linear

__all__ = [
    "BY_HAND",
    "CLIENTS",
    "CLUSTERS",
    "FEATURES",
    "MODELS",
    "RULES",
    "STEP",
    "byzantine",
    "choices_by_hand",
    "close",
    "gradient_by_hand",
    "message_by_hand",
    "round_by_hand",
    "run",
    "settings",
]


CLIENTS, CLUSTERS, SAMPLES, FEATURES, STEP, STEPS = 7, 2, 5, 3, 0.1, 3
TRUTH = np.array([0, 0, 0, 0, 1, 1, 1])
KEPT = np.array([5, 3, 5, 4, 5, 5, 2])  # Real samples of each client.


def draw() -> tuple[ClientData, np.ndarray]:
    generator = np.random.default_rng(4)
    thetas = np.array([[2.0, -1, 1], [-1, 2, 0]])
    x = generator.normal(size=(CLIENTS, SAMPLES, FEATURES))
    y = np.einsum("nsd,nd->ns", x, thetas[TRUTH])
    y = y + 0.3 * generator.normal(size=y.shape)
    mask = np.arange(SAMPLES)[None] < KEPT[:, None]
    inputs, targets = (jnp.asarray(leaf.astype(np.float32)) for leaf in (x, y))
    models = thetas + 0.4 * generator.normal(size=thetas.shape)
    return ClientData(inputs, targets, jnp.asarray(mask)), models.astype(np.float32)


DATA, MODELS = draw()
Rule = Callable[[np.ndarray, np.ndarray], np.ndarray]


def trimmed_by_hand(messages: np.ndarray, origin: np.ndarray) -> np.ndarray:
    cut = int(0.3 * len(messages))
    return np.sort(messages, axis=0)[cut : len(messages) - cut].mean(axis=0)


def clipped_by_hand(messages: np.ndarray, origin: np.ndarray) -> np.ndarray:
    centre = origin
    for _ in range(2):
        moves = messages - centre
        norms = np.linalg.norm(moves, axis=1, keepdims=True)
        centre = centre + (moves * np.minimum(1, 0.2 / norms)).mean(axis=0)
    return centre


BY_HAND: dict[str, Rule] = {
    "mean": lambda messages, origin: messages.mean(axis=0),
    "median": lambda messages, origin: np.median(messages, axis=0),
    "trimmed": trimmed_by_hand,
    "clipped": clipped_by_hand,
}
RULES = {
    "mean": mean(),
    "median": median(),
    "trimmed": trimmed_mean(0.3),
    "clipped": centred_clipping(0.2, num_rounds=2),
}


def residuals(client: int, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    x = np.asarray(DATA.inputs[client], float)[: KEPT[client]]
    return x, x @ theta - np.asarray(DATA.targets[client], float)[: KEPT[client]]


def gradient_by_hand(client: int, theta: np.ndarray) -> np.ndarray:
    x, error = residuals(client, theta)
    return 2 / len(error) * x.T @ error


def choices_by_hand() -> np.ndarray:
    of = lambda i: [np.mean(residuals(i, theta)[1] ** 2) for theta in MODELS]
    return np.array([np.argmin(of(i)) for i in range(CLIENTS)])


def message_by_hand(option: str, client: int, theta: np.ndarray) -> np.ndarray:
    if option == "gradient":
        return gradient_by_hand(client, theta)
    for _ in range(STEPS):
        theta = theta - STEP * gradient_by_hand(client, theta)
    return theta


def round_by_hand(
    option: str,
    rule: Rule,
    *,
    normalise: str = "all",
    chosen: np.ndarray | None = None,
    lies: Mapping[int, np.ndarray] | None = None,
    present: np.ndarray | None = None,
) -> np.ndarray:
    """Models after a round in which some send what `lies` has for them."""
    chosen = choices_by_hand() if chosen is None else chosen
    present = np.arange(CLIENTS) if present is None else present
    expected = MODELS.astype(float)
    for j in range(CLUSTERS):
        members = [i for i in present if chosen[i] == j]
        if not members:
            continue
        honest = {i: message_by_hand(option, i, expected[j]) for i in members}
        sent = np.array([({**honest, **(lies or {})})[i] for i in members])
        if option == "model":
            expected[j] = rule(sent, expected[j])
            continue
        of_all = {"all": CLIENTS, "participants": len(present)}
        share = 1.0 if normalise == "cluster" else len(members) / of_all[normalise]
        expected[j] -= STEP * share * rule(sent, np.zeros(FEATURES))
    return expected


def settings(option: str) -> dict[str, Any]:
    steps = STEPS if option == "model" else 1
    return {"num_clusters": CLUSTERS, "step_size": STEP, "option": option} | {
        "num_steps": steps
    }


def run(
    option: str = "gradient",
    models: Any = MODELS,
    rounds: int = 1,
    **changes: Any,
) -> tuple[Any, Any]:
    """State and info after some rounds."""
    algorithm = ifca(linear(FEATURES), **(settings(option) | changes))
    memory = None
    if changes.get("threat") is not None:
        memory = LocalState(jnp.zeros((), jnp.int32), ())
    state, info = State(jnp.asarray(models), memory), None
    step = jax.jit(algorithm.step)
    for index in range(rounds):
        state, info = step(jax.random.key(index), state, DATA)
    return state, info


def byzantine(*clients: int) -> np.ndarray:
    return np.isin(np.arange(CLIENTS), clients)


def close(found: Any, expected: Any) -> None:
    """Equal up to a round in single precision."""
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
