"""One trial of CLoVE's Figure 3: who finds clusters of nearby linear models."""

import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from cfljax import engine, metrics
from cfljax.algorithms import clove, ifca, k_fed
from cfljax.data import nearby_linear
from cfljax.kernels.checks import check_member
from cfljax.kernels.distance import euclidean, least_distance
from cfljax.models import linear
from cfljax.types import Algorithm, Task

__all__ = ["DIMS", "Method", "Trial", "simulate"]

Method = Literal["clove", "ifca", "k_fed"]

# Outputs of a trial and the names of their own axes.
DIMS: dict[str, tuple[str, ...]] = {
    "rand_index": ("round",),  # ARI of the assignment that a round trained
    "least_distance": (),  # of two true models, in units of the separation
    "largest_distance": (),
}


@dataclasses.dataclass(frozen=True)
class Trial:
    """Everything that one trial's law depends on.

    separation, noise and step_size are traced by the engine; the rest is static.
    """

    method: Method
    separation: float
    noise: float
    num_clients: int
    num_clusters: int
    num_samples: int
    num_features: int
    num_rounds: int
    num_steps: int
    step_size: float

    def __post_init__(self) -> None:
        check_member(Method, method=self.method)


def simulate(trial: Trial, key: PRNGKeyArray, _: None = None) -> dict[str, Array]:
    """One data set, and one run from random unit vectors: the arrays of `DIMS`.

    Methods share the data of a trial, separations and noises the random numbers.

    Args:
      trial: its parameters.
      key: splits into the keys of data and run.
    """
    data_key, run_key = jax.random.split(key)
    data, truth = nearby_linear(
        data_key,
        num_clients=trial.num_clients,
        num_clusters=trial.num_clusters,
        num_samples=trial.num_samples,
        num_features=trial.num_features,
        separation=trial.separation,
        noise=trial.noise,
    )

    def observe(state: Any, info: Any) -> Array:
        del state
        found = metrics.adjusted_rand_index(
            info.assignment, truth.clusters, trial.num_clusters
        )
        # Clients that no model has a finite loss for are no clustering.
        return jnp.where(jnp.all(info.assignment >= 0), found, jnp.nan)

    # A clustering that is made once is the same in every round.
    num_rounds = 1 if trial.method == "k_fed" else trial.num_rounds
    _, found = engine.run(
        _algorithm(trial), run_key, data, num_rounds=num_rounds, observe=observe
    )
    distances = euclidean(truth.models, truth.models)
    return {
        "rand_index": jnp.broadcast_to(found, (trial.num_rounds,)),
        "least_distance": least_distance(truth.models) / trial.separation,
        "largest_distance": jnp.max(distances) / trial.separation,
    }


def _algorithm(trial: Trial) -> Algorithm:
    """The method, with full batches: an epoch is a step."""
    task = _task(trial.num_features)
    common: dict[str, Any] = {
        "num_clusters": trial.num_clusters,
        "step_size": trial.step_size,
    }
    if trial.method == "k_fed":
        return k_fed(task, **common)
    common["num_steps"] = trial.num_steps
    if trial.method == "ifca":
        return ifca(task, option="model", **common)
    return clove(task, **common)


def _task(num_features: int) -> Task:
    """Linear regression that starts from random unit vectors."""

    def init(key: PRNGKeyArray) -> Array:
        start = jax.random.normal(key, (num_features,))
        return start / jnp.linalg.norm(start)

    return linear(num_features)._replace(init=init)
