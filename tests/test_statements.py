"""Statements, verdicts, the judges and the runner."""

import dataclasses
import functools
import math
import subprocess
import sys

import hypothesis.strategies as st
import jaxtyping
import numpy as np
import pytest
import scipy.stats
import xarray as xr
from hypothesis.extra.numpy import arrays
from properties import FINITE, NUMBERS, always, refuses
from toy_theory import BROKEN, toy

from cfljax import intervals, statements
from cfljax.statements import (
    Grade,
    Margin,
    Preset,
    Status,
    Tally,
    Verdict,
    combine,
    run,
    tally,
)
from experiments.ifca.fig3_table import outcome_shares
from experiments.ifca.fig3_trial import successful

HOLDS, VIOLATED, VACUOUS, INCONCLUSIVE = Status
at_most, equals, same_law, within = (
    functools.partial(getattr(statements, name), "toy.a")
    for name in ("at_most", "equals", "same_law", "within")
)
never_exceeds = functools.partial(statements.never_exceeds, "toy.a", grade=Grade.EXACT)


RATE = 0.02
TRIALS = 150


def counts(*events: float, undefined: float = 0):
    """Points of 150 trials with these many events."""
    every = np.full(len(events), TRIALS)
    return Tally(np.array(events, float), np.full(len(events), undefined), every)


def chance(statuses: list[Status], status: Status, probability: float) -> float:
    """Chance of a status, given what each number of events leads to."""
    masses = scipy.stats.binom.pmf(np.arange(TRIALS + 1), TRIALS, probability)
    return float(np.sum(masses, where=[one is status for one in statuses]))


def statuses_of(judge) -> tuple[list[Status], float]:
    verdicts = [judge(counts(events)) for events in range(TRIALS + 1)]
    return [verdict.status for verdict in verdicts], verdicts[0].resolution


@pytest.mark.parametrize("bound", [0.01, 0.1, 0.5, 0.9])
def test_at_most_is_sound_and_powerful(bound):
    judge = lambda counts: at_most(counts, np.array([bound]), error_rate=RATE)
    statuses, resolution = statuses_of(judge)
    for probability in np.linspace(0, 1, 101):
        if probability <= bound:
            assert chance(statuses, VIOLATED, probability) <= RATE
        else:
            assert chance(statuses, HOLDS, probability) <= RATE
        if probability > bound + resolution:
            assert chance(statuses, VIOLATED, probability) >= 1 - RATE
    assert chance(statuses, HOLDS, bound / 50) > 0.5 or bound < 0.05


@pytest.mark.parametrize("law", [0.0, 0.05, 0.4, 1.0])
def test_equals_is_sound_and_powerful(law):
    claim = {"probabilities": np.array([law]), "resolution": 1.0, "error_rate": RATE}
    statuses, resolution = statuses_of(lambda counts: equals(counts=counts, **claim))
    assert INCONCLUSIVE not in statuses
    assert chance(statuses, VIOLATED, law) <= RATE
    for probability in np.linspace(0, 1, 101):
        if abs(probability - law) > resolution:
            assert chance(statuses, VIOLATED, probability) >= 1 - RATE


def test_a_grid_divides_the_error_rate():
    probabilities = np.full(20, 0.3)
    masses = scipy.stats.binom.pmf(np.arange(TRIALS + 1), TRIALS, 0.3)
    wrong = 0.0
    for events in range(TRIALS + 1):
        found = counts(events, *[45] * 19)
        verdict = equals(found, probabilities, resolution=1.0, error_rate=RATE)
        wrong += masses[events] * (verdict.status is VIOLATED)
    assert 20 * wrong <= RATE
    assert verdict.num_trials == 20 * TRIALS and verdict.error_rate == RATE


def test_equals_does_not_hold_beyond_its_resolution():
    found, law = counts(75), np.array([0.5])
    fine = equals(found, law, resolution=0.4)
    coarse = equals(found, law, resolution=0.3)
    assert fine.status is HOLDS and coarse.status is INCONCLUSIVE
    assert 0.3 < coarse.resolution < 0.4


@pytest.mark.parametrize("bad", [1, 75, 150])
def test_undefined_trials_never_help(bad):
    found = counts(0, undefined=bad)
    bounded = at_most(found, np.array([0.9]))
    exact = equals(found, np.array([0.02]), resolution=1.0)
    assert bounded.status is exact.status is INCONCLUSIVE
    violated = at_most(counts(149, undefined=1), np.array([0.1]), error_rate=RATE)
    assert violated.status is VIOLATED
    assert bounded.interval[1] >= bad / TRIALS


def test_undefined_claims_never_hold():
    nan = np.array([np.nan])
    assert at_most(counts(0), nan).status is INCONCLUSIVE
    assert equals(counts(0), nan, resolution=1.0).status is INCONCLUSIVE
    for value, bound in [(np.nan, 1), (0, np.nan), (np.nan, np.inf), (np.nan, np.nan)]:
        given = np.array([0.0, value]), np.array([1.0, bound])
        verdict = never_exceeds(*given, rounding=1e-9)
        assert verdict.status is INCONCLUSIVE
    verdict = never_exceeds(np.array([2.0, np.nan]), np.ones(2), rounding=1e-9)
    assert verdict.status is VIOLATED
    assert math.isclose(verdict.interval[0], 2.0, rel_tol=1e-6)


def test_trivial_bounds_are_vacuous():
    trivial, open_bound = np.array([1.0, 1.0]), np.array([1.0, 0.5])
    found = tally(np.zeros((2, 500)))
    assert at_most(found, trivial).status is VACUOUS
    verdict = at_most(found, open_bound)
    assert verdict.status is HOLDS and verdict.bound == 0.5
    nothing = np.array([3.0]), np.array([np.inf])
    assert never_exceeds(*nothing, rounding=1e-9).status is VACUOUS


def test_never_exceeds_knows_only_rounding():
    values, bounds = np.array([1.0, 5.0]), np.array([2.0, 5.0])
    inside = never_exceeds(values + 1e-13, bounds, rounding=1e-12)
    beyond = never_exceeds(values + 1e-11, bounds, rounding=1e-12)
    infinite = never_exceeds(values + np.inf, bounds, rounding=1e-12)
    assert inside.status is HOLDS and inside.bound == 5
    assert beyond.status is VIOLATED and beyond.bound == 5
    assert infinite.status is VIOLATED
    with pytest.raises(ValueError, match=r"^`rounding`"):
        never_exceeds(values, bounds, rounding=np.nan)
    with pytest.raises(ValueError, match=r"^`values`"):
        never_exceeds(values[:0], bounds[:0], rounding=1e-9)


def test_a_lower_bound_is_judged_and_drawn_as_one():
    """Truths above their bounds hold; the points keep their signs."""
    truths, bounds = np.array([2.0, 3.0]), np.array([1.0, 3.0])
    below = functools.partial(
        statements.never_falls_below, "toy.a", rounding=1e-12, grade=Grade.EXACT
    )
    found = below(truths, bounds)
    assert found.status is Status.HOLDS and found.slack == pytest.approx(0.0)
    assert found.points is not None and found.points.kind == "band"
    np.testing.assert_array_equal(found.points.bounds, bounds)
    np.testing.assert_array_equal(found.points.low, truths)
    assert found.points.upper is not None and np.all(np.isinf(found.points.upper))
    lower = below(truths, bounds + 0.5)
    assert lower.status is Status.VIOLATED and lower.bound == 3.5
    assert lower.interval[0] <= 3.0 <= lower.interval[1]
    unknown = below(np.array([np.nan]), 0.0)
    assert unknown.status is Status.INCONCLUSIVE


def test_tally_counts_what_is_there():
    events = np.array([[1.0, 0.0, np.nan, 1.0], [0.0, 0.0, 0.0, 0.0]])
    np.testing.assert_array_equal(tally(events), [[2, 0], [1, 0], [4, 4]])
    assert tally(np.array([True, False])).events == [1]
    for wrong in (np.array([0.5]), np.zeros((3, 0))):
        with pytest.raises(ValueError, match=r"^`events`"):
            tally(wrong)


def test_combined_points_keep_all_coordinates_and_the_names_of_their_parts():
    judged = functools.partial(never_exceeds, rounding=1e-9)
    one = judged(np.zeros(2), 1.0, coordinates={"n": np.array([1, 2]), "law": "t"})
    two = judged(np.zeros(1), 1.0, coordinates={"m": np.array([5.0])})
    points = combine("a.c", [one, two], parts=["left", "right"]).points
    assert points is not None
    found = {name: values.tolist() for name, values in points.coordinates.items()}
    assert found.pop("part") == ["left", "left", "right"]
    assert found.pop("law") == ["t", "t", ""]
    np.testing.assert_array_equal(found.pop("n"), [1, 2, np.nan])
    np.testing.assert_array_equal(found.pop("m"), [np.nan, np.nan, 5])
    assert not found
    with pytest.raises(ValueError, match="`parts` must name 2 verdicts, got 1"):
        combine("a.c", [one, two], parts=["left"])


def test_combine_takes_the_worst():
    def combined(*statuses):
        numbers = (1.0, (0.0, 0.5), 1e-6, 10, 0.1)
        return combine("a.c", [Verdict("a.b", one, *numbers) for one in statuses])

    assert combined(HOLDS, VACUOUS).status is HOLDS
    assert combined(VACUOUS, VACUOUS).status is VACUOUS
    assert combined(HOLDS, INCONCLUSIVE).status is INCONCLUSIVE
    assert combined(INCONCLUSIVE, VIOLATED, HOLDS).status is VIOLATED
    total = combined(HOLDS, HOLDS, HOLDS)
    assert total.num_trials == 30 and total.error_rate == pytest.approx(3e-6)
    assert total.statement == "a.c"
    with pytest.raises(ValueError, match=r"^`verdicts`"):
        combine("a.c", [])


GENERATOR = np.random.default_rng(3)


def judged(low, high, bottom=-0.1, top=0.1):
    low, high, bottom, top = (np.array([x], float) for x in (low, high, bottom, top))
    return within((low, high), (bottom, top), num_trials=7)


def test_a_band_holds_only_with_the_whole_interval():
    assert judged(-0.1, 0.1).status is HOLDS
    assert judged(-0.05, 0.11).status is INCONCLUSIVE
    assert judged(0.05, 5.0).status is INCONCLUSIVE
    assert judged(0.11, 0.2).status is VIOLATED
    assert judged(-0.2, -0.11).status is VIOLATED
    assert judged(-0.2, -0.05).bound == -0.1
    assert judged(0.0, 9.0, bottom=-1.0, top=np.inf).status is HOLDS


@pytest.mark.parametrize("ends", [(np.nan, 0.0), (0.0, np.nan), (np.nan, np.nan)])
def test_an_undefined_interval_decides_nothing(ends):
    assert judged(*ends).status is INCONCLUSIVE


def test_one_point_outside_decides_the_whole():
    low, high = np.array([0.0, 0.3]), np.array([0.01, 0.4])
    band = (np.full(2, -0.1), np.full(2, 0.1))
    verdict = within((low, high), band, num_trials=7)
    assert verdict.status is VIOLATED and verdict.interval == (0.3, 0.4)
    assert verdict.points is not None and verdict.points.kind == "band"


def test_same_law_of_samples_and_of_a_distribution():
    one, two = GENERATOR.standard_normal((2, 40_000))
    assert same_law([one], [two], resolution=0.06).status is HOLDS
    known = scipy.stats.norm.cdf
    assert same_law([one], [known], resolution=0.04).status is HOLDS
    moved = same_law(
        [one] * 2,
        [known, lambda x: known(x - 0.06)],
        resolution=0.1,
        coordinates={"shift": np.array([0.0, 0.06])},
    )
    assert moved.status is VIOLATED and moved.points is not None
    assert moved.points.coordinates["shift"].tolist() == [0.0, 0.06]
    assert same_law([one], [two + 0.1], resolution=0.1).status is VIOLATED


def test_same_law_of_counts_allows_atoms():
    counts = GENERATOR.binomial(5, 0.3, 20_000).astype(float)
    claimed = scipy.stats.binom(5, 0.3).cdf
    assert same_law([counts], [claimed], resolution=0.1).status is HOLDS
    other = scipy.stats.binom(5, 0.33).cdf
    assert same_law([counts], [other], resolution=0.1).status is VIOLATED


def test_same_law_needs_enough_defined_numbers():
    few = GENERATOR.standard_normal(50)
    spoilt = GENERATOR.standard_normal(40_000)
    spoilt[0] = np.nan
    for sample in (few, spoilt):
        verdict = same_law([sample], [scipy.stats.norm.cdf], resolution=0.1)
        assert verdict.status is INCONCLUSIVE
    with pytest.raises(ValueError, match="as many"):
        same_law([few], [], resolution=0.1)


def test_the_bands_of_a_law_miss_as_rarely_as_they_say():
    """At an error rate of .2 a true law fails at most that often; in fact less."""
    samples = GENERATOR.uniform(size=(500, 200))
    judge = functools.partial(same_law, resolution=1.0, error_rate=0.2)
    found = [judge([s], [lambda x: np.clip(x, 0, 1)]).status for s in samples]
    count = found.count(VIOLATED)
    low, _ = intervals.clopper_pearson(count, 500, error_rate=1e-6)
    assert count > 0 and low <= 0.2


@pytest.mark.parametrize("at_least", [True, False])
def test_margins(at_least):
    met = Margin("a", 3.0, 2.0, at_least)
    assert met.holds is at_least
    assert met.value == (1.0 if at_least else -1.0)
    assert met.factor == pytest.approx(1.5 if at_least else 2 / 3)
    assert not Margin("a", np.nan, 2.0, at_least).holds


def test_slack_is_that_of_the_tightest_point():
    values, bounds = np.array([1.0, 1.0, 0.0]), np.array([1000.0, 10.0, 1.0])
    verdict = never_exceeds(values, bounds, rounding=1e-12)
    assert verdict.slack == pytest.approx(1.0)
    logs = np.array([-5.0]), np.log([1e-1])
    logs = never_exceeds(*logs, rounding=1e-12, logarithmic=True)
    assert logs.slack == pytest.approx((np.log(0.1) + 5) / np.log(10))
    both = combine("toy.a", [verdict, logs])
    assert both.slack == pytest.approx(1.0)
    counted = at_most(tally(np.zeros((1, 1000), bool)), np.array([0.5]))
    assert counted.slack == pytest.approx(np.log10(0.5 / counted.interval[1]))
    assert np.isnan(judged(0.0, 0.05).slack)


POINTS = 3
RANK = {VIOLATED: 0, INCONCLUSIVE: 1, HOLDS: 2}
# Short enough for verdicts of every kind from a few trials.
ERROR_RATE = 0.2

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


@always(events=COUNTS, misses=COUNTS, more=COUNTS, bounds=BOUNDS)
def test_trials_in_favour_of_a_bound_never_speak_against_it(
    events, misses, more, bounds
):
    nothing = np.zeros(POINTS)
    counted = lambda count, trials: Tally(count, nothing, trials + 1)
    status = lambda *given: (
        at_most(counted(*given), bounds, error_rate=ERROR_RATE).status
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
    status = lambda events: at_most(tally(events), bounds, error_rate=ERROR_RATE).status
    unknown = status(spoil(events, (where, trial)))
    assert unknown in (INCONCLUSIVE, VIOLATED)
    for answer in (0.0, 1.0):  # Whatever it would have been, it is as if it was worse.
        decided = events.copy()
        decided[where, trial] = answer
        if unknown is VIOLATED:
            assert status(decided) is VIOLATED
    exact = equals(tally(spoil(events, (where, trial))), bounds, resolution=1.0)
    assert exact.status in (INCONCLUSIVE, VIOLATED)


def test_control_trials_against_a_bound_do_speak_against_it():
    def stubborn(events):
        all_events, some = (
            at_most(tally(one), np.full(POINTS, 0.5), error_rate=ERROR_RATE).status
            for one in (np.ones_like(events), events)
        )
        assert all_events is some

    assert refuses(stubborn, events=EVENTS)


@always(values=ANY, bounds=ANY, lower=arrays(float, POINTS, elements=st.floats(0, 9)))
def test_a_smaller_value_or_larger_bound_is_no_violation(values, bounds, lower):
    status = lambda *given: never_exceeds(*given, rounding=1e-9).status
    if status(values, bounds) is not VIOLATED:
        assert status(values - lower, bounds) is not VIOLATED
        assert status(values, bounds + lower) is not VIOLATED
    if np.isnan(values).any() or np.isnan(bounds).any():
        assert status(values, bounds) in (INCONCLUSIVE, VIOLATED)


@always(values=REAL, bounds=REAL, where=WHERE)
def test_an_undefined_value_never_holds(values, bounds, where):
    for given in ((spoil(values, where), bounds), (values, spoil(bounds, where))):
        found = never_exceeds(*given, rounding=1e-9).status
        rest = np.delete(values - bounds, where)
        violated = np.any(rest > 1e-9)
        assert found is (VIOLATED if violated else INCONCLUSIVE)


@always(low=ANY, high=ANY, bottom=ANY, top=ANY, wider=st.floats(0, 9))
def test_a_band_holds_what_is_wholly_inside_only(low, high, bottom, top, wider):
    judge = lambda *band: within((low, high), band, num_trials=1).status
    found = judge(bottom, top)
    inside = np.all((low >= bottom) & (high <= top))
    assert (found is HOLDS) <= inside
    if np.isnan(np.concatenate([low, high, bottom, top])).any():
        assert found is not HOLDS
    if found is HOLDS:
        assert judge(bottom - wider, top + wider) is HOLDS


@always(
    first=arrays(float, 40, elements=FINITE),
    second=arrays(float, 30, elements=FINITE),
    order=st.permutations(range(40)),
    where=st.integers(0, 29),
)
def test_samples_are_compared_in_any_order_and_never_undefined(
    first, second, order, where
):
    told = {"resolution": 1.0, "error_rate": ERROR_RATE}
    judge = lambda one, two: same_law([one], [two], **told)
    verdict = judge(first, second)
    assert judge(first[order], second).interval == verdict.interval
    assert judge(second, first).status is verdict.status
    assert judge(first, first).status is not VIOLATED
    assert judge(first, spoil(second, where)).status is INCONCLUSIVE


@always(
    values=st.lists(arrays(float, 1, elements=NUMBERS), min_size=1, max_size=4),
    seed=st.randoms(use_true_random=False),
)
def test_all_of_several_is_as_good_as_the_worst_in_any_order(values, seed):
    verdicts = [
        never_exceeds(value, np.array([bound]), rounding=0.1)
        for value, bound in zip(values, (0.0, np.inf, 1.0, 2.0), strict=False)
    ]
    found = combine("all", verdicts).status
    statuses = {verdict.status for verdict in verdicts}
    worst = next(status for status in (*RANK, VACUOUS) if status in statuses)
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
    names = ("distance", "loss", "used_clusters", "followed")
    found = zip(names, (distance, loss, used, followed), strict=True)
    variables = {name: (dims, values) for name, values in found}
    cell = xr.Dataset(variables | {"first_loss": (dims[:2], first)})
    success = np.isfinite(distance) & (distance <= 1)
    shares = outcome_shares(cell, success)
    seen = followed == 1
    assert sum(shares.values()) == pytest.approx(1)
    assert min(shares.values()) >= 0
    assert shares["share_diverged"] >= 1 - np.isfinite(distance)[seen].mean() - 1e-12
    assert shares["share_succeeded"] == success[seen].mean()


def test_a_row_must_name_its_paper():
    with pytest.raises(ValueError, match=r"^`id`"):
        dataclasses.replace(toy(), id="ifca.lem1")


def test_presets_draw_from_separate_streams():
    def draw(preset: Preset, *stream) -> float:
        return float(preset.generator(*stream).uniform())

    draws = [
        draw(Preset(seed=seed), name, *indices)
        for seed in (0, 1)
        for name in ("a", "b")
        for indices in ((), (0,), (1,), (0, 1))
    ]
    assert len(set(draws)) == len(draws)
    assert draw(Preset(seed=3), "a", 2) == draw(Preset("full", 3), "a", 2)
    with pytest.raises(ValueError, match=r"^`seed`"):
        Preset(seed=-1)
    with pytest.raises((ValueError, jaxtyping.TypeCheckError)):
        dataclasses.replace(Preset(), name="slow")  # pyright: ignore[reportArgumentType]


def test_a_broken_check_is_recorded_and_the_others_run():
    first, last = (run(row, Preset()) for row in (BROKEN, toy()))
    assert first.verdict.status is INCONCLUSIVE
    assert "ZeroDivisionError" in first.verdict.detail
    assert "of a kind" in first.verdict.detail
    assert last.as_expected and last.verdict.seconds >= 0


def test_the_example_of_the_room_holds():
    """What the package's docstring says is what happens."""
    lines = (statements.__doc__ or "").splitlines()
    source = "\n".join(line[4:] for line in lines if line.startswith("    "))
    source = source.replace("statements.run", "found = statements.run")
    names = {"np": np, "functools": functools}
    exec(source, names)
    assert names["found"] is True


def test_statements_wait_for_jax():
    """Listing is for everybody: only judges of counts need what imports JAX."""
    code = "import sys, cfljax.statements; print({'jax', 'scipy'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.stdout == "set()\n", found.stderr
