"""Several runs on one store, and runs that are killed, lose and repeat nothing."""

import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np
import pytest
import xarray
from engine_trial import (
    AXES,
    BARE,
    JOINT,
    PATIENCE,
    contents,
    draw,
    draw_jointly,
    fork,
    insist,
    is_alike,
    known,
    log,
    num_done,
    plain_grid,
    serve,
    wait_for,
)
from jax.experimental import io_callback

from cfljax.engine import Grid, Joint, StoreError, claims, kept, stored, sweep
from cfljax.engine.claims import Claims
from cfljax.engine.provenance import Journal

GRID = plain_grid(axes=AXES)
KILLS = 6  # Of a sweep, by default.
# Processes compile as these tests do.
ALIKE = BARE | {"XLA_FLAGS": os.environ.get("XLA_FLAGS", "")}

# Against itself: several runs share the work

# One of two processes that share nothing, not even imports.
RUN = """
import pathlib, sys, warnings
warnings.simplefilter("ignore")
import test_engine_claims as play
from cfljax.engine import claims

folder, claims.OF_OPEN_FILE = pathlib.Path(sys.argv[1]), sys.argv[2] == "of open file"
play.insist(play.GRID, play.draw_logged, folder / "s")
"""


def logged(path: pathlib.Path) -> list[list[str]]:
    """Processes and the trials that they began."""
    return [line.split()[1:] for line in path.read_text().splitlines()]


def meet(trials: Iterable[tuple[Any, int]], key: Any) -> None:
    """Log some trials, and wait until another process has logged one as well."""
    for separation, num_clients in trials:
        log("trial", f"{separation},{num_clients},{key.tolist()}".replace(" ", ""))
    file = pathlib.Path(os.environ["TRIAL_LOG"])
    wait_for(lambda: len({process for process, _ in logged(file)}) == 2)


def draw_jointly_and_log(trials: Any, key: jax.Array, constants: Any) -> Any:
    names = [(trial.separation, trial.num_clients) for trial in trials]
    meet(names, jax.random.key_data(key))
    return draw_jointly(trials, key, constants)


def draw_logged(trial: Any, key: jax.Array, constants: Any) -> dict[str, jax.Array]:
    note = lambda separation, data: meet([(separation, trial.num_clients)], data)
    io_callback(note, None, trial.separation, jax.random.key_data(key), ordered=False)
    return draw(trial, key, constants)


def both(work: Callable[[], object]) -> list[int]:
    """How two processes end that do the same at the same time."""
    processes = [fork(work) for _ in "ab"]
    return [os.waitpid(process, 0)[1] for process in processes]


def race(folder: str) -> list[int]:
    """Two processes on one store."""
    place = pathlib.Path(folder)
    os.environ["TRIAL_LOG"] = str(place / "race.log")
    joint = Joint(draw_jointly_and_log, JOINT.shares)
    return both(lambda: insist(GRID, None, place / "race", joint=joint))


def kill(folder: str) -> list[Any]:
    """One process is killed while it holds a unit: what another was told meanwhile,
    the blocks that were done by then, and how the first and the last one ended."""
    path, mark, told = (pathlib.Path(folder, name) for name in ("kill", "mark", "told"))

    def stuck(trials: Any, key: jax.Array, constants: Any) -> Any:
        mark.touch()
        time.sleep(10 * PATIENCE)

    def refused() -> None:
        with pytest.raises(StoreError) as caught:
            sweep(GRID, None, path, joint=JOINT)
        told.write_text(str(caught.value))

    first = fork(lambda: sweep(GRID, None, path, joint=Joint(stuck, JOINT.shares)))
    wait_for(mark.exists)
    os.waitpid(fork(refused), 0)
    done = num_done(path, GRID)
    os.kill(first, signal.SIGKILL)
    killed = os.waitpid(first, 0)[1]
    last = os.waitpid(fork(lambda: sweep(GRID, None, path, joint=JOINT)), 0)[1]
    return [told.read_text(), done, killed, last]


def write_journal(folder: str) -> list[int]:
    """Two processes that add their runs at the same time."""
    path = pathlib.Path(folder, "journal")

    def runs() -> None:
        with Claims(path) as own:
            for number in range(15):
                journal = Journal(path, own)
                journal.start({"number": number})
                try:
                    raise ValueError("a" * 5000)
                except ValueError as error:
                    journal.record({"number": number}, error)
                journal.finish(seconds=0.0, blocks=1)

    return both(runs)


def many_blocks() -> Grid:
    axes = {"separation": tuple(np.linspace(0.1, 1.0, 5)), "noise": (1.0, 2.0)}
    return plain_grid(axes=axes, num_trials=115)


def wear_down(store: str, kills: int) -> list[Any]:
    """How often a sweep was killed, the blocks done by then, and how the last ended.

    It is killed when it has added some files, at a moment that the delay makes random
    within the writing of a block.
    """
    path, chance = pathlib.Path(store), random.Random(kills)
    count = lambda: sum(1 for _ in path.rglob("*"))
    start = lambda: fork(lambda: sweep(many_blocks(), draw, path))
    killed = 0
    for attempt in range(kills):
        process, before = start(), count()
        more = chance.randrange(250 // kills) if attempt else chance.randrange(8)
        while count() < before + more and os.waitpid(process, os.WNOHANG)[0] == 0:
            time.sleep(0.0005)
        time.sleep(chance.random() * 0.003)
        try:
            os.kill(process, signal.SIGKILL)
            killed += os.waitpid(process, 0)[1] == signal.SIGKILL
        except (ProcessLookupError, ChildProcessError):
            break
    done = num_done(path, many_blocks())
    return [killed, done, os.waitpid(start(), 0)[1]]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> xarray.Dataset:
    return sweep(GRID, draw, tmp_path_factory.mktemp("unbroken") / "s")


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[pathlib.Path, list]:
    """The folder and the returns of `race`, `kill`, `write_journal` and `wear_down`."""
    folder = tmp_path_factory.mktemp("played")
    calls: list[tuple] = [
        (name, str(folder)) for name in ("race", "kill", "write_journal")
    ]
    calls.append(("wear_down", str(folder / "worn"), KILLS))
    return folder, serve(__name__, *calls, env=ALIKE)


def check_shared_work(file: pathlib.Path) -> None:
    """Each trial of each cell was computed once, and not all by one process."""
    entries = logged(file)
    trials = Counter(trial for _, trial in entries)
    assert len(trials) == 6 * 23 and set(trials.values()) == {1}
    assert len({process for process, _ in entries}) == 2


@pytest.mark.long
def test_two_runs_share_the_work_and_repeat_none(played, unbroken):
    folder, (statuses, *_) = played
    assert statuses == [0, 0]
    check_shared_work(folder / "race.log")
    assert is_alike(sweep(GRID, None, folder / "race", joint=JOINT), unbroken)
    runs = json.loads((folder / "race" / "provenance.json").read_text())["runs"]
    assert sum(run["blocks"] for run in runs) == 18


@pytest.mark.long
def test_what_a_killed_run_held_is_computed_by_the_next(played, unbroken):
    folder, (_, (told, done, killed, last), *_) = played
    assert "3 blocks of" in told and "start again when it has ended" in told
    assert "\n" not in told
    assert (done, killed, last) == (15, signal.SIGKILL, 0)
    assert sweep(GRID, draw, folder / "kill").identical(unbroken)


@pytest.mark.long
def test_no_entry_of_the_journal_is_lost(played):
    folder, (_, _, statuses, _) = played
    assert statuses == [0, 0]
    runs = json.loads((folder / "journal" / "provenance.json").read_text())["runs"]
    assert Counter(run["number"] for run in runs) == dict.fromkeys(range(15), 2)
    assert all(run["finished"] for run in runs)
    failures = (folder / "journal" / "failures.jsonl").read_text().splitlines()
    assert len([json.loads(line) for line in failures]) == 30


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["of open file", "of process"])
def test_two_traced_runs_share_the_work(tmp_path, unbroken, kind):
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", RUN, str(tmp_path), kind],
            env=known(BARE | {"TRIAL_LOG": str(tmp_path / "log")}),
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in "ab"
    ]
    errors = [process.communicate(timeout=2 * PATIENCE)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], errors
    check_shared_work(tmp_path / "log")
    np.testing.assert_allclose(
        sweep(GRID, draw, tmp_path / "s")["value"], unbroken["value"], rtol=1e-6
    )


@pytest.mark.parametrize(("simulate", "way"), [(draw, {}), (None, {"joint": JOINT})])
def test_shards_make_up_the_whole(tmp_path, unbroken, simulate, way):
    path = tmp_path / "s"
    parts = [sweep(GRID, simulate, path, shard=(i, 4), **way) for i in (2, 4, 1, 3)]
    blocks = [part.attrs["open_blocks"] for part in parts]
    assert blocks == [12, 9, 3, 0]  # 6 units of 3 blocks: two, one, two, one.
    assert parts[-1].identical(unbroken)
    used = parts[0]["value"].notnull()
    np.testing.assert_array_equal(parts[0]["value"], unbroken["value"].where(used))
    assert int(parts[0]["trials"].sum()) == int(used.all("number").sum())
    assert sweep(GRID, draw, path).identical(unbroken)


def test_shard_beyond_the_work_has_nothing(tmp_path):
    part = sweep(GRID, draw, tmp_path / "s", shard=(7, 7))
    assert part.attrs["open_blocks"] == 18 and not part["trials"].any()


@pytest.mark.parametrize("shard", [(0, 2), (3, 2), (1, 0), (-1, 2)])
def test_shards_out_of_range_are_refused(tmp_path, shard):
    with pytest.raises(ValueError, match=r"`shard` must be \(i, n\) .* got"):
        sweep(GRID, draw, tmp_path / "s", shard=shard)
    assert not list(tmp_path.iterdir())


def test_claims_are_all_or_nothing(tmp_path):
    path = tmp_path / "s"
    with Claims(path) as one, Claims(path) as other:
        with one.claim(["a/0", "a/1", "a/2"]) as mine:
            assert mine
            with other.claim(["b/1", "a/1"]) as theirs:
                assert not theirs
            with other.claim(["b/0", "b/1", "b/2"]) as theirs:
                assert theirs  # What a refused claim had taken is free again.
            with other.alone():  # Another matter.
                pass
        with other.claim(["a/1", "b/1"]) as theirs:
            assert theirs
            with one.claim(["a/0", "a/2", "b/0"]) as mine:
                assert mine


@pytest.mark.parametrize("is_begun_anew", [False, True])
def test_claims_on_a_store_that_was_removed_are_none(tmp_path, is_begun_anew):
    path = tmp_path / "s"
    with Claims(path) as claims:
        claims.check()
        shutil.rmtree(path)
        if is_begun_anew:
            with Claims(path):
                pass
        before = contents(tmp_path)
        refused = pytest.raises(StoreError, match="was removed or replaced while it")
        with refused as caught:
            claims.check()
        assert "\n" not in str(caught.value)
        with refused, claims.alone():
            raise AssertionError("nothing is to be written")
        assert contents(tmp_path) == before


def test_store_that_is_removed_meanwhile_is_left_alone(tmp_path):
    """And one that is begun anew in its place: no block, failure or run is added."""
    path = tmp_path / "s"
    calls = []

    def meanwhile(trials: Any, key: jax.Array, constants: Any) -> Any:
        calls.append(key)
        if len(calls) == 12:
            shutil.rmtree(path)
            sweep(plain_grid(seed=1), draw, path)
        return draw_jointly(trials, key, constants)

    with pytest.raises(StoreError, match="was removed or replaced"):
        sweep(GRID, None, path, joint=Joint(meanwhile, JOINT.shares))
    assert len(calls) == 20  # The first block was written before.
    assert num_done(path, GRID) == 0
    (run,) = json.loads((path / "provenance.json").read_text())["runs"]
    assert {own.about["run"] for own in stored(path)} == {run["run"]}
    assert len(list(stored(path))) == run["blocks"] == 12


@pytest.mark.parametrize("moment", ["before", "within"])
@pytest.mark.parametrize("is_begun_anew", [False, True])
def test_store_that_is_removed_while_a_block_is_written_is_left_alone(
    tmp_path, monkeypatch, moment, is_begun_anew
):
    """Before its file is opened, or before that has its name, when all looks at the
    lock are over. What there is is another's, or nothing; it is told in one line."""
    path, write, replace = tmp_path / "s", kept.write, os.replace
    after = []

    def remove() -> None:
        monkeypatch.undo()
        shutil.rmtree(path)
        if is_begun_anew:
            sweep(GRID, None, path, joint=JOINT)
            after.append(contents(path))

    def writes(*arguments: Any) -> None:
        remove()
        write(*arguments)

    def replaces(source: Any, target: Any) -> None:
        if pathlib.Path(target).suffix == ".npz":
            remove()
        replace(source, target)

    if moment == "before":
        monkeypatch.setattr(kept, "write", writes)
    else:
        monkeypatch.setattr(os, "replace", replaces)
    with pytest.raises(StoreError, match=rf"^`{path}` was removed or replaced.*\.$"):
        sweep(GRID, None, path, joint=JOINT)
    assert contents(path) == after[0] if is_begun_anew else not path.exists()


@pytest.mark.parametrize("name", ["rewrite", "append"])
def test_files_of_all_runs_are_those_of_the_store_that_was_claimed(
    tmp_path, monkeypatch, name
):
    """Whatever happens behind the look at the lock."""
    path = tmp_path / "s"
    argument = (lambda before: b"mine") if name == "rewrite" else "mine"
    with Claims(path) as own:
        shutil.rmtree(path)
        with Claims(path):
            before = contents(path)
            monkeypatch.setattr(Claims, "check", lambda self: None)
            with pytest.raises(StoreError, match=rf"write results to `{path}/all`: No"):
                getattr(own, name)("all", argument)
            assert contents(path) == before


def test_claims_need_no_system_that_locks(tmp_path, monkeypatch):
    monkeypatch.setattr(claims, "fcntl", None)
    assert not np.isnan(sweep(GRID, draw, tmp_path / "s")["value"]).any()


# Against failures: a sweep that is killed again and again


def check_worn(path: pathlib.Path, kills: int, returned: list[Any]) -> None:
    """A sweep that was killed so often ends as one that was not."""
    killed, blocks, status = returned
    assert killed == kills and 0 < blocks < 120, "kills must fall in the middle"
    assert status == 0
    unbroken = sweep(many_blocks(), draw, path.with_name("whole"))
    assert sweep(many_blocks(), draw, path).identical(unbroken)
    assert not np.isnan(unbroken["value"]).any()


@pytest.mark.long
def test_killed_sweep_equals_the_unbroken_one(played):
    folder, (*_, returned) = played
    check_worn(folder / "worn", KILLS, returned)


@pytest.mark.slow
def test_sweep_killed_more_often_equals_the_unbroken_one(tmp_path):
    path = tmp_path / "worn"
    (returned,) = serve(__name__, ("wear_down", str(path), 30))
    check_worn(path, 30, returned)
