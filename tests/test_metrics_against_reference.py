"""Metrics against scikit-learn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.metrics import accuracy_score, adjusted_rand_score

from cfljax import metrics

CASES = [
    ([0, 0, 1, 1], [0, 0, 1, 1]),
    ([1, 1, 0, 0], [0, 0, 1, 1]),
    ([0, 0, 0, 0], [0, 0, 0, 0]),
    ([0, 0, 0, 0], [0, 0, 1, 1]),
    ([0, 1, 2, 3], [3, 2, 1, 0]),
    ([0, 1, 2, 3], [0, 0, 0, 0]),
    ([-1, -1, 0, 1], [0, 0, 1, 1]),
    ([-1, -1, -1, -1], [0, 0, 1, 1]),
    ([0, 1, 0, 1], [0, 0, 1, 1]),
    ([2], [0]),
]


def index(assignment, truth, num_clusters=4) -> float:
    arrays = jnp.asarray(assignment, jnp.int32), jnp.asarray(truth, jnp.int32)
    return float(metrics.adjusted_rand_index(*arrays, num_clusters))


@pytest.mark.parametrize("assignment, truth", CASES)
def test_adjusted_rand_index_against_reference(assignment, truth):
    expected = adjusted_rand_score(truth, assignment)
    assert index(assignment, truth) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("num_clients", [10, 100, 4800])
def test_adjusted_rand_index_of_noisy_labels_against_reference(num_clients):
    rng = np.random.default_rng(num_clients)
    truth = rng.integers(0, 4, num_clients)
    for wrong in (0.0, 0.2, 0.8, 1.0):
        noise = rng.integers(-1, 4, num_clients)
        assignment = np.where(rng.random(num_clients) < wrong, noise, truth)
        expected = adjusted_rand_score(truth, assignment)
        assert index(assignment, truth) == pytest.approx(expected, abs=2e-5)


def test_adjusted_rand_index_of_different_numbers_against_reference():
    rng = np.random.default_rng(0)
    assignment, truth = rng.integers(0, 6, 50), rng.integers(0, 3, 50)
    found = metrics.adjusted_rand_index(
        jnp.asarray(assignment, jnp.int32), jnp.asarray(truth, jnp.int32), 6, 3
    )
    expected = adjusted_rand_score(truth, assignment)
    assert float(found) == pytest.approx(expected, abs=1e-6)


def test_adjusted_rand_index_sees_one_moved_client():
    """Control: a nearly equal partition is not reported as equal."""
    truth = np.arange(100) % 4
    moved = truth.copy()
    moved[0] = 1
    assert index(truth, truth) == 1.0
    assert index(moved, truth) < 0.99


def test_accuracy_against_reference():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(3, 20, 5)).astype(np.float32)
    targets = rng.integers(0, 5, (3, 20)).astype(np.int32)
    mask = rng.random((3, 20)) < 0.7
    found = metrics.accuracy(*map(jnp.asarray, (scores, targets, mask)))
    classes = scores.argmax(axis=2)
    expected = accuracy_score(targets[mask], classes[mask])
    assert float(found) == pytest.approx(expected, abs=1e-6)
    assert expected != pytest.approx(accuracy_score(targets.ravel(), classes.ravel()))


def test_batches_compile_and_equal_single_calls():
    rng = np.random.default_rng(1)
    assignments = jnp.asarray(rng.integers(0, 3, (8, 12)), jnp.int32)
    truth = jnp.asarray(rng.integers(0, 3, 12), jnp.int32)
    for metric in (metrics.adjusted_rand_index, metrics.matched_accuracy):
        over_trials = jax.vmap(metric, in_axes=(0, None, None))
        batched = jax.jit(over_trials, static_argnums=2)(assignments, truth, 3)
        single = [metric(assignment, truth, 3) for assignment in assignments]
        np.testing.assert_allclose(batched, np.array(single), rtol=1e-6)
