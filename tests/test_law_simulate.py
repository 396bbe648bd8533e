"""The exact-law engine, against raw data and against itself."""

import functools
from typing import NamedTuple

import jax
import numpy as np
import pytest
import scipy.special

from cfljax import law

# Whole programs: half a second or more each, on a fresh machine.
pytestmark = pytest.mark.long

# Against raw data

# Two-sample tests in twelve configurations: 2, 3 and 5 clusters, balanced and not, on
# both sides of both seams (frame or plain coordinates, Bartlett's factor or single
# rows). Compared after two rounds: squared errors, inner products of errors, and the
# assignment's counts; their laws by Kolmogorov's distance with the bands of Dvoretzky,
# Kiefer, Wolfowitz and Massart, valid at every size, and their means and variances by
# normal approximation, which is nominal. All twelve together fail correct code with a
# chance of 1e-3, half of it in either family.


class Setting(NamedTuple):
    num_clients: tuple[int, ...]  # Of each cluster.
    num_models: int
    num_features: int
    num_samples: int
    noise: float
    step_size: float
    divisor: str = "all"  # Of the summed gradients.

    def vectors(self) -> tuple[np.ndarray, np.ndarray]:
        """Truths and starts, the same whenever they are asked for."""
        generator = np.random.default_rng(7)
        shape = (len(self.num_clients), self.num_features)
        truths = generator.standard_normal(shape) * np.sqrt(4 / self.num_features)
        near = truths[np.arange(self.num_models) % len(truths)]
        spread = generator.standard_normal(near.shape) / np.sqrt(self.num_features)
        return truths, near + 0.9 * spread


def run_on_data(
    setting: Setting, *, num_trials: int, num_rounds: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """The resampled IFCA sample by sample: it knows no exact law.

    Two fresh folds per round, one to choose and one to descend. Returns models
    `[trials, models, features]` and the last counts `[trials, clusters, models]`.
    """
    generator = np.random.default_rng(seed)
    truths, starts = setting.vectors()
    clusters = np.repeat(np.arange(len(truths)), setting.num_clients)
    models = np.broadcast_to(starts, (num_trials, *starts.shape)).copy()
    shape = (num_trials, len(clusters), setting.num_samples, setting.num_features)
    counts = np.zeros((num_trials, len(truths), len(starts)))

    def fold() -> tuple[np.ndarray, np.ndarray]:
        inputs = generator.standard_normal(shape)
        labels = np.einsum("tcnd,cd->tcn", inputs, truths[clusters])
        return inputs, labels + setting.noise * generator.standard_normal(shape[:-1])

    for _ in range(num_rounds):
        inputs, labels = fold()
        residuals = labels[..., None] - np.einsum("tcnd,tkd->tcnk", inputs, models)
        choice = np.argmin(np.sum(residuals**2, axis=2), axis=2)
        chosen = choice[..., None] == np.arange(len(starts))
        inputs, labels = fold()
        residuals = np.einsum("tcnd,tkd->tcnk", inputs, models) - labels[..., None]
        gradients = np.einsum("tcnd,tcnk,tck->tkd", inputs, residuals, chosen)
        total = np.full((num_trials, len(starts)), float(len(clusters)))
        if setting.divisor == "cluster":
            total = np.maximum(np.sum(chosen, axis=1), 1.0)
        step = 2 * setting.step_size / (total * setting.num_samples)
        models = models - step[..., None] * gradients
        counts = np.stack(
            [np.sum(chosen[:, clusters == c], axis=1) for c in range(len(truths))],
            axis=1,
        ).astype(float)
    return models, counts


FAMILY_RATE = 1e-3
NUM_DATA, NUM_LAW = 3000, 8000

SETTINGS = {
    "two, frame": Setting((4, 4), 2, 8, 4, 0.7, 0.4),
    "two, frame, unbalanced": Setting((6, 2), 2, 8, 6, 0.3, 0.3),
    "two, frame, one sample": Setting((5, 3), 2, 8, 1, 0.5, 0.3),
    "two, first frame": Setting((3, 5), 2, 6, 3, 0.5, 0.4, "cluster"),
    "two, last plain": Setting((3, 5), 2, 5, 3, 0.5, 0.4),
    "two, plain, no noise": Setting((4, 4), 2, 3, 3, 0.0, 0.3),
    "three, frame": Setting((3, 3, 3), 3, 9, 4, 0.6, 0.6),
    "three, frame, unbalanced": Setting((5, 3, 1), 3, 9, 8, 0.6, 0.5),
    "three, last plain": Setting((5, 3, 1), 3, 8, 3, 0.6, 0.5),
    "three, rows": Setting((2, 3, 4), 3, 9, 2, 0.6, 0.5, "cluster"),
    "five, frame": Setting((2, 2, 2, 2, 2), 5, 15, 6, 0.5, 0.8),
    "five, frame, unbalanced": Setting((1, 2, 3, 1, 2), 5, 15, 5, 0.4, 0.8),
}


def squares_and_products(truths, models):
    """Errors of all models on all truths, squared, and inner products between them."""
    errors = models[:, None] - truths[None, :, None]  # trials, clusters, models, frame
    squares = np.sum(errors**2, axis=-1).reshape(len(models), -1)
    own = models[:, 0] - truths[0]
    others = models[:, 1:] - truths[1] if len(truths) > 1 else models[:, 1:]
    products = np.einsum("tf,tkf->tk", own, others)
    return np.concatenate([squares, products], axis=1)


@functools.cache
def statistics(setting, *, seed=1, by_law, noise_factor=1.0):
    """`[trials, statistics]` after two rounds, by law or on data."""
    truths, starts = setting.vectors()
    if not by_law:
        options = {"num_trials": NUM_DATA, "num_rounds": 2, "seed": seed}
        models, counts = run_on_data(setting, **options)
        counts = counts.reshape(NUM_DATA, -1)
        return np.concatenate([squares_and_products(truths, models), counts], 1)
    population = law.population(
        truths,
        num_models=setting.num_models,
        num_clients=np.array(setting.num_clients, float),
        num_samples=setting.num_samples,
        num_features=setting.num_features,
        noise=setting.noise * noise_factor,
    )
    trace = law.simulate(
        jax.random.key(seed),
        population,
        law.place(truths, starts, num_features=setting.num_features),
        num_trials=NUM_LAW,
        num_rounds=2,
        step_size=setting.step_size,
        divisor=setting.divisor,
    )
    counts = trace.counts[:, -1].reshape(NUM_LAW, -1)
    moved = squares_and_products(population.truths, trace.models[:, -1])
    return np.concatenate([moved, counts], axis=1)


def differences(one, two):
    """Largest distance over its band, and largest mean or variance gap over its z."""
    rate = FAMILY_RATE / len(SETTINGS)
    points = one.shape[1]
    band = sum(np.sqrt(np.log(8 * points / rate) / (2 * len(s))) for s in (one, two))
    worst = 0.0
    for first, second in zip(one.T, two.T, strict=True):
        places = np.concatenate([first, second])
        ranks = [
            np.searchsorted(np.sort(s), places, side="right") / len(s)
            for s in (first, second)
        ]
        worst = max(worst, float(np.max(np.abs(ranks[0] - ranks[1]))) / band)
    z = -scipy.special.ndtri(rate / (8 * points))
    gaps = []
    for power in (1, 2):
        values = [(s - (power - 1) * s.mean(0)) ** power for s in (one, two)]
        gap = np.abs(values[0].mean(0) - values[1].mean(0))
        error = np.sqrt(sum(v.var(0) / len(v) for v in values))
        gaps.append(np.max(gap / np.maximum(error, 1e-300) * (gap > 1e-12)) / z)
    return worst, float(max(gaps))


# The others are compiled for their shape alone, or with many draws. What they cross,
# these cross as well; for single rows that is the test of the assignment alone.
DEFAULT = ("two, frame", "two, frame, unbalanced", "two, frame, one sample")


@pytest.mark.parametrize(
    "name",
    [
        name if name in DEFAULT else pytest.param(name, marks=pytest.mark.slow)
        for name in SETTINGS
    ],
)
def test_law_and_data_agree(name):
    data, simulated = (
        statistics(SETTINGS[name], by_law=by_law) for by_law in (False, True)
    )
    distance, moments = differences(data, simulated)
    assert distance <= 1 and moments <= 1


@pytest.mark.parametrize(
    "name",
    ["two, frame", pytest.param("three, frame, unbalanced", marks=pytest.mark.slow)],
)
def test_a_slightly_wrong_law_is_noticed(name):
    """Control: more noise in the law alone."""
    setting = SETTINGS[name]
    data = statistics(setting, by_law=False)
    simulated = statistics(setting, by_law=True, noise_factor=1.3)
    distance, moments = differences(data, simulated)
    assert max(distance, moments) > 1


def test_the_tests_do_not_cry_wolf():
    """Control: data against other data stay within the bands."""
    setting = SETTINGS["two, frame"]
    one, two = (statistics(setting, seed=seed, by_law=False) for seed in (1, 2))
    assert max(differences(one, two)) <= 1


# Against itself, and misuse

KEY = jax.random.key(11)

# Every shape compiles for seconds: one of two models and one of three by default.
SHAPES = pytest.mark.parametrize(
    "num_clusters, num_models",
    [(2, 2), *(pytest.param(k, 3, marks=pytest.mark.slow) for k in (2, 3))],
)


def setting(num_clusters=2, num_models=2, *, sizes=(6.0, 4.0, 5.0), **changes):
    """A small population and a start, one orthogonal direction per model."""
    values = {"num_samples": 5, "num_features": 60, "noise": 0.5} | changes
    truths = np.eye(num_clusters)
    population = law.population(
        truths,
        num_models=num_models,
        num_clients=np.array(sizes[:num_clusters]),
        **values,
    )
    near = np.zeros((num_models, num_clusters + num_models))
    for model in range(num_models):
        near[model, model % num_clusters] = 1.0
        near[model, num_clusters + model] = 0.4
    start = law.place(truths, near, num_features=values["num_features"])
    return population, start


def run(population, start, **changes):
    values = {"num_trials": 6, "num_rounds": 3, "step_size": 0.4} | changes
    return law.simulate(KEY, population, start, **values)


@pytest.mark.parametrize("num_clusters", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_a_trial_does_not_depend_on_how_many_others_run(num_clusters):
    population, start = setting(num_clusters, num_clusters)
    few, many = (run(population, start, num_trials=n) for n in (3, 6))
    np.testing.assert_array_equal(few.models, many.models[:3])
    np.testing.assert_array_equal(few.counts, many.counts[:3])
    later = run(population, start, num_trials=3, first_trial=3)
    np.testing.assert_array_equal(later.models, many.models[3:])
    starts, last = (
        law.random_starts(KEY, population, num_models=num_clusters, scale=1.0, **which)
        for which in ({"num_trials": 6}, {"num_trials": 2, "first_trial": 4})
    )
    np.testing.assert_array_equal(last, starts[4:])
    assert not np.array_equal(many.models[0], many.models[1])


def test_the_callers_precision_does_not_matter():
    population, start = setting()
    usual = run(population, start)
    with jax.enable_x64(True):
        np.testing.assert_array_equal(run(population, start).models, usual.models)
    assert usual.models.dtype == usual.counts.dtype == np.float64


@SHAPES
def test_every_client_chooses_exactly_one_model(num_clusters, num_models):
    population, start = setting(num_clusters, num_models)
    counts = run(population, start).counts
    assert np.all(counts >= 0) and np.all(counts % 1 == 0)
    expected = np.broadcast_to(population.num_clients, counts.shape[:-1])
    np.testing.assert_array_equal(counts.sum(-1), expected)


def test_scaling_everything_scales_the_trajectory():
    """Truths, starts and noise times 8: same assignments, 8 times the models."""
    population, start = setting()
    larger = population._replace(truths=8 * population.truths, noise=4.0)
    one, other = run(population, start), run(larger, 8 * start)
    np.testing.assert_array_equal(one.counts, other.counts)
    np.testing.assert_allclose(other.models, 8 * one.models, rtol=1e-12, atol=1e-12)


def test_placing_keeps_all_distances():
    generator = np.random.default_rng(0)
    truths, models = generator.standard_normal((2, 3, 40))
    truths[2] = truths[0] - truths[1]  # dependent truths do no harm
    for num_features in (40, 10_000):
        population = law.population(
            truths,
            num_models=3,
            num_clients=np.ones(3),
            num_samples=1,
            num_features=num_features,
            noise=0.0,
        )
        placed = law.place(truths, models, num_features=num_features)
        expected = np.linalg.norm(truths[:, None] - models[None], axis=-1)
        found = law.distances(population.truths, placed)
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("num_features", [5, 60, 10**8])
def test_random_starts_have_the_squared_lengths_of_normal_vectors(num_features):
    population, _ = setting(num_features=num_features)
    starts = law.random_starts(
        KEY, population, num_trials=4000, num_models=2, scale=0.3
    )
    squares = np.sum(starts**2, axis=-1) / 0.09
    error = np.sqrt(2 * num_features / 4000)
    assert np.all(np.abs(squares.mean(0) - num_features) < 5 * error)
    ratio = squares.var(0) / (2 * num_features)
    assert np.all(np.abs(ratio - 1) < 5 * np.sqrt((2 + 12 / num_features) / 4000))
    product = np.sum(starts[:, 0] * starts[:, 1], axis=-1) / 0.09
    assert abs(product.mean()) < 5 * np.sqrt(num_features / 4000)


@pytest.mark.slow
def test_divisors_agree_where_they_divide_by_the_same():
    """Two equal clusters that are never confused: m / 2 members each."""
    population, start = setting(sizes=(5.0, 5.0), num_samples=400, num_features=9)
    everyone = run(population, start, step_size=0.4)
    members = run(population, start, step_size=0.2, divisor="cluster")
    np.testing.assert_array_equal(everyone.counts, members.counts)
    np.testing.assert_allclose(everyone.models, members.models, rtol=1e-12)


@pytest.mark.slow
def test_participants_are_those_of_the_round():
    population, start = setting()
    present = np.array([[6.0, 4.0], [2.0, 0.0], [0.0, 0.0]])
    trace = run(population, start, participants=present, divisor="participants")
    expected = np.broadcast_to(present, (6, 3, 2))
    np.testing.assert_array_equal(trace.counts.sum(-1), expected)
    np.testing.assert_allclose(trace.models[:, 3], trace.models[:, 2], atol=1e-15)


def test_a_fixed_assignment_stays():
    population, start = setting()
    fixed = np.array([[6.0, 0.0], [4.0, 0.0]])
    trace = run(population, start, fixed_counts=fixed)
    assert np.all(trace.counts == fixed)
    # Nobody chose the second model, so it never moved.
    lengths = np.linalg.norm(trace.models[:, :, 1], axis=-1)
    np.testing.assert_allclose(lengths, np.linalg.norm(start[1]), rtol=1e-12)


@SHAPES
def test_a_model_that_is_not_finite_wins_nobody_and_spoils_no_other(
    num_clusters, num_models
):
    population, start = setting(num_clusters, num_models)
    broken = start.copy()
    broken[0] = np.nan
    trace = run(population, broken)
    assert np.all(trace.counts[..., 0] == 0)
    assert np.all(np.isnan(trace.models[:, :, 0]))
    assert np.all(np.isfinite(trace.models[:, :, 1:]))
    trace = run(population, np.full_like(start, np.nan))
    assert np.all(trace.counts == 0)


@SHAPES
def test_ties_go_to_the_lowest_index(num_clusters, num_models):
    population, start = setting(num_clusters, num_models)
    trace = run(population, np.broadcast_to(start[1], start.shape).copy())
    assert np.all(trace.counts[:, 0, :, 1:] == 0)


def test_divergence_is_recorded():
    population, start = setting()
    trace = run(population, start, step_size=1e200)
    assert not np.any(np.isfinite(trace.models[:, -1]))


@pytest.mark.parametrize(
    "num_clusters, num_models",
    [*(pytest.param(*k, marks=pytest.mark.slow) for k in ((2, 3), (3, 2))), (2, 1)],
)
def test_models_may_outnumber_clusters_or_be_fewer(num_clusters, num_models):
    population, start = setting(num_clusters, num_models)
    trace = run(population, start)
    assert trace.counts.shape == (6, 3, num_clusters, num_models)
    assert np.all(trace.counts.sum(-1) == population.num_clients)


@pytest.mark.parametrize(
    "changes, name",
    [
        ({"num_samples": 0}, "num_samples"),
        ({"num_samples": 1.5}, "num_samples"),
        ({"num_features": 1}, "num_features"),
        ({"noise": -1.0}, "noise"),
        ({"noise": np.nan}, "noise"),
        ({"sizes": (1.5, 2.0)}, "num_clients"),
        ({"sizes": (1.0,)}, "num_clients"),
    ],
)
def test_impossible_populations_are_refused(changes, name):
    with pytest.raises(ValueError, match=f"`{name}`"):
        setting(**changes)


@pytest.mark.parametrize(
    "changes, name",
    [
        ({"num_trials": 0}, "num_trials"),
        ({"num_rounds": 0}, "num_trials"),
        ({"first_trial": -1}, "first_trial"),
        ({"start": np.zeros((2, 9))}, "models"),
        ({"start": np.zeros((5, 2, 4))}, "models"),
    ],
)
def test_impossible_runs_are_refused(changes, name):
    population, start = setting()
    with pytest.raises(ValueError, match=f"`{name}`"):
        run(population, changes.pop("start", start), **changes)
