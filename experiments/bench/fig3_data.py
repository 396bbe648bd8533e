"""Data and starts of one trial of Figure 3, drawn as its trials draw them."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from cfljax.data import mixed_linear
from cfljax.data.linear import mixed_truth
from cfljax.kernels.training import start_models
from cfljax.types import Truth
from experiments.ifca.success import Trial, start_task

__all__ = ["Drawn", "draw", "trial_key", "true_models"]


class Drawn(NamedTuple):
    """What a trial's runs start with.

    inputs: X of every client.
    targets: y.
    truth: clusters and models.
    starts: first models of every restart.
    """

    inputs: Float[Array, "clients samples features"]
    targets: Float[Array, "clients samples"]
    truth: Truth
    starts: Float[Array, "restarts clusters features"]


def trial_key(seed: int, index: int) -> PRNGKeyArray:
    """The key that a sweep gives to its trial of this index."""
    return jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), index)


@functools.partial(jax.jit, static_argnums=0)
def draw(trial: Trial, key: PRNGKeyArray) -> Drawn:
    """As `success.simulate` draws from the same key.

    Args:
      trial: its parameters.
      key: of the trial.
    """
    data_key, runs_key = jax.random.split(key)
    data, truth = mixed_linear(
        data_key,
        num_clients=trial.num_clients,
        num_clusters=trial.num_clusters,
        num_samples=trial.num_samples,
        num_features=trial.num_features,
        separation=trial.separation,
        noise=trial.noise,
        convention=trial.convention,
    )
    task = start_task(trial)

    def start(index: Array) -> Float[Array, "clusters features"]:
        run_key, _ = jax.random.split(jax.random.fold_in(runs_key, index))
        return start_models(task, run_key, trial.num_clusters)

    starts = jax.vmap(start)(jnp.arange(trial.num_restarts))
    return Drawn(data.inputs, data.targets, truth, starts)


def true_models(trial: Trial, key: PRNGKeyArray) -> tuple[Truth, PRNGKeyArray]:
    """The truth of `draw` alone, and the key of its samples."""
    data_key, _ = jax.random.split(key)
    return mixed_truth(
        data_key,
        num_clients=trial.num_clients,
        num_clusters=trial.num_clusters,
        num_features=trial.num_features,
        separation=trial.separation,
        convention=trial.convention,
    )
