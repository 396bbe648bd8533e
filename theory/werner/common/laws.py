"""Laws of noise within a cluster, all with mean 0 and total variance sigma^2.

The discrete ones are the least favourable: skew2 moves the mean of what is in a ball by
sigma^2/s, and from a member of sym3 the ball may hold nobody but its equals. What they
do happens with probability sigma^2/s^2, so that plain Monte Carlo does not see it: go
through the atoms instead, exactly (`population_map`) or one stratum for each atom
(`stratified`).
"""

from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from cfljax import intervals

Continuous = Literal["gauss", "unif", "t3"]


class Discrete(NamedTuple):
    """A law on the line: its atoms' values and chances."""

    values: Float[np.ndarray, " atoms"]
    chances: Float[np.ndarray, " atoms"]


def skew2(size: float, sigma: float) -> Discrete:
    """0 or `size`, less their mean s p, p = (1 - sqrt(1 - 4 sigma^2/s^2))/2; below 2
    sigma no such law exists."""
    if not size >= 2 * sigma > 0:
        raise ValueError(
            f"`size` must be at least 2 sigma = {2 * sigma:g} > 0, got {size:g}."
        )
    # The small root, without the cancellation of its usual form.
    chance = 2 * (sigma / size) ** 2 / (1 + np.sqrt(1 - 4 * (sigma / size) ** 2))
    values = np.array([-chance, 1 - chance]) * size
    return Discrete(values, np.array([1 - chance, chance]))


def sym3(size: float, sigma: float) -> Discrete:
    """-s, 0 or s with probabilities p/2, 1 - p and p/2, p = sigma^2/s^2, for a `size` s
    of at least sigma."""
    if not size >= sigma > 0:
        raise ValueError(f"`size` must be at least sigma = {sigma:g} > 0, got {size}.")
    chance = (sigma / size) ** 2
    return Discrete(
        np.array([-size, 0.0, size]), np.array([chance / 2, 1 - chance, chance / 2])
    )


def variance(law: Discrete) -> float:
    """E (z - E z)^2."""
    mean = np.sum(law.chances * law.values)
    return float(np.sum(law.chances * (law.values - mean) ** 2))


def sample(
    law: Discrete, generator: np.random.Generator, shape: tuple[int, ...]
) -> Float[np.ndarray, "..."]:
    """Independent draws, of `shape`."""
    # One uniform each: `choice` is slower by far for large shapes.
    edges = np.cumsum(law.chances)[:-1]
    return law.values[np.searchsorted(edges, generator.random(shape), side="right")]


def draw(
    name: Continuous,
    generator: np.random.Generator,
    shape: tuple[int, ...],
    sigma: float,
) -> Float[np.ndarray, "*batch features"]:
    """Points, `shape[-1]` their features, with independent coordinates of a continuous
    law and total variance sigma^2; "t3" is Student's, without a fourth moment."""
    scale = sigma / np.sqrt(shape[-1])
    if name == "gauss":
        return scale * generator.standard_normal(shape)
    if name == "unif":
        return scale * generator.uniform(-np.sqrt(3), np.sqrt(3), shape)
    return scale * generator.standard_t(3, shape) / np.sqrt(3)


def line(num_clusters: int, separation: float) -> Float[np.ndarray, " clusters"]:
    """Means on a line, Delta from one to the next, the first at 0."""
    return separation * np.arange(num_clusters, dtype=float)


def stratified(
    samples: Float[np.ndarray, "strata trials"],
    chances: Float[np.ndarray, " strata"],
    *,
    error_rate: float,
) -> tuple[float, float]:
    """Interval of E x = sum_k P(k) E(x | k), from independent trials in each stratum;
    the error rate is shared out over the strata."""
    low, high = intervals.student(samples, error_rate=error_rate / len(chances))
    return float(np.sum(chances * low)), float(np.sum(chances * high))
