"""The data of `compare.all` as arrays, for algorithms of any framework."""

import json
import pathlib
from typing import Any

import numpy as np
from jaxtyping import Shaped

from cfljax import report
from cfljax.base import ClientData
from experiments.compare import every
from experiments.compare.every import Config
from experiments.compare.scenes import WORLDS, Clients
from experiments.options import Options


def write(config: Config, options: Options, path: pathlib.Path) -> dict[str, Any]:
    """Write the data of all worlds and seeds as a file of NumPy; a summary.

    Args:
      config: of the comparison.
      options: `data`, the folder of real data sets.
      path: FILE.npz. It has besides `comparison`, what a submission says of these data,
        as JSON, with their checksum.

    Raises:
      ValueError: if the samples do not suffice, or are damaged.
      FileNotFoundError: if there are none.
    """
    prepared = every.prepare(config, options)
    comparison = every.comparison_of(config, prepared)
    arrays = arrays_of(prepared.clients, prepared.worlds)
    told: dict[str, Any] = {"comparison": json.dumps(comparison), **arrays}
    with report.replacing(path) as temporary:
        np.savez_compressed(temporary, **told)
    shapes = "".join(
        f"\n{name}: {own.dtype} {own.shape}" for name, own in arrays.items()
    )
    return {
        "headline": f"{prepared.note}{len(prepared.worlds)} worlds, checksum "
        f"{comparison['checksum']}{shapes}",
        "files": [str(path)],
        "comparison": comparison,
    }


def arrays_of(
    clients: Clients, worlds: list[str]
) -> dict[str, Shaped[np.ndarray, "worlds seeds ..."]]:
    """Arrays `[worlds, seeds, clients, samples, ...]` by name, of these worlds.

    `inputs`, `targets` and `mask` are to train on, `targets` `[worlds, seeds, 2,
    clients, samples]` before and behind the change. `clusters` are the true ones, -1
    where nobody knows them.
    """
    places = [list(WORLDS).index(world) for world in worlds]
    found = {}
    for name, own in clients._asdict().items():
        is_data = isinstance(own, ClientData)
        leaves = own._asdict() if is_data else {"": own}
        for leaf, values in leaves.items():
            array = np.asarray(values)
            by_world = array.reshape(len(WORLDS), -1, *array.shape[1:])[places]
            found["_".join(filter(None, [name, leaf]))] = by_world
    return found
