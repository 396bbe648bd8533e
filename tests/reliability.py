"""Sweeps that leave a log of what they do, and what finds a fault in their results."""

import itertools
import os
import pathlib
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np
import xarray
from engine_trial import Trial, draw, plain_grid
from jax.experimental import io_callback

from cfljax.engine import Grid, Joint, StoreError, sweep
from cfljax.engine.grid import BLOCK
from cfljax.engine.store import DONE, Store

AXES = {"separation": (0.5, 1.0, 2.0), "num_clients": (4, 6)}
PATIENCE = 120.0  # Seconds that a process waits for another before it gives up.


def cells(num_trials: int = 23) -> Grid:
    """Six cells in two groups that share their data."""
    return plain_grid(axes=AXES, num_trials=num_trials)


def name(trial: Trial) -> str:
    return f"{trial.separation}/{trial.num_clients}"


def log(*words: Any) -> None:
    """Append a line to the file that processes share."""
    with pathlib.Path(os.environ["TRIAL_LOG"]).open("a") as file:
        file.write(" ".join([words[0], str(os.getpid()), *map(str, words[1:])]) + "\n")


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
    """`draw`, traced, which leaves a line for every trial."""

    def note(separation: np.ndarray, data: np.ndarray) -> None:
        own = Trial(separation=float(separation), num_clients=trial.num_clients)
        _log_trials([own], np.asarray(data))

    io_callback(note, None, trial.separation, jax.random.key_data(key), ordered=False)
    return draw(trial, key, constants)


BESIDE = Joint(draw_beside, shares=lambda trial: trial.num_clients)
# Name of a way to compute -> arguments of a sweep, with a log and without.
LOGGED: dict[str, tuple[Any, dict[str, Any]]] = {
    "traced": (draw_logged, {}),
    "joint": (None, {"joint": BESIDE}),
}
SILENT: dict[str, tuple[Any, dict[str, Any]]] = LOGGED | {"traced": (draw, {})}


def work(
    path: pathlib.Path, way: str, num_trials: int, shard: tuple[int, int] | None
) -> None:
    """Sweep with a log, again for as long as another process computes something."""
    mark = Store.mark

    def logged(self: Store, cell: tuple[int, ...], block: int, status: int) -> None:
        mark(self, cell, block, status)
        if status == DONE:
            names = {one.index: name(one.trial) for one in self.grid.cells()}
            log("done", names[cell], block)

    Store.mark = logged
    simulate, options = LOGGED[way]
    while True:
        try:
            sweep(cells(num_trials), simulate, path, shard=shard, **options)
            return
        except StoreError as error:
            if "computed by another run" not in str(error):
                raise
            time.sleep(0.02)


def faults(
    path: pathlib.Path, lines: Iterable[str], expected: xarray.Dataset
) -> list[str]:
    """What is wrong with a store, and with the log of those who wrote it.

    Args:
      path: the store, of `cells`.
      lines: `trial PROCESS CELL;CELL KEY`, `done PROCESS CELL BLOCK` and `kill PROCESS`
        in their order.
      expected: of a sweep that nothing disturbed.
    """
    grid = cells(expected.sizes["trial"])
    store = Store(path, grid)
    values, damaged = store.read()
    found = []
    for cell in grid.cells():
        for block in range(grid.num_blocks):
            where = (*cell.index, grid.block(block))
            label = f"block {block} of {name(cell.trial)}"
            if store.done[(*cell.index, block)] != DONE or damaged[*cell.index, block]:
                found.append(f"{label} is lost")
            elif (
                values["value"][where].tobytes()
                != expected["value"].values[where].tobytes()
            ):
                found.append(f"{label} is wrong")
    return found + _doubled([line.split() for line in lines], grid)


def _doubled(entries: list[list[str]], grid: Grid) -> list[str]:
    """Blocks that were done twice, and trials run again though nobody was killed."""
    killed = {process for kind, process, *_ in entries if kind == "kill"}
    data = jax.random.key_data(
        jax.vmap(jax.random.fold_in, in_axes=(None, 0))(
            jax.random.key(grid.seed), np.arange(grid.num_trials)
        )
    )
    index = {row.tobytes().hex(): number for number, row in enumerate(np.asarray(data))}
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
) -> tuple[list[int], list[int]]:
    """Kill two workers at random times and start them again, until they finish.

    Args:
      start: starts worker 0 or 1, returns its process.
      progress: how much there is of what workers add to.
      kills: how many there should be.
      most: progress between two of them, at most.
      seed: of their times and victims.

    Returns:
      The processes that were killed, and the statuses of those that ended themselves.
    """
    chance = random.Random(seed)
    alive = {start(number): number for number in (0, 1)}
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
