"""A claim at parameters of one's own: bound, truth, and whether it is claimed there.

    claim = Evaluation(
        quantity="P(all heads)",
        parameters=(Parameter("n", "tosses", 10), Parameter("p", "of heads", 0.5)),
        bound=lambda n, p: math.exp(-n * (1 - p)),
        truth=lambda n, p: exact(p**n),
    )

With `cfljax.statements.evaluate(claim, sweep={"n": range(1, 50)}, p=0.4)` it becomes an
xarray Dataset.
"""

import dataclasses
import itertools
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Num

from cfljax.statements.formulas import plain
from cfljax.statements.margin import Margin, Real
from cfljax.statements.verdict import Grade

if TYPE_CHECKING:
    import xarray as xr

Values = Sequence[Real] | Num[np.ndarray, " values"]  # of a parameter

MOST_BYTES = 2**30  # of one trial, and of the outcomes of all at a point
MOST_NUMBERS = 2e10  # drawn in all: minutes
_SECONDS = 2e8  # numbers that are drawn in so long
_USUAL, _FEWEST = 10_000, 100  # trials, unless it is said how many
_BYTES = 8
_CHUNK = 2**22  # numbers drawn at once where trials are small


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One parameter of a claim.

    Attributes:
      name: as in the glossary of the papers' symbols, such as "n" or "noise".
      meaning: what it is, with its unit if it has one.
      default: value where none is given; an integer makes it a count.
      least, most: ends of what has a meaning at all, whatever the claim assumes.
      open: whether the ends themselves have none.
    """

    name: str
    meaning: str
    default: Real
    least: Real = -math.inf
    most: Real = math.inf
    open: bool = False

    @property
    def is_count(self) -> bool:
        """Whether it takes integers alone."""
        return isinstance(self.default, int)

    def checked(self, value: Any) -> Real:
        """The value as a number.

        Raises:
          ValueError: if it is none, or outside of the ends.
        """
        number = _number(value)
        inside = (
            self.least < number < self.most
            if self.open
            else self.least <= number <= self.most
        )
        whole = not self.is_count or (inside and number == round(number))
        if not (inside and whole):
            raise ValueError(
                f"`{self.name}` must be {self.allowed}, got {_shown(value)}."
            )
        return int(number) if self.is_count else number

    @property
    def allowed(self) -> str:
        """What values it takes, in words."""
        kind = "an integer" if self.is_count else "a number"
        kind += " of" * (not self.open and math.isfinite(max(self.least, -self.most)))
        least, most = (
            f"{end:g}" if math.isfinite(end) else "" for end in (self.least, self.most)
        )
        if self.open:
            ends = [f"above {least}"] * bool(least) + [f"below {most}"] * bool(most)
        else:
            ends = [f"at least {least}"] * bool(least) + [f"at most {most}"] * bool(
                most
            )
        return " ".join([kind, " and ".join(ends)]).strip()


class Truth(NamedTuple):
    """What is true at one point: an interval, and how it is known."""

    low: float
    high: float
    grade: Grade


def exact(value: Real) -> Truth:
    """A truth that is computed."""
    return Truth(float(value), float(value), Grade.EXACT)


class Constant(NamedTuple):
    """A constant that the claim leaves unnamed, or that was certified.

    value: the one that is used unless another is given.
    low, high: interval of the best one; both `value` where it is sharp, infinite where
      no number is enough, NaN where it is not known or the value is one's own choice.
    origin: where it comes from, such as "certified (ifca.lem1.sharp)".
    """

    value: Real
    low: Real = math.nan
    high: Real = math.nan
    origin: str = ""

    @property
    def none_holds(self) -> bool:
        """Whether no number is enough."""
        return math.isinf(self.low)


@dataclasses.dataclass(frozen=True)
class Simulation:
    """A truth by simulation, where no exact law is known.

    Attributes:
      draw: takes a generator, a number of trials and the parameters by name; returns
        `[trials]`, events (0 or 1, or bool) for a chance, else numbers for a mean.
      numbers: takes the parameters by name; how many float64 numbers a trial holds at
        once.
      of: "chance" of an event (Clopper and Pearson's interval), or "mean".
      support: ends of what one number can be, for a mean (betting's interval, at every
        sample size); without it Student's, which is nominal.
    """

    draw: Callable[..., Num[np.ndarray, " trials"]]
    numbers: Callable[..., Real]
    of: Literal["chance", "mean"] = "chance"
    support: tuple[Real, Real] | None = None

    def truth(
        self,
        generator: np.random.Generator,
        trials: int,
        error_rate: float,
        values: Mapping[str, Real],
    ) -> Truth:
        """The interval at one point."""
        return self.interval(self.sample(generator, trials, values), error_rate)

    def sample(
        self, generator: np.random.Generator, trials: int, values: Mapping[str, Real]
    ) -> Float[np.ndarray, " trials"]:
        """Trials at one point, drawn chunk by chunk."""
        each = max(1.0, float(self.numbers(**values)))
        chunk = max(1, min(trials, int(_CHUNK / each)))
        drawn, left = [], trials
        while left:
            drawn.append(
                np.asarray(self.draw(generator, min(chunk, left), **values), float)
            )
            left -= len(drawn[-1])
        return np.concatenate(drawn)

    def interval(self, found: Float[np.ndarray, " trials"], error_rate: float) -> Truth:
        """What the trials say of the chance or the mean."""
        from cfljax import intervals

        if self.of == "chance":
            ends = intervals.clopper_pearson(
                np.sum(found == 1), len(found), error_rate=error_rate
            )
            return Truth(float(ends[0]), float(ends[1]), Grade.SAMPLED)
        if self.support:
            low, high = map(float, self.support)
            ends = intervals.betting(found, error_rate=error_rate, low=low, high=high)
            return Truth(float(ends[0]), float(ends[1]), Grade.SAMPLED)
        ends = intervals.student(found, error_rate=error_rate)
        return Truth(float(ends[0]), float(ends[1]), Grade.NOMINAL)


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """How a claim is evaluated at parameters of one's own.

    Attributes:
      quantity: of what the claim is a bound, such as "P(E_i^{j,j'})".
      parameters: all that it takes, in the order of the text.
      bound: takes the parameters and `constants` by name; what is claimed.
      truth: takes the parameters by name; a `Truth`. Or a `Simulation`.
      margins: takes the parameters by name; by how much each precondition is met.
      constants: by name.
      relation: of the quantity to the bound.
      logarithmic: whether bound and truth are natural logarithms.
      note: how the truth is had, in a line.
    """

    quantity: str
    parameters: tuple[Parameter, ...]
    bound: Callable[..., Real]
    truth: Callable[..., Truth] | Simulation
    margins: Callable[..., Sequence[Margin]] = lambda **_: ()
    constants: Mapping[str, Constant] = dataclasses.field(default_factory=dict)
    relation: Literal["<=", ">=", "="] = "<="
    logarithmic: bool = False
    note: str = ""

    @property
    def defaults(self) -> dict[str, Real]:
        """Every parameter's default."""
        return {one.name: one.default for one in self.parameters}


def evaluated(
    evaluation: Evaluation,
    *,
    sweep: Mapping[str, Values] | None = None,
    constants: Mapping[str, Real] | None = None,
    trials: int | None = None,
    error_rate: float = 1e-6,
    seed: int = 0,
    title: str = "",
    **values: Real,
) -> "xr.Dataset":
    """What `cfljax.statements.evaluate` returns for a statement with this evaluation,
    with a title.

    Raises:
      ValueError: as there.
    """
    import xarray as xr

    known = {one.name: one for one in evaluation.parameters}
    given = _listed(sweep)
    _check_names("parameter", [*values, *given], known)
    if twice := set(values) & set(given):
        raise ValueError(f"`sweep` must leave {', '.join(sorted(twice))} to itself.")
    if not 0 < _number(error_rate) < 1:
        raise ValueError(f"`error_rate` must lie in (0, 1), got {_shown(error_rate)}.")
    seed = _count("seed", seed, least=0)
    trials = None if trials is None else _count("trials", trials, least=2)
    axes = {name: [known[name].checked(one) for one in given[name]] for name in given}
    if empty := [name for name, axis in axes.items() if not axis]:
        raise ValueError(f"`sweep` must give {empty[0]} at least one value, got none.")
    fixed = evaluation.defaults | {n: known[n].checked(v) for n, v in values.items()}
    used = _constants(evaluation, constants)
    points = list(_points(fixed, axes))
    trials = _affordable(evaluation, points, trials)
    rows = [
        _row(evaluation, point, used, trials, error_rate / len(points), seed, number)
        for number, point in enumerate(points)
    ]
    shape = tuple(len(axis) for axis in axes.values())
    dims = tuple(axes)
    over = lambda name: (
        dims,
        np.array([getattr(row, name) for row in rows]).reshape(shape),
    )
    found = xr.Dataset(
        {name: over(name) for name in ("bound", "truth", "low", "high", "verdict")}
    )
    found["claimed"] = over("claimed")
    conditions = [plain(margin.assumption) for margin in rows[0].margins]
    if conditions:
        found = found.assign_coords(precondition=conditions)
        for name in ("value", "have", "need"):
            each = np.array([[getattr(m, name) for m in row.margins] for row in rows])
            label = "margin" if name == "value" else name
            found[label] = (
                (*dims, "precondition"),
                each.reshape(*shape, len(conditions)),
            )
    if used:
        found = found.assign_coords(constant=list(used))
        found["constant_value"] = "constant", list(used.values())
        for field in ("low", "high", "origin"):
            each = [getattr(evaluation.constants[name], field) for name in used]
            each = list(map(plain, each)) if field == "origin" else each
            found[f"constant_{field}"] = "constant", each
    found = found.assign_coords({n: fixed[n] for n in fixed if n not in axes})
    found = found.assign_coords({name: (name, axis) for name, axis in axes.items()})
    for name, one in known.items():
        found[name].attrs["long_name"] = plain(one.meaning)
    found.attrs = {
        "title": title,
        "quantity": plain(evaluation.quantity),
        "relation": evaluation.relation,
        "scale": "natural logarithm" if evaluation.logarithmic else "number",
        "error_rate": error_rate,
        "grade": max((row.grade for row in rows), key=lambda one: one.rank).value,
        "trials": trials,
        "seed": seed,
        "note": plain(evaluation.note),
    }
    return found


class _Row(NamedTuple):
    """One point of the result."""

    bound: float
    truth: float
    low: float
    high: float
    verdict: str
    claimed: bool
    margins: tuple[Margin, ...]
    grade: Grade


def _points(
    fixed: Mapping[str, Real], axes: Mapping[str, Sequence[Real]]
) -> Iterator[dict[str, Real]]:
    """Every point of the sweep, the last axis fastest."""
    for combination in itertools.product(*axes.values()):
        yield {**fixed, **dict(zip(axes, combination, strict=True))}


def _row(
    evaluation: Evaluation,
    point: Mapping[str, Real],
    constants: Mapping[str, Real],
    trials: int,
    error_rate: float,
    seed: int,
    number: int,
) -> _Row:
    """Evaluate one point."""
    bound = float(evaluation.bound(**point, **constants))
    if isinstance(evaluation.truth, Simulation):
        sequence = np.random.SeedSequence(seed, spawn_key=(number,))
        generator = np.random.default_rng(sequence)
        truth = evaluation.truth.truth(generator, trials, error_rate, point)
    else:
        truth = evaluation.truth(**point)
    margins = tuple(evaluation.margins(**point))
    claimed = all(margin.holds for margin in margins)
    verdict = (
        decide(bound, truth, evaluation.relation) if claimed else "not claimed here"
    )
    middle = (
        truth.low + (truth.high - truth.low) / 2
        if truth.high > truth.low
        else truth.low
    )
    return _Row(
        bound, middle, truth.low, truth.high, verdict, claimed, margins, truth.grade
    )


def decide(bound: float, truth: Truth, relation: Literal["<=", ">=", "="]) -> str:
    """Whether a truth is on the claimed side of a bound: "holds", "violated" or
    "inconclusive". A number that is computed may be off by a few roundings."""
    computed = truth.grade.rank < Grade.SAMPLED.rank
    size = max(abs(bound), abs(truth.low)) if math.isfinite(truth.low) else abs(bound)
    room = 1e-9 * size if computed and math.isfinite(size) else 0.0
    low, high = truth.low, truth.high
    if math.isnan(bound) or math.isnan(low) or math.isnan(high):
        return "inconclusive"
    above, below = low > bound + room, high < bound - room
    if relation == "=":
        # Nothing but a number that is computed can show that two are equal.
        wrong, right = above or below, computed and high - low <= 2 * room
    elif relation == "<=":
        wrong, right = above, high <= bound + room
    else:
        wrong, right = below, low >= bound - room
    return "violated" if wrong else "holds" if right else "inconclusive"


def _check_names(kind: str, names: Sequence[str], known: Mapping[str, Any]) -> None:
    for name in names:
        if name not in known:
            has = ", ".join(known) if known else "none"
            raise ValueError(f"`{name}` is no {kind} of this claim; it has {has}.")


def _listed(sweep: Any) -> dict[str, list[Any]]:
    """What is swept, as lists.

    Raises:
      ValueError: if it is no mapping, or gives a name something else than values.
    """
    if sweep is None:
        return {}
    if not isinstance(sweep, Mapping):
        raise ValueError(
            f"`sweep` must give values by parameter, such as {{'n': [1, 2]}}, got "
            f"{_shown(sweep)}."
        )
    found = {}
    for name, values in sweep.items():
        try:
            found[name] = None if isinstance(values, str | bytes) else list(values)
        except TypeError:
            found[name] = None
        if found[name] is None:
            raise ValueError(
                f"`sweep` must give {name} several values, such as [1, 2], got "
                f"{_shown(values)}."
            )
    return found


def _constants(
    evaluation: Evaluation, given: Mapping[str, Any] | None
) -> dict[str, Real]:
    """Every constant's value.

    Raises:
      ValueError: if one is given that the claim does not have, or that is no number.
    """
    _check_names("constant", list(given or {}), evaluation.constants)
    used: dict[str, Real] = {
        name: one.value for name, one in evaluation.constants.items()
    }
    for name, value in (given or {}).items():
        used[name] = _number(value)
        if not math.isfinite(used[name]):
            raise ValueError(f"`{name}` must be a number, got {_shown(value)}.")
    return used


def _number(value: Any) -> float:
    """A finite number as it is; NaN for all else, texts and truth values among it."""
    if isinstance(value, bool | np.bool_ | str | bytes) or getattr(value, "ndim", 0):
        return math.nan
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
    return number if math.isfinite(number) else math.nan


def _count(name: str, value: Any, *, least: int) -> int:
    """An integer.

    Raises:
      ValueError: if it is none, or below the least.
    """
    try:
        number = least - 1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise ValueError(
            f"`{name}` must be an integer of at least {least}, got {_shown(value)}."
        )
    return number


def _shown(value: Any) -> str:
    """A value in a message: a text in quotes, anything in a line."""
    text = repr(value) if isinstance(value, str | bytes) else str(value)
    return " ".join(text.split())


class _Cost(NamedTuple):
    """What a simulation takes."""

    held: float  # numbers of a trial, at most, or outcomes at a point
    drawn: float  # numbers at all points

    @property
    def fits(self) -> bool:
        """Whether memory and time are enough."""
        return self.held * _BYTES <= MOST_BYTES and self.drawn <= MOST_NUMBERS


def _affordable(
    evaluation: Evaluation, points: Sequence[Mapping[str, Real]], trials: int | None
) -> int:
    """Trials at each point: those that are asked for, else as many as take seconds.

    Raises:
      ValueError: if a simulation is too large for memory or time, with the largest
        that fits in both.
    """
    simulation = evaluation.truth
    if not isinstance(simulation, Simulation):
        return 0
    each = [max(float(simulation.numbers(**point)), 1.0) for point in points]
    asked, given = trials is not None, trials
    if given is None:
        given = int(np.clip(_SECONDS / sum(each), _FEWEST, _USUAL))
    cost = _cost(each, given)
    if cost.fits:
        return given
    largest = points[int(np.argmax(each))]
    found = _largest_counts(evaluation, points, given)
    if asked and (fewer := _most_trials(each)) >= 2:
        found.insert(0, f"trials = {fewer}")
    raise ValueError(
        f"a simulation must hold at most {MOST_BYTES / 2**30:.3g} GiB and draw at most "
        f"{MOST_NUMBERS:.3g} numbers, got {cost.held * _BYTES / 2**30:.3g} GiB and "
        f"{cost.drawn:.3g} numbers in {given} trials "
        f"{'at' if len(points) == 1 else f'at each of {len(points)} points up to'} "
        f"{_told(largest)}; "
        + (f"the largest that fits is {' or '.join(found)}." if found else "none fits.")
    )


def _cost(each: Sequence[float], trials: int) -> _Cost:
    """Of so many trials at points that take so many numbers each."""
    return _Cost(max(*each, trials), sum(each) * trials)


def _most_trials(each: Sequence[float]) -> int:
    """As many as fit; 0 if none do."""
    if max(each) * _BYTES > MOST_BYTES:
        return 0
    return int(min(MOST_NUMBERS / sum(each), MOST_BYTES / _BYTES))


def _largest_counts(
    evaluation: Evaluation, points: Sequence[Mapping[str, Real]], trials: int
) -> list[str]:
    """The largest value of each count that fits while the others stay, all larger ones
    of a sweep replaced by it."""
    simulation = evaluation.truth
    assert isinstance(simulation, Simulation)
    found = []
    for one in evaluation.parameters:
        if not one.is_count:
            continue

        def fits(most: int, name: str = one.name) -> bool:
            each = [
                float(simulation.numbers(**{**point, name: min(point[name], most)}))
                for point in points
            ]
            return _cost([max(numbers, 1.0) for numbers in each], trials).fits

        low = int(one.least) if math.isfinite(one.least) else 1
        high = int(max(point[one.name] for point in points))
        if high <= low or not fits(low):
            continue
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        found.append(f"{one.name} = {low}")
    return found


def _told(point: Mapping[str, Real]) -> str:
    return ", ".join(f"{name} = {value:g}" for name, value in point.items())
