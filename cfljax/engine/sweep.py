"""Sweep: run a grid of trials, and never lose one that is done."""

import os
import pathlib
from typing import Any

import jax
import xarray
from jaxtyping import PyTree

from cfljax.engine.batch import Batching, Simulate
from cfljax.engine.claims import Claims, Shared
from cfljax.engine.devices import trial_devices
from cfljax.engine.execute import Common, Jointly, Traced
from cfljax.engine.grid import BLOCK, Grid
from cfljax.engine.joint import Joint
from cfljax.engine.memory import check_results
from cfljax.engine.progress import Bar
from cfljax.engine.provenance import describe_run
from cfljax.engine.stopping import Enough, Stopping
from cfljax.engine.store import FAILED, OPEN
from cfljax.engine.task import Task
from cfljax.engine.units import plan
from cfljax.engine.work import Place, Work

__all__ = ["sweep"]


def sweep(
    grid: Grid,
    simulate: Simulate | None,
    path: str | os.PathLike[str],
    *,
    constants: PyTree = None,
    chunk: int | None = None,
    memory: int | None = None,
    progress: bool = True,
    batching: Batching | None = None,
    devices: int | None = None,
    joint: Joint | None = None,
    shard: tuple[int, int] | None = None,
    enough: Enough | None = None,
) -> xarray.Dataset:
    """Run what the store at `path` lacks of a grid, and return all of it.

    A sweep that was killed, interrupted or stopped by a full disk resumes where it
    was when it is called again; one that is complete is only read. A cell that raises
    is recorded as failed, and tried again by the next call. Runs that diverge are
    results like any other.

    Trial `i` of each cell gets `fold_in(key(seed), i)`. Fields of the trial that are
    Python floats reach `simulate` traced, so cells that differ only in floats share
    one compilation; the others are static.

    Any number of runs, on any machines that see the folder, may work on one store at
    once. Each claims what it computes (a cell; if `joint`, a block of all cells that
    share their data, or all their blocks with `enough`) by locks that die with their
    process, see `claims`, and passes over what others hold. A run that is killed loses
    at most the blocks that it was computing.

    Cost: memory is that of one chunk, by XLA's own account, and of the results, twice.

    Args:
      grid: cells and trials.
      simulate: `(trial, key, constants) -> {name: array}`, one trial; pure and
        traceable. Its outputs have the same shapes in all cells. None with `joint`.
      path: the store, a zarr group. `NAME.provenance.json`, `NAME.lock` and, if a cell
        fails, `NAME.failures.jsonl` are written beside it.
      constants: arrays that all trials share. They are no part of what identifies a
        store: raise `grid.revision` when they change.
      chunk: trials per compiled call, `BLOCK` at most; None for as many as fit.
      memory: bytes that a compiled call may take; None for half of what is available.
      progress: whether to show a bar, where the standard error is a terminal.
      batching: "map" (one trial after the other, the default on a CPU, where one fills
        the cores) or "vmap" (all at once, the default on an accelerator). With "map"
        the chunk never changes a bit of the result; see `batch.compile_trials`.
      devices: local devices that the trials of a chunk are spread over; None for one
        on a CPU, and all on an accelerator unless clients are spread over them.
      joint: instead of `simulate`, how to compute cells that share their random data
        together; `chunk`, `memory`, `batching` and `devices` are its own affair.
      shard: `(i, n)`, 1 <= i <= n: do only every n-th piece of work from the i-th on,
        and return what is done by then.
      enough: `(outputs, trial) -> bool`, whether a cell needs no more trials, asked
        after each block with all outputs `[n, ...]` of the cell's first n trials; a
        pure function, so that it does not matter who computed what and when. Blocks
        beyond are neither computed nor, if they are stored, used.

    Returns:
      Dataset of floats, see `labels.labelled`; with `shard` of what is done, and
      `attrs["open_blocks"]` counts the blocks that are not.

    Raises:
      StoreError: if `path` belongs to something else, the disk refuses or, without
        `shard`, other runs still compute blocks. Blocks that are done stay done.
      ValueError: if an argument is out of its range, a trial or the chunk does not
        fit in `memory`, the results do not fit in what is free, or outputs are not
        what the grid announces.
      SweepError: if every cell failed before its outputs were known.
    """
    given = {"chunk": chunk, "memory": memory, "batching": batching, "devices": devices}
    _check_ways(simulate, joint, given)
    _check_shard(shard)
    if joint is None:
        given |= {"batching": batching or _batching(), "devices": devices or _devices()}
        trial_devices(given["devices"])  # Raises if there are not so many.
    check_results(grid)
    task = Task(grid, grid.cells(), pathlib.Path(path), Stopping(enough))
    if (found := task.finished()) is not None:
        return found
    units = plan(grid, task.cells, joint=joint, by_block=enough is None, shard=shard)
    with Claims(task.path, (*grid.shape, grid.num_blocks)) as claims:
        with claims.alone(Shared.STORE):
            store, journal, states = task.begin(claims)
        options = {name: given[name] for name in ("batching", "chunk", "memory")}
        options |= {"devices_used": given["devices"], "joint": joint is not None}
        options["shard"] = None if shard is None else "{}/{}".format(*shard)
        journal.start({**describe_run(), **options})
        with Bar(grid.experiment, visible=progress) as bar:
            todo = (states == OPEN) | (states == FAILED)
            work = Work(Place(grid, store, claims, journal, bar, todo), task.stopping)
            key = jax.random.key(grid.seed, impl="threefry2x32")
            common = Common(key, constants, work.check, work.advance)
            if joint is not None:
                compute = Jointly(joint, common)
            else:
                compute = _traced(grid, simulate, common, given)
            work.run(units, compute)
    return task.results(journal, is_part=shard is not None)


def _check_ways(
    simulate: Simulate | None, joint: Joint | None, given: dict[str, Any]
) -> None:
    """Raises ValueError unless there is one way to compute, with its own options."""
    if (simulate is None) == (joint is None):
        found = "neither" if simulate is None else "both"
        raise ValueError(f"give `simulate` or `joint`, one of the two; got {found}.")
    for name, value in given.items():
        if joint is not None and value is not None:
            raise ValueError(f"`{name}` does not apply to a `joint` one; leave it out.")
    if given["batching"] not in (None, "map", "vmap"):
        got = given["batching"]
        raise ValueError(f"`batching` must be 'map' or 'vmap', got {got!r}.")
    for name, unit in (("chunk", ""), ("memory", " byte"), ("devices", "")):
        value = given[name]
        if value is not None and value < 1:
            raise ValueError(f"`{name}` must be at least 1{unit}, got {value}.")


def _check_shard(shard: tuple[int, int] | None) -> None:
    """Raises ValueError unless it is one of n."""
    if shard is None:
        return
    whole = len(shard) == 2 and all(type(number) is int for number in shard)
    if not whole or not 1 <= shard[0] <= shard[1]:
        raise ValueError(
            f"`shard` must be (i, n) of whole numbers, 1 <= i <= n, got {shard!r}."
        )


def _traced(grid: Grid, simulate: Any, common: Common, given: dict[str, Any]) -> Traced:
    arrays = jax.device_put(common.constants)
    block = min(BLOCK, grid.num_trials)
    return Traced(simulate, common._replace(constants=arrays), block=block, **given)


def _batching() -> Batching:
    return "map" if jax.default_backend() == "cpu" else "vmap"


def _devices() -> int:
    busy = not jax.sharding.get_abstract_mesh().empty
    return 1 if busy or jax.default_backend() == "cpu" else jax.local_device_count()
