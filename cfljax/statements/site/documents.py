"""Statements and outcomes as JSON, for programs and for the next run."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Shaped

from cfljax.statements.evaluation import Evaluation
from cfljax.statements.formulas import plain
from cfljax.statements.margin import Margin
from cfljax.statements.proofs import Proof, Step
from cfljax.statements.runner import Outcome
from cfljax.statements.statement import Statement
from cfljax.statements.verdict import Grade, Points, Status, Verdict

TOLD = (  # of a statement, by the names of its fields
    "id", "paper", "place", "text", "preconditions", "claimed", "constants",
    "expected", "fault", "other_reading", "written_proof", "note",
)  # fmt: skip
_NUMBERS = ("bound", "error_rate", "resolution", "slack", "seconds")
_ARRAYS = ("bounds", "low", "high", "upper")


def encoded(document: Any, undefined: Callable[[float], Any] = lambda _: None) -> Any:
    """The document with something else for numbers that JSON lacks, null by default."""
    if isinstance(document, dict):
        return {name: encoded(one, undefined) for name, one in document.items()}
    if isinstance(document, list | tuple):
        return [encoded(one, undefined) for one in document]
    if isinstance(document, float) and not math.isfinite(document):
        return undefined(document)
    return document


def described(row: Any) -> dict[str, Any]:
    """What stands in the fields `TOLD` of a statement, or of what has the same, in
    plain letters; `latex` is the claim as it is written."""
    return {name: plainly(getattr(row, name)) for name in TOLD} | {
        "latex": getattr(row, "latex", row.text),
        "preconditions": plainly(list(row.preconditions)),
        "constants": plainly(dict(row.constants)),
        "expected": row.expected.value,
    }


def plainly(document: Any) -> Any:
    """The document with its texts in plain letters, but for LaTeX under that name."""
    if isinstance(document, str):
        return plain(document)
    if isinstance(document, dict):
        return {
            plainly(name): one if name == "latex" else plainly(one)
            for name, one in document.items()
        }
    if isinstance(document, list | tuple):
        return [plainly(one) for one in document]
    return document


def outcome_document(outcome: Outcome) -> dict[str, Any]:
    """A statement, every number of its verdicts and every point of its checks with
    its coordinates; undefined numbers are as they are."""
    row, proof = outcome.statement, outcome.proof
    return described(row) | {
        "as_expected": outcome.as_expected,
        "control_expected": row.control_expected.value,
        "verdict": _judged(outcome.verdict),
        "control": _judged(outcome.control),
        "margins": [
            {
                "assumption": margin.assumption,
                "have": float(margin.have),
                "need": float(margin.need),
                "at_least": margin.at_least,
                "holds": bool(margin.holds),
            }
            for margin in outcome.margins
        ],
        "proof": proof and dataclasses.asdict(proof) | {"complete": proof.is_complete},
        "evaluation": row.evaluation and _evaluation(row.evaluation),
    }


def _judged(verdict: Verdict) -> dict[str, Any]:
    numbers = {name: float(getattr(verdict, name)) for name in _NUMBERS}
    return numbers | {
        "status": verdict.status.value,
        "interval": [float(end) for end in verdict.interval],
        "num_trials": int(verdict.num_trials),
        "grade": verdict.grade.value,
        "detail": verdict.detail,
        "points": verdict.points and _listed(verdict.points),
    }


def _listed(points: Points) -> dict[str, Any]:
    """All points; `high` is left out where nothing is an interval."""
    known = {name: getattr(points, name) for name in _ARRAYS}
    if np.array_equal(known["low"], known["high"], equal_nan=True):
        known["high"] = None
    return {
        "kind": points.kind,
        "scale": points.scale,
        **{
            name: np.asarray(values, float).ravel().tolist()
            for name, values in known.items()
            if values is not None
        },
        "coordinates": {
            name: np.asarray(values).ravel().tolist()
            for name, values in points.coordinates.items()
        },
    }


def _evaluation(evaluation: Evaluation) -> dict[str, Any]:
    """Quantity and parameters; the functions are for Python alone."""
    return {
        "quantity": evaluation.quantity,
        "relation": evaluation.relation,
        "parameters": [
            {
                "name": one.name,
                "meaning": one.meaning,
                "default": one.default,
                "allowed": one.allowed,
            }
            for one in evaluation.parameters
        ],
        "constants": {
            name: one._asdict() for name, one in evaluation.constants.items()
        },
    }


def read_outcome(document: dict[str, Any], statement: Statement) -> Outcome:
    """The outcome of an `outcome_document` whose undefined numbers are texts.

    Raises:
      KeyError, TypeError, ValueError: if it is no such document.
    """
    margins = [
        Margin(
            found["assumption"],
            float(found["have"]),
            float(found["need"]),
            found["at_least"],
        )
        for found in document["margins"]
    ]
    proof = document["proof"]
    return Outcome(
        statement,
        verdict=_read_verdict(document["verdict"], statement.id),
        control=_read_verdict(document["control"], statement.id),
        margins=tuple(margins),
        proof=proof
        and Proof(
            steps=tuple(Step(**step) for step in proof["steps"]),
            control_fails=proof["control_fails"],
        ),
    )


def _read_verdict(found: dict[str, Any], name: str) -> Verdict:
    low, high = map(float, found["interval"])
    numbers: dict[str, Any] = {field: float(found[field]) for field in _NUMBERS}
    return Verdict(
        statement=name,
        status=Status(found["status"]),
        interval=(low, high),
        num_trials=int(found["num_trials"]),
        detail=str(found["detail"]),
        grade=Grade(found["grade"]),
        points=found["points"] and _read_points(found["points"]),
        **numbers,
    )


def _read_points(found: dict[str, Any]) -> Points:
    arrays: dict[str, Any] = {
        name: np.array(found[name], float) for name in _ARRAYS if name in found
    }
    coordinates = {name: _array(one) for name, one in found["coordinates"].items()}
    return Points(
        **{"high": arrays["low"], **arrays},
        kind=found["kind"],
        scale=found["scale"],
        coordinates=coordinates,
    )


def _array(values: Sequence[Any]) -> Shaped[np.ndarray, " points"]:
    """Numbers as numbers, also those that JSON lacks; else as they are."""
    odd = {str(one): one for one in (math.inf, -math.inf, math.nan)}
    return np.array([odd.get(one, one) for one in values])
