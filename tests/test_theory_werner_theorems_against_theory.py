"""What the rows of Werner's theorems and lemmas compute, against closed forms."""

from fractions import Fraction

import numpy as np
import pytest

from cfljax.statements.statement import Preset
from theory.werner import (
    assumptions,
    lemmas,
    lemmas_points,
    theorem1,
    theorem1_lemmas,
    theorem1_share,
    theorem2,
    theorem3,
    theorem3_proof,
    theorem4,
    theorem4_proof,
    threshold_rule,
)
from theory.werner.common import laws
from theory.werner.common.instances import Instance
from theory.werner.common.one_client import Cluster


def moments(places: np.ndarray, chances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of the law in each row."""
    means = np.sum(chances * places, axis=1)
    return means, np.sum(chances * np.abs(places - means[:, None]) ** 2, axis=1)


def test_clipped_mean_and_variance_by_hand():
    law = laws.Discrete(np.array([-3.0, 1.0]), np.array([0.25, 0.75]))
    # v = 2, tau = 1: 1 is in the ball, -3 becomes 2.
    mean, variance = theorem1_lemmas.clipped(law, 0.0, 2.0, 1.0)
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
    found = theorem1_lemmas.sum_variance(law, 5, radius)
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


RNG = np.random.default_rng(0)


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
    squares = theorem3.noisy_runs(Preset(), np.array([0.0]), 40)[0]
    settled = np.mean(squares[:, 20:])
    # e has variance sigma^2/8, of which x = x - e/2 keeps a third.
    assert settled == pytest.approx(1 / 24, rel=0.1)


def test_momenta_next_to_a_sure_ball_are_those_of_one_momentum_run():
    cluster = Cluster(good=6, other=6, separation=1e6)
    runs = [theorem4.Run(cluster, 9, 0.2, 0.4, 1.5)]
    silence = lambda stream, shape: np.zeros(shape)
    squares = theorem4.follow(runs, RNG, silence, trials=2)
    gradient, momentum, exact = 1.5, 0.0, []
    for _ in range(9):
        exact.append(gradient**2)
        momentum += 0.4 * (gradient - momentum)
        gradient -= 0.2 * momentum
    np.testing.assert_allclose(squares[0, 1], exact, rtol=1e-9)
    mean = theorem4.mean_squares(runs, squares)[0, 0]
    assert mean == pytest.approx(np.mean(exact), rel=1e-9)
    _, alike = theorem4.pair(np.array([0.2]), np.array([0.4]), 9)
    np.testing.assert_allclose(1.5**2 * alike[0], exact, rtol=1e-12)


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
    variance, noise = lemmas_points.member_start_variance, laws.sym3(1.001, 0.1)
    for fresh in (False, True):  # whether v is none of the points
        for count in (1, 7, 300):
            found = variance(noise, 1.0, count, fresh=fresh)
            assert found == pytest.approx(count**2 * 0.01)
        # A ball for everybody: independent points, and v does not matter.
        assert variance(noise, 3.0, 7, fresh=fresh) == pytest.approx(7 * 0.01)


def test_conditional_variance_by_hand():
    coin = laws.Discrete(np.array([0.0, 1.0]), np.array([0.5, 0.5]))
    # The ball around 3 holds only the points at 1: y is 1 or 3.
    left, raw = lemmas_points.conditional_variance([coin, coin], 3.0, 2.0)
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
