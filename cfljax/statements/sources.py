"""Statements by name, from every installed package that offers some.

A package offers its statements with an entry point of the group `cfljax.statements`,
which names a function of ids that returns every statement with one of these ids or
below one. For a name that takes none it raises a KeyError of that name, and after it of
those that it knows and that resemble it most; any other error is the package's own.
"""

import difflib
import importlib.metadata
from collections.abc import Mapping
from typing import TYPE_CHECKING

from cfljax.statements.evaluation import Evaluation, Values, evaluated
from cfljax.statements.formulas import plain
from cfljax.statements.margin import Real
from cfljax.statements.statement import Statement

if TYPE_CHECKING:
    import xarray as xr

GROUP = "cfljax.statements"
_NEAREST = 3  # names that are told where one is unknown


def find(name: str) -> Statement:
    """The statement of an id, such as "ifca.lem1.bound"; of a name above several, such
    as "ifca.lem1", the only one that has an evaluation.

    Raises:
      ValueError: if no package offers it, with the nearest names, or it takes several.
    """
    found: list[Statement] = []
    resembling: set[str] = set()
    for entry in importlib.metadata.entry_points(group=GROUP):
        source = entry.load()
        try:
            found += source((name,))
        except KeyError as error:
            if error.args[:1] != (name,):
                raise
            resembling.update(error.args[1:])
    for row in found:
        if row.id == name:
            return row
    able = [row for row in found if row.evaluation is not None]
    if len(able) == 1:
        return able[0]
    if not found:
        near = difflib.get_close_matches(name, sorted(resembling), _NEAREST, cutoff=0.0)
        told = f"; nearest: {', '.join(near)}" if near else ""
        raise ValueError(f"`{name}` is no statement of any installed package{told}.")
    names = ", ".join(row.id for row in able or found)
    raise ValueError(f"`{name}` takes several statements: {names}.")


def evaluate(
    claim: str | Statement | Evaluation,
    *,
    sweep: Mapping[str, Values] | None = None,
    constants: Mapping[str, Real] | None = None,
    trials: int | None = None,
    error_rate: float = 1e-6,
    seed: int = 0,
    **values: Real,
) -> "xr.Dataset":
    """Bound, truth and margins of a claim at parameters of one's own.

        evaluate("ifca.lem1.bound", alpha=0.2, sweep={"n": [10, 100, 1000]})

    Args:
      claim: id of a statement of an installed package, see `find`; or one's own.
      sweep: parameters that take several values each; the result has a dimension for
        each of them.
      constants: other values for the claim's constants.
      trials: of a simulation, at each point; by default 10,000, or fewer where they
        would take longer than seconds. Unused where the law is known.
      error_rate: chance that any interval of the result misses, divided over the
        points.
      seed: of all random numbers. Point i of the sweep draws from a stream of its own.
      **values: other values than the defaults, by parameter.

    Returns:
      A Dataset with a dimension per swept parameter and the variables `bound`, `truth`
      (the middle of its interval), `low`, `high` (the same number where it is exact),
      `verdict` ("holds", "violated", "inconclusive", or "not claimed here" where a
      precondition is not met), `claimed` and, along `precondition`, `margin` (negative
      where it is not met), `have` and `need`; the constants that were used stand along
      `constant` as `constant_value`, with the interval of the best ones,
      `constant_low` and `constant_high`, and where they come from, `constant_origin`.
      Every parameter is a coordinate.

    Raises:
      ValueError: if the claim is unknown, with the nearest names, or has no evaluation;
        for a name that is none of its parameters, with those that are; for a value
        without a meaning; if a simulation is too large for memory or time, with the
        largest that fits in both.
    """
    row = find(claim) if isinstance(claim, str) else claim
    if not isinstance(row, Statement | Evaluation):
        raise ValueError(
            "`claim` must be an id, a Statement or an Evaluation, got "
            f"{type(row).__name__}."
        )
    title = ""
    if isinstance(row, Statement):
        if row.evaluation is None:
            raise ValueError(f"`{row.id}` has no evaluation at one's own parameters.")
        title, row = f"{row.id}: {plain(row.text)}", row.evaluation
    return evaluated(
        row,
        sweep=sweep,
        constants=constants,
        trials=trials,
        error_rate=error_rate,
        seed=seed,
        title=title,
        **values,
    )
