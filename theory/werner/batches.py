"""Lemma 6: the variance of a batch's mean gradient, with and without replacement.

By going through all batches of a small data set.
"""

import functools
import itertools

import numpy as np
from jaxtyping import Float

from theory.judges import never_exceeds
from theory.statement import Preset, Statement
from theory.verdict import Verdict

__all__ = ["STATEMENTS", "batch_variance", "check_once", "check_replaced"]

LEMMA = "werner.lem6"

_ROUNDING = 1e-13  # of sums of at most 4^6 terms of order 1


def batch_variance(
    gradients: Float[np.ndarray, "samples features"], size: int, *, replaced: bool
) -> float:
    """E |g_B - E g_B|^2 over all batches, by enumeration.

    Args:
      gradients: of the single samples.
      size: |B|, samples in a batch.
      replaced: whether a sample may be drawn twice.

    Cost: m^|B| batches, or m over |B|.
    """
    everyone = range(len(gradients))
    if replaced:
        batches = list(itertools.product(everyone, repeat=size))
    else:
        batches = list(itertools.combinations(everyone, size))
    means = np.mean(gradients[np.array(batches)], axis=1)
    middle = np.mean(gradients, axis=0)
    return float(np.mean(np.sum((means - middle[None]) ** 2, axis=1)))


def _data(preset: Preset) -> tuple[Float[np.ndarray, "samples features"], float]:
    """Gradients of single samples, and their total variance sigma^2."""
    num_samples = preset.choose(quick=4, full=6)
    gradients = preset.generator(LEMMA).standard_normal((num_samples, 2))
    # One sample unlike all others, as data sets have them.
    gradients[0] *= 10
    return gradients, float(np.sum(np.var(gradients, axis=0)))


def check_replaced(preset: Preset, *, copies: int = 1) -> Verdict:
    """E |g_B - E g_B|^2 <= sigma^2/|B|, and not less, with independent samples.

    Args:
      preset: size of the data set.
      copies: how often each drawn sample is put into the batch; a batch of copies is
        not independent.
    """
    gradients, single = _data(preset)
    draws = np.arange(1, 6)
    values = [batch_variance(gradients, int(one), replaced=True) for one in draws]
    bounds = single / (draws * copies)
    return never_exceeds(
        LEMMA,
        np.array(values),
        bounds,
        rounding=_ROUNDING * single,
        detail=f"{len(gradients)} samples, |B| = 1 to {draws[-1] * copies}: variance "
        f"over sigma^2/|B| is {np.min(values / bounds):.6g} to "
        f"{np.max(values / bounds):.6g}",
    )


def check_once(preset: Preset, *, corrected: bool = True) -> Verdict:
    """Without replacement it is (m - |B|)/(m - 1) sigma^2/|B| exactly.

    Args:
      preset: size of the data set.
      corrected: whether the claim has the factor (m - |B|)/(m - 1).
    """
    gradients, single = _data(preset)
    total = len(gradients)
    sizes = np.arange(1, total + 1)
    values = [batch_variance(gradients, int(one), replaced=False) for one in sizes]
    factor = (total - sizes) / (total - 1) if corrected else np.ones(total)
    return never_exceeds(
        f"{LEMMA}.once",
        np.abs(np.array(values) - factor * single / sizes),
        np.zeros(total),
        rounding=_ROUNDING * single,
        detail=f"all {total} batch sizes: |B| times the variance over sigma^2 is "
        + ", ".join(f"{one:.3g}" for one in sizes * values / single),
    )


_row = functools.partial(Statement, paper="werner", place="Lemma 6")

STATEMENTS = (
    _row(
        id=LEMMA,
        text="E_x |g_i(x) - E_x g_i(x)|^2 <= sigma^2/|B| for the mean of a batch B",
        preconditions=("independent samples, drawn with replacement",),
        check=check_replaced,
        control=functools.partial(check_replaced, copies=2),
        note="With equality, where sigma^2 is the variance of a single sample. In the "
        "control each sample is in the batch twice.",
    ),
    _row(
        id=f"{LEMMA}.once",
        text="drawn without replacement from m samples E_x |g_i(x) - E_x g_i(x)|^2 = "
        "(m - |B|)/(m - 1) sigma^2/|B|",
        preconditions=("each set of |B| of the m samples is as likely",),
        check=check_once,
        control=functools.partial(check_once, corrected=False),
        note="Only so does a batch of all samples have no noise, as remark 4 after "
        "Theorem 3 would have it; independent samples leave sigma^2/m. The control "
        "omits the factor.",
    ),
)
