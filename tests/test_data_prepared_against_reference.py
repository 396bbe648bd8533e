"""A set in tensorflow-datasets' own format, written by its classes, read back."""

import io
import json
import pathlib
import sys

import numpy as np
import pytest
from PIL import Image

from cfljax.data import load_images, prepared

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
        monkeypatch.setitem(prepared.CLASS_COUNTS, name, (NUM_TRAIN // 10,) * 10)


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
