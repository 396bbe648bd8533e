"""Intervals for proportions and means that are valid at every sample size.

All are for a number of trials that was fixed beforehand but `confidence_sequence`,
which stays valid however the trials were stopped.
"""

from typing import Literal

import numpy as np
import scipy.special
from jaxtyping import Float

from cfljax.base.types import Numbers

__all__ = [
    "Interval",
    "betting",
    "catoni",
    "clopper_pearson",
    "confidence_sequence",
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


Interval = tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."]]


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
        distance = np.maximum(distance, _reach(1 - claim, trials_each, error_rate))
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


def betting(
    values: Float[np.ndarray, "*shape trials"],
    *,
    error_rate: float,
    low: float = 0.0,
    high: float = 1.0,
) -> Interval:
    """Interval of the expectation of bounded values, by bets against each mean.

    Whoever believes that the mean is m may be bet with. The capital
    K_t(m) = prod_{s <= t} (1 + b_s (x_s - m)), x in [0, 1], with stakes b_s in [0, 1)
    that are chosen before x_s is seen, is a nonnegative martingale from 1 on if m is
    the mean, and ever reaches 2 / error_rate with chance at most error_rate / 2
    (Ville). Means against which it did are excluded. The stakes are those of an
    empirical Bernstein bound with the running variance, so that the interval is short
    where the values vary little. It misses with chance at most `error_rate` for every
    law on `[low, high]` and every number of trials.

    Source: Waudby-Smith and Ramdas (2024), Estimating means of bounded random variables
    by betting, JRSS B 86, 1-27 (section 4, predictable plug-in stakes).

    Cost: `BISECTIONS` passes over the values for each end.

    Args:
      values: `[..., trials]`, independent with one mean, in `[low, high]`.
      error_rate: chance to miss, in (0, 1).
      low: smallest value possible.
      high: largest value possible.

    Returns:
      `(low, high)`, each of shape `[...]`.

    Raises:
      ValueError: if there are no trials, a value is outside `[low, high]` (NaN
        included), `low >= high`, or an `error_rate` outside (0, 1).
    """
    check_error_rate(error_rate)
    if not low < high:
        raise ValueError(f"`low` must be below `high`, got {low} and {high}.")
    if values.shape[-1] < 1:
        raise ValueError("`values` must hold at least 1 trial, got none.")
    if not np.all((values >= low) & (values <= high)):
        raise ValueError(f"`values` must lie in [{low}, {high}], got others.")
    shares = (values - low) / (high - low)
    # The upper end is the lower one of the mirrored values.
    least = low + (high - low) * _least_mean(shares, error_rate / 2)
    most = high - (high - low) * _least_mean(1 - shares, error_rate / 2)
    return np.asarray(least), np.asarray(most)


def _least_mean(
    shares: Float[np.ndarray, "*shape trials"], error_rate: float
) -> Float[np.ndarray, "*shape"]:
    """Means in [0, 1] below this are excluded: the bets against them paid."""
    trials = shares.shape[-1]
    seen = np.arange(1, trials + 1)
    means = (0.5 + np.cumsum(shares, axis=-1)) / (seen + 1)
    spread = (0.25 + np.cumsum((shares - means) ** 2, axis=-1)) / (seen + 1)
    # What is known before trial t: the variance of those before it.
    before = np.concatenate(
        [np.full((*shares.shape[:-1], 1), 0.25), spread[..., :-1]], axis=-1
    )
    stakes = np.minimum(np.sqrt(2 * np.log(1 / error_rate) / (before * trials)), 0.75)
    excluded, open_ = np.zeros(shares.shape[:-1]), np.mean(shares, axis=-1)
    for _ in range(BISECTIONS):
        middle = (excluded + open_) / 2
        gains = np.log1p(stakes * (shares - middle[..., None]))
        # The most that the capital ever was; it falls with the mean.
        paid = np.max(np.cumsum(gains, axis=-1), axis=-1) >= np.log(1 / error_rate)
        excluded = np.where(paid, middle, excluded)
        open_ = np.where(paid, open_, middle)
    return np.asarray(excluded)


def catoni(
    values: Float[np.ndarray, "*shape trials"],
    *,
    deviation: Numbers,
    error_rate: float,
) -> Interval:
    """Interval of the expectation where the standard deviation is known, whatever the
    law.

    Catoni's estimate m solves sum psi(a (x_t - m)) = 0, psi(y) = sign(y) log(1 + |y| +
    y^2/2). With l = log(2 / error_rate), n > 2 l trials, a variance of at most v and
    a^2 = 2 l / (n v (1 + 2 l / (n - 2 l))),
    |m - E x| <= sqrt(2 v l / (n - 2 l)) except with chance `error_rate`: the width of a
    normal law, for laws of any tail.

    Source: Catoni (2012), Challenging the empirical mean and empirical variance, Ann.
    Inst. H. Poincare 48, 1148-1185, Proposition 2.4.

    Cost: `BISECTIONS` passes over the values.

    Args:
      values: `[..., trials]`, independent with one mean.
      deviation: at least the standard deviation of a value, of shape `[...]` or one.
      error_rate: chance to miss, in (0, 1).

    Returns:
      `(low, high)`, each of shape `[...]`; infinite where the trials are too few, NaN
      where a value is.

    Raises:
      ValueError: if a `deviation` is negative or NaN, or `error_rate` is outside
        (0, 1).
    """
    check_error_rate(error_rate)
    spread = np.broadcast_to(np.asarray(deviation, float), values.shape[:-1])
    if not np.all(spread >= 0):
        raise ValueError(f"`deviation` must be at least 0, got {deviation}.")
    trials, level = values.shape[-1], np.log(2 / error_rate)
    if trials <= 2 * level:
        return np.full(spread.shape, -np.inf), np.full(spread.shape, np.inf)
    reach = spread * np.sqrt(2 * level / (trials - 2 * level))
    scale = np.sqrt(2 * level / (trials * (1 + 2 * level / (trials - 2 * level))))
    scale = scale / np.maximum(spread, np.finfo(float).tiny)
    low, high = np.min(values, axis=-1), np.max(values, axis=-1)
    for _ in range(BISECTIONS):
        middle = low + (high - low) / 2
        apart = scale[..., None] * (values - middle[..., None])
        # log(1 + |y| + y^2/2) without overflow of the square.
        size = np.minimum(np.abs(apart), 1e150)
        above = np.sum(np.sign(apart) * np.log1p(size + size**2 / 2), axis=-1) > 0
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    middle = np.where(np.isnan(values).any(axis=-1), np.nan, low + (high - low) / 2)
    return np.asarray(middle - reach), np.asarray(middle + reach)


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


PRIOR = 0.5  # Both parameters of the beta mixture; 1 would be Robbins' uniform one.
BISECTIONS = 80  # Enough for every digit of a float; fewer would widen the interval.


def confidence_sequence(
    successes: Numbers, trials: Numbers, *, error_rate: float
) -> Interval:
    """Interval of a binomial probability that is valid at all sample sizes at once.

    With chance at least `1 - error_rate` the intervals of a whole run of trials, one
    after each of them for ever, all contain the true probability. So whoever watches
    may stop whenever the interval looks good, and report it; `clopper_pearson` errs
    more often than stated if it is used like that.

    Proof. Let k of n trials succeed, and let
    `M_n(p) = integral of q^k (1-q)^(n-k) dB(q) / (p^k (1-p)^(n-k))
            = Beta(k + 1/2, n - k + 1/2) / Beta(1/2, 1/2) / (p^k (1-p)^(n-k))`
    be the likelihood of a mixture, q drawn from the law Beta(1/2, 1/2), over that of
    p. Under p a likelihood ratio is a martingale that starts at 1 and is never
    negative, so by Ville's inequality it ever reaches `1 / error_rate` with chance at
    most `error_rate`. The interval is the set of all p with `M_n(p) < 1 / error_rate`.
    The likelihood is log-concave in p and at k / n at least that of the mixture, so
    the set is an interval around k / n.

    The mixture decides only how long the interval is. This one is Krichevsky and
    Trofimov's: a little longer than with a uniform mixture where half of the trials
    succeed, shorter where nearly all or none do.

    Source: Robbins (1970), Statistical methods related to the law of the iterated
    logarithm, Ann. Math. Statist. 41, 1397-1409 (uniform mixture); Howard, Ramdas,
    McAuliffe and Sekhon (2021), Time-uniform, nonparametric, nonasymptotic confidence
    sequences, Ann. Statist. 49, 1055-1080; Krichevsky and Trofimov (1981), The
    performance of universal encoding, IEEE Trans. Inf. Theory 27, 199-207.

    Cost: `2 BISECTIONS` logarithms of likelihoods per entry.

    Args:
      successes: number of events, broadcast against `trials`.
      trials: number of independent trials so far, at least 1.
      error_rate: chance that any of the intervals misses, in (0, 1).

    Returns:
      `(low, high)`, in [0, 1], of the broadcast shape. Bisection stops on the outer
      side of both ends, so but for rounding no interval is too short.

    Raises:
      ValueError: on counts outside `0 <= successes <= trials`, `trials < 1`, or an
        `error_rate` outside (0, 1).
    """
    successes, trials = checked_counts(successes, trials)
    check_error_rate(error_rate)
    # The upper end is the lower one of the failures.
    counts = np.stack([successes, trials - successes])
    ends = _lower_end(counts, counts[::-1], error_rate)
    return ends[0, ...], np.asarray(1 - ends[1, ...])


def _lower_end(
    successes: Float[np.ndarray, "..."],
    failures: Float[np.ndarray, "..."],
    error_rate: float,
) -> Float[np.ndarray, "..."]:
    """Where the log-likelihood, which rises up to the mean, passes the bound."""
    mixture = scipy.special.betaln(successes + PRIOR, failures + PRIOR)
    bound = np.log(error_rate) + mixture - scipy.special.betaln(PRIOR, PRIOR)
    outside = np.zeros(successes.shape)
    inside = successes / (successes + failures)
    for _ in range(BISECTIONS):
        middle = (outside + inside) / 2
        likelihood = scipy.special.xlogy(successes, middle)
        likelihood += scipy.special.xlog1py(failures, -middle)
        is_inside = likelihood > bound
        inside = np.where(is_inside, middle, inside)
        outside = np.where(is_inside, outside, middle)
    return outside


def checked_counts(
    successes: Numbers, trials: Numbers
) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."]]:
    """The counts as floats of one shape; ValueError on impossible ones."""
    successes, trials = np.broadcast_arrays(
        np.asarray(successes, float), np.asarray(trials, float)
    )
    if not np.all(trials >= 1):
        raise ValueError(f"`trials` must be at least 1, got {trials}.")
    if not np.all((successes >= 0) & (successes <= trials)):
        raise ValueError(
            f"`successes` must lie between 0 and `trials`, got {successes} of {trials}."
        )
    return successes, trials


def check_error_rate(error_rate: float) -> None:
    """ValueError if the error rate is outside (0, 1)."""
    if not 0 < error_rate < 1:
        raise ValueError(f"`error_rate` must lie in (0, 1), got {error_rate}.")
