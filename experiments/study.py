"""What experiments share: trials of a configuration, sweeps, rows, and files."""

import dataclasses
import functools
import itertools
import json
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import xarray as xr
from jaxtyping import Float, PRNGKeyArray, PyTree
from matplotlib.figure import Figure

from cfljax import engine, intervals, report
from cfljax.base import Algorithm, ClientData
from cfljax.engine import Simulate
from experiments.jobs import Job, run
from experiments.options import Options

Row = dict[str, Any]
Rows = Sequence[Mapping[str, Any]]
Contents = Mapping[str, Rows | str | Figure]  # of files, by name


def trial_of(kind: Any, config: Any, **others: Any) -> Any:
    """A dataclass with a configuration's fields, but for those that are given."""
    names = [field.name for field in dataclasses.fields(kind) if field.init]
    own = fields(config, *(name for name in names if name not in others))
    return kind(**own, **others)


def fields(own: Any, *names: str) -> dict[str, Any]:
    """Some fields of a configuration or a trial, by name."""
    return {name: getattr(own, name) for name in names}


def run_with_tests(
    trial: Any,
    algorithm: Algorithm,
    key: PRNGKeyArray,
    data: ClientData,
    *,
    observe: Callable[[Any, Any], PyTree],
    test: Callable[[Any], PyTree],
    **options: Any,
) -> tuple[Any, Any, Any]:
    """The trial's `num_rounds`, and a test behind every `rounds_between` of them; with
    other options of `engine.run`.

    Returns:
      The final state, observations `[rounds, ...]` and tests `[tests, ...]`.
    """
    state, trace = engine.run(
        algorithm,
        key,
        data,
        num_rounds=trial.num_rounds,
        observe=observe,
        test=test,
        rounds_between=trial.rounds_between,
        round_key=round_key_of(trial.rounds_between),
        **options,
    )
    return state, trace.rounds, trace.tests


def at_tests(trial: Any, observed: PyTree) -> PyTree:
    """Of observations `[rounds, ...]` those of rounds with a test behind them."""
    step = trial.rounds_between
    return jax.tree.map(lambda leaf: leaf[step - 1 :: step], observed)


@functools.cache  # The same function each time: nothing is compiled again.
def round_key_of(rounds_between: int) -> Callable[[PRNGKeyArray, Any], PRNGKeyArray]:
    """Keys of rounds: that of the rounds from test to test, folded with the round."""

    def round_key(key: PRNGKeyArray, index: Any) -> PRNGKeyArray:
        tests, since = index // rounds_between, index % rounds_between
        return jax.random.fold_in(jax.random.fold_in(key, tests), since)

    return round_key


def sweep(
    options: Options,
    grid: engine.Grid,
    simulate: Simulate,
    constants: Any = None,
) -> xr.Dataset:
    """Compute what the store lacks of a grid; returns all of it."""
    return engine.sweep(
        grid,
        simulate,
        options.store_folder,
        constants=constants,
        accept_code=options.accept_code,
        chunk=options.chunk,
        memory=options.memory,
        progress=options.progress,
        waits=options.waits,
    )


def cells(data: xr.Dataset, *axes: str) -> Iterator[tuple[Row, xr.Dataset]]:
    """Coordinates and data of each cell, the last axis varying fastest."""
    for at in itertools.product(*(data[axis].values.tolist() for axis in axes)):
        named = dict(zip(axes, at, strict=True))
        yield named, data.sel(named)


def versions(data: xr.Dataset) -> str:
    """What people should know of trials that several versions of the code computed,
    numerics among them; "" of others."""
    if "code" not in data.coords:  # Not of a sweep.
        return ""
    codes = {code for text in np.ravel(data["code"].values) for code in text.split()}
    return f"seeds of {len(codes)} versions of the code" if len(codes) > 1 else ""


def size_text(size: Any, data: xr.Dataset) -> str:
    """The size of a run for people, with the versions of the code where there are
    several."""
    return ", ".join(filter(None, [str(size), versions(data)]))


def groups(rows: Rows, *names: str) -> dict[Any, list[Mapping[str, Any]]]:
    """Rows of equal entries, by these; in the order in which they come first."""
    found: dict[Any, list[Mapping[str, Any]]] = {}
    for row in rows:
        at = [row[name] for name in names]
        found.setdefault(tuple(at) if len(at) > 1 else at[0], []).append(row)
    return found


def column(rows: Rows, name: str) -> Float[np.ndarray, " rows"]:
    """Entries of the rows; NaN for None."""
    return np.array([row[name] for row in rows], float)


def curve(rows: Rows, label: str, x: str, y: str) -> report.Curve:
    """A column with its interval against another column, in the order of the rows."""
    at, middle, low, high = (
        column(rows, name) for name in (x, y, f"{y}_low", f"{y}_high")
    )
    return report.Curve(label, at, middle, low, high)


def computed(values: np.ndarray | Sequence[float]) -> Float[np.ndarray, " finite"]:
    """The values that are finite, as of runs that did not fail."""
    every = np.asarray(values)
    return every[np.isfinite(every)].astype(float)


def mean(values: np.ndarray) -> float | None:
    """The mean, if there are any."""
    return float(values.mean()) if values.size else None


def interval(values: np.ndarray, name: str, error_rate: float) -> dict[str, float]:
    """Columns NAME, NAME_low and NAME_high: a mean with Student's interval.

    A value that is not a number leaves no number.
    """
    wide = np.asarray(values, float)
    low, high = intervals.student(wide, error_rate=error_rate)
    return {
        name: float(np.mean(wide)),
        f"{name}_low": float(low),
        f"{name}_high": float(high),
    }


def interval_columns(name: str, heading: str) -> dict[str, str]:
    """Headings of the columns of an interval, for people."""
    return {name: heading, f"{name}_low": "at least", f"{name}_high": "at most"}


def legend(num_seeds: int) -> str:
    """What the curves of a figure are, by the seeds of the one that has most."""
    several = "mean ± one standard deviation over the seeds"
    return several if num_seeds > 1 else "one seed"


def settings(config: Any, **others: Any) -> str:
    """A configuration, a dataclass, and what else results depend on, as JSON."""
    return json.dumps(dataclasses.asdict(config) | others, indent=2) + "\n"


def write(folder: pathlib.Path, contents: Contents) -> list[str]:
    """Write rows as CSV, text as it is, and figures, by name; the paths, in order.

    Figures have no suffix and are written as SVG, PDF and PNG.
    """
    paths = []
    for name, own in contents.items():
        path = folder / name
        if isinstance(own, Figure):
            paths += report.save(own, path)
        elif isinstance(own, str):
            report.write_text(path, own)
            paths.append(path)
        else:
            report.write_csv(path, own)
            paths.append(path)
    return [str(path) for path in paths]


class Study:
    """One start of an experiment: its sweeps, and then its files."""

    def __init__(self, experiment: str, config: Any, options: Options) -> None:
        """With the experiment's id, its configuration, a dataclass, and how to run."""
        self.experiment, self.config, self.options = experiment, config, options
        self.started, self.failures = time.perf_counter(), 0

    def sweep(
        self, grid: engine.Grid, simulate: Simulate, constants: Any = None
    ) -> xr.Dataset:
        """As the function of this name, counting the cells that failed."""
        found = sweep(self.options, grid, simulate, constants)
        self.failures += int(found.attrs["failures"])
        return found

    def run(self, job: Job) -> xr.Dataset:
        """As `jobs.run`, counting the cells that failed."""
        found = run(self.options, job)
        self.failures += int(found.attrs["failures"])
        return found

    def summary(
        self,
        headline: str,
        contents: Contents,
        rows: Rows,
        results: Sequence[xr.Dataset] = (),
        **others: Any,
    ) -> dict[str, Any]:
        """Write the files; returns the summary for the command line.

        Results are those of sweeps that it has not made itself.
        """
        failures = [int(data.attrs["failures"]) for data in results]
        return {
            "experiment": self.experiment,
            **others,
            "headline": headline,
            "files": write(self.options.out, contents),
            "seconds": round(time.perf_counter() - self.started, 2),
            "failed_cells": self.failures + sum(failures),
            "rows": list(rows),
        }

    def finish(
        self,
        tables: Mapping[str, tuple[Rows, Mapping[str, str]]],
        note: str,
        figures: Mapping[str, Figure],
        overview: Rows | None = None,
        outcome: str = "",
    ) -> dict[str, Any]:
        """Write everything; returns the summary for the command line.

        Tables are rows, and columns with headings for people, by file name; the first
        is "table", the experiment's own. The note, above them, says what they show and
        what came out. The overview is what the command shows of long tables. An outcome
        is a file of its own, and the first that the command shows.
        """
        shown = [report.concise(*own, once="size") for own in tables.values()]
        text = "\n\n".join([note, *shown])
        short = text if overview is None else f"{note}\n\n{report.markdown(overview)}"
        contents: dict[str, Any] = {f"{name}.csv": tables[name][0] for name in tables}
        contents |= {"table.md": text, "config.json": settings(self.config), **figures}
        if outcome:
            contents["outcome.md"], short = outcome, f"{outcome}\n{short}"
        return self.summary(short, contents, tables["table"][0])
