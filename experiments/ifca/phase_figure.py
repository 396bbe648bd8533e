"""The picture of a phase diagram: shares of success in colour, boundaries as lines."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Literal

import matplotlib
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from cfljax.report import set_caption, style

COLOUR_MAP = "viridis"  # Even steps of lightness, also for the colour-blind.
HALF = "half of the runs succeed"

# Of lines; and what is behind them, and behind their labels.
_LOOKS: dict[str, dict[str, Any]] = {
    "half": {"colors": "white", "linewidths": 3.0, "linestyles": "solid"},
    "other": {"colors": "white", "linewidths": 1.6, "linestyles": "dotted"},
    "law": {"colors": "#D55E00", "linewidths": 1.6, "linestyles": "dashed"},
    "promise": {"colors": "black", "linewidths": 1.8, "linestyles": "solid"},
}
_OUTLINED = ("half", "promise")
_GROUNDS = {"white": "black", "black": "white", "#D55E00": "white"}
_SIZE = 9.0  # Points of the labels.
_STEPS = 400  # Places that are tried for a label on a line.


@dataclasses.dataclass(frozen=True)
class Line:
    """A boundary.

    label: written along it.
    height: `[up, across]` over the whole diagram in equal ratios, above 0 on its one
      side and below on the other; NaN where it is not to be drawn.
    kind: what it is, which decides its look.
    """

    label: str
    height: Float[np.ndarray, "up across"]
    kind: Literal["law", "promise"]


@dataclasses.dataclass(frozen=True)
class Diagram:
    """One panel.

    name: what sets it apart.
    title: the name, and more.
    first, second: values of the cells across and upwards.
    shares: `[up, across]` of successful runs.
    lines: boundaries over it.
    notes: what is not drawn, and why.
    """

    name: str
    title: str
    first: Sequence[int | float]
    second: Sequence[int | float]
    shares: Float[np.ndarray, "up across"]
    lines: Sequence[Line] = ()
    notes: Sequence[str] = ()


def draw(
    diagrams: Sequence[Diagram],
    *,
    x_label: str,
    y_label: str,
    ranges: tuple[tuple[float, float], tuple[float, float]],
    title: str,
    subtitle: str,
) -> Figure:
    """Panels side by side under one colour bar; the contour of the first one's shares
    of 1/2 is dotted in the others."""
    with matplotlib.rc_context(style()):
        width = 5.4 * len(diagrams) + 1.0
        figure = Figure(figsize=(width, 6.1), layout="constrained")
        set_caption(figure, title, *subtitle.split("\n"))
        panels = figure.subplots(1, len(diagrams), sharey=True, squeeze=False)[0]
        for axes, diagram in zip(panels, diagrams, strict=True):
            _cells(axes, diagram)
            axes.set(xscale="log", yscale="log", xlim=ranges[0], ylim=ranges[1])
            axes.set(xlabel=x_label, title=diagram.title)
            axes.spines[:].set_visible(False)
            for own in (axes.xaxis, axes.yaxis):
                own.set_major_formatter(lambda value, _: f"{value:,g}")
        panels[0].set_ylabel(y_label)
        colours = ScalarMappable(Normalize(0, 1), COLOUR_MAP)
        bar = figure.colorbar(
            colours, ax=list(panels), label="share of successful runs", pad=0.015
        )
        bar.outline.set_visible(False)
        figure.draw_without_rendering()  # Labels need to know where all is.
        figure.set_layout_engine(None)
        for place, (axes, diagram) in enumerate(zip(panels, diagrams, strict=True)):
            _lines(axes, diagram, ranges, other=diagrams[0] if place else None)
    return figure


def _cells(axes: Axes, diagram: Diagram) -> None:
    across, up = (_edges(values) for values in (diagram.first, diagram.second))
    look: Any = {"cmap": COLOUR_MAP, "vmin": 0, "vmax": 1}
    axes.pcolormesh(across, up, diagram.shares, rasterized=True, **look)


def _edges(values: Sequence[int | float]) -> Float[np.ndarray, " edges"]:
    """Between the cells, in equal ratios from each of two neighbours."""
    logs = np.log(np.asarray(values, float))
    middle = (logs[1:] + logs[:-1]) / 2
    ends = 2 * logs[[0, -1]] - middle[[0, -1]]
    return np.exp(np.concatenate([ends[:1], middle, ends[1:]]))


def _lines(
    axes: Axes,
    diagram: Diagram,
    ranges: tuple[tuple[float, float], tuple[float, float]],
    *,
    other: Diagram | None,
) -> None:
    """All lines, then a label on each of them, away from the others."""
    half = diagram.first, diagram.second, diagram.shares
    drawn = [(HALF, "half", _contour(axes, *half, 0.5, "half"))]
    if other is not None:
        half = other.first, other.second, other.shares
        paths = _contour(axes, *half, 0.5, "other")
        drawn.append((f"half succeed on {other.name}", "other", paths))
    for line in diagram.lines:
        up, across = line.height.shape
        points = np.geomspace(*ranges[0], across), np.geomspace(*ranges[1], up)
        paths = _contour(axes, *points, line.height, 0.0, line.kind)
        drawn.append((line.label, line.kind, paths))
    placer = _Labels(axes, [path for *_, paths in drawn for path in paths])
    placer.note(diagram.notes)
    for label, kind, paths in drawn:
        placer.put(label, kind, paths)


def _contour(
    axes: Axes,
    first: Sequence[int | float] | np.ndarray,
    second: Sequence[int | float] | np.ndarray,
    height: Float[np.ndarray, "up across"],
    level: float,
    kind: str,
) -> list[Float[np.ndarray, "points 2"]]:
    """Draw a contour; its paths on the page."""
    finite = height[np.isfinite(height)]
    if not finite.size or np.all(finite >= level) or np.all(finite < level):
        return []
    found = axes.contour(
        np.asarray(first), np.asarray(second), height, [level], **_LOOKS[kind]
    )
    if kind in _OUTLINED:
        look = _LOOKS[kind]
        ground = _GROUNDS[look["colors"]]
        stroke = withStroke(linewidth=look["linewidths"] + 1.6, foreground=ground)
        found.set(path_effects=[stroke])
    return [axes.transData.transform(path) for path in found.allsegs[0] if len(path)]


def _ground(colour: str) -> dict[str, Any]:
    """What makes a text readable on any cells."""
    return {
        "boxstyle": "round,pad=0.12",
        "facecolor": colour,
        "alpha": 0.85 if colour == "white" else 0.6,
        "linewidth": 0,
    }


class _Labels:
    """Puts texts where they cover neither lines nor each other."""

    def __init__(self, axes: Axes, paths: Sequence[np.ndarray]) -> None:
        self.axes, self.box = axes, axes.bbox
        self.lift = _SIZE * axes.figure.dpi / 72  # From a line to its text.
        self.lines = [_dense(path)[0] for path in paths]
        self.texts: list[Float[np.ndarray, "points 2"]] = []

    def note(self, lines: Sequence[str]) -> None:
        """A text in the lower right corner, if there is any."""
        if lines:
            self.axes.annotate(
                "\n".join(lines),
                (0.985, 0.02),
                xycoords="axes fraction",
                ha="right",
                va="bottom",
                fontsize=_SIZE,
                bbox=_ground("white"),
            )

    def put(self, text: str, kind: str, paths: Sequence[np.ndarray]) -> None:
        """A text beside its line, at the place with most room."""
        scale = self.axes.figure.dpi / 72
        half = 0.26 * _SIZE * scale * len(text)
        best: tuple[float, Any] = (-math.inf, None)
        for path in paths:
            points, along = _dense(path)
            for place in range(0, len(points), 4):
                inside = np.abs(along - along[place]) <= half
                if along[-1] < 0.6 * half:
                    continue
                piece = points[inside]
                chord = piece[-1] - piece[0]
                angle = math.degrees(math.atan2(chord[1], chord[0]))
                angle = (angle + 80) % 180 - 80  # Upwards where it is steep.
                radians = math.radians(angle)
                normal = np.array([-math.sin(radians), math.cos(radians)])
                for side in (1, -1):
                    middle = piece.mean(axis=0) + side * self.lift * normal
                    room = self._room(middle, radians, half)
                    if room > best[0]:
                        best = (room, (middle, angle, radians))
        if best[1] is None:
            return
        middle, angle, radians = best[1]
        colour = _LOOKS[kind]["colors"]
        self.axes.annotate(
            text,
            middle / scale,
            xycoords="figure points",
            ha="center",
            va="center",
            rotation=angle,
            rotation_mode="anchor",
            fontsize=_SIZE,
            color=colour,
            bbox=_ground(_GROUNDS[colour]),
        )
        self.texts.append(self._stretch(middle, radians, half))

    def _stretch(
        self, middle: np.ndarray, radians: float, half: float
    ) -> Float[np.ndarray, "points 2"]:
        """Points along the middle of a text."""
        along = np.linspace(-half, half, 25)[:, None]
        return middle + along * np.array([math.cos(radians), math.sin(radians)])

    def _room(self, middle: np.ndarray, radians: float, half: float) -> float:
        """Distance of a text from the nearest line, text or edge; straight ones are
        easier to read."""
        own = self._stretch(middle, radians, half)
        edge = np.min([own - np.array(self.box.min), np.array(self.box.max) - own])
        apart = [_gap(own, line[::3]) for line in self.lines]
        # Texts have a height, and lines hardly one.
        apart += [_gap(own, text) - self.lift for text in self.texts]
        reach = 3 * self.lift
        return min(*apart, edge / 0.8, reach) - 4 * abs(math.sin(radians))


def _gap(
    first: Float[np.ndarray, "points 2"], second: Float[np.ndarray, "others 2"]
) -> float:
    """Least distance between two sets of points."""
    return float(np.min(np.hypot(*(first[:, None] - second).transpose(2, 0, 1))))


def _dense(path: np.ndarray) -> tuple[Float[np.ndarray, "points 2"], np.ndarray]:
    """A path at equal steps, and the length up to each point."""
    steps = np.hypot(*np.diff(path, axis=0).T)
    length = np.concatenate([[0.0], np.cumsum(steps)])
    along = np.linspace(0, length[-1], _STEPS)
    return np.stack([np.interp(along, length, part) for part in path.T], axis=1), along
