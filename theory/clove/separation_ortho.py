"""Lemma A.1: mean loss vectors on N = d orthonormal models are Delta/c apart, c ~= 2.

alpha_ij^2 - alpha_kj^2 = 2 t_j with t = theta_k* - theta_i* in the models' basis, so
that |c_i - c_k|^2 = sum 4 t_j^2 / (alpha_ij + alpha_kj)^2, and alpha^2 <= 4 + sigma^2
gives the proof's constant. The best one is smaller, c^2 = 2 + sqrt(2) + sigma^2: the
truths then nearly coincide at -(e_1 + e_2)/sqrt(2), with just two models far away.
"""

import functools

import numpy as np
import scipy.optimize
from jaxtyping import Float

from theory.clove.loss_means import ortho_separation, random_units
from theory.judges import never_exceeds
from theory.statement import Preset, Statement
from theory.verdict import Verdict

__all__ = ["BEST", "STATEMENTS", "check_separation", "lowest_ratio"]

ORTHO = "clove.lemA1.ortho"
BEST = 2 + float(np.sqrt(2))

_DIMENSIONS = (2, 3, 5, 10, 50, 200)
_SEARCHED = (2, 3, 4, 6)
_NOISES = (0.0, 0.1, 1.0)


def lowest_ratio(
    generator: np.random.Generator, num_features: int, noise: float, starts: int
) -> float:
    """Least |c_1 - c_2| / Delta that a descent from random truths finds."""

    level = 2 + noise**2

    def ratio(flat: np.ndarray) -> float:
        truths = flat.reshape(2, num_features)
        truths = truths / np.sqrt(np.sum(truths**2, axis=1, keepdims=True))
        gap = truths[0] - truths[1]
        distance = np.sqrt(gap @ gap)
        if distance < 1e-5:  # where differences of unit vectors lose their digits
            return np.inf
        total = np.sum(np.sqrt(level - 2 * truths), axis=0)
        return float(np.sqrt(np.sum((2 * gap / total) ** 2)) / distance)

    found = [
        scipy.optimize.minimize(
            ratio,
            random_units(generator, (2 * num_features,)),
            method="Nelder-Mead",
            options={"maxiter": 150 * num_features, "xatol": 1e-9, "fatol": 1e-12},
        ).fun
        for _ in range(starts)
    ]
    return float(min(found))


@functools.lru_cache(maxsize=1)
def _ratios(
    preset: Preset,
) -> tuple[Float[np.ndarray, " points"], Float[np.ndarray, " points"]]:
    """|c_1 - c_2| / Delta at random, near the worst place and by descent; sigma."""
    generator = preset.generator(ORTHO)
    draws = preset.choose(quick=400, full=20_000)
    ratios, noises = [], []
    for noise in _NOISES:
        for num_features in _DIMENSIONS:
            first, second = random_units(generator, (2, draws, num_features))
            gap = np.linalg.norm(first - second, axis=1)
            ratios.append(ortho_separation(first, second, noise) / gap)
        angle = np.geomspace(1e-3, np.pi / 4, 50)[:, None] * np.array([1, -1])
        first = -np.stack([np.cos(np.pi / 4 + angle), np.sin(np.pi / 4 + angle)])
        first, second = np.moveaxis(first, 0, -1).swapaxes(0, 1)
        gap = np.linalg.norm(first - second, axis=1)
        ratios.append(ortho_separation(first, second, noise) / gap)
        starts = preset.choose(quick=1, full=20)
        ratios.append(
            np.array([lowest_ratio(generator, d, noise, starts) for d in _SEARCHED])
        )
        noises.append(np.full(sum(map(len, ratios)) - sum(map(len, noises)), noise))
    return np.concatenate(ratios), np.concatenate(noises)


def check_separation(preset: Preset, *, name: str, square: float) -> Verdict:
    """|c_1 - c_2| >= Delta / sqrt(`square` + sigma^2)."""
    ratios, noises = _ratios(preset)
    claimed = 1 / np.sqrt(square + noises**2)
    least = float(np.min(ratios[noises == 0]))
    return never_exceeds(
        name,
        claimed,
        ratios,
        rounding=1e-10,
        detail=f"{len(ratios)} pairs of truths, d to 200, a third of them without "
        f"noise: there the least |c_1 - c_2| / Delta is {least:.5f}, c = "
        f"{1 / least:.4f}",
    )


_PRECONDITIONS = (
    "N = d orthonormal models",
    "|theta_k*| = 1, |theta_i* - theta_j*| >= Delta",
    "c_k of alphas: E F_k/kappa_n, equal n",
)
_row = functools.partial(Statement, paper="clove", preconditions=_PRECONDITIONS)

STATEMENTS = (
    _row(
        id=ORTHO,
        place="Lemma A.1",
        text="|c_i - c_j| >= Delta/c, c = sqrt(4 + sigma^2)",
        constants={"c at sigma = 0": 2.0},
        claimed="c ~= 2",
        check=functools.partial(check_separation, name=ORTHO, square=4.0),
        control=functools.partial(check_separation, name=ORTHO, square=3.41),
        note="The first display of the proof lacks | | on its left-hand side. The "
        "control has c^2 = 3.41 + sigma^2.",
    ),
    _row(
        id=f"{ORTHO}.best",
        place="Lemma A.1, its constant",
        text="|c_i - c_j| >= Delta/sqrt(2 + sqrt(2) + sigma^2)",
        constants={"c at sigma = 0": float(np.sqrt(BEST))},
        check=functools.partial(check_separation, name=f"{ORTHO}.best", square=BEST),
        control=functools.partial(
            check_separation, name=f"{ORTHO}.best", square=BEST - 1e-4
        ),
        note="Found by descent, and approached as Delta falls to 0. The control has "
        "10^-4 less.",
    ),
)
