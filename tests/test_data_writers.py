"""Writers as clients, by hand, from the npz and LEAF's json; what is said of damage."""

import functools
import itertools
import json
import pathlib
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.data import Writers, by_writer, check_clients, load_images, load_writers
from cfljax.data.writers import FILE


@pytest.fixture(autouse=True)
def no_data_of_this_machine(monkeypatch):
    monkeypatch.delenv("CFLJAX_DATA", raising=False)


# Images of six writers; writer 1 has none to train on, writer 4 none for the test.
TRAIN_SIZES, TEST_SIZES = (3, 0, 5, 1, 4, 2), (2, 3, 1, 1, 0, 1)


def own(writers: Writers, split: str, writer: int) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels of one writer."""
    inputs, labels, owners = (
        getattr(writers, f"{split}_{leaf}") for leaf in ("inputs", "labels", "writers")
    )
    return inputs[owners == writer], labels[owners == writer]


def numbered() -> Writers:
    """Images whose top left pixel is their number, the writers' images mixed up."""

    def split(sizes: tuple[int, ...], first: int):
        writers = np.repeat(np.arange(len(sizes)), sizes)
        writers = np.random.default_rng(0).permutation(writers).astype(np.int32)
        pixels = np.full((len(writers), 2, 3), 255, np.uint8)
        pixels[:, 0, 0] = first + np.arange(len(writers))
        return pixels, pixels[:, 0, 0].astype(np.int32) % 62, writers

    train, test = split(TRAIN_SIZES, 1), split(TEST_SIZES, 101)
    return Writers(*train, *test, tuple("abcdef"), 62, "test")


# Against equations
@functools.cache
def of_all(invert: bool):
    """All that are eligible, as arrays of NumPy."""
    return jax.device_get(by_writer(numbered(), invert=invert))


@pytest.mark.parametrize("invert", [False, True])
def test_every_pixel_and_label_by_hand(invert):
    writers = numbered()
    both = of_all(invert)
    eligible = [0, 2, 3, 5]
    for data, split, longest in zip(both, ("train", "test"), (5, 2), strict=True):
        assert data.inputs.shape == (4, longest, 2, 3)
        assert data.inputs.dtype == jnp.float32 and data.targets.dtype == jnp.int32
        for client, writer in enumerate(eligible):
            pixels, labels = own(writers, split, writer)
            size, padding = len(labels), longest - len(labels)
            assert data.mask[client].tolist() == [True] * size + [False] * padding
            shares = pixels.astype(float) / 255
            expected = 1 - shares if invert else shares
            found = data.inputs[client]
            np.testing.assert_allclose(found[:size], expected, rtol=1e-6, atol=1e-7)
            assert not np.any(found[size:])
            assert data.targets[client].tolist() == labels.tolist() + [0] * padding
    others = of_all(not invert)[0]  # Control: the other polarity.
    assert not np.allclose(others.inputs, both[0].inputs)


def chosen(writers: Writers, **changes) -> list[int]:
    """Who the clients are, read from their first training and test images."""
    train, test = by_writer(writers, **changes)
    first, tested = (np.asarray(d.targets)[:, 0].tolist() for d in (train, test))
    found = [int(writers.train_writers[label - 1]) for label in first]
    labels = writers.test_labels.tolist()
    assert found == [int(writers.test_writers[labels.index(t)]) for t in tested]
    return found


def test_clients_are_those_with_enough_images():
    writers = numbered()
    assert chosen(writers) == [0, 2, 3, 5]
    assert chosen(writers, min_samples=3) == [0, 2, 5]  # Writer 5 has 2 + 1.
    assert chosen(writers, min_samples=4) == [0, 2]
    assert chosen(writers, min_samples=4, num_clients=1) == [0]
    train, _ = by_writer(writers, num_clients=1)
    assert train.inputs.shape[1] == 3  # Padded to the longest of the chosen alone.


def test_key_draws_clients_without_replacement():
    writers = numbered()
    draws = [
        tuple(chosen(writers, num_clients=2, key=jax.random.key(seed)))
        for seed in range(60)
    ]
    # A pair is missed by 60 fair draws with a chance of 2e-5; seeds are constants.
    assert set(draws) == set(itertools.combinations((0, 2, 3, 5), 2))
    assert draws[0] == tuple(chosen(writers, num_clients=2, key=jax.random.key(0)))
    assert chosen(writers, key=jax.random.key(0)) == [0, 2, 3, 5]


# Against reference
@pytest.fixture(scope="module")
def femnist(real_data) -> Writers:
    return load_writers(folder=real_data)


NAMES = ("f4020_15", "f1255_13", "f0424_27")  # The first has no test image.


def user_data(writers: Writers, split: str, name: str, double: bool = False) -> dict:
    """What LEAF stores of one writer; `double` puts the first image in twice."""
    inputs, labels = own(writers, split, writers.names.index(name))
    rows = list(range(len(labels)))
    rows = rows[:1] + rows if double else rows
    pixels = inputs[rows].reshape(len(rows), 784) / 255
    return {"x": pixels.tolist(), "y": labels[rows].tolist()}


def write(path: pathlib.Path, data: dict[str, dict]) -> pathlib.Path:
    """A file as LEAF's data_to_json and split_data write it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sizes = [len(own["y"]) for own in data.values()]
    content = {"users": list(data), "num_samples": sizes, "user_data": data}
    path.write_text(json.dumps(content))
    return path


def leaf_files(writers: Writers, folder: pathlib.Path, double: bool = False):
    """Three writers in two files of each split, not in the order of their names."""
    for split in ("train", "test"):
        for number, names in enumerate((NAMES[:2], NAMES[2:])):
            data = {
                name: user_data(writers, split, name, double and split == "train")
                for name in names
            }
            file = f"all_data_{number}_niid_0_keep_0_{split}_9.json"
            write(folder / split / file, data)
    return folder


def test_npz_against_its_facts(femnist):
    """208 writers, 31752 images, 62 classes, nearly a tenth for the test, on white."""
    sizes = len(femnist.train_labels), len(femnist.test_labels)
    assert sizes == (28499, 3253) and len(set(femnist.names)) == 208
    assert femnist.train_inputs.shape[1:] == femnist.test_inputs.shape[1:] == (28, 28)
    assert set(femnist.train_labels.tolist()) == set(range(62))
    for inputs in (femnist.train_inputs, femnist.test_inputs):
        assert np.median(inputs) == inputs.max() == 255 and inputs.min() == 0
    digits_only = [
        np.all(femnist.train_labels[femnist.train_writers == writer] < 10)
        for writer in range(208)
    ]
    assert 0 < sum(digits_only) < 208
    assert FILE.name in femnist.source


def test_npz_has_no_double(femnist):
    inputs = np.concatenate([femnist.train_inputs, femnist.test_inputs])
    labels = np.concatenate([femnist.train_labels, femnist.test_labels])
    owners = np.concatenate([femnist.train_writers, femnist.test_writers])
    rows = zip(owners.tolist(), labels.tolist(), inputs, strict=True)
    assert len({(o, y, x.tobytes()) for o, y, x in rows}) == len(labels)
    # LEAF's rule, max(1, int(.9 n)) to train on, counts the image that was doubled.
    train = np.bincount(femnist.train_writers, minlength=208)
    test = np.bincount(femnist.test_writers, minlength=208)
    dealt = np.maximum(1, (0.9 * (train + test + 1)).astype(int))
    assert np.all((train == dealt) | (train == dealt - 1))
    without = np.maximum(1, (0.9 * (train + test)).astype(int))  # Control.
    assert not np.all((train == without) | (train == without - 1))


def framed(pictures: np.ndarray) -> np.ndarray:
    """Ink cut out, in the middle of a square of 20 x 20, of mean 0 and length 1."""
    found = []
    for picture in pictures:
        rows, columns = (np.flatnonzero((picture > 60).any(axis)) for axis in (1, 0))
        cut = picture[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        side = max(cut.shape)
        square = np.zeros((side, side))
        top, left = ((side - size) // 2 for size in cut.shape)
        square[top : top + cut.shape[0], left : left + cut.shape[1]] = cut
        places = np.arange(20) * side // 20
        found.append(square[np.ix_(places, places)].ravel())
    flat = np.stack(found)
    flat -= flat.mean(axis=1, keepdims=True)
    return flat / np.linalg.norm(flat, axis=1, keepdims=True)


@pytest.mark.long
def test_digits_are_upright_and_labelled_like_mnist(femnist, real_data):
    """Nearest mean of MNIST's digits; transposed or moved by one image it fails."""
    mnist = load_images("mnist", folder=real_data)
    known = framed(np.asarray(mnist.train_inputs[:3000]))
    labels = mnist.train_labels[:3000]
    means = np.stack([known[labels == digit].mean(axis=0) for digit in range(10)])
    rows = np.flatnonzero(femnist.test_labels < 10)[:1000]
    ink, digits = 255 - femnist.test_inputs[rows], femnist.test_labels[rows]

    def accuracy(pictures):
        return np.mean(np.argmax(framed(pictures) @ means.T, axis=1) == digits)

    assert accuracy(ink) > 0.6
    assert accuracy(ink.transpose(0, 2, 1)) < 0.3
    assert accuracy(np.roll(ink, 1, axis=0)) < 0.3


@pytest.mark.long
def test_clients_against_the_files(femnist):
    """As IFCA's `-k 100`: 188 writers; who has no test image is no client."""
    train, test = by_writer(femnist, min_samples=99)
    assert train.inputs.shape == (188, 319, 28, 28)
    assert test.inputs.shape == (188, 36, 28, 28)
    for data, owners in ((train, femnist.train_writers), (test, femnist.test_writers)):
        sizes = np.bincount(owners, minlength=208)
        total = np.bincount(femnist.train_writers, minlength=208)
        total = total + np.bincount(femnist.test_writers, minlength=208)
        np.testing.assert_array_equal(data.mask.sum(axis=1), sizes[total >= 99])
    check_clients(train, num_classes=62, input_shape=(28, 28))
    drawn, _ = by_writer(femnist, num_clients=3, key=jax.random.key(1))
    assert drawn.inputs.shape[0] == 3
    with pytest.raises(ValueError, match=r"`num_clients` must be in 1\.\.204"):
        by_writer(femnist, num_clients=205)


@pytest.mark.long
@pytest.mark.parametrize("place", ["femnist", "femnist/data", "."])
def test_json_against_the_npz(place, femnist, tmp_path):
    folder = leaf_files(femnist, tmp_path / place)
    found = load_writers(folder=tmp_path)
    assert found.names == tuple(sorted(NAMES))
    assert found.source == f"femnist: LEAF's json files in {folder.resolve().name}"
    for split in ("train", "test"):
        for index, name in enumerate(found.names):
            theirs = own(femnist, split, femnist.names.index(name))
            for ours, their in zip(own(found, split, index), theirs, strict=True):
                np.testing.assert_array_equal(ours, their)
    train, _ = by_writer(found)
    assert train.inputs.shape[0] == 2


@pytest.mark.long
def test_doubles_go_unless_they_are_kept(femnist, tmp_path):
    folder = leaf_files(femnist, tmp_path / "femnist", double=True)
    path = sorted((folder / "test").glob("*.json"))[1]
    train, test = (user_data(femnist, half, NAMES[2]) for half in ("train", "test"))
    test = {leaf: test[leaf] + train[leaf][3:4] for leaf in ("x", "y")}
    write(path, {NAMES[2]: test})  # A training image is in the test split, too.
    kept = load_writers(folder=tmp_path, keep_doubles=True)
    once = load_writers(folder=tmp_path)
    assert len(kept.train_labels) == len(once.train_labels) + 3
    assert len(kept.test_labels) == len(once.test_labels) + 1
    clean = load_writers(folder=leaf_files(femnist, tmp_path / "clean"))
    np.testing.assert_array_equal(once.train_inputs, clean.train_inputs)
    np.testing.assert_array_equal(once.test_labels, clean.test_labels)
    test["y"][-1] = (test["y"][-1] + 1) % 62  # Control: another label is no double.
    write(path, {NAMES[2]: test})
    other = load_writers(folder=tmp_path)
    assert len(other.test_labels) == len(kept.test_labels)


def test_environment_names_the_folder(real_data, femnist, monkeypatch):
    monkeypatch.setenv("CFLJAX_DATA", str(real_data))
    assert load_writers().source == femnist.source


# Against misuse
def changed(**leaves) -> Writers:
    """Past the run-time check of annotations, which tests have and users do not."""
    writers = numbered()
    for name, leaf in leaves.items():
        object.__setattr__(writers, name, leaf)
    return writers


# As LEAF's split by user has them: nobody is in both halves.
APART = {"train_writers": 0 * numbered().train_writers + 1}
APART |= {"test_writers": 0 * numbered().test_writers}
WIDER = {"test_inputs": np.repeat(numbered().test_inputs, 2, axis=2)}


@pytest.mark.parametrize(
    ("writers", "arguments", "message"),
    [
        ({}, {"num_clients": 5}, r"`num_clients` must be in 1\.\.4, .* got 5"),
        ({}, {"num_clients": 0}, "`num_clients` must be at least 1, got 0"),
        ({}, {"num_clients": 3, "min_samples": 4}, r"in 1\.\.2, .* at least 4 images"),
        ({}, {"min_samples": 7}, "got 7; of 6 writers 4 .* most images of one are 6"),
        (APART, {}, r"of 6 writers 0 have .* `-t sample`"),
        ({"num_classes": 5}, {}, r"`targets` must be in 0\.\.4"),
        (WIDER, {}, r"of shape \(2, 3\) each, got \(2, 6\)"),
    ],
)
def test_writers_that_are_no_clients_are_refused(writers, arguments, message):
    with pytest.raises(ValueError, match=message):
        by_writer(changed(**writers), **arguments)


GREY = {"x": [[0.5] * 784], "y": [1]}
WHOLE = {"x": [[1.0] * 784], "y": [61]}
DAMAGES = {
    "cut off": ('{"users": ["a"]', "cannot read"),
    "another form": ('{"users": ["a"], "num_samples": [1]}', "not of LEAF's form"),
    "a list": ("[1]", "not of LEAF's form"),
    "no writer": ('{"users": [], "num_samples": [], "user_data": {}}', "no writer"),
    "a short image": ({"x": [[1.0] * 783], "y": [1]}, "must have 784 pixels .* 783"),
    "too many labels": ({"x": [[1.0] * 784], "y": [1, 2]}, "1 images and 2 labels"),
    "a strange label": ({"x": [[1.0] * 784], "y": [62]}, r"in 0\.\.61, got 62"),
    "grey levels": ({"x": [[255.0] * 784], "y": [1]}, "multiple of 1/255"),
    "not of FEMNIST": (GREY, "multiple of 1/255 between 0 and 1"),
    "not a number": ({"x": [[float("nan")] * 784], "y": [1]}, "multiple of 1/255"),
    "infinity": ({"x": [[float("inf")] * 784], "y": [1]}, "multiple of 1/255"),
}


def test_npz_comes_first_and_is_checked(real_data, femnist, tmp_path):
    leaf_files(femnist, tmp_path / "femnist")
    path = tmp_path / "femnist" / FILE.name
    shutil.copy(real_data / "femnist" / FILE.name, path)
    path.chmod(0o644)
    assert len(load_writers(folder=tmp_path).names) == 208
    content = path.read_bytes()
    path.write_bytes(content[:5000] + bytes([content[5000] ^ 1]) + content[5001:])
    with pytest.raises(ValueError, match=FILE.md5) as caught:
        load_writers(folder=tmp_path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_json_is_one_clear_line(damage, tmp_path):
    content, message = DAMAGES[damage]
    path = tmp_path / "femnist" / "train" / "all_data_0.json"
    other = write(tmp_path / "femnist" / "test" / "all_data_0.json", {"a": WHOLE})
    if isinstance(content, str):
        path.parent.mkdir()
        path.write_text(content)
        if damage == "no writer":
            other.write_text(content)
    else:
        write(path, {"a": content})
    with pytest.raises(ValueError, match=message) as caught:
        load_writers(folder=tmp_path)
    named = path.parents[1] if damage == "no writer" else path
    assert f"`{named}`" in str(caught.value) and "\n" not in str(caught.value)
    for split in ("train", "test"):  # Control: the same files, mended, are read.
        write(tmp_path / "femnist" / split / path.name, {"a": WHOLE})
    assert load_writers(folder=tmp_path).train_labels.tolist() == [61]


def test_files_of_two_runs_are_refused(tmp_path):
    for name in ("train/0.json", "train/1.json", "test/0.json"):
        write(tmp_path / "femnist" / name, {"a": WHOLE})
    with pytest.raises(ValueError, match=r"1\.json` has the writer a, whom another"):
        load_writers(folder=tmp_path)


def test_missing_data_message_says_how_to_get_them(tmp_path):
    with pytest.raises(FileNotFoundError, match="No folder of data is named"):
        load_writers()
    with pytest.raises(FileNotFoundError) as caught:
        load_writers(folder=tmp_path)
    first, *advice = str(caught.value).splitlines()
    assert first == f"No data of `femnist` in {tmp_path}. Do one of these:"
    assert "./preprocess.sh -s niid --sf 0.05 -k 100 -t sample" in advice[0]
    assert all("--data" in line and "CFLJAX_DATA=" in line for line in advice)
    write(tmp_path / "test" / "0.json", {"a": GREY})
    with pytest.raises(FileNotFoundError, match=r"missing: train/\*\.json\. Do one"):
        load_writers(folder=tmp_path)
    with pytest.raises(FileNotFoundError, match="must name a folder that exists"):
        load_writers(folder=tmp_path / "absent")
    with pytest.raises(ValueError, match="`name` must be femnist, got 'FEMNIST'"):
        load_writers("FEMNIST")
