"""IFCA, Figure 3: success probability on mixed linear regression, panels a to d.

Command:   python -m experiments run ifca.fig3a --preset paper; or fig3b, fig3c, fig3d
Paper:     40 trials, d = 1000, each with 10 starts at 3 step sizes.
           a: k = 2, m = n = 100; b: k = 4, m = 400, n = 100: success rises with R.
           c: k = 2, R = 0.1; d: k = 4, R = 0.5: success rises with m n.
           The text leaves open sigma in panels c and d (0.1 in the released scripts)
           and that the released theta* is not rescaled (`Config.convention`).
Quick:     the same with --preset quick: d = 200, 10 trials; a, b: m = 40, n = 50;
           c: m = 20, 40, 80, d: m = 40, 80, 160, both n = 25, 50, 100. Panel a has the
           reference convention only, for a minute on two cores (--convention reference
           paper doubles the work)
Measured:  two cores of an AMD EPYC, a worker on each, without other work: paper, both
           conventions, trials and law: a 11 and 1 min, b 51 and 10, c 28 and 1, d 66
           and 8; successes in figures/ifca.fig3a and its neighbours
Outcome:   released convention: success never falls along R (a, b) or m (c, d), for
           every sigma or n. Paper's convention: b and d succeed nowhere; a is not
           monotone (at sigma = .2: 31, 2, 21, 22 and 22 of 40 for R = .1 to 1), c is.
           `outcome.md` beside each panel's table says so cell by cell
Law:       d, at m = 100: not rising with n: 20, 1 and 33 of 40. Step size 1 comes to
           rest near the threshold at n = 50 (`law.error_floor`: 0.0603), and noise
           helps to find the clusters: 66 of its 400 restarts do, 1 at n = 100

Two conventions are kept apart because the paper's text and its released code differ:
"paper" rescales every theta* to norm R, "reference" uses coordinates in {0, R}, as
the released code does, so that norms and distances are near R sqrt(d/2). Both start
from coordinates in {0, init_scale}, whatever R. The paper's criterion is a mean
distance of at most 0.6 sigma; the released scripts of panels a and b add .001, without
which no run could succeed at sigma = 0 (`tolerance`). Criteria are those of
`fig3_trial.CRITERIA`, for runs on data and by the law (`fig3_law`) alike.

Trial i draws the same random numbers in every cell of one size, so cells differ by
their settings and not by luck, and their counts are dependent; the intervals hold
jointly all the same.
"""

import dataclasses
import math
import time
from collections.abc import Mapping
from typing import Any, Literal

import jax.numpy as jnp
import xarray

from cfljax import engine, report
from cfljax.base import Convention
from cfljax.data import check_mixed_linear
from cfljax.federated import Normalise
from experiments.checks import check_values, configuration
from experiments.ifca import fig3_law
from experiments.ifca.fig3_figures import draw_curves, draw_heatmaps
from experiments.ifca.fig3_outcome import outcome
from experiments.ifca.fig3_table import AXES, describe, pivot, rows, stopping_rule
from experiments.ifca.fig3_trial import (
    DIMS,
    InitUnit,
    Trial,
    shares,
    simulate,
    simulate_jointly,
)
from experiments.jobs import share_summary
from experiments.options import Options
from experiments.study import Rows, settings, trial_of, write
from experiments.titles import clusters, title, values_of

EXPERIMENTS = {
    "ifca.fig3a": {
        "title": "success against separation and noise, k = 2",
        "is_sweep": True,
    },
    "ifca.fig3b": {
        "title": "success against separation and noise, k = 4",
        "is_sweep": True,
    },
    "ifca.fig3c": {
        "title": "success against clients and samples, k = 2",
        "is_sweep": True,
    },
    "ifca.fig3d": {
        "title": "success against clients and samples, k = 4",
        "is_sweep": True,
    },
}
REVISION = 2  # To be raised whenever a trial of the same fields changes its meaning.


@configuration
class Config:
    """Everything that a panel depends on. One field, one flag."""

    convention: tuple[Convention, ...]
    """Scale of the true models: reference, paper, or both."""
    separation: tuple[float, ...]  # R.
    noise: tuple[float, ...]  # Sigma, standard deviation of the additive noise.
    num_clients: tuple[int, ...]  # m, each a multiple of the number of clusters.
    num_samples: tuple[int, ...]  # n, samples per client.
    num_clusters: int  # k.
    num_features: int  # d.
    step_sizes: tuple[float, ...]  # Gamma; a trial succeeds if any of them does.
    num_trials: int  # Data sets per cell.
    tolerance: float  # Added to the distance thresholds.
    num_restarts: int = 10  # Random starts per trial.
    num_rounds: int = 300  # T, communication rounds.
    init_scale: float = 1.0  # Scale of the Bernoulli start, in units of `init_unit`.
    init_unit: InitUnit = "one"
    """one: absolute, as published; separation: starts drawn like the true models."""
    normalise: Normalise = "all"  # Divisor of the summed gradients.
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
    seed: int = 0  # Of all trials.
    error_rate: float = 0.05  # Of all intervals of one criterion together.

    def __post_init__(self) -> None:
        check_values(self, *AXES, "step_sizes")
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
        first = {axis: getattr(self, axis)[0] for axis in AXES}
        # Judging comes after the sweep, unless it decides what is computed.
        first["tolerance"] = self.tolerance if self.decide else 0.0
        return trial_of(Trial, self, **first)


@dataclasses.dataclass(frozen=True)
class Panel:
    """One panel, an experiment of its own."""

    id: str  # of the experiment
    axes: tuple[str, str]  # the table's columns along the heatmap's rows and columns
    quick: Mapping[str, Any]  # fields of this preset
    paper: Mapping[str, Any]  # fields of the other

    def preset(self, name: Literal["quick", "paper"]) -> Config:
        """The configuration of a preset."""
        return Config(**(self.quick if name == "quick" else self.paper))

    def title(self, config: Config) -> str:
        """Of both figures, with every setting that all cells share."""
        sizes = ("separation", "noise", "num_clients", "num_samples", "num_features")
        shown = values_of(config, *sizes)
        return title(
            f"IFCA, Figure 3({self.id[-1]})",
            f"success with {clusters(config.num_clusters)}, {shown}",
            config,
            self.preset("paper"),
            stated=("num_clusters", *sizes),
        )

    def titles(self, config: Config) -> dict[str, str]:
        """By figure."""
        return dict.fromkeys(("heatmap", "curves"), self.title(config))

    def redraw(self, config: Config, tables: Mapping[str, Rows]) -> dict[str, Any]:
        """Both figures, of tables alone; the number of trials was not decided on the
        way."""
        return _figures(self, tables["table"], tables.get("law", ()), config, None)

    def main(self, config: Config, options: Options) -> dict[str, Any]:
        """Compute what the store lacks, then write the panel's tables and figures."""
        started = time.perf_counter()
        cells = grid(self.id, config)
        results = compute(cells, config, options)
        if options.shard is not None:
            return share_summary(
                self.id,
                options.shard,
                num_open=results.attrs["open_blocks"],
                num_blocks=math.prod(cells.shape) * cells.num_blocks,
                failed_cells=results.attrs["failures"],
            )
        limits = {"tolerance": config.tolerance, "error_rate": config.error_rate}
        sequential = options.precision is not None
        table = rows(results, config.trial, **limits, sequential=sequential)
        law: list[dict[str, Any]] = []
        if config.law and not config.resample:
            folder = options.out / "law"
            found = fig3_law.sweep(cells, folder, progress=options.progress)
            law = fig3_law.rows(cells, found, **limits)
        files = _write(self, table, law, config, options)
        seconds = round(time.perf_counter() - started, 2)
        row_axis, column_axis = self.axes
        headline = f"{self.title(config)}: successes by trial, {seconds} s"
        overview = report.markdown(
            pivot(table, row_axis=row_axis, column_axis=column_axis)
        )
        return {
            "experiment": self.id,
            "headline": f"{headline}\n\n{overview}",
            "files": files,
            "seconds": seconds,
            "failed_cells": sum(row["failed"] for row in table),
            "rows": table,
        }


def load(id: str) -> Panel:
    """The panel of an id."""
    return {panel.id: panel for panel in PANELS}[id]


def _panel(
    letter: str,
    axes: tuple[str, str],
    both: Mapping[str, Any],
    *,
    quick: Mapping[str, Any],
    paper: Mapping[str, Any],
) -> Panel:
    both = {"convention": ("reference", "paper"), **both}
    return Panel(
        f"ifca.fig3{letter}",
        axes,
        quick={
            **both,
            "num_features": 200,
            "num_trials": 10,
            "shortcuts": False,
            **quick,
        },
        paper={**both, "num_features": 1000, "num_trials": 40, "decide": True, **paper},
    )


_TWO = {"num_clusters": 2, "step_sizes": (1.0, 0.1, 0.01)}
_FOUR = {"num_clusters": 4, "step_sizes": (2.0, 1.0, 0.5)}
_BY_NOISE = {
    "separation": (0.1, 0.25, 0.5, 0.75, 1.0),
    "noise": (0.0, 0.1, 0.2, 0.4),
    "tolerance": 0.001,
}
_BY_SIZE = {"noise": (0.1,), "tolerance": 0.0}


def grid(experiment: str, config: Config) -> engine.Grid:
    """The panel's cells, as plain data."""
    return engine.Grid(
        experiment=experiment,
        trial=config.trial,
        axes={axis: getattr(config, axis) for axis in AXES},
        num_trials=config.num_trials,
        traced=("separation", "noise", "init_scale", "tolerance"),
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
        "waits": options.waits,
        "accept_code": options.accept_code,
        "enough": stopping_rule(
            options.precision,
            tolerance=config.tolerance,
            error_rate=config.error_rate,
            num_cells=math.prod(cells.shape),
            num_trials=config.num_trials,
        ),
    }
    store = options.store_folder
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


def _write(
    panel: Panel,
    table: list[dict[str, Any]],
    law: list[dict[str, Any]],
    config: Config,
    options: Options,
) -> list[str]:
    """Tables, configuration and both figures; returns their paths."""
    contents = {"table.csv": table} | ({"law.csv": law} if law else {})
    contents |= {
        "outcome.md": outcome(table, panel.axes),
        "config.json": settings(config, precision=options.precision),
        **_figures(panel, table, law, config, options.precision),
    }
    return write(options.out, contents)


def _figures(
    panel: Panel, table: Rows, law: Rows, config: Config, precision: float | None
) -> dict[str, Any]:
    """Both, by name."""
    row_axis, column_axis = panel.axes
    look: Mapping[str, Any] = {
        "row_axis": row_axis,
        "column_axis": column_axis,
        "title": panel.title(config),
        "tolerance": config.tolerance,
    }
    confidence = (
        describe(table, error_rate=config.error_rate, width=precision)
        + ", the same seeds in all cells; points moved aside to show all"
    )
    return {
        "heatmap": draw_heatmaps(table, **look),
        "curves": draw_curves(table, **look, confidence=confidence, law_rows=law),
    }


PANELS = (
    _panel(
        "a",
        ("noise", "separation"),
        _TWO | _BY_NOISE,
        quick={
            "convention": ("reference",),
            "num_clients": (40,),
            "num_samples": (50,),
        },
        paper={"num_clients": (100,), "num_samples": (100,)},
    ),
    _panel(
        "b",
        ("noise", "separation"),
        _FOUR | _BY_NOISE,
        quick={"num_clients": (40,), "num_samples": (50,)},
        paper={"num_clients": (400,), "num_samples": (100,)},
    ),
    _panel(
        "c",
        ("samples", "clients"),
        _TWO | _BY_SIZE | {"separation": (0.1,)},
        quick={"num_clients": (20, 40, 80), "num_samples": (25, 50, 100)},
        paper={
            "num_clients": (50, 70, 100, 150, 200, 300, 400),
            "num_samples": (50, 100, 200),
        },
    ),
    _panel(
        "d",
        ("samples", "clients"),
        _FOUR | _BY_SIZE | {"separation": (0.5,)},
        quick={"num_clients": (40, 80, 160), "num_samples": (25, 50, 100)},
        paper={
            "num_clients": (100, 200, 300, 400, 800),
            "num_samples": (50, 100, 200),
        },
    ),
)
