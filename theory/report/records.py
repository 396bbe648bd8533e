"""Outcomes as files: each is written as it finishes, and read back by the next run.

A file is used again only for the same preset, seed, source code and versions of the
packages that compute; otherwise the check is run again.
"""

import dataclasses
import json
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from cfljax.statements import Outcome, Points, Preset, Statement, Status, Verdict, run
from theory.documents import encoded, outcome_document, read_outcome
from theory.sources import fingerprint

_ARRAYS = ("bounds", "upper", "low", "high")
_PARTS = ("verdict", "control")
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
    kind: Literal["bound", "equal", "band"]  # see `cfljax.statements.Points`
    scale: Literal["number", "log"]  # "log" for decades: x stands for 10^x
    total: int  # points of the check
    undrawable: int  # of them have no place: without a claim, or undefined

    @property
    def truth(self) -> Float[np.ndarray, " points"]:
        """`[points]`, where the marker goes: the middle, or the end that is finite."""
        low = np.where(np.isfinite(self.low), self.low, self.high)
        high = np.where(np.isfinite(self.high), self.high, low)
        return low + (high - low) / 2


class Record(NamedTuple):
    """An outcome without its points, and the points that are drawn."""

    outcome: Outcome  # with `points` None in both verdicts
    check: Series | None  # points of the verdict, if it has any
    control: Series | None
    is_new: bool = True  # computed now, rather than read


def kept(
    statements: Iterable[Statement], preset: Preset, folder: pathlib.Path | None
) -> Iterator[Record]:
    """Yield one record per statement, read from `ID.json` in the folder where possible,
    else computed and written there; nothing is kept if the folder is None.

    Raises:
      OSError: if a file cannot be written.
    """
    for statement in statements:
        path = folder and folder / f"{statement.id}.json"
        found = path and _read(path, statement, preset)
        if found:
            yield found
            continue
        outcome = run(statement, preset)
        bare = dataclasses.replace(
            outcome,
            verdict=dataclasses.replace(outcome.verdict, points=None),
            control=dataclasses.replace(outcome.control, points=None),
        )
        record = Record(bare, prepare(outcome.verdict), prepare(outcome.control))
        if path is not None:
            from cfljax.report import write_text  # brings Matplotlib

            write_text(path, json.dumps(_document(record, preset)) + "\n")
        yield record


def _document(record: Record, preset: Preset) -> dict[str, Any]:
    """The outcome's document with its origin and points, infinities as texts."""
    document = outcome_document(record.outcome)
    for part, series in zip(_PARTS, (record.check, record.control), strict=True):
        document[part]["points"] = _drawn(series)
    return encoded(document | _origin(preset), undefined=str)


def _origin(preset: Preset) -> dict[str, Any]:
    return {"preset": preset.name, "seed": preset.seed, "sources": fingerprint()}


def _drawn(series: Series | None) -> dict[str, Any] | None:
    if series is None:
        return None
    arrays = {name: getattr(series, name).tolist() for name in (*_ARRAYS, "violated")}
    return series._asdict() | arrays


def _read(path: pathlib.Path, statement: Statement, preset: Preset) -> Record | None:
    """The record in a file, or None unless it is whole and of this very check."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if any(found[name] != value for name, value in _origin(preset).items()):
            return None
        outcome = read_outcome(found, statement)
        if not (outcome.verdict.num_trials and outcome.control.num_trials):
            return None  # it raised an error, which may have been of the moment
        check, control = (_series(found[part]["points"]) for part in _PARTS)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return Record(outcome, check, control, is_new=False)


def _series(found: dict[str, Any] | None) -> Series | None:
    if found is None:
        return None
    arrays: dict[str, Any] = {name: np.array(found[name], float) for name in _ARRAYS}
    violated = np.array(found["violated"], bool)
    return Series(**{**found, **arrays, "violated": violated})


# The points of a check, made ready to be drawn.


def prepare(verdict: Verdict, *, most: int = 400) -> Series | None:
    """The drawable points of a verdict, at most `most`; None if there are none. Kept
    are those that say most: the reported one, violations in the order of their size,
    points closest to their claim, and of the others an even selection."""
    if verdict.points is None:
        return None
    points = _in_decades(verdict.points)
    upper = points.bounds if points.upper is None else points.upper
    parts = (points.bounds, upper, points.low, points.high)
    bounds, upper, low, high = (np.asarray(part, float).ravel() for part in parts)
    placed = np.isfinite(low) | np.isfinite(high)
    placed &= ~(np.isnan(low) | np.isnan(high) | np.isnan(bounds) | np.isnan(upper))
    placed &= np.isfinite(bounds) | np.isfinite(upper)
    if not np.any(placed):
        return None
    whole = Series(
        bounds=bounds[placed],
        upper=upper[placed],
        low=low[placed],
        high=high[placed],
        violated=np.zeros(int(np.sum(placed)), bool),
        reported=-1,
        kind=points.kind,
        scale=points.scale,
        total=len(bounds),
        undrawable=int(np.sum(~placed)),
    )
    excess = _excess(whole)
    violated, reported = _violated(excess, verdict.status), _reported(whole, verdict)
    return _thinned(whole._replace(violated=violated, reported=reported), excess, most)


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
    above, below = series.low - series.upper, series.bounds - series.high
    if series.scale == "number":
        with np.errstate(invalid="ignore"):
            above = above / size(series.low, series.upper)
            below = below / size(series.high, series.bounds)
    return above if series.kind == "bound" else np.fmax(above, below)


def _violated(
    excess: Float[np.ndarray, " points"], status: Status
) -> Bool[np.ndarray, " points"]:
    """Points that violate; the largest excess does wherever the verdict says so."""
    if status is not Status.VIOLATED:
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
