"""Sweep: run a grid of trials, and never lose one that is done."""

import logging
import os
import pathlib

import jax
import numpy as np
import xarray
from jaxtyping import PyTree

from cfljax.engine.batch import Batching, Simulate
from cfljax.engine.errors import StoreError, SweepError
from cfljax.engine.execute import Job, run_cells
from cfljax.engine.grid import Grid
from cfljax.engine.labels import labelled
from cfljax.engine.lock import exclusive
from cfljax.engine.memory import check_results
from cfljax.engine.progress import Bar
from cfljax.engine.provenance import Journal, describe_run
from cfljax.engine.store import DONE, OPEN, Store

__all__ = ["sweep"]

log = logging.getLogger(__name__)


def sweep(
    grid: Grid,
    simulate: Simulate,
    path: str | os.PathLike[str],
    *,
    constants: PyTree = None,
    chunk: int | None = None,
    memory: int | None = None,
    progress: bool = True,
    batching: Batching | None = None,
) -> xarray.Dataset:
    """Run what the store at `path` lacks of a grid, and return all of it.

    A sweep that was killed, interrupted or stopped by a full disk resumes where it
    was when it is called again; one that is complete is only read. A cell that raises
    is recorded as failed, and tried again by the next call. Runs that diverge are
    results like any other.

    Trial `i` of each cell gets `fold_in(key(seed), i)`. Fields of the trial that are
    Python floats reach `simulate` traced, so cells that differ only in floats share
    one compilation; the others are static.

    Cost: memory is that of one chunk, by XLA's own account, and of the results, twice.

    Args:
      grid: cells and trials.
      simulate: `(trial, key, constants) -> {name: array}`, one trial; pure and
        traceable. Its outputs have the same shapes in all cells.
      path: the store, a zarr group. `NAME.provenance.json` and, if a cell fails,
        `NAME.failures.jsonl` are written beside it.
      constants: arrays that all trials share. They are no part of what identifies a
        store: raise `grid.revision` when they change.
      chunk: trials per compiled call, `BLOCK` at most; None for as many as fit.
      memory: bytes that a compiled call may take; None for half of what is available.
      progress: whether to show a bar, where the standard error is a terminal.
      batching: "map" (one trial after the other, the default on a CPU, where one fills
        the cores) or "vmap" (all at once, the default on an accelerator). With "map"
        the chunk never changes a bit of the result; see `batch.compile_trials`.

    Returns:
      Dataset of floats, see `labels.labelled`.

    Raises:
      StoreError: if `path` belongs to something else, another sweep is writing to it,
        or the disk refuses. Blocks that are done stay done.
      ValueError: if an argument is out of its range, a trial or the chunk does not
        fit in `memory`, the results do not fit in what is free, or outputs are not
        what the grid announces.
      SweepError: if every cell failed before its outputs were known.
    """
    if chunk is not None and chunk < 1:
        raise ValueError(f"`chunk` must be at least 1, got {chunk}.")
    if memory is not None and memory < 1:
        raise ValueError(f"`memory` must be at least 1 byte, got {memory}.")
    if batching not in (None, "map", "vmap"):
        raise ValueError(f"`batching` must be 'map' or 'vmap', got {batching!r}.")
    check_results(grid)
    cells = grid.cells()
    store = Store(pathlib.Path(path), grid)
    if np.all(store.done == DONE):
        values, damaged = store.read()
        if not np.any(damaged):
            return labelled(grid, values, store.done)
        del values  # Or it would stay beside the final results.
    with exclusive(store.path):
        store = Store(store.path, grid)  # Another sweep may have added to it.
        damaged = store.read()[1]
        journal = Journal(store.path, is_new=store.is_new)
        store.create()
        _reopen(store, damaged)
        batching = batching or ("map" if jax.default_backend() == "cpu" else "vmap")
        journal.start({**describe_run(), "batching": batching, "chunk": chunk})
        todo = int(np.sum(store.done != DONE))
        with Bar(grid.experiment, todo, visible=progress) as bar:
            job = Job(
                grid=grid,
                simulate=simulate,
                constants=jax.device_put(constants),
                key=jax.random.key(grid.seed, impl="threefry2x32"),
                batching=batching,
                chunk=chunk,
                memory=memory,
                store=store,
                journal=journal,
                bar=bar,
            )
            run_cells(job, cells)
    return _results(store, journal)


def _reopen(store: Store, damaged: np.ndarray) -> None:
    """Mark damaged blocks, so that a kill before they are repaired changes nothing."""
    for *cell, block in np.argwhere(damaged).tolist():
        store.mark(tuple(cell), block, OPEN)
    if count := int(np.sum(damaged)):
        log.warning(
            "`%s`: %d blocks are missing or damaged on disk; computing them again.",
            store.path,
            count,
        )


def _results(store: Store, journal: Journal) -> xarray.Dataset:
    values, damaged = store.read()
    if np.any(damaged):
        raise StoreError(
            f"`{store.path}` was damaged while it was written; run again to repair it."
        )
    dataset = labelled(store.grid, values, store.done)
    failed, number = dataset.attrs["failures"], store.done[..., 0].size
    if failed and not values:
        raise SweepError(
            f"all cells failed, the first with {journal.first_error}; see"
            f" `{journal.failures}`."
        )
    if failed:
        log.warning(
            "%d of %d cells failed, the first with %s; see `%s`. Run again to retry.",
            failed,
            number,
            journal.first_error,
            journal.failures,
        )
    return dataset
