"""Checks that constructors of attacks make."""

import math
from typing import Any

from cfljax.kernels.checks import is_traced

__all__ = ["check_finite", "check_not_negative"]


def check_finite(**numbers: Any) -> None:
    """Raises ValueError, naming the first argument that is not finite; what is traced
    passes."""
    for name, value in numbers.items():
        if not is_traced(value) and not math.isfinite(value):
            raise ValueError(f"`{name}` must be finite, got {value}.")


def check_not_negative(**numbers: Any) -> None:
    """Raises ValueError, naming the first argument that is negative or not finite.

    What is traced or None passes.
    """
    for name, value in numbers.items():
        if value is None or is_traced(value):
            continue
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"`{name}` must be finite and not negative, got {value}.")
