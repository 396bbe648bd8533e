"""Image sets read from the original files, and what is said when they are not there."""

import gzip
import pathlib
import shutil

import numpy as np
import pytest

from cfljax.data import load_images
from cfljax.data.images import CLASS_COUNTS, FILES

SHAPES = {"mnist": (28, 28), "fashion_mnist": (28, 28), "cifar10": (32, 32, 3)}


@pytest.fixture(autouse=True)
def no_data_of_this_machine(monkeypatch, tmp_path):
    monkeypatch.delenv("CFLJAX_DATA", raising=False)
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "no tensorflow-datasets"))


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_original_files_against_reference(name, real_data):
    images = load_images(name, folder=real_data)
    count = sum(CLASS_COUNTS[name])
    assert images.train_inputs.shape == (count, *SHAPES[name])
    assert images.test_inputs.shape == (10000, *SHAPES[name])
    assert tuple(np.bincount(images.train_labels)) == CLASS_COUNTS[name]
    assert "original files" in images.source


def test_pixels_are_those_of_the_files(real_data):
    """Facts known of the sets: first labels, first pixels, orientation, channels."""
    mnist = load_images("mnist", folder=real_data)
    assert mnist.train_labels[:6].tolist() == [5, 0, 4, 1, 9, 2]
    assert mnist.test_labels[:4].tolist() == [7, 2, 1, 0]
    one = mnist.train_inputs[3].astype(bool)  # Leans right: from (20, 10) to (4, 18).
    rows, columns = np.nonzero(one)
    assert columns[rows < 10].mean() > columns[rows > 18].mean()
    cifar = load_images("cifar10", folder=real_data)
    assert cifar.train_labels[:5].tolist() == [6, 9, 9, 4, 1]
    assert cifar.train_inputs[0, 0, 0].tolist() == [59, 62, 63]


def test_environment_names_the_folder_and_the_argument_overrides(
    real_data, monkeypatch, tmp_path
):
    monkeypatch.setenv("CFLJAX_DATA", str(real_data))
    assert str(real_data) in load_images("mnist").source
    with pytest.raises(FileNotFoundError, match=r"No data of `mnist` in .*"):
        load_images("mnist", folder=tmp_path)


def test_repacked_files_directly_in_the_folder_are_accepted(real_data, tmp_path):
    """As in Debian's package: the same content in another gzip wrapper."""
    for file in FILES["fashion_mnist"]:
        content = gzip.decompress(
            (real_data / "fashion_mnist" / file.name).read_bytes()
        )
        (tmp_path / file.name).write_bytes(gzip.compress(content, 0))
    again = load_images("fashion_mnist", folder=tmp_path)
    original = load_images("fashion_mnist", folder=real_data)
    np.testing.assert_array_equal(again.train_inputs, original.train_inputs)
    with pytest.raises(ValueError, match="corrupt, truncated or another file"):
        load_images("mnist", folder=tmp_path)


def copy_mnist(real_data: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    target = folder / "mnist"
    shutil.copytree(real_data / "mnist", target)
    return target / "train-labels-idx1-ubyte.gz"


def flip_a_byte(content: bytes) -> bytes:
    return content[:5000] + bytes([content[5000] ^ 1]) + content[5001:]


@pytest.mark.parametrize(
    "damage", [lambda content: content[:-100], flip_a_byte, lambda _: b""]
)
def test_damaged_file_is_named_with_both_md5s(damage, real_data, tmp_path):
    path = copy_mnist(real_data, tmp_path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError) as caught:
        load_images("mnist", folder=tmp_path)
    message = str(caught.value)
    assert str(path) in message and "d53e105ee54ea40749a09fcbcd1e9432" in message
    assert "its md5 is" in message and "\n" not in message


def test_damaged_cifar_is_never_unpickled(real_data, tmp_path):
    target = tmp_path / "cifar-10-batches-py"
    shutil.copytree(real_data / "cifar-10-batches-py", target)
    (target / "test_batch").write_bytes(b"cos\nsystem\n(S'exit 1'\ntR.")
    with pytest.raises(ValueError, match="40351d587109b95175f43aff81a1287e"):
        load_images("cifar10", folder=tmp_path)


def test_file_of_another_set_is_recognised(real_data, tmp_path):
    path = copy_mnist(real_data, tmp_path)
    shutil.copy(real_data / "fashion_mnist" / path.name, path)
    with pytest.raises(ValueError, match="it is a file of fashion_mnist"):
        load_images("mnist", folder=tmp_path)


def test_unreadable_and_missing_files_are_named(real_data, tmp_path):
    path = copy_mnist(real_data, tmp_path)
    path.unlink()
    with pytest.raises(FileNotFoundError) as caught:
        load_images("mnist", folder=tmp_path)
    first, *advice = str(caught.value).splitlines()
    assert f"missing: {path.name}. Do one of these:" in first
    assert "--data FOLDER" in advice[0] and "--images digits" in advice[-1]
    path.mkdir()
    with pytest.raises(ValueError, match=r"cannot read .*: Is a directory"):
        load_images("mnist", folder=tmp_path)


def test_missing_folder_is_one_clear_line(tmp_path, monkeypatch):
    absent = tmp_path / "absent"
    with pytest.raises(FileNotFoundError) as caught:
        load_images("mnist", folder=absent)
    message = str(caught.value)
    assert "`--data`" in message and f"`{absent}`" in message and "\n" not in message
    monkeypatch.setenv("CFLJAX_DATA", str(absent))
    with pytest.raises(FileNotFoundError) as caught:
        load_images("mnist")
    message = str(caught.value)
    assert message.startswith("`CFLJAX_DATA`") and f"`{absent}`" in message
    assert "--data" not in message


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_missing_data_message_says_how_to_get_them(name, tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        load_images(name, folder=tmp_path)
    message = str(caught.value)
    assert f"tfds build {name} --file_format=array_record" in message
    assert all(file.name in message for file in FILES[name])
    assert "--data" in message and "CFLJAX_DATA" in message
    assert "`--images digits`" in message and "`load_images('digits')`" in message
    assert ("dataset-fashion-mnist" in message) == (name == "fashion_mnist")


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


def test_unknown_name_is_refused():
    with pytest.raises(ValueError, match="`name` must be one of digits, mnist"):
        load_images("MNIST")
