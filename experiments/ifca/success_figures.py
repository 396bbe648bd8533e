"""The heatmaps and curves of the success-probability experiment."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cfljax.report.figures import curves, heatmaps
from cfljax.report.panels import Curve, CurvePanel, HeatMap
from experiments.ifca.success_table import CRITERIA

__all__ = ["draw_curves", "draw_heatmaps"]

LABELS = {
    "separation": "separation R",
    "noise": "noise σ",
    "clients": "clients m",
    "samples": "samples per client n",
}
SYMBOLS = {"noise": "σ", "samples": "n"}

Rows = Sequence[Mapping[str, Any]]


def settings(rows: Rows, axis: str) -> list[Any]:
    """The different values of an axis, ascending."""
    return sorted({row[axis] for row in rows})


def table(rows: Rows, name: str, row_axis: str, column_axis: str) -> np.ndarray:
    """Values of one column of the table, `[row_axis, column_axis]`; NaN if empty."""
    row_values = settings(rows, row_axis)
    column_values = settings(rows, column_axis)
    values = np.full((len(row_values), len(column_values)), np.nan)
    for row in rows:
        place = row_values.index(row[row_axis]), column_values.index(row[column_axis])
        values[place] = row.get(name, np.nan)
    return values


def by_convention(rows: Rows) -> dict[str, list[Mapping[str, Any]]]:
    names = dict.fromkeys(row["convention"] for row in rows)
    return {name: [r for r in rows if r["convention"] == name] for name in names}


def texts(successes: np.ndarray, trials: np.ndarray) -> list[list[str]]:
    """ "8/10" for each cell, "failed" for one without trials."""
    return [
        [f"{int(s)}/{int(t)}" if t else "failed" for s, t in zip(*line, strict=True)]
        for line in zip(successes, trials, strict=True)
    ]


def threshold_text(limit: str, tolerance: float) -> str:
    """A distance criterion as a panel's title states it."""
    return f"distance ≤ {limit}" + (f" + {tolerance:g}" if tolerance else "")


def draw_heatmaps(
    rows: Rows, *, row_axis: str, column_axis: str, title: str, tolerance: float
) -> Any:
    """One panel for each convention and criterion, with counts in the cells.

    Args:
      rows: of `success_table.rows`.
      row_axis: "noise" or "samples".
      column_axis: "separation" or "clients".
      title: of the figure.
      tolerance: of both distance criteria.
    """
    names = {
        "paper": threshold_text("0.6 σ", tolerance),
        "floor": threshold_text("1.1 × oracle floor", tolerance),
        "recovery": "exact recovery of the partition",
    }
    panels = []
    for convention, own in by_convention(rows).items():
        trials = table(own, "trials", row_axis, column_axis)
        for criterion, prefix in CRITERIA.items():
            successes = table(own, f"{prefix}successes", row_axis, column_axis)
            panels.append(
                HeatMap(
                    values=successes / np.where(trials > 0, trials, np.nan),
                    row_values=[f"{v:g}" for v in settings(own, row_axis)],
                    column_values=[f"{v:g}" for v in settings(own, column_axis)],
                    row_label=LABELS[row_axis],
                    column_label=LABELS[column_axis],
                    cells=texts(successes, trials),
                    title=f"{convention} convention\n{names[criterion]}",
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
) -> Any:
    """The paper's curves: success under its criterion, with exact binomial intervals.

    Args:
      rows: of `success_table.rows`.
      row_axis: one curve for each of its values.
      column_axis: the horizontal axis.
      title: of the figure.
      tolerance: of the criterion.
      confidence: what the intervals are, for the legend.
    """
    panels = []
    for convention, own in by_convention(rows).items():
        x = np.array(settings(own, column_axis), float)
        trials = table(own, "trials", row_axis, column_axis)
        trials = np.where(trials > 0, trials, np.nan)
        rate = table(own, "successes", row_axis, column_axis) / trials
        low = table(own, "low", row_axis, column_axis)
        high = table(own, "high", row_axis, column_axis)
        lines = [
            Curve(f"{SYMBOLS[row_axis]} = {value:g}", x, rate[i], low[i], high[i])
            for i, value in enumerate(settings(own, row_axis))
        ]
        panels.append(
            CurvePanel(
                lines,
                x_label=LABELS[column_axis],
                y_label="success probability",
                title=f"{convention} convention, {threshold_text('0.6 σ', tolerance)}",
            )
        )
    return curves(panels, title=title, legend_title=confidence)
