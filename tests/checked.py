"""The run-time type checker of the tests."""

import functools
from collections.abc import Callable
from typing import Any

from beartype import beartype

# By all that a check depends on: functions inside of others are made at each call.
_checks: dict[tuple, Callable[..., Any]] = {}


def when_called(function: Callable[..., Any]) -> Callable[..., Any]:
    """`beartype` from the first call on, and of functions that are made again and again
    that of the first: a check takes a millisecond to make, and no process of the tests
    calls most of the 6,600 functions."""
    check = functools.cache(lambda: _check(function))

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        return check()(*args, **kwargs)

    return checked


def _check(function: Any) -> Callable[..., Any]:
    """Of a function that jaxtyping made of the signature of one to be checked: its body
    does nothing, or returns one of the arguments."""
    code, hints = function.__code__, tuple(function.__annotations__.items())
    names = (function.__module__, function.__qualname__, code.co_varnames)
    counts = (code.co_posonlyargcount, code.co_argcount, code.co_kwonlyargcount)
    try:
        key = (names, counts, code.co_flags, code.co_code, hints)
        if key not in _checks:
            _checks[key] = beartype(function)
    except TypeError:  # A hint that cannot be a key.
        return beartype(function)
    return _checks[key]
