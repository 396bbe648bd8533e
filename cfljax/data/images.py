"""Labelled images: from the user's files, or embedded."""

import dataclasses
import hashlib
import io
import itertools
import json
import math
import os
import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from jaxtyping import Array, Int, Num, UInt8

from cfljax.base.unpacking import TooLargeError, gunzip, read_file

ImageSet = Literal["digits", "mnist", "fashion_mnist", "cifar10"]  # Of ten classes.
OtherImageSet = Literal[
    "cifar100",
    "emnist_balanced",
    "emnist_bymerge",
    "emnist_byclass",
    "emnist_letters",
    "emnist_digits",
    "tiny_imagenet",
]
_NAMES = (*get_args(ImageSet), *get_args(OtherImageSet))

_NUM_TEST_DIGITS = 360  # Of the 1797, a fifth.


@dataclasses.dataclass(frozen=True)
class Images:
    """Training and test images with labels.

    train_inputs: `[train, height, width]`, or `[train, height, width, channels]`;
      0 is no ink.
    train_labels: `[train]`, 0, 1, ... to one less than the number of classes.
    test_inputs: `[test, ...]`, likewise.
    test_labels: `[test]`.
    source: where they came from, for people, without folders of this machine.
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
    environment variable CFLJAX_DATA names: first the original files, then a
    preparation by tensorflow-datasets (array_record format), which may also be in that
    package's own folder; there is none of Tiny-ImageNet. The md5 of files must be
    official; of EMNIST and Tiny-ImageNet, of which none is published file by file, the
    numbers of images of each class are checked.

        set               classes  training, test     pixels    what it is
        cifar100              100  50,000, 10,000     32x32x3   fine labels
        emnist_balanced        47  112,800, 18,800    28x28     digits and letters
        emnist_bymerge         47  697,932, 116,323   28x28     the same, as written
        emnist_byclass         62  697,932, 116,323   28x28     cases apart
        emnist_letters         26  124,800, 20,800    28x28     labels 0 to 25
        emnist_digits          10  240,000, 40,000    28x28
        tiny_imagenet         200  100,000, 10,000    64x64x3   test: its validation set

    EMNIST is turned upright. Tiny-ImageNet's classes are numbered in the order of their
    names (`n01443537`, ...); greyscale images have three equal channels, and decoding
    takes some minutes and 1.4 GB.

    Args:
      name: digits, mnist, fashion_mnist, cifar10, or one of the table.
      folder: where the data are; overrides CFLJAX_DATA.

    Raises:
      ValueError: if the name is unknown or a file is not what it should be.
      FileNotFoundError: if the folder does not exist, has only some of the files, or
        no data are found; the message says how to get them.
    """
    if name not in _NAMES:
        raise ValueError(f"`name` must be one of {', '.join(_NAMES)}, got {name!r}.")
    if name == "digits":
        return _digits()
    named = named_folder(folder)
    prepared = os.environ.get("TFDS_DATA_DIR", "~/tensorflow_datasets")
    places = [*filter(None, [named]), Path(os.path.expanduser(prepared))]
    if named is not None and (found := find_files(name, named)):
        try:
            is_tiny = name == "tiny_imagenet"
            arrays = _read_tiny(found) if is_tiny else read_files(name, found)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{error} {_advice(name)}") from error
        has_md5 = all(one.md5 for one in FILES.get(name, ())) and not is_tiny
        how = "md5 as published" if has_md5 else "counts as published"
        return Images(*arrays, source=f"{name}: original files, {how}")
    for place in places:
        if name in CLASS_COUNTS and (found := find_prepared(name, place)):
            version = found.name
            source = f"{name}: prepared by tensorflow-datasets, version {version}"
            return Images(*read_prepared(name, found), source=source)
    looked = " or ".join(str(place) for place in places)
    raise FileNotFoundError(f"No data of `{name}` in {looked}. {_advice(name)}")


class Arrays(NamedTuple):
    """Training and test images with labels, as stored."""

    train_inputs: UInt8[np.ndarray, "train height width *channels"]
    train_labels: Int[np.ndarray, " train"]
    test_inputs: UInt8[np.ndarray, "test height width *channels"]
    test_labels: Int[np.ndarray, " test"]


def _digits() -> Images:
    """The embedded digits, shuffled once and for all, then split."""
    from sklearn.datasets import load_digits  # Slow to import and seldom needed.

    levels, labels = load_digits(return_X_y=True)
    pixels = np.round(np.asarray(levels) * (255 / 16)).astype(np.uint8)
    pixels, labels = pixels.reshape(-1, 8, 8), np.asarray(labels, np.int32)
    # The set is ordered by writer: an unshuffled split would test on other hands.
    order = np.random.default_rng(0).permutation(len(labels))
    test, train = np.split(order, [_NUM_TEST_DIGITS])
    source = "digits: 8 x 8 images embedded in scikit-learn"
    return Images(pixels[train], labels[train], pixels[test], labels[test], source)


def _advice(name: str) -> str:
    """What to do when a set is not there or not whole: exact commands, one per line."""
    lines = ["Do one of these:"]
    if name == "fashion_mnist":
        lines.append(
            "  on Debian or Ubuntu: `sudo apt-get install dataset-fashion-mnist`, "
            "then pass `--data /usr/share/datasets`"
        )
    target = _FOLDERS.get(name, name)
    names = ", ".join(file.name for file in FILES.get(name, ()))
    if name == "tiny_imagenet":
        names = "wnids.txt, train, val, as unpacked"
    lines.append(
        f"  put the original files ({names}) in FOLDER/{target}, "
        "then pass `--data FOLDER` or set CFLJAX_DATA=FOLDER"
    )
    if name in CLASS_COUNTS:
        lines.append(
            "  in an environment with TensorFlow (`pip install tensorflow-cpu "
            f"tensorflow-datasets`): `tfds build {_prepared_name(name)} "
            "--file_format=array_record`"
        )
    lines += [
        "  use the embedded `digits` instead, which need nothing: `--images digits` or "
        "`load_images('digits')`",
    ]
    return "\n".join(lines)


class File(NamedTuple):
    """One original file of an image set.

    name: official name.
    md5: of the file as distributed; None where none is published.
    content_md5: of what is inside the gzip wrapper, or None without one; the same
      content is accepted in another wrapper, such as the Debian package's.
    size: bytes that are inside a wrapper.
    """

    name: str
    md5: str | None
    content_md5: str | None = None
    size: int | None = None


def _idx_sizes(train: int, test: int) -> list[int]:
    """Bytes of images and labels for training, then of those for the test."""
    return [n for count in (train, test) for n in (16 + 28 * 28 * count, 8 + count)]


def _idx_files(*md5s: tuple[str, str]) -> tuple[File, ...]:
    names = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3")
    names = (*names, "t10k-labels-idx1")
    sizes = _idx_sizes(60_000, 10_000)
    return tuple(
        File(f"{name}-ubyte.gz", *md5, size)
        for name, md5, size in zip(names, md5s, sizes, strict=True)
    )


# Images for training and for the test.
_EMNIST = {
    "emnist_balanced": (112_800, 18_800),
    "emnist_bymerge": (697_932, 116_323),
    "emnist_byclass": (697_932, 116_323),
    "emnist_letters": (124_800, 20_800),
    "emnist_digits": (240_000, 40_000),
}


def _emnist_files(name: str) -> tuple[File, ...]:
    start = name.replace("_", "-")
    kinds = ("images-idx3", "labels-idx1")
    splits = itertools.product(("train", "test"), kinds)
    sizes = _idx_sizes(*_EMNIST[name])
    return tuple(
        File(f"{start}-{split}-{kind}-ubyte.gz", None, None, size)
        for (split, kind), size in zip(splits, sizes, strict=True)
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
    "cifar100": (
        File("train", "16019d7e3df5f24257cddd939b257f8d"),
        File("test", "f0ef6b0ae62326f3e7ffdfab6717acfc"),
    ),
    **{name: _emnist_files(name) for name in _EMNIST},
}

# Folders in which the original archives have their files.
_FOLDERS = {
    "cifar10": "cifar-10-batches-py",
    "cifar100": "cifar-100-python",
    "tiny_imagenet": "tiny-imagenet-200",
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
    place = Path(os.path.expanduser(named))  # As it is where nobody has that name.
    if not os.path.isdir(place):
        origin = "`CFLJAX_DATA`" if folder is None else "`folder` (`--data`)"
        raise FileNotFoundError(
            f"{origin} must name a folder that exists, got `{named}`; name the folder "
            "that holds the data."
        )
    return place


def find_files(name: str, folder: Path) -> Path | None:
    """Folder that holds any original file of the set, or None.

    Looked for in the folder of the original archive, such as `cifar-10-batches-py`, in
    `folder/<name>`, `folder/<name with hyphens>` and `folder` itself; for EMNIST in
    `folder/emnist` and `folder/gzip` too.

    Args:
      name: a key of `FILES`, or "tiny_imagenet".
      folder: where to look.
    """
    names = [_FOLDERS[name]] if name in _FOLDERS else []
    if name.startswith("emnist_"):
        names = ["emnist", "gzip"]
    files = [file.name for file in FILES.get(name, (File("wnids.txt", None),))]
    for place in (*names, name, name.replace("_", "-"), ""):
        if any((folder / place / file).is_file() for file in files):
            return folder / place
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
    if name in ("cifar10", "cifar100"):
        return _read_cifar(contents)
    if not name.startswith("emnist_"):
        return _read_idx(contents)
    try:
        arrays = _upright(name, _read_idx(contents))
    except ValueError as error:  # Truncated.
        raise ValueError(
            f"the files of {name} in `{place}` are no idx files of 28 x 28 pixels: "
            f"{error}."
        ) from error
    _check_counts(name, place, arrays)
    return arrays


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
        packed = read_file(path)
    except OSError as error:
        reason = error.strerror or error
        raise ValueError(f"cannot read `{path}`: {reason}.") from error
    md5 = _md5(packed)
    if file.size is None and md5 == file.md5:
        return packed
    if file.size is not None:
        # Whatever the wrapper, no more is taken out of it than there should be.
        try:
            content = gunzip(path, packed, file.size)
        except TooLargeError as error:
            raise ValueError(f"{error} Download it again.") from error
        except ValueError as error:
            if file.md5 is None:
                raise ValueError(
                    f"`{path}` is corrupt or truncated: {error}; download it again."
                ) from error
            content = b""
        if md5 == file.md5 or file.content_md5 in (None, _md5(content)):
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
    both = [np.frombuffer(content, np.uint8) for content in contents]
    train, test = (pixels[16:].reshape(-1, 28, 28) for pixels in both[::2])
    train_labels, test_labels = (labels[8:].astype(np.int32) for labels in both[1::2])
    return Arrays(train, train_labels, test, test_labels)


def _read_cifar(contents: Iterable[bytes]) -> Arrays:
    """Arrays from the pickles of CIFAR-10 or CIFAR-100 (fine labels), the last one of
    the test, which make arrays and nothing else, besides their md5 being known."""
    batches = [_ArraysOnly(io.BytesIO(c), encoding="bytes").load() for c in contents]
    pixels = [
        batch[b"data"].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1) for batch in batches
    ]
    name = b"labels" if b"labels" in batches[0] else b"fine_labels"
    labels = [np.asarray(batch[name], np.int32) for batch in batches]
    train, test = np.concatenate(pixels[:-1]), np.ascontiguousarray(pixels[-1])
    return Arrays(train, np.concatenate(labels[:-1]), test, labels[-1])


class _ArraysOnly(pickle.Unpickler):
    """Refuses to import whatever is not needed for an array of NumPy, and to make an
    array otherwise than of the bytes that are there."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        stand_in = _STAND_INS.get((module_name, global_name))
        if stand_in is None:
            raise ValueError(
                f"a file asks to import `{module_name}.{global_name}`, which images do "
                "not need; it was not imported."
            )
        return stand_in


class _Array:
    """Stands for `numpy.ndarray`, which would make arrays as large as it is told."""

    def __new__(cls, *_: Any) -> Any:
        raise ValueError("a file asks for an array without its content.")


def _empty(kind: Any, shape: Any, code: Any) -> np.ndarray:
    """An array to be filled by `__setstate__`, as NumPy's pickles begin."""
    if kind is not _Array or shape not in ((0,), 0) or code not in (b"b", "b"):
        raise ValueError("a file asks for an array without its content.")
    return np.ndarray((0,), np.int8)


def _kind(code: Any, *_: Any) -> np.dtype:
    """The type of pixels or labels."""
    text = code.decode("latin1") if isinstance(code, bytes) else code
    if text not in ("u1", "i4", "i8"):
        raise ValueError(f"a file asks for an array of {text!r}, which images are not.")
    return np.dtype(text)


def _encoded(text: Any, encoding: Any = "latin1") -> bytes:
    """Bytes, as Python 3 writes them for Python 2."""
    if not isinstance(text, str) or encoding != "latin1":
        raise ValueError("a file asks for text in another form than images have.")
    return text.encode("latin1")


# What a pickle of arrays asks for, and what it gets.
_STAND_INS: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _empty,
    ("numpy._core.multiarray", "_reconstruct"): _empty,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _kind,
    ("_codecs", "encode"): _encoded,
}


def _upright(name: str, arrays: Arrays) -> Arrays:
    """EMNIST as people read it, its letters numbered from 0."""
    first = int(name == "emnist_letters")
    turn = lambda pixels: np.ascontiguousarray(pixels.transpose(0, 2, 1))
    return Arrays(
        turn(arrays.train_inputs),
        arrays.train_labels - first,
        turn(arrays.test_inputs),
        arrays.test_labels - first,
    )


def _check_counts(name: str, place: Path, arrays: Arrays) -> None:
    """Raise ValueError unless there are as many images, and classes, as there are."""
    counts = tuple(np.bincount(np.maximum(arrays.train_labels, 0)).tolist())
    expected = CLASS_COUNTS[name]
    if isinstance(expected, Total):
        is_whole = expected == (sum(counts), len(counts))
        wanted = f"{expected.images} of {expected.classes} classes"
    else:
        is_whole, wanted = counts == expected, _described(expected)
    if not is_whole:
        raise ValueError(
            f"`{place}` does not hold {name}: it has {_described(counts)} training "
            f"images, expected {wanted}. Preparing two sets from one `manual_dir` "
            "mixes them up; put it in a folder of its own."
        )
    if len(arrays.train_labels) != len(arrays.train_inputs):
        raise ValueError(
            f"`{place}` has {len(arrays.train_inputs)} training images of {name} and "
            f"{len(arrays.train_labels)} labels; get it again."
        )


def _described(counts: tuple[int, ...]) -> str:
    """Numbers of images of all classes."""
    each = f"{min(counts, default=0)} to {max(counts, default=0)}"
    return f"{sum(counts)} of {len(counts)} classes ({each} each)"


def _read_tiny(place: Path) -> Arrays:
    """Tiny-ImageNet from its folder of JPEG files."""
    from PIL import Image  # Slow to import and seldom needed.

    names = sorted((place / "wnids.txt").read_text().split())
    numbers = {name: label for label, name in enumerate(names)}
    listed = place / "val" / "val_annotations.txt"
    if not listed.is_file():
        raise FileNotFoundError(f"`{place}` lacks val/val_annotations.txt.")
    train = [
        (path, numbers[name])
        for name in names
        for path in sorted((place / "train" / name / "images").glob("*.JPEG"))
    ]
    rows = [line.split("\t")[:2] for line in listed.read_text().splitlines()]
    if any(len(row) < 2 or row[1] not in numbers for row in rows):
        raise ValueError(f"`{listed}` names a class that wnids.txt has not.")
    test = [(place / "val" / "images" / row[0], numbers[row[1]]) for row in rows]
    each, number = TINY
    counts = np.bincount([label for _, label in train], minlength=len(names))
    if tuple(counts) != (each,) * number or not test:
        raise ValueError(
            f"`{place}` does not hold tiny_imagenet: it has "
            f"{_described(tuple(counts.tolist()))} training images, expected "
            f"{_described((each,) * number)}; unpack it again."
        )

    def read(files: list[tuple[Path, int]]) -> tuple[np.ndarray, np.ndarray]:
        pixels = np.zeros((len(files), 64, 64, 3), np.uint8)
        for index, (path, _) in enumerate(files):
            try:
                with Image.open(path) as image:
                    if image.size != (64, 64):  # Before they are unpacked.
                        raise ValueError(f"it has {image.size} pixels, not (64, 64)")
                    pixels[index] = np.asarray(image.convert("RGB"))
            except (OSError, ValueError) as error:
                raise ValueError(
                    f"cannot read `{path}`: {error}; unpack it again."
                ) from error
        return pixels, np.array([label for _, label in files], np.int32)

    return Arrays(*read(train), *read(test))


TINY = (500, 200)  # Training images of a class of Tiny-ImageNet, and its classes.


class Total(NamedTuple):
    """Where classes are not of one size: all training images, and the classes."""

    images: int
    classes: int


# Training images of each class. They tell MNIST from Fashion-MNIST, whose archives
# share their file names, so that a preparation can mistake one for the other.
CLASS_COUNTS: dict[str, tuple[int, ...] | Total] = {
    "mnist": (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
    "fashion_mnist": (6000,) * 10,
    "cifar10": (5000,) * 10,
    "cifar100": (500,) * 100,
    "emnist_balanced": (2400,) * 47,
    "emnist_bymerge": Total(697_932, 47),
    "emnist_byclass": Total(697_932, 62),
    "emnist_letters": (4800,) * 26,
    "emnist_digits": (24_000,) * 10,
}


# Classes that describe a set of images in tensorflow-datasets' `features.json`, which
# would import any other that it finds there, whoever wrote the file.
_FEATURES = (
    "tensorflow_datasets.core.features.features_dict.FeaturesDict",
    "tensorflow_datasets.core.features.image_feature.Image",
    "tensorflow_datasets.core.features.class_label_feature.ClassLabel",
    "tensorflow_datasets.core.features.text_feature.Text",  # Names of CIFAR's images.
)
# What the largest of the sets have: pixels of an image, all channels, and images.
_PIXELS, _IMAGES = 32 * 32 * 3, 697_932
_NAMES_OF_CLASSES = ("pythonClassName", "python_class_name", "type")
_NESTED = ("jsonFeature", "json_feature")  # Text that is parsed for classes in turn.


def find_prepared(name: str, folder: Path) -> Path | None:
    """Newest version of the prepared set `folder/<name>/<version>`, or None.

    Args:
      name: a key of `CLASS_COUNTS`.
      folder: a `data_dir` of tensorflow-datasets.
    """
    found = (folder / _prepared_name(name)).glob("*.*.*/dataset_info.json")
    return max((path.parent for path in found), key=_version, default=None)


def _prepared_name(name: str) -> str:
    """As tensorflow-datasets calls it, with the configuration after a slash."""
    return name.replace("emnist_", "emnist/")


def read_prepared(name: str, place: Path) -> Arrays:
    """Image set from a preparation in the array_record format.

    Preparing shuffles the images, so their order differs from the original files'.
    Only what is on the disk is used: the set is opened by its folder, never by its
    name, for which tensorflow-datasets would go to the network.

    Args:
      name: a key of `CLASS_COUNTS`.
      place: what `find_prepared` found.

    Raises:
      ValueError: if the set is in another format, damaged, or another set's images, or
        names a class that is not one of tensorflow-datasets' own for images: none such
        is imported.

    Cost: about 100 microseconds an image to decode, on one core.
    """
    if not list(place.glob("*.array_record*")):
        raise ValueError(
            f"`{place}` is not in the array_record format, which is the one that can "
            "be read without TensorFlow; prepare it again with "
            f"`tfds build {_prepared_name(name)} --file_format=array_record "
            "--overwrite`."
        )
    import tensorflow_datasets as tfds  # Slow to import and seldom needed.

    try:
        _check_classes(json.loads((place / "features.json").read_text("utf-8")))
        builder: Any = tfds.builder_from_directory(place, file_format="array_record")
        shape = tuple(builder.info.features["image"].shape)
        if math.prod(length or 2**32 for length in shape) > _PIXELS:
            raise ValueError(f"its images are of shape {shape}")
        train = _decode(builder.as_data_source(split="train"), _IMAGES)
        test = _decode(builder.as_data_source(split="test"), _IMAGES)
    except Exception as error:  # Damage shows in any layer below, as any type.
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise ValueError(f"cannot read the data set in `{place}`: {reason}.") from error
    arrays = Arrays(*train, *test)
    if name.startswith("emnist_"):
        arrays = _upright(name, arrays)
    _check_counts(name, place, arrays)
    return arrays


def _check_classes(entry: Any) -> None:
    """Raises ValueError unless all classes that a `features.json` names are known."""
    for value in entry if isinstance(entry, list) else ():
        _check_classes(value)
    for key, value in entry.items() if isinstance(entry, dict) else ():
        if key in _NESTED or (key in _NAMES_OF_CLASSES and value not in _FEATURES):
            named = (
                "a class in nested text" if key in _NESTED else f"the class {value!r}"
            )
            raise ValueError(
                f"`features.json` names {named}, which images do not need; it was not"
                " imported"
            )
        _check_classes(value)


def _version(place: Path) -> tuple[int, ...]:
    return tuple(int(p) if p.isdigit() else -1 for p in place.name.split("."))


def _decode(
    source: Any, most: int
) -> tuple[UInt8[np.ndarray, "images height width *channels"], Int[np.ndarray, "_"]]:
    """Images and labels of one split; a single channel loses its axis."""
    if len(source) > most:
        raise ValueError(f"a split has {len(source)} images, more than {most}")
    examples = source.__getitems__(list(range(len(source))))
    inputs = np.stack([example["image"] for example in examples])
    labels = np.asarray([example["label"] for example in examples], np.int32)
    return inputs[..., 0] if inputs.shape[-1] == 1 else inputs, labels


@dataclasses.dataclass(frozen=True)
class Samples:
    """Training and test samples with labels, and with groups where they have them.

    train_inputs: `[train, ...]`, such as token ids or counts of words.
    train_labels: `[train]`, what a classifier answers.
    test_inputs: `[test, ...]`, likewise.
    test_labels: `[test]`.
    source: where they came from, for people, without folders of this machine.
    train_groups: `[train]`, what a partition may go by beside the labels, such as a
      review's category of products; None where there are none.
    test_groups: `[test]`, likewise.
    """

    train_inputs: Num[np.ndarray | Array, "train *shape"]
    train_labels: Int[np.ndarray | Array, " train"]
    test_inputs: Num[np.ndarray | Array, "test *shape"]
    test_labels: Int[np.ndarray | Array, " test"]
    source: str
    train_groups: Int[np.ndarray | Array, " train"] | None = None
    test_groups: Int[np.ndarray | Array, " test"] | None = None
