"""What the experiments of this paper share: checks, sweeps, balls, and files."""

import dataclasses
import itertools
import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray
from matplotlib.figure import Figure

from cfljax import engine, intervals, report
from cfljax.base import Algorithm, ClientData
from experiments.options import Options

__all__ = [
    "Row",
    "Rows",
    "Study",
    "balls",
    "between_tests",
    "cells",
    "check_different",
    "check_divides",
    "check_interval",
    "check_scale",
    "check_several",
    "column",
    "groups",
    "interval",
    "interval_columns",
    "trial_of",
]


Row = dict[str, Any]
Rows = Sequence[Mapping[str, Any]]


def check_different(**values: Sequence[Any]) -> None:
    """Raises ValueError, naming the first argument that is empty or repeats a value."""
    for name, own in values.items():
        if not own or len(set(own)) < len(own):
            raise ValueError(f"`{name}` must hold different values, got {own}.")


def check_divides(own: Any, name: str, other: str) -> None:
    """Raises ValueError unless the first of two fields divides the second."""
    part, whole = getattr(own, name), getattr(own, other)
    if part < 1 or whole % part:
        raise ValueError(f"`{name}` must divide `{other}`, got {part} and {whole}.")


def check_interval(error_rate: float, num_trials: int) -> None:
    """Raises ValueError unless intervals of means can be made."""
    if not 0 < error_rate < 1:
        raise ValueError(f"`error_rate` must be in (0, 1), got {error_rate}.")
    if num_trials < 2:
        raise ValueError(f"`num_trials` must be at least 2, got {num_trials}.")


def check_scale(**values: float) -> None:
    """Raises ValueError, naming the first argument that is not positive and finite."""
    for name, value in values.items():
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"`{name}` must be positive, got {value}.")


def check_several(num_clusters: int) -> None:
    """Raises ValueError if there is nothing to tell apart."""
    if num_clusters < 2:
        raise ValueError(f"`num_clusters` must be at least 2, got {num_clusters}.")


def trial_of(kind: Any, config: Any, **others: Any) -> Any:
    """A dataclass with a configuration's fields, but for those that are given."""
    names = [field.name for field in dataclasses.fields(kind)]
    own = {name: getattr(config, name) for name in names if name not in others}
    return kind(**own, **others)


def cells(data: xr.Dataset, *axes: str) -> Iterator[tuple[Row, xr.Dataset]]:
    """Coordinates and data of each cell, the last axis varying fastest."""
    for at in itertools.product(*(data[axis].values.tolist() for axis in axes)):
        named = dict(zip(axes, at, strict=True))
        yield named, data.sel(named)


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


def between_tests(algorithm: Algorithm, num_rounds: int) -> Algorithm:
    """The algorithm with so many rounds as one, whose info is that of the last."""

    def step(key: PRNGKeyArray, state: Any, data: ClientData) -> tuple[Any, Any]:
        def one(index: Array, state: Any) -> Any:
            return algorithm.step(jax.random.fold_in(key, index), state, data)[0]

        state = jax.lax.fori_loop(0, num_rounds - 1, one, state)
        return algorithm.step(jax.random.fold_in(key, num_rounds - 1), state, data)

    return algorithm._replace(step=step)


def balls(
    members: Bool[Array, "clients clients"], clusters: Int[Array, " clients"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Purity and company of all receivers' balls, in which nobody counts itself.

    Purity is the share of the balls' members that are of the receiver's cluster, NaN
    where there are none; company the share of the own cluster's that are in the ball.
    """
    stranger = ~jnp.eye(clusters.shape[0], dtype=bool)
    alike = (clusters[:, None] == clusters[None, :]) & stranger
    count = lambda mask: jnp.sum(mask, dtype=jnp.result_type(float))
    right = count(members & alike)
    return right / count(members & stranger), right / count(alike)


def interval(values: np.ndarray, name: str, error_rate: float) -> dict[str, float]:
    """Columns NAME, NAME_low and NAME_high: a mean with Student's interval.

    A value that is not a number leaves no number.
    """
    wide = np.asarray(values, float)
    low, high = intervals.student(wide, error_rate=error_rate)
    ends = float(np.mean(wide)), float(low), float(high)
    return dict(zip((name, f"{name}_low", f"{name}_high"), ends, strict=True))


def interval_columns(name: str, heading: str) -> dict[str, str]:
    """Headings of the columns of an interval, for people."""
    return {name: heading, f"{name}_low": "at least", f"{name}_high": "at most"}


class Study:
    """One start of an experiment: its sweeps, and then its files."""

    def __init__(self, experiment: str, config: Any, options: Options) -> None:
        """With the experiment's id, its configuration, a dataclass, and how to run."""
        self.experiment, self.config, self.options = experiment, config, options
        self.started, self.failures = time.perf_counter(), 0

    def sweep(
        self, grid: engine.Grid, simulate: Any, name: str, constants: Any = None
    ) -> xr.Dataset:
        """Compute what the store `NAME.zarr` lacks of a grid; returns all of it."""
        found = engine.sweep(
            grid,
            simulate,
            self.options.out / f"{name}.zarr",
            constants=constants,
            chunk=self.options.chunk,
            memory=self.options.memory,
            progress=self.options.progress,
        )
        self.failures += int(found.attrs["failures"])
        return found

    def finish(
        self,
        tables: Mapping[str, tuple[Rows, Mapping[str, str]]],
        note: str,
        figures: Mapping[str, Figure],
        overview: Rows | None = None,
    ) -> dict[str, Any]:
        """Write everything; returns the summary for the command line.

        Tables are rows, and columns with headings for people, by file name; the first
        is "table", the experiment's own. The note, above them, says what they show and
        what came out. The overview is what the command shows of long tables.
        """
        out, text = self.options.out, note
        for name, (own, headings) in tables.items():
            report.write_csv(out / f"{name}.csv", own)
            text += f"\n\n{report.markdown(own, headings)}"
        report.write_text(out / "table.md", text)
        short = text if overview is None else f"{note}\n\n{report.markdown(overview)}"
        settings = json.dumps(dataclasses.asdict(self.config), indent=2) + "\n"
        report.write_text(out / "config.json", settings)
        paths = [out / f"{name}.csv" for name in tables]
        paths += [out / "table.md", out / "config.json"]
        for name, figure in figures.items():
            paths += report.save(figure, out / name)
        return {
            "experiment": self.experiment,
            "headline": short,
            "files": [str(path) for path in paths],
            "seconds": round(time.perf_counter() - self.started, 2),
            "failed_cells": self.failures,
            "rows": list(tables["table"][0]),
        }
