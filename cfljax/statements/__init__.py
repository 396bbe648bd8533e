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
is slightly false, whose verdict must be violated.
"""

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
from cfljax.statements.runner import Outcome, run
from cfljax.statements.statement import (
    SEVERITIES,
    Erratum,
    Margin,
    Preset,
    Statement,
)
from cfljax.statements.verdict import Points, Status, Verdict, combine

__all__ = [
    "ERROR_RATE",
    "SEVERITIES",
    "Erratum",
    "Margin",
    "Outcome",
    "Points",
    "Preset",
    "Statement",
    "Status",
    "Tally",
    "Verdict",
    "at_most",
    "combine",
    "equals",
    "never_exceeds",
    "run",
    "same_law",
    "tally",
    "within",
]
