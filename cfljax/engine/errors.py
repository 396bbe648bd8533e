"""Errors of a sweep, each one line that says what to do."""

import contextlib
import os
import pathlib
from collections.abc import Iterator

__all__ = [
    "MemoryLimitError",
    "OutputsError",
    "StoreError",
    "SweepError",
    "disk_errors",
]


class StoreError(ValueError):
    """A folder that belongs to something else, or a disk that refuses."""


class MemoryLimitError(ValueError):
    """A trial, or the chunk asked for, does not fit in the memory allowed."""


class OutputsError(ValueError):
    """Outputs of a trial that are not what its grid announces."""


class SweepError(RuntimeError):
    """A sweep of which nothing could be computed."""


@contextlib.contextmanager
def disk_errors(path: pathlib.Path) -> Iterator[None]:
    """Turn the system's errors into a `StoreError` that names the path and reason."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else type(error).__name__
        raise StoreError(
            f"cannot write results to `{path}`: {reason}. What is done stays done;"
            " run again to resume."
        ) from error
