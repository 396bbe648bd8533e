"""Exact laws against exact arithmetic, quadrature, other forms and raw data."""

import decimal
import fractions
import functools
import itertools
import math

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.stats

from cfljax import intervals, law
from cfljax.law import chi
from theory.clove.appendix_a1 import quadrature_moments

# Misassignment, against Student's law, exact arithmetic and quadrature

SETTINGS = hypothesis.settings(max_examples=60, deadline=None)
VECTORS = st.lists(st.floats(-3, 3, width=16), min_size=3, max_size=3).map(np.array)
NOISES = st.floats(0.05, 3)


def kappa_by_products(truth, own, other, noise) -> fractions.Fraction:
    """kappa |kappa| from A, B, C in exact rational arithmetic."""
    exact = np.vectorize(fractions.Fraction, otypes=[object])
    a, b = exact(truth) - exact(own), exact(truth) - exact(other)
    variance = fractions.Fraction(noise) ** 2
    A, B, C = a @ a + variance, b @ b + variance, a @ b + variance
    return (B - A) * abs(B - A) / (4 * (A * B - C * C))


@hypothesis.given(VECTORS, VECTORS, VECTORS, NOISES)
@SETTINGS
def test_kappa_against_exact_arithmetic(truth, own, other, noise):
    hypothesis.assume(np.any(own != other))
    kappa = float(law.misassignment_kappa(truth, own, other, noise))
    exact = float(kappa_by_products(truth, own, other, noise))
    assert kappa * abs(kappa) == pytest.approx(exact, rel=1e-11, abs=1e-14)


def test_kappa_keeps_its_digits_where_the_models_nearly_coincide():
    truth, own = np.array([0.3, -0.2, 1.0]), np.array([1.0, 0.5, -0.5])
    other = own + np.array([1.0, -2.0, 3.0]) * 1e-9
    kappa = float(law.misassignment_kappa(truth, own, other, 0.5))
    exact = float(kappa_by_products(truth, own, other, 0.5))
    assert kappa * abs(kappa) == pytest.approx(exact, rel=1e-13)
    a, b = truth - own, truth - other
    A, B, C = a @ a + 0.25, b @ b + 0.25, a @ b + 0.25
    naive = (B - A) / (2 * np.sqrt(abs(A * B - C**2) + 1e-300))
    assert abs(naive / kappa - 1) > 1e-3, "control: the textbook form loses them"


@hypothesis.given(VECTORS, VECTORS, VECTORS, NOISES, st.floats(0.01, 100))
@SETTINGS
def test_kappa_symmetries(truth, own, other, noise, scale):
    hypothesis.assume(np.any(own != other))
    kappa = float(law.misassignment_kappa(truth, own, other, noise))

    def same(*arguments):
        return law.misassignment_kappa(*arguments) == pytest.approx(
            kappa, rel=1e-8, abs=1e-8
        )

    rotation = scipy.stats.ortho_group(3, seed=5).rvs()
    shift = np.array([0.25, -1.0, 4.0])
    assert law.misassignment_kappa(truth, other, own, noise) == pytest.approx(
        -kappa, rel=1e-12, abs=1e-12
    )
    assert same(truth * scale, own * scale, other * scale, noise * scale)
    assert same(rotation @ truth, rotation @ own, rotation @ other, noise)
    assert same(truth + shift, own + shift, other + shift, noise)


def test_kappa_at_the_truth_is_half_the_root_of_rho():
    own, other = np.array([1.0, 2.0]), np.array([4.0, 6.0])
    assert law.misassignment_kappa(own, own, other, 2.0) == pytest.approx(5 / 4)


def test_kappa_degenerates_honestly():
    own, other = np.array([0.0]), np.array([1.0])
    assert law.misassignment_kappa(np.array([0.2]), own, other, 0.0) == np.inf
    assert np.isnan(law.misassignment_kappa(own, other, other, 1.0))
    assert np.isnan(law.misassignment_probability(np.nan, 3))


def test_probability_against_student():
    kappa = np.concatenate([-np.geomspace(1e-8, 30, 40), np.geomspace(1e-8, 30, 40)])
    num_samples = np.array([1, 2, 3, 4, 10, 33, 100, 1000])[:, None]
    found = law.misassignment_probability(kappa, num_samples)
    student = scipy.stats.t.sf(np.sqrt(num_samples) * kappa, num_samples)
    kept = student > 1e-290
    # SciPy's Student tail is the less accurate one near 0, by 3e-9 (see below).
    np.testing.assert_allclose(found[kept], student[kept], rtol=1e-8)
    wrong = scipy.stats.t.sf(np.sqrt(num_samples) * kappa, num_samples + 1)
    assert np.max(np.abs(found - wrong)) > 0.01, "control: one degree of freedom more"


@pytest.mark.parametrize("num_samples", [1, 2, 7, 100, 10**4, 10**8])
@pytest.mark.parametrize("level", [25.0, 30.5, 60.0, 3e3, 1e6])
def test_log_probability_against_quadrature(num_samples, level):
    """P = c int_kappa^inf (1 + u^2)^(-(n+1)/2) du, scaled against underflow."""
    n, kappa = float(num_samples), np.sqrt(level / num_samples)

    def integrand(s):  # u^2 = (1 + kappa^2) e^(2 s / n) - 1
        squared = np.expm1(2 * s / n) * (1 + kappa**2) + kappa**2
        return np.exp(-s * (n - 1) / n) / np.sqrt(squared) * (1 + kappa**2) / n

    end = 400.0 if n > 1 else 340.0
    integral, _ = scipy.integrate.quad(
        integrand, 0, end, epsabs=0, epsrel=1e-12, limit=400
    )
    constant = scipy.special.gammaln((n + 1) / 2) - scipy.special.gammaln(n / 2)
    constant -= np.log(np.pi) / 2
    reference = np.log(integral) + constant - (n + 1) / 2 * np.log1p(kappa**2)
    found = float(law.log_misassignment_probability(kappa, num_samples))
    # gammaln is the reference's weak point: two logarithms of size n log n.
    lost = 4e-16 * n * np.log(n + 1)
    assert found == pytest.approx(reference, rel=1e-10, abs=1e-10 + lost)


@pytest.mark.parametrize("kappa", [1e-8, 0.1, 1.0, 5.4, 6.0, 1e3, 1e40, 1e200])
def test_log_probability_in_closed_form(kappa):
    one = np.log(np.arctan(1 / kappa) / np.pi)
    two = np.log(0.5) - np.log(np.hypot(1, kappa)) - np.log(np.hypot(1, kappa) + kappa)
    for num_samples, exact in ((1, one), (2, two)):
        found = law.log_misassignment_probability(kappa, num_samples)
        assert found == pytest.approx(exact, rel=3e-15)


def test_the_two_formulas_meet():
    num_samples = np.array([1.0, 2.0, 9.0, 1e3, 1e6, 1e9])
    below, above = (np.sqrt(30 * step / num_samples) for step in (1 - 1e-9, 1 + 1e-9))
    jump = law.log_misassignment_probability(
        below, num_samples
    ) - law.log_misassignment_probability(above, num_samples)
    assert np.all((jump > 0) & (jump < 1e-7))


def test_log_probability_at_the_ends():
    ends = np.array([np.inf, -np.inf, 0.0])
    for num_samples in (1, 10):
        found = law.log_misassignment_probability(ends, num_samples)
        np.testing.assert_allclose(found, [-np.inf, 0.0, np.log(0.5)])


KAPPAS = st.floats(-20, 20)


@hypothesis.given(KAPPAS, KAPPAS, st.integers(1, 10**6))
@SETTINGS
def test_probability_falls_with_kappa(first, second, num_samples):
    low, high = sorted((first, second))
    better = law.log_misassignment_probability(high, num_samples)
    assert better <= law.log_misassignment_probability(low, num_samples) + 1e-12


@hypothesis.given(st.floats(1e-6, 20), st.integers(1, 10**6), st.integers(1, 10**6))
@SETTINGS
def test_probability_falls_with_samples_under_its_exponential(kappa, first, second):
    few, many = sorted((first, second))
    log_few, log_many = (
        float(law.log_misassignment_probability(kappa, n)) for n in (few, many)
    )
    rounding = 1e-12 * (1 + abs(log_many))
    assert log_many <= log_few + rounding
    exponent = float(law.error_exponent(kappa))
    assert log_few <= np.log(0.5) - few * exponent + rounding
    opposite = law.misassignment_probability(-kappa, few)
    assert opposite + np.exp(log_few) == pytest.approx(1, abs=1e-14)


def test_exponent_is_the_rate():
    kappa, num_samples = np.array([0.05, 0.5, 4.0]), 1e8
    rate = -law.log_misassignment_probability(kappa, num_samples) / num_samples
    np.testing.assert_allclose(rate, law.error_exponent(kappa), rtol=1e-4)
    assert np.all(rate < 1.001 * law.error_exponent(kappa)), "control: not 0.1 % more"


@pytest.mark.parametrize(("num_features", "num_samples"), [(1, 1), (3, 4), (12, 15)])
def test_probability_against_raw_data(num_features, num_samples):
    generator = np.random.default_rng(num_samples)
    truth, own, other = generator.standard_normal((3, num_features)) / 3
    noise, trials = 0.8, 60_000
    inputs = generator.standard_normal((trials, num_samples, num_features))
    labels = inputs @ truth + noise * generator.standard_normal((trials, num_samples))
    losses = [np.sum((labels - inputs @ model) ** 2, axis=1) for model in (own, other)]
    kappa = law.misassignment_kappa(truth, own, other, noise)
    low, high = intervals.clopper_pearson(
        int(np.sum(losses[1] <= losses[0])), trials, error_rate=1e-6
    )
    assert low <= law.misassignment_probability(kappa, num_samples) <= high
    wrong = law.misassignment_probability(kappa, num_samples + 8)
    if abs(kappa) > 0.1:
        assert not low <= wrong <= high, "control: eight samples more"


def test_worst_kappa_against_a_dense_search():
    for alpha, rho in itertools.product((0.05, 0.25, 0.45), (0.5, 4.0, 30.0)):
        own = np.linspace(0, 0.5 - alpha, 30)[:, None, None]
        other = np.linspace(0.5 + alpha, 2, 30)[:, None]
        angle = np.linspace(0, np.pi, 181)
        a = np.concatenate([own, 0 * own], axis=-1)[..., None, :]
        b = np.stack([other * np.cos(angle), other * np.sin(angle)], axis=-1)
        kappa = law.misassignment_kappa(np.zeros(2), a, b, rho**-0.5)
        formula = float(law.worst_kappa(alpha, rho))
        assert formula * (1 - 1e-12) <= np.min(kappa) <= formula * 1.001
        line = law.worst_kappa(alpha, rho, one_dimensional=True)
        assert np.min(kappa[..., [0, -1]]) == pytest.approx(float(line), rel=1e-12)


@hypothesis.given(st.floats(0.001, 0.499), st.floats(0.001, 0.499), st.floats(-4, 6))
@SETTINGS
def test_worst_kappa_grows_with_alpha_and_rho(first, second, log_rho):
    low, high = sorted((first, second))
    rho = 10.0**log_rho
    assert law.worst_kappa(low, rho) <= law.worst_kappa(high, rho) * (1 + 1e-12)
    assert law.worst_kappa(low, rho) <= law.worst_kappa(low, 2 * rho) * (1 + 1e-12)
    line = law.worst_kappa(low, rho, one_dimensional=True)
    assert law.worst_kappa(low, rho) <= line * (1 + 1e-12)


# The chi law's moments and tails, against identities, digits and scipy.stats

FREEDOMS = np.array([1.0, 2, 3, 7, 58, 59, 60, 61, 120, 1e3, 1e6, 1e12])
PI = decimal.Decimal("3.14159265358979323846264338327950288419716939937510582097494")


def variance_of_even(count: int) -> float:
    """n - E^2 in 60 digits: E^2 = 2 pi (m binom(2m, m) / 4^m)^2 for n = 2m."""
    with decimal.localcontext(prec=60):
        half = count // 2
        share = decimal.Decimal(half * math.comb(count, half)) / 4**half
        return float(count - 2 * PI * share**2)


def test_neighbours_multiply_to_n():
    """E chi_n E chi_{n+1} = n, on both sides of the seam and across it."""
    product = law.chi_mean(FREEDOMS) * law.chi_mean(FREEDOMS + 1)
    np.testing.assert_allclose(product, FREEDOMS, rtol=1e-14)


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
    count, share = np.meshgrid(FREEDOMS[:-1], np.linspace(-0.9, 3, 14))
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
    index = np.arange(200, 600) if below else np.arange(200)
    terms = index * np.log(point) - point - scipy.special.gammaln(index + 1)
    upper = float(np.logaddexp.reduce(terms))
    found = float(law.log_chi_square_tail(count, count * share, below=below))
    assert upper < -650, "the point must underflow"
    assert upper <= found <= upper + 10


def test_the_ends_of_the_tails():
    assert law.log_chi_square_tail(3, -3.0, below=True) == -np.inf
    assert law.log_chi_square_tail(3, -4.0, below=True) == -np.inf
    assert law.log_chi_square_tail(3, -4.0) == 0
    assert np.isnan(law.log_chi_square_tail(3, np.nan))


# The product's tail, against closed forms, plain quadrature and raw data


def bessel_form(num_rows: int, num_features: int, threshold: float) -> float:
    """log P for even N, from P(chi2_N > x) = e^(-x/2) sum_{i < N/2} (x/2)^i / i!.

    The mean over chi2_d of each term is a Bessel function; all terms are positive.
    """
    b, root = num_features / 2, np.sqrt(threshold) / 2
    i = np.arange(num_rows // 2)
    bessel = np.log(scipy.special.kve(np.abs(b - i), 2 * root)) - 2 * root
    terms = (b + i) * np.log(root) + bessel - scipy.special.gammaln(i + 1)
    return scipy.special.logsumexp(terms) + np.log(2) - scipy.special.gammaln(b)


@pytest.mark.long
@pytest.mark.parametrize("num_rows", [2, 4, 10, 40, 300])
@pytest.mark.parametrize("num_features", [1, 2, 7, 40, 101])
def test_even_rows_against_bessel(num_rows, num_features):
    typical = num_rows * num_features
    for factor in (0.8, 1.0, 1.5, 4.0, 30.0, 1e3, 1e5):
        threshold = factor * typical
        exact = bessel_form(num_rows, num_features, threshold)
        assert np.isfinite(exact), "the reference must not overflow"
        found = float(law.log_product_tail(num_rows, num_features, threshold))
        # gammaln and logarithms of the reference, of up to 1e4, lose their last digits
        assert found == pytest.approx(exact, rel=1e-12, abs=1e-11)
        wrong = float(law.log_product_tail(num_rows, num_features + 1, threshold))
        assert abs(wrong - exact) > 1e-4, "control: one degree of freedom more"


def test_one_row_and_one_feature():
    """P(|z1 z2| > r) = (2 / pi) int_r^inf K_0."""
    for root in (0.01, 0.3, 1.0, 4.0, 25.0, 300.0):
        integral, _ = scipy.integrate.quad(
            lambda x, root=root: scipy.special.kve(0, root + x) * np.exp(-x), 0, 45
        )
        exact = np.log(2 / np.pi * integral) - root
        found = float(law.log_product_tail(1, 1, root**2))
        assert found == pytest.approx(exact, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(
    ("num_rows", "num_features"), [(1, 7), (3, 5), (25, 31), (1001, 9), (10**5, 10**3)]
)
def test_against_plain_quadrature(num_rows, num_features):
    """The mean over log chi2_N of P(chi2_d > threshold / chi2_N), by Simpson's rule."""
    spread = np.sqrt(scipy.special.polygamma(1, num_rows / 2))
    y = np.linspace(-40 * spread, 8 * spread, 20_001) + np.log(num_rows)
    y = y[y < np.log(num_rows) + 12]
    density = scipy.stats.chi2.pdf(np.exp(y), num_rows) * np.exp(y)
    for factor in (0.05, 0.7, 1.0, 1.3, 3.0):
        threshold = factor * num_rows * num_features
        tails = scipy.stats.chi2.sf(threshold * np.exp(-y), num_features)
        exact = np.log(scipy.integrate.simpson(density * tails, x=y))
        found = float(law.log_product_tail(num_rows, num_features, threshold))
        if exact > -400:
            assert found == pytest.approx(exact, rel=2e-9, abs=2e-9)


# From the same formula in arithmetic of 30 digits, with 400 nodes.
DIGITS = (
    (10_000, 10_000, 1e8, -0.69981833971316109426),
    (10_000, 10_000, 4e8, -3074.3991661914051735),
    (10_000, 10_000, 5e9, -41158.868803011039729),
    (1_000_000, 1_000, 1.2e9, -11.299070455404627487),
    (1_000_000, 1_000, 5e10, -21988.136082805449205),
    (179145, 16, 524765185692.89996, -504077.45295266044462),
    (1, 18, 5.774067948082757e35, -759872880690102814.71),
)
DIGITS_BELOW = (
    (10, 10, 0.1, -9.6063346430822025228e-12),
    (40, 41, 492.0, -0.00041739565735632424801),
    (1000, 30, 9000.0, -0.0000834519224224461718),
    (5, 2, 0.0005814198876768531, -0.000096894103097895982305),
    (6, 732, 1337.297992576222, -0.067998520859357161596),
)


@pytest.mark.parametrize(
    ("digits", "tolerance"),
    [(DIGITS, {"rtol": 2e-13}), (DIGITS_BELOW, {"rtol": 0, "atol": 1e-11})],
    ids=["above", "below"],
)
def test_far_tails_to_the_last_digits(digits, tolerance):
    rows, features, threshold, exact = np.array(digits).T
    found = law.log_product_tail(rows, features, threshold)
    np.testing.assert_allclose(found, exact, **tolerance)


@pytest.mark.parametrize("num_nodes", [8, 16])
def test_too_few_nodes_are_noticed(monkeypatch, num_nodes):
    monkeypatch.setattr(chi, "_NODES_ABOVE", num_nodes)
    found = float(law.log_product_tail(4, 7, 28.0))
    assert abs(found - bessel_form(4, 7, 28.0)) > 1e-7


@functools.cache
def raw_squares(num_rows: int, num_features: int) -> np.ndarray:
    generator = np.random.default_rng(7)
    trials = 40_000
    inputs = generator.standard_normal((trials, num_rows, num_features))
    noise = generator.standard_normal((trials, num_rows))
    return np.sum(np.einsum("tnd,tn->td", inputs, noise) ** 2, axis=1)


@pytest.mark.parametrize(("num_rows", "num_features"), [(1, 1), (5, 3), (8, 20)])
@pytest.mark.parametrize("factor", [0.1, 1.0, 3.0])
def test_against_raw_data(num_rows, num_features, factor):
    squares = raw_squares(num_rows, num_features)
    threshold = factor * num_rows * num_features
    low, high = intervals.clopper_pearson(
        int(np.sum(squares > threshold)), len(squares), error_rate=1e-7
    )
    found, wrong = (
        np.exp(law.log_product_tail(rows, num_features, threshold))
        for rows in (num_rows, num_rows + 1)
    )
    assert low <= found <= high
    if factor == 1.0:
        assert not low <= wrong <= high, "control: one row more"


@pytest.mark.slow
@hypothesis.given(
    st.integers(1, 10**6), st.integers(1, 10**6), st.floats(-4, 6), st.floats(0, 3)
)
@SETTINGS
def test_symmetry_and_order(num_rows, num_features, position, further):
    def tail(rows: int, features: int, decades: float) -> float:
        spread = np.sqrt(1 / num_rows + 1 / num_features)
        threshold = num_rows * num_features * np.exp(decades * spread)
        return float(law.log_product_tail(rows, features, threshold))

    found = tail(num_rows, num_features, position)
    rounding = 1e-11 * (1 + abs(found))
    assert found <= 0
    assert tail(num_features, num_rows, position) == pytest.approx(found, abs=rounding)
    assert tail(num_rows, num_features, position + further) <= found + rounding
    assert tail(num_rows + 1, num_features, position) >= found - rounding


def test_shapes_and_blocks(monkeypatch):
    rows = np.array([[3], [50]])
    threshold = np.geomspace(1e-3, 1e5, 23)
    whole = law.log_product_tail(rows, 4, threshold)
    assert whole.shape == (2, 23)
    monkeypatch.setattr(chi, "_BLOCK", 5)
    np.testing.assert_array_equal(whole, law.log_product_tail(rows, 4, threshold))
    alone = float(law.log_product_tail(50, 4, threshold[9]))
    assert alone == pytest.approx(whole[1, 9], rel=1e-14)


def test_the_ends():
    found = law.log_product_tail(3, 5, np.array([0.0, np.inf, np.nan, 1e-300]))
    np.testing.assert_array_equal(found[:3], [0.0, -np.inf, np.nan])
    assert -1e-11 < found[3] <= 0
    assert np.isfinite(law.log_product_tail(3, 5, 1e300))


# Mean-square errors, against raw data, exact moments and the step's own law

ERROR_RATE = 1e-6


def batch_means(values: np.ndarray) -> np.ndarray:
    """100 averages, close enough to normal for Student's interval."""
    return np.mean(values.reshape(100, -1), axis=1)


@functools.cache
def squares_of_fits(
    own_rows: int, other_rows: int, num_features: int, separation: float, trials: int
) -> np.ndarray:
    """|least squares - own truth|^2 of raw data sets, noise 0.7."""
    generator = np.random.default_rng(own_rows)
    rows = own_rows + other_rows
    inputs = generator.standard_normal((trials, rows, num_features))
    labels = 0.7 * generator.standard_normal((trials, rows))
    labels[:, own_rows:] += separation * inputs[:, own_rows:, 0]
    gram = np.einsum("trf,trg->tfg", inputs, inputs)
    cross = np.einsum("trf,tr->tf", inputs, labels)
    fit = np.linalg.solve(gram, cross[..., None])[..., 0]
    return np.sum(fit**2, axis=1)


@pytest.mark.parametrize(
    ("own", "other", "num_features"), [(10, 10, 3), (6, 6, 1), (6, 14, 4), (16, 4, 6)]
)
def test_pooled_risk_against_raw_data(own, other, num_features):
    separation = 1.5
    squares = squares_of_fits(own, other, num_features, separation, 100_000)
    low, high = intervals.student(batch_means(squares), error_rate=ERROR_RATE)
    rows, share = own + other, own / (own + other)
    exact = law.pooled_risk(rows, num_features, 0.7, separation, share=share)
    assert low <= exact <= high
    freedom = rows - num_features - 1
    if own == other:
        bias, noise = separation**2 / 4, 0.7**2
        usual = bias + (noise + bias) * num_features / freedom
        assert not low <= usual <= high, "control: the approximate textbook form"
    swapped = law.pooled_risk(rows, num_features, 0.7, separation, share=1 - share)
    if own != other:
        assert not low <= swapped <= high, "control: the other cluster's risk"


def test_oracle_risk_against_raw_data():
    squares = squares_of_fits(14, 0, 5, 0.0, 100_000)
    low, high = intervals.student(batch_means(squares), error_rate=ERROR_RATE)
    assert low <= law.oracle_risk(14, 5, 0.7) <= high
    assert not low <= law.oracle_risk(15, 5, 0.7) <= high, "control: one row more"


def test_pooled_risk_in_one_dimension_and_at_its_ends():
    """d = 1: the second moment of a beta variable; no separation or no other rows."""
    rows = np.array([6.0, 40.0])
    a = rows / 4
    beta = a * (a + 1) / (2 * a * (2 * a + 1))
    found = law.pooled_risk(rows, 1, 0.0, 3.0)
    np.testing.assert_allclose(found, 9 * beta, rtol=1e-13)
    oracle = law.oracle_risk(rows, 3, 0.5)
    for separation, share, more in ((0.0, 0.5, 0), (7.0, 1.0, 0), (7.0, 0.0, 49)):
        found = law.pooled_risk(rows, 3, 0.5, separation, share=share)
        np.testing.assert_allclose(found, oracle + more, rtol=1e-14)


def test_with_many_rows_the_fit_is_the_mean_truth():
    """At (1-p) D from the one truth and p D from the other, p (1-p) D^2 on average."""
    share, rows, separation = 0.3, 1e8, 2.0
    shares = np.array([share, 1 - share])
    weighted = shares @ law.pooled_risk(rows, 50, 0.1, separation, share=shares)
    assert weighted == pytest.approx(share * (1 - share) * separation**2, rel=1e-5)


@pytest.mark.parametrize("num_features", [1, 7, 60])
@pytest.mark.parametrize("num_rows", [120, 4000])
@pytest.mark.parametrize("step", [0.1, 0.9, 1.2])
def test_the_floor_is_a_fixed_point_of_one_step(num_features, num_rows, step):
    floor = float(law.stationary_floor(num_rows, num_features, 0.3, step))
    after = law.expected_square_error(
        np.zeros((1, 1)),
        np.full((1, 1), floor),
        np.array([[num_rows / 5]]),
        num_samples=5,
        num_features=num_features,
        noise=0.3,
        step_size=step / 2,
        total=num_rows / 5,
    )
    assert after[0, 0] == pytest.approx(floor**2, rel=1e-12)
    wrong = float(law.stationary_floor(num_rows, num_features, 0.3, 1.01 * step))
    assert abs(wrong / floor - 1) > 1e-3, "control: a step 1 % longer"


def test_the_balanced_step_reaches_the_oracle():
    """x = 1: the floor is that of least squares on the same rows."""
    floor = law.stationary_floor(np.array([80, 1000]), 20, 0.4, 1.0)
    np.testing.assert_allclose(floor**2, law.oracle_risk(np.array([80, 1000]), 20, 0.4))


def test_no_floor_no_number():
    limit = 2 * 100 / (100 + 9 + 1)
    steps = np.array([-0.1, 0.0, limit * (1 - 1e-9), limit * (1 + 1e-9), 2.5])
    found = law.stationary_floor(100, 9, 1.0, steps)
    assert np.isfinite(found[2]) and found[2] > 1e3
    np.testing.assert_array_equal(found[[0, 1, 3, 4]], [np.inf, np.nan, np.inf, np.inf])
    assert law.stationary_floor(100, 9, 0.0, 0.5) == 0


def test_too_few_rows_have_no_finite_risk():
    rows = np.array([1, 4, 5, 6])
    np.testing.assert_array_equal(
        np.isfinite(law.oracle_risk(rows, 4, 1.0)), [False, False, False, True]
    )
    pooled = law.pooled_risk(rows, 4, 1.0, 1.0)
    np.testing.assert_array_equal(np.isfinite(pooled), [False, False, False, True])
    assert law.pooled_risk(1, 1, 1.0, 1.0) == np.inf


# Against misuse

NO_NUMBERS = (0.0, np.nan, np.inf)
MOMENTS = (law.chi_mean, law.chi_variance, law.chi_mean_ratio)
RISKS = (
    law.oracle_risk,
    functools.partial(law.pooled_risk, separation=1.0),
    functools.partial(law.stationary_floor, effective_step=0.5),
)
ZERO, ONE = np.array([0.0]), np.array([1.0])


@pytest.mark.parametrize(
    ("function", "arguments", "words"),
    [
        (law.misassignment_kappa, (ZERO, ZERO, ONE, -1.0), "`noise`"),
        (law.misassignment_probability, (1.0, 0), "`num_samples`"),
        *((law.worst_kappa, (alpha, 1.0), "`alpha`") for alpha in (0.5, 0.0)),
        *((law.worst_kappa, (0.2, rho), "`rho`") for rho in (0.0, -1.0)),
        *(
            (moment, (freedom,), "`freedom` must be finite")
            for moment in MOMENTS
            for freedom in NO_NUMBERS
        ),
        *((law.log_chi_square_tail, (n, 1.0), "`freedom`") for n in NO_NUMBERS),
        *((law.log_product_tail, (n, 3, 1.0), "`num_rows`") for n in (0, np.nan)),
        *((law.log_product_tail, (3, d, 1.0), "`num_features`") for d in (np.inf, 0.5)),
        (law.log_product_tail, (3, 3, -1.0), "`threshold`"),
        *((risk, (0, 3, 1.0), "`num_rows`") for risk in RISKS),
        *((risk, (9, 0, 1.0), "`num_features`") for risk in RISKS),
        *((risk, (9, 3, -1.0), "`noise`") for risk in RISKS),
        (functools.partial(RISKS[1], share=1.5), (9, 3, 1.0), "`share`"),
    ],
)
def test_misuse(function, arguments, words):
    with pytest.raises(ValueError, match=f"^{words}"):
        function(*arguments)
