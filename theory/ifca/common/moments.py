"""Moments of a group's gradient, from the law X'w = g e + tau sqrt(g) zeta.

w = X e - eps for N rows, g ~ chi2_N, tau^2 = |e|^2 + sigma^2, zeta ~ N(0, I - e
e'/tau^2) independent of g (row ifca.exact.group).
"""

import numpy as np
from numpy.polynomial import Polynomial

Real = float | int


def square_moments(
    rows: Real,
    features: Real,
    error: Real,
    noise: Real,
    *,
    kept: Real = 0.0,
    step: Real = 1.0,
) -> tuple[float, float]:
    """First and second moment of |`kept` e - `step` X'w|^2, exactly.

    Given g its component along e is normal, of mean (kept - step g) |e| and variance
    step^2 sigma^2 g, and what lies across is step^2 tau^2 g chi2_(d-1).
    """
    g = Polynomial([0.0, 1.0])
    mean = (kept - step * g) * error
    spread = step**2 * noise**2 * g
    across = step**2 * (error**2 + noise**2) * g
    along = mean**2 + spread
    first = along + (features - 1) * across
    second = mean**4 + 6 * mean**2 * spread + 3 * spread**2
    second += 2 * (features - 1) * along * across + (features**2 - 1) * across**2
    return _expected(first, rows), _expected(second, rows)


def _expected(polynomial: Polynomial, rows: Real) -> float:
    """Of a polynomial in chi2_N: E g^r = N (N + 2) ... (N + 2 r - 2)."""
    powers = 2.0 * np.arange(len(polynomial.coef) - 1)
    moments = np.concatenate([[1.0], np.cumprod(rows + powers)])
    return float(polynomial.coef @ moments)
