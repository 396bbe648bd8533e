"""Coverage of intervals: exact sums over the binomial law, and properties."""

import functools
import math
from collections.abc import Callable
from typing import Literal

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.stats
from properties import always

from cfljax import intervals
from cfljax.intervals import Interval

# Of one sample size, against sums over the binomial law

PROBABILITIES = np.concatenate([[0.0, 1e-4, 0.01], np.linspace(0.03, 0.5, 17)])
PROBABILITIES = np.concatenate([PROBABILITIES, 1 - PROBABILITIES[:-1]])


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


def test_divide_shares_the_error_rate():
    assert intervals.divide(0.06, 3) == pytest.approx(0.02)


# The confidence sequence at all sample sizes, as a Markov chain

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


@pytest.mark.long
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


def test_control_a_wrong_error_rate_fails_the_check_at_all_times():
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


def test_edges_of_the_sequence_are_closed_forms():
    low, high = intervals.confidence_sequence(np.array([0, 40]), 40, error_rate=1e-3)
    mixture = math.prod((i + 0.5) / (i + 1) for i in range(40))
    tail = (1e-3 * mixture) ** (1 / 40)
    np.testing.assert_allclose(low, [0.0, tail], rtol=1e-12)
    np.testing.assert_allclose(high, [1 - tail, 1.0], rtol=1e-12)


@hypothesis.given(st.integers(1, 10**6), st.floats(0, 1), st.floats(1e-9, 0.5))
@hypothesis.settings(max_examples=50, deadline=None)
def test_the_sequence_follows_its_outcomes(trials, share, error_rate):
    count, slack = round(share * trials), 1e-12
    interval = functools.partial(intervals.confidence_sequence, error_rate=error_rate)
    low, high = interval(count, trials)
    after = interval(np.array([count, count + 1]), trials + 1)
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


# Of normal means, and of slopes


@pytest.fixture
def generator():
    return np.random.default_rng(3)


def test_student_covers_a_normal_mean(generator):
    values = 3 + generator.standard_normal((4000, 5))
    low, high = intervals.student(values, error_rate=0.1)
    missed = int(np.sum((low > 3) | (high < 3)))
    bounds = intervals.clopper_pearson(missed, 4000, error_rate=1e-6)
    assert bounds[0] <= 0.1 <= bounds[1]
    assert np.all(np.isnan(intervals.student(np.array([1.0, np.nan]), error_rate=0.1)))


def test_slope_finds_a_power_law(generator):
    x = np.log(np.logspace(0, 3, 7))
    y = -0.5 * x + 0.01 * generator.standard_normal((40, 7))
    low, high = intervals.slope(x, y, error_rate=1e-6)
    assert low < -0.5 < high and high - low < 0.02
    exact = intervals.slope(x, np.stack([2 * x, 2 * x + 1]), error_rate=0.1)
    np.testing.assert_allclose(exact, 2.0, rtol=1e-12)


# Properties of all

BINOMIAL = (intervals.clopper_pearson, intervals.confidence_sequence)
RATES = st.floats(1e-9, 0.5)  # One-sided, a higher one need not contain the estimate.


@pytest.mark.parametrize("method", BINOMIAL)
@hypothesis.given(
    st.integers(1, 10**6), st.floats(0, 1), st.floats(1e-9, 0.5), st.floats(1.01, 100)
)
@hypothesis.settings(max_examples=50, deadline=None)
def test_intervals_are_symmetric_and_nested(method, trials, share, error_rate, looser):
    count = round(share * trials)
    low, high = method(count, trials, error_rate=error_rate)
    other = method(trials - count, trials, error_rate=error_rate)
    np.testing.assert_allclose([low, high], [1 - other[1], 1 - other[0]], atol=1e-9)
    assert 0 <= low <= count / trials <= high <= 1
    inner = method(count, trials, error_rate=min(error_rate * looser, 0.9))
    assert low <= inner[0] + 1e-12 and inner[1] <= high + 1e-12


@always(
    successes=st.integers(0, 999),
    failures=st.integers(0, 999),
    error_rate=RATES,
    wider=st.floats(0.01, 1),
    side=st.sampled_from(("both", "low", "high")),
)
def test_an_interval_follows_its_counts(successes, failures, error_rate, wider, side):
    trials = successes + failures + 1
    interval = lambda count, rate, side=side: np.array(
        intervals.clopper_pearson(count, trials, error_rate=rate, side=side)
    )
    here = interval(successes, error_rate)
    assert 0 <= here[0] <= successes / trials <= here[1] <= 1
    assert np.all(interval(successes + 1, error_rate) >= here)
    low, high = interval(successes, error_rate * wider)
    assert low <= here[0] and here[1] <= high
    mirror = {"both": "both", "low": "high", "high": "low"}[side]
    there = interval(trials - successes, error_rate, mirror)
    np.testing.assert_allclose(here, 1 - there[::-1], rtol=0, atol=1e-9)


@always(
    mean=st.floats(0, 1), trials=st.integers(1, 10**6), rate=RATES, more=st.floats(1, 9)
)
def test_an_interval_of_a_mean_shrinks_with_trials(mean, trials, rate, more):
    low, high = intervals.hoeffding(mean, trials, rate)
    assert 0 <= low <= mean <= high <= 1
    inner = intervals.hoeffding(mean, trials * more, rate)
    assert low <= inner[0] and inner[1] <= high
    inner = intervals.hoeffding(mean, trials, min(rate * more, 0.99))
    assert low <= inner[0] and inner[1] <= high


# Against misuse


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        *(
            (functools.partial(method, *counts, error_rate=error_rate), argument)
            for method in BINOMIAL
            for counts, error_rate, argument in (
                ((3, 2), 0.1, "successes"),
                ((-1, 2), 0.1, "successes"),
                ((np.nan, 2), 0.1, "successes"),
                ((0, 0), 0.1, "trials"),
                ((0, 1), 0.0, "error_rate"),
                ((0, 1), np.nan, "error_rate"),
            )
        ),
        (lambda: intervals.wilson(0, 0, error_rate=0.1), "trials"),
        (lambda: intervals.wilson(0, 1, error_rate=1.0), "error_rate"),
        (lambda: intervals.hoeffding(0.5, 9, float("nan")), "error_rate"),
        (lambda: intervals.hoeffding(1.5, 9, 0.1), "mean"),
        (lambda: intervals.hoeffding(0.5, 0, 0.1), "trials"),
        (lambda: intervals.hoeffding(0.5, 9, 0.1, low=1.0, high=1.0), "low"),
        (lambda: intervals.resolution(1.5, 9, error_rate=0.1), "probability"),
        (lambda: intervals.divide(0.1, 0), "num_checks"),
        (lambda: intervals.divide(0.0, 3), "error_rate"),
        (lambda: intervals.student(np.zeros(1), error_rate=0.1), "values"),
        (lambda: intervals.student(np.zeros(2), error_rate=0.0), "error_rate"),
        (lambda: intervals.slope(np.zeros(2), np.zeros((2, 2)), error_rate=0.1), "x"),
    ],
)
def test_misuse_names_the_argument(call, argument):
    with pytest.raises(ValueError, match=f"^`{argument}`"):
        call()


# Of means, against laws with known means


def mean_miss_rate(interval, draw, mean: float, trials: int) -> tuple[float, float]:
    """Clopper-Pearson interval, at 1e-4, of the chance to miss a law's mean."""
    generator = np.random.default_rng(7)
    low, high = interval(draw(generator, (4000, trials)))
    missed = int(np.sum((low > mean) | (high < mean) | np.isnan(low)))
    ends = intervals.clopper_pearson(missed, 4000, error_rate=1e-4)
    return float(ends[0]), float(ends[1])


BOUNDED = {
    "rare": (lambda g, shape: (g.random(shape) < 0.02).astype(float), 0.02),
    "frequent": (lambda g, shape: (g.random(shape) < 0.98).astype(float), 0.98),
    "skewed": (lambda g, shape: g.random(shape) ** 9, 0.1),
    "constant": (lambda g, shape: np.full(shape, 0.25), 0.25),
}
# Of standard deviation 1, and means that are not 0.
UNBOUNDED = {
    "exponential": (lambda g, shape: g.exponential(size=shape), 1.0),
    "student": (lambda g, shape: 5 + g.standard_t(3, shape) / math.sqrt(3), 5.0),
    "rare jumps": (lambda g, shape: 20 * (g.random(shape) < 1 / 401) * 1.0025, 0.05),
    "normal": (lambda g, shape: 1 + g.standard_normal(shape), 1.0),
}
STATED = 0.1


@pytest.mark.long
@pytest.mark.parametrize("name", BOUNDED)
@pytest.mark.parametrize("trials", [5, 60])
def test_betting_misses_no_more_than_stated(name, trials):
    """Against laws: of every shape, at every number of trials."""
    draw, mean = BOUNDED[name]
    method = functools.partial(intervals.betting, error_rate=STATED)
    assert mean_miss_rate(method, draw, mean, trials)[0] <= STATED


@pytest.mark.long
@pytest.mark.parametrize("name", UNBOUNDED)
@pytest.mark.parametrize("trials", [30, 100])
def test_catoni_misses_no_more_than_stated(name, trials):
    """Against laws: of any tail, with the deviation known."""
    draw, mean = UNBOUNDED[name]
    method = functools.partial(intervals.catoni, deviation=1.01, error_rate=STATED)
    assert mean_miss_rate(method, draw, mean, trials)[0] <= STATED


@pytest.mark.parametrize(
    ("interval", "law"),
    [
        (functools.partial(intervals.student, error_rate=STATED), BOUNDED["rare"]),
        (
            functools.partial(intervals.student, error_rate=STATED),
            UNBOUNDED["rare jumps"],
        ),
        (functools.partial(intervals.betting, error_rate=0.9), BOUNDED["skewed"]),
        (
            functools.partial(intervals.catoni, deviation=0.2, error_rate=STATED),
            UNBOUNDED["exponential"],
        ),
    ],
)
def test_control_nominal_rates_and_wrong_deviations_are_seen(interval, law):
    draw, mean = law
    assert mean_miss_rate(interval, draw, mean, 60)[0] > STATED


def test_betting_shrinks_where_values_vary_little():
    """Against the normal width: within a factor of 2 for a thousand trials."""
    values = 0.5 + 0.01 * np.random.default_rng(0).uniform(-1, 1, 1000)
    low, high = intervals.betting(values, error_rate=0.05)
    wide_low, wide_high = intervals.hoeffding(np.mean(values), 1000, 0.05)
    assert high - low < 0.2 * (wide_high - wide_low)
    scaled = intervals.betting(40 * values - 10, error_rate=0.05, low=-10.0, high=30.0)
    np.testing.assert_allclose(scaled, 40 * np.array([low, high]) - 10, rtol=1e-12)


def test_means_of_what_is_not_finite():
    bad = np.array([0.5, np.nan] * 40)
    with pytest.raises(ValueError, match=r"^`values` must lie in \[0.0, 1.0\]"):
        intervals.betting(bad, error_rate=0.1)
    assert np.all(np.isnan(intervals.catoni(bad, deviation=1.0, error_rate=0.1)))
    few = intervals.catoni(np.zeros(3), deviation=1.0, error_rate=0.1)
    assert np.all(np.isinf(few))
    with pytest.raises(ValueError, match=r"^`deviation`"):
        intervals.catoni(np.zeros(9), deviation=np.nan, error_rate=0.1)
