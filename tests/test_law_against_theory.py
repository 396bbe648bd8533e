"""The misassignment law against Student's law, exact arithmetic and quadrature."""

import fractions
import itertools

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.stats

from cfljax import intervals, law

SETTINGS = hypothesis.settings(max_examples=60, deadline=None)
VECTORS = st.lists(st.floats(-3, 3, width=16), min_size=3, max_size=3).map(np.array)
NOISES = st.floats(0.05, 3)


def kappa_by_products(truth, own, other, noise) -> fractions.Fraction:
    """kappa |kappa| from A, B, C in exact rational arithmetic."""
    a = [
        fractions.Fraction(t) - fractions.Fraction(o)
        for t, o in zip(truth, own, strict=True)
    ]
    b = [
        fractions.Fraction(t) - fractions.Fraction(o)
        for t, o in zip(truth, other, strict=True)
    ]
    variance = fractions.Fraction(noise) ** 2
    A = sum(x * x for x in a) + variance
    B = sum(x * x for x in b) + variance
    C = sum(x * y for x, y in zip(a, b, strict=True)) + variance
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
    with pytest.raises(ValueError, match=r"^`noise`"):
        law.misassignment_kappa(own, own, other, -1.0)


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
    found = law.log_misassignment_probability(kappa, 1)
    assert found == pytest.approx(one, rel=3e-15)
    two = np.log(0.5) - np.log(np.hypot(1, kappa)) - np.log(np.hypot(1, kappa) + kappa)
    found = law.log_misassignment_probability(kappa, 2)
    assert found == pytest.approx(two, rel=3e-15)


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
    with pytest.raises(ValueError, match=r"^`num_samples`"):
        law.misassignment_probability(1.0, 0)


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
        a = np.stack(np.broadcast_arrays(own, 0 * other, 0 * angle), axis=-1)[..., :2]
        a[..., 1] = 0
        b = np.stack(
            np.broadcast_arrays(other * np.cos(angle), other * np.sin(angle)), axis=-1
        )
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


@pytest.mark.parametrize(
    ("alpha", "rho", "argument"),
    [(0.5, 1.0, "alpha"), (0.0, 1.0, "alpha"), (0.2, 0.0, "rho"), (0.2, -1.0, "rho")],
)
def test_worst_kappa_misuse(alpha, rho, argument):
    with pytest.raises(ValueError, match=f"^`{argument}`"):
        law.worst_kappa(alpha, rho)
