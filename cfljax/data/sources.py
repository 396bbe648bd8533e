"""Original files of public image sets, believed only if their md5 is official."""

import gzip
import hashlib
import os
import pickle
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int, UInt8

__all__ = [
    "FILES",
    "Arrays",
    "File",
    "find_files",
    "named_folder",
    "read_bytes",
    "read_files",
]


class File(NamedTuple):
    """One original file of an image set.

    name: official name.
    md5: of the file as distributed.
    content_md5: of what is inside the gzip wrapper, or None without one; the same
      content is accepted in another wrapper, such as the Debian package's.
    """

    name: str
    md5: str
    content_md5: str | None = None


class Arrays(NamedTuple):
    """Training and test images with labels, as stored."""

    train_inputs: UInt8[np.ndarray, "train height width *channels"]
    train_labels: Int[np.ndarray, " train"]
    test_inputs: UInt8[np.ndarray, "test height width *channels"]
    test_labels: Int[np.ndarray, " test"]


def _idx_files(*md5s: tuple[str, str]) -> tuple[File, ...]:
    names = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3")
    names = (*names, "t10k-labels-idx1")
    return tuple(
        File(f"{name}-ubyte.gz", *md5) for name, md5 in zip(names, md5s, strict=True)
    )


FILES: dict[str, tuple[File, ...]] = {
    "mnist": _idx_files(
        ("f68b3c2dcbeaaa9fbdd348bbdeb94873", "6bbc9ace898e44ae57da46a324031adb"),
        ("d53e105ee54ea40749a09fcbcd1e9432", "a25bea736e30d166cdddb491f175f624"),
        ("9fb629c4189551a2d022fa330f9573f3", "2646ac647ad5339dbf082846283269ea"),
        ("ec29112dd5afa0611ce80d1b7f02629c", "27ae3e4e09519cfbb04c329615203637"),
    ),
    "fashion_mnist": _idx_files(
        ("8d4fb7e6c68d591d4c3dfef9ec88bf0d", "f4a8712d7a061bf5bd6d2ca38dc4d50a"),
        ("25c81989df183df01b3e8a0aad5dffbe", "9018921c3c673c538a1fc5bad174d6f9"),
        ("bef4ecab320f06d8554ea6380940ec79", "8181f5470baa50b63fa0f6fddb340f0a"),
        ("bb300cfdad3c16e7a12a480ee83cd310", "15d484375f8d13e6eb1aabb0c3f46965"),
    ),
    "cifar10": (
        File("data_batch_1", "c99cafc152244af753f735de768cd75f"),
        File("data_batch_2", "d4bba439e000b95fd0a9bffe97cbabec"),
        File("data_batch_3", "54ebc095f3ab1f0389bbae665268c751"),
        File("data_batch_4", "634d18415352ddfa80567beed471001a"),
        File("data_batch_5", "482c414d41f54cd18b22e5b47cb7c3cb"),
        File("test_batch", "40351d587109b95175f43aff81a1287e"),
    ),
}


def named_folder(folder: str | os.PathLike[str] | None) -> Path | None:
    """Folder that the user names, or else the environment variable CFLJAX_DATA.

    Args:
      folder: where the data are; None leaves it to CFLJAX_DATA.

    Returns:
      The folder with `~` expanded, or None if neither names one.

    Raises:
      FileNotFoundError: if the folder does not exist.
    """
    named = folder if folder is not None else os.environ.get("CFLJAX_DATA") or None
    if named is None:
        return None
    if not Path(named).expanduser().is_dir():
        origin = "`CFLJAX_DATA`" if folder is None else "`folder` (`--data`)"
        raise FileNotFoundError(
            f"{origin} must name a folder that exists, got `{named}`; name the folder "
            "that holds the data."
        )
    return Path(named).expanduser()


def find_files(name: str, folder: Path) -> Path | None:
    """Folder that holds any original file of the set, or None.

    Looked for in `folder/<name>`, `folder/<name with hyphens>` and `folder` itself;
    for CIFAR-10 in `folder/cifar-10-batches-py` too.

    Args:
      name: a key of `FILES`.
      folder: where to look.
    """
    names = ["cifar-10-batches-py"] if name == "cifar10" else []
    places = [folder / place for place in (*names, name, name.replace("_", "-"), "")]
    for place in places:
        if any((place / file.name).exists() for file in FILES[name]):
            return place
    return None


def read_files(name: str, place: Path) -> Arrays:
    """Image set from the original files in `place`.

    Args:
      name: a key of `FILES`.
      place: what `find_files` found.

    Raises:
      FileNotFoundError: if only some of the files are there.
      ValueError: if a file cannot be read or is not the official one.
    """
    missing = [file.name for file in FILES[name] if not (place / file.name).exists()]
    if missing:
        raise FileNotFoundError(
            f"`{place}` has only some of the {len(FILES[name])} files of {name}; "
            f"missing: {', '.join(missing)}."
        )
    contents = [read_bytes(place / file.name, file) for file in FILES[name]]
    return _read_cifar(contents) if name == "cifar10" else _read_idx(contents)


def read_bytes(path: Path, file: File) -> bytes:
    """Content of an original file, unpacked and checked.

    Args:
      path: where it is.
      file: what it should be.

    Raises:
      ValueError: naming the file, its md5 and the expected one, or why the file
        cannot be read.
    """
    try:
        packed = path.read_bytes()
    except OSError as error:
        raise ValueError(f"cannot read `{path}`: {error.strerror}.") from error
    md5 = _md5(packed)
    if file.content_md5 is None and md5 == file.md5:
        return packed
    if file.content_md5 is not None:
        try:
            content = gzip.decompress(packed)
        except (OSError, EOFError, zlib.error):
            content = b""
        if md5 == file.md5 or _md5(content) == file.content_md5:
            return content
    raise ValueError(
        f"`{path}` is corrupt, truncated or another file: its md5 is {md5}, expected "
        f"{file.md5}{_other_owner(md5)}; download it again."
    )


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def _other_owner(md5: str) -> str:
    """Note that names the image set which a misplaced file belongs to."""
    owners = [name for name, files in FILES.items() if md5 in {f.md5 for f in files}]
    return f" (it is a file of {owners[0]})" if owners else ""


def _read_idx(contents: Iterable[bytes]) -> Arrays:
    """Arrays from the four idx files: images have 16 bytes of header, labels 8."""
    train_images, train_labels, test_images, test_labels = (
        np.frombuffer(content, np.uint8) for content in contents
    )
    return Arrays(
        train_inputs=train_images[16:].reshape(-1, 28, 28),
        train_labels=train_labels[8:].astype(np.int32),
        test_inputs=test_images[16:].reshape(-1, 28, 28),
        test_labels=test_labels[8:].astype(np.int32),
    )


def _read_cifar(contents: Iterable[bytes]) -> Arrays:
    """Arrays from the six pickles; unpickling is safe because their md5 is known."""
    batches = [pickle.loads(content, encoding="bytes") for content in contents]
    pixels = [
        batch[b"data"].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1) for batch in batches
    ]
    labels = [np.asarray(batch[b"labels"], np.int32) for batch in batches]
    return Arrays(
        train_inputs=np.concatenate(pixels[:-1]),
        train_labels=np.concatenate(labels[:-1]),
        test_inputs=np.ascontiguousarray(pixels[-1]),
        test_labels=labels[-1],
    )
