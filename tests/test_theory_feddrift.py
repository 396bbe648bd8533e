"""What the rows of FedDrift compute, against closed forms and the library."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import compiled, padded
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.stats import chi2

from cfljax import intervals
from cfljax.algorithms import feddrift
from cfljax.algorithms.feddrift import cluster_distances
from cfljax.models import linear
from cfljax.statements import Preset, Status, evaluate
from theory.feddrift import detection, merging

CASES = [(1.0, 0.0, 0.5), (0.5, 1.0, 0.3), (2.0, 3.0, 4.0)]  # noise, drift, delta

# Against equations


@pytest.mark.parametrize("case", CASES)
def test_two_samples_have_exponential_losses(case):
    """a X - b Y > delta with chance a/(a + b) e^(-delta/a)."""
    noise, separation, threshold = case
    before, after = noise**2, noise**2 + separation**2
    rises = after / (after + before) * np.exp(-threshold / after)
    found = detection.rise_law(2, *case)
    np.testing.assert_allclose(found, [rises, 1 - rises], rtol=1e-12)


@pytest.mark.parametrize("samples", [1, 3, 7])
@pytest.mark.parametrize("case", CASES)
def test_other_numbers_of_samples_by_integration(samples, case):
    noise, separation, threshold = case
    before, after = noise**2, noise**2 + separation**2

    def integrand(root):
        first = root**2  # without the pole of chi^2 with one degree of freedom
        edge = (samples * threshold + before * first) / after
        return 2 * root * chi2.pdf(first, samples) * chi2.sf(edge, samples)

    expected, _ = quad(integrand, 1e-12, 12, epsabs=1e-13, epsrel=1e-11)
    found = detection.rise_law(samples, *case)
    np.testing.assert_allclose(found[0], expected, rtol=1e-8)
    np.testing.assert_allclose(sum(found), 1, rtol=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_exponents_are_the_best_of_their_moments(case):
    noise, separation, threshold = case
    before, after = noise**2, noise**2 + separation**2

    def exponent(tilt):
        logs = np.log1p(2 * after * tilt) + np.log1p(-2 * before * tilt)
        return threshold * tilt - logs / 2

    if separation:
        best: Any = minimize_scalar(
            exponent, bounds=(0, 0.5 / before), method="bounded"
        )
        found = detection.missed_exponent(*case)
    else:
        best = minimize_scalar(
            lambda tilt: exponent(-tilt), bounds=(0, 0.5 / after), method="bounded"
        )
        found = detection.false_alarm_exponent(noise, threshold)
    assert found > 0.01
    np.testing.assert_allclose(found, -best.fun, rtol=1e-6)


def test_many_samples_lose_no_digits():
    """Both chances still sum to 1, and the drift of the threshold is a coin's toss."""
    for samples in (10**4, 10**6):
        rises, stays = detection.rise_law(samples, 1.0, 0.5, 0.25)
        np.testing.assert_allclose(rises + stays, 1, rtol=1e-10)
        np.testing.assert_allclose(rises, 0.5, atol=2 / np.sqrt(samples))


def test_small_drifts_have_no_bound():
    assert detection.missed_exponent(1.0, 0.7, 0.5) == 0.0
    assert detection.missed_exponent(1.0, 0.8, 0.5) > 0


@pytest.mark.long
def test_rises_are_the_librarys_distances():
    """Of losses without noise, of inputs of variance 1, one client a model."""
    models = np.array([[0.0, 1], [0.6, 0], [1.1, 0.5]])
    losses = np.linalg.norm(models[:, None] - models[None, :], axis=2) ** 2
    found, there = cluster_distances(
        jnp.asarray(losses, jnp.float32), jnp.ones(3), jnp.arange(3)
    )
    assert np.all(there)
    np.testing.assert_allclose(found, merging.rises(models), atol=1e-6)


# Against theory


@pytest.mark.long
def test_models_in_a_row_leave_two_clusters_within_delta():
    """At 9/16 of it; of models in a triangle the mean is further off."""
    row = np.array([[[0.0, 0], [0.5, 0], [1, 0]]], "f4") * 1.0001
    row[0, 1, 0] = 0.5002
    triangle = np.array([[[0.0, 0], [0.87, 0.49], [0.87, -0.49]]], "f4") * 1.01
    found = []
    for models in (row, triangle):
        labels = merging.merged(models)[0]
        np.testing.assert_array_equal(labels, [0, 1, 1])
        mean = models[0, 1:].mean(axis=0)
        found.append(merging.rises(np.stack([models[0, 0], mean]))[0, 1])
    np.testing.assert_allclose(found[0], 9 / 16, atol=1e-3)
    assert found[0] < 0.75 < found[1]


def test_mean_models_lose_more_by_the_squared_distance():
    """On samples of all models of the other cluster, as `check_settled` says."""
    own, other = np.array([0.0, 0.5]), np.array([1.2, 1.4, 1.9])
    loss = lambda model, truths: np.mean((model - truths) ** 2)
    rise = max(
        loss(own.mean(), other) - loss(other.mean(), other),
        loss(other.mean(), own) - loss(own.mean(), own),
    )
    np.testing.assert_allclose(rise, (own.mean() - other.mean()) ** 2)


@pytest.mark.long
@pytest.mark.parametrize("separation", [0.0, 1.0])
def test_the_library_isolates_as_often_as_the_law_says(separation):
    """Clients that have the truth as their model, and new samples of the same or of
    another truth. An interval of error rate 1e-6 holds the law, and not that of a
    threshold half as large."""
    clients, samples, noise, threshold = 4000, 10, 1.0, 0.5
    algorithm = compiled(
        feddrift(
            linear(2),
            num_clusters=2,
            step_size=0.0,
            threshold=threshold,
            step_rounds=1,
        )
    )
    generator = np.random.default_rng(3)
    truth = np.array([1.0, -1.0])

    def drawn(truth):
        inputs = generator.standard_normal((clients, samples, 2))
        errors = noise * generator.standard_normal((clients, samples))
        return padded(inputs, inputs @ truth + errors, [samples] * clients)

    first, second = drawn(truth), drawn(truth + [separation, 0])
    state = algorithm.init(jax.random.key(0), first)
    models = jnp.broadcast_to(jnp.asarray(truth, jnp.float32), (2, 2))
    state = state._replace(models=models)
    state, before = algorithm.step(jax.random.key(1), state, first)
    _, after = algorithm.step(jax.random.key(2), state, second)
    assert not np.any(before.drifted)
    low, high = intervals.clopper_pearson(
        np.sum(np.asarray(after.drifted)), clients, error_rate=1e-6
    )
    law = lambda edge: detection.rise_law(samples, noise, separation, edge)[0]
    assert low < law(threshold) < high
    assert not low < law(threshold / 2) < high


# Against itself


@pytest.mark.parametrize("row", ["feddrift.false_alarm", "feddrift.missed"])
def test_bounds_hold_and_fall_with_samples(row):
    found = evaluate(row, sweep={"n": [10, 100, 1000]})
    assert set(found["verdict"].values) == {"holds"}
    assert np.all(np.diff(found["bound"]) < 0)


def test_drifts_below_the_threshold_are_not_claimed():
    found = evaluate("feddrift.missed", separation=0.5, threshold=0.5)
    assert found["verdict"].item().startswith("not claimed")
    assert found["truth"] > 0.5


def test_a_bound_whose_exponent_is_too_small_is_seen_as_well():
    """By the part of the check that says it is sharp."""
    check = detection.check_false_alarm
    statuses = [check(Preset(), "toy.a", factor=one).status for one in (0.9, 1.0, 1.05)]
    assert statuses == [Status.VIOLATED, Status.HOLDS, Status.VIOLATED]
