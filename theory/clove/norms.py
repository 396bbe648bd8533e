"""Lemma A.3 and (2): lengths of models, and the bound on the variance of F.

|theta| <= 1 + Delta/4 <= 3/2 for proximal models, as Delta <= 2 for unit truths, and 1
for orthonormal ones. The 9 in (2) is (2 + 1)^2; 25/4 serves proximal models and 4
orthonormal ones.
"""

import functools

import numpy as np
from jaxtyping import Float

from cfljax import law
from theory.clove.loss_means import random_units
from theory.judges import never_exceeds
from theory.statement import Preset, Statement
from theory.verdict import Verdict

__all__ = ["STATEMENTS", "check_length", "check_variance"]

LENGTH, VARIANCE = "clove.lemA3", "clove.eq2"

_NOISES = (0.0, 0.1, 1.0)
_COUNTS = (1, 2, 5, 20, 100)


def _proximal(preset: Preset) -> Float[np.ndarray, "points 2"]:
    """|theta| and Delta of models Delta/4 from a unit truth, half of them straight "
    "out."""
    generator = preset.generator(LENGTH)
    size = preset.choose(quick=1000, full=100_000)
    found = []
    for num_features in (1, 2, 10, 100):
        truths = random_units(generator, (size, num_features))
        offsets = random_units(generator, (size, num_features))
        offsets[::2] = truths[::2]
        reach = generator.uniform(0, 2, (size, 1)) / 4
        reach[:2] = 0.5
        lengths = np.linalg.norm(truths + reach * offsets, axis=1)
        found.append(np.stack([lengths, 4 * reach[:, 0]], axis=1))
    return np.concatenate(found)


def check_length(preset: Preset, *, limit: float = 2.0) -> Verdict:
    """|theta| < `limit`, and |theta| <= 1 + Delta/4, for proximal models."""
    lengths, separations = _proximal(preset).T
    claimed = np.minimum(limit, 1 + separations / 4)
    return never_exceeds(
        LENGTH,
        lengths,
        claimed,
        rounding=1e-13,
        detail=f"{len(lengths)} models, d to 100: longest {np.max(lengths):.6f}",
    )


def check_variance(preset: Preset, *, square: float = 9.0) -> Verdict:
    """Var F <= (|theta - theta*|^2 + sigma^2)/(2n) <= (`square` + sigma^2)/(2n)."""
    generator = preset.generator(VARIANCE)
    size = preset.choose(quick=300, full=30_000)
    values, bounds, furthest = [], [], 0.0
    for num_features in (1, 3, 30):
        truths = random_units(generator, (size, num_features))
        models = 2 * random_units(generator, (size, num_features))
        models *= generator.uniform(0, 1, (size, 1)) ** (1 / num_features)
        models[::3] = -2 * truths[::3]
        distance = np.linalg.norm(models - truths, axis=1)
        furthest = max(furthest, float(np.max(distance)))
        for noise in _NOISES:
            for count in _COUNTS:
                middle = (distance**2 + noise**2) / (2 * count)
                exact = middle * 2 * law.chi_variance(count)
                right = np.full(size, (square + noise**2) / (2 * count))
                values += [exact, middle]
                bounds += [middle, right]
    return never_exceeds(
        VARIANCE,
        np.concatenate(values),
        np.concatenate(bounds),
        rounding=1e-13,
        detail=f"{3 * size} models with |theta| <= 2: |theta - theta*| up to "
        f"{furthest:.6f}",
    )


STATEMENTS = (
    Statement(
        id=LENGTH,
        paper="clove",
        place="Lemma A.3",
        text="|theta| < 2 for any Delta-proximal model",
        preconditions=("|theta - theta_k*| <= Delta/4 for some k", "|theta_k*| = 1"),
        claimed="Delta < 2",
        check=check_length,
        control=functools.partial(check_length, limit=1.499),
        note="Even 3/2, as unit truths are at most 2 apart. The control claims 1.499.",
    ),
    Statement(
        id=VARIANCE,
        paper="clove",
        place="Appendix A.2, (2)",
        text="(|theta - theta_k*|^2 + sigma^2)/(2 n_k) <= (9 + sigma^2)/(2 n_k), and "
        "no less than Var F",
        preconditions=("|theta| <= 2", "|theta_k*| = 1"),
        check=check_variance,
        control=functools.partial(check_variance, square=8.99),
        note="25/4 serves proximal models and 4 orthonormal ones. The control has "
        "8.99.",
    ),
)
