"""CIFAR-100, EMNIST and Tiny-ImageNet, from small files of their formats."""

import gzip
import hashlib
import os
import pickle
import shutil

import numpy as np
import pytest
from PIL import Image
from test_data_images import NUM_TRAIN, no_data_of_this_machine, pictures, prepare
from test_data_images import refusal as refusal_of

from cfljax.data import images, load_images
from cfljax.data.images import CLASS_COUNTS, FILES, File

RANDOM = np.random.default_rng(0)
absent = no_data_of_this_machine  # For every test here too.


# CIFAR-100


class Trap:
    """Leaves a mark if it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.makedirs, (str(self.mark), 0o777, True)


def cifar(folder, monkeypatch, **more):
    """Two files of two images, whose md5 are taken for the official ones."""
    folder.mkdir()
    planes, files = RANDOM.integers(0, 256, (2, 2, 3072)).astype(np.uint8), []
    for name, pixels in zip(("train", "test"), planes, strict=True):
        batch = {b"data": pixels, b"fine_labels": [7, 99], b"coarse_labels": [1, 2]}
        content = pickle.dumps(batch | more, protocol=2)
        (folder / name).write_bytes(content)
        files.append(File(name, hashlib.md5(content).hexdigest()))
    monkeypatch.setitem(FILES, "cifar100", tuple(files))
    return planes


def test_cifar100_is_read_from_its_files(tmp_path, monkeypatch):
    planes = cifar(tmp_path / "cifar-100-python", monkeypatch)
    found = load_images("cifar100", folder=tmp_path)
    assert found.train_inputs.shape == (2, 32, 32, 3)
    red = planes[0][1, :1024].reshape(32, 32)  # One channel after the other.
    np.testing.assert_array_equal(found.train_inputs[1, :, :, 0], red)
    np.testing.assert_array_equal(found.test_labels, [7, 99])  # The fine ones.


def test_what_a_file_asks_for_is_not_imported(tmp_path, monkeypatch):
    """Even with the official md5; unguarded, the control says, it would be."""
    mark = tmp_path / "mark"
    cifar(tmp_path / "data", monkeypatch, trap=Trap(mark))
    message = refusal_of("cifar100", tmp_path / "data")
    assert "which images do not need; it was not imported" in message
    assert not mark.exists()
    monkeypatch.setattr(images, "_ArraysOnly", pickle.Unpickler)
    load_images("cifar100", folder=tmp_path / "data")
    assert mark.exists()


# EMNIST


def idx(pixels, labels):
    """Contents of two idx files."""
    head = np.array([2051, len(pixels), 28, 28], ">i4").tobytes()
    mine = np.array([2049, len(labels)], ">i4").tobytes()
    return head + pixels.tobytes(), mine + labels.astype(np.uint8).tobytes()


def emnist(folder, name, first, counts=2):
    """Images of two classes, as written, and the numbers they are of."""
    folder.mkdir()
    pixels = RANDOM.integers(0, 256, (2 * counts, 28, 28)).astype(np.uint8)
    labels = np.arange(2 * counts) % 2 + first
    contents = [*idx(pixels, labels), *idx(pixels[:2], labels[:2])]
    for file, content in zip(FILES[name], contents, strict=True):
        (folder / file.name).write_bytes(gzip.compress(content))
    return pixels


@pytest.mark.parametrize(
    ("name", "first", "folder"),
    [("emnist_balanced", 0, "gzip"), ("emnist_letters", 1, "emnist")],
)
def test_emnist_is_turned_upright_and_counted_from_0(
    name, first, folder, tmp_path, monkeypatch
):
    monkeypatch.setitem(CLASS_COUNTS, name, (2, 2))
    written = emnist(tmp_path / folder, name, first)
    found = load_images(name, folder=tmp_path)
    np.testing.assert_array_equal(found.train_inputs[3], written[3].T)
    assert found.train_labels.tolist() == [0, 1, 0, 1]
    assert found.test_labels.tolist() == [0, 1]


def test_emnist_of_other_numbers_is_refused(tmp_path, monkeypatch):
    emnist(tmp_path / "emnist", "emnist_balanced", 0)
    message = refusal_of("emnist_balanced", tmp_path)
    assert "it has 4 of 2 classes (2 to 2 each) training images" in message
    assert "expected 112800 of 47 classes (2400 to 2400 each)" in message
    monkeypatch.setitem(CLASS_COUNTS, "emnist_balanced", images.Total(4, 2))
    assert load_images("emnist_balanced", folder=tmp_path).train_labels.max() == 1
    monkeypatch.setitem(CLASS_COUNTS, "emnist_balanced", images.Total(4, 3))
    assert "expected 4 of 3 classes" in refusal_of("emnist_balanced", tmp_path)


def test_damaged_emnist_is_one_clear_line(tmp_path):
    emnist(tmp_path / "emnist", "emnist_digits", 0)
    path = tmp_path / "emnist" / FILES["emnist_digits"][0].name
    content = path.read_bytes()
    path.write_bytes(content[:-30])
    assert "corrupt or truncated" in refusal_of("emnist_digits", tmp_path)
    path.write_bytes(gzip.compress(gzip.decompress(content)[:-30]))
    message = refusal_of("emnist_digits", tmp_path)
    assert "no idx files of 28 x 28 pixels" in message and "\n" not in message


@pytest.mark.long
def test_emnist_prepared_by_tensorflow_datasets(tmp_path, monkeypatch):
    monkeypatch.setitem(CLASS_COUNTS, "emnist_digits", (NUM_TRAIN // 10,) * 10)
    place = prepare(tmp_path, "emnist")
    (tmp_path / "data" / "emnist").mkdir(parents=True)
    shutil.move(place.parent, tmp_path / "data" / "emnist" / "digits")
    found = load_images("emnist_digits", folder=tmp_path / "data")
    upright = pictures(NUM_TRAIN, 1).transpose(0, 2, 1)
    np.testing.assert_array_equal(found.train_inputs, upright)


def test_cifar_whose_images_have_names(tmp_path, monkeypatch):
    """As tensorflow-datasets prepares it from version 3.0.2 on."""
    monkeypatch.setitem(CLASS_COUNTS, "cifar10", (NUM_TRAIN // 10,) * 10)
    prepare(tmp_path, "cifar10", 3, "3.0.2", has_names=True)
    found = load_images("cifar10", folder=tmp_path)
    np.testing.assert_array_equal(found.train_inputs, pictures(NUM_TRAIN, 3))
    monkeypatch.setattr(images, "_FEATURES", images._FEATURES[:3])  # As before.
    assert "text_feature.Text" in refusal_of("cifar10", tmp_path)


# Tiny-ImageNet


def tiny(folder, monkeypatch, each=2):
    """Three classes of plain colours, one of them grey."""
    monkeypatch.setattr(images, "TINY", (2, 3))
    names = ["n03", "n01", "n02"]
    (folder / "val" / "images").mkdir(parents=True)
    (folder / "wnids.txt").write_text("\n".join(names))
    lines = []
    for name in names:
        colour = 80 * int(name[2])
        place = folder / "train" / name / "images"
        place.mkdir(parents=True)
        mode = "L" if name == "n02" else "RGB"
        fill = colour if mode == "L" else (colour, 0, 0)
        picture = Image.new(mode, (64, 64), fill)
        for index in range(each):
            picture.save(place / f"{name}_{index}.JPEG", quality=95)
        picture.save(folder / "val" / "images" / f"{name}.JPEG", quality=95)
        lines.append(f"{name}.JPEG\t{name}\t0\t0\t62\t62")
    (folder / "val" / "val_annotations.txt").write_text("\n".join(lines))


def test_tiny_imagenet_is_read_from_its_folder(tmp_path, monkeypatch):
    tiny(tmp_path / "tiny-imagenet-200", monkeypatch)
    found = load_images("tiny_imagenet", folder=tmp_path)
    assert found.train_inputs.shape == (6, 64, 64, 3)
    assert found.train_labels.tolist() == [0, 0, 1, 1, 2, 2]  # By their names.
    assert found.test_labels.tolist() == [2, 0, 1]
    near = lambda pixels, colour: np.abs(pixels.astype(int) - colour).max() <= 4
    assert near(found.train_inputs[0], (80, 0, 0))
    assert near(found.train_inputs[2], (160, 160, 160))  # Grey.
    assert near(found.test_inputs[0], (240, 0, 0))


def test_tiny_imagenet_that_is_not_whole_is_refused(tmp_path, monkeypatch):
    tiny(tmp_path / "data", monkeypatch)
    monkeypatch.setattr(images, "TINY", (2, 4))
    assert "it has 6 of 3 classes (2 to 2 each) training images" in refusal_of(
        "tiny_imagenet", tmp_path / "data"
    )
    monkeypatch.setattr(images, "TINY", (2, 3))
    listed = tmp_path / "data" / "val" / "val_annotations.txt"
    listed.write_text("x.JPEG\tn99\n")
    assert "names a class that wnids.txt has" in refusal_of(
        "tiny_imagenet", tmp_path / "data"
    )
    listed.unlink()
    message = refusal_of("tiny_imagenet", tmp_path / "data", FileNotFoundError)
    assert "lacks val/val_annotations.txt" in message
    assert "FOLDER/tiny-imagenet-200" in message and "tfds build" not in message


def test_what_is_missing_is_said_with_the_files_to_get(tmp_path):
    message = refusal_of("emnist_letters", tmp_path, FileNotFoundError)
    assert "emnist-letters-test-labels-idx1-ubyte.gz" in message
    assert "tfds build emnist/letters --file_format=array_record" in message
    assert "cifar-100-python" in refusal_of("cifar100", tmp_path, FileNotFoundError)
