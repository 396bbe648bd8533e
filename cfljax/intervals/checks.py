"""What the arguments of all intervals must be."""

import numpy as np
from jaxtyping import Float

from cfljax.types import Numbers

__all__ = ["Interval", "check_error_rate", "checked_counts"]

Interval = tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."]]


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
