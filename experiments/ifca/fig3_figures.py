"""The heatmaps and curves of the success-probability experiment."""

from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import ScaledTranslation

from cfljax.report import Curve, CurvePanel, HeatMap, curves, heatmaps, style
from experiments.ifca.fig3_trial import CRITERIA
from experiments.study import Rows, groups

DATA = "data re-used (as published)"
FRESH = "fresh data every round (law)"
# Where the second curve is not the first one with other data.
LAW_TEXT = (
    "law: n fresh samples of each client to choose, n others for the gradient, "
    "anew for each run and round, with intervals like those of the data"
)
LAW = "{} (law)"  # Label of the curve beside one of a label.
LABELS = {
    "separation": "separation R",
    "noise": "noise σ",
    "clients": "clients m",
    "samples": "samples per client n",
}
SYMBOLS = {"noise": "σ", "samples": "n"}

_DASHES = (0, (4, 1.8))
_GREY = "#444444"
_ASIDE = 2.5  # Points of the page between a curve and its law: half of a step aside.


def draw_heatmaps(
    rows: Rows, *, row_axis: str, column_axis: str, title: str, tolerance: float
) -> Any:
    """One panel for each convention and criterion, with counts in the cells; rows are
    those of `fig3_table.rows`, the tolerance that of both distance criteria.
    """
    axes = row_axis, column_axis
    panels = []
    for convention, own in groups(rows, "convention").items():
        trials = _table(own, "trials", *axes)
        for name, criterion in CRITERIA.items():
            successes = _table(own, f"{criterion.prefix}successes", *axes)
            panels.append(
                HeatMap(
                    values=successes / _nonzero(trials),
                    row_values=[f"{v:g}" for v in _settings(own, row_axis)],
                    column_values=[f"{v:g}" for v in _settings(own, column_axis)],
                    row_label=LABELS[row_axis],
                    column_label=LABELS[column_axis],
                    cells=_texts(successes, trials),
                    title=f"{convention} convention\n{_stated(name, tolerance)}",
                )
            )
    return heatmaps(panels, title=title, panels_per_row=len(CRITERIA))


def draw_curves(
    rows: Rows,
    *,
    row_axis: str,
    column_axis: str,
    title: str,
    tolerance: float,
    confidence: str,
    law_rows: Rows = (),
) -> Any:
    """The paper's curves: success under its criterion, with intervals.

    One for each value on `row_axis`, along `column_axis`. With `law_rows`, those of
    `fig3_law.rows` for the same cells, each has a second one in its colour, dashed,
    hollow and a little aside: fresh data in every round.
    """
    by_law = groups(law_rows, "convention")
    panels = [
        CurvePanel(
            _lines(own, by_law.get(convention, ()), row_axis, column_axis),
            x_label=LABELS[column_axis],
            y_label="success probability",
            log_x=column_axis in ("clients", "samples"),
            title=f"{convention} convention, {_stated('paper', tolerance)}",
        )
        for convention, own in groups(rows, "convention").items()
    ]
    if not law_rows:
        return curves(panels, title=title, caption=confidence)
    caption = f"{confidence}; {LAW_TEXT}"
    return _beside_law(curves(panels, title=title, caption=caption))


def _lines(own: Rows, by_law: Rows, row_axis: str, column_axis: str) -> list[Curve]:
    """The curves of one panel, those of the data first."""
    axes = row_axis, column_axis
    rate = lambda rows: (
        _table(rows, "successes", *axes) / _nonzero(_table(rows, "trials", *axes))
    )
    x = np.array(_settings(own, column_axis), float)
    low, high = _table(own, "low", *axes), _table(own, "high", *axes)
    names = [f"{SYMBOLS[row_axis]} = {v:g}" for v in _settings(own, row_axis)]
    lines = [
        Curve(name, x, values, low[i], high[i])
        for i, (name, values) in enumerate(zip(names, rate(own), strict=True))
    ]
    if not by_law:
        return lines
    for axis in axes:
        if _settings(by_law, axis) != _settings(own, axis):
            raise ValueError(
                f"`law_rows` must hold the cells of `rows`, got {axis} "
                f"{_settings(by_law, axis)} beside {_settings(own, axis)}."
            )
    return lines + [
        Curve(LAW.format(name), x, values, *ends, like=name)
        for name, values, *ends in zip(
            names,
            rate(by_law),
            _table(by_law, "low", *axes),
            _table(by_law, "high", *axes),
            strict=True,
        )
    ]


def _settings(rows: Rows, axis: str) -> list[Any]:
    """The different values of an axis, ascending."""
    return sorted({row[axis] for row in rows})


def _table(rows: Rows, name: str, row_axis: str, column_axis: str) -> np.ndarray:
    """Values of one column of the table, `[row_axis, column_axis]`; NaN if empty."""
    row_values = _settings(rows, row_axis)
    column_values = _settings(rows, column_axis)
    values = np.full((len(row_values), len(column_values)), np.nan)
    for row in rows:
        place = row_values.index(row[row_axis]), column_values.index(row[column_axis])
        values[place] = row.get(name, np.nan)
    return values


def _nonzero(trials: np.ndarray) -> np.ndarray:
    """Numbers of trials to divide by; NaN for none."""
    return np.where(trials > 0, trials, np.nan)


def _texts(successes: np.ndarray, trials: np.ndarray) -> list[list[str]]:
    """ "8/10" for each cell, "failed" for one without trials."""
    return [
        [f"{int(s)}/{int(t)}" if t else "failed" for s, t in zip(*line, strict=True)]
        for line in zip(successes, trials, strict=True)
    ]


def _stated(name: str, tolerance: float) -> str:
    """A criterion as a panel's title states it."""
    criterion = CRITERIA[name]
    has_limit = criterion.unit is not None
    return criterion.text() + (f" + {tolerance:g}" if tolerance and has_limit else "")


def _beside_law(figure: Figure) -> Figure:
    """Restyle the pairs of curves in place, and give the figure their legend."""
    handles: dict[str, Line2D] = {}
    for axes in figure.axes:
        for name, (measured, predicted) in _pairs(axes).items():
            bars = [
                own
                for own in axes.collections
                if own.get_label() == predicted.get_label()
            ]
            _restyle(axes, measured, predicted, bars)
            handles[name] = measured
    old = figure.legends[0]
    title = old.get_title().get_text()
    with matplotlib.rc_context(style()):
        entries = [  # Settings are told by colour and marker alone.
            Line2D([], [], color=m.get_color(), marker=m.get_marker(), linestyle="none")
            for m in handles.values()
        ]
        labels = list(handles)
        if len(labels) % 2:  # Filled column by column, the last holds the two kinds.
            entries.append(Line2D([], [], linestyle="none"))
            labels.append("")
        old.remove()
        figure.legend(
            [*entries, _kind(hollow=False), _kind(hollow=True)],
            [*labels, DATA, FRESH],
            title=title or None,
            loc="outside lower center",
            ncols=len(labels) // 2 + 1,
            handlelength=3.0,
        )
    return figure


def _pairs(axes: Axes) -> dict[str, tuple[Line2D, Line2D]]:
    """Measured and predicted line by the measured one's label."""
    lines = {str(line.get_label()): line for line in axes.lines}
    found = {name: lines.get(f"_{LAW.format(name)}") for name in lines}
    return {
        name: (lines[name], predicted)
        for name, predicted in found.items()
        if predicted is not None
    }


def _restyle(
    axes: Axes, measured: Line2D, predicted: Line2D, bars: Sequence[Artist]
) -> None:
    measured.set_linestyle("-")
    colour, size = measured.get_color(), 0.75 * float(measured.get_markersize())
    predicted.set(color=colour, linestyle=_DASHES, linewidth=1.5, zorder=2.5)
    predicted.set(marker=measured.get_marker(), markersize=size)
    predicted.set(markerfacecolor="white", markeredgecolor=colour, markeredgewidth=1.3)
    aside = ScaledTranslation(_ASIDE / 72, 0, axes.figure.dpi_scale_trans)
    for artist in (predicted, *bars):
        artist.set_transform(measured.get_transform() + aside)


def _kind(*, hollow: bool) -> Line2D:
    """Data or law in the legend: its dashes and filling, in no setting's colour."""
    line = Line2D([], [], color=_GREY, marker="o", linestyle="-")
    if hollow:
        line.set(linestyle=_DASHES, linewidth=1.5, markerfacecolor="white")
        line.set(markeredgecolor=_GREY, markeredgewidth=1.3)
    return line
