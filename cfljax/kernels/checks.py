"""Checks that many constructors make."""

from typing import Any, get_args

from cfljax.types import Task

__all__ = ["check_fit", "check_member", "check_optional", "check_positive"]


def check_fit(task: Task) -> None:
    """Raises ValueError if gradients of the task's losses are not what it trains on."""
    if task.fit is not None:
        raise ValueError(
            "`task` must train on the losses it is judged by: clustered gradients have "
            "no place for dropout, augmentation or batch statistics."
        )


def check_member(allowed: Any, **names: str) -> None:
    """Raises ValueError, naming the first argument that a Literal does not have."""
    for name, value in names.items():
        if value not in get_args(allowed):
            raise ValueError(f"`{name}` must be in {get_args(allowed)}, got {value!r}.")


def check_optional(**numbers: int | None) -> None:
    """`check_positive` of those that are given."""
    check_positive(**{name: n for name, n in numbers.items() if n is not None})


def check_positive(**numbers: int) -> None:
    """Raises ValueError, naming the first argument that is below 1."""
    for name, value in numbers.items():
        if value < 1:
            raise ValueError(f"`{name}` must be at least 1, got {value}.")
