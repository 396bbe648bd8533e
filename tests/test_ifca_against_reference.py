"""IFCA against iterates and success counts printed by its released code."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.algorithms.ifca import State, ifca
from cfljax.base.types import ClientData
from cfljax.models import linear


@pytest.fixture(scope="module")
def golden(shared):
    return json.loads((shared / "reference" / "ifca_golden.json").read_text())


def replay(record, step_size):
    """Our iterates, losses and counts from the stored data and start."""
    inputs = jnp.asarray(record["X"], jnp.float32)
    targets = jnp.asarray(record["y"], jnp.float32)
    data = ClientData(inputs, targets, jnp.ones(targets.shape, bool))
    num_clusters = record["config"]["p"]
    algorithm = ifca(
        linear(inputs.shape[2]),
        num_clusters=num_clusters,
        step_size=step_size,
    )

    def one_round(state, _):
        state, info = algorithm.step(jax.random.key(0), state, data)
        return state, (state.models, info)

    start = State(models=jnp.asarray(record["theta0"], jnp.float32))
    _, (models, info) = jax.lax.scan(
        one_round, start, None, length=len(record["iterations"])
    )
    return np.asarray(models), info


def worst_error(models, record):
    stored = np.asarray([row["theta"] for row in record["iterations"]])
    errors = np.linalg.norm(models - stored, axis=-1)
    return np.max(errors / np.linalg.norm(stored, axis=-1))


@pytest.mark.parametrize("index", [0, 1])
def test_iterates_against_reference(golden, index):
    record = golden["golden_small_trajectories"][index]
    models, info = replay(record, record["config"]["lr"])
    assert worst_error(models, record) < 1e-5
    stored = np.asarray([row["min_losses"] for row in record["iterations"]])
    np.testing.assert_allclose(np.min(info.losses, axis=2), stored, rtol=1e-5)
    for row, assignment in zip(record["iterations"], info.assignment, strict=True):
        counts = np.bincount(assignment, minlength=record["config"]["p"])
        np.testing.assert_array_equal(counts, row["counts"])


def test_another_step_size_leaves_the_reference(golden):
    record = golden["golden_small_trajectories"][0]
    models, _ = replay(record, record["config"]["lr"] * 1.001)
    assert worst_error(models, record) > 1e-5
