"""Functions behind Werner's Lemmas 6 to 19 and (6), against closed forms."""

from fractions import Fraction

import numpy as np
import pytest

from theory.statement import Preset
from theory.werner.batches import batch_variance
from theory.werner.clipped_sums import conditional_variance, member_start_variance
from theory.werner.gradient_centres import settled_error
from theory.werner.hard_rounds import draw_rounds, everybody
from theory.werner.laws import Discrete, sym3
from theory.werner.momentum_average import average, momentum
from theory.werner.momentum_centres import mean_error, member_error
from theory.werner.momentum_noise import noise_law, path_noise, total_variance
from theory.werner.path_variance import path_variance
from theory.werner.strangers import two_atoms, worst_stranger


def test_batch_of_two_points():
    gradients = np.array([[0.0, 0.0], [3.0, 4.0]])  # variance 25/4
    assert batch_variance(gradients, 1, replaced=True) == pytest.approx(6.25)
    assert batch_variance(gradients, 3, replaced=True) == pytest.approx(6.25 / 3)
    assert batch_variance(gradients, 2, replaced=False) == 0


@pytest.mark.parametrize("heterogeneous", [False, True])
def test_hard_rounds_are_what_they_say(heterogeneous):
    rounds = draw_rounds(np.random.default_rng(0), 200, heterogeneous=heterogeneous)
    for places, chances, mean, square in (
        (rounds.members, rounds.member_chances, 0.0, rounds.spread),
        (rounds.strangers, rounds.stranger_chances, rounds.separation, 1.0),
    ):
        assert np.all(chances >= 0)
        np.testing.assert_allclose(np.sum(chances, axis=1), 1, rtol=1e-12)
        middle = np.sum(chances * places, axis=1)
        np.testing.assert_allclose(np.abs(middle), mean, rtol=1e-9, atol=1e-9)
        spread = np.sum(chances * (places - middle[:, None]) ** 2, axis=1)
        np.testing.assert_allclose(spread, square, rtol=1e-6)
    assert np.all(24 * rounds.spread <= rounds.radius**2 * (1 + 1e-12))
    assert np.all(3 * rounds.radius <= rounds.separation * (1 + 1e-12))
    assert np.all(rounds.shares * rounds.separation**2 * (1 + 1e-12) >= 48)
    assert np.all(2 * np.abs(rounds.starts) <= rounds.radius)
    assert (np.max(rounds.spread) > 1.5) == heterogeneous
    masses = everybody(rounds, rounds.shares / 12).masses
    np.testing.assert_allclose(np.sum(masses, axis=1), 1 - rounds.shares / 12)


def test_two_atoms_have_mean_and_variance():
    place = np.array([-2.0, 0.5])
    other, chance = two_atoms(place, 1.5)
    mean = chance * place + (1 - chance) * other
    square = chance * place**2 + (1 - chance) * other**2
    np.testing.assert_allclose(mean, 1.5)
    np.testing.assert_allclose(square - mean**2, 1.0)


def test_worst_stranger():
    # From v = m the best atom is close to the edge of a ball that is far from the mean.
    found = worst_stranger(0.0, 2.0, 100.0)
    assert found == pytest.approx(4 / (1 + 98**2), rel=1e-12)
    assert worst_stranger(1.0, 2.0, 3.0) == 9.0
    # Without a ball nothing moves.
    assert worst_stranger(1.0, 0.0, 3.0) == pytest.approx(1.0)


def test_members_keep_their_own_centre():
    noise = sym3(1.001, 0.1)
    for count in (1, 7, 300):
        same = member_start_variance(noise, 1.0, count, fresh=False)
        fresh = member_start_variance(noise, 1.0, count, fresh=True)
        assert same == pytest.approx(count**2 * 0.01)
        assert fresh == pytest.approx(count**2 * 0.01)
    # A ball for everybody: independent points, and v does not matter.
    everyone = member_start_variance(noise, 3.0, 7, fresh=True)
    assert everyone == pytest.approx(7 * 0.01)
    # ... of which one is v itself.
    assert member_start_variance(noise, 3.0, 7, fresh=False) == pytest.approx(0.07)


def test_conditional_variance_by_hand():
    coin = Discrete(np.array([0.0, 1.0]), np.array([0.5, 0.5]))
    # The ball around 3 holds only the points at 1: y is 1 or 3.
    left, raw = conditional_variance([coin, coin], 3.0, 2.0)
    assert (left, raw) == (pytest.approx(2.0), pytest.approx(0.5))


@pytest.mark.parametrize("alpha", [0.1, 0.7, 1.0])
def test_variance_of_momentum_on_a_quadratic(alpha):
    for step in (0.25, 1.0):
        found = total_variance(alpha, step, 2000)
        assert found == pytest.approx(alpha / (2 - alpha - step * alpha / 2), rel=1e-9)


def test_noise_of_momentum():
    np.testing.assert_allclose(
        noise_law(1.0, np.arange(1.0, 4), gradient_start=True), 1
    )
    first = noise_law(0.1, np.array([1.0]), gradient_start=True)
    assert first[0] == pytest.approx(0.82)
    found = path_noise(0.3, 6, gradient_start=False)
    law = noise_law(0.3, np.arange(1.0, 7), gradient_start=False)
    np.testing.assert_allclose(found, law, rtol=1e-12)


def test_path_variance_reaches_the_steepest_place():
    # |x^3 - x| is at most 2/(3 sqrt(3)); with chance 6/16 the four signs cancel.
    limit = 4 / 27 * 10 / 16
    found = path_variance(1e-3, 1.0)
    assert found[0] == 0
    assert 0.8 * limit < np.max(found) < limit


def test_centres_that_stay():
    # With many clusters the last round still finds the centre on its way.
    np.testing.assert_allclose(settled_error(), (2 * 0.49 / 3) ** 2, rtol=1e-4)
    assert member_error(50.0) == pytest.approx(1.0)
    # skew2 without its rare atom has its mean at -s p.
    size = 1.5 * np.sqrt(4 * 24)
    low = (size - np.sqrt(size**2 - 4)) / 2
    assert mean_error(4) == pytest.approx(low**2, rel=1e-3)


def test_streams_differ():
    """Control: not all instances are one."""
    one, two = (
        draw_rounds(Preset().generator(name), 5, heterogeneous=True)
        for name in ("werner.lem7.corrected", "werner.lem8.corrected")
    )
    assert not np.allclose(one.radius, two.radius)


def test_momentum_of_two_rounds():
    alpha = Fraction(1, 4)
    exact = Fraction(9, 16) * 16 + Fraction(3, 16) * 32 + Fraction(1, 4) * 4
    assert momentum(alpha, 16, [32, 4]) == exact == 16
    assert average(alpha, 16, [32, 4]) == exact
    assert average(1, 16, [32, 4]) == momentum(1, 16, [32, 4]) == 4
