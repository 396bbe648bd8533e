"""How the work of one trial of one cell grows with m, n and d.

Without shortcuts it is `4 m n d` operations for each model and round: in proportion
to each of them by construction, which its time is held against. With shortcuts it is
what is left: the products with all samples (columns), `2 m n d` each, the rounds by
Gram matrices, `2 d^2` each, and the groups' Gram matrices, `2 m n d^2` once. Matrices
of other sets of clients are built on the way and not counted; time has it all. How
long clients keep changing their choices depends on the sizes too, so the slopes with
shortcuts are those of this problem at this separation, not laws.
"""

import dataclasses
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from cfljax import shortcuts
from cfljax.engine.progress import Bar
from experiments.bench.fig3_data import draw, trial_key
from experiments.ifca.success import Trial, simulate

__all__ = ["Measured", "measure", "rows", "slopes"]

AXES = {"m": "num_clients", "n": "num_samples", "d": "num_features"}
FULL, SHORT = "all rounds", "with shortcuts"
QUANTITIES = (
    f"s, {FULL}",
    f"operations, {FULL}",
    f"s, {SHORT}",
    f"operations, {SHORT}",
)


class Measured(NamedTuple):
    """One size.

    trial: its parameters.
    num_runs: restarts x step sizes.
    seconds_full: of each trial, data included, as compiled by the engine.
    seconds: the same with shortcuts.
    work: what that took.
    """

    trial: Trial
    num_runs: int
    seconds_full: list[float]
    seconds: list[float]
    work: list[shortcuts.Work]

    @property
    def product(self) -> float:
        """m n d."""
        own = self.trial
        return float(own.num_clients * own.num_samples * own.num_features)

    def values(self) -> dict[str, list[float]]:
        """`QUANTITIES` of every trial."""
        full = [2 * self.product * work.full for work in self.work]
        return dict(
            zip(
                QUANTITIES,
                (self.seconds_full, full, self.seconds, self._operations()),
                strict=True,
            )
        )

    def _operations(self) -> list[float]:
        features = self.trial.num_features
        return [
            2 * self.product * (work.forward + work.backward + features)
            + 2 * features**2 * work.frozen
            for work in self.work
        ]


def measure(
    trials: Sequence[Trial],
    step_sizes: Sequence[float],
    *,
    num_trials: int,
    seed: int,
    progress: bool,
) -> list[Measured]:
    """Times trials of every size both ways in turn, after one of each to compile.

    Args:
      trials: one for each size.
      step_sizes: gamma, one run for each restart.
      num_trials: at each size.
      seed: of the trials.
      progress: whether to draw a bar.
    """
    steps = jnp.asarray(step_sizes, jnp.float32)
    keys = [trial_key(seed, index) for index in range(num_trials)]
    found = []
    with Bar("scaling", visible=progress) as bar:
        bar.expect(len(trials) * (num_trials + 1))
        for trial in trials:
            full = _all_rounds(trial, steps)
            seconds_full, seconds, work = [], [], []
            for key in (trial_key(seed, num_trials), *keys):
                seconds_full.append(_timed(full, key)[0])
                own, done = _timed(lambda k, t=trial: _shortcut(t, k, steps), key)
                seconds.append(own)
                work.append(done)
                bar.advance(1)
            runs = trial.num_restarts * len(steps)
            found.append(Measured(trial, runs, seconds_full[1:], seconds[1:], work[1:]))
    return found


def _all_rounds(trial: Trial, steps: jax.Array) -> Callable[[PRNGKeyArray], Any]:
    plain = dataclasses.replace(trial, shortcuts=False)
    program = jax.jit(lambda key, steps: simulate(plain, key, steps))
    return lambda key: program(key, steps)


def _shortcut(trial: Trial, key: PRNGKeyArray, steps: jax.Array) -> shortcuts.Work:
    drawn = draw(trial, key)
    samples = shortcuts.prepare(
        drawn.inputs, drawn.targets[None], np.asarray(drawn.truth.clusters)
    )
    number = len(steps)
    starts = np.repeat(np.asarray(drawn.starts), number, axis=0)
    ends = shortcuts.run_ifca(
        samples,
        starts,
        np.zeros(len(starts), int),
        np.tile(np.asarray(steps), trial.num_restarts),
        num_rounds=trial.num_rounds,
    )
    return ends.work


def _timed(job: Callable[[PRNGKeyArray], Any], key: PRNGKeyArray) -> tuple[float, Any]:
    started = time.perf_counter()
    found = jax.block_until_ready(job(key))
    return time.perf_counter() - started, found


def rows(sizes: Sequence[Measured]) -> list[dict[str, Any]]:
    """One row for each size, medians over trials."""
    return [_row(own) for own in sizes]


def _row(own: Measured) -> dict[str, Any]:
    each = own.num_runs * own.trial.num_rounds
    middle = lambda values: statistics.median(values)
    row: dict[str, Any] = {
        letter: getattr(own.trial, field) for letter, field in AXES.items()
    }
    row |= {name: middle(values) for name, values in own.values().items()}
    row[f"ns / (m n d), {FULL}"] = 1e9 * middle(own.seconds_full) / own.product
    row[f"ns / (m n d), {SHORT}"] = 1e9 * middle(own.seconds) / own.product
    for name, counts in _counts(own.work).items():
        row[f"{name} per run and round"] = middle(counts) / each
    return row


def _counts(work: Sequence[shortcuts.Work]) -> Mapping[str, list[int]]:
    return {
        f"columns, {FULL}": [one.full for one in work],
        f"columns, {SHORT}": [one.forward + one.backward for one in work],
        "rounds by Gram matrices": [one.frozen for one in work],
    }


def slopes(sizes: Sequence[Measured]) -> list[dict[str, Any]]:
    """Log-log slopes along m, n and d: of every trial, their median and range.

    A slope is that of the least-squares line through all sizes of an axis.
    """
    found = []
    for letter, field in AXES.items():
        own = _along(sizes, field)
        if len(own) < 2:
            continue
        at = np.log([getattr(size.trial, field) for size in own])
        for quantity in QUANTITIES:
            values = np.log([size.values()[quantity] for size in own])
            fitted = np.polyfit(at, values, 1)[0]  # Of every trial at once.
            found.append(
                {
                    "quantity": quantity,
                    "along": letter,
                    "from": getattr(own[0].trial, field),
                    "to": getattr(own[-1].trial, field),
                    "slope": float(np.median(fitted)),
                    "lowest": float(np.min(fitted)),
                    "highest": float(np.max(fitted)),
                }
            )
    return found


def _along(sizes: Sequence[Measured], field: str) -> list[Measured]:
    """Sizes that differ from the one in common along this field, ascending."""
    names = list(AXES.values())
    others = [name for name in names if name != field]
    shape = lambda size: tuple(getattr(size.trial, name) for name in others)
    shapes = [shape(size) for size in sizes]
    most = max(shapes, key=shapes.count)
    own = [size for size, seen in zip(sizes, shapes, strict=True) if seen == most]
    return sorted(own, key=lambda size: getattr(size.trial, field))
