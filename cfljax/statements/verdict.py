"""Typed answers to the question "does this statement survive the check?"."""

import dataclasses
import enum
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Shaped

from cfljax.statements.margin import Real


class Status(enum.Enum):
    """The four possible answers."""

    HOLDS = "holds"  # the whole interval is on the claimed side
    VIOLATED = "violated"  # the whole interval is on the other side
    # It excludes nothing: wherever its preconditions are met its bound is trivial (a
    # probability of 1 or more, an infinite number), or nothing meets them.
    VACUOUS = "vacuous"
    INCONCLUSIVE = "inconclusive"  # neither, or some value was undefined


class Grade(enum.Enum):
    """How a verdict is known, the strongest evidence first."""

    PROVED = "proved"  # for all parameters, each step checked by computer
    EXACT = "exact law on a grid"  # computed up to rounding, at the points of the check
    SEARCHED = "searched"  # computed, at the worst case that optimisation found
    SAMPLED = "sampled, finite-sample"  # the error rate holds at every sample size
    NOMINAL = "sampled, nominal"  # the error rate is approached as samples grow

    @property
    def rank(self) -> int:
        """0 for the strongest."""
        return list(Grade).index(self)


class Points(NamedTuple):
    """Every point of a check, to be drawn as truth against bound.

    bounds: `[points]`, what is claimed.
    low, high: `[points]`, interval of the truth; both the value itself where nothing
      is random.
    kind: "bound" (truth <= claim), "equal" (truth = claim) or "band" (see `upper`).
    scale: "log" where all numbers are natural logarithms of what is compared.
    upper: `[points]`, for "band": the claim is `bounds <= truth <= upper`.
    coordinates: `[points]` each, parameters by name, where the check says them.
    """

    bounds: Float[np.ndarray, " points"]
    low: Float[np.ndarray, " points"]
    high: Float[np.ndarray, " points"]
    kind: Literal["bound", "equal", "band"] = "bound"
    scale: Literal["number", "log"] = "number"
    upper: Float[np.ndarray, " points"] | None = None
    coordinates: Mapping[str, Shaped[np.ndarray, " points"]] = {}


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Outcome of one check, at its most telling point.

    Attributes:
      statement: id of the statement, such as "ifca.lem1.bound".
      status: see `Status`.
      bound: what the statement promises at that point.
      interval: contains the true value at every point of the check together, except
        with probability `error_rate`; a wrong HOLDS or VIOLATED is no likelier.
      error_rate: of the check as a whole; 0 where nothing is random but rounding. It
        is a promise unless `grade` is `NOMINAL`.
      num_trials: independent trials, or points of a deterministic check, in all.
      resolution: a truth further than this from the claim, on its wrong side, would
        have been flagged except with probability `error_rate`; rounding error in a
        deterministic check.
      seconds: time taken, filled in by whoever runs the check.
      detail: one line on what was done.
      grade: how it is known; the weakest if the judge was not told.
      slack: decades from the upper end of the truth's interval to the bound, at the
        tightest point; NaN where the claim is no upper bound.
      points: all points of the check.
    """

    statement: str
    status: Status
    bound: float
    interval: tuple[float, float]
    error_rate: float
    num_trials: int
    resolution: float
    seconds: float = math.nan
    detail: str = ""
    grade: Grade = Grade.NOMINAL
    slack: float = math.nan
    points: Points | None = dataclasses.field(default=None, compare=False)


def combine(
    statement: str,
    verdicts: Sequence[Verdict],
    *,
    parts: Sequence[str] = (),
    detail: str = "",
) -> Verdict:
    """The verdict on "all of these hold".

    Violated if one is violated, else inconclusive if one is, else vacuous if all are,
    else holds. Numbers are those of the first verdict that decides; error rates and
    trials add up, and the slack is the smallest. One violation suffices, so that its
    grade is the result's; else the weakest grade is.

    Args:
      statement: id carried into the result.
      verdicts: at least one.
      parts: a name for each, which its points get as the coordinate `part`.
      detail: replaces the deciding verdict's own line unless empty.

    Raises:
      ValueError: if `verdicts` is empty, or `parts` are not as many.
    """
    if not verdicts:
        raise ValueError("`verdicts` must hold at least one verdict, got none.")
    if parts and len(parts) != len(verdicts):
        raise ValueError(
            f"`parts` must name {len(verdicts)} verdicts, got {len(parts)} names."
        )
    ranking = (Status.VIOLATED, Status.INCONCLUSIVE, Status.HOLDS, Status.VACUOUS)
    deciding = min(verdicts, key=lambda verdict: ranking.index(verdict.status))
    grade = max((verdict.grade for verdict in verdicts), key=lambda one: one.rank)
    return dataclasses.replace(
        deciding,
        statement=statement,
        grade=deciding.grade if deciding.status is Status.VIOLATED else grade,
        error_rate=sum(verdict.error_rate for verdict in verdicts),
        num_trials=sum(verdict.num_trials for verdict in verdicts),
        detail=detail or deciding.detail,
        slack=min(
            (one.slack for one in verdicts if not math.isnan(one.slack)),
            default=math.nan,
        ),
        points=_joined([one.points for one in verdicts], parts) or deciding.points,
    )


def _joined(parts: Sequence[Points | None], names: Sequence[str]) -> Points | None:
    """All points together, where they make the same kind of claim."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts) or len({(p.kind, p.scale) for p in known}) > 1:
        return None
    uppers = [part.upper for part in known if part.upper is not None]
    sizes = [len(part.bounds) for part in known]
    coordinates = [dict(part.coordinates) for part in known]
    for places, size, name in zip(coordinates, sizes, names, strict=False):
        places["part"] = np.full(size, name)
    return known[0]._replace(
        bounds=np.concatenate([part.bounds for part in known]),
        low=np.concatenate([part.low for part in known]),
        high=np.concatenate([part.high for part in known]),
        upper=np.concatenate(uppers) if uppers else None,
        coordinates={
            name: _filled([places.get(name) for places in coordinates], sizes)
            for name in dict.fromkeys(itertools.chain(*coordinates))
        },
    )


def _filled(
    values: Sequence[Shaped[np.ndarray, " _"] | None], sizes: Sequence[int]
) -> Shaped[np.ndarray, " points"]:
    """One coordinate of all parts: NaN, or no text, in those that do not have it."""
    words = any(value is not None and value.dtype.kind == "U" for value in values)
    missing = "" if words else np.nan
    return np.concatenate(
        [
            np.full(size, missing) if value is None else value
            for value, size in zip(values, sizes, strict=True)
        ]
    )


# Values of parameters by name, which broadcast against an array of points.
Coordinates = Mapping[str, Shaped[np.ndarray, "*#points"] | Real | str] | None


def spread(
    coordinates: Coordinates,
    shape: tuple[int, ...],
) -> dict[str, Shaped[np.ndarray, " points"]]:
    """Every coordinate at every point, in the order of the points of an array of
    `shape`.

    Raises:
      ValueError: if one does not broadcast to `shape`.
    """
    return {
        name: np.broadcast_to(np.asarray(values), shape).ravel()
        for name, values in (coordinates or {}).items()
    }
