"""Outcomes as files: each is written as it finishes, and read back by the next run.

A file is used again only if it is, byte for byte, what was written, and for the same
statement, preset, seed, packages and sources of the numbers; otherwise the check is run
again.
"""

import contextlib
import functools
import importlib.metadata
import json
import pathlib
import platform
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from cfljax.base.durable import make_folder
from cfljax.base.sealed import unsealed, write_sealed
from cfljax.base.unpacking import read_file
from cfljax.statements.runner import Outcome, run
from cfljax.statements.site.documents import (
    described,
    encoded,
    outcome_document,
    read_outcome,
)
from cfljax.statements.statement import Preset, Statement
from cfljax.statements.verdict import Points, Status, Verdict

_PACKAGES = (
    *("cfljax", "jax", "jaxlib", "numpy", "scipy", "sympy", "python-flint"),
    "matplotlib",
)
_ARRAYS = ("bounds", "upper", "low", "high")
_LOG_10 = np.log(10.0)
_ROUNDING = 1e-9  # in decades or relative: what is nearer to its claim is on it


class Series(NamedTuple):
    """Points in the units of the axes: decades where the check is in logarithms."""

    bounds: Float[np.ndarray, " points"]  # what is claimed; the lower end for a band
    upper: Float[np.ndarray, " points"]  # of the band, `bounds` for other claims
    low: Float[np.ndarray, " points"]  # of the truth's interval, possibly infinite
    high: Float[np.ndarray, " points"]
    violated: Bool[np.ndarray, " points"]  # the whole interval on the wrong side
    reported: int  # index of the point that the verdict is about; -1 if not drawn
    where: Mapping[str, Any]  # its coordinates, where the check says them
    kind: Literal["bound", "equal", "band"]  # see `cfljax.statements.Points`
    scale: Literal["number", "log"]  # "log" for decades: x stands for 10^x
    total: int  # points of the check
    undrawable: int  # of them have no place: without a claim, or undefined

    @property
    def claims(self) -> Bool[np.ndarray, " points"]:
        """`[points]`, where a finite number is claimed."""
        undefined = np.isnan(self.bounds) | np.isnan(self.upper)
        return (np.isfinite(self.bounds) | np.isfinite(self.upper)) & ~undefined

    @property
    def truth(self) -> Float[np.ndarray, " points"]:
        """`[points]`, where the marker goes: the middle, or the end that is finite."""
        low = np.where(np.isfinite(self.low), self.low, self.high)
        high = np.where(np.isfinite(self.high), self.high, low)
        return low + (high - low) / 2


class Record(NamedTuple):
    """An outcome, and the points of it that are drawn."""

    outcome: Outcome
    check: Series | None  # points of the verdict, if it has any
    control: Series | None
    is_new: bool = True  # computed now, rather than read

    @property
    def id(self) -> str:
        """Of the statement."""
        return self.outcome.statement.id


def record_of(outcome: Outcome, *, is_new: bool = True) -> Record:
    """An outcome made ready to be drawn."""
    check, control = prepare(outcome.verdict), prepare(outcome.control)
    return Record(outcome, check, control, is_new)


@functools.cache
def versions() -> dict[str, str]:
    """Of Python and of the packages on which numbers and drawings depend."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def kept(
    statements: Iterable[Statement],
    preset: Preset,
    folder: pathlib.Path | None = None,
    *,
    sources: str | None = None,
) -> Iterator[Record]:
    """Yield one record per statement, read from `ID.json` in the folder where possible,
    else computed and written there; nothing is kept if the folder is None.

    Args:
      statements: in the order of the records.
      preset: of the checks.
      folder: of the files.
      sources: what tells the source code and settings from others with which numbers
        may be different; a file is read where it is the same, none where it is None.

    Raises:
      OSError: if a file cannot be written.
    """
    shared = {"preset": preset.name, "seed": preset.seed, "sources": sources}
    if folder is not None:
        make_folder(folder)  # Before hours go into what it cannot keep.
    for statement in statements:
        path = folder and folder / f"{statement.id}.json"
        identity = _as_json(described(statement) | shared | {"versions": versions()})
        found = path and sources and _read(path, statement, identity)
        if found:
            yield found
            continue
        outcome = run(statement, preset)
        if path is not None:
            write_sealed(path, _as_json(outcome_document(outcome)) | identity)
        yield record_of(outcome)


def _read(
    path: pathlib.Path, statement: Statement, identity: dict[str, Any]
) -> Record | None:
    """What is in a file, or None unless it is whole and of this very check."""
    try:
        found = unsealed(read_file(path))
        if found is None or any(found[name] != identity[name] for name in identity):
            return None
        record = record_of(read_outcome(found, statement), is_new=False)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None  # Who computes a digest may seal anything.
    # Without trials it raised an error, which may have been of the moment.
    outcome = record.outcome
    whole = outcome.verdict.num_trials and outcome.control.num_trials
    return record if whole else None


def _as_json(document: Any) -> Any:
    """A document as it is once written and read, undefined numbers as texts."""
    return json.loads(json.dumps(encoded(document, undefined=str)))


# The points of a check, made ready to be drawn.


def prepare(verdict: Verdict, *, most: int = 400) -> Series | None:
    """The drawable points of a verdict, at most `most`; None if there are none. Those
    without a finite claim are drawable only if no point has one: what is true is then
    all that is known. Kept are those that say most: the reported one, violations in the
    order of their size, points closest to their claim, and of the others an even
    selection."""
    if verdict.points is None:
        return None
    points = _in_decades(verdict.points)
    upper = points.bounds if points.upper is None else points.upper
    parts = (points.bounds, upper, points.low, points.high)
    bounds, upper, low, high = (np.asarray(part, float).ravel() for part in parts)
    known = np.isfinite(low) | np.isfinite(high)
    known &= ~(np.isnan(low) | np.isnan(high))
    every = Series(
        bounds=bounds,
        upper=upper,
        low=low,
        high=high,
        violated=np.zeros(len(bounds), bool),
        reported=-1,
        where={},
        kind=points.kind,
        scale=points.scale,
        total=len(bounds),
        undrawable=0,
    )
    placed = known & every.claims if np.any(known & every.claims) else known
    if not np.any(placed):
        return None
    arrays = {name: getattr(every, name)[placed] for name in (*_ARRAYS, "violated")}
    whole = every._replace(**arrays, undrawable=int(np.sum(~placed)))
    excess = _excess(whole)
    reported = _reported(whole, verdict)
    whole = whole._replace(
        violated=_violated(excess, verdict.status),
        reported=reported,
        where=_coordinates(points, int(np.flatnonzero(placed)[reported]))
        if reported >= 0
        else {},
    )
    return _thinned(whole, excess, most)


def _coordinates(points: Points, index: int) -> dict[str, Any]:
    """Of one point, as Python has them."""
    return {
        name: np.asarray(values).ravel()[index].item()
        for name, values in points.coordinates.items()
    }


def _in_decades(points: Points) -> Points:
    if points.scale == "number":
        return points
    known = {name: getattr(points, name) for name in _ARRAYS}
    decades = {name: x / _LOG_10 for name, x in known.items() if x is not None}
    return points._replace(**decades)


def _excess(series: Series) -> Float[np.ndarray, " points"]:
    """How far the interval is on the wrong side (or, negative, from it), in decades or
    relative to the numbers themselves."""
    size = lambda one, two: np.abs(one) + np.abs(two) + np.finfo(float).tiny
    with np.errstate(invalid="ignore"):  # infinity less infinity
        above, below = series.low - series.upper, series.bounds - series.high
        if series.scale == "number":
            above = above / size(series.low, series.upper)
            below = below / size(series.high, series.bounds)
    return above if series.kind == "bound" else np.fmax(above, below)


def _violated(
    excess: Float[np.ndarray, " points"], status: Status
) -> Bool[np.ndarray, " points"]:
    """Points that violate; the largest excess does wherever the verdict says so, unless
    no point has a claim of its own."""
    if status is not Status.VIOLATED or not np.any(excess > -np.inf):
        return np.zeros(len(excess), bool)
    violated = excess > _ROUNDING
    violated[np.nanargmax(np.where(np.isnan(excess), -np.inf, excess))] = True
    return violated


def _reported(series: Series, verdict: Verdict) -> int:
    """Index of the point whose claim and interval are the verdict's, up to rounding."""
    unit = _LOG_10 if series.scale == "log" else 1.0
    bound, low, high = (x / unit for x in (verdict.bound, *verdict.interval))
    with np.errstate(invalid="ignore"):
        near = np.fmin(np.abs(series.bounds - bound), np.abs(series.upper - bound))
        distance = near + np.abs(series.low - low) + np.abs(series.high - high)
    distance = np.where(np.isnan(distance), np.inf, distance)
    best = int(np.argmin(distance))
    close = abs(bound) + abs(low) + abs(high) + 1e-300
    return best if distance[best] <= 1e-6 * close else -1


def _thinned(series: Series, excess: Float[np.ndarray, " points"], most: int) -> Series:
    """The points that say most, in their old order."""
    count = len(excess)
    if count <= most:
        return series
    ranked = np.lexsort((-excess, ~series.violated))
    first = list(ranked[: most // 2])
    if series.reported >= 0 and series.reported not in first:
        first[-1] = series.reported
    others = np.setdiff1d(np.arange(count), first)
    even = np.linspace(0, len(others) - 1, most - len(first)).round().astype(int)
    kept = np.sort(np.concatenate([first, others[even]]))
    reported = int(np.searchsorted(kept, series.reported))
    arrays = {name: getattr(series, name)[kept] for name in (*_ARRAYS, "violated")}
    return series._replace(**arrays, reported=reported if series.reported >= 0 else -1)
