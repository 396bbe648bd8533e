"""Trials of Figure 3 by this library and by PyTorch, on the same data, in turn.

PyTorch makes all rounds of all runs, batched. This library computes each cell alone,
and all cells together as a sweep does (they share their inputs and noise).

The draw of a trial's data is timed on its own, just before: times "with data" include
it, by each one's own generator; what both then use is this library's. This library's
times "without data" are differences, and mean little where the draw is most of a trial
or the machine's load changes. Processor times are those of all cores together: the
better ones to compare where other programs use the machine.

Where runs ended is judged in the same way for both. A trial differs if, under one
criterion, one of its runs meets it and no run of the other's does; a run that this
library followed to its end differs if one of the two meets a criterion and the other
does not.
"""

import collections
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from cfljax import metrics
from cfljax.base import Truth
from cfljax.data import linear_targets
from cfljax.engine import Bar
from experiments.bench import timing
from experiments.bench.linear import TorchEnds, torch_on_data, torch_samples
from experiments.bench.timing import timed_call
from experiments.ifca.fig3_trial import (
    Trial,
    draw_data,
    draw_samples,
    draw_starts,
    draw_truth,
    simulate_jointly,
    stability_bound,
    successful,
    thresholds,
)

Way = Literal["decide", "follow"]
NAMES: Mapping[Way, str] = {
    "decide": "cfljax, until decided",
    "follow": "cfljax, all runs followed",
}
PYTORCH = "PyTorch, batched, all rounds"

# Of one cell: its trials, those with a run that succeeds under the paper's criterion,
# those whose outcome is not PyTorch's; its runs, those whose outcome is not, and those
# among them whose step size is a stable one (others end in chaos or overflow).
COUNTS = (
    "trials checked",
    "trials succeed",
    "trials differ",
    "runs checked",
    "runs differ",
    "stable runs differ",
)

Rows = list[dict[str, Any]]
# Arrays `[restart, step_size]` of one trial: those of `fig3_trial.DIMS` to be judged.
Outputs = Mapping[str, np.ndarray]


class _Job(NamedTuple):
    """One way to compute a trial of some cells."""

    what: str  # its name
    cells: tuple[int, ...]  # indices of the cells
    prepare: Callable[[int], Callable[[], Any]]  # of a trial's index; the call is timed
    judge: Callable[[int, Any], Sequence[Outputs]]  # what it returned, for each cell


def measure(
    cells: Sequence[Trial],
    step_sizes: Sequence[float],
    *,
    ways: Sequence[Way],
    num_trials: int,
    seed: int,
    progress: bool,
) -> tuple[Rows, Rows]:
    """Times all jobs in turn, trial by trial, after one trial to compile, of cells
    alike but for separation: a row a job, and seconds of every job in every trial.
    """
    jobs = list(_jobs(cells, step_sizes, ways, seed))
    records = [Record(job.what, job.cells) for job in jobs]
    pairs = list(zip(records, jobs, strict=True))
    draws = _draws(cells[0], seed)
    with Bar("comparison", visible=progress) as bar:
        bar.expect((num_trials + 1) * len(jobs))
        for draw_data in draws.values():
            draw_data(num_trials)
        for record, job in pairs:
            record.first, _, _ = timed_call(job.prepare(num_trials))
            bar.advance(1)
        for index in range(num_trials):
            # There and back, so that no job is always the one before another.
            for record, job in pairs if index % 2 else reversed(pairs):
                call = job.prepare(index)
                # Just before, since it is subtracted and the machine's load drifts.
                drawing = functools.partial(draws[job.what == PYTORCH], index)
                data, _, _ = timed_call(drawing)
                seconds, processor, found = timed_call(call)
                record.seconds.append(seconds)
                record.processor.append(processor)
                record.data.append(data)
                record.outputs.append(job.judge(index, found))
                bar.advance(1)
    return table(cells, np.asarray(step_sizes), records), _log(cells, records)


def _jobs(
    cells: Sequence[Trial], step_sizes: Sequence[float], ways: Sequence[Way], seed: int
) -> Iterator[_Job]:
    groups = [(i,) for i in range(len(cells))]
    together = [tuple(range(len(cells)))] if len(cells) > 1 else []
    for way in ways:
        for group in groups + together:
            yield _ours(cells, step_sizes, group, way, seed)
    if timing.has_torch():
        for (cell,) in groups:
            yield by_pytorch(cells[cell], step_sizes, cell, seed)


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


def by_pytorch(trial: Trial, step_sizes: Sequence[float], cell: int, seed: int) -> _Job:
    """A trial of one cell in PyTorch, whose data are drawn as the sweep draws them."""
    steps = np.asarray(step_sizes, np.float32)
    shape = (trial.num_restarts, len(steps))

    def prepare(index: int) -> Callable[[], TorchEnds]:
        drawn = draw(trial, trial_key(seed, index))
        return torch_on_data(
            np.asarray(drawn.inputs),
            np.asarray(drawn.targets),
            np.repeat(np.asarray(drawn.starts), len(steps), axis=0),
            np.tile(steps, trial.num_restarts),
            num_rounds=trial.num_rounds,
        )

    def judge(index: int, ends: TorchEnds) -> Sequence[Outputs]:
        truth, _ = _true_models(trial, trial_key(seed, index))
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
        truth, samples_key = _true_models(trial, trial_key(seed, index))
        inputs, errors = draw_samples(trial, samples_key)
        return inputs, linear_targets(inputs, errors, truth, trial.noise)

    def by_pytorch(_: int) -> Any:
        return torch_samples(trial.num_clients * trial.num_samples, trial.num_features)

    return {False: by_us} | ({True: by_pytorch} if timing.has_torch() else {})


class Drawn(NamedTuple):
    """What a trial's runs start with: X and y of every client, and models."""

    inputs: Float[Array, "clients samples features"]
    targets: Float[Array, "clients samples"]
    truth: Truth
    starts: Float[Array, "restarts clusters features"]


def trial_key(seed: int, index: int) -> PRNGKeyArray:
    """The key that a sweep gives to its trial of this index."""
    return jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), index)


@functools.partial(jax.jit, static_argnums=0)
def draw(trial: Trial, key: PRNGKeyArray) -> Drawn:
    """As `fig3_trial.simulate` draws from the same key."""
    data_key, runs_key = jax.random.split(key)
    data, truth = draw_data(trial, data_key)
    return Drawn(data.inputs, data.targets, truth, draw_starts(trial, runs_key))


def _true_models(trial: Trial, key: PRNGKeyArray) -> tuple[Truth, PRNGKeyArray]:
    """The truth of `draw` alone, and the key of its samples."""
    data_key, _ = jax.random.split(key)
    return draw_truth(trial, data_key)


@dataclasses.dataclass
class Record:
    """What was seen of a job, one entry for each trial."""

    what: str  # its name
    cells: tuple[int, ...]  # indices of the cells that it computed
    first: float = np.nan  # seconds of the call that compiles
    seconds: list[float] = dataclasses.field(default_factory=list)  # of a call
    # The same, of all cores together.
    processor: list[float] = dataclasses.field(default_factory=list)
    # Of drawing its data by its own generator.
    data: list[float] = dataclasses.field(default_factory=list)
    # Of each of its cells.
    outputs: list[Sequence[Outputs]] = dataclasses.field(default_factory=list)

    def times(self) -> dict[str, np.ndarray]:
        """Seconds of each trial with its data and without."""
        calls, data = np.array(self.seconds), np.array(self.data)
        if self.what == PYTORCH:  # Whose data are handed to it.
            return {"with data": calls + data, "without data": calls}
        return {"with data": calls, "without data": calls - data}


def table(
    cells: Sequence[Trial], step_sizes: np.ndarray, records: Sequence[Record]
) -> Rows:
    """One row for each job; ratios and counts where PyTorch did the same trials."""
    theirs = {record.cells: record for record in records if record.what == PYTORCH}
    rows = []
    for record in records:
        row = _described(cells, record)
        row |= {"trials": len(record.seconds), "first call, s": record.first}
        times = record.times()
        for name, values in times.items():
            row[f"s, {name}"] = float(np.median(values))
            row[f"total s, {name}"] = float(np.sum(values))
        row["processor s"] = float(np.median(record.processor))
        if theirs:
            same = [theirs[(cell,)] for cell in record.cells]
            row |= _ratios(times, same)
            processor = np.sum([other.processor for other in same], axis=0)
            share = float(np.median(processor)) / row["processor s"]
            row["PyTorch's processor median / this"] = share
        if theirs and record.what != PYTORCH:
            sums: collections.Counter[str] = collections.Counter()
            for place, other in enumerate(same):
                sums.update(
                    differences(
                        [outputs[place] for outputs in record.outputs],
                        [outputs[0] for outputs in other.outputs],
                        cells[record.cells[place]],
                        step_sizes,
                    )
                )
            row |= sums
        rows.append(row)
    return rows


def _ratios(times: Mapping[str, np.ndarray], same: Sequence[Record]) -> dict[str, Any]:
    """PyTorch's time over a job's, for the same trials of the same cells."""
    calls = np.sum([record.seconds for record in same], axis=0)
    # Cells that share a data set need it once.
    other = {"with data": calls + np.array(same[0].data), "without data": calls}
    return {
        f"PyTorch's {kind} / this, {name}": float(of(other[name]) / of(values))
        for name, values in times.items()
        for kind, of in (("median", np.median), ("total", np.sum))
    }


def differences(
    ours: Sequence[Outputs],
    theirs: Sequence[Outputs],
    trial: Trial,
    step_sizes: np.ndarray,
) -> collections.Counter[str]:
    """Trials and runs of one cell that were checked, and how many differ.

    Of ours, some may not have been followed to their end; of theirs, all have.
    """
    limits = thresholds(trial, trial.tolerance)
    is_stable = step_sizes < stability_bound(trial)
    counts: collections.Counter[str] = collections.Counter(dict.fromkeys(COUNTS, 0))
    for own, other in zip(ours, theirs, strict=True):
        met = [_met(one, limits) for one in (own, other)]
        by_trial = [np.any(one, axis=(1, 2)) for one in met]
        followed = own["followed"] == 1
        differ = np.any(met[0] != met[1], axis=0) & followed
        counts["trials checked"] += 1
        counts["trials succeed"] += int(by_trial[0][0])
        counts["trials differ"] += int(np.any(by_trial[0] != by_trial[1]))
        counts["runs checked"] += int(np.sum(followed))
        counts["runs differ"] += int(np.sum(differ))
        counts["stable runs differ"] += int(np.sum(differ[:, is_stable]))
    return counts


def _met(
    outputs: Outputs, limits: Mapping[str, float]
) -> Bool[np.ndarray, "criteria restart step_size"]:
    """Which criteria every run of a trial meets."""
    judged = {name: outputs[name][None] for name in ("distance", "recovered")}
    return np.concatenate(list(successful(judged, limits).values()))


def _log(cells: Sequence[Trial], records: Sequence[Record]) -> Rows:
    """Seconds of every job in every trial."""
    return [
        _described(cells, record)
        | {
            "trial": index,
            "s": seconds,
            "processor s": record.processor[index],
            "data, s": record.data[index],
        }
        for record in records
        for index, seconds in enumerate(record.seconds)
    ]


def _described(cells: Sequence[Trial], record: Record) -> dict[str, Any]:
    separations = " and ".join(f"{cells[i].separation:g}" for i in record.cells)
    return {"what": record.what, "R": separations}
