"""An experiment of long runs for clusters: quick, on the host, compiled by nobody."""

import dataclasses
import os
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from cfljax import engine, report
from experiments.jobs import Job, run
from experiments.options import Options
from experiments.registry import Entry

ENTRY = Entry("toy.cluster", __name__, "what a cluster computes", has_jobs=True)


@dataclasses.dataclass(frozen=True)
class Config:
    """One field, one flag."""

    num_cells: int = 4
    num_trials: int = 20
    seconds: float = 0.0  # Of a trial.
    fails: int = -1  # Number of the cell whose trials raise.
    ends: int = -1  # Number of the cell whose trials end their process.


@dataclasses.dataclass(frozen=True)
class Trial:
    number: int = 0


def job(config: Config) -> Job:
    """Cells that sleep, and return numbers of their key."""
    grid = engine.Grid(
        experiment=ENTRY.id,
        trial=Trial(),
        axes={"number": tuple(range(config.num_cells))},
        num_trials=config.num_trials,
        dims={"value": ("place",)},
    )

    def simulate(trial: Trial, key: jax.Array, constants: Any) -> dict[str, Any]:
        del constants
        time.sleep(config.seconds)
        if trial.number == config.fails:
            raise RuntimeError("no such number")
        if trial.number == config.ends:
            os._exit(1)
        words = np.asarray(jax.random.key_data(key)).tolist()
        random = np.random.default_rng([trial.number, *words])
        return {"value": random.random(3, np.float32)}

    return Job(grid, simulate, name="toy")


def jobs(config: Config, options: Options) -> Sequence[Job]:
    """What workers share."""
    del options
    return [job(config)]


def main(config: Config, options: Options) -> dict[str, Any]:
    """Compute what is missing, and write the table."""
    found = run(options, job(config))
    rows = [
        {"number": number, "mean": float(found["value"][number].mean())}
        for number in range(config.num_cells)
    ]
    report.write_csv(options.out / "table.csv", rows)
    return {"headline": "done", "files": [], "rows": rows}
