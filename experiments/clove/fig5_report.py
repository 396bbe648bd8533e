"""Table and heat maps of CLoVE's Figure 5."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.figure import Figure

from cfljax import report
from experiments.clove.methods import METHODS, Method, clusters
from experiments.clove.rows import DATASETS, Result

__all__ = ["draw", "markdown", "rows"]

SCALE = 1000.0  # Of the losses that are shown; the paper's factor is not given.
COLUMNS = {
    "dataset": "data",
    "label": "method",
    "repetition": "seed",
    "diagonal": "diagonal x 1000",
    "smallest": "diagonal smallest",
    "clove_lower": "CLoVE's lower",
    "used_models": "models used",
    "loss": "loss x 1000",
    "rand_index": "ARI",
}
NOTE = """
After the last round. Rows of the heat maps are clients, the first of each true cluster,
on their own test samples; columns are models, ordered such that most clients of a
cluster have the model on the diagonal. "diagonal": mean loss under it; under the one
model of FedAvg. "diagonal smallest": rows whose diagonal is less than all other
entries. "CLoVE's lower": rows in which CLoVE's diagonal is less than this one. "models
used": those that clients have, of local ones those that are shown. "loss": of all
clients' test samples, each under its client's model.
"""

Losses = Float[np.ndarray, "clients models"]


def rows(result: Result) -> list[dict[str, Any]]:
    """One row for each method and repetition.

    A run that failed has no numbers. A loss that is not finite is never the smallest.
    """
    data, table = result.data, []
    for repetition in data["repetition"].values.tolist():
        own = {
            name: data.sel({"method": name, "repetition": repetition}).isel(trial=0)
            for name in data["method"].values.tolist()
        }
        clove = _diagonal("clove", own["clove"]) if "clove" in own else None
        table += [
            {
                "dataset": result.trial.dataset,
                "clusters": result.trial.num_clusters,
                "clients": result.trial.num_clients,
                "samples": result.trial.num_samples,
                "method": name,
                "label": METHODS[name].label,
                "repetition": int(repetition),
                "failed": bool(cell["failed"]),
            }
            | ({} if bool(cell["failed"]) else _measured(name, cell, clove))
            for name, cell in own.items()
        ]
    return table


def _measured(
    name: Method, cell: xr.Dataset, clove: Float[np.ndarray, " clients"] | None
) -> dict[str, Any]:
    """The numbers of one run; those that a method cannot have are left out."""
    losses = cell["model_losses"].values.astype(float)
    diagonal = _diagonal(name, cell)
    found: dict[str, Any] = {
        "diagonal": float(diagonal.mean()),
        "used_models": int(np.sum(cell["members"].values > 0)),
        "loss": float(cell["score"]),
    }
    if METHODS[name].algorithm != "fedavg":
        found["smallest"] = _num_smallest(losses) / len(losses)
    if clove is not None and name != "clove":
        found["clove_lower"] = float(np.mean(clove < diagonal))
    if clusters(name):
        found["rand_index"] = float(cell["rand_index"])
    return found


def _diagonal(name: Method, cell: xr.Dataset) -> Float[np.ndarray, " clients"]:
    """Loss of each client under the model of its cluster, or under the only one."""
    losses = cell["model_losses"].values.astype(float)
    if METHODS[name].algorithm == "fedavg":
        return losses[:, 0]
    return np.diagonal(losses)


def _num_smallest(losses: Losses) -> int:
    """Rows whose diagonal is less than all other entries that are finite."""
    others = np.where(np.isfinite(losses), losses, np.inf)
    np.fill_diagonal(others, np.inf)
    return int(np.sum(np.diagonal(losses) < others.min(axis=1)))  # NaN is not less.


def markdown(table: Sequence[Mapping[str, Any]]) -> str:
    """The table for people, without empty columns, and a note on its columns."""
    shown = [_shown(row) for row in table]
    full = {name for row in shown for name in row if row[name] is not None}
    columns = {name: text for name, text in COLUMNS.items() if name in full}
    return report.markdown(shown, columns) + NOTE


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row whose losses are scaled and whose shares are counts."""
    shown = dict(row)
    for name in ("diagonal", "loss"):
        if name in row:
            shown[name] = f"{SCALE * row[name]:.1f}"
    for name in ("smallest", "clove_lower"):
        if name in row:
            shown[name] = f"{round(row[name] * row['clusters'])}/{row['clusters']}"
    if "rand_index" in row:
        shown["rand_index"] = f"{row['rand_index']:.2f}"
    return shown


def draw(results: Sequence[Result]) -> Figure | None:
    """The first seed's heat maps, a panel for each method; None if all runs failed.

    Colours end at the largest loss under a model that some client has, so that models
    which nobody trained do not take all of them.
    """
    cells: list[tuple[Result, Method, xr.Dataset]] = [
        (result, name, cell)
        for result in results
        for name, cell in _first_runs(result)
        if not bool(cell["failed"])
    ]
    if not cells:
        return None
    return report.heatmaps(
        [_panel(result, name, cell) for result, name, cell in cells],
        title="CLoVE, Figure 5: test loss under every model, first seed",
        value_label=f"test loss × {SCALE:g}; larger ones look like the largest",
        limits=(0.0, max(_largest(cell) for _, _, cell in cells) or 1.0),
        panels_per_row=2,
    )


def _largest(cell: xr.Dataset) -> float:
    """Largest loss that is drawn of the models that clients have; 0 without any."""
    losses = SCALE * cell["model_losses"].values[:, cell["members"].values > 0]
    return float(np.max(losses, initial=0, where=np.isfinite(losses)))


def _first_runs(result: Result) -> Iterator[tuple[Method, xr.Dataset]]:
    for name in result.data["method"].values.tolist():
        yield name, result.data.sel({"method": name}).isel(repetition=0, trial=0)


def _panel(result: Result, name: Method, cell: xr.Dataset) -> report.HeatMap:
    """One method's losses, the first cluster at the top, as matrices are written."""
    losses = SCALE * cell["model_losses"].values.astype(float)[::-1]
    members = cell["members"].values
    labels = [str(number) for number in range(result.trial.num_clusters)]
    columns, column_label = labels, "model of the client of cluster"
    title = METHODS[name].label
    if METHODS[name].algorithm == "fedavg":
        losses, columns, column_label = losses[:, :1], ["all"], "global model"
    if clusters(name):
        columns = [
            label if number > 0 else f"({label})"
            for label, number in zip(labels, members, strict=True)
        ]
        column_label = "model of cluster; ( ) of no client"
        title += f", {np.sum(members > 0)} models used"
    return report.HeatMap(
        values=losses,
        row_values=labels[::-1],
        column_values=columns,
        row_label="client of cluster",
        column_label=column_label,
        cells=[[_text(value) for value in line] for line in losses],
        title=f"{DATASETS.get(result.trial.dataset, 'digits')}, {title}",
    )


def _text(value: float) -> str:
    return f"{value:.3g}" if math.isfinite(value) else "–"
