"""Run a statement's check and control, and tell whether they came out as expected."""

import dataclasses
import math
import time
import traceback
from collections.abc import Callable

from cfljax.statements.statement import Margin, Preset, Statement
from cfljax.statements.verdict import Status, Verdict


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A statement with the verdicts on it and on its control.

    Attributes:
      statement: what was checked.
      verdict: of its check.
      control: of the same check of a false claim.
      margins: by how much its preconditions were met, where it says so.
    """

    statement: Statement
    verdict: Verdict
    control: Verdict
    margins: tuple[Margin, ...] = ()

    @property
    def as_expected(self) -> bool:
        """Whether the verdict is the expected one and the control is violated."""
        return self.verdict_as_expected and self.control_as_expected

    @property
    def verdict_as_expected(self) -> bool:
        """Whether the verdict is the expected one."""
        return self.verdict.status is self.statement.expected

    @property
    def control_as_expected(self) -> bool:
        """Whether the control is violated."""
        return self.control.status is Status.VIOLATED

    @property
    def seconds(self) -> float:
        """Taken by check and control."""
        return self.verdict.seconds + self.control.seconds


def run(statement: Statement, preset: Preset) -> Outcome:
    """Run one statement's check and control.

    A check that raises is recorded as INCONCLUSIVE, without trials and with the error
    as its detail: one broken check must not take the others' results with it.
    """
    return Outcome(
        statement=statement,
        verdict=_timed(statement.id, statement.check, preset),
        control=_timed(statement.id, statement.control, preset),
        margins=_margins(statement),
    )


def _margins(statement: Statement) -> tuple[Margin, ...]:
    """The statement's margins; one that is never met where computing them fails."""
    if statement.margins is None:
        return ()
    try:
        return tuple(statement.margins())
    except Exception as error:
        message = f"not computed: {type(error).__name__}: {error}"
        return (Margin(message, math.nan, math.nan),)


def _timed(name: str, check: Callable[[Preset], Verdict], preset: Preset) -> Verdict:
    """The check's verdict, or its error as one, and the seconds it took."""
    start = time.perf_counter()
    try:
        verdict = check(preset)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        verdict = Verdict(
            statement=name,
            status=Status.INCONCLUSIVE,
            bound=math.nan,
            interval=(math.nan, math.nan),
            error_rate=math.nan,
            num_trials=0,
            resolution=math.nan,
            detail=f"{type(error).__name__} in {place.name}, line {place.lineno}: "
            f"{error}",
        )
    return dataclasses.replace(verdict, seconds=time.perf_counter() - start)
