"""Two workers that are killed at random must lose, spoil and repeat nothing."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import xarray
from reliability import SILENT, batter, cells, faults, work
from test_engine_claims_against_itself import fork, wait_for

from cfljax.engine import StoreError, sweep
from cfljax.engine.store import Store
from experiments.__main__ import main
from experiments.ifca.fig3_trial import DIMS

HERE = pathlib.Path(__file__).resolve().parent
SIZES = ("--num-clients", "8", "--num-samples", "12", "--num-features", "6")
SIZES += ("--num-restarts", "2", "--num-rounds", "5", "--step-sizes", "0.1", "0.01")
CELLS = ("--separation", "0.5", "1.0", "--noise", "0.0", "0.1", "--num-trials", "20")
SHARDS: dict[str, tuple] = {"shards": ((1, 2), (2, 2)), "whole": (None, None)}

# Imports everything and starts nothing; forks the workers, which spares the imports.
SERVER = """
import json, pathlib, sys, warnings
warnings.simplefilter("ignore")
import test_reliability_against_kills as play

calls = json.loads(sys.argv[1])
print(json.dumps([getattr(play, name)(*rest) for name, *rest in calls]))
"""


def serve(*calls: tuple, seconds: float = 600.0) -> list[Any]:
    """What functions of this file return in a process that has not started JAX."""
    done = subprocess.run(
        [sys.executable, "-c", SERVER, json.dumps(calls)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": f"{HERE}:{HERE.parent}"},
        timeout=seconds,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return json.loads(done.stdout.splitlines()[-1])  # After what commands said.


def command(out: pathlib.Path, *flags: str) -> list[str]:
    """A panel of Figure 3 that takes seconds."""
    return ["run", "ifca.fig3a", "--out", str(out), *SIZES, *CELLS, *flags]


def play(
    folder: str, way: str, kind: str, kills: int, num_trials: int, seconds: str
) -> list[Any]:
    """Two workers on `cells`, with a log; trials take some seconds more.

    Returns:
      The number of kills, and the statuses of those that ended by themselves.
    """
    place = pathlib.Path(folder)
    place.mkdir()
    file = place / "log"
    file.touch()
    os.environ |= {"TRIAL_LOG": str(file), "TRIAL_SECONDS": seconds}
    lines = lambda: file.read_bytes().count(b"\n")
    start = lambda i: fork(lambda: work(place / "s", way, num_trials, SHARDS[kind][i]))
    trials = num_trials * (6 if way == "traced" else 2)
    most = max(1, trials // (2 * kills))
    killed, statuses = batter(start, lines, kills=kills, most=most, seed=kills)
    with file.open("a") as log_file:
        log_file.writelines(f"kill {process}\n" for process in killed)
    return [len(killed), statuses]


def play_command(folder: str, flags: list[str], kills: int, files: int) -> list[Any]:
    """Two workers of an experiment's command, as `play`; `files` are those it makes."""
    import jax

    # Inherited by the workers: what one compiled the next one finds.
    jax.config.update("jax_compilation_cache_dir", str(pathlib.Path(folder) / "cache"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    out = pathlib.Path(folder) / "out"

    def run(number: int) -> None:
        assert main(command(out, *flags, "--shard", f"{number + 1}/2")) == 0

    count = lambda: sum(1 for _ in out.rglob("*"))
    killed, statuses = batter(
        lambda number: fork(lambda: run(number)),
        count,
        kills=kills,
        most=max(1, files // (kills + 1)),
        seed=kills,
    )
    return [len(killed), statuses]


def pause(folder: str) -> list[Any]:
    """A worker is stopped while it holds a claim, and continued after another's end.

    Returns:
      What the other was told, the blocks that were done by then, and the status of the
      first.
    """
    place = pathlib.Path(folder)
    place.mkdir()
    file, told = place / "log", place / "told"
    os.environ |= {"TRIAL_LOG": str(file), "TRIAL_SECONDS": "0.02"}

    def other() -> None:
        with pytest.raises(StoreError) as caught:
            sweep(cells(), None, place / "s", **SILENT["joint"][1])
        told.write_text(str(caught.value))

    first = fork(lambda: work(place / "s", "joint", 23, None))
    wait_for(lambda: file.exists() and file.read_bytes().count(b"trial") >= 3)
    os.kill(first, signal.SIGSTOP)
    os.waitpid(first, os.WUNTRACED)
    os.environ["TRIAL_SECONDS"] = "0"
    assert os.waitpid(fork(other), 0)[1] == 0
    done = len(list((place / "s" / "done").glob("c.*")))
    os.kill(first, signal.SIGCONT)
    return [told.read_text(), done, os.waitpid(first, 0)[1]]


@pytest.fixture(scope="module")
def undisturbed(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str, int], xarray.Dataset]:
    folder = tmp_path_factory.mktemp("undisturbed")

    def run(way: str, num_trials: int) -> xarray.Dataset:
        simulate, options = SILENT[way]
        return sweep(
            cells(num_trials), simulate, folder / f"{way}{num_trials}", **options
        )

    return run


def check(folder: pathlib.Path, expected: xarray.Dataset) -> None:
    lines = (folder / "log").read_text().splitlines()
    assert faults(folder / "s", lines, expected) == []
    runs = json.loads((folder / "s.provenance.json").read_text())["runs"]
    done = sum(run["blocks"] for run in runs if run["finished"])
    assert done <= 6 * cells(expected.sizes["trial"]).num_blocks


SMALL = (("traced", "shards", 3), ("joint", "whole", 3))


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[pathlib.Path, list]:
    folder = tmp_path_factory.mktemp("played")
    calls = [
        ("play", str(folder / way), way, *rest, 23, "0.004") for way, *rest in SMALL
    ]
    return folder, serve(*calls, ("pause", str(folder / "pause")))


@pytest.mark.parametrize("number", range(len(SMALL)))
def test_killed_workers_lose_and_repeat_nothing(played, undisturbed, number):
    folder, returned = played
    way, _, kills = SMALL[number]
    killed, statuses = returned[number]
    assert killed == kills and statuses == [0, 0]
    check(folder / way, undisturbed(way, 23))


def test_paused_worker_keeps_what_it_claimed(played, undisturbed):
    folder, (*_, (told, done, status)) = played
    assert "3 blocks of" in told and "computed by another run" in told
    assert (done, status) == (15, 0)
    check(folder / "pause", undisturbed("joint", 23))


@pytest.mark.slow
@pytest.mark.parametrize("way", ["traced", "joint"])
@pytest.mark.parametrize("kind", ["shards", "whole"])
def test_a_hundred_kills_lose_and_repeat_nothing(tmp_path, undisturbed, way, kind):
    """A hundred in the four cases together."""
    call = ("play", str(tmp_path / way), way, kind, 25, 115, "0.01")
    ((killed, statuses),) = serve(call)
    assert killed == 25 and statuses == [0, 0]
    check(tmp_path / way, undisturbed(way, 115))


def blocks(out: pathlib.Path) -> dict[str, bytes]:
    """The chunks of a command's store, but for the seconds that they took."""
    files = (out / "results.zarr").rglob("c.*")
    return {
        f"{file.parent.name}/{file.name}": file.read_bytes()
        for file in files
        if file.parent.name != "seconds"
    }


@pytest.mark.slow
@pytest.mark.parametrize("flag", ["--shortcuts", "--no-shortcuts"])
def test_killed_commands_end_as_the_undisturbed_one(tmp_path, flag):
    whole, out = tmp_path / "whole", tmp_path / "killed" / "out"
    assert main(command(whole, flag)) == 0
    files = sum(1 for _ in whole.rglob("*"))
    (tmp_path / "killed").mkdir()
    call = ("play_command", str(tmp_path / "killed"), [flag], 6, files)
    ((killed, statuses),) = serve(call)
    assert killed == 6 and statuses == [0, 0]
    expected = blocks(whole)
    assert blocks(out) == expected and len(expected) == 8 * (len(DIMS) + 1)
    assert main(command(out, flag)) == 0
    assert (out / "table.csv").read_bytes() == (whole / "table.csv").read_bytes()


@pytest.fixture
def sound(played, undisturbed, tmp_path) -> tuple[pathlib.Path, list[str], Any]:
    """A copy of what the killed workers left, which is without fault."""
    folder, _ = played
    shutil.copytree(folder / "joint", tmp_path, dirs_exist_ok=True)
    lines = (tmp_path / "log").read_text().splitlines()
    expected = undisturbed("joint", 23)
    assert faults(tmp_path / "s", lines, expected) == []
    return tmp_path / "s", lines, expected


@pytest.mark.parametrize("kind", ["done", "value"])
def test_lost_block_is_found(sound, kind):
    path, lines, expected = sound
    (path / kind / ("c.1.0.2" if kind == "done" else "c.1.0.2.0")).unlink()
    assert faults(path, lines, expected) == ["block 2 of 1.0/4 is lost"]


def test_wrong_block_is_found(sound):
    path, lines, expected = sound
    store = Store(path, cells())
    values = store.block((2, 1), 1)["value"]
    values[3, 1] = np.nextafter(values[3, 1], np.float32(9))
    store.write((2, 1), 1, {"value": values}, 0.0)
    assert faults(path, lines, expected) == ["block 1 of 2.0/6 is wrong"]


def test_doubled_block_is_found(sound):
    path, lines, expected = sound
    again = next(line for line in lines if line.startswith("done"))
    (found,) = faults(path, [*lines, again], expected)
    assert found.endswith("was done twice")
    trial = next(line for line in lines if line.startswith("trial"))
    found = faults(path, [*lines, trial], expected)
    assert any("was run when it was done" in one for one in found)
    killed = {line.split()[1] for line in lines if line.startswith("kill")}
    alive = next(
        line
        for line in lines
        if line.startswith("trial") and line.split()[1] not in killed
    )
    (found,) = faults(path, [alive, *lines], expected)
    assert found.endswith("was run twice")
