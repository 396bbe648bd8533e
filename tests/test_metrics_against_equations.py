"""Metrics against their definitions, and what NaN and abstention may not do."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax import metrics


def labels(*values: int):
    return jnp.asarray(values, jnp.int32)


def matched_distance(models: np.ndarray, truth: np.ndarray) -> float:
    """`(1/k) sum_j ||theta_hat_j - theta*_p(j)||`, IFCA section 6.1, by definition."""
    order = range(len(models))
    return min(
        sum(float(np.linalg.norm(models[j] - truth[p[j]])) for j in order) / len(models)
        for p in itertools.permutations(order)
    )


@pytest.mark.parametrize("num_clusters", [1, 4, 6])
def test_centre_distance_against_equations(num_clusters):
    rng = np.random.default_rng(num_clusters)
    models, truth = rng.normal(size=(2, num_clusters, 7)).astype(np.float32)
    found = metrics.centre_distance(jnp.asarray(models), jnp.asarray(truth))
    expected = matched_distance(models, truth)
    assert float(found) == pytest.approx(expected, rel=1e-5)


def test_nearest_centre_distance_against_equations():
    models = jnp.array([[0.0, 1.0], [3.0, 0.0]])
    truth = jnp.array([[0.0, 0.0], [3.0, 4.0]])
    found = metrics.nearest_centre_distance(models, truth)
    assert float(found) == pytest.approx((1.0 + 3.0) / 2)
    one_to_one = metrics.centre_distance(models, truth)
    assert float(one_to_one) == pytest.approx((1.0 + 4.0) / 2)


def test_small_distances_do_not_cancel():
    """A distance of 0.01 between vectors of norm 1000 keeps its digits."""
    truth = jnp.stack([jnp.full(1000, 32.0), jnp.full(1000, -32.0)])
    models = truth.at[:, 0].add(0.0078125)  # Exact in single precision.
    found = metrics.centre_distance(models, truth)
    assert float(found) == pytest.approx(0.0078125, rel=1e-5)


@pytest.mark.parametrize(
    "distance", [metrics.centre_distance, metrics.nearest_centre_distance]
)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_diverged_model_is_never_a_success(distance, bad):
    truth = jnp.eye(3)
    found = distance(truth.at[1, 2].set(bad), truth)
    assert not math.isfinite(float(found))
    assert not bool(metrics.is_success(found, math.inf))
    control = distance(truth, truth)
    assert bool(metrics.is_success(control, 0.0))


def test_success_includes_the_threshold():
    distances = jnp.array([0.0, 0.5, 0.75, jnp.nan, jnp.inf])
    found = metrics.is_success(distances, 0.5)
    assert found.tolist() == [True, True, False, False, False]
    swept = jax.vmap(metrics.is_success, in_axes=(None, 0))
    assert swept(distances, jnp.array([0.5, 1.0])).sum(axis=1).tolist() == [2, 3]


@pytest.mark.parametrize(
    "assignment, truth, expected",
    [
        (labels(1, 1, 0, 0), labels(0, 0, 1, 1), True),
        (labels(2, 2, 0, 0), labels(0, 0, 1, 1), True),
        (labels(0, 0, 0, 0), labels(0, 0, 1, 1), False),
        (labels(0, 1, 2, 2), labels(0, 0, 1, 1), False),
        (labels(-1, -1, 0, 0), labels(0, 0, 1, 1), False),
        (labels(0, 0, 0), labels(2, 2, 2), True),
    ],
)
def test_exact_recovery_against_equations(assignment, truth, expected):
    assert bool(metrics.exact_recovery(assignment, truth)) is expected
    index = metrics.adjusted_rand_index(assignment, truth, 3)
    complete = bool(jnp.all(assignment >= 0))
    assert (float(index) == 1.0 and complete) is expected


def test_exact_recovery_of_random_labels_against_equations():
    """Same partition: any two clients are together in both or apart in both."""
    rng = np.random.default_rng(0)
    assignments, truths = rng.integers(0, 3, (2, 400, 4))
    together = assignments[:, :, None] == assignments[:, None, :]
    truly_together = truths[:, :, None] == truths[:, None, :]
    expected = np.all(together == truly_together, axis=(1, 2))
    assert 10 < expected.sum() < 390
    over_trials = jax.vmap(metrics.exact_recovery)
    found = over_trials(*(jnp.asarray(x, jnp.int32) for x in (assignments, truths)))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("num_clusters", [3, 6])
def test_matched_accuracy_against_equations(num_clusters):
    rng = np.random.default_rng(num_clusters)
    truth = rng.integers(0, num_clusters, 30)
    assignment = rng.integers(-1, num_clusters, 30)
    expected = max(
        np.mean([a >= 0 and p[a] == t for a, t in zip(assignment, truth, strict=True)])
        for p in itertools.permutations(range(num_clusters))
    )
    found = metrics.matched_accuracy(labels(*assignment), labels(*truth), num_clusters)
    assert float(found) == pytest.approx(expected)


def test_matched_accuracy_counts_abstaining_clients_as_wrong():
    truth = labels(0, 0, 1, 1)
    assert float(metrics.matched_accuracy(labels(1, 1, 0, 0), truth, 2)) == 1.0
    assert float(metrics.matched_accuracy(labels(1, -1, 0, 0), truth, 2)) == 0.75
    assert float(metrics.matched_accuracy(labels(-1, -1, -1, -1), truth, 2)) == 0.0


@pytest.mark.parametrize(
    "assignment, expected",
    [
        (labels(1, 1, 1), 1),
        (labels(0, 2, 2), 2),
        (labels(0, 1, 2), 3),
        (labels(-1, 1, 1), 1),
        (labels(-1, -1, -1), 0),
    ],
)
def test_num_used_clusters_against_equations(assignment, expected):
    assert int(metrics.num_used_clusters(assignment, 3)) == expected


def test_accuracy_of_scores_and_of_classes_against_equations():
    targets = labels(0, 1, 1, 0)
    mask = jnp.array([True, True, True, False])
    scores = jnp.array([[2.0, 1.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    assert float(metrics.accuracy(scores, targets, mask)) == pytest.approx(2 / 3)
    classes = labels(0, 1, 0, 1)
    assert float(metrics.accuracy(classes, targets, mask)) == pytest.approx(2 / 3)


def test_accuracy_never_counts_nan_as_right():
    targets, mask = labels(0, 1), jnp.array([True, True])
    scores = jnp.array([[jnp.nan, 0.0], [0.0, 1.0]])  # argmax would pick the NaN.
    assert int(jnp.argmax(scores[0])) == 0
    assert float(metrics.accuracy(scores, targets, mask)) == 0.5
    assert math.isnan(float(metrics.accuracy(scores, targets, jnp.zeros(2, bool))))


def test_misuse_is_refused():
    with pytest.raises(ValueError, match="`num_clusters`"):
        metrics.adjusted_rand_index(labels(0), labels(0), 0)
    with pytest.raises(ValueError, match="`num_clusters`"):
        metrics.num_used_clusters(labels(0), 0)
    with pytest.raises(ValueError, match="`outputs`"):
        metrics.accuracy(jnp.zeros((3, 2)), labels(0, 1), jnp.ones(2, bool))
    with pytest.raises(ValueError, match="`outputs`"):
        metrics.accuracy(jnp.zeros(2), labels(0, 1), jnp.ones(2, bool))


def test_rand_index_of_those_present_against_equations():
    assignment, truth = jnp.array([0, 0, 1, 1, -1, 0]), jnp.array([1, 1, 0, 0, 1, 0])
    present = jnp.array([True, True, True, True, False, False])
    index = jax.jit(
        lambda own: metrics.adjusted_rand_index(assignment, truth, 2, present=own)
    )
    assert float(index(present)) == 1
    everyone = float(index(jnp.ones(6, bool)))
    alone = float(metrics.adjusted_rand_index(assignment, truth, 2))
    assert everyone == alone < 1
    assert np.isnan(index(jnp.zeros(6, bool)))
