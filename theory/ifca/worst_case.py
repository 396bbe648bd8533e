"""ifca.exact.worst: the least favourable configuration that Lemma 1 allows."""

import functools
from typing import NamedTuple

import numpy as np
import scipy.optimize
from jaxtyping import Float

from cfljax import law
from cfljax.types import Numbers
from theory.ifca.linear_model import worst_client
from theory.judges import never_exceeds
from theory.statement import Preset, Statement
from theory.verdict import Verdict

__all__ = ["STATEMENTS", "check_worst"]

WORST = "ifca.exact.worst"

_ALPHAS = (0.02, 0.1, 0.3, 0.49)
_RHOS = (0.05, 1.0, 3.9, 4.1, 16.0, 256.0, 1e4)


class _Found(NamedTuple):
    """Configurations: the formula's kappa, the actual one, its rounding error."""

    formula: Float[np.ndarray, " points"]
    kappa: Float[np.ndarray, " points"]
    rounding: Float[np.ndarray, " points"]


def check_worst(preset: Preset, *, factor: float = 1.0) -> Verdict:
    """Look for a smaller kappa than `factor` times the formula's.

    Three parts: random configurations in 1, 2, 3 and 10 dimensions; bounded
    minimisation of kappa over lengths and angle; and equality at the formula's corner.
    """
    corner, minima, random = _searched(preset)
    formula, kappa, rounding = map(
        np.concatenate, zip(corner, minima, random, strict=True)
    )
    return never_exceeds(
        WORST,
        np.concatenate([factor * formula, corner.kappa]),
        np.concatenate([kappa, factor * corner.formula]),
        rounding=np.concatenate([rounding, corner.rounding]),
        detail=f"equality at {len(corner.kappa)} corners; {len(minima.kappa)} "
        f"minimisations and {len(random.kappa)} random configurations above",
    )


@functools.lru_cache(maxsize=1)
def _searched(preset: Preset) -> tuple[_Found, _Found, _Found]:
    random = [_random(preset, num_features) for num_features in (1, 2, 3, 10)]
    joined = _Found(*map(np.concatenate, zip(*random, strict=True)))
    return _at_corner(preset), _minimised(preset), joined


def _rounding(
    rho: Numbers, num_features: int, reach: float
) -> Float[np.ndarray, "..."]:
    """Error of kappa: relative to |offset| / noise, not to kappa, because the offset's
    projection may cancel; `reach` bounds the lengths in units of the separation."""
    length = 1 + reach * np.sqrt(rho)
    return np.asarray(50 * np.finfo(float).eps * num_features * length)


def _at_corner(preset: Preset) -> _Found:
    rows = []
    for num_features in (1, 2, 7):
        for alpha in _ALPHAS:
            for rho in _RHOS:
                one = worst_client(
                    preset.generator(WORST, 0),
                    alpha=alpha,
                    rho=rho,
                    num_features=num_features,
                    num_samples=1,
                )
                kappa = law.misassignment_kappa(
                    one.truth, one.models[0], one.models[1], one.noise
                )
                formula = law.worst_kappa(alpha, rho, one_dimensional=num_features == 1)
                error = _rounding(rho, num_features, reach=5.0)
                rows.append((formula, kappa, error))
    return _Found(*np.array(rows, float).T)


def _minimised(preset: Preset) -> _Found:
    """kappa over |a| <= 1/2 - alpha, 1/2 + alpha <= |b| <= 3, any angle, D = 1."""
    generator = preset.generator(WORST, 1)
    rows = []
    for alpha in _ALPHAS:
        for rho in _RHOS:
            bounds = [(0.0, 0.5 - alpha), (0.5 + alpha, 3.0), (0.0, np.pi)]
            for _ in range(preset.choose(quick=2, full=20)):
                start = [generator.uniform(*pair) for pair in bounds]
                best = scipy.optimize.minimize(
                    _kappa_of_lengths,
                    start,
                    args=(rho**-0.5,),
                    bounds=bounds,
                    method="L-BFGS-B",
                )
                formula = law.worst_kappa(alpha, rho)
                rows.append((formula, best.fun, _rounding(rho, 2, 3.0)))
    return _Found(*np.array(rows, float).T)


def _kappa_of_lengths(
    lengths_and_angle: Float[np.ndarray, " 3"], noise: float
) -> float:
    own, other, angle = lengths_and_angle
    direction = np.array([np.cos(angle), np.sin(angle)])
    own_model = np.array([own, 0.0])
    return float(
        law.misassignment_kappa(np.zeros(2), own_model, other * direction, noise)
    )


def _random(preset: Preset, num_features: int) -> _Found:
    """Truths at least 1 apart, models in balls around them, half on the spheres."""
    generator = preset.generator(WORST, 2, num_features)
    points = preset.choose(quick=50_000, full=2_000_000)
    alpha = generator.uniform(0.001, 0.499, points)
    rho = 10 ** generator.uniform(-3, 4, points)
    separation = 1 + generator.exponential(size=points) * generator.integers(
        0, 2, points
    )

    def ball():
        direction = generator.standard_normal((points, num_features))
        direction /= np.linalg.norm(direction, axis=1, keepdims=True)
        length = generator.uniform(size=points) ** (1 / num_features)
        length = np.where(generator.uniform(size=points) < 0.5, 1.0, length)
        return direction * ((0.5 - alpha) * length)[:, None]

    other_truth = np.zeros((points, num_features))
    other_truth[:, 0] = separation
    kappa = law.misassignment_kappa(
        np.zeros(num_features), ball(), other_truth + ball(), rho**-0.5
    )
    formula = law.worst_kappa(alpha, rho, one_dimensional=num_features == 1)
    reach = float(np.max(separation)) + 1
    return _Found(formula, kappa, _rounding(rho, num_features, reach))


STATEMENTS = (
    Statement(
        id=WORST,
        paper="ifca",
        place="Lemma 1, its worst case",
        text="kappa >= kappa*(alpha, rho), attained: independent losses where "
        "(1/4 - alpha^2) rho >= 1, else alpha sqrt(rho)",
        preconditions=(
            "|theta_l - theta_l*| <= (1/2 - alpha) Delta for both models",
            "|theta_j* - theta_j'*| >= Delta, rho = Delta^2 / sigma^2",
        ),
        check=check_worst,
        control=functools.partial(check_worst, factor=1.02),
        note="Not in the paper. The control claims 2 % more.",
    ),
)
