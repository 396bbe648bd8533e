"""Claims put to the test: each with a check that can prove it wrong, and a control.

    from cfljax import statements

    def check(preset, *, bound=0.5):
        heads = preset.generator("coin").random(10_000) < 0.4
        counts = statements.tally(heads)
        return statements.at_most("mine.coin", counts, bound)

    claim = statements.Statement(
        id="mine.coin", paper="mine", place="Lemma 1", text="P(heads) <= 1/2",
        check=check, control=functools.partial(check, bound=0.35),
    )
    statements.run(claim, statements.Preset()).as_expected  # True

A check measures and lets a judge decide; its control is the same check of a claim that
is slightly false, whose verdict must be violated; where the claim itself is violated,
of one that is true. `Evaluation` gives bound and truth at parameters of one's own.
"""

import importlib
from typing import TYPE_CHECKING, Any

from cfljax.statements.evaluation import (
    Constant,
    Evaluation,
    Parameter,
    Simulation,
    Truth,
    exact,
)
from cfljax.statements.judges import (
    ERROR_RATE,
    Tally,
    at_most,
    equals,
    never_exceeds,
    same_law,
    tally,
    within,
)
from cfljax.statements.margin import Margin, Real
from cfljax.statements.proofs import Proof, Step, exactly, identity, nonnegative
from cfljax.statements.runner import Outcome, run
from cfljax.statements.sources import evaluate, find
from cfljax.statements.statement import (
    FAULTS,
    SEVERITIES,
    Erratum,
    Preset,
    Statement,
)
from cfljax.statements.verdict import Grade, Points, Status, Verdict, combine

if TYPE_CHECKING:
    from cfljax.statements.drawing import figure

_DRAWING = {"figure": "drawing"}  # these bring Matplotlib, when they are asked for


def __getattr__(name: str) -> Any:
    """What draws or writes, and its module with it."""
    if name not in _DRAWING:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_DRAWING[name]}"), name)


__all__ = [
    "ERROR_RATE",
    "FAULTS",
    "SEVERITIES",
    "Constant",
    "Erratum",
    "Evaluation",
    "Grade",
    "Margin",
    "Outcome",
    "Parameter",
    "Points",
    "Preset",
    "Proof",
    "Real",
    "Simulation",
    "Statement",
    "Status",
    "Step",
    "Tally",
    "Truth",
    "Verdict",
    "at_most",
    "combine",
    "equals",
    "evaluate",
    "exact",
    "exactly",
    "figure",
    "find",
    "identity",
    "never_exceeds",
    "nonnegative",
    "run",
    "same_law",
    "tally",
    "within",
]
