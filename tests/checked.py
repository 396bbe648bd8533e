"""The run-time type checker of the tests."""

import functools
from collections.abc import Callable
from typing import Any

from beartype import beartype


def when_called(function: Callable[..., Any]) -> Callable[..., Any]:
    """`beartype` from the first call on: a check takes a millisecond to make, and no
    process of the tests calls most of the 6,600 functions."""
    check = functools.cache(lambda: beartype(function))

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        return check()(*args, **kwargs)

    return checked
