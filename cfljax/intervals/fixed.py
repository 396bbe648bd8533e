"""Intervals from a number of trials that was fixed beforehand.

Clopper-Pearson and Hoeffding never miss more often than the stated error rate;
Wilson is shorter, and misses at that rate only on average. `resolution` answers the
design question: how wrong can a probability be without being noticed?
"""

from typing import Literal

import numpy as np
import scipy.special
from jaxtyping import Float

from cfljax.intervals.checks import Interval, check_error_rate, checked_counts
from cfljax.types import Numbers

__all__ = [
    "clopper_pearson",
    "divide",
    "hoeffding",
    "resolution",
    "slope",
    "student",
    "wilson",
]


def divide(error_rate: float, num_checks: int) -> float:
    """Error rate of each of `num_checks` checks that together err at `error_rate`.

    Bonferroni's correction: valid whatever the dependence between the checks.

    Raises:
      ValueError: if `error_rate` is outside (0, 1) or `num_checks` below 1.
    """
    check_error_rate(error_rate)
    if num_checks < 1:
        raise ValueError(f"`num_checks` must be at least 1, got {num_checks}.")
    return error_rate / num_checks


def clopper_pearson(
    successes: Numbers,
    trials: Numbers,
    *,
    error_rate: float,
    side: Literal["both", "low", "high"] = "both",
) -> Interval:
    """Exact interval of a binomial probability (Clopper and Pearson, 1934).

    The ends solve P(Bin(trials, low) >= successes) = tail and
    P(Bin(trials, high) <= successes) = tail, quantiles of two beta laws. The interval
    misses the true probability with chance at most `error_rate`, for every
    probability and number of trials. Cost: two inverse beta functions per entry.

    Args:
      successes: number of events, broadcast against `trials`.
      trials: number of independent trials, at least 1.
      error_rate: chance to miss, in (0, 1).
      side: "both" puts half of `error_rate` on each end; "low" spends all of it on
        the lower end (the upper one is 1), "high" all of it on the upper end.

    Returns:
      `(low, high)`, in [0, 1], of the broadcast shape.

    Raises:
      ValueError: on counts outside `0 <= successes <= trials`, `trials < 1`, or an
        `error_rate` outside (0, 1).
    """
    successes, trials = checked_counts(successes, trials)
    check_error_rate(error_rate)
    if side not in ("both", "low", "high"):
        raise ValueError(f'`side` must be "both", "low" or "high", got {side!r}.')
    tail = error_rate / 2 if side == "both" else error_rate
    low, high = np.zeros(successes.shape), np.ones(successes.shape)
    failures = trials - successes
    if side != "high":
        quantile = scipy.special.betaincinv(
            np.maximum(successes, 1), failures + 1, tail
        )
        low = np.where(successes > 0, quantile, 0.0)
    if side != "low":
        quantile = scipy.special.betainccinv(
            successes + 1, np.maximum(failures, 1), tail
        )
        high = np.where(failures > 0, quantile, 1.0)
    return low, high


def wilson(successes: Numbers, trials: Numbers, *, error_rate: float) -> Interval:
    """Score interval of a binomial probability (Wilson, 1927).

    Shorter than Clopper-Pearson, but only approximate: its coverage oscillates around
    `1 - error_rate` and can fall well below it near 0 and 1. For plots, not verdicts.

    Args:
      successes: number of events, broadcast against `trials`.
      trials: number of independent trials, at least 1.
      error_rate: nominal chance to miss, in (0, 1).

    Returns:
      `(low, high)`, in [0, 1], of the broadcast shape.

    Raises:
      ValueError: as `clopper_pearson`.
    """
    successes, trials = checked_counts(successes, trials)
    check_error_rate(error_rate)
    z = scipy.special.ndtri(1 - error_rate / 2)
    share = successes / trials
    scale = 1 + z**2 / trials
    centre = (share + z**2 / (2 * trials)) / scale
    spread = z * np.sqrt(share * (1 - share) / trials + (z / (2 * trials)) ** 2) / scale
    low = np.where(successes == 0, 0.0, np.clip(centre - spread, 0, 1))
    high = np.where(successes == trials, 1.0, np.clip(centre + spread, 0, 1))
    return low, high


def hoeffding(
    mean: Numbers,
    trials: Numbers,
    error_rate: float,
    *,
    low: float = 0.0,
    high: float = 1.0,
) -> Interval:
    """Interval of the expectation of a variable in `[low, high]` (Hoeffding, 1963).

    The radius is (high - low) sqrt(log(2 / error_rate) / (2 trials)); the interval
    misses with chance at most `error_rate`, whatever the law on `[low, high]`.

    Args:
      mean: average of independent draws, in `[low, high]`.
      trials: number of draws, at least 1.
      error_rate: chance to miss, in (0, 1).
      low: smallest value a draw can take.
      high: largest value a draw can take.

    Returns:
      `(low, high)` of the broadcast shape, clipped to `[low, high]`.

    Raises:
      ValueError: if `mean` lies outside `[low, high]` (NaN included), `trials < 1`,
        `low >= high`, or `error_rate` is outside (0, 1).
    """
    check_error_rate(error_rate)
    if not low < high:
        raise ValueError(f"`low` must be below `high`, got {low} and {high}.")
    mean, trials = np.asarray(mean, float), np.asarray(trials, float)
    if not np.all((mean >= low) & (mean <= high)):
        raise ValueError(f"`mean` must lie in [{low}, {high}], got {mean}.")
    if not np.all(trials >= 1):
        raise ValueError(f"`trials` must be at least 1, got {trials}.")
    radius = (high - low) * np.sqrt(np.log(2 / error_rate) / (2 * trials))
    ends = np.maximum(mean - radius, low), np.minimum(mean + radius, high)
    return np.asarray(ends[0]), np.asarray(ends[1])


def resolution(
    probability: Numbers,
    trials: Numbers,
    *,
    error_rate: float,
    side: Literal["both", "above"] = "both",
) -> Float[np.ndarray, "..."]:
    """Smallest error of a claimed probability that a check is sure to notice.

    The check: "does the two-sided Clopper-Pearson interval at `error_rate` contain
    `probability`?" (or, with side "above", "does it lie above `probability`?"). A true
    probability further than the returned distance from the claimed one is flagged
    with chance at least `1 - error_rate`. Known before any data are seen.

    Args:
      probability: claimed probability, in [0, 1].
      trials: number of independent trials, at least 1.
      error_rate: of the check, and chance to miss a discrepancy of the returned size.
      side: "both" for errors of either sign, "above" for a true probability above the
        claim.

    Returns:
      Distance of the broadcast shape. Where no true probability on one side of the
      claim is sure to be flagged, it is at least the distance to that side's end.

    Raises:
      ValueError: on a probability outside [0, 1] or another `side`, and as
        `clopper_pearson`.
    """
    probability, trials = np.broadcast_arrays(
        np.asarray(probability, float), np.asarray(trials, float)
    )
    if not np.all((probability >= 0) & (probability <= 1)):
        raise ValueError(f"`probability` must lie in [0, 1], got {probability}.")
    if side not in ("both", "above"):
        raise ValueError(f'`side` must be "both" or "above", got {side!r}.')
    check_error_rate(error_rate)
    claim, trials_each = probability.ravel(), trials.ravel()
    distance = _reach(claim, trials_each, error_rate)
    if side == "both":
        below = _reach(1 - claim, trials_each, error_rate)
        distance = np.maximum(distance, below)
    return distance.reshape(probability.shape)


def student(
    values: Float[np.ndarray, "*shape trials"], *, error_rate: float
) -> Interval:
    """Interval of the expectation from independent values, by Student's t (1908).

    Exact for normal values; otherwise its error rate is nominal, and approached as the
    number of trials grows. Average in batches first where the values are skewed.

    Args:
      values: `[..., trials]`, at least 2 trials; NaN makes its interval NaN.
      error_rate: nominal chance to miss, in (0, 1).

    Returns:
      `(low, high)`, each of shape `[...]`.

    Raises:
      ValueError: on fewer than 2 trials or an `error_rate` outside (0, 1).
    """
    check_error_rate(error_rate)
    trials = values.shape[-1]
    if trials < 2:
        raise ValueError(f"`values` must hold at least 2 trials, got {trials}.")
    mean = np.mean(values, axis=-1)
    spread = np.std(values, axis=-1, ddof=1) / np.sqrt(trials)
    radius = spread * -scipy.special.stdtrit(trials - 1, error_rate / 2)
    return np.asarray(mean - radius), np.asarray(mean + radius)


def slope(
    x: Float[np.ndarray, " points"],
    y: Float[np.ndarray, "batches points"],
    *,
    error_rate: float,
) -> Interval:
    """Interval of a least-squares slope, from independent batches of all points.

    One slope per batch, then `student` over the batches: the points of one batch may
    depend on each other. For a scaling law hand over logarithms of both.

    Args:
      x: `[points]`, at least 2 different ones.
      y: `[batches, points]`, at least 2 batches.
      error_rate: nominal chance to miss, in (0, 1).

    Returns:
      `(low, high)`, two scalars.

    Raises:
      ValueError: as `student`, or if all of `x` are equal.
    """
    centred = x - np.mean(x)
    if not np.any(centred):
        raise ValueError(f"`x` must hold different points, got {x}.")
    return student(y @ centred / np.sum(centred**2), error_rate=error_rate)


def _reach(
    probability: Float[np.ndarray, " points"],
    trials: Float[np.ndarray, " points"],
    error_rate: float,
) -> Float[np.ndarray, " points"]:
    """How far above the claim the truth must be to be flagged almost surely."""
    import scipy.stats  # Takes a second, which most callers need not wait for.

    # The largest count whose interval still contains the claim.
    accepted = scipy.stats.binom.isf(error_rate / 2, trials, probability)
    accepted = np.clip(accepted, 0, trials)
    _, high = clopper_pearson(accepted, trials, error_rate=error_rate, side="high")
    return high - probability
