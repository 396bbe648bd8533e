"""The success experiment's outcomes, floors and counts on cases worked by hand."""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from cfljax import metrics
from cfljax.data import mixed_linear
from cfljax.kernels.distance import bottleneck_distance, least_distance
from experiments.ifca.success import DIMS, Trial, simulate
from experiments.ifca.success_criteria import (
    oracle_floor,
    outcome_shares,
    stability_bound,
)
from experiments.ifca.success_table import counts

SIZES: dict[str, Any] = {
    "num_clients": 10,
    "num_samples": 20,
    "num_clusters": 2,
    "num_features": 30,
}
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


def test_oracle_floor_against_theory():
    """Mean square error of least squares with known clusters, over 200 data sets."""

    def draw(key):
        settings: Any = {"separation": 1.0, "noise": 0.2, "convention": "reference"}
        return mixed_linear(key, **settings, **SIZES)

    many, truths = jax.vmap(draw)(jax.random.split(jax.random.key(0), 200))
    inputs = np.asarray(many.inputs).reshape(400, 100, 30)  # one row per cluster
    targets = np.asarray(many.targets).reshape(400, 100)
    models = np.asarray(truths.models).reshape(400, 30)
    errors = [
        np.sum((np.linalg.lstsq(x, y)[0] - theta) ** 2)
        for x, y, theta in zip(inputs, targets, models, strict=True)
    ]
    floor = oracle_floor(noise=0.2, **SIZES) ** 2
    error = np.std(errors, ddof=1) / math.sqrt(len(errors))
    assert abs(np.mean(errors) - floor) < 5 * error
    assert abs(np.mean(errors) - 1.2 * floor) > 5 * error


def test_oracle_floor_needs_enough_rows():
    few = SIZES | {"num_samples": 6}
    assert oracle_floor(noise=0.2, **few) == math.inf


def test_stability_bound_against_theory():
    """Descent with known clusters converges below the bound and not above it."""
    sizes = SIZES | {"num_samples": 400}
    bound = stability_bound(**sizes)
    data, truth = mixed_linear(
        jax.random.key(0), separation=1.0, noise=0.0, convention="reference", **sizes
    )
    x = np.asarray(data.inputs)[np.asarray(truth.clusters) == 0].reshape(-1, 30)
    curvature = np.linalg.eigvalsh(x.T @ x / len(x))[-1]

    def factor(step_size):
        return abs(1 - 2 * step_size / 2 * curvature)  # 2 gamma / k on the Gram matrix

    assert factor(0.95 * bound) < 1 < factor(1.05 * bound)


def test_bottleneck_matching_by_hand():
    left = jnp.array([[0.0], [10.0], [4.0]])
    right = jnp.array([[9.0], [1.0], [7.0]])
    np.testing.assert_allclose(bottleneck_distance(left, right), 3.0)
    assert jnp.isnan(bottleneck_distance(left.at[0].set(jnp.nan), right))
    np.testing.assert_allclose(least_distance(right), 2.0)


@pytest.fixture(scope="module")
def outputs():
    """Of one trial at two step sizes."""
    return compiled(jax.random.key(0), jnp.array([0.5, 0.1]))


@jax.jit
def compiled(key, step_sizes):
    return simulate(TRIAL, key, step_sizes)


def test_a_simulated_trial_has_the_declared_outputs(outputs):
    sizes = {"restart": 3, "step_size": 2}
    for name, dims in DIMS.items():
        assert outputs[name].shape == tuple(sizes[dim] for dim in dims), name
    assert bool(jnp.all(outputs["nearest_distance"] <= outputs["distance"] + 1e-5))
    assert bool(jnp.all(outputs["alpha"] < 0.5))


def test_starts_do_not_depend_on_the_step_sizes(outputs):
    one = compiled(jax.random.key(0), jnp.array([0.1]))["distance"]
    two = outputs["distance"]
    np.testing.assert_allclose(one[:, 0], two[:, 1], rtol=1e-4, atol=1e-5)
    assert not np.allclose(two[:, 0], two[:, 1], rtol=1e-4, atol=1e-5)


def cell():
    """Four runs of one trial: found, diverged, collapsed, missed; a fifth is NaN."""
    run = ("trial", "restart", "step_size")
    return xr.Dataset(
        {
            "distance": (run, [[[0.01], [9.0], [2.0], [1.0], [np.nan]]]),
            "loss": (run, [[[0.1], [50.0], [3.0], [1.0], [0.1]]]),
            "used_clusters": (run, [[[2], [2], [1], [2], [1]]]),
            "first_loss": (("trial", "restart"), [[5.0] * 5]),
            "followed": (run, [[[1.0]] * 5]),
        }
    )


def test_shares_are_of_the_runs_that_were_followed():
    some = cell()
    some["followed"].values[0, 2:] = 0
    success = np.isfinite(some["distance"].values) & (some["distance"].values <= 0.05)
    shares = outcome_shares(some, success)
    assert (shares["share_succeeded"], shares["share_diverged"]) == (0.5, 0.5)
    some["followed"].values[...] = 0
    assert np.all(np.isnan(list(outcome_shares(some, success).values())))


def test_outcomes_are_exclusive_and_complete():
    distance = cell()["distance"].values
    shares = outcome_shares(cell(), np.isfinite(distance) & (distance <= 0.05))
    assert shares == {
        "share_succeeded": 0.2,
        "share_collapsed": 0.2,
        "share_diverged": 0.4,
        "share_missed": 0.2,
    }


def test_not_a_number_is_never_a_success():
    assert not bool(metrics.is_success(jnp.array(jnp.nan), jnp.inf))


def test_counts_by_trial_restart_and_step_size():
    success = np.zeros((4, 3, 2), bool)
    success[0, 0] = True  # both step sizes of one restart
    success[1, 1, 0] = success[1, 2, 1] = True
    columns = counts(success, "", np.array([1.0, 0.1]), 0.05)
    assert (columns["successes"], columns["restart_successes"]) == (2, 3)
    assert columns["successes_step_1"] == columns["successes_step_0.1"] == 2
    assert columns["restart_successes_step_1"] == 2
    assert columns["low"] == pytest.approx(0.0676, abs=1e-3)
    assert columns["high"] == pytest.approx(0.9324, abs=1e-3)


@pytest.mark.parametrize(
    ("clients", "samples", "features"), [(40, 50, 200), (20, 40, 900)]
)
def test_a_trial_needs_at_most_twice_its_data(clients, samples, features):
    trial = dataclasses.replace(
        TRIAL, num_clients=clients, num_samples=samples, num_features=features
    )
    program = jax.jit(functools.partial(simulate, trial))
    step_sizes = jnp.array([1.0, 0.1, 0.01])
    plan = program.lower(jax.random.key(0), step_sizes).compile().memory_analysis()
    assert plan is not None
    data = 4 * clients * samples * (features + 1)
    assert data < plan.temp_size_in_bytes < 2 * data
