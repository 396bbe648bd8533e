"""That a bound cannot be improved: a second half of checks whose constant is the
best."""

import dataclasses
import math

import numpy as np
from jaxtyping import Num

from cfljax.statements import Grade, Verdict, never_falls_below


def attained(
    name: str,
    ratios: Num[np.ndarray, "*points"] | float,
    *,
    share: float = 0.99,
    grade: Grade = Grade.EXACT,
) -> Verdict:
    """Judge that the largest of the ratios truth/bound is at least `share`.

    Args:
      name: id carried into the verdict.
      ratios: of any shape; infinite and undefined ones do not count.
      share: of the bound that must be reached somewhere.
      grade: of the ratios.
    """
    every = np.atleast_1d(np.asarray(ratios, float))
    known = every[np.isfinite(every)]
    largest = np.max(known) if known.size else math.nan
    found = never_falls_below(
        name,
        np.array([largest]),
        share,
        rounding=1e-12,
        grade=grade,
        detail=f"the bound is reached to {largest:.4g}, which must be {share:g}",
    )
    return dataclasses.replace(found, slack=math.nan)  # that is the main half's
