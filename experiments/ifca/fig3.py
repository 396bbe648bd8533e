"""Success probability of IFCA on mixed linear regression: what Figure 3's panels share.

Two conventions are kept apart because the paper's text and its released code differ:
"paper" rescales every theta* to norm R, "reference" uses coordinates in {0, R}, as
the released code does, so that norms and distances are near R sqrt(d/2). Both start
from coordinates in {0, init_scale}, whatever R. The paper's criterion is a mean
distance of at most 0.6 sigma; the released scripts of panels a and b add .001, without
which no run could succeed at sigma = 0 (`tolerance`).

Trial i draws the same random numbers in every cell of one size, so cells differ by
their settings and not by luck, and their counts are dependent; the intervals hold
jointly all the same.
"""

import dataclasses
import json
import math
import time
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import xarray

from cfljax import engine, report
from cfljax.data.linear import check_mixed_linear
from cfljax.kernels.average import Normalise
from cfljax.kernels.draws import Convention
from cfljax.report.files import replacing
from experiments.ifca import success_law_table
from experiments.ifca.precision import describe, stopping_rule
from experiments.ifca.success import DIMS, InitUnit, Trial, simulate
from experiments.ifca.success_figures import draw_curves, draw_heatmaps
from experiments.ifca.success_joint import shares, simulate_jointly
from experiments.ifca.success_table import AXES, pivot, rows
from experiments.options import Options
from experiments.shards import shard_summary

__all__ = ["REVISION", "Config", "run_panel"]

REVISION = 2  # To be raised whenever a trial of the same fields changes its meaning.


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that a panel depends on. One field, one flag."""

    convention: tuple[Convention, ...]
    """Scale of the true models: reference, paper, or both."""
    separation: tuple[float, ...]
    """R."""
    noise: tuple[float, ...]
    """Sigma, standard deviation of the additive noise."""
    num_clients: tuple[int, ...]
    """m, each a multiple of the number of clusters."""
    num_samples: tuple[int, ...]
    """n, samples per client."""
    num_clusters: int
    """k."""
    num_features: int
    """d."""
    step_sizes: tuple[float, ...]
    """Gamma; a trial succeeds if any of them does."""
    num_trials: int
    """Data sets per cell."""
    tolerance: float
    """Added to the distance thresholds."""
    num_restarts: int = 10
    """Random starts per trial."""
    num_rounds: int = 300
    """T, communication rounds."""
    init_scale: float = 1.0
    """Scale of the Bernoulli start, in units of `init_unit`."""
    init_unit: InitUnit = "one"
    """one: absolute, as published; separation: starts drawn like the true models."""
    normalise: Normalise = "all"
    """Divisor of the summed gradients."""
    resample: bool = False
    """Fresh samples for every round: n is dealt out over 2T folds."""
    shortcuts: bool = True
    """Compute all cells of one size together, leaving out products whose result is
    known; without, every run makes all of its rounds on the samples."""
    decide: bool = False
    """Follow a trial's runs only until one has succeeded under every criterion, the
    most promising step size first; successes by restart and step size are then those
    of the runs that were followed."""
    law: bool = True
    """Also simulate every cell with fresh data in every round, exactly in law."""
    seed: int = 0
    """Of all trials."""
    error_rate: float = 0.05
    """Of all intervals of one criterion together."""

    def __post_init__(self) -> None:
        for name in (*AXES, "step_sizes"):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                raise ValueError(f"`{name}` must hold different values, got {values}.")
        for name in ("num_trials", "num_restarts", "num_rounds"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"`{name}` must be at least 1, got {getattr(self, name)}."
                )
        if not 0 < self.error_rate < 1:
            raise ValueError(f"`error_rate` must be in (0, 1), got {self.error_rate}.")
        for name in ("separation", "noise", "step_sizes"):
            if not all(math.isfinite(v) and v >= 0 for v in getattr(self, name)):
                raise ValueError(
                    f"`{name}` must be finite and not negative, got "
                    f"{getattr(self, name)}."
                )
        for name in ("tolerance", "init_scale"):
            if not math.isfinite(getattr(self, name)) or getattr(self, name) < 0:
                raise ValueError(
                    f"`{name}` must be finite and not negative, got "
                    f"{getattr(self, name)}."
                )
        for clients in self.num_clients:
            for samples in self.num_samples:
                check_mixed_linear(
                    num_clients=clients,
                    num_clusters=self.num_clusters,
                    num_samples=samples,
                    num_features=self.num_features,
                )
                if self.resample and samples % (2 * self.num_rounds):
                    raise ValueError(
                        "`num_samples` must be a multiple of 2 x `num_rounds` with "
                        f"`resample`, got {samples} and {self.num_rounds} rounds."
                    )

    @property
    def trial(self) -> Trial:
        """The fields that all cells share, and the first value of each axis."""
        own = {f.name: getattr(self, f.name) for f in dataclasses.fields(Trial)}
        own |= {axis: own[axis][0] for axis in AXES}
        # Judging comes after the sweep, unless it decides what is computed.
        own["tolerance"] = self.tolerance if self.decide else 0.0
        return Trial(**own)


def grid(experiment: str, config: Config) -> engine.Grid:
    """The panel's cells, as plain data."""
    return engine.Grid(
        experiment=experiment,
        trial=config.trial,
        axes={axis: getattr(config, axis) for axis in AXES},
        num_trials=config.num_trials,
        dims=DIMS,
        coords={"step_size": config.step_sizes},
        seed=config.seed,
        revision=REVISION,
    )


def compute(cells: engine.Grid, config: Config, options: Options) -> xarray.Dataset:
    """What the store lacks of the panel's cells; all of it is returned."""
    how: dict[str, Any] = {
        "constants": jnp.asarray(config.step_sizes, jnp.float32),
        "progress": options.progress,
        "shard": options.shard,
        "enough": stopping_rule(
            options.precision,
            tolerance=config.tolerance,
            error_rate=config.error_rate,
            num_cells=math.prod(cells.shape),
            num_trials=config.num_trials,
        ),
    }
    store = options.out / "results.zarr"
    if config.shortcuts:
        for name in ("chunk", "memory", "devices"):
            if getattr(options, name) is not None:
                raise ValueError(
                    f"`--{name}` has no use with shortcuts, which compute all cells of"
                    f" one size together; leave it out, or add --no-shortcuts."
                )
        joint = engine.Joint(simulate_jointly, shares)
        return engine.sweep(cells, None, store, joint=joint, **how)
    size = {"chunk": options.chunk, "memory": options.memory}
    return engine.sweep(cells, simulate, store, devices=options.devices, **size, **how)


def run_panel(
    experiment: str,
    config: Config,
    options: Options,
    *,
    axes: tuple[str, str],
    title: str,
) -> dict[str, Any]:
    """Compute what the store lacks, then write the panel's table and figures.

    Args:
      experiment: id, e.g. "ifca.fig3a".
      config: of the panel.
      options: how to run.
      axes: the table's columns along the heatmap's rows and columns.
      title: of both figures.

    Returns:
      A summary for the command line: files written and the table's rows.
    """
    started = time.perf_counter()
    cells = grid(experiment, config)
    results = compute(cells, config, options)
    if options.shard is not None:
        return shard_summary(
            experiment,
            shard=options.shard,
            num_open=results.attrs["open_blocks"],
            num_blocks=math.prod(cells.shape) * cells.num_blocks,
            failed_cells=results.attrs["failures"],
        )
    table = rows(
        results,
        config.trial,
        tolerance=config.tolerance,
        error_rate=config.error_rate,
        sequential=options.precision is not None,
    )
    law = None if config.resample or not config.law else fresh(cells, config, options)
    files = write(table, law, config, options, axes=axes, title=title)
    seconds = round(time.perf_counter() - started, 2)
    row_axis, column_axis = axes
    overview = report.markdown(pivot(table, row_axis=row_axis, column_axis=column_axis))
    return {
        "experiment": experiment,
        "headline": f"{title}: successes by trial, {seconds} s\n\n{overview}",
        "files": files,
        "seconds": seconds,
        "failed_cells": sum(row["failed"] for row in table),
        "rows": table,
    }


def fresh(cells: engine.Grid, config: Config, options: Options) -> list[dict[str, Any]]:
    """The table of the same cells where every round meets fresh data."""
    found = success_law_table.sweep(
        cells, options.out / "law", progress=options.progress
    )
    return success_law_table.rows(
        cells, found, tolerance=config.tolerance, error_rate=config.error_rate
    )


def write(
    table: list[dict[str, Any]],
    law: list[dict[str, Any]] | None,
    config: Config,
    options: Options,
    *,
    axes: tuple[str, str],
    title: str,
) -> list[str]:
    """Tables, configuration and both figures; returns their paths."""
    out = options.out
    tables = {"table.csv": table} | ({"law.csv": law} if law else {})
    for name, lines in tables.items():
        report.write_csv(out / name, lines)
    settings = dataclasses.asdict(config) | {"precision": options.precision}
    with replacing(out / "config.json") as temporary:
        temporary.write_text(json.dumps(settings, indent=2) + "\n")
    row_axis, column_axis = axes
    look: Mapping[str, Any] = {
        "row_axis": row_axis,
        "column_axis": column_axis,
        "title": title,
        "tolerance": config.tolerance,
    }
    confidence = (
        describe(table, error_rate=config.error_rate, width=options.precision)
        + (", " if options.precision is None else ",\n")
        + "the same seeds in all cells; points moved aside to show all"
    )
    drawn = report.save(draw_heatmaps(table, **look), out / "heatmap")
    drawn += report.save(
        draw_curves(table, **look, confidence=confidence, law_rows=law or ()),
        out / "curves",
    )
    names = (*tables, "config.json")
    return [str(path) for path in (*(out / name for name in names), *drawn)]
