"""Exact shortcuts refuse what they cannot mean, in words."""

from typing import Any

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from cfljax.montecarlo import prepare, run_ifca

CLIENTS, SAMPLES, FEATURES, RUNS = 4, 3, 2, 2
INPUTS = jnp.ones((CLIENTS, SAMPLES, FEATURES))
TARGETS = jnp.ones((1, CLIENTS, SAMPLES))


@pytest.fixture(autouse=True)
def checks_of_our_own():
    """What users meet: the type checker of the tests would speak first."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="module")
def samples():
    return prepare(INPUTS, TARGETS, np.array([0, 0, 1, 1]))


def run(samples, **changed):
    arguments: dict[str, Any] = {
        "starts": np.ones((RUNS, 2, FEATURES), np.float32),
        "problems": np.zeros(RUNS, int),
        "step_sizes": np.full(RUNS, 0.1),
        "num_rounds": 0,
    }
    return run_ifca(samples, **(arguments | changed))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"num_rounds": -1}, "`num_rounds` must be at least 0, got -1"),
        ({"columns": 0}, "`columns` must be at least 1, got 0"),
        ({"normalise": "none"}, "`normalise` must be in .*cluster.*got .none."),
        ({"starts": np.ones((RUNS, 2, 3), np.float32)}, "must have 2 features, got 3"),
        ({"problems": np.zeros(3, int)}, "must be of 2 runs, got 3 and 2"),
        ({"step_sizes": np.ones(1)}, "must be of 2 runs, got 2 and 1"),
        ({"problems": np.array([0, 1])}, "rows of the 1 targets, got 0 to 1"),
        ({"problems": np.array([-1, 0])}, "rows of the 1 targets, got -1 to 0"),
        ({"turns": np.zeros(3, int)}, "`turns` must be of 2 runs, got 3"),
    ],
)
def test_runs_that_cannot_be(samples, changed, words):
    with pytest.raises(ValueError, match=words):
        run(samples, **changed)


@pytest.mark.parametrize("name", ["inputs", "targets"])
def test_samples_must_be_of_single_precision(name):
    groups = np.array([0, 0, 1, 1])
    with jax.enable_x64(True):
        values = {"inputs": INPUTS, "targets": TARGETS}
        values[name] = values[name].astype(float)
        with pytest.raises(ValueError, match=f"`{name}` must be float32, got float64"):
            prepare(values["inputs"], values["targets"], groups)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_samples_must_be_finite(value):
    clusters = np.array([0, 0, 1, 1])
    for inputs, targets in (
        (INPUTS.at[0, 0, 0].set(value), TARGETS),
        (INPUTS, TARGETS.at[0, 3, 2].set(value)),
    ):
        with pytest.raises(ValueError, match="`inputs` and `targets` must be finite"):
            prepare(inputs, targets, clusters)


def test_the_same_call_without_fault_runs(samples):
    assert np.all(run(samples, turns=np.zeros(RUNS, int)).is_done)


@pytest.mark.parametrize(
    ("targets", "clusters", "words"),
    [
        (TARGETS[:, :3], [0, 0, 1, 1], "of 4 clients with 3 samples"),
        (TARGETS[:, :, :2], [0, 0, 1, 1], "of 4 clients with 3 samples"),
        (TARGETS, [0, 0, 1], "of 4 clients with 3 samples"),
        (TARGETS, [0, 0, 2, 2], "must use every number"),
    ],
)
def test_samples_that_do_not_fit(targets, clusters, words):
    with pytest.raises(ValueError, match=words):
        prepare(INPUTS, targets, np.array(clusters))
