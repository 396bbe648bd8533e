"""What the comparison with PyTorch found: times, their ratios, differing outcomes.

Where runs ended is judged in the same way for both. A trial differs if, under one
criterion, one of its runs meets it and no run of the other's does; a run that this
library followed to its end differs if one of the two meets a criterion and the other
does not.
"""

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool

from experiments.ifca.success import Trial
from experiments.ifca.success_criteria import (
    sizes,
    stability_bound,
    successful,
    thresholds,
)

__all__ = [
    "COUNTS",
    "NAMES",
    "PYTORCH",
    "Outputs",
    "Record",
    "Rows",
    "Way",
    "differences",
    "log",
    "table",
]

Way = Literal["decide", "follow"]
NAMES: Mapping[Way, str] = {
    "decide": "cfljax, until decided",
    "follow": "cfljax, all runs followed",
}
PYTORCH = "PyTorch, batched, all rounds"

# Of one cell: its trials, those with a run that succeeds under the paper's criterion,
# those whose outcome is not PyTorch's; its runs, those whose outcome is not, and those
# among them whose step size is a stable one (others end in chaos or overflow).
COUNTS = (
    "trials checked",
    "trials succeed",
    "trials differ",
    "runs checked",
    "runs differ",
    "stable runs differ",
)

# Arrays `[restart, step_size]` of one trial: those of `success.DIMS` that are judged.
Outputs = Mapping[str, np.ndarray]
Rows = list[dict[str, Any]]


@dataclasses.dataclass
class Record:
    """What was seen of a job, one entry for each trial.

    what: its name.
    cells: indices of the cells that it computed.
    first: seconds of the call that compiles.
    seconds: of a call.
    processor: the same, of all cores together.
    data: of drawing its data by its own generator.
    outputs: of each of its cells.
    """

    what: str
    cells: tuple[int, ...]
    first: float = np.nan
    seconds: list[float] = dataclasses.field(default_factory=list)
    processor: list[float] = dataclasses.field(default_factory=list)
    data: list[float] = dataclasses.field(default_factory=list)
    outputs: list[Sequence[Outputs]] = dataclasses.field(default_factory=list)

    def times(self) -> dict[str, np.ndarray]:
        """Seconds of each trial with its data and without."""
        calls, data = np.array(self.seconds), np.array(self.data)
        if self.what == PYTORCH:  # Whose data are handed to it.
            return {"with data": calls + data, "without data": calls}
        return {"with data": calls, "without data": calls - data}


def differences(
    ours: Sequence[Outputs],
    theirs: Sequence[Outputs],
    trial: Trial,
    step_sizes: np.ndarray,
) -> collections.Counter[str]:
    """Trials and runs of one cell that were checked, and how many differ.

    Args:
      ours: outputs of every trial, with `followed`.
      theirs: the same, of runs that were all followed.
      trial: of the cell.
      step_sizes: gamma.
    """
    limits = thresholds(trial, trial.tolerance)
    is_stable = step_sizes < stability_bound(**sizes(trial))
    counts: collections.Counter[str] = collections.Counter(dict.fromkeys(COUNTS, 0))
    for own, other in zip(ours, theirs, strict=True):
        met = [_met(one, limits) for one in (own, other)]
        by_trial = [np.any(one, axis=(1, 2)) for one in met]
        followed = own["followed"] == 1
        differ = np.any(met[0] != met[1], axis=0) & followed
        counts["trials checked"] += 1
        counts["trials succeed"] += int(by_trial[0][0])
        counts["trials differ"] += int(np.any(by_trial[0] != by_trial[1]))
        counts["runs checked"] += int(np.sum(followed))
        counts["runs differ"] += int(np.sum(differ))
        counts["stable runs differ"] += int(np.sum(differ[:, is_stable]))
    return counts


def _met(
    outputs: Outputs, limits: Mapping[str, float]
) -> Bool[np.ndarray, "criteria restart step_size"]:
    """Which criteria every run of a trial meets."""
    judged = {name: outputs[name][None] for name in ("distance", "recovered")}
    return np.concatenate(list(successful(judged, limits).values()))


def table(
    cells: Sequence[Trial], step_sizes: np.ndarray, records: Sequence[Record]
) -> Rows:
    """One row for each job; ratios and counts where PyTorch did the same trials."""
    theirs = {record.cells: record for record in records if record.what == PYTORCH}
    rows = []
    for record in records:
        row = _described(cells, record)
        row |= {"trials": len(record.seconds), "first call, s": record.first}
        times = record.times()
        for name, values in times.items():
            row[f"s, {name}"] = float(np.median(values))
            row[f"total s, {name}"] = float(np.sum(values))
        row["processor s"] = float(np.median(record.processor))
        if theirs:
            same = [theirs[(cell,)] for cell in record.cells]
            row |= _ratios(times, same)
            processor = np.sum([other.processor for other in same], axis=0)
            share = float(np.median(processor)) / row["processor s"]
            row["PyTorch's processor median / this"] = share
        if theirs and record.what != PYTORCH:
            row |= _counts(cells, step_sizes, record, same)
        rows.append(row)
    return rows


def _ratios(times: Mapping[str, np.ndarray], same: Sequence[Record]) -> dict[str, Any]:
    """PyTorch's time over a job's, for the same trials of the same cells."""
    calls = np.sum([record.seconds for record in same], axis=0)
    # Cells that share a data set need it once.
    other = {"with data": calls + np.array(same[0].data), "without data": calls}
    found = {}
    for name, values in times.items():
        medians = np.median(other[name]) / np.median(values)
        found[f"PyTorch's median / this, {name}"] = float(medians)
        totals = np.sum(other[name]) / np.sum(values)
        found[f"PyTorch's total / this, {name}"] = float(totals)
    return found


def _counts(
    cells: Sequence[Trial],
    step_sizes: np.ndarray,
    record: Record,
    same: Sequence[Record],
) -> dict[str, int]:
    sums: collections.Counter[str] = collections.Counter()
    for place, other in enumerate(same):
        found = differences(
            [outputs[place] for outputs in record.outputs],
            [outputs[0] for outputs in other.outputs],
            cells[record.cells[place]],
            step_sizes,
        )
        sums.update(found)
    return dict(sums)


def log(cells: Sequence[Trial], records: Sequence[Record]) -> Rows:
    """Seconds of every job in every trial."""
    return [
        _described(cells, record)
        | {
            "trial": index,
            "s": seconds,
            "processor s": record.processor[index],
            "data, s": record.data[index],
        }
        for record in records
        for index, seconds in enumerate(record.seconds)
    ]


def _described(cells: Sequence[Trial], record: Record) -> dict[str, Any]:
    separations = " and ".join(f"{cells[i].separation:g}" for i in record.cells)
    return {"what": record.what, "R": separations}
