"""Task: what a sweep finds in its store when it begins, and when it ends."""

import logging
import pathlib
from typing import NamedTuple

import numpy as np
import xarray
from jaxtyping import Int8

from cfljax.engine.claims import Claims
from cfljax.engine.errors import StoreError, SweepError
from cfljax.engine.grid import Cell, Grid
from cfljax.engine.labels import labelled
from cfljax.engine.provenance import Journal
from cfljax.engine.stopping import Stopping
from cfljax.engine.store import DONE, FAILED, OPEN, Store

__all__ = ["Task"]

log = logging.getLogger(__name__)


class Task(NamedTuple):
    """What a sweep is about.

    grid: cells and trials.
    cells: of the grid.
    path: the store.
    stopping: when a cell needs no more blocks.
    """

    grid: Grid
    cells: list[Cell]
    path: pathlib.Path
    stopping: Stopping

    def finished(self) -> xarray.Dataset | None:
        """All results if nothing is to be done; looking changes nothing on disk."""
        store = Store(self.path, self.grid)
        if self.stopping.enough is None and not np.all(store.done == DONE):
            return None
        values, damaged = store.read()
        states = self._states(values, store.done, damaged)
        if np.any((states == OPEN) | (states == FAILED)):
            return None
        return labelled(self.grid, values, states)

    def begin(
        self, claims: Claims
    ) -> tuple[Store, Journal, Int8[np.ndarray, "*axes blocks"]]:
        """Make or repair the store; to be called by one run at a time.

        Returns:
          The store, the journal beside it, and the state of every block.
        """
        store = Store(self.path, self.grid)
        journal = Journal(self.path, claims, is_new=store.is_new)
        store.create()
        values, damaged = store.read()
        # A block is opened before it is written anew, so that none which is done and
        # damaged is being repaired by another run, and a kill changes nothing.
        for *cell, block in np.argwhere(damaged).tolist():
            store.mark(tuple(cell), block, OPEN)
        if count := int(np.sum(damaged)):
            log.warning(
                "`%s`: %d blocks are missing or damaged on disk; computing them again.",
                self.path,
                count,
            )
        return store, journal, self._states(values, store.done, damaged)

    def results(self, journal: Journal, *, is_part: bool) -> xarray.Dataset:
        """What is stored now, by this run and others.

        Args:
          journal: of this run.
          is_part: whether blocks may be left to other runs.

        Raises:
          StoreError: if there are such blocks although they may not be.
          SweepError: if every cell failed before its outputs were known.
        """
        store = Store(self.path, self.grid)
        values, damaged = store.read()
        states = self._states(values, store.done, damaged)
        if np.any(damaged & (states == OPEN)):
            raise StoreError(
                f"`{self.path}` was damaged while it was written; run again to repair"
                " it."
            )
        dataset = labelled(self.grid, values, states)
        count, failed = dataset.attrs["open_blocks"], dataset.attrs["failures"]
        first = journal.first_error or "an error in another run"
        if failed and not values:
            raise SweepError(
                f"all cells {'so far ' if count else ''}failed, the first with {first};"
                f" see `{journal.failures}`."
            )
        if failed:
            log.warning(
                "%d of %d cells failed, the first with %s; see `%s`. Run again to"
                " retry.",
                failed,
                len(self.cells),
                first,
                journal.failures,
            )
        if count and not is_part:
            raise StoreError(
                f"{count} blocks of `{self.path}` are being computed by another run;"
                " wait for it and start again. What is done stays done."
            )
        return dataset

    def _states(
        self, values: dict[str, np.ndarray], done: np.ndarray, damaged: np.ndarray
    ) -> Int8[np.ndarray, "*axes blocks"]:
        whole = np.where(damaged, OPEN, done).astype(np.int8)
        return self.stopping.states(self.grid, self.cells, values, whole)
