"""Two curves for every setting: data used again, and fresh data by the exact law.

Dashes tell data and law apart, so that the settings keep only colour and marker: filled
for data, hollow for the law. A law's curve stands beside its data's curve, so that
neither hides the other where both are at 0 or 1.
"""

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import ScaledTranslation

from cfljax.report.style import style

__all__ = ["DATA", "FRESH", "beside_law", "law_name"]

DATA = "data re-used (as published)"
FRESH = "fresh data every round (law)"

_DASHES = (0, (4, 1.8))
_GREY = "#444444"
_ASIDE = 2.5  # Points of the page between a curve and its law: half of a step aside.


def law_name(name: str) -> str:
    """Label of the law's curve that stands beside a curve of this label."""
    return f"{name} (law)"


def beside_law(figure: Figure) -> Figure:
    """Restyle the pairs of curves in place, and give the figure their legend.

    Args:
      figure: of `report.figures.curves`, whose predicted curves all have the label
        `law_name` of their measured one.

    Returns:
      The same figure.
    """
    handles: dict[str, Line2D] = {}
    for axes in figure.axes:
        for name, (measured, predicted) in _pairs(axes).items():
            _restyle(axes, measured, predicted)
            handles[name] = measured
    old = figure.legends[0]
    title = old.get_title().get_text()
    with matplotlib.rc_context(style()):
        entries = [_entry(measured) for measured in handles.values()]
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
    found = {name: lines.get(f"_{law_name(name)}") for name in lines}
    return {
        name: (lines[name], predicted)
        for name, predicted in found.items()
        if predicted is not None
    }


def _restyle(axes: Axes, measured: Line2D, predicted: Line2D) -> None:
    measured.set_linestyle("-")
    colour, size = measured.get_color(), 0.75 * float(measured.get_markersize())
    predicted.set(color=colour, linestyle=_DASHES, linewidth=1.5, zorder=2.5)
    predicted.set(marker=measured.get_marker(), markersize=size)
    predicted.set(markerfacecolor="white", markeredgecolor=colour, markeredgewidth=1.3)
    aside = ScaledTranslation(_ASIDE / 72, 0, axes.figure.dpi_scale_trans)
    predicted.set_transform(measured.get_transform() + aside)


def _entry(measured: Line2D) -> Line2D:
    """A setting in the legend: its colour and marker."""
    colour, marker = measured.get_color(), measured.get_marker()
    return Line2D([], [], color=colour, marker=marker, linestyle="none")


def _kind(*, hollow: bool) -> Line2D:
    """Data or law in the legend: its dashes and filling, in no setting's colour."""
    line = Line2D([], [], color=_GREY, marker="o", linestyle="-")
    if hollow:
        line.set(linestyle=_DASHES, linewidth=1.5, markerfacecolor="white")
        line.set(markeredgecolor=_GREY, markeredgewidth=1.3)
    return line
