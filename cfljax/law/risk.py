"""Exact mean-square errors: a run with every client in its place, and least squares.

Setting: Ghosh et al., Section 5.1. N rows of d standard normal features with normal
noise of standard deviation sigma. Nothing is hidden in constants. In float64 NumPy.
"""

import numpy as np
from jaxtyping import Float

from cfljax.base.types import Numbers


def stationary_floor(
    num_rows: Numbers, num_features: Numbers, noise: Numbers, effective_step: Numbers
) -> Float[np.ndarray, "..."]:
    """Root-mean-square distance to the truth that gradient steps on fresh rows keep.

    With x the effective step, one step on N fresh rows without misassigned clients
    has E|e+|^2 = ((1-x)^2 + x^2 (d+1)/N) |e|^2 + x^2 d sigma^2 / N, of which the fixed
    point is sigma^2 x d / ((2-x) N - x (d+1)).

    Args:
      num_rows: N of each step, above 0; p_j m n' in IFCA.
      num_features: d, at least 1.
      noise: sigma, at least 0.
      effective_step: x = 2 step_size p_j, the loss having Hessian 2; 2 step_size where
        a cluster's gradients are averaged over its members.

    Returns:
      Floor of the broadcast shape: inf where the mean square grows without limit,
      x < 0 or x >= 2N / (N+d+1), and NaN at x = 0, where nothing moves.

    Raises:
      ValueError: on a count or noise outside its range.
    """
    rows, features, noise = _checked(num_rows, num_features, noise)
    step = np.asarray(effective_step, float)
    left = (2 - step) * rows - step * (features + 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        floor = noise * np.sqrt(step * features / left)
    floor = np.where((step < 0) | (left <= 0), np.inf, floor)
    return np.where(step == 0, np.nan, floor)


def oracle_risk(
    num_rows: Numbers, num_features: Numbers, noise: Numbers
) -> Float[np.ndarray, "..."]:
    """E|estimate - truth|^2 of least squares on N rows of one cluster.

    sigma^2 E tr (X'X)^-1 = sigma^2 d / (N-d-1), the mean of an inverse Wishart matrix.

    Args:
      num_rows: N, above 0.
      num_features: d, at least 1.
      noise: sigma, at least 0.

    Returns:
      Squared distance of the broadcast shape; inf unless N > d+1.

    Raises:
      ValueError: on a count or noise outside its range.
    """
    rows, features, noise = _checked(num_rows, num_features, noise)
    return _where_finite(rows, features, noise**2 * features)


def pooled_risk(
    num_rows: Numbers,
    num_features: Numbers,
    noise: Numbers,
    separation: Numbers,
    *,
    share: Numbers = 0.5,
) -> Float[np.ndarray, "..."]:
    """E|estimate - truth|^2 of one least-squares fit to two clusters' rows.

    With A = A1 + A2 the Gram matrices, the other cluster's A2, and its truth at D u
    from the own one, the error is A^-1 A2 u D + A^-1 X' noise. Write
    A2 = A^1/2 B A^1/2: B is a matrix-beta variable, independent of A and of no
    preferred direction, so that with l the eigenvalues of A

        E|A^-1 A2 u|^2 = E tr(B A^-1 B A) / d = E B_11^2 + E B_12^2 E sum_i!=j l_j/l_i/d
        E B_11^2 = N2 (N2+2) / (N (N+2)),  E B_12^2 = N1 N2 / ((N-1) N (N+2)),
        E sum_i!=j l_j/l_i = E tr A tr A^-1 - d = d (d-1) (N+1) / (N-d-1).

    Args:
      num_rows: N = N1 + N2 rows in all, above 0.
      num_features: d, at least 1.
      noise: sigma, at least 0.
      separation: D, distance between the two truths.
      share: N1/N, the own cluster's share of the rows, in [0, 1].

    Returns:
      Squared distance to the own truth, of the broadcast shape; inf unless N > d+1.

    Raises:
      ValueError: on a count, noise or share outside its range.
    """
    rows, features, noise = _checked(num_rows, num_features, noise)
    share = np.asarray(share, float)
    if not np.all((share >= 0) & (share <= 1)):
        raise ValueError(f"`share` must lie in [0, 1], got {share}.")
    other = (1 - share) * rows
    diagonal = other * (other + 2) / (rows * (rows + 2))
    apart = np.maximum(rows - 1, np.finfo(float).tiny)  # N = 1 has no finite risk
    beside = share * other / (apart * (rows + 2)) * (rows + 1) * (features - 1)
    bias = diagonal + _where_finite(rows, features, beside)
    risk = np.asarray(separation) ** 2 * bias + oracle_risk(rows, features, noise)
    return np.asarray(risk)


def _where_finite(
    rows: Float[np.ndarray, "..."],
    features: Float[np.ndarray, "..."],
    numerator: Numbers,
) -> Float[np.ndarray, "..."]:
    """numerator / (N-d-1), inf unless that is positive."""
    freedom = rows - features - 1
    positive = freedom > 0
    return np.where(positive, numerator / np.where(positive, freedom, 1.0), np.inf)


def _checked(
    num_rows: Numbers, num_features: Numbers, noise: Numbers
) -> tuple[Float[np.ndarray, "..."], ...]:
    rows, features, noise = (
        np.asarray(part, float) for part in (num_rows, num_features, noise)
    )
    if not np.all(rows > 0):
        raise ValueError(f"`num_rows` must be above 0, got {rows}.")
    if not np.all(features >= 1):
        raise ValueError(f"`num_features` must be at least 1, got {features}.")
    if not np.all(noise >= 0):
        raise ValueError(f"`noise` must be at least 0, got {noise}.")
    return rows, features, noise
