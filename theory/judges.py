"""Judges: from counts or numbers to a verdict, with the error rate stated.

Each judge takes a whole grid of points, divides its error rate over it and reports the
most telling point. An undefined value (NaN) is never evidence for a claim: it turns
HOLDS into INCONCLUSIVE.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Num

from cfljax import intervals
from theory.verdict import Status, Verdict

__all__ = ["ERROR_RATE", "Tally", "at_most", "equals", "never_exceeds", "tally"]

# Per statement: a thousand statements are wrong together with chance below 1e-3.
ERROR_RATE = 1e-6


class Tally(NamedTuple):
    """Events counted at each point of a grid.

    events: `[points]`, trials in which the event happened.
    undefined: `[points]`, trials that could not be decided.
    trials: `[points]`, all trials.
    """

    events: Num[np.ndarray, " points"]
    undefined: Num[np.ndarray, " points"]
    trials: Num[np.ndarray, " points"]


def tally(
    events: Bool[np.ndarray, "*points trials"] | Float[np.ndarray, "*points trials"],
) -> Tally:
    """Count events over the last axis.

    Args:
      events: `[trials]` or `[points, trials]`, true or 1 where the event happened, NaN
        where it is undefined.

    Raises:
      ValueError: if there are no trials or a value is none of 0, 1 and NaN.
    """
    if events.size == 0:
        raise ValueError(f"`events` must hold trials, got shape {events.shape}.")
    events = np.atleast_2d(events.astype(float))
    undefined = np.isnan(events)
    if not np.all(undefined | (events == 0) | (events == 1)):
        raise ValueError("`events` must be 0, 1 or NaN, got other values.")
    return Tally(
        events=np.nansum(events, axis=-1),
        undefined=np.sum(undefined, axis=-1),
        trials=np.full(len(events), events.shape[-1]),
    )


def at_most(
    statement: str,
    counts: Tally,
    bounds: Num[np.ndarray, " points"],
    *,
    error_rate: float = ERROR_RATE,
    detail: str = "",
) -> Verdict:
    """Judge the claim P(event) <= bound at every point.

    Clopper-Pearson intervals at `error_rate` over the number of points. Undefined
    trials count as events at the upper end and as non-events at the lower one. Points
    whose bound is 1 or more are true whatever happens, and left out unless all are.

    Args:
      statement: id carried into the verdict.
      counts: `[points]`, from `tally`.
      bounds: `[points]`, claimed probabilities.
      error_rate: chance that any of the intervals misses.
      detail: one line carried into the verdict.

    Returns:
      Verdict at the point whose interval reaches furthest towards its bound, in units
      of the interval's width.
    """
    low, high = _limits(counts, error_rate)
    open_points = ~(bounds >= 1)  # NaN stays open, and is then inconclusive
    violated = open_points & (low > bounds)
    held = ~open_points | ((high <= bounds) & (counts.undefined == 0))
    if np.any(violated):
        status = Status.VIOLATED
    elif not np.all(held):
        status = Status.INCONCLUSIVE
    else:
        status = Status.HOLDS if np.any(open_points) else Status.VACUOUS
    reach = (low + high - 2 * bounds) / (high - low)
    worst = _most_telling(np.where(open_points, reach, -np.inf), violated)
    return Verdict(
        statement=statement,
        status=status,
        bound=float(bounds[worst]),
        interval=(float(low[worst]), float(high[worst])),
        error_rate=error_rate,
        num_trials=int(np.sum(counts.trials)),
        resolution=_resolution(bounds, counts, error_rate, open_points),
        detail=detail,
    )


def equals(
    statement: str,
    counts: Tally,
    probabilities: Num[np.ndarray, " points"],
    *,
    resolution: float,
    error_rate: float = ERROR_RATE,
    detail: str = "",
) -> Verdict:
    """Judge the claim P(event) = probability at every point.

    No experiment can prove an equality. HOLDS means: every interval contains its
    probability, and a true probability off by `resolution` would have been flagged.

    Args:
      statement: id carried into the verdict.
      counts: `[points]`, from `tally`.
      probabilities: `[points]`, claimed probabilities.
      resolution: discrepancy that the check must be able to notice at every point; if
        the trials are too few for it the verdict is INCONCLUSIVE.
      error_rate: chance that any of the intervals misses.
      detail: one line carried into the verdict.

    Returns:
      Verdict at the point that is furthest off, in units of its interval's width.
    """
    low, high = _limits(counts, error_rate)
    outside = (probabilities < low) | (probabilities > high)
    defined = np.all(counts.undefined == 0) and not np.any(np.isnan(probabilities))
    noticed = _resolution(
        probabilities, counts, error_rate, np.isfinite(probabilities), side="both"
    )
    if np.any(outside):
        status = Status.VIOLATED
    elif defined and noticed <= resolution:
        status = Status.HOLDS
    else:
        status = Status.INCONCLUSIVE
    distance = np.abs(low + high - 2 * probabilities) / (high - low)
    worst = _most_telling(distance, outside)
    return Verdict(
        statement=statement,
        status=status,
        bound=float(probabilities[worst]),
        interval=(float(low[worst]), float(high[worst])),
        error_rate=error_rate,
        num_trials=int(np.sum(counts.trials)),
        resolution=noticed,
        detail=detail,
    )


def never_exceeds(
    statement: str,
    values: Num[np.ndarray, " points"],
    bounds: Num[np.ndarray, " points"],
    *,
    rounding: Num[np.ndarray, " points"] | float,
    detail: str = "",
) -> Verdict:
    """Judge the claim value <= bound at every point, where nothing is random.

    Args:
      statement: id carried into the verdict.
      values: `[points]`, computed left-hand sides.
      bounds: `[points]`, computed right-hand sides; +inf is no claim.
      rounding: `[points]` or one number, bound on the floating-point error of
        `values - bounds`. It is no tolerance: nothing else may be put into it.
      detail: one line carried into the verdict.

    Returns:
      Verdict at the point of largest excess over its rounding error; VACUOUS if every
      bound is +inf.

    Raises:
      ValueError: if there are no points or `rounding` is not positive and finite.
    """
    rounding = np.broadcast_to(np.asarray(rounding, float), values.shape)
    if values.size == 0:
        raise ValueError("`values` must hold at least one point, got none.")
    if not np.all((rounding > 0) & np.isfinite(rounding)):
        raise ValueError(f"`rounding` must be positive and finite, got {rounding}.")
    claimed = ~(bounds == np.inf)
    with np.errstate(invalid="ignore"):  # inf - inf is undefined, as it should be
        excess = np.where(claimed, values - bounds, -np.inf)
    violated = excess > rounding
    if np.any(violated):
        status = Status.VIOLATED
    elif np.any(np.isnan(excess)) or np.any(np.isnan(values)):
        status = Status.INCONCLUSIVE
    else:
        status = Status.HOLDS if np.any(claimed) else Status.VACUOUS
    worst = _most_telling(excess / rounding, violated)
    value, error = float(values[worst]), float(rounding[worst])
    return Verdict(
        statement=statement,
        status=status,
        bound=float(bounds[worst]),
        interval=(value - error, value + error),
        error_rate=0.0,
        num_trials=int(values.size),
        resolution=error,
        detail=detail,
    )


def _limits(
    counts: Tally, error_rate: float
) -> tuple[Float[np.ndarray, " points"], Float[np.ndarray, " points"]]:
    each = intervals.divide(error_rate, len(counts.trials))
    low, _ = intervals.clopper_pearson(counts.events, counts.trials, error_rate=each)
    possible = counts.events + counts.undefined
    _, high = intervals.clopper_pearson(possible, counts.trials, error_rate=each)
    return low, high


def _resolution(
    probabilities: Num[np.ndarray, " points"],
    counts: Tally,
    error_rate: float,
    where: Bool[np.ndarray, " points"],
    *,
    side: str = "above",
) -> float:
    """The coarsest resolution over the points that make a claim; NaN if none does."""
    where = where & np.isfinite(probabilities)
    if not np.any(where):
        return float("nan")
    return float(
        np.max(
            intervals.resolution(
                np.clip(probabilities[where], 0, 1),
                counts.trials[where],
                error_rate=intervals.divide(error_rate, len(counts.trials)),
                side="both" if side == "both" else "above",
            )
        )
    )


def _most_telling(
    scores: Float[np.ndarray, " points"], violated: Bool[np.ndarray, " points"]
) -> int:
    """Index of the largest score among the violated points, else of an undefined
    score, else of the largest."""
    if np.any(violated):
        return int(np.argmax(np.where(violated, scores, -np.inf)))
    return int(np.argmax(np.where(np.isnan(scores), np.inf, scores)))
