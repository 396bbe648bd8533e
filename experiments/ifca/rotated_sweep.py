"""What all experiments on rotated images do: find images, run trials, write files."""

import dataclasses
import functools
import math
from typing import Any, Literal

import jax
import numpy as np
import xarray as xr

from cfljax import engine
from cfljax.data import Images, load_images
from cfljax.data.images import ImageSet
from cfljax.data.sources import Arrays
from cfljax.engine.batch import Simulate
from experiments.checksum import checksum
from experiments.options import Options

__all__ = [
    "Loaded",
    "check_different",
    "check_positive",
    "check_step_size",
    "load",
    "refuse_impossible",
    "sweep",
]

KEY = jax.eval_shape(lambda: jax.random.key(0))


@dataclasses.dataclass(frozen=True)
class Loaded:
    """Images that an experiment runs on.

    name: of the set.
    arrays: of the set, in the host's memory.
    checksum: of the arrays.
    source: where they came from.
    note: on the images, for people; ends with an empty line.
    is_substitute: whether they stand in for images that were not found.
    """

    name: str
    arrays: Arrays
    checksum: str
    source: str
    note: str
    is_substitute: bool

    def fitting(
        self,
        num_samples: int,
        num_clients: int,
        num_clusters: int,
        *,
        split: Literal["training", "test"] = "training",
    ) -> int:
        """Samples of a client: those wanted, or fewer if the digits have no more.

        Images that were asked for are never shared out otherwise than asked.
        """
        if not self.is_substitute:
            return num_samples
        arrays = self.arrays
        labels = arrays.train_labels if split == "training" else arrays.test_labels
        return max(1, min(num_samples, len(labels) * num_clusters // num_clients))


def load(images: ImageSet, options: Options, *, fall_back: bool) -> Loaded:
    """The images, or the embedded digits if they are not found and one may fall back.

    Args:
      images: name of the set.
      options: of the command line; `data` is the folder of the images.
      fall_back: whether the digits will do where no folder is named.

    Raises:
      ValueError: if files are damaged.
      FileNotFoundError: if there are none and one may not fall back.
    """
    try:
        found = load_images(images, folder=options.data)
        return _loaded(images, found, f"images: {found.source}\n\n", False)
    except FileNotFoundError as error:
        if options.data is not None or not fall_back:
            raise
        found = load_images("digits")
        note = (
            f"images: {found.source}, NOT {images}: the paper's numbers do not "
            f"apply.\n{error}\n\n"
        )
        return _loaded("digits", found, note, True)


def _loaded(name: str, images: Images, note: str, is_substitute: bool) -> Loaded:
    arrays = Arrays(*(np.asarray(getattr(images, field)) for field in Arrays._fields))
    return Loaded(name, arrays, checksum(arrays), images.source, note, is_substitute)


def refuse_impossible(simulate: Simulate, trial: Any, images: Loaded) -> None:
    """Raises ValueError for sizes that cannot be, before anything is run."""
    jax.eval_shape(functools.partial(simulate, trial), KEY, images.arrays)


def sweep(
    grid: engine.Grid,
    simulate: Simulate,
    images: Loaded,
    options: Options,
    *,
    name: str,
) -> xr.Dataset:
    """Compute what the store lacks, with clients spread over devices.

    Args:
      grid: of trials.
      simulate: one trial.
      images: that the trials are about.
      options: of the command line.
      name: of the store, without suffix.
    """
    with engine.clients_over_devices(options.devices):
        return engine.sweep(
            grid,
            simulate,
            options.out / f"{name}.zarr",
            constants=images.arrays,
            chunk=options.chunk,
            memory=options.memory,
            progress=options.progress,
        )


def check_positive(config: Any, *names: str) -> None:
    """Raises ValueError where a field, or an entry of it, is below 1."""
    for name in names:
        value = getattr(config, name)
        if min(value if isinstance(value, tuple) else (value,)) < 1:
            raise ValueError(f"`{name}` must be at least 1, got {value}.")


def check_step_size(step_size: float, name: str = "step_size") -> None:
    """Raises ValueError unless it is finite and not negative."""
    if not (math.isfinite(step_size) and step_size >= 0):
        raise ValueError(f"`{name}` must be finite and not negative, got {step_size}.")


def check_different(name: str, values: tuple) -> None:
    """Raises ValueError where a list of names is empty or repeats one."""
    if not values or len(set(values)) < len(values):
        raise ValueError(f"`{name}` must hold different names, got {values}.")
