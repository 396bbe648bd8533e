"""Figure 3's cells with fresh data in every round, exactly in law.

The second curve beside the published one, in which all rounds meet the same data: the
gap between them is what using data again costs. Two things are not as in the data's
curve. A round's identities are estimated on n fresh samples of each client, and its
gradients on n others, independent of them (Ghosh et al., section 5, whose folds hold n
samples here). And every run of a trial, one for each restart and step size, meets data
of its own; the runs of one trial share true models and starts alone.

Trial i draws the same true models, starts and keys in every cell of one size, from
`fold_in(fold_in(key(seed), STREAM), i)`: none of the keys of the trials on data. Truths
and starts cost O(k d) bits and one basis of d vectors once for each trial and
convention; a round costs nothing in n or d. Distances are computed once for each cell
and kept in one file for each; they are judged as those of the data are.
"""

import concurrent.futures
import dataclasses
import functools
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from cfljax import engine, law, metrics
from cfljax.base import Convention, bernoulli_models
from cfljax.engine import Bar, kept
from cfljax.intervals import divide
from experiments.ifca.fig3_table import AXES, counts
from experiments.ifca.fig3_trial import Trial, thresholds, within

REVISION = 1  # To be raised whenever a trial of the same fields changes its law.
STREAM = 2**32 - 1  # Above the number of any trial on data.

Distances = Float[np.ndarray, "trial restart step_size"]


def distances(
    trial: Trial,
    step_sizes: Float[np.ndarray, " step_size"],
    *,
    num_trials: int,
    seed: int,
) -> Float[np.ndarray, "trial restart step_size"]:
    """Mean matched distance to the truth after the last round of every run, not finite
    where a model diverged. The seed is that of all trials.
    """
    clusters, steps = trial.num_clusters, np.asarray(step_sizes, float)
    relative = trial.init_unit == "separation"
    scale = trial.init_scale * (trial.separation if relative else 1.0)
    final, truths = [], []
    for index in range(num_trials):
        unit_truths, unit_starts = _unit_vectors(
            (trial.convention, trial.convention if relative else "reference"),
            (clusters, trial.num_features, trial.num_restarts),
            seed,
            index,
        )
        population = law.population(
            trial.separation * unit_truths,
            num_models=clusters,
            num_clients=np.full(clusters, trial.num_clients // clusters),
            num_samples=_samples_per_use(trial),
            num_features=trial.num_features,
            noise=trial.noise,
        )
        starts = law.place(
            trial.separation * unit_truths,
            scale * unit_starts,
            num_features=trial.num_features,
        )
        trace = law.simulate(
            _keys(seed, index)[2],
            population,
            np.repeat(starts, len(steps), axis=0),
            num_trials=trial.num_restarts * len(steps),
            num_rounds=trial.num_rounds,
            step_size=np.tile(steps, trial.num_restarts),
            divisor=trial.normalise,
        )
        final.append(trace.models[:, -1])
        truths.append(population.truths)
    return _matched(np.stack(final), np.stack(truths)).reshape(
        num_trials, trial.num_restarts, len(steps)
    )


def _samples_per_use(trial: Trial) -> int:
    """Samples a client draws afresh to choose, and again for its gradient: n, or with
    `trial.resample` what it has there, so that both curves have one law.
    """
    return trial.num_samples // (2 * trial.num_rounds if trial.resample else 1)


@functools.lru_cache(maxsize=1000)
def _unit_vectors(
    conventions: tuple[Convention, Convention],
    sizes: tuple[int, int, int],
    seed: int,
    index: int,
) -> tuple[Float[np.ndarray, "clusters frame"], Float[np.ndarray, "..."]]:
    """Truths and starts of scale 1 in their frame, of these conventions; sizes are
    clusters, features and restarts."""
    clusters, features, restarts = sizes
    truths_key, starts_key, _ = _keys(seed, index)
    with jax.enable_x64(True):
        draw = functools.partial(bernoulli_models, num_features=features, scale=1.0)
        truths, starts = (
            np.asarray(draw(key, num_models=number, convention=convention))
            for key, number, convention in zip(
                (truths_key, starts_key),
                (clusters, restarts * clusters),
                conventions,
                strict=True,
            )
        )
    starts = starts.reshape(restarts, clusters, features)
    framed = law.population(
        truths,
        num_models=clusters,
        num_clients=np.ones(clusters),
        num_samples=1,
        num_features=features,
        noise=0,
    ).truths
    return framed, law.place(truths, starts, num_features=features)


def _keys(seed: int, index: int) -> Any:
    """Keys of a trial's truths, of its starts and of its rounds."""
    stream = jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), STREAM)
    return jax.random.split(jax.random.fold_in(stream, index), 3)


def _matched(
    models: Float[np.ndarray, "trial run clusters frame"],
    truths: Float[np.ndarray, "trial clusters frame"],
) -> Float[np.ndarray, "trial run"]:
    with jax.enable_x64(True):
        runs = jax.vmap(metrics.centre_distance, in_axes=(0, None))
        return np.asarray(jax.vmap(runs)(*jax.device_put((models, truths))))


def sweep(
    grid: engine.Grid, folder: pathlib.Path, *, progress: bool = False
) -> list[Distances]:
    """Distances of every cell of a panel's grid, in the order of `grid.cells()`.

    Each cell is one file of the folder, see `kept`: a sweep that was killed
    resumes, and several may share the folder. The grid's revision counts for nothing.
    """
    cells = grid.cells()
    with (
        Bar(f"{grid.experiment} (law)", visible=progress) as bar,
        # One cell keeps one core busy.
        concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool,
    ):
        bar.expect(len(cells) * grid.num_trials)
        jobs = [pool.submit(_stored, grid, cell.trial, folder) for cell in cells]
        try:
            for job in concurrent.futures.as_completed(jobs):
                job.result()
                bar.advance(grid.num_trials)
        except BaseException:  # Or those that have not begun would be waited for.
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [job.result() for job in jobs]


def _stored(grid: engine.Grid, trial: Trial, folder: pathlib.Path) -> Distances:
    steps = np.asarray(grid.coords["step_size"], float)
    # How the runs on data are computed is no matter here.
    law = dataclasses.replace(trial, shortcuts=False, decide=False, tolerance=0.0)
    identity = (
        dataclasses.asdict(law)
        | {"step_sizes": steps.tolist(), "num_trials": grid.num_trials}
        | {"seed": grid.seed, "revision": REVISION}
    )

    def compute() -> dict[str, Any]:
        own = distances(trial, steps, num_trials=grid.num_trials, seed=grid.seed)
        return {"distance": own}

    return kept.remembered(folder, identity, compute)["distance"]


def rows(
    grid: engine.Grid,
    found: Sequence[Distances],
    *,
    tolerance: float,
    error_rate: float,
) -> list[dict[str, Any]]:
    """One row for each cell that `sweep` gave: successes by the paper's criterion,
    columns as in `fig3_table.rows`. The error rate is that of all intervals together.
    """
    cells = grid.cells()
    cell_rate = divide(error_rate, len(cells))
    step_sizes = np.asarray(grid.coords["step_size"])
    table = []
    for cell, distance in zip(cells, found, strict=True):
        trial: Trial = cell.trial
        threshold = thresholds(trial, tolerance)["paper"]
        success = within(distance, threshold)
        table.append(
            {name: getattr(trial, axis) for axis, name in AXES.items()}
            | {
                "clusters": trial.num_clusters,
                "features": trial.num_features,
                "identity_samples": _samples_per_use(trial),
                "gradient_samples": _samples_per_use(trial),
                "trials": len(success),
            }
            | counts(success, "", step_sizes, cell_rate)
            | {
                "threshold": threshold,
                "interval_error_rate": cell_rate,
                "seed": grid.seed,
            }
        )
    return table
