"""Soundness and power of the judges, summed exactly over the binomial law."""

import math

import numpy as np
import pytest
import scipy.stats

from theory import judges
from theory.verdict import Status, Verdict, combine

RATE = 0.02
TRIALS = 150


def counts(*events: float, undefined: float = 0):
    """Points of 150 trials with these many events."""
    shape = (len(events),)
    return judges.Tally(
        events=np.array(events, float),
        undefined=np.full(shape, undefined),
        trials=np.full(shape, TRIALS),
    )


def chance(statuses: list[Status], status: Status, probability: float) -> float:
    """Chance of a status, given what each number of events leads to."""
    masses = scipy.stats.binom.pmf(np.arange(TRIALS + 1), TRIALS, probability)
    return float(
        sum(mass for mass, one in zip(masses, statuses, strict=True) if one is status)
    )


def statuses_of(judge) -> tuple[list[Status], float]:
    verdicts = [judge(counts(events)) for events in range(TRIALS + 1)]
    return [verdict.status for verdict in verdicts], verdicts[0].resolution


@pytest.mark.parametrize("bound", [0.01, 0.1, 0.5, 0.9])
def test_at_most_is_sound_and_powerful(bound):
    statuses, resolution = statuses_of(
        lambda tally: judges.at_most("a.b", tally, np.array([bound]), error_rate=RATE)
    )
    for probability in np.linspace(0, 1, 101):
        if probability <= bound:
            assert chance(statuses, Status.VIOLATED, probability) <= RATE
        else:
            assert chance(statuses, Status.HOLDS, probability) <= RATE
        if probability > bound + resolution:
            assert chance(statuses, Status.VIOLATED, probability) >= 1 - RATE
    assert chance(statuses, Status.HOLDS, bound / 50) > 0.5 or bound < 0.05


@pytest.mark.parametrize("law", [0.0, 0.05, 0.4, 1.0])
def test_equals_is_sound_and_powerful(law):
    statuses, resolution = statuses_of(
        lambda tally: judges.equals(
            "a.b", tally, np.array([law]), resolution=1.0, error_rate=RATE
        )
    )
    assert Status.INCONCLUSIVE not in statuses
    assert chance(statuses, Status.VIOLATED, law) <= RATE
    for probability in np.linspace(0, 1, 101):
        if abs(probability - law) > resolution:
            assert chance(statuses, Status.VIOLATED, probability) >= 1 - RATE


def test_a_grid_divides_the_error_rate():
    probabilities = np.full(20, 0.3)
    masses = scipy.stats.binom.pmf(np.arange(TRIALS + 1), TRIALS, 0.3)
    wrong = 0.0
    for events in range(TRIALS + 1):
        tally = counts(events, *[45] * 19)
        verdict = judges.equals(
            "a.b", tally, probabilities, resolution=1.0, error_rate=RATE
        )
        wrong += masses[events] * (verdict.status is Status.VIOLATED)
    assert 20 * wrong <= RATE
    assert verdict.num_trials == 20 * TRIALS and verdict.error_rate == RATE


def test_equals_does_not_hold_beyond_its_resolution():
    tally, law = counts(75), np.array([0.5])
    fine = judges.equals("a.b", tally, law, resolution=0.4)
    coarse = judges.equals("a.b", tally, law, resolution=0.3)
    assert fine.status is Status.HOLDS
    assert coarse.status is Status.INCONCLUSIVE
    assert 0.3 < coarse.resolution < 0.4


@pytest.mark.parametrize("bad", [1, 75, 150])
def test_undefined_trials_never_help(bad):
    tally = counts(0, undefined=bad)
    bounded = judges.at_most("a.b", tally, np.array([0.9]))
    exact = judges.equals("a.b", tally, np.array([0.02]), resolution=1.0)
    assert bounded.status is Status.INCONCLUSIVE
    assert exact.status is Status.INCONCLUSIVE
    violated = judges.at_most(
        "a.b", counts(149, undefined=1), np.array([0.1]), error_rate=RATE
    )
    assert violated.status is Status.VIOLATED
    assert bounded.interval[1] >= bad / TRIALS


def test_undefined_claims_never_hold():
    nan = np.array([np.nan])
    assert judges.at_most("a.b", counts(0), nan).status is Status.INCONCLUSIVE
    equal = judges.equals("a.b", counts(0), nan, resolution=1.0)
    assert equal.status is Status.INCONCLUSIVE
    for value, bound in [(np.nan, 1), (0, np.nan), (np.nan, np.inf), (np.nan, np.nan)]:
        verdict = judges.never_exceeds(
            "a.b",
            np.array([0.0, value]),
            np.array([1.0, bound]),
            rounding=1e-9,
        )
        assert verdict.status is Status.INCONCLUSIVE
    verdict = judges.never_exceeds(
        "a.b", np.array([2.0, np.nan]), np.array([1.0, 1.0]), rounding=1e-9
    )
    assert verdict.status is Status.VIOLATED
    assert math.isclose(verdict.interval[0], 2.0, rel_tol=1e-6)


def test_trivial_bounds_are_vacuous():
    trivial, open_bound = np.array([1.0, 1.0]), np.array([1.0, 0.5])
    tally = judges.tally(np.zeros((2, 500)))
    assert judges.at_most("a.b", tally, trivial).status is Status.VACUOUS
    verdict = judges.at_most("a.b", tally, open_bound)
    assert verdict.status is Status.HOLDS and verdict.bound == 0.5
    none = np.array([np.inf])
    vacuous = judges.never_exceeds("a.b", np.array([3.0]), none, rounding=1e-9)
    assert vacuous.status is Status.VACUOUS


def test_never_exceeds_knows_only_rounding():
    values, bounds = np.array([1.0, 5.0]), np.array([2.0, 5.0])
    within = judges.never_exceeds("a.b", values + 1e-13, bounds, rounding=1e-12)
    beyond = judges.never_exceeds("a.b", values + 1e-11, bounds, rounding=1e-12)
    infinite = judges.never_exceeds("a.b", values + np.inf, bounds, rounding=1e-12)
    assert within.status is Status.HOLDS and within.bound == 5
    assert beyond.status is Status.VIOLATED and beyond.bound == 5
    assert infinite.status is Status.VIOLATED
    with pytest.raises(ValueError, match=r"^`rounding`"):
        judges.never_exceeds("a.b", values, bounds, rounding=np.nan)
    with pytest.raises(ValueError, match=r"^`values`"):
        judges.never_exceeds("a.b", values[:0], bounds[:0], rounding=1e-9)


def test_tally_counts_what_is_there():
    events = np.array([[1.0, 0.0, np.nan, 1.0], [0.0, 0.0, 0.0, 0.0]])
    tally = judges.tally(events)
    np.testing.assert_array_equal(tally.events, [2, 0])
    np.testing.assert_array_equal(tally.undefined, [1, 0])
    np.testing.assert_array_equal(tally.trials, [4, 4])
    assert judges.tally(np.array([True, False])).events == [1]
    with pytest.raises(ValueError, match=r"^`events`"):
        judges.tally(np.array([0.5]))
    with pytest.raises(ValueError, match=r"^`events`"):
        judges.tally(np.zeros((3, 0)))


def test_combine_takes_the_worst():
    def verdict(status):
        return Verdict("a.b", status, 1.0, (0.0, 0.5), 1e-6, 10, 0.1)

    def combined(*statuses):
        return combine("a.c", [verdict(status) for status in statuses])

    holds, violated = Status.HOLDS, Status.VIOLATED
    vacuous, inconclusive = Status.VACUOUS, Status.INCONCLUSIVE
    assert combined(holds, vacuous).status is holds
    assert combined(vacuous, vacuous).status is vacuous
    assert combined(holds, inconclusive).status is inconclusive
    assert combined(inconclusive, violated, holds).status is violated
    total = combined(holds, holds, holds)
    assert total.num_trials == 30 and total.error_rate == pytest.approx(3e-6)
    assert total.statement == "a.c"
    with pytest.raises(ValueError, match=r"^`verdicts`"):
        combine("a.c", [])
