"""When a cell of the success-probability experiment has had enough trials."""

import bisect
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from cfljax.intervals import confidence_sequence, divide
from experiments.ifca.success import Trial
from experiments.ifca.success_criteria import CRITERIA, successful, thresholds

__all__ = ["Precision", "describe", "least_trials", "stopping_rule"]

MOST = 10**9  # Trials, more than anyone runs in a cell.

Enough = Callable[[Mapping[str, np.ndarray], Trial], bool]


@dataclasses.dataclass(frozen=True)
class Precision:
    """How well the success probability of a cell must be known.

    width: of its confidence sequence's interval, which must be below it; in (0, 1].
    tolerance: added to the distance thresholds.
    error_rate: of the cell, in (0, 1).
    criterion: of `success_criteria.CRITERIA`.
    """

    width: float
    tolerance: float
    error_rate: float
    criterion: str = "paper"

    def __post_init__(self) -> None:
        _check_width(self.width)
        if not math.isfinite(self.tolerance) or self.tolerance < 0:
            raise ValueError(
                f"`tolerance` must be finite and not negative, got {self.tolerance}."
            )
        if not 0 < self.error_rate < 1:
            raise ValueError(f"`error_rate` must be in (0, 1), got {self.error_rate}.")
        if self.criterion not in CRITERIA:
            known = ", ".join(CRITERIA)
            raise ValueError(f"`criterion` must be of {known}, got {self.criterion!r}.")

    def enough(self, outputs: Mapping[str, np.ndarray], trial: Trial) -> bool:
        """Whether the trials so far tell the success probability well enough.

        A trial succeeds if any of its runs does. The interval is valid at all numbers
        of trials at once, so asking again after every block spoils nothing.

        Args:
          outputs: of all trials of the cell so far, as `success.DIMS` names them;
            `[trial, restart, step_size]`. A run that diverged is a failure.
          trial: of the cell.
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
) -> Enough | None:
    """The rule for each cell of a grid, so that all intervals hold together.

    Args:
      width: of every interval, in (0, 1]; None for as many trials as there are.
      tolerance: added to the distance thresholds.
      error_rate: of the intervals of all cells together.
      num_cells: of the grid.
      num_trials: most trials that a cell can have.

    Returns:
      `Precision.enough` under the paper's criterion, or None.

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


def describe(
    table: Sequence[Mapping[str, Any]], *, error_rate: float, width: float | None
) -> str:
    """What the intervals of a table are, for the legend of its figure.

    Args:
      table: rows of `success_table.rows`.
      error_rate: of all intervals together.
      width: as `stopping_rule` was given it.
    """
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


def _check_width(width: float) -> None:
    if not 0 < width <= 1:
        raise ValueError(f"`precision` must be in (0, 1], got {width}.")
