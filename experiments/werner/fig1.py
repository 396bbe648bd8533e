"""Werner et al., Figure 1: methods that fail, and the radii that escape.

Command:   python -m experiments run werner.fig1 --preset paper
Quick:     the same with --preset quick: fewer radii, batches and trials
Measured:  quick, 10 s on one of two busy cores of an Intel Xeon: as derived below
Paper:     (a) Myopic-Clustering merges client 2 with 3 at a saddle and stays; (b) IFCA
           stays at a symmetric point, by either option; (c) Clustered Federated
           Learning splits {1, 2} from {3} at the FedAvg optimum 1/4, with probability
           1/2. Federated-Clustering "avoids such pitfalls".

Of (a) all is as stated but for a sign: the third gradient at 1.5 is -1 / (2 eta).
Federated-Clustering gets client 2 away iff 1/3 <= tau eta < 1, and all clients to their
optima iff 1/3 <= tau eta < 2/3; the radius of Theorem 3 is 0 here, where nothing is
random. Of (b) all is as stated, and a radius below 2 escapes, by leaving both clients
alone. Of (c) the optimum of the mean loss is 1/3 (1/4 is that of the clusters' means),
and the split by cosines is {1, 3} from {2} with probability 1/2 and the right one
otherwise. There, what client 2 hears from 1 and from 3 is equally far with batches of
one, so that no radius tells them apart; larger batches do, by radii below 1/2.
"""

import dataclasses
import time
from collections.abc import Mapping
from typing import Any, Literal

import xarray as xr

from cfljax import engine
from experiments.options import Options
from experiments.werner.fig1_examples import Name
from experiments.werner.fig1_figures import draw_paths, draw_radii
from experiments.werner.fig1_report import (
    COLUMNS,
    FAILING_COLUMNS,
    WINDOW_COLUMNS,
    failing_rows,
    note,
    rows,
    windows,
)
from experiments.werner.fig1_trial import (
    DIMS,
    FAILING_DIMS,
    Method,
    Trial,
    fail,
    simulate,
)
from experiments.werner.write import check_different, check_interval, finish, run

__all__ = ["REVISION", "Config", "main", "preset"]

EXPERIMENT = "werner.fig1"
REVISION = 1  # To be raised whenever a trial of the same fields changes its meaning.
FAILING: Mapping[Name, tuple[Method, ...]] = {
    "myopic": ("myopic",),
    "symmetric": ("option_one", "option_two"),
    "bipartition": ("coin_zero", "coin_one"),
}
DRAWN = {"myopic": 0.5, "symmetric": 1.0, "bipartition": 0.25}  # radii of the paths


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that the figure depends on. One field, one flag."""

    myopic_radius: tuple[float, ...]
    """Radii of example (a), in units of 1 / (step size)."""
    symmetric_radius: tuple[float, ...]
    """Radii of example (b)."""
    bipartition_radius: tuple[float, ...]
    """Radii of example (c)."""
    batch_size: tuple[int, ...]
    """Samples of a gradient of example (c), where alone they matter."""
    num_trials: int
    """Runs of example (c)."""
    myopic_step_size: float = 0.25
    """Eta of example (a); below 11/36, or client 2 swings about its optimum."""
    step_size: float = 0.1
    """Eta of the other examples."""
    num_rounds: int = 400
    """T; ends are means over the second half."""
    num_clipping_rounds: int = 10
    """l, rounds of Threshold-Clustering."""
    tolerance: float = 0.05
    """How near its optimum a client is right."""
    seed: int = 0
    """Of the batches."""
    error_rate: float = 0.05
    """Of each interval."""

    def __post_init__(self) -> None:
        for name in ("myopic_radius", "symmetric_radius", "bipartition_radius"):
            check_different(**{name: getattr(self, name)})
        check_different(batch_size=self.batch_size)
        check_interval(self.error_rate, self.num_trials)
        if not 0 < self.tolerance < 0.5:
            raise ValueError(f"`tolerance` must be in (0, .5), got {self.tolerance}.")
        for name in FAILING:
            for grid in _grids(self, name):
                grid.cells()  # They check what they share.


def preset(name: Literal["quick", "paper"]) -> Config:
    """The configuration of a preset."""
    edges = (0.3332, 0.3334, 0.66, 0.67, 0.99, 1.01)
    myopic = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 0.9, 1.2)
    symmetric = (0.0, 0.5, 1.0, 1.5, 1.8, 1.99, 2.01, 2.2, 2.5, 3.0)
    bipartition = (0.05, 0.1, 0.15, 0.25, 0.35, 0.4, 0.45, 0.49, 0.51, 0.6, 0.8, 1.0)
    if name == "quick":
        batches, trials = (1, 64), 5
    else:
        batches, trials = (1, 4, 16, 64, 256), 20
        edges += (0.3333, 0.6666, 0.6667, 0.9999, 1.0001)
        symmetric += (1.9999, 2.0001)
    return Config(
        myopic_radius=tuple(sorted(myopic + edges)),
        symmetric_radius=tuple(sorted(symmetric)),
        bipartition_radius=bipartition,
        batch_size=batches,
        num_trials=trials,
    )


def main(config: Config, options: Options) -> dict[str, Any]:
    """Compute what the stores lack, then write tables and figures.

    Args:
      config: of the experiment.
      options: how to run.

    Returns:
      A summary for the command line.
    """
    started = time.perf_counter()
    failing: dict[str, xr.Dataset] = {}
    clustering: dict[str, xr.Dataset] = {}
    for name in FAILING:
        without, grid = _grids(config, name)
        failing[name] = run(without, fail, f"failing_{name}", options)
        clustering[name] = run(grid, simulate, f"clustering_{name}", options)
    failed = failing_rows(failing, config.tolerance)
    table = rows(clustering, tolerance=config.tolerance, error_rate=config.error_rate)
    found = windows(table)
    return finish(
        EXPERIMENT,
        config,
        options,
        rows=table,
        columns=COLUMNS,
        note=note(failed),
        figures={
            "paths": draw_paths(failing, clustering, DRAWN),
            "radii": draw_radii(table),
        },
        results=[*failing.values(), *clustering.values()],
        started=started,
        others={
            "failing": (failed, FAILING_COLUMNS),
            "windows": (found, WINDOW_COLUMNS),
        },
        overview=found,
    )


def _trial(config: Config, name: Name) -> Trial:
    """What all cells of an example share."""
    return Trial(
        example=name,
        radius=0.0,
        step_size=config.myopic_step_size if name == "myopic" else config.step_size,
        batch_size=1,
        num_rounds=config.num_rounds,
        num_clipping_rounds=config.num_clipping_rounds,
    )


def _grids(config: Config, name: Name) -> tuple[engine.Grid, engine.Grid]:
    """The failing methods of an example, which are exact, and Federated-Clustering."""
    is_random = name == "bipartition"
    shared: Any = {"trial": _trial(config, name), "seed": config.seed}
    failing = engine.Grid(
        experiment=f"{EXPERIMENT}.failing",
        axes={"method": FAILING[name]},
        num_trials=1,
        dims=FAILING_DIMS,
        revision=REVISION,
        **shared,
    )
    clustering = engine.Grid(
        experiment=f"{EXPERIMENT}.clustering",
        axes={
            "batch_size": config.batch_size if is_random else (1,),
            "radius": getattr(config, f"{name}_radius"),
        },
        num_trials=config.num_trials if is_random else 1,
        dims=DIMS,
        revision=REVISION,
        **shared,
    )
    return failing, clustering
