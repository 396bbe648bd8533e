"""The synthetic regression of Werner's section 4.1: its constants, against searches."""

import numpy as np
import pytest

from theory.werner import synthetic_regression as regression

GENERATOR = np.random.default_rng(0)
TASK = regression.draw_regression(
    GENERATOR, num_clients=3, num_clusters=2, features=4, samples=5
)


def loss(cluster: int, client: int, place: np.ndarray) -> float:
    inputs = TASK.inputs[cluster, client]
    targets = inputs.T @ TASK.optima[cluster]
    return float(np.sum((inputs.T @ place - targets) ** 2) / (2 * inputs.shape[1]))


def test_gradients_are_those_of_the_loss():
    place, width = GENERATOR.standard_normal(4), 1e-5
    found = regression.gradients(TASK, place)
    steps = width * np.eye(4)
    exact = [
        (loss(1, 2, place + step) - loss(1, 2, place - step)) / (2 * width)
        for step in steps
    ]
    np.testing.assert_allclose(found[1, 2], exact, rtol=1e-6)
    assert not np.allclose(found[1, 1], exact, rtol=0.1)


def test_inputs_have_their_clusters_mean():
    large = regression.draw_regression(GENERATOR, num_clients=50, samples=40)
    means = np.mean(large.inputs, axis=(1, 2, 3))
    np.testing.assert_allclose(means, [1, 2, 3, 4], atol=0.05)


def test_worst_ratio_is_attained_and_never_exceeded():
    sizes, places = regression.worst_ratio(TASK, 1)
    attained = np.diagonal(regression.intra_ratio(TASK, 1, places))
    np.testing.assert_allclose(attained, sizes, rtol=1e-9)
    around = TASK.optima[1] + GENERATOR.standard_normal((5000, 4))
    seen = np.max(regression.intra_ratio(TASK, 1, around), axis=0)
    assert np.all(seen <= sizes) and np.all(seen >= 0.3 * sizes)


def test_least_distance_of_gradients_is_that_of_all_pairs():
    models = GENERATOR.standard_normal((2, 4))
    pairs = [
        np.sum((mine - other) ** 2)
        for own in (0, 1)
        for mine in regression.gradients(TASK, models[own])[own]
        for other in regression.gradients(TASK, models[own])[1 - own]
    ]
    found = regression.least_apart(TASK, models)
    assert found == pytest.approx(min(pairs)) and found < np.median(pairs)


def test_the_ratio_is_undefined_at_the_optimum():
    assert np.all(np.isnan(regression.intra_ratio(TASK, 0, TASK.optima[:1])))


@pytest.mark.parametrize("slack", [0.0, 0.5, 2.0])
def test_the_certificate_is_a_minimum(slack):
    found, places = regression.certificate(TASK, slack)
    assert len(found) == 2 * 3 * 3

    def objective(pair: int, place: np.ndarray) -> float:
        first, second = divmod(pair, 3)
        own = regression.gradients(TASK, place)[0, first]
        other = regression.gradients(TASK, place)[1, second]
        return float(np.sum((own - other) ** 2) + slack**2 * np.sum(own**2))

    for pair in range(9):  # Clients of the first cluster against those of the second.
        at = objective(pair, places[pair])
        np.testing.assert_allclose(at, found[pair], rtol=1e-9, atol=1e-18)
        for _ in range(20):
            near = places[pair] + 0.1 * GENERATOR.standard_normal(4)
            assert objective(pair, near) > at
    assert np.all(found > 1e-3) if slack else np.all(found < 1e-18)


def test_noise_forms_are_the_variance_of_one_sample():
    error = GENERATOR.standard_normal(4)
    inputs = TASK.inputs[1, 0]
    single = inputs * (inputs.T @ error)
    variance = np.mean(np.sum((single - np.mean(single, 1)[:, None]) ** 2, axis=0))
    form = regression.noise_forms(TASK)[1, 0]
    np.testing.assert_allclose(error @ form @ error, variance, rtol=1e-10)


def test_descent_contracts_by_the_mean_hessian():
    path = regression.descent(TASK, 3)
    means = np.mean(TASK.hessians, axis=1)
    step_size = 1 / np.max(np.linalg.eigvalsh(means))
    assert np.all(path[0] == 0)
    for cluster in range(2):
        factor = np.eye(4) - step_size * means[cluster]
        error = path[2, cluster] - TASK.optima[cluster]
        expected = factor @ factor @ -TASK.optima[cluster]
        np.testing.assert_allclose(error, expected, rtol=1e-10)
