"""Loss vectors drawn from their law: raw data have the same, and the exact moments."""

import functools
import importlib

import numpy as np
import pytest
import scipy.integrate

from cfljax import intervals, law
from cfljax.statements.judges import same_law
from cfljax.statements.verdict import Status

TRIALS, NOISE = 20_000, 0.4
SETTINGS = {  # d, N, n
    "more samples than rank": (3, 3, 8),
    "as many": (2, 5, 3),
    "fewer": (4, 6, 2),
    "one sample": (3, 2, 1),
    "fewer models than features": (7, 2, 5),
}


def models_and_truth(name: str) -> tuple[np.ndarray, np.ndarray]:
    features, models, _ = SETTINGS[name]
    generator = np.random.default_rng(features)
    return 1 + generator.standard_normal((models, features)), np.full(features, 0.3)


@functools.cache
def raw(name: str) -> np.ndarray:
    """Losses on inputs and labels drawn one by one."""
    features, _, samples = SETTINGS[name]
    models, truth = models_and_truth(name)
    generator = np.random.default_rng(1)
    inputs = generator.standard_normal((TRIALS, samples, features))
    labels = inputs @ truth + NOISE * generator.standard_normal((TRIALS, samples))
    return np.mean((inputs @ models.T - labels[..., None]) ** 2, axis=1)


@functools.cache
def drawn(name: str, more: int = 0) -> np.ndarray:
    return law.loss_vectors(
        np.random.default_rng(2),
        law.loss_factor(*models_and_truth(name), NOISE),
        num_samples=SETTINGS[name][2] + more,
        num_clients=TRIALS,
    )


def gram(name: str) -> np.ndarray:
    models, truth = models_and_truth(name)
    return (models - truth) @ (models - truth).T + NOISE**2


@pytest.mark.parametrize("name", SETTINGS)
def test_raw_data_have_the_law(name):
    """Entry by entry, and their sum and largest difference, which see dependence."""

    def parts(losses: np.ndarray) -> list[np.ndarray]:
        return [*losses.T, np.sum(losses, axis=1), np.ptp(losses, axis=1)]

    found = same_law("toy.a", parts(raw(name)), parts(drawn(name)), resolution=0.15)
    assert found.status is Status.HOLDS
    wrong = drawn(name, more=SETTINGS[name][2])
    control = same_law("toy.a", parts(raw(name)), parts(wrong), resolution=0.15)
    assert control.status is Status.VIOLATED, "control: twice the samples"


@pytest.mark.parametrize("name", SETTINGS)
def test_the_covariance_of_losses(name):
    """2 G^2/n entry by entry, which sees dependence; the mean is G's diagonal."""
    samples, exact = SETTINGS[name][2], gram(name)
    centred = drawn(name) - np.diagonal(exact)
    products = centred[:, :, None] * centred[:, None]
    batches = np.mean(products.reshape(100, -1, *exact.shape), axis=1)
    batches = np.moveaxis(batches, 0, -1)
    low, high = intervals.student(batches, error_rate=1e-6)
    covariance = 2 * exact**2 / samples
    assert np.all((low <= covariance) & (covariance <= high))
    alone = covariance * np.eye(len(exact))
    assert np.any((alone < low) | (alone > high)), "control: independent entries"


@pytest.mark.parametrize("name", SETTINGS)
def test_the_covariance_of_roots(name):
    samples = SETTINGS[name][2]
    exact = law.root_loss_covariance(
        law.loss_factor(*models_and_truth(name), NOISE), samples
    )
    lengths = np.sqrt(np.diagonal(gram(name)))
    variance = lengths**2 * law.chi_variance(samples) / samples
    np.testing.assert_allclose(np.diagonal(exact), variance, rtol=1e-12)
    centred = np.sqrt(drawn(name)) - lengths * law.chi_mean_ratio(samples)
    products = centred[:, :, None] * centred[:, None]
    batches = np.mean(products.reshape(100, -1, *exact.shape), axis=1)
    low, high = intervals.student(np.moveaxis(batches, 0, -1), error_rate=1e-6)
    assert np.all((low <= exact) & (exact <= high))
    assert not np.all(exact / 2 >= low), "control: half of it"


def test_one_sample_against_quadrature():
    """E |X Y| for two normals of correlation r, by integration over an angle."""
    angle = 0.7
    factor = np.array([[1.0, np.cos(angle)], [0.0, np.sin(angle)]])
    mean, _ = scipy.integrate.quad(
        lambda t: np.abs(np.cos(t) * np.cos(t - angle)) / np.pi,
        0,
        2 * np.pi,
        points=[np.pi / 2, np.pi / 2 + angle, 3 * np.pi / 2, 3 * np.pi / 2 + angle],
    )
    found = law.root_loss_covariance(factor, 1)[0, 1]
    assert found == pytest.approx(mean - 2 / np.pi, rel=1e-9)


def test_many_clients_come_in_blocks(monkeypatch):
    factor = law.loss_factor(np.eye(3), np.ones(3), 0.1)
    module = importlib.import_module("cfljax.law.loss_vectors")
    monkeypatch.setattr(module, "_BLOCK", 20)
    found = law.loss_vectors(
        np.random.default_rng(0), factor, num_samples=5, num_clients=7
    )
    assert found.shape == (7, 3) and np.all(found > 0)
    assert len(np.unique(found)) == found.size


def test_misuse():
    factor = law.loss_factor(np.eye(2), np.zeros(2), 0.0)
    for wrong in ("num_samples", "num_clients"):
        counts = {"num_samples": 1, "num_clients": 1, wrong: 0}
        with pytest.raises(ValueError, match=f"^`{wrong}` must be at least 1"):
            law.loss_vectors(np.random.default_rng(0), factor, **counts)
    with pytest.raises(ValueError, match=r"^`noise` must be at least 0"):
        law.loss_factor(np.eye(2), np.zeros(2), -0.1)
    with pytest.raises(ValueError, match=r"^`freedom`"):
        law.root_loss_covariance(factor, 0)
