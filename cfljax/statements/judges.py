"""Judges: from counts or numbers to a verdict, with the error rate stated.

Each judge takes a whole grid of points, divides its error rate over it and reports the
most telling point. An undefined value (NaN) is never evidence for a claim: it turns
HOLDS into INCONCLUSIVE. Where the points have names and numbers, `coordinates` carries
them to whoever reads the verdict: `[points]` or one value for all, by parameter.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Num

from cfljax.statements.verdict import (
    Coordinates,
    Grade,
    Points,
    Status,
    Verdict,
    spread,
)

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
    bounds: Num[np.ndarray, " points"] | float,
    *,
    error_rate: float = ERROR_RATE,
    coordinates: Coordinates = None,
    detail: str = "",
) -> Verdict:
    """Judge the claim P(event) <= bound at every point.

    Clopper-Pearson intervals at `error_rate` over the number of points. Undefined
    trials count as events at the upper end and as non-events at the lower one. Points
    whose bound is 1 or more are true whatever happens, and left out unless all are.

    Args:
      statement: id carried into the verdict.
      counts: `[points]`, from `tally`.
      bounds: `[points]` or one for all, claimed probabilities.
      error_rate: chance that any of the intervals misses.
      coordinates: of the points, see above.
      detail: one line carried into the verdict.

    Returns:
      Verdict at the point whose interval reaches furthest towards its bound, in units
      of the interval's width.
    """
    bounds = np.broadcast_to(np.asarray(bounds, float), counts.trials.shape)
    low, high = _limits(counts, error_rate)
    open_points = ~(bounds >= 1)  # NaN stays open, and is then inconclusive
    violated = open_points & (low > bounds)
    held = ~open_points | ((high <= bounds) & (counts.undefined == 0))
    status = _status(violated, np.all(held), open_points)
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
        grade=Grade.SAMPLED,
        slack=_slack(np.where(open_points, bounds, np.nan), high),
        points=Points(bounds, low, high, coordinates=spread(coordinates, low.shape)),
    )


def equals(
    statement: str,
    counts: Tally,
    probabilities: Num[np.ndarray, " points"],
    *,
    resolution: float,
    error_rate: float = ERROR_RATE,
    coordinates: Coordinates = None,
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
      coordinates: of the points, see above.
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
    status = _status(outside, defined and noticed <= resolution)
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
        grade=Grade.SAMPLED,
        points=Points(
            np.asarray(probabilities, float),
            low,
            high,
            kind="equal",
            coordinates=spread(coordinates, low.shape),
        ),
    )


def _status(
    violated: Bool[np.ndarray, " points"],
    holds: bool | np.bool_,
    claimed: Bool[np.ndarray, " points"] | bool = True,
) -> Status:
    """The answer, once it is known where the claim is refuted and says anything."""
    if np.any(violated):
        return Status.VIOLATED
    if not holds:
        return Status.INCONCLUSIVE
    return Status.HOLDS if np.any(claimed) else Status.VACUOUS


def _limits(
    counts: Tally, error_rate: float
) -> tuple[Float[np.ndarray, " points"], Float[np.ndarray, " points"]]:
    """Ends of intervals that hold jointly, undefined trials read as the worst."""
    from cfljax import intervals

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
    from cfljax import intervals

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


def never_exceeds(
    statement: str,
    values: Num[np.ndarray, "*points"] | float,
    bounds: Num[np.ndarray, "*#points"] | float,
    *,
    rounding: Num[np.ndarray, "*#points"] | float,
    logarithmic: bool = False,
    grade: Grade,
    coordinates: Coordinates = None,
    detail: str = "",
) -> Verdict:
    """Judge the claim value <= bound at every point, where nothing is random.

    Args:
      statement: id carried into the verdict.
      values: computed left-hand sides, of any shape.
      bounds: computed right-hand sides, which broadcast; +inf is no claim.
      rounding: bound on the floating-point error of `values - bounds`, which
        broadcasts. It is no tolerance: nothing else may be put into it.
      logarithmic: whether both sides are natural logarithms of what is compared.
      grade: `EXACT` where nothing is drawn or found by optimisation; `SEARCHED` where
        an optimisation found the points; that of the intervals where the values are
        ends of some.
      coordinates: of the points, see above.
      detail: one line carried into the verdict.

    Returns:
      Verdict at the point of largest excess over its rounding error; VACUOUS if every
      bound is +inf.

    Raises:
      ValueError: if there are no points or `rounding` is not positive and finite.
    """
    shape = np.shape(values)
    values, bounds, rounding = (
        np.broadcast_to(np.asarray(part, float), shape).ravel()
        for part in (values, bounds, rounding)
    )
    if values.size == 0:
        raise ValueError("`values` must hold at least one point, got none.")
    if not np.all((rounding > 0) & np.isfinite(rounding)):
        raise ValueError(f"`rounding` must be positive and finite, got {rounding}.")
    claimed = ~(bounds == np.inf)
    # inf - inf is undefined, as it should be; what overflows is past any rounding.
    with np.errstate(invalid="ignore", over="ignore"):
        excess = np.where(claimed, values - bounds, -np.inf)
        scores = excess / rounding
    violated = excess > rounding
    defined = not (np.any(np.isnan(excess)) or np.any(np.isnan(values)))
    status = _status(violated, defined, claimed)
    worst = _most_telling(scores, violated)
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
        grade=grade,
        slack=_decades(values, bounds) if logarithmic else _slack(bounds, values),
        points=Points(
            bounds,
            values,
            values,
            scale="log" if logarithmic else "number",
            coordinates=spread(coordinates, shape),
        ),
    )


def never_falls_below(
    statement: str,
    values: Num[np.ndarray, "*points"] | float,
    bounds: Num[np.ndarray, "*#points"] | float,
    *,
    rounding: Num[np.ndarray, "*#points"] | float,
    grade: Grade,
    coordinates: Coordinates = None,
    detail: str = "",
) -> Verdict:
    """Judge the claim value >= bound at every point, where nothing is random.

    As `never_exceeds` with both sides' signs turned; the points keep their signs, and
    are a band without an upper end, so that a truth is drawn above its claim.

    Args:
      statement: id carried into the verdict.
      values: computed truths, of any shape.
      bounds: claimed lower bounds, which broadcast; -inf is no claim.
      rounding: bound on the floating-point error of `values - bounds`.
      grade: as in `never_exceeds`.
      coordinates: of the points, see above.
      detail: one line carried into the verdict.

    Returns:
      Verdict at the point that is furthest below its bound; its slack is
      log10(value / bound) at the tightest point.

    Raises:
      ValueError: as `never_exceeds`.
    """
    shape = np.shape(values)
    least = np.broadcast_to(np.asarray(bounds, float), shape).ravel()
    truths = np.asarray(values, float).ravel()
    turned = never_exceeds(
        statement,
        -np.asarray(values, float),
        -np.asarray(bounds, float),
        rounding=rounding,
        grade=grade,
        coordinates=coordinates,
        detail=detail,
    )
    low, high = turned.interval
    return dataclasses.replace(
        turned,
        bound=-turned.bound,
        interval=(-high, -low),
        slack=_slack(truths, least),
        points=Points(
            least,
            truths,
            truths,
            kind="band",
            upper=np.full(least.shape, np.inf),
            coordinates=spread(coordinates, shape),
        ),
    )


def _decades(
    values: Num[np.ndarray, " points"], bounds: Num[np.ndarray, " points"]
) -> float:
    """Slack of two natural logarithms."""
    telling = np.isfinite(values) & np.isfinite(bounds)
    if not np.any(telling):
        return float("nan")
    return float(np.min(bounds[telling] - values[telling]) / np.log(10))


_Ends = Num[np.ndarray, "*points"] | float
Cdf = Callable[[Float[np.ndarray, " samples"]], Float[np.ndarray, " samples"]]


def within(
    statement: str,
    interval: tuple[_Ends, _Ends],
    band: tuple[_Ends, _Ends],
    *,
    num_trials: int,
    error_rate: float = ERROR_RATE,
    grade: Grade = Grade.NOMINAL,
    coordinates: Coordinates = None,
    detail: str = "",
) -> Verdict:
    """Judge the claim that a number lies in a band, at every point.

    HOLDS takes the whole interval inside its band at every point, VIOLATED one interval
    wholly outside; a band too narrow for the trials is INCONCLUSIVE.

    Args:
      statement: id carried into the verdict.
      interval: two `[points]` or two numbers, ends of intervals that hold jointly
        except with `error_rate`, such as those of `cfljax.intervals.slope`.
      band: ends of what is claimed, each `[points]` or one number; infinite where
        one-sided.
      num_trials: independent trials behind the intervals, in all.
      error_rate: of the intervals, all together.
      grade: of the intervals; the weakest unless it is said.
      coordinates: of the points, see above.
      detail: one line carried into the verdict.

    Returns:
      Verdict at the point that reaches furthest towards the edge of its band, in units
      of its interval's width; `bound` is the nearer edge.
    """
    low, high = (np.atleast_1d(np.asarray(end, float)) for end in interval)
    bottom, top = (np.broadcast_to(np.asarray(end, float), low.shape) for end in band)
    outside = (high < bottom) | (low > top)
    status = _status(outside, np.all((low >= bottom) & (high <= top)))
    # An interval of no width is infinitely telling; one of infinite ends says nothing.
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        reach = high - low
        width = np.maximum(reach, np.finfo(float).tiny)
        over, under = (low + high - 2 * top) / width, (2 * bottom - low - high) / width
    worst = _most_telling(np.fmax(over, under), outside)
    nearer = top if over[worst] >= under[worst] else bottom
    return Verdict(
        statement=statement,
        status=status,
        bound=float(nearer[worst]),
        interval=(float(low[worst]), float(high[worst])),
        error_rate=error_rate,
        num_trials=num_trials,
        resolution=float(np.max(reach)),
        detail=detail,
        grade=grade,
        points=Points(
            bottom,
            low,
            high,
            kind="band",
            upper=top,
            coordinates=spread(coordinates, low.shape),
        ),
    )


def same_law(
    statement: str,
    first: Sequence[Num[np.ndarray, " _"]],
    second: Sequence[Num[np.ndarray, " _"] | Cdf],
    *,
    resolution: float,
    error_rate: float = ERROR_RATE,
    coordinates: Coordinates = None,
    detail: str = "",
) -> Verdict:
    """Judge the claim that two samples have one law, or a sample a known one.

    By Kolmogorov's distance with the bands of Dvoretzky, Kiefer, Wolfowitz and Massart
    (1990), which hold at every sample size and for every law, atoms included. HOLDS
    means: no distance above its band, and a true distance of `resolution` would have
    been flagged.

    Args:
      statement: id carried into the verdict.
      first: one sample per point.
      second: per point another sample, or the claimed distribution function.
      resolution: distance, in [0, 1], that must be noticed; else INCONCLUSIVE.
      error_rate: chance that any of the bands misses.
      coordinates: of the points, see above.
      detail: one line carried into the verdict.

    Raises:
      ValueError: if there are no points, or not as many second as first.
    """
    if not first or len(first) != len(second):
        raise ValueError(
            f"`first` and `second` must hold as many samples, at least one, got "
            f"{len(first)} and {len(second)}."
        )
    each = error_rate / len(first)
    found = [_compare(one, two, each) for one, two in zip(first, second, strict=True)]
    distance, reach = np.array(found).T
    violated = distance > reach
    noticed = float(np.max(2 * reach))
    unknown = np.any(np.isnan(distance)) or noticed > resolution
    status = _status(violated, not unknown)
    worst = _most_telling(distance / reach, violated)
    low, high = np.maximum(distance - reach, 0), np.minimum(distance + reach, 1)
    return Verdict(
        statement=statement,
        status=status,
        bound=0.0,
        interval=(float(low[worst]), float(high[worst])),
        error_rate=error_rate,
        num_trials=sum(len(one) for one in first),
        resolution=noticed,
        detail=detail,
        grade=Grade.SAMPLED,
        points=Points(
            np.zeros_like(low),
            low,
            high,
            kind="equal",
            coordinates=spread(coordinates, low.shape),
        ),
    )


def _compare(
    one: Num[np.ndarray, " samples"],
    two: Num[np.ndarray, " others"] | Cdf,
    error_rate: float,
) -> tuple[float, float]:
    """Kolmogorov's distance and how far chance alone may take it; NaN if undefined."""
    one = np.sort(np.asarray(one, float))
    places = one if callable(two) else np.sort(np.concatenate([one, two]))
    undefined = bool(np.isnan(places).any())
    rank = np.searchsorted(one, places, side="right") / len(one)
    if callable(two):
        # Below each step of the sample as well as at it.
        before = np.searchsorted(one, places, side="left") / len(one)
        claimed, just_before = two(places), two(np.nextafter(places, -np.inf))
        gaps = np.concatenate([rank - claimed, before - just_before])
        reach = np.sqrt(np.log(2 / error_rate) / (2 * len(one)))
    else:
        other = np.sort(np.asarray(two, float))
        gaps = rank - np.searchsorted(other, places, side="right") / len(other)
        reach = sum(
            np.sqrt(np.log(4 / error_rate) / (2 * len(part))) for part in (one, other)
        )
    distance = float("nan") if undefined else float(np.max(np.abs(gaps)))
    return distance, float(reach)


def _slack(
    bounds: Num[np.ndarray, " points"], values: Num[np.ndarray, " points"]
) -> float:
    """Decades between bound and value at the tightest point, log10(bound / value), of
    points where both are positive; NaN if none is."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        telling = (bounds > 0) & (values > 0) & np.isfinite(bounds)
        if not np.any(telling):
            return float("nan")
        decades = np.log10(bounds[telling]) - np.log10(values[telling])
    return float(np.min(decades))


def _most_telling(
    scores: Float[np.ndarray, " points"], violated: Bool[np.ndarray, " points"]
) -> int:
    """Index of the largest score among the violated points, else of an undefined
    score, else of the largest."""
    if np.any(violated):
        return int(np.argmax(np.where(violated, scores, -np.inf)))
    return int(np.argmax(np.where(np.isnan(scores), np.inf, scores)))
