"""Joint: cells that draw the same random data, computed together on the host."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

__all__ = ["Joint", "Outputs"]

Outputs = dict[str, np.ndarray]


class Joint(NamedTuple):
    """How to compute one trial index of many cells at once.

    Not traced: it runs on the host and compiles what it likes. A sweep asks it for
    any subset of the cells that share their data, since it only computes what its
    store lacks; what a cell gets must not depend on the others of the subset.

    simulate: `(trials, key, constants) -> one {name: array} for each of trials`, where
      `trials` are those of the cells and `key` is `fold_in(key(seed), i)`, i the index
      that they share.
    shares: `trial -> hashable`; cells that give the same one are computed together.
    """

    simulate: Callable[
        [Sequence[Any], PRNGKeyArray, PyTree], Sequence[Mapping[str, np.ndarray]]
    ]
    shares: Callable[[Any], Hashable]
