"""Checks that many constructors make."""

__all__ = ["check_positive"]


def check_positive(**numbers: int) -> None:
    """Raises ValueError, naming the first argument that is below 1."""
    for name, value in numbers.items():
        if value < 1:
            raise ValueError(f"`{name}` must be at least 1, got {value}.")
