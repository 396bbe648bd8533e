"""What judges promise for all data: evidence never turns against itself, NaN is none.

Of intervals and verdicts, and of the judgement whether a run succeeded.
"""

import hypothesis.strategies as st
import numpy as np
import pytest
import xarray as xr
from hypothesis.extra.numpy import arrays
from properties import FINITE, NUMBERS, always, refuses

from cfljax import intervals
from experiments.ifca.success_criteria import outcome_shares, successful
from theory.judges.bands import same_law, within
from theory.judges.bounds import never_exceeds
from theory.judges.counts import Tally, at_most, equals, tally
from theory.verdict import Status, combine

POINTS = 3
RANK = {Status.VIOLATED: 0, Status.INCONCLUSIVE: 1, Status.HOLDS: 2}
# Short enough for verdicts of every kind from a few trials.
ERROR_RATE = 0.2

RATES = st.floats(1e-9, 0.5)  # One-sided, a higher one need not contain the estimate.
BOUNDS = arrays(float, POINTS, elements=st.floats(0, 0.99))
COUNTS = arrays(float, POINTS, elements=st.integers(0, 60).map(float))
REAL = arrays(float, POINTS, elements=FINITE)
HUGE = st.sampled_from((1e300, -1e300, 1.7e308))
ANY = arrays(float, POINTS, elements=NUMBERS | HUGE)
WHERE = st.integers(0, POINTS - 1)
EVENTS = arrays(float, (POINTS, 12), elements=st.sampled_from((0.0, 1.0)))


def spoil(values, where):
    """The values, one of them undefined."""
    values = np.array(values, float)
    values[where] = np.nan
    return values


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


@always(events=COUNTS, misses=COUNTS, more=COUNTS, bounds=BOUNDS)
def test_trials_in_favour_of_a_bound_never_speak_against_it(
    events, misses, more, bounds
):
    nothing = np.zeros(POINTS)
    status = lambda count, trials: (
        at_most(
            "x", Tally(count, nothing, trials + 1), bounds, error_rate=ERROR_RATE
        ).status
    )
    before = status(events, events + misses)
    after = status(events, events + misses + more)
    assert RANK[after] >= RANK[before]
    against = status(events + more, events + misses + more)
    assert RANK[against] <= RANK[before]


@always(events=EVENTS, bounds=BOUNDS, where=WHERE, trial=st.integers(0, 11))
def test_an_undecided_trial_is_no_success_and_no_violation(
    events, bounds, where, trial
):
    status = lambda events: (
        at_most("x", tally(events), bounds, error_rate=ERROR_RATE).status
    )
    unknown = status(spoil(events, (where, trial)))
    assert unknown in (Status.INCONCLUSIVE, Status.VIOLATED)
    for answer in (0.0, 1.0):  # Whatever it would have been, it is as if it was worse.
        decided = events.copy()
        decided[where, trial] = answer
        if unknown is Status.VIOLATED:
            assert status(decided) is Status.VIOLATED
    exact = equals(
        "x", tally(spoil(events, (where, trial))), bounds, resolution=1.0
    ).status
    assert exact in (Status.INCONCLUSIVE, Status.VIOLATED)


def test_control_trials_against_a_bound_do_speak_against_it():
    def stubborn(events):
        status = lambda events: (
            at_most(
                "x", tally(events), np.full(POINTS, 0.5), error_rate=ERROR_RATE
            ).status
        )
        assert status(np.ones_like(events)) is status(events)

    assert refuses(stubborn, events=EVENTS)


@always(values=ANY, bounds=ANY, lower=arrays(float, POINTS, elements=st.floats(0, 9)))
def test_a_smaller_value_or_larger_bound_is_no_violation(values, bounds, lower):
    status = lambda values, bounds: (
        never_exceeds("x", values, bounds, rounding=1e-9).status
    )
    if status(values, bounds) is not Status.VIOLATED:
        assert status(values - lower, bounds) is not Status.VIOLATED
        assert status(values, bounds + lower) is not Status.VIOLATED
    if np.isnan(values).any() or np.isnan(bounds).any():
        assert status(values, bounds) in (Status.INCONCLUSIVE, Status.VIOLATED)


@always(values=REAL, bounds=REAL, where=WHERE)
def test_an_undefined_value_never_holds(values, bounds, where):
    for given in ((spoil(values, where), bounds), (values, spoil(bounds, where))):
        found = never_exceeds("x", *given, rounding=1e-9).status
        rest = np.delete(values - bounds, where)
        violated = np.any(rest > 1e-9)
        assert found is (Status.VIOLATED if violated else Status.INCONCLUSIVE)


@always(low=ANY, high=ANY, bottom=ANY, top=ANY, wider=st.floats(0, 9))
def test_a_band_holds_what_is_wholly_inside_only(low, high, bottom, top, wider):
    judge = lambda bottom, top: (
        within("x", (low, high), (bottom, top), num_trials=1).status
    )
    found = judge(bottom, top)
    inside = np.all((low >= bottom) & (high <= top))
    assert (found is Status.HOLDS) <= inside
    if np.isnan(np.concatenate([low, high, bottom, top])).any():
        assert found is not Status.HOLDS
    if found is Status.HOLDS:
        assert judge(bottom - wider, top + wider) is Status.HOLDS


@always(
    first=arrays(float, 40, elements=FINITE),
    second=arrays(float, 30, elements=FINITE),
    order=st.permutations(range(40)),
    where=st.integers(0, 29),
)
def test_samples_are_compared_in_any_order_and_never_undefined(
    first, second, order, where
):
    judge = lambda one, two: same_law(
        "x", [one], [two], resolution=1.0, error_rate=ERROR_RATE
    )
    verdict = judge(first, second)
    assert judge(first[order], second).interval == verdict.interval
    assert judge(second, first).status is verdict.status
    assert judge(first, first).status is not Status.VIOLATED
    assert judge(first, spoil(second, where)).status is Status.INCONCLUSIVE


@always(
    values=st.lists(arrays(float, 1, elements=NUMBERS), min_size=1, max_size=4),
    seed=st.randoms(use_true_random=False),
)
def test_all_of_several_is_as_good_as_the_worst_in_any_order(values, seed):
    verdicts = [
        never_exceeds("x", value, np.array([bound]), rounding=0.1)
        for value, bound in zip(values, (0.0, np.inf, 1.0, 2.0), strict=False)
    ]
    found = combine("all", verdicts).status
    statuses = {verdict.status for verdict in verdicts}
    worst = next(status for status in (*RANK, Status.VACUOUS) if status in statuses)
    assert found is worst
    seed.shuffle(verdicts)
    assert combine("all", verdicts).status is found


SHAPE = (2, 3, 2)  # Trials, restarts, step sizes.
DISTANCES = arrays(np.float32, SHAPE, elements=NUMBERS)
FLAGS = arrays(float, SHAPE, elements=st.sampled_from((0.0, 1.0, float("nan"))))
LIMITS = st.fixed_dictionaries({"paper": NUMBERS, "floor": NUMBERS})


def never_undefined(judge, distance, recovered, limits):
    found = judge({"distance": distance, "recovered": recovered}, limits)
    for name, success in found.items():
        assert not np.any(success & ~np.isfinite(distance))
        if name in limits:
            assert np.all(distance[success] <= limits[name])
            inside = np.isfinite(distance) & (distance <= limits[name])
            assert np.array_equal(success, inside)
    assert not np.any(found["recovery"] & ~(recovered == 1))


RUNS = {"distance": DISTANCES, "recovered": FLAGS, "limits": LIMITS}


@always(**RUNS)
def test_a_run_that_is_not_finite_never_succeeds(distance, recovered, limits):
    never_undefined(successful, distance, recovered, limits)


@pytest.mark.parametrize(
    "judge",
    [
        lambda cell, limits: {
            "paper": ~(cell["distance"] > limits["paper"]),
            "recovery": cell["recovered"] == 1,
        },
        lambda cell, _: {"recovery": cell["recovered"] == 1},
    ],
)
def test_control_a_judge_that_forgets_undefined_runs_is_refused(judge):
    check = lambda **given: never_undefined(judge, **given)
    assert refuses(check, **RUNS)


@always(
    distance=DISTANCES,
    loss=arrays(np.float32, SHAPE, elements=NUMBERS),
    first=arrays(np.float32, SHAPE[:2], elements=NUMBERS),
    used=arrays(float, SHAPE, elements=st.sampled_from((0.0, 1.0, 2.0))),
    followed=arrays(float, SHAPE, elements=st.sampled_from((0.0, 1.0))),
)
def test_every_run_that_is_followed_has_one_outcome(
    distance, loss, first, used, followed
):
    followed[0, 0, 0] = 1
    dims = ("trial", "restart", "step_size")
    cell = xr.Dataset(
        {
            "distance": (dims, distance),
            "loss": (dims, loss),
            "first_loss": (dims[:2], first),
            "used_clusters": (dims, used),
            "followed": (dims, followed),
        }
    )
    success = np.isfinite(distance) & (distance <= 1)
    shares = outcome_shares(cell, success)
    seen = followed == 1
    assert sum(shares.values()) == pytest.approx(1)
    assert min(shares.values()) >= 0
    assert shares["share_diverged"] >= 1 - np.isfinite(distance)[seen].mean() - 1e-12
    assert shares["share_succeeded"] == success[seen].mean()
