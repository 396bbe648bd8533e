"""The reviewers' studies on data drawn once: their arms, their laws, and pooling."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from cfljax import intervals, law, metrics
from cfljax.algorithms.ifca import State, ifca
from cfljax.base.types import ClientData
from cfljax.models import linear
from experiments.reviews import baselines, fixed_data, study
from experiments.reviews.baselines import holm, local_risk, paired_p_value
from experiments.reviews.communication import bits, median
from experiments.reviews.pooling import (
    Setting,
    alternate,
    crossing,
    crossing_of_many,
    draw_gram,
    errors,
    exact_crossing,
    grid,
    identifiable,
    leading_crossing,
    oracle_error,
    pooled_error,
)
from experiments.reviews.resampling import OUTCOMES, outcome
from experiments.reviews.study import Estimate
from experiments.reviews.tuning import held_out_loss, pick

# Each random check errs with at most this chance on correct code; seeds are constants.
ERROR_RATE = 1e-6
THREE = Setting(4, 10, 8, 3, 0.6)
PAIR = Setting(20, 20, 40, 2, 0.5)


def raw_data(
    seed: int, *, clients: int = 6, samples: int = 9, features: int = 4
) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    inputs = generator.standard_normal((clients, samples, features))
    return inputs, generator.standard_normal((clients, samples))


@pytest.mark.parametrize("samples", [3, 5, 9])
def test_compressed_clients_have_the_losses_and_gradients_of_their_samples(samples):
    inputs, targets = raw_data(1, samples=samples)
    clients = fixed_data.compress(inputs, targets)
    assert clients.inputs.shape[1] == min(samples, 5)
    models = np.random.default_rng(2).standard_normal((2, 3, 4))
    residuals = np.einsum("msd,rkd->msrk", inputs, models) - targets[..., None, None]
    losses = np.mean(residuals**2, axis=1)
    np.testing.assert_allclose(fixed_data.all_losses(clients, models), losses)
    if samples == 9:
        fewer = clients._replace(inputs=clients.inputs[:, :-1])
        fewer = fewer._replace(targets=clients.targets[:, :-1])
        off = fixed_data.all_losses(fewer, models) - losses
        assert np.max(np.abs(off)) > 1e-3, "control: a row less"


@pytest.mark.long
def test_a_round_of_ifca_is_that_of_the_library():
    inputs, targets = raw_data(3)
    starts = np.random.default_rng(4).standard_normal((2, 3, 4))
    steps = np.array([0.3, 0.1])
    clients = fixed_data.compress(inputs, targets)
    after, choice = fixed_data.ifca_round(clients, starts, steps)
    mask = jnp.ones(targets.shape, bool)
    data = ClientData(jnp.float32(inputs), jnp.float32(targets), mask)
    for run, step_size in enumerate(steps):
        algorithm = ifca(linear(4), num_clusters=3, step_size=step_size)
        state = State(jnp.asarray(starts[run], jnp.float32))
        state, info = algorithm.step(jax.random.key(0), state, data)
        np.testing.assert_array_equal(info.assignment, choice[:, run])
        np.testing.assert_allclose(state.models, after[run], atol=1e-5)
        assert np.max(np.abs(state.models - after[1 - run])) > 1e-2, "control"


def test_diverged_models_are_chosen_by_nobody_and_never_picked():
    clients = fixed_data.compress(*raw_data(5))
    models = np.random.default_rng(6).standard_normal((2, 2, 4))
    models[0, 0], models[1] = np.nan, np.nan
    after, choice = fixed_data.ifca_round(clients, models, np.ones(2))
    assert np.all(choice[:, 0] == 1) and np.all(choice[:, 1] == -1)
    assert np.all(np.isfinite(after[0, 1]))
    scores = held_out_loss(clients, clients, models)
    assert np.isfinite(scores[0]) and np.isinf(scores[1])
    assert pick(np.array([np.nan, 3.0, 2.0])) == 2
    problem = fixed_data.Problem(clients, clients, np.zeros(6, int), np.eye(2, 4))
    assert np.all(np.isnan(fixed_data.centre_errors(problem, models)))


def test_data_are_the_same_for_every_number_of_samples():
    sizes = {"num_clients": 4, "num_clusters": 2, "num_features": 6, "rho": 4.0}

    def drawn(seed, samples, **more):
        random = np.random.default_rng(seed)
        return fixed_data.draw(random, num_samples=samples, **(sizes | more))

    whole, part = drawn(7, 5, num_validation=5), drawn(7, 3, num_validation=2)
    np.testing.assert_array_equal(whole.clients.inputs[:, :3], part.clients.inputs)
    np.testing.assert_array_equal(whole.clients.inputs[:, 3:], part.validation.inputs)
    assert np.linalg.norm(whole.truths[0] - whole.truths[1]) == pytest.approx(1)
    many = drawn(8, 2000, num_clusters=1)
    square = fixed_data.all_losses(many.clients, many.truths[None])[:, 0, 0]
    low, high = scipy.stats.chi2.ppf([ERROR_RATE, 1 - ERROR_RATE], 8000) / 8000
    assert low <= square.mean() * 4.0 <= high, "noise variance 1 / rho"
    assert not low <= square.mean() * 5.0 <= high, "control: another rho"


@pytest.mark.long
def test_centre_errors_are_those_of_the_library():
    models = np.random.default_rng(9).standard_normal((3, 4, 5))
    clients = fixed_data.compress(*raw_data(9, features=5))
    problem = fixed_data.Problem(clients, clients, np.zeros(6, int), np.eye(4, 5))
    expected = [metrics.centre_distance(jnp.asarray(m), jnp.eye(4, 5)) for m in models]
    found = fixed_data.centre_errors(problem, models)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_local_models_solve_their_normal_equations_or_are_the_shortest():
    inputs, targets = raw_data(10, samples=9)
    found = fixed_data.local_models(fixed_data.compress(inputs, targets))
    slope = np.einsum("msd,ms->md", inputs, np.einsum("msd,md->ms", inputs, found))
    np.testing.assert_allclose(slope, np.einsum("msd,ms->md", inputs, targets))
    short = fixed_data.compress(inputs[:, :2], targets[:, :2])
    models = fixed_data.local_models(short)
    fits = np.einsum("msd,md->ms", short.inputs, models)
    np.testing.assert_allclose(fits, short.targets, atol=1e-12)
    _, _, rows = np.linalg.svd(short.inputs, full_matrices=True)
    outside = np.einsum("mrd,md->mr", rows[:, 2:], models)
    np.testing.assert_allclose(outside, 0, atol=1e-12)
    ridge = baselines.ridge_models(short, 1e-9)
    np.testing.assert_allclose(ridge, models, atol=1e-6)
    longer = np.linalg.norm(baselines.ridge_models(short, 1.0), axis=1)
    assert np.all(longer < np.linalg.norm(models, axis=1)), "control: it shrinks"


def test_the_published_bipartition_has_the_least_largest_similarity_across():
    def across(similarity, labels):
        return np.max(similarity[labels == 0][:, labels == 1])

    worse = 0
    for seed in range(20):
        points = np.random.default_rng(seed).standard_normal((7, 3))
        points /= np.linalg.norm(points, axis=1, keepdims=True)
        similarity = points @ points.T
        codes = np.arange(1, 2**6)[:, None] >> np.arange(7) & 1
        best = min(across(similarity, labels) for labels in codes)
        found = baselines.split_in_two(similarity, "single")
        assert across(similarity, found) == pytest.approx(best, abs=1e-12)
        released = baselines.split_in_two(similarity, "complete")
        worse += across(similarity, released) > best + 1e-9
    assert worse > 0, "control: complete linkage is another split"


@pytest.mark.long
def test_every_clustering_arm_finds_clear_clusters():
    sizes = {"num_clients": 12, "num_clusters": 3, "num_samples": 60, "rho": 1e4}
    problem = fixed_data.draw(np.random.default_rng(11), num_features=5, **sizes)
    clients, true = problem.clients, problem.clusters
    best = fixed_data.by_clusters(clients, true)
    local = fixed_data.local_models(clients)
    found = [
        fixed_data.k_means(local, 3, 0),
        baselines.recursive_bipartition(clients, 3, "single"),
        baselines.recursive_bipartition(clients, 3, "complete"),
    ]
    for labels in found:
        assert np.all(fixed_data.rand_index(labels[None], true) == 1)
        np.testing.assert_allclose(fixed_data.by_clusters(clients, labels), best)
    two = baselines.recursive_bipartition(clients, 2, "complete")
    assert fixed_data.rand_index(two[None], true)[0] < 1, "control: one too few"
    start = fixed_data.by_clusters(clients, np.zeros(12, int))
    tuned = baselines.fine_tuned(clients, start, (0, 5, 2000))
    np.testing.assert_array_equal(tuned[0], start)
    np.testing.assert_allclose(tuned[2], local, atol=1e-6)
    assert np.max(np.abs(tuned[1] - local)) > 1e-3, "control: five steps do not"


@pytest.mark.long
@pytest.mark.parametrize("samples, control", [(6, 7), (30, 27)])
def test_local_solutions_have_their_exact_risk(samples, control):
    """Below the peak and above it; truths of length^2 1/2, rho = 4, d = 15."""
    generator, d = np.random.default_rng(samples), 15
    truth = np.zeros(d)
    truth[0] = math.sqrt(0.5)
    inputs = generator.standard_normal((20_000, samples, d))
    targets = inputs @ truth + 0.5 * generator.standard_normal((20_000, samples))
    found = np.linalg.pinv(inputs) @ targets[..., None]
    squares = np.sum((found[..., 0] - truth) ** 2, axis=1)
    low, high = intervals.student(squares, error_rate=ERROR_RATE)
    exact = local_risk(np.array([samples, control], float), d, 4.0)
    assert low <= exact[0] <= high
    assert not low <= exact[1] <= high, "control: another number of samples"


def test_p_values_keep_their_rate_and_see_what_is_there():
    generator = np.random.default_rng(3)

    def p_value(mean: float, margin: float) -> float:
        values = mean + generator.standard_normal(25)
        return paired_p_value(values, generator, margin=margin, num_resamples=999)

    for margin in (0.0, 0.5):  # At the margin the hypothesis is still true.
        found = sum(p_value(margin, margin) <= 0.05 for _ in range(400))
        low, _ = intervals.clopper_pearson(found, 400, error_rate=ERROR_RATE)
        assert low <= 0.06, "nominal: a little above the rate is allowed"
    seen = sum(p_value(1.0, 0.0) <= 0.05 for _ in range(100))
    assert seen > 90, "control: a difference of one standard deviation is seen"


def test_p_values_of_degenerate_differences():
    generator = np.random.default_rng(4)

    def p_value(values):
        return paired_p_value(values, generator, margin=0.1, num_resamples=199)

    assert p_value(np.zeros(9)) == 1 and p_value(np.full(9, 0.05)) == 1
    assert p_value(np.full(9, 0.5)) == 2 / 200
    assert p_value(np.append(np.ones(8), np.nan)) == 1
    with pytest.raises(ValueError, match=r"^`differences`"):
        p_value(np.ones(1))


def test_holm_by_hand():
    # Bonferroni would stop at 0.05 / 4; a third p-value of 0.025 passes 0.05 / 2.
    for third, rejected in ((0.03, [True, False, False, True]), (0.025, [True] * 4)):
        found = holm(np.array([0.01, 0.04, third, 0.005]), error_rate=0.05)
        np.testing.assert_array_equal(found, rejected)


def test_medians_and_their_order_statistics():
    values = np.arange(1.0, 21.0)
    assert median(values, error_rate=0.05) == Estimate(10.5, 6.0, 15.0)
    outside = 2 * scipy.stats.binom.cdf(5, 20, 0.5)
    assert outside <= 0.05 < 2 * scipy.stats.binom.cdf(6, 20, 0.5)
    values[12:] = np.inf
    assert median(values, error_rate=0.05) == Estimate(10.5, 6.0, np.inf)
    assert median(values[:3], error_rate=0.05) == Estimate(2.0, -np.inf, np.inf)


def test_bits_by_hand():
    sizes = {"num_clusters": 3, "num_features": 10}
    model = 32 * 10
    for arm, expected in (
        ("IFCA", 5 * (4 * model + 2)),
        ("IFCA, then frozen", 2 * (4 * model + 2) + 3 * 2 * model),
        ("one-shot", 5 * 2 * model + model),
        ("known clusters", 5 * 2 * model),
    ):
        assert bits(arm, rounds=5, frozen_from=2, **sizes) == expected
    assert bits("IFCA, then frozen", rounds=1, frozen_from=2, **sizes) == 4 * model + 2


@pytest.mark.long
def test_outcomes_by_hand():
    clusters = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    nearly = np.array([0, 0, 0, 0, 0, 1, 1, 1])
    mixed = np.array([0, 1, 0, 1, 0, 1, 0, 1])
    assignments = np.stack([clusters, 1 - clusters, clusters * 0, mixed, mixed])
    settled = np.array([True, False, True, True, False])
    found = [OUTCOMES[index] for index in outcome(assignments, clusters, settled)]
    expected = ["recovered", "recovered", "collapsed", "locked in", "moving"]
    assert found == expected
    rand = scipy_rand(nearly, clusters)
    label = OUTCOMES[int(outcome(nearly[None], clusters, settled[:1])[0])]
    assert label == ("nearly recovered" if rand > 0.5 else "locked in")


def scipy_rand(first: np.ndarray, second: np.ndarray) -> float:
    """Adjusted Rand index by counting pairs."""
    pairs = list(itertools.combinations(range(len(first)), 2))
    one = np.array([first[i] == first[j] for i, j in pairs])
    two = np.array([second[i] == second[j] for i, j in pairs])
    expected = one.sum() * two.sum() / len(pairs)
    return (np.sum(one & two) - expected) / ((one.sum() + two.sum()) / 2 - expected)


def raw_errors(setting: Setting, separation: float, trials: int) -> np.ndarray:
    """Oracle and pooled errors `[trials, 2]` from rows and `lstsq`."""
    random = np.random.default_rng(3)
    unit = np.eye(setting.num_clusters, setting.num_features) / math.sqrt(2)
    clusters = np.repeat(np.arange(setting.num_clusters), setting.members)
    rows = np.repeat(clusters, setting.num_samples)
    truths = separation * unit
    found = np.empty((trials, 2))
    for trial in range(trials):
        inputs = random.standard_normal((len(rows), setting.num_features))
        targets = np.sum(inputs * truths[rows], axis=1)
        targets += random.standard_normal(len(rows))
        alone = [
            np.linalg.lstsq(inputs[rows == j], targets[rows == j], rcond=None)[0]
            for j in range(setting.num_clusters)
        ]
        whole = np.linalg.lstsq(inputs, targets, rcond=None)[0]
        for column, models in enumerate((np.array(alone), whole[None])):
            squares = np.sum((models - truths) ** 2, axis=1)
            found[trial, column] = setting.shares @ squares
    return found


@pytest.mark.long
def test_exact_errors_against_raw_rows_with_three_unequal_clusters():
    found = raw_errors(THREE, 2.0, 4000)
    predicted = (oracle_error(THREE, 1.0), pooled_error(THREE, 1.0, 2.0))
    low, high = intervals.student(found.T, error_rate=ERROR_RATE)
    assert np.all((low < predicted) & (predicted < high))
    # The leading term of the bias, without the spread of the rows, is noticed.
    spread = 4 * (1 - float(np.sum(THREE.shares**2))) / 2
    rough = spread + float(law.oracle_risk(THREE.num_rows, THREE.num_features, 1.0))
    assert rough < low[1]


def test_pooled_error_of_two_clusters_is_the_laws():
    setting = Setting(6, 20, 5, 2, 0.25)
    shares = setting.shares
    risks = law.pooled_risk(100.0, 6, 0.7, 1.3, share=shares)
    assert pooled_error(setting, 0.7, 1.3) == pytest.approx(float(shares @ risks))
    assert pooled_error(setting, 0.7, 1.3) != pytest.approx(float(risks.mean()))


@pytest.mark.long
def test_sufficient_statistics_give_the_errors_of_raw_rows():
    random = np.random.default_rng(5)
    members = THREE.members * THREE.num_samples
    at = np.array([0.5, 2.0])
    draws = (draw_gram(random, members, THREE.num_features) for _ in range(4000))
    found = np.array([errors(*draw, THREE, at) for draw in draws])
    predicted = [
        [oracle_error(THREE, 1.0)] * 2,
        [pooled_error(THREE, 1.0, float(x)) for x in at],
    ]
    low, high = intervals.student(np.moveaxis(found, 0, -1), error_rate=ERROR_RATE)
    assert np.all((low < predicted) & (predicted < high))
    other = oracle_error(THREE._replace(num_samples=9), 1.0)
    assert other < low[0, 0]


@pytest.mark.parametrize("num_samples", [3, 9])
def test_gram_matrices_have_the_rows_rank_and_mean(num_samples):
    random = np.random.default_rng(2)
    gram, moments = draw_gram(random, np.full(20_000, num_samples), 4)
    ranks = np.linalg.matrix_rank(gram[:50], tol=1e-9, hermitian=True)
    assert np.all(ranks == min(num_samples, 4))
    diagonal = np.diagonal(gram, axis1=1, axis2=2).T
    low, high = intervals.student(diagonal, error_rate=ERROR_RATE)
    assert np.all((low < num_samples) & (num_samples < high))
    # E|X'z|^2 = n d, as X'X has trace n d on average.
    squares = np.sum(moments**2, axis=1)
    low, high = intervals.student(squares, error_rate=ERROR_RATE)
    assert low < num_samples * 4 < high
    assert not low < num_samples * 4.5 < high


@pytest.mark.parametrize("num_samples", [2, 12])
def test_alternation_against_a_plain_loop_on_raw_rows(num_samples):
    random = np.random.default_rng(4)
    inputs = random.standard_normal((7, num_samples, 3))
    targets = random.standard_normal((2, 7, num_samples))
    starts = random.standard_normal((2, 3, 3))
    gram = np.swapaxes(inputs, 1, 2) @ inputs
    moments = np.einsum("msd,rms->rmd", inputs, targets)
    sizes = {"num_samples": num_samples, "num_rounds": 50}
    models, chosen, ended = alternate(gram, moments, starts, **sizes)
    assert np.all(ended)
    for run, plain in enumerate(starts.copy()):
        for _ in range(50):
            residuals = inputs @ plain.T - targets[run][..., None]
            nearest = np.argmin(np.sum(residuals**2, axis=1), axis=1)
            for model in np.unique(nearest):
                own = inputs[nearest == model].reshape(-1, 3)
                rest = -residuals[nearest == model][..., model].ravel()
                plain[model] += np.linalg.lstsq(own, rest, rcond=None)[0]
        np.testing.assert_array_equal(chosen[run], nearest)
        np.testing.assert_allclose(models[run], plain, rtol=1e-7, atol=1e-9)
    assert not np.allclose(models, starts)


@pytest.mark.parametrize(
    ("setting", "exact"),
    [(PAIR, math.sqrt(0.1)), (Setting(20, 40, 40, 4, 0.25), math.sqrt(0.1))],
)
def test_leading_crossing_of_equal_clusters(setting, exact):
    assert leading_crossing(setting, 1.0) == pytest.approx(exact)
    assert leading_crossing(setting, 3.0) == pytest.approx(3 * exact)
    many = setting._replace(num_samples=10**7)
    assert exact_crossing(many, 1.0) == pytest.approx(leading_crossing(many, 1.0))
    found = exact_crossing(setting, 1.0)
    assert pooled_error(setting, 1.0, found) == pytest.approx(
        oracle_error(setting, 1.0)
    )
    assert found != pytest.approx(exact, rel=0.01)


def test_crossing_of_many_clients_against_one_dimensional_means():
    """Clients' positions on the line, both halves' means, and what clients get."""
    random = np.random.default_rng(6)
    for of_clients, factor in itertools.product((True, False), (0.9, 1.1)):
        half = crossing_of_many(PAIR, 1.0, of_clients=of_clients) / 2 * factor
        place = half + random.standard_normal(2_000_000) / math.sqrt(PAIR.num_samples)
        mean = float(np.mean(np.abs(place)))
        models = mean * np.sign(place) if of_clients else np.array([mean])
        assert (np.mean((models - half) ** 2) < half**2) == (factor > 1)
    assert math.isnan(crossing_of_many(THREE, 1.0))
    assert identifiable(PAIR, 2.0) == pytest.approx(2 * math.sqrt(math.log(20) / 5))


def test_crossing_of_known_curves():
    random, joint = np.random.default_rng(1), study.Intervals(ERROR_RATE)
    at = grid(PAIR)
    shift = 0.05 * random.standard_normal((400, 1))
    pooled = 0.5 + 0.5 * at**2 + shift
    other = 1.0 + 0.05 * random.standard_normal((400, len(at))) + shift
    found = crossing(at, pooled, other, joint)
    assert found.low < 1.0 < found.high
    assert found.within(0.95, 1.05) == "yes"
    shifted = crossing(at, pooled, other + 0.1, joint)
    assert shifted.within(0.95, 1.05) == "no"
    exact = crossing(at, pooled, shift + 1.1 + 0 * other, joint)
    assert exact.value == pytest.approx(math.sqrt(1.2))
    # Neither pooling that always wins nor one that always loses has a crossing.
    for always in (other + 100, other - 100):
        missing = crossing(at, pooled, always, joint)
        assert math.isnan(missing.value)
        assert missing.within(0.95, 1.05) == "undecided"
