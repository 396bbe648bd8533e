"""Statements, verdicts and rotations as tables."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cfljax.statements import Outcome, Preset, Status, Verdict
from theory.documents import Rotation, by_statement
from theory.registry import Listed

_WIDEST = 100_000  # characters of a line
_COLOURS = {
    Status.HOLDS: "green",
    Status.VIOLATED: "red",
    Status.VACUOUS: "yellow",
    Status.INCONCLUSIVE: "magenta",
}


def show_statements(rows: Sequence[Listed]) -> None:
    """Print one row per statement: id, place, expected verdict, text.

    As wide as it needs to be, unless a terminal folds it.
    """
    table = _plain_table()
    for name in ("statement", "place", "expected", "text"):
        table.add_column(name, overflow="fold", no_wrap=name == "statement")
    for row in rows:
        cells = (row.id, row.place, _status(row.expected), row.text)
        table.add_row(*map(_plain, cells))
    _console().print(table)


def show_outcomes(outcomes: Sequence[Outcome]) -> None:
    """Print one row per statement: what was found, how surely, and the control.

    Never cut: a terminal that is too narrow gets fewer columns, and is told so.
    """
    console = _console()
    tables = [_outcomes_table(outcomes, rank) for rank in _RANKS]
    wide = Console(width=_WIDEST)
    fitting = [one for one in tables if wide.measure(one).maximum <= console.width]
    table = (fitting or tables[-1:])[0]
    console.print(table)
    hidden = len(tables[0].columns) - len(table.columns)
    if hidden:
        print(f"({hidden} more columns in a wider terminal, or with --json)")


def show_summary(
    outcomes: Sequence[Outcome], preset: Preset, *, seconds: float
) -> None:
    """Print a line on the whole run, and one for each surprise in it."""
    _summarise(
        {row.statement.id: row for row in outcomes},
        f"seed {preset.seed}",
        preset,
        seconds,
    )


def show_rotations(
    rotations: Sequence[Rotation], preset: Preset, count: int, *, seconds: float
) -> None:
    """Print per statement how often verdict and control were as expected, and flips."""
    table = _plain_table()
    for name in ("statement", "expected", "verdicts", "controls", "seconds"):
        table.add_column(name, justify="right" if name == "seconds" else "left")
    for rows in by_statement(rotations):
        outcomes = [row.outcome for row in rows]
        good = sum(outcome.verdict_as_expected for outcome in outcomes)
        controls = sum(outcome.control_as_expected for outcome in outcomes)
        table.add_row(
            Text(outcomes[0].statement.id),
            _status(outcomes[0].statement.expected),
            _share(good, len(rows)),
            _share(controls, len(rows)),
            Text(f"{sum(outcome.seconds for outcome in outcomes):.1f}"),
        )
    _console().print(table)
    _summarise(
        {f"{r.outcome.statement.id}, seed {r.seed}": r.outcome for r in rotations},
        f"seeds {preset.seed} to {preset.seed + count - 1}",
        preset,
        seconds,
    )


def _summarise(
    outcomes: Mapping[str, Outcome], seeds: str, preset: Preset, seconds: float
) -> None:
    """A line on all outcomes, by name, and one for each surprise among them."""
    surprises = {name: row for name, row in outcomes.items() if not row.as_expected}
    expected = len(outcomes) - len(surprises)
    print(
        f"\n{expected} of {len(outcomes)} as expected, controls included "
        f"({preset.name} preset, {seeds}, {seconds:.1f} s)"
    )
    for name, row in surprises.items():
        print(
            f"{name}: {row.verdict.status.value} where {row.statement.expected.value} "
            f"was expected, control {row.control.status.value} ({row.verdict.detail})"
        )


class _Column(NamedTuple):
    """A column of the outcomes; those of higher rank give way first."""

    name: str
    rank: int
    justify: Literal["left", "right"]
    cell: Callable[[Outcome], str | Text]


_RANKS = (2, 1, 0)
_COLUMNS = (
    _Column("statement", 0, "left", lambda row: row.statement.id),
    _Column("verdict", 0, "left", lambda row: _status(row.verdict.status)),
    _Column("expected", 0, "left", lambda row: _status(row.statement.expected)),
    _Column("bound", 0, "right", lambda row: _number(row.verdict.bound)),
    _Column("interval", 1, "right", lambda row: _interval(row.verdict)),
    _Column("slack", 2, "right", lambda row: _decades(row.verdict.slack)),
    _Column("error rate", 1, "right", lambda row: _number(row.verdict.error_rate)),
    _Column("resolution", 2, "right", lambda row: f"{row.verdict.resolution:.1g}"),
    _Column("trials", 1, "right", lambda row: str(row.verdict.num_trials)),
    _Column("control", 0, "left", lambda row: _status(row.control.status)),
    _Column("seconds", 0, "right", lambda row: f"{row.seconds:.1f}"),
    _Column("what was done", 2, "left", lambda row: row.verdict.detail),
)


def _outcomes_table(outcomes: Sequence[Outcome], rank: int) -> Table:
    """The columns up to a rank."""
    table = _plain_table()
    columns = [column for column in _COLUMNS if column.rank <= rank]
    for column in columns:
        table.add_column(column.name, justify=column.justify, overflow="fold")
    for outcome in outcomes:
        table.add_row(*(_plain(column.cell(outcome)) for column in columns))
    return table


def _plain_table() -> Table:
    """A table without lines."""
    return Table(box=None, pad_edge=False, header_style="bold")


def _console() -> Console:
    """As wide as any table needs to be, unless it is a terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=_WIDEST)


def _plain(cell: str | Text) -> Text:
    """Brackets in a plain string would be read as markup."""
    return Text(cell) if isinstance(cell, str) else cell


def _status(status: Status) -> Text:
    """The verdict's word in its colour."""
    return Text(status.value, style=_COLOURS[status])


def _share(good: int, count: int) -> Text:
    return Text(f"{good} of {count}", style="" if good == count else "red")


def _number(number: float) -> str:
    return f"{number:.6g}"


def _decades(number: float) -> str:
    """Empty where there is no upper bound."""
    return "" if math.isnan(number) else f"{number:.2f}"


def _interval(verdict: Verdict) -> str:
    low, high = verdict.interval
    return f"[{_number(low)}, {_number(high)}]"
