"""Grid: which Monte-Carlo trials a sweep runs, as plain data."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from cfljax.engine.quantities import Quantity

BLOCK = 10  # Trials in a stored block: a constant of the layout, never of a result.
RESERVED = ("about", "failed", "trial", "trials")
SCALARS = (bool, int, float, str)


def nothing_grows(trial: Any) -> tuple[str, ...]:
    """No field of a trial only says how long it goes on."""
    del trial
    return ()


class Cell(NamedTuple):
    """One point of a grid.

    index: position along every axis.
    trial: the trial with the fields of this point.
    """

    index: tuple[int, ...]
    trial: Any


@dataclasses.dataclass(frozen=True)
class Grid:
    """A Cartesian grid of cells, each of which is repeated `num_trials` times.

    experiment: name of what is run, e.g. "ifca.fig3a".
    trial: frozen dataclass whose fields are int, float, str or bool; the fields
      that every cell shares.
    axes: field name -> values. A cell is `dataclasses.replace(trial, **point)`.
      Values have the type of the field; an int is taken as a float where the
      field is a float. Empty: one cell.
    num_trials: trials per cell, at least 1.
    dims: output name -> names of the output's own axes, e.g.
      `{"distance": ("restart", "step_size")}`.
    traced: names of the trial's number fields that reach a simulation traced: cells
      that differ in nothing else share one compilation. The others are static, and
      may decide shapes.
    coords: labels of own axes, where they have some.
    seed: of trial `i` of every cell comes the key `fold_in(key(seed), i)`, so cells
      share their random numbers and do not depend on the grid they sit in.
    revision: to be raised when the meaning of a trial changes, which includes the
      arrays that are handed to it as `constants`.
    quantities: what fields, axes and outcomes are called on axes and in files, of
      names that mean something else here than in `engine.QUANTITIES`, or are not there.
    growing: `trial -> names of fields` that only say how long it goes on: a trial with
      more of them begins with the same rounds, and may take up where one of less ended.

    Raises:
      ValueError: if a field, axis, name or count breaks these rules.
    """

    experiment: str
    trial: Any
    axes: Mapping[str, tuple]
    num_trials: int
    dims: Mapping[str, tuple[str, ...]]
    traced: tuple[str, ...] = ()
    coords: Mapping[str, Sequence | np.ndarray] = dataclasses.field(
        default_factory=dict
    )
    seed: int = 0
    revision: int = 1
    growing: Callable[[Any], Sequence[str]] = nothing_grows
    quantities: Mapping[str, Quantity] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.num_trials < 1:
            raise ValueError(f"`num_trials` must be at least 1, got {self.num_trials}.")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"`seed` must be in [0, 2^32), got {self.seed}.")
        fields = _fields(self.trial)
        axes = {name: _axis(name, values, fields) for name, values in self.axes.items()}
        object.__setattr__(self, "axes", axes)
        _check_traced(self.traced, fields)
        _check_names(self)

    def __repr__(self) -> str:
        """Experiment, axes with their lengths, and trials."""
        sizes = [f"{len(values)} {name}" for name, values in self.axes.items()]
        cells = " x ".join(sizes) or "1 cell"
        return f"Grid({self.experiment}: {cells}, {self.num_trials} trials each)"

    @property
    def num_blocks(self) -> int:
        """Stored blocks of `BLOCK` trials per cell; the last may be shorter."""
        return -(-self.num_trials // BLOCK)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of values along every axis."""
        return tuple(len(values) for values in self.axes.values())

    def block(self, number: int) -> slice:
        """Trials of a cell that block `number` holds."""
        return slice(number * BLOCK, min((number + 1) * BLOCK, self.num_trials))

    def cells(self) -> list[Cell]:
        """All points, the last axis fastest.

        Raises:
          ValueError: if the trial's own constructor refuses a point.
        """
        positions = itertools.product(*(range(size) for size in self.shape))
        return [self.cell(index) for index in positions]

    def cell(self, index: tuple[int, ...]) -> Cell:
        """The point at a position along every axis."""
        return Cell(index, self._trial(index))

    def point(self, index: tuple[int, ...]) -> dict[str, Any]:
        """The values of the axes at a position."""
        pairs = zip(self.axes.items(), index, strict=True)
        return {name: values[position] for (name, values), position in pairs}

    def _trial(self, index: tuple[int, ...]) -> Any:
        return dataclasses.replace(self.trial, **self.point(index))

    def static(self, trial: Any) -> tuple:
        """What cells share that share one compilation: all fields but the traced."""
        return tuple(v for k, v in _fields(trial).items() if k not in self.traced)

    def fields(self, trial: Any) -> dict[str, Any]:
        """All fields of a cell's trial, by name."""
        return _fields(trial)

    def meaning(self, trial: Any) -> dict[str, Any]:
        """All that the trials of a cell mean, ready for JSON: two sweeps share a cell
        if it is equal. A field that has its class's default is left out, so that one
        which is added with the old meaning as its default makes nobody start anew."""
        usual = {f.name: f.default for f in dataclasses.fields(trial)}
        own = self.fields(trial)
        return {
            "experiment": self.experiment,
            "revision": self.revision,
            "seed": self.seed,
            "fields": {k: v for k, v in own.items() if not is_same(v, usual[k])},
            "dims": {name: list(own) for name, own in self.dims.items()},
            "coords": {k: np.asarray(v).tolist() for k, v in self.coords.items()},
        }


def is_same(value: Any, other: Any) -> bool:
    """Whether two values of a field mean the same."""
    return repr(value) == repr(other)  # So 0.0 is not -0.0, and NaN is NaN.


def _fields(trial: Any) -> dict[str, Any]:
    if not dataclasses.is_dataclass(trial) or isinstance(trial, type):
        raise ValueError(f"`trial` must be a dataclass instance, got {trial!r}.")
    fields = {f.name: getattr(trial, f.name) for f in dataclasses.fields(trial)}
    for name, value in fields.items():
        if type(value) not in SCALARS:
            kind = type(value).__name__
            raise ValueError(
                f"`trial.{name}` must be an int, float, str or bool, got {kind}."
            )
    return fields


def _axis(name: str, values: Sequence | np.ndarray, fields: dict[str, Any]) -> tuple:
    if name not in fields:
        known = ", ".join(fields)
        raise ValueError(f"`axes` must name fields of the trial ({known}), got {name}.")
    kind = type(fields[name])
    plain = [v.item() if isinstance(v, np.generic) else v for v in values]
    if kind is float:
        plain = [float(v) if type(v) is int else v for v in plain]
    if not plain or any(type(v) is not kind for v in plain):
        raise ValueError(
            f"`axes[{name!r}]` must hold values of type {kind.__name__}, like the"
            f" trial's field, got {tuple(plain)}."
        )
    if len(set(plain)) != len(plain):
        raise ValueError(f"`axes[{name!r}]` must not repeat values, got {plain}.")
    return tuple(plain)


def _check_traced(names: Sequence[str], fields: dict[str, Any]) -> None:
    for name in names:
        if type(fields.get(name)) not in (bool, int, float):
            found = type(fields[name]).__name__ if name in fields else "no field"
            raise ValueError(
                f"`traced` must name fields of the trial that hold numbers, got {name},"
                f" {found}."
            )
    if len(set(names)) != len(names):
        raise ValueError(f"`traced` must not repeat a field, got {tuple(names)}.")


def _check_names(grid: Grid) -> None:
    own = {dim for dims in grid.dims.values() for dim in dims}
    for name, dims in grid.dims.items():
        if len(set(dims)) != len(dims):
            raise ValueError(f"`dims[{name!r}]` must not repeat an axis, got {dims}.")
    taken = [*grid.axes, *own, *grid.dims, *RESERVED]
    if not grid.dims:
        raise ValueError("`dims` must name at least one output, got none.")
    if repeated := sorted({name for name in taken if taken.count(name) > 1}):
        raise ValueError(
            "names of axes, own axes and outputs must differ from each other and"
            f" from {', '.join(RESERVED)}; got `{repeated[0]}` twice."
        )
    if strangers := sorted(set(grid.coords) - own):
        raise ValueError(
            f"`coords` must label an own axis of an output, got `{strangers[0]}`."
        )
