"""Judges of numbers that are computed, not sampled."""

import numpy as np
from jaxtyping import Num

from theory.judges.shared import most_telling, slack
from theory.verdict import Points, Status, Verdict

__all__ = ["never_exceeds"]


def never_exceeds(
    statement: str,
    values: Num[np.ndarray, " points"],
    bounds: Num[np.ndarray, " points"],
    *,
    rounding: Num[np.ndarray, " points"] | float,
    logarithmic: bool = False,
    detail: str = "",
) -> Verdict:
    """Judge the claim value <= bound at every point, where nothing is random.

    Args:
      statement: id carried into the verdict.
      values: `[points]`, computed left-hand sides.
      bounds: `[points]`, computed right-hand sides; +inf is no claim.
      rounding: `[points]` or one number, bound on the floating-point error of
        `values - bounds`. It is no tolerance: nothing else may be put into it.
      logarithmic: whether both sides are natural logarithms of what is compared.
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
    # inf - inf is undefined, as it should be; what overflows is past any rounding.
    with np.errstate(invalid="ignore", over="ignore"):
        excess = np.where(claimed, values - bounds, -np.inf)
        scores = excess / rounding
    violated = excess > rounding
    if np.any(violated):
        status = Status.VIOLATED
    elif np.any(np.isnan(excess)) or np.any(np.isnan(values)):
        status = Status.INCONCLUSIVE
    else:
        status = Status.HOLDS if np.any(claimed) else Status.VACUOUS
    worst = most_telling(scores, violated)
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
        slack=_decades(values, bounds) if logarithmic else slack(bounds, values),
        points=Points(
            np.asarray(bounds, float),
            np.asarray(values, float),
            np.asarray(values, float),
            scale="log" if logarithmic else "number",
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
