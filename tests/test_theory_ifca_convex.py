"""The families of strongly convex losses and the constants of their bounds, by hand."""

import functools

import numpy as np
import pytest
import scipy.stats

from cfljax.statements.judges import equals, tally
from cfljax.statements.statement import Preset
from cfljax.statements.verdict import Status
from theory.ifca import (
    assumptions,
    corollary2,
    equations_markov,
    equations_step,
    lemma3,
    scaling,
    theorem2,
)
from theory.ifca.common import convex, heavy_tails
from theory.ifca.common.convex import (
    CosineFamily,
    Draws,
    WaveFamily,
    assign,
    gradient_step,
    train_cosine,
    worst_pair,
)
from theory.ifca.common.heavy_tails import (
    flipping_jump,
    jump_tail,
    outlier_jump,
    student_mean_tail,
)

RNG = np.random.default_rng


def _family(offset: float = 0.3) -> CosineFamily:
    hessian = np.array([[2.0, 0.5], [0.5, 1.0]])
    truths = np.array([[0.4, -0.2], [-0.5, 0.3]])
    return CosineFamily(truths, hessian, 0.7, 1.5, offset=offset)


def test_cosine_losses_and_gradients_are_those_of_the_formula():
    family = _family()
    draws = family.draw(RNG(0), 5, 3)
    theta, truth = np.array([0.9, -1.1]), family.truths[1]
    error = theta - truth

    def single(at):
        inner = draws.directions @ at + draws.phases
        quadratic = (at - truth) @ family.hessian @ (at - truth) / 2
        return quadratic + 0.7 * np.cos(inner) + draws.offsets

    found = family.population_loss(theta, truth) + family.noise(theta, draws)
    np.testing.assert_allclose(found, single(theta), rtol=1e-13)
    step = 1e-6
    slopes = [
        np.mean(single(theta + step * e) - single(theta - step * e), axis=-1) / 2 / step
        for e in np.eye(2)
    ]
    gradient = family.population_gradient(theta, truth)
    np.testing.assert_allclose(gradient, family.hessian @ error, rtol=1e-13)
    total = gradient + family.gradient_noise(theta, draws)
    np.testing.assert_allclose(total, np.stack(slopes, axis=-1), atol=1e-8)
    lengths = np.linalg.norm(draws.directions, axis=-1)
    np.testing.assert_allclose(lengths, 1.5, rtol=1e-12)


def _by_hand(family, generator, models, sizes, num_samples, *, per_cluster=False):
    """One round of IFCA client by client, from the same stream of random numbers."""
    models, gradients = models[0], [[] for _ in models[0]]
    for truth, size in zip(family.truths, sizes, strict=True):
        identity = family.draw(generator, 1, size, num_samples)
        fresh = family.draw(generator, 1, size, num_samples)
        for client in range(size):
            mine, other = (
                Draws(*(part[0, client] for part in draws))
                for draws in (identity, fresh)
            )
            losses = [
                family.population_loss(model, truth)
                + np.mean(family.noise(model, mine))
                for model in models
            ]
            j = int(np.argmin(losses))
            gradients[j].append(
                family.population_gradient(models[j], truth)
                + family.gradient_noise(models[j], other)
            )
    moved = []
    for model, received in zip(models, gradients, strict=True):
        weight = len(received) if per_cluster else sum(sizes)
        step = 1 / family.smoothness / max(weight, 1)
        moved.append(model - step * sum(received, np.zeros_like(model)))
    return np.array(moved), [len(received) for received in gradients]


def test_a_raw_round_is_the_algorithm_with_the_average_over_all_clients():
    family, sizes = _family(), (13, 15)
    models = np.array([[[0.1, 0.0], [-0.1, 0.1]]])
    found = train_cosine(
        family, RNG(4), models, sizes=sizes, num_samples=2, num_rounds=1
    )
    by_hand, counts = _by_hand(family, RNG(4), models, sizes, 2)
    np.testing.assert_allclose(found[0, 0], by_hand, rtol=1e-12)
    assert sum(counts) == 28 and counts != [13, 15]  # the round does misassign
    other, _ = _by_hand(family, RNG(4), models, sizes, 2, per_cluster=True)
    assert np.max(np.abs(found[0, 0] - other)) > 0.01  # control: divided by |S_j|


def test_an_undefined_model_is_never_chosen():
    family = _family()
    models = np.array([[[np.nan, 0.0], [0.0, 0.0]]])
    end = train_cosine(
        family, RNG(0), models, sizes=(4, 4), num_samples=3, num_rounds=2
    )[-1]
    assert np.all(np.isfinite(end[0, 1])) and np.all(np.isnan(end[0, 0, 0]))
    wave = WaveFamily(np.eye(3) / 2, (4, 4, 4), np.ones(3), 1.0, 1.0)
    models = np.eye(3)[None] / 2
    models[0, 0] = np.nan
    counts = assign(wave, RNG(0), models, 3.0)
    assert np.all(counts[0, :, 0] == 0) and np.sum(counts) == 12


@pytest.mark.parametrize("hessian", [[[1.0, 0.2], [0.1, 1.0]], [[1.0, 0], [0, -1.0]]])
def test_a_bad_hessian_is_refused(hessian):
    with pytest.raises(ValueError, match="`hessian` must be symmetric and positive"):
        CosineFamily(np.eye(2), np.array(hessian), 1.0, 1.0)


def _unit_setting(**changes):
    return theorem2.ordinary(1e4, 1e7)._replace(**changes)


def test_the_error_floor_by_hand():
    # delta = 0.05, p m n' = 2.5e10, alpha^2 = 1/16, k^(3/2) = 8
    first, second, third = convex.floor_terms(_unit_setting())
    np.testing.assert_allclose(first, 8 / (0.05 * np.sqrt(2.5e10)))
    np.testing.assert_allclose(second, 96 * 16 / (0.05 * 1e7))
    root = 100 * 1e7
    np.testing.assert_allclose(third, 16 * 2**0.5 * 8 / (0.05**1.5 * 0.25 * root))
    printed = convex.floor_terms(_unit_setting(), samples_power=0.5)[2]
    np.testing.assert_allclose(printed / third, np.sqrt(1e7))


def test_the_sharp_bound_without_misassignments_by_hand():
    setting = _unit_setting(loss_variance=1e-12, smoothness=2.0)
    found = theorem2.sharp_bound(setting, 2500, 0.2)
    noise = np.sqrt(0.25 / (0.8 * 0.05 * 1e4 * 1e7)) / 2
    np.testing.assert_allclose(found, (1 - 0.25 / 2) * 0.2 + noise, rtol=1e-12)
    many = theorem2.sharp_bound(setting._replace(loss_variance=1e4), 2500, 0.2)
    assert many > found


def test_margins_of_the_assumptions():
    meets = convex.assumption6(_unit_setting(num_samples=1e9))
    assert all(margin.holds for margin in meets) and len(meets) == 6
    fails = {
        "max |theta_j*|": {"largest_truth": 1.1},
        "alpha0 > 0": {"alpha": -0.1},
        "alpha0 < 1/2": {"alpha": 0.5},
        "n' >= 4": {"num_samples": 300.0},
        "p m >= 8": {"num_clients": 100.0},
        "8 L eps0": {"num_samples": 1e5},
        "": {"loss_variance": np.nan},
    }
    for name, change in fails.items():
        setting = _unit_setting(num_samples=1e9)._replace(**change)
        lost = [m.assumption for m in convex.assumption6(setting) if not m.holds]
        assert any(name in assumption for assumption in lost), name


def test_margins_of_assumptions_3_to_5():
    curvatures = np.array([0.5, 2.0])
    ask = assumptions.assumption3
    assert [m.holds for m in ask(curvatures, strong_convexity=0.5, smoothness=2.0)] == [
        True,
        True,
    ]
    assert [m.holds for m in ask(curvatures, strong_convexity=0.6, smoothness=1.9)] == [
        False,
        False,
    ]
    (over_space,) = assumptions.assumption4(np.inf, loss_variance=1e9)
    assert not over_space.holds
    loss, gradient = assumptions.squared_loss_variances(3.0, num_features=2, noise=0.5)
    assert loss == 2 * 9.25**2 and gradient == 4 * (3 * 9 + 2 * 0.25)
    (on_ball,) = assumptions.assumption5(gradient, gradient_variance=gradient)
    assert on_ball.holds and on_ball.value == 0


def test_the_worst_pair_is_what_it_says():
    pair = worst_pair(sizes=(300, 700), num_samples=50.0, scale=0.01, wave_gradient=2.0)
    family, setting = pair.family, pair.setting(failure=0.1)
    scale = float(convex.misassignment_scale(setting))
    waves = family.loss_deviation**2 / (0.25**2 * 50)
    np.testing.assert_allclose(scale, 0.01 + waves)
    # The normal waves are equal at both models, so identities see only the jumps.
    angles = family.frequency * pair.models
    np.testing.assert_allclose(np.cos(angles[0]), np.cos(angles[1]), atol=1e-12)
    np.testing.assert_allclose(np.sin(angles[0]), np.sin(angles[1]), atol=1e-12)
    distance = np.linalg.norm(pair.models - family.truths, axis=-1)
    np.testing.assert_allclose(distance, 0.25)
    counts = pair.counts(RNG(0), 4000)
    np.testing.assert_allclose(counts.sum(axis=-1), [[300, 700]] * 4000)
    mean, size = np.mean(counts[:, 0, 1]), 300 * pair.chance
    assert abs(mean - size) < 5 * np.sqrt(size / 4000)
    assert 0.03 < pair.chance <= 0.04 * 1.0001


def test_the_recursion_is_a_loop():
    start, floor, step = (
        np.array([0.4, 0.1]),
        np.array([0.01, 0.02]),
        np.array([0.1, 0.3]),
    )
    value = start
    for _ in range(7):
        value = (1 - step) * value + floor
    found = corollary2.recursion(start, floor, step, np.array([7.0, 7.0]))
    np.testing.assert_allclose(found, value, rtol=1e-12)


def test_the_stationary_square_is_a_fixed_point():
    curvatures = np.array([0.5, 1.0, 2.0])
    found = corollary2.stationary_square(
        curvatures, share=0.3, smoothness=2.0, gradient_variance=1.7, num_data=500.0
    )
    square = np.zeros(3)
    for _ in range(2000):
        # step 1/L of p m clients over m, noise v^2 / d per direction and sample
        square = (1 - 0.3 * curvatures / 2) ** 2 * square + 0.3 * 1.7 / (4 * 500 * 3)
    np.testing.assert_allclose(found, np.sum(square), rtol=1e-12)


def test_what_31_in_30_gives_by_hand():
    setting = _unit_setting(num_clusters=2, num_samples=100.0, num_clients=50.0)
    # x = 16 / 100, count = 8 x m / delta2
    count = 8 * 0.16 * 50 / 0.1
    noise = np.sqrt(2 * count / 100) / (0.2 * 50)
    found = equations_markov.second_part(setting, count, 0.2)
    np.testing.assert_allclose(found, 3 * count / 50 + noise)
    claimed = equations_markov.third_terms(setting, 0.2, 0.1, samples_power=1.0)
    np.testing.assert_allclose(found, claimed)


def _raw_waves(family, generator, models, truth, trials, num_samples):
    """Losses and gradient noise at two models, sample by sample."""
    d = models.shape[-1]
    scale = family.loss_deviation / np.sqrt(d)
    a, b = scale * generator.standard_normal((2, trials, num_samples, 1, d))
    angles = family.frequency * models
    noise = np.sum(a * np.cos(angles) + b * np.sin(angles), axis=-1)
    losses = np.sum(family.curvatures * (models - truth) ** 2, axis=-1) / 2
    gradients = family.frequency * (b * np.cos(angles) - a * np.sin(angles))
    return losses + np.mean(noise, axis=1), np.mean(gradients, axis=1)


@functools.lru_cache(maxsize=1)
def _wave_design():
    truths = np.array([[0.5, 0.0], [-0.5, 0.2]])
    family = WaveFamily(truths, (1, 1), np.array([0.6, 1.0]), 0.5, 2.3)
    models = truths + np.array([[-0.2, 0.1], [0.25, 0.0]])
    losses, gradients = _raw_waves(family, RNG(3), models, truths[0], 40_000, 3)
    return family, models, losses, gradients


@pytest.mark.parametrize("factor, agrees", [(1.0, True), (1.1, False), (0.9, False)])
def test_the_exact_identities_are_those_of_raw_samples(factor, agrees):
    family, models, losses, _ = _wave_design()
    trials = len(losses)
    many = WaveFamily(family.truths, (trials, 1), family.curvatures, factor * 0.5, 2.3)
    exact = assign(many, RNG(4), models[None], 3.0)[0, 0, 1] / trials
    raw = np.mean(losses[:, 1] <= losses[:, 0])
    spread = np.sqrt(2 * raw * (1 - raw) / trials)
    assert (abs(raw - exact) < 5 * spread) == agrees


def test_three_models_are_chosen_as_two_are():
    """The clients' own draws and the binomial law agree where both apply."""
    family, models, _, _ = _wave_design()
    far = np.array([[0.5, 0.0], [-0.5, 0.2], [50.0, 50.0]])
    three = WaveFamily(far, (20_000, 1, 1), family.curvatures, 0.5, 2.3)
    two = WaveFamily(far[:2], (20_000, 1), family.curvatures, 0.5, 2.3)
    with_far = np.concatenate([models, far[2:]])
    drawn = assign(three, RNG(5), with_far[None], 3.0)[0, 0]
    binomial = assign(two, RNG(6), models[None], 3.0)[0, 0]
    assert drawn[2] == 0 and drawn[1] > 1000
    assert abs(drawn[1] - binomial[1]) < 5 * np.sqrt(2 * drawn[1])


def test_the_exact_gradient_noise_has_the_moments_of_raw_samples():
    family, models, _, gradients = _wave_design()
    variance = (2.3 * 0.5) ** 2
    square = np.sum(gradients[:, 0] ** 2, axis=-1) * 3
    low, high = scipy.stats.t.interval(
        1 - 1e-6, 39_999, np.mean(square), np.std(square) / 200
    )
    assert low < variance < high and not low < 1.05 * variance < high
    many = np.broadcast_to(models, (40_000, 2, 2)).copy()
    counts = np.broadcast_to([[2.0, 1.0], [3.0, 0.0]], (40_000, 2, 2)).copy()
    pieces = gradient_step(family, RNG(7), many, counts, 3.0)
    # gamma / m = 1/2: five clients chose model 0, two of them its own.
    own = np.sum(pieces.own_noise[:, 0] ** 2, axis=-1) * 4 * 3 / 2
    mean = np.mean(pieces.foreign[:, 0], axis=0)
    foreign = np.sum((pieces.foreign[:, 0] - mean) ** 2, axis=-1) * 4
    for square, expected in ((own, variance), (foreign, variance)):
        found = np.mean(square)
        assert abs(found - expected) < 5 * np.std(square) / 200
    pull = family.curvatures * (models[0] - family.truths[1])
    np.testing.assert_allclose(mean, 3 / 2 * pull, atol=0.02)
    start = models[0] - family.truths[0]
    np.testing.assert_allclose(
        pieces.pull[0, 0], start - 2 / 2 * family.curvatures * start, rtol=1e-12
    )


def test_a_smoothness_below_the_curvature_is_refused():
    with pytest.raises(ValueError, match="`smoothness` must be at least"):
        WaveFamily(np.eye(2), (1, 1), np.ones(2), 1.0, 1.0, smoothness=0.9)


@pytest.mark.parametrize(
    "num_samples, ratio", [(1.0, 3.85), (4.0, 3.69), (16.0, 3.65), (64.0, 3.64)]
)
def test_rare_jumps_come_near_four(num_samples, ratio):
    law = flipping_jump(0.01, num_samples)
    assert np.isclose(law.variance, 0.01 * num_samples, rtol=1e-12)
    chance = float(jump_tail(law, num_samples, num_samples / 2))
    assert round(chance / 0.01, 2) == ratio
    jumps = np.arange(int(num_samples) + 1)
    sums = jumps * law.height - (num_samples - jumps) * law.fall
    weights = scipy.stats.binom.pmf(jumps, int(num_samples), float(law.chance))
    assert np.isclose(np.sum(weights * sums), 0, atol=1e-12)
    np.testing.assert_allclose(np.sum(weights[2 * sums >= num_samples]), chance)
    above = np.sum(weights[2 * sums >= 1.01 * num_samples])
    assert above < 0.1 * chance  # control: just above the level a jump is not enough


def test_one_sample_attains_cantelli():
    scale = np.array([1e-6, 0.01, 1.0, 7.0])
    chance = jump_tail(flipping_jump(scale, 1.0, margin=0.0), 1.0, 0.5 * (1 - 1e-12))
    np.testing.assert_allclose(chance, 4 * scale / (1 + 4 * scale), rtol=1e-12)


@pytest.mark.parametrize("level", [-3.0, 0.5, 2.0, 10.0])
def test_jump_tails_are_binomial(level):
    law = outlier_jump(0.3, 20.0)
    jumps = np.arange(21)
    sums = jumps * law.height - (20 - jumps) * law.fall
    weights = scipy.stats.binom.pmf(jumps, 20, float(law.chance))
    expected = np.sum(weights[sums >= level])
    np.testing.assert_allclose(jump_tail(law, 20.0, level), expected, rtol=1e-10)
    np.testing.assert_allclose(law.variance, 1.0)


@pytest.mark.parametrize("freedom, level", [(2.1, 0.4), (3.0, 0.7), (5.0, 2.0)])
def test_the_tail_of_one_student_variable(freedom, level):
    scaled = level * np.sqrt(freedom / (freedom - 2))
    tail, error = student_mean_tail(freedom, 1, level)
    expected = scipy.stats.t.sf(scaled, freedom)
    assert abs(tail - expected) <= 10 * error and error < 1e-13
    assert abs(tail - scipy.stats.t.sf(1.001 * scaled, freedom)) > 1e6 * error


def test_the_tail_of_several_student_variables():
    tail, error = student_mean_tail(3.0, 8, 0.4)
    draws = RNG(9).standard_t(3.0, (200_000, 8)) / np.sqrt(3.0)
    events = np.mean(draws, axis=1) >= 0.4
    claim = np.array([tail])
    assert error < 1e-13
    held = equals("toy.a", tally(events), claim, resolution=0.01)
    assert held.status is Status.HOLDS
    other = np.array([student_mean_tail(3.0, 9, 0.4)[0]])
    refuted = equals("toy.a", tally(events), other, resolution=0.01)
    assert refuted.status is Status.VIOLATED
    with pytest.raises(ValueError, match="`freedom` must be above 2"):
        student_mean_tail(2.0, 8, 0.4)


def test_the_missing_step_in_23_fails_as_often_as_it_should():
    """gammahat = 5 at delta0 = 1/4: the noise must stay below 0.8 of its rms."""
    tails = heavy_tails.noise_tails(np.array([0.8]))
    d = 40
    np.testing.assert_allclose(tails[2, 0], scipy.stats.chi2.sf(0.64 * d, d))
    draws = RNG(2).standard_normal((50_000, d))
    events = np.linalg.norm(draws, axis=1) > 0.8 * np.sqrt(d)
    held = equals("toy.a", tally(events), tails[2], resolution=0.01)
    assert held.status is Status.HOLDS


def test_the_bias_of_jumps_is_the_share_of_the_misassigned():
    """Stationary where (1 - q) s = q (1 - s): s = q, for q of a single jump."""
    shifts = scaling.jump_bias(
        RNG(0), num_clients=2000, num_samples=256.0, trials=200, num_rounds=60
    )
    law = flipping_jump(1 / 256, 256.0, margin=0.3)
    chance = -np.expm1(256 * np.log1p(-law.chance))
    spread = np.std(shifts) / np.sqrt(200)
    assert abs(np.mean(shifts) - chance) < 5 * spread < 0.02 * chance


QUICK = Preset()

_NEAR = {
    "lem3, c1 = 3.9999": functools.partial(lemma3.check_bound, c1=3.9999),
    "lem3.sharp, c1 = 4.0001": functools.partial(lemma3.check_sharp, c1=4.0001),
    "gap, 0.1 % more": functools.partial(
        lemma3.check_places, statement="toy.a", name="gap", factor=1.001
    ),
    "eq22.sharp, 0.01 % more": functools.partial(
        equations_step.check_contraction, sharp=True, factor=1.0001
    ),
    "eq22, beyond 4/3": functools.partial(equations_step.check_contraction, limit=1.34),
    "eq24, 1/4 and more": functools.partial(equations_step.check_pull, part=3.999),
    "eq27, truths of 1.001": functools.partial(
        equations_step.check_gradient, largest_truth=1.001
    ),
    "eq28, 0.995 delta^2": functools.partial(
        equations_markov.check_noise, statement="toy.a", power=2.0, share=0.995
    ),
    "eq31, c1 = 3.75": functools.partial(equations_markov.check_count, c1=3.75),
    "eq37, 2.999": functools.partial(
        corollary2.check_first_rounds, multiple=2.999, conditioned=False
    ),
    "eq39, 32.01": functools.partial(corollary2.check_last_rounds, divisor=32.01),
    "rounds, 1.999": functools.partial(corollary2.check_total, factor=1.999),
    "eq40, c = 8.001": functools.partial(
        corollary2.check_chain, statement="toy.a", doubled=True, c=8.001
    ),
    "cor2, the k of (38)": functools.partial(
        corollary2.check_substitution, clusters_power=1.0
    ),
    "asm6, 3.99": functools.partial(
        assumptions.check_conditions, samples_constant=3.99
    ),
    "closeness, 0.1 %": functools.partial(
        assumptions.check_kept_closeness, excess=1.001
    ),
    "vacuity, to 6e6": functools.partial(theorem2.check_vacuity, largest=6e6),
    "thm2, 1 / 0.98": functools.partial(theorem2.check_bound, part=0.98),
    "asm4, 0.99 eta^2": functools.partial(
        assumptions.check_variance, order=0, factor=0.99
    ),
}


@pytest.mark.parametrize("name", _NEAR)
def test_slightly_wrong_claims_are_noticed(name):
    assert _NEAR[name](QUICK).status is Status.VIOLATED


_STILL_TRUE = {
    "eq22 up to 4/3": functools.partial(equations_step.check_contraction, limit=1.333),
    "eq24, 1/4": functools.partial(equations_step.check_pull, part=4.0),
    "eq28 with Chebyshev": functools.partial(
        equations_markov.check_noise, statement="toy.a", power=2.0
    ),
    "eq37, 3 with sqrt": functools.partial(
        corollary2.check_first_rounds, multiple=3.0, conditioned=True
    ),
    "eq40 at c = 8": functools.partial(
        corollary2.check_chain, statement="toy.a", doubled=True, c=8.0
    ),
    "thm2, 1 / 1.02": functools.partial(theorem2.check_bound, part=1.02),
}


@pytest.mark.parametrize("name", _STILL_TRUE)
def test_claims_at_their_edge_are_not_refuted(name):
    assert _STILL_TRUE[name](QUICK).status is Status.HOLDS
