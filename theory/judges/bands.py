"""Judges of estimated numbers and of samples: slopes, means, whole laws."""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float, Num

from theory.judges.shared import ERROR_RATE, most_telling
from theory.verdict import Points, Status, Verdict

__all__ = ["same_law", "within"]

Cdf = Callable[[Float[np.ndarray, " samples"]], Float[np.ndarray, " samples"]]


def within(
    statement: str,
    interval: tuple[Num[np.ndarray, " points"], Num[np.ndarray, " points"]],
    band: tuple[Num[np.ndarray, " points"], Num[np.ndarray, " points"]],
    *,
    num_trials: int,
    error_rate: float = ERROR_RATE,
    detail: str = "",
) -> Verdict:
    """Judge the claim that a number lies in a band, at every point.

    HOLDS takes the whole interval inside its band at every point, VIOLATED one interval
    wholly outside; a band too narrow for the trials is INCONCLUSIVE.

    Args:
      statement: id carried into the verdict.
      interval: two `[points]`, ends of intervals that hold jointly except with
        `error_rate`, such as those of `cfljax.intervals.slope`.
      band: two `[points]`, ends of what is claimed; infinite where one-sided.
      num_trials: independent trials behind the intervals, in all.
      error_rate: of the intervals, all together.
      detail: one line carried into the verdict.

    Returns:
      Verdict at the point that reaches furthest towards the edge of its band, in units
      of its interval's width; `bound` is the nearer edge.
    """
    low, high = (np.asarray(end, float) for end in interval)
    bottom, top = (np.asarray(end, float) for end in band)
    outside = (high < bottom) | (low > top)
    inside = (low >= bottom) & (high <= top)
    if np.any(outside):
        status = Status.VIOLATED
    else:
        status = Status.HOLDS if np.all(inside) else Status.INCONCLUSIVE
    # An interval of no width is infinitely telling; one of infinite ends says nothing.
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        reach = high - low
        width = np.maximum(reach, np.finfo(float).tiny)
        over, under = (low + high - 2 * top) / width, (2 * bottom - low - high) / width
    worst = most_telling(np.fmax(over, under), outside)
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
        points=Points(bottom, low, high, kind="band", upper=top),
    )


def same_law(
    statement: str,
    first: Sequence[Num[np.ndarray, " _"]],
    second: Sequence[Num[np.ndarray, " _"] | Cdf],
    *,
    resolution: float,
    error_rate: float = ERROR_RATE,
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
    if np.any(violated):
        status = Status.VIOLATED
    elif np.any(np.isnan(distance)) or noticed > resolution:
        status = Status.INCONCLUSIVE
    else:
        status = Status.HOLDS
    worst = most_telling(distance / reach, violated)
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
        points=Points(np.zeros_like(low), low, high, kind="equal"),
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
