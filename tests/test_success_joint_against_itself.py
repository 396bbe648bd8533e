"""Trials computed together, by exact shortcuts, against trials one by one in full."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.types import Truth
from experiments.ifca.success import DIMS, Trial, judge, simulate
from experiments.ifca.success_criteria import (
    CRITERIA,
    stability_bound,
    successful,
    thresholds,
)
from experiments.ifca.success_criteria import sizes as sizes_of
from experiments.ifca.success_joint import (
    _surely_met,
    promise,
    shares,
    simulate_jointly,
)

TOLERANCE = 0.001
TRIAL = Trial(
    convention="reference",
    separation=1.0,
    noise=0.2,
    num_clients=16,
    num_samples=20,
    num_clusters=2,
    num_features=30,
    num_restarts=2,
    num_rounds=60,
    init_scale=1.0,
    init_unit="one",
    normalise="all",
    resample=False,
    tolerance=TOLERANCE,
)
CELLS = [
    dataclasses.replace(TRIAL, convention=convention, noise=noise)
    for convention in ("reference", "paper")
    for noise in (0.0, 0.2)
]
# No set of clients is unstable below 1 / (1 + sqrt(d / (m n)))^2 = 0.59.
STEPS = np.array([0.1, 0.5], np.float32)
SEEDS = (0, 1)
EPSILON = float(np.finfo(np.float32).eps)


@functools.partial(jax.jit, static_argnames="convention")
def in_full(convention, noise, key, step_sizes):
    trial = dataclasses.replace(TRIAL, convention=convention)
    object.__setattr__(trial, "noise", noise)  # Traced, as the engine has it.
    return simulate(trial, key, step_sizes)


def one_by_one(seed, steps=STEPS):
    key = jax.random.key(seed)
    runs = [in_full(cell.convention, cell.noise, key, steps) for cell in CELLS]
    return [{name: np.asarray(values) for name, values in run.items()} for run in runs]


def together(seed, steps=STEPS, cells=CELLS, **changes: Any):
    changes = {"shortcuts": True} | changes
    own = [dataclasses.replace(cell, **changes) for cell in cells]
    return simulate_jointly(own, jax.random.key(seed), jnp.asarray(steps))


def flags(cell, outputs):
    """Success of each run under each criterion, `[restart, step_size]`."""
    one = {name: values[None] for name, values in outputs.items()}
    every = successful(one, thresholds(cell, TOLERANCE))
    return {name: own[0] for name, own in every.items()}


@pytest.fixture(scope="module")
def full():
    return {seed: one_by_one(seed) for seed in SEEDS}


@pytest.fixture(scope="module")
def joint():
    return {seed: together(seed) for seed in SEEDS}


def disagreements(theirs, ours):
    """Names of the outputs that differ by more than their rounding.

    Distances and root losses are sums of differences of numbers as large as the gap
    between the true models: they are known to a few units of the last place of that.
    """
    found = []
    for name in DIMS:
        one, other = theirs[name], ours[name]
        if name in ("loss", "first_loss"):
            one, other = np.sqrt(one), np.sqrt(other)
        room = 16 * EPSILON * theirs["gap"]
        if not np.allclose(one, other, rtol=1e-5, atol=room, equal_nan=True):
            found.append(name)
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_all_outputs_are_those_of_trials_in_full(full, joint, seed):
    for theirs, ours in zip(full[seed], joint[seed], strict=True):
        assert list(theirs) and set(theirs) == set(ours) == set(DIMS)
        for name in DIMS:
            assert theirs[name].shape == ours[name].shape, name
            assert theirs[name].dtype == ours[name].dtype, name
        assert disagreements(theirs, ours) == []


def test_control_other_trials_and_other_cells_disagree(full, joint):
    of_runs = {"distance", "nearest_distance", "loss", "first_loss", "alpha"}
    assert of_runs <= set(disagreements(full[0][0], joint[1][0]))
    assert "distance" in disagreements(full[0][0], joint[0][1])  # Another noise.
    assert of_runs <= set(disagreements(full[0][0], joint[0][2]))  # Convention.


def test_a_diverged_run_is_recorded_and_never_succeeds():
    steps = np.array([0.5, 50.0], np.float32)
    full, joint = one_by_one(0, steps), together(0, steps)
    for cell, theirs, ours in zip(CELLS, full, joint, strict=True):
        assert np.all(np.isinf(theirs["loss"][:, 1]))
        assert np.all(np.isinf(ours["loss"][:, 1]))
        assert np.all(ours["followed"] == 1)
        for name in CRITERIA:
            assert not np.any(flags(cell, ours)[name][:, 1])


@pytest.mark.parametrize("chosen", [[0], [3, 1]])
def test_the_set_of_cells_changes_nothing(joint, chosen):
    alone = together(0, cells=[CELLS[i] for i in chosen])
    for i, ours in zip(chosen, alone, strict=True):
        assert disagreements(joint[0][i], ours) == []


def test_shares_tells_which_trials_draw_the_same_inputs():
    same = {
        "convention": "paper",
        "separation": 0.5,
        "noise": 0.1,
        "init_scale": 2.0,
        "init_unit": "separation",
        "tolerance": 0.0,
    }
    other = {
        "num_clients": 8,
        "num_samples": 10,
        "num_clusters": 4,
        "num_features": 20,
        "num_restarts": 3,
        "num_rounds": 30,
        "normalise": "cluster",
        "resample": True,
        "shortcuts": True,
    }
    fields = {field.name for field in dataclasses.fields(Trial)}
    assert fields == {*same, *other, "decide"}
    for name, value in same.items():
        assert shares(dataclasses.replace(TRIAL, **{name: value})) == shares(TRIAL)
    for name, value in other.items():
        assert shares(dataclasses.replace(TRIAL, **{name: value})) != shares(TRIAL)
    by_shortcuts = dataclasses.replace(TRIAL, shortcuts=True)
    deciding = dataclasses.replace(by_shortcuts, decide=True)
    assert shares(deciding) != shares(by_shortcuts)


def test_promise_by_hand():
    """The largest stable step size first, then smaller ones, unstable ones last."""
    assert 0.9 < stability_bound(**sizes_of(TRIAL)) < 1.0
    turns = promise(TRIAL, np.array([0.01, 1.0, 0.9, 5.0, 0.1]))
    assert turns.tolist() == [2, 3, 0, 4, 1]


@pytest.fixture(scope="module")
def decided():
    return {seed: together(seed, decide=True) for seed in SEEDS}


def test_trials_that_are_decided_early_succeed_as_they_would(full, decided):
    seen = {name: set() for name in CRITERIA}
    for seed in SEEDS:
        for cell, theirs, ours in zip(CELLS, full[seed], decided[seed], strict=True):
            expected, found = flags(cell, theirs), flags(cell, ours)
            for name in CRITERIA:
                assert np.any(expected[name]) == np.any(found[name]), (cell, name)
                seen[name].add(bool(np.any(found[name])))
    assert all(values == {True, False} for values in seen.values())


def test_runs_that_are_left_alone_are_not_a_number(joint, decided):
    left = 0
    for seed in SEEDS:
        for cell, every, ours in zip(CELLS, joint[seed], decided[seed], strict=True):
            alone = ours["followed"] == 0
            left += np.sum(alone)
            for name in set(DIMS) - {"followed"}:
                if DIMS[name] == DIMS["followed"]:
                    assert np.array_equal(np.isnan(ours[name]), alone), name
                    both = (
                        np.where(alone, 0, every[name]),
                        np.where(alone, 0, ours[name]),
                    )
                    np.testing.assert_allclose(*both, rtol=1e-4, atol=1e-5)
            met = {name: np.any(own) for name, own in flags(cell, ours).items()}
            assert not np.any(alone) or all(met.values())
            assert np.all(every["followed"] == 1)
    assert left > 0


@pytest.mark.parametrize(
    ("losses", "is_recovered"),
    [
        ([[0.1, 0.5, np.inf], [0.5, 0.1, 0.2]], True),
        ([[0.1, 0.5, np.inf], [0.5, 0.1, np.inf]], False),  # Client 2 has no model.
        ([[0.1, np.inf, np.inf], [np.inf, np.inf, np.inf]], False),
    ],
)
def test_what_decides_a_trial_is_what_is_judged(losses, is_recovered):
    truth = Truth(jnp.array([0, 1, 1]), jnp.array([[1.0], [-1.0]]))
    models, losses = np.full((2, 1), 9.0, np.float32), np.array(losses, np.float32)
    met = _surely_met(truth, models, losses, {"paper": 0.1, "floor": 0.1})
    assert met == ["recovery"] * is_recovered
    judged = judge(truth, jnp.asarray(models), jnp.asarray(losses.T))
    assert bool(judged["recovered"]) == is_recovered


def test_models_too_far_to_measure_decide_nothing():
    truth = Truth(jnp.array([0, 1]), jnp.array([[1.0, 1.0], [-1.0, -1.0]]))
    losses = np.array([[0.1, 0.5], [0.5, 0.1]], np.float32)
    models = np.full((2, 2), 3e38, np.float32)
    assert _surely_met(truth, models, losses, {"paper": 0.1}) == []
    distance = judge(truth, jnp.asarray(models), jnp.asarray(losses.T))["distance"]
    assert not np.isfinite(distance)


def test_a_run_that_is_given_up_fails_as_it_would():
    """At a step size that is far too large; what else it has may be earlier."""
    steps = np.array([0.1, 500.0], np.float32)
    ours, theirs = together(0, steps, decide=True), one_by_one(0, steps)
    lost = 0
    for cell, found, expected in zip(CELLS, ours, theirs, strict=True):
        is_followed = found["followed"] == 1
        lost += np.sum(is_followed[:, 1])
        for name, flag in flags(cell, found).items():
            assert np.array_equal(
                flag[is_followed], flags(cell, expected)[name][is_followed]
            )
        diverged = ~(found["loss"] <= found["first_loss"][:, None])
        assert np.all(diverged[:, 1][is_followed[:, 1]])
    assert lost > 0
