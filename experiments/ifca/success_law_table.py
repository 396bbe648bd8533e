"""The cells of Figure 3 with fresh data in every round: computed once, and their table.

What is computed is `success_law.distances`, one file for each cell.
"""

import concurrent.futures
import dataclasses
import hashlib
import json
import os
import pathlib
import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from cfljax import engine
from cfljax.engine.progress import Bar
from cfljax.intervals import clopper_pearson, divide
from cfljax.report.files import replacing
from experiments.ifca.success import Trial
from experiments.ifca.success_law import REVISION, distances, samples_per_use
from experiments.ifca.success_table import AXES

__all__ = ["rows", "sweep"]

Distances = Float[np.ndarray, "trial restart step_size"]


def sweep(
    grid: engine.Grid, folder: pathlib.Path, *, progress: bool = False
) -> list[Distances]:
    """Distances of every cell of a panel's grid, in the order of `grid.cells()`.

    Each cell is one file of `folder`, which appears whole or not at all, and is named
    after all that the cell depends on: a sweep that was killed resumes, and several
    may share the folder. A file that is damaged is computed again.

    Args:
      grid: of the trials on data; its revision is theirs and counts for nothing here.
      folder: made if missing.
      progress: whether to show a bar, where the standard error is a terminal.
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
    identity = json.dumps(
        dataclasses.asdict(law)
        | {"step_sizes": steps.tolist(), "num_trials": grid.num_trials}
        | {"seed": grid.seed, "revision": REVISION},
        sort_keys=True,
    )
    path = folder / f"{hashlib.sha256(identity.encode()).hexdigest()[:24]}.npz"
    shape = (grid.num_trials, trial.num_restarts, len(steps))
    try:
        with path.open("rb") as file, np.load(file) as stored:
            distance = stored["distance"]
            if str(stored["identity"]) == identity and distance.shape == shape:
                return distance
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile):
        pass  # Not there, or damaged: computed again.
    distance = distances(trial, steps, num_trials=grid.num_trials, seed=grid.seed)
    with replacing(path) as temporary:
        np.savez(temporary, distance=distance, identity=np.array(identity))
    return distance


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
      tolerance: added to the threshold 0.6 sigma.
      error_rate: of all intervals together; each cell gets an equal part of it.

    Returns:
      Rows whose columns are named like those of `success_table.rows`, with
      `identity_samples` and `gradient_samples`, drawn afresh by each client in each
      round, and `seed`.
    """
    cells = grid.cells()
    cell_rate = divide(error_rate, len(cells))
    return [
        _row(grid, cell.trial, distance, tolerance, cell_rate)
        for cell, distance in zip(cells, found, strict=True)
    ]


def _row(
    grid: engine.Grid,
    trial: Trial,
    distance: Distances,
    tolerance: float,
    error_rate: float,
) -> dict[str, Any]:
    threshold = 0.6 * trial.noise + tolerance
    success = np.isfinite(distance) & (distance <= threshold)
    successes = int(np.sum(np.any(success, axis=(1, 2))))
    low, high = clopper_pearson(successes, len(success), error_rate=error_rate)
    columns = {name: getattr(trial, axis) for axis, name in AXES.items()}
    columns |= {
        "clusters": trial.num_clusters,
        "features": trial.num_features,
        "identity_samples": samples_per_use(trial),
        "gradient_samples": samples_per_use(trial),
        "trials": len(success),
        "successes": successes,
        "low": float(low),
        "high": float(high),
        "restart_successes": int(np.sum(np.any(success, axis=2))),
    }
    for place, step_size in enumerate(grid.coords["step_size"]):
        runs = success[:, :, place]
        columns[f"successes_step_{step_size:g}"] = int(np.sum(np.any(runs, axis=1)))
        columns[f"restart_successes_step_{step_size:g}"] = int(np.sum(runs))
    return columns | {
        "threshold": threshold,
        "interval_error_rate": error_rate,
        "seed": grid.seed,
    }
