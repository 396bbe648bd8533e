"""Metrics: definitions, scikit-learn, SciPy, and what NaN and abstention may not do."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import accuracy_score, adjusted_rand_score

from cfljax import metrics
from cfljax.clustering.distances import match_clusters

# One program each, as in a compiled trial, where each operation alone would be one.
DISTANCE, NEAREST, RECOVERY = map(
    jax.jit,
    (
        metrics.centre_distance,
        metrics.nearest_centre_distance,
        metrics.exact_recovery,
    ),
)
INDEX = jax.jit(metrics.adjusted_rand_index, static_argnums=(2, 3))
MATCHED = jax.jit(metrics.matched_accuracy, static_argnums=2)


# Against equations
def labels(*values):
    return jnp.asarray(values, jnp.int32)


@pytest.mark.parametrize("num_clusters", [1, 4, 6])
def test_centre_distance_against_equations(num_clusters):
    """`(1/k) sum_j ||theta_hat_j - theta*_p(j)||`, IFCA section 6.1, by definition."""
    rng = np.random.default_rng(num_clusters)
    models, truth = rng.normal(size=(2, num_clusters, 7)).astype(np.float32)
    found = DISTANCE(jnp.asarray(models), jnp.asarray(truth))
    expected = min(
        np.linalg.norm(models - truth[list(permutation)], axis=1).mean()
        for permutation in itertools.permutations(range(num_clusters))
    )
    assert float(found) == pytest.approx(expected, rel=1e-5)


def test_nearest_centre_distance_against_equations():
    models = jnp.array([[0.0, 1.0], [3.0, 0.0]])
    truth = jnp.array([[0.0, 0.0], [3.0, 4.0]])
    found = NEAREST(models, truth)
    assert float(found) == pytest.approx((1.0 + 3.0) / 2)
    one_to_one = DISTANCE(models, truth)
    assert float(one_to_one) == pytest.approx((1.0 + 4.0) / 2)


def test_small_distances_do_not_cancel():
    """A distance of 0.01 between vectors of norm 1000 keeps its digits."""
    truth = jnp.stack([jnp.full(1000, 32.0), jnp.full(1000, -32.0)])
    models = truth.at[:, 0].add(0.0078125)  # Exact in single precision.
    found = DISTANCE(models, truth)
    assert float(found) == pytest.approx(0.0078125, rel=1e-5)


@pytest.mark.parametrize("distance", [DISTANCE, NEAREST], ids=["matched", "nearest"])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_diverged_model_is_never_a_success(distance, bad):
    truth = jnp.eye(3)
    found = distance(truth.at[1, 2].set(bad), truth)
    assert not math.isfinite(float(found))
    assert not bool(metrics.is_success(found, math.inf))
    assert bool(metrics.is_success(distance(truth, truth), 0.0))  # Control.


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
    assert bool(RECOVERY(assignment, truth)) is expected
    index = INDEX(assignment, truth, 3)
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
    found = jax.vmap(RECOVERY)(labels(*assignments), labels(*truths))
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
    found = MATCHED(labels(*assignment), labels(*truth), num_clusters)
    assert float(found) == pytest.approx(expected)


def test_matched_accuracy_counts_abstaining_clients_as_wrong():
    truth = labels(0, 0, 1, 1)
    assert float(MATCHED(labels(1, 1, 0, 0), truth, 2)) == 1.0
    assert float(MATCHED(labels(1, -1, 0, 0), truth, 2)) == 0.75
    assert float(MATCHED(labels(-1, -1, -1, -1), truth, 2)) == 0.0


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


def test_rand_index_of_those_present_against_equations():
    assignment, truth = jnp.array([0, 0, 1, 1, -1, 0]), jnp.array([1, 1, 0, 0, 1, 0])
    present = jnp.array([True, True, True, True, False, False])
    index = jax.jit(
        lambda own: metrics.adjusted_rand_index(assignment, truth, 2, present=own)
    )
    assert float(index(present)) == 1
    everyone = float(index(jnp.ones(6, bool)))
    alone = float(INDEX(assignment, truth, 2))
    assert everyone == alone < 1
    assert np.isnan(index(jnp.zeros(6, bool)))


# Against reference
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


def index(assignment, truth, *numbers: int) -> float:
    arrays = jnp.asarray(assignment, jnp.int32), jnp.asarray(truth, jnp.int32)
    return float(INDEX(*arrays, *(numbers or (4,))))


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
    expected = adjusted_rand_score(truth, assignment)
    assert index(assignment, truth, 6, 3) == pytest.approx(expected, abs=1e-6)


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


@pytest.mark.long
def test_batches_compile_and_equal_single_calls():
    rng = np.random.default_rng(1)
    assignments = jnp.asarray(rng.integers(0, 3, (8, 12)), jnp.int32)
    truth = jnp.asarray(rng.integers(0, 3, 12), jnp.int32)
    for metric in (metrics.adjusted_rand_index, metrics.matched_accuracy):
        over_trials = jax.vmap(metric, in_axes=(0, None, None))
        batched = jax.jit(over_trials, static_argnums=2)(assignments, truth, 3)
        single = [metric(assignment, truth, 3) for assignment in assignments]
        np.testing.assert_allclose(batched, np.array(single), rtol=1e-6)


# The one-to-one matching of clusters, against reference
MATCH = jax.jit(match_clusters)


def total(cost: np.ndarray, permutation: np.ndarray) -> float:
    return float(cost[np.arange(len(cost)), permutation].sum())


def random_costs(num_clusters: int, *leading: int) -> np.ndarray:
    shape = (*leading, num_clusters, num_clusters)
    return np.random.default_rng(num_clusters).normal(size=shape).astype(np.float32)


@pytest.mark.long
@pytest.mark.parametrize("num_clusters", range(1, 9))
def test_least_total_cost_against_reference(num_clusters):
    costs = random_costs(num_clusters, 20)
    found = jax.jit(jax.vmap(match_clusters))(jnp.asarray(costs))
    for cost, permutation in zip(costs, np.asarray(found), strict=True):
        assert sorted(permutation) == list(range(num_clusters))
        best = total(cost, linear_sum_assignment(cost)[1])
        assert total(cost, permutation) == pytest.approx(best, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("num_clusters", [3, 7])
def test_reversed_matching_is_worse(num_clusters):
    """Control: the comparison above tells a wrong matching from the right one."""
    cost = random_costs(num_clusters)
    permutation = np.asarray(MATCH(cost))
    best = total(cost, linear_sum_assignment(cost)[1])
    assert total(cost, permutation[::-1]) > best + 1e-3


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("num_clusters", [2, 5, 7])
def test_bad_rows_take_what_is_left_against_reference(num_clusters, bad):
    cost = random_costs(num_clusters)
    cost[1] = bad
    permutation = np.asarray(MATCH(cost))
    assert sorted(permutation) == list(range(num_clusters))
    kept = np.delete(cost, 1, axis=0)  # scipy accepts more columns than rows.
    rows, columns = linear_sum_assignment(kept)
    found = total(kept, np.delete(permutation, 1))
    assert found == pytest.approx(float(kept[rows, columns].sum()), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("num_clusters", [3, 7])
def test_fewest_bad_pairs_even_if_all_others_are_dear(num_clusters):
    """Avoiding one NaN is worth any finite cost, also near the largest number."""
    cost = np.full((num_clusters, num_clusters), 3e38, np.float32)
    np.fill_diagonal(cost, -3e38)
    cost[0, 0] = np.nan
    permutation = np.asarray(MATCH(cost))
    assert permutation[0] != 0


@pytest.mark.parametrize("num_clusters", [2, 7])
def test_nothing_finite_still_gives_a_permutation(num_clusters):
    cost = jnp.full((num_clusters, num_clusters), jnp.nan)
    assert sorted(np.asarray(MATCH(cost))) == list(range(num_clusters))


# Against misuse
def accuracy_of(outputs):
    return metrics.accuracy(outputs, labels(0, 1), jnp.ones(2, bool))


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: index([0], [0], 0), "`num_clusters`"),
        (lambda: metrics.num_used_clusters(labels(0), 0), "`num_clusters`"),
        (lambda: accuracy_of(jnp.zeros((3, 2))), "`outputs`"),
        (lambda: accuracy_of(jnp.zeros(2)), "`outputs`"),
        (lambda: match_clusters(jnp.zeros((0, 0))), r"`cost` .* shape \(0, 0\)"),
    ],
)
def test_misuse_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
