"""What configurations of several experiments are checked for, fields by their names.

Each field is in the range of its name, see `cfljax.base.ranges`; here is what depends
on several fields.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, TypeVar, dataclass_transform

from cfljax.base import check_fields

Kind = TypeVar("Kind")


@dataclass_transform(frozen_default=True)
def configuration(kind: type[Kind]) -> type[Kind]:
    """The class as a frozen dataclass whose fields are in the ranges of their names."""
    own: Callable[[Any], None] = getattr(kind, "__post_init__", lambda self: None)

    def check(self: Any) -> None:
        check_fields(self)
        own(self)

    kind.__post_init__ = check  # type: ignore[attr-defined]
    return dataclasses.dataclass(frozen=True)(kind)


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
            raise ValueError(f"`{name}` must not be negative, got {value}.")


def _entries(value: Any) -> tuple:
    return value if isinstance(value, tuple) else (value,)


def check_step_size(step_size: float, name: str = "step_size") -> None:
    """Raises ValueError unless it is finite and not negative."""
    if not (math.isfinite(step_size) and step_size >= 0):
        raise ValueError(f"`{name}` must not be negative, got {step_size}.")


def check_scale(**values: float) -> None:
    """Raises ValueError, naming the first argument that is not positive and finite."""
    for name, value in values.items():
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"`{name}` must be positive, got {value}.")


def check_different(name: str, values: tuple, what: str = "names") -> None:
    """Raises ValueError where a list is empty or repeats one of its entries."""
    if not values or len(set(values)) < len(values):
        raise ValueError(f"`{name}` must hold different {what}, got {values}.")


def check_values(config: Any, *names: str) -> None:
    """Raises ValueError where a field is empty or repeats one of its entries."""
    for name in names:
        check_different(name, getattr(config, name), "values")


def check_divides(config: Any, name: str, other: str) -> None:
    """Raises ValueError unless the first of two fields divides the second."""
    part, whole = getattr(config, name), getattr(config, other)
    if part < 1 or whole % part:
        raise ValueError(f"`{name}` must divide `{other}`, got {part} and {whole}.")


def check_error_rate(error_rate: float) -> None:
    """Raises ValueError unless intervals can have it."""
    if not 0 < error_rate < 1:
        raise ValueError(f"`error_rate` must be in (0, 1), got {error_rate}.")


def check_interval(error_rate: float, num_trials: int) -> None:
    """Raises ValueError unless intervals of means can be made."""
    check_error_rate(error_rate)
    if num_trials < 2:
        raise ValueError(f"`num_trials` must be at least 2, got {num_trials}.")


def check_several(num_clusters: int) -> None:
    """Raises ValueError if there is nothing to tell apart."""
    if num_clusters < 2:
        raise ValueError(f"`num_clusters` must be at least 2, got {num_clusters}.")
