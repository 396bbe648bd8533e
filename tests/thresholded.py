"""Least squares of six clients, and Threshold-Clustering of gradients, pair by pair."""

from collections.abc import Callable
from typing import Any

import by_hand
import jax
import numpy as np
from by_hand import padded

from cfljax.base.types import Algorithm, ClientData

CLIENTS, SAMPLES, FEATURES = 6, 5, 3
TRUTH = np.array([0, 0, 0, 1, 1, 1])
LIARS = np.isin(np.arange(CLIENTS), [2, 5])  # Where there are any.
HONEST = np.flatnonzero(~LIARS)
STEP, ROUNDS, RADIUS = 0.1, 3, 5.0
SETTINGS: dict[str, Any] = {
    "step_size": STEP,
    "radius": RADIUS,
    "num_clipping_rounds": ROUNDS,
}
Rule = Callable[[np.ndarray], float]  # From ascending distances to a radius.
# From the points, whose they are, the receiver, the centre's start and the centre, to
# what arrives.
Send = Callable[[np.ndarray, np.ndarray, int, np.ndarray, np.ndarray], np.ndarray]


def fixed(radius: float) -> Rule:
    return lambda distances: radius


def draw() -> tuple[ClientData, np.ndarray]:
    """Data, the second client with three samples, and a model of each client."""
    generator = np.random.default_rng(0)
    thetas = np.array([[2.0, -1, 1], [-1, 2, 0]])
    x = generator.normal(size=(CLIENTS, SAMPLES, FEATURES))
    y = np.einsum("nsd,nd->ns", x, thetas[TRUTH])
    models = generator.normal(size=(CLIENTS, FEATURES))
    return padded(x, y, [5, 3, 5, 5, 5, 5]), models.astype(np.float32)


DATA, MODELS = draw()
FIXED = fixed(RADIUS)
EVERYBODY = (np.arange(CLIENTS)[None],)


def clustered(
    points: np.ndarray,
    start: np.ndarray,
    rule: Rule,
    *,
    strict: bool = False,
    divide_by: str = "points",
    resend: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None,
) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Equation (4), point by point: the centre, who was in its ball, how many were."""
    centre, counts = start.astype(float), []
    inside = np.zeros(len(points), bool)
    for _ in range(ROUNDS):
        if resend is not None:
            points = resend(points, centre)
        distances = np.array([np.linalg.norm(point - centre) for point in points])
        known = np.isfinite(distances)
        tau = rule(np.sort(np.where(known, distances, np.inf)))
        inside = known & (distances < tau if strict else distances <= tau)
        kept = [p if i else centre for p, i in zip(points, inside, strict=True)]
        if divide_by == "members":
            kept = points[inside]
        centre = np.mean(kept, axis=0) if inside.any() else centre
        counts.append(int(inside.sum()))
    return centre, inside, counts


def updates_by_hand(
    models: np.ndarray,
    rule: Rule = FIXED,
    *,
    data: ClientData = DATA,
    groups: tuple = EVERYBODY,
    momenta: np.ndarray | None = None,
    keep: float = 0.0,
    send: Send | None = None,
    adaptive: bool = False,
    **options: Any,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """v_i of all clients, their balls' members, and the counts, by loops over pairs.

    Momenta of the pairs, with beta `keep`, are moved in place. What arrives at a
    receiver is what `send` makes of the points, in every clipping round if `adaptive`.
    """
    updates = np.zeros((CLIENTS, FEATURES))
    members = np.zeros((CLIENTS, CLIENTS), bool)
    counts = np.zeros((CLIENTS, ROUNDS), int)
    for group in (np.asarray(row) for block in groups for row in block):
        for place, i in enumerate(group):
            points = np.array([by_hand.gradient(data, j, models[i]) for j in group])
            if momenta is not None:
                momenta[i] = points = (1 - keep) * points + keep * momenta[i]
            start, resend = points[place], None
            if send is not None and adaptive:
                known = group, int(i), start
                resend = lambda p, v, known=known, send=send: send(p, *known, v)
            elif send is not None:
                points = send(points, group, int(i), start, start)
                start = points[place]
            found = clustered(points, start, rule, resend=resend, **options)
            updates[i], members[i, group], counts[i] = found
    return updates, members, counts


def rounds_of(algorithm: Algorithm, state: Any, data: ClientData, number: int) -> list:
    """State and info after each round."""
    step, seen = by_hand.once(algorithm.step, jax.random.key(0), state, data), []
    for index in range(number):
        state, info = step(jax.random.key(index), state, data)
        seen.append((state, info))
    return seen
