"""What the rows of Theorems 1 and 2 compute, against closed forms and enumeration."""

from fractions import Fraction

import numpy as np
import pytest

from theory.statement import Preset
from theory.werner import (
    cluster_points,
    laws,
    robustness,
    theorem1,
    theorem1_heavy_tails,
    theorem1_own_points,
    theorem1_radius,
    theorem1_recursion,
    theorem1_rounds,
    theorem1_share,
    theorem1_start,
    theorem2,
    theorem2_algebra,
    threshold_rule,
)
from theory.werner.theorem1_setting import Instance, margins


def test_instances_of_theorem_1_by_hand():
    one = Instance(0.25, 100.0, 0.01)
    assert one.radius == 5 and one.num_rounds == 69
    assert one.least_rounds == pytest.approx(np.log(0.01) / np.log(0.875))
    assert one.printed(50.0) == pytest.approx(0.02 + 0.01 + 1)
    assert one.corrected(50.0) == pytest.approx(0.02 + 0.04 + 0.04)
    found = margins(one, Instance(0.5, 40.0), start=0.5)
    assert [margin.holds for margin in found] == [False, True, True, True]
    assert found[0].have == 40 and found[0].need == 48


def test_clipped_mean_and_variance_by_hand():
    law = laws.Discrete(np.array([-3.0, 1.0]), np.array([0.25, 0.75]))
    # v = 2, tau = 1: 1 is in the ball, -3 becomes 2.
    mean, variance = theorem1_recursion.clipped(law, 0.0, 2.0, 1.0)
    assert mean == 1.25 and variance == pytest.approx(3 / 16)


@pytest.mark.parametrize("member", [False, True])
def test_one_round_against_all_samples(member):
    """Two clusters of two points: every sample, with and without v among them."""
    one = Instance(0.5, 20.0)
    law = laws.skew2(0.8 * one.radius, 1.0)
    centre = float(law.values[1]) if member else 0.4
    places, chances = cluster_points.all_samples(law, 4)
    if member:  # the first point is v
        fixed = places[:, 0] == centre
        places, chances = places[fixed], chances[fixed] / law.chances[1]
    places = places + np.array([0, 0, 20, 20])
    kept = np.where(np.abs(places - centre) <= one.radius, places, centre)
    wanted = np.sum(chances * kept.mean(axis=1) ** 2)
    found = theorem1_recursion.one_round(one, law, centre, 2.0, member=member)
    assert found == pytest.approx(wanted, rel=1e-12)
    other = theorem1_recursion.one_round(one, law, centre, 2.0, member=not member)
    assert other != pytest.approx(wanted, rel=1e-3)


def test_variance_of_a_sum_against_all_samples():
    law, radius = laws.sym3(2.0, 1.0), 2.5
    places, chances = cluster_points.all_samples(law, 5)
    apart = np.abs(places - places[:, :1])
    sums = np.where(apart <= radius, places, places[:, :1]).sum(axis=1)
    wanted = np.sum(chances * (sums - np.sum(chances * sums)) ** 2)
    found = theorem1_own_points.sum_variance(law, 5, radius)
    assert found == pytest.approx(wanted, rel=1e-12)
    assert wanted > 5  # n sigma^2, Lemma 3's bound


def test_a_far_member_stays_for_all_draws():
    one = Instance(0.5, 200.0)
    found = theorem1_start.member_errors(
        Preset().generator("member"), one, 40, radius=one.radius
    )
    np.testing.assert_allclose(found, [100.2001, 0, 100.2001], atol=1e-12)


def test_settled_square_is_that_of_the_mean_of_the_ball():
    one = Instance(0.25, 200.0)
    law = laws.skew2(1.5 * one.radius, 1.0)
    found = theorem1_share.settled_square(one, 1.5, rounds=500)
    assert found == pytest.approx(law.values[0] ** 2, rel=1e-9)


def test_bad_points_move_by_their_share_of_the_radius():
    """Noise within the ball and no strays: (beta tau/delta)^2 and the skewed bias."""
    one = Instance(0.25, 1e6, 0.02)
    found = theorem1_radius.worst_square(one, 1e3)
    assert found == pytest.approx((0.08 * 1e3) ** 2, rel=0.01)
    clean = theorem1_radius.worst_square(one._replace(bad=0.0), 1e3)
    assert clean < 2e-6


def test_rounds_needed_are_the_first_that_are_enough():
    one = Instance(0.25, 200.0)
    needed = theorem1_rounds.rounds_needed(one, 64)
    squares = 1 / 64 + 0.75 ** (2.0 * np.arange(60)) * (1 - 1 / 64)
    assert needed == np.argmax(squares <= 2 * one.printed(64.0)) > 0
    assert theorem1_rounds.rounds_needed(one, 1) == 0


def test_worst_instances_meet_every_condition():
    one = theorem1.worst_instances(Preset().generator("worst"), 500)
    assert np.all(one.radii**2 >= 24 * (1 - 1e-12))
    assert np.all(one.radii <= one.separations / 3 * (1 + 1e-12))
    assert np.all(one.shares * one.separations**2 >= 48 * (1 - 1e-12))
    assert np.all(one.bad <= one.shares / 12 * (1 + 1e-12))
    assert np.all(np.abs(one.starts) <= one.radii / 2 * (1 + 1e-12))
    np.testing.assert_allclose(one.points.masses.sum(axis=1) + one.bad, 1)
    own, rest = one.points.places[:, :3], one.points.places[:, 3:]
    shares = one.points.masses[:, :3] / one.shares[:, None]
    np.testing.assert_allclose(np.sum(shares * np.abs(own) ** 2, axis=1), 1)
    assert np.max(np.abs(np.sum(shares * own, axis=1))) < 1e-9
    shares = one.points.masses[:, 3:]
    shares = shares / shares.sum(axis=1, keepdims=True)
    means = np.sum(shares * rest, axis=1)
    np.testing.assert_allclose(means, one.separations, rtol=1e-9)
    spread = np.sum(shares * np.abs(rest - means[:, None]) ** 2, axis=1)
    np.testing.assert_allclose(spread, 1, rtol=1e-6)


def test_atoms_of_students_law():
    law = theorem1_heavy_tails.student()
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
    assert cluster_points.energy(apart, chosen[None])[0] == pytest.approx(wanted)


def test_attacks_of_the_battery():
    """Static on the edge: beta tau/(beta + delta); in the middle: half of it."""
    one = Instance(0.25, 4000.0, 0.02)
    cases = ["edge, adaptive", "edge, static", "middle", "far", "two sides"]
    found = np.sqrt(robustness.squared_errors([one] * 5, cases)) / one.radius
    static = 0.02 / 0.27
    wanted = [0.08, 0.999 * static, 0.5 * static, 0, 0]
    np.testing.assert_allclose(found, wanted, atol=1e-9)


def test_pairs_of_theorem_2_in_fractions():
    laws_2 = theorem2_algebra.pair(Fraction(2))
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
    points = np.array([[0.0], [3.0], [9.0]])
    centre = np.array([1.0])
    assert threshold_rule.literal(points, centre, 2.0) == pytest.approx(4 / 3)
    moved = threshold_rule.literal(points, centre, 2.0, ball_only=True)
    assert moved == pytest.approx(1.5)
