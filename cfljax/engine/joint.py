"""Joint: cells that draw the same random data, computed together on the host."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

__all__ = ["Joint", "Outputs"]

Outputs = dict[str, np.ndarray]


class Joint(NamedTuple):
    """How to compute one trial index of many cells at once.

    Not traced: it runs on the host and compiles what it likes. Where its store lacks a
    trial of any cell, a sweep asks for all cells that share their data, in the grid's
    order, and writes the ones it lacks: so what a cell gets may depend on the others in
    its last bits, but on nothing that was killed, repaired or left to another run. With
    `enough`, cells that have stopped before a block are left out of it; of a store that
    was partly filled under another rule, or none, the last bits are those of either.

    simulate: `(trials, key, constants) -> one {name: array} for each of trials`, where
      `trials` are those of the cells and `key` is `fold_in(key(seed), i)`, i the index
      that they share.
    shares: `trial -> hashable`; cells that give the same one are computed together.
    """

    simulate: Callable[
        [Sequence[Any], PRNGKeyArray, PyTree], Sequence[Mapping[str, np.ndarray]]
    ]
    shares: Callable[[Any], Hashable]
