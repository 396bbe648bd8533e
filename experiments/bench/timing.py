"""What benchmarks share: times of jobs in turn, whether PyTorch is there, one table.

All jobs are timed in turn, so that whatever drifts drifts for all of them.
"""

import importlib.util
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments.options import Options

Rows = list[dict[str, Any]]

BUSY = 0.25  # Load of each core at the start, from which times are not judged.


class Times(NamedTuple):
    """Seconds of each repeat of a job."""

    wall: np.ndarray  # on the clock
    # Of all cores together, with what threads spend on waiting for each other in a
    # loop; the better one where other programs use the machine.
    processor: np.ndarray

    @property
    def median(self) -> float:
        """On the clock."""
        return float(np.median(self.wall))


def timed(
    jobs: Mapping[str, Callable[[], Any]],
    *,
    repeats: int,
    seconds: int | float = math.inf,
    is_warm: bool = False,
) -> dict[str, Times]:
    """Times of every job, all in turn, after a call each unless all `is_warm`; at least
    one repeat, none that starts after so many seconds.
    """
    found: dict[str, list[tuple]] = {name: [] for name in jobs}
    for job in () if is_warm else jobs.values():
        job()
    begun = time.perf_counter()
    for repeat in range(repeats):
        if repeat and time.perf_counter() - begun > seconds:
            break
        for name, job in jobs.items():
            started = time.perf_counter(), time.process_time()
            job()
            ended = time.perf_counter(), time.process_time()
            found[name].append(tuple(np.subtract(ended, started)))
    return {name: Times(*np.array(pairs).T) for name, pairs in found.items()}


def timed_call(call: Callable[[], Any]) -> tuple[float, float, Any]:
    """Seconds on the clock, of all cores together, and what was returned."""
    import jax  # Which processes that have PyTorch alone do without.

    started, before = time.perf_counter(), time.process_time()
    found = jax.block_until_ready(call())
    return time.perf_counter() - started, time.process_time() - before, found


def is_busy() -> bool:
    """Whether other programs use this machine, so that times say little."""
    return os.getloadavg()[0] > BUSY * (os.cpu_count() or 1)


def has_torch() -> bool:
    """Whether PyTorch is installed, an optional extra."""
    return importlib.util.find_spec("torch") is not None


def pytorch() -> Any:
    """PyTorch, imported where it is needed."""
    import torch  # pyright: ignore[reportMissingImports]  # an optional extra

    return torch


def headline(
    settings: str, tables: Mapping[str, Rows], notes: Sequence[str] = ()
) -> str:
    """All tables that have rows under their titles, for people."""
    from cfljax import report  # Which processes whose memory is measured do without.

    shown = [
        f"{title}\n\n{report.markdown(rows)}".rstrip()
        for title, rows in tables.items()
        if rows
    ]
    return "\n\n".join([settings, *shown, *notes]) + "\n"


def one_table(
    benchmark: str, settings: str, table: Rows, options: Options
) -> dict[str, Any]:
    """Write a benchmark's only table; its summary for the command line."""
    from cfljax import report

    path = options.out / "table.csv"
    report.write_csv(path, table)
    return {
        "benchmark": benchmark,
        "settings": settings,
        "headline": f"{settings}\n\n{report.markdown(table)}",
        "files": [str(path)],
        "rows": table,
    }
