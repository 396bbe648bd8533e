"""No file runs code, or takes more than it may: bombs, and pickles that do harm."""

import gzip
import hashlib
import io
import json
import os
import pathlib
import pickle
import resource
import struct
import zipfile
import zlib
from typing import Any

import numpy as np
import pytest
from engine_trial import JOINT, plain_grid

import cfljax as cfl
from cfljax.base.unpacking import (
    VARIABLE,
    TooLargeError,
    check_bytes,
    gunzip,
    host_memory,
    read_file,
    read_npz,
)
from cfljax.data import images
from cfljax.engine import StoreError, kept, sweep
from experiments.private import check_private, private_folder

MOST = 2**20  # Bytes, here.


@pytest.fixture
def little(monkeypatch) -> None:
    """Files may take a megabyte."""
    monkeypatch.setenv(VARIABLE, str(MOST / 2**30))


def header(shape: tuple[int, ...], kind: str = "|u1") -> bytes:
    """What begins an array's file, whatever follows."""
    own = io.BytesIO()
    told = {"descr": kind, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(own, told)
    return own.getvalue()


def packed(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    own = io.BytesIO()
    with zipfile.ZipFile(own, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return own.getvalue()


def understated(content: bytes, size: int) -> bytes:
    """A file whose only member says that it has other bytes than it has."""
    told = struct.pack("<I", len(content))
    whole = packed({"x.npy": content})
    assert whole.count(told) == 2  # Beside the member, and in the list of members.
    return whole.replace(told, struct.pack("<I", size))


def peak() -> int:
    """Most bytes that this process has had."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


LARGE = header((32 * MOST,)) + bytes(32 * MOST)  # Packed, a thousandth of it.


@pytest.fixture(scope="module")
def bomb() -> bytes:
    found = packed({"x.npy": LARGE})
    assert len(found) < MOST
    return found


# Against misuse: small files that would be large


def test_members_that_would_be_large_are_not_unpacked(little, bomb):
    with pytest.raises(
        TooLargeError, match=f"`my.npz` would take .*{VARIABLE}"
    ) as told:
        read_npz("my.npz", io.BytesIO(bomb))
    assert "\n" not in str(told.value)


def test_many_members_count_together(little):
    one = header((MOST // 4,)) + bytes(MOST // 4)
    file = packed({f"{name}.npy": one for name in "abcd"})
    with pytest.raises(TooLargeError):
        read_npz("my.npz", io.BytesIO(file))
    assert len(read_npz("my.npz", io.BytesIO(packed({"a.npy": one})))) == 1


@pytest.mark.parametrize("shape", [(10**15,), (2**40, 2**40), (-4,)])
def test_an_array_that_says_it_is_large_is_not_made(shape):
    """Where nothing but the header is there."""
    file = packed({"x.npy": header(shape) + b"1234"})
    with pytest.raises(ValueError, match=r"has 4 bytes of an array of"):
        read_npz("my.npz", io.BytesIO(file))


def test_an_array_of_nothing_is_not_repeated():
    file = packed({"x.npy": header((10**15,), "|V0")})
    with pytest.raises(ValueError, match="array of 0"):
        read_npz("my.npz", io.BytesIO(file))


def test_a_member_with_more_than_it_says_is_damaged():
    """And no more is unpacked."""
    short = header((100,)) + bytes(100)
    content = short + bytes(64 * MOST)
    file, before = io.BytesIO(understated(content, len(short))), peak()
    with pytest.raises(ValueError, match="Bad CRC-32"):
        read_npz("my.npz", file)
    assert peak() - before < 8 * MOST


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_ways_of_packing_are_refused(method):
    """Which Python would unpack without a limit."""
    file = packed({"x.npy": header((4,)) + b"1234"}, method)
    with pytest.raises(ValueError, match=r"as `numpy\.savez` writes it"):
        read_npz("my.npz", io.BytesIO(file))


def test_the_limit_is_what_the_host_has_and_can_be_raised(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    check_bytes("x", host_memory() // 2)
    with pytest.raises(TooLargeError):
        check_bytes("x", 4 * host_memory() + 2**30)
    monkeypatch.setenv(VARIABLE, "1e9")
    check_bytes("x", 4 * host_memory() + 2**30)
    for text in ("much", "nan", "inf"):
        monkeypatch.setenv(VARIABLE, text)
        with pytest.raises(ValueError, match=f"`{VARIABLE}` must be a number"):
            check_bytes("x", 1)


@pytest.mark.long
def test_a_wrapper_gives_no_more_than_it_should(tmp_path):
    for whole in (gzip.compress(bytes(64 * MOST)), gzip.compress(bytes(MOST)) * 9):
        before = peak()
        with pytest.raises(TooLargeError, match=f"more than the {2 * MOST} bytes"):
            gunzip("x.gz", whole, 2 * MOST)
        assert peak() - before < 16 * MOST
    parts = [b"", b"one", bytes(MOST)]
    whole = b"".join(map(gzip.compress, parts))
    assert gunzip("x.gz", whole + b"\0\0", MOST + 3) == b"".join(parts)
    for broken in (b"", whole[:-1], whole[:5], b"no" + whole, whole + b"no"):
        with pytest.raises(ValueError):
            gunzip("x.gz", broken, 2 * MOST)


def test_images_in_a_wrapper_that_is_a_bomb_are_one_line(tmp_path):
    name = "t10k-labels-idx1-ubyte.gz"
    file = next(own for own in images.FILES["mnist"] if own.name == name)
    path = tmp_path / name
    path.write_bytes(gzip.compress(bytes(64 * MOST)))
    before = peak()
    with pytest.raises(ValueError, match="more than the 10008 bytes") as told:
        images.read_bytes(path, file)
    assert "\n" not in str(told.value) and peak() - before < 8 * MOST


def test_official_sizes_are_those_of_the_sets():
    sizes = {own.name: own.size for own in images.FILES["emnist_letters"]}
    assert sizes == {
        "emnist-letters-train-images-idx3-ubyte.gz": 16 + 124_800 * 784,
        "emnist-letters-train-labels-idx1-ubyte.gz": 8 + 124_800,
        "emnist-letters-test-images-idx3-ubyte.gz": 16 + 20_800 * 784,
        "emnist-letters-test-labels-idx1-ubyte.gz": 8 + 20_800,
    }


def test_a_file_with_a_large_hole_and_one_without_an_end_are_not_read(tmp_path, little):
    hole, pipe = tmp_path / "hole", tmp_path / "pipe"
    with hole.open("wb") as file:
        file.truncate(2**40)
    os.mkfifo(pipe)
    with pytest.raises(TooLargeError):
        read_file(hole)
    for endless in (pipe, pathlib.Path("/dev/zero")):
        with pytest.raises(OSError, match="no plain file"):
            read_file(endless)
    with pytest.raises(ValueError, match="would take"):
        cfl.data.from_npz(bomb_at(tmp_path, packed({"x.npy": LARGE})))


def bomb_at(folder: pathlib.Path, content: bytes) -> pathlib.Path:
    path = folder / "my.npz"
    path.write_bytes(content)
    return path


# Against misuse: blocks and checkpoints of somebody who computes digests


def signed(members: dict[str, bytes]) -> bytes:
    """What `kept.read` takes for sound."""
    own = io.BytesIO()
    with zipfile.ZipFile(own, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        archive.comment = b"0" * 64
    body = own.getvalue()[:-64]
    return body + hashlib.sha256(body).hexdigest().encode()


def text(value: Any) -> bytes:
    own = io.BytesIO()
    np.lib.format.write_array(own, np.asarray(json.dumps(value)))
    return own.getvalue()


def test_a_block_that_is_a_bomb_is_one_line(tmp_path, little):
    path = tmp_path / "a.npz"
    path.write_bytes(signed({"about.npy": text({}), "x.npy": LARGE}))
    with pytest.raises(StoreError, match=f"would take .*{VARIABLE}") as told:
        kept.read(path)
    assert "\n" not in str(told.value)
    path.write_bytes(signed({"about.npy": text({}), "x.npy": header((10**15,))}))
    assert kept.read(path) is None


class Harm:
    """What leaves a mark where it is unpickled."""

    def __init__(self, mark: pathlib.Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple:
        return pathlib.Path.touch, (self.mark,)


@pytest.fixture
def mark(tmp_path) -> pathlib.Path:
    """Of harm that is done; control: it is, where somebody unpickles it."""
    pickle.loads(pickle.dumps(Harm(tmp_path / "control")))
    assert (tmp_path / "control").exists()
    return tmp_path / "mark"


def objects(mark: pathlib.Path) -> bytes:
    own = io.BytesIO()
    np.save(own, np.array([Harm(mark)], object))
    return own.getvalue()


def test_nothing_in_a_file_of_arrays_is_unpickled(tmp_path, mark):
    path = tmp_path / "my.npz"
    np.savez(path, inputs=np.ones((2, 1)), targets=np.array([Harm(mark)] * 2, object))
    with pytest.raises(ValueError, match="it has objects"):
        cfl.data.from_npz(path)
    path.write_bytes(signed({"about.npy": text({}), "x.npy": objects(mark)}))
    assert kept.read(path) is None
    path.write_bytes(signed({"about.npy": objects(mark)}))
    assert kept.read(path) is None
    path.write_bytes(pickle.dumps(Harm(mark)))
    with pytest.raises(ValueError, match="cannot read"):
        cfl.data.from_npz(path)
    assert not mark.exists()


@pytest.mark.long
@pytest.mark.parametrize(
    "about",
    [None, [], {}, {"layout": 1}, {"meaning": {"dims": 3}}, {"fields": []}],
    ids=str,
)
def test_a_block_that_says_nothing_is_computed_again(tmp_path, about):
    """Though its digest is right, and all else that it says of its place."""
    grid = plain_grid(num_trials=8)
    expected = sweep(grid, None, tmp_path / "s", joint=JOINT)
    file = next((tmp_path / "s").glob("cells/*/0.npz"))
    found = kept.read(file)
    assert found is not None
    if isinstance(about, dict) and about:
        about = found.about | about
        about.pop("trials")
    kept.write(file, found.arrays, about)
    assert sweep(grid, None, tmp_path / "s", joint=JOINT).identical(expected)


def test_a_block_without_its_outputs_is_computed_again(tmp_path):
    grid = plain_grid(num_trials=8)
    expected = sweep(grid, None, tmp_path / "s", joint=JOINT)
    file = next((tmp_path / "s").glob("cells/*/0.npz"))
    found = kept.read(file)
    assert found is not None
    for arrays in ({}, {"other": found.arrays["value"]}, {"value": np.ones((3, 3))}):
        kept.write(file, arrays, found.about)
        assert sweep(grid, None, tmp_path / "s", joint=JOINT).identical(expected)


# Against misuse: pickles of images


def pickled(value: Any, protocol: int = 2) -> bytes:
    return pickle.dumps(value, protocol)


def unpickled(content: bytes) -> Any:
    return images._ArraysOnly(io.BytesIO(content), encoding="bytes").load()


@pytest.mark.parametrize("protocol", [2, 4])
def test_arrays_come_as_they_are(protocol):
    batch = {
        b"data": np.arange(12, dtype=np.uint8).reshape(2, 6),
        b"labels": [1, 2],
        b"numbers": np.arange(3),
    }
    found = unpickled(pickled(batch, protocol))
    assert found[b"labels"] == [1, 2]
    for name in (b"data", b"numbers"):
        assert found[name].dtype == batch[name].dtype
        np.testing.assert_array_equal(found[name], batch[name])


class Asks:
    """A pickle that calls what it likes."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


_RECONSTRUCT = np.ones(1).__reduce__()[0]


@pytest.mark.parametrize(
    "asks",
    [
        Asks(np.ndarray, (2**34,)),
        Asks(_RECONSTRUCT, np.ndarray, (2**34,), b"b"),
        Asks(np.dtype, "O"),
        Asks(np.dtype, f"({2**34},)u1"),
        Asks(__import__("_codecs").encode, "x" * 9, "idna"),
        Asks(zlib.decompress, b""),
        Asks(eval, "1"),
    ],
    ids=lambda own: f"{own.call[0].__name__} {own.call[1]}"[:40],
)
def test_a_pickle_of_images_makes_nothing_else(asks):
    content = pickled(asks)
    before = peak()
    with pytest.raises(ValueError, match="a file asks"):
        unpickled(content)
    assert peak() - before < 8 * MOST


def test_a_pickle_of_images_does_no_harm(mark):
    with pytest.raises(ValueError, match="it was not imported"):
        unpickled(pickled({b"data": Harm(mark)}))
    assert not mark.exists()


# Against misuse: folders whose pickles are executed


def test_a_folder_of_jobs_is_its_owners_alone(tmp_path):
    own = private_folder(tmp_path / "out" / "workers")
    assert own.stat().st_mode & 0o777 == 0o700
    assert private_folder(own) == own  # Again.
    for mode in (0o720, 0o702, 0o777):
        own.chmod(mode)
        with pytest.raises(PermissionError, match="may be written by others"):
            private_folder(own)
    own.chmod(0o755)
    check_private(own)
    (tmp_path / "link").symlink_to(own)
    with pytest.raises(PermissionError, match="is no folder itself"):
        private_folder(tmp_path / "link")
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        private_folder(tmp_path / "file")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")
def test_a_folder_of_somebody_else_is_refused(tmp_path):
    own = private_folder(tmp_path / "workers")
    os.chown(own, 65534, 65534)
    with pytest.raises(PermissionError, match="belongs to somebody else") as told:
        private_folder(own)
    assert "\n" not in str(told.value)
