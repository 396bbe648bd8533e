"""Table and figure of Figure 2."""

from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from cfljax.report.style import style

__all__ = ["COLUMNS", "draw", "note", "rows"]

COLUMNS = {
    "cluster": "cluster",
    "trial": "data set",
    "first": "(7), first round",
    "last": "(7), last round above 0 / 0",
    "largest": "(7), largest on the way",
    "supremum": "(7), sup over all models",
    "least": "(8), least on the way",
    "left": "distance left, last / first",
}
_GREY, _BOUND = "#b5b5b5", "#D55E00"
_DASHES = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))


def rows(results: xr.Dataset, *, num_members: int) -> list[dict[str, Any]]:
    """One row for each data set and cluster.

    Args:
      results: of the sweep, with one entry along `first_mean`.
      num_members: clients of each cluster.
    """
    table = []
    data = results.isel(first_mean=0)
    for trial in data["trial"].values.tolist():
        own = data.isel(trial=trial)
        for cluster in range(data.sizes["cluster"]):
            members = slice(cluster * num_members, (cluster + 1) * num_members)
            within = own["within"].values[:, members]
            defined = within[np.isfinite(within).all(axis=1)]  # Not 0 / 0 at the end.
            distance = own["distance"].values[:, cluster]
            table.append(
                {
                    "cluster": cluster + 1,
                    "trial": trial,
                    "first": float(np.max(defined[0])),
                    "last": float(np.max(defined[-1])),
                    "largest": float(np.max(defined)),
                    "supremum": float(np.max(own["within_anywhere"].values[members])),
                    "least": float(np.min(own["between"].values[:, members])),
                    "left": float(distance[-1] / distance[0]),
                }
            )
    return table


def note(table: Sequence[dict[str, Any]], results: xr.Dataset) -> str:
    """What came out, in words made from the numbers."""
    largest = [row["largest"] for row in table]
    supremum = [row["supremum"] for row in table]
    least = [row["least"] for row in table]
    growth = [row["last"] / row["first"] for row in table]
    meeting = float(np.max(results["between_anywhere"].values))
    return (
        "Largest and least values over the clients of a cluster. On the way (7) is at "
        f"most {max(largest):.3g}, and (8) at least {min(least):.3g}, over all data "
        f"sets; from the first round to the last, (7) changes {min(growth):.3g}- to "
        f"{max(growth):.3g}-fold. Over all models (7) reaches {max(supremum):.3g} "
        f"(exact; {min(supremum):.3g} in the most even cluster), so that max(1, A^4) "
        f"of Theorem 3 is {max(supremum) ** 2:.2g}; and at the model where the first "
        f"and the last client's gradients meet (8) is at most {meeting:.1g}: no "
        "positive Delta^2 with D = 0 bounds it everywhere."
    )


def draw(results: xr.Dataset, *, num_members: int) -> Figure:
    """Both quantities of the first data set, as in the paper.

    Args:
      results: of the sweep.
      num_members: clients of each cluster.
    """
    data = results.isel(first_mean=0, trial=0)
    rounds = data["round"].values
    with matplotlib.rc_context(style()):
        figure = Figure(figsize=(9.2, 4.4), layout="constrained")
        left, right = figure.subplots(1, 2)
        within, between = data["within"].values, data["between"].values
        handles = _panel(left, rounds, within, num_members, float(np.nanmax(within)))
        left.set(
            title="intra-cluster ratio (7), as in Assumption 4",
            xlabel="round t",
            ylabel="|∇fᵢ − ∇f|² / |∇f|²",
        )
        _panel(right, rounds, between, num_members, float(np.nanmin(between)))
        right.set(
            title="inter-cluster gap (8), as in Assumption 5 with D = 0",
            xlabel="round t",
            ylabel="least |∇fᵢ − ∇fⱼ|² over other clusters' j",
        )
        figure.suptitle("Werner et al., Figure 2: gradient descent with known clusters")
        figure.legend(
            handles.values(),
            handles.keys(),
            loc="outside lower center",
            ncols=3,
            handlelength=3.5,
        )
    return figure


def _panel(
    axes: Axes, rounds: np.ndarray, values: np.ndarray, num_members: int, bound: float
) -> dict[str, Any]:
    """Clients, clusters and the bound; returns what the legend shows."""
    axes.plot(rounds, values, color=_GREY, linewidth=0.4, alpha=0.6)
    handles: dict[str, Any] = {"each client": Line2D([], [], color=_GREY)}
    for cluster in range(values.shape[1] // num_members):
        members = slice(cluster * num_members, (cluster + 1) * num_members)
        (line,) = axes.plot(
            rounds,
            values[:, members].mean(axis=1),
            color="black",
            linewidth=1.6,
            linestyle=_DASHES[cluster % len(_DASHES)],
        )
        handles[f"mean of cluster {cluster + 1}"] = line
    look = {"color": _BOUND, "linestyle": (0, (7, 3)), "linewidth": 1.6}
    handles["empirical bound"] = axes.axhline(bound, **look)
    axes.set_yscale("log")
    axes.grid(True)
    return handles
