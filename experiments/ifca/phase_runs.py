"""Runs of IFCA at one setting of its phase diagram: on fresh folds, or on one data set.

k equal clusters with equidistant truths, in units of the noise (sigma = 1: both
algorithms are scale equivariant). Model j starts at a given distance from truth j in a
direction of its own, uniformly at random, and is held against truth j alone: as in
Theorem 1 of Ghosh et al., and in their mean distance (1/k) sum |theta_j - theta_j*|.

Fresh folds: n' new samples of each client to choose, n' others for the gradient, in
every round, exactly in law by `law.simulate`. Re-used data (section 6.1): the same n'
samples in all rounds, for both. Only the triangular factor of a client's [X, noise]
matters there; from n' > d on it is drawn by Bartlett's decomposition, exactly in law,
so that a trial never costs more than d + 1 samples of each client.

Trial i draws from its index and the seed alone, at every setting: settings differ by
what they are and not by luck, and nothing depends on how runs are grouped.
"""

import concurrent.futures
import dataclasses
import functools
import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float, Int, UInt8

from cfljax import law
from experiments.reviews import exact_law, fixed_data, study

NEAR_FACTOR = 0.6  # Of sigma: the paper's criterion for the mean distance.
FAR_FACTOR = 10.0  # Of start + separation + noise: what is beyond has diverged.
CHUNK = 250  # Trials of a compiled call: a few megabytes, and the fastest.
MOST_NUMBERS = 2**27  # Of one data set: 1 GiB.
_STARTS, _FRESH, _REUSED = range(3)  # Streams of random numbers.

# Bits of a run's outcome.
NEAR, RECOVERED, RELABELLED, DIVERGED = (1 << place for place in range(4))


@dataclasses.dataclass(frozen=True)
class Setting:
    """Where runs are made; m, n' and d are whole numbers, but for predictions."""

    separation: float  # Delta / sigma, of any two truths.
    num_samples: int | float  # n', of a client in a fold.
    num_clients: int | float  # m.
    num_features: int | float  # d.
    start: float  # |theta_j - theta_j*| / Delta at the beginning.
    num_clusters: int  # k.
    step: float  # c1 = gamma p, with p = 1/k.
    num_rounds: int  # T.

    @property
    def members(self) -> float:
        """Clients of each cluster."""
        return self.num_clients / self.num_clusters

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Clients, samples and features, which data sets are alike in."""
        return int(self.num_clients), int(self.num_samples), int(self.num_features)

    @property
    def numbers(self) -> int:
        """Of one data set."""
        clients, samples, features = self.sizes
        return clients * min(samples, features + 1) * (features + 1)


Outcomes = UInt8[np.ndarray, "settings trials"]


def succeeded(outcomes: UInt8[np.ndarray, "..."]) -> Bool[np.ndarray, "..."]:
    """Within 0.6 sigma of the truths, and every client chose its own cluster's model in
    the last round. A run that diverged never has, nor one that swapped its labels."""
    both = NEAR | RECOVERED
    return (outcomes & (both | DIVERGED)) == both


def outcomes(
    settings: Setting,
    distances: Float[np.ndarray, "*runs models"],
    counts: Float[np.ndarray, "*runs clusters models"],
) -> UInt8[np.ndarray, "*runs"]:
    """Bits of each run.

    Args:
      settings: of all of them.
      distances: |theta_j - theta_j*| behind the last round.
      counts: clients of each cluster that chose each model in the last round.
    """
    mean = np.mean(distances, axis=-1)
    reach = (1 + settings.start) * settings.separation + 1
    at_home = counts == settings.members * np.eye(settings.num_clusters)
    own = np.all(at_home, axis=(-2, -1))
    full = counts == settings.members
    alone = np.all(np.sum(full, axis=-1) == 1, axis=-1)
    bits = {
        NEAR: np.isfinite(mean) & (mean <= NEAR_FACTOR),
        RECOVERED: own,
        RELABELLED: alone & np.all(np.sum(full, axis=-2) == 1, axis=-1) & ~own,
        DIVERGED: ~(mean <= FAR_FACTOR * reach),
    }
    whole = [np.where(found, np.uint8(bit), 0) for bit, found in bits.items()]
    return np.asarray(np.sum(whole, axis=0), np.uint8)


def fresh(
    settings: Sequence[Setting], *, num_trials: int, seed: int, chunk: int | None = None
) -> Outcomes:
    """Runs on fresh folds. Cost: nothing in n' and d; for two clusters nothing in m.

    Args:
      settings: of the same number of clusters; those whose numbers alone differ share
        one compilation.
      num_trials: of each setting.
      seed: of all trials.
      chunk: trials of a compiled call, at most; changes no result.
    """
    one = functools.partial(
        _fresh, num_trials=num_trials, seed=seed, chunk=min(chunk or CHUNK, num_trials)
    )
    return np.stack(_side_by_side(one, settings))


def _side_by_side(one: Callable[[Any], Any], arguments: Sequence[Any]) -> list[Any]:
    """`one` of each argument; one keeps one core busy."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(one, argument) for argument in arguments]
        try:
            return [job.result() for job in jobs]
        except BaseException:  # Or those that have not begun would be waited for.
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _fresh(
    setting: Setting, *, num_trials: int, seed: int, chunk: int
) -> UInt8[np.ndarray, " trials"]:
    clusters = setting.num_clusters
    own = exact_law.population({**dataclasses.asdict(setting), "noise": 1.0}, clusters)
    length = setting.start * setting.separation
    found = []
    for first in range(0, num_trials, chunk):
        # The last call is of as many trials, so that it compiles nothing.
        which: Any = {"num_trials": chunk, "first_trial": first}
        away = law.random_starts(
            _key(seed, _STARTS), own, num_models=clusters, scale=1.0, **which
        )
        away *= length / np.linalg.norm(away, axis=-1, keepdims=True)
        trace = law.simulate(
            _key(seed, _FRESH),
            own,
            own.truths + away,
            num_rounds=setting.num_rounds,
            step_size=setting.step * clusters,
            **which,
        )
        distances = exact_law.own_distances(own, trace.models[:, -1])
        found.append(outcomes(setting, distances, trace.counts[:, -1]))
    return np.concatenate(found)[:num_trials]


def _key(seed: int, stream: int) -> Any:
    return jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), stream)


def reused(settings: Sequence[Setting], *, num_trials: int, seed: int) -> Outcomes:
    """Runs on one data set each; settings of the same sizes share theirs.

    Cost of a trial: m (d + 1) min(n', d + 1) normal variables, and in every round two
    products of that size with all models of all settings.

    Args:
      settings: of equal `sizes`, clusters, steps and rounds.
      num_trials: of each setting.
      seed: of all trials.
    """
    one = functools.partial(_reused, settings, seed=seed)
    return np.stack(_side_by_side(one, range(num_trials)), axis=-1)


def _reused(
    settings: Sequence[Setting], trial: int, *, seed: int
) -> UInt8[np.ndarray, " settings"]:
    shared = settings[0]
    clients, samples, features = shared.sizes
    random = study.generator(seed, _REUSED, trial)
    away = random.standard_normal((shared.num_clusters, features))
    away /= np.linalg.norm(away, axis=-1, keepdims=True)
    rows = draw_factors(random, clients, samples, features)
    rows = rows.reshape(shared.num_clusters, -1, *rows.shape[1:])
    truths = np.stack([_truths(setting) for setting in settings])
    lengths = np.array([setting.start * setting.separation for setting in settings])
    models = truths + lengths[:, None, None] * away
    counts = np.zeros((len(settings), shared.num_clusters, shared.num_clusters))
    scale = 2 * shared.step * shared.num_clusters / (clients * samples)
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(shared.num_rounds):
            total = np.zeros_like(models)
            for cluster, own in enumerate(rows):
                gradient, chosen = _descend(own, models - truths[:, None, cluster])
                total += gradient
                counts[:, cluster] = chosen
            models = models - scale * total
        distances = np.linalg.norm(models - truths, axis=-1)
    ends = zip(settings, distances, counts, strict=True)
    return np.array([outcomes(*end) for end in ends], np.uint8)


def _truths(setting: Setting) -> Float[np.ndarray, "clusters features"]:
    sizes = setting.num_clusters, int(setting.num_features)
    return exact_law.truths(*sizes, separation=setting.separation)


def draw_factors(
    random: np.random.Generator, num_clients: int, num_samples: int, num_features: int
) -> Float[np.ndarray, "clients rows columns"]:
    """[X, noise] of every client, up to a rotation of its n' rows: at most d + 1 rows.

    All that a run sees of them are X'X, X'noise and noise'noise, whose law is
    Wishart's: for n' > d, that of Bartlett's upper triangular factor. In float32, as
    the paper's runs: in half of the time.
    """
    columns = num_features + 1
    shape = (num_clients, min(num_samples, columns), columns)
    rows = random.standard_normal(shape, np.float32)
    if num_samples >= columns:
        place = np.arange(columns)
        rows = np.triu(rows)
        chi = random.chisquare(num_samples - place, (num_clients, columns))
        rows[:, place, place] = np.sqrt(chi)
    return rows


def _descend(
    rows: Float[np.ndarray, "members rows columns"],
    errors: Float[np.ndarray, "settings models features"],
) -> tuple[
    Float[np.ndarray, "settings models features"],
    Int[np.ndarray, "settings models"],
]:
    """Of one cluster's clients the sum of X'(X e - noise) for each model e, over those
    who choose it by their loss, and how many they are."""
    members, height, columns = rows.shape
    flat = rows.reshape(-1, columns)
    number = math.prod(errors.shape[:2])
    flat_errors = errors.reshape(number, -1).astype(np.float32)
    residuals = flat[:, :-1] @ flat_errors.T - flat[:, -1:]
    residuals = residuals.reshape(members, height, *errors.shape[:2])
    chosen = fixed_data.assign(np.sum(residuals**2, axis=1))
    is_own = chosen[..., None] == np.arange(errors.shape[1])
    residuals = np.where(is_own[:, None], residuals, np.float32(0))
    gradient = residuals.reshape(-1, number).T @ flat[:, :-1]
    return gradient.reshape(errors.shape), np.sum(is_own, axis=0)
