"""Labelled images: from the user's files, or embedded."""

import dataclasses
import gzip
import hashlib
import json
import os
import pickle
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from jaxtyping import Array, Int, Num, UInt8

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
    prepared = Path(os.environ.get("TFDS_DATA_DIR", "~/tensorflow_datasets"))
    places = [*([] if named is None else [named]), prepared.expanduser()]
    if named is not None and (found := find_files(name, named)):
        try:
            arrays = read_files(name, found)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{error} {_advice(name)}") from error
        return Images(*arrays, source=f"{name}: original files, md5 as published")
    for place in places:
        if found := find_prepared(name, place):
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
    both = [np.frombuffer(content, np.uint8) for content in contents]
    train, test = (pixels[16:].reshape(-1, 28, 28) for pixels in both[::2])
    train_labels, test_labels = (labels[8:].astype(np.int32) for labels in both[1::2])
    return Arrays(train, train_labels, test, test_labels)


def _read_cifar(contents: Iterable[bytes]) -> Arrays:
    """Arrays from the six pickles; unpickling is safe because their md5 is known."""
    batches = [pickle.loads(content, encoding="bytes") for content in contents]
    pixels = [
        batch[b"data"].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1) for batch in batches
    ]
    labels = [np.asarray(batch[b"labels"], np.int32) for batch in batches]
    train, test = np.concatenate(pixels[:-1]), np.ascontiguousarray(pixels[-1])
    return Arrays(train, np.concatenate(labels[:-1]), test, labels[-1])


# Training images of each class. They tell MNIST from Fashion-MNIST, whose archives
# share their file names, so that a preparation can mistake one for the other.
CLASS_COUNTS: dict[str, tuple[int, ...]] = {
    "mnist": (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
    "fashion_mnist": (6000,) * 10,
    "cifar10": (5000,) * 10,
}


# Classes that describe a set of images in tensorflow-datasets' `features.json`, which
# would import any other that it finds there, whoever wrote the file.
_FEATURES = (
    "tensorflow_datasets.core.features.features_dict.FeaturesDict",
    "tensorflow_datasets.core.features.image_feature.Image",
    "tensorflow_datasets.core.features.class_label_feature.ClassLabel",
)
_NAMES_OF_CLASSES = ("pythonClassName", "python_class_name", "type")
_NESTED = ("jsonFeature", "json_feature")  # Text that is parsed for classes in turn.


def find_prepared(name: str, folder: Path) -> Path | None:
    """Newest version of the prepared set `folder/<name>/<version>`, or None.

    Args:
      name: a key of `CLASS_COUNTS`.
      folder: a `data_dir` of tensorflow-datasets.
    """
    found = (folder / name).glob("*.*.*/dataset_info.json")
    return max((path.parent for path in found), key=_version, default=None)


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
            f"`tfds build {name} --file_format=array_record --overwrite`."
        )
    import tensorflow_datasets as tfds  # Slow to import and seldom needed.

    try:
        _check_classes(json.loads((place / "features.json").read_text("utf-8")))
        builder: Any = tfds.builder_from_directory(place, file_format="array_record")
        train = _decode(builder.as_data_source(split="train"))
        test = _decode(builder.as_data_source(split="test"))
    except Exception as error:  # Damage shows in any layer below, as any type.
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise ValueError(f"cannot read the data set in `{place}`: {reason}.") from error
    counts = tuple(np.bincount(train[1], minlength=10).tolist())
    if counts != CLASS_COUNTS[name]:
        raise ValueError(
            f"`{place}` does not hold {name}: its classes have {counts} training "
            f"images, expected {CLASS_COUNTS[name]}. Preparing two sets from one "
            "`manual_dir` mixes them up; prepare it again in a folder of its own."
        )
    return Arrays(*train, *test)


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
    source: Any,
) -> tuple[UInt8[np.ndarray, "images height width *channels"], Int[np.ndarray, "_"]]:
    """Images and labels of one split; a single channel loses its axis."""
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
