"""Image sets read from original and prepared files, and what is said of absent ones."""

import functools
import gzip
import io
import json
import pathlib
import re
import shutil
import sys
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cfljax.data import images, load_images
from cfljax.data.images import CLASS_COUNTS, FILES

# Whole programs: half a second or more each, on a fresh machine.
pytestmark = pytest.mark.long

SHAPES = {"mnist": (28, 28), "fashion_mnist": (28, 28), "cifar10": (32, 32, 3)}


@pytest.fixture(autouse=True)
def no_data_of_this_machine(monkeypatch, tmp_path):
    monkeypatch.delenv("CFLJAX_DATA", raising=False)
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "default"))


def refusal(name: str, folder: pathlib.Path | None, kind: Any = ValueError) -> str:
    """What is said instead of reading a set."""
    with pytest.raises(kind) as caught:
        load_images(name, folder=folder)
    return str(caught.value)


# Original files, against reference
@functools.cache
def original(name: str, folder: pathlib.Path) -> images.Images:
    """A set as it is read, once: unpacking takes most of a second."""
    return load_images(name, folder=folder)


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_original_files_against_reference(name, real_data):
    images = original(name, real_data)
    count = sum(CLASS_COUNTS[name])
    assert images.train_inputs.shape == (count, *SHAPES[name])
    assert images.test_inputs.shape == (10000, *SHAPES[name])
    assert tuple(np.bincount(images.train_labels)) == CLASS_COUNTS[name]
    assert "original files" in images.source


def test_pixels_are_those_of_the_files(real_data):
    """Facts known of the sets: first labels, first pixels, orientation, channels."""
    mnist = original("mnist", real_data)
    assert mnist.train_labels[:6].tolist() == [5, 0, 4, 1, 9, 2]
    assert mnist.test_labels[:4].tolist() == [7, 2, 1, 0]
    one = mnist.train_inputs[3].astype(bool)  # Leans right: from (20, 10) to (4, 18).
    rows, columns = np.nonzero(one)
    assert columns[rows < 10].mean() > columns[rows > 18].mean()
    cifar = original("cifar10", real_data)
    assert cifar.train_labels[:5].tolist() == [6, 9, 9, 4, 1]
    assert cifar.train_inputs[0, 0, 0].tolist() == [59, 62, 63]


def test_environment_names_the_folder_and_the_argument_overrides(
    real_data, monkeypatch, tmp_path
):
    monkeypatch.setenv("CFLJAX_DATA", str(real_data))
    assert load_images("mnist").source == "mnist: original files, md5 as published"
    message = refusal("mnist", tmp_path, FileNotFoundError)
    assert message.startswith("No data of `mnist` in ")


def test_repacked_files_directly_in_the_folder_are_accepted(real_data, tmp_path):
    """As in Debian's package: the same content in another gzip wrapper."""
    for file in FILES["fashion_mnist"]:
        content = gzip.decompress(
            (real_data / "fashion_mnist" / file.name).read_bytes()
        )
        (tmp_path / file.name).write_bytes(gzip.compress(content, 0))
    again = load_images("fashion_mnist", folder=tmp_path)
    first = original("fashion_mnist", real_data)
    np.testing.assert_array_equal(again.train_inputs, first.train_inputs)
    assert "corrupt, truncated or another file" in refusal("mnist", tmp_path)


def test_digits_against_scikit_learn():
    from sklearn.datasets import load_digits

    images = load_images("digits")
    assert images.train_inputs.shape == (1437, 8, 8)
    assert images.test_inputs.shape == (360, 8, 8)
    assert images.train_inputs.max() == 255
    together = np.concatenate([images.test_inputs, images.train_inputs])
    restored = np.round(together.reshape(1797, 64) * (16 / 255))
    ours = sorted(map(tuple, restored.astype(int)))
    assert ours == sorted(
        map(tuple, np.asarray(load_digits(return_X_y=True)[0]).astype(int))
    )
    again = load_images("digits")
    np.testing.assert_array_equal(images.test_labels, again.test_labels)
    assert set(images.test_labels.tolist()) == set(range(10))


# Original files, against misuse
def test_unknown_name_is_refused():
    assert "`name` must be one of digits, mnist" in refusal("MNIST", None)


@pytest.fixture
def labels_file(real_data, tmp_path):
    """One of the files of a copy of MNIST in the temporary folder."""
    shutil.copytree(real_data / "mnist", tmp_path / "mnist")
    return tmp_path / "mnist" / "train-labels-idx1-ubyte.gz"


def flip_a_byte(content: bytes) -> bytes:
    return content[:5000] + bytes([content[5000] ^ 1]) + content[5001:]


@pytest.mark.parametrize(
    "damage", [lambda content: content[:-100], flip_a_byte, lambda _: b""]
)
def test_damaged_file_is_named_with_both_md5s(damage, labels_file, tmp_path):
    labels_file.write_bytes(damage(labels_file.read_bytes()))
    message = refusal("mnist", tmp_path)
    assert str(labels_file) in message
    assert "d53e105ee54ea40749a09fcbcd1e9432" in message
    assert "its md5 is" in message and "\n" not in message


def test_damaged_cifar_is_never_unpickled(real_data, tmp_path):
    target = tmp_path / "cifar-10-batches-py"
    shutil.copytree(real_data / "cifar-10-batches-py", target)
    (target / "test_batch").write_bytes(b"cos\nsystem\n(S'exit 1'\ntR.")
    assert "40351d587109b95175f43aff81a1287e" in refusal("cifar10", tmp_path)


def test_file_of_another_set_is_recognised(real_data, labels_file, tmp_path):
    shutil.copy(real_data / "fashion_mnist" / labels_file.name, labels_file)
    assert "it is a file of fashion_mnist" in refusal("mnist", tmp_path)


def test_unreadable_and_missing_files_are_named(labels_file, tmp_path):
    labels_file.unlink()
    first, *advice = refusal("mnist", tmp_path, FileNotFoundError).splitlines()
    assert f"missing: {labels_file.name}. Do one of these:" in first
    assert "--data FOLDER" in advice[0] and "--images digits" in advice[-1]
    labels_file.mkdir()
    assert re.search(r"cannot read .*: Is a directory", refusal("mnist", tmp_path))


def test_missing_folder_is_one_clear_line(tmp_path, monkeypatch):
    absent = tmp_path / "absent"
    message = refusal("mnist", absent, FileNotFoundError)
    assert "`--data`" in message and f"`{absent}`" in message and "\n" not in message
    monkeypatch.setenv("CFLJAX_DATA", str(absent))
    message = refusal("mnist", None, FileNotFoundError)
    assert message.startswith("`CFLJAX_DATA`") and f"`{absent}`" in message
    assert "--data" not in message


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_missing_data_message_says_how_to_get_them(name, tmp_path):
    message = refusal(name, tmp_path, FileNotFoundError)
    assert f"tfds build {name} --file_format=array_record" in message
    assert all(file.name in message for file in FILES[name])
    assert "--data" in message and "CFLJAX_DATA" in message
    assert "`--images digits`" in message and "`load_images('digits')`" in message
    assert ("dataset-fashion-mnist" in message) == (name == "fashion_mnist")


# Sets prepared by tensorflow-datasets, against what was written
NUM_TRAIN, NUM_TEST = 20, 7


def pictures(num_images: int, channels: int) -> np.ndarray:
    random = np.random.default_rng(num_images)
    shape = (num_images, 28, 28, channels)[: 3 if channels == 1 else 4]
    return random.integers(0, 256, shape).astype(np.uint8)


def prepare(
    folder: pathlib.Path,
    name: str,
    channels: int = 1,
    version: str = "3.0.1",
    *,
    has_names: bool = False,
):
    """Write `folder/name/version` in the array_record format, without TensorFlow."""
    import tensorflow_datasets as tfds
    from array_record.python.array_record_module import ArrayRecordWriter

    place = folder / name / version
    place.mkdir(parents=True)
    named = {"id": tfds.features.Text()} if has_names else {}
    features = tfds.features.FeaturesDict(
        {
            "image": tfds.features.Image(shape=(28, 28, channels)),
            "label": tfds.features.ClassLabel(num_classes=10),
        }
        | named
    )
    splits = []
    for split, count in (("train", NUM_TRAIN), ("test", NUM_TEST)):
        path = place / f"{name}-{split}.array_record-00000-of-00001"
        writer = ArrayRecordWriter(str(path), "group_size:1")
        for index, picture in enumerate(pictures(count, channels)):
            encoded = io.BytesIO()
            Image.fromarray(picture).save(encoded, "PNG")
            example = {"image": encoded.getvalue(), "label": index % 10}
            example |= dict.fromkeys(named, f"{split}_{index:05d}")
            writer.write(features.serialize_example(example))
        writer.close()
        splits.append({"name": split, "shardLengths": [str(count)], "numBytes": "1"})
        template = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
        splits[-1]["filepathTemplate"] = template
    features.save_config(str(place))
    info = {"name": name, "version": version, "fileFormat": "array_record"}
    (place / "dataset_info.json").write_text(json.dumps(info | {"splits": splits}))
    return place


@pytest.fixture
def small_sets(monkeypatch):
    """Class counts of the small sets."""
    for name in ("mnist", "cifar10"):
        monkeypatch.setitem(CLASS_COUNTS, name, (NUM_TRAIN // 10,) * 10)


@pytest.mark.usefixtures("small_sets")
@pytest.mark.parametrize(("name", "channels"), [("mnist", 1), ("cifar10", 3)])
def test_prepared_set_against_what_was_written(name, channels, tmp_path):
    place = prepare(tmp_path / "data", name, channels)
    images = load_images(name, folder=tmp_path / "data")
    np.testing.assert_array_equal(images.train_inputs, pictures(NUM_TRAIN, channels))
    np.testing.assert_array_equal(images.test_inputs, pictures(NUM_TEST, channels))
    np.testing.assert_array_equal(images.train_labels, np.arange(NUM_TRAIN) % 10)
    version = f"{name}: prepared by tensorflow-datasets, version {place.name}"
    assert images.source == version
    assert "tensorflow" not in sys.modules


@pytest.mark.usefixtures("small_sets")
def test_default_folder_and_newest_version_are_found(tmp_path):
    prepare(tmp_path / "default", "mnist", version="3.0.1")
    newest = prepare(tmp_path / "default", "mnist", version="3.0.10")
    assert load_images("mnist").source.endswith(f"version {newest.name}")


# Prepared sets, against misuse
def test_another_sets_images_are_refused(tmp_path):
    place = prepare(tmp_path, "mnist")
    message = refusal("mnist", tmp_path)
    assert "does not hold mnist" in message and str(place) in message


def test_another_format_is_refused_with_the_command(tmp_path):
    place = prepare(tmp_path, "mnist")
    for path in place.glob("*.array_record*"):
        path.rename(place / path.name.replace("array_record", "tfrecord"))
    message = refusal("mnist", tmp_path)
    assert "--file_format=array_record --overwrite" in message


@pytest.mark.usefixtures("small_sets")
def test_damaged_record_is_one_clear_line(tmp_path):
    place = prepare(tmp_path, "mnist")
    path = next(place.glob("mnist-train*"))
    path.write_bytes(path.read_bytes()[:-4000])
    message = refusal("mnist", tmp_path)
    assert "cannot read the data set in" in message and "\n" not in message


def crafted(name: str):
    """Descriptions that make tensorflow-datasets import a class, in all spellings."""
    nested = json.dumps({"image": {"type": name, "content": {}}})
    own = "tensorflow_datasets.core.features.features_dict.FeaturesDict"

    def inner(document, key):
        image = document["featuresDict"]["features"]["image"]
        image.pop("pythonClassName")
        image[key] = name
        return document

    return {
        "outer": lambda document: document | {"pythonClassName": name},
        "inner": lambda document: inner(document, "pythonClassName"),
        "other spelling": lambda document: inner(document, "python_class_name"),
        "old form": lambda _: {"type": name, "content": {}},
        "nested text": lambda _: {
            "pythonClassName": own,
            "jsonFeature": {"json": nested},
        },
    }


FORMS = ("outer", "inner", "other spelling", "old form", "nested text")


@pytest.fixture(params=FORMS)
def stranger(request, tmp_path, monkeypatch, small_sets):
    """A prepared set that names a class of a module that leaves a mark when it is
    imported, and the mark."""
    module = tmp_path / "modules" / "stranger_to_images.py"
    module.parent.mkdir()
    leave = "pathlib.Path(__file__).with_suffix('.ran').touch()"
    module.write_text(f"import pathlib\n{leave}\nclass Feature: pass\n")
    monkeypatch.syspath_prepend(str(module.parent))
    place = prepare(tmp_path / "data", "mnist")
    path = place / "features.json"
    change = crafted("stranger_to_images.Feature")[request.param]
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    yield place, module.with_suffix(".ran")
    sys.modules.pop("stranger_to_images", None)


def test_classes_of_others_are_never_imported(tmp_path, stranger):
    """A folder of data runs no code."""
    place, mark = stranger
    message = refusal("mnist", tmp_path / "data")
    assert "it was not imported" in message
    assert "\n" not in message and str(place) in message
    assert not mark.exists()


def test_unchecked_they_would_be(tmp_path, stranger, monkeypatch):
    """Control: without the check the same folders run the module."""
    _, mark = stranger
    monkeypatch.setattr(images, "_check_classes", lambda entry: None)
    assert "cannot read the data set" in refusal("mnist", tmp_path / "data")
    assert mark.exists()
