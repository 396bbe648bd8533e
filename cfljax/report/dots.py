"""Dots: one quantity of all methods at once, with intervals, in panels side by side."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from jaxtyping import Num
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from cfljax.report.figures import LINES, panel_grid, subplot_of
from cfljax.report.look import look, style

_ROW = 0.27  # Inches for a name.


@dataclasses.dataclass(frozen=True)
class DotPanel:
    """One panel: a dot for each name, from top to bottom.

    names: the same in all panels of a figure, e.g. of methods.
    series: from what the dots of one colour are to `[names, 3]`: value, and the ends of
      its interval, NaN where there is none. A name without a value is told so.
    label: of the axis.
    title: what sets this panel apart from its neighbours.
    """

    names: Sequence[str]
    series: Mapping[str, Num[np.ndarray, "names 3"]]
    label: str
    title: str = ""

    def __post_init__(self) -> None:
        shapes = {name: np.shape(values) for name, values in self.series.items()}
        if not shapes or set(shapes.values()) != {(len(self.names), 3)}:
            raise ValueError(
                f"`series` must hold `[names, 3]` = {(len(self.names), 3)} each, value "
                f"and both ends of its interval, got {shapes}."
            )
        if not self.names or len(set(self.names)) != len(self.names):
            raise ValueError(f"`names` must be different names, got {self.names}.")


def dot_plot(
    panels: Sequence[DotPanel],
    *,
    title: str = "",
    caption: str = "",
    legend_title: str = "",
    panels_per_row: int = 4,
) -> Figure:
    """Panels of dots that share their names, over one legend if there are series.

    Args:
      panels: at least one, all of the same names and series.
      title: of the whole figure, see `Look.caption`.
      caption: what else there is to say, for the text file beside the figure.
      legend_title: what the series are.
      panels_per_row: more panels than this start a new row; at least 1.

    Raises:
      ValueError: if `panels` is empty, their names or series differ or these are more
        than there are distinguishable markers (7), or `panels_per_row` is below 1.
    """
    kinds = {(tuple(panel.names), tuple(panel.series)) for panel in panels}
    if len(kinds) > 1:
        raise ValueError("`panels` must have the same names and series each.")
    names, series = next(iter(kinds), ((), ()))
    if len(series) > len(LINES):
        raise ValueError(f"`panels` must have at most {len(LINES)} series.")
    with matplotlib.rc_context(style()):
        figure, all_axes = panel_grid(
            panels,
            panels_per_row,
            title,
            ". ".join(filter(None, (legend_title, caption))),
            panel_size=(3.0, 0.6 + _ROW * max(len(names), 2)),
            margin=(0.085 * max(map(len, names), default=0) * look().scale, 0.5),
        )
        handles = {}
        for axes, panel in zip(all_axes, panels, strict=True):
            for place, (name, own) in enumerate(panel.series.items()):
                shift = (place - (len(series) - 1) / 2) * 0.6 / len(series)
                handles[name] = _draw(axes, np.asarray(own, float), shift, place, name)
            first = subplot_of(axes).is_first_col()
            axes.set_yticks(range(len(names)), list(names) if first else [])
            axes.set_ylim(len(names) - 0.5, -0.5)  # The first on top.
            axes.set(xlabel=panel.label)
            axes.tick_params(axis="y", length=0)
            axes.grid(True)
            axes.margins(x=0.08)
        if len(series) > 1:
            figure.legend(
                list(handles.values()),
                list(handles),
                title=legend_title or None,
                loc="outside lower center",
                ncols=len(handles),
            )
    return figure


def _draw(axes: Axes, own: np.ndarray, shift: float, place: int, name: str) -> Line2D:
    """The dots of one colour, and their intervals; names without a value say so."""
    value, low, high = own.T
    look = {k: v for k, v in LINES[place].items() if k != "linestyle"}
    at = np.arange(len(own)) + shift
    (dots,) = axes.plot(value, at, label=name, linestyle="none", **look)
    known = np.isfinite(low) & np.isfinite(high)
    axes.hlines(at[known], low[known], high[known], color=look["color"], linewidth=1.2)
    for where in at[~np.isfinite(value)] if not place else ():
        note: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": "x-small"}
        axes.text(0.5, where, "no value", transform=axes.get_yaxis_transform(), **note)
    return dots
