"""What the success-probability experiment found, cell by cell, as table rows."""

import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from cfljax.intervals import clopper_pearson, divide
from experiments.ifca.success import Trial

__all__ = ["AXES", "CRITERIA", "oracle_floor", "pivot", "rows", "stability_bound"]

# Grid axes, in the order of the store, and their columns in the table.
AXES = {
    "convention": "convention",
    "separation": "separation",
    "noise": "noise",
    "num_clients": "clients",
    "num_samples": "samples",
}
# Columns of a criterion start with its prefix; the paper's own has none.
CRITERIA = {"paper": "", "floor": "floor_", "recovery": "recovery_"}


def oracle_floor(
    *,
    noise: float,
    num_clients: int,
    num_samples: int,
    num_clusters: int,
    num_features: int,
) -> float:
    """Root-mean-square error of least squares with known clusters.

    `sigma sqrt(d / (N - d - 1))` with `N = m n / k` Gaussian rows; infinite where
    N <= d + 1, since the estimate then has no finite second moment.
    """
    spare = num_clients * num_samples / num_clusters - num_features - 1
    return noise * math.sqrt(num_features / spare) if spare > 0 else math.inf


def stability_bound(
    *, num_clients: int, num_samples: int, num_clusters: int, num_features: int
) -> float:
    """Largest stable step size of a true cluster's gradient descent, divisor m.

    The step multiplies the error by `I - (2 gamma / k) G` with G the cluster's Gram
    matrix over N = m n / k rows; its largest eigenvalue is near
    `(1 + sqrt(d / N))^2` (Marchenko-Pastur), so `gamma < k / (1 + sqrt(d/N))^2`.
    """
    rows_per_cluster = num_clients * num_samples / num_clusters
    edge = (1 + math.sqrt(num_features / rows_per_cluster)) ** 2
    return num_clusters / edge


def successful(cell: xr.Dataset, thresholds: Mapping[str, float]) -> dict[str, Any]:
    """Runs that succeed, `[trial, restart, step_size]`, under each criterion."""
    distance = cell["distance"].values
    finite = np.isfinite(distance)
    return {
        "paper": finite & (distance <= thresholds["paper"]),
        "floor": finite & (distance <= thresholds["floor"]),
        "recovery": finite & (cell["recovered"].values == 1),
    }


def outcome_shares(cell: xr.Dataset, success: np.ndarray) -> dict[str, float]:
    """Share of the runs in each of four exclusive outcomes.

    A run that did not succeed has diverged if its distance is not finite or its
    loss ended above where it started; else collapsed if all clients prefer one
    model in the end; else it missed the threshold.
    """
    first = cell["first_loss"].values[..., None]
    diverged = ~np.isfinite(cell["distance"].values) | ~(cell["loss"].values <= first)
    diverged &= ~success
    collapsed = (cell["used_clusters"].values <= 1) & ~success & ~diverged
    missed = ~success & ~diverged & ~collapsed
    return {
        "share_succeeded": float(success.mean()),
        "share_collapsed": float(collapsed.mean()),
        "share_diverged": float(diverged.mean()),
        "share_missed": float(missed.mean()),
    }


def counts(
    success: np.ndarray, prefix: str, step_sizes: np.ndarray, error_rate: float
) -> dict[str, Any]:
    """Successes by trial (with its interval), by restart and by step size."""
    by_trial = success.any(axis=(1, 2))
    low, high = clopper_pearson(
        int(by_trial.sum()), by_trial.size, error_rate=error_rate
    )
    columns = {
        f"{prefix}successes": int(by_trial.sum()),
        f"{prefix}low": float(low),
        f"{prefix}high": float(high),
        f"{prefix}restart_successes": int(success.any(axis=2).sum()),
    }
    for index, step_size in enumerate(step_sizes):
        runs = success[:, :, index]
        name = f"{prefix}successes_step_{step_size:g}"
        columns[name] = int(runs.any(axis=1).sum())
        columns[f"{prefix}restart_successes_step_{step_size:g}"] = int(runs.sum())
    return columns


def rows(
    results: xr.Dataset, trial: Trial, *, tolerance: float, error_rate: float
) -> list[dict[str, Any]]:
    """One row for each cell of the grid.

    Args:
      results: what `engine.sweep` returned for `success.simulate`.
      trial: the fields that all cells share.
      tolerance: added to both distance thresholds.
      error_rate: of all intervals together; each cell gets an equal part of it.

    Returns:
      Rows with the cell's settings, trials, and for each criterion of `CRITERIA`
      its successes, their exact binomial interval, and counts by restart and step
      size. A cell whose computation failed has no trials and empty results.
    """
    points = list(itertools.product(*(results[axis].values for axis in AXES)))
    cell_rate = divide(error_rate, len(points))
    step_sizes = results["step_size"].values
    return [
        _row(results, dict(zip(AXES, point, strict=True)), trial, tolerance, cell_rate)
        | {"step_sizes": " ".join(f"{s:g}" for s in step_sizes)}
        for point in points
    ]


def _row(
    results: xr.Dataset,
    point: Mapping[str, Any],
    trial: Trial,
    tolerance: float,
    error_rate: float,
) -> dict[str, Any]:
    cell = results.sel(dict(point))
    sizes = {
        "num_clients": int(point["num_clients"]),
        "num_samples": int(point["num_samples"]),
        "num_clusters": trial.num_clusters,
        "num_features": trial.num_features,
    }
    noise = float(point["noise"])
    floor = oracle_floor(noise=noise, **sizes)
    thresholds = {"paper": 0.6 * noise + tolerance, "floor": 1.1 * floor + tolerance}
    if not math.isfinite(floor):
        thresholds["floor"] = -math.inf  # No estimate can be asked to reach it.
    columns = {AXES[axis]: np.asarray(point[axis]).item() for axis in AXES}
    columns |= {"clusters": trial.num_clusters, "features": trial.num_features}
    if bool(cell["failed"].values.any()):
        return columns | {"trials": 0, "failed": True}
    success = successful(cell, thresholds)
    columns |= {"trials": int(cell.sizes["trial"]), "failed": False}
    for criterion, prefix in CRITERIA.items():
        columns |= counts(
            success[criterion], prefix, results["step_size"].values, error_rate
        )
    alpha = cell["alpha"].values
    return (
        columns
        | {"restarts": int(cell.sizes["trial"] * cell.sizes["restart"])}
        | outcome_shares(cell, success["paper"])
        | {
            "threshold": thresholds["paper"],
            "floor_threshold": thresholds["floor"],
            "oracle_floor": floor,
            "step_size_bound": stability_bound(**sizes),
            "separation_measured": float(cell["gap"].values.mean()),
            "alpha_mean": float(alpha.mean()),
            "alpha_max": float(alpha.max()),
            "interval_error_rate": error_rate,
        }
    )


def pivot(
    table: list[dict[str, Any]], *, row_axis: str, column_axis: str
) -> list[dict[str, str]]:
    """Successes under the paper's criterion as a person reads them, "8/10"."""
    lines: dict[tuple[Any, ...], dict[str, str]] = {}
    for row in table:
        line = lines.setdefault(
            (row["convention"], row[row_axis]),
            {"convention": row["convention"], row_axis: f"{row[row_axis]:g}"},
        )
        text = f"{row['successes']}/{row['trials']}" if row["trials"] else "failed"
        line[f"{column_axis} {row[column_axis]:g}"] = text
    return list(lines.values())
