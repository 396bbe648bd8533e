"""Statements and outcomes as JSON, for programs and for the next run."""

import dataclasses
import json
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from cfljax.statements import Margin, Outcome, Preset, Statement, Status, Verdict
from theory.registry import Listed, described

_NUMBERS = ("bound", "error_rate", "resolution", "slack", "seconds")


class Rotation(NamedTuple):
    """What one seed gave for one statement."""

    seed: int
    outcome: Outcome


def encoded(document: Any, undefined: Callable[[float], Any] = lambda _: None) -> Any:
    """The document with something else for numbers that JSON lacks, null by default."""
    if isinstance(document, dict):
        return {name: encoded(one, undefined) for name, one in document.items()}
    if isinstance(document, list | tuple):
        return [encoded(one, undefined) for one in document]
    if isinstance(document, float) and not math.isfinite(document):
        return undefined(document)
    return document


def verdict_row(outcome: Outcome) -> dict[str, Any]:
    """What a table has of an outcome: nothing that differs from run to run."""
    statement, verdict = outcome.statement, outcome.verdict
    return {
        "id": statement.id,
        "place": statement.place,
        "expected": statement.expected.value,
        "verdict": verdict.status.value,
        "fault": statement.fault,
        "evidence": verdict.grade.value,
        "error_rate": f"{verdict.error_rate:.3g}",
        "trials": verdict.num_trials,
        "control": outcome.control.status.value,
    }


def outcome_document(outcome: Outcome) -> dict[str, Any]:
    """A statement and every number of its verdicts, undefined ones as they are."""
    proof = outcome.proof
    return described(outcome.statement) | {
        "as_expected": outcome.as_expected,
        "proof": proof and dataclasses.asdict(proof) | {"complete": proof.is_complete},
        "verdict": _judged(outcome.verdict),
        "control": _judged(outcome.control),
        "margins": [
            dataclasses.asdict(margin) | {"holds": bool(margin.holds)}
            for margin in outcome.margins
        ],
    }


def _judged(verdict: Verdict) -> dict[str, Any]:
    return {
        "status": verdict.status.value,
        "bound": verdict.bound,
        "interval": list(verdict.interval),
        "error_rate": verdict.error_rate,
        "num_trials": int(verdict.num_trials),
        "resolution": verdict.resolution,
        "slack": verdict.slack,
        "seconds": verdict.seconds,
        "detail": verdict.detail,
    }


def read_outcome(document: dict[str, Any], statement: Statement) -> Outcome:
    """The outcome of an `outcome_document` whose undefined numbers are texts.

    Raises:
      KeyError, TypeError, ValueError: if it is no such document.
    """
    verdict, control = (
        _read_verdict(document[part], statement.id) for part in ("verdict", "control")
    )
    margins = [
        Margin(
            found["assumption"],
            float(found["have"]),
            float(found["need"]),
            found["at_least"],
        )
        for found in document["margins"]
    ]
    return Outcome(statement, verdict, control, tuple(margins))


def _read_verdict(found: dict[str, Any], name: str) -> Verdict:
    low, high = map(float, found["interval"])
    numbers: dict[str, Any] = {field: float(found[field]) for field in _NUMBERS}
    return Verdict(
        statement=name,
        status=Status(found["status"]),
        interval=(low, high),
        num_trials=int(found["num_trials"]),
        detail=str(found["detail"]),
        **numbers,
    )


def statements_document(rows: Sequence[Listed]) -> str:
    """One JSON object with what the registry knows about the statements."""
    return json.dumps({"statements": [described(row) for row in rows]}, indent=2)


def outcomes_document(
    outcomes: Sequence[Outcome], preset: Preset, *, seconds: float, **more: Any
) -> str:
    """One JSON object with every number of every verdict, null where undefined, the
    `seconds` that the whole run took, and further entries."""
    return _written(
        {
            "preset": preset.name,
            "seed": preset.seed,
            "seconds": seconds,
            "as_expected": all(outcome.as_expected for outcome in outcomes),
            "statements": [outcome_document(outcome) for outcome in outcomes],
            **more,
        }
    )


def rotations_document(
    rotations: Sequence[Rotation], preset: Preset, count: int, *, seconds: float
) -> str:
    """One JSON object with the verdicts of every statement under every seed."""
    return _written(
        {
            "preset": preset.name,
            "first_seed": preset.seed,
            "rotations": count,
            "seconds": seconds,
            "as_expected": all(one.outcome.as_expected for one in rotations),
            "statements": [_turned(rows) for rows in by_statement(rotations)],
        }
    )


def _turned(rows: Sequence[Rotation]) -> dict[str, Any]:
    """One statement under every seed."""
    outcomes = [row.outcome for row in rows]
    return {
        "id": outcomes[0].statement.id,
        "expected": outcomes[0].statement.expected.value,
        "verdicts_as_expected": sum(one.verdict_as_expected for one in outcomes),
        "controls_as_expected": sum(one.control_as_expected for one in outcomes),
        "seeds": [
            {
                "seed": seed,
                "verdict": one.verdict.status.value,
                "control": one.control.status.value,
            }
            for seed, one in rows
        ],
    }


def by_statement(rotations: Sequence[Rotation]) -> list[list[Rotation]]:
    """The rotations of each statement."""
    groups: dict[str, list[Rotation]] = {}
    for row in rotations:
        groups.setdefault(row.outcome.statement.id, []).append(row)
    return list(groups.values())


def _written(document: dict[str, Any]) -> str:
    return json.dumps(encoded(document), indent=2, allow_nan=False)
