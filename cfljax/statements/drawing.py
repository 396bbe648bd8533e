"""A claim over its parameters, drawn: bound, truth, and where nothing is claimed.

data = evaluate(evaluation, sweep={"n": range(1, 200), "d": [2, 20]})
cfljax.report.save(figure(data), "figures/mine")
"""

import textwrap
from typing import TYPE_CHECKING, Any, NamedTuple

import matplotlib
import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from cfljax.report import LINES, Scale, style

if TYPE_CHECKING:
    import xarray as xr

_SIZE = (6.4, 4.8)  # inches
_LETTERS = 68  # of a line of the title
_SEVERAL_DECADES = 2.0  # from them on equal ratios look the same
_MOST_DECADES = 300.0  # beyond them numbers are drawn by their powers of ten
_MOST_MARKERS = 60
_APART = 0.05  # of the axes' height, between labels
_CLAIMED = {"<=": "at most", ">=": "at least", "=": "exactly"}
_CLAIM, _TRUTH, _VIOLATION = "#009E73", "#0072B2", "#D55E00"
_INK, _GREY, _SHADE = "#333333", "#555555", "#e8e8e8"


class _Curve(NamedTuple):
    """Bound and truth along the first parameter, in the units of the axis."""

    label: str
    bound: Float[np.ndarray, " points"]
    truth: Float[np.ndarray, " points"]
    low: Float[np.ndarray, " points"]
    high: Float[np.ndarray, " points"]
    claimed: Bool[np.ndarray, " points"]
    violated: Bool[np.ndarray, " points"]


def figure(dataset: "xr.Dataset") -> Figure:
    """Draw what `evaluate` gave, along its first swept parameter.

    The bound is a line, dotted where its preconditions are not met; the truth is a
    broken line with markers, and a band where it is an interval. A second swept
    parameter takes a colour and a marker for each value, written beside its lines.
    Where no line makes a claim the ground is grey. An axis is logarithmic where its
    numbers are positive and span over two decades.

    Args:
      dataset: of `evaluate`, swept over one or two parameters.

    Returns:
      For `cfljax.report.save`.

    Raises:
      ValueError: if it is swept over none or over more than two, or the second has more
        values than there are distinguishable lines (7), or nothing is finite.
    """
    swept = list(dataset["bound"].dims)
    if not 1 <= len(swept) <= 2:
        raise ValueError(
            f"`dataset` must be swept over one or two parameters, got "
            f"{', '.join(map(str, swept)) or 'none'}; choose from it by `dataset.sel`."
        )
    across, *second = map(str, swept)
    if second and dataset.sizes[second[0]] > len(LINES):
        raise ValueError(
            f"`dataset` must have at most {len(LINES)} values of {second[0]}, got "
            f"{dataset.sizes[second[0]]}; choose from it by `dataset.sel`."
        )
    order = np.argsort(dataset[across].values, kind="stable")
    dataset = dataset.isel({across: order})
    x = np.asarray(dataset[across].values, float)
    curves, powers = _curves(dataset, across, second)
    seen = np.concatenate([part for curve in curves for part in curve[1:5]])
    if not np.any(np.isfinite(seen)):
        raise ValueError("`dataset` must have a finite number to draw, got none.")
    vertical = _scale(seen, powers)
    horizontal = _scale(x, powers=False)
    with matplotlib.rc_context(style()):
        drawn = Figure(figsize=_SIZE, layout="constrained")
        axes = drawn.add_subplot()
        drawn.suptitle(_title(dataset), fontsize=10, linespacing=1.35)
        axes.set(xlabel=_named(dataset, across), ylabel=dataset.attrs["quantity"])
        horizontal.apply(axes, "x", horizontal.limits(x))
        limits = vertical.limits(seen)
        vertical.apply(axes, "y", limits)
        handles: dict[str, Any] = {}
        for number, curve in enumerate(curves):
            colour = LINES[number]["color"] if second else ""
            handles |= _draw(axes, x, curve, colour, LINES[number]["marker"], limits)
        unclaimed = ~np.any([curve.claimed for curve in curves], axis=0)
        if np.any(unclaimed):
            name = textwrap.fill(_why_not(dataset), _LETTERS // 2)
            handles[name] = _shade(axes, horizontal, x, unclaimed)
        if second:
            _label(axes, curves, dataset[second[0]].attrs["long_name"], vertical)
        names = {
            "bound": f"claimed: {_CLAIMED[dataset.attrs['relation']]} this",
            "truth": "truth" + _told(dataset),
        }
        drawn.legend(
            [_plain(one) if second else one for one in handles.values()],
            [names.get(name, name) for name in handles],
            loc="outside lower center",
            ncols=2,
        )
    return drawn


def _curves(
    dataset: "xr.Dataset", across: str, second: list[str]
) -> tuple[list[_Curve], bool]:
    """One for each value of the second parameter; and whether numbers are powers."""
    names = ("bound", "truth", "low", "high")
    values = {name: np.asarray(dataset[name].values, float) for name in names}
    powers = False
    if dataset.attrs["scale"] != "number":
        decades = {name: one / np.log(10.0) for name, one in values.items()}
        known = np.concatenate([one.ravel() for one in decades.values()])
        powers = bool(np.any(np.abs(known[np.isfinite(known)]) > _MOST_DECADES))
        with np.errstate(over="ignore"):
            values = decades if powers else {n: 10.0**v for n, v in decades.items()}
    values["claimed"] = np.asarray(dataset["claimed"].values, bool)
    values["violated"] = np.asarray(dataset["verdict"].values) == "violated"
    if not second:
        return [_Curve("", **values)], powers
    settings = dataset[second[0]].values
    place = dataset["bound"].dims.index(second[0])
    return [
        _Curve(
            f"{second[0]} = {settings[i]:g}",
            **{n: v.take(i, axis=place) for n, v in values.items()},
        )
        for i in range(len(settings))
    ], powers


def _scale(values: Float[np.ndarray, " values"], powers: bool) -> Scale:
    """Logarithmic where the numbers are positive, zeros apart, and span decades."""
    known = values[np.isfinite(values) & (values != 0)]
    if powers or len(known) == 0 or np.min(known) < 0:
        return Scale("linear", powers=powers)
    whole = bool(np.all(known == np.round(known)))
    decades = np.log10(np.max(known)) - np.log10(np.min(known))
    return Scale("log" if decades >= _SEVERAL_DECADES - 1e-9 else "linear", whole=whole)


def _draw(
    axes: Axes,
    x: Float[np.ndarray, " points"],
    curve: _Curve,
    colour: str,
    marker: str,
    limits: tuple[float, float],
) -> dict[str, Any]:
    """One bound with its truth; returns what the legend shows."""
    handles: dict[str, Any] = {}
    claim, truth = colour or _CLAIM, colour or _TRUTH
    look: dict[str, Any] = {"color": claim, "linewidth": 1.8, "zorder": 2}
    dots: dict[str, Any] = look | {"linestyle": ":"}
    wherever = np.where(np.isfinite(curve.bound), curve.bound, np.nan)
    if not np.all(curve.claimed):
        (dotted,) = axes.plot(x, wherever, **dots)
        handles["the same number, not claimed there"] = dotted
    inside = np.where(curve.claimed, wherever, np.nan)
    (handles["bound"],) = axes.plot(x, inside, **look)
    wide = curve.high > curve.low
    if np.any(wide):
        ends = np.clip(curve.low, *limits), np.clip(curve.high, *limits)
        axes.fill_between(x, *ends, color=truth, alpha=0.18, linewidth=0, zorder=1.5)
        low, high = (end[wide] for end in ends)
        axes.vlines(x[wide], low, high, color=truth, linewidth=0.8)
    every = max(1, -(-len(x) // _MOST_MARKERS))
    (handles["truth"],) = axes.plot(
        x,
        curve.truth,
        color=truth,
        linestyle=(0, (4, 2)),
        linewidth=1.1,
        marker=marker,
        markersize=4.5,
        markevery=every,
        zorder=3,
    )
    if np.any(curve.violated):
        (handles["claim violated"],) = axes.plot(
            x[curve.violated],
            np.clip(curve.truth[curve.violated], *limits),
            linestyle="none",
            marker="X",
            markersize=8,
            color=_VIOLATION,
            zorder=4,
        )
    return handles


def _shade(
    axes: Axes,
    scale: Scale,
    x: Float[np.ndarray, " points"],
    where: Bool[np.ndarray, " points"],
) -> Any:
    """Grey ground around some points; returns what the legend shows."""
    left, right = axes.get_xlim()
    places = scale.place(x)
    between = scale.number((places[1:] + places[:-1]) / 2)
    edges = np.concatenate([[left], between, [right]])
    parts = [
        axes.axvspan(start, stop, color=_SHADE, linewidth=0, zorder=0)
        for start, stop in zip(edges[:-1][where], edges[1:][where], strict=True)
    ]
    return parts[0]


def _why_not(dataset: "xr.Dataset") -> str:
    """That nothing is claimed, and the preconditions that are not met."""
    unmet = [
        str(name)
        for name in dataset["precondition"].values
        if not np.all(dataset["margin"].sel(precondition=name).values >= 0)
    ]
    return f"nothing is claimed without {' and '.join(unmet)}"


def _label(axes: Axes, curves: list[_Curve], meaning: str, scale: Scale) -> None:
    """The second parameter's values at the right ends of their bounds, in a column that
    keeps them apart."""
    low, high = scale.place(np.array(axes.get_ylim()))
    heights = []
    for curve in curves:
        ends = [line[np.isfinite(line)] for line in (curve.bound, curve.truth)]
        last = next((end[-1] for end in ends if len(end)), np.nan)
        with np.errstate(divide="ignore"):
            height = (float(scale.place(np.array([last]))[0]) - low) / (high - low)
        heights.append(float(np.clip(np.nan_to_num(height), 0.0, 1.0)))
    order = sorted(range(len(curves)), key=lambda i: heights[i])
    spread: dict[int, float] = {}
    floor = 0.0
    for place, i in enumerate(order):
        room = 1.0 - _APART * (len(order) - 1 - place)
        spread[i] = min(max(heights[i], floor), room)
        floor = spread[i] + _APART
    for i, curve in enumerate(curves):
        axes.annotate(
            curve.label,
            xy=(1.0, heights[i]),
            xytext=(1.045, spread[i]),
            xycoords="axes fraction",
            textcoords="axes fraction",
            fontsize=9,
            color=_INK,
            va="center",
            arrowprops={
                "arrowstyle": "-",
                "color": LINES[i]["color"],
                "linewidth": 2.0,
                "shrinkA": 1,
                "shrinkB": 0,
            },
        )
    axes.annotate(
        textwrap.fill(meaning, 18),
        xy=(1.02, 1.06),
        xycoords="axes fraction",
        fontsize=9,
        color=_INK,
        va="bottom",
    )


def _plain(handle: Any) -> Any:
    """The legend's line where each of several has its own colour."""
    if not isinstance(handle, Line2D) or handle.get_marker() == "X":
        return handle
    look = {"linestyle": handle.get_linestyle(), "linewidth": handle.get_linewidth()}
    marker = "o" if handle.get_marker() != "None" else ""
    return Line2D([], [], color=_GREY, marker=marker, markersize=4.5, **look)


def _title(dataset: "xr.Dataset") -> str:
    """The claim, and the values of what is not swept."""
    constants = (
        [
            (str(name), float(value))
            for name, value in zip(
                dataset["constant"].values,
                dataset["constant_value"].values,
                strict=True,
            )
        ]
        if "constant" in dataset.coords
        else []
    )
    fixed = [
        (str(name), float(one.values))
        for name, one in dataset.coords.items()
        if one.ndim == 0
    ]
    values = ", ".join(f"{name} = {value:g}" for name, value in (*fixed, *constants))
    lines = [str(dataset.attrs.get("title", "")), values]
    return "\n".join(textwrap.fill(line, _LETTERS) for line in lines if line)


def _named(dataset: "xr.Dataset", name: str) -> str:
    """What a parameter means, with its symbol."""
    meaning = dataset[name].attrs.get("long_name", "")
    return f"{meaning} ({name})" if meaning else name


def _told(dataset: "xr.Dataset") -> str:
    """How the truth is known, for the legend."""
    grade = str(dataset.attrs["grade"])
    if not grade.startswith("sampled"):
        return ", computed"
    surely = 1 - dataset.attrs["error_rate"]
    kind = "nominal interval" if grade.endswith("nominal") else "interval"
    return f", sampled: {kind} of {surely:.9g} in all"
