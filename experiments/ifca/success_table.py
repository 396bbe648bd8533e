"""What the success-probability experiment found, cell by cell, as table rows."""

import dataclasses
import itertools
from typing import Any

import numpy as np
import xarray as xr

from cfljax.intervals import clopper_pearson, confidence_sequence, divide
from experiments.ifca.success import Trial
from experiments.ifca.success_criteria import (
    CRITERIA,
    oracle_floor,
    outcome_shares,
    sizes,
    stability_bound,
    successful,
    thresholds,
)

__all__ = ["AXES", "CRITERIA", "pivot", "rows"]

# Grid axes, in the order of the store, and their columns in the table.
AXES = {
    "convention": "convention",
    "separation": "separation",
    "noise": "noise",
    "num_clients": "clients",
    "num_samples": "samples",
}
# By name, as the table states it: the number of trials fixed, or decided on the way.
INTERVALS = {
    "exact binomial": clopper_pearson,
    "confidence sequence": confidence_sequence,
}


def counts(
    success: np.ndarray,
    prefix: str,
    step_sizes: np.ndarray,
    error_rate: float,
    interval: str = "exact binomial",
) -> dict[str, Any]:
    """Successes by trial (with its interval), by restart and by step size."""
    by_trial = success.any(axis=(1, 2))
    low, high = INTERVALS[interval](
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
    results: xr.Dataset,
    trial: Trial,
    *,
    tolerance: float,
    error_rate: float,
    sequential: bool = False,
) -> list[dict[str, Any]]:
    """One row for each cell of the grid.

    Shares and means are over the trials that a cell has. Where the outcomes decided
    when it was enough, its interval makes up for that; shares and means do not.

    Args:
      results: what `engine.sweep` returned for `success.simulate`. A variable
        `trials` tells how many of its trials each cell has, the first ones; without
        it every cell has all.
      trial: the fields that all cells share.
      tolerance: added to both distance thresholds.
      error_rate: of the intervals of all cells together, under one criterion; each
        cell gets an equal part of it.
      sequential: whether the outcomes decided how many trials a cell has. The
        intervals are then confidence sequences, which allow for it.

    Returns:
      Rows with the cell's settings, trials, and for each criterion of `CRITERIA`
      its successes, their interval, and counts by restart and step size. A cell
      whose computation failed, or has not begun, has no trials and empty results.
    """
    points = list(itertools.product(*(results[axis].values for axis in AXES)))
    cell_rate = divide(error_rate, len(points))
    step_sizes = results["step_size"].values
    interval = "confidence sequence" if sequential else "exact binomial"
    last = {
        "step_sizes": " ".join(f"{s:g}" for s in step_sizes),
        "interval": interval,
    }
    table = []
    for values in points:
        point = {n: np.asarray(v).item() for n, v in zip(AXES, values, strict=True)}
        cell = _computed(results.sel(point))
        own = dataclasses.replace(trial, **point)
        row = _row(cell, own, tolerance, cell_rate, interval) | last
        table.append(row | (_followed(cell) if row["trials"] else {}))
    return table


def _computed(cell: xr.Dataset) -> xr.Dataset:
    """The cell with none but the trials that it has."""
    if bool(cell["failed"].values):
        return cell.isel(trial=slice(0, 0))
    number = int(cell["trials"].values) if "trials" in cell else cell.sizes["trial"]
    return cell.isel(trial=slice(0, number))


def _row(
    cell: xr.Dataset, trial: Trial, tolerance: float, error_rate: float, interval: str
) -> dict[str, Any]:
    trials = int(cell.sizes["trial"])
    limits = thresholds(trial, tolerance)
    columns = {AXES[axis]: getattr(trial, axis) for axis in AXES}
    columns |= {"clusters": trial.num_clusters, "features": trial.num_features}
    columns |= {"trials": trials, "failed": bool(cell["failed"].values)}
    if not trials:
        return columns
    success = successful(cell, limits)
    for criterion, prefix in CRITERIA.items():
        columns |= counts(
            success[criterion], prefix, cell["step_size"].values, error_rate, interval
        )
    alpha = cell["alpha"].values
    return (
        columns
        | {"restarts": trials * int(cell.sizes["restart"])}
        | outcome_shares(cell, success["paper"])
        | {
            "threshold": limits["paper"],
            "floor_threshold": limits["floor"],
            "oracle_floor": oracle_floor(noise=trial.noise, **sizes(trial)),
            "step_size_bound": stability_bound(**sizes(trial)),
            "separation_measured": float(cell["gap"].values.mean()),
            "alpha_mean": float(alpha.mean()),
            "alpha_max": float(alpha.max()),
            "interval_error_rate": error_rate,
        }
    )


def _followed(cell: xr.Dataset) -> dict[str, int]:
    """Runs that were followed to their end, out of which restarts' successes are."""
    followed = cell["followed"].values == 1
    columns = {"runs_followed": int(np.sum(followed))}
    for index, step_size in enumerate(cell["step_size"].values):
        number = int(np.sum(followed[:, :, index]))
        columns[f"runs_followed_step_{step_size:g}"] = number
    return columns


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
        text = "failed" if row["failed"] else "open"
        if row["trials"]:
            text = f"{row['successes']}/{row['trials']}"
        line[f"{column_axis} {row[column_axis]:g}"] = text
    return list(lines.values())
