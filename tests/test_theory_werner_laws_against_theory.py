"""Laws of noise and the exact map of rule (4), against their closed forms."""

import numpy as np
import pytest

from cfljax import intervals
from theory.judges import ERROR_RATE
from theory.statement import Preset
from theory.werner import laws, population_map

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
    tiny = laws.skew2(1e9, 1.0)
    assert laws.variance(tiny) == pytest.approx(1, rel=1e-12)


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
    low, high = laws.stratified(
        np.array([[4.0, 4.0, 4.0], [0.0, 0.0, 0.0]]), chances, error_rate=0.01
    )
    assert low == pytest.approx(1) and high == pytest.approx(1)
    low, high = laws.stratified(
        np.array([[3.0, 5.0, 4.0], [0.0, 0.0, 0.0]]), chances, error_rate=0.01
    )
    assert low < 1 < high


def test_means_are_apart():
    places = laws.simplex(4, 5, 3.0)
    gaps = np.linalg.norm(places[:, None] - places[None], axis=-1)
    assert np.min(gaps + 99 * np.eye(4)) == 3 and np.all(gaps[0, 1:] == 3)
    np.testing.assert_array_equal(laws.line(3, 2.0), [0, 2, 4])


def test_misuse():
    with pytest.raises(ValueError, match=r"^`size` must be at least 2 sigma"):
        laws.skew2(1.0, SIGMA)
    with pytest.raises(ValueError, match=r"^`size` must be at least sigma"):
        laws.sym3(0.5, SIGMA)
    with pytest.raises(ValueError, match=r"^`features` must be at least 3, got 2"):
        laws.simplex(4, 2, 1.0)


def _clusters(law, share=0.25, separation=100.0, bad=0.0):
    shares = np.array([share, 1 - share - bad])
    return population_map.mixture([law, law], laws.line(2, separation), shares)


def test_good_separation_contracts_by_the_share():
    """All of the cluster in the ball, nobody else: v - mu falls by 1 - delta."""
    points, starts = _clusters(laws.sym3(2.0, 1.0)), np.array([0.5, -1.0, 0.0])
    found = population_map.settle(points, starts, 10.0, num_rounds=7)
    np.testing.assert_allclose(found, starts * 0.75**7, atol=1e-15)
    assert np.abs(found[0] - 0.5 * 0.76**7) > 1e-3  # control


def test_edge_adversary_moves_by_its_share():
    """The fixed point is beta tau/delta away."""
    points = _clusters(laws.sym3(2.0, 1.0), bad=0.05)
    found = population_map.settle(
        points, np.zeros(2), 10.0, num_rounds=200, push=np.array([0.05, -0.05])
    )
    np.testing.assert_allclose(found, [2, -2], rtol=1e-12)


def test_skewed_law_settles_at_the_mean_of_the_ball():
    law = laws.skew2(15.0, 1.0)
    found = population_map.settle(_clusters(law), np.zeros(1), 10.0, num_rounds=200)
    np.testing.assert_allclose(found, law.values[:1], rtol=1e-12)
    assert laws.variance(law) < 15 * np.abs(found[0])  # s p > sigma^2/s


def test_edge_of_the_ball_is_inside():
    points = population_map.Mixture(np.array([3.0]), np.array([0.5]))
    assert population_map.move(points, np.zeros(1), 3.0)[0] == 1.5
    assert population_map.move(points, np.zeros(1), np.nextafter(3.0, 0))[0] == 0


def test_plane_and_line_agree_and_each_centre_has_its_mixture():
    law = laws.skew2(15.0, 1.0)
    real, starts = _clusters(law), np.array([0.2, 3.0, -7.0])
    turn = np.exp(0.3j)
    turned = population_map.Mixture(real.places * turn, real.masses)
    line = population_map.settle(real, starts, 10.0, num_rounds=5, push=0.01)
    plane = population_map.settle(
        turned, starts * turn, 10.0, num_rounds=5, push=0.01 * turn
    )
    np.testing.assert_allclose(plane / turn, line, rtol=1e-12)
    many = population_map.Mixture(
        np.stack([real.places + shift for shift in starts]), real.masses
    )
    own = population_map.settle(many, starts, 10.0, num_rounds=5)
    alone = population_map.settle(real, np.zeros(1), 10.0, num_rounds=5)
    np.testing.assert_allclose(own - starts, np.repeat(alone, 3), rtol=1e-9)
