"""Intervals from a number of trials that the outcomes themselves may decide."""

import numpy as np
import scipy.special
from jaxtyping import Float

from cfljax.intervals.checks import Interval, check_error_rate, checked_counts
from cfljax.types import Numbers

__all__ = ["confidence_sequence"]

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
