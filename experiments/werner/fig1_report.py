"""Figure 1: which clients end where they should, and which radii bring them there."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from cfljax import intervals
from experiments.werner.fig1_examples import EXAMPLES

__all__ = [
    "COLUMNS",
    "FAILING_COLUMNS",
    "METHODS",
    "WINDOW_COLUMNS",
    "failing_rows",
    "note",
    "rows",
    "windows",
]

METHODS = {
    "myopic": "Myopic-Clustering",
    "option_one": "IFCA, option I",
    "option_two": "IFCA, option II",
    "coin_zero": "CFL, third client saw x",
    "coin_one": "CFL, third client saw x − 1",
}
COLUMNS = {
    "example": "example",
    "batch_size": "batch",
    "radius": "radius",
    "client": "client",
    "model": "model in the end",
    "model_low": "at least",
    "model_high": "at most",
    "optimum": "optimum",
    "right": "right",
    "company": "own cluster in the ball",
    "strangers": "others in the ball",
}
FAILING_COLUMNS = {
    "example": "example",
    "method": "method",
    "client": "client",
    "model": "model in the end",
    "optimum": "optimum",
    "right": "right",
}
WINDOW_COLUMNS = {
    "example": "example",
    "batch_size": "batch",
    "claim": "right in the end",
    "least": "from radius",
    "largest": "to",
    "radii": "radii tried",
    "exact": "exact window, expected gradients",
}
# Radii that escape; of the last example with expected gradients. The example's unit is
# 1 / (step size) in the first.
WINDOWS: dict[tuple[str, str], tuple[float, float]] = {
    ("myopic", "all"): (1 / 3, 2 / 3),
    ("myopic", "client 2"): (1 / 3, 1.0),
    ("symmetric", "all"): (0.0, 2.0),
    ("bipartition", "all"): (0.0, 0.5),
    ("bipartition", "all, together"): (0.0, 0.5),
}

Rows = Sequence[Mapping[str, Any]]


def failing_rows(results: Mapping[str, xr.Dataset], tolerance: float) -> list[dict]:
    """One row for each failing method and client.

    Args:
      results: by example, of sweeps over methods.
      tolerance: how far from its optimum a client is right.
    """
    table = []
    for name, data in results.items():
        for method in data["method"].values.tolist():
            last = data["position"].sel({"method": method}).isel(trial=0).values[-1]
            for client, optimum in enumerate(EXAMPLES[name].optima):
                row = {"example": name, "method": METHODS[method], "client": client + 1}
                row |= {"model": float(last[client]), "optimum": optimum}
                row["right"] = bool(abs(last[client] - optimum) <= tolerance)
                table.append(row)
    return table


def rows(
    results: Mapping[str, xr.Dataset], *, tolerance: float, error_rate: float
) -> list[dict[str, Any]]:
    """One row for each example, batch, radius and client of Federated-Clustering.

    A client is right if it stays near its optimum: in every round of the second half
    where nothing is random, else in their mean over rounds and trials. What is not a
    number is not near.

    Args:
      results: by example, of sweeps over batches and radii.
      tolerance: how near is near.
      error_rate: of each interval of a mean.
    """
    table = []
    for name, data in results.items():
        for batch in data["batch_size"].values.tolist():
            for radius in data["radius"].values.tolist():
                cell = data.sel(batch_size=batch, radius=radius)
                for client, optimum in enumerate(EXAMPLES[name].optima):
                    own = cell.isel(client=client)
                    row: dict[str, Any] = {"example": name, "batch_size": batch}
                    row |= {"radius": radius, "client": client + 1, "optimum": optimum}
                    row |= _ends(own, optimum, error_rate)
                    row["right"] = bool(row["distance"] <= tolerance)
                    for count in ("company", "strangers"):
                        row[count] = float(own[count].values.mean())
                    row["together"] = row["company"] >= _partners(name, client) / 2
                    table.append(row)
    return table


def _ends(own: xr.Dataset, optimum: float, error_rate: float) -> dict[str, Any]:
    """Where a client of a cell ends, and how far from its optimum."""
    tails = own["tail"].values.astype(float)
    mean = float(tails.mean())
    found: dict[str, Any] = {"model": mean, "distance": abs(mean - optimum)}
    if len(tails) > 1:
        low, high = intervals.student(tails, error_rate=error_rate)
        return found | {"model_low": float(low), "model_high": float(high)}
    path = own["position"].values[0]
    late = path[len(path) // 2 :]
    return found | {"distance": float(np.max(np.abs(late - optimum)))}


def _partners(name: str, client: int) -> int:
    """Others in a client's cluster."""
    clusters = EXAMPLES[name].clusters
    return clusters.count(clusters[client]) - 1


def windows(table: Rows) -> list[dict[str, Any]]:
    """The radii of the table by which all clients, or client 2, are right.

    Together is who has half of the cluster's others in the ball, on average. Radii
    right and wrong may alternate: least and largest are of all that are right.
    """
    found = []
    for (name, claim), (low, high) in WINDOWS.items():
        own = [row for row in table if row["example"] == name]
        for batch in dict.fromkeys(row["batch_size"] for row in own):
            right: dict[float, bool] = {}
            for row in own:
                if row["batch_size"] == batch:
                    before = right.get(row["radius"], True)
                    right[row["radius"]] = before and _meets(row, claim)
            radii = [radius for radius, meets in right.items() if meets]
            found.append(
                {
                    "example": name,
                    "batch_size": batch,
                    "claim": claim,
                    "least": min(radii) if radii else None,
                    "largest": max(radii) if radii else None,
                    "radii": f"{len(radii)}/{len(right)}",
                    "exact": f"[{low:.4g}, {high:.4g})",
                }
            )
    return found


def _meets(row: Mapping[str, Any], claim: str) -> bool:
    """Whether a client is as claimed; whoever the claim leaves out is."""
    if claim == "client 2":
        return row["client"] != 2 or row["right"]
    return row["right"] and (claim == "all" or row["together"])


def note(failing: Rows) -> str:
    """Where the failing methods end, in words made from the numbers."""
    text = []
    for method in dict.fromkeys(row["method"] for row in failing):
        own = [row for row in failing if row["method"] == method]
        ends = ", ".join(f"{row['model']:.3g}" for row in own)
        wanted = ", ".join(f"{row['optimum']:g}" for row in own)
        wrong = [str(row["client"]) for row in own if not row["right"]]
        wrong_text = f"wrong: {', '.join(wrong)}" if wrong else "all right"
        text.append(f"{method}: ends at ({ends}), optima ({wanted}); {wrong_text}.")
    return "\n".join(text)
