"""How often judges are wrong about true claims, measured on skewed and heavy tails.

Each claim is true with equality, at three points at once, where a judge is wrong most
often. What is stated must not be below what is measured, as far as 500 verdicts tell.
"""

import functools
import math
from collections.abc import Callable, Iterable

import numpy as np
import pytest
import scipy.stats

from cfljax import intervals
from cfljax.statements import (
    Grade,
    Status,
    Verdict,
    at_most,
    equals,
    never_exceeds,
    same_law,
    tally,
    within,
)

STATED, POINTS, REPEATS = 0.1, 3, 500
EACH = STATED / POINTS

# Of mean 1, by name: draws and standard deviation.
LAWS: dict[str, tuple[Callable[..., np.ndarray], float]] = {
    "exponential": (lambda g, shape: g.exponential(size=shape), 1.0),
    "log-normal": (
        lambda g, shape: np.exp(1.5 * g.standard_normal(shape) - 1.125),
        math.sqrt(math.exp(2.25) - 1),
    ),
    "pareto": (
        lambda g, shape: 0.6 * (1 + g.pareto(2.5, shape)),
        0.6 * math.sqrt(20 / 9),
    ),
    "rare jumps": (lambda g, shape: 100.0 * (g.random(shape) < 0.01), math.sqrt(99)),
    "student": (lambda g, shape: 1 + g.standard_t(3, shape), math.sqrt(3)),
}
SHARES = {  # in [0, 1], with their means
    "rare": (lambda g, shape: (g.random(shape) < 0.01) * 1.0, 0.01),
    "beta": (lambda g, shape: g.beta(0.1, 0.9, shape), 0.1),
    "power": (lambda g, shape: 1 - g.random(shape) ** 19, 0.95),
}


def wrong(verdicts: Iterable[Verdict]) -> tuple[float, float]:
    """Interval, at 1e-4, of the chance that a judge finds a true claim violated."""
    found = [verdict.status is Status.VIOLATED for verdict in verdicts]
    ends = intervals.clopper_pearson(sum(found), len(found), error_rate=1e-4)
    return float(ends[0]), float(ends[1])


def repeated(judge: Callable[[np.random.Generator], Verdict]) -> Iterable[Verdict]:
    """Verdicts on claims about fresh draws."""
    generator = np.random.default_rng(11)
    return (judge(generator) for _ in range(REPEATS))


def test_laws_have_their_means_and_deviations():
    """Against quadrature of the quantile functions."""
    levels = (np.arange(200_000) + 0.5) / 200_000
    for name, law in {
        "exponential": scipy.stats.expon(),
        "log-normal": scipy.stats.lognorm(1.5, scale=math.exp(-1.125)),
        "pareto": scipy.stats.pareto(2.5, scale=0.6),
    }.items():
        values = law.ppf(levels)
        assert np.mean(values) == pytest.approx(1, rel=2e-3)
        assert law.std() == pytest.approx(LAWS[name][1])


def on_means(
    draw: Callable[..., np.ndarray],
    trials: int,
    interval: Callable[..., intervals.Interval],
    band: tuple[float, float],
    grade: Grade = Grade.SAMPLED,
) -> Iterable[Verdict]:
    """Verdicts on the claim that a mean lies in a band, each at three points."""
    values = draw(np.random.default_rng(11), (REPEATS, POINTS, trials))
    stated = {"num_trials": trials, "error_rate": STATED, "grade": grade}
    for ends in zip(*interval(values, error_rate=EACH), strict=True):
        yield within("toy.a", ends, band, **stated)


@pytest.mark.long
@pytest.mark.parametrize("trials", [40, 200])
@pytest.mark.parametrize("name", LAWS)
def test_known_deviations(name, trials):
    draw, deviation = LAWS[name]
    interval = functools.partial(intervals.catoni, deviation=deviation)
    assert wrong(on_means(draw, trials, interval, (-np.inf, 1.0)))[0] <= STATED
    assert wrong(on_means(draw, trials, interval, (1.0, np.inf)))[0] <= STATED


@pytest.mark.parametrize("trials", [5, 50])
@pytest.mark.parametrize("name", SHARES)
def test_bounded_values(name, trials):
    draw, mean = SHARES[name]
    found = on_means(draw, trials, intervals.betting, (mean, mean))
    assert wrong(found)[0] <= STATED


@pytest.mark.long
@pytest.mark.parametrize(
    "chance",
    [
        0.003,
        0.5,
        *(pytest.param(chance, marks=pytest.mark.slow) for chance in (0.05, 0.97)),
    ],
)
def test_counts(chance):
    draw = lambda generator: tally(generator.random((POINTS, 60)) < chance)
    bounds = np.full(POINTS, chance)
    bounded = lambda g: at_most("toy.a", draw(g), bounds, error_rate=STATED)
    exact = lambda g: equals(
        "toy.a", draw(g), bounds, resolution=1.0, error_rate=STATED
    )
    assert wrong(repeated(bounded))[0] <= STATED
    assert wrong(repeated(exact))[0] <= STATED


@pytest.mark.parametrize("name", LAWS)
def test_laws_that_are_one(name):
    """Atoms included: those of "rare jumps"."""
    draw, _ = LAWS[name]

    def judge(generator: np.random.Generator) -> Verdict:
        first, second = (list(draw(generator, (POINTS, 40))) for _ in range(2))
        return same_law("toy.a", first, second, resolution=1.0, error_rate=STATED)

    assert wrong(repeated(judge))[0] <= STATED


def test_what_is_computed_is_never_wrong():
    """Nothing is random: a claim that is true with equality holds."""
    values = np.linspace(-5, 5, POINTS)
    verdict = never_exceeds("toy.a", values, values, rounding=1e-15, grade=Grade.EXACT)
    assert verdict.status is Status.HOLDS and verdict.error_rate == 0
    assert verdict.grade is Grade.EXACT


@pytest.mark.parametrize("name", ["log-normal", "rare jumps"])
def test_control_nominal_rates_are_not_kept(name):
    """Why Student's intervals are called nominal."""
    draw, _ = LAWS[name]
    found = list(on_means(draw, 20, intervals.student, (1.0, np.inf), Grade.NOMINAL))
    assert wrong(found)[0] > STATED
    assert {verdict.grade for verdict in found} == {Grade.NOMINAL}
