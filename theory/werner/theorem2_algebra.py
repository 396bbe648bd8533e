"""The algebra in the proof of Theorem 2, equations (10) to (13) and what follows.

D_1 is delta times a Bernoulli variable with p, D_2 with 1 - p. With S = sqrt(4 sigma^2
+ Delta^2), p = 1/2 - Delta/(2 S) and delta = S both variances are sigma^2, the means
are Delta apart, and delta^2 p^2/4 = (S - Delta)^2/16.

In fractions: for sigma = 1 and a rational k > 1, Delta = k - 1/k has S = k + 1/k, so
that nothing is rounded.
"""

import functools
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from theory.judges import never_exceeds
from theory.statement import Preset, Statement
from theory.verdict import Status, Verdict

__all__ = ["STATEMENTS", "Pair", "check_identity", "check_lower", "check_root", "pair"]

PRINTED, ROOT = "werner.thm2.printed", "werner.thm2.root"
LOWER = "werner.thm2.lower"

# k of Delta = 0.049, 0.24, 0.58, 0.70724 > sqrt(1/2), 1.41440 > sqrt(2), 1.5, ... 1000.
_LEVELS = tuple(
    Fraction(top, bottom)
    for top, bottom in (
        (41, 40),
        (9, 8),
        (4, 3),
        (14_143, 10_000),
        (1932, 1000),
        (2, 1),
        (4, 1),
        (8, 1),
        (32, 1),
        (1000, 1),
    )
)
_EXACT = 1e-300  # rounding, where nothing is rounded


class Pair(NamedTuple):
    """The two laws of the proof for sigma = 1.

    separation: Delta.
    root: S.
    """

    separation: Fraction
    root: Fraction

    @property
    def chance(self) -> Fraction:
        """p, as (12) has it."""
        return Fraction(1, 2) - self.separation / (2 * self.root)

    @property
    def size(self) -> Fraction:
        """delta, the upper atom: what (10) makes of p."""
        return self.separation / (1 - 2 * self.chance)

    @property
    def least_risk(self) -> Fraction:
        """delta^2 p^2/4."""
        return (self.size * self.chance) ** 2 / 4

    @property
    def means(self) -> tuple[Fraction, Fraction]:
        """E D_1 and E D_2."""
        return self.size * self.chance, self.size * (1 - self.chance)

    @property
    def variances(self) -> tuple[Fraction, Fraction]:
        """Of D_1 and D_2, about their means."""
        first, second = self.means
        low, high = self.chance, 1 - self.chance
        return (
            low * (self.size - first) ** 2 + high * first**2,
            high * (self.size - second) ** 2 + low * second**2,
        )


def pair(level: Fraction) -> Pair:
    """The laws with Delta = k - 1/k; k > 1."""
    return Pair(level - 1 / level, level + 1 / level)


Sides = Callable[[Pair], tuple[Fraction, Fraction]]


def check_identity(
    preset: Preset, *, name: str, sides: Sequence[Sides], factor: Fraction = Fraction(1)
) -> Verdict:
    """|left - `factor` right|/left = 0, for ten Delta."""
    del preset
    gaps = []
    for level in _LEVELS:
        for each in sides:
            left, right = each(pair(level))
            gaps.append(float(abs(left - factor * right) / left))
    values = np.array(gaps)
    return never_exceeds(
        name,
        values,
        np.zeros(len(values)),
        rounding=_EXACT,
        detail=f"Delta/sigma = 0.05 to 1000, in fractions: relative gap up to "
        f"{np.max(values):.3g}",
    )


def check_lower(
    preset: Preset,
    *,
    name: str,
    constant: Fraction,
    levels: Sequence[Fraction] = _LEVELS,
) -> Verdict:
    """C sigma^4/Delta^2 <= delta^2 p^2/4, for ten Delta or those that are given."""
    del preset
    laws = [pair(level) for level in levels]
    excess = [constant / one.separation**2 - one.least_risk for one in laws]
    ratios = [float(one.least_risk * one.separation**2) for one in laws]
    return never_exceeds(
        name,
        np.array([float(one) for one in excess]),
        np.zeros(len(laws)),
        rounding=_EXACT,
        detail=f"Delta from {float(laws[0].separation):.5f} sigma: delta^2 p^2/4 is "
        f"{min(ratios):.5f} to {max(ratios):.5f} times sigma^4/Delta^2, claimed "
        f"{float(constant):g}",
    )


def check_root(preset: Preset, *, least: float = 0.0) -> Verdict:
    """sqrt(1 + x) >= 1 + x/2 - x^2/8 from `least` to 10^6."""
    number = preset.choose(quick=2001, full=200_001)
    grid = np.concatenate([np.linspace(least, 8, number), np.geomspace(8, 1e6, number)])
    right = 1 + grid / 2 - grid**2 / 8
    return never_exceeds(
        ROOT,
        right,
        np.sqrt(1 + grid),
        rounding=1e-15 * (1 + np.abs(right)),
        detail=f"{grid.size} x from {least:g} to 10^6",
    )


_row = functools.partial(Statement, paper="werner", place="Theorem 2, proof")


_OFF = 1 + Fraction(1, 10**12)


def _equation(
    name: str, place: str, text: str, *sides: Sides, note: str = ""
) -> Statement:
    check = functools.partial(check_identity, name=name, sides=sides)
    return _row(
        id=name,
        preconditions=("0 < p < 1/2 and sigma, Delta > 0",),
        place=place,
        text=text,
        check=check,
        control=functools.partial(check, factor=_OFF),
        note=f"{note} The control is off by 10^-12.".strip(),
    )


def _printed(laws: Pair) -> tuple[Fraction, Fraction]:
    return laws.least_risk, (laws.root - laws.separation) / (4 * laws.separation)


def _square(laws: Pair) -> tuple[Fraction, Fraction]:
    return laws.least_risk, (laws.root - laws.separation) ** 2 / 16


STATEMENTS = (
    _equation(
        "werner.eq10",
        "Theorem 2, equation (10)",
        "Delta = (1 - p) delta - p delta = (1 - 2p) delta",
        lambda laws: (laws.separation, laws.means[1] - laws.means[0]),
    ),
    _equation(
        "werner.eq11",
        "Theorem 2, equation (11)",
        "sigma^2 = delta^2 p (1 - p)",
        lambda laws: (Fraction(1), laws.variances[0]),
        lambda laws: (Fraction(1), laws.variances[1]),
        lambda laws: (Fraction(1), laws.size**2 * laws.chance * (1 - laws.chance)),
        note="Both variances about the mean, with delta from (10) and p from (12).",
    ),
    _equation(
        "werner.eq12",
        "Theorem 2, equation (12)",
        "p = 1/2 - Delta/(2 sqrt(4 sigma^2 + Delta^2)) solves (4 sigma^2 + Delta^2) "
        "(p - p^2) = sigma^2",
        lambda laws: (
            Fraction(1),
            (4 + laws.separation**2) * (laws.chance - laws.chance**2),
        ),
    ),
    _equation(
        "werner.eq13",
        "Theorem 2, equation (13)",
        "delta^2 p^2/4 = sigma^2 p^2/(4 p (1 - p)) = sigma^2 p/(4 (1 - p))",
        lambda laws: (laws.least_risk, laws.chance / (4 * (1 - laws.chance))),
        note="The next line of the paper is wrong, see werner.thm2.printed.",
    ),
    _row(
        id=PRINTED,
        preconditions=("sigma, Delta > 0",),
        place="Theorem 2, after equation (13)",
        text="delta^2 p^2/4 = (sigma^2/4) (sqrt(4 sigma^2 + Delta^2) - Delta)/Delta",
        expected=Status.VIOLATED,
        check=functools.partial(check_identity, name=PRINTED, sides=(_printed,)),
        control=functools.partial(
            check_identity, name=PRINTED, sides=(_printed,), factor=Fraction(1, 2)
        ),
        note="p/(1 - p) = (S - Delta)/(S + Delta): the denominator became Delta, which "
        "is more than twice too much for every Delta. The control has half of it.",
    ),
    _equation(
        f"{PRINTED}.corrected",
        "Theorem 2, after equation (13)",
        "delta^2 p^2/4 = (S - Delta)^2/16 with S = sqrt(4 sigma^2 + Delta^2)",
        _square,
    ),
    _row(
        id=LOWER,
        preconditions=("sigma, Delta > 0 and Delta^2 >= 2 sigma^2",),
        place="Theorem 2, last display but one",
        text="delta^2 p^2/4 >= sigma^4/(4 Delta^2) for Delta^2 >= 2 sigma^2",
        expected=Status.VIOLATED,
        check=functools.partial(
            check_lower, name=LOWER, constant=Fraction(1, 4), levels=_LEVELS[4:]
        ),
        control=functools.partial(
            check_lower, name=LOWER, constant=Fraction(1, 5), levels=_LEVELS[4:]
        ),
        note="False for every Delta: S - Delta = 4 sigma^2/(S + Delta) < 2 "
        "sigma^2/Delta. The control claims 1/5, which is false for the first Delta.",
    ),
    _row(
        id=f"{LOWER}.corrected",
        preconditions=("sigma, Delta > 0 and Delta^2 >= sigma^2/2",),
        place="Theorem 2, last display but one",
        text="delta^2 p^2/4 >= sigma^4/(16 Delta^2) for Delta^2 >= sigma^2/2",
        check=functools.partial(
            check_lower,
            name=f"{LOWER}.corrected",
            constant=Fraction(1, 16),
            levels=_LEVELS[3:],
        ),
        control=functools.partial(
            check_lower,
            name=f"{LOWER}.corrected",
            constant=Fraction(1, 16),
            levels=(Fraction(14_095, 10_000),),
        ),
        note="Delta^2 >= 2 sigma^2 of the paper is more than enough, and gives 0.134 "
        "sigma^4/Delta^2. The control has Delta = 0.70003 sigma.",
    ),
    _row(
        id=ROOT,
        preconditions=("x from 0 to 8",),
        place="Theorem 2, after equation (13)",
        text="sqrt(1 + x) >= 1 + x/2 - x^2/8 for x in [0, 8]",
        check=check_root,
        control=functools.partial(check_root, least=-0.5),
        note="For all x >= 0: the third derivative is positive. The restriction is not "
        "needed. The control begins at -0.5.",
    ),
)
