"""Jobs: the sweeps of an experiment, and several workers that share them out.

An experiment that takes long says with `"has_jobs": True` that its module has a
function `jobs(config, options)`: sweeps of trials that are runs of many rounds. So they
can be shared out, and their cost told, before any table is made of them. One that needs
results of another comes after it, and takes them in its `constants` by `result`.
"""

import contextlib
import contextvars
import dataclasses
import math
import pathlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from cfljax import engine
from cfljax.engine import Simulate
from experiments.options import Options
from experiments.registry import Entry


class Job(NamedTuple):
    """One sweep, whose trials are runs of many rounds."""

    grid: engine.Grid
    simulate: Simulate
    constants: Callable[[], Any] = lambda: None  # Made when they are needed.
    # Of the same shapes and types, for a price, where `constants` needs results.
    stand_in: Callable[[], Any] | None = None
    name: str = ""  # For a plan, where trials do not say which job they are of.
    # Whether trials are long: each then goes on in the middle, and is compiled anew.
    # Else one program computes all that differ in traced fields alone.
    is_long: bool = True

    @property
    def num_cells(self) -> int:
        """Number of cells."""
        return math.prod(self.grid.shape)


Ran = list[tuple[Job, xr.Dataset]]
_WATCHING: contextvars.ContextVar[Ran | None] = contextvars.ContextVar(
    "watching", default=None
)


@contextlib.contextmanager
def watching() -> Iterator[Ran]:
    """All jobs that `run` has run until the context ends, each once, with what is
    there of them."""
    found: Ran = []
    token = _WATCHING.set(found)
    try:
        yield found
    finally:
        _WATCHING.reset(token)


def check_logged(experiment: str, jobs: Sequence[Job]) -> None:
    """Raises ValueError where no job measures anything by round."""
    dims = [own for job in jobs for own in job.grid.dims.values()]
    if not any(axis in own for own in dims for axis in ("round", "tested")):
        raise ValueError(
            f"`--log` has no use for {experiment}: it measures nothing by round."
        )


def log(ran: Ran, kind: str, folder: pathlib.Path) -> list[str]:
    """Log every run of the jobs, named by what differs among and within them; the
    folder, if there is anything."""
    fields = [_common(job.grid) for job, _ in ran]
    for (_, data), own in zip(ran, fields, strict=True):
        if not {"round", "tested"} & set(data.dims):
            continue
        others = lambda name: (other.get(name) for other in fields)
        settings = {
            name: value
            for name, value in own.items()
            if any(other != value for other in others(name))
        }
        engine.log_results(data, kind, folder, settings=settings)
    return [str(folder)] if folder.is_dir() else []


def _asked(job: Job) -> tuple[Any, ...]:
    """What tells a job from others: its cells."""
    grid = job.grid
    axes = {name: tuple(values) for name, values in grid.axes.items()}
    return grid.experiment, grid.trial, axes


def _common(grid: engine.Grid) -> dict[str, Any]:
    """The fields that all cells of a grid share."""
    every = dataclasses.asdict(grid.trial)
    return {name: value for name, value in every.items() if name not in grid.axes}


def run(
    options: Options,
    job: Job,
    *,
    shard: tuple[int, int] | None = None,
    waits: bool = False,
) -> xr.Dataset:
    """Compute what the store lacks of a job, or a share of it, with clients spread over
    the devices that were asked for, or that pay; returns all that is there. What other
    workers compute is theirs; one that `waits` stays until they have done it."""
    known = engine.progress_of(options.store_folder, job.grid)
    # What is done is only read: a campaign that was killed is soon where it was.
    is_done = not known.num_open and not np.any(known.has_failed)
    # Of several processes `run` spreads clients over the devices of all.
    is_alone = engine.num_processes() == 1
    spread = engine.clients_over_devices(options.devices)
    with spread if options.devices and is_alone else contextlib.nullcontext():
        found = engine.sweep(
            job.grid,
            job.simulate,
            options.store_folder,
            constants=None if is_done else job.constants(),
            progress=options.progress,
            shard=shard,
            waits=waits or options.waits,
            by_rounds=job.is_long,
            chunk=None if job.is_long else options.chunk,
            memory=None if job.is_long else options.memory,
            accept_code=options.accept_code,
        )
    ran = _WATCHING.get()
    if ran is not None and all(_asked(job) != _asked(other) for other, _ in ran):
        ran.append((job, found))
    return found


def result(options: Options, job: Job) -> xr.Dataset:
    """All of a job that another one needs, without failures: what workers compute is
    waited for, and what nobody does is computed here.

    Raises:
      SweepError: if a cell failed, here or at another worker's.
    """
    found = run(options, job, waits=True)
    if failures := found.attrs["failures"]:
        raise engine.SweepError(
            f"{job.name}: {failures} of {job.num_cells} cells failed, and what needs "
            "them was not begun."
        )
    return found


def share_of(entry: Entry, config: Any, options: Options) -> Mapping[str, Any]:
    """Be worker i of n, of `options.shard`, on an experiment that is a sweep or has
    jobs; a summary of what is there at the end, of all workers."""
    module = entry.load()
    if not entry.has_jobs:
        return module.main(config, options)
    return share(entry.id or "compare", options, module.jobs(config, options))


def share(experiment: str, options: Options, jobs: Sequence[Job]) -> dict[str, Any]:
    """Be worker i of n, of `options.shard`, on all jobs; a summary of what is there at
    the end, of all workers.

    Cells, or as many as are computed at once, are dealt out one by one, over all jobs.
    """
    assert options.shard is not None
    number, workers = options.shard
    dealt = 0
    for job in jobs:
        own = (number - 1 - dealt) % workers + 1
        dealt += engine.num_pieces(job.grid, by_rounds=job.is_long, chunk=options.chunk)
        try:
            run(options, job, shard=(own, workers))
        except engine.SweepError as error:  # The other jobs may do better.
            print(f"error: {error}", file=sys.stderr)
    found = [engine.progress_of(options.store_folder, job.grid) for job in jobs]
    return share_summary(
        experiment,
        options.shard,
        num_open=sum(own.num_open for own in found),
        num_blocks=sum(job.num_cells * job.grid.num_blocks for job in jobs),
        failed_cells=sum(int(np.sum(own.has_failed)) for own in found),
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
