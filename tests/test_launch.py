"""The launcher: what it prints is what it submits, and the workers are the whole;
misused, one line that says what to do, and nothing submitted."""

import argparse
import os
import pathlib
import shlex
import signal
import subprocess
import sys

import pytest
from submitit.helpers import DelayedSubmission

from cfljax.command import parse
from cfljax.report import read_csv
from experiments.__main__ import PROGRAM
from experiments.__main__ import main as command_line
from experiments.launch import Worker, main, run_here, workers

ROOT = pathlib.Path(__file__).resolve().parents[1]
TEAM = ("ifca.fig3a", "--workers", "2")
RESOURCES = [
    *("--partition", "long", "--time", "90", "--cpus", "4", "--gpus", "1"),
    *("--memory-gib", "8"),
]


def launch(*argv: str) -> int:
    """`python -m experiments launch ...`, in this process."""
    return main(parse(PROGRAM, ["launch", *argv]))


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Makes programs of these names and lines, which are found before all others."""
    folder = tmp_path / "bin"

    def make(**lines):
        folder.mkdir()
        for name, line in lines.items():
            (folder / name).write_text(f"#!/bin/sh\n{line}\n")
            (folder / name).chmod(0o755)

    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return make


@pytest.fixture
def cluster(tmp_path, programs):
    """A machine whose `sbatch` keeps the script; where it is kept."""
    kept = tmp_path / "submitted.sh"
    keep = f'cp "$1" {shlex.quote(str(kept))}; echo Submitted batch job 42'
    programs(sbatch=keep, srun="exit 1")
    return kept


def shares(lines: list[list[str]]) -> set[str]:
    return {line[line.index("--shard") + 1] for line in lines}


# Against itself


@pytest.mark.parametrize("number", [1, 3])
def test_a_dry_run_prints_what_is_submitted(cluster, tmp_path, capsys, number):
    out = tmp_path / "a folder"
    flags = ["ifca.fig3a", "--out", str(out), *RESOURCES, "--noise", "0.1", "0.2"]
    others = [*flags, "--workers", "2"]
    flags += ["--workers", str(number)]
    assert launch(*flags, "--dry-run") == 0
    assert not out.exists() and not cluster.exists()
    script, _, printed = capsys.readouterr().out.partition("workers'\n")
    assert launch(*flags) == 0
    submitted = cluster.read_text()
    assert submitted.rstrip() == f"{script}workers'"
    assert ("--array=0-2%3\n" in submitted) == (number == 3)
    for asked in ("partition=long", "time=90", "cpus-per-task=4", "mem=8G", "requeue"):
        assert f"#SBATCH --{asked}\n" in submitted
    assert "srun" in submitted and " --cpus-per-task=4 " in submitted
    pickled = sorted((out / "workers").glob("42*_submitted.pkl"))
    commands = [list(DelayedSubmission.load(p).function.command) for p in pickled]
    shown = [shlex.split(line) for line in printed.splitlines() if "--shard" in line]
    assert commands == shown
    assert shares(shown) == {f"{index + 1}/{number}" for index in range(number)}
    assert "job 42" in capsys.readouterr().out
    # Control: other workers are another script.
    assert launch(*others, "--dry-run") == 0
    assert submitted.rstrip() not in capsys.readouterr().out


@pytest.mark.parametrize("minutes, seconds", [(2, 40), (4, 80), (5, 90), (600, 90)])
def test_a_short_worker_is_not_warned_as_soon_as_it_starts(capsys, minutes, seconds):
    """As it would be by the usual 90 seconds, and queued again with nothing done."""
    assert launch(*TEAM, "--time", str(minutes), "--dry-run") == 0
    assert f"#SBATCH --signal=USR2@{seconds}\n" in capsys.readouterr().out


def test_the_last_command_is_the_whole_experiment(tmp_path, capsys):
    flags = ["--out", str(tmp_path), "--noise", "0.1", "--num-trials", "20"]
    launch("ifca.fig3a", "--workers", "2", "--preset", "paper", "--dry-run", *flags)
    whole = shlex.split(capsys.readouterr().out.splitlines()[-1])
    run = ["run", "ifca.fig3a", "--preset", "paper"]
    assert whole == [sys.executable, "-m", "cfljax", *run, *flags]
    alone = [sys.executable, "-m", "cfljax", *run]
    for worker in workers(alone, flags, 2):
        at = worker.command.index("--shard")
        assert [*worker.command[:at], *worker.command[at + 2 :]] == whole


def test_a_worker_is_deaf_to_warnings_of_the_end_and_says_how_it_ended():
    source = (
        "import signal, sys\n"
        "deaf = signal.pthread_sigmask(signal.SIG_BLOCK, [])\n"
        "sys.exit(0 if {signal.SIGUSR2, signal.SIGTERM} <= deaf else 3)"
    )
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    worker = Worker((sys.executable, "-c", source))
    assert worker() == 0
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before
    # Control: a process that was started without care hears them.
    assert subprocess.run(worker.command).returncode == 3
    with pytest.raises(RuntimeError, match="exit status 7"):
        Worker((sys.executable, "-c", "import sys; sys.exit(7)"))()
    assert worker.checkpoint().function == worker


def test_an_interrupted_worker_leaves_no_process(tmp_path):
    class EnoughError(Exception):
        pass

    def stop(*_):
        raise EnoughError

    process = tmp_path / "process"
    command = f"echo $$ > {shlex.quote(str(process))}; exec sleep 60"
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(EnoughError):
            Worker(("sh", "-c", command))()
    finally:
        signal.signal(signal.SIGALRM, before)
    with pytest.raises(ProcessLookupError):
        os.kill(int(process.read_text()), 0)


@pytest.mark.slow
def test_local_workers_together_make_the_table_of_one_run(tmp_path, capsys):
    sizes = ["--num-features", "5", "--num-clients", "4", "--num-samples", "10"]
    sizes += ["--num-trials", "20", "--num-restarts", "2", "--num-rounds", "5"]
    sizes += ["--noise", "0.1", "0.4", "--separation", "1"]
    team, alone = tmp_path / "team", tmp_path / "alone"
    flags = ["--workers", "2", "--local", "--out", str(team), *sizes]
    assert launch("ifca.fig3a", *flags) == 0
    last = shlex.split(capsys.readouterr().out.splitlines()[-1])
    # What fresh data would give is computed with the table.
    cells = lambda: (file for file in team.rglob("*.npz") if "law" not in file.parts)
    blocks = lambda: {file: file.stat().st_mtime_ns for file in cells()}
    stored = blocks()
    assert stored
    subprocess.run(last, cwd=ROOT, check=True)
    assert blocks() == stored, "the workers had left nothing to do"
    other = [str(alone) if word == str(team) else word for word in last]
    subprocess.run(other, cwd=ROOT, check=True)
    assert read_csv(team / "table.csv") == read_csv(alone / "table.csv")


@pytest.mark.slow
def test_a_local_worker_that_fails_is_counted_and_named(tmp_path, capsys):
    refuses = "import sys; sys.exit('error: no such cell')"
    sources = ("print('done')", refuses)
    team = [Worker((sys.executable, "-c", source)) for source in sources]
    assert run_here(argparse.Namespace(gpus=None, time=None), tmp_path, team) == 1
    said = capsys.readouterr().out
    assert said.startswith("worker 2: error: no such cell;") and said.count("\n") == 1


# Against misuse


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (
            ["ifca.fig3a", "--workers", "0"],
            "--workers: must be an integer of at least 1, got '0'",
        ),
        ([*TEAM, "--time", "-1"], "--time: must be an integer of at least 1, got '-1'"),
        (
            [*TEAM, "--memory-gib", "0"],
            "--memory-gib: must be an integer of at least 1",
        ),
        ([*TEAM, "--partition", "a\nb"], "`--partition` must be a name"),
        ([*TEAM, "--time", "1"], "`--time` must be at least 2 minutes on a cluster"),
        ([*TEAM, "--partition=-x"], "`--partition` must be a name, got '-x'"),
        ([*TEAM, "--memory", "nan"], "`--memory` must be in (0, 1e+09] GiB, got nan"),
        (
            [*TEAM, "--memory", "1e300"],
            "`--memory` must be in (0, 1e+09] GiB, got 1e+300",
        ),
        ([*TEAM, "--shard", "1/2"], "`--shard` is each worker's own"),
        ([*TEAM, "--shard=1/2"], "`--shard` is each worker's own"),
        ([*TEAM, "--local", "--cpus", "2"], "`--cpus` has no use with `--local`"),
        ([*TEAM, "--local", "--partition", "a"], "`--partition` has no use with"),
        (["ifca.fig3", "--workers", "2"], "nearest: ifca.fig3d"),
        ([*TEAM, "--noise", "-1"], "--noise: must not be negative"),
        ([*TEAM, "--nois", "1"], "--nois"),
        ([*TEAM, "--chunk", "0"], "`chunk` must be at least 1"),
        ([*TEAM, "--precision", "2"], "`precision` must be in (0, 1]"),
        (["werner.fig1", "--workers", "2"], "no use for werner.fig1: it takes no time"),
        (TEAM, "no Slurm here: `sbatch` was not found"),
    ],
)
def test_misuse_is_refused_before_anything_is_submitted(
    argv, message, tmp_path, monkeypatch
):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError) as error:
        launch(*argv, "--out", str(tmp_path / "out"))
    assert message in str(error.value) and "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["a\nb", "%j", "a\\b", "\x7f"])
def test_a_folder_that_the_script_cannot_name_is_refused(tmp_path, capsys, name):
    flags = ["launch", *TEAM, "--dry-run", "--out", str(tmp_path / name)]
    assert command_line(flags) == 2
    said = capsys.readouterr()
    assert said.err.startswith("error: `--out` must be a folder that Slurm can name")
    assert said.err.count("\n") == 1 and not said.out
    # Control: what a shell has to be told in quotes is no trouble.
    flags[-1] = str(tmp_path / "a 'b' #c")
    assert command_line(flags) == 0


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["ifca.fig3a"],
        ["ifca.fig3a", "--workers", "two"],
        [*TEAM, "--preset", "full"],
        [*TEAM, "--chunk", "many"],
        [*TEAM, "--local", "--dry-run"],
    ],
)
def test_wrong_words_are_one_line(argv, capsys):
    assert command_line(["launch", *argv]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ") and err.count("\n") == 1


def test_without_submitit_it_is_said_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(ValueError, match=r"install the extra `slurm`.*pip install"):
        launch(*TEAM, "--dry-run")


def test_a_refusal_of_the_cluster_is_one_line(tmp_path, programs, capsys):
    refuse = "echo 'no such' >&2; echo queue >&2\nexit 1"
    programs(sbatch=refuse, srun=refuse)
    with pytest.raises(ValueError, match=r"^Slurm refuses: no such queue$"):
        launch(*TEAM, "--out", str(tmp_path / "out"))
    assert capsys.readouterr() == ("", "")


def test_jobs_are_not_put_where_others_write(cluster, tmp_path, capsys):
    """Who may change their files chooses what they execute."""
    out = tmp_path / "out"
    (out / "workers").mkdir(parents=True)
    (out / "workers").chmod(0o777)
    for way in ([], ["--local"]):
        argv = ["launch", *TEAM, "--preset", "quick", "--out", str(out), *way]
        assert command_line(argv) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and "may be written by others" in said
    assert not cluster.exists() and not list((out / "workers").iterdir())
    (out / "workers").rmdir()
    assert command_line(argv[:-1]) == 0
    assert (out / "workers").stat().st_mode & 0o777 == 0o700 and cluster.exists()
