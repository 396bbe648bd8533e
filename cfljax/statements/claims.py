r"""A theorem of one's own as a statement: bound, truth and a grid are all it takes.

union = claim(
    id="mine.union",
    text=r"$P(\text{any of } n \text{ coins shows heads}) \le n p$",
    bound=lambda n, p: n * p,
    truth=lambda n, p: 1 - (1 - p) ** n,
    grid={"n": [1, 2, 5], "p": [0.01, 0.1]},
    control=0.9,
)
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Num

from cfljax.statements import judges
from cfljax.statements.evaluation import (
    Evaluation,
    Parameter,
    Simulation,
    Truth,
    Values,
    exact,
)
from cfljax.statements.formulas import check_formulas, left_side
from cfljax.statements.margin import Margin, Real
from cfljax.statements.statement import Preset, Statement
from cfljax.statements.verdict import Verdict

Point = Mapping[str, Real]


def claim(
    *,
    id: str,
    text: str,
    bound: Callable[..., Real],
    truth: Callable[..., Real | Truth] | None = None,
    sampler: Callable[..., Num[np.ndarray, " trials"]] | None = None,
    grid: Mapping[str, Values],
    control: Real | Callable[..., Real],
    relation: Literal["<=", ">=", "="] = "<=",
    support: tuple[Real, Real] | None = None,
    trials: int = 10_000,
    resolution: float = 0.1,
    rounding: float = 1e-9,
    numbers: Callable[..., Real] = lambda **_: 1,
    logarithmic: bool = False,
    meanings: Mapping[str, str | Parameter] | None = None,
    quantity: str = "",
    margins: Callable[..., Sequence[Margin]] = lambda **_: (),
    place: str = "",
    **fields: Any,
) -> Statement:
    """A statement that is checked at every point of a grid, and can be evaluated at
    other points.

    With a known law (`truth`) nothing is random: `never_exceeds` judges a bound from
    above, `within` the other relations, up to rounding. With a `sampler` of events
    `at_most` judges by Clopper and Pearson's intervals (`equals` for "=", `within` for
    ">="), with one of numbers on a `support` `within` by betting's intervals of their
    mean. All these intervals hold at every sample size and, together, except with
    `judges.ERROR_RATE`.

    Args:
      id: dotted name, such as "mine.dkw"; what stands before the first dot is `paper`.
      text: the claim, in a line; formulas are LaTeX between dollar signs.
      bound: takes a point's parameters by name; what is claimed.
      truth: takes them too; the true value, or a `Truth` with an interval.
      sampler: instead of `truth`; takes a generator, a number of trials and the
        parameters by name; returns `[trials]`, events (0 or 1, or bool) whose chance,
        or with a `support` numbers whose mean the claim is about.
      grid: values of each parameter; all combinations are checked.
      control: what makes the claim false, and must come out so: a factor on the bound,
        or another bound. Where the claim itself is expected to be violated it must be
        true.
      relation: of the truth to the bound.
      support: ends of what the sampler's numbers can be.
      trials: of the sampler, at each point; ten times as many for the full preset.
      resolution: discrepancy that an equality of sampled numbers must notice.
      rounding: of bound and truth where nothing is random, relative.
      numbers: takes the parameters by name; how many numbers a trial of the sampler
        holds at once.
      logarithmic: whether bound and truth are natural logarithms.
      meanings: of the parameters, in words or as a `Parameter` with its ends.
      quantity: what is bounded; the left side of `text` if empty.
      margins: takes the parameters by name; by how much each precondition is met. The
        check leaves points out where one is not.
      place: where the claim is made.
      **fields: more of `Statement`'s, such as `note`, `expected` or `proof`.

    Raises:
      ValueError: if not exactly one of `truth` and `sampler` is given, the claim is
        made at no point of the grid, or a formula cannot be read.
    """
    if truth is not None and sampler is None:
        known = functools.partial(_known, truth)
    elif sampler is not None and truth is None:
        of = "chance" if support is None else "mean"
        known = Simulation(sampler, numbers, of, support)
    else:
        given = "neither" if truth is None else "both"
        raise ValueError(f"`truth` or `sampler` must be given, got {given}.")
    if not grid or any(len(values) == 0 for values in grid.values()):
        raise ValueError("`grid` must give each parameter a value, got none.")
    evaluation = Evaluation(
        quantity=quantity or left_side(text, relation),
        parameters=tuple(_parameter(name, grid[name], meanings or {}) for name in grid),
        bound=bound,
        truth=known,
        margins=margins,
        relation=relation,
        logarithmic=logarithmic,
    )
    every = itertools.product(*(_numbers(grid[name]) for name in grid))
    points = [dict(zip(grid, values, strict=True)) for values in every]
    points = [p for p in points if all(margin.holds for margin in margins(**p))]
    if not points:
        raise ValueError("`grid` must hold a point at which the claim is made.")
    check = _Check(id, evaluation, points, bound, trials, resolution, rounding)
    other = control if callable(control) else _times(bound, control, logarithmic)
    statement = Statement(
        id=id,
        paper=id.split(".")[0],
        place=place,
        text=text,
        check=check,
        control=dataclasses.replace(check, bound=other),
        evaluation=evaluation,
        margins=lambda: _least_margins([margins(**point) for point in points]),
        **fields,
    )
    check_formulas(id, statement.prose)
    return statement


def _numbers(values: Values) -> list[Real]:
    """Values of a grid as Python's own numbers."""
    return np.asarray(values).tolist()


def _parameter(
    name: str, values: Values, meanings: Mapping[str, str | Parameter]
) -> Parameter:
    """A parameter of the grid; its middle value is the default."""
    meaning = meanings.get(name, "")
    if isinstance(meaning, Parameter):
        return meaning
    own = _numbers(values)
    return Parameter(name, meaning, own[len(own) // 2])


def _known(truth: Callable[..., Any], **point: Real) -> Truth:
    """A known law's value, as a truth if it is a number."""
    found = truth(**point)
    return found if isinstance(found, Truth) else exact(found)


def _ends(
    truths: Sequence[Truth],
) -> tuple[Float[np.ndarray, " points"], Float[np.ndarray, " points"]]:
    low, high, _ = zip(*truths, strict=True)
    return np.array(low), np.array(high)


def _times(
    bound: Callable[..., Real], factor: Real, logarithmic: bool
) -> Callable[..., Real]:
    """The bound times a factor."""
    if logarithmic:
        return lambda **point: bound(**point) + float(np.log(factor))
    return lambda **point: factor * bound(**point)


def _least_margins(found: Sequence[Sequence[Margin]]) -> tuple[Margin, ...]:
    """Of each precondition the margin at the point that meets it most narrowly."""
    each = zip(*found, strict=True)
    return tuple(min(one, key=lambda margin: margin.value) for one in each)


@dataclasses.dataclass(frozen=True)
class _Check:
    """The check of a bound at all points, as a function of the preset."""

    id: str
    evaluation: Evaluation
    points: Sequence[Point]
    bound: Callable[..., Real]
    trials: int
    resolution: float
    rounding: float

    def __call__(self, preset: Preset) -> Verdict:
        """Measure at every point, and let a judge decide."""
        bounds = np.array([float(self.bound(**point)) for point in self.points])
        coordinates = {
            name: np.array([point[name] for point in self.points])
            for name in self.points[0]
        }
        simulation = self.evaluation.truth
        if not isinstance(simulation, Simulation):
            return self._known(bounds, coordinates, simulation)
        trials = preset.choose(quick=self.trials, full=10 * self.trials)
        samples = [
            simulation.sample(preset.generator(self.id, number), trials, point)
            for number, point in enumerate(self.points)
        ]
        return self._sampled(bounds, coordinates, simulation, samples)

    def _known(
        self,
        bounds: Float[np.ndarray, " points"],
        coordinates: Mapping[str, np.ndarray],
        law: Callable[..., Truth],
    ) -> Verdict:
        """Against a law that is computed."""
        truths = [law(**point) for point in self.points]
        low, high = _ends(truths)
        sizes = np.nan_to_num([np.abs(bounds), np.abs(high)], posinf=0.0, neginf=0.0)
        room = self.rounding * np.max(sizes, axis=0) + np.finfo(float).tiny
        told: dict[str, Any] = {
            "grade": max((truth.grade for truth in truths), key=lambda one: one.rank),
            "coordinates": coordinates,
            "detail": f"{len(self.points)} points of a grid",
        }
        if self.evaluation.relation == "<=" and np.array_equal(low, high):
            return judges.never_exceeds(
                self.id,
                high,
                bounds,
                rounding=room,
                logarithmic=self.evaluation.logarithmic,
                **told,
            )
        return judges.within(
            self.id,
            (low, high),
            self._band(bounds, room),
            num_trials=len(self.points),
            error_rate=0.0,
            **told,
        )

    def _sampled(
        self,
        bounds: Float[np.ndarray, " points"],
        coordinates: Mapping[str, np.ndarray],
        simulation: Simulation,
        samples: Sequence[Float[np.ndarray, " trials"]],
    ) -> Verdict:
        """Against intervals that hold at all points together."""
        trials = len(samples[0])
        told: dict[str, Any] = {
            "coordinates": coordinates,
            "detail": f"{len(self.points)} points of a grid, {trials} trials each",
        }
        relation = self.evaluation.relation
        if simulation.of == "chance" and relation != ">=":
            counts = judges.tally(np.stack(samples))
            if relation == "=":
                told["resolution"] = self.resolution
                return judges.equals(self.id, counts, bounds, **told)
            return judges.at_most(self.id, counts, bounds, **told)
        rate = judges.ERROR_RATE / len(samples)
        room = self.resolution if relation == "=" else 0.0
        truths = [simulation.interval(sample, rate) for sample in samples]
        low, high = _ends(truths)
        return judges.within(
            self.id,
            (low, high),
            self._band(bounds, np.full_like(bounds, room)),
            num_trials=trials * len(samples),
            grade=truths[0].grade,
            **told,
        )

    def _band(
        self, bounds: Float[np.ndarray, " points"], room: Float[np.ndarray, " points"]
    ) -> tuple[Float[np.ndarray, " points"], Float[np.ndarray, " points"]]:
        """Ends of what is claimed, with some room."""
        infinite = np.full_like(bounds, np.inf)
        relation = self.evaluation.relation
        return (
            -infinite if relation == "<=" else bounds - room,
            infinite if relation == ">=" else bounds + room,
        )
