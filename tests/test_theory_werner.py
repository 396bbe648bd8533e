"""What the rows of Werner's theorems and lemmas compute, against closed forms."""

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from cfljax import intervals
from cfljax.statements import evaluate
from cfljax.statements.judges import ERROR_RATE
from cfljax.statements.statement import Preset
from cfljax.statements.verdict import Grade, Status
from theory.werner import (
    assumptions,
    lemmas,
    lemmas_members,
    lemmas_points,
    theorem1,
    theorem1_finite,
    theorem1_lemmas,
    theorem1_points,
    theorem1_share,
    theorem2,
    theorem3,
    theorem3_corrected,
    theorem3_proof,
    theorem4,
    theorem4_corrected,
    theorem4_proof,
    threshold_rule,
)
from theory.werner.common import instances, laws
from theory.werner.common import one_client as client
from theory.werner.common import population_map as rule
from theory.werner.common.claims import Family, exactly, one_constant, reached
from theory.werner.common.instances import Instance
from theory.werner.common.one_client import Cluster

# What they share: hidden constants, laws, rule (4), and one client.

LEVELS = 2.0 ** np.arange(1, 7)
CORRECTED = (*theorem3_corrected.STATEMENTS, *theorem4_corrected.STATEMENTS)


def _status(ratios, **options):
    return one_constant("toy.a", [exactly("x", LEVELS, ratios)], **options).status


def test_slope_of_a_power_is_its_exponent():
    for power in (-1.0, 0.0, 0.5, 2.0):
        low, high = exactly("x", LEVELS, 3 * LEVELS**power).slope
        assert low <= power + 1e-12 and high >= power - 1e-12
        assert high - low < 1e-8


def test_slope_covers_every_line_within_the_intervals():
    ratios = LEVELS**0.3
    low, high = Family("x", LEVELS, 0.8 * ratios, 1.2 * ratios).slope
    tilted = ratios * np.linspace(0.8, 1.2, len(LEVELS))
    assert low < 0.3 < exactly("x", LEVELS, tilted).slope[0] < high
    assert low < exactly("x", LEVELS, tilted[::-1] / ratios[::-1] * ratios).slope[1]


def test_growth_and_the_declared_constant_count():
    assert _status(np.full(6, 0.5)) is Status.HOLDS
    assert _status(1 / LEVELS) is Status.HOLDS
    assert _status(0.01 * LEVELS) is Status.VIOLATED
    assert _status(np.full(6, 20.0)) is Status.VIOLATED
    assert _status(np.full(6, 20.0), constant=30.0) is Status.HOLDS


def test_wide_intervals_and_undefined_ratios_are_no_evidence():
    wide = Family("x", LEVELS, np.full(6, 0.5), np.full(6, 2.0))
    assert one_constant("toy.a", [wide]).status is Status.INCONCLUSIVE
    ratios = np.append(np.full(5, 0.5), np.nan)
    assert _status(np.roll(ratios, 3)) is Status.INCONCLUSIVE


def test_one_bad_family_spoils_all():
    good, bad = (exactly("x", LEVELS, LEVELS**power) for power in (0.0, 1.0))
    found = one_constant("toy.a", [good, bad], constant=1e9)
    assert found.status is Status.VIOLATED
    assert found.num_trials == 12 and found.error_rate == 0
    assert found.bound == pytest.approx(0.1)


def test_relief_takes_its_power_off_the_slope():
    family = exactly("x", LEVELS, 3 * LEVELS**0.5)
    low, high = family.relieved(0.3).slope
    assert low < 0.2 < high and high - low < 1e-8
    assert family.relieved(0.3).low[0] == family.low[0]
    assert _status(0.01 * LEVELS**0.5, relief=0.3) is Status.VIOLATED
    assert _status(0.01 * LEVELS**0.5, relief=0.5) is Status.HOLDS


def test_a_sharp_constant_is_neither_too_large_nor_falls_short_by_slope():
    assert _status(np.full(6, 0.99), constant=1.0, sharp=0.98) is Status.HOLDS
    assert _status(np.full(6, 0.90), constant=1.0, sharp=0.98) is Status.VIOLATED
    assert _status(LEVELS**-0.5, constant=1.0) is Status.HOLDS
    assert _status(LEVELS**-0.5, constant=1.0, sharp=0.5) is Status.VIOLATED


def test_known_shares_of_a_bound_are_missed_on_either_side():
    assert reached("toy.a", [0.5, 0.2], [0.5, 0.2]).status is Status.HOLDS
    assert reached("toy.a", [0.5, 0.2], [0.5, 0.1]).status is Status.VIOLATED
    assert reached("toy.a", [0.5, 0.2], [0.5, 0.4]).status is Status.VIOLATED


def test_grade_and_parameters_of_families():
    family = exactly("x", LEVELS, np.full(6, 0.5), n=LEVELS, share=0.25)
    found = one_constant("toy.a", [family, family])
    assert found.grade is Grade.EXACT
    assert one_constant("toy.a", [family], num_trials=9).grade is Grade.NOMINAL
    told = one_constant("toy.a", [family], num_trials=9, grade=Grade.SAMPLED)
    assert told.grade is Grade.SAMPLED
    assert found.points is not None
    np.testing.assert_array_equal(found.points.coordinates["n"], [*LEVELS, *LEVELS])
    np.testing.assert_array_equal(found.points.coordinates["share"], 0.25)


SIGMA, SIZE = 0.7, 5.0


@pytest.mark.parametrize("law", [laws.skew2(SIZE, SIGMA), laws.sym3(SIZE, SIGMA)])
def test_discrete_laws_have_mean_0_and_variance(law):
    assert np.sum(law.chances) == pytest.approx(1, abs=1e-15)
    assert np.sum(law.chances * law.values) == pytest.approx(0, abs=1e-14)
    assert laws.variance(law) == pytest.approx(SIGMA**2, rel=1e-13)


def test_atoms_are_where_they_should_be():
    skewed, symmetric = laws.skew2(SIZE, SIGMA), laws.sym3(SIZE, SIGMA)
    assert np.ptp(skewed.values) == pytest.approx(SIZE, rel=1e-15)
    assert skewed.chances[1] < 0.5  # the rare atom is the far one
    np.testing.assert_array_equal(symmetric.values, [-SIZE, 0, SIZE])
    assert laws.variance(laws.skew2(1e9, 1.0)) == pytest.approx(1, rel=1e-12)
    np.testing.assert_array_equal(laws.line(3, 2.0), [0, 2, 4])


@pytest.mark.parametrize("name", ["gauss", "unif", "t3"])
def test_total_variance_of_continuous_laws(name):
    generator = Preset().generator("laws", len(name))
    points = laws.draw(name, generator, (400, 50, 3), SIGMA)
    # t3 has no fourth moment: the interval is wide, and its mean of trials robust.
    squares = np.sum(points**2, axis=-1).mean(axis=1)
    low, high = intervals.student(squares, error_rate=ERROR_RATE)
    assert low < SIGMA**2 < high and high - low < 0.5 * SIGMA**2
    assert not low < 3 * SIGMA**2 < high  # control: one coordinate's variance as all


def test_sample_follows_the_chances():
    law = laws.sym3(2.0, 1.0)
    found = laws.sample(law, Preset().generator("sample"), (1000, 50))
    assert found.shape == (1000, 50)
    events = np.array([np.sum(found == value) for value in law.values])
    low, high = intervals.clopper_pearson(
        events, np.full(3, found.size), error_rate=ERROR_RATE / 3
    )
    assert np.all((low < law.chances) & (law.chances < high))
    assert not low[0] < law.chances[1] < high[0]  # control


def test_stratified_interval_is_exact_where_strata_are():
    chances = np.array([0.25, 0.75])
    sure, unsure = np.array([[[4.0, 4, 4], [0, 0, 0]], [[3, 5, 4], [0, 0, 0]]])
    found = laws.stratified(sure, chances, error_rate=0.01)
    assert found == pytest.approx((1, 1))
    low, high = laws.stratified(unsure, chances, error_rate=0.01)
    assert low < 1 < high


def test_misuse():
    with pytest.raises(ValueError, match=r"^`size` must be at least 2 sigma"):
        laws.skew2(1.0, SIGMA)
    with pytest.raises(ValueError, match=r"^`size` must be at least sigma"):
        laws.sym3(0.5, SIGMA)


def _clusters(law, share=0.25, separation=100.0, bad=0.0):
    shares = np.array([share, 1 - share - bad])
    return rule.mixture([law, law], laws.line(2, separation), shares)


def test_good_separation_contracts_by_the_share():
    """All of the cluster in the ball, nobody else: v - mu falls by 1 - delta."""
    points, starts = _clusters(laws.sym3(2.0, 1.0)), np.array([0.5, -1.0, 0.0])
    found = rule.settle(points, starts, 10.0, num_rounds=7)
    np.testing.assert_allclose(found, starts * 0.75**7, atol=1e-15)
    assert np.abs(found[0] - 0.5 * 0.76**7) > 1e-3  # control


def test_edge_adversary_moves_by_its_share():
    """The fixed point is beta tau/delta away."""
    points = _clusters(laws.sym3(2.0, 1.0), bad=0.05)
    found = rule.settle(
        points, np.zeros(2), 10.0, num_rounds=200, push=np.array([0.05, -0.05])
    )
    np.testing.assert_allclose(found, [2, -2], rtol=1e-12)


def test_skewed_law_settles_at_the_mean_of_the_ball():
    law = laws.skew2(15.0, 1.0)
    found = rule.settle(_clusters(law), np.zeros(1), 10.0, num_rounds=200)
    np.testing.assert_allclose(found, law.values[:1], rtol=1e-12)
    assert laws.variance(law) < 15 * np.abs(found[0])  # s p > sigma^2/s


def test_edge_of_the_ball_is_inside():
    points = rule.Mixture(np.array([3.0]), np.array([0.5]))
    assert rule.move(points, np.zeros(1), 3.0)[0] == 1.5
    assert rule.move(points, np.zeros(1), np.nextafter(3.0, 0))[0] == 0


def test_plane_and_line_agree_and_each_centre_has_its_mixture():
    law = laws.skew2(15.0, 1.0)
    real, starts = _clusters(law), np.array([0.2, 3.0, -7.0])
    turn = np.exp(0.3j)
    turned = rule.Mixture(real.places * turn, real.masses)
    line = rule.settle(real, starts, 10.0, num_rounds=5, push=0.01)
    plane = rule.settle(turned, starts * turn, 10.0, num_rounds=5, push=0.01 * turn)
    np.testing.assert_allclose(plane / turn, line, rtol=1e-12)
    many = rule.Mixture(
        np.stack([real.places + shift for shift in starts]), real.masses
    )
    own = rule.settle(many, starts, 10.0, num_rounds=5)
    alone = rule.settle(real, np.zeros(1), 10.0, num_rounds=5)
    np.testing.assert_allclose(own - starts, np.repeat(alone, 3), rtol=1e-9)


def test_instances_of_theorem_1_by_hand():
    one = instances.Instance(0.25, 100.0, 0.01)
    assert one.radius == 5 and one.num_rounds == 69
    assert one.least_rounds == pytest.approx(np.log(0.01) / np.log(0.875))
    assert one.printed(50.0) == pytest.approx(0.02 + 0.01 + 1)
    assert one.corrected(50.0) == pytest.approx(0.02 + 0.04 + 0.04)
    found = instances.margins(one, instances.Instance(0.5, 40.0), start=0.5)
    assert [margin.holds for margin in found] == [False, True, True, True]
    assert found[0].have == 40 and found[0].need == 48


def test_settled_square_is_that_of_the_mean_of_the_ball():
    one = instances.Instance(0.25, 200.0)
    law = laws.skew2(1.5 * one.radius, 1.0)
    found = instances.settled_square(one, 1.5, rounds=500)
    assert found == pytest.approx(law.values[0] ** 2, rel=1e-9)


def test_the_asked_rounds_by_hand():
    found = instances.asked_rounds(np.array([1.0, 2.0, 8.0]), 8.0, 0.5)
    np.testing.assert_allclose(found, [np.log(8), np.log(4), 0] / np.log(4 / 3))


RNG = np.random.default_rng(0)


def crowd(trials: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points all over the place, so that balls win and lose members on the way."""
    places = RNG.normal(size=(trials, 30)) * RNG.choice([0.3, 1, 5], size=(trials, 1))
    masses = RNG.dirichlet(np.ones(30)) * 0.9
    return places, masses, RNG.normal(size=trials)


@pytest.mark.parametrize("push", [0.0, 0.04, -0.1])
def test_settled_centres_follow_rule_4(push):
    places, masses, starts = crowd(300)
    for rounds in (1, 2, 7, 60):
        found = client.settled(
            places, masses, starts, 0.8, num_rounds=rounds, push=push
        )
        points = rule.Mixture(places, np.broadcast_to(masses, places.shape))
        plain = rule.settle(points, starts, 0.8, num_rounds=rounds, push=push)
        np.testing.assert_allclose(found, plain, rtol=0, atol=1e-12)


def test_a_jump_over_a_change_of_members_would_show():
    """Control: with the members of round 1 for ever the centres are elsewhere."""
    places, masses, starts = crowd(300)
    found = client.settled(places, masses, starts, 0.8, num_rounds=60)
    inside = np.abs(places - starts[:, None]) <= 0.8
    weight = np.sum(masses * inside, axis=1)
    mean = np.sum(masses * inside * places, axis=1) / np.maximum(weight, 1e-300)
    frozen = mean + (1 - weight) ** 60 * (starts - mean)
    assert np.sum(np.abs(found - frozen) > 0.01) > 50


def test_mean_square_is_that_of_the_recursion():
    start, step, first, second, rounds = 1.3, 0.4, 0.2, 0.5, 25
    mean, spread, squares = start, 0.0, []
    for _ in range(rounds):
        squares.append(mean**2 + spread)
        mean = (1 - step) * mean - step * first
        spread = (1 - step) ** 2 * spread + step**2 * (second - first**2)
    found = client.mean_square(start, step, first, second, rounds)
    assert found == pytest.approx(np.mean(squares), rel=1e-12)
    found = client.mean_square(start, 1.0, first, second, rounds)
    last = (start**2 + (rounds - 1) * second) / rounds
    assert found == pytest.approx(last, rel=1e-12)


def test_moments_of_e_are_those_of_all_signs():
    """Every sign of every member's noise, through rule (4)."""
    cluster = client.Cluster(good=4, other=5, bad=1, separation=60.0)
    radius = cluster.radius(1.0)
    signs = np.array(list(itertools.product((-1.0, 1.0), repeat=4)))
    errors = client.centre_errors(cluster, signs, radius)
    found = client.moments(cluster, radius)
    assert found.first == pytest.approx(np.mean(errors), rel=1e-12)
    assert found.second == pytest.approx(np.mean(errors**2), rel=1e-12)
    assert found.first > 0.1 and found.second > found.first**2 + 0.1
    with pytest.raises(ValueError, match=r"^`radius` must lie between 2"):
        client.moments(cluster, 2.0)


def test_moments_of_e_tell_the_mean_square_of_whole_runs():
    """Algorithm 2 step by step, with bad clients, against the closed form."""
    cluster, rounds, trials, step = client.Cluster(bad=2), 12, 4000, 0.5
    radius = cluster.radius(1.0)
    found = client.moments(cluster, radius)
    exact = client.mean_square(2.0, step, *found, float(rounds))
    gradient, squares = np.full(trials, 2.0), np.zeros(trials)
    for _ in range(rounds):
        squares += gradient**2 / rounds
        noise = RNG.choice([-1.0, 1.0], size=(trials, cluster.good))
        centre = gradient + client.centre_errors(cluster, noise, radius)
        gradient = gradient - step * centre
    error = np.std(squares) / np.sqrt(trials)
    assert abs(np.mean(squares) - exact) <= 5 * error
    assert error < 0.01 * exact


def test_a_band_refuses_a_bound_that_is_larger_than_needed():
    families = [exactly("x", LEVELS, np.full(6, 0.5))]
    for least, status in ((0.4, Status.HOLDS), (0.6, Status.VIOLATED)):
        found = client.banded("toy.a", families, least=least, constant=1.0)
        assert found.status is status
    # With the power that is missing it is the same of a growing ratio.
    growing = [exactly("x", LEVELS, 0.25 * LEVELS)]
    found = client.banded("toy.a", growing, relief=1.0, least=0.49, constant=0.51)
    assert found.status is Status.HOLDS


def test_sure_members_give_the_known_error():
    """e = (1 - delta)^l xi_i + (1 - (1 - delta)^l) (mean + beta tau/delta)."""
    cluster = client.Cluster(bad=2)
    noise = RNG.uniform(-1, 1, size=(50, cluster.good))
    radius = cluster.radius(1.0)
    found = client.centre_errors(cluster, noise, radius)
    kept = (1 - cluster.delta) ** cluster.num_rounds
    pull = cluster.beta * radius / cluster.delta
    exact = kept * noise[:, 0] + (1 - kept) * (np.mean(noise, axis=1) + pull)
    np.testing.assert_allclose(found, exact, atol=1e-12)
    assert np.all(np.abs(found - noise[:, 0]) > 1e-3)


def test_bounds_by_hand():
    level = client.Level(
        1.0, client.Cluster(10, 8, 2, 40.0, 2.0, 4.0), start=3.0, rounds=50.0
    )
    assert level.cluster.delta == 0.5 and level.cluster.beta == 0.1
    assert level.cluster.rho == 1.0
    assert client.printed(level) == pytest.approx(np.sqrt((0.4 + 0.2 + 8.0) / 50))
    noise = 1 / 10 + 1 / (0.5 * 40) + 0.01 * 40 / 0.5
    assert client.corrected(level) == pytest.approx(4.5 / 50 + noise)
    assert level.radius == pytest.approx(np.sqrt(0.5 * 2 * 40))
    closer = level._replace(by_batch=True)
    assert closer.radius == pytest.approx(np.sqrt(0.5 * 1 * 40))


# Theorems and lemmas.


def moments(places: np.ndarray, chances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of the law in each row."""
    means = np.sum(chances * places, axis=1)
    return means, np.sum(chances * np.abs(places - means[:, None]) ** 2, axis=1)


def test_clipped_mean_and_variance_by_hand():
    law = laws.Discrete(np.array([-3.0, 1.0]), np.array([0.25, 0.75]))
    # v = 2, tau = 1: 1 is in the ball, -3 becomes 2.
    mean, variance = theorem1_points.clipped(law, 0.0, 2.0, 1.0)
    assert mean == 1.25 and variance == pytest.approx(3 / 16)


@pytest.mark.parametrize("member", [False, True])
def test_one_round_against_all_samples(member):
    """Two clusters of two points: every sample, with and without v among them."""
    one = Instance(0.5, 20.0)
    law = laws.skew2(0.8 * one.radius, 1.0)
    centre = float(law.values[1]) if member else 0.4
    places, chances = assumptions.all_samples(law, 4)
    if member:  # the first point is v
        fixed = places[:, 0] == centre
        places, chances = places[fixed], chances[fixed] / law.chances[1]
    places = places + np.array([0, 0, 20, 20])
    kept = np.where(np.abs(places - centre) <= one.radius, places, centre)
    wanted = np.sum(chances * kept.mean(axis=1) ** 2)
    found = theorem1_lemmas.one_round(one, law, centre, 2.0, member=member)
    assert found == pytest.approx(wanted, rel=1e-12)
    other = theorem1_lemmas.one_round(one, law, centre, 2.0, member=not member)
    assert other != pytest.approx(wanted, rel=1e-3)


def test_variance_of_a_sum_against_all_samples():
    law, radius = laws.sym3(2.0, 1.0), 2.5
    places, chances = assumptions.all_samples(law, 5)
    apart = np.abs(places - places[:, :1])
    sums = np.where(apart <= radius, places, places[:, :1]).sum(axis=1)
    wanted = np.sum(chances * (sums - np.sum(chances * sums)) ** 2)
    found = theorem1_points.sum_variance(law, 5, radius)
    assert found == pytest.approx(wanted, rel=1e-12)
    assert wanted > 5  # n sigma^2, Lemma 3's bound


def test_a_far_member_stays_for_all_draws():
    one, generator = Instance(0.5, 200.0), Preset().generator("member")
    found = theorem1.member_errors(generator, one, 40, radius=one.radius)
    np.testing.assert_allclose(found, [100.2001, 0, 100.2001], atol=1e-12)


def test_bad_points_move_by_their_share_of_the_radius():
    """Noise within the ball and no strays: (beta tau/delta)^2 and the skewed bias."""
    one = Instance(0.25, 1e6, 0.02)
    found = theorem1_share.worst_square(one, 1e3)
    assert found == pytest.approx((0.08 * 1e3) ** 2, rel=0.01)
    assert theorem1_share.worst_square(one._replace(bad=0.0), 1e3) < 2e-6


def test_the_corrected_bound_by_hand():
    """24 s^2 = tau^2, tau = Delta/3, beta = delta/12, eta = 1/2."""
    found = rule.within_reach(0.25, 30.0, 10.0, 0.25 / 12, spread=100 / 24)
    assert found.taken == pytest.approx(0.25 * 5 / 6)
    parts = 2 * (100 / 24) / 10 + 10 / (0.25 * 15**2) + 10 / 12
    assert found.rest == pytest.approx(parts * 6 / 5)


def test_errors_of_bounded_noise_from_a_member_against_all_samples():
    law = laws.Discrete(np.array([-1.0, 1.0]), np.full(2, 0.5))
    places, chances = assumptions.all_samples(law, 4)
    mean, left = places.mean(axis=1), 0.75**3
    square = chances @ ((1 - left) * mean + left * places[:, 0]) ** 2
    assert theorem1.from_a_member(4, 0.25, 3) == pytest.approx(square, rel=1e-12)


def test_mean_square_of_finitely_many_points_against_all_samples():
    """Two points of the cluster, two strangers: each of the 16 samples by rule (4)."""
    one = theorem1_finite.Sampled(2, 0.5, 20.0, 4.0)
    law = laws.skew2(4.5, 1.0)
    far = 20.0 - 0.99 * 4.0
    stray = laws.Discrete(
        np.array([-0.99 * 4.0, -1e9]), np.array([1.0, far**2]) / (1 + far**2)
    )
    own, own_chances = assumptions.all_samples(law, 2)
    other, other_chances = assumptions.all_samples(stray, 2)
    wanted = 0.0
    for mine, chance in zip(own, own_chances, strict=True):
        for theirs, weight in zip(other, other_chances, strict=True):
            points = rule.Mixture(np.concatenate([mine, theirs]), np.full(4, 0.25))
            found = rule.settle(points, np.array([1.5]), 4.0, num_rounds=7)
            wanted += chance * weight * found[0] ** 2
    found = theorem1_finite.mean_square(one, law, 1.5, 7)
    assert found == pytest.approx(wanted, rel=1e-12)
    assert found != pytest.approx(theorem1_finite.mean_square(one, law, 0.0, 7))


@pytest.mark.parametrize("index", range(5))
def test_each_coefficient_of_the_finite_bound_is_needed_by_its_proof(index):
    less = lambda numbers: [
        one - (place == index) * Fraction(1, 100) for place, one in enumerate(numbers)
    ]
    for name, numbers in (("terms", (2, 1, 1, 1, 1)), ("exponent", (1, 1, 1, 1))):
        if index < len(numbers):
            changed: dict[str, Any] = {name: less(numbers)}
            steps = theorem1_finite.prove_finite(**changed)
            assert sum(not step.holds for step in steps) == 1
    assert all(step.holds for step in theorem1_finite.prove_finite())


def test_terms_of_the_finite_bound_by_hand():
    one = theorem1_finite.Sampled(100, 0.25, 100.0, 10.0, 0.02)
    assert one.gap == 85 and one.kept == 0.75
    sampling, bias, pull = one.terms
    assert sampling == pytest.approx((2 + 10 / (0.5 * 85)) / 10 / 0.75)
    assert bias == pytest.approx((1 / 5 + 10 / (0.25 * 85**2)) / 0.75)
    assert pull == pytest.approx(0.8 / 0.75)
    rare = (7 + 0.5) * 10 * np.sqrt(one.chance)
    start = (1 - 0.75 * 0.25) ** 7 * 3
    assert one.bound(3.0, 7) == pytest.approx(start + sampling + bias + pull + rare)
    power = 0.4
    rate = power * (0.5 - 0.08 - 0.1) - np.expm1(0.8) / 25 - np.expm1(0.4) / 85**2 * 4
    assert -np.log(one.chance) >= 100 * rate


def test_one_round_of_lemma_8_is_that_of_lemma_1():
    """Two clusters with one law, noise on one side of the ball."""
    one = Instance(0.5, 60.0)
    law = laws.skew2(1.1 * one.radius, 1.0)
    row = lambda values: np.array([[*values, *[0.0] * (6 - len(values))]])
    rounds = lemmas.Rounds(
        row(law.values),
        row(law.chances),
        60.0 + law.values[None],
        law.chances[None],
        np.array([0.5]),
        np.array([1.0]),
        np.array([one.radius]),
        np.array([60.0]),
        np.array([1.2]),
    )
    found = lemmas.one_round(rounds, np.array([8.0]))
    wanted = theorem1_lemmas.one_round(one, law, 1.2, 8.0, member=False)
    assert found.left[0] == pytest.approx(wanted, rel=1e-12)
    assert found.terms[0, 0] == pytest.approx(0.75 * 1.44)
    assert found.terms[3, 0] == pytest.approx(0.25 / 8)


def test_mean_less_deviation_of_two_points_is_the_smaller():
    law = laws.skew2(3.0, 1.0)
    moved = laws.Discrete(law.values + 0.7, law.chances)
    places = np.minimum(law.values[:, None], moved.values)
    wanted = law.chances @ places**2 @ moved.chances
    assert theorem2.less_deviation(1, (law, moved)) == pytest.approx(wanted)


def test_half_way_is_off_by_half_of_what_a_mixture_allows():
    # s = S/2, Delta = 2: h is from Delta/2 = 1 to s = sqrt 2.
    answer = theorem2.half_way(2.0, np.sqrt(2.0))
    assert answer == pytest.approx(-(1 + np.sqrt(2)) / 2)
    assert (answer + 1) ** 2 == pytest.approx((np.sqrt(8) - 2) ** 2 / 16)
    # s = 3 > S/2: from sqrt(s^2 - 1) on.
    assert theorem2.half_way(2.0, 3.0) == pytest.approx(-(3 + np.sqrt(8)) / 2)


def test_rounds_needed_are_the_first_that_are_enough():
    one = Instance(0.25, 200.0)
    needed = theorem1.rounds_needed(one, 64)
    squares = 1 / 64 + 0.75 ** (2.0 * np.arange(60)) * (1 - 1 / 64)
    assert needed == np.argmax(squares <= 2 * one.printed(64.0)) > 0
    assert theorem1.rounds_needed(one, 1) == 0


def test_worst_instances_meet_every_condition():
    one = theorem1.worst_instances(Preset().generator("worst"), 500)
    assert np.all(one.radii**2 >= 24 * (1 - 1e-12))
    assert np.all(one.radii <= one.separations / 3 * (1 + 1e-12))
    assert np.all(one.shares * one.separations**2 >= 48 * (1 - 1e-12))
    assert np.all(one.bad <= one.shares / 12 * (1 + 1e-12))
    assert np.all(np.abs(one.starts) <= one.radii / 2 * (1 + 1e-12))
    np.testing.assert_allclose(one.points.masses.sum(axis=1) + one.bad, 1)
    own, rest = one.points.places[:, :3], one.points.places[:, 3:]
    means, spread = moments(own, one.points.masses[:, :3] / one.shares[:, None])
    np.testing.assert_allclose(spread, 1)
    assert np.max(np.abs(means)) < 1e-9
    shares = one.points.masses[:, 3:]
    means, spread = moments(rest, shares / shares.sum(axis=1, keepdims=True))
    np.testing.assert_allclose(means, one.separations, rtol=1e-9)
    np.testing.assert_allclose(spread, 1, rtol=1e-6)


def test_atoms_of_students_law():
    law = theorem1.student()
    assert np.sum(law.chances) == pytest.approx(1, abs=1e-12)
    assert 0.98 < laws.variance(law) < 1
    np.testing.assert_allclose(law.values, -law.values[::-1])
    # Half of the standard law's mass is within 0.7649 of 0.
    near = np.abs(law.values) <= 0.7649 / np.sqrt(3)
    assert np.sum(law.chances[near]) == pytest.approx(0.5, abs=0.02)


def test_energy_is_the_double_sum():
    generator = Preset().generator("energy")
    points = generator.standard_normal((6, 2))
    chosen = np.array([1.0, 0, 0, 1, 1, 0])
    apart = np.linalg.norm(points[:, None] - points[None], axis=-1)
    first, second = np.flatnonzero(chosen), np.flatnonzero(1 - chosen)
    wanted = 2 * apart[np.ix_(first, second)].mean()
    wanted -= apart[np.ix_(first, first)].mean() + apart[np.ix_(second, second)].mean()
    assert assumptions.energy(apart, chosen[None])[0] == pytest.approx(wanted)


def test_attacks_of_the_battery():
    """Static on the edge: beta tau/(beta + delta); in the middle: half of it."""
    one = Instance(0.25, 4000.0, 0.02)
    cases = ["edge, adaptive", "edge, static", "middle", "far", "two sides"]
    found = np.sqrt(threshold_rule.squared_errors([one] * 5, cases)) / one.radius
    static = 0.02 / 0.27
    wanted = [0.08, 0.999 * static, 0.5 * static, 0, 0]
    np.testing.assert_allclose(found, wanted, atol=1e-9)


def test_pairs_of_theorem_2_in_fractions():
    laws_2 = theorem2.pair(Fraction(2))
    assert laws_2.separation == Fraction(3, 2) and laws_2.root == Fraction(5, 2)
    assert laws_2.chance == Fraction(1, 5) and laws_2.size == Fraction(5, 2)
    assert laws_2.least_risk == Fraction(1, 16)
    assert laws_2.variances == (1, 1)
    floats = theorem2.laws_apart(1.5)
    assert floats == pytest.approx((1.5, 2.5, 0.2))
    assert floats.least_risk == pytest.approx(1 / 16)


def test_answers_of_algorithms_by_hand():
    told, ones = theorem2.laws_apart(8.0), np.array([0.0, 0.25, 1.0])
    size = told.size
    answers = {name: one(told, ones) for name, one in theorem2.ALGORITHMS.items()}
    np.testing.assert_allclose(answers["mean"], [0, size / 4, size])
    np.testing.assert_allclose(answers["median"], [0, 0, size])
    np.testing.assert_allclose(answers["2-means"], [0, 0, size])
    assert answers["EM"][1] < 1e-6 * size
    np.testing.assert_allclose(answers["Threshold-Clustering"], 0)
    np.testing.assert_allclose(answers["half-way"], size * told.chance / 2)


def test_literal_rule_by_hand():
    points, centre = np.array([[0.0], [3.0], [9.0]]), np.array([1.0])
    for ball_only, wanted in ((False, 4 / 3), (True, 1.5)):
        moved = threshold_rule.literal(points, centre, 2.0, ball_only=ball_only)
        assert moved == pytest.approx(wanted)


def test_clusters_of_the_plane_meet_assumption_4():
    for similarity in (0.1, 0.5, 1.0, 2.0, 4.0):
        run = theorem3.Plane(similarity, 1.0)
        slopes, masses = theorem3.slopes((run,))
        assert np.sum(masses) == pytest.approx(run.share)
        assert np.sum(masses * slopes) == pytest.approx(run.share)
        assert np.max(np.abs(slopes - 1)) == pytest.approx(similarity)
        assert np.all(slopes >= 0) and np.all(masses >= 0)


def test_a_captured_client_ends_where_the_average_gradient_vanishes():
    """delta x + (1 - delta) (x - 2 R) = 0 at x = 2 R (1 - delta) = 150."""
    runs = tuple(theorem3.Plane(similarity, 4.0) for similarity in (2.0, 0.5))
    ends = theorem3.follow(runs, 300)[:, -1]
    assert np.sqrt(ends[0]) == pytest.approx(150, rel=1e-3)
    assert ends[1] < 1e-20


def test_noise_in_the_plane_is_averaged_over_the_cluster():
    squares = theorem3_corrected.noisy_runs(Preset(), np.array([0.0]), 40)[0]
    settled = np.mean(squares[:, 20:])
    # e has variance sigma^2/8, of which x = x - e/2 keeps a third.
    assert settled == pytest.approx(1 / 24, rel=0.1)


def test_start_moments_against_all_samples():
    """Three members, each at -s, 0 or s."""
    cluster = Cluster(good=3, other=3, separation=200.0)
    radius = cluster.radius(1.0)
    for reach in (0.4, 1.001):
        law = laws.sym3(reach * radius, 1.0)
        places, chances = assumptions.all_samples(law, 3)
        errors = client.centre_errors(cluster, places, radius)
        found = theorem3.start_moments(cluster, reach)
        assert found[0] == pytest.approx(np.sum(chances * errors), abs=1e-12)
        assert found[1] == pytest.approx(np.sum(chances * errors**2), rel=1e-9)
    assert found[1] > 0.9  # beyond the ball the error is all of sigma^2


def random_round(generator, similarity, growth):
    """A round of Theorem 3' with everything at its edge: noise of tau_0/4, strangers
    Delta away, bad clients on the edge of every ball. Returns |v - m|, |v - grad f_i|,
    and what the proof says of both."""
    rho, n, strangers = (
        1.0,
        int(generator.integers(1, 9)),
        int(generator.integers(0, 9)),
    )
    bad = int(generator.integers(0, n // 2 + 1))
    total = n + strangers + bad
    delta, beta = n / total, bad / total
    separation = 24 * rho / delta * generator.uniform(1, 3)
    rounds = 10_000 if delta == 1 else Cluster(n, strangers, bad, separation).num_rounds
    rounds = min(rounds, 200)
    turns = lambda size: np.exp(2j * np.pi * generator.random(size))
    size = growth * separation  # |grad fbar|
    own = size * similarity / rounds * turns(n)
    own = (own - np.mean(own)) / 2  # less grad fbar, and at most A |grad fbar| long
    spread = similarity / rounds * size
    inner = np.sqrt(delta * rho * separation)
    radius = inner + 4 * spread
    points = own + inner / 4 * turns(n) * generator.random(n)
    nearest = generator.integers(0, n, strangers)
    # Away from all of the cluster, though next to one of it.
    side = turns(strangers)
    away = separation + np.max(np.abs(own[:, None] - own), initial=0)
    far = own[nearest] + side * away + inner / 4 * turns(strangers)
    mean, centre = np.mean(points), points[0]
    for _ in range(rounds):
        here = np.append(points, far)
        pull = np.sum(np.where(np.abs(here - centre) <= radius, here - centre, 0))
        pull += bad * radius * turns(1)[0] * generator.choice([1, 1, 0.5])
        centre = centre + pull / total
    kept = (1 - delta) ** rounds
    near = kept * np.abs(points[0] - mean) + beta / delta * radius
    noise = np.abs(mean - np.mean(own)) + near - beta / delta * 4 * spread
    return (
        (np.abs(centre - mean), near, spread <= separation / 12),
        (np.abs(centre - own[0]), 7.1 * rounds * spread + noise),
    )


@pytest.mark.long
def test_rounds_at_the_edge_of_every_condition_obey_the_proof_of_theorem_3():
    generator, near, ratios = np.random.default_rng(1), 0, []
    for trial in range(600):
        similarity = (0.0, 1 / 16)[trial % 2]
        growth = float(10 ** generator.uniform(-2, 5))
        first, second = random_round(generator, similarity, growth)
        if first[2]:
            near += 1
            assert first[0] <= first[1] * (1 + 1e-9) + 1e-9
            ratios.append(first[0] / max(first[1], 1e-3))
        assert second[0] <= second[1] * (1 + 1e-9)
    assert near > 300 and max(ratios) > 0.9


def test_a_chased_client_has_the_error_of_all_signs():
    cluster = Cluster(3, 3, 1, 24 * 7 / 3)
    found = theorem3_corrected.chased(cluster)
    kept = (1 - cluster.delta) ** cluster.num_rounds
    pull = cluster.beta * cluster.radius(1.0) / cluster.delta
    # Means of three signs: 1 with chance 1/4, else 1/3; k is small.
    exact = (1 + pull) ** 2 / 4 + (1 / 3 + pull) ** 2 * 3 / 4
    assert found.mean == pytest.approx(exact, rel=3 * kept + 1e-5)


def test_alike_runs_near_the_minimum_are_those_of_the_closed_form():
    """A = 0 and nobody bad: rule (4) round by round gives (1 - eta L)^2 a step."""
    run = theorem3_corrected.Similar(Cluster(), 0.0, start=0.01)
    found = theorem3_corrected.similar_run(run, 5)
    assert found.mean == pytest.approx(0.5**2 / 5, rel=1e-9)
    assert found.start == pytest.approx(0.5**2 / 2 / 5, rel=1e-9)


def test_momenta_next_to_a_sure_ball_are_those_of_one_momentum_run():
    cluster = Cluster(good=6, other=6, separation=1e6)
    runs = [theorem4_corrected.Run(cluster, 9, 0.2, 0.4, 1.5)]
    silence = lambda stream, shape: np.zeros(shape)
    squares = theorem4_corrected.follow(runs, RNG, silence, trials=2)
    gradient, momentum, exact = 1.5, 0.0, []
    for _ in range(9):
        exact.append(gradient**2)
        momentum += 0.4 * (gradient - momentum)
        gradient -= 0.2 * momentum
    np.testing.assert_allclose(squares[0, 1], exact, rtol=1e-9)
    mean = theorem4_corrected.mean_squares(runs, squares)[0, 0]
    assert mean == pytest.approx(np.mean(exact), rel=1e-9)
    _, alike = theorem4.pair(np.array([0.2]), np.array([0.4]), 9)
    np.testing.assert_allclose(1.5**2 * alike[0], exact, rtol=1e-12)


@pytest.mark.parametrize("bad", [0, 2])
def test_exact_means_of_momenta_are_those_of_whole_runs(bad):
    """Algorithm 4 step by step with noise -sigma or sigma."""
    cluster = Cluster(bad=bad, separation=200.0)
    run = theorem4_corrected.Run(cluster, 25, 0.2, 0.4, 1.5)
    signs = lambda stream, shape: stream.choice([-1.0, 1.0], size=shape)
    squares = theorem4_corrected.follow([run], RNG, signs, trials=3000)
    means = theorem4_corrected.mean_squares([run], squares)[0]
    exact = theorem4_corrected.exact_mean(run)
    error = np.std(means) / np.sqrt(len(means))
    assert abs(np.mean(means) - exact) < 5 * error < 0.05 * exact
    with pytest.raises(ValueError, match=r"^`run` must have a radius between"):
        theorem4_corrected.exact_mean(run._replace(cluster=Cluster(separation=2.0)))


def test_linear_means_by_hand():
    """Two rounds: G_1 = G_0 (1 - s a) - s pull, less s a zeta."""
    found = theorem4_corrected.linear_mean(
        start=2.0, step=0.3, alpha=0.5, spread=4.0, pull=1.0, rounds=2
    )
    second = (2 * (1 - 0.15) - 0.3) ** 2 + 0.15**2 * 4
    assert found == pytest.approx((4 + second) / 2, rel=1e-12)


def test_bounds_of_theorem_4_by_hand():
    cluster = Cluster(10, 8, 2, 40.0, 2.0)
    run = theorem4_corrected.Run(cluster, 50, 0.1, 0.25, 3.0)
    variance = 4 / 10 + 8 / 40
    pull = 0.1 * 2 * 40 / (50 * variance) ** 0.25
    assert run.printed == pytest.approx(np.sqrt(variance / 50) + pull)
    assert run.rho == 1.0 and run.first == pytest.approx(4.5 / 5)
    noise = 1 / 10 + 1 / (0.5 * 40) + 0.01 * 40 / 0.5
    assert run.corrected == pytest.approx(4.5 / 5 + noise)


def test_small_steps_meet_every_condition_of_theorem_4_and_refute_it():
    """Both clusters by rule (4), from v_0 a member's momentum, with alpha = 1: Delta
    apart in every round, and gradients that do not fall."""
    rounds, members = 200, 3
    models, squares, apart = np.array([0.0, 0.0]), [], []
    optima = np.array([-1.0, 1.0])
    for _ in range(rounds):
        # Of both clusters, each at its own model: momenta are gradients.
        momenta = np.repeat(models - optima, members)
        apart.append(momenta[0] - momenta[-1])
        squares.append(momenta[0] ** 2)
        points = rule.Mixture(momenta[None], np.full((1, 2 * members), 1 / 6))
        centres = [
            rule.settle(points, momenta[[first]], 0.05, num_rounds=40)[0]
            for first in (0, members)
        ]
        models = models - np.array(centres) / rounds
    assert min(apart) >= 2 / np.e and min(apart) < 0.745
    assert np.mean(squares) == pytest.approx((1 - np.exp(-2)) / 2, abs=2e-3)
    least, mean = theorem4.frozen(rounds)
    assert least == pytest.approx(min(apart), rel=1e-12)
    assert mean == pytest.approx(np.mean(squares), rel=1e-12)


EVALUATED = {
    "werner.thm3": (theorem3, {"rounds": [10, 1000, 10**5], "batch": [1, 400]}),
    "werner.thm4": (theorem4, {"malicious": [0.0, 0.02], "step_size": [1e-4, 0.02]}),
    "werner.lem13": (theorem4_proof, {"momentum": [0.1, 0.9], "rounds": [1, 50]}),
}


@pytest.mark.parametrize("name", EVALUATED)
def test_printed_claims_fail_at_parameters_of_ones_own_and_corrected_ones_do_not(name):
    module, sweep = EVALUATED[name]
    rows = {row.id: row for row in (*module.STATEMENTS, *CORRECTED)}
    for row, expected in ((rows[name], True), (rows[f"{name}.corrected"], False)):
        assert row.evaluation is not None
        known = {one.name for one in row.evaluation.parameters}
        swept = {key: values for key, values in sweep.items() if key in known}
        found = evaluate(row.evaluation, sweep=swept)
        assert bool(np.any(found.verdict == "violated")) is expected
        assert np.any(found.verdict != "not claimed here")


def test_the_bound_of_theorem_3_is_reached_at_parameters_of_ones_own():
    claim = theorem3_corrected.CORRECTED
    found = evaluate(claim, noise=1e-9, malicious=0.0, step_size=1.0, rounds=10)
    assert float(found.truth) == pytest.approx(float(found.bound), rel=1e-9)
    far = evaluate(claim, sweep={"separation": [1.0, 60.0]})
    assert list(far.claimed.values) == [False, True]


@pytest.mark.parametrize("members", [1, 4])
def test_a_batch_has_its_share_of_the_variance(members):
    row = {row.id: row for row in theorem3_proof.STATEMENTS}["werner.lem6"]
    assert row.evaluation is not None
    found = evaluate(row.evaluation, batch=members, noise=0.5)
    assert float(found.truth) == float(found.bound) == 0.25 / members


def test_the_least_alpha_is_the_root_of_two():
    step = np.logspace(-6, -0.2, 2000)
    root = np.sqrt(2) * (1 + 1e-9)
    steps = step[root * step <= 1]
    good = theorem4_proof.absorption(steps, root * steps)
    assert np.all(good <= (1 - steps) / 2)
    bad = theorem4_proof.absorption(steps, 1.41 * steps)
    assert np.any(bad > (1 - steps) / 2)


def test_absorption_is_the_sum_of_its_recursion():
    step, alpha, velocity = 0.2, 0.35, RNG.normal(size=4000) ** 2
    velocity[2000:] = 0
    error, total = 0.0, 0.0
    for square in velocity:
        error = (1 - alpha) ** 2 * (1 + alpha) * (error + step**2 / alpha * square)
        total += error
    bound = theorem4_proof.absorption(np.array([step]), np.array([alpha]))[0]
    assert total == pytest.approx(bound * np.sum(velocity), rel=1e-9)


def test_batch_of_two_points():
    gradients = np.array([[0.0, 0.0], [3.0, 4.0]])  # variance 25/4
    variance = theorem3_proof.batch_variance
    assert variance(gradients, 1, replaced=True) == pytest.approx(6.25)
    assert variance(gradients, 3, replaced=True) == pytest.approx(6.25 / 3)
    assert variance(gradients, 2, replaced=False) == 0


@pytest.mark.parametrize("heterogeneous", [False, True])
def test_hard_rounds_are_what_they_say(heterogeneous):
    generator = np.random.default_rng(0)
    rounds = lemmas.draw_rounds(generator, 200, heterogeneous=heterogeneous)
    for places, chances, mean, square in (
        (rounds.members, rounds.member_chances, 0.0, rounds.spread),
        (rounds.strangers, rounds.stranger_chances, rounds.separation, 1.0),
    ):
        assert np.all(chances >= 0)
        np.testing.assert_allclose(np.sum(chances, axis=1), 1, rtol=1e-12)
        middle, spread = moments(places, chances)
        np.testing.assert_allclose(np.abs(middle), mean, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(spread, square, rtol=1e-6)
    assert np.all(24 * rounds.spread <= rounds.radius**2 * (1 + 1e-12))
    assert np.all(3 * rounds.radius <= rounds.separation * (1 + 1e-12))
    assert np.all(rounds.shares * rounds.separation**2 * (1 + 1e-12) >= 48)
    assert np.all(2 * np.abs(rounds.starts) <= rounds.radius)
    assert (np.max(rounds.spread) > 1.5) == heterogeneous
    masses = lemmas.everybody(rounds, rounds.shares / 12).masses
    np.testing.assert_allclose(np.sum(masses, axis=1), 1 - rounds.shares / 12)


def test_two_atoms_have_mean_and_variance():
    place = np.array([-2.0, 0.5])
    other, chance = lemmas_points.two_atoms(place, 1.5)
    atoms, chances = np.stack([place, other], 1), np.stack([chance, 1 - chance], 1)
    mean, variance = moments(atoms, chances)
    np.testing.assert_allclose(mean, 1.5)
    np.testing.assert_allclose(variance, 1.0)


def test_worst_stranger():
    # From v = m the best atom is close to the edge of a ball that is far from the mean.
    found = lemmas_points.worst_stranger(0.0, 2.0, 100.0)
    assert found == pytest.approx(4 / (1 + 98**2), rel=1e-12)
    assert lemmas_points.worst_stranger(1.0, 2.0, 3.0) == 9.0
    # Without a ball nothing moves.
    assert lemmas_points.worst_stranger(1.0, 0.0, 3.0) == pytest.approx(1.0)


def test_members_keep_their_own_centre():
    variance, noise = lemmas_members.member_start_variance, laws.sym3(1.001, 0.1)
    for fresh in (False, True):  # whether v is none of the points
        for count in (1, 7, 300):
            found = variance(noise, 1.0, count, fresh=fresh)
            assert found == pytest.approx(count**2 * 0.01)
        # A ball for everybody: independent points, and v does not matter.
        assert variance(noise, 3.0, 7, fresh=fresh) == pytest.approx(7 * 0.01)


def test_conditional_variance_by_hand():
    coin = laws.Discrete(np.array([0.0, 1.0]), np.array([0.5, 0.5]))
    # The ball around 3 holds only the points at 1: y is 1 or 3.
    left, raw = lemmas_members.conditional_variance([coin, coin], 3.0, 2.0)
    assert (left, raw) == (pytest.approx(2.0), pytest.approx(0.5))


@pytest.mark.parametrize("alpha", [0.1, 0.7, 1.0])
def test_variance_of_momentum_on_a_quadratic(alpha):
    for step in (0.25, 1.0):
        found = theorem4_proof.total_variance(alpha, step, 2000)
        assert found == pytest.approx(alpha / (2 - alpha - step * alpha / 2), rel=1e-9)


def test_noise_of_momentum():
    law, times = theorem4_proof.noise_law, np.arange(1.0, 7)
    np.testing.assert_allclose(law(1.0, times, gradient_start=True), 1)
    assert law(0.1, times, gradient_start=True)[0] == pytest.approx(0.82)
    found = theorem4_proof.path_noise(0.3, 6, gradient_start=False)
    exact = law(0.3, times, gradient_start=False)
    np.testing.assert_allclose(found, exact, rtol=1e-12)


def test_path_variance_reaches_the_steepest_place():
    # |x^3 - x| is at most 2/(3 sqrt(3)); with chance 6/16 the four signs cancel.
    limit = 4 / 27 * 10 / 16
    found = lemmas.path_variance(1e-3, 1.0)
    assert found[0] == 0
    assert 0.8 * limit < np.max(found) < limit


@pytest.mark.long
def test_centres_that_stay():
    # With many clusters the last round still finds the centre on its way.
    np.testing.assert_allclose(lemmas.settled_error(), (2 * 0.49 / 3) ** 2, rtol=1e-4)
    assert lemmas.member_error(50.0) == pytest.approx(1.0)
    # skew2 without its rare atom has its mean at -s p.
    size = 1.5 * np.sqrt(4 * 24)
    low = (size - np.sqrt(size**2 - 4)) / 2
    assert lemmas.mean_error(4) == pytest.approx(low**2, rel=1e-3)


def test_streams_differ():
    """Control: not all instances are one."""
    one, two = (
        lemmas.draw_rounds(Preset().generator(name), 5, heterogeneous=True)
        for name in ("werner.lem7.corrected", "werner.lem8.corrected")
    )
    assert not np.allclose(one.radius, two.radius)


def test_momentum_of_two_rounds():
    exact = Fraction(9, 16) * 16 + Fraction(3, 16) * 32 + Fraction(1, 4) * 4
    for found in (theorem4_proof.momentum, theorem4_proof.average):
        assert found(Fraction(1, 4), 16, [32, 4]) == exact == 16
        assert found(1, 16, [32, 4]) == 4
