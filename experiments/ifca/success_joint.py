"""Trials of the success-probability experiment that share a data set, all at once.

Trial i draws the same inputs and noise in all cells of one size (`fig3`), so that the
runs of all these cells meet the same samples in the same products, and share what is
computed once for a data set (`cfljax.shortcuts`). Every run ends where `success.
simulate` would have it end.
"""

import dataclasses
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from cfljax import shortcuts
from cfljax.data.linear import linear_targets
from cfljax.kernels.distance import bottleneck_distance, least_distance
from cfljax.shortcuts.certificate import choose
from cfljax.types import Truth
from experiments.ifca.success import (
    Trial,
    draw_starts,
    draw_truth,
    judge,
    mean_lowest_loss,
)
from experiments.ifca.success_criteria import (
    CRITERIA,
    sizes,
    stability_bound,
    thresholds,
)

__all__ = ["promise", "shares", "simulate_jointly"]

# Share of a limit that a distance must stay below it to decide a trial.
_SPARE = 1e-5

# What cells may differ in and still draw the same inputs and noise.
OWN = ("convention", "separation", "noise", "init_scale", "init_unit", "tolerance")


def shares(trial: Trial) -> Hashable:
    """Trials that give the same draw the same inputs and noise from the same key."""
    fields = ((f.name, getattr(trial, f.name)) for f in dataclasses.fields(trial))
    return tuple((name, value) for name, value in fields if name not in OWN)


class _Cell(NamedTuple):
    """One trial's own part.

    trial: its fields.
    truth: clusters and models.
    samples_key: of its samples, the same for all cells.
    starts: `[restarts, clusters, features]`.
    """

    trial: Trial
    truth: Truth
    samples_key: PRNGKeyArray
    starts: Float[np.ndarray, "restarts clusters features"]


def simulate_jointly(
    trials: Sequence[Trial], key: PRNGKeyArray, step_sizes: Float[Array, " step_size"]
) -> list[dict[str, np.ndarray]]:
    """`success.simulate` of trials that `shares` calls alike.

    Args:
      trials: at least one.
      key: of the trial index.
      step_sizes: gamma, one run for each restart.

    Returns:
      The arrays of `success.DIMS` for every trial. With `decide`, runs that were not
      followed to their end are NaN, and 0 in `followed`; a run that lost a model for
      ever ends there, a failure, with what it had.
    """
    data_key, runs_key = jax.random.split(key)
    cells = [_cell(trial, data_key, runs_key) for trial in trials]
    samples = _samples(cells)
    shape = (len(cells), *cells[0].starts.shape[:1], len(step_sizes))
    problem, restart, step = (index.ravel() for index in np.indices(shape))
    all_starts = np.stack([cell.starts for cell in cells])
    gammas = np.asarray(step_sizes)
    first = trials[0]
    ends = shortcuts.run_ifca(
        samples,
        all_starts[problem, restart],
        problem,
        gammas[step],
        num_rounds=first.num_rounds,
        normalise=first.normalise,
        finished=_decide(cells, problem) if first.decide else None,
        turns=promise(first, gammas)[step] if first.decide else None,
        gives_up=first.decide,
    )
    start = shortcuts.run_ifca(
        samples,
        all_starts.reshape(-1, *all_starts.shape[2:]),
        np.repeat(np.arange(len(cells)), shape[1]),
        np.zeros(len(cells) * shape[1]),
        num_rounds=0,
    )
    by_cell = lambda values: values.reshape(len(cells), -1, *values.shape[1:])
    models, losses, done = map(by_cell, (ends.models, ends.losses, ends.is_done))
    first_losses = by_cell(start.losses)
    return [
        _outcomes(cell, models[i], losses[i], done[i], shape[1:])
        | _beginning(cell, first_losses[i])
        for i, cell in enumerate(cells)
    ]


def _cell(trial: Trial, data_key: PRNGKeyArray, runs_key: PRNGKeyArray) -> _Cell:
    truth, samples_key = draw_truth(trial, data_key)
    starts = np.asarray(draw_starts(trial, runs_key))
    return _Cell(trial, truth, samples_key, starts)


def _samples(cells: Sequence[_Cell]) -> shortcuts.Samples:
    first = cells[0].trial
    inputs, errors = shortcuts.draw_samples(
        cells[0].samples_key,
        num_clients=first.num_clients,
        num_samples=first.num_samples,
        num_features=first.num_features,
    )
    targets = [
        linear_targets(inputs, errors, cell.truth, cell.trial.noise) for cell in cells
    ]
    clusters = np.asarray(cells[0].truth.clusters)
    return shortcuts.prepare(inputs, jnp.stack(targets), clusters)


def promise(trial: Trial, step_sizes: Float[np.ndarray, " step_size"]) -> np.ndarray:
    """Turns of the step sizes: the largest stable one first, unstable ones last."""
    bound = stability_bound(**sizes(trial))
    values = np.asarray(step_sizes).tolist()
    order = sorted(range(len(values)), key=lambda i: _haste(values[i], bound))
    return np.argsort(order)


def _haste(step_size: float, bound: float) -> tuple[bool, float]:
    is_stable = step_size < bound
    return not is_stable, -step_size if is_stable else step_size


def _decide(
    cells: Sequence[_Cell], problem: Int[np.ndarray, " runs"]
) -> Callable[[int, np.ndarray, np.ndarray], Iterable[int]]:
    """Tells the schedule which runs cannot change their trial's outcome any more.

    A trial succeeds under a criterion if one of its runs does. Once every criterion
    has been met by some run, no other run can add to that.
    """
    limits = [thresholds(cell.trial, cell.trial.tolerance) for cell in cells]
    possible = [
        [name for name in CRITERIA if own.get(name, 0) > -math.inf] for own in limits
    ]
    met = [dict.fromkeys(names, False) for names in possible]

    def finished(run: int, models: np.ndarray, losses: np.ndarray) -> Iterable[int]:
        index = int(problem[run])
        for name in _surely_met(cells[index].truth, models, losses, limits[index]):
            if name in met[index]:
                met[index][name] = True
        is_decided = all(met[index].values())
        return np.flatnonzero(problem == index).tolist() if is_decided else ()

    return finished


def _surely_met(
    truth: Truth,
    models: Float[np.ndarray, "clusters features"],
    losses: Float[np.ndarray, "clusters clients"],
    limits: Mapping[str, float],
) -> list[str]:
    """Criteria that a run meets, with room for what rounding makes of its distance."""
    from scipy.optimize import linear_sum_assignment

    if not np.all(np.isfinite(models)):
        return []
    apart = np.asarray(models)[:, None] - np.asarray(truth.models)[None]
    distances = np.linalg.norm(apart.astype(np.float64), axis=2)
    matched = np.mean(distances[linear_sum_assignment(distances)])
    if not matched <= np.finfo(np.float32).max:  # As `judge` has it.
        return []
    found = [name for name, limit in limits.items() if matched <= (1 - _SPARE) * limit]
    clusters = np.asarray(truth.clusters)
    (assignment,) = choose(losses[None])
    pairs = np.unique(np.stack([clusters, assignment]), axis=1)
    is_whole = np.all(assignment >= 0)  # A client without a model has not recovered.
    if is_whole and len(pairs.T) == len(models) == len(np.unique(assignment)):
        found.append("recovery")
    return found


def _outcomes(
    cell: _Cell,
    models: Float[np.ndarray, "runs clusters features"],
    losses: Float[np.ndarray, "runs clusters clients"],
    is_done: np.ndarray,
    shape: tuple[int, ...],
) -> dict[str, np.ndarray]:
    """What `success.judge` keeps of runs, NaN of those that were left alone."""
    over_runs = jax.vmap(lambda own, seen: judge(cell.truth, own, seen.T))
    found = over_runs(jnp.asarray(models), jnp.asarray(losses))
    kept = {
        name: np.where(is_done, np.asarray(values, np.float32), np.nan).reshape(shape)
        for name, values in found.items()
    }
    return kept | {"followed": is_done.astype(np.float32).reshape(shape)}


def _beginning(
    cell: _Cell, losses: Float[np.ndarray, "restarts clusters clients"]
) -> dict[str, np.ndarray]:
    gap = least_distance(cell.truth.models)
    worst = jax.vmap(bottleneck_distance, in_axes=(0, None))(
        jnp.asarray(cell.starts), cell.truth.models
    )
    first = jax.vmap(lambda own: mean_lowest_loss(own.T))(jnp.asarray(losses))
    return {
        "first_loss": np.asarray(first),
        "alpha": np.asarray(0.5 - worst / gap),
        "gap": np.asarray(gap),
    }
