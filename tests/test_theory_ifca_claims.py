"""What the checks of IFCA's text claims are made of, by hand and on raw data."""

import itertools
import math

import jax.numpy as jnp
import numpy as np
import pytest

from cfljax import law, metrics
from cfljax.clustering.distances import bottleneck_distance, least_distance
from cfljax.statements.judges import same_law
from cfljax.statements.verdict import Status
from theory.ifca import algorithm2, claims_experiments, claims_theory
from theory.ifca.common import fixed_data
from theory.ifca.common.checks import difference_within
from theory.ifca.common.fixed_data import FixedData, Outcome


def raw_problem(seed=0, clients=6, samples=5, features=3, noise=0.4):
    """One trial of raw data, and what the module keeps of it."""
    generator = np.random.default_rng(seed)
    truths = generator.standard_normal((2, features))
    clusters = np.arange(clients) // (clients // 2)
    inputs = generator.standard_normal((clients, samples, features))
    error = noise * generator.standard_normal((clients, samples))
    labels = np.einsum("mnd,md->mn", inputs, truths[clusters]) + error
    grams = np.einsum("mna,mnb->mab", inputs, inputs) / samples
    moments = np.einsum("mna,mn->ma", inputs, labels) / samples
    data = FixedData(grams[None], moments[None], clusters, truths[None])
    return inputs, labels, data


def by_hand(inputs, labels, models, step_size, num_rounds):
    """Algorithm 2, option I, client by client and sample by sample."""
    models, clients = models.copy(), len(inputs)

    def choose():
        losses = [
            [np.mean((y - x @ theta) ** 2) for theta in models]
            for x, y in zip(inputs, labels, strict=True)
        ]
        return np.argmin(losses, axis=1)  # line 6

    for _ in range(num_rounds):
        total = np.zeros_like(models)
        for x, y, j in zip(inputs, labels, choose(), strict=True):
            total[j] += 2 * x.T @ (x @ models[j] - y) / len(y)  # line 9
        models -= step_size / clients * total  # line 14
    return models, choose()


@pytest.mark.parametrize("seed", range(4))
def test_training_against_the_algorithm_by_hand(seed):
    inputs, labels, data = raw_problem(seed)
    starts = np.random.default_rng(seed + 9).standard_normal((3, 2, 3))
    outcome = fixed_data.train(data, starts[None], step_size=0.3, num_rounds=7)
    for index, start in enumerate(starts):
        models, choice = by_hand(inputs, labels, start, 0.3, 7)
        np.testing.assert_allclose(outcome.models[0, index], models, rtol=1e-9)
        np.testing.assert_array_equal(outcome.choice[0, index], choice)
        one_less, _ = by_hand(inputs, labels, start, 0.3, 6)
        assert np.max(np.abs(one_less - models)) > 1e-6, "control: a round less"


def test_fresh_training_draws_two_folds_a_round():
    truths = np.array([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
    sizes = {"num_clients": 4, "num_samples": 6, "noise": 0.2}
    data = fixed_data.draw_clients(np.random.default_rng(1), truths, **sizes)
    start = truths[:, None] + 0.3
    outcome = fixed_data.train_afresh(
        np.random.default_rng(2),
        data,
        start,
        num_samples=6,
        noise=0.2,
        step_size=0.4,
        num_rounds=2,
    )
    generator, models = np.random.default_rng(2), start[0, 0]
    for _ in range(2):
        first = fixed_data.draw_clients(generator, truths, **sizes)
        second = fixed_data.draw_clients(generator, truths, **sizes)
        inner = np.einsum("ja,mab,jb->mj", models, first.grams[0], models)
        choice = np.argmin(inner - 2 * first.moments[0] @ models.T, axis=1)
        total = np.zeros_like(models)
        for client, j in enumerate(choice):
            own = second.grams[0, client] @ models[j] - second.moments[0, client]
            total[j] += 2 * own
        models = models - 0.4 / 4 * total
    np.testing.assert_allclose(outcome.models[0, 0], models, rtol=1e-9)


def test_both_ways_to_draw_clients_have_one_law():
    """Bartlett's decomposition (n >= d) against rows, by three scalars of each."""
    generator, trials = np.random.default_rng(5), 30_000
    truths = np.broadcast_to(np.array([[1.0, -0.5, 0.2]]), (trials, 1, 3))
    sizes = {"num_clients": 1, "num_samples": 4, "noise": 0.7}
    found = fixed_data.draw_clients(generator, truths, **sizes)
    inputs = generator.standard_normal((trials, 4, 3))
    labels = inputs @ truths[0, 0] + 0.7 * generator.standard_normal((trials, 4))
    grams = np.einsum("tna,tnb->tab", inputs, inputs) / 4
    moments = np.einsum("tna,tn->ta", inputs, labels) / 4
    scalars = [
        (
            np.linalg.eigvalsh(g)[:, 0],
            h[:, 1],
            np.linalg.solve(g, h[..., None])[:, 0, 0],
        )
        for g, h in ((found.grams[:, 0], found.moments[:, 0]), (grams, moments))
    ]
    same = same_law("toy.a", scalars[0], scalars[1], resolution=0.08)
    assert same.status is Status.HOLDS
    moved = [one + 0.3 * np.std(one) for one in scalars[0]]
    for one, two in zip(moved, scalars[1], strict=True):
        wrong = same_law("toy.a", [one], [two], resolution=0.08)
        assert wrong.status is Status.VIOLATED
    few = fixed_data.draw_clients(
        generator, truths, num_clients=1, num_samples=2, noise=0.7
    )
    assert np.all(np.linalg.matrix_rank(few.grams[:20, 0]) == 2)


def test_undefined_models_win_nobody():
    _, _, data = raw_problem()
    models = np.array([[[[np.nan] * 3, [5.0] * 3]]])
    outcome = fixed_data.train(data, models, step_size=0.1, num_rounds=1)
    assert np.all(outcome.choice == 1)
    assert np.isnan(fixed_data.matched_distance(data, outcome)[0, 0])


def outcome_of(choices, num_models):
    choice = np.array(choices)[None]
    models = np.zeros((1, len(choices), num_models, 2))
    return Outcome(models, choice, np.zeros((1, len(choices)), bool))


def test_partitions_by_hand():
    clusters = np.array([0, 0, 1, 1])
    data = FixedData(
        np.zeros((1, 4, 2, 2)), np.zeros((1, 4, 2)), clusters, np.zeros((1, 2, 2))
    )
    choices = [[0, 0, 1, 1], [2, 2, 0, 0], [0, 1, 2, 2], [0, 0, 0, 0], [0, 1, 1, 0]]
    outcome = outcome_of(choices, 3)
    assert fixed_data.recovered(data, outcome)[0].tolist() == [True, True] + [False] * 3
    assert fixed_data.used_models(outcome)[0].tolist() == [2, 2, 3, 1, 2]
    mixed = claims_experiments.mixes_clusters(outcome, clusters)[0].tolist()
    assert mixed == [False, False, False, True, True]
    two = outcome_of([[0, 0, 1, 1], [0, 1, 1, 0], [0, 0, 0, 0]], 2)
    assert claims_theory.locked_in(data, two)[0].tolist() == [False, True, False]
    moving = two._replace(moving=np.array([[False, True, False]]))
    assert not np.any(claims_theory.locked_in(data, moving))


@pytest.mark.parametrize("clusters", [2, 3, 4])
def test_matched_distance_against_the_metric(clusters):
    generator = np.random.default_rng(clusters)
    models = generator.standard_normal((3, 2, clusters, 5))
    truths = generator.standard_normal((3, clusters, 5))
    data = FixedData(np.zeros((3, 1, 5, 5)), np.zeros((3, 1, 5)), np.array([0]), truths)
    outcome = Outcome(models, np.zeros((3, 2, 1), int), np.zeros((3, 2), bool))
    found = fixed_data.matched_distance(data, outcome)
    for trial, start in itertools.product(range(3), range(2)):
        reference = metrics.centre_distance(
            jnp.asarray(models[trial, start]), jnp.asarray(truths[trial])
        )
        assert found[trial, start] == pytest.approx(float(reference), rel=1e-5)


def test_least_squares_against_raw_data():
    inputs, labels, data = raw_problem()
    found = fixed_data.least_squares(data)[0]
    for cluster in range(2):
        own = data.clusters == cluster
        reference = np.linalg.lstsq(inputs[own].reshape(-1, 3), labels[own].ravel())[0]
        np.testing.assert_allclose(found[cluster], reference, rtol=1e-9)


def test_patterns():
    generator = np.random.default_rng(0)
    plain = fixed_data.pattern(generator, 500, 4)
    assert set(np.unique(plain)) == {0.0, 1.0}
    assert abs(np.mean(plain) - 0.5) < 0.05
    scaled = fixed_data.pattern(generator, 500, 4, norm=2.5)
    np.testing.assert_allclose(np.linalg.norm(scaled, axis=-1), 2.5)
    for row in scaled:
        assert len(set(row[row > 0])) == 1


def test_scaling_everything_by_a_power_of_two_changes_no_digit():
    _, _, data = raw_problem(clients=8, samples=9)
    start = np.random.default_rng(1).standard_normal((1, 4, 2, 3))
    half = data._replace(moments=data.moments / 2, truths=data.truths / 2)
    runs = [
        fixed_data.train(one, models, step_size=0.2, num_rounds=30)
        for one, models in ((data, start), (half, start / 2), (half, start))
    ]
    np.testing.assert_allclose(2 * runs[1].models, runs[0].models, rtol=1e-12)
    np.testing.assert_array_equal(runs[1].choice, runs[0].choice)
    assert np.max(np.abs(2 * runs[2].models - runs[0].models)) > 0.01, "control"


def test_closeness_against_the_kernels():
    generator = np.random.default_rng(0)
    models, truths = generator.standard_normal((2, 6, 2, 4))
    found = claims_theory.closeness_on_the_way(models, truths, 0.0)
    for trial in range(6):
        pair = jnp.asarray(models[trial]), jnp.asarray(truths[trial])
        ratio = float(bottleneck_distance(*pair) / least_distance(pair[1]))
        assert found[trial] == pytest.approx(0.5 - ratio, rel=1e-4)
    np.testing.assert_allclose(
        claims_theory.closeness_on_the_way(models, truths, 1.0), 0.5
    )


@pytest.mark.parametrize("scale", [0.5, 1.0, 3.0])
def test_separating_probability_against_draws(scale):
    generator, trials, features = np.random.default_rng(0), 20_000, 150
    models = generator.standard_normal((trials, 2, features)) * scale / features**0.5
    gaps = np.sum(models**2, axis=-1)[:, None] - 2 * np.swapaxes(models[..., :2], 1, 2)
    nearest = np.argmin(gaps, axis=-1)
    share = np.mean(nearest[:, 0] != nearest[:, 1])
    claimed = float(claims_experiments.separating_probability(np.array([scale]))[0])
    assert abs(share - claimed) < 5 * 0.5 / trials**0.5
    wrong = np.arccos(scale**2 / (scale**2 + 1)) / np.pi
    assert abs(share - wrong) > 5 * 0.5 / trials**0.5, "control"


@pytest.mark.parametrize(("clusters", "rows"), [(2, 7558), (4, 15115)])
def test_the_oracle_line(clusters, rows):
    line = claims_experiments.feasible_rows(clusters, 1000.0)
    assert round(line) == rows
    assert law.oracle_risk(line / clusters, 1000, 0.3) == pytest.approx(0.18**2)


@pytest.mark.parametrize("sizes", [(8, 4, 2), (100, 25, 10), (200, 100, 20), (6, 3, 4)])
def test_absence_against_binomial_coefficients(sizes):
    clients, members, chosen = sizes
    exact = math.comb(clients - members, chosen) / math.comb(clients, chosen)
    found = algorithm2.absence_probability(*sizes)
    assert found == pytest.approx(exact, rel=1e-10)
    assert found <= (1 - members / clients) ** chosen


@pytest.mark.parametrize(
    ("band", "status"),
    [
        ((0.0, 1.0), Status.HOLDS),
        ((-1.0, 0.1), Status.VIOLATED),
        ((0.29, 0.31), Status.INCONCLUSIVE),
    ],
)
def test_differences_of_shares(band, status):
    first, second = np.arange(1000) < 600, np.arange(1000) < 300
    verdict = difference_within("toy.a", first, second, band)
    assert verdict.status is status
    assert verdict.interval[0] < 0.3 < verdict.interval[1]
