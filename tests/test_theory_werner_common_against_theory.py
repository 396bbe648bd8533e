"""What Werner's rows share: hidden constants, laws, rule (4), and one client."""

import numpy as np
import pytest

from cfljax import intervals
from cfljax.statements.judges import ERROR_RATE
from cfljax.statements.statement import Preset
from cfljax.statements.verdict import Status
from theory.werner.common import instances, laws
from theory.werner.common import one_client as client
from theory.werner.common import population_map as rule
from theory.werner.common.claims import Family, exactly, one_constant

LEVELS = 2.0 ** np.arange(1, 7)


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


def test_moments_of_e_tell_the_mean_square_of_whole_runs():
    """Algorithm 2 step by step, with bad clients, against the closed form."""
    cluster, rounds, trials, step = client.Cluster(bad=2), 12, 4000, 0.5
    radius = cluster.radius(1.0)
    errors = client.centre_errors(
        cluster, RNG.normal(size=(trials, cluster.good)), radius
    )
    found = client.moments(errors, points=1)
    ends = client.mean_square_between(2.0, step, found, float(rounds))
    gradient, squares = np.full(trials, 2.0), np.zeros(trials)
    for _ in range(rounds):
        squares += gradient**2 / rounds
        noise = RNG.normal(size=(trials, cluster.good))
        centre = gradient + client.centre_errors(cluster, noise, radius)
        gradient = gradient - step * centre
    error = np.std(squares) / np.sqrt(trials)
    assert ends[0] - 5 * error <= np.mean(squares) <= ends[1] + 5 * error
    assert ends[1] - ends[0] < 0.1 * ends[0]


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
