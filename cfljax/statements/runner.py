"""Run a statement's check and control, and tell whether they came out as expected."""

import dataclasses
import math
import time
import traceback
from collections.abc import Callable

from cfljax.statements.margin import Margin
from cfljax.statements.proofs import Proof, Step
from cfljax.statements.statement import Preset, Statement
from cfljax.statements.verdict import Grade, Status, Verdict


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A statement with the verdicts on it and on its control.

    Attributes:
      statement: what was checked.
      verdict: of its check.
      control: of the same check of a false claim.
      margins: by how much its preconditions were met, where it says so.
      proof: its steps, where it has one.
    """

    statement: Statement
    verdict: Verdict
    control: Verdict
    margins: tuple[Margin, ...] = ()
    proof: Proof | None = None

    @property
    def as_expected(self) -> bool:
        """Whether verdict, control and, where there is one, proof are as expected."""
        return (
            self.verdict_as_expected
            and self.control_as_expected
            and (self.proof is None or self.proof.is_complete)
        )

    @property
    def verdict_as_expected(self) -> bool:
        """Whether the verdict is the expected one."""
        return self.verdict.status is self.statement.expected

    @property
    def control_as_expected(self) -> bool:
        """Whether the control came out as the opposite of what is expected."""
        return self.control.status is self.statement.control_expected

    @property
    def seconds(self) -> float:
        """Taken by check and control."""
        return self.verdict.seconds + self.control.seconds


QUICK = Preset()


def run(statement: Statement, preset: Preset = QUICK) -> Outcome:
    """Run one statement's check and control.

    A check that raises is recorded as INCONCLUSIVE, without trials and with the error
    as its detail: one broken check must not take the others' results with it.
    """
    verdict = _timed(statement.id, statement.check, preset)
    proof = _proof(statement)
    if proof and proof.is_complete and verdict.status is statement.expected:
        verdict = dataclasses.replace(verdict, grade=Grade.PROVED)
    return Outcome(
        statement=statement,
        verdict=verdict,
        control=_timed(statement.id, statement.control, preset),
        margins=_margins(statement),
        proof=proof,
    )


def _proof(statement: Statement) -> Proof | None:
    """The statement's proof; one with a step that fails where it raises an error."""
    if statement.proof is None:
        return None
    try:
        return Proof(
            steps=tuple(statement.proof()),
            control_fails=all(
                any(not step.holds for step in control())
                for control in statement.proof_controls
            ),
        )
    except Exception as error:
        message = f"not checked: {type(error).__name__}: {_as_it_is(error)}"
        return Proof(steps=(Step(message, "none", holds=False),), control_fails=False)


def _margins(statement: Statement) -> tuple[Margin, ...]:
    """The statement's margins; one that is never met where computing them fails."""
    if statement.margins is None:
        return ()
    try:
        return tuple(statement.margins())
    except Exception as error:
        message = f"not computed: {type(error).__name__}: {_as_it_is(error)}"
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
            f"{_as_it_is(error)}",
        )
    return dataclasses.replace(verdict, seconds=time.perf_counter() - start)


def _as_it_is(error: Exception) -> str:
    """The message of an error, whose dollars open no formula."""
    return str(error).replace("$", r"\$")
