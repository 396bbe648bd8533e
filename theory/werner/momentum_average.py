"""Equation (6): a momentum is an average of past gradients, with geometric weights.

In fractions, so that nothing is rounded.
"""

import functools
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from theory.judges import never_exceeds
from theory.statement import Preset, Statement
from theory.verdict import Verdict

__all__ = ["STATEMENTS", "average", "check_average", "momentum"]

AVERAGE = "werner.eq6"

_ALPHAS = (Fraction(1, 100), Fraction(1, 10), Fraction(1, 3), Fraction(9, 10), 1)
_EXACT = 1e-300  # rounding, where nothing is rounded


def momentum(
    alpha: Fraction | int, start: Fraction | int, gradients: Sequence[int]
) -> Fraction:
    """m_t by (6), round by round.

    Args:
      alpha: weight of the new gradient.
      start: m_0.
      gradients: g of rounds 1 to t.
    """
    found = Fraction(start)
    for gradient in gradients:
        found = alpha * gradient + (1 - alpha) * found
    return found


def average(
    alpha: Fraction | int, start: Fraction | int, gradients: Sequence[int]
) -> Fraction:
    """(1 - alpha)^t m_0 + sum over s < t of alpha (1 - alpha)^s g_{t-s}."""
    kept = Fraction(1 - alpha)
    aged = sum(
        alpha * kept**age * gradient for age, gradient in enumerate(gradients[::-1])
    )
    return kept ** len(gradients) * start + aged


def check_average(preset: Preset, *, later: int = 0) -> Verdict:
    """m_t is the weighted average of all gradients and m_0, and the weights add to 1.

    Args:
      preset: number of rounds.
      later: by how many rounds the weights are late.
    """
    rounds = preset.choose(quick=12, full=100)
    drawn = preset.generator(AVERAGE).integers(-1000, 1000, rounds + 1).tolist()
    gaps = []
    for alpha in _ALPHAS:
        for length in range(1, rounds + 1):
            # Gradients that are all 1, from 1, have the sum of the weights as average.
            for start, gradients in (
                (drawn[0], drawn[1 : length + 1]),
                (1, [1] * length),
            ):
                late = (1 - alpha) ** later
                claimed = late * average(alpha, start, gradients)
                gaps.append(float(abs(momentum(alpha, start, gradients) - claimed)))
    values = np.array(gaps)
    return never_exceeds(
        AVERAGE,
        values,
        np.zeros(len(values)),
        rounding=_EXACT,
        detail=f"alpha = {', '.join(map(str, _ALPHAS))}, t to {rounds}, in fractions: "
        f"gap up to {np.max(values):.3g}",
    )


STATEMENTS = (
    Statement(
        id=AVERAGE,
        preconditions=("0 < alpha <= 1, any gradients and m_0",),
        paper="werner",
        place="Equation (6), Algorithm 4",
        text="m_t = alpha g_t + (1 - alpha) m_{t-1} is (1 - alpha)^t m_0 + sum over s "
        "< t of alpha (1 - alpha)^s g_{t-s}, with weights that add up to 1",
        check=check_average,
        control=functools.partial(check_average, later=1),
        note="With m_0 = 0 the gradients' weights add up to 1 - (1 - alpha)^t only, "
        "alpha in the first round: see werner.thm4.first. The control has (1 - "
        "alpha)^(s + 1).",
    ),
)
