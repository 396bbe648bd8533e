"""Images that experiments run on: found, or the embedded digits in their stead."""

import dataclasses
import zlib
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

from cfljax.data import Arrays, Images, ImageSet, load_images
from experiments.options import Options


@dataclasses.dataclass(frozen=True)
class Loaded:
    """Images that an experiment runs on."""

    name: str  # of the set
    arrays: Arrays  # of the set, in the host's memory
    checksum: str  # of the arrays
    source: str  # where they came from
    note: str  # on the images, for people; ends with an empty line
    is_substitute: bool  # whether they stand in for images that were not found

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


def find_images(images: ImageSet, options: Options, *, fall_back: bool) -> Loaded:
    """The images, or the embedded digits if they are not found and one may fall back.

    `options.data` is the folder of the images; where it is named, nothing else will do.

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


def checksum(arrays: Iterable[Any]) -> str:
    """CRC-32 of the bytes of all arrays, one after the other, as eight digits, which
    two runs with a common store must share; shapes and types do not count.
    """
    found = 0
    for array in arrays:
        found = zlib.crc32(np.asarray(array).tobytes(), found)
    return f"{found:08x}"
