"""Labelled images: from the user's files, or embedded."""

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from jaxtyping import Array, Int, UInt8

from cfljax.data.prepared import find_prepared, read_prepared
from cfljax.data.sources import FILES, Arrays, find_files, named_folder, read_files

__all__ = ["ImageSet", "Images", "load_images"]

ImageSet = Literal["digits", "mnist", "fashion_mnist", "cifar10"]

_NUM_TEST_DIGITS = 360  # Of the 1797, a fifth.


@dataclasses.dataclass(frozen=True)
class Images:
    """Training and test images with labels.

    train_inputs: `[train, height, width]`, or `[train, height, width, channels]`;
      0 is no ink.
    train_labels: `[train]`, in 0..9.
    test_inputs: `[test, ...]`, likewise.
    test_labels: `[test]`.
    source: where they came from, for people.
    """

    train_inputs: UInt8[np.ndarray | Array, "train height width *channels"]
    train_labels: Int[np.ndarray | Array, " train"]
    test_inputs: UInt8[np.ndarray | Array, "test height width *channels"]
    test_labels: Int[np.ndarray | Array, " test"]
    source: str


def load_images(name: str, *, folder: str | os.PathLike[str] | None = None) -> Images:
    """Labelled images of one public set, without touching the network.

    `digits` is embedded: the 1797 digits of 8 x 8 pixels that come with
    scikit-learn. The others are looked up in `folder`, or in the folder that the
    environment variable CFLJAX_DATA names: first the original files, whose md5 must
    be official, then a preparation by tensorflow-datasets (array_record format),
    which may also be in that package's own folder.

    Args:
      name: digits, mnist, fashion_mnist or cifar10.
      folder: where the data are; overrides CFLJAX_DATA.

    Raises:
      ValueError: if the name is unknown or a file is not what it should be.
      FileNotFoundError: if the folder does not exist, has only some of the files, or
        no data are found; the message says how to get them.
    """
    if name not in get_args(ImageSet):
        raise ValueError(
            f"`name` must be one of {', '.join(get_args(ImageSet))}, got {name!r}."
        )
    if name == "digits":
        return _digits()
    named = named_folder(folder)
    places = list(_places(named))
    if named is not None and (found := find_files(name, named)):
        try:
            arrays = read_files(name, found)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{error} {_advice(name)}") from error
        return _images(arrays, f"{name}: original files in {found}")
    for place in places:
        if found := find_prepared(name, place):
            source = f"{name}: prepared by tensorflow-datasets in {found}"
            return _images(read_prepared(name, found), source)
    looked = " or ".join(str(place) for place in places)
    raise FileNotFoundError(f"No data of `{name}` in {looked}. {_advice(name)}")


def _places(named: Path | None) -> Iterator[Path]:
    """Folders to look in: the one named, then the one of tensorflow-datasets."""
    if named is not None:
        yield named
    yield Path(os.environ.get("TFDS_DATA_DIR", "~/tensorflow_datasets")).expanduser()


def _images(arrays: Arrays, source: str) -> Images:
    return Images(*arrays, source=source)


def _digits() -> Images:
    """The embedded digits, shuffled once and for all, then split."""
    from sklearn.datasets import load_digits  # Slow to import and seldom needed.

    levels, labels = load_digits(return_X_y=True)
    pixels = np.round(np.asarray(levels) * (255 / 16)).astype(np.uint8)
    pixels, labels = pixels.reshape(-1, 8, 8), np.asarray(labels, np.int32)
    # The set is ordered by writer: an unshuffled split would test on other hands.
    order = np.random.default_rng(0).permutation(len(labels))
    test, train = np.split(order, [_NUM_TEST_DIGITS])
    return Images(
        train_inputs=pixels[train],
        train_labels=labels[train],
        test_inputs=pixels[test],
        test_labels=labels[test],
        source="digits: 8 x 8 images embedded in scikit-learn",
    )


def _advice(name: str) -> str:
    """What to do when a set is not there or not whole: exact commands, one per line."""
    lines = ["Do one of these:"]
    if name == "fashion_mnist":
        lines.append(
            "  on Debian or Ubuntu: `sudo apt-get install dataset-fashion-mnist`, "
            "then pass `--data /usr/share/datasets`"
        )
    target = "cifar-10-batches-py" if name == "cifar10" else name
    names = ", ".join(file.name for file in FILES[name])
    lines += [
        f"  put the original files ({names}) in FOLDER/{target}, "
        "then pass `--data FOLDER` or set CFLJAX_DATA=FOLDER",
        "  in an environment with TensorFlow (`pip install tensorflow-cpu "
        f"tensorflow-datasets`): `tfds build {name} --file_format=array_record`",
        "  use the embedded `digits` instead, which need nothing: `--images digits` or "
        "`load_images('digits')`",
    ]
    return "\n".join(lines)
