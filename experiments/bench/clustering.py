"""Speed of one clustering step of CLoVE against scikit-learn and SciPy.

Command:   python -m experiments bench clustering
Target:    1000 clients, 10 models, 10 restarts, matching included: 50 ms, two cores,
           after compilation

Both cluster the same square-root loss vectors by k-means with k-means++ starts, then
match clusters to models at the least sum of losses. Loss vectors are drawn exactly in
law for linear models, near their clusters' truths and far from them.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from cfljax import metrics
from cfljax.algorithms import Grouping, group_clients
from experiments.bench.timing import one_table, timed
from experiments.checks import configuration
from experiments.options import Options

BENCHMARKS = {
    "clustering": {
        "title": "a clustering step of CLoVE against scikit-learn and SciPy"
    },
}


@configuration
class Config:
    """One field, one flag."""

    num_clients: int = 1000  # M.
    num_clusters: int = 10  # K.
    num_restarts: int = 10  # Of k-means.
    num_samples: int = 20  # n, of each client; fewer make the clusters overlap.
    repeats: int = 20  # Times that everything is timed; medians are reported.

    def __post_init__(self) -> None:
        if self.num_clients < self.num_clusters:
            raise ValueError(
                "`num_clients` must be at least `num_clusters`, got "
                f"{self.num_clients} and {self.num_clusters}."
            )


def preset(name: str) -> Config:
    """Both presets are the target."""
    return Config()


def draw(
    config: Config, closeness: float
) -> tuple[Float[np.ndarray, "clients clusters"], Int[np.ndarray, " clients"]]:
    """Losses of models at `closeness` from orthonormal truths, alpha^2 chi2(n)/n each,
    alpha^2 = |theta_j - theta*_k|^2 + 0.01, drawn independently; and true clusters.
    """
    generator = np.random.default_rng(0)
    clusters = np.arange(config.num_clients) % config.num_clusters
    own = clusters[:, None] == np.arange(config.num_clusters)
    squares = np.where(own, closeness**2, 2 + closeness**2) + 0.01
    size = config.num_samples
    return squares * generator.chisquare(size, squares.shape) / size, clusters


def _by_kernel(config: Config, losses: np.ndarray) -> Callable[[], np.ndarray]:
    """The step as CLoVE's rounds take it, compiled."""
    grouping = Grouping(embedding="square_root", num_restarts=config.num_restarts)
    step = jax.jit(lambda key, losses: group_clients(key, losses, grouping))
    on_device = jnp.asarray(losses, np.float32)
    return lambda: np.asarray(step(jax.random.key(0), on_device))


def _by_libraries(config: Config, losses: np.ndarray) -> Callable[[], np.ndarray]:
    """The same by scikit-learn and SciPy."""
    from scipy.optimize import linear_sum_assignment
    from sklearn.cluster import KMeans

    losses = losses.astype(np.float32)

    def job() -> np.ndarray:
        number = config.num_clusters
        means = KMeans(
            n_clusters=number,
            n_init=config.num_restarts,  # pyright: ignore[reportArgumentType]
            max_iter=50,
            random_state=0,
        )
        found = means.fit_predict(np.sqrt(losses))
        costs = np.stack([losses[found == own].sum(axis=0) for own in range(number)])
        return linear_sum_assignment(costs)[1][found]

    return job


def main(config: Config, options: Options) -> dict[str, Any]:
    """Time both in turn; milliseconds and how well they found the clusters."""
    options.out.mkdir(parents=True, exist_ok=True)  # Or hear of it after the timing.
    table = []
    for name, closeness in (("near their truths", 0.25), ("half way", 1.0)):
        losses, clusters = draw(config, closeness)
        jobs = {
            "cfljax": _by_kernel(config, losses),
            "scikit-learn and SciPy": _by_libraries(config, losses),
        }
        found = {what: job() for what, job in jobs.items()}  # Compiles.
        times = timed(jobs, repeats=config.repeats, is_warm=True)
        ms = {what: 1e3 * own.median for what, own in times.items()}
        for what in jobs:
            index = metrics.adjusted_rand_index(
                jnp.asarray(found[what]), jnp.asarray(clusters), config.num_clusters
            )
            table.append(
                {
                    "models": name,
                    "what": what,
                    "ms": ms[what],
                    "its time / cfljax": ms[what] / ms["cfljax"],
                    "ARI": float(index),
                }
            )
    settings = (
        f"{config.num_clients} clients, {config.num_clusters} models, "
        f"{config.num_restarts} restarts, medians of {config.repeats}, "
        f"{jax.devices()[0].device_kind}"
    )
    return one_table("clustering", settings, table, options)
