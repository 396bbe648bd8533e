"""Coverage of the intervals, summed exactly over the binomial law."""

from typing import Literal

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.stats

from cfljax import intervals

PROBABILITIES = np.concatenate([[1e-4, 0.01], np.linspace(0.03, 0.97, 33), [0.9999]])


def miss_rate(method, trials: int) -> float:
    """The largest chance, over true probabilities, that the interval misses."""
    counts = np.arange(trials + 1)
    low, high = method(counts, trials)
    masses = scipy.stats.binom.pmf(counts[:, None], trials, PROBABILITIES)
    outside = (low[:, None] > PROBABILITIES) | (high[:, None] < PROBABILITIES)
    return float(np.max(np.sum(masses * outside, axis=0)))


def clopper_pearson(error_rate: float, side: Literal["both", "low", "high"] = "both"):
    return lambda count, trials: intervals.clopper_pearson(
        count, trials, error_rate=error_rate, side=side
    )


def hoeffding(error_rate: float):
    return lambda count, trials: intervals.hoeffding(count / trials, trials, error_rate)


@pytest.mark.parametrize("trials", [1, 2, 5, 30, 400])
@pytest.mark.parametrize("error_rate", [0.2, 0.05, 1e-3])
@pytest.mark.parametrize("side", ["both", "low", "high"])
def test_clopper_pearson_misses_no_more_than_stated(trials, error_rate, side):
    assert miss_rate(clopper_pearson(error_rate, side), trials) <= error_rate


@pytest.mark.parametrize("trials", [1, 5, 30, 400])
def test_hoeffding_misses_no_more_than_stated(trials):
    assert miss_rate(hoeffding(0.05), trials) <= 0.05


@pytest.mark.parametrize("method", [clopper_pearson, hoeffding])
def test_control_a_wrong_error_rate_fails_the_coverage_check(method):
    assert miss_rate(method(0.5), 400) > 0.05


@pytest.mark.parametrize(("method", "exact"), [("wilson", "wilson"), ("cp", "exact")])
def test_against_reference_binomtest(method, exact):
    for trials in (1, 7, 60):
        for count in range(0, trials + 1, 3):
            if method == "wilson":
                found = intervals.wilson(count, trials, error_rate=0.03)
            else:
                found = intervals.clopper_pearson(count, trials, error_rate=0.03)
            reference = scipy.stats.binomtest(count, trials).proportion_ci(0.97, exact)
            np.testing.assert_allclose(found, reference, rtol=1e-9, atol=1e-15)


def test_edges_are_closed_forms():
    low, high = intervals.clopper_pearson(
        np.array([0, 50]), np.array([50, 50]), error_rate=1e-6
    )
    tail = 5e-7 ** (1 / 50)
    np.testing.assert_allclose(low, [0.0, tail], rtol=1e-12)
    np.testing.assert_allclose(high, [1 - tail, 1.0], rtol=1e-12)
    low, high = intervals.wilson(np.array([0, 50]), 50, error_rate=0.05)
    assert low[0] == 0 and high[1] == 1 and high[0] < 0.1 and low[1] > 0.9


def test_hoeffding_scales_with_the_range():
    low, high = intervals.hoeffding(5.0, 1000, 0.01, low=-10.0, high=10.0)
    unit_low, unit_high = intervals.hoeffding(0.75, 1000, 0.01)
    np.testing.assert_allclose([low, high], [unit_low * 20 - 10, unit_high * 20 - 10])


@hypothesis.given(
    st.integers(1, 10**6), st.floats(0, 1), st.floats(1e-9, 0.5), st.floats(1.01, 100)
)
@hypothesis.settings(max_examples=50, deadline=None)
def test_intervals_are_symmetric_and_nested(trials, share, error_rate, looser):
    count = round(share * trials)
    low, high = intervals.clopper_pearson(count, trials, error_rate=error_rate)
    other = intervals.clopper_pearson(trials - count, trials, error_rate=error_rate)
    np.testing.assert_allclose([low, high], [1 - other[1], 1 - other[0]], atol=1e-9)
    assert 0 <= low <= count / trials <= high <= 1
    inner = intervals.clopper_pearson(
        count, trials, error_rate=min(error_rate * looser, 0.9)
    )
    assert low <= inner[0] + 1e-12 and inner[1] <= high + 1e-12


@pytest.mark.parametrize("trials", [20, 300])
@pytest.mark.parametrize("claim", [0.0, 0.02, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("side", ["above", "both"])
def test_resolution_is_sound_and_tight(trials, claim, side):
    error_rate = 0.01
    counts = np.arange(trials + 1)
    low, high = intervals.clopper_pearson(counts, trials, error_rate=error_rate)
    flagged = low > claim
    if side == "both":
        flagged |= high < claim
    distance = float(
        intervals.resolution(claim, trials, error_rate=error_rate, side=side)
    )

    def power(true_probability):
        masses = scipy.stats.binom.pmf(counts, trials, true_probability)
        return float(np.sum(masses * flagged))

    def weakest(distance):
        truths = [claim + distance] + [claim - distance] * (side == "both")
        return min((power(one) for one in truths if 0 <= one <= 1), default=1.0)

    assert weakest(distance * (1 + 1e-9)) >= 1 - error_rate - 1e-9
    assert weakest(distance * 0.98) < 1 - error_rate


def test_resolution_is_hopeless_with_one_trial():
    assert intervals.resolution(0.3, 1, error_rate=1e-3) == pytest.approx(0.7)


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: intervals.clopper_pearson(3, 2, error_rate=0.1), "successes"),
        (lambda: intervals.clopper_pearson(-1, 2, error_rate=0.1), "successes"),
        (lambda: intervals.clopper_pearson(np.nan, 2, error_rate=0.1), "successes"),
        (lambda: intervals.clopper_pearson(0, 0, error_rate=0.1), "trials"),
        (lambda: intervals.wilson(0, 0, error_rate=0.1), "trials"),
        (lambda: intervals.clopper_pearson(0, 1, error_rate=0.0), "error_rate"),
        (lambda: intervals.wilson(0, 1, error_rate=1.0), "error_rate"),
        (lambda: intervals.hoeffding(0.5, 9, float("nan")), "error_rate"),
        (lambda: intervals.hoeffding(1.5, 9, 0.1), "mean"),
        (lambda: intervals.hoeffding(0.5, 0, 0.1), "trials"),
        (lambda: intervals.hoeffding(0.5, 9, 0.1, low=1.0, high=1.0), "low"),
        (lambda: intervals.resolution(1.5, 9, error_rate=0.1), "probability"),
        (lambda: intervals.divide(0.1, 0), "num_checks"),
        (lambda: intervals.divide(0.0, 3), "error_rate"),
    ],
)
def test_misuse_names_the_argument(call, argument):
    with pytest.raises(ValueError, match=f"^`{argument}`"):
        call()


def test_divide_shares_the_error_rate():
    assert intervals.divide(0.06, 3) == pytest.approx(0.02)
