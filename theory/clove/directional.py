"""Lemma A.5: the variance of a projection, E<X, v>^2 <= (sum |v_i| sd_i)^2.

Minkowski's inequality in L2; equality where the entries are perfectly correlated, with
the signs of v.
"""

import functools

import numpy as np

from theory.judges import never_exceeds
from theory.statement import Preset, Statement
from theory.verdict import Verdict

__all__ = ["STATEMENTS", "check_projection"]

LEMMA = "clove.lemA5"

_SIZES = (2, 10, 50)


def check_projection(preset: Preset, *, factor: float = 1.0) -> Verdict:
    """v'Sv <= `factor` (sum |v_i| sqrt(S_ii))^2, random, singular and tight.

    The tight ones have rank 1 with the signs of v.
    """
    generator = preset.generator(LEMMA)
    draws = preset.choose(quick=300, full=10_000)
    left, right = [], []
    for size in _SIZES:
        for rank in (1, max(1, size // 2), 2 * size):
            factors = generator.standard_normal((draws, size, rank))
            factors *= 10 ** generator.uniform(-2, 2, (draws, size, 1))
            direction = generator.standard_normal((draws, size))
            if rank == 1:
                signs = np.sign(factors[..., 0])
                direction[::2] = np.abs(direction[::2]) * signs[::2]
            spread = np.linalg.norm(factors, axis=2)
            projected = np.einsum("tir,ti->tr", factors, direction)
            left.append(np.sum(projected**2, axis=1))
            right.append(np.sum(np.abs(direction) * spread, axis=1) ** 2)
    values, bounds = np.concatenate(left), np.concatenate(right)
    tightest = float(np.max(values / bounds))
    return never_exceeds(
        LEMMA,
        values,
        factor * bounds,
        rounding=1e-13 * bounds,
        detail=f"{len(values)} covariances, N to 50, a sixth of them tight: largest "
        f"ratio of both sides {tightest:.12f}",
    )


STATEMENTS = (
    Statement(
        id=LEMMA,
        paper="clove",
        place="Lemma A.5",
        text="E<X, v>^2 <= (sum |v_i| sqrt(Var(x_i)))^2",
        preconditions=("E x_i = 0", "v any vector"),
        check=check_projection,
        control=functools.partial(check_projection, factor=1 - 1e-6),
        note="Equality for perfectly correlated entries with the signs of v. The "
        "control claims 10^-6 less.",
    ),
)
