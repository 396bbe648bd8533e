"""The examples of Figure 1: two or three clients on the line, exactly.

(a) f_1 = x^2/(6 eta), f_2 with an inflection at 1 and its minimum at 0, and f_3 = (x -
2)^2/(2 eta); (b) f_1 = (x + 1/2)^2 and f_2 = (x - 1/2)^2; (c) g_1 = x, g_2 = x - 1/2
and g_3 = x or x - 1, each with probability 1/2.
"""

import numpy as np
from jaxtyping import Float

from theory.werner.population_map import Mixture, settle

__all__ = [
    "curvature_bound",
    "federated_step",
    "gradients_a",
    "gradients_b",
    "myopic_path",
    "two_means",
]


def gradients_a(
    places: Float[np.ndarray, "*batch"], step_size: float
) -> Float[np.ndarray, "*batch 3"]:
    """f_1', f_2' and f_3' of example (a) at each place."""
    shifted = places - 1
    second = np.where(shifted < 0, 12 * places * shifted**2, shifted / step_size)
    return np.stack([places / (3 * step_size), second, (places - 2) / step_size], -1)


def gradients_b(places: Float[np.ndarray, "*batch"]) -> Float[np.ndarray, "*batch 2"]:
    """f_1' and f_2' of example (b) at each place."""
    return np.stack([2 * (places + 0.5), 2 * (places - 0.5)], -1)


def curvature_bound(low: float, high: float, step_size: float) -> float:
    """The largest |f_2''| of example (a) between two places.

    f_2'' = 24 u + 36 u^2 with u = x - 1 < 0, which is least, -4, at u = -1/3, and 1/eta
    from 1 on.
    """
    ends = [min(place - 1, 0.0) for place in (low, high)]
    if ends[0] <= -1 / 3 <= ends[1]:
        ends.append(-1 / 3)
    found = [abs(24 * u + 36 * u**2) for u in ends]
    return max(*found, 1 / step_size if high >= 1 else 0.0)


def two_means(values: Float[np.ndarray, " points"]) -> list[set[int]]:
    """The best division of points on the line in two, by their sum of squares.

    Returns:
      Indices of the lower and of the upper cluster; the lowest cut of equals.
    """
    order = np.argsort(values, kind="stable")
    cost = [
        np.var(values[order[:cut]]) * cut
        + np.var(values[order[cut:]]) * (len(values) - cut)
        for cut in range(1, len(values))
    ]
    cut = 1 + int(np.argmin(cost))
    return [set(order[:cut].tolist()), set(order[cut:].tolist())]


def myopic_path(
    step_size: float, num_rounds: int, *, start: float = 1.5
) -> tuple[Float[np.ndarray, "rounds 3"], list[list[set[int]]]]:
    """Algorithm 1 with K = 2 on example (a).

    Returns:
      The models, from the start on, and the clusters of each round.
    """
    models, clusters = [np.full(3, start)], []
    for _ in range(num_rounds):
        own = np.diagonal(gradients_a(models[-1], step_size))
        clusters.append(two_means(own))
        centres = np.empty(3)
        for members in clusters[-1]:
            centres[list(members)] = np.mean(own[list(members)])
        models.append(models[-1] - step_size * centres)
    return np.array(models), clusters


def federated_step(
    models: Float[np.ndarray, "*batch clients"],
    received: Float[np.ndarray, "*batch clients clients"],
    *,
    step_size: float,
    radius: float | Float[np.ndarray, "*#batch #clients"],
    num_rounds: int = 10,
) -> Float[np.ndarray, "*batch clients"]:
    """A round of Federated-Clustering (Algorithm 2) on the line.

    Args:
      models: x_i.
      received: g_j(x_i), the last axis is j's.
      step_size: eta.
      radius: tau, a number or one for each batch and client.
      num_rounds: l, clipping rounds from the client's own gradient.
    """
    number = received.shape[-1]
    points = Mixture(received, np.full(received.shape, 1 / number))
    own = np.diagonal(received, axis1=-2, axis2=-1)
    centres = settle(points, own, radius, num_rounds=num_rounds)
    return models - step_size * centres
