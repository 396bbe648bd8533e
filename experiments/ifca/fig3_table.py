"""What the success-probability experiment found, cell by cell, and when it is enough.

Rows of the table of Figure 3, and the rule by which a cell stops at a precision.
"""

import bisect
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from cfljax.intervals import clopper_pearson, confidence_sequence, divide
from experiments.checks import configuration
from experiments.ifca.fig3_trial import (
    CRITERIA,
    Trial,
    oracle_floor,
    stability_bound,
    successful,
    thresholds,
)
from experiments.study import cells

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


def rows(
    results: xr.Dataset,
    trial: Trial,
    *,
    tolerance: float,
    error_rate: float,
    sequential: bool = False,
) -> list[dict[str, Any]]:
    """One row for each cell of the grid, empty where it failed or has not begun.

    Shares and means are over a cell's trials: the first ones that a variable `trials`
    of `engine.sweep`'s results counts, or all. The tolerance is added to both distance
    thresholds, and the error rate that of all cells together, under one criterion.
    Where the outcomes decided how many trials there are (`sequential`), intervals allow
    for it, being confidence sequences; shares and means do not.
    """
    cell_rate = divide(error_rate, math.prod(results.sizes[axis] for axis in AXES))
    interval = "confidence sequence" if sequential else "exact binomial"
    step_sizes = " ".join(f"{s:g}" for s in results["step_size"].values)
    table = []
    for point, data in cells(results, *AXES):
        cell = _computed(data)
        own = dataclasses.replace(trial, **point)
        trials = int(cell.sizes["trial"])
        row = {column: getattr(own, axis) for axis, column in AXES.items()}
        row |= {"clusters": own.num_clusters, "features": own.num_features}
        row |= {"trials": trials, "failed": bool(cell["failed"].values)}
        if trials:
            row |= _outcomes(cell, own, tolerance, cell_rate, interval)
        row |= {"step_sizes": step_sizes, "interval": interval}
        table.append(row | (_followed(cell) if trials else {}))
    return table


def _computed(cell: xr.Dataset) -> xr.Dataset:
    """The cell with none but the trials that it has."""
    if bool(cell["failed"].values):
        return cell.isel(trial=slice(0, 0))
    number = int(cell["trials"].values) if "trials" in cell else cell.sizes["trial"]
    return cell.isel(trial=slice(0, number))


def _outcomes(
    cell: xr.Dataset, trial: Trial, tolerance: float, error_rate: float, interval: str
) -> dict[str, Any]:
    limits = thresholds(trial, tolerance)
    success = successful(cell, limits)
    steps = cell["step_size"].values
    columns: dict[str, Any] = {}
    for name, own in CRITERIA.items():
        columns |= counts(success[name], own.prefix, steps, error_rate, interval)
    alpha = cell["alpha"].values
    return (
        columns
        | {"restarts": int(cell.sizes["trial"]) * int(cell.sizes["restart"])}
        | outcome_shares(cell, success["paper"])
        | {
            "threshold": limits["paper"],
            "floor_threshold": limits["floor"],
            "oracle_floor": oracle_floor(trial),
            "step_size_bound": stability_bound(trial),
            "separation_measured": float(cell["gap"].values.mean()),
            "alpha_mean": float(alpha.mean()),
            "alpha_max": float(alpha.max()),
            "interval_error_rate": error_rate,
        }
    )


def _followed(cell: xr.Dataset) -> dict[str, int]:
    """Runs that were followed to their end, out of which restarts' successes are."""
    followed = cell["followed"].values == 1
    return {"runs_followed": int(np.sum(followed))} | {
        f"runs_followed_step_{step_size:g}": int(np.sum(followed[:, :, index]))
        for index, step_size in enumerate(cell["step_size"].values)
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
    successes = int(by_trial.sum())
    low, high = INTERVALS[interval](successes, by_trial.size, error_rate=error_rate)
    columns = {
        f"{prefix}successes": successes,
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


def outcome_shares(cell: xr.Dataset, success: np.ndarray) -> dict[str, float]:
    """Share of the runs followed to their end in each of four exclusive outcomes.

    A run that did not succeed has diverged if its distance is not finite or its
    loss ended above where it started; else collapsed if all clients prefer one
    model in the end; else it missed the threshold.
    """
    first = cell["first_loss"].values[..., None]
    diverged = ~np.isfinite(cell["distance"].values) | ~(cell["loss"].values <= first)
    diverged &= ~success
    collapsed = (cell["used_clusters"].values <= 1) & ~success & ~diverged
    missed = ~success & ~diverged & ~collapsed
    followed = cell["followed"].values == 1
    share = lambda which: float(which[followed].mean()) if followed.any() else math.nan
    return {
        "share_succeeded": share(success),
        "share_collapsed": share(collapsed),
        "share_diverged": share(diverged),
        "share_missed": share(missed),
    }


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


MOST = 10**9  # Trials, more than anyone runs in a cell.


@configuration
class Precision:
    """How well the success probability of a cell must be known."""

    width: float  # its interval must be narrower; in (0, 1]
    tolerance: float  # added to the distance thresholds
    error_rate: float  # of the cell, in (0, 1)
    criterion: str = "paper"  # of `fig3_trial.CRITERIA`

    def __post_init__(self) -> None:
        _check_width(self.width)
        if self.criterion not in CRITERIA:
            known = ", ".join(CRITERIA)
            raise ValueError(f"`criterion` must be of {known}, got {self.criterion!r}.")

    def enough(self, outputs: Mapping[str, np.ndarray], trial: Trial) -> bool:
        """Whether `outputs` (`fig3_trial.DIMS`) of all trials of the cell so far tell
        its success probability well; asking again spoils nothing. Any run's success is
        the trial's.
        """
        success = successful(outputs, thresholds(trial, self.tolerance))
        by_trial = success[self.criterion].any(axis=(1, 2))
        if not by_trial.size:
            return False
        low, high = confidence_sequence(
            int(by_trial.sum()), by_trial.size, error_rate=self.error_rate
        )
        return bool(high - low < self.width)


def stopping_rule(
    width: float | None,
    *,
    tolerance: float,
    error_rate: float,
    num_cells: int,
    num_trials: int,
) -> Callable[[Mapping[str, np.ndarray], Trial], bool] | None:
    """The rule for each cell of a grid, so that all intervals hold together.

    Intervals are narrower than `width`, in (0, 1]; None is for all `num_trials`. The
    tolerance is added to the distance thresholds.

    Raises:
      ValueError: if no cell of `num_trials` could be that precise, or an argument is
        out of its range.
    """
    if width is None:
        return None
    cell_rate = divide(error_rate, num_cells)
    precision = Precision(width, tolerance, cell_rate)
    least = least_trials(width, error_rate=cell_rate)
    if num_trials < least:
        raise ValueError(
            f"`precision` {width:g} needs {least} trials or more in each of {num_cells}"
            f" cells, got {num_trials}; raise `num_trials` or `precision`."
        )
    return precision.enough


def least_trials(width: float, *, error_rate: float) -> int:
    """Fewest trials after which any interval is narrower than `width`.

    That is the interval of no successes, which is the narrowest of its number of
    trials, and becomes narrower with every further one. `MOST` stands for more.
    """
    _check_width(width)

    def is_narrow(trials: int) -> bool:
        return bool(confidence_sequence(0, trials, error_rate=error_rate)[1] < width)

    return 1 + bisect.bisect_left(range(1, MOST), True, key=is_narrow)


def _check_width(width: float) -> None:
    if not 0 < width <= 1:
        raise ValueError(f"`precision` must be in (0, 1], got {width}.")


def describe(
    table: Sequence[Mapping[str, Any]], *, error_rate: float, width: float | None
) -> str:
    """What the intervals of a table of `rows` are, for the legend of its figure."""
    numbers = [row["trials"] for row in table if row["trials"]] or [0]
    least, most = min(numbers), max(numbers)
    text = (
        f"intervals: {table[0]['interval']}, {100 * (1 - error_rate):g} % for all "
        f"{len(table)} cells together;\n"
        f"{least if least == most else f'{least} to {most}'} trials a cell"
    )
    if width is None:
        return text
    known = [row for row in table if row["trials"]]
    narrow = sum(row["high"] - row["low"] < width for row in known)
    return f"{text}, {narrow} of {len(table)} intervals narrower than {width:g}"
