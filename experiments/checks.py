"""What configurations of several experiments are checked for, fields by their names."""

import math
from typing import Any

__all__ = [
    "check_different",
    "check_not_negative",
    "check_positive",
    "check_step_size",
]


def check_positive(config: Any, *names: str) -> None:
    """Raises ValueError where a field, or an entry of it, is below 1."""
    for name in names:
        if min(_entries(value := getattr(config, name))) < 1:
            raise ValueError(f"`{name}` must be at least 1, got {value}.")


def check_not_negative(config: Any, *names: str) -> None:
    """Raises ValueError where a field, or an entry of it, is infinite or negative."""
    for name in names:
        value = getattr(config, name)
        if not all(math.isfinite(own) and own >= 0 for own in _entries(value)):
            raise ValueError(f"`{name}` must be finite and not negative, got {value}.")


def _entries(value: Any) -> tuple:
    return value if isinstance(value, tuple) else (value,)


def check_step_size(step_size: float, name: str = "step_size") -> None:
    """Raises ValueError unless it is finite and not negative."""
    if not (math.isfinite(step_size) and step_size >= 0):
        raise ValueError(f"`{name}` must be finite and not negative, got {step_size}.")


def check_different(name: str, values: tuple, what: str = "names") -> None:
    """Raises ValueError where a list is empty or repeats one of its entries."""
    if not values or len(set(values)) < len(values):
        raise ValueError(f"`{name}` must hold different {what}, got {values}.")
