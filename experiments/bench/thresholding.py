"""Speed of Threshold-Clustering and of Federated-Clustering's rounds.

Command:   python -m experiments bench thresholding
Targets:   a round of 300 clients of 200 samples in 16 subgroups, 784-200-10 network, at
           half the rate of bare matrix products or more; 10 clipping rounds of 1000
           centres under 2 s once there is a Gram matrix, whatever the number of
           features, and equal to differences of coordinates within 1e-6 in double
           precision

Everything is timed in turns within one run. The rate counts the products of forward
passes and of gradients of weights, and nothing else: 4 operations for each weight and
sample, but for the second layer, which also passes gradients on.
"""

import math
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from cfljax.algorithms import federated_clustering
from cfljax.base import ClientData
from cfljax.clustering import (
    combine,
    gap_radius,
    gram_matrix,
    quantile_radius,
    threshold_clustering_gram,
)
from cfljax.models import mlp
from experiments.bench.timing import one_table, timed
from experiments.checks import configuration
from experiments.options import Options

BENCHMARKS = {
    "thresholding": {
        "title": "Federated-Clustering's rounds against bare products, and Gram "
        "matrices",
    },
}

_INPUTS, _CLASSES, _SQUARE = 784, 10, 3000


@configuration
class Config:
    """One field, one flag."""

    num_clients: int = 300  # N of Federated-Clustering.
    num_samples: int = 200  # Of each client, all in its gradient.
    num_groups: int = 16  # Random subgroups.
    num_hidden: int = 200  # Width of the hidden layer.
    num_points: int = 1000
    """Points, and as many centres, of the clustering from a Gram matrix."""
    num_features: int = 1_000_000  # d of these points; 8 bytes each.
    num_clipping_rounds: int = 10  # l, clipping rounds of both.
    num_compared: int = 2
    """Centres that are also computed from differences of coordinates."""
    repeats: int = 5  # Times that everything is timed; medians are reported.

    def __post_init__(self) -> None:
        if self.num_groups > self.num_clients:
            raise ValueError(
                "`num_groups` must be at most `num_clients`, got "
                f"{self.num_groups} and {self.num_clients}."
            )


def preset(name: str) -> Config:
    """The targets; "quick" has a tenth of the clients and a hundredth of features."""
    if name == "quick":
        return Config(num_clients=38, num_groups=2, num_features=10_000)
    return Config()


def work(config: Config) -> float:
    """Floating-point operations of a round of Federated-Clustering's products."""
    size, larger = divmod(config.num_clients, config.num_groups)
    pairs = larger * (size + 1) ** 2 + (config.num_groups - larger) * size**2
    weights = 2 * _INPUTS * config.num_hidden + 3 * config.num_hidden * _CLASSES
    return 2.0 * pairs * config.num_samples * weights


def main(config: Config, options: Options) -> dict[str, Any]:
    """Time both; seconds, rates and the largest difference."""
    options.out.mkdir(parents=True, exist_ok=True)  # Or hear of it after the timing.
    table = _rounds(config) + _from_gram(config)
    settings = (
        f"{config.num_clients} x {config.num_samples} in {config.num_groups} groups, "
        f"{config.num_points} points of {config.num_features} features, "
        f"{config.num_clipping_rounds} clipping rounds, medians of {config.repeats}, "
        f"{jax.devices()[0].device_kind}"
    )
    return one_table("thresholding", settings, table, options)


def _rounds(config: Config) -> list[dict[str, Any]]:
    """A round of Federated-Clustering beside one large matrix product."""
    task = mlp((_INPUTS,), hidden=(config.num_hidden,))
    generator = np.random.default_rng(0)
    shape = config.num_clients, config.num_samples
    data = ClientData(
        jnp.asarray(generator.normal(size=(*shape, _INPUTS)), jnp.float32),
        jnp.asarray(generator.integers(0, _CLASSES, shape), jnp.int32),
        jnp.ones(shape, bool),
    )
    algorithm = federated_clustering(
        task,
        step_size=0.1,
        radius=quantile_radius(0.2),
        num_clipping_rounds=config.num_clipping_rounds,
        num_groups=config.num_groups,
    )
    state = jax.jit(algorithm.init)(jax.random.key(0), data)
    step = jax.jit(algorithm.step)
    square = jnp.ones((_SQUARE, _SQUARE), jnp.float32)
    product = jax.jit(lambda matrix: matrix @ matrix)
    jobs = {
        "round": lambda: jax.block_until_ready(step(jax.random.key(1), state, data)),
        "product": lambda: jax.block_until_ready(product(square)),
    }
    times = timed(jobs, repeats=config.repeats)
    rates = {
        "round": work(config) / times["round"].median / 1e9,
        "product": 2.0 * _SQUARE**3 / times["product"].median / 1e9,
    }
    names = {
        "round": "round of Federated-Clustering",
        "product": f"product of {_SQUARE} x {_SQUARE}, float32",
    }
    return [
        _row(name, times[what].median)
        | {
            "GFLOP/s": rates[what],
            "share of the product's rate": rates[what] / rates["product"],
        }
        for what, name in names.items()
    ]


def _from_gram(config: Config) -> list[dict[str, Any]]:
    """Clustering from a Gram matrix, in double precision."""
    points = _points(config)
    half = 0.5 * math.sqrt(config.num_features)
    radii = {
        "fixed radius": half,
        "quantile .2": quantile_radius(0.2),
        "outer gap": gap_radius("outer"),
    }
    table = []
    with jax.enable_x64(True):
        on_device = jnp.asarray(points)
        started = time.perf_counter()
        gram = jax.block_until_ready(jax.jit(gram_matrix)(on_device))
        table.append(_row("Gram matrix (once)", time.perf_counter() - started))
        weights = jnp.eye(config.num_points)
        jobs = {
            name: jax.jit(
                lambda gram, weights, radius=radius: threshold_clustering_gram(
                    gram,
                    weights,
                    num_rounds=config.num_clipping_rounds,
                    radius=radius,
                    centres_per_chunk=100,
                )
            )
            for name, radius in radii.items()
        }
        ready = {
            name: lambda job=job: jax.block_until_ready(job(gram, weights))
            for name, job in jobs.items()
        }
        times = timed(ready, repeats=config.repeats)
        for name in radii:
            difference = None
            if name == "fixed radius":
                found = jobs[name](gram, weights).weights[: config.num_compared]
                own = np.asarray(jax.jit(combine)(found, on_device))
                other = by_coordinates(points, config, float(half))
                sizes = np.linalg.norm(other, axis=1)
                difference = float(np.max(np.linalg.norm(own - other, axis=1) / sizes))
            table.append(_row(f"{name}, all centres", times[name].median, difference))
    return table


def _points(config: Config) -> Float[np.ndarray, "points features"]:
    """Ten clusters, whose points are .42 sqrt(d) apart, and 1.5 sqrt(d) from others."""
    generator = np.random.default_rng(0)
    points = generator.standard_normal((config.num_points, config.num_features))
    points *= 0.3
    centres = generator.standard_normal((10, config.num_features))
    for index in range(config.num_points):
        points[index] += centres[index % 10]
    return points


def by_coordinates(
    points: Float[np.ndarray, "points features"], config: Config, radius: float
) -> Float[np.ndarray, "centres features"]:
    """The first centres by differences of coordinates, in NumPy (equation 4)."""
    centres = points[: config.num_compared].copy()
    for index, centre in enumerate(centres):
        moved = centre
        for _ in range(config.num_clipping_rounds):
            distances = np.array([np.linalg.norm(point - moved) for point in points])
            inside = np.flatnonzero(distances <= radius)
            pull = np.zeros_like(moved)
            for member in inside:
                pull += points[member] - moved
            moved = moved + pull / len(points)
        centres[index] = moved
    return centres


def _row(what: str, seconds: float, difference: float | None = None) -> dict[str, Any]:
    return {
        "what": what,
        "seconds": seconds,
        "GFLOP/s": None,
        "share of the product's rate": None,
        "largest difference": difference,
    }
