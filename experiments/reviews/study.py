"""What the reviewers' studies share: cells that are kept, intervals, and the files.

A study computes cells (mappings of plain settings) into arrays by `measure`, which
keeps every cell on disk, then writes one table, its figures and one paragraph of
answer by `finish`. The answer is made from the measured rows and nothing else.
"""

import dataclasses
import hashlib
import json
import math
import pathlib
import time
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray
from matplotlib.figure import Figure

from cfljax import intervals, report
from cfljax.engine.claims import Claims
from cfljax.engine.progress import Bar
from cfljax.engine.provenance import Journal, describe_run
from cfljax.report.files import replacing
from experiments.options import Options

__all__ = [
    "PREDICTED",
    "Estimate",
    "Verdict",
    "all_of",
    "check_at_least",
    "check_different",
    "check_error_rate",
    "curve",
    "estimate",
    "finish",
    "generator",
    "key",
    "legend",
    "measure",
    "ratio",
    "read",
]

Cell = Mapping[str, Any]
Arrays = Mapping[str, np.ndarray]
PREDICTED = "predicted, in the colour of what was measured"
Rows = Sequence[Mapping[str, Any]]


Verdict = Literal["yes", "no", "undecided"]


def all_of(verdicts: Iterable[Verdict]) -> Verdict:
    """One "no" makes it "no"; else one "undecided", or none at all, "undecided"."""
    found = set(verdicts) or {"undecided"}
    return "no" if "no" in found else "undecided" if "undecided" in found else "yes"


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A number and its interval, in one unit; prints as "0.272 [0.268, 0.276]"."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"

    def within(self, low: float, high: float) -> Verdict:
        """Whether the truth lies in a band: "yes" if the whole interval does, "no" if
        none of it does, else, and where it is not a number, "undecided"."""
        if low <= self.low and self.high <= high:
            return "yes"
        return "no" if self.high < low or high < self.low else "undecided"

    def columns(self, name: str) -> dict[str, float]:
        """The table's columns NAME, NAME_low and NAME_high."""
        ends = (self.value, self.low, self.high)
        return dict(zip((name, f"{name}_low", f"{name}_high"), ends, strict=True))


def estimate(values: Float[np.ndarray, " trials"], *, error_rate: float) -> Estimate:
    """The mean of independent values with Student's interval; at least 2 values."""
    low, high = intervals.student(values, error_rate=error_rate)
    return Estimate(float(np.mean(values)), float(low), float(high))


def ratio(
    upper: Float[np.ndarray, " trials"],
    lower: Float[np.ndarray, " trials"],
    *,
    error_rate: float,
) -> Estimate:
    """The ratio of two means from paired trials.

    Linearised (delta method): Student's interval of (upper - r lower) / mean(lower)
    around r. Nominal; good where the mean of `lower` is known to a few per cent.

    Args:
      upper: `[trials]`, at least 2.
      lower: `[trials]`, trial i made with the random numbers of upper[i].
      error_rate: nominal chance to miss, in (0, 1).
    """
    value = float(np.mean(upper) / np.mean(lower))
    rest = estimate((upper - value * lower) / np.mean(lower), error_rate=error_rate)
    return Estimate(value, value + rest.low, value + rest.high)


def read(row: Mapping[str, Any], name: str) -> Estimate:
    """The estimate that `Estimate.columns` put into a row."""
    return Estimate(row[name], row[f"{name}_low"], row[f"{name}_high"])


def curve(rows: Rows, label: str, x: str, y: str) -> report.Curve:
    """A column with its interval against another column, in the order of the rows."""
    names = (x, y, f"{y}_low", f"{y}_high")
    at, middle, low, high = (
        np.array([row[name] for row in rows], float) for name in names
    )
    return report.Curve(label, at, middle, low, high)


def legend(error_rate: float) -> str:
    """What the intervals of a figure are."""
    return f"intervals hold jointly at {1 - error_rate:.0%}"


def generator(seed: int, *indices: int) -> np.random.Generator:
    """NumPy's generator of one cell, independent between different indices."""
    return np.random.default_rng([seed, *indices])


def key(seed: int, *indices: int) -> PRNGKeyArray:
    """JAX's key of one cell, independent between different indices."""
    return jax.random.key(int(generator(seed, *indices).integers(2**31)))


def check_at_least(config: Any, least: Mapping[str, int | float]) -> None:
    """Raises ValueError, naming the field, where a value is below its least or is
    not finite. A field that is a tuple is checked entry by entry."""
    for name, bound in least.items():
        value = getattr(config, name)
        entries = value if isinstance(value, tuple) else (value,)
        if not all(math.isfinite(entry) and entry >= bound for entry in entries):
            raise ValueError(
                f"`{name}` must be finite and at least {bound:g}, got {value}."
            )


def check_different(config: Any, *names: str, least: int = 1) -> None:
    """Raises ValueError, naming the field, where a tuple repeats or is too short."""
    for name in names:
        values = getattr(config, name)
        if len(values) < least or len(set(values)) < len(values):
            raise ValueError(
                f"`{name}` must hold different values, at least {least}, got {values}."
            )


def check_error_rate(config: Any) -> None:
    """Raises ValueError where `error_rate` is outside (0, 1)."""
    if not 0 < config.error_rate < 1:
        raise ValueError(f"`error_rate` must be in (0, 1), got {config.error_rate}.")


def measure(
    experiment: str,
    revision: int,
    cells: Sequence[Cell],
    compute: Callable[[Cell], Arrays],
    options: Options,
) -> list[dict[str, np.ndarray]]:
    """Arrays of every cell, computed where they are not kept already.

    One file per cell in `options.out/cells`, named after everything the cell depends
    on and renamed into place when it is whole, so that a run which was cut off goes
    on where it was. Runs are listed in `cells.provenance.json`.

    Args:
      experiment: id, e.g. "reviews.k".
      revision: raised whenever a cell of the same settings changes its meaning.
      cells: plain data; all that `compute` may depend on, seed included.
      compute: one cell; gives the same arrays again for the same cell.
      options: how to run.

    Returns:
      One mapping of arrays for each cell, in order.
    """
    folder = options.out / "cells"
    paths = [folder / f"{_name(experiment, revision, cell)}.npz" for cell in cells]
    kept = [_read(path) for path in paths]
    missing = [index for index, arrays in enumerate(kept) if arrays is None]
    if missing:
        bar = Bar(experiment, visible=options.progress)
        with Claims(folder, (1,)) as claims, bar:
            bar.expect(len(missing))
            journal = Journal(folder, claims, is_new=not folder.exists())
            journal.start({**describe_run(), "experiment": experiment})
            started = time.perf_counter()
            for index in missing:
                arrays = compute(cells[index])
                _keep(paths[index], arrays)
                kept[index] = {k: np.asarray(v) for k, v in arrays.items()}
                bar.advance(1)
            seconds = round(time.perf_counter() - started, 2)
            journal.finish(seconds=seconds, blocks=len(missing))
    return [arrays for arrays in kept if arrays is not None]


def _name(experiment: str, revision: int, cell: Cell) -> str:
    text = json.dumps([experiment, revision, dict(cell)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _read(path: pathlib.Path) -> dict[str, np.ndarray] | None:
    """What is kept, or None if it is missing or damaged."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        return None


def _keep(path: pathlib.Path, arrays: Arrays) -> None:
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def finish(
    experiment: str,
    config: Any,
    options: Options,
    *,
    rows: Rows,
    figures: Mapping[str, Figure],
    answer: str,
    decisions: Mapping[str, str],
    started: float,
) -> dict[str, Any]:
    """Write table, figures, answer and configuration; the summary of the study.

    Args:
      experiment: id, e.g. "reviews.k".
      config: the study's dataclass.
      options: how it was run.
      rows: the table, written to `table.csv`.
      figures: drawn by `report.curves` or `report.heatmaps`, by file name.
      answer: one paragraph, made from the rows; written to `answer.md`.
      decisions: what each rule of the study came to, by name.
      started: `time.perf_counter()` at the start.

    Returns:
      The summary for the command line: headline (the answer), files, decisions,
      seconds and rows.
    """
    out = options.out
    report.write_csv(out / "table.csv", rows)
    settings = json.dumps(dataclasses.asdict(config), indent=2)
    report.write_text(out / "config.json", settings + "\n")
    report.write_text(out / "answer.md", answer.strip() + "\n")
    drawn = [
        path
        for name, figure in figures.items()
        for path in report.save(figure, out / name)
    ]
    names = ("table.csv", "config.json", "answer.md")
    seconds = round(time.perf_counter() - started, 2)
    return {
        "experiment": experiment,
        "headline": f"{experiment}, {seconds} s: {answer.strip()}",
        "files": [str(path) for path in (*(out / name for name in names), *drawn)],
        "decisions": dict(decisions),
        "seconds": seconds,
        "rows": list(rows),
    }
