"""Work: claim, compute and store what a sweep lacks, unit by unit."""

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool

from cfljax.engine.claims import Claims, Shared
from cfljax.engine.errors import MemoryLimitError, OutputsError, StoreError
from cfljax.engine.execute import Compute
from cfljax.engine.grid import Cell, Grid
from cfljax.engine.joint import Outputs
from cfljax.engine.progress import Bar
from cfljax.engine.provenance import Journal
from cfljax.engine.stopping import Stopping
from cfljax.engine.store import DONE, FAILED, Store
from cfljax.engine.units import Unit

__all__ = ["Place", "Work"]

# A sweep ends with these; with others that a trial raises only its cell does.
FATAL = (MemoryLimitError, OutputsError, StoreError)

Position = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a sweep writes, under its claims, and what it lacked at the start.

    todo: the blocks `[*axes, blocks]` that were needed and not done.
    """

    grid: Grid
    store: Store
    claims: Claims
    journal: Journal
    bar: Bar
    todo: Bool[np.ndarray, "*axes blocks"]

    def remaining(self, unit: Unit) -> list[Position]:
        """The blocks of a unit that were to be done at the start."""
        return [position for position in unit.positions if self.todo[position]]

    def count(self, blocks: Sequence[Position]) -> int:
        """Number of trials in some blocks."""
        trials = (self.grid.block(number) for *_, number in blocks)
        return sum(own.stop - own.start for own in trials)


class Work:
    """One run over a store.

    Args:
      place: see `Place`.
      stopping: when a cell needs no more blocks.
    """

    def __init__(self, place: Place, stopping: Stopping) -> None:
        self._place = place
        self._stopping = stopping
        self._blocks, self._seconds, self._trials = 0, 0.0, 0
        self._failed: set[Position] = set()  # Cells, in this run.
        self._accepted: dict[str, jax.ShapeDtypeStruct] | None = None

    def check(self, outputs: dict[str, jax.ShapeDtypeStruct]) -> None:
        """Make the arrays for the outputs of a trial, or check those that are there.

        Raises:
          ValueError: if they are not what the grid announces or the store holds.
        """
        if outputs != self._accepted:
            with self._place.claims.alone(Shared.STORE):
                self._place.store.create_outputs(outputs)
            self._accepted = dict(outputs)

    def advance(self, trials: int) -> None:
        """Count trials that are over."""
        self._trials += trials
        self._place.bar.advance(trials)

    def run(self, units: Sequence[Unit], compute: Compute) -> None:
        """Do every unit that no other run holds, or has done meanwhile.

        One that is held is tried again after the others, for as long as any gets
        done: the run that held it may have been killed.

        Args:
          units: in this order.
          compute: one block of some cells of a unit.

        Raises:
          StoreError: if the disk refuses.
          MemoryLimitError: if a trial or the chunk does not fit.
          ValueError: if outputs are not what the grid announces.
        """
        left = list(units)
        place = self._place
        place.bar.expect(sum(place.count(place.remaining(unit)) for unit in left))
        try:
            while left:
                held = [unit for unit in left if not self._take(unit, compute)]
                if len(held) == len(left):
                    break
                left = held
        finally:
            with contextlib.suppress(StoreError):  # Nothing that a result depends on.
                place.journal.finish(seconds=self._seconds, blocks=self._blocks)

    def _take(self, unit: Unit, compute: Compute) -> bool:
        """Claim and do what a unit lacks; False if another run holds it."""
        place = self._place
        if not (remaining := place.remaining(unit)):
            return True
        before = [place.store.done[block] for block in remaining]
        trials = self._trials
        with place.claims.claim(remaining) as is_mine:
            if not is_mine:
                return False
            place.store.refresh(remaining)
            after = [place.store.done[block] for block in remaining]
            # Another run has tried these since, and the next call will again.
            tried = {
                block[:-1]
                for block, old, new in zip(remaining, before, after, strict=True)
                if old != new == FAILED
            }
            asked = {block[:-1] for block in remaining}
            if asked - tried - self._failed:
                self._compute(unit, compute)
            else:
                for index in self._failed & asked:
                    self._mark_failed(self._lacking(unit, index))
        place.bar.expect(self._trials - trials - place.count(remaining))
        return True

    def _compute(self, unit: Unit, compute: Compute) -> None:
        """Do the blocks of a claimed unit in order, of each cell until it stops.

        A block that any cell lacks is computed of all that have not stopped before it,
        and written of those that lack it: what a cell gets may depend, in its last
        bits, on the cells beside it, and so must not on who was killed when.
        """
        store = self._place.store
        running = list(unit.cells)
        known: dict[Position, list[Mapping[str, np.ndarray]]]
        known = {cell.index: [] for cell in running}
        for number in unit.blocks:
            found = self._attempt(unit, running, number, compute)
            if found is None:
                return  # Which cells would stop here is not known.
            if self._stopping.enough is None:
                continue
            for cell in list(running):
                outputs = found.get(cell.index) or store.block(cell.index, number)
                known[cell.index].append(outputs)
                if self._stopping.stops(cell, known[cell.index]):
                    running.remove(cell)

    def _attempt(
        self, unit: Unit, cells: list[Cell], number: int, compute: Compute
    ) -> dict[Position, Outputs] | None:
        """Compute a block of some cells, and store it of those that lack it.

        Returns:
          What was stored; None if the computation raised, which is recorded.
        """
        place = self._place
        lacking = {
            cell.index
            for cell in cells
            if place.store.done[(*cell.index, number)] != DONE
        }
        if not lacking:
            return {}
        trials = [cell.trial for cell in cells]
        try:
            results, seconds = compute(unit.group, trials, place.grid.block(number))
        except FATAL:
            raise
        except Exception as error:
            for cell in cells:
                self._fail(unit, cell, error)
            return None
        found = {
            cell.index: outputs
            for cell, outputs in zip(cells, results, strict=True)
            if cell.index in lacking
        }
        for index, outputs in found.items():
            place.store.write(index, number, outputs, seconds / len(cells))
        self._blocks += len(found)
        self._seconds += seconds
        return found

    def _fail(self, unit: Unit, cell: Cell, error: Exception) -> None:
        """Record that a cell raised, if it lacks anything of the unit.

        Its other blocks are left for the next call.
        """
        lacking = self._lacking(unit, cell.index)
        if lacking and cell.index not in self._failed:
            axes = self._place.grid.axes
            pairs = zip(axes.items(), cell.index, strict=True)
            point: dict[str, Any] = {name: values[i] for (name, values), i in pairs}
            self._place.journal.record(point, error)
            self._failed.add(cell.index)
            self._place.bar.fail()
        self._mark_failed(lacking)

    def _lacking(self, unit: Unit, index: Position) -> list[Position]:
        """What a cell lacks of a unit."""
        remaining = self._place.remaining(unit)
        done = self._place.store.done
        return [b for b in remaining if b[:-1] == index and done[b] != DONE]

    def _mark_failed(self, blocks: Sequence[Position]) -> None:
        for *cell, number in blocks:
            self._place.store.mark(tuple(cell), number, FAILED)
