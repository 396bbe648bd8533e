"""Two workers that are killed at random must lose, spoil and repeat nothing."""

import dataclasses
import functools
import itertools
import json
import os
import pathlib
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np
import pytest
import xarray
from engine_trial import (
    AXES,
    Trial,
    block_file,
    contents,
    damage,
    draw,
    fork,
    insist,
    log,
    num_done,
    plain_grid,
    serve,
    wait_for,
)
from jax.experimental import io_callback

from cfljax.engine import Grid, Joint, StoreError, stored, sweep
from cfljax.engine.grid import BLOCK
from cfljax.engine.store import DONE, Block, Store
from experiments.__main__ import main
from experiments.ifca.fig3_trial import DIMS

# Sweeps that leave a log of what they do, and what finds a fault in their results


def cells(num_trials: int = 23) -> Grid:
    return plain_grid(axes=AXES, num_trials=num_trials)


def name(trial: Trial) -> str:
    return f"{trial.separation}/{trial.num_clients}"


def _log_trials(trials: Sequence[Trial], key: np.ndarray) -> None:
    log("trial", ";".join(name(trial) for trial in trials), key.tobytes().hex())
    time.sleep(float(os.environ["TRIAL_SECONDS"]))


def draw_beside(
    trials: Sequence[Trial], key: jax.Array, constants: Any
) -> list[dict[str, np.ndarray]]:
    """Numbers that depend on how many cells are computed together."""
    del constants
    data = np.asarray(jax.random.key_data(key))
    if "TRIAL_LOG" in os.environ:
        _log_trials(trials, data)
    shared = np.random.default_rng(data).random(3, np.float32) + len(trials)
    return [{"value": np.float32(trial.separation) * shared} for trial in trials]


def draw_logged(trial: Trial, key: jax.Array, constants: Any) -> dict[str, jax.Array]:
    def note(separation: np.ndarray, data: np.ndarray) -> None:
        own = Trial(separation=float(separation), num_clients=trial.num_clients)
        _log_trials([own], np.asarray(data))

    io_callback(note, None, trial.separation, jax.random.key_data(key), ordered=False)
    return draw(trial, key, constants)


BESIDE = Joint(draw_beside, shares=lambda trial: trial.num_clients)
# Name of a way to compute -> arguments of a sweep, with a log and without.
LOGGED: dict[str, Any] = {
    "traced": (draw_logged, {}),
    "joint": (None, {"joint": BESIDE}),
}
SILENT: dict[str, Any] = LOGGED | {"traced": (draw, {})}


def work(
    path: pathlib.Path | str, way: str, num_trials: int, shard: tuple[int, int] | None
) -> None:
    """Sweep with a log, into a folder or a bucket."""
    write = Store.write

    def logged(self: Store, block: Block, *arguments: Any, **options: Any) -> bool:
        if stands := write(self, block, *arguments, **options):
            log("done", name(self.grid.cell(block[:-1]).trial), block[-1])
        return stands

    Store.write = logged
    simulate, options = LOGGED[way]
    insist(cells(num_trials), simulate, path, shard=shard, **options)


def faults(
    path: pathlib.Path, lines: Iterable[str], expected: xarray.Dataset
) -> list[str]:
    """What is wrong with a store of `cells`, and with the log of those who wrote it:
    `trial PROCESS CELL;CELL KEY`, `done PROCESS CELL BLOCK` and `kill PROCESS`."""
    grid = cells(expected.sizes["trial"])
    store = Store(path, grid)
    right, found = expected["value"].values, []
    for cell in grid.cells():
        for block in range(grid.num_blocks):
            own = right[(*cell.index, grid.block(block))]
            label = f"block {block} of {name(cell.trial)}"
            if store.states[(*cell.index, block)] != DONE:
                found.append(f"{label} is lost")
                continue
            values = store.outputs((*cell.index, block))["value"]
            if values.tobytes() != own.tobytes():
                found.append(f"{label} is wrong")
    return found + _doubled([line.split() for line in lines], grid)


def _doubled(entries: list[list[str]], grid: Grid) -> list[str]:
    """Blocks that were done twice, and trials run again though nobody was killed."""
    killed = {process for kind, process, *_ in entries if kind == "kill"}
    fold_in = functools.partial(jax.random.fold_in, jax.random.key(grid.seed))
    data = np.asarray(
        jax.random.key_data(jax.vmap(fold_in)(np.arange(grid.num_trials)))
    )
    index = {row.tobytes().hex(): number for number, row in enumerate(data)}
    done: Counter[tuple[str, int]] = Counter()
    runs: dict[tuple[str, int], str] = {}
    ran: set[tuple[str, int]] = set()
    trials = [cell.trial for cell in grid.cells()]
    found = []
    for kind, process, *rest in entries:
        if kind == "done":
            done[rest[0], int(rest[1])] += 1
        elif kind == "trial":
            trial, names = index[rest[1]], rest[0].split(";")
            if all(done[own, trial // BLOCK] for own in names):
                found.append(f"trial {trial} of {rest[0]} was run when it was done")
            before = runs.get((rest[0], trial))
            if before is not None and before not in killed:
                found.append(f"trial {trial} of {rest[0]} was run twice")
            runs[rest[0], trial] = process
            ran.update((own, trial) for own in names)
    for own, trial in itertools.product(map(name, trials), range(grid.num_trials)):
        if (own, trial) not in ran:
            found.append(f"trial {trial} of {own} was never run")
    return found + [f"{own} was done twice" for own, count in done.items() if count > 1]


def batter(
    start: Callable[[int], int],
    progress: Callable[[], int],
    *,
    kills: int,
    most: int,
    seed: int,
    workers: int = 2,
) -> tuple[list[int], list[int]]:
    """Kill workers at random times and start them again, until they finish.

    `start` returns the process of worker 0, 1, ...; `most` is the progress between two
    kills. Returns the processes that were killed, and how those ended that were not.
    """
    chance = random.Random(seed)
    alive = {start(number): number for number in range(workers)}
    killed, statuses = [], []

    def reap() -> None:
        for process in list(alive):
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                statuses.append(status)
                del alive[process]

    while len(killed) < kills:
        is_early = chance.random() < 0.2  # While it starts.
        target = progress() + (0 if is_early else chance.randint(1, most))
        while alive and progress() < target:
            reap()
            time.sleep(0.0005)
        time.sleep(chance.random() * (0.3 if is_early else 0.004))
        reap()
        if not alive:
            break
        victim = chance.choice(list(alive))
        os.kill(victim, signal.SIGKILL)
        if os.waitpid(victim, 0)[1] == signal.SIGKILL:
            killed.append(victim)
        number = alive.pop(victim)
        alive[start(number)] = number
    return killed, statuses + [os.waitpid(process, 0)[1] for process in alive]


# Against failures: workers that are killed or stopped

SIZES = ("--num-clients", "8", "--num-samples", "12", "--num-features", "6")
SIZES += ("--num-restarts", "2", "--num-rounds", "5", "--step-sizes", "0.1", "0.01")
CELLS = ("--separation", "0.5", "1.0", "--noise", "0.0", "0.1", "--num-trials", "20")
SHARDS: dict[str, tuple] = {"shards": ((1, 2), (2, 2)), "whole": (None, None)}


def command(out: pathlib.Path, *flags: str) -> list[str]:
    """A panel of Figure 3 that takes seconds."""
    return ["run", "ifca.fig3a", "--out", str(out), *SIZES, *CELLS, *flags]


def play(
    folder: str, way: str, kind: str, kills: int, num_trials: int, seconds: str
) -> list[Any]:
    """How often two workers on `cells` were killed, and how those ended that were not;
    they log, and trials take some seconds more."""
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
    start, most = lambda number: fork(lambda: run(number)), max(1, files // (kills + 1))
    killed, statuses = batter(start, count, kills=kills, most=most, seed=kills)
    return [len(killed), statuses]


def pause(folder: str) -> list[Any]:
    """A worker is stopped while it holds a claim, and continued after another's end.

    Returns what the other was told, the blocks done by then, and how the first ended.
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
    done = num_done(place / "s", cells())
    os.kill(first, signal.SIGCONT)
    return [told.read_text(), done, os.waitpid(first, 0)[1]]


def suspend(folder: str) -> list[Any]:
    """A worker is stopped while it computes; its store is removed and begun anew with
    another seed by one that ends; then the first one is continued. How both ended."""
    place = pathlib.Path(folder)
    place.mkdir()
    path, file = place / "s", place / "log"
    os.environ |= {"TRIAL_LOG": str(file), "TRIAL_SECONDS": "0.02"}

    def refused() -> None:
        with pytest.raises(StoreError, match="was removed or replaced"):
            work(path, "joint", 23, None)

    first = fork(refused)
    wait_for(lambda: file.exists() and file.read_bytes().count(b"done") >= 3)
    os.kill(first, signal.SIGSTOP)
    os.waitpid(first, os.WUNTRACED)
    shutil.rmtree(path)
    os.environ["TRIAL_SECONDS"] = "0"
    anew = dataclasses.replace(cells(), seed=1)
    other = fork(lambda: sweep(anew, None, path, **SILENT["joint"][1]))
    ended = os.waitpid(other, 0)[1]
    before = contents(path)
    os.kill(first, signal.SIGCONT)
    return [ended, os.waitpid(first, 0)[1], contents(path) == before]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Callable[[str, int], xarray.Dataset]:
    folder = tmp_path_factory.mktemp("undisturbed")

    def run(way: str, num_trials: int) -> xarray.Dataset:
        (simulate, options), path = SILENT[way], folder / f"{way}{num_trials}"
        return sweep(cells(num_trials), simulate, path, **options)

    return run


def check(folder: pathlib.Path, expected: xarray.Dataset) -> None:
    lines = (folder / "log").read_text().splitlines()
    assert faults(folder / "s", lines, expected) == []
    runs = json.loads((folder / "s" / "provenance.json").read_text())["runs"]
    done = sum(run["blocks"] for run in runs if run["finished"])
    assert done <= 6 * cells(expected.sizes["trial"]).num_blocks


SMALL = (("traced", "shards", 3), ("joint", "whole", 3))


def small(folder: pathlib.Path, way: str, *rest: Any) -> tuple:
    """The call of `play`."""
    return ("play", str(folder / way), way, *rest, 23, "0.004")


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[pathlib.Path, list]:
    """What compiles nothing: workers that are killed, and one that is suspended."""
    folder = tmp_path_factory.mktemp("played")
    calls = [small(folder, "joint", "whole", 1), ("suspend", str(folder / "suspend"))]
    return folder, serve(__name__, *calls, env=os.environ)


@pytest.fixture(scope="module")
def played_slowly(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[pathlib.Path, list]:
    folder = tmp_path_factory.mktemp("played_slowly")
    calls = [*(small(folder, *one) for one in SMALL), ("pause", str(folder / "pause"))]
    return folder, serve(__name__, *calls, env=os.environ)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(SMALL)))
def test_killed_workers_lose_and_repeat_nothing(played_slowly, undisturbed, number):
    folder, returned = played_slowly
    way, _, kills = SMALL[number]
    killed, statuses = returned[number]
    assert killed == kills and statuses == [0, 0]
    check(folder / way, undisturbed(way, 23))


@pytest.mark.slow
def test_paused_worker_keeps_what_it_claimed(played_slowly, undisturbed):
    folder, (*_, (told, done, status)) = played_slowly
    assert "3 blocks of" in told and "computed by another run" in told
    assert (done, status) == (15, 0)
    check(folder / "pause", undisturbed("joint", 23))


@pytest.mark.long
def test_suspended_worker_changes_nothing_of_a_store_that_was_begun_anew(
    played, tmp_path
):
    folder, (*_, returned) = played
    assert returned == [0, 0, True]
    anew, path = dataclasses.replace(cells(), seed=1), folder / "suspend" / "s"
    found = sweep(anew, None, path, **SILENT["joint"][1])
    expected = sweep(anew, None, tmp_path / "whole", **SILENT["joint"][1])
    assert found.identical(expected) and num_done(path, cells()) == 0
    # Control: the first one's numbers are others.
    first = sweep(cells(), None, tmp_path / "first", **SILENT["joint"][1])
    assert not np.any(first["value"].values == expected["value"].values)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["traced", "joint"])
@pytest.mark.parametrize("kind", ["shards", "whole"])
def test_a_hundred_kills_lose_and_repeat_nothing(tmp_path, undisturbed, way, kind):
    """A hundred in the four cases together."""
    call = ("play", str(tmp_path / way), way, kind, 25, 115, "0.01")
    ((killed, statuses),) = serve(__name__, call, env=os.environ)
    assert killed == 25 and statuses == [0, 0]
    check(tmp_path / way, undisturbed(way, 115))


def blocks(out: pathlib.Path) -> dict[str, dict[str, bytes]]:
    """The arrays of a command's blocks, by cell and number."""
    return {
        f"{about['cell']}/{about['block']}": {
            name: array.tobytes() for name, array in arrays.items()
        }
        for arrays, about in stored(out / "store")
    }


@pytest.mark.slow
@pytest.mark.parametrize("flag", ["--shortcuts", "--no-shortcuts"])
def test_killed_commands_end_as_the_undisturbed_one(tmp_path, flag):
    whole, out = tmp_path / "whole", tmp_path / "killed" / "out"
    assert main(command(whole, flag)) == 0
    files = sum(1 for _ in (whole / "store").rglob("*"))
    (tmp_path / "killed").mkdir()
    call = ("play_command", str(tmp_path / "killed"), [flag], 3, files // 2)
    ((killed, statuses),) = serve(__name__, call, env=os.environ)
    assert killed == 3 and statuses == [0, 0]
    expected = blocks(whole)
    assert blocks(out) == expected and len(expected) == 8
    assert all(set(arrays) == set(DIMS) for arrays in expected.values())
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


@pytest.mark.long
@pytest.mark.parametrize("kind", ["missing", "flipped"])
def test_lost_block_is_found(sound, kind):
    path, lines, expected = sound
    damage(block_file(path, cells(), 1, 0, 2), kind)
    assert faults(path, lines, expected) == ["block 2 of 1.0/4 is lost"]


@pytest.mark.long
def test_wrong_block_is_found(sound):
    path, lines, expected = sound
    store, block = Store(path, cells()), (2, 1, 1)
    values = store.outputs(block)["value"].copy()
    values[3, 1] = np.nextafter(values[3, 1], np.float32(9))
    store.write(block, {"value": values}, store.about(block))
    assert faults(path, lines, expected) == ["block 1 of 2.0/6 is wrong"]


@pytest.mark.long
def test_doubled_block_is_found(sound):
    path, lines, expected = sound
    again = next(line for line in lines if line.startswith("done"))
    (found,) = faults(path, [*lines, again], expected)
    assert found.endswith("was done twice")
    begun = [line for line in lines if line.startswith("trial")]
    found = faults(path, [*lines, begun[0]], expected)
    assert any("was run when it was done" in one for one in found)
    killed = {line.split()[1] for line in lines if line.startswith("kill")}
    alive = next(line for line in begun if line.split()[1] not in killed)
    (found,) = faults(path, [alive, *lines], expected)
    assert found.endswith("was run twice")
