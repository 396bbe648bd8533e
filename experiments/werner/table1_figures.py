"""Curves of Table 1: accuracy against gradient steps."""

from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from cfljax import intervals, report
from experiments.werner.table1_methods import METHODS, Method
from experiments.werner.table1_report import PUBLISHED

__all__ = ["draw_curves"]

_LEVELS = ("FC", "GT (oracle)", "Global")
TITLES = {"rotation": "rotation", "private_label": "private label"}


def draw_curves(
    results: Mapping[str, xr.Dataset],
    longer: Mapping[str, xr.Dataset],
    error_rate: float,
) -> dict[str, Figure]:
    """Figures by name: methods that look for clusters, baselines, and long runs.

    Args:
      results: of each task.
      longer: of the long runs, likewise; may be empty.
      error_rate: of each interval.
    """
    figures = {}
    for name, is_baseline in (("clustered", False), ("baselines", True)):
        shown: dict[str, list[Method]] = {
            task: [m for m in _methods(data) if METHODS[m].is_baseline == is_baseline]
            for task, data in results.items()
        }
        if all(shown.values()):
            figures[name] = _figure(results, shown, error_rate)
    if longer:
        shown = {task: _methods(data) for task, data in longer.items()}
        figures["long"] = _figure(longer, shown, error_rate)
    return figures


def _methods(data: xr.Dataset) -> list[Method]:
    run = data["method"].values.tolist()
    return [method for method in METHODS if method in run]


def _figure(
    results: Mapping[str, xr.Dataset],
    shown: Mapping[str, Sequence[Method]],
    error_rate: float,
) -> Figure:
    """A panel for each task."""
    panels = [
        report.CurvePanel(
            [_curve(data, method, error_rate) for method in shown[task]],
            x_label="full-batch gradient steps",
            y_label="test accuracy [%]",
            y_limits=(0.0, 100.0),
            title=TITLES[task],
            levels=list(_levels(task, shown[task])),
            aside=False,
        )
        for task, data in results.items()
    ]
    seeds = next(iter(results.values())).sizes["repetition"]
    return report.curves(
        panels,
        title="Werner et al., Table 1: accuracy along training",
        legend_title=f"means over {seeds} seeds, {100 * (1 - error_rate):g} % "
        "intervals",
    )


def _curve(data: xr.Dataset, method: Method, error_rate: float) -> report.Curve:
    cell = data["accuracy"].sel({"method": method})
    cell = cell.transpose("tested", "repetition", "trial")
    values = 100 * np.asarray(cell.values, float).reshape(cell.sizes["tested"], -1)
    low, high = intervals.student(values, error_rate=error_rate)
    steps = data["tested"].values.astype(float)
    return report.Curve(
        METHODS[method].label,
        steps,
        values.mean(axis=1),
        np.clip(low, 0, 100),
        np.clip(high, 0, 100),
    )


def _levels(task: str, methods: Sequence[Method]) -> list[report.Level]:
    """The published accuracies of a few methods."""
    shown = [METHODS[method] for method in methods]
    return [
        report.Level(
            f"{own.label}, paper", PUBLISHED[task][own.published][0], own.label
        )
        for own in shown
        if own.published in _LEVELS
    ]
