"""What the commands print as JSON."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from cfljax.statements import Outcome, Preset, plain, site
from theory.registry import Listed


class Rotation(NamedTuple):
    """What one seed gave for one statement."""

    seed: int
    outcome: Outcome


def verdict_row(outcome: Outcome) -> dict[str, Any]:
    """What a table has of an outcome: nothing that differs from run to run."""
    statement, verdict = outcome.statement, outcome.verdict
    return {
        "id": statement.id,
        "place": plain(statement.place),
        "expected": statement.expected.value,
        "verdict": verdict.status.value,
        "fault": statement.fault,
        "evidence": verdict.grade.value,
        "error_rate": f"{verdict.error_rate:.3g}",
        "trials": verdict.num_trials,
        "control": outcome.control.status.value,
    }


def statements_document(rows: Sequence[Listed]) -> str:
    """One JSON object with what the registry knows about the statements."""
    return json.dumps({"statements": [site.described(row) for row in rows]}, indent=2)


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
            "statements": [site.outcome_document(outcome) for outcome in outcomes],
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
    return json.dumps(site.plainly(site.encoded(document)), indent=2, allow_nan=False)
