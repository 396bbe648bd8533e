"""Table 1: rows beside the paper's numbers, orderings, and when Global passes Local."""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import xarray as xr

from experiments.werner.table1_methods import METHODS
from experiments.werner.write import interval

__all__ = [
    "COLUMNS",
    "LONG_COLUMNS",
    "ORDER",
    "PUBLISHED",
    "is_ordered",
    "long_rows",
    "note",
    "rows",
]

# Accuracy in % and loss, as published, by task and the paper's name of the method.
PUBLISHED: Mapping[str, Mapping[str, tuple[float, float]]] = MappingProxyType(
    {
        "rotation": {
            "Local": (71.3, 0.517),
            "Global": (46.6, 0.631),
            "Ditto": (62.0, 0.576),
            "IFCA": (54.6, 0.588),
            "KNN": (52.1, 2.395),
            "FC": (75.4, 0.475),
            "GT (oracle)": (84.7, 0.432),
        },
        "private_label": {
            "Local": (75.2, 0.489),
            "Global": (22.2, 0.803),
            "Ditto": (61.7, 0.578),
            "IFCA": (65.4, 0.531),
            "KNN": (63.2, 1.411),
            "FC": (77.0, 0.468),
            "GT (oracle)": (85.1, 0.430),
        },
    }
)
ORDER = ("oracle", "federated_clustering", "local", "fedavg")  # Best first.
COLUMNS = {
    "task": "task",
    "label": "method",
    "accuracy": "accuracy %",
    "accuracy_low": "at least",
    "accuracy_high": "at most",
    "deviation": "± over seeds",
    "published": "paper",
    "probability": "1 − p(label)",
    "published_loss": "paper's loss",
    "cross_entropy": "cross-entropy",
    "purity": "purity or ARI",
}
LONG_COLUMNS = {
    "task": "task",
    "label": "method",
    "step": "steps",
    "accuracy": "accuracy %",
    "accuracy_low": "at least",
    "accuracy_high": "at most",
}

Results = Mapping[str, xr.Dataset]
Rows = list[dict[str, Any]]


def rows(results: Results, error_rate: float, *, is_mnist: bool) -> Rows:
    """One row for each task and method, after the last round.

    Args:
      results: of each task, arrays `[method, repetition, trial, tested]`.
      error_rate: of each interval.
      is_mnist: whether the paper's numbers are of these images.
    """
    table = []
    for task, data in results.items():
        for method in data["method"].values.tolist():
            last = data.sel({"method": method}).isel(tested=-1)
            values = {name: _seeds(last[name]) for name in last.data_vars}
            percent = 100 * values["accuracy"]
            shown = METHODS[method]
            published = PUBLISHED[task].get(shown.published or "") if is_mnist else None
            table.append(
                {
                    "task": task,
                    "method": method,
                    "label": shown.label,
                    **_accuracy(percent, error_rate),
                    "deviation": float(np.std(percent, ddof=1)),
                    "published": published and published[0],
                    "probability": float(np.mean(values["probability"])),
                    "published_loss": published and published[1],
                    "cross_entropy": float(np.mean(values["cross_entropy"])),
                    "purity": _or_none(float(np.mean(values["purity"]))),
                }
            )
    return table


def long_rows(results: Results, error_rate: float) -> Rows:
    """Accuracies along the long runs."""
    table = []
    for task, data in results.items():
        for method in data["method"].values.tolist():
            for step in data["tested"].values.tolist():
                cell = data["accuracy"].sel({"method": method, "tested": step})
                table.append(
                    {
                        "task": task,
                        "method": method,
                        "label": METHODS[method].label,
                        "step": step,
                        **_accuracy(100 * _seeds(cell), error_rate),
                    }
                )
    return table


def is_ordered(data: xr.Dataset) -> tuple[int, int] | None:
    """Seeds in which oracle > FC > Local > Global, and all seeds.

    None where one of the four was not run. An accuracy that is no number is above none.
    """
    if not set(ORDER) <= set(data["method"].values.tolist()):
        return None
    last = data["accuracy"].isel(tested=-1)
    chain = np.array([_seeds(last.sel({"method": method})) for method in ORDER])
    return int(np.all(chain[:-1] > chain[1:], axis=0).sum()), chain.shape[1]


def note(results: Results, table: Rows, crossing: Rows) -> str:
    """What the table shows, from its numbers."""
    lines = [
        "Accuracy of all clients' own test samples after the last round, each under "
        "its client's model; means over seeds with Student's intervals."
    ]
    for task, data in results.items():
        ordered = is_ordered(data)
        if ordered is not None:
            lines.append(
                f"{task}: oracle > Federated-Clustering > Local > Global in "
                f"{ordered[0]} of {ordered[1]} seeds."
            )
    lines += [_passing(crossing)] if crossing else []
    if any(row["published_loss"] for row in table):
        lines.append(
            "The paper's losses are compared with 1 - p(label): no model can have a "
            f"cross-entropy below log 4 = {math.log(4):.3f} where four clusters "
            "contradict each other, and the paper's Global has 0.803."
        )
    return "\n".join(lines)


def _passing(crossing: Rows) -> str:
    """When, in the long runs, Global first was above Local, and stayed there."""
    means = {
        method: np.array(
            [row["accuracy"] for row in crossing if row["method"] == method]
        )
        for method in ("local", "fedavg")
    }
    steps = [row["step"] for row in crossing if row["method"] == "local"]
    if not all(values.size for values in means.values()):
        return "rotation, long runs: Local and Global were not both run."
    behind = np.flatnonzero(~(means["fedavg"] > means["local"]))
    after = behind[-1] + 1 if behind.size else 0
    ends = f"{means['fedavg'][-1]:.1f} % against {means['local'][-1]:.1f} % at the end"
    if after == len(steps):
        return f"rotation: Global stays below Local for {steps[-1]} steps ({ends})."
    return f"rotation: Global is above Local from step {steps[after]} on ({ends})."


def _accuracy(percent: np.ndarray, error_rate: float) -> dict[str, float]:
    """A mean with its interval, inside what an accuracy can be."""
    ends = interval(percent, "accuracy", error_rate)
    return {name: float(np.clip(value, 0, 100)) for name, value in ends.items()}


def _seeds(cell: xr.DataArray) -> np.ndarray:
    """One number for each seed."""
    return np.asarray(cell.values, float).reshape(-1)


def _or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None
