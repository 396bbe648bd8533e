"""Machines that fail: disks that are full, power that is lost, clusters that kill."""

import contextlib
import importlib
import io
import os
import pathlib
import random
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Callable
from typing import Any

import power
import pytest
import slurm_cluster
import test_kept_outcomes
import test_launch_slurm as slurm
import test_power_loss
import test_reliability
from engine_trial import filling
from tally import Batch, Part, Tally, in_batches
from trusted_files import toy_registry

from cfljax import base
from cfljax.engine import StoreError, kept, sweep
from experiments.__main__ import main as experiments_main
from theory.__main__ import main as theory_main

# Full disks

FULL = 50


def _sweep(folder: pathlib.Path) -> Any:
    return test_reliability.finish(folder / "s").to_dict()


def _run(folder: pathlib.Path) -> Any:
    runs = importlib.import_module("test_engine_checkpoints")
    found = runs.start(checkpoint=folder / "run.npz", every=0.0)
    return repr(runs.bits(found))


def _outcome(folder: pathlib.Path) -> Any:
    return test_kept_outcomes.told(test_kept_outcomes.kept(folder))


def _laws(folder: pathlib.Path) -> Any:
    """Arrays that are kept, several."""
    compute = lambda: {"x": [1.0, 2.0]}
    found = [kept.remembered(folder / "laws", ["law", n], compute) for n in range(6)]
    return [own["x"].tobytes() for own in found]


def _report(folder: pathlib.Path) -> Any:
    """The pages, but not what they say of time."""
    words = ["report", "toy.equal", "toy.none", "--out", str(folder / "site")]
    with toy_registry(), _silence() as said:
        status = theory_main(words)
        if status:
            raise OSError(said.getvalue())
    return sorted(path.name for path in (folder / "site").rglob("*"))


def _settings(folder: pathlib.Path) -> Any:
    """An index, which is made again where nothing can be kept."""
    made = lambda: [{"a": 1}]
    return base.remembered(folder / "index.json", "sources", made)


@contextlib.contextmanager
def _silence() -> Any:
    """What is said, kept for whoever asks."""
    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        yield said


# Name -> what is done, and files that it writes.
WRITERS: dict[str, tuple[Callable[[pathlib.Path], Any], int]] = {
    "sweep": (_sweep, 10),
    "run": (_run, 7),
    "outcome": (_outcome, 1),
    "arrays": (_laws, 6),
    "report": (_report, 12),
    "index": (_settings, 1),
}


def _is_told(work: Callable[[], Any], room: int, expected: Any) -> str:
    """With room for some files: what is wrong with how a full disk was told."""
    with pytest.MonkeyPatch.context() as patch:
        written = filling(patch, room)
        try:
            found = work()
        except (StoreError, OSError) as error:
            message = str(error).strip()
            is_told = "No space left on device" in message and "\n" not in message
            return "" if is_told else f"it says {message!r}"
        if len(written) > room + 1:
            return "nothing is said of it"
        return "" if found == expected else "other results"


def play_full(units: range, folder: pathlib.Path, seed: int, harm: bool) -> Tally:
    """A disk that is full after some files, at a place within the next one; then there
    is room, and all must be as it would have been."""
    del folder
    tally = Tally()
    with pytest.MonkeyPatch.context() as patch:
        if harm:
            patch.setattr(kept, "write", _forgetful)
        for unit in units:
            name = list(WRITERS)[unit % len(WRITERS)]
            room = random.Random(seed + unit).randrange(WRITERS[name][1])
            with tempfile.TemporaryDirectory() as place:
                end, why = _filled(name, room, pathlib.Path(place))
            tally.add(end, name, why, case=f"{name} with room for {room} files")
    return tally


def _forgetful(path: pathlib.Path, *arguments: Any, **options: Any) -> None:
    """`kept.write` that passes over what the disk says."""
    with contextlib.suppress(OSError):
        _WRITE(path, *arguments, **options)


_WRITE = kept.write


def _filled(name: str, room: int, place: pathlib.Path) -> tuple[str, str]:
    """How one case ended, and why."""
    work = WRITERS[name][0]
    whole, own = place / "whole", place / "own"
    for folder in (whole, own):
        folder.mkdir()
    try:
        expected = work(whole)
        if fault := _is_told(lambda: work(own), room, expected):
            return "silent", fault
        if work(own) == expected:
            return "right", ""
        return "lost", "it is not as it would have been"
    except Exception as error:
        return "traceback", repr(error)


# Losses of power

# What is done, and how often the power goes meanwhile.
LOSSES = (("sweep", 7), ("run", 8), ("sweep", 5))


def play_power(
    kind: str, losses: int, folder: pathlib.Path, seed: int, honoured: list[str]
) -> Tally:
    """Losses of power at random times of two workers' sweep, or of a long run."""
    del folder, seed
    tally = Tally()
    if not power.is_there():
        tally.add("traceback", kind, "needs /dev/fuse and its library", units=0)
        return tally
    with tempfile.TemporaryDirectory() as name:
        place = pathlib.Path(name)
        count, lost, statuses, _ = test_power_loss.lose(
            str(place / "at"), honoured, kind, losses
        )
        for own in lost:
            tally.add("lost", kind, own, units=0)
        for status in statuses:
            if status:
                tally.add("traceback", kind, f"a worker ended with {status}", units=0)
        if not lost:
            if kind == "sweep":
                grid = test_power_loss.cells(test_power_loss.NUM_TRIALS)
                whole = sweep(grid, None, place / "s", joint=test_power_loss.JOINT)
                expected = test_power_loss.digest(whole)
            else:
                os.environ["TRIAL_LOG"] = str(place / "log")
                expected = test_power_loss._long(None)
            if (place / "at" / "end").read_text() != expected:
                tally.add("silent", kind, "other numbers", units=0)
        for _ in range(count if not lost else 0):
            tally.add("right", kind)
    return tally


# Slurm

SLURM = 30


def _submitted(*words: str) -> tuple[str, list[str]]:
    """The number of the job array, and the command that draws."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert experiments_main(["launch", *words]) == 0
    text = said.getvalue()
    job = text.partition("workers: job ")[2].partition(",")[0]
    return job, shlex.split(text.splitlines()[-1])


def play_slurm(kills: int, folder: pathlib.Path, seed: int) -> Tally:
    """Workers of a job array, one to four, whose processes are killed at random."""
    del folder
    tally, chance = Tally(), random.Random(seed)
    if slurm_cluster.missing():
        tally.add(
            "traceback", "slurm", f"not installed: {slurm_cluster.missing()}", units=0
        )
        return tally
    with tempfile.TemporaryDirectory(prefix="slurm_") as name:
        place = pathlib.Path(name)
        (place / "slurm").mkdir()
        out, whole = place / "sweep", place / "whole"
        os.environ["CFLJAX_CACHE"] = str(place / "programs")
        alone = slurm.unbroken(whole, slurm.SWEEP)
        with slurm_cluster.running(place / "slurm") as cluster:
            os.environ["SLURM_CONF"] = cluster.environment["SLURM_CONF"]
            killed, last = 0, []
            while killed < kills and slurm.num_blocks(out) < 4 * slurm.BLOCKS:
                workers = str(chance.randint(1, 4))
                flags = ["--workers", workers, "--cpus", "1", "--time", "60"]
                _, last = _submitted(*slurm.SWEEP, *flags, "--out", str(out))
                killed += _kill_jobs(cluster, out, chance, kills - killed)
                cluster.wait_until(lambda: not cluster.unfinished(), "the end of all")
            before = slurm.modified(out)
            flags = ["--workers", "2", "--cpus", "1", "--time", "60"]
            _, last = _submitted(*slurm.SWEEP, *flags, "--out", str(out))
            cluster.wait_until(lambda: not cluster.unfinished(), "the end of all")
            assert alone.wait() == 0
            try:
                kept_all = before.items() <= slurm.modified(out).items()
                assert kept_all, "what was done was done again"
                slurm.check_same(out, whole, last)
            except (AssertionError, subprocess.CalledProcessError) as error:
                tally.add("lost", "slurm", repr(error), units=0)
        for _ in range(killed):
            tally.add("right", "slurm")
    return tally


def _kill_jobs(
    cluster: slurm_cluster.Cluster, out: pathlib.Path, chance: random.Random, most: int
) -> int:
    """Kill the workers of a cluster one after the other, each when some blocks are
    done; how many were."""
    killed = 0
    while killed < most and cluster.unfinished():
        running = [job.id for job in cluster.unfinished() if job.state == "RUNNING"]
        target = slurm.num_blocks(out) + chance.randint(0, 6)
        is_on = lambda target=target: (
            slurm.num_blocks(out) >= target or not cluster.unfinished()
        )
        cluster.wait_until(is_on, "more blocks")
        if not running:
            continue
        with contextlib.suppress(AssertionError, ProcessLookupError, OSError):
            own = slurm.process_of(cluster, chance.choice(running), "run")
            os.kill(own, signal.SIGKILL)
            killed += 1
    return killed


def _batches_of_power(folder: pathlib.Path, seed: int) -> list[Batch]:
    del folder, seed
    return [
        Batch(
            f"{kind} {losses}",
            losses,
            lambda folder, seed, kind=kind, losses=losses: play_power(
                kind, losses, folder, seed, test_power_loss.BOTH
            ),
        )
        for kind, losses in LOSSES
    ]


PARTS: dict[str, Part] = {
    "full": Part(
        "disks that are full at a random file of sweeps, long runs, outcomes, reports",
        FULL,
        in_batches(play_full, FULL, 10, "full "),
        {
            "errors of the disk are passed over": lambda folder, seed: play_full(
                range(12), folder, seed, True
            )
        },
    ),
    "power": Part(
        "losses of power, on a disk that forgets what was not synced",
        sum(losses for _, losses in LOSSES),
        _batches_of_power,
        {
            "nothing is synced": lambda folder, seed: play_power(
                "sweep", 7, folder, seed, []
            )
        },
    ),
    "slurm": Part(
        "SIGKILL to workers of one to four jobs of a Slurm of one node",
        SLURM,
        lambda folder, seed: [
            Batch("slurm", SLURM, lambda folder, seed: play_slurm(SLURM, folder, seed))
        ],
        {},
    ),
}
