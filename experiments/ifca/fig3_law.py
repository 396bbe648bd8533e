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
import hashlib
import json
import os
import pathlib
import zipfile
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from cfljax import engine, law, metrics
from cfljax.base import Convention, bernoulli_models
from cfljax.engine import Bar
from cfljax.intervals import divide
from cfljax.report import replacing
from experiments.ifca.fig3_table import AXES, counts
from experiments.ifca.fig3_trial import Trial, thresholds, within

__all__ = [
    "REVISION",
    "distances",
    "rows",
    "sweep",
]


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
    """Mean matched distance to the truth after the last round of every run.

    Not finite where a model diverged. The seed is that of all trials, of which there
    is at least one.
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
    """Samples that a client draws afresh to choose, and again for its gradient.

    n; with `trial.resample`, whose data are fresh in every round as well, what it has
    there, so that both curves then have one law for each run.
    """
    share = 2 * trial.num_rounds if trial.resample else 1
    return trial.num_samples // share


@functools.lru_cache(maxsize=1000)
def _unit_vectors(
    conventions: tuple[Convention, Convention],
    sizes: tuple[int, int, int],
    seed: int,
    index: int,
) -> tuple[Float[np.ndarray, "clusters frame"], Float[np.ndarray, "..."]]:
    """True models and starts of scale 1 in their frame.

    `conventions` are the truths' and the starts', `sizes` clusters, features and
    restarts, `index` is that of the trial.
    """
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
        return np.asarray(jax.vmap(runs)(jnp.asarray(models), jnp.asarray(truths)))


def sweep(
    grid: engine.Grid, folder: pathlib.Path, *, progress: bool = False
) -> list[Distances]:
    """Distances of every cell of a panel's grid, in the order of `grid.cells()`.

    Each cell is one file of `folder`, which appears whole or not at all, and is named
    after all that its distances depend on: a sweep that was killed resumes, and several
    may share the folder. A file that is damaged is computed again.

    Args:
      grid: of the trials on data; its revision is theirs and counts for nothing here.
      folder: made if missing.
      progress: whether to show a bar, where the standard error is a terminal.

    Raises:
      StoreError: where a file's runs were to be judged by other criteria.
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
    here = identity.pop("criteria")
    name = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    path = folder / f"{name[:24]}.npz"
    if (found := _read(path)) is not None:
        there = found[0].pop("criteria", None)
        if there != here:
            raise engine.StoreError(
                f"`{path}` was written with `criteria` = {there!r}, this run has "
                f"{here!r}; choose another folder or delete it."
            )
        shape = (grid.num_trials, trial.num_restarts, len(steps))
        if found[0] == identity and found[1].shape == shape:
            return found[1]
    distance = distances(trial, steps, num_trials=grid.num_trials, seed=grid.seed)
    text = json.dumps(identity | {"criteria": here}, sort_keys=True)
    with replacing(path) as temporary:
        np.savez(temporary, distance=distance, identity=np.array(text))
    return distance


def _read(path: pathlib.Path) -> tuple[dict[str, Any], np.ndarray] | None:
    """What a file was computed for, and its distances; None if absent or damaged."""
    try:
        with path.open("rb") as file, np.load(file) as stored:
            return json.loads(str(stored["identity"])), stored["distance"]
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile):
        return None


def rows(
    grid: engine.Grid,
    found: Sequence[Distances],
    *,
    tolerance: float,
    error_rate: float,
) -> list[dict[str, Any]]:
    """One row for each cell: successes under the paper's criterion.

    Args:
      grid: of the panel.
      found: what `sweep` returned for it.
      tolerance: added to the threshold.
      error_rate: of all intervals together; each cell gets an equal part of it.

    Returns:
      Rows whose columns are named like those of `fig3_table.rows`, with
      `identity_samples` and `gradient_samples`, drawn afresh by each client in each
      round, and `seed`.
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
