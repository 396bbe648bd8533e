"""Appendix A.1: mean and variance of the chi law.

E chi_n = sqrt(n) (1 - 1/(4n) + 1/(32 n^2) + ...), which is sqrt(n - 1) (1 + 1/(4n) +
...). The paper has the sign of the last 1/(4n) wrong, and n - 1 for n in the variance:
its displays are those of chi_{n-1}, for a standard deviation of n numbers. What it
concludes for F = alpha chi_n / sqrt(n) is right nevertheless.
"""

import functools

import numpy as np

from cfljax import law
from theory.judges import never_exceeds
from theory.statement import Preset, Statement
from theory.verdict import Status, Verdict

__all__ = [
    "STATEMENTS",
    "check_mean",
    "check_variance_definition",
    "check_variance_order",
    "quadrature_moments",
]

MEAN, VARIANCE = "clove.chiE", "clove.chiVar"

_COUNTS = np.unique(np.round(np.geomspace(2, 1e6, 120)))
_EPS = np.finfo(float).eps


def quadrature_moments(freedom: float) -> tuple[float, float]:
    """Mean and variance of chi_n by the trapezoidal rule in log x.

    The integrand exp(n u - e^{2u} / 2) dies out at both ends faster than any power,
    where the rule converges exponentially; gamma functions are not used.
    """
    mode = np.log(freedom) / 2
    width = 40 / np.sqrt(freedom) if freedom > 40 else 40 / freedom + 3
    logarithm = mode + np.linspace(-width, min(width, 3.0), 40_001)
    exponent = freedom * (logarithm - mode)
    exponent -= freedom * np.expm1(2 * (logarithm - mode)) / 2
    weight = np.exp(exponent)
    weight /= np.sum(weight)
    root = np.exp(logarithm)
    mean = float(np.sum(weight * root))
    return mean, float(np.sum(weight * (root - mean) ** 2))


def check_mean(preset: Preset, *, name: str, slope: float, constant: float) -> Verdict:
    """|E chi_n / sqrt(n-1) - 1 - `slope`/n| <= `constant`/n^2 for n from 2 to 10^6."""
    del preset
    ratio = law.chi_mean_ratio(_COUNTS) / np.sqrt(1 - 1 / _COUNTS)
    observed = _COUNTS * (ratio - 1)
    return never_exceeds(
        name,
        np.abs(ratio - 1 - slope / _COUNTS),
        constant / _COUNTS**2,
        rounding=8 * _EPS * ratio,
        detail=f"n (E chi_n / sqrt(n-1) - 1) is {observed[0]:.3f} at n = 2 and "
        f"{observed[-1]:.5f} at n = 10^6",
    )


def check_variance_definition(
    preset: Preset, *, name: str, freedom_less: float, formula: bool
) -> Verdict:
    """Var chi_n by quadrature against (n - `freedom_less`) - (E chi_n)^2.

    With `formula`, against `law.chi_variance` as well.
    """
    del preset
    counts = np.array([1.0, 2, 3, 5, 10, 30, 59, 60, 100, 1000, 1e4])
    mean, variance = np.array([quadrature_moments(count) for count in counts]).T
    claimed = counts - freedom_less - mean**2
    gaps = [np.abs(variance - claimed)]
    rounding = [64 * _EPS * counts]
    if formula:
        gaps.append(np.abs(variance - law.chi_variance(counts)))
        rounding.append(np.full(len(counts), 1e-12))
    return never_exceeds(
        name,
        np.concatenate(gaps),
        np.zeros(sum(map(len, gaps))),
        rounding=np.concatenate(rounding),
        detail=f"the right-hand side is {claimed[4]:.4f} at n = 10, where the variance "
        f"is {variance[4]:.4f}",
    )


def check_variance_order(preset: Preset, *, constant: float = 1.45) -> Verdict:
    """|Var chi_n / ((n-1)/(2n)) - 1| <= `constant`/n for n from 2 to 10^6."""
    del preset
    ratio = law.chi_variance(_COUNTS) * 2 * _COUNTS / (_COUNTS - 1)
    return never_exceeds(
        f"{VARIANCE}.order",
        np.abs(ratio - 1) * _COUNTS,
        np.full(len(_COUNTS), constant),
        rounding=1e-12 * _COUNTS,
        detail=f"n (ratio - 1) from {_COUNTS[0] * (ratio[0] - 1):.3f} at n = 2 to "
        f"{_COUNTS[-1] * (ratio[-1] - 1):.4f} at n = 10^6",
    )


_row = functools.partial(Statement, paper="clove", place="Appendix A.1")


def _mean_rows() -> tuple[Statement, ...]:
    printed = functools.partial(check_mean, name=MEAN, slope=-0.25, constant=1e3)
    corrected = functools.partial(
        check_mean, name=f"{MEAN}.corrected", slope=0.25, constant=0.52
    )
    return (
        _row(
            id=MEAN,
            text="E[chi(n)] = sqrt(n-1) [1 - 1/(4n) + O(1/n^2)]",
            preconditions=("n >= 2",),
            constants={"O": 1e3},
            claimed="O(1/n^2), unnamed",
            expected=Status.VIOLATED,
            check=printed,
            control=functools.partial(printed, slope=0.26),
            note="The sign of 1/(4n) is wrong; the display is that of chi(n-1). "
            "Whatever the constant in O, it fails from twice that n on. The control "
            "has 0.26/n.",
        ),
        _row(
            id=f"{MEAN}.corrected",
            text="E[chi(n)] = sqrt(n-1) [1 + 1/(4n) + O(1/n^2)]",
            preconditions=("n >= 2",),
            constants={"O": 0.52},
            check=corrected,
            control=functools.partial(corrected, slope=0.2501),
            note="Equivalently sqrt(n) [1 - 1/(4n) + O(1/n^2)]. The control has "
            "0.2501/n.",
        ),
    )


def _variance_rows() -> tuple[Statement, ...]:
    printed = functools.partial(
        check_variance_definition, name=VARIANCE, freedom_less=1.0, formula=False
    )
    corrected = functools.partial(
        check_variance_definition,
        name=f"{VARIANCE}.corrected",
        freedom_less=0.0,
        formula=True,
    )
    return (
        _row(
            id=VARIANCE,
            text="Var[chi(n)] = (n-1) - E[chi(n)]^2",
            preconditions=("n >= 1",),
            expected=Status.VIOLATED,
            check=printed,
            control=functools.partial(printed, freedom_less=0.5),
            note="The right-hand side is negative; it is that of chi(n-1). The control "
            "has n - 1/2.",
        ),
        _row(
            id=f"{VARIANCE}.corrected",
            text="Var[chi(n)] = n - E[chi(n)]^2 = 1/2 - 1/(8n) - ...",
            preconditions=("n >= 1",),
            check=corrected,
            control=functools.partial(corrected, freedom_less=1e-6),
            note="By quadrature, without gamma functions. The control has n - 10^-6.",
        ),
        _row(
            id=f"{VARIANCE}.order",
            text="Var[chi(n)] = ((n-1)/(2n)) [1 + O(1/n)]",
            preconditions=("n >= 2",),
            constants={"O": 1.45},
            claimed="O(1/n), unnamed",
            check=check_variance_order,
            control=functools.partial(check_variance_order, constant=1.43),
            note="True of chi(n) as well as of chi(n-1). The least constant is 1.4336, "
            "at n = 2; the control has 1.43.",
        ),
    )


STATEMENTS = (*_mean_rows(), *_variance_rows())
