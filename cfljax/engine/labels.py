"""Labels: stored results as an xarray dataset."""

from collections.abc import Mapping

import numpy as np
import xarray
from jaxtyping import Int8

from cfljax.engine.grid import BLOCK, Grid
from cfljax.engine.store import DONE, FAILED, OPEN

__all__ = ["labelled"]


def labelled(
    grid: Grid,
    values: Mapping[str, np.ndarray],
    states: Int8[np.ndarray, "*axes blocks"],
) -> xarray.Dataset:
    """Results with names on their axes.

    Args:
      grid: what was run.
      values: outputs `[*axes, trials, *own]`.
      states: of every block; those that are done are used, and no other.

    Returns:
      One variable of floats per output (integers and booleans become float64, other
      types stay), NaN where a trial was not computed; coordinates for the axes, for
      `trial` and for the own axes that have labels; `failed`, booleans `[*axes]`; and
      `trials`, integers `[*axes]`, how many of a cell's trials are used, its first
      ones unless some failed. A trial that diverged has whatever it returned. The
      attributes count `failures`, cells, and `open_blocks`, those yet to be computed.
    """
    computed = np.repeat(states == DONE, BLOCK, axis=-1)[..., : grid.num_trials]
    variables = {}
    for name, array in values.items():
        is_float = np.issubdtype(array.dtype, np.floating)
        plain = array if is_float else array.astype(np.float64)
        own = grid.dims[name]
        where = computed.reshape(computed.shape + (1,) * len(own))
        if not np.all(where):
            plain = np.where(where, plain, np.asarray(np.nan, plain.dtype))
        variables[name] = ((*grid.axes, "trial", *own), plain)
    failed = np.any(states == FAILED, axis=-1)
    variables["failed"] = (tuple(grid.axes), failed)
    variables["trials"] = (tuple(grid.axes), np.sum(computed, axis=-1))
    return xarray.Dataset(
        variables,
        coords={
            **{name: list(axis) for name, axis in grid.axes.items()},
            "trial": np.arange(grid.num_trials),
            **{name: np.asarray(labels) for name, labels in grid.coords.items()},
        },
        attrs={
            "experiment": grid.experiment,
            "revision": grid.revision,
            "seed": grid.seed,
            "failures": int(np.sum(failed)),
            "open_blocks": int(np.sum(states == OPEN)),
        },
    )
