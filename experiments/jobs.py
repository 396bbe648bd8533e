"""Jobs: the sweeps of an experiment, and several workers that share them out.

An experiment that takes long says with `"has_jobs": True` that its module has a
function `jobs(config, options)`: sweeps that need nothing of each other, of trials that
are runs of many rounds. So they can be shared out, and their cost told, before any
table is made of them.
"""

import contextlib
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import xarray as xr

from cfljax import engine
from cfljax.engine import Simulate
from experiments.options import Options


class Job(NamedTuple):
    """One sweep, whose trials are long runs."""

    grid: engine.Grid
    simulate: Simulate
    constants: Callable[[], Any] = lambda: None  # Made when they are needed.

    @property
    def num_cells(self) -> int:
        """Number of cells."""
        return math.prod(self.grid.shape)


def run(
    options: Options, job: Job, *, shard: tuple[int, int] | None = None
) -> xr.Dataset:
    """Compute what the store lacks of a job, or a share of it, with clients spread over
    the devices that were asked for, or that pay; returns all that is there."""
    spread = engine.clients_over_devices(options.devices)
    with spread if options.devices else contextlib.nullcontext():
        return engine.sweep(
            job.grid,
            job.simulate,
            options.store_folder,
            constants=job.constants(),
            progress=options.progress,
            shard=shard,
            by_rounds=True,
            accept_code=options.accept_code,
        )


def share(experiment: str, options: Options, jobs: Sequence[Job]) -> dict[str, Any]:
    """Be worker i of n, of `options.shard`, on all jobs; a summary of what is there.

    Cells are dealt out one by one, over all jobs.
    """
    assert options.shard is not None
    number, workers = options.shard
    dealt = num_open = failed = 0
    for job in jobs:
        own = (number - 1 - dealt) % workers + 1
        dealt += job.num_cells
        try:
            found = run(options, job, shard=(own, workers)).attrs
        except engine.SweepError as error:  # The other jobs may do better.
            print(f"error: {error}", file=sys.stderr)
            found = {"open_blocks": 0, "failures": job.num_cells}
        num_open += found["open_blocks"]
        failed += found["failures"]
    return share_summary(
        experiment,
        options.shard,
        num_open=num_open,
        num_blocks=sum(job.num_cells * job.grid.num_blocks for job in jobs),
        failed_cells=failed,
    )


def share_summary(
    experiment: str,
    shard: tuple[int, int],
    *,
    num_open: int,
    num_blocks: int,
    failed_cells: int,
) -> dict[str, Any]:
    """A summary for the command line of worker i of n, for a `shard` of `(i, n)`, which
    writes no files; open blocks and failed cells are those of all.
    """
    number, workers = shard
    count = f"{num_open} of {num_blocks} blocks are open; start the others, then"
    state = count if num_open else f"none of {num_blocks} blocks is open;"
    return {
        "experiment": experiment,
        "headline": f"{experiment}, worker {number} of {workers}: {state} run "
        "without --shard for table and figures",
        "files": [],
        "shard": f"{number}/{workers}",
        "open_blocks": num_open,
        "blocks": num_blocks,
        "failed_cells": failed_cells,
    }
