"""Trials of Figure 3 by this library and by PyTorch, on the same data, in turn.

PyTorch makes all rounds of all runs, batched. This library computes each cell alone,
and all cells together as a sweep does (they share their inputs and noise).

The draw of a trial's data is timed on its own, just before: times "with data" include
it, by each one's own generator; what both then use is this library's. This library's
times "without data" are differences, and mean little where the draw is most of a trial
or the machine's load changes. Processor times are those of all cores together: the
better ones to compare where other programs use the machine.
"""

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cfljax import metrics, shortcuts
from cfljax.data.linear import linear_targets
from cfljax.engine.progress import Bar
from experiments.bench import fig3_outcomes, torch_linear
from experiments.bench.fig3_data import draw, trial_key, true_models
from experiments.bench.fig3_outcomes import NAMES, PYTORCH, Outputs, Record, Rows, Way
from experiments.ifca.success import Trial
from experiments.ifca.success_joint import simulate_jointly

__all__ = ["Comparison", "measure"]


class Comparison(NamedTuple):
    """What was measured.

    table: one row for each of the jobs.
    trials: seconds of every job in every trial.
    """

    table: Rows
    trials: Rows


class _Job(NamedTuple):
    """One way to compute a trial of some cells.

    what: name.
    cells: indices of the cells.
    prepare: `index -> call`; what is timed is the call.
    judge: `(index, what the call returned) -> outputs` of each of the cells.
    """

    what: str
    cells: tuple[int, ...]
    prepare: Callable[[int], Callable[[], Any]]
    judge: Callable[[int, Any], Sequence[Outputs]]


def measure(
    cells: Sequence[Trial],
    step_sizes: Sequence[float],
    *,
    ways: Sequence[Way],
    num_trials: int,
    seed: int,
    progress: bool,
) -> Comparison:
    """Times all jobs in turn, trial by trial, after one trial to compile.

    Args:
      cells: alike but for the separation.
      step_sizes: gamma, one run for each restart.
      ways: of this library.
      num_trials: how many, at the sweep's own keys.
      seed: of the trials.
      progress: whether to draw a bar.
    """
    jobs = list(_jobs(cells, step_sizes, ways, seed))
    records = [Record(job.what, job.cells) for job in jobs]
    draws = _draws(cells[0], seed)
    with Bar("comparison", visible=progress) as bar:
        bar.expect((num_trials + 1) * len(jobs))
        for draw_data in draws.values():
            draw_data(num_trials)
        for record, job in zip(records, jobs, strict=True):
            record.first, _, _ = _timed(job.prepare(num_trials))
            bar.advance(1)
        pairs = list(zip(records, jobs, strict=True))
        for index in range(num_trials):
            # There and back, so that no job is always the one before another.
            for record, job in pairs if index % 2 else reversed(pairs):
                call = job.prepare(index)
                # Just before, since it is subtracted and the machine's load drifts.
                data = _seconds(draws[job.what == PYTORCH], index)
                seconds, processor, found = _timed(call)
                record.seconds.append(seconds)
                record.processor.append(processor)
                record.data.append(data)
                record.outputs.append(job.judge(index, found))
                bar.advance(1)
    steps = np.asarray(step_sizes)
    return Comparison(
        fig3_outcomes.table(cells, steps, records), fig3_outcomes.log(cells, records)
    )


def _timed(call: Callable[[], Any]) -> tuple[float, float, Any]:
    """Seconds on the clock, of all cores together, and what was returned."""
    started, before = time.perf_counter(), time.process_time()
    found = jax.block_until_ready(call())
    return time.perf_counter() - started, time.process_time() - before, found


def _seconds(job: Callable[[int], Any], index: int) -> float:
    return _timed(lambda: job(index))[0]


def _jobs(
    cells: Sequence[Trial], step_sizes: Sequence[float], ways: Sequence[Way], seed: int
) -> Iterator[_Job]:
    groups = [(i,) for i in range(len(cells))]
    together = [tuple(range(len(cells)))] if len(cells) > 1 else []
    for way in ways:
        for group in groups + together:
            yield _ours(cells, step_sizes, group, way, seed)
    if torch_linear.available():
        for (cell,) in groups:
            yield _by_pytorch(cells[cell], step_sizes, cell, seed)


def _ours(
    cells: Sequence[Trial],
    step_sizes: Sequence[float],
    group: tuple[int, ...],
    way: Way,
    seed: int,
) -> _Job:
    trials = [dataclasses.replace(cells[i], decide=way == "decide") for i in group]
    steps = jnp.asarray(step_sizes, jnp.float32)

    def prepare(index: int) -> Callable[[], Any]:
        key = trial_key(seed, index)
        return lambda: simulate_jointly(trials, key, steps)

    return _Job(NAMES[way], group, prepare, lambda _, found: found)


def _by_pytorch(
    trial: Trial, step_sizes: Sequence[float], cell: int, seed: int
) -> _Job:
    steps = np.asarray(step_sizes, np.float32)
    shape = (trial.num_restarts, len(steps))

    def prepare(index: int) -> Callable[[], torch_linear.Ends]:
        drawn = draw(trial, trial_key(seed, index))
        return torch_linear.on_data(
            np.asarray(drawn.inputs),
            np.asarray(drawn.targets),
            np.repeat(np.asarray(drawn.starts), len(steps), axis=0),
            np.tile(steps, trial.num_restarts),
            num_rounds=trial.num_rounds,
        )

    def judge(index: int, ends: torch_linear.Ends) -> Sequence[Outputs]:
        truth, _ = true_models(trial, trial_key(seed, index))
        distance = jax.vmap(metrics.centre_distance, in_axes=(0, None))
        recovery = jax.vmap(metrics.exact_recovery, in_axes=(0, None))
        assignment = jnp.asarray(ends.assignment.astype(np.int32))
        found = {
            "distance": distance(jnp.asarray(ends.models), truth.models),
            "recovered": recovery(assignment, truth.clusters),
        }
        return [{name: np.asarray(own).reshape(shape) for name, own in found.items()}]

    return _Job(PYTORCH, (cell,), prepare, judge)


def _draws(trial: Trial, seed: int) -> dict[bool, Callable[[int], Any]]:
    """Inputs, noise and targets of a trial; by PyTorch's generator under True.

    PyTorch's draw has no targets: they cost a product with one model.
    """

    def by_us(index: int) -> Any:
        truth, samples_key = true_models(trial, trial_key(seed, index))
        inputs, errors = shortcuts.draw_samples(
            samples_key,
            num_clients=trial.num_clients,
            num_samples=trial.num_samples,
            num_features=trial.num_features,
        )
        return inputs, linear_targets(inputs, errors, truth, trial.noise)

    def by_pytorch(_: int) -> Any:
        rows = trial.num_clients * trial.num_samples
        return torch_linear.samples(rows, trial.num_features)

    return {False: by_us} | ({True: by_pytorch} if torch_linear.available() else {})
