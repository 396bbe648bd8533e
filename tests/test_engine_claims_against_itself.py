"""Several runs on one store must share its work, and lose or repeat none of it."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
import xarray
from engine_trial import JOINT, draw, draw_jointly, plain_grid
from jax.experimental import io_callback

from cfljax.engine import Joint, StoreError, claims, sweep
from cfljax.engine.claims import Claims, Shared
from cfljax.engine.provenance import Journal

GRID = plain_grid(axes={"separation": (0.5, 1.0, 2.0), "num_clients": (4, 6)})
HERE = pathlib.Path(__file__).parent
PATIENCE = 120.0  # Seconds that a process waits for another before it gives up.

# Imports everything and starts nothing; forks the processes, which spares the imports.
FORKS = """
import json, pathlib, sys, warnings
warnings.simplefilter("ignore")
import test_engine_claims_against_itself as play

folder = pathlib.Path(sys.argv[1])
print(json.dumps([play.race(folder), play.kill(folder), play.write_journal(folder)]))
"""
# One of two processes that share nothing, not even imports.
RUN = """
import pathlib, sys, warnings
warnings.simplefilter("ignore")
import test_engine_claims_against_itself as play
from cfljax.engine import claims

folder, claims.OF_OPEN_FILE = pathlib.Path(sys.argv[1]), sys.argv[2] == "of open file"
play.insist(folder / "s", play.log_traced)
"""


def wait_for(is_true: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_true():
        if time.monotonic() > deadline:
            raise TimeoutError("the other process did not come")
        time.sleep(0.002)


def log(line: str) -> None:
    """Append a line to a file that processes share."""
    with pathlib.Path(os.environ["TRIAL_LOG"]).open("a") as file:
        file.write(f"{os.getpid()} {line}\n")


def lines(path: pathlib.Path) -> list[list[str]]:
    return [line.split() for line in path.read_text().splitlines()]


def meet_and_log(trials: Any, key: jax.Array, constants: Any) -> Any:
    """`draw_jointly`, when another process holds a unit as well."""
    for trial in trials:
        name = f"{trial.separation},{trial.num_clients}"
        log(f"{name},{jax.random.key_data(key).tolist()}".replace(" ", ""))
    wait_for(lambda: len({process for process, _ in lines(log_file())}) == 2)
    return draw_jointly(trials, key, constants)


def log_file() -> pathlib.Path:
    return pathlib.Path(os.environ["TRIAL_LOG"])


def log_traced(trial: Any, key: jax.Array, constants: Any) -> dict[str, jax.Array]:
    def note(value, key):
        log(f"{value},{trial.num_clients},{key.tolist()}".replace(" ", ""))
        wait_for(lambda: len({process for process, _ in lines(log_file())}) == 2)

    io_callback(note, None, trial.separation, jax.random.key_data(key), ordered=False)
    return draw(trial, key, constants)


def insist(path: pathlib.Path, simulate: Any, **options: Any) -> None:
    """Sweep, again for as long as another process computes something."""
    while True:
        try:
            sweep(GRID, simulate, path, progress=False, **options)
            return
        except StoreError as error:
            if "computed by another run" not in str(error):
                raise
            time.sleep(0.02)


def fork(work: Callable[[], object]) -> int:
    process = os.fork()
    if process == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return process


def race(folder: pathlib.Path) -> list[int]:
    """Two processes on one store; returns how they ended."""
    os.environ["TRIAL_LOG"] = str(folder / "race.log")
    joint = Joint(meet_and_log, JOINT.shares)
    processes = [fork(lambda: insist(folder / "race", None, joint=joint)) for _ in "ab"]
    return [os.waitpid(process, 0)[1] for process in processes]


def kill(folder: pathlib.Path) -> list[Any]:
    """One process is killed while it holds a unit.

    Returns what another was told meanwhile, the blocks that were done by then, and how
    the last one ended.
    """
    path, mark, told = folder / "kill", folder / "mark", folder / "told"

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
    done = len(list((path / "done").glob("c.*")))
    os.kill(first, signal.SIGKILL)
    killed = os.waitpid(first, 0)[1]
    last = os.waitpid(fork(lambda: sweep(GRID, None, path, joint=JOINT)), 0)[1]
    return [told.read_text(), done, killed, last]


def write_journal(folder: pathlib.Path) -> list[int]:
    """Two processes that add their runs at the same time."""

    def runs() -> None:
        with Claims(folder / "journal", (1,)) as own:
            for number in range(15):
                journal = Journal(folder / "journal", own, is_new=False)
                journal.start({"number": number})
                try:
                    raise ValueError("a" * 5000)
                except ValueError as error:
                    journal.record({"number": number}, error)
                journal.finish(seconds=0.0, blocks=1)

    processes = [fork(runs) for _ in "ab"]
    return [os.waitpid(process, 0)[1] for process in processes]


def environment(log: pathlib.Path) -> dict[str, str]:
    paths = {"PYTHONPATH": f"{HERE}:{HERE.parent}", "PATH": "/usr/bin:/bin"}
    return {**paths, "TRIAL_LOG": str(log)}


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> xarray.Dataset:
    return sweep(GRID, draw, tmp_path_factory.mktemp("unbroken") / "s")


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[pathlib.Path, list]:
    """The folder and the returns of `race`, `kill` and `write_journal`."""
    folder = tmp_path_factory.mktemp("played")
    done = subprocess.run(
        [sys.executable, "-c", FORKS, str(folder)],
        capture_output=True,
        text=True,
        env=environment(folder / "log"),
        timeout=3 * PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return folder, json.loads(done.stdout)


def check_shared_work(log: pathlib.Path) -> None:
    """Each trial of each cell was computed once, and not all by one process."""
    entries = lines(log)
    trials = Counter(trial for _, trial in entries)
    assert len(trials) == 6 * 23 and set(trials.values()) == {1}
    assert len({process for process, _ in entries}) == 2


def test_two_runs_share_the_work_and_repeat_none(played, unbroken):
    folder, (statuses, *_) = played
    assert statuses == [0, 0]
    check_shared_work(folder / "race.log")
    assert sweep(GRID, None, folder / "race", joint=JOINT).identical(unbroken)
    runs = json.loads((folder / "race.provenance.json").read_text())["runs"]
    assert sum(run["blocks"] for run in runs) == 18


def test_what_a_killed_run_held_is_computed_by_the_next(played, unbroken):
    folder, (_, (told, done, killed, last), _) = played
    assert "3 blocks of" in told and "wait for it and start again" in told
    assert "\n" not in told
    assert (done, killed, last) == (15, signal.SIGKILL, 0)
    assert sweep(GRID, draw, folder / "kill").identical(unbroken)


def test_no_entry_of_the_journal_is_lost(played):
    folder, (*_, statuses) = played
    assert statuses == [0, 0]
    runs = json.loads((folder / "journal.provenance.json").read_text())["runs"]
    assert Counter(run["number"] for run in runs) == dict.fromkeys(range(15), 2)
    assert all(run["finished"] for run in runs)
    failures = (folder / "journal.failures.jsonl").read_text().splitlines()
    assert len([json.loads(line) for line in failures]) == 30


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["of open file", "of process"])
def test_two_traced_runs_share_the_work(tmp_path, unbroken, kind):
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", RUN, str(tmp_path), kind],
            env=environment(tmp_path / "log"),
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
    path, parts = tmp_path / "s", []
    for i in (2, 4, 1, 3):
        parts.append(sweep(GRID, simulate, path, shard=(i, 4), **way))
    blocks = [part.attrs["open_blocks"] for part in parts]
    assert blocks == [12, 9, 3, 0]  # 6 units of 3 blocks: two, one, two, one.
    assert parts[-1].identical(unbroken)
    used = parts[0]["value"].notnull()
    assert parts[0]["value"].identical(unbroken["value"].where(used))
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
    path, shape = tmp_path / "s", (2, 3)
    row, column = [(0, 0), (0, 1), (0, 2)], [(0, 1), (1, 1)]
    with Claims(path, shape) as one, Claims(path, shape) as other:
        with one.claim(row) as mine:
            assert mine
            with other.claim(column) as theirs:
                assert not theirs
            with other.claim([(1, 0), (1, 1), (1, 2)]) as theirs:
                assert theirs  # What a refused claim had taken is free again.
            with other.alone(Shared.STORE):  # Another matter.
                pass
        with other.claim(column) as theirs:
            assert theirs
            with one.claim([(0, 0), (0, 2), (1, 0)]) as mine:
                assert mine


def test_claims_need_no_system_that_locks(tmp_path, monkeypatch):
    monkeypatch.setattr(claims, "fcntl", None)
    assert not np.isnan(sweep(GRID, draw, tmp_path / "s")["value"]).any()
