"""Truth against claim: one figure per statement, with its control in grey."""

import io
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cfljax.report import METADATA, Scale, style
from cfljax.statements.site.records import Series

_HOLDS: dict[str, Any] = {"color": "#0072B2", "marker": "o"}
_VIOLATES: dict[str, Any] = {"color": "#D55E00", "marker": "X"}
_GREY = "#7f7f7f"
_CLAIM = "#009E73"
_SIZE = (5.4, 4.7)  # inches; still legible at the width of a telephone
_MANY_DECADES = 60.0  # more of them are told better by their own logarithm


class Drawing(NamedTuple):
    """A figure and what its caption needs to know."""

    figure: Figure
    layout: Literal["diagonal", "row"]  # truth against claim, or both, point by point
    control_drawn: bool  # whether the control's points are in it


def draw(main: Series, control: Series | None) -> Drawing:
    """Draw all points of a check and of its control, which is left out where it makes
    another kind of claim."""
    if control is not None:
        alike = (control.kind, control.scale) == (main.kind, main.scale)
        control = control if alike else None
    few = len(np.unique(main.bounds)) < 3
    layout = "row" if main.kind == "band" or few else "diagonal"
    with matplotlib.rc_context({**style(), "font.size": 11}):
        figure = Figure(figsize=_SIZE, layout="constrained")
        paint = _row if layout == "row" else _diagonal
        handles = paint(figure.add_subplot(), main, control)
        place = {"loc": "outside lower center", "ncols": 2, "fontsize": 10}
        figure.legend(handles.values(), handles.keys(), **place)
    return Drawing(figure, layout, control is not None)


def svg(figure: Figure) -> str:
    """The figure as text; the same figure gives the same text."""
    file = io.BytesIO()
    with matplotlib.rc_context(style()):
        figure.savefig(file, format="svg", metadata=METADATA[".svg"])
    return file.getvalue().decode()


def _diagonal(axes: Axes, main: Series, other: Series | None) -> dict[str, Any]:
    """Claim across, truth upwards; returns what the legend shows."""
    every = [main] if other is None else [main, other]
    across = np.concatenate([series.bounds for series in every])
    axis = choose_scale(every)
    left, right = axis.limits(across)
    ends = [part for s in every for part in (s.low, s.high, s.truth)]
    bottom, top = axis.limits(np.concatenate([across, *ends]))
    axis.apply(axes, "x", (left, right))
    axis.apply(axes, "y", (bottom, top))
    axes.set(xlabel="what is claimed", ylabel="what is true")
    handles: dict[str, Any] = {}
    places = axis.between(left, right)
    (handles["truth = claim"],) = axes.plot(
        places, places, color=_CLAIM, linewidth=1.6, zorder=2
    )
    if main.kind == "bound":
        handles["claimed side"] = axes.fill_between(
            places, bottom, places, color=_CLAIM, alpha=0.10, linewidth=0, zorder=1
        )
    handles |= _points(axes, main.bounds, main, (bottom, top), is_control=False)
    if other is not None:
        handles |= _points(axes, other.bounds, other, (bottom, top), is_control=True)
    return handles


def _row(axes: Axes, main: Series, other: Series | None) -> dict[str, Any]:
    """One place per point, the control's to the right; returns the legend's."""
    every = [main] if other is None else [main, other]
    axis = choose_scale(every)
    ends = [x for s in every for x in (s.low, s.high, s.truth, s.bounds, s.upper)]
    limits = axis.limits(np.concatenate(ends))
    claimed = any(np.any(series.claims) for series in every)
    axes.set(ylabel="what is claimed, and what is true" if claimed else "what is true")
    axis.apply(axes, "y", limits)
    handles: dict[str, Any] = {}
    start, middles, gap = 0.0, [], max(1.0, 0.06 * len(main.bounds))
    for series in every:
        count = len(series.bounds)
        places = start + np.arange(count, dtype=float)
        middles.append(start + (count - 1) / 2)
        if np.any(series.claims):
            is_control = series is other
            handles |= _claims(axes, places, series, limits, is_control=is_control)
        handles |= _points(axes, places, series, limits, is_control=series is other)
        start += count + gap
    axes.set_xlim(-1.0, start - gap)
    names = ["points of the check", "of the control"][: len(every)]
    axes.set_xticks(middles, names)
    axes.tick_params(axis="x", length=0)
    return handles


def _claims(
    axes: Axes,
    places: np.ndarray,
    series: Series,
    limits: tuple[float, float],
    *,
    is_control: bool,
) -> dict[str, Any]:
    """What each point claims: a level, the side below it, or a band."""
    colour = _GREY if is_control else _CLAIM
    handles: dict[str, Any] = {}
    bottom, top = np.clip(series.bounds, *limits), np.clip(series.upper, *limits)
    if series.kind == "bound":
        bottom = np.full_like(top, limits[0])
    if series.kind != "equal":
        handles["claimed side"] = axes.bar(
            places, top - bottom, 0.8, bottom, color=colour, alpha=0.15, linewidth=0
        )
    for level in {"bound": [top], "equal": [top], "band": [bottom, top]}[series.kind]:
        inner = (level > limits[0]) & (level < limits[1])
        handles["claim"] = axes.hlines(
            level[inner],
            places[inner] - 0.4,
            places[inner] + 0.4,
            color=colour,
            linewidth=1.6,
        )
    return {} if is_control else handles


def _points(
    axes: Axes,
    places: np.ndarray,
    series: Series,
    limits: tuple[float, float],
    *,
    is_control: bool,
) -> dict[str, Any]:
    """Markers and intervals, those that violate in a look of their own."""
    low, high = np.clip(series.low, *limits), np.clip(series.high, *limits)
    truth = np.clip(series.truth, *limits)
    size = 7.0 if len(truth) <= 60 else 4.5
    groups = [("truth", _HOLDS, ~series.violated)]
    groups += [("truth, violating", _VIOLATES, series.violated)]
    if is_control:
        groups = [
            (name.replace("truth", "control"), {**look, "color": _GREY}, here)
            for name, look, here in groups
        ]
    handles: dict[str, Any] = {}
    for name, look, here in groups:
        if not np.any(here):
            continue
        wide = here & (high > low)
        axes.vlines(
            places[wide], low[wide], high[wide], color=look["color"], linewidth=1.1
        )
        (handles[name],) = axes.plot(
            places[here],
            truth[here],
            linestyle="none",
            markersize=size,
            alpha=0.75 if is_control else 1.0,
            zorder=2.5 if is_control else 3,
            markeredgewidth=0.4,
            **look,
        )
    if series.reported >= 0 and not is_control:
        (handles["reported point"],) = axes.plot(
            places[[series.reported]],
            truth[[series.reported]],
            linestyle="none",
            marker="o",
            markersize=size + 6,
            markerfacecolor="none",
            markeredgecolor="black",
            markeredgewidth=1.3,
            zorder=4,
        )
    return handles


def choose_scale(every: Sequence[Series]) -> Scale:
    """The scale on which all points of the series can be told apart.

    Decades are linear until there are too many of them. Other numbers get a
    logarithmic axis where all are positive and spread over more than a decade, and
    one for both signs where they spread as far but are not all positive.
    """
    claims = [part for s in every for part in (s.bounds[s.claims], s.high)]
    inner = np.concatenate(claims)
    ends = np.concatenate([part for s in every for part in (s.low, s.upper)])
    both = np.concatenate([inner, ends])
    known = both[np.isfinite(both)]
    if every[0].scale == "log":
        many = float(np.max(known) - np.min(known)) > _MANY_DECADES
        return Scale("symlog" if many else "linear", powers=True)
    size = np.abs(known[known != 0])
    if len(size) == 0 or np.max(size) <= 10 * np.min(size):
        return Scale("linear")
    if np.all(inner > 0) and np.all(known >= 0):
        return Scale("log")
    typical = float(np.median(size))
    if np.max(size) <= 30 * typical:
        return Scale("linear")
    return Scale("symlog", threshold=10.0 ** np.floor(np.log10(typical)))
