"""An experiment on the workers of a dask cluster: `run ID --dask ADDRESS`.

A task is what `run ID --shard I/N` does, in the process of a worker: it claims,
computes and stores blocks in the folder that all machines see, which is the only
result. So a task may be run twice, by two workers at once, or be cut off anywhere: dask
starts the tasks of a lost worker again, and they compute what is missing. The command
that has sent them waits, sends them again while blocks are open, and draws in the end.
"""

import contextlib
import dataclasses
import logging
import pathlib
import pickle
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from cfljax import engine
from experiments import jobs
from experiments.options import Options
from experiments.registry import Entry

log = logging.getLogger(__name__)

CONNECTING = 20.0  # Seconds that a scheduler may take to answer.
LOOK = 0.2  # Seconds from one look at the tasks to the next.
PATIENCE = 10.0  # Seconds after which it is looked whether there are workers.
WAIT = 2.0  # Seconds before tasks are sent again whose blocks others were computing.
# Tasks of an experiment, at least, if it has as many blocks: each reads the whole store
# and compiles; and for each worker, for those that end sooner.
TASKS, TASKS_PER_WORKER = 64, 2
STALLED = 3  # Times that tasks end all their workers, and no block is done, at most.
RETRIES = 2  # Of a task that raised, as for a disk that was away.
_BEYOND = 10**9  # Number of a share that has no work.
_LOST = "the scheduler was lost; what is done stays done, run again to resume."
# What a worker may have otherwise: where it computes is said in its blocks.
_OWN = ("backend", "xla_flags")


class LostSchedulerError(RuntimeError):
    """The scheduler has ended, or cannot be reached any more."""

    exit_status = 3


@dataclasses.dataclass(frozen=True)
class Task:
    """What a worker is told."""

    entry: Entry
    config: Any
    options: Options
    code: dict[str, dict[str, str]]


class _State(NamedTuple):
    """Of all blocks of an experiment."""

    num_open: int
    num_blocks: int
    failed_cells: int


def fill(address: str, entry: Entry, config: Any, options: Options) -> None:
    """Have the workers of a cluster compute what the store lacks of an experiment.

    Args:
      address: of the scheduler, such as tcp://10.0.0.1:8786.
      entry: a sweep, or one that has jobs.
      config: its configuration.
      options: without a share of its own; folders are made absolute.

    Raises:
      ValueError: if there is no scheduler, a worker cannot do it, or writes elsewhere.
      LostSchedulerError: if the scheduler ends; what is done stays done.
      SweepError: if cells failed, or a task that raises or ends its workers gets no
        further.
    """
    from distributed import Client

    _quieten()
    try:
        client = Client(address, timeout=CONNECTING, set_as_default=False)
    except (OSError, ValueError, TypeError, ImportError) as error:
        raise ValueError(
            f"`--dask`: no scheduler answers at {address!r}: {error}; give the address "
            "that it has printed, such as tcp://10.0.0.1:8786."
        ) from error
    places = (options.out, options.store_folder, options.data)
    # What is in a bucket has one name everywhere.
    absolute = lambda path: path.absolute() if isinstance(path, pathlib.Path) else path
    out, store, data = map(absolute, places)
    own = dataclasses.replace(options, out=out, store=store, data=data, progress=False)
    task = Task(entry, config, own, code_of(entry))
    try:
        _fill(client, task, visible=options.progress)
    finally:
        client.close(timeout=CONNECTING)


def _fill(client: Any, task: Task, *, visible: bool) -> None:
    """Send tasks until no block is open."""
    from distributed import KilledWorker

    before, stalled = _state(task), 0
    is_first = before.num_open > 0 or before.failed_cells > 0
    while before.num_open or is_first:
        is_first = False
        number = max(TASKS, TASKS_PER_WORKER * _num_workers(client))
        number = min(before.num_blocks, number)
        told, failures = _send(client, task, number, visible=visible)
        now = _state(task)
        stalled = stalled + 1 if now.num_open == before.num_open else 0
        if stalled:
            are_lost = all(isinstance(error, KilledWorker) for error in failures)
            if failures and (stalled == STALLED or not are_lost):
                raise _said(failures)
            if told and now.num_open > min(own["open_blocks"] for own in told):
                raise ValueError(
                    "the workers write to another folder than"
                    f" `{task.options.store_folder}` is here: it must be one that all"
                    " machines share."
                )
        if now.num_open:  # Others hold them, or a worker that is being given up.
            time.sleep(WAIT)
        before = now
    if before.failed_cells:
        raise engine.SweepError(
            f"{before.failed_cells} cells failed, see `failures.jsonl` in"
            f" `{task.options.store_folder}`; run again to retry them, or without"
            " `--dask` to retry them here and draw the others."
        )


def _send(
    client: Any, task: Task, number: int, *, visible: bool
) -> tuple[list[dict[str, Any]], list[Exception]]:
    """Have a number of tasks done; what they returned, and why others have failed."""
    run = f"{time.time_ns():x}"
    left: dict[str, Any] = {}
    for index in range(number):
        options = dataclasses.replace(task.options, shard=(index + 1, number))
        key = f"{task.entry.id} {index + 1} of {number}-{run}"
        # What the scheduler reads on the way, which need not know this project.
        sent = pickle.dumps(_Call(dataclasses.replace(task, options=options)))
        left[key] = client.submit(pickle.loads, sent, key=key, retries=RETRIES)
    told: list[dict[str, Any]] = []
    failures: list[Exception] = []
    asked, is_told = time.monotonic(), False
    with engine.Bar(task.entry.id, visible=visible) as bar:
        bar.expect(number)
        while left:
            time.sleep(LOOK)
            states = {key: future.status for key, future in left.items()}
            if client.status != "running" or "cancelled" in states.values():
                raise LostSchedulerError(_LOST)
            if not is_told and time.monotonic() - asked >= PATIENCE:
                asked = time.monotonic()
                if is_told := not _num_workers(client):
                    log.warning("the cluster has no workers; waiting for some.")
            for key, state in states.items():
                if state == "error":
                    failures.append(_checked(left.pop(key).exception()))
                    bar.advance(1)
                elif state == "finished":
                    found = None
                    # Its worker may have ended since: what becomes of it is seen later.
                    with contextlib.suppress(Exception):
                        found = left[key].result(timeout=CONNECTING)
                    if found is not None:
                        told.append(_accepted(found))
                        del left[key]
                        bar.advance(1)
    return told, failures


class _Call:
    """Calls `work` where it is read from a pickle."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def __reduce__(self) -> tuple[Any, ...]:
        return work, (self.task,)


def _accepted(told: dict[str, Any]) -> dict[str, Any]:
    """What a task returned; raises ValueError if its worker refused."""
    if "refusal" in told:
        raise ValueError(told["refusal"])
    return told


def _checked(error: Exception) -> Exception:
    """Why a task has failed; raises ValueError if no worker like this one can do it."""
    if isinstance(error, ImportError):
        raise ValueError(
            f"a worker cannot import what it needs: {error}; start workers in the"
            " environment and the folder of this command."
        )
    return error


def _num_workers(client: Any) -> int:
    try:
        return len(client.scheduler_info(n_workers=-1)["workers"])
    except OSError as error:
        raise LostSchedulerError(_LOST) from error


def _said(failures: Sequence[Exception]) -> Exception:
    """What is said of tasks that get no further."""
    first = failures[0]
    reason = f"{type(first).__name__}: {first}"
    if isinstance(first, (ValueError, OSError)):
        return ValueError(f"a worker refuses: {first}")
    return engine.SweepError(f"{len(failures)} tasks failed, the first with {reason}")


def _state(task: Task) -> _State:
    """What the store has, as it is seen here; nothing is computed."""
    module = task.entry.load()
    if not task.entry.has_jobs:
        options = dataclasses.replace(task.options, shard=(_BEYOND, _BEYOND))
        found = jobs.share_of(task.entry, task.config, options)
        return _State(found["open_blocks"], found["blocks"], found["failed_cells"])
    every = module.jobs(task.config, task.options)
    store = task.options.store_folder
    known = [engine.progress_of(store, job.grid) for job in every]
    return _State(
        sum(own.num_open for own in known),
        sum(job.num_cells * job.grid.num_blocks for job in every),
        sum(int(np.sum(own.has_failed)) for own in known),
    )


def code_of(entry: Entry) -> dict[str, dict[str, str]]:
    """What a worker must have in common with the command that sends it tasks."""
    found = engine.sources.describe(entry.load().main)
    settings = found["settings"]
    return {
        "modules": found["modules"],
        "settings": {n: own for n, own in settings.items() if n not in _OWN},
    }


def work(task: Task) -> dict[str, Any]:
    """One task, in a worker's process: its summary, or a `refusal` that says why this
    worker cannot do it."""
    from distributed import get_worker

    worker = get_worker()
    threads = worker.state.nthreads
    if threads != 1:
        return {
            "refusal": f"worker {worker.address} has {threads} threads; start workers"
            " with one each, `--nthreads 1`, as a trial uses the cores by itself."
        }
    if task.options.devices is not None or task.entry.spreads_clients:
        engine.use_cores(task.options.devices)  # Before anything uses JAX.
    differ = engine.sources.differences(task.code, code_of(task.entry))
    if differ:
        more = f" and {len(differ) - 5} more" if len(differ) > 5 else ""
        return {
            "refusal": f"worker {worker.address} has other code than this command:"
            f" {', '.join(differ[:5])}{more}; give all machines one version."
        }
    engine.keep_programs()
    return dict(jobs.share_of(task.entry, task.config, task.options))


def _quieten() -> None:
    """Whatever dask would say of a lost scheduler or worker is said in one line."""
    for name in list(logging.root.manager.loggerDict):
        if name.split(".")[0] == "distributed":
            logging.getLogger(name).setLevel(logging.CRITICAL)
