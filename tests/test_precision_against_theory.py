"""The stopping rule of a cell: what it counts, and what its intervals are worth."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from cfljax import intervals
from experiments.ifca.precision import (
    Precision,
    describe,
    least_trials,
    stopping_rule,
)
from experiments.ifca.success import Trial

TRIAL = Trial(
    convention="reference",
    separation=1.0,
    noise=0.2,
    num_clients=10,
    num_samples=20,
    num_clusters=2,
    num_features=30,
    num_restarts=3,
    num_rounds=60,
    init_scale=1.0,
    init_unit="one",
    normalise="all",
    resample=False,
)
LIMIT = 0.6 * 0.2 + 0.001  # The paper's criterion with its tolerance.
GRID: dict[str, Any] = {"tolerance": 0.001, "error_rate": 0.05, "num_cells": 20}
BLOCK = 10


def outputs(best, recovered=0.0):
    """Of one run per trial that ends at a distance, beside runs that diverged."""
    distance = np.full((len(best), 3, 2), np.nan, np.float32)
    distance[:, 1, 0] = best
    distance[:, 2, 1] = np.inf
    return {"distance": distance, "recovered": np.full(distance.shape, recovered)}


def stops_after(best, **changes) -> int | None:
    """The first block's end at which the rule has enough of these trials."""
    usual: dict[str, Any] = {"width": 0.2, "tolerance": 0.001, "error_rate": 0.01}
    rule = Precision(**(usual | changes))
    ends = range(BLOCK, len(best) + 1, BLOCK)
    return next((n for n in ends if rule.enough(outputs(best[:n]), TRIAL)), None)


def shortest(successes: float, width=0.2, error_rate=0.01) -> int:
    """The first block's end at which the interval of a share is short enough."""
    for trials in range(BLOCK, 10_000, BLOCK):
        low, high = intervals.confidence_sequence(
            round(successes * trials), trials, error_rate=error_rate
        )
        if high - low < width:
            return trials
    raise AssertionError


@pytest.mark.parametrize(
    ("best", "share"),
    [
        ([LIMIT - 1e-4], 1.0),
        ([LIMIT + 1e-4], 0.0),
        ([np.nan], 0.0),
        ([-np.inf], 0.0),
        ([0.0, 9.0], 0.5),
    ],
)
def test_it_stops_where_the_interval_of_the_successes_is_short(best, share):
    found = stops_after(np.resize(best, 1000))
    assert found == shortest(share)
    assert shortest(0.0) == shortest(1.0) < shortest(0.5)


def test_it_depends_on_every_part_of_the_precision():
    best = np.zeros(1000)
    usual = stops_after(best)
    assert usual is not None
    for changes, later in (
        ({"width": 0.1}, True),
        ({"error_rate": 1e-4}, True),
        ({"width": 0.4}, False),
    ):
        found = stops_after(best, **changes)
        assert found is not None and (found > usual) == later
    near = np.resize([LIMIT + 1e-4, 9.0], 1000)
    assert stops_after(near, tolerance=0.01) == shortest(0.5) > shortest(0.0)


def test_the_criterion_decides_what_is_counted():
    best = np.resize([0.0, 1.0], 60)  # Half succeed by distance; all are recovered.
    rule = Precision(0.3, 0.001, 0.01)
    assert not rule.enough(outputs(best, 1.0), TRIAL)
    other = dataclasses.replace(rule, criterion="recovery")
    assert other.enough(outputs(best, 1.0), TRIAL)


def test_no_trials_are_never_enough():
    assert not Precision(1.0, 0.0, 0.5).enough(outputs([]), TRIAL)


def missed_when_stopped(method, width: float, error_rate: float, horizon: int = 400):
    """The largest chance, over probabilities, to miss where a cell stops."""
    p = np.linspace(0.01, 0.99, 50)[:, None]
    missed, alive = np.zeros(len(p)), np.ones((len(p), 1))
    for trials in range(1, horizon + 1):
        alive = np.pad(alive * (1 - p), ((0, 0), (0, 1))) + np.pad(
            alive * p, ((0, 0), (1, 0))
        )
        if trials % BLOCK:
            continue
        low, high = method(np.arange(trials + 1), trials, error_rate=error_rate)
        stops = (high - low < width) | (trials == horizon)
        outside = (low > p) | (high < p)
        missed += np.sum(alive * (stops & outside), axis=1)
        alive = np.where(stops, 0.0, alive)
    return missed.max()


def test_a_cell_that_stops_misses_no_more_than_stated():
    """Clopper-Pearson, the control, misses more often when it stops this way."""
    ours = missed_when_stopped(intervals.confidence_sequence, 0.3, 0.05)
    control = missed_when_stopped(intervals.clopper_pearson, 0.3, 0.05)
    assert 0 < ours <= 0.05 < control


def test_the_error_rate_is_shared_by_the_cells():
    rule = stopping_rule(0.2, **GRID, num_trials=1000)
    assert rule is not None
    needed = shortest(1.0, error_rate=0.05 / 20)
    assert not rule(outputs(np.zeros(needed - BLOCK)), TRIAL)
    assert rule(outputs(np.zeros(needed)), TRIAL)
    assert needed > shortest(1.0, error_rate=0.05)
    assert stopping_rule(None, **GRID, num_trials=1) is None


@pytest.mark.parametrize("width", [1.0, 0.37, 0.02])
def test_the_fewest_trials_are_the_fewest(width):
    least = least_trials(width, error_rate=0.01)
    for trials, is_short in ((least, True), (least - 1, False)):
        if trials:
            counts = np.arange(trials + 1)
            low, high = intervals.confidence_sequence(counts, trials, error_rate=0.01)
            assert bool(np.any(high - low < width)) == is_short


def test_a_precision_out_of_reach_is_refused():
    least = least_trials(0.2, error_rate=0.05 / 20)
    assert stopping_rule(0.2, **GRID, num_trials=least)
    message = f"`precision` 0.2 needs {least} trials or more in each of 20 cells"
    with pytest.raises(ValueError, match=message):
        stopping_rule(0.2, **GRID, num_trials=least - 1)
    with pytest.raises(ValueError, match="or more in each"):
        stopping_rule(1e-300, **GRID, num_trials=10**6)


@pytest.mark.parametrize(
    ("changes", "argument"),
    [
        ({"width": 0.0}, "precision"),
        ({"width": 1.1}, "precision"),
        ({"width": math.nan}, "precision"),
        ({"tolerance": -1.0}, "tolerance"),
        ({"tolerance": math.inf}, "tolerance"),
        ({"error_rate": 1.0}, "error_rate"),
        ({"criterion": "distance"}, "criterion"),
    ],
)
def test_misuse_names_the_argument(changes, argument):
    usual: dict[str, Any] = {"width": 0.2, "tolerance": 0.0, "error_rate": 0.05}
    with pytest.raises(ValueError, match=f"^`{argument}`"):
        Precision(**(usual | changes))


def test_the_legend_tells_the_trials_and_how_many_cells_are_precise():
    cell = {"interval": "confidence sequence", "low": 0.0, "high": 0.1}
    table = [
        cell | {"trials": 20},
        cell | {"trials": 100, "high": 0.3},
        {"interval": "confidence sequence", "trials": 0, "failed": True},
    ]
    text = describe(table, error_rate=0.05, width=0.2)
    assert "confidence sequence, 95 % for all 3 cells together" in text
    assert "20 to 100 trials a cell, 1 of 3 intervals narrower than 0.2" in text
    assert describe(table[:1], error_rate=0.05, width=None).endswith("20 trials a cell")
    assert describe(table[2:], error_rate=0.05, width=None).endswith("0 trials a cell")
