"""The product's tail against closed forms, plain quadrature and raw data."""

import functools

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.stats

from cfljax import intervals, law
from cfljax.law import chi

SETTINGS = hypothesis.settings(max_examples=60, deadline=None)


def bessel_form(num_rows: int, num_features: int, threshold: float) -> float:
    """log P for even N, from P(chi2_N > x) = e^(-x/2) sum_{i < N/2} (x/2)^i / i!.

    The mean over chi2_d of each term is a Bessel function; all terms are positive.
    """
    b, root = num_features / 2, np.sqrt(threshold) / 2
    i = np.arange(num_rows // 2)
    bessel = np.log(scipy.special.kve(np.abs(b - i), 2 * root)) - 2 * root
    terms = (b + i) * np.log(root) + bessel - scipy.special.gammaln(i + 1)
    return scipy.special.logsumexp(terms) + np.log(2) - scipy.special.gammaln(b)


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


def test_far_tails_to_the_last_digits():
    rows, features, threshold, exact = np.array(DIGITS).T
    found = law.log_product_tail(rows, features, threshold)
    np.testing.assert_allclose(found, exact, rtol=2e-13)
    rows, features, threshold, exact = np.array(DIGITS_BELOW).T
    found = law.log_product_tail(rows, features, threshold)
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-11)


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
    assert (
        low <= np.exp(law.log_product_tail(num_rows, num_features, threshold)) <= high
    )
    wrong = np.exp(law.log_product_tail(num_rows + 1, num_features, threshold))
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


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((0, 3, 1.0), "num_rows"),
        ((np.nan, 3, 1.0), "num_rows"),
        ((3, np.inf, 1.0), "num_features"),
        ((3, 0.5, 1.0), "num_features"),
        ((3, 3, -1.0), "threshold"),
    ],
)
def test_misuse(arguments, name):
    with pytest.raises(ValueError, match=f"^`{name}`"):
        law.log_product_tail(*arguments)
