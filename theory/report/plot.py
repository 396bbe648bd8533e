"""Truth against claim: one figure per statement, with its control in grey."""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import matplotlib
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from cfljax.report import METADATA, replacing, style
from theory.report.records import Series

_HOLDS: dict[str, Any] = {"color": "#0072B2", "marker": "o"}
_VIOLATES: dict[str, Any] = {"color": "#D55E00", "marker": "X"}
_GREY = "#7f7f7f"
_CLAIM = "#009E73"
_SIZE = (5.4, 4.7)  # inches; still legible at the width of a telephone
_MANY_DECADES = 60.0  # more of them are told better by their own logarithm
_MARGIN = 0.05  # of an axis, beyond the outermost points
_MOST_TICKS = 7
_LEAST = float(np.finfo(float).tiny)


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


def save_svg(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write the figure, whole or not at all; the same figure gives the same bytes."""
    with matplotlib.rc_context(style()), replacing(path) as temporary:
        figure.savefig(temporary, format="svg", metadata=METADATA[".svg"])


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
    axes.set(ylabel="what is claimed, and what is true")
    axis.apply(axes, "y", limits)
    handles: dict[str, Any] = {}
    start, middles, gap = 0.0, [], max(1.0, 0.06 * len(main.bounds))
    for series in every:
        count = len(series.bounds)
        places = start + np.arange(count, dtype=float)
        middles.append(start + (count - 1) / 2)
        handles |= _claims(axes, places, series, limits, is_control=series is other)
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


@dataclasses.dataclass(frozen=True)
class Scale:
    """How numbers become places on an axis; "symlog" shows both signs."""

    kind: Literal["linear", "log", "symlog"]
    threshold: float = 1.0  # positive; below it "symlog" is linear
    powers: bool = False  # whether the numbers are decades: x stands for 10^x

    def limits(self, values: Float[np.ndarray, " values"]) -> tuple[float, float]:
        """Ends of an axis that shows all values which have a place, with a margin."""
        known = values[np.isfinite(values)]
        if self.kind == "log":  # Nothing below normal numbers has a place there.
            known = np.maximum(known[known > 0], _LEAST)
        places = self._place(known)
        low, high = float(np.min(places)), float(np.max(places))
        margin = _MARGIN * (high - low) or 0.1 * abs(high) or 1.0
        low, high = self._number(np.array([low - margin, high + margin]))
        if self.kind == "log":
            low = max(low, _LEAST)
        return float(low), float(high)

    def between(self, low: float, high: float) -> Float[np.ndarray, " values"]:
        """Numbers at even places from end to end, both included."""
        first, last = self._place(np.array([low, high]))
        inner = self._number(np.linspace(float(first), float(last), 200))
        return np.concatenate([[low], inner[1:-1], [high]])

    def apply(
        self, axes: Axes, which: Literal["x", "y"], limits: tuple[float, float]
    ) -> None:
        """Give one axis this scale, its limits and a light grid."""
        axis = axes.xaxis if which == "x" else axes.yaxis
        set_scale = axes.set_xscale if which == "x" else axes.set_yscale
        if self.kind == "log":
            set_scale("log")
        elif self.kind == "symlog":
            set_scale("function", functions=(self._place, self._number))
        (axes.set_xlim if which == "x" else axes.set_ylim)(limits)
        if self.kind == "linear":
            axis.set_major_locator(MaxNLocator(_MOST_TICKS, integer=self.powers))
        else:
            round_ones = _round_numbers if self.kind == "log" else self._ticks
            axis.set_major_locator(FixedLocator(round_ones(*limits)))
            axis.set_minor_locator(NullLocator())
            axis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
        if self.powers:
            axis.set_major_formatter(FuncFormatter(lambda value, _: _power(value)))
        axis.grid(True)

    def _place(self, values: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        if self.kind == "linear":
            return values
        if self.kind == "log":
            return np.log10(values)
        size = np.abs(values) / self.threshold
        grown = np.where(size > 1, 1 + np.log10(np.fmax(size, 1)), size)
        return np.sign(values) * grown

    def _number(self, places: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        if self.kind == "linear":
            return places
        if self.kind == "log":
            return 10.0**places
        size = np.abs(places)
        grown = np.where(size > 1, 10.0 ** (np.fmax(size, 1) - 1), size)
        return np.sign(places) * self.threshold * grown

    def _ticks(self, low: float, high: float) -> list[float]:
        """Zero and powers of ten of both signs, thinned to a few."""
        largest = np.log10(max(abs(low), abs(high)) / self.threshold)
        step = max(1, int(np.ceil(2 * largest / _MOST_TICKS)))
        sizes = [self.threshold * 10.0**e for e in range(0, int(largest) + 1, step)]
        ticks = [0.0, *sizes, *(-size for size in sizes)]
        return sorted(tick for tick in ticks if low <= tick <= high)


def choose_scale(every: Sequence[Series]) -> Scale:
    """The scale on which all points of the series can be told apart.

    Decades are linear until there are too many of them. Other numbers get a
    logarithmic axis where all are positive and spread over more than a decade, and
    one for both signs where they spread as far but are not all positive.
    """
    inner = np.concatenate([part for s in every for part in (s.bounds, s.high)])
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


def _round_numbers(low: float, high: float) -> list[float]:
    """Powers of ten between positive ends; if they are few, 2 and 5 times them."""
    first, last = int(np.floor(np.log10(low))), int(np.ceil(np.log10(high)))
    step = max(1, int(np.ceil((last - first) / _MOST_TICKS)))
    leading = (1, 2, 5) if np.log10(high / low) < 2 else (1,)
    ticks = [d * 10.0**e for e in range(first, last + 1, step) for d in leading]
    return [tick for tick in ticks if low <= tick <= high]


def _power(value: float) -> str:
    """10 to the power of the value."""
    if value == 0:
        return "1"
    if abs(value) < 1e4:
        return f"$10^{{{value:g}}}$"
    sign = "-" if value < 0 else ""
    return f"$10^{{{sign}10^{{{round(np.log10(abs(value)))}}}}}$"


def _short(value: float) -> str:
    """A round number, with its power of ten where it has many digits."""
    if value == 0 or 1e-3 < abs(value) < 1e4:
        return f"{value:g}"
    power = round(np.floor(np.log10(abs(value)) + 1e-9))
    leading = round(value / 10.0**power)
    front = {1: "", -1: "-"}.get(leading, f"{leading}\\cdot ")
    return f"${front}10^{{{power}}}$"
