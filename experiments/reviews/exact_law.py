"""IFCA with fresh data and equidistant truths: what its studies share, exact in law."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, PRNGKeyArray

from cfljax import law

CLOSE = 0.25  # Of the separation: where a run has found its cluster.


def truths(
    number: int, num_features: int | None = None, *, separation: float = 1.0
) -> Float[np.ndarray, "clusters features"]:
    """True models at one distance from each other. Axes are as good as any."""
    return separation / math.sqrt(2) * np.eye(number, num_features)


def population(sizes: Mapping[str, Any], number: int, **others: Any) -> law.Population:
    """`number` clusters of equal sizes, who draw from `truths`, by the `num_clients`,
    `num_samples`, `num_features`, `noise` and `separation` (or `rho`, where it is 1) of
    `sizes`, or instead by `others`: `members` of each cluster, and `num_models`.
    """
    own = {**sizes, **others}
    return law.population(
        truths(number, separation=own.get("separation", 1.0)),
        num_models=own.get("num_models", number),
        num_clients=np.full(number, own.get("members", own["num_clients"] / number)),
        num_samples=own["num_samples"],
        num_features=own["num_features"],
        noise=own["noise"] if "noise" in own else 1 / math.sqrt(own["rho"]),
    )


def run(
    key: PRNGKeyArray,
    population: law.Population,
    models: Float[np.ndarray, "*trials models frame"],
    sizes: Mapping[str, Any],
    **options: Any,
) -> law.Trace:
    """Runs from these models, as many and as long as a cell or a configuration says,
    at its `step_size`; `options` are those of `law.simulate`, or instead of these."""
    names = ("num_trials", "num_rounds", "step_size")
    own = {name: sizes[name] for name in names if name in sizes}
    return law.simulate(key, population, models, **(own | options))


def random_models(
    key: PRNGKeyArray,
    population: law.Population,
    num_trials: int,
    *,
    separation: float = 1.0,
) -> Float[np.ndarray, "trials models frame"]:
    """A model for each cluster, normal and as long as the truths."""
    return law.random_starts(
        key,
        population,
        num_trials=num_trials,
        num_models=len(population.num_clients),
        scale=separation / math.sqrt(2 * population.num_features),
    )


def random_starts(
    generator: np.random.Generator,
    number: int,
    *,
    num_clusters: int,
    num_features: int,
    separation: float,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Blocks of such starts: their coordinates along the truths, `[starts, models,
    clusters]`, and the squared length of what is outside, `[starts, models]`."""
    scale = separation / math.sqrt(2) / math.sqrt(num_features)
    for first in range(0, number, 20_000):
        size = min(20_000, number - first)
        along = scale * generator.standard_normal((size, num_clusters, num_clusters))
        rest = np.zeros((size, num_clusters))
        if num_features > num_clusters:
            freedom = num_features - num_clusters
            rest = scale**2 * generator.chisquare(freedom, (size, num_clusters))
        yield along, rest


def own_distances(
    population: law.Population, models: Float[np.ndarray, "*trials models frame"]
) -> Float[np.ndarray, "*trials models"]:
    """Distance of model j from truth j."""
    return np.diagonal(law.distances(population.truths, models), axis1=-2, axis2=-1)


def misassigned(
    counts: Float[np.ndarray, "*trials 2 2"],
) -> Float[np.ndarray, "*trials 2"]:
    """Clients of each of two clusters that chose the other one's model."""
    return counts[..., [0, 1], [1, 0]]


def separating(
    distances: Float[np.ndarray, "*trials clusters models"],
) -> Bool[np.ndarray, "*trials"]:
    """Whether every truth has a nearest model of its own (a Voronoi-separating start);
    never with a NaN."""
    nearest = np.argmin(distances, axis=-1)
    apart = np.all(np.sort(nearest, axis=-1) == np.arange(distances.shape[-1]), axis=-1)
    return apart & np.all(np.isfinite(distances), axis=(-2, -1))


def succeeded(
    population: law.Population, trace: law.Trace, separation: float
) -> Bool[np.ndarray, " trials"]:
    """Whether every truth ends with a close model of its own."""
    last = law.distances(population.truths, trace.models[:, -1])
    return separating(last) & (last.min(axis=-1).max(axis=-1) <= CLOSE * separation)
