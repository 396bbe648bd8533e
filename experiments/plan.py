"""What an experiment would still cost on this machine, before it is started.

Products of a round are counted in its program; how fast this machine does them is
measured by one round of each network. What the store knows of a cell's time wins.
"""

import dataclasses
import functools
import math
import resource
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from cfljax import engine, report
from experiments.jobs import Job
from experiments.options import Options

# Seconds after which nothing more is traced or measured: what is left is estimated from
# what is most like it.
_COUNTING, _MEASURING = 30.0, 50.0
COLUMNS = {
    "what": "what",
    "cells": "cells",
    "done": "done",
    "rounds": "rounds each",
    "core_seconds": "core-s a round",
    "known_by": "known by",
    "core_hours": "core-hours left",
}


def plan(
    experiment: str, options: Options, jobs: Sequence[Job], *, measures: bool = True
) -> dict[str, Any]:
    """Cells, what the store has of them, and what is left; a summary for the command.

    How fast this machine is stays unknown, and so do hours, unless it `measures`.
    """
    started = time.perf_counter()
    speed = _Speed(options, started)
    table = [row for job in jobs for row in _rows(options, job, speed, measures)]
    known = [row["core_hours"] for row in table if row["core_hours"] is not None]
    left, cores = sum(known), engine.use_cores()
    cells, done = (sum(row[name] for row in table) for name in ("cells", "done"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    facts = f"{done} of {cells} cells are done"
    if measures:
        held = sum(_bytes(job, speed.outputs) for job in jobs) / 2**30
        facts += (
            f"; {left:.2f} core-hours to the end, {left / cores:.2f} hours on the"
            f" {cores} cores here; {peak:.1f} GiB of memory at the measured sizes;"
            f" results take {1024 * held:.1f} MiB"
        )
        if any(job.grid.growing(job.grid.trial) for job in jobs):
            most = engine.STATE_BYTES / 2**30
            facts += f", and states to which rounds can be added up to {most:.0f} GiB"
    if assumed := [job.name for job in jobs if job.stand_in is not None and measures]:
        facts += (
            f"; {', '.join(assumed)}: priced with numbers of the right shapes in place"
            " of the results that it needs"
        )
    return {
        "experiment": experiment,
        "headline": f"{report.markdown(table, COLUMNS)}\n{facts}",
        "files": [],
        "cells": cells,
        "done": done,
        "core_hours": left if measures else None,
        "seconds": round(time.perf_counter() - started, 2),
        "rows": table,
    }


def _rows(
    options: Options, job: Job, speed: "_Speed", measures: bool
) -> list[dict[str, Any]]:
    """One row for all cells that differ in what is traced alone, such as seeds."""
    grid = job.grid
    progress = engine.progress_of(options.store_folder, grid)
    groups: dict[Any, list[engine.Cell]] = {}
    for cell in grid.cells():
        groups.setdefault(grid.static(cell.trial), []).append(cell)
    rows = []
    for cells in groups.values():
        trial = cells[0].trial
        is_done = progress.is_done
        done = [progress.core_seconds[c.index] for c in cells if is_done[c.index]]
        row = {"what": _label(job, trial), "cells": len(cells), "done": len(done)}
        row |= {"rounds": trial.num_rounds, "core_seconds": None, "known_by": None}
        row["core_hours"] = None
        if measures:
            if done:
                seconds = statistics.median(done) / grid.num_trials
                own, source = seconds / trial.num_rounds, "the store"
            else:
                own, source = speed.of(job, trial)
            rounds = trial.num_rounds * (len(cells) - len(done)) * grid.num_trials
            row |= {"core_seconds": own, "known_by": source}
            row["core_hours"] = own * rounds / 3600
        rows.append(row)
    return rows


def _label(job: Job, trial: Any) -> str:
    """What a person calls a trial."""
    names = ("dataset", "images", "partition", "num_clients", "num_samples")
    first = [getattr(trial, name) for name in names if hasattr(trial, name)]
    every = (*filter(None, [job.name]), *first, _method(trial))
    return ", ".join(str(value) for value in every)


def _method(trial: Any) -> str:
    return getattr(trial, "method", None) or getattr(trial, "algorithm", "")


def _bytes(job: Job, outputs: Mapping[int, Mapping[str, Any]]) -> float:
    """Of the outputs of all its cells, before they are compressed."""
    sizes = {name: len(labels) for name, labels in job.grid.coords.items()}
    for dim in ("round", "tested"):
        sizes.setdefault(dim, job.grid.trial.num_rounds)
    # Axes without labels are known of what was counted.
    for name, output in outputs.get(id(job), {}).items():
        sizes |= zip(job.grid.dims[name], output.shape, strict=True)
    each = sum(
        math.prod(sizes.get(dim, 1) for dim in own) for own in job.grid.dims.values()
    )
    return 4.0 * each * job.num_cells * job.grid.num_trials


class _Speed:
    """Core-seconds of a round, of any trial."""

    def __init__(self, options: Options, started: float) -> None:
        self._options, self._started = options, started
        self._rates: dict[str, float] = {}  # Operations a core-second, by network.
        self._counts: dict[Any, float] = {}
        self._constants: tuple[Any, Any] = (None, None)
        self.outputs: dict[int, Mapping[str, Any]] = {}  # Shapes, by the job's `id`.

    def of(self, job: Job, trial: Any) -> tuple[float, str]:
        """Core-seconds, and how they are known."""
        operations, source = self._count(job, trial)
        network = str(getattr(trial, "network", ""))
        if network not in self._rates:
            if self._elapsed() < _MEASURING or not self._rates:
                self._rates[network] = self._measure(job, trial)
            else:
                self._rates[network] = min(self._rates.values())
                source = "another network's speed"
        return operations / self._rates[network], source

    def _elapsed(self) -> float:
        return time.perf_counter() - self._started

    def _count(self, job: Job, trial: Any) -> tuple[float, str]:
        """Operations of a round and its share of tests and of what is done once,
        counted or by the samples of what is most like it."""
        key = job.grid.static(trial)
        size = getattr(trial, "num_clients", 1) * getattr(trial, "num_samples", 1)
        kind = (job.name, getattr(trial, "network", None), _method(trial))
        if key not in self._counts:
            if ("alike", kind) in self._counts and self._elapsed() > _COUNTING:
                return size * self._counts["alike", kind], "samples"
            self._counts[key] = self._products(job, trial) / trial.num_rounds
            self._counts["alike", kind] = self._counts[key] / size
        return self._counts[key], "operations"

    def _products(self, job: Job, trial: Any) -> float:
        run = jax.make_jaxpr(functools.partial(job.simulate, trial), return_shape=True)
        key = jax.eval_shape(lambda: jax.random.key(0))
        program, outputs = run(key, self._shapes(job))
        self.outputs.setdefault(id(job), outputs)  # The first is no short one.
        return engine.products(program.jaxpr)

    def _made(self, job: Job) -> Any:
        if self._constants[0] is not job:
            self._constants = job, (job.stand_in or job.constants)()
        return self._constants[1]

    def _shapes(self, job: Job) -> Any:
        kind = lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
        return jax.tree.map(kind, self._made(job))

    def _measure(self, job: Job, trial: Any) -> float:
        """Operations a core-second, of the quicker of two runs of one round."""
        names = {"num_rounds", "rounds_between"}
        names &= {field.name for field in dataclasses.fields(trial)}
        short = dataclasses.replace(trial, **dict.fromkeys(names, 1))
        key, took = jax.random.key(job.grid.seed), math.inf
        for _ in range(2):  # The first also compiles.
            begin = time.process_time()
            jax.block_until_ready(job.simulate(short, key, self._made(job)))
            took = min(took, time.process_time() - begin)
            if self._elapsed() > _MEASURING:
                break
        return max(self._products(job, short), 1.0) / took
