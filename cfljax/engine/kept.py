"""Kept: arrays in a file that is whole, checked, and says what it holds.

Each file is a plain `.npz`, which `numpy.load` opens, with one more member `about`, a
text in JSON, and the digest of everything before it at its very end. It appears whole
or not at all; whoever reads it gets what was written, or nothing.
"""

import contextlib
import hashlib
import io
import json
import os
import pathlib
import zipfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from cfljax.base.durable import replacing
from cfljax.base.unpacking import TooLargeError, read_file, read_npz

_ABOUT = "about"
_DIGEST = 64  # Characters of a SHA-256 in hexadecimal.


class StoreError(ValueError):
    """A file or folder that belongs to something else, or a disk that refuses."""


class Kept(NamedTuple):
    """What a file holds: arrays by name, and plain data about them."""

    arrays: dict[str, np.ndarray]
    about: Any


def write(
    path: pathlib.Path,
    arrays: Mapping[str, Any],
    about: Any = None,
    *,
    compress: bool = True,
) -> None:
    """Write or replace a file; the same bytes for the same content.

    Args:
      path: the file; missing folders are made.
      arrays: by name, of numbers, booleans or text.
      about: anything that JSON has.
      compress: weights of models hardly shrink, and take ten times as long.

    Raises:
      OSError: if the disk refuses; an older file of this name then stays.
      ValueError: if an array holds objects, or is called `about`.
    """
    if _ABOUT in arrays:
        raise ValueError(f"`arrays` must not have the name {_ABOUT!r}.")
    buffer = io.BytesIO()
    method = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    with zipfile.ZipFile(buffer, "w", method, compresslevel=1) as file:
        for name, array in {_ABOUT: json.dumps(about), **arrays}.items():
            with file.open(f"{name}.npy", "w", force_zip64=True) as member:
                plain = np.asarray(array)
                np.lib.format.write_array(member, plain, allow_pickle=False)
        file.comment = b"0" * _DIGEST  # The place of the digest.
    body = buffer.getvalue()[:-_DIGEST]
    with replacing(path) as partial:
        partial.write_bytes(body + _digest(body))


def read(path: pathlib.Path) -> Kept | None:
    """What a file holds; None if it is missing, damaged or something else.

    Nothing in it is unpickled, whoever wrote it.

    Raises:
      StoreError: if it may not take so much memory, see `unpacking`.
    """
    try:
        whole = read_file(path)
        if _digest(whole[:-_DIGEST]) != whole[-_DIGEST:]:
            return None
        arrays = read_npz(path, io.BytesIO(whole))
        return Kept(arrays, json.loads(str(arrays.pop(_ABOUT))))
    except TooLargeError as error:
        raise StoreError(str(error)) from error
    except (OSError, ValueError, KeyError, RecursionError):
        return None


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


def key_of(value: Any) -> str:
    """A name for plain data: the digest of its JSON with sorted names."""
    text = json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def recalled(folder: pathlib.Path, key: Any) -> dict[str, np.ndarray] | None:
    """What a folder keeps for a key; None if that is missing, damaged or another's."""
    found = read(folder / f"{key_of(key)}.npz")
    is_own = found is not None and key_of(found.about) == key_of(key)
    return found.arrays if found is not None and is_own else None


def remembered(
    folder: pathlib.Path, key: Any, compute: Callable[[], Mapping[str, Any]]
) -> dict[str, np.ndarray]:
    """What a folder keeps for a key, else what `compute` gives, kept from now on.

    Several processes may share the folder.

    Args:
      folder: made if missing.
      key: plain data that holds everything the arrays depend on.
      compute: what to do where nothing is kept.

    Raises:
      OSError: if the file cannot be written.
    """
    path = folder / f"{key_of(key)}.npz"
    if (found := recalled(folder, key)) is not None:
        return found
    arrays = {name: np.asarray(value) for name, value in compute().items()}
    write(path, arrays, key)
    return arrays


@contextlib.contextmanager
def disk_errors(path: pathlib.Path) -> Iterator[None]:
    """Turn the system's errors into a `StoreError` that names the path and reason."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else type(error).__name__
        raise StoreError(
            f"cannot write results to `{path}`: {reason}. What is done stays done;"
            " run again to resume."
        ) from error


def difference(name: str, there: Any, here: Any) -> str:
    """How plain data of some name differ from those expected here; empty if they do
    not."""
    if json.dumps(there, sort_keys=True) == json.dumps(here, sort_keys=True):
        return ""
    if isinstance(there, dict) and isinstance(here, dict):
        for key in sorted({*there, *here}):
            if key not in there:
                return f"lacks `{key}` in its {name}, which this run has"
            if key not in here:
                return f"has `{key}` in its {name}, which this run lacks"
            if inner := difference(key, there[key], here[key]):
                return inner
        return ""
    if name == "revision":
        return f"was written by revision {there} of the trial, this is revision {here}"
    return f"was written with `{name}` = {there!r}, this run has {here!r}"
