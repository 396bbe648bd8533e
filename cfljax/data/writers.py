"""Handwriting by the one who wrote it: FEMNIST, and its writers as clients."""

import dataclasses
import io
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Int, PRNGKeyArray, UInt8

from cfljax.base.clients import check_clients
from cfljax.base.ranges import ranged
from cfljax.base.types import ClientData
from cfljax.base.unpacking import TooLargeError, read_file, read_npz
from cfljax.data.images import File, named_folder, read_bytes

FILE = File("femnist_leaf_208writers.npz", "fa4c9a2a93edbac651bcdc2cd1e22d04")


@dataclasses.dataclass(frozen=True)
class Writers:
    """Training and test images with labels and writers.

    train_inputs: `[train, height, width]`; 255 is white paper, the reverse of MNIST.
    train_labels: `[train]`, in `0..num_classes - 1`; of FEMNIST 0-9 digits, 10-35
      capitals, 36-61 small letters.
    train_writers: `[train]`, index into `names`.
    test_inputs: `[test, height, width]`, likewise.
    test_labels: `[test]`.
    test_writers: `[test]`; the same index is the same writer.
    names: of the writers; one may lack images of either split.
    num_classes: number of classes.
    source: where they came from, for people, without folders of this machine.
    """

    train_inputs: UInt8[np.ndarray, "train height width"]
    train_labels: Int[np.ndarray, " train"]
    train_writers: Int[np.ndarray, " train"]
    test_inputs: UInt8[np.ndarray, "test height width"]
    test_labels: Int[np.ndarray, " test"]
    test_writers: Int[np.ndarray, " test"]
    names: tuple[str, ...]
    num_classes: int
    source: str


def load_writers(
    name: str = "femnist",
    *,
    folder: str | os.PathLike[str] | None = None,
    keep_doubles: bool = False,
) -> Writers:
    """Handwritten characters by writer, without touching the network.

    FEMNIST (Caldas et al. 2018, LEAF), split for each writer as LEAF splits it. It is
    looked up in `folder`, or in the folder that the environment variable CFLJAX_DATA
    names: first `femnist_leaf_208writers.npz`, a part of it, whose md5 must be right;
    then json files as LEAF's scripts write them, in `femnist/train` and `femnist/test`
    or in `femnist/data/train` and `femnist/data/test`.

    LEAF stores every writer's first image twice, at times once for training and once
    for the test. One copy is left, the one for training if they are apart.

    Args:
      name: femnist.
      folder: where the data are; overrides CFLJAX_DATA.
      keep_doubles: leave both copies in data read from json; the npz has none.

    Raises:
      ValueError: if the name is unknown or a file is not what it should be.
      FileNotFoundError: if the folder does not exist, has only one of the splits, or
        no data are found; the message says how to get them.

    Cost: see `cfljax.data.writers.read_leaf` for json; the npz takes under a second.
    """
    if name != "femnist":
        raise ValueError(f"`name` must be femnist, got {name!r}.")
    named = named_folder(folder)
    if named is None:
        raise FileNotFoundError(f"No folder of data is named. {_advice()}")
    for place in (named / "femnist", named):
        if (place / FILE.name).exists():
            return _from_npz(place / FILE.name)
    if place := find_leaf(named):
        try:
            return _from_leaf(place, keep_doubles)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{error} {_advice()}") from error
    raise FileNotFoundError(f"No data of `femnist` in {named}. {_advice()}")


@ranged
def by_writer(
    writers: Writers,
    *,
    num_clients: int | None = None,
    min_samples: int = 1,
    key: PRNGKeyArray | None = None,
    invert: bool = False,
) -> tuple[ClientData, ClientData]:
    """Clients that are one writer each; nobody knows their true clusters.

    The partition of Ghosh et al. 2020, section 6.3. Their released code takes writers
    of 100 images or more by LEAF's count (`-k 100`), which has one image twice:
    `min_samples=99` does the same to images without doubles. A writer without a
    training image, or without a test image, is never a client. Clients are in the
    order of the writers. Samples are in the order of the images, then padding: zeros,
    with label 0.

    Args:
      writers: the images to share out.
      num_clients: m; None for all who are eligible.
      min_samples: images, training and test together, that a client has at least.
      key: draws the clients without replacement; None takes the first.
      invert: ink 1 and paper 0, as in MNIST; otherwise paper is 1, as in LEAF.

    Returns:
      Training clients and test clients, one index for one writer. Inputs are
      `[clients, samples, height, width]` in `[0, 1]`, targets the labels; samples are
      those of the client with most of them in the split.

    Raises:
      ValueError: if fewer writers than `num_clients` are eligible, or the images are
        not such as `check_clients` accepts.

    Cost: float32 pixels, 4 bytes each, padding included: 230 MB for 204 writers.
    """
    chosen = _choose(writers, num_clients, min_samples, key)
    shape = writers.train_inputs.shape[1:]
    splits = (
        (writers.train_inputs, writers.train_labels, writers.train_writers),
        (writers.test_inputs, writers.test_labels, writers.test_writers),
    )
    train, test = (_share_out(*split, chosen, invert) for split in splits)
    for data in (train, test):
        check_clients(data, num_classes=writers.num_classes, input_shape=shape)
    return train, test


def _choose(
    writers: Writers,
    num_clients: int | None,
    min_samples: int,
    key: PRNGKeyArray | None,
) -> Int[np.ndarray, " clients"]:
    """Ascending indices of the writers who become clients."""
    train, test = (
        np.bincount(owners, minlength=len(writers.names))
        for owners in (writers.train_writers, writers.test_writers)
    )
    enough = (train > 0) & (test > 0) & (train + test >= min_samples)
    eligible = np.flatnonzero(enough)
    if not len(eligible):
        raise ValueError(
            f"`min_samples` must leave a writer with that many images, some for "
            f"training and some for the test, got {min_samples}; of {len(train)} "
            f"writers {np.sum((train > 0) & (test > 0))} have images of both kinds "
            "(LEAF's `-t sample` splits each writer's) and the most images of one are "
            f"{np.max(train + test, initial=0)}."
        )
    if num_clients is None:
        return eligible
    if not 1 <= num_clients <= len(eligible):
        raise ValueError(
            f"`num_clients` must be in 1..{len(eligible)}, the writers with at least "
            f"{min_samples} images, some for training and some for the test, got "
            f"{num_clients}."
        )
    if key is not None:
        eligible = eligible[np.asarray(jax.random.permutation(key, len(eligible)))]
    return np.sort(eligible[:num_clients])


def _share_out(
    inputs: UInt8[np.ndarray, "images height width"],
    labels: Int[np.ndarray, " images"],
    owners: Int[np.ndarray, " images"],
    chosen: Int[np.ndarray, " clients"],
    invert: bool,
) -> ClientData:
    """Clients of one split, padded to the longest."""
    order = np.argsort(owners, kind="stable")
    firsts = np.searchsorted(owners[order], chosen, side="left")
    lasts = np.searchsorted(owners[order], chosen, side="right")
    shape = (len(chosen), int(np.max(lasts - firsts)))
    mask = np.arange(shape[1])[None] < (lasts - firsts)[:, None]
    pixels = np.zeros((*shape, *inputs.shape[1:]), np.float32)
    targets = np.zeros(shape, np.int32)
    for client, (first, last) in enumerate(zip(firsts, lasts, strict=True)):
        own = order[first:last]
        shares = inputs[own].astype(np.float32) / 255
        pixels[client, : last - first] = 1 - shares if invert else shares
        targets[client, : last - first] = labels[own]
    return ClientData(*jax.device_put((pixels, targets, mask)))


def _from_npz(path: Path) -> Writers:
    """Writers of the file, which is believed because its md5 is right."""
    found = read_npz(path, io.BytesIO(read_bytes(path, FILE)))
    inputs, labels, owners = found["images"], found["labels"], found["writer"]
    tested = found["is_test"].astype(bool)
    names = tuple(str(name) for name in found["writer_names"])

    def split(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return inputs[rows], labels[rows].astype(np.int32), owners[rows]

    source = f"femnist: the file {path.name}"
    return Writers(*split(~tested), *split(tested), names, NUM_CLASSES, source)


def _from_leaf(place: Path, keep_doubles: bool) -> Writers:
    """Writers of all json files in the folder."""
    written = read_leaf(place, keep_doubles=keep_doubles)

    def split(index: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        own = [pair[index] for pair in written.values()]
        return (
            np.concatenate([each.inputs for each in own]),
            np.concatenate([each.labels for each in own]),
            np.repeat(np.arange(len(own)), [len(each.labels) for each in own]),
        )

    source = f"femnist: LEAF's json files in {place.resolve().name}"
    return Writers(*split(0), *split(1), tuple(written), NUM_CLASSES, source)


def _advice() -> str:
    """What to do when the set is not there or not whole: exact commands."""
    return (
        "Do one of these:\n"
        "  with LEAF (its scripts need `pip install numpy 'pillow<10'`): "
        "`git clone https://github.com/TalwalkarLab/leaf`, `cd leaf/data/femnist`, "
        "`./preprocess.sh -s niid --sf 0.05 -k 100 -t sample --smplseed 1549786595 "
        "--spltseed 1549786796`, then pass `--data leaf/data` or set "
        "CFLJAX_DATA=leaf/data\n"
        "  put such json files in FOLDER/femnist/train and FOLDER/femnist/test, or "
        f"{FILE.name} in FOLDER/femnist, then pass `--data FOLDER` or set "
        "CFLJAX_DATA=FOLDER"
    )


NUM_CLASSES = 62  # Digits, capitals, small letters.
SIDE = 28  # Pixels of an image's side.
_SPLITS = ("train", "test")
# LEAF writes pixel / 255 in double precision; this is far above its rounding and far
# below one grey level.
_TOLERANCE = 1e-3


class Written(NamedTuple):
    """Images of one writer in one split, 255 white."""

    inputs: UInt8[np.ndarray, "images height width"]
    labels: Int[np.ndarray, " images"]


def find_leaf(folder: Path) -> Path | None:
    """Folder that holds `train/*.json` or `test/*.json`, or None.

    Looked for in `folder/femnist`, in `folder/femnist/data`, which is where LEAF's
    own repository has them, and in `folder` itself.

    Args:
      folder: where to look.
    """
    for place in (folder / "femnist", folder / "femnist" / "data", folder):
        if any(list((place / split).glob("*.json")) for split in _SPLITS):
            return place
    return None


def read_leaf(
    place: Path, *, keep_doubles: bool = False
) -> dict[str, tuple[Written, Written]]:
    """Training and test images of every writer, in the order of the names.

    LEAF stores every writer's first image twice and deals both copies out like any
    others, so that the image may be in the training and in the test split. Unless
    `keep_doubles`, one copy stays: the training one where the copies are apart.

    Args:
      place: what `find_leaf` found.
      keep_doubles: leave the images as LEAF has them.

    Returns:
      For each writer the two splits; either may be empty.

    Raises:
      FileNotFoundError: if one of the splits has no file.
      ValueError: if a file cannot be read, is not of LEAF's form, or has a writer
        whom another file of the split has too.

    Cost: one file is read at a time, 40 bytes of memory for each of its pixels; five
      seconds for 25 million pixels, which are 208 writers.
    """
    found: dict[str, dict[str, Written]] = {}
    for split in _SPLITS:
        paths = sorted((place / split).glob("*.json"))
        if not paths:
            raise FileNotFoundError(
                f"`{place}` has only some of LEAF's files; missing: {split}/*.json."
            )
        for path in paths:
            for name, written in _read_file(path).items():
                if split in found.setdefault(name, {}):
                    raise ValueError(
                        f"`{path}` has the writer {name}, whom another file in its "
                        "folder has too; keep the files of one run of LEAF."
                    )
                found[name][split] = written
    if not found:
        raise ValueError(f"`{place}` has files of LEAF's form, but no writer in them.")
    none = Written(np.zeros((0, SIDE, SIDE), np.uint8), np.zeros(0, np.int32))
    pairs = {
        name: (own.get("train", none), own.get("test", none))
        for name, own in sorted(found.items())
    }
    if keep_doubles:
        return pairs
    return {name: _without_doubles(*pair) for name, pair in pairs.items()}


def _read_file(path: Path) -> dict[str, Written]:
    """Every writer of one file."""
    try:
        content = json.loads(read_file(path))
    except OSError as error:
        reason = error.strerror or error
        raise ValueError(f"cannot read `{path}`: {reason}.") from error
    except TooLargeError:
        raise
    except (ValueError, RecursionError) as error:  # Not json, or not text at all.
        raise ValueError(f"cannot read `{path}`: {error}.") from error
    try:
        users, sizes = content["users"], content["num_samples"]
        data = {user: content["user_data"][user] for user in users}
        return {
            user: _read_writer(data[user]["x"], data[user]["y"], size)
            for user, size in zip(users, sizes, strict=True)
        }
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"`{path}` is not of LEAF's form, an object of users, num_samples and "
            "user_data with x and y for each user."
        ) from error
    except ValueError as error:
        raise ValueError(f"`{path}` is not LEAF's FEMNIST: {error}.") from error


def _read_writer(pixels: list[Any], labels: list[Any], size: int) -> Written:
    """Images of one writer, checked."""
    if len(pixels) != size or len(labels) != size:
        raise ValueError(
            f"a writer's `num_samples` is {size}, but there are {len(pixels)} images "
            f"and {len(labels)} labels"
        )
    wrong = [len(row) for row in pixels if len(row) != SIDE * SIDE]
    if wrong:
        raise ValueError(
            f"an image must have {SIDE * SIDE} pixels ({SIDE} x {SIDE}), got {wrong[0]}"
        )
    levels = np.asarray(pixels, np.float64).reshape(size, SIDE, SIDE) * 255
    rounded = np.rint(levels)
    exact = np.isclose(levels, rounded, rtol=0, atol=_TOLERANCE)  # NaN is not.
    if not np.all(exact & (rounded >= 0) & (rounded <= 255)):
        raise ValueError("a pixel must be a multiple of 1/255 between 0 and 1")
    outside = [label for label in labels if label not in range(NUM_CLASSES)]
    if outside:
        raise ValueError(f"a label must be in 0..{NUM_CLASSES - 1}, got {outside[0]!r}")
    return Written(rounded.astype(np.uint8), np.asarray(labels, np.int32))


def _without_doubles(train: Written, test: Written) -> tuple[Written, Written]:
    """Both splits without what comes again, label and every pixel."""
    labels = np.concatenate([train.labels, test.labels])
    pixels = np.concatenate([train.inputs, test.inputs]).reshape(-1, SIDE * SIDE)
    rows = np.concatenate([pixels, labels.astype(np.uint8)[:, None]], axis=1)
    firsts = np.sort(np.unique(rows, axis=0, return_index=True)[1])
    size = len(train.labels)
    kept, tested = firsts[firsts < size], firsts[firsts >= size] - size
    return (
        Written(train.inputs[kept], train.labels[kept]),
        Written(test.inputs[tested], test.labels[tested]),
    )
