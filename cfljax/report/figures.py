"""Heat maps and curves of measured results, one or several panels side by side.

    figure = heatmaps([HeatMap(title="paper", values=rates, ...)])
    save(figure, "figures/ifca/fig3a")  # fig3a.svg, fig3a.pdf and fig3a.png

A label names the quantity, its symbol and its unit where it has one, e.g.
"separation R" or "noise σ".
"""

import contextlib
import dataclasses
import math
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from jaxtyping import Num
from matplotlib import rcParamsDefault
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.transforms import ScaledTranslation

from cfljax.report.files import replacing

_LETTER = 0.085  # Inches of width that a letter of a panel's title takes.


@dataclasses.dataclass(frozen=True)
class HeatMap:
    """One panel: a value for every pair of settings.

    values: `[rows, columns]`; NaN where nothing was measured, drawn in grey. Row 0
      is drawn at the bottom, so that both axes grow as on paper.
    row_values, column_values: setting of each row and column, as shown on the axes.
    row_label, column_label: what is set, e.g. "noise σ".
    cells: text of each cell, e.g. "8/10"; the value with two decimals if None.
    title: what sets this panel apart from its neighbours.
    """

    values: Num[np.ndarray, "rows columns"]
    row_values: Sequence[Any]
    column_values: Sequence[Any]
    row_label: str
    column_label: str
    cells: Sequence[Sequence[str]] | None = None
    title: str = ""

    def __post_init__(self) -> None:
        shape = (len(self.row_values), len(self.column_values))
        if self.values.shape != shape:
            raise ValueError(
                f"`values` must be `[rows, columns]` = {shape}, one for each of "
                f"`row_values` and `column_values`, got shape {self.values.shape}."
            )
        lengths = [len(row) for row in self.cells] if self.cells is not None else None
        if lengths is not None and lengths != [shape[1]] * shape[0]:
            raise ValueError(
                f"`cells` must hold {shape[0]} rows of {shape[1]} texts, got rows of "
                f"lengths {lengths}."
            )


def heatmaps(
    panels: Sequence[HeatMap],
    *,
    title: str = "",
    value_label: str = "success probability",
    limits: tuple[float, float] = (0.0, 1.0),
    panels_per_row: int = 3,
) -> Figure:
    """Heat maps side by side under one colour bar.

    Args:
      panels: at least one, in reading order.
      title: of the whole figure.
      value_label: what the colours mean.
      limits: values at the two ends of the colour bar.
      panels_per_row: more panels than this start a new row; at least 1.

    Raises:
      ValueError: if `panels` is empty or `panels_per_row` is below 1.
    """
    width = max((0.62 * len(p.column_values) for p in panels), default=0) + 1.1
    height = max((0.48 * len(p.row_values) for p in panels), default=0) + 1.1
    with matplotlib.rc_context(style()):
        figure, all_axes = _grid(
            panels,
            panels_per_row,
            title,
            panel_size=(width, height),
            margin=(1.0, 0.0),
        )
        images = [
            _draw_heatmap(axes, panel, limits)
            for axes, panel in zip(all_axes, panels, strict=True)
        ]
        bar = figure.colorbar(
            images[0],
            ax=all_axes,
            label=value_label,
            pad=0.02,
            aspect=20 * math.ceil(len(panels) / panels_per_row),
        )
        bar.outline.set_visible(False)
    return figure


@dataclasses.dataclass(frozen=True)
class Curve:
    """One measured quantity against another, with a band that holds the truth.

    label: name in the legend; curves of one name look the same in all panels.
    x, y: the points, `[points]` each.
    low, high: ends of each point's interval, e.g. `intervals.clopper_pearson`; both
      or neither.
    like: None for what was measured. The label of another curve of the same panel for
      what was predicted of it: a thin dash-dotted line in that curve's colour, without
      marker and never moved aside.
    """

    label: str
    x: Num[np.ndarray, " points"]
    y: Num[np.ndarray, " points"]
    low: Num[np.ndarray, " points"] | None = None
    high: Num[np.ndarray, " points"] | None = None
    like: str | None = None

    def __post_init__(self) -> None:
        if (self.low is None) != (self.high is None):
            raise ValueError(
                "`low` and `high` must be given together, got one of them."
            )
        arrays = [a for a in (self.x, self.y, self.low, self.high) if a is not None]
        if any(a.shape != self.x.shape or a.ndim != 1 for a in arrays):
            raise ValueError(
                f"`x`, `y`, `low` and `high` must be `[points]` of one length, got "
                f"shapes {[a.shape for a in arrays]}."
            )


@dataclasses.dataclass(frozen=True)
class Level:
    """A value to compare a curve with, e.g. a published one, drawn all across.

    label: name in the legend.
    value: height of the line.
    like: label of the curve of the same panel whose colour it takes.
    half_width: how far its band reaches to either side; none if None.
    """

    label: str
    value: float
    like: str
    half_width: float | None = None

    def __post_init__(self) -> None:
        if not math.isfinite(self.value):
            raise ValueError(f"`value` must be finite, got {self.value}.")
        if self.half_width is not None and not 0 <= self.half_width < math.inf:
            raise ValueError(
                f"`half_width` must be finite and not negative, got {self.half_width}."
            )


@dataclasses.dataclass(frozen=True)
class CurvePanel:
    """One panel of curves, and of levels to compare them with.

    x_label, y_label: what is drawn, e.g. "separation R", "success probability".
    y_limits: ends of the vertical axis; chosen from the data if None.
    log_x, log_y: whether equal ratios, not equal differences, look the same.
    title: what sets this panel apart from its neighbours.
    levels: lines across the panel, each named otherwise than all curves.
    aside: whether curves of few points step aside from each other, so that none hides
      another; else every point is where it was measured.
    """

    curves: Sequence[Curve]
    x_label: str
    y_label: str
    y_limits: tuple[float, float] | None = (0.0, 1.0)
    log_x: bool = False
    log_y: bool = False
    title: str = ""
    levels: Sequence[Level] = ()
    aside: bool = True

    def __post_init__(self) -> None:
        if not self.curves:
            raise ValueError("`curves` must hold at least one curve, got none.")
        names = {curve.label for curve in self.curves if curve.like is None}
        predicted = [curve for curve in self.curves if curve.like is not None]
        for line in (*predicted, *self.levels):
            if line.like not in names or line.label in names:
                raise ValueError(
                    f"`levels` and predicted curves must be like one of the curves "
                    f"{sorted(names)} and named otherwise, got {line}."
                )


def curves(
    panels: Sequence[CurvePanel],
    *,
    title: str = "",
    legend_title: str = "",
    panels_per_row: int = 3,
) -> Figure:
    """Panels of curves side by side over one legend.

    Args:
      panels: at least one, in reading order.
      title: of the whole figure.
      legend_title: what the curves' names are values of, or what the bands are.
      panels_per_row: more panels than this start a new row; at least 1.

    Raises:
      ValueError: if `panels` is empty, `panels_per_row` is below 1, or there are
        more different names than distinguishable lines (7).
    """
    measured = [c for p in panels for c in p.curves if c.like is None]
    predicted = [c for p in panels for c in p.curves if c.like is not None]
    names = list(dict.fromkeys(curve.label for curve in measured))
    if len(names) > len(LINES):
        raise ValueError(
            f"`panels` must name at most {len(LINES)} different curves, got "
            f"{len(names)}; split them into panels of their own figures."
        )
    levels = [level for panel in panels for level in panel.levels]
    labels = [*names, *dict.fromkeys(line.label for line in (*predicted, *levels))]
    with matplotlib.rc_context(style()):
        num_columns = min(len(panels), panels_per_row)
        # Entries share the width of the panels, which titles can only widen.
        fitting = int(3.8 * num_columns / (_LETTER * _longest_line("", *labels) + 0.7))
        per_line = max(1, min(2 * num_columns, fitting))
        legend_height = 0.4 + 0.2 * math.ceil(len(labels) / per_line)
        figure, all_axes = _grid(
            panels,
            panels_per_row,
            title,
            panel_size=(3.8, 2.9),
            margin=(0.0, legend_height),
            min_width=_LETTER * _longest_line(legend_title) + 0.3,
        )
        handles: dict[str, Any] = {}
        for axes, panel in zip(all_axes, panels, strict=True):
            handles |= draw_panel(axes, panel, names)
        figure.legend(
            [handles[label] for label in labels],
            labels,
            title=legend_title or None,
            loc="outside lower center",
            ncols=min(len(labels), per_line),
            handlelength=3.5,
        )
    return figure


def save(figure: Figure, path: str | os.PathLike[str]) -> list[pathlib.Path]:
    """Write `path`.svg, `path`.pdf and `path`.png, each whole or not at all; or the one
    file whose suffix the path has.

    The same figure gives the same bytes again, on the same version of matplotlib:
    no date, no random names. The PDF has its texts as texts, in embedded TrueType.

    Args:
      figure: made by `heatmaps` or `curves`.
      path: without suffix, or with one of the three; missing folders are made.

    Returns:
      The files.
    """
    base = pathlib.Path(path)
    files = [base.with_name(base.name + suffix) for suffix in METADATA]
    files = [base] if base.suffix in METADATA else files
    layout = figure.get_layout_engine()
    with matplotlib.rc_context(style()), _lean_fonts():
        try:
            for file in files:
                with replacing(file) as temporary:
                    figure.savefig(temporary, metadata=METADATA[file.suffix])
                figure.set_layout_engine(None)  # All is in its place.
        finally:
            figure.set_layout_engine(layout)
    return files


@contextlib.contextmanager
def _lean_fonts() -> Iterator[None]:
    """Embed fonts without their tables for typesetting, of which a PDF makes no use:
    to cut those to the letters in use would take half of the time of writing one."""
    from fontTools.subset import Options  # Not above: it takes a quarter of a second.

    # Where a later version calls it otherwise, fonts are large again, nothing more.
    name = "_drop_tables_default"
    usual = getattr(Options, name, [])
    setattr(Options, name, [*usual, "GDEF", "GPOS", "GSUB", "kern"])
    try:
        yield
    finally:
        setattr(Options, name, usual)


def _grid(
    panels: Sequence[Any],
    panels_per_row: int,
    title: str,
    *,
    panel_size: tuple[float, float],
    margin: tuple[float, float],
    min_width: float = 0.0,
) -> tuple[Figure, list[Axes]]:
    """A figure with one axes per panel, sizes in inches, unused places empty."""
    if not panels or panels_per_row < 1:
        raise ValueError(
            f"`panels` must not be empty and `panels_per_row` at least 1, got "
            f"{len(panels)} panels and {panels_per_row}."
        )
    num_columns = min(len(panels), panels_per_row)
    num_rows = math.ceil(len(panels) / num_columns)
    panel_titles = [panel.title for panel in panels]
    panel_width = max(panel_size[0], _LETTER * _longest_line(*panel_titles) + 0.5)
    panel_height = panel_size[1] + 0.17 * max(t.count("\n") for t in panel_titles)
    width = num_columns * panel_width + margin[0]
    width = max(width, min_width, 1.2 * _LETTER * _longest_line(title) + 0.3)
    height = num_rows * panel_height + margin[1] + (0.4 if title else 0.0)
    figure = Figure(figsize=(width, height), layout="constrained")
    if title:
        figure.suptitle(title)
    places = figure.subplots(num_rows, num_columns, squeeze=False).ravel()
    for unused in places[len(panels) :]:
        unused.remove()
    return figure, list(places[: len(panels)])


def _longest_line(*texts: str) -> int:
    """Letters of the longest line."""
    return max(len(line) for text in texts for line in text.split("\n"))


def _draw_heatmap(axes: Axes, panel: HeatMap, limits: tuple[float, float]) -> AxesImage:
    """The panel's cells with their texts; returns what the colour bar explains."""
    values = np.ma.masked_invalid(np.asarray(panel.values, float))
    colours = matplotlib.colormaps[COLOUR_MAP].with_extremes(bad=MISSING)
    image = axes.imshow(
        values, colours, vmin=limits[0], vmax=limits[1], origin="lower", aspect="auto"
    )
    axes.set_xticks(range(values.shape[1]), [str(v) for v in panel.column_values])
    axes.set_yticks(range(values.shape[0]), [str(v) for v in panel.row_values])
    axes.set(xlabel=panel.column_label, ylabel=panel.row_label, title=panel.title)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    # White lines between the cells keep equal neighbours apart.
    axes.set_xticks(np.arange(values.shape[1] - 1) + 0.5, minor=True)
    axes.set_yticks(np.arange(values.shape[0] - 1) + 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=1.5)
    axes.tick_params(which="minor", length=0)
    # How light the colours look, 0 to 1, from their red, green and blue.
    lightness = image.to_rgba(values)[..., :3] @ np.array([0.299, 0.587, 0.114])
    for row, column in np.ndindex(values.shape):
        axes.text(
            column,
            row,
            _cell_text(panel, row, column),
            ha="center",
            va="center",
            fontsize=9,
            color="black" if lightness[row, column] > 0.5 else "white",
        )
    return image


def _cell_text(panel: HeatMap, row: int, column: int) -> str:
    if panel.cells is not None:
        return panel.cells[row][column]
    value = panel.values[row, column]
    return f"{value:.2f}" if np.isfinite(value) else "–"


_FEW = 8  # Points of a curve that has room for its intervals.
_STEP_ASIDE = 5.0  # Points between neighbouring curves at the same place.


def draw_panel(axes: Axes, panel: CurvePanel, names: Sequence[str]) -> dict[str, Any]:
    """Draw curves, levels, labels and scales.

    Args:
      axes: empty.
      panel: what to draw.
      names: of all curves of the figure, at most as many as `LINES`; a curve's
        place among them decides its look.

    Returns:
      What the legend shows of each label.
    """
    looks = dict(zip(names, LINES, strict=False))
    handles: dict[str, Any] = {}
    own = [name for name in names if name in {curve.label for curve in panel.curves}]
    measured = [curve for curve in panel.curves if curve.like is None]
    for curve in measured:
        place = own.index(curve.label) - (len(own) - 1) / 2
        shift = _STEP_ASIDE * place if panel.aside else 0.0
        filled = len(measured) == 1 or len(curve.x) > _FEW
        look = looks[curve.label]
        handles[curve.label] = _draw_curve(axes, curve, look, shift, filled=filled)
    for curve in panel.curves:
        if curve.like is not None:
            handles[curve.label] = _draw_prediction(axes, curve, looks[curve.like])
    for level in panel.levels:
        handles[level.label] = _draw_level(axes, level, looks[level.like]["color"])
    _finish(axes, panel)
    return handles


def _draw_curve(
    axes: Axes, curve: Curve, look: dict[str, Any], shift: float, *, filled: bool
) -> tuple[Any, ...]:
    """The curve, its intervals and its band if `filled`; if of few points, moved on the
    page, so that equal ones stay visible. Returns the legend's part."""
    few = len(curve.x) <= _FEW
    aside = ScaledTranslation(few * shift / 72, 0, axes.figure.dpi_scale_trans)
    place = axes.transData + aside
    if not few:
        look = look | {"marker": ""}
    (line,) = axes.plot(curve.x, curve.y, label=curve.label, transform=place, **look)
    # What is moved aside is not seen by the automatic choice of the axes' limits.
    ends = [curve.y, curve.low, curve.high]
    for y in (end for end in ends if end is not None):
        axes.update_datalim(np.column_stack([curve.x, y])[np.isfinite(y)])
    axes.autoscale_view()
    if curve.low is None or curve.high is None:
        return (line,)
    colour = look["color"]
    if few:
        bars = axes.vlines(curve.x, curve.low, curve.high, transform=place)
        bars.set(color=colour, linewidth=1.2)
        for end in (curve.low, curve.high):
            (caps,) = axes.plot(curve.x, end, label=f"_{curve.label}", transform=place)
            caps.set(color=colour, linestyle="none", marker="_", markersize=5)
            caps.set(markeredgecolor=colour, markeredgewidth=1.2)
    if not filled:
        return (line,)
    band = axes.fill_between(curve.x, curve.low, curve.high, transform=place)
    band.set(color=colour, alpha=0.07 if few else 0.15, linewidth=0)
    return (band, line)


def _draw_prediction(axes: Axes, curve: Curve, look: dict[str, Any]) -> tuple[Any, ...]:
    """A line below all measured ones, with a band if it has ends."""
    thin = {"color": look["color"], "linewidth": 1.0, "linestyle": "-.", "zorder": 1.5}
    (line,) = axes.plot(curve.x, curve.y, label=f"_{curve.label}", **thin)
    if curve.low is None or curve.high is None:
        return (line,)
    band = axes.fill_between(curve.x, curve.low, curve.high)
    band.set(color=look["color"], alpha=0.15, linewidth=0, zorder=1.4)
    return (band, line)


def _draw_level(axes: Axes, level: Level, colour: str) -> tuple[Any, ...]:
    """A line across the panel, below all curves; returns what the legend shows."""
    look = {"color": colour, "linewidth": 1.0, "linestyle": "-.", "zorder": 1.5}
    line = axes.axhline(level.value, label=f"_{level.label}", **look)
    if level.half_width is None:
        return (line,)
    low, high = level.value - level.half_width, level.value + level.half_width
    band = axes.axhspan(low, high, color=colour, alpha=0.15, linewidth=0, zorder=1.4)
    return (band, line)


def _widened(points: np.ndarray, *, log: bool) -> tuple[float, float]:
    """Ends of a horizontal axis with room beside the outermost points."""
    scaled = np.log(points) if log else points
    low, high = float(scaled[0]), float(scaled[-1])
    margin = 0.06 * (high - low) or 0.5
    ends = np.array([low - margin, high + margin])
    low, high = np.exp(ends) if log else ends
    return float(low), float(high)


def _finish(axes: Axes, panel: CurvePanel) -> None:
    """Labels, scales and grid."""
    axes.set(xlabel=panel.x_label, ylabel=panel.y_label, title=panel.title)
    if panel.log_x:
        axes.set_xscale("log")
    if panel.log_y:
        axes.set_yscale("log")
    if panel.y_limits is not None:
        low, high = panel.y_limits
        margin = 0.0 if panel.log_y else 0.03 * (high - low)
        axes.set_ylim(low - margin, high + margin)
    measured = [curve for curve in panel.curves if curve.like is None]
    points = np.unique(np.concatenate([curve.x for curve in measured]))
    axes.set_xlim(*_widened(points, log=panel.log_x))
    if len(points) <= _FEW:
        axes.set_xticks(points, [f"{point:g}" for point in points])
        axes.set_xticks([], minor=True)
    axes.grid(True)


_ROW = 0.34  # Inches for a group of bars.


@dataclasses.dataclass(frozen=True)
class BarPanel:
    """One panel of horizontal bars.

    names: of the groups, from top to bottom.
    series: from what the bars of one colour are to their lengths, `[groups]`; NaN
      leaves a bar out.
    label: of the axis, e.g. "time / FedAvg's time".
    title: what sets this panel apart from its neighbours.
    limit: name and length of a line across all bars; none if None.
    """

    names: Sequence[str]
    series: Mapping[str, Num[np.ndarray, " groups"]]
    label: str
    title: str = ""
    limit: tuple[str, float] | None = None

    def __post_init__(self) -> None:
        lengths = {name: len(values) for name, values in self.series.items()}
        if not lengths or set(lengths.values()) != {len(self.names)}:
            raise ValueError(
                f"`series` must hold {len(self.names)} lengths each, one for each of "
                f"`names`, got {lengths}."
            )
        if not self.names:
            raise ValueError("`names` must hold at least one name, got none.")


def bars(panels: Sequence[BarPanel], *, panels_per_row: int = 3) -> Figure:
    """Panels of bars side by side over one legend.

    Args:
      panels: at least one, all of the same series.
      panels_per_row: more panels than this start a new row; at least 1.

    Raises:
      ValueError: if `panels` is empty, their series differ, or are more than there are
        distinguishable colours (7), or `panels_per_row` is below 1.
    """
    kinds = [list(panel.series) for panel in panels]
    if not kinds or any(kind != kinds[0] for kind in kinds):
        raise ValueError(f"`panels` must have the same series each, got {kinds}.")
    if len(kinds[0]) > len(LINES):
        raise ValueError(
            f"`panels` must have at most {len(LINES)} series, got {len(kinds[0])}."
        )
    most = max(len(panel.names) for panel in panels)
    with matplotlib.rc_context(style()):
        figure, all_axes = _grid(
            panels,
            panels_per_row,
            "",
            panel_size=(5.2, 0.6 + _ROW * most),
            margin=(0.0, 0.6),
        )
        handles: dict[str, Any] = {}
        for axes, panel in zip(all_axes, panels, strict=True):
            places = np.arange(len(panel.names))
            thickness = 0.8 / len(panel.series)
            for index, (name, values) in enumerate(panel.series.items()):
                shift = (index - (len(panel.series) - 1) / 2) * thickness
                lengths = [value if math.isfinite(value) else 0 for value in values]
                colour = LINES[index]["color"]
                handles[name] = axes.barh(
                    places + shift, lengths, thickness, label=name, color=colour
                )
            if panel.limit is not None:
                name, length = panel.limit
                look = {"color": "black", "linestyle": "-.", "linewidth": 1.2}
                handles[name] = axes.axvline(length, label=name, **look)
            axes.set_yticks(places, list(panel.names))
            axes.set(xlabel=panel.label, title=panel.title)
            axes.set_ylim(len(panel.names) - 0.5, -0.5)  # The first on top.
            axes.tick_params(axis="y", length=0)
            axes.grid(axis="x")
        figure.legend(
            list(handles.values()),
            list(handles),
            loc="outside lower center",
            ncols=len(handles),
        )
    return figure


COLOUR_MAP = "viridis"  # Even steps of lightness, also for the colour-blind.
MISSING = "#d9d9d9"

# Okabe and Ito's colours in an order of falling contrast on white; every curve
# also has its own marker and dashes, for print and for the colour-blind.
LINES: tuple[dict[str, Any], ...] = (
    {"color": "#0072B2", "marker": "o", "linestyle": "-"},
    {"color": "#D55E00", "marker": "s", "linestyle": (0, (5, 2))},
    {"color": "#009E73", "marker": "^", "linestyle": (0, (1, 1.2))},
    {"color": "#CC79A7", "marker": "D", "linestyle": (0, (5, 1.5, 1, 1.5))},
    {"color": "#E69F00", "marker": "v", "linestyle": (0, (8, 2, 2, 2))},
    {"color": "#56B4E9", "marker": "P", "linestyle": (0, (3, 1, 1, 1, 1, 1))},
    {"color": "#000000", "marker": "X", "linestyle": (0, (2, 2))},
)

# What a file says of its making: nothing that changes between runs.
METADATA: dict[str, dict[str, Any]] = {
    ".svg": {"Date": None, "Creator": "cfljax"},
    ".pdf": {"CreationDate": None, "Creator": "cfljax"},
    ".png": {"Software": "cfljax"},
}

_CHANGES: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # Comes with matplotlib: the same everywhere.
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.labelsize": 10,
    "figure.titlesize": 12,
    "legend.fontsize": 9,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#555555",
    "axes.axisbelow": True,
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.8,
    "lines.linewidth": 1.8,
    "lines.markersize": 6.5,
    "lines.markeredgecolor": "white",
    "lines.markeredgewidth": 0.7,
    "legend.frameon": False,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "savefig.dpi": 160,
    "svg.fonttype": "path",  # Looks the same where the font is missing.
    "pdf.fonttype": 42,  # TrueType: what journals accept, and a reader can select.
    "svg.hashsalt": "cfljax",  # Element names from the content, not from chance.
}


def style() -> dict[Any, Any]:
    """All settings of a figure: matplotlib's defaults with this project's changes.

    Use it as `with matplotlib.rc_context(style()): ...` both to draw and to save;
    what the user has set, globally or in a file, does not matter there. Only how a
    window would be opened stays the user's.
    """
    windows = ("backend", "interactive", "toolbar", "webagg")
    kept = {k: rcParamsDefault[k] for k in rcParamsDefault if not k.startswith(windows)}
    return kept | _CHANGES
