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
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from jaxtyping import Num
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import SubplotSpec
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.transforms import ScaledTranslation

from cfljax.report.files import replacing, write_text
from cfljax.report.look import METADATA, look, number, style
from cfljax.report.scales import Scale

_START = re.compile(r"(^|(?<!al)[.?] )[a-z](?=[a-z])")  # Of a sentence, by no symbol.
_LETTER = 0.085  # Inches of width that a letter of a panel's title takes.
_NARROWEST = 2.2  # Inches of a panel, where a figure's width is given.


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
    caption: str = "",
    value_label: str = "success probability",
    limits: tuple[float, float] = (0.0, 1.0),
    panels_per_row: int = 3,
) -> Figure:
    """Heat maps side by side under one colour bar.

    Args:
      panels: at least one, in reading order.
      title: of the whole figure, see `Look.caption`.
      caption: what else there is to say, for the text file beside the figure.
      value_label: what the colours mean.
      limits: values at the two ends of the colour bar.
      panels_per_row: more panels than this start a new row; at least 1.

    Raises:
      ValueError: if `panels` is empty or `panels_per_row` is below 1.
    """
    width = max((0.62 * len(p.column_values) for p in panels), default=0) + 1.1
    height = max((0.48 * len(p.row_values) for p in panels), default=0) + 1.1
    with matplotlib.rc_context(style()):
        figure, all_axes = panel_grid(
            panels,
            panels_per_row,
            title,
            caption,
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
            aspect=20 * subplot_of(all_axes[0]).get_gridspec().nrows,
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
                f"`half_width` must not be negative, got {self.half_width}."
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
        for line in self.thin:
            if line.like not in names or line.label in names:
                raise ValueError(
                    f"`levels` and predicted curves must be like one of the curves "
                    f"{sorted(names)} and named otherwise, got {line}."
                )

    @property
    def thin(self) -> list[Any]:
        """What curves are compared with: predicted ones, and levels."""
        return [*(c for c in self.curves if c.like is not None), *self.levels]


def curves(
    panels: Sequence[CurvePanel],
    *,
    title: str = "",
    caption: str = "",
    legend_title: str = "",
    panels_per_row: int = 3,
) -> Figure:
    """Panels of curves side by side over one legend.

    Args:
      panels: at least one, in reading order.
      title: of the whole figure, see `Look.caption`.
      caption: what else there is to say, for the text file beside the figure.
      legend_title: what the curves' names are values of, or what the bands are.
      panels_per_row: more panels than this start a new row; at least 1.

    Raises:
      ValueError: if `panels` is empty, `panels_per_row` is below 1, or there are
        more different names than distinguishable lines (7).
    """
    measured = [c for p in panels for c in p.curves if c.like is None]
    names = list(dict.fromkeys(curve.label for curve in measured))
    if len(names) > len(LINES):
        raise ValueError(
            f"`panels` must name at most {len(LINES)} different curves, got "
            f"{len(names)}; split them into panels of their own figures."
        )
    thin = _dashes(panels)
    labels = [*names, *thin]
    with matplotlib.rc_context(style()):
        size = (3.8, 2.9)
        num_columns, panel_width = _columns(panels, panels_per_row, size, 0.0)
        letter = _LETTER * look().scale
        # Entries share the width of the panels, which titles can only widen.
        width = panel_width * num_columns
        fitting = int(width / (letter * _longest_line("", *labels) + 0.7))
        per_line = max(1, min(2 * num_columns, fitting))
        legend_title = _wrapped(legend_title, width)
        rows = math.ceil(len(labels) / per_line) + legend_title.count("\n")
        figure, all_axes = panel_grid(
            panels,
            panels_per_row,
            title,
            ". ".join(filter(None, (legend_title, caption))),
            panel_size=size,
            margin=(0.0, 0.4 + 0.2 * look().scale * rows),
            min_width=letter * _longest_line(legend_title) + 0.3,
        )
        handles: dict[str, Any] = {}
        for axes, panel in zip(all_axes, panels, strict=True):
            for label, handle in draw_panel(axes, panel, names, thin).items():
                # What is one thing of several curves has the colour of none.
                if label in thin and _colours(panels, label) > 1:
                    grey: dict[str, Any] = {"color": _GREY, "linestyle": thin[label]}
                    handle = Line2D([], [], **grey, **_THIN)
                handles[label] = handle
        figure.legend(
            [handles[label] for label in labels],
            labels,
            title=legend_title or None,
            loc="outside lower center",
            ncols=min(len(labels), per_line),
            handlelength=3.5,
        )
    return figure


def _colours(panels: Sequence[CurvePanel], label: str) -> int:
    """How many curves a prediction or level of this name is like."""
    return len({line.like for p in panels for line in p.thin if line.label == label})


def _dashes(panels: Sequence[CurvePanel]) -> dict[str, Any]:
    """Of predicted curves and levels by name: those of one curve's colour differ."""
    likes: dict[str, set[str]] = {}
    for line in (line for panel in panels for line in panel.thin):
        likes.setdefault(line.label, set()).add(line.like)
    found: dict[str, Any] = {}
    for label, own in likes.items():
        taken = [found[other] for other in found if likes[other] & own]
        free = [dashes for dashes in DASHES if dashes not in taken]
        found[label] = free[0] if free else DASHES[0]
    return found


def save(figure: Figure, path: str | os.PathLike[str]) -> list[pathlib.Path]:
    """Write `path`.svg, `path`.pdf and `path`.png, or those of them that `Look.formats`
    asks for, each whole or not at all; or the one file whose suffix the path has. What
    `caption_of` the figure says goes to `path`.txt, unless one file is asked for.

    The same figure gives the same bytes again, on the same version of matplotlib:
    no date, no random names. The PDF has its texts as texts, in embedded TrueType.

    Args:
      figure: made by `heatmaps`, `curves` and the like, or any other.
      path: without suffix, or with one of the three; missing folders are made.

    Returns:
      The files.

    Raises:
      ValueError: if a legend has two entries of one name, or an axes two curves.
    """
    check_labels(figure)
    base = pathlib.Path(path)
    is_one = base.suffix in METADATA
    files = [base.with_name(f"{base.name}.{name}") for name in look().formats]
    files = [base] if is_one else files
    layout, size = figure.get_layout_engine(), figure.get_size_inches()
    with matplotlib.rc_context(style()), _lean_fonts():
        try:
            if (width := look().width) is not None:
                figure.set_size_inches(width, size[1] * width / size[0])
            for file in files:
                with replacing(file) as temporary:
                    figure.savefig(temporary, metadata=METADATA[file.suffix])
                figure.set_layout_engine(None)  # All is in its place.
        finally:
            figure.set_layout_engine(layout)
            figure.set_size_inches(*size)
    text = caption_of(figure)
    if text and not is_one:
        files.append(base.with_name(f"{base.name}.txt"))
        write_text(files[-1], f"{text}\n")
    return files


def caption_of(figure: Figure) -> str:
    """What stands below a figure in a paper: its title and what else it says."""
    return str(figure.get_label() or "")


def set_caption(figure: Figure, title: str, *more: str) -> None:
    """Give a figure its caption; and show the title, if `Look.caption` says so."""
    if title and look().caption:
        figure.suptitle(title)
    parts = (" ".join(text.split()).rstrip(".") for text in (*title.split("\n"), *more))
    text = f"{'. '.join(filter(None, parts))}.".replace("?.", "?")
    text = _START.sub(lambda start: start[0].upper(), text)
    figure.set_label(text if title else "")


def check_labels(figure: Figure) -> None:
    """Raises ValueError where a reader could not tell curves apart by their names."""
    every = [
        [text.get_text() for text in legend.get_texts()]
        for axes in figure.axes
        if (legend := axes.get_legend()) is not None
    ]
    every += [[t.get_text() for t in legend.get_texts()] for legend in figure.legends]
    every += [axes.get_legend_handles_labels()[1] for axes in figure.axes]
    for labels in every:
        known = [label for label in labels if label]
        if repeated := sorted({name for name in known if known.count(name) > 1}):
            raise ValueError(
                f"a figure's curves must have different names, got {repeated[0]!r} "
                "twice in one place."
            )


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


def _columns(
    panels: Sequence[Any],
    panels_per_row: int,
    panel_size: tuple[float, float],
    margin: float,
) -> tuple[int, float]:
    """How many panels stand side by side, and the width of each, in inches."""
    if not panels or panels_per_row < 1:
        raise ValueError(
            f"`panels` must not be empty and `panels_per_row` at least 1, got "
            f"{len(panels)} panels and {panels_per_row}."
        )
    num_columns, scale = min(len(panels), panels_per_row), look().scale
    if (width := look().width) is None:
        return num_columns, panel_size[0] * scale
    room = max(width - margin, _NARROWEST * scale)
    num_columns = min(num_columns, max(1, int(room / (_NARROWEST * scale))))
    return num_columns, room / num_columns


def panel_grid(
    panels: Sequence[Any],
    panels_per_row: int,
    title: str,
    caption: str,
    *,
    panel_size: tuple[float, float],
    margin: tuple[float, float],
    min_width: float = 0.0,
) -> tuple[Figure, list[Axes]]:
    """A figure with one axes per panel, sizes in inches, unused places empty."""
    is_free, scale = look().width is None, look().scale
    num_columns, panel_width = _columns(panels, panels_per_row, panel_size, margin[0])
    num_rows = math.ceil(len(panels) / num_columns)
    panel_titles = [panel.title for panel in panels]
    letter = _LETTER * scale
    panel_height = panel_size[1] * panel_width / panel_size[0]
    if is_free:
        panel_width = max(panel_width, letter * _longest_line(*panel_titles) + 0.5)
    else:
        panel_titles = [_wrapped(text, panel_width) for text in panel_titles]
    panel_height += 0.17 * scale * max(text.count("\n") for text in panel_titles)
    width = num_columns * panel_width + margin[0]
    if is_free:
        shown = 1.2 * letter * _longest_line(title) + 0.3 if look().caption else 0.0
        width = max(width, min_width, shown)
    has_title = bool(title) and look().caption
    height = num_rows * panel_height + margin[1] + 0.4 * scale * has_title
    figure = Figure(figsize=(width, height), layout="constrained")
    set_caption(figure, title, caption)
    places = figure.subplots(num_rows, num_columns, squeeze=False).ravel()
    for unused in places[len(panels) :]:
        unused.remove()
    for axes, text in zip(places, panel_titles, strict=False):
        axes.set_title(text)
    return figure, list(places[: len(panels)])


def subplot_of(axes: Axes) -> SubplotSpec:
    """Where an axes of `panel_grid` stands."""
    spec = axes.get_subplotspec()
    assert spec is not None
    return spec


def _wrapped(text: str, width: float) -> str:
    """Lines that fit into so many inches, if the figure's width is given."""
    if look().width is None:
        return text
    letters = max(8, int(width / (_LETTER * look().scale)))
    return "\n".join(
        "\n".join(textwrap.wrap(line, letters)) for line in text.split("\n")
    )


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
    axes.set_xticks(range(values.shape[1]), [_shown(v) for v in panel.column_values])
    axes.set_yticks(range(values.shape[0]), [_shown(v) for v in panel.row_values])
    axes.set(xlabel=panel.column_label, ylabel=panel.row_label)
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


def _shown(value: Any) -> str:
    """A setting as print has it."""
    is_number = isinstance(value, (int, float, np.number)) and value is not True
    return number(float(value)) if is_number and value is not False else str(value)


def _cell_text(panel: HeatMap, row: int, column: int) -> str:
    if panel.cells is not None:
        return panel.cells[row][column]
    value = panel.values[row, column]
    return f"{value:.2f}" if np.isfinite(value) else "–"


_FEW = 8  # Points of a curve that has room for its intervals.
_STEP_ASIDE = 5.0  # Points between neighbouring curves at the same place.
_WIDER = 1.6  # Points that a curve is wider than one which hides it.
_THIN: dict[str, Any] = {
    "linewidth": 1.0,
    "zorder": 1.5,
}  # What curves are compared with.
_GREY = "#444444"
# Of predicted curves and levels, by their names: those of one colour differ, too.
DASHES: tuple[Any, ...] = ("-.", ":", (0, (9, 3)), (0, (3, 3)), (0, (9, 2, 1, 2, 1, 2)))


def draw_panel(
    axes: Axes, panel: CurvePanel, names: Sequence[str], thin: Mapping[str, Any]
) -> dict[str, Any]:
    """Draw curves, levels, labels and scales.

    Args:
      axes: empty.
      panel: what to draw.
      names: of all curves of the figure, at most as many as `LINES`; a curve's
        place among them decides its look.
      thin: dashes of all predicted curves and levels of the figure, by name.

    Returns:
      What the legend shows of each label.
    """
    looks = dict(zip(names, LINES, strict=False))
    handles: dict[str, Any] = {}
    own = [name for name in names if name in {curve.label for curve in panel.curves}]
    measured = [curve for curve in panel.curves if curve.like is None]
    for index, curve in enumerate(measured):
        place = own.index(curve.label) - (len(own) - 1) / 2
        shift = _STEP_ASIDE * place if panel.aside else 0.0
        filled = len(measured) == 1 or len(curve.x) > _FEW
        look = dict(looks[curve.label])
        # Of curves that are the same the first are wide, so that all are seen.
        later = sum(_is_same(curve, other) for other in measured[index + 1 :])
        if later and not (shift and len(curve.x) <= _FEW):
            look["linewidth"] = _WIDER * later + rcParams["lines.linewidth"]
        handles[curve.label] = _draw_curve(axes, curve, look, shift, filled=filled)
    for curve in panel.curves:
        if curve.like is not None:
            look = {"color": looks[curve.like]["color"], **_THIN}
            look["linestyle"] = thin[curve.label]
            handles[curve.label] = _draw_prediction(axes, curve, look)
    for level in panel.levels:
        look = {"color": looks[level.like]["color"], **_THIN}
        look["linestyle"] = thin[level.label]
        handles[level.label] = _draw_level(axes, level, look)
    _finish(axes, panel)
    _tell_what_is_not_seen(axes, measured)
    return handles


def _is_same(curve: Curve, other: Curve) -> bool:
    """Whether two curves lie on each other all along."""
    return np.array_equal(curve.x, other.x) and np.array_equal(
        curve.y, other.y, equal_nan=True
    )


def _tell_what_is_not_seen(axes: Axes, measured: Sequence[Curve]) -> None:
    """Say in the panel that all is zero, and which curves have no value at all."""
    missing = [c.label for c in measured if not np.any(np.isfinite(c.y))]
    seen = [c.y[np.isfinite(c.y)] for c in measured if c.label not in missing]
    texts = [f"no value: {', '.join(missing)}"] if missing else []
    if seen and not any(np.any(values) for values in seen):
        texts.append("all are 0")
    if texts:
        note: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": "small"}
        note["color"] = _GREY
        axes.text(0.5, 0.5, "\n".join(texts), transform=axes.transAxes, **note)


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
    """A line below all measured ones; its intervals are bars if of few points, else a
    band."""
    (line,) = axes.plot(curve.x, curve.y, label=f"_{curve.label}", **look)
    if curve.low is None or curve.high is None:
        return (line,)
    if len(curve.x) <= _FEW:
        bars = axes.vlines(curve.x, curve.low, curve.high, label=f"_{curve.label}")
        bars.set(color=look["color"], linewidth=0.8, zorder=1.4)
        return (line,)
    band = axes.fill_between(curve.x, curve.low, curve.high)
    band.set(color=look["color"], alpha=0.15, linewidth=0, zorder=1.4)
    return (band, line)


def _draw_level(axes: Axes, level: Level, look: dict[str, Any]) -> tuple[Any, ...]:
    """A line across the panel, below all curves; returns what the legend shows."""
    line = axes.axhline(level.value, label=f"_{level.label}", **look)
    if level.half_width is None:
        return (line,)
    low, high = level.value - level.half_width, level.value + level.half_width
    band = {"color": look["color"], "alpha": 0.15, "linewidth": 0, "zorder": 1.4}
    return (axes.axhspan(low, high, **band), line)


def _widened(
    points: np.ndarray, *, log: bool, share: float = 0.06
) -> tuple[float, float]:
    """Ends of a horizontal axis with room beside the outermost points, a share of their
    distance."""
    scaled = np.log(points) if log else points
    low, high = float(scaled[0]), float(scaled[-1])
    margin = share * (high - low) or 0.5
    ends = np.array([low - margin, high + margin])
    low, high = np.exp(ends) if log else ends
    return float(low), float(high)


def _finish(axes: Axes, panel: CurvePanel) -> None:
    """Labels, scales and grid."""
    axes.set(xlabel=panel.x_label, ylabel=panel.y_label)
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
    # What steps aside must not step out.
    names = {curve.label for curve in measured}
    shift = _STEP_ASIDE * (len(names) - 1) / 2 + 8 if panel.aside else 0.0
    width = axes.get_window_extent().width / axes.figure.dpi * 72
    share = max(0.06, shift / width) if len(points) <= _FEW else 0.06
    axes.set_xlim(*_widened(points, log=panel.log_x, share=share))
    if panel.log_y:
        Scale("log").apply(axes, "y", axes.get_ylim())
    if len(points) <= _FEW:
        axes.set_xticks(points, [number(point) for point in points])
        axes.set_xticks([], minor=True)
    elif panel.log_x:
        Scale("log").apply(axes, "x", axes.get_xlim())
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
        figure, all_axes = panel_grid(
            panels,
            panels_per_row,
            "",
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
            axes.set(xlabel=panel.label)
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
