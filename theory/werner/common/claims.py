"""The judge of claims LHS <~ RHS with a hidden constant, and their rows.

Such a claim says that one constant does for all instances. Along a family of instances,
whose assumptions are met by a margin that does not shrink, the ratio of both sides may
not grow like a power, and may not exceed the constant that was declared beforehand.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Num, Shaped

from cfljax.statements import (
    ERROR_RATE,
    Grade,
    Real,
    Statement,
    Status,
    Verdict,
    combine,
    within,
)
from theory.rows import row

DECLARED = 16.0  # constant of a claim, unless its row says otherwise
LARGEST_SLOPE = 0.1  # power of the level that counts as no growth

_ROUNDING = 1e-9  # of a ratio that is computed, relative


def no_constant(
    *,
    check: Callable[..., Verdict],
    relief: float = 1.0,
    claimed: str = r"one unnamed constant in $\lesssim$",
    **fields: Any,
) -> Statement:
    """A row whose claim LHS <~ RHS no constant makes true, by the growth of the ratio
    alone; its check is by `one_constant`, and `relief` that of its control, which makes
    the claim true: the power with which the ratio grows."""
    return row(
        check=functools.partial(check, constant=float("inf")),
        control={"relief": relief},
        claimed=claimed,
        expected=Status.VIOLATED,
        **fields,
    )


class Family(NamedTuple):
    """Ratios LHS/RHS, by the ends of their intervals, along one named parameter with
    positive, rising levels."""

    name: str
    levels: Float[np.ndarray, " levels"]
    low: Float[np.ndarray, " levels"]
    high: Float[np.ndarray, " levels"]
    # Parameters at each level, by their names in the glossary.
    coordinates: Mapping[str, Num[np.ndarray, " levels"] | Real] = {}

    @property
    def slope(self) -> tuple[float, float]:
        """Least and largest slope, by least squares in logarithms, of all ratios
        within the intervals."""
        centred = np.log(self.levels) - np.mean(np.log(self.levels))
        ends = np.log([self.low, self.high])
        parts = np.sort(centred / np.sum(centred**2) * ends, axis=0)
        return float(np.sum(parts[0])), float(np.sum(parts[1]))

    def relieved(self, power: float) -> "Family":
        """The same with the claim's right side raised by (level/first level)^power."""
        ease = (self.levels / self.levels[0]) ** power
        return self._replace(low=self.low / ease, high=self.high / ease)


def exactly(
    name: str,
    levels: Float[np.ndarray, " levels"],
    ratios: Float[np.ndarray, " levels"],
    **coordinates: Num[np.ndarray, " levels"] | Real,
) -> Family:
    """A family whose ratios are computed, up to rounding."""
    low, high = ratios * (1 - _ROUNDING), ratios * (1 + _ROUNDING)
    return Family(name, levels, low, high, coordinates)


def _joined(families: Sequence[Family]) -> dict[str, Shaped[np.ndarray, " points"]]:
    """Their parameters at every level of each, NaN where one has none, and `part`, the
    name of each of several."""

    def spread(values: Sequence[Any]) -> Shaped[np.ndarray, " points"]:
        pairs = zip(values, families, strict=True)
        return np.concatenate([np.broadcast_to(v, f.levels.shape) for v, f in pairs])

    names = dict.fromkeys(itertools.chain(*(one.coordinates for one in families)))
    found = {
        name: spread([one.coordinates.get(name, np.nan) for one in families])
        for name in names
    }
    if len(families) > 1:
        found["part"] = spread([one.name for one in families])
    return found


def one_constant(
    statement: str,
    families: Sequence[Family],
    *,
    constant: float = DECLARED,
    relief: float = 0.0,
    num_trials: int = 0,
    error_rate: float | None = None,
    grade: Grade | None = None,
    sharp: float = 0.0,
    detail: str = "",
) -> Verdict:
    """Judge the claim that LHS <= C RHS in all families, with C declared.

    HOLDS: no ratio grows faster than the level to the power of `LARGEST_SLOPE`, and
    none exceeds `constant`. VIOLATED: one does, by the whole of its interval. A claim
    weakened by `relief`, see `Family.relieved`, is harder to refute. `num_trials` are
    behind the intervals, or the number of ratios if 0; `error_rate` is that of all
    intervals, 0 if None and there are no trials; `grade` is theirs, if None EXACT where
    there are no trials and NOMINAL where there are. With `sharp`, the largest ratio
    must also be at least that share of `constant`, and no ratio may fall faster than
    grow. `detail` is put before what was found.
    """
    if error_rate is None:
        error_rate = ERROR_RATE if num_trials else 0.0
    if grade is None:
        grade = Grade.NOMINAL if num_trials else Grade.EXACT
    families = [one.relieved(relief) for one in families]
    slopes = np.array([one.slope for one in families])
    low = np.concatenate([one.low for one in families])
    number = num_trials or low.size
    found = "; ".join(
        f"{one.name} = {one.levels[0]:g} to {one.levels[-1]:g}: ratio "
        f"{(one.low[0] + one.high[0]) / 2:.3g} to "
        f"{(one.low[-1] + one.high[-1]) / 2:.3g}, slope {sum(one.slope) / 2:.3f}"
        for one in families
    )
    high = np.concatenate([one.high for one in families])
    judged = functools.partial(
        within, statement, num_trials=number, error_rate=error_rate, grade=grade
    )
    least = -LARGEST_SLOPE if sharp else -np.inf
    growth = judged((slopes[:, 0], slopes[:, 1]), (least, LARGEST_SLOPE))
    size = judged((low, high), (-np.inf, constant), coordinates=_joined(families))
    parts = [growth, size]
    if sharp:
        top = np.max(low), np.max(high)
        parts.append(judged(top, (sharp * constant, np.inf)))
    # All come from the same intervals: neither rate nor trials add up.
    both = combine(statement, parts, detail=f"{detail}: {found}" if detail else found)
    largest, bounded = float(np.max(high)), math.isfinite(constant)
    return dataclasses.replace(
        both,
        num_trials=number,
        error_rate=error_rate,
        slack=math.log10(constant / largest) if bounded and largest > 0 else math.nan,
        points=size.points,
    )


def reached(
    statement: str,
    ratios: Sequence[float],
    shares: Sequence[float],
    *,
    room: float = 0.02,
) -> Verdict:
    """Judge the claim that of a bound just the share that is known, up to `room` of it,
    is reached at each of some points, computed: where one term is nearly all of the
    bound, it can be neither much larger nor much smaller there."""
    low, middle = np.asarray(ratios, float), np.asarray(shares, float)
    return within(
        statement,
        (low * (1 - _ROUNDING), low * (1 + _ROUNDING)),
        (middle * (1 - room), middle * (1 + room)),
        num_trials=low.size,
        error_rate=0.0,
        grade=Grade.EXACT,
    )
