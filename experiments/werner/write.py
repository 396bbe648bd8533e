"""Files of an experiment of this paper: table, figures, configuration."""

import dataclasses
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from cfljax import engine, intervals, report
from experiments.options import Options

__all__ = ["check_different", "check_interval", "finish", "interval", "run"]

Rows = Sequence[Mapping[str, Any]]


def check_different(**values: Sequence[Any]) -> None:
    """Raises ValueError, naming the first argument that is empty or repeats a value."""
    for name, own in values.items():
        if not own or len(set(own)) < len(own):
            raise ValueError(f"`{name}` must hold different values, got {own}.")


def check_interval(error_rate: float, num_trials: int) -> None:
    """Raises ValueError unless intervals of means can be made."""
    if not 0 < error_rate < 1:
        raise ValueError(f"`error_rate` must be in (0, 1), got {error_rate}.")
    if num_trials < 2:
        raise ValueError(f"`num_trials` must be at least 2, got {num_trials}.")


def interval(values: np.ndarray, name: str, error_rate: float) -> dict[str, float]:
    """Columns NAME, NAME_low and NAME_high: a mean with Student's interval.

    Args:
      values: `[trials]`, at least 2; one that is not a number leaves no number.
      name: of the quantity.
      error_rate: nominal chance to miss.
    """
    wide = np.asarray(values, float)
    low, high = intervals.student(wide, error_rate=error_rate)
    ends = float(np.mean(wide)), float(low), float(high)
    return dict(zip((name, f"{name}_low", f"{name}_high"), ends, strict=True))


def run(
    grid: engine.Grid,
    simulate: Any,
    name: str,
    options: Options,
    constants: Any = None,
) -> xr.Dataset:
    """Compute what the store `NAME.zarr` lacks of a grid; returns all of it."""
    return engine.sweep(
        grid,
        simulate,
        options.out / f"{name}.zarr",
        constants=constants,
        chunk=options.chunk,
        memory=options.memory,
        progress=options.progress,
    )


def finish(
    experiment: str,
    config: Any,
    options: Options,
    *,
    rows: Rows,
    columns: Mapping[str, str],
    note: str,
    figures: Mapping[str, Figure],
    results: Sequence[xr.Dataset],
    started: float,
    others: Mapping[str, tuple[Rows, Mapping[str, str]]] | None = None,
    overview: Rows | None = None,
) -> dict[str, Any]:
    """Write everything; returns the summary for the command line.

    Args:
      experiment: its id.
      config: its configuration, a dataclass.
      options: how it is run.
      rows: of the table.
      columns: of the table for people, by name, with their headings.
      note: what the table shows, and what came out of it, above it.
      figures: by file name without suffix.
      results: all data sets of sweeps.
      started: by `time.perf_counter()`.
      others: further tables by file name without suffix, rows and columns.
      overview: what the command shows of a long table; all tables if None.
    """
    out = options.out
    tables = {"table": (rows, columns), **(others or {})}
    text = note
    for name, (own, headings) in tables.items():
        report.write_csv(out / f"{name}.csv", own)
        text += f"\n\n{report.markdown(own, headings)}"
    report.write_text(out / "table.md", text)
    headline = text if overview is None else f"{note}\n\n{report.markdown(overview)}"
    settings = json.dumps(dataclasses.asdict(config), indent=2) + "\n"
    report.write_text(out / "config.json", settings)
    paths = [out / f"{name}.csv" for name in tables]
    paths += [out / "table.md", out / "config.json"]
    for name, figure in figures.items():
        paths += report.save(figure, out / name)
    return {
        "experiment": experiment,
        "headline": headline,
        "files": [str(path) for path in paths],
        "seconds": round(time.perf_counter() - started, 2),
        "failed_cells": sum(int(data.attrs["failures"]) for data in results),
        "rows": list(rows),
    }
