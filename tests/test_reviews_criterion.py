"""The study of the 0.6 sigma criterion against numbers worked by hand."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.base.types import ClientData, Truth
from experiments.reviews import criterion


def test_oracle_table_against_numbers_by_hand():
    """sqrt(1000 / (m n / k - 1001)) with m n / k = 5000, 10000 and 1250."""
    table = criterion.exact_rows()
    assert len(table) == 5 * 3 + 5 * 3 + 7 * 3 + 5 * 3
    errors = {
        (row["panel"], row["clients"], row["samples"]): row["oracle_over_noise"]
        for row in table
    }
    expected = {
        ("a", 100, 100): math.sqrt(1000 / 3999),
        ("b", 400, 100): math.sqrt(1000 / 8999),
        ("c", 50, 50): math.sqrt(1000 / 249),
    }
    for place, error in expected.items():
        assert errors[place] == pytest.approx(error, rel=1e-12)
        clusters = 4 if place[0] == "b" else 2
        wrong = criterion.oracle_over_noise(float(place[1] * place[2]), clusters, 999)
        assert errors[place] != pytest.approx(wrong, rel=1e-4), "control: d - 1"
    reached = {row["panel"]: 0 for row in table}
    for row in table:
        reached[row["panel"]] += row["oracle_passes"]
        assert row["oracle_passes"] == (
            row["clients"] * row["samples"]
            >= (7557.6 if row["clusters"] == 2 else 15115.1)
        )
    assert reached["a"] == reached["b"] == 15


@pytest.mark.parametrize("clusters, total", [(2, 7557.5556), (4, 15115.1111)])
def test_least_samples_are_where_the_oracle_meets_the_criterion(clusters, total):
    assert criterion.least_samples(clusters, 1000) == pytest.approx(total, abs=1e-3)
    assert criterion.oracle_over_noise(total, clusters, 1000) == pytest.approx(
        0.6, rel=1e-6
    )
    without_one = clusters * 1000 * (1 + 0.6**-2)
    error = criterion.oracle_over_noise(without_one, clusters, 1000)
    assert error != pytest.approx(0.6, rel=1e-6), "control: the 1 forgotten"


def test_estimates_without_clusters_pass_where_they_must():
    """Zero iff R <= 0.6 sigma; the pooled fit, given samples, iff R <= 1.2 sigma."""
    zero = {
        (row["separation"], row["noise"])
        for row in criterion.exact_rows()
        if row["zero_passes"]
    }
    assert zero == {(0.1, 0.2), (0.1, 0.4)}
    for separation, passes in ((1.19, True), (1.21, False)):
        found = criterion.pooled_over_noise(
            1e9, 2, 1000, separation=separation, noise=1.0
        )
        assert (found <= 0.6) == passes
    assert criterion.pooled_over_noise(
        1e9, 4, 10, separation=1.0, noise=0.5
    ) == pytest.approx(2 * math.sqrt(3 / 8))


def test_kappa_against_a_table_by_hand():
    """Cohen's own kind of table: p_o = .7, p_e = .5, kappa = .4."""
    table = np.array([[20.0, 5.0], [10.0, 15.0]])
    assert criterion.cohen_kappa(table) == pytest.approx(0.4)
    assert criterion.cohen_kappa(table) != pytest.approx(0.7), "control: bare agreement"
    assert criterion.cohen_kappa(np.array([[3, 0], [0, 2]])) == pytest.approx(1)
    assert criterion.cohen_kappa(np.array([[6, 3], [4, 2]])) == pytest.approx(
        0, abs=1e-12
    )
    assert np.isnan(criterion.cohen_kappa(np.array([[5, 0], [0, 0]])))


def test_patterns_pairs_and_shares_by_hand():
    first = np.array([[True, True, False, False, False]])
    second = np.array([[True, False, False, False, True]])
    third = np.array([[True, False, True, True, False]])
    counts = criterion.patterns(first, second, third)
    np.testing.assert_array_equal(counts, [[0, 2, 1, 0, 1, 0, 0, 1]])
    np.testing.assert_array_equal(criterion.pair(counts, 0, 2), [[[1, 2], [1, 1]]])
    np.testing.assert_array_equal(criterion.pair(counts, 1, 2), [[[1, 2], [1, 1]]])
    np.testing.assert_array_equal(criterion.pair(counts, 0, 1), [[[2, 1], [1, 1]]])
    assert criterion.share(counts, 1, among=0) == pytest.approx([2 / 3])
    assert criterion.share(counts, 0, among=1) == pytest.approx([1 / 2])


def test_bootstrap_keeps_the_runs_of_a_data_set_together():
    """100 data sets of 50 like runs: the error is sqrt(p q / 100), not / 5000."""
    counts = np.zeros((100, 8))
    counts[:40, 1], counts[40:, 0] = 50, 50
    (found,) = criterion.resampled(
        np.random.default_rng(0),
        [counts],
        [lambda own: criterion.share(own, 1, among=0)],
        num_resamples=4000,
        error_rate=0.05,
    )
    assert found.value == pytest.approx(0.4)
    width = 2 * 1.96 * math.sqrt(0.4 * 0.6 / 100)
    assert found.high - found.low == pytest.approx(width, rel=0.1)


def test_verdicts_by_hand():
    """0.6 sigma = 0.06 and 1.1 x oracle = 0.11; what diverged never succeeds."""
    distance = np.array([[[0.05, 0.1, 0.12, np.nan]]])
    recovered = np.array([[[0.0, 1.0, 1.0, 1.0]]])
    arrays = {"distance": distance, "recovered": recovered, "oracle": np.array([0.1])}
    near, floor, exact = criterion.verdicts(0.1, arrays)
    np.testing.assert_array_equal(near.ravel(), [True, False, False, False])
    np.testing.assert_array_equal(floor.ravel(), [True, True, False, False])
    np.testing.assert_array_equal(exact.ravel(), [False, True, True, False])


def test_estimates_of_noiseless_clusters():
    """The oracle is exact; with each cluster's rows alike the pooled fit is the mean
    of the truths, half their distance from either."""
    rows = np.random.default_rng(1).standard_normal((10, 3)).astype(np.float32)
    truths = np.array([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0]], np.float32)
    data = ClientData(
        inputs=jnp.asarray(np.stack([rows[:5], rows[5:]] * 2).reshape(4, 5, 3)),
        targets=jnp.asarray((rows @ truths.T).T.reshape(4, 5)),
        mask=jnp.ones((4, 5), bool),
    )
    truth = Truth(models=jnp.asarray(truths), clusters=jnp.array([0, 0, 1, 1]))
    found = criterion.estimates(data, truth)
    assert float(found["oracle"]) == pytest.approx(0, abs=1e-5)
    assert float(found["pooled"]) == pytest.approx(math.sqrt(5) / 2, rel=1e-5)
    assert float(found["zero"]) == pytest.approx(1.5, rel=1e-6)
