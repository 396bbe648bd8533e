"""The exact probability that a client prefers the wrong of two linear models.

Setting: Ghosh, Chung, Yin, Ramchandran, "An Efficient Framework for Clustered
Federated Learning", Section 4.1 and Lemma 1. A client holds n samples
y = <x, truth> + noise * z with standard normal x and z, independent of the models, and
picks the model of smaller mean squared residual. Everything here is exact for every
n >= 1, dimension and geometry; nothing is hidden in constants. All in float64 NumPy.
"""

import numpy as np
import scipy.special
from jaxtyping import Float, Num

from cfljax.types import Numbers

__all__ = [
    "error_exponent",
    "log_misassignment_probability",
    "misassignment_kappa",
    "misassignment_probability",
    "worst_kappa",
]

_FAR = 30.0  # num_samples kappa^2 from which the continued fraction is used
_FRACTION_DEPTH = 120  # enough there for full precision, whatever num_samples


def misassignment_kappa(
    truth: Num[np.ndarray, "..."],
    own_model: Num[np.ndarray, "..."],
    other_model: Num[np.ndarray, "..."],
    noise: Numbers,
) -> Float[np.ndarray, "..."]:
    """Signal-to-noise ratio of the choice between two models.

    With h the signed distance of `truth` from the hyperplane halfway between the two
    models (positive on the side of `own_model`) and w its distance from the line
    through them, kappa = h / sqrt(w^2 + noise^2).

    With a = truth - own_model, b = truth - other_model, A = |a|^2 + noise^2,
    B = |b|^2 + noise^2 and C = <a, b> + noise^2 this is (B - A) / (2 sqrt(AB - C^2)):
    B - A = 2 h |a - b|, and AB - C^2 = |a|^2 |b|^2 - <a, b>^2 + noise^2 |a - b|^2, the
    first two terms being the squared area of a parallelogram of base |a - b| and
    height w. This form loses no digits when the models nearly coincide.

    Args:
      truth: `[..., features]`, the model that made the client's data.
      own_model: `[..., features]`, the model the client should pick.
      other_model: `[..., features]`, the rival.
      noise: `[...]`, standard deviation of the label noise, at least 0.

    Returns:
      `[...]`, kappa; infinite where noise and w are both 0, and NaN where nothing
      decides: where the models coincide, or such a client is right between them.

    Raises:
      ValueError: if `noise` is negative.
    """
    noise = np.asarray(noise, float)
    if np.any(noise < 0):
        raise ValueError(f"`noise` must be at least 0, got {noise}.")
    truth, own_model, other_model = (
        np.asarray(vector, float) for vector in (truth, own_model, other_model)
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        direction = own_model - other_model
        direction = direction / np.linalg.norm(direction, axis=-1, keepdims=True)
        # The midpoint of the differences: exact when a model is close to the truth.
        offset = ((truth - own_model) + (truth - other_model)) / 2
        height = np.sum(offset * direction, axis=-1)
        width = np.linalg.norm(offset - height[..., None] * direction, axis=-1)
        return np.asarray(height / np.hypot(width, noise))


def misassignment_probability(
    kappa: Numbers, num_samples: Numbers
) -> Float[np.ndarray, "..."]:
    """P(the other model's loss <= the own model's loss) = P(t_n >= sqrt(n) kappa).

    Derivation: the residuals u, v of one sample on the two models are jointly normal,
    so u - v and u + v are too, with correlation r = (A - B) / sqrt((A+B)^2 - 4 C^2).
    The event sum u^2 >= sum v^2 reads sum (u - v)(u + v) >= 0; regressing u + v on
    u - v over n samples turns it into a Student ratio t_n >= -sqrt(n) r / sqrt(1-r^2)
    = sqrt(n) kappa, of which P = I_{1/(1+kappa^2)}(n/2, 1/2) / 2 when kappa >= 0.

    Args:
      kappa: signal-to-noise ratio of `misassignment_kappa`.
      num_samples: n, at least 1, broadcast against `kappa`.

    Returns:
      Probability of the broadcast shape; NaN where `kappa` is.

    Raises:
      ValueError: if `num_samples` is below 1.
    """
    return np.asarray(np.exp(log_misassignment_probability(kappa, num_samples)))


def log_misassignment_probability(
    kappa: Numbers, num_samples: Numbers
) -> Float[np.ndarray, "..."]:
    """Natural logarithm of `misassignment_probability`, far beyond underflow.

    For n kappa^2 > 30 the incomplete beta function is written as
    (1 + kappa^2)^(-(n-1)/2) F / (kappa n B(n/2, 1/2)) with
    F = 2F1(1/2, 1; n/2 + 1; -1/kappa^2), by Pfaff's transformation, and F is Gauss's
    continued fraction. Its coefficients are positive, so that nothing cancels.
    Elsewhere SciPy's function is used.

    Args:
      kappa: signal-to-noise ratio of `misassignment_kappa`.
      num_samples: n, at least 1, broadcast against `kappa`.

    Returns:
      Log-probability of the broadcast shape; NaN where `kappa` is.

    Raises:
      ValueError: if `num_samples` is below 1.
    """
    kappa, num_samples = np.broadcast_arrays(
        np.asarray(kappa, float), np.asarray(num_samples, float)
    )
    if not np.all(num_samples >= 1):
        raise ValueError(f"`num_samples` must be at least 1, got {num_samples}.")
    size, count = np.abs(kappa).ravel(), num_samples.ravel()
    far = np.sqrt(count) * size > np.sqrt(_FAR)
    log_tail = np.where(
        far,
        _log_far_tail(np.where(far, size, np.sqrt(_FAR)), count),
        _log_near_tail(np.where(far, 0.0, size), count),
    ).reshape(kappa.shape)
    return np.where(kappa >= 0, log_tail, np.log1p(-np.exp(log_tail)))


def _log_near_tail(
    kappa: Float[np.ndarray, " points"], num_samples: Float[np.ndarray, " points"]
) -> Float[np.ndarray, " points"]:
    share = kappa**2 / (1 + kappa**2)
    centre = 1 - scipy.special.betainc(0.5, num_samples / 2, share)
    tail = scipy.special.betaincc(0.5, num_samples / 2, share)
    return np.log(np.where(num_samples * share < 1, centre, tail) / 2)


def _log_far_tail(
    kappa: Float[np.ndarray, " points"], num_samples: Float[np.ndarray, " points"]
) -> Float[np.ndarray, " points"]:
    finite = np.where(np.isinf(kappa), 1.0, kappa)
    inverse = (1 / finite) ** 2
    top = num_samples / 2 + 1
    fraction = np.ones_like(finite)
    for step in range(_FRACTION_DEPTH, 0, -1):
        half = step // 2
        if step % 2:
            factor = (0.5 + half) * (top - 1 + half)
        else:
            factor = half * (top - 1.5 + half)
        factor = factor / ((top + step - 2) * (top + step - 1))
        fraction = 1 + factor * inverse / fraction
    log_probability = (
        -(num_samples - 1) / 2 * np.logaddexp(0.0, 2 * np.log(finite))
        - np.log(finite)
        - np.log(num_samples)
        - _log_beta_half(num_samples / 2)
        - np.log(fraction)
    )
    return np.where(np.isinf(kappa), -np.inf, log_probability)


def _log_beta_half(
    a: Float[np.ndarray, " points"],
) -> Float[np.ndarray, " points"]:
    """log B(a, 1/2), by Stirling's series where SciPy subtracts large logarithms."""
    large = np.maximum(a, 30.0)
    series = -1 / 8 / large + 1 / 192 / large**3 - 1 / 640 / large**5
    series = series + 17 / 14336 / large**7
    log_ratio = np.log(large) / 2 + series  # of Gamma(a + 1/2) to Gamma(a)
    stirling = np.log(np.pi) / 2 - log_ratio
    return np.where(a < 30, scipy.special.betaln(np.minimum(a, 30), 0.5), stirling)


def error_exponent(kappa: Numbers) -> Float[np.ndarray, "..."]:
    """Rate E = log(1 + kappa^2) / 2 at which misassignment dies out in n.

    For kappa >= 0, probability <= exp(-n E) / 2 for every n, because I_x(a, 1/2) <= x^a
    (a Beta(a, 1/2) variable is stochastically larger than a Beta(a, 1) one), and
    -log(probability) / n tends to E: the exponent cannot be improved.

    Returns:
      Exponent per sample, of the shape of `kappa`.
    """
    return np.asarray(np.log1p(np.asarray(kappa, float) ** 2) / 2)


def worst_kappa(
    alpha: Numbers, rho: Numbers, *, one_dimensional: bool = False
) -> Float[np.ndarray, "..."]:
    """Smallest kappa that the assumptions of Lemma 1 allow.

    The infimum over all truths at least D apart and models within (1/2 - alpha) D of
    their truths, where rho = (D / noise)^2; it is attained. Derivation, with lengths
    |a|, |b| of `misassignment_kappa` held fixed: AB - C^2 is concave in cos(a, b) and
    largest at C = 0, or at cos = -1 if C = 0 is out of reach. There kappa is
    (sqrt(B/A) - sqrt(A/B)) / 2, or (|b| - |a|) / (2 noise); both fall in |a| and grow
    in |b|, so the worst lengths are |a| = (1/2 - alpha) D and |b| = (1/2 + alpha) D,
    and C = 0 can be reached iff (1/4 - alpha^2) rho >= 1.

    Args:
      alpha: margin, in (0, 1/2).
      rho: squared separation over noise variance, above 0; broadcast against `alpha`.
      one_dimensional: true for a single feature, where only cos = -1 is possible.

    Returns:
      Kappa of the broadcast shape.

    Raises:
      ValueError: on `alpha` outside (0, 1/2) or `rho` not positive.
    """
    alpha, rho = np.asarray(alpha, float), np.asarray(rho, float)
    if not np.all((alpha > 0) & (alpha < 0.5)):
        raise ValueError(f"`alpha` must lie in (0, 1/2), got {alpha}.")
    if not np.all(rho > 0):
        raise ValueError(f"`rho` must be positive, got {rho}.")
    collinear = alpha * np.sqrt(rho)
    if one_dimensional:
        return np.asarray(collinear)
    near = (0.5 - alpha) ** 2 * rho + 1
    far = (0.5 + alpha) ** 2 * rho + 1
    independent = alpha * rho / np.sqrt(near * far)
    return np.where((0.25 - alpha**2) * rho >= 1, independent, collinear)
