"""Trials of the quick preset's size four times: by exact shortcuts, in full, and by a
plain loop in float32 and float64.

Where the step size is stable for every partition that a run meets, all four agree on
every run. Where it is not, rounding grows from round to round: the plain loop differs
from itself there as soon as it computes in another precision.
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax import engine
from cfljax.algorithms import ifca
from cfljax.data import mixed_linear
from experiments.ifca.success import Trial, judge, simulate, start_task
from experiments.ifca.success_criteria import CRITERIA, sizes, successful, thresholds
from experiments.ifca.success_joint import simulate_jointly

pytestmark = pytest.mark.slow

TRIALS, TOLERANCE = 3, 0.001
EPSILON = float(np.finfo(np.float32).eps)
STEPS = {2: (1.0, 0.1, 0.01), 4: (2.0, 1.0, 0.5)}
KINDS = ("shortcuts", "full", "float32", "float64")


def cells(num_clusters: int) -> list[Trial]:
    first = Trial(
        convention="reference",
        separation=1.0,
        noise=0.1,
        num_clients=40,
        num_samples=50,
        num_clusters=num_clusters,
        num_features=200,
        num_restarts=4,
        num_rounds=300,
        init_scale=1.0,
        init_unit="one",
        normalise="all",
        resample=False,
        tolerance=TOLERANCE,
    )
    return [
        dataclasses.replace(first, convention=convention, noise=noise, separation=apart)
        for convention in ("reference", "paper")
        for noise in (0.0, 0.1)
        for apart in (0.5, 1.0)
    ]


@functools.partial(jax.jit, static_argnames="trial")
def in_full(trial, noise, separation, key, step_sizes):
    trial = dataclasses.replace(trial)
    for name, value in {"noise": noise, "separation": separation}.items():
        object.__setattr__(trial, name, value)  # Traced, as the engine has them.
    return simulate(trial, key, step_sizes)


def drawn(trial, key):
    """Data, truth and starts of a trial, by the keys of `simulate`."""
    data_key, runs_key = jax.random.split(key)
    data, truth = mixed_linear(
        data_key,
        **sizes(trial),
        separation=trial.separation,
        noise=trial.noise,
        convention=trial.convention,
    )
    first = ifca(start_task(trial), num_clusters=trial.num_clusters, step_size=0.0)
    starts = [
        engine.run(first, jax.random.fold_in(runs_key, i), data, num_rounds=0)[0].models
        for i in range(trial.num_restarts)
    ]
    return data, truth, np.stack(starts)


class Plain(NamedTuple):
    """Final models and losses of runs in float32, and the choices of every round."""

    models: np.ndarray
    losses: np.ndarray
    choices: np.ndarray


def plain(data, starts, step_sizes, *, num_rounds, kind) -> Plain:
    """Algorithm 2, line by line, in a kind of float: every start at every step size."""
    inputs, targets = (np.asarray(leaf).astype(kind) for leaf in data[:2])
    clients, samples, features = inputs.shape
    rows = inputs.reshape(-1, features)
    models = np.repeat(starts, len(step_sizes), axis=0).astype(kind)
    rates = np.tile(step_sizes, len(starts)).astype(kind)[:, None, None]
    rates = rates * kind(2 / (clients * samples))
    names = np.arange(models.shape[1])[:, None]
    choices = []
    with np.errstate(over="ignore", invalid="ignore"):
        for turn in range(num_rounds + 1):
            outputs = (models.reshape(-1, features) @ rows.T).reshape(
                *models.shape[:2], clients, samples
            )
            errors = outputs - targets
            losses = np.mean(np.square(errors), axis=3)
            finite = np.isfinite(losses)
            best = np.argmin(np.where(finite, losses, np.inf), axis=1)
            best = np.where(np.any(finite, axis=1), best, -1)
            if turn == num_rounds:
                break
            choices.append(best)
            own = best[:, None] == names
            errors = np.where(own[..., None], errors, 0).reshape(-1, len(rows))
            moved = models - rates * (errors @ rows).reshape(models.shape)
            models = np.where(np.any(own, axis=2)[..., None], moved, models)
        rounded = models.astype(np.float32), losses.astype(np.float32)
    return Plain(*rounded, np.stack(choices, axis=1))


def sharpness(data, choices, num_models, known):
    """Largest eigenvalue of `(2 / m n) X_S^T X_S` over the sets S of a run's models."""
    inputs = np.asarray(data.inputs, np.float64)
    scale = 2 / (inputs.shape[0] * inputs.shape[1])
    largest = 0.0
    for best in np.unique(choices, axis=0):
        for model in range(num_models):
            own = best == model
            if own.any() and own.tobytes() not in known:
                rows = inputs[own].reshape(-1, inputs.shape[2])
                known[own.tobytes()] = scale * np.linalg.eigvalsh(rows.T @ rows)[-1]
            largest = max(largest, known.get(own.tobytes(), 0.0))
    return largest


class Run(NamedTuple):
    """One run in all kinds: outputs of `judge`, and success under each criterion."""

    place: tuple[int, int, int]  # trial, cell, run
    num_clusters: int
    gap: float
    is_stable: bool
    distances: dict[str, float]
    successes: dict[str, dict[str, bool]]


@pytest.fixture(scope="module", params=STEPS)
def runs(request) -> list[Run]:
    steps = np.array(STEPS[request.param], np.float32)
    found = []
    for index in range(TRIALS):
        key = jax.random.fold_in(jax.random.key(0), index)
        trials = cells(request.param)
        quick = [dataclasses.replace(trial, shortcuts=True) for trial in trials]
        known: dict[bytes, float] = {}
        for cell, (trial, joint) in enumerate(
            zip(trials, simulate_jointly(quick, key, jnp.asarray(steps)), strict=True)
        ):
            found += compare(trial, joint, key, steps, known, (index, cell))
    return found


def compare(trial, joint, key, steps, known, place):
    """All runs of one trial of one cell."""
    static = dataclasses.replace(trial, noise=0.0, separation=0.0)
    full = in_full(static, trial.noise, trial.separation, key, steps)
    outputs = {"shortcuts": joint, "full": full}
    data, truth, starts = drawn(trial, key)
    judges = jax.vmap(lambda models, losses: judge(truth, models, losses.T))
    for kind in (np.float32, np.float64):
        ends = plain(data, starts, steps, num_rounds=trial.num_rounds, kind=kind)
        outputs[kind.__name__] = judges(ends.models, ends.losses)
    limits = thresholds(trial, TOLERANCE)
    flat = {
        kind: {
            name: np.asarray(own[name]).reshape(1, -1, 1)
            for name in ("distance", "recovered")
        }
        for kind, own in outputs.items()
    }
    met = {kind: successful(own, limits) for kind, own in flat.items()}
    return [
        Run(
            place=(*place, run),
            num_clusters=trial.num_clusters,
            gap=float(full["gap"]),
            is_stable=step_size * sharpness(data, own, trial.num_clusters, known) < 2,
            distances={
                kind: float(flat[kind]["distance"][0, run, 0]) for kind in KINDS
            },
            successes={
                kind: {name: bool(met[kind][name][0, run, 0]) for name in CRITERIA}
                for kind in KINDS
            },
        )
        for run, (step_size, own) in enumerate(
            zip(np.tile(steps, len(starts)), ends.choices, strict=True)
        )
    ]


def apart(run: Run, one: str, other: str) -> bool:
    """Whether distances differ by more than what float32 knows of them."""
    room = 1e-4 * run.distances[other] + 16 * EPSILON * run.gap
    return not abs(run.distances[one] - run.distances[other]) <= room


def test_stable_runs_are_the_same_in_every_kind(runs):
    stable = [run for run in runs if run.is_stable]
    assert len(stable) > len(runs) / 4
    for run in stable:
        for kind in KINDS:
            assert run.successes[kind] == run.successes["float64"], run
            assert not apart(run, kind, "float64"), run
    if runs[0].num_clusters == 2:  # With four, so few starts find none.
        for name in CRITERIA:
            assert {run.successes["full"][name] for run in stable} == {True, False}


def test_control_unstable_runs_differ_with_nothing_but_the_precision(runs):
    unstable = [run for run in runs if not run.is_stable]
    differing = {
        kind: sum(apart(run, kind, "float64") for run in unstable) for kind in KINDS[:3]
    }
    print(len(unstable), "unstable runs, apart from float64:", differing)
    assert differing["float32"] > 0


def test_every_trial_comes_as_near_in_all_kinds_or_in_none(runs):
    """Under the criteria of a distance, also where some step sizes are unstable.

    The true partition is another matter: an unstable run may meet it in its last round
    by chance, in one precision and not in the other.
    """
    trials: dict[tuple[int, int], list[Run]] = {}
    for run in runs:
        trials.setdefault(run.place[:2], []).append(run)
    differing = dict.fromkeys(CRITERIA, 0)
    for own in trials.values():
        for name in CRITERIA:
            kinds = {any(run.successes[kind][name] for run in own) for kind in KINDS}
            differing[name] += len(kinds) > 1
    print(len(trials), "trials, different in some kind:", differing)
    assert differing["paper"] == differing["floor"] == 0
