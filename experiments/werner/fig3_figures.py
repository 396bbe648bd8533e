"""Figure 3: errors against rounds."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from cfljax import report
from experiments.werner.fig3_report import Panel, chosen, label
from experiments.werner.fig3_scenes import SCENES

__all__ = ["draw"]

_LEAST = 1e-12  # A logarithmic axis has no room for 0.
_SHOWN = ("local", "fedavg", "ifca", "oracle", "quantile_cluster")

Rows = Sequence[Mapping[str, Any]]


def draw(results: Mapping[Panel, xr.Dataset], table: Rows) -> dict[str, Figure]:
    """Squared errors, a figure for each scene and a panel for each K and n_i.

    Of the fixed radii, the one whose largest median over panels is the least. Where
    starts know the minimisers, the released IFCA takes the place of "adaptive-3".

    Args:
      results: by panel.
      table: of `rows`.
    """
    figures = {}
    for scene in dict.fromkeys(row["scene"] for row in table):
        knowing = SCENES[scene].anchor > 0
        names = (*_SHOWN, "ifca_released" if knowing else "gap_inner")
        names = (*names, *_best_fixed([r for r in table if r["scene"] == scene]))
        panels = []
        for (num_clusters, num_members), data in results.items():
            there = data["method"].values.tolist()
            curves = [
                _curve(data.sel({"scene": scene, "method": name}), label(name))
                for name in names
                if name in there
            ]
            if curves:
                panels.append(
                    report.CurvePanel(
                        curves,
                        x_label="round t",
                        y_label="mean squared error |xᵢ − x*|²",
                        y_limits=None,
                        log_y=True,
                        title=f"K = {num_clusters}, nᵢ = {num_members}",
                        aside=False,
                    )
                )
        if panels:
            figures[f"errors_{scene}"] = report.curves(
                panels,
                title=f"Werner et al., Figure 3: {SCENES[scene].label}",
                legend_title="medians over data sets with quartiles",
            )
    return figures


def _best_fixed(table: Rows) -> list[str]:
    """The fixed radius to show, chosen by the truth; none if there is none."""
    largest: dict[str, float] = {}
    for row in table:
        if row["method"].startswith("fixed "):
            error = np.nan_to_num(row["squared"], nan=np.inf)
            largest[row["method"]] = max(largest.get(row["method"], 0.0), error)
    return [min(largest, key=lambda method: largest[method])] if largest else []


def _curve(cell: xr.Dataset, name: str) -> report.Curve:
    """Median and quartiles over data sets, round by round, of the chosen runs."""
    best = chosen(cell)
    every = cell["squared"].transpose("trial", "step", "tested").values.astype(float)
    paths = np.maximum(every[np.arange(len(best)), best], _LEAST)
    low, median, high = np.quantile(paths, (0.25, 0.5, 0.75), axis=0, method="nearest")
    return report.Curve(name, cell["tested"].values.astype(float), median, low, high)
