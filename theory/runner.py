"""Run checks and controls, and compare their verdicts with the registry's."""

import dataclasses
import math
import time
import traceback
from collections.abc import Callable, Iterable, Iterator

from theory.statement import Preset, Statement
from theory.verdict import Status, Verdict

__all__ = ["Outcome", "run"]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A statement with the verdicts on it and on its control."""

    statement: Statement
    verdict: Verdict
    control: Verdict

    @property
    def as_expected(self) -> bool:
        """Whether the verdict is the registered one and the control is violated."""
        return (
            self.verdict.status is self.statement.expected
            and self.control.status is Status.VIOLATED
        )


def run(statements: Iterable[Statement], preset: Preset) -> Iterator[Outcome]:
    """Yield one outcome per statement, as each is finished.

    A check that raises is recorded as INCONCLUSIVE with the error as its detail: one
    broken check must not take the others' results with it.
    """
    for statement in statements:
        yield Outcome(
            statement=statement,
            verdict=_timed(statement.id, statement.check, preset),
            control=_timed(statement.id, statement.control, preset),
        )


def _timed(name: str, judge: Callable[[Preset], Verdict], preset: Preset) -> Verdict:
    start = time.perf_counter()
    try:
        verdict = judge(preset)
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
