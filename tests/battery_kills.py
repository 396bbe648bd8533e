"""Processes that are killed, and those that are stopped and go on too late.

Sweeps, trials of neural networks that go on round by round, a campaign of the ledger,
and reports: by one to four workers, at random times.
"""

import contextlib
import dataclasses
import functools
import importlib
import json
import os
import pathlib
import random
import shutil
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import test_theory_report
import toy_theory
from engine_trial import Trial, contents, fork, insist, log, plain_grid, wait_for
from tally import Batch, Part, Tally, cut, in_batches
from test_ledger import clove_outputs
from test_reliability_kills import SILENT, batter, cells, faults, work
from toy_experiments import digits
from trusted_files import toy_registry

import cfljax as cfl
from cfljax.engine import StoreError, sources, sweep, upkeep
from cfljax.engine.checkpoints import Checkpoint, Progress
from cfljax.engine.claims import Claims
from cfljax.engine.provenance import commit, runs_of
from cfljax.engine.store import Block, Store
from cfljax.statements.site import records
from experiments import jobs
from experiments.clove.study import grids
from experiments.clove.tables import load
from experiments.ledger.write import write as write_ledger
from experiments.options import Options

Lines = Sequence[list[str]]


class Work(NamedTuple):
    """What is done by workers that are killed.

    do: as worker number i of n, in a folder; logs what it does.
    faults: what is wrong in the end with the folder, and with the log.
    lines: of the log, if nobody is killed.
    forget: takes away what the work relies on, as a control.
    """

    do: Callable[[pathlib.Path, int, int], object]
    faults: Callable[[pathlib.Path, Lines], list[str]]
    lines: int
    forget: Callable[[pytest.MonkeyPatch], object]


def warm() -> None:
    """What all workers would look up, each by itself."""
    for function, _ in SILENT.values():
        if function is not None:
            sources._modules(function.__module__)
    sources._modules(__name__)
    commit()


def _logged_store() -> None:
    """Blocks that are done are logged."""
    write = Store.write

    def logged(self: Store, block: Block, *arguments: Any, **options: Any) -> bool:
        is_own = write(self, block, *arguments, **options)
        log("done", self.key(block))
        return is_own

    Store.write = logged


def _done_twice(lines: Lines) -> list[str]:
    done = [line[2] for line in lines if line[0] == "done"]
    return [f"{own} was done twice" for own in set(done) if done.count(own) > 1]


# Sweeps

TRIALS = 115


def _sweep(way: str, kind: str, folder: pathlib.Path, number: int, of: int) -> None:
    shard = (number + 1, of) if kind == "shards" else None
    work(folder / "s", way, TRIALS, shard)


def _faults_of_sweep(way: str, folder: pathlib.Path, lines: Lines) -> list[str]:
    simulate, options = SILENT[way]
    with tempfile.TemporaryDirectory() as place:
        expected = sweep(cells(TRIALS), simulate, pathlib.Path(place) / "s", **options)
    return faults(folder / "s", [" ".join(line) for line in lines], expected)


@contextlib.contextmanager
def _all_mine(self: Claims, names: Sequence[str]) -> Iterator[bool]:
    """A claim that asks nobody."""
    del self, names
    yield True


def _forget_claims(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Claims, "claim", _all_mine)


def _sweeps(way: str, kind: str) -> Work:
    return Work(
        functools.partial(_sweep, way, kind),
        functools.partial(_faults_of_sweep, way),
        TRIALS * (6 if way == "traced" else 2),
        _forget_claims,
    )


# Neural networks, whose state is saved after every round

ROUNDS = 12
NEURAL = plain_grid(
    axes={"separation": (0.5, 1.0, 2.0), "num_clients": (4, 6)},
    num_trials=3,
    dims={"value": ("weight",)},
)


def train(trial: Trial, key: jax.Array, constants: Any) -> dict[str, Any]:
    """Federated averaging of a small network for classes."""
    del constants
    inputs = trial.separation * jax.random.normal(key, (trial.num_clients, 8, 5))
    mask = jnp.ones(inputs.shape[:2], bool)
    data = cfl.ClientData(inputs, jnp.argmax(inputs[..., :3], axis=-1), mask)
    task = cfl.models.mlp((5,), hidden=(4,), num_classes=3)
    algorithm = cfl.fedavg(task, step_size=0.1)
    state, _ = cfl.run(algorithm, key, data, num_rounds=ROUNDS, observe=None)
    leaves = [np.asarray(leaf).ravel() for leaf in jax.tree.leaves(state)]
    return {"value": np.concatenate([own for own in leaves if own.dtype == np.float32])}


def _train(folder: pathlib.Path, number: int, of: int) -> None:
    del number, of
    write = Checkpoint.write

    def saved(self: Checkpoint, done: Progress) -> None:
        write(self, done)
        log("saved", self.path.stem, done.rounds)

    Checkpoint.write = saved
    checkpoints = importlib.import_module("cfljax.engine.checkpoints")
    ways = importlib.import_module("cfljax.engine.ways")
    checkpoints.__dict__["_SEGMENT"] = 0.0
    often = functools.partial(checkpoints.checkpoints, every=0.0)
    ways.__dict__["checkpoints"] = often
    _logged_store()
    insist(NEURAL, train, folder / "s", by_rounds=True)


def _faults_of_training(folder: pathlib.Path, lines: Lines) -> list[str]:
    """Numbers, blocks and rounds: those that were saved are not played again."""
    with tempfile.TemporaryDirectory() as place:
        options: dict[str, Any] = {"by_rounds": True, "progress": False}
        expected = sweep(NEURAL, train, pathlib.Path(place) / "s", **options)
        found = sweep(NEURAL, train, folder / "s", **options)
    wrong = [] if found.identical(expected) else ["other numbers"]
    last: dict[str, int] = {}
    for line in lines:
        if line[0] == "saved":
            state, rounds = line[2], int(line[3])
            if rounds <= last.get(state, 0):
                wrong.append(f"round {rounds} of {state} was played again")
            last[state] = rounds
    return wrong + _done_twice(lines)


def _forget_states(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Checkpoint, "read", lambda self: None)


TRAINING = Work(_train, _faults_of_training, 18 * ROUNDS + 6, _forget_states)


# A campaign of the ledger: the jobs of a table, shared out, and rows of their store


def _outputs(trial: Any, key: jax.Array, constants: Any) -> dict[str, Any]:
    """What a seed leaves, made up from its key."""
    del constants
    words = np.asarray(jax.random.key_data(key)).tolist()
    number = int(np.random.default_rng([*words, trial.repetition]).integers(5000, 9000))
    log("trial", trial.method, trial.repetition)
    time.sleep(float(os.environ["TRIAL_SECONDS"]))
    found = clove_outputs(trial, number / 100)
    found["used_models"] = found["rand_index"]
    return {name: np.asarray(own, np.float32) for name, own in found.items()}


def _campaign(folder: pathlib.Path, number: int, of: int) -> None:
    """A worker's share of all jobs, again for as long as others compute something."""
    _logged_store()
    config = dataclasses.replace(
        load("clove.table1").preset("paper"),
        datasets=("mnist",),
        partitions=("label_skew_1", "label_skew_2"),
        num_rounds=10,
    )
    asked = [jobs.Job(grid, _outputs) for grid in grids(config, digits("mnist"))]
    options = Options(
        out=folder / "out",
        store=folder / "s",
        shard=(number + 1, of),
        progress=False,
    )
    jobs.share("clove.table1", options, asked)


def _faults_of_campaign(folder: pathlib.Path, lines: Lines) -> list[str]:
    """The ledger is that of a campaign that nobody disturbed."""
    with tempfile.TemporaryDirectory() as place:
        whole = pathlib.Path(place) / "whole"
        os.environ["TRIAL_LOG"] = str(pathlib.Path(place) / "log")
        _campaign(whole, 0, 1)
        written = []
        for own in (whole, folder):
            with contextlib.chdir(own):
                write_ledger([pathlib.Path("s")], pathlib.Path("ledger"))
            written.append((own / "ledger" / "ledger.csv").read_bytes())
    same = written[0] == written[1]
    return ([] if same else ["another ledger"]) + _done_twice(lines)


def _forget_blocks(patch: pytest.MonkeyPatch) -> None:
    """Workers of a campaign have shares of their own, and meet nobody."""
    patch.setattr(Store, "_take", lambda self, block: None)


CAMPAIGN = Work(_campaign, _faults_of_campaign, 150, _forget_blocks)


# Reports


def _report(folder: pathlib.Path, number: int, of: int) -> None:
    """Check the toy statements and write their pages; log what is kept and run."""
    del number, of
    run, write = records.run, records.write_sealed
    pages = importlib.import_module("cfljax.statements.site.pages")
    text = pages.write_text

    def ran(statement: Any, preset: Any) -> Any:
        log("ran", statement.id)
        return run(statement, preset)

    def keeps(path: pathlib.Path, document: Any) -> None:
        write(path, document)
        log("kept", path.stem)

    def tells(path: pathlib.Path, *arguments: Any) -> None:
        text(path, *arguments)
        log("page", path.name)

    records.__dict__.update(run=ran, write_sealed=keeps)
    pages.__dict__.update(write_text=tells, _draw=lambda _: None)
    with toy_registry():
        toy_theory.build(folder / "site")


def _faults_of_report(folder: pathlib.Path, lines: Lines) -> list[str]:
    with tempfile.TemporaryDirectory() as place:
        os.environ["TRIAL_LOG"] = str(pathlib.Path(place) / "log")
        whole = pathlib.Path(place)
        _report(whole, 0, 1)
        found, expected = (
            test_theory_report.contents(own / "site", timeless=True)
            for own in (folder, whole)
        )
    wrong = [n for n in {*found, *expected} if found.get(n) != expected.get(n)]
    wrong = [f"{own} differs" for own in wrong if not own.endswith(".partial")]
    kept: set[str] = set()
    for line in lines:
        if line[0] == "kept":
            kept.add(line[2])
        # One that raised is tried again each time, see `records`.
        is_again = line[0] == "ran" and line[2] in kept
        if is_again and line[2] != toy_theory.BROKEN.id:
            wrong.append(f"{line[2]} was checked again")
    return wrong


def _forget_outcomes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(records, "_read", lambda *_: None)


REPORT = Work(_report, _faults_of_report, 30, _forget_outcomes)


WORKS: Mapping[str, Work] = {
    "sweep, traced": _sweeps("traced", "shards"),
    "sweep, joint": _sweeps("joint", "whole"),
    "neural": TRAINING,
    "campaign": CAMPAIGN,
    "report": REPORT,
}
# Of each: how many kills, and by how many workers.
KILLS = {
    "report": (140, (1,)),
    "sweep, joint": (300, (1, 2, 3, 4)),
    "sweep, traced": (200, (1, 2, 3, 4)),
    "campaign": (160, (1, 2, 3, 4)),
    "neural": (200, (1, 2, 3, 4)),
}
IN_ONE_GO = 10


def play_kills(
    what: str, workers: int, kills: int, folder: pathlib.Path, seed: int, harm: bool
) -> Tally:
    """Kill workers at random times until so many are killed, or all is done; so often
    anew. With harm, what they rely on is taken away."""
    del folder
    tally, left = Tally(), kills
    warm()
    for turn in range(20):
        with pytest.MonkeyPatch.context() as patch:
            if harm:
                WORKS[what].forget(patch)
            # Long enough that workers meet.
            os.environ["TRIAL_SECONDS"] = "0.1" if harm else "0.01"
            left -= _killed(what, workers, left, seed + 1000 * turn + workers, tally)
        if left <= 0 or harm:
            break
    return tally


def _killed(what: str, workers: int, kills: int, seed: int, tally: Tally) -> int:
    """One time all of it; how many were killed."""
    own = WORKS[what]
    with tempfile.TemporaryDirectory() as name:
        place, file = pathlib.Path(name), pathlib.Path(name) / "log"
        file.touch()
        os.environ["TRIAL_LOG"] = str(file)
        killed, statuses = batter(
            lambda number: fork(lambda: own.do(place, number, workers)),
            lambda: file.read_bytes().count(b"\n"),
            kills=kills,
            most=max(1, own.lines // (2 * kills)),
            seed=seed,
            workers=workers,
        )
        with file.open("a") as opened:
            opened.writelines(f"kill {process}\n" for process in killed)
        lines = [line.split() for line in file.read_text().splitlines()]
        wrong = _in_fork(lambda: own.faults(place, lines), place)
    for status in statuses:
        if status:
            tally.add("traceback", what, f"a worker ended with {status}", units=0)
    for fault in wrong:
        is_silent = "wrong" in fault or "other" in fault or "read" in fault
        tally.add("silent" if is_silent else "lost", what, fault, units=0)
    for _ in killed:
        tally.add("right", what)
    return len(killed)


def _in_fork(work: Callable[[], list[str]], place: pathlib.Path) -> list[str]:
    """What is found by a process that may start JAX, as this one may not."""
    answer = place / "answer"

    def look() -> None:
        try:
            found = work()
        except Exception as error:
            where = traceback.format_exc()[-300:]
            found = [f"what is there cannot be read: {error!r:.200} {where}"]
        answer.write_text(json.dumps(found))

    _wait(fork(look), wrong := [])
    return [*wrong, *(json.loads(answer.read_text()) if answer.exists() else ())]


def _batches_of_kills(folder: pathlib.Path, seed: int) -> list[Batch]:
    """Some of each first, then in the order in which they stand in `KILLS`."""
    del folder, seed
    first, later = [], []
    for what, (kills, counts) in KILLS.items():
        for number, units in enumerate(cut(kills, IN_ONE_GO)):
            workers = counts[(number + 1) % len(counts)]
            play = lambda folder, seed, what=what, workers=workers, units=units: (
                play_kills(what, workers, len(units), folder, seed + units.start, False)
            )
            label = f"{what} {units.start}, {workers} workers"
            own = later if number else first
            own.append(Batch(label, len(units), play))
    return first + later


# Zombies: stopped, and continued when their store is another

ZOMBIES = 200
VARIANTS = ("begun anew", "the same anew", "another beside", "repaired", "killed")
FEW = 23


def _zombie(variant: str, place: pathlib.Path, chance: random.Random) -> list[str]:
    """One worker that is stopped at a random time, and goes on when the store was
    removed and begun anew, with other numbers or the same; when another has done what
    it could; when a repair was tried; or is killed instead. What is wrong."""
    path, file = place / "s", place / "log"
    file.touch()
    os.environ |= {"TRIAL_LOG": str(file), "TRIAL_SECONDS": "0.004"}
    wrong: list[str] = []

    def first() -> None:
        try:
            work(path, "joint", FEW, None)
        except StoreError as error:
            (place / "told").write_text(str(error))

    begun = fork(first)
    target = chance.randrange(1, 2 * FEW)  # It is at work then.
    count = lambda: file.read_bytes().count(b"\n")
    wait_for(lambda: count() >= target)
    os.kill(begun, signal.SIGSTOP)
    os.waitpid(begun, os.WUNTRACED)
    has_ended = any(run.get("finished") for run in runs_of(path))
    os.environ["TRIAL_SECONDS"] = "0"
    grid = cells(FEW)
    if variant == "begun anew":
        grid = dataclasses.replace(grid, seed=1)
    if variant in ("begun anew", "the same anew"):
        shutil.rmtree(path)
        _wait(fork(lambda: _quietly(path, grid)), wrong)
    elif variant == "another beside":
        _wait(fork(lambda: _beside(path)), wrong)
    elif variant == "repaired":
        _wait(fork(lambda: _repaired(path)), wrong)
    before = contents(path)
    if variant == "killed":
        os.kill(begun, signal.SIGKILL)
        os.waitpid(begun, 0)
    else:
        os.kill(begun, signal.SIGCONT)
        _wait(begun, wrong)
    told = (place / "told").read_text() if (place / "told").exists() else ""
    is_anew = variant in ("begun anew", "the same anew")
    if is_anew and contents(path) != before:
        more = sorted({*contents(path)} - {*before})
        wrong.append(f"the zombie wrote {more}")
    if is_anew and not has_ended and "was removed or replaced" not in told:
        wrong.append(f"the zombie was not told, but {told!r}")
    if variant == "killed":
        _wait(fork(lambda: _quietly(path, grid)), wrong)
    wrong += _in_fork(lambda: _faults_of_few(path, grid), place)
    done = [
        line.split()[2:] for line in file.read_text().splitlines() if "done" in line
    ]
    if not is_anew and len({*map(tuple, done)}) != len(done):
        wrong.append("a block was done twice")
    return wrong


def _wait(process: int, wrong: list[str]) -> None:
    if status := os.waitpid(process, 0)[1]:
        wrong.append(f"a process ended with {status}")


def _quietly(path: pathlib.Path, grid: Any) -> None:
    simulate, options = SILENT["joint"]
    insist(grid, simulate, path, **options)


def _beside(path: pathlib.Path) -> None:
    """Do all that the stopped one does not hold."""
    with contextlib.suppress(StoreError):
        simulate, options = SILENT["joint"]
        sweep(cells(FEW), simulate, path, progress=False, **options)


def _repaired(path: pathlib.Path) -> None:
    """What the stopped one has written half is not taken away."""
    with contextlib.suppress(StoreError):
        upkeep.repair(path)


def _faults_of_few(path: pathlib.Path, grid: Any) -> list[str]:
    simulate, options = SILENT["joint"]
    with tempfile.TemporaryDirectory() as place:
        expected = sweep(grid, simulate, pathlib.Path(place) / "s", **options)
    found = sweep(grid, simulate, path, **options)
    return [] if found.identical(expected) else ["other numbers"]


def play_zombies(units: range, folder: pathlib.Path, seed: int, harm: bool) -> Tally:
    """One worker after the other is stopped."""
    del folder
    tally = Tally()
    warm()
    with pytest.MonkeyPatch.context() as patch:
        if harm:
            patch.setattr(Claims, "check", lambda self: None)
        for unit in units:
            variant = VARIANTS[unit % len(VARIANTS)]
            with tempfile.TemporaryDirectory() as place:
                chance = random.Random(seed + unit)
                wrong = _zombie(variant, pathlib.Path(place), chance)
            if not wrong:
                tally.add("right", variant)
            for number, fault in enumerate(wrong):
                kind = "lost" if "twice" in fault else "silent"
                tally.add(kind, variant, fault, units=int(not number))
            if harm and wrong:
                break
    return tally


def _control(what: str) -> Callable[[pathlib.Path, int], Tally]:
    return lambda folder, seed: play_kills(what, 2, 2, folder, seed, True)


PARTS: dict[str, Part] = {
    "kills": Part(
        "SIGKILL at random times to 1-4 workers of sweeps, neural trials, a campaign "
        "of the ledger and reports",
        sum(kills for kills, _ in KILLS.values()),
        _batches_of_kills,
        {
            "no claims, of a sweep": _control("sweep, joint"),
            "no states, of neural trials": _control("neural"),
            "no blocks, of a campaign": _control("campaign"),
            "no outcomes, of a report": _control("report"),
        },
    ),
    "zombies": Part(
        "workers stopped at random times and continued when their store is another, "
        "was completed, or was to be repaired",
        ZOMBIES,
        in_batches(play_zombies, ZOMBIES, 5, "zombies "),
        {
            "no look at the lock": lambda folder, seed: play_zombies(
                range(40), folder, seed, True
            )
        },
    ),
}
