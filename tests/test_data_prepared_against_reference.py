"""A set in tensorflow-datasets' own format, written by its classes, read back."""

import io
import json
import pathlib
import sys

import numpy as np
import pytest
from PIL import Image

from cfljax.data import images, load_images

NUM_TRAIN, NUM_TEST = 20, 7


def pictures(num_images: int, channels: int) -> np.ndarray:
    random = np.random.default_rng(num_images)
    shape = (num_images, 28, 28, channels)[: 3 if channels == 1 else 4]
    return random.integers(0, 256, shape).astype(np.uint8)


def prepare(folder: pathlib.Path, name: str, channels: int = 1, version: str = "3.0.1"):
    """Write `folder/name/version` in the array_record format, without TensorFlow."""
    import tensorflow_datasets as tfds
    from array_record.python.array_record_module import ArrayRecordWriter

    place = folder / name / version
    place.mkdir(parents=True)
    features = tfds.features.FeaturesDict(
        {
            "image": tfds.features.Image(shape=(28, 28, channels)),
            "label": tfds.features.ClassLabel(num_classes=10),
        }
    )
    splits = []
    for split, count in (("train", NUM_TRAIN), ("test", NUM_TEST)):
        path = place / f"{name}-{split}.array_record-00000-of-00001"
        writer = ArrayRecordWriter(str(path), "group_size:1")
        for index, picture in enumerate(pictures(count, channels)):
            encoded = io.BytesIO()
            Image.fromarray(picture).save(encoded, "PNG")
            example = {"image": encoded.getvalue(), "label": index % 10}
            writer.write(features.serialize_example(example))
        writer.close()
        splits.append({"name": split, "shardLengths": [str(count)], "numBytes": "1"})
        template = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
        splits[-1]["filepathTemplate"] = template
    features.save_config(str(place))
    info = {"name": name, "version": version, "fileFormat": "array_record"}
    (place / "dataset_info.json").write_text(json.dumps(info | {"splits": splits}))
    return place


@pytest.fixture(autouse=True)
def small_sets(monkeypatch, tmp_path):
    """Class counts of the small sets, and no data of this machine."""
    monkeypatch.delenv("CFLJAX_DATA", raising=False)
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "default"))
    for name in ("mnist", "cifar10"):
        monkeypatch.setitem(images.CLASS_COUNTS, name, (NUM_TRAIN // 10,) * 10)


@pytest.mark.parametrize(("name", "channels"), [("mnist", 1), ("cifar10", 3)])
def test_prepared_set_against_what_was_written(name, channels, tmp_path):
    place = prepare(tmp_path / "data", name, channels)
    images = load_images(name, folder=tmp_path / "data")
    np.testing.assert_array_equal(images.train_inputs, pictures(NUM_TRAIN, channels))
    np.testing.assert_array_equal(images.test_inputs, pictures(NUM_TEST, channels))
    np.testing.assert_array_equal(images.train_labels, np.arange(NUM_TRAIN) % 10)
    assert images.source == f"{name}: prepared by tensorflow-datasets in {place}"
    assert "tensorflow" not in sys.modules


def test_default_folder_and_newest_version_are_found(tmp_path):
    prepare(tmp_path / "default", "mnist", version="3.0.1")
    newest = prepare(tmp_path / "default", "mnist", version="3.0.10")
    assert str(newest) in load_images("mnist").source


def test_another_sets_images_are_refused(tmp_path, monkeypatch):
    place = prepare(tmp_path, "mnist")
    monkeypatch.undo()
    with pytest.raises(ValueError, match="does not hold mnist") as caught:
        load_images("mnist", folder=tmp_path)
    assert str(place) in str(caught.value)


def test_another_format_is_refused_with_the_command(tmp_path):
    place = prepare(tmp_path, "mnist")
    for path in place.glob("*.array_record*"):
        path.rename(place / path.name.replace("array_record", "tfrecord"))
    with pytest.raises(ValueError, match="--file_format=array_record --overwrite"):
        load_images("mnist", folder=tmp_path)


def test_damaged_record_is_one_clear_line(tmp_path):
    place = prepare(tmp_path, "mnist")
    path = next(place.glob("mnist-train*"))
    path.write_bytes(path.read_bytes()[:-4000])
    with pytest.raises(ValueError, match="cannot read the data set in") as caught:
        load_images("mnist", folder=tmp_path)
    assert "\n" not in str(caught.value)


EVIL = "pathlib.Path(__file__).with_suffix('.ran').touch()"


@pytest.fixture
def stranger(tmp_path, monkeypatch):
    """A class in a module that leaves a mark when it is imported, and the mark."""
    path = tmp_path / "modules" / "stranger_to_images.py"
    path.parent.mkdir()
    path.write_text(f"import pathlib\n{EVIL}\nclass Feature: pass\n")
    monkeypatch.syspath_prepend(str(path.parent))
    yield "stranger_to_images.Feature", path.with_suffix(".ran")
    sys.modules.pop("stranger_to_images", None)


def describe(place: pathlib.Path, change) -> None:
    """Change the description of a prepared set's features."""
    path = place / "features.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps(change(document)))


def crafted(name: str):
    """Descriptions that make tensorflow-datasets import a class, in all spellings."""
    legacy = {"type": name, "content": {}}
    nested = json.dumps({"image": {"type": name, "content": {}}})
    own = "tensorflow_datasets.core.features.features_dict.FeaturesDict"

    def inner(key, value):
        def change(document):
            image = document["featuresDict"]["features"]["image"]
            image.pop("pythonClassName")
            image[key] = value
            return document

        return change

    return {
        "outer": lambda document: document | {"pythonClassName": name},
        "inner": inner("pythonClassName", name),
        "other spelling": inner("python_class_name", name),
        "old form": lambda document: legacy,
        "nested text": lambda _: {
            "pythonClassName": own,
            "jsonFeature": {"json": nested},
        },
    }


FORMS = ("outer", "inner", "other spelling", "old form", "nested text")


@pytest.mark.parametrize("form", FORMS)
def test_classes_of_others_are_never_imported(form, tmp_path, stranger):
    """A folder of data runs no code."""
    name, mark = stranger
    place = prepare(tmp_path / "data", "mnist")
    describe(place, crafted(name)[form])
    with pytest.raises(ValueError, match="it was not imported") as caught:
        load_images("mnist", folder=tmp_path / "data")
    assert "\n" not in str(caught.value) and str(place) in str(caught.value)
    assert not mark.exists()


@pytest.mark.parametrize("form", FORMS)
def test_unchecked_they_would_be(form, tmp_path, stranger, monkeypatch):
    """Control: without the check the same folders run the module."""
    name, mark = stranger
    monkeypatch.setattr(images, "_check_classes", lambda entry: None)
    place = prepare(tmp_path / "data", "mnist")
    describe(place, crafted(name)[form])
    with pytest.raises(ValueError, match="cannot read the data set"):
        load_images("mnist", folder=tmp_path / "data")
    assert mark.exists()
