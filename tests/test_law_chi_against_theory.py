"""The chi law's moments and tails against identities, digits and scipy.stats."""

import decimal
import math

import numpy as np
import pytest
import scipy.stats

from cfljax import law
from cfljax.law import chi
from theory.clove.appendix_a1 import quadrature_moments

COUNTS = np.array([1.0, 2, 3, 7, 58, 59, 60, 61, 120, 1e3, 1e6, 1e12])

PI = decimal.Decimal("3.14159265358979323846264338327950288419716939937510582097494")


def variance_of_even(count: int) -> float:
    """n - E^2 in 60 digits: E^2 = 2 pi (m binom(2m, m) / 4^m)^2 for n = 2m."""
    with decimal.localcontext(prec=60):
        half = count // 2
        share = decimal.Decimal(half * math.comb(count, half)) / 4**half
        return float(count - 2 * PI * share**2)


def test_neighbours_multiply_to_n():
    """E chi_n E chi_{n+1} = n, on both sides of the seam and across it."""
    product = law.chi_mean(COUNTS) * law.chi_mean(COUNTS + 1)
    np.testing.assert_allclose(product, COUNTS, rtol=1e-14)


def test_a_wrong_term_of_the_series_is_noticed(monkeypatch):
    """Control: with the seam too far in, the identity breaks."""
    monkeypatch.setattr(chi, "_SERIES_FROM", 4.0)
    product = law.chi_mean(4.0) * law.chi_mean(5.0)
    assert abs(float(product) - 4) > 1e-8


@pytest.mark.parametrize("count", [2, 10, 58, 60, 100, 200, 5000, 50_000])
def test_variances_to_the_last_digits(count):
    exact = variance_of_even(count)
    assert float(law.chi_variance(count)) == pytest.approx(exact, rel=1e-13)


def test_the_difference_loses_what_the_series_keeps():
    """Control: n - E^2 in float64 is off in the tenth digit."""
    naive = 5e4 - float(law.chi_mean(5e4)) ** 2
    assert abs(naive - variance_of_even(50_000)) > 1e-12


def test_the_variance_grows_towards_a_half():
    """Strictly below 1/2, with the known expansion; quadrature knows no gamma."""
    variance = law.chi_variance(np.arange(1.0, 2000.0))
    assert np.all(np.diff(variance) > 0) and variance[-1] < 0.5
    far = np.array([1e4, 1e8])
    expansion = 0.5 - 1 / (8 * far) - 1 / (16 * far**2)
    np.testing.assert_allclose(law.chi_variance(far), expansion, rtol=1e-12)
    for count in (1.0, 4.0, 59.0, 200.0):
        mean, second = quadrature_moments(count)
        assert float(law.chi_mean(count)) == pytest.approx(mean, rel=1e-12)
        assert float(law.chi_variance(count)) == pytest.approx(second, rel=1e-11)


@pytest.mark.parametrize("below", [False, True])
def test_tails_against_scipy(below):
    count, share = np.meshgrid(COUNTS[:-1], np.linspace(-0.9, 3, 14))
    excess = share * count
    reference = scipy.stats.chi2(count)
    exact = (reference.logcdf if below else reference.logsf)(count + excess)
    found = law.log_chi_square_tail(count, excess, below=below)
    near = exact > -600
    np.testing.assert_allclose(found[near], exact[near], rtol=1e-8, atol=1e-9)
    assert np.all(found <= 1e-12)


@pytest.mark.parametrize("below", [False, True])
def test_beyond_underflow_the_bound_is_above_the_truth(below):
    """The sum of 4 e^{-..} terms that an even number of degrees of freedom has."""
    count, share = 400.0, -0.999 if below else 9.0
    point = count * (1 + share) / 2
    index = np.arange(200)
    terms = index * np.log(point) - point - scipy.special.gammaln(index + 1)
    upper = float(np.logaddexp.reduce(terms))
    if below:
        more = np.arange(200, 600)
        terms = more * np.log(point) - point - scipy.special.gammaln(more + 1)
        upper = float(np.logaddexp.reduce(terms))
    found = float(law.log_chi_square_tail(count, count * share, below=below))
    assert upper < -650, "the point must underflow"
    assert upper <= found <= upper + 10


def test_the_ends_of_the_tails():
    assert law.log_chi_square_tail(3, -3.0, below=True) == -np.inf
    assert law.log_chi_square_tail(3, -4.0, below=True) == -np.inf
    assert law.log_chi_square_tail(3, -4.0) == 0
    assert np.isnan(law.log_chi_square_tail(3, np.nan))


@pytest.mark.parametrize("freedom", [0.0, np.nan, np.inf])
def test_misuse(freedom):
    for function in (law.chi_mean, law.chi_variance, law.chi_mean_ratio):
        with pytest.raises(ValueError, match=r"^`freedom` must be finite"):
            function(freedom)
    with pytest.raises(ValueError, match=r"^`freedom`"):
        law.log_chi_square_tail(freedom, 1.0)
