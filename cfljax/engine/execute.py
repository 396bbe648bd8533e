"""Execute: compile and run the blocks that a store lacks, cell by cell."""

import contextlib
import dataclasses
import functools
from typing import Any

import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from cfljax.engine.batch import (
    Batching,
    Program,
    Simulate,
    compile_trials,
    floats,
    run_trials,
)
from cfljax.engine.errors import MemoryLimitError, StoreError
from cfljax.engine.grid import BLOCK, Cell, Grid
from cfljax.engine.memory import fit_chunk
from cfljax.engine.progress import Bar
from cfljax.engine.provenance import Journal
from cfljax.engine.store import DONE, FAILED, Store

__all__ = ["Job", "run_cells"]


@dataclasses.dataclass(frozen=True)
class Job:
    """What a sweep was asked to do, and where it writes; see `sweep`."""

    grid: Grid
    simulate: Simulate
    constants: PyTree
    key: PRNGKeyArray
    batching: Batching
    chunk: int | None
    memory: int | None
    store: Store
    journal: Journal
    bar: Bar


def run_cells(job: Job, cells: list[Cell]) -> None:
    """Compute every block that is not done, compiling once per set of static fields.

    Raises:
      StoreError: if the disk refuses.
      MemoryLimitError: if a trial or the chunk does not fit.
      ValueError: if outputs are not what the grid announces.
    """
    before = job.store.done == DONE
    seconds = 0.0
    try:
        for group in _groups(cells):
            pending = [cell for cell in group if _blocks(job, cell)]
            if not pending or (program := _compile(job, pending)) is None:
                continue
            seconds += sum(_run_cell(job, program, cell) for cell in pending)
    finally:
        blocks = int(np.sum((job.store.done == DONE) & ~before))
        with contextlib.suppress(StoreError):  # Nothing that a result depends on.
            job.journal.finish(seconds=seconds, blocks=blocks)


def _groups(cells: list[Cell]) -> list[list[Cell]]:
    """Cells that differ only in floats, and so share a compilation."""
    groups: dict[tuple, list[Cell]] = {}
    for cell in cells:
        traced = floats(cell.trial)
        fields = [f.name for f in dataclasses.fields(cell.trial)]
        static = [getattr(cell.trial, name) for name in fields if name not in traced]
        groups.setdefault(tuple(static), []).append(cell)
    return list(groups.values())


def _blocks(job: Job, cell: Cell) -> list[int]:
    """Blocks of a cell that are not done."""
    return np.flatnonzero(job.store.done[cell.index] != DONE).tolist()


def _compile(job: Job, cells: list[Cell]) -> Program | None:
    """One program for all cells, or None if it cannot be had and they fail."""
    compile_chunk = functools.partial(
        compile_trials, job.simulate, cells[0].trial, job.key, job.constants
    )
    try:
        program = fit_chunk(
            lambda size: compile_chunk(chunk=size, batching=job.batching),
            block=min(BLOCK, job.grid.num_trials),
            chunk=job.chunk,
            memory=job.memory,
        )
    except MemoryLimitError:
        raise
    except Exception as error:
        for cell in cells:
            _fail(job, cell, error)
        return None
    job.store.create_outputs(program.outputs)
    return program


def _run_cell(job: Job, program: Program, cell: Cell) -> float:
    """Run and store the blocks of one cell; returns the seconds of those stored."""
    total = 0.0
    for block in _blocks(job, cell):
        try:
            outputs, seconds = run_trials(
                program,
                cell.trial,
                job.key,
                job.constants,
                trials=job.grid.block(block),
            )
        except Exception as error:
            _fail(job, cell, error)
            break
        job.store.write(cell.index, block, outputs, seconds)
        job.bar.advance()
        total += seconds
    return total


def _fail(job: Job, cell: Cell, error: Exception) -> None:
    """Record that a cell raised; its other blocks are left for the next call."""
    pairs = zip(job.grid.axes.items(), cell.index, strict=True)
    point: dict[str, Any] = {name: values[i] for (name, values), i in pairs}
    job.journal.record(point, error)
    blocks = _blocks(job, cell)
    for block in blocks:
        job.store.mark(cell.index, block, FAILED)
    job.bar.fail()
    job.bar.advance(len(blocks))
