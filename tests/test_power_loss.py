"""A loss of power takes nothing that was reported as done.

The battery runs on a disk which forgets all that was not synced, see `power`:

    python -m pytest -m slow tests/test_power_loss.py
"""

import errno
import hashlib
import json
import os
import pathlib
import random
import signal
import time
from typing import Any

import jax
import numpy as np
import power
import pytest
import xarray
from engine_trial import (
    AXES,
    Trial,
    fork,
    insist,
    known,
    log,
    plain_grid,
    serve,
)

import cfljax as cfl
from cfljax import report
from cfljax.base.sealed import write_sealed
from cfljax.engine import Grid, Joint, StoreError, kept, sweep
from cfljax.engine.checkpoints import Checkpoint, Progress
from cfljax.engine.claims import Claims
from cfljax.engine.provenance import Journal, runs_of
from cfljax.engine.store import DONE, Block, Store

# Against failures: what is synced, in which order


@pytest.fixture
def told(monkeypatch) -> list[str]:
    """What the disk is told, as long as it keeps nothing by itself."""
    said: list[str] = []
    fsync, replace = os.fsync, os.replace

    def sync(handle: int) -> None:
        path = pathlib.Path(os.readlink(f"/proc/self/fd/{handle}"))
        said.append("file" if path.suffix == ".partial" else path.name)
        fsync(handle)

    def rename(old: Any, new: Any) -> None:
        said.append("rename")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", rename)
    return said


def test_content_goes_before_the_name_and_new_folders_behind_it(tmp_path, told):
    kept.write(tmp_path / "one" / "two" / "a.npz", {"x": [1.0]})
    order = ["file", "rename", "two", "one", tmp_path.name]
    assert told[: len(order)] == order
    assert len(told) <= len(order) + len(tmp_path.parents)
    # What is above is told once, by each process.
    told.clear()
    kept.write(tmp_path / "one" / "two" / "b.npz", {"x": [1.0]})
    assert told == ["file", "rename", "two"]


def test_a_folder_that_another_process_made_is_told_too(tmp_path, told):
    (tmp_path / "one").mkdir()
    kept.write(tmp_path / "one" / "a.npz", {"x": [1.0]})
    assert told[:4] == ["file", "rename", "one", tmp_path.name]


def test_a_folder_made_anew_is_told_anew(tmp_path, told):
    """Even if it has the number of the one that was deleted."""
    for _ in range(3):
        kept.write(tmp_path / "one" / "a.npz", {"x": [1.0]})
        assert told[:4] == ["file", "rename", "one", tmp_path.name]
        (tmp_path / "one" / "a.npz").unlink()
        (tmp_path / "one").rmdir()
        told.clear()


def test_outcomes_of_statements_are_told_and_pages_are_not(tmp_path, told):
    report.write_text(tmp_path / "one" / "a.json", "{}")
    assert told == ["rename"]
    told.clear()
    write_sealed(tmp_path / "two" / "a.json", {"a": 1})
    assert told[:4] == ["file", "rename", "two", tmp_path.name]


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP, errno.EBADF])
def test_a_disk_that_cannot_be_told_is_written_all_the_same(
    tmp_path, monkeypatch, number
):
    def refuse(handle: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuse)
    kept.write(tmp_path / "a.npz", {"x": [1.0]})
    assert kept.read(tmp_path / "a.npz") is not None


@pytest.mark.long
def test_a_disk_that_fails_is_one_line_and_nothing_is_done(tmp_path, monkeypatch):
    def fail(handle: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StoreError, match="Input/output error") as caught:
        sweep(cells(8), None, tmp_path / "s", joint=JOINT)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.rglob("*.npz"))
    monkeypatch.undo()
    found = sweep(cells(8), None, tmp_path / "s", joint=JOINT)
    assert found.attrs["open_blocks"] == 0


@pytest.mark.long
@pytest.mark.parametrize("left", [b"", b"\0" * 40, b'{"runs": [{"run": "ab'])
@pytest.mark.parametrize("what", ["provenance.json", "lock", "code"])
def test_what_lies_beside_the_blocks_repairs_itself(tmp_path, what, left):
    """Empty, of zeros or torn, as a disk that syncs nothing may leave it."""
    path = tmp_path / "s"
    expected = sweep(cells(8), None, path, joint=JOINT)
    file = next((path / "code").iterdir()) if what == "code" else path / what
    before = file.read_bytes()
    for block in path.glob("cells/*/0.npz"):
        block.unlink()
    file.write_bytes(left)
    assert sweep(cells(8), None, path, joint=JOINT).identical(expected)
    if what == "code":
        assert file.read_bytes() == before
    if what == "provenance.json":
        (run,) = runs_of(path)
        assert run["blocks"] == 6


@pytest.mark.parametrize("left", [b"", b"\0" * 40, b'{"num_trials": 3', b"[]"])
def test_settings_that_are_torn_are_told(tmp_path, caplog, left):
    report.write_csv(tmp_path / "table.csv", [{"noise": 0.1, "loss": 2.0}])
    assert "loss" in cfl.open_results(tmp_path) and not caplog.text  # Without any.
    (tmp_path / "config.json").write_bytes(left)
    assert "loss" in cfl.open_results(tmp_path)
    (told,) = caplog.records
    assert "config.json` is damaged" in told.getMessage()


def test_a_failure_is_appended_behind_a_torn_line(tmp_path):
    with Claims(tmp_path) as claims:
        journal = Journal(tmp_path, claims)
        failures = pathlib.Path(journal.failures)
        failures.write_bytes(b'{"time": "20')
        for number in range(2):
            try:
                raise ValueError("no")
            except ValueError as error:
                journal.record({"cell": number}, error)
    torn, *whole = failures.read_text().splitlines()
    assert torn == '{"time": "20' and len(whole) == 2
    assert [json.loads(line)["error"] for line in whole] == ["ValueError"] * 2


# Against failures: losses of power


def cells(num_trials: int) -> Grid:
    return plain_grid(axes=AXES, num_trials=num_trials)


def _draw(trials: Any, key: jax.Array, constants: Any) -> list[dict[str, Any]]:
    del constants
    time.sleep(float(os.environ.get("TRIAL_SECONDS", "0")))
    data = np.asarray(jax.random.key_data(key))
    shared = np.random.default_rng(data).random(3, np.float32)
    return [{"value": np.float32(trial.separation) * shared} for trial in trials]


JOINT = Joint(_draw, shares=lambda trial: trial.num_clients)
NUM_TRIALS, ROUNDS = 115, 150


def _name(trial: Trial) -> str:
    return f"{trial.separation}/{trial.num_clients}"


def _sweep(disk: pathlib.Path, shard: tuple[int, int]) -> None:
    """A worker that logs what counts as done, where power does not matter."""
    write = Store.write

    def logged(self: Store, block: Block, *arguments: Any, **options: Any) -> bool:
        is_own = write(self, block, *arguments, **options)
        log("done", _name(self.grid.cell(block[:-1]).trial), block[-1])
        return is_own

    Store.write = logged
    insist(cells(NUM_TRIALS), None, disk / "new" / "s", joint=JOINT, shard=shard)


def _long(disk: pathlib.Path | None) -> str:
    """A run that is saved after every round, and logged; what it ends with."""
    data, _ = cfl.data.mixed_linear(
        jax.random.key(7),
        num_clients=4,
        num_clusters=2,
        num_samples=8,
        num_features=5,
        separation=1.0,
        noise=0.1,
    )
    write = Checkpoint.write

    def logged(self: Checkpoint, done: Progress) -> None:
        write(self, done)
        log("saved", done.rounds)

    Checkpoint.write = logged
    algorithm = cfl.ifca(cfl.models.linear(5), num_clusters=2, step_size=0.05)
    places = {} if disk is None else {"checkpoint": disk / "run.npz", "every": 0.0}
    key = jax.random.key(3)
    try:
        state, trace = cfl.run(algorithm, key, data, num_rounds=ROUNDS, **places)
    finally:
        Checkpoint.write = write
    code = hashlib.sha256()
    for leaf in jax.tree.leaves((state, trace)):
        code.update(np.asarray(leaf).tobytes())
    return code.hexdigest()


def _lost_blocks(disk: pathlib.Path, lines: list[list[str]]) -> list[str]:
    """What was reported as done and is not there."""
    store = Store(disk / "new" / "s", cells(NUM_TRIALS))
    there = {
        (_name(store.grid.cell(index).trial), str(number))
        for *index, number in np.argwhere(store.states == DONE).tolist()
        for index in [tuple(index)]
    }
    done = [(words[2], words[3]) for words in lines if words[0] == "done"]
    return [f"{cell} {block}" for cell, block in done if (cell, block) not in there]


def _lost_rounds(disk: pathlib.Path, lines: list[list[str]]) -> list[str]:
    files = disk / "run.npz", disk / "run.npz.before"
    found = [own.about["rounds"] for own in map(kept.read, files) if own]
    saved = max([int(words[2]) for words in lines if words[0] == "saved"], default=0)
    return [f"round {saved}"] if max(found, default=0) < saved else []


def lose(folder: str, honoured: list[str], kind: str, losses: int) -> list[Any]:
    """Losses of power at random times of two workers' sweep, or of a run with
    checkpoints: how many there were, what was lost, and how the last workers ended.

    Where it is to be lost, on a disk that honours nothing, it stops at the first."""
    place = pathlib.Path(folder)
    mount, file = place / "disk", place / "log"
    mount.mkdir(parents=True)
    file.touch()
    os.environ |= {"TRIAL_LOG": str(file), "TRIAL_SECONDS": "0.004"}
    chance, seed = random.Random(losses), 1000 * losses
    lines = lambda: [line.split() for line in file.read_text().splitlines()]
    lost: list[str] = []
    count = 0

    def end(path: pathlib.Path) -> None:
        (place / "end").write_text(_long(path))

    with power.disk(mount, *honoured) as disk:
        starts: list[Any] = [lambda: end(disk)]
        if kind == "sweep":
            shards = ((1, 2), (2, 2))
            starts = [lambda own=own: _sweep(disk, own) for own in shards]
        total = ROUNDS if kind == "run" else 6 * (-(-NUM_TRIALS // 8))
        while True:
            workers = [fork(work) for work in starts]
            if count == losses:
                statuses = [os.waitpid(process, 0)[1] for process in workers]
                break
            target = len(lines()) + chance.randint(0, max(1, total // losses))
            while len(lines()) < target:
                time.sleep(0.0005)
                if all(_is_over(process) for process in workers):
                    break
            time.sleep(0.02 * chance.random())
            for process in workers:
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
            count += 1
            power.lose_power(disk, seed + count)
            find = _lost_blocks if kind == "sweep" else _lost_rounds
            lost += find(disk, lines())
            if lost:
                break
        if not lost and kind == "sweep":
            grid = cells(NUM_TRIALS)
            found = sweep(grid, None, disk / "new" / "s", joint=JOINT)
            (place / "end").write_text(digest(found))
    return [count, lost, [] if lost else statuses, len(lines())]


def _is_over(process: int) -> bool:
    """Whether a process has ended; it is waited for later."""
    found = os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    return found is not None


def digest(dataset: xarray.Dataset) -> str:
    return hashlib.sha256(dataset["value"].values.tobytes()).hexdigest()


@pytest.fixture
def can_lose_power() -> None:
    if not power.is_there():
        pytest.skip("needs /dev/fuse and its library: apt-get install fuse3 libfuse2")


BOTH = ["files", "folders"]


@pytest.mark.slow
@pytest.mark.parametrize("losses", [7, 8])
def test_a_sweep_loses_nothing_that_was_done(tmp_path, can_lose_power, losses):
    call = ("lose", str(tmp_path / "at"), BOTH, "sweep", losses)
    ((count, lost, statuses, lines),) = serve(__name__, call, env=known(os.environ))
    assert (count, lost, statuses) == (losses, [], [0, 0])
    assert lines >= 30  # Of 90 blocks; who was killed behind a write did not log it.
    expected = sweep(cells(NUM_TRIALS), None, tmp_path / "whole", joint=JOINT)
    assert (tmp_path / "at" / "end").read_text() == digest(expected)


@pytest.mark.slow
def test_a_run_with_checkpoints_loses_no_round_that_was_saved(
    tmp_path, monkeypatch, can_lose_power
):
    call = ("lose", str(tmp_path / "at"), BOTH, "run", 9)
    ((count, lost, statuses, lines),) = serve(__name__, call, env=known(os.environ))
    assert (count, lost, statuses) == (9, [], [0])
    assert lines >= ROUNDS
    monkeypatch.setenv("TRIAL_LOG", str(tmp_path / "log"))
    assert (tmp_path / "at" / "end").read_text() == _long(None)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sweep", "run"])
@pytest.mark.parametrize("honoured", [[], ["files"], ["folders"]])
def test_without_syncing_the_same_losses_take_something(
    tmp_path, can_lose_power, honoured, kind
):
    """Control: of the file alone, of the folders alone, and of neither."""
    call = ("lose", str(tmp_path / "at"), honoured, kind, 8)
    ((count, lost, _, _),) = serve(__name__, call, env=known(os.environ))
    assert lost and 1 <= count <= 8
