"""Moments and tails of the chi law: the square root of a client's loss.

Setting: "CLoVE: Personalized Federated Learning through Clustering of Loss Vector
Embeddings", Appendix A.1. On n fresh samples the mean squared residual of a linear
model at distance e from the truth is (e^2 + sigma^2) chi2_n / n in law, its square root
sqrt(e^2 + sigma^2) chi_n / sqrt(n). All in float64 NumPy.
"""

import numpy as np
import scipy.special
from jaxtyping import Float

from cfljax.types import Numbers

__all__ = ["chi_mean", "chi_mean_ratio", "chi_variance", "log_chi_square_tail"]

_SERIES_FROM = 60.0  # degrees of freedom where the series below has full precision
_UNDERFLOW = 1e-280  # below, the incomplete gamma functions lose digits, then vanish


def chi_mean_ratio(freedom: Numbers) -> Float[np.ndarray, "..."]:
    """kappa_n = E chi_n / sqrt(n) = sqrt(2/n) Gamma((n+1)/2) / Gamma(n/2) < 1.

    Args:
      freedom: n, at least 1.

    Returns:
      Of the shape of `freedom`, to a few units in the last place.

    Raises:
      ValueError: if `freedom` is below 1 or not finite.
    """
    return np.asarray(np.exp(_log_ratio(freedom)))


def chi_mean(freedom: Numbers) -> Float[np.ndarray, "..."]:
    """E chi_n, see `chi_mean_ratio`."""
    return np.asarray(chi_mean_ratio(freedom) * np.sqrt(np.asarray(freedom, float)))


def chi_variance(freedom: Numbers) -> Float[np.ndarray, "..."]:
    """Var chi_n = n - (E chi_n)^2, which grows from 1 - 2/pi towards 1/2.

    As n (1 - kappa_n^2) with the logarithm of kappa_n from a series: the difference of
    two numbers close to n would lose all digits.

    Args:
      freedom: n, at least 1.

    Returns:
      Of the shape of `freedom`; relative error below 1e-13.

    Raises:
      ValueError: as `chi_mean_ratio`.
    """
    log_ratio = _log_ratio(freedom)
    return np.asarray(-np.asarray(freedom, float) * np.expm1(2 * log_ratio))


def log_chi_square_tail(
    freedom: Numbers, excess: Numbers, *, below: bool = False
) -> Float[np.ndarray, "..."]:
    """log P(chi2_n >= n + excess), or with `below` log P(chi2_n <= n + excess).

    Where that probability underflows, Chernoff's bound -(n/2) (y - log(1 + y)) with
    y = excess / n takes its place: it is never smaller, so that whatever exceeds the
    result exceeds the truth.

    Args:
      freedom: n, at least 1, broadcast against the other.
      excess: distance from the mean; the tail below is empty from -n down.
      below: which tail.

    Returns:
      Natural logarithms of the broadcast shape, with relative errors of the
      probability of about 1e-11 + 1e-15 n.

    Raises:
      ValueError: as `chi_mean_ratio`.
    """
    freedom, excess = np.broadcast_arrays(_checked(freedom), np.asarray(excess, float))
    tail = scipy.special.gammainc if below else scipy.special.gammaincc
    exact = tail(freedom / 2, np.maximum(freedom + excess, 0) / 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = excess / freedom
        chernoff = -freedom / 2 * (share - np.log1p(share))
        chernoff = np.where(share <= -1, -np.inf if below else 0.0, chernoff)
        logarithm = np.log(exact)
    return np.where(exact > _UNDERFLOW, logarithm, chernoff)


def _checked(freedom: Numbers) -> Float[np.ndarray, "..."]:
    freedom = np.asarray(freedom, float)
    if not np.all((freedom >= 1) & np.isfinite(freedom)):
        raise ValueError(f"`freedom` must be finite and at least 1, got {freedom}.")
    return freedom


def _log_ratio(freedom: Numbers) -> Float[np.ndarray, "..."]:
    """log kappa_n: Stirling's series far out, plain gamma functions near by."""
    freedom = _checked(freedom)
    half = np.maximum(freedom, _SERIES_FROM) / 2
    inverse = 1 / half**2
    series = -1 / 8 + inverse * (1 / 192 + inverse * (-1 / 640 + inverse * 17 / 14336))
    near = np.minimum(freedom, _SERIES_FROM) / 2
    ratio = scipy.special.gamma(near + 0.5) / scipy.special.gamma(near)
    direct = np.log(ratio / np.sqrt(near))
    return np.where(freedom >= _SERIES_FROM, series / half, direct)
