"""Trials of one-shot recovery: the library's k-means on loss vectors of known law.

All trials with the same K go through one loop that is compiled once: they are filled
up to the largest of them, with rows of NaN, which k-means leaves out, and with columns
of zeros, which move no distance.
"""

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from threadpoolctl import threadpool_limits

from cfljax.kernels.spectral import spectral_k_means

__all__ = ["is_fixed_point", "recovered"]

_AT_A_TIME = 50  # trials
_RESTARTS = 5

Points = Float[np.ndarray, "_ _ _"]  # clusters, members, models


def recovered(
    generator: np.random.Generator, trials: Sequence[Points]
) -> Bool[np.ndarray, " trials"]:
    """Whether k-means finds the clusters of each trial, without any mistake.

    With Kumar and Kannan's start, for which the theorem is stated.

    Args:
      generator: of the starts.
      trials: points by true cluster; sizes may differ.
    """
    numbers = np.array([len(trial) for trial in trials])
    found = np.zeros(len(trials), bool)
    for number in np.unique(numbers):
        places = np.flatnonzero(numbers == number)
        filled = _filled([trials[int(place)] for place in places])
        labels = _clustered(generator, filled)[: len(places)]
        present = np.isfinite(filled[: len(places), ..., 0])
        found[places] = _is_partition(labels, present)
    return found


def _filled(
    trials: Sequence[Points],
) -> Float[np.ndarray, "trials clusters members models"]:
    """All trials in one array, and empty ones up to a multiple of the loop's length."""
    members = max(trial.shape[1] for trial in trials)
    models = max(trial.shape[2] for trial in trials)
    count = -(-len(trials) // _AT_A_TIME) * _AT_A_TIME
    filled = np.full((count, len(trials[0]), members, models), np.nan)
    for place, trial in zip(filled, trials, strict=False):
        place[:, : trial.shape[1]] = 0
        place[:, : trial.shape[1], : trial.shape[2]] = trial
    return filled


def _clustered(
    generator: np.random.Generator,
    filled: Float[np.ndarray, "trials clusters members models"],
) -> Int[np.ndarray, "trials clusters members"]:
    """Cluster of each point, negative for those that are not there."""
    count, number, members, models = filled.shape
    body, found = _one_trial(number), []
    # Many small decompositions: threads would wait for each other most of the time.
    with jax.enable_x64(True), threadpool_limits(1, "blas"):
        key = jax.random.key(int(generator.integers(2**31)))
        keys = jax.random.split(key, count)
        for first in range(0, count, _AT_A_TIME):
            part = slice(first, first + _AT_A_TIME)
            points = filled[part].reshape(_AT_A_TIME, number * members, models)
            _, labels = jax.lax.scan(body, None, (keys[part], jnp.asarray(points)))
            found.append(np.asarray(labels))
    return np.concatenate(found).reshape(count, number, members)


@functools.cache
def _one_trial(number: int) -> Callable[[None, tuple[Array, Array]], tuple]:
    """The loop's body: one object for each K, as each new one is compiled again."""

    def body(carry: None, trial: tuple[Array, Array]) -> tuple[None, Array]:
        found = spectral_k_means(*trial, number, num_restarts=_RESTARTS)
        return carry, found.assignment

    return body


def _is_partition(
    labels: Int[np.ndarray, "trials clusters members"],
    present: Bool[np.ndarray, "trials clusters members"],
) -> Bool[np.ndarray, " trials"]:
    """Whether each true cluster has one label, and no two have the same."""
    first = labels[:, :, :1]
    together = np.all((labels == first) | ~present, axis=(1, 2))
    ranked = np.sort(first[:, :, 0], axis=1)
    apart = np.all(np.diff(ranked, axis=1) > 0, axis=1)
    return together & apart & (ranked[:, 0] >= 0)


def is_fixed_point(points: Float[np.ndarray, "clusters members models"]) -> bool:
    """Whether Lloyd's iterations stay where they are at the true clusters.

    If not, no k-means ends there, however its centres are initialised.
    """
    means = np.mean(points, axis=1)
    # Without the point's own square, which is the same for all means.
    scores = np.sum(means**2, axis=1) - 2 * points @ means.T
    own = np.arange(len(means))[:, None]
    return bool(np.all(np.argmin(scores, axis=-1) == own))
