"""Units: the pieces of work that one run claims at a time."""

import dataclasses
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from cfljax.engine.batch import floats
from cfljax.engine.grid import Cell, Grid
from cfljax.engine.joint import Joint

__all__ = ["Unit", "plan"]


class Unit(NamedTuple):
    """What is claimed, computed and stored by one run.

    group: number of the cells that share a compilation, or random data if joint.
    cells: one if traced, all of the group if joint.
    blocks: of each of the cells.
    """

    group: int
    cells: tuple[Cell, ...]
    blocks: range

    @property
    def positions(self) -> list[tuple[int, ...]]:
        """Of all its blocks, among those of the store."""
        return [(*cell.index, block) for cell in self.cells for block in self.blocks]


def plan(
    grid: Grid,
    cells: Sequence[Cell],
    *,
    joint: Joint | None,
    by_block: bool,
    shard: tuple[int, int] | None,
) -> list[Unit]:
    """Cut a grid into units, in the same way for every run that asks the same.

    Args:
      grid: whose blocks.
      cells: of the grid.
      joint: how cells are computed together, None if one by one.
      by_block: whether the blocks of a joint group are units of their own; a rule
        that stops cells needs them in order, and so in one unit.
      shard: `(i, n)`, to take only units i, i + n, i + 2 n, ... of them, from 1.
    """
    every = range(grid.num_blocks)
    units = []
    for group, members in enumerate(_groups(cells, joint)):
        if joint is None:
            units += [Unit(group, (cell,), every) for cell in members]
        elif by_block:
            units += [Unit(group, members, range(b, b + 1)) for b in every]
        else:
            units.append(Unit(group, members, every))
    return units if shard is None else units[shard[0] - 1 :: shard[1]]


def _groups(cells: Sequence[Cell], joint: Joint | None) -> list[tuple[Cell, ...]]:
    groups: dict[Hashable, list[Cell]] = {}
    for cell in cells:
        shared = _static(cell) if joint is None else joint.shares(cell.trial)
        groups.setdefault(shared, []).append(cell)
    return [tuple(members) for members in groups.values()]


def _static(cell: Cell) -> tuple:
    """Cells that differ only in floats share a compilation."""
    traced = floats(cell.trial)
    fields = [f.name for f in dataclasses.fields(cell.trial)]
    return tuple(getattr(cell.trial, name) for name in fields if name not in traced)
