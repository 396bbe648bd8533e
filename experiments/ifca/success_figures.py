"""The heatmaps and curves of the success-probability experiment."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cfljax.report.figures import curves, heatmaps
from cfljax.report.panels import Curve, CurvePanel, HeatMap
from experiments.ifca.success_pairs import beside_law, law_name
from experiments.ifca.success_table import CRITERIA

__all__ = ["draw_curves", "draw_heatmaps"]

LABELS = {
    "separation": "separation R",
    "noise": "noise σ",
    "clients": "clients m",
    "samples": "samples per client n",
}
SYMBOLS = {"noise": "σ", "samples": "n"}

# Where the second curve is not the first one with other data.
LAW_TEXT = (
    "law: n fresh samples of each client to choose, n others for the gradient,\n"
    "anew for each run and round; its intervals are in law.csv"
)

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
    law_rows: Rows = (),
) -> Any:
    """The paper's curves: success under its criterion, with exact binomial intervals.

    With `law_rows` every curve has a second one in its colour, dashed and with hollow
    markers: the same cells with fresh data in every round (`success_law`).

    Args:
      rows: of `success_table.rows`.
      row_axis: one curve for each of its values.
      column_axis: the horizontal axis.
      title: of the figure.
      tolerance: of the criterion.
      confidence: what the intervals are, for the legend.
      law_rows: of `success_law_table.rows`, for the same cells; without intervals in
        the figure, where they would hide those of the data.
    """
    panels = []
    by_law = by_convention(law_rows)
    for convention, own in by_convention(rows).items():
        lines = _lines(own, by_law.get(convention, ()), row_axis, column_axis)
        panels.append(
            CurvePanel(
                lines,
                x_label=LABELS[column_axis],
                y_label="success probability",
                log_x=column_axis in ("clients", "samples"),
                title=f"{convention} convention, {threshold_text('0.6 σ', tolerance)}",
            )
        )
    if not law_rows:
        return curves(panels, title=title, legend_title=confidence)
    legend = f"{confidence}\n{LAW_TEXT}"
    return beside_law(curves(panels, title=title, legend_title=legend))


def _lines(own: Rows, by_law: Rows, row_axis: str, column_axis: str) -> list[Curve]:
    """The curves of one panel, those of the data first."""
    x = np.array(settings(own, column_axis), float)
    trials = table(own, "trials", row_axis, column_axis)
    rate = table(own, "successes", row_axis, column_axis) / _nonzero(trials)
    low = table(own, "low", row_axis, column_axis)
    high = table(own, "high", row_axis, column_axis)
    names = [f"{SYMBOLS[row_axis]} = {v:g}" for v in settings(own, row_axis)]
    lines = [Curve(name, x, rate[i], low[i], high[i]) for i, name in enumerate(names)]
    if not by_law:
        return lines
    for axis in (row_axis, column_axis):
        if settings(by_law, axis) != settings(own, axis):
            raise ValueError(
                f"`law_rows` must hold the cells of `rows`, got {axis} "
                f"{settings(by_law, axis)} beside {settings(own, axis)}."
            )
    law_trials = table(by_law, "trials", row_axis, column_axis)
    law_rate = table(by_law, "successes", row_axis, column_axis) / _nonzero(law_trials)
    return lines + [
        Curve(law_name(name), x, law_rate[i], like=name) for i, name in enumerate(names)
    ]


def _nonzero(trials: np.ndarray) -> np.ndarray:
    """Numbers of trials to divide by; NaN for none."""
    return np.where(trials > 0, trials, np.nan)
