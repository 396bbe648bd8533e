"""Typed answers to the question "does this statement survive the check?"."""

import dataclasses
import enum
import math
from collections.abc import Sequence

__all__ = ["Status", "Verdict", "combine"]


class Status(enum.Enum):
    """The four possible answers."""

    HOLDS = "holds"  # the whole interval is on the claimed side
    VIOLATED = "violated"  # the whole interval is on the other side
    VACUOUS = "vacuous"  # the claim is true whatever the data say
    INCONCLUSIVE = "inconclusive"  # neither, or some value was undefined


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Outcome of one check, at its most telling point.

    Attributes:
      statement: id of the statement, such as "ifca.lem1.bound".
      status: see `Status`.
      bound: what the statement promises at that point.
      interval: contains the true value at every point of the check together, except
        with probability `error_rate`; a wrong HOLDS or VIOLATED is no likelier.
      error_rate: of the check as a whole; 0 where nothing is random but rounding.
      num_trials: independent trials, or points of a deterministic check, in all.
      resolution: a truth further than this from the claim, on its wrong side, would
        have been flagged except with probability `error_rate`; rounding error in a
        deterministic check.
      seconds: time taken, filled in by whoever runs the check.
      detail: one line on what was done.
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


def combine(
    statement: str, verdicts: Sequence[Verdict], *, detail: str = ""
) -> Verdict:
    """The verdict on "all of these hold".

    Violated if one is violated, else inconclusive if one is, else vacuous if all are,
    else holds. Numbers are those of the first verdict that decides; error rates and
    trials add up.

    Args:
      statement: id carried into the result.
      verdicts: at least one.
      detail: replaces the deciding verdict's own line unless empty.

    Raises:
      ValueError: if `verdicts` is empty.
    """
    if not verdicts:
        raise ValueError("`verdicts` must hold at least one verdict, got none.")
    ranking = (Status.VIOLATED, Status.INCONCLUSIVE, Status.HOLDS, Status.VACUOUS)
    deciding = min(verdicts, key=lambda verdict: ranking.index(verdict.status))
    return dataclasses.replace(
        deciding,
        statement=statement,
        error_rate=sum(verdict.error_rate for verdict in verdicts),
        num_trials=sum(verdict.num_trials for verdict in verdicts),
        detail=detail or deciding.detail,
    )
