"""Figures of Figure 4: distances, the printed formula, and elbows."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from cfljax import intervals, report
from experiments.werner.fig4_report import printed

__all__ = ["draw_distances", "draw_elbows", "draw_printed"]

STARTS = {
    "member": "start: a member",
    "random": "start: random samples",
    "near": "start: near the centres",
    "origin": "start: the origin",
}


def draw_distances(results: xr.Dataset, *, error_rate: float) -> Figure:
    """f, a panel for each start."""
    panels = []
    over = results["round"].values.astype(float)
    for start in results["start"].values.tolist():
        curves = []
        for deviation in results["deviation"].values.tolist():
            own = results["own"].sel(start=start, deviation=deviation).values
            low, high = intervals.student(own.T.astype(float), error_rate=error_rate)
            mean = own.mean(axis=0)
            curves.append(report.Curve(f"σ = {deviation:g}", over, mean, low, high))
        panels.append(
            report.CurvePanel(
                curves,
                x_label="clipping rounds l",
                y_label="mean distance f to the true centres",
                y_limits=None,
                title=STARTS[start],
            )
        )
    return report.curves(
        panels,
        title="Werner et al., Figure 4: Threshold-Clustering of blobs",
        legend_title=f"means over {results.sizes['trial']} repetitions, "
        f"{100 * (1 - error_rate):g} % intervals",
        panels_per_row=2,
    )


def draw_printed(results: xr.Dataset) -> Figure:
    """The paper's formula on each start's mean curve."""
    panels = [
        report.CurvePanel(
            list(_printed_curves(results, start)),
            x_label="clipping rounds l",
            y_label="(f(l) − f(l−1)) / (f(l−1) − min f)",
            y_limits=(-1.0, 0.1),
            title=STARTS[start],
            aside=False,
        )
        for start in results["start"].values.tolist()
    ]
    return report.curves(
        panels,
        title="Werner et al., Figure 4: the printed formula for elbows",
        legend_title="of the mean curve over all repetitions, until it gets to its "
        "minimum",
        panels_per_row=2,
    )


def _printed_curves(results: xr.Dataset, start: str) -> Iterator[report.Curve]:
    over = results["round"].values.astype(float)[1:]
    for deviation in results["deviation"].values.tolist():
        mean = results["own"].sel(start=start, deviation=deviation).values.mean(axis=0)
        until = max(int(np.argmin(mean)), 1)  # NaN where it never falls.
        yield report.Curve(f"σ = {deviation:g}", over[:until], printed(mean)[:until])


def draw_elbows(table: Sequence[dict[str, Any]]) -> Figure:
    """Corrected elbows and Theorem 1's l against sigma."""
    curves = []
    for start in dict.fromkeys(row["start"] for row in table):
        own = [row for row in table if row["start"] == start]
        column = lambda name, own=own: np.array([row[name] for row in own], float)
        ends = column("elbow_low"), column("elbow_high")
        label = STARTS[start].removeprefix("start: ")
        curves.append(report.Curve(label, column("deviation"), column("elbow"), *ends))
    first = [row for row in table if row["start"] == table[0]["start"]]
    at = np.array([row["deviation"] for row in first], float)
    wanted = np.array([row["asked"] for row in first], float)
    curves.append(report.Curve("asked for by Theorem 1", at, wanted))
    panel = report.CurvePanel(
        curves,
        x_label="standard deviation σ of each coordinate",
        y_label="rounds l",
        y_limits=None,
        log_x=True,
    )
    return report.curves(
        [panel],
        title="Werner et al., Figure 4: where the elbow is",
        legend_title="corrected elbow with intervals, by start",
    )
