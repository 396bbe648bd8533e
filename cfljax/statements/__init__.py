r"""Claims put to the test: each with a check that can prove it wrong, and a control.

    from cfljax import statements

    coins = statements.claim(
        id="mine.coins", text=r"$P(\text{all coins show heads}) \le 1/n$",
        bound=lambda n: 1 / n, truth=lambda n: 0.5**n, grid={"n": [1, 2, 5, 10]},
        control=0.4,
    )
    statements.run(coins).as_expected  # True

`claim` makes a `Statement` of bound and truth, which `run` puts to the test, `evaluate`
computes at parameters of one's own, `figure` draws, and `write_page` and `write_report`
publish. A check of any other kind is a function that measures and lets a judge decide;
its control is the same check of a claim that is slightly false, whose verdict must be
violated; where the claim itself is violated, of one that is true.
"""

import importlib
from typing import TYPE_CHECKING, Any

from cfljax.statements.claims import claim
from cfljax.statements.evaluation import (
    Constant,
    Evaluation,
    Parameter,
    Simulation,
    Truth,
    exact,
)
from cfljax.statements.formulas import check_formulas, plain, symbols, typeset
from cfljax.statements.judges import (
    ERROR_RATE,
    Tally,
    at_most,
    equals,
    never_exceeds,
    never_falls_below,
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
    from cfljax.statements.site import write_page, write_report

# These bring Matplotlib, when they are asked for.
_DRAWING = {"figure": "drawing", "write_page": "site", "write_report": "site"}


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
    "check_formulas",
    "claim",
    "combine",
    "equals",
    "evaluate",
    "exact",
    "exactly",
    "figure",
    "find",
    "identity",
    "never_exceeds",
    "never_falls_below",
    "nonnegative",
    "plain",
    "run",
    "same_law",
    "symbols",
    "tally",
    "typeset",
    "within",
    "write_page",
    "write_report",
]
