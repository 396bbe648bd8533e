"""Coverage of the confidence sequence at all sample sizes, summed exactly.

The number of successes is a Markov chain, so the chance that an interval ever misses
is a sum over its states, without any drawing.
"""

import math
from collections.abc import Callable

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from cfljax import intervals
from cfljax.intervals import Interval

PROBABILITIES = np.concatenate([[0.0, 1e-4, 0.01], np.linspace(0.03, 0.5, 17)])
PROBABILITIES = np.concatenate([PROBABILITIES, 1 - PROBABILITIES[:-1]])
ERROR_RATE = 0.05

Method = Callable[..., Interval]


def ever_missed(method: Method, error_rate: float, horizon: int, first: int = 1):
    """Chance that an interval of `first` to `horizon` trials misses, `[probability]`.

    `alive[p, k]` is the chance of k successes under the p-th probability, with all
    intervals so far containing it.
    """
    p = PROBABILITIES[:, None]
    alive = np.ones((PROBABILITIES.size, 1))
    for trials in range(1, horizon + 1):
        failed, succeeded = alive * (1 - p), alive * p
        alive = np.pad(failed, ((0, 0), (0, 1))) + np.pad(succeeded, ((0, 0), (1, 0)))
        if trials >= first:
            counts = np.arange(trials + 1)
            low, high = method(counts, trials, error_rate=error_rate)
            alive = np.where((low <= p) & (p <= high), alive, 0.0)
    return 1 - alive.sum(axis=1)


def test_the_sequence_ever_misses_no_more_than_stated():
    missed = ever_missed(intervals.confidence_sequence, ERROR_RATE, 400)
    assert missed.max() <= ERROR_RATE
    assert missed.max() > ERROR_RATE / 10  # It is not the whole of [0, 1].


@pytest.mark.slow
@pytest.mark.parametrize("error_rate", [0.5, 0.2, 0.01, 1e-3])
def test_the_sequence_ever_misses_no_more_than_stated_for_long(error_rate):
    missed = ever_missed(intervals.confidence_sequence, error_rate, 1500)
    assert error_rate / 10 < missed.max() <= error_rate


def test_control_clopper_pearson_is_valid_once_but_not_at_all_times():
    once = ever_missed(intervals.clopper_pearson, ERROR_RATE, 400, first=400)
    always = ever_missed(intervals.clopper_pearson, ERROR_RATE, 400)
    assert once.max() <= ERROR_RATE
    assert np.median(always) > 2 * ERROR_RATE


def test_control_a_wrong_error_rate_fails_the_coverage_check():
    missed = ever_missed(intervals.confidence_sequence, 0.5, 100)
    assert missed.max() > ERROR_RATE


def bet(outcomes: list[bool], probability: float) -> float:
    """Logarithm of what is won by betting on each outcome by the past shares."""
    won, successes = 0.0, 0
    for seen, outcome in enumerate(outcomes):
        share = (successes + 0.5) / (seen + 1)
        ratio = share / probability if outcome else (1 - share) / (1 - probability)
        won += math.log(ratio)
        successes += outcome
    return won


@pytest.mark.parametrize(
    "outcomes", ["1", "0010", "1111111", "01" * 20, "1" + "0" * 99]
)
def test_the_ends_are_where_the_bets_reach_the_limit(outcomes):
    """The mixture's likelihood is the product of its predictions, one by one."""
    results = [outcome == "1" for outcome in outcomes]
    low, high = intervals.confidence_sequence(
        sum(results), len(results), error_rate=ERROR_RATE
    )
    limit = -math.log(ERROR_RATE)
    assert (low == 0) == (sum(results) == 0)
    assert (high == 1) == all(results)
    for end in (low, high):
        if 0 < end < 1:
            assert bet(results, float(end)) == pytest.approx(limit, abs=1e-8)
    middle = sum(results) / len(results)
    for inside in np.linspace(low, high, 23)[1:-1]:
        assert bet(results, float(inside)) < limit
    for outside in (low / 2, (1 + high) / 2):
        if 0 < outside < 1:
            assert bet(results, float(outside)) > limit
    assert low <= middle <= high


def test_edges_are_closed_forms():
    low, high = intervals.confidence_sequence(np.array([0, 40]), 40, error_rate=1e-3)
    mixture = math.prod((i + 0.5) / (i + 1) for i in range(40))
    tail = (1e-3 * mixture) ** (1 / 40)
    np.testing.assert_allclose(low, [0.0, tail], rtol=1e-12)
    np.testing.assert_allclose(high, [1 - tail, 1.0], rtol=1e-12)


@hypothesis.given(
    st.integers(1, 10**6), st.floats(0, 1), st.floats(1e-9, 0.5), st.floats(1.01, 100)
)
@hypothesis.settings(max_examples=50, deadline=None)
def test_sequences_are_symmetric_nested_and_monotone(trials, share, error_rate, looser):
    count = round(share * trials)
    low, high = intervals.confidence_sequence(count, trials, error_rate=error_rate)
    other = intervals.confidence_sequence(trials - count, trials, error_rate=error_rate)
    np.testing.assert_allclose([low, high], [1 - other[1], 1 - other[0]], atol=1e-9)
    assert 0 <= low <= count / trials <= high <= 1
    inner = intervals.confidence_sequence(
        count, trials, error_rate=min(error_rate * looser, 0.9)
    )
    assert low <= inner[0] + 1e-12 and inner[1] <= high + 1e-12
    after = intervals.confidence_sequence(
        np.array([count, count + 1]), trials + 1, error_rate=error_rate
    )
    slack = 1e-12
    assert after[0][0] <= low + slack and after[1][0] <= high + slack  # One failure.
    assert after[0][1] >= low - slack and after[1][1] >= high - slack  # One success.


@pytest.mark.parametrize("trials", [1, 2, 7, 40, 400])
@pytest.mark.parametrize("error_rate", [0.3, 0.05, 1e-4])
def test_the_sequence_contains_clopper_pearson(trials, error_rate):
    """What validity at all times costs, at any one of them."""
    counts = np.arange(trials + 1)
    low, high = intervals.confidence_sequence(counts, trials, error_rate=error_rate)
    fixed = intervals.clopper_pearson(counts, trials, error_rate=error_rate)
    assert np.all(low <= fixed[0] + 1e-12) and np.all(fixed[1] <= high + 1e-12)
    assert np.all(np.diff(low) > 0) and np.all(np.diff(high) > 0)
    width = high - low
    assert width.min() == pytest.approx(width[0])  # Stopping rules rely on it.


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: intervals.confidence_sequence(3, 2, error_rate=0.1), "successes"),
        (lambda: intervals.confidence_sequence(-1, 2, error_rate=0.1), "successes"),
        (lambda: intervals.confidence_sequence(0, 0, error_rate=0.1), "trials"),
        (lambda: intervals.confidence_sequence(0, 1, error_rate=0.0), "error_rate"),
        (lambda: intervals.confidence_sequence(0, 1, error_rate=np.nan), "error_rate"),
    ],
)
def test_misuse_names_the_argument(call, argument):
    with pytest.raises(ValueError, match=f"^`{argument}`"):
        call()
