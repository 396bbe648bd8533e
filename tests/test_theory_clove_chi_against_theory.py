"""CLoVE's rows on the chi law: what they are made of, and claims close to theirs."""

import numpy as np
import pytest

from cfljax import law
from theory.clove import chi_moments, chi_tails, root_losses, unequal_samples
from theory.clove.loss_means import alphas, ortho_separation, random_units, separation
from theory.statement import Preset
from theory.verdict import Status

QUICK = Preset()


@pytest.mark.parametrize("slope", [-0.25, 0.2499, 0.2501])
def test_only_a_quarter_is_the_slope(slope):
    found = chi_moments.check_mean(QUICK, name="toy.a", slope=slope, constant=0.52)
    assert found.status is Status.VIOLATED


def test_the_printed_mean_is_that_of_one_less():
    """sqrt(n-1) (1 - 1/(4n)) is E chi_{n-1}, up to 1/n^2."""
    counts = np.array([10.0, 1e3, 1e5])
    printed = np.sqrt(counts - 1) * (1 - 1 / (4 * counts))
    for shift, power in ((0, 1), (1, 2)):
        gap = np.abs(law.chi_mean(counts - shift) / printed - 1) * counts**power
        assert np.all((gap > 0.1) & (gap < 0.6))


@pytest.mark.parametrize("constant", [0.5, 0.507])
def test_least_constants_are_least(constant):
    wrong = chi_moments.check_mean(QUICK, name="toy.a", slope=0.25, constant=constant)
    assert wrong.status is Status.VIOLATED
    assert chi_moments.check_variance_order(QUICK).status is Status.HOLDS


def test_raw_losses_notice_a_wrong_law(monkeypatch):
    """Control: data with a tenth more noise than the law is told."""
    assert root_losses.check_expansion(QUICK).status is Status.HOLDS
    root_losses._raw_roots(QUICK)
    monkeypatch.setattr(root_losses, "_NOISE", 0.6)
    assert root_losses.check_expansion(QUICK).status is Status.VIOLATED
    assert root_losses.check_variance(QUICK).status is Status.VIOLATED


def test_coincident_means_are_what_they_say():
    first, second = unequal_samples.coincident_truths(5, 0.8, 0.3)
    np.testing.assert_allclose([first @ first, second @ second], 1, rtol=1e-12)
    models = np.eye(5)
    one, two = (alphas(truth, models, 0.3) for truth in (first, second))
    np.testing.assert_allclose(np.sqrt(0.8) * one, two, rtol=1e-12)
    assert np.linalg.norm(first - second) > 0.1
    with pytest.raises(ValueError, match=r"^`ratio`"):
        unequal_samples.coincident_truths(5, 0.2, 0.3)


def test_equal_samples_lose_only_a_factor():
    one, two = random_units(np.random.default_rng(0), (2, 20, 7))
    ratio = law.chi_mean_ratio(3)
    found = unequal_samples._true_separation(one, two, (ratio, ratio), 0.2)
    exact = ratio * ortho_separation(one, two, 0.2)
    np.testing.assert_allclose(found, exact, rtol=1e-12)
    basis = np.broadcast_to(np.eye(7), (20, 7, 7))
    other = ratio * separation(one, two, basis, 0.2)
    np.testing.assert_allclose(other, exact, rtol=1e-12)


@pytest.mark.parametrize("name", [chi_tails.ROOT, chi_tails.LOSS])
def test_single_entries_against_draws(name):
    """The two-sided tail itself, at n = 2 and t = 3, by counting."""
    draws = np.random.default_rng(1).chisquare(2, 400_000)
    if name == chi_tails.ROOT:
        centre, variance = float(law.chi_mean(2)), float(law.chi_variance(2))
        share = np.mean((np.sqrt(draws) - centre) ** 2 >= 3 * variance)
        above, below = (centre + np.sqrt(3 * variance)) ** 2 - 2, -2.0
        near = max(centre - np.sqrt(3 * variance), 0.0)
        below = near**2 - 2
    else:
        share = np.mean((draws - 2) ** 2 >= 12)
        above, below = np.sqrt(12), -np.sqrt(12)
    two = np.array([2.0])
    exact = chi_tails._two_sided(two, np.array([above]), np.array([below]))
    assert np.exp(exact[0]) == pytest.approx(share, abs=5 * np.sqrt(share / 4e5))
    assert share > 0.02


@pytest.mark.parametrize("from_ratio", [1.0, 3.0, 3.999])
def test_the_step_needs_four(from_ratio):
    found = chi_tails.check_step(QUICK, name="toy.a", from_ratio=from_ratio)
    assert found.status is Status.VIOLATED
