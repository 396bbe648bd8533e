"""Data and starts of one trial of Figure 3, drawn as its trials draw them."""

import functools
from typing import NamedTuple

import jax
from jaxtyping import Array, Float, PRNGKeyArray

from cfljax.types import Truth
from experiments.ifca.success import Trial, draw_data, draw_starts, draw_truth

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
    data, truth = draw_data(trial, data_key)
    starts = draw_starts(trial, runs_key)
    return Drawn(data.inputs, data.targets, truth, starts)


def true_models(trial: Trial, key: PRNGKeyArray) -> tuple[Truth, PRNGKeyArray]:
    """The truth of `draw` alone, and the key of its samples."""
    data_key, _ = jax.random.split(key)
    return draw_truth(trial, data_key)
