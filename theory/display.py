"""Statements, verdicts and rotations in lines of the terminal's width."""

import csv
import inspect
import math
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cfljax.statements import (
    FAULTS,
    Grade,
    Outcome,
    Preset,
    Real,
    Statement,
    Status,
    Verdict,
    plain,
)
from theory.documents import Rotation, by_statement
from theory.registry import Listed

_WIDEST = 100_000  # letters of a line of a table
_INDENT = 10  # letters before a text that belongs to a statement
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
    _print(table)


def show_all(outcome: Outcome) -> None:
    """Print all that is known of a statement: claim, reading, proof or evidence,
    margins, verdict, and the parameters at which it can be evaluated."""
    row, verdict = outcome.statement, outcome.verdict
    print(f"{row.id}\n{plain(row.place)}\n")
    told: list[tuple[str, str]] = [("claim", row.text)]
    told += [("assumes", one) for one in row.preconditions]
    told += [("constants claimed", row.claimed)] * bool(row.claimed)
    if row.constants:
        used = ", ".join(f"{name} = {value:g}" for name, value in row.constants.items())
        told.append(("constants", used))
    told += [("note", row.note)] * bool(row.note)
    if row.fault:
        told.append(("fault", FAULTS[row.fault]))
    told += [("other reading", row.other_reading)] * bool(row.other_reading)
    low, high = verdict.interval
    told += [
        ("verdict", f"{verdict.status.value}, {row.expected.value} was expected"),
        ("evidence", verdict.grade.value),
        ("what was done", verdict.detail),
        ("bound", _number(verdict.bound)),
        ("truth", f"[{_number(low)}, {_number(high)}]"),
        ("error rate", _error_rate(verdict)),
        ("trials or points", str(verdict.num_trials)),
    ]
    if verdict.slack > 1:
        loose = f"loose by at least {10**verdict.slack:.3g} at the tightest point"
        told.append(("slack", loose))
    elif not math.isnan(verdict.slack):
        told.append(("slack", f"a factor of {10**verdict.slack:.4g} at the tightest"))
    control = f"{outcome.control.status.value}, {row.control_expected.value} expected"
    told.append(("control", control))
    for margin in outcome.margins:
        word = "met" if margin.holds else "not met"
        told.append(("margin", f"{margin.assumption}: {margin.value:g}, {word}"))
    table = _plain_table()
    table.show_header = False
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in told:
        table.add_row(Text(name, style="bold"), Text(plain(text)))
    _print(table)
    if outcome.proof is not None:
        _show_proof(outcome)
    if row.evaluation is not None:
        _show_parameters(row)
    print()


def _show_proof(outcome: Outcome) -> None:
    proof, prove = outcome.proof, outcome.statement.proof
    assert proof is not None
    print("\nproof")
    written = inspect.getdoc(getattr(prove, "func", prove))
    print(textwrap.indent(_proof_in_lines(written or ""), "  "))
    for step in proof.steps:
        found = "checked" if step.holds else "FAILS"
        print(f"  [{found}, {step.method}] {plain(step.text)}")
        if step.detail:
            print(f"    {plain(step.detail)}")
    done = "fails, as it must" if proof.control_fails else "goes through, and must not"
    several = len(outcome.statement.proof_controls)
    of = "a false claim" if several == 1 else f"each of {several} false claims"
    print(f"  the same steps for {of}: {done}")


def _proof_in_lines(written: str) -> str:
    """A proof in plain letters, its paragraphs wrapped anew."""
    parts = re.split(r"(\n\s*\n|\n(?=\s*\d+\. ))", written)
    width = _console().width - 2
    return "".join(
        textwrap.fill(" ".join(plain(part).split()), width) if part.strip() else part
        for part in parts
    )


def _show_parameters(row: Statement) -> None:
    evaluation = row.evaluation
    assert evaluation is not None
    print(f"\nevaluate: {plain(evaluation.quantity)} {evaluation.relation} bound")
    table = _plain_table()
    for name in ("parameter", "default", "allowed", "meaning"):
        table.add_column(name, overflow="fold")
    for one in evaluation.parameters:
        table.add_row(
            one.name, f"{one.default:g}", one.allowed, Text(plain(one.meaning))
        )
    for name, one in evaluation.constants.items():
        known = (plain(one.origin), _best(one.low, one.high))
        meaning = "; ".join(part for part in known if part)
        table.add_row(name, f"{one.value:g}", "constant", Text(meaning))
    _print(table)
    first = next((one for one in evaluation.parameters if one.is_count), None)
    first = first or evaluation.parameters[0]
    sweep = f"{first.name}={first.default:g}:{100 * first.default:g}:9:log"
    print(f"  python -m theory evaluate {row.id} --sweep {sweep}")


def _best(low: Real, high: Real) -> str:
    """What is known of the best value of a constant."""
    if math.isnan(low) and math.isnan(high):
        return ""
    if math.isinf(low):
        return "no number is enough"
    return f"the best is in [{low:g}, {high:g}]"


def show_evaluation(
    statement: Statement, found: Any, points: Sequence[Mapping[str, Any]]
) -> None:
    """Print one row per point of what `cfljax.statements.evaluate` found."""
    print(f"{statement.id}: {plain(statement.text)}")
    attributes = found.attrs
    scale = "" if attributes["scale"] == "number" else ", in natural logarithms"
    print(f"{attributes['quantity']} {attributes['relation']} bound{scale}")
    swept = list(found["bound"].dims)
    known = (*swept, "precondition", "constant")
    fixed = [f"{n} = {found[n].item():g}" for n in found.coords if n not in known]
    if fixed:
        print(f"at {', '.join(fixed)}")
    if "constant" in found.dims:
        names = found["constant"].values.tolist()
        parts = [found[f"constant_{end}"].values for end in ("value", "low", "high")]
        for name, value, low, high in zip(names, *parts, strict=True):
            best = _best(low, high)
            print(f"{name} = {value:g}{best and f', {best}'}")
    rate = ""
    if attributes["trials"]:
        rate = f", {attributes['trials']} trials a point, error rate "
        rate += f"{attributes['error_rate']:g}"
    print(f"truth: {attributes['grade']}{rate}")
    if statement.expected is not Status.HOLDS:
        fault = f" ({FAULTS[statement.fault]})" if statement.fault else ""
        print(f"the claim as a whole: {statement.expected.value}{fault}")
    print()
    table = _plain_table()
    exact = all(point["low"] == point["high"] for point in points)
    names = [*swept, "bound", "truth"] + ["interval"] * (not exact) + ["verdict"]
    for name in names:
        table.add_column(name, justify="left" if name == "verdict" else "right")
    for point in points:
        interval = f"[{_number(point['low'])}, {_number(point['high'])}]"
        cells = [_number(point[name]) for name in (*swept, "bound", "truth")]
        cells += [interval] * (not exact)
        missed = [
            f"{name} (margin {value:.4g})"
            for name, value in point.get("margins", {}).items()
            if not value >= 0
        ]
        verdict = ": ".join([point["verdict"], "; ".join(missed)][: 1 + bool(missed)])
        table.add_row(*map(_plain, [*cells, verdict]))
    _print(table)


def print_csv(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows with the same columns, and a header, separated by commas."""
    writer = csv.DictWriter(sys.stdout, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def show_outcomes(outcomes: Sequence[Outcome]) -> None:
    """Print for each statement what it claims, its verdict, class and grade, and what
    was done, in lines no longer than the terminal's, or 80 letters where there is none
    and COLUMNS does not say otherwise."""
    console = _console()
    for outcome in outcomes:
        for line in _outcome_lines(outcome, console.width):
            console.print(line, soft_wrap=True)
    if any(_is_violated_as_expected(outcome) for outcome in outcomes):
        meaning = f"{_AS_EXPECTED}: {_MEANING}"
        console.print(Text("\n".join(["", *_wrapped(meaning, console.width)])))


_AS_EXPECTED = "violated, as expected"
_MEANING = (
    "the registry says that the claim is false, its class says whose fault that is, "
    "and the check has found a violation; the control, a true claim, holds."
)


def _is_violated_as_expected(row: Outcome) -> bool:
    return row.verdict.status is row.statement.expected is Status.VIOLATED


def _outcome_lines(row: Outcome, width: int) -> Iterator[Text]:
    """One outcome: a line with its name and verdict, and what belongs to it below."""
    statement, verdict = row.statement, row.verdict
    status = verdict.status.value
    found = f"{status}, where {statement.expected.value} was expected"
    if row.verdict_as_expected:
        found = f"{status}, as expected"
    head = Text(statement.id, style="bold")
    room = width - len(statement.id) - len(found)
    head.append(" " * room if room >= 2 else "\n  ", style="")
    head.append(found, style=_COLOURS[verdict.status])
    yield head
    told = [("claim", plain(statement.text))]
    if statement.fault:
        told.append(("class", FAULTS[statement.fault]))
    told += [("grade", _grade(row)), ("done", plain(verdict.detail))]
    for name, text in told:
        yield from _entry(name, text, width)


def _grade(row: Outcome) -> str:
    """How the verdict is known, with its numbers, and what became of the control."""
    verdict = row.verdict
    parts = [verdict.grade.value]
    if verdict.error_rate > 0:
        parts.append(f"error rate {_number(verdict.error_rate)}")
    parts.append(f"{_number(verdict.bound)} claimed, {_interval(verdict)} true")
    expected = row.statement.control_expected.value
    control = f"control {row.control.status.value}"
    if not row.control_as_expected:
        control += f", where {expected} had to come out"
    parts += [control, f"{row.seconds:.1f} s"]
    return "; ".join(parts)


def _entry(name: str, text: str, width: int) -> Iterator[Text]:
    """A name, and a text beside it that is wrapped."""
    for place, line in enumerate(_wrapped(text, width - _INDENT)):
        start = f"  {name}".ljust(_INDENT) if place == 0 else " " * _INDENT
        yield Text(f"{start}{line}")


def _wrapped(text: str, width: int) -> list[str]:
    """Lines of a text; what has no space, such as a long formula, is cut."""
    return textwrap.wrap(text, max(width, 20), break_on_hyphens=False) or [""]


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
    _print(table)
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
    told = (
        f"{expected} of {len(outcomes)} as expected, controls included "
        f"({preset.name} preset, {seeds}, {seconds:.1f} s)"
    )
    print("", *_wrapped(told, _console().width), sep="\n")
    for name, row in surprises.items():
        print(
            f"{name}: {row.verdict.status.value} where {row.statement.expected.value} "
            f"was expected, control {row.control.status.value} where "
            f"{row.statement.control_expected.value} was, {_proved(row)}"
            f"({plain(row.verdict.detail)})"
        )


def _plain_table() -> Table:
    """A table without lines."""
    return Table(box=None, pad_edge=False, header_style="bold")


def _console(piped: int | None = None) -> Console:
    """As wide as COLUMNS says, or the terminal, else as `piped`, or 80 letters."""
    wide = piped is not None and "COLUMNS" not in os.environ
    console = Console(width=shutil.get_terminal_size().columns)
    return Console(width=piped) if wide and not console.is_terminal else console


def _print(table: Table) -> None:
    """A table, folded to a terminal's width, else as wide as it needs to be; there no
    line ends in spaces."""
    console = _console(_WIDEST)
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as printed:
        console.print(table)
    print("\n".join(line.rstrip() for line in printed.get().splitlines()))


def _plain(cell: str | Text) -> Text:
    """Brackets in a plain string would be read as markup."""
    return Text(cell) if isinstance(cell, str) else cell


def _status(status: Status) -> Text:
    """The verdict's word in its colour."""
    return Text(status.value, style=_COLOURS[status])


def _proved(row: Outcome) -> str:
    """What is wrong with the proof, if anything."""
    if row.proof is None or row.proof.is_complete:
        return ""
    failed = [plain(step.text) for step in row.proof.steps if not step.holds]
    if failed:
        return f"proof fails at: {failed[0]} "
    return "proof goes through for a false claim "


def _error_rate(verdict: Verdict) -> str:
    """The promise, or that it is none."""
    nominal = verdict.grade is Grade.NOMINAL and verdict.error_rate > 0
    return f"{_number(verdict.error_rate)}{' (nominal)' if nominal else ''}"


def _share(good: int, count: int) -> Text:
    return Text(f"{good} of {count}", style="" if good == count else "red")


def _number(number: float | int) -> str:
    return f"{number:.6g}"


def _interval(verdict: Verdict) -> str:
    low, high = verdict.interval
    return f"[{_number(low)}, {_number(high)}]"
