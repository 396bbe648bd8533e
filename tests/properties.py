"""Properties that hold for every input: few inputs by default, many in slow tests."""

import functools
from collections.abc import Callable
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

FEW, MANY = 25, 300
# Edges of floating point, and few enough other numbers that ties are common.
EDGES = (float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1e30, 1e-30)
FINITE = st.sampled_from((-2.0, -1.0, 0.0, 0.5, 1.0, 3.0)) | st.floats(
    -100, 100, width=32, allow_subnormal=False
)
NUMBERS = FINITE | st.sampled_from(EDGES)


_chosen = functools.partial(
    hypothesis.settings,
    deadline=None,
    derandomize=True,
    # How fast inputs are drawn says something of the machine only.
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)


def always(**inputs: st.SearchStrategy[Any]) -> Callable[[Callable], Callable]:
    """Turns a check of one input into tests of many, the same ones every time."""

    def decorate(check: Callable[..., None]) -> Callable[[int], None]:
        @pytest.mark.parametrize(
            "examples", [FEW, pytest.param(MANY, marks=pytest.mark.slow)]
        )
        def test(examples: int) -> None:
            _chosen(max_examples=examples)(hypothesis.given(**inputs)(check))()

        test.__name__, test.__doc__ = check.__name__, check.__doc__
        return test

    return decorate


def refuses(check: Callable[..., None], **inputs: st.SearchStrategy[Any]) -> bool:
    """Whether some input makes the check fail: what a control must show."""
    chosen = _chosen(max_examples=200, phases=[hypothesis.Phase.generate])
    try:
        chosen(hypothesis.given(**inputs)(check))()
    except AssertionError:
        return True
    return False
