"""Sweeps that stop at a precision: the same by one worker and by two."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax import engine, intervals
from experiments.ifca.precision import stopping_rule
from experiments.ifca.success import DIMS, Trial
from experiments.ifca.success_table import AXES, rows

TRIAL = Trial(
    convention="reference",
    separation=1.0,
    noise=0.2,
    num_clients=10,
    num_samples=20,
    num_clusters=2,
    num_features=30,
    num_restarts=2,
    num_rounds=60,
    init_scale=1.0,
    init_unit="one",
    normalise="all",
    resample=False,
)
WIDTH, ERROR_RATE = 0.4, 0.05
GRID = engine.Grid(
    experiment="precision",
    trial=TRIAL,
    axes={axis: (getattr(TRIAL, axis),) for axis in AXES}
    | {"separation": (0.0, 0.5, 1.0)},
    num_trials=95,
    dims=DIMS,
    coords={"step_size": [1.0]},
)


def simulate(trial, key, constants):
    """Succeeds with chance `separation`; the other run always diverges."""
    is_success = jax.random.bernoulli(key, trial.separation)
    distance = jnp.full((2, 1), jnp.nan).at[0, 0].set(jnp.where(is_success, 0.0, 1.0))
    run = dict.fromkeys(
        ("recovered", "used_clusters", "loss", "followed"), jnp.ones((2, 1))
    )
    start = dict.fromkeys(("first_loss", "alpha"), jnp.ones(2))
    both = {"distance": distance, "nearest_distance": distance}
    return both | run | start | {"gap": jnp.float32(1.0)}


def sweep(folder, **more):
    enough = stopping_rule(
        WIDTH,
        tolerance=0.0,
        error_rate=ERROR_RATE,
        num_cells=math.prod(GRID.shape),
        num_trials=GRID.num_trials,
    )
    path = folder / "results.zarr"
    return engine.sweep(GRID, simulate, path, enough=enough, progress=False, **more)


def table(results):
    return rows(results, TRIAL, tolerance=0.0, error_rate=ERROR_RATE, sequential=True)


def test_cells_stop_at_the_first_block_that_is_precise(tmp_path):
    results = sweep(tmp_path / "whole")
    found = table(results)
    surely, maybe = [found[0], found[2]], found[1]
    assert [row["successes"] for row in surely] == [0, surely[1]["trials"]]
    assert maybe["trials"] > surely[0]["trials"] == surely[1]["trials"]
    distances = results["distance"].values[0, :, 0, 0, 0, :, 0, 0]
    for row, distance in zip(found, distances, strict=True):
        assert row["high"] - row["low"] < WIDTH or row["trials"] == GRID.num_trials
        assert np.isfinite(distance).sum() == row["trials"]
        before = row["trials"] - 10
        earlier = intervals.confidence_sequence(
            int(np.sum(distance[:before] == 0)), before, error_rate=ERROR_RATE / 3
        )
        assert earlier[1] - earlier[0] >= WIDTH
        assert row["share_diverged"] == 0.5


@pytest.mark.slow
def test_two_workers_find_the_same_table(tmp_path):
    first = sweep(tmp_path / "two", shard=(1, 2))
    assert 0 < first.attrs["open_blocks"] < 30
    assert sweep(tmp_path / "two", shard=(2, 2)).attrs["open_blocks"] == 0
    found = [table(sweep(tmp_path / name)) for name in ("two", "whole")]
    assert str(found[0]) == str(found[1])
