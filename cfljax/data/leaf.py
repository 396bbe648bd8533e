"""FEMNIST in the json form that LEAF's own scripts write."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int, UInt8

__all__ = ["NUM_CLASSES", "SIDE", "Written", "find_leaf", "read_leaf"]

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
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise ValueError(f"cannot read `{path}`: {error.strerror}.") from error
    except ValueError as error:  # Not json, or not text at all.
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
