"""What configurations of several experiments are checked for, fields by their names.

Each field is in the range of its name, see `cfljax.base.ranges`; here is what depends
on several fields.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar, dataclass_transform

from cfljax.base import COUNT, check_fields, check_in

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
    """Raises ValueError where a field that others may leave at 0, or an entry of it, is
    below 1."""
    for name in names:
        value = getattr(config, name)
        for own in value if isinstance(value, tuple) else (value,):
            check_in(COUNT, **{name: own})


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


def check_several(**numbers: int) -> None:
    """Raises ValueError, naming the first below 2: clusters to be told apart, or trials
    of which intervals of means are made."""
    for name, value in numbers.items():
        if value < 2:
            raise ValueError(f"`{name}` must be at least 2, got {value}.")
