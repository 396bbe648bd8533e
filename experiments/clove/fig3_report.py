"""Table and figures of CLoVE's Figure 3."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from cfljax import intervals, report

__all__ = ["COLUMNS", "NAMES", "draw_final", "draw_rounds", "overview", "rows"]

NAMES = {"clove": "CLoVE", "ifca": "IFCA", "k_fed": "k-FED"}
REACHED = 0.9  # ARI from which the paper's tables count a clustering as found.
COLUMNS = {
    "method": "method",
    "noise": "noise",
    "separation": "separation",
    "signal": "(separation / noise)² √n",
    "trials": "data sets",
    "rand_first": "ARI, round 1",
    "rand_last": "ARI, last round",
    "exact": "all clients right",
    "exact_low": "at least",
    "exact_high": "at most",
    "reached": "round of ARI ≥ .9 (median of those)",
}


def rows(
    results: xr.Dataset, *, num_samples: int, error_rate: float
) -> list[dict[str, Any]]:
    """One row for each setting.

    Args:
      results: of the sweep.
      num_samples: n, per client.
      error_rate: of all intervals together, divided by Bonferroni.
    """
    settings = ("method", "noise", "separation")
    cells = int(np.prod([results.sizes[name] for name in settings]))
    table = []
    for method in results["method"].values.tolist():
        for noise in results["noise"].values.tolist():
            for separation in results["separation"].values.tolist():
                point = {"method": method, "noise": noise, "separation": separation}
                cell = results.sel(point)["rand_index"].values  # [trial, round]
                signal = np.inf
                if noise:
                    signal = (separation / noise) ** 2 * num_samples**0.5
                point = point | {"method": NAMES[method], "signal": signal}
                table.append(point | _summary(cell, error_rate / cells))
    return table


def _summary(rand: np.ndarray, error_rate: float) -> dict[str, Any]:
    """A setting's runs, `[trial, round]`; where one failed or diverged ARI is 0."""
    rand = np.nan_to_num(rand)
    last = rand[:, -1]
    exact = int(np.sum(last == 1))
    low, high = intervals.clopper_pearson(exact, len(last), error_rate=error_rate)
    reached = rand >= REACHED
    first = [int(np.argmax(run)) + 1 for run in reached if run.any()]
    return {
        "trials": len(last),
        "rand_first": float(np.mean(rand[:, 0])),
        "rand_last": float(np.mean(last)),
        "exact": exact / len(last),
        "exact_low": float(low),
        "exact_high": float(high),
        "reached": float(np.median(first)) if first else None,
    }


def overview(table: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """ARI in the last round and how many data sets are exact, separations across."""
    found: dict[tuple, dict[str, Any]] = {}
    for line in table:
        key = (line["method"], line["noise"])
        row = found.setdefault(key, {"method": line["method"], "noise": line["noise"]})
        exact = round(line["exact"] * line["trials"])
        shown = f"{line['rand_last']:.2f} ({exact}/{line['trials']})"
        row[f"Δ = {line['separation']:g}"] = shown
    return list(found.values())


def draw_final(table: Sequence[dict[str, Any]]) -> Figure:
    """How often all clients are right in the end, a panel for each noise."""
    panels = []
    for noise in dict.fromkeys(line["noise"] for line in table):
        of_noise = [line for line in table if line["noise"] == noise]
        panels.append(
            report.CurvePanel(
                list(_final_curves(of_noise)),
                x_label="separation Δ of the true models",
                y_label="all clients in their cluster",
                log_x=True,
                title=f"noise σ = {noise:g}",
            )
        )
    return report.curves(
        panels,
        title="CLoVE, Figure 3: recovery in the last round",
        legend_title="share of the data sets, with joint intervals",
        panels_per_row=2,
    )


def _final_curves(table: Sequence[dict[str, Any]]) -> Iterator[report.Curve]:
    for method in dict.fromkeys(line["method"] for line in table):
        own = [line for line in table if line["method"] == method]
        yield report.Curve(
            method,
            _column(own, "separation"),
            _column(own, "exact"),
            _column(own, "exact_low"),
            _column(own, "exact_high"),
        )


def _column(table: Sequence[dict[str, Any]], name: str) -> np.ndarray:
    return np.array([line[name] for line in table], float)


def draw_rounds(results: xr.Dataset) -> Figure:
    """CLoVE's mean ARI in each round, a panel for each noise, as in Figure 3(a).

    A round without a clustering counts as 0.
    """
    clove = results["rand_index"].sel({"method": "clove"})
    over = results["round"].values.astype(float)
    panels = []
    for noise in results["noise"].values.tolist():
        curves = [
            report.Curve(
                f"Δ = {separation:g}",
                over,
                np.nan_to_num(
                    clove.sel(noise=noise, separation=separation).values
                ).mean(axis=0),
            )
            for separation in results["separation"].values.tolist()
        ]
        panels.append(
            report.CurvePanel(
                curves,
                x_label="round",
                y_label="mean adjusted Rand index",
                y_limits=(-0.1, 1.05),
                title=f"noise σ = {noise:g}",
            )
        )
    return report.curves(
        panels,
        title="CLoVE, Figure 3(a): agreement with the true clusters",
        legend_title="separation of the true models, means over the data sets",
        panels_per_row=2,
    )
