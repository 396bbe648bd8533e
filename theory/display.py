"""Verdicts and statements as tables for people and as JSON for programs."""

import json
import math
import time
from collections.abc import Iterable, Sequence

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from theory.runner import Outcome
from theory.statement import Preset, Statement
from theory.verdict import Status, Verdict

__all__ = [
    "LateProgress",
    "outcomes_document",
    "outcomes_table",
    "print_summary",
    "show",
    "statements_document",
    "statements_table",
]

_COLOURS = {
    Status.HOLDS: "green",
    Status.VIOLATED: "red",
    Status.VACUOUS: "yellow",
    Status.INCONCLUSIVE: "magenta",
}


class LateProgress(Progress):
    """A bar with the time left on stderr, shown only by a terminal and after 5 s."""

    delay = 5.0

    def __init__(self):
        self._started = time.monotonic()
        console = Console(stderr=True)
        super().__init__(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def get_renderables(self) -> Iterable[RenderableType]:
        """Nothing at first, then the bar."""
        if time.monotonic() - self._started > self.delay:
            yield from super().get_renderables()


def show(table: Table) -> None:
    """Print a table; as wide as it needs to be unless a terminal folds it."""
    console = Console()
    if not console.is_terminal:
        width = Console(width=10_000).measure(table).maximum
        console = Console(width=max(width, 1))
    console.print(table)


def outcomes_table(outcomes: Sequence[Outcome]) -> Table:
    """One row per statement: what was found, how surely, and what the control did."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("statement", "verdict", "expected"):
        table.add_column(name, overflow="fold")
    for name in ("bound", "interval", "error rate", "resolution", "trials"):
        table.add_column(name, justify="right", overflow="fold")
    table.add_column("control", overflow="fold")
    table.add_column("seconds", justify="right", overflow="fold")
    table.add_column("what was done", overflow="fold")
    for outcome in outcomes:
        verdict = outcome.verdict
        low, high = verdict.interval
        seconds = verdict.seconds + outcome.control.seconds
        table.add_row(
            outcome.statement.id,
            _status(verdict.status),
            _status(outcome.statement.expected),
            _number(verdict.bound),
            Text(f"[{_number(low)}, {_number(high)}]"),  # brackets are markup in a str
            _number(verdict.error_rate),
            f"{verdict.resolution:.1g}",
            str(verdict.num_trials),
            _status(outcome.control.status),
            f"{seconds:.1f}",
            Text(verdict.detail),
        )
    return table


def statements_table(statements: Sequence[Statement]) -> Table:
    """One row per statement: id, place, expected verdict, text."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("statement", "place", "expected", "text"):
        table.add_column(name, overflow="fold")
    for row in statements:
        table.add_row(row.id, Text(row.place), _status(row.expected), Text(row.text))
    return table


def print_summary(
    outcomes: Sequence[Outcome], preset: Preset, *, seconds: float
) -> None:
    """Print a line on the whole run, and one for each surprise in it."""
    surprises = [outcome for outcome in outcomes if not outcome.as_expected]
    expected = len(outcomes) - len(surprises)
    print(
        f"\n{expected} of {len(outcomes)} as expected, controls included "
        f"({preset.name} preset, seed {preset.seed}, {seconds:.1f} s)"
    )
    for outcome in surprises:
        print(
            f"{outcome.statement.id}: {outcome.verdict.status.value} where "
            f"{outcome.statement.expected.value} was expected, control "
            f"{outcome.control.status.value}"
        )


def outcomes_document(
    outcomes: Sequence[Outcome], preset: Preset, *, seconds: float
) -> str:
    """One JSON object with every number of every verdict; null where undefined."""
    return json.dumps(
        {
            "preset": preset.name,
            "seed": preset.seed,
            "seconds": seconds,
            "as_expected": all(outcome.as_expected for outcome in outcomes),
            "statements": [
                _described(outcome.statement)
                | {
                    "as_expected": outcome.as_expected,
                    "verdict": _judged(outcome.verdict),
                    "control": _judged(outcome.control),
                }
                for outcome in outcomes
            ],
        },
        indent=2,
        allow_nan=False,
    )


def statements_document(statements: Sequence[Statement]) -> str:
    """One JSON object with what the registry knows about the statements."""
    return json.dumps({"statements": [_described(row) for row in statements]}, indent=2)


def _described(statement: Statement) -> dict[str, object]:
    return {
        "id": statement.id,
        "paper": statement.paper,
        "place": statement.place,
        "text": statement.text,
        "preconditions": list(statement.preconditions),
        "constants": dict(statement.constants),
        "expected": statement.expected.value,
        "note": statement.note,
    }


def _judged(verdict: Verdict) -> dict[str, object]:
    return {
        "status": verdict.status.value,
        "bound": _defined(verdict.bound),
        "interval": [_defined(end) for end in verdict.interval],
        "error_rate": _defined(verdict.error_rate),
        "num_trials": verdict.num_trials,
        "resolution": _defined(verdict.resolution),
        "seconds": verdict.seconds,
        "detail": verdict.detail,
    }


def _defined(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _status(status: Status) -> Text:
    return Text(status.value, style=_COLOURS[status])


def _number(number: float) -> str:
    return f"{number:.6g}"
