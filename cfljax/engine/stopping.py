"""Stopping: when a cell has trials enough, as a function of what is stored."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int8

from cfljax.engine.grid import Cell, Grid
from cfljax.engine.store import DONE, SPARE

__all__ = ["Enough", "Stopping"]

Enough = Callable[[Mapping[str, np.ndarray], Any], bool]


class Stopping:
    """Asks a rule after each block of a cell in order, and remembers the answers.

    Args:
      enough: the rule, see `sweep`; None where every block counts.
    """

    def __init__(self, enough: Enough | None) -> None:
        self.enough = enough
        self._answers: dict[tuple[tuple[int, ...], int], bool] = {}

    def stops(self, cell: Cell, blocks: Sequence[Mapping[str, np.ndarray]]) -> bool:
        """Whether a cell needs no block after these, its first ones.

        Args:
          cell: which.
          blocks: outputs `[trials, ...]` of each block.
        """
        if self.enough is None:
            return False
        question = (cell.index, len(blocks))
        if question not in self._answers:
            outputs = {
                name: np.concatenate([block[name] for block in blocks])
                for name in blocks[0]
            }
            self._answers[question] = bool(self.enough(outputs, cell.trial))
        return self._answers[question]

    def states(
        self,
        grid: Grid,
        cells: Sequence[Cell],
        values: Mapping[str, np.ndarray],
        done: Int8[np.ndarray, "*axes blocks"],
    ) -> Int8[np.ndarray, "*axes blocks"]:
        """The state of every block, `SPARE` where the rule has no use for it.

        A cell's results are its first blocks that are done, up to where it stops:
        what was stored beyond counts for nothing, so that the history does not matter.

        Args:
          grid: whose blocks.
          cells: of the grid.
          values: outputs `[*axes, trials, *own]`.
          done: state of every block on disk.
        """
        states = done.copy()
        if self.enough is None:
            return states
        for cell in cells:
            own = states[cell.index]
            blocks = []
            for number in range(grid.num_blocks):
                if own[number] != DONE:
                    later = own[number:]
                    later[later == DONE] = SPARE
                    break
                where = (*cell.index, grid.block(number))
                blocks.append({name: array[where] for name, array in values.items()})
                if self.stops(cell, blocks):
                    own[number + 1 :] = SPARE
                    break
        return states
