"""Figure 3: errors of all methods, and which radii bear out what the paper says."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import xarray as xr
from jaxtyping import Int

from experiments.werner.fig3_methods import FIXED, METHODS
from experiments.werner.fig3_scenes import SCENES

__all__ = [
    "CLAIM_COLUMNS",
    "COLUMNS",
    "Panel",
    "chosen",
    "claims",
    "label",
    "note",
    "overview",
    "rows",
]

Panel = tuple[int, int]  # K and n_i
Rows = Sequence[Mapping[str, Any]]
Errors = Mapping[tuple[str, Panel], float]

COLUMNS = {
    "scene": "scene",
    "panel": "(K, n_i)",
    "label": "method",
    "start": "squared error at the start",
    "squared": "in the end",
    "squared_low": "quartile",
    "squared_high": "quartile",
    "squared_mean": "mean",
    "distance": "distance in the end",
    "distance_mean": "mean",
    "by_truth": "squared error, step size by truth",
    "steps": "runs by step size",
    "purity_first": "purity, first test",
    "purity": "last",
    "company": "own cluster in the ball, last",
}
CLAIM_COLUMNS = {
    "scene": "scene",
    "label": "method",
    "measure": "error",
    "panels": "panels",
    "worst": "largest, over the best baseline",
    "worst_best": "IFCA's best start among them",
    "recovered": "GT's gain over Local recovered at the largest n_i",
    "recovered_small": "at the smallest",
    "beats": "beats baselines",
    "beats_best": "and IFCA's best",
    "matches": "as good as GT",
}
MEASURES = {
    "squared": "median squared error",
    "squared_mean": "mean squared error",
    "distance": "median distance",
    "distance_mean": "mean distance",
}
MARGIN = 0.05  # By so much of it an error must be below another to beat it.
RECOVERED = 0.9  # Share of the oracle's gain from which on a method is as good.


def label(method: str) -> str:
    """Name of a method for people; "fixed 0.1" is one with its factor."""
    name, _, factor = method.partition(" ")
    text = METHODS[name].label
    return f"{text}, factor {factor}" if name == FIXED else text


def chosen(
    cell: xr.Dataset, by: Literal["training", "truth"] = "training"
) -> Int[np.ndarray, " trials"]:
    """Index of each data set's step size, of least training loss or squared error."""
    last = cell["squared"].isel(tested=-1)
    scores = (cell["loss"] if by == "training" else last).transpose("trial", "step")
    values = scores.values.astype(float)
    return np.argmin(np.where(np.isnan(values), np.inf, values), axis=1)


def rows(results: Mapping[Panel, xr.Dataset]) -> list[dict[str, Any]]:
    """One row for each scene, panel and method.

    Medians and quartiles over data sets, unless a mean is asked for; of an even number
    one of the two in the middle, so that infinite errors stay apart.
    """
    table = []
    scenes = next(iter(results.values()))["scene"].values.tolist()
    for scene in scenes:
        for panel, data in results.items():
            for method in data["method"].values.tolist():
                cell = data.sel({"scene": scene, "method": method})
                row = {"scene": scene, "num_clusters": panel[0]}
                row |= {"num_members": panel[1], "panel": f"({panel[0]}, {panel[1]})"}
                row |= {"method": method, "label": label(method)}
                table.append(row | _ends(cell))
    return table


def _ends(cell: xr.Dataset) -> dict[str, Any]:
    """Where the chosen runs of a cell end."""
    best, known = chosen(cell), chosen(cell, "truth")
    at = np.arange(len(best))
    values = {
        name: cell[name].transpose("trial", "step", "tested").values.astype(float)
        for name in ("squared", "distance", "purity", "company")
    }
    squared, distance = (values[name][at, best, -1] for name in ("squared", "distance"))
    low, median, high = np.quantile(squared, (0.25, 0.5, 0.75), method="nearest")
    counts = np.bincount(best, minlength=cell.sizes["step"])
    return {
        "start": float(np.median(values["squared"][at, best, 0])),
        "squared": float(median),
        "squared_low": float(low),
        "squared_high": float(high),
        "squared_mean": float(np.mean(squared)),
        "distance": float(np.quantile(distance, 0.5, method="nearest")),
        "distance_mean": float(np.mean(distance)),
        "by_truth": float(
            np.quantile(values["squared"][at, known, -1], 0.5, method="nearest")
        ),
        "steps": "/".join(str(count) for count in counts),
        "purity_first": _mean(values["purity"][at, best, 1]),
        "purity": _mean(values["purity"][at, best, -1]),
        "company": _mean(values["company"][at, best, -1]),
    }


def _mean(values: np.ndarray) -> float | None:
    """Over the data sets in which somebody else is in a ball; None if in none."""
    own = values[np.isfinite(values)]
    return float(own.mean()) if own.size else None


def claims(table: Rows) -> list[dict[str, Any]]:
    """What the paper says, for each scene, radius and error.

    To beat baselines is to be at least 5 % below each of them in every panel; to match
    the oracle, to recover 90 % of its gain in the panel of the most members, among
    those of the fewest clusters. A radius that some panel lacks does not beat.
    """
    panels = list(dict.fromkeys(_panel(row) for row in table))
    found = []
    for scene in dict.fromkeys(row["scene"] for row in table):
        own = [row for row in table if row["scene"] == scene]
        methods = dict.fromkeys(row["method"] for row in own)
        for method in filter(_is_clustering, methods):
            for measure, text in MEASURES.items():
                at = {(row["method"], _panel(row)): row[measure] for row in own}
                row: dict[str, Any] = {"scene": scene, "method": method}
                row |= {"label": label(method), "measure": text}
                found.append(row | _claim(at, method, panels))
    return found


def _panel(row: Mapping[str, Any]) -> Panel:
    return row["num_clusters"], row["num_members"]


def _claim(at: Errors, method: str, panels: Sequence[Panel]) -> dict[str, Any]:
    """The columns of `claims` that are computed, from errors by method and panel."""
    there = [panel for panel in panels if (method, panel) in at]
    few = min(panels)
    many = max(panel for panel in panels if panel[0] == few[0])
    baselines = [m for m in METHODS if METHODS[m].is_baseline and (m, few) in at]
    blind = [name for name in baselines if name != "ifca_best"]
    worst, worst_best = (
        # NaN, of which the largest is NaN, is below nothing.
        float(np.max([_over(at, method, names, panel) for panel in there]))
        for names in (blind, baselines)
    )
    recovered, small = (
        _recovered(at, method, panel) if panel in there else None
        for panel in (many, few)
    )
    whole = len(there) == len(panels)
    return {
        "panels": f"{len(there)}/{len(panels)}",
        "worst": worst,
        "worst_best": worst_best,
        "recovered": recovered,
        "recovered_small": small,
        "beats": whole and worst <= 1 - MARGIN,
        "beats_best": whole and worst_best <= 1 - MARGIN,
        "matches": recovered is not None and recovered >= RECOVERED,
    }


def _is_clustering(method: str) -> bool:
    name = method.partition(" ")[0]
    return METHODS[name].is_clustering


def _over(at: Errors, method: str, baselines: Sequence[str], panel: Panel) -> float:
    """An error over the least of the baselines'; not a number if any is not."""
    return at[method, panel] / float(np.min([at[name, panel] for name in baselines]))


def _recovered(at: Errors, method: str, panel: Panel) -> float:
    """Share of what the oracle gains over training alone; NaN if it gains nothing."""
    alone, oracle = at["local", panel], at["oracle", panel]
    if not oracle < alone:
        return math.nan
    return (alone - at[method, panel]) / (alone - oracle)


def overview(table: Rows) -> list[dict[str, Any]]:
    """Median squared errors only, scenes and panels across."""
    found: dict[str, dict[str, Any]] = {}
    for line in table:
        row = found.setdefault(line["method"], {"method": line["label"]})
        row[f"{line['scene']} {line['panel']}"] = line["squared"]
    return list(found.values())


def note(table: Rows, found: Rows, *, unknown_share: float) -> str:
    """What came out, in words made from the numbers.

    Args:
      table: of errors.
      found: claims.
      unknown_share: of a client's model that its own data leave open.
    """
    panels = dict.fromkeys(row["panel"] for row in table)
    text = [f"Panels (K, n_i): {', '.join(panels)}; errors of the last round."]
    for scene in dict.fromkeys(row["scene"] for row in table):
        own = [row for row in found if row["scene"] == scene]
        text.append(
            f"{scene} ({SCENES[scene].label}): FC beats Local, Global and IFCA from "
            f"one start in every panel with {_who(own, 'beats')}; IFCA's best start as "
            f"well with {_who(own, 'beats_best')}; it is as good as GT at the largest "
            f"n_i with {_who(own, 'matches')}. {_others(table, scene, unknown_share)}"
        )
    both = [row for row in found if row["beats"] and row["matches"]]
    text.append(f"Both claims: {_who(both, 'beats', with_scene=True)}.")
    ratios = [row["squared"] / row["by_truth"] for row in table if row["by_truth"] > 0]
    text.append(
        "Step sizes chosen by the truth, which nobody can, would make the median error "
        f"up to {max(ratios, default=1.0):.3g} times smaller."
    )
    return "\n".join(text)


def _who(own: Rows, claim: str, *, with_scene: bool = False) -> str:
    """Radii for which a claim holds, and by which errors."""
    measures: dict[str, list[str]] = {}
    for row in own:
        if row[claim]:
            name = row["label"].removeprefix("FC, ")
            name = f"{row['scene']}: {name}" if with_scene else name
            measures.setdefault(name, []).append(row["measure"])
    if not measures:
        return "no radius"
    every = len(MEASURES)
    return "; ".join(
        f"{name} (by {'every error' if len(by) == every else ', '.join(by)})"
        for name, by in measures.items()
    )


def _others(table: Rows, scene: str, unknown_share: float) -> str:
    """Training alone, both IFCAs, and who ends no better than at the start."""
    own = [row for row in table if row["scene"] == scene]
    kept = [r["squared"] / r["start"] for r in own if r["method"] == "local"]
    alone = ", ".join(f"{share:.3g}" for share in kept)
    at = {(row["method"], _panel(row)): row["squared"] for row in own}
    panels = list(dict.fromkeys(_panel(row) for row in own))
    found = [panel for panel in panels if _recovered(at, "ifca", panel) >= RECOVERED]
    text = [
        f"Local keeps {alone} of the start's squared error ({unknown_share:.3g} is out "
        "of its data's reach).",
        f"IFCA from one start is as good as GT in {len(found)} of {len(panels)} "
        "panels.",
    ]
    for panel in panels:
        if ("ifca_released", panel) in at:
            released, right = at["ifca_released", panel], at["ifca", panel]
            text.append(
                f"IFCA as released ends at {released:.3g} instead of {right:.3g} at "
                f"{panel}."
            )
    worse = [f"{r['label']} {r['panel']}" for r in own if not r["squared"] < r["start"]]
    text.append(f"No better than at the start: {', '.join(worse) or 'nobody'}.")
    return " ".join(text)
