"""Workers on a real Slurm that are cancelled, killed, preempted, requeued and stopped
at their time limit must lose open blocks only: tables are those of an unbroken run."""

import os
import pathlib
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest
import saved_often
from slurm_cluster import Cluster, missing, running

from cfljax.engine import stored
from experiments.__main__ import main

pytestmark = pytest.mark.slurm

ROOT = pathlib.Path(__file__).resolve().parents[1]
BLOCKS = 120  # Of each of four cells.
SWEEP = ["ifca.fig3a", "--num-clients", "8", "--num-samples", "50", "--num-rounds"]
SWEEP += ["200", "--num-features", "20", "--num-restarts", "4", "--step-sizes", ".1"]
SWEEP += ["--separation", "0.5", "1.0", "--noise", "0.0", "0.1", "--no-shortcuts"]
SWEEP += ["--no-law", "--num-trials", str(10 * BLOCKS)]
ROUNDS = 90  # Of a second: more than a time limit of two minutes leaves.
NEURAL = ["clove.table17", "--methods", "fedavg", "--num-rounds", str(ROUNDS)]
NEURAL += ["--num-trials", "2"]


class Place(NamedTuple):
    """Where jobs find everything, and the cluster that they run on."""

    folder: pathlib.Path
    cluster: Cluster


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    assert not missing(), f"not installed: {', '.join(missing())}"
    patch = pytest.MonkeyPatch()
    with tempfile.TemporaryDirectory(prefix="slurm_") as name, patch.context() as own:
        folder = pathlib.Path(name)
        for name, value in saved_often.environment(folder / "python", 1.0).items():
            own.setenv(name, value)
        own.setenv("CFLJAX_CACHE", str(folder / "programs"))
        own.setenv("OMP_NUM_THREADS", "1")
        (folder / "slurm").mkdir()
        with running(folder / "slurm") as cluster:
            own.setenv("SLURM_CONF", cluster.environment["SLURM_CONF"])
            yield Place(folder, cluster)


def launch(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[str, list[str]]:
    """The number of the job array that was submitted, and the command that draws."""
    assert main(["launch", *words]) == 0
    said = capsys.readouterr().out
    job = said.partition("workers: job ")[2].partition(",")[0]
    return job, shlex.split(said.splitlines()[-1])


def unbroken(out: pathlib.Path, words: Sequence[str]) -> "subprocess.Popen[bytes]":
    """The same experiment by one process that nobody ends, started beside."""
    command = [sys.executable, "-m", "cfljax", "run", *words, "--preset", "quick"]
    return subprocess.Popen([*command, "--out", str(out)], cwd=ROOT)


def blocks(out: pathlib.Path) -> dict[str, dict[str, bytes]]:
    """The arrays of all blocks, by cell and number."""
    return {
        f"{about['cell']}/{about['block']}": {
            name: array.tobytes() for name, array in arrays.items()
        }
        for arrays, about in stored(out / "store")
    }


def num_blocks(out: pathlib.Path) -> int:
    return sum(1 for _ in (out / "store" / "cells").glob("*/*.npz"))


def modified(out: pathlib.Path) -> dict[pathlib.Path, int]:
    """When each block was written."""
    files = (out / "store" / "cells").glob("*/*.npz")
    return {file: file.stat().st_mtime_ns for file in files}


def check_same(out: pathlib.Path, whole: pathlib.Path, last: Sequence[str]) -> None:
    """The workers have left nothing to compute, and all is as if nobody was killed."""
    before = modified(out)
    subprocess.run(last, cwd=ROOT, check=True)
    assert modified(out) == before
    found, expected = blocks(out), blocks(whole)
    assert found == expected and len(found) > 0
    for name in ("table.csv", "table.md"):
        if (whole / name).exists():
            assert (out / name).read_bytes() == (whole / name).read_bytes()
    # Control: one bit is seen.
    one = next(iter(found))
    arrays = dict(found[one])
    name = next(iter(arrays))
    arrays[name] = bytes([arrays[name][0] ^ 1]) + arrays[name][1:]
    assert {**found, one: arrays} != expected


def process_of(cluster: Cluster, job: str, word: str) -> int:
    """The process of a job whose command has a word."""
    for process in cluster.processes(job):
        command = pathlib.Path("/proc", str(process), "cmdline").read_bytes()
        if word.encode() in command.split(b"\0"):
            return process
    raise AssertionError(f"no process of {job} has {word}")


def test_a_sweep_survives_whatever_slurm_does_to_its_workers(place, capsys):
    cluster, out = place.cluster, place.folder / "a 'sweep' #1"
    whole = place.folder / "whole sweep"
    flags = ["--workers", "2", "--cpus", "1", "--time", "60", "--out", str(out)]
    job, last = launch(capsys, *SWEEP, *flags)
    first, second = f"{job}_0", f"{job}_1"
    done = 0

    def go_on(what: str) -> None:
        """Until some more blocks are done."""
        nonlocal done
        cluster.wait_until(lambda: num_blocks(out) >= done + 6, f"progress {what}")
        assert cluster.jobs()[second].state == "RUNNING", "all was done too soon"

    def starts(times: int) -> None:
        """Until the second worker has been requeued so many times, and runs."""
        nonlocal done
        what = f"{second} running after {times} requeues"
        cluster.wait_until(lambda: cluster.runs(second, times), what)
        done = num_blocks(out)

    go_on("of both")
    cluster.ask("scancel", first)
    cluster.ask("scancel", "--signal=USR2", second)  # As before a time limit.
    starts(1)
    assert cluster.jobs()[first].state == "CANCELLED"
    go_on("behind the warning")
    cluster.ask("scontrol", "requeue", second)
    starts(2)
    go_on("behind the requeueing")
    sleep = ["--partition=urgent", "--exclusive", "--wrap=sleep 1"]
    cluster.ask("sbatch", f"--output={place.folder}/urgent", *sleep)
    starts(3)
    go_on("behind the preemption")
    os.kill(process_of(cluster, second, "submitit.core._submit"), signal.SIGKILL)
    cluster.wait_until(lambda: not cluster.unfinished(), "the end of the killed job")
    assert cluster.jobs()[second].state in ("FAILED", "NODE_FAIL")
    left = num_blocks(out)
    assert 0 < left < 4 * BLOCKS, "the kills came too late to lose anything"
    kept = modified(out)
    alone = unbroken(whole, SWEEP)
    launch(capsys, *SWEEP, *flags)
    cluster.wait_until(lambda: not cluster.unfinished(), "the end of all workers")
    assert alone.wait() == 0
    assert kept.items() <= modified(out).items(), "what was done was done again"
    check_same(out, whole, last)


@pytest.mark.slow  # Slurm's shortest limit is a minute.
def test_long_runs_go_on_behind_a_time_limit_and_a_kill(place, capsys, monkeypatch):
    cluster, out = place.cluster, place.folder / "table"
    whole = place.folder / "whole table"
    saved = lambda: saved_often.saved(place.folder / "python", out)
    flags = ["--workers", "2", "--cpus", "1", "--time", "2", "--out", str(out)]
    job, last = launch(capsys, *NEURAL, *flags)
    first, second = f"{job}_0", f"{job}_1"
    both_again = lambda: cluster.runs(first, 1) and cluster.runs(second, 1)
    cluster.wait_until(both_again, "a requeue of both")
    before = {path: rounds[-1] for path, rounds in saved().items()}
    assert len(before) == 2 and all(1 < last < ROUNDS for last in before.values())
    goes_on = lambda: all(saved()[path][-1] > last for path, last in before.items())
    cluster.wait_until(goes_on, "more rounds of both")
    os.kill(process_of(cluster, first, "run"), signal.SIGKILL)
    cluster.wait_until(lambda: not cluster.unfinished(), "the end of the workers")
    states = [cluster.jobs()[own].state for own in (first, second)]
    assert states == ["FAILED", "COMPLETED"] and num_blocks(out) == 1
    monkeypatch.setenv("SAVED_SECONDS", "0")
    alone = unbroken(whole, NEURAL)
    launch(capsys, *NEURAL, *flags)
    cluster.wait_until(lambda: not cluster.unfinished(), "the end of all workers")
    assert alone.wait() == 0
    for rounds in saved().values():  # None was played twice but the one that was lost.
        assert sorted(rounds) == rounds and set(rounds) == set(range(1, ROUNDS + 1))
    check_same(out, whole, last)


def test_what_slurm_refuses_is_one_line(place, capsys):
    out = place.folder / "refused"
    words = [*SWEEP, "--workers", "2", "--out", str(out), "--partition", "no-such"]
    assert main(["launch", *words]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: Slurm refuses: ") and said.count("\n") == 1
    assert "partition" in said and not place.cluster.unfinished()
