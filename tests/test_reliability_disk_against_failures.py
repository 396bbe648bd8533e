"""A sweep whose disk refuses loses nothing, and says so in one line."""

import contextlib
import errno
import os
import pathlib
import random
import shutil
import stat
import tempfile
from collections.abc import Iterator

import pytest
import xarray
import zarr.storage._local
from reliability_kinds import (
    KINDS,
    SIZES,
    chunks,
    contents,
    grid,
    outcomes,
)

from cfljax.engine import Joint, StoreError, sweep
from experiments.__main__ import main
from experiments.ifca import fig3


def filling(monkeypatch: pytest.MonkeyPatch, room: int) -> list[str]:
    """Let the disk fill up after some writes of chunks or descriptions."""
    puts: list[str] = []
    put = zarr.storage._local._put

    def refuse(path, *arguments, **options):
        puts.append(str(path))
        if len(puts) > room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return put(path, *arguments, **options)

    monkeypatch.setattr(zarr.storage._local, "_put", refuse)
    return puts


def check_full_disk(
    path: pathlib.Path, sweep_results: xarray.Dataset, room: int
) -> bool:
    """Whether the disk was full before the sweep ended; it resumes to the same."""
    with pytest.MonkeyPatch.context() as patch:
        puts = filling(patch, room)
        try:
            found = sweep(grid(), None, path, joint=KINDS)
        except StoreError as error:
            message = str(error)
            assert len(puts) > room
            assert "No space left on device" in message and "\n" not in message
            assert "run again to resume" in message
        else:
            assert len(puts) <= room and found.identical(sweep_results)
            return False
    assert sweep(grid(), None, path, joint=KINDS).identical(sweep_results)
    return True


def test_disk_may_be_full_at_any_time(tmp_path, sweep_results):
    chance = random.Random(7)
    for number, room in enumerate(chance.sample(range(40), 4)):
        assert check_full_disk(tmp_path / f"s{number}", sweep_results, room)


@pytest.mark.slow
def test_disk_may_be_full_at_every_write(tmp_path, sweep_results):
    room = 0
    while check_full_disk(tmp_path / f"s{room}", sweep_results, room):
        room += 1
    assert room > 40  # All writes of a sweep have been refused once.


def test_disk_that_fills_again_and_again_is_worn_down(tmp_path, sweep_results):
    """With room for some more writes each time: the sweep gets on, and ends."""
    chance, attempts = random.Random(3), 0
    while check_one_more(tmp_path / "s", chance.randrange(4, 9)):
        attempts += 1
    assert 3 < attempts < 20
    assert sweep(grid(), None, tmp_path / "s", joint=KINDS).identical(sweep_results)


def check_one_more(path: pathlib.Path, room: int) -> bool:
    with pytest.MonkeyPatch.context() as patch:
        filling(patch, room)
        try:
            sweep(grid(), None, path, joint=KINDS)
        except StoreError:
            return True
    return False


@pytest.mark.parametrize("suffix", [".partial", ".jsonl"])
def test_full_disk_for_what_lies_beside_the_store(
    tmp_path, monkeypatch, sweep_results, suffix
):
    """Provenance and failures: nothing of the results is lost."""
    original = pathlib.Path.open

    def refuse(self, mode="r", *arguments, **options):
        if self.suffix == suffix and mode != "r":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self))
        return original(self, mode, *arguments, **options)

    def broken(*arguments):
        raise RuntimeError("out of something")

    joint = KINDS if suffix == ".partial" else Joint(broken, KINDS.shares)
    with monkeypatch.context() as patch:
        patch.setattr(pathlib.Path, "open", refuse)
        with pytest.raises(StoreError, match="No space left on device") as caught:
            sweep(grid(), None, tmp_path / "s", joint=joint)
    assert "\n" not in str(caught.value)
    assert not [file for file in tmp_path.iterdir() if file.suffix == ".partial"]
    assert sweep(grid(), None, tmp_path / "s", joint=KINDS).identical(sweep_results)


@contextlib.contextmanager
def ordinary_user() -> Iterator[None]:
    """Inside, permissions of files bind, which they do not for root."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def locked(finished_sweep: pathlib.Path) -> Iterator[pathlib.Path]:
    """A folder of a store that all may read and none may write."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        shutil.copytree(finished_sweep, folder, dirs_exist_ok=True)
        yield folder
        _permit(folder, stat.S_IWUSR)


def _permit(folder: pathlib.Path, more: int) -> None:
    for entry in [folder, *folder.rglob("*")]:
        entry.chmod((0o555 if entry.is_dir() else 0o444) | more)


def test_finished_store_in_a_read_only_folder_is_read(locked, sweep_results):
    _permit(locked, 0)
    before = contents(locked)
    with ordinary_user():
        with pytest.raises(PermissionError):  # Control: the folder is.
            (locked / "s" / "done" / "c.0.0.0").unlink()
        found = sweep(grid(), None, locked / "s", joint=KINDS)
    assert found.identical(sweep_results) and contents(locked) == before


@pytest.mark.parametrize("lost", ["a block", "the store", "the lock too"])
def test_read_only_folder_is_one_line_and_nothing_is_changed(locked, lost):
    if lost == "a block":
        chunks(locked / "s", "done")[3].unlink()
    else:
        shutil.rmtree(locked / "s")
    if lost == "the lock too":
        (locked / "s.lock").unlink()
    _permit(locked, 0)
    before = contents(locked)
    with (
        ordinary_user(),
        pytest.raises(StoreError, match="Permission denied") as caught,
    ):
        sweep(grid(), None, locked / "s", joint=KINDS)
    assert "\n" not in str(caught.value) and contents(locked) == before


def test_command_on_a_read_only_folder_is_one_line(locked, monkeypatch, capsys):
    monkeypatch.setattr(fig3, "simulate_jointly", outcomes)
    shutil.rmtree(locked / "s")
    _permit(locked, 0)
    before = contents(locked)
    flags = ["--out", str(locked / "out"), "--shortcuts", *SIZES]
    with ordinary_user():
        status = main(["run", "ifca.fig3a", *flags])
    printed = capsys.readouterr()
    assert (status, printed.out) == (2, "")
    assert printed.err.startswith("error: ") and printed.err.count("\n") == 1
    assert "Permission denied" in printed.err and contents(locked) == before
