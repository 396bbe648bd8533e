"""Workers of one experiment on a Slurm cluster, or several on this machine.

`python -m experiments launch ID --workers N` starts N times `run ID --shard I/N`. The
workers know nothing of each other: they share the results' folder, and each finished
cell is there to stay. One that is killed loses its open cells only; the same command
again computes what is missing. On a cluster a worker that meets its time limit, or is
preempted, is queued again by itself.
"""

import argparse
import contextlib
import dataclasses
import importlib.util
import io
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from cfljax.command import Parser
from experiments.arguments import (
    MINUTES,
    add_workers,
    check_folder,
    check_use,
    configure,
    entry_of,
    options_of,
)
from experiments.commands import usual_folder
from experiments.private import private_folder

_NAME = re.compile(r"\w[\w.,-]*")
# Of a folder's name: ends a line of the script, or is read as the job's number.
_STRANGE = re.compile(r"[%\\\x00-\x1f\x7f]")
_YEAR = 365 * 24 * 60  # Minutes of a local worker, which nobody waits behind.
_REQUEUES = 10  # Of a worker that meets its time limit.
# Seconds before its limit that a worker is warned, at most; Slurm looks every 30 s and
# rounds up, so that a share of a short limit is all that can be asked for.
_WARNING, _WARNING_A_MINUTE = 90, 20


def main(arguments: argparse.Namespace) -> int:
    """Launch what was asked for; the exit status, 1 if a local worker failed.

    Raises:
      ValueError: if anything is wrong with the flags, or submitit or Slurm is missing.
    """
    _check(arguments)
    usual = _check_experiment(arguments)
    out = arguments.out or usual
    if not arguments.local and (found := _STRANGE.search(str(out))):
        raise ValueError(
            f"`--out` must be a folder that Slurm can name, without {found[0]!r}, got "
            f"{str(out)!r}."
        )
    check_folder(out)
    flags = ["--out", str(out), *_forwarded(arguments.words)]
    if importlib.util.find_spec("submitit") is None:
        raise ValueError(
            "`launch` needs submitit; install the extra `slurm`, or it alone: "
            "`python -m pip install submitit`."
        )
    run = ["run", arguments.id]
    if arguments.config is None:
        run += ["--preset", arguments.preset]
    command = [sys.executable, "-m", "cfljax", *run]
    team = workers(command, flags, arguments.workers)
    if arguments.dry_run:
        print(script(arguments, out))
        for worker in team:
            print(shlex.join(worker.command))
    elif arguments.local:
        if failed := run_here(arguments, out, team):
            print(f"{failed} of {len(team)} workers failed; launch again to resume")
            return 1
    else:
        print(f"submitted {len(team)} workers: {submit(arguments, out, team)}")
    print(f"then, for table and figures:\n{shlex.join([*command, *flags])}")
    return 0


def _check(arguments: argparse.Namespace) -> None:
    for flag in ("cpus", "memory_gib", "partition"):
        value = getattr(arguments, flag)
        if arguments.local and value is not None:
            name = "--" + flag.replace("_", "-")
            raise ValueError(f"`{name}` has no use with `--local`, got {value}.")
    if not arguments.local and arguments.time == 1:
        raise ValueError(
            "`--time` must be at least 2 minutes on a cluster, which warns a worker of "
            "its end up to a minute before, got 1."
        )
    partition = arguments.partition
    if partition is not None and not _NAME.fullmatch(partition):
        raise ValueError(f"`--partition` must be a name, got {partition!r}.")
    if arguments.shard is not None:
        raise ValueError("`--shard` is each worker's own: ask for `--workers`.")


def _check_experiment(arguments: argparse.Namespace) -> pathlib.Path:
    """Raises ValueError for what every worker would refuse; returns where results go
    unless told."""
    entry = entry_of(arguments)
    if not entry.is_sweep and not entry.has_jobs:
        raise ValueError(
            f"`launch` has no use for {arguments.id}: it takes no time that is worth "
            "sharing out."
        )
    check_use(entry, arguments)
    options_of(arguments)
    config = configure(arguments)
    return usual_folder(entry, arguments.preset, config)


def _forwarded(words: Sequence[str]) -> list[str]:
    """Of what was typed that which is not for the launcher, but for each worker."""
    own = Parser()
    own.add_argument("id")
    add_workers(own)
    for flag in ("--preset", "--out"):
        own.add_argument(flag)
    own.add_argument("--traceback", action="store_true")
    return own.parse_known_args(list(words))[1]


@dataclasses.dataclass(frozen=True)
class Worker:
    """One process of `python -m experiments run`, as a job that may be queued again."""

    command: tuple[str, ...]

    def __call__(self) -> int:
        """Run it to its end: 0, or a RuntimeError if its exit status is another."""
        # The cluster warns every process of a job of its end. This one then asks to be
        # queued again; the experiment, which would only die of it, goes on till then.
        warnings = {signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM}
        before = signal.pthread_sigmask(signal.SIG_BLOCK, warnings)
        try:
            process = subprocess.Popen(self.command)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        try:
            status = process.wait()
        finally:  # Nothing is left behind; open cells are computed again.
            process.kill()
            process.wait()
        if status:
            raise RuntimeError(f"exit status {status}: {shlex.join(self.command)}")
        return status

    def checkpoint(self) -> Any:
        """What to queue again: the same command, which resumes."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def workers(command: Sequence[str], flags: Sequence[str], number: int) -> list[Worker]:
    """The workers that together do what `command` with `flags` does."""
    shares = [("--shard", f"{index + 1}/{number}") for index in range(number)]
    return [Worker((*command, *share, *flags)) for share in shares]


def _cluster_parameters(arguments: argparse.Namespace) -> dict[str, Any]:
    """What submitit is told of the workers; all of them are alike."""
    asked = {
        "partition": arguments.partition,
        "cpus_per_task": arguments.cpus,
        "gpus_per_node": arguments.gpus,
        "mem": arguments.memory_gib and f"{arguments.memory_gib}G",
        # Since version 22.05 `srun` takes no cores over from the script.
        "srun_args": arguments.cpus and [f"--cpus-per-task={arguments.cpus}"],
    }
    minutes = arguments.time or MINUTES
    return {
        "job_name": arguments.id,
        "time": minutes,
        "signal_delay_s": min(_WARNING, _WARNING_A_MINUTE * minutes),
        "array_parallelism": arguments.workers,
        "additional_parameters": {"requeue": True},
    } | {name: value for name, value in asked.items() if value is not None}


def script(arguments: argparse.Namespace, out: pathlib.Path) -> str:
    """What `submit` hands to `sbatch`, where there need be none."""
    from submitit import SlurmExecutor

    class AnywhereExecutor(SlurmExecutor):
        @classmethod
        def affinity(cls) -> int:
            return 1  # It is not asked to submit.

    executor = AnywhereExecutor(out / "workers", max_num_timeout=_REQUEUES)
    executor.update_parameters(**_cluster_parameters(arguments))
    if arguments.workers > 1:
        executor.parameters["map_count"] = arguments.workers  # As of its arrays.
    return executor._make_submission_file_text(executor._submitit_command_str, "")


def submit(
    arguments: argparse.Namespace, out: pathlib.Path, team: Sequence[Worker]
) -> str:
    """Hand the workers to Slurm; the job's number and where its output goes."""
    from submitit import SlurmExecutor
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    if missing := [name for name in ("sbatch", "srun") if not shutil.which(name)]:
        raise ValueError(
            f"no Slurm here: `{missing[0]}` was not found. Launch where it is, or with "
            "`--local` on this machine; `--dry-run` prints the script."
        )
    logs = private_folder(out / "workers")  # Where jobs find what they execute.
    executor = SlurmExecutor(logs, max_num_timeout=_REQUEUES)
    executor.update_parameters(**_cluster_parameters(arguments))
    try:
        # What goes wrong is said in one line.
        with _findable(), contextlib.redirect_stderr(io.StringIO()):
            jobs = executor.submit_array(team)
    except (FailedJobError, FailedSubmissionError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"Slurm refuses: {reason}") from error
    return f"job {jobs[0].job_id.partition('_')[0]}, output in `{out / 'workers'}`"


@contextlib.contextmanager
def _findable() -> Iterator[None]:
    """Have the processes of jobs find this module, which a wheel has out of the way."""
    before = os.environ.get("PYTHONPATH")
    own = str(pathlib.Path(__file__).resolve().parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [own, before]))
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def run_here(
    arguments: argparse.Namespace, out: pathlib.Path, team: Sequence[Worker]
) -> int:
    """Run the workers on this machine, all at once, and wait; how many failed."""
    from submitit import LocalExecutor

    # A folder of their own: local jobs have the numbers of processes, which come again.
    logs = private_folder(out / "workers")
    logs = tempfile.mkdtemp(prefix="local_", dir=logs)
    executor = LocalExecutor(logs, max_num_timeout=_REQUEUES)
    gpus, jobs = arguments.gpus or 0, []
    for index, worker in enumerate(team):
        executor.update_parameters(
            timeout_min=arguments.time or _YEAR,
            gpus_per_node=gpus,
            visible_gpus=tuple(range(index * gpus, (index + 1) * gpus)),
        )
        with _findable():
            jobs.append(executor.submit(worker))
    try:
        for job in jobs:
            job.wait()
    except KeyboardInterrupt:
        for job in jobs:
            job.cancel()
        for job in jobs:
            job.wait()
        raise
    failed = 0
    for index, job in enumerate(jobs):
        if job.exception() is not None:
            failed += 1
            lines = (job.stderr() or "").splitlines()
            said = [line for line in lines if line.startswith("error: ")] or [""]
            print(f"worker {index + 1}: {said[-1]}; output in `{job.paths.stderr}`")
    return failed
