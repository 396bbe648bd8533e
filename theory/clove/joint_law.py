"""Section 4: F_k^i(theta) ~ alpha chi(n)/sqrt(n), and how entries depend on each other.

All entries of a loss vector come from the same samples. With G the Gram matrix of
(theta_j - theta*; -sigma), Cov(L_j, L_l) = 2 G_jl^2 / n exactly.
"""

import functools

import numpy as np
import scipy.special
from jaxtyping import Float

from cfljax import intervals, law
from theory.clove.loss_means import random_units
from theory.judges import ERROR_RATE, same_law, within
from theory.statement import Preset, Statement
from theory.verdict import Verdict, combine

__all__ = ["STATEMENTS", "check_dependence", "check_marginals"]

MARGINAL, DEPENDENCE = "clove.jointlaw", "clove.jointlaw.covariance"

_FEATURES, _NOISE = 6, 0.5
_COUNTS = (1, 5, 30)
_TRIALS = (100_000, 50_000, 20_000)  # the fewer samples, the heavier the tails


@functools.lru_cache(maxsize=1)
def _truth(preset: Preset) -> Float[np.ndarray, " features"]:
    return random_units(preset.generator(MARGINAL), (_FEATURES,))


@functools.lru_cache(maxsize=1)
def _raw_losses(
    preset: Preset,
) -> tuple[Float[np.ndarray, "trials models"], ...]:
    """Losses on raw data for every n, models the d unit vectors."""
    found = []
    for index, (count, trials) in enumerate(zip(_COUNTS, _TRIALS, strict=True)):
        trials *= preset.choose(quick=1, full=10)
        generator = preset.generator(MARGINAL, index)
        inputs = generator.standard_normal((trials, count, _FEATURES))
        labels = inputs @ _truth(preset)
        labels += _NOISE * generator.standard_normal((trials, count))
        found.append(np.mean((inputs - labels[..., None]) ** 2, axis=1))
    return tuple(found)


def check_marginals(preset: Preset, *, more: int = 0) -> Verdict:
    """n L_j/alpha_j^2 ~ chi2_{n + `more`}; the joint law's sampler has the raw law."""
    factor = law.loss_factor(np.eye(_FEATURES), _truth(preset), _NOISE)
    squares = np.sum(factor**2, axis=0)
    samples, laws, sums, drawn_sums = [], [], [], []
    for index, (count, losses) in enumerate(
        zip(_COUNTS, _raw_losses(preset), strict=True)
    ):
        samples += list((count * losses / squares).T)
        freedom = count + more
        laws += [functools.partial(scipy.special.chdtr, freedom)] * _FEATURES
        drawn = law.loss_vectors(
            preset.generator(MARGINAL, index, 1),
            factor,
            num_samples=count,
            num_clients=len(losses),
        )
        sums += [np.sum(losses, axis=1), np.max(losses, axis=1)]
        drawn_sums += [np.sum(drawn, axis=1), np.max(drawn, axis=1)]
    alone = same_law(
        MARGINAL, samples, laws, resolution=0.05, error_rate=ERROR_RATE / 2
    )
    together = same_law(
        MARGINAL, sums, drawn_sums, resolution=0.15, error_rate=ERROR_RATE / 2
    )
    return combine(
        MARGINAL,
        [alone, together],
        detail=f"raw data, n = {', '.join(map(str, _COUNTS))}, {_FEATURES} models: "
        f"entries by the exact law {alone.status.value}, sums and maxima against draws "
        f"of diag(Wishart(G, n))/n {together.status.value}",
    )


def check_dependence(preset: Preset, *, independent: bool = False) -> Verdict:
    """Cov(L_j, L_l) = 2 G_jl^2/n on raw data, or 0 off the diagonal."""
    factor = law.loss_factor(np.eye(_FEATURES), _truth(preset), _NOISE)
    gram = factor.T @ factor
    scale = np.outer(np.diagonal(gram), np.diagonal(gram))
    claimed = gram**2 * np.eye(_FEATURES) if independent else gram**2
    lows, highs = [], []
    pairs = np.tril_indices(_FEATURES)
    error_rate = ERROR_RATE / (len(_COUNTS) * len(pairs[0]))
    for count, losses in zip(_COUNTS, _raw_losses(preset), strict=True):
        centred = losses - np.diagonal(gram)
        products = centred[:, pairs[0]] * centred[:, pairs[1]] * count / 2
        batches = np.mean(products.reshape(100, -1, len(pairs[0])), axis=1)
        low, high = intervals.student(batches.T, error_rate=error_rate)
        lows.append((low - claimed[pairs]) / scale[pairs])
        highs.append((high - claimed[pairs]) / scale[pairs])
    low, high = np.concatenate(lows), np.concatenate(highs)
    margin = np.full(len(low), 0.25)
    share = np.mean((gram**2 / scale)[~np.eye(_FEATURES, dtype=bool)])
    return within(
        DEPENDENCE,
        (low, high),
        (-margin, margin),
        num_trials=sum(map(len, _raw_losses(preset))),
        detail=f"raw data, {len(low)} covariances, in units of 2 alpha_j^2 alpha_l^2/n:"
        f" mean correlation of two losses {share:.3f}",
    )


_row = functools.partial(
    Statement,
    paper="clove",
    place="Section 4",
    preconditions=(
        "n fresh samples, x ~ N(0, I), noise N(0, sigma^2)",
        "models independent of them",
    ),
)

STATEMENTS = (
    _row(
        id=MARGINAL,
        text="F_k^i(theta) ~ alpha(theta, theta_k*) chi(n_k)/sqrt(n_k)",
        check=check_marginals,
        control=functools.partial(check_marginals, more=1),
        note="Entry by entry. Together the losses are the diagonal of a Wishart matrix "
        "over n, which is how later rows draw them. The control has n + 1.",
    ),
    _row(
        id=DEPENDENCE,
        text="Cov(L_j, L_l) = 2 G_jl^2/n, G the Gram matrix of (theta_j - theta_k*; "
        "-sigma)",
        check=check_dependence,
        control=functools.partial(check_dependence, independent=True),
        note="Not in the paper, which assumes no independence either. A band of 0.25 "
        "in units of 2 alpha_j^2 alpha_l^2/n. The control takes the entries for "
        "independent.",
    ),
)
