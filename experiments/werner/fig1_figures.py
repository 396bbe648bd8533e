"""Figures of Figure 1: paths of the clients' models, and what the radius does."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from cfljax import report
from experiments.werner.fig1_examples import EXAMPLES
from experiments.werner.fig1_report import METHODS, WINDOWS

__all__ = ["draw_paths", "draw_radii"]

UNITS = {
    "myopic": "radius τ times the step size η",
    "symmetric": "radius τ",
    "bipartition": "radius τ",
}
SHOWN = {"myopic": 30, "symmetric": 30, "bipartition": 400}  # rounds
_EDGE = "exact window, expected gradients"

Rows = Sequence[Mapping[str, Any]]


def draw_paths(
    failing: Mapping[str, xr.Dataset],
    clustering: Mapping[str, xr.Dataset],
    radii: Mapping[str, float],
) -> Figure:
    """The failing methods above, Federated-Clustering with one radius each below.

    Args:
      failing: by example, of sweeps over methods; the first of each is drawn.
      clustering: by example; the largest batch and the first trial are drawn.
      radii: by example; the nearest that was tried is drawn.
    """
    panels = []
    for name, data in failing.items():
        own = data.isel(method=0, trial=0)
        title = METHODS[str(own["method"].item())]
        panels.append(_paths(name, own["position"].values, title))
    for name, data in clustering.items():
        own = data.sel(radius=radii[name], method="nearest").isel(batch_size=-1)
        radius, batch = own["radius"].item(), own["batch_size"].item()
        shown = f"τη = {radius:g}" if name == "myopic" else f"τ = {radius:g}"
        title = f"Federated-Clustering, {shown}"
        if name == "bipartition":
            title += f", batch {batch}"
        panels.append(_paths(name, own["position"].values[0], title))
    return report.curves(
        panels,
        title="Werner et al., Figure 1: methods that fail, and Federated-Clustering",
        legend_title="models of the clients; levels are their optima",
        panels_per_row=len(failing),
    )


def _paths(name: str, position: np.ndarray, title: str) -> report.CurvePanel:
    """Models of all clients of an example, round by round."""
    optima = EXAMPLES[name].optima
    shown = position[: SHOWN[name] + 1]
    over = np.arange(len(shown)).astype(float)
    return report.CurvePanel(
        [
            report.Curve(f"client {client + 1}", over, shown[:, client])
            for client in range(len(optima))
        ],
        x_label="round t",
        y_label="model x",
        y_limits=(-0.2, 2.2) if name == "myopic" else (-0.6, 1.1),
        title=title,
        levels=[
            report.Level(f"optimum of {client + 1}", optimum, f"client {client + 1}")
            for client, optimum in enumerate(optima)
        ],
    )


def draw_radii(table: Rows) -> Figure:
    """How far from its optimum each client ends, against the radius."""
    panels = []
    for name in dict.fromkeys(row["example"] for row in table):
        own = [row for row in table if row["example"] == name]
        batches = list(dict.fromkeys(row["batch_size"] for row in own))
        for batch in batches:
            of_batch = [row for row in own if row["batch_size"] == batch]
            title = f"{name} example"
            if len(batches) > 1:
                title += f", batch {batch}"
            panels.append(_distances(name, of_batch, title))
    return report.curves(
        panels,
        title="Werner et al., Figure 1: radii by which Federated-Clustering escapes",
        legend_title="distance of each client from its optimum in the end",
        panels_per_row=2 if len(panels) == 4 else 3,
    )


def _distances(name: str, rows: Rows, title: str) -> report.CurvePanel:
    """One example and batch, with the edges of the exact window."""
    curves = []
    for client in dict.fromkeys(row["client"] for row in rows):
        own = sorted(
            (row for row in rows if row["client"] == client),
            key=lambda row: row["radius"],
        )
        at = np.array([row["radius"] for row in own])
        ends = np.array([row["distance"] for row in own])
        curves.append(report.Curve(f"client {client}", at, ends))
    high = max(0.5, float(np.nanmax([row["distance"] for row in rows])))
    for edge in WINDOWS[name, "all"]:
        place = np.full(2, edge)
        curves.append(report.Curve(_EDGE, place, np.array([0, high]), like="client 2"))
    return report.CurvePanel(
        curves,
        x_label=UNITS[name],
        y_label="distance from the optimum",
        y_limits=(0.0, high),
        title=title,
        aside=False,
    )
