"""Attacks: tables of errors, influences and breakdowns, and what they say."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from experiments.werner.byzantine_radii import BROKEN
from experiments.werner.write import interval

__all__ = [
    "BREAKDOWN_COLUMNS",
    "COLUMNS",
    "breakdown_rows",
    "note",
    "overview",
    "predicted_breakdown",
    "rows",
    "squared_radius",
]

COLUMNS = {
    "radii": "radius",
    "attack": "attack",
    "share": "β / δ",
    "error": "error",
    "error_low": "at least",
    "error_high": "at most",
    "radius": "last τ",
    "bound": "(β / δ)² τ²",
    "influence": "influence",
    "influence_low": "at least",
    "influence_high": "at most",
}
BREAKDOWN_COLUMNS = {
    "attack": "attack",
    "separation": "Δ",
    "found": "trials broken",
    "share": "breakdown β / δ",
    "share_low": "at least",
    "share_high": "at most",
    "predicted": "1 − σ / τ",
}
NEAR = 0.1  # How near the breakdown must be to its prediction.


def squared_radius(
    share: float, num_clusters: int, noise: float, separation: float
) -> float:
    """tau^2 of Theorem 1, `byzantine_radii.theorem_radius` outside of JAX."""
    return noise * separation / (num_clusters + share)


def predicted_breakdown(num_clusters: int, noise: float, separation: float) -> float:
    """The share s at which s = 1 - sigma / tau(s); 0 if tau is never above sigma.

    There the adaptive edge moves the centre by s tau from the target's mean, from
    where honest points, at sigma from their mean, just reach into the ball.
    """
    share = 0.0
    for _ in range(100):  # A contraction: the slope is sigma / (2 tau (K + s)) < 1 / 8.
        square = squared_radius(share, num_clusters, noise, separation)
        share = max(0.0, 1 - noise / math.sqrt(square))
    return share


def rows(
    results: xr.Dataset,
    *,
    num_clusters: int,
    noise: float,
    separation: float,
    error_rate: float,
) -> list[dict[str, Any]]:
    """One row for each radius, attack and share.

    The influence is that beside the same trial without attackers, where the radius is
    fixed; its intervals hold jointly, by Bonferroni.
    """
    shares = results["share"].values.tolist()
    number = results.sizes["attack"] * (len(shares) - 1)
    end = predicted_breakdown(num_clusters, noise, separation)
    table = []
    for radii in results["radii"].values.tolist():
        for attack in results["attack"].values.tolist():
            cell = results.sel(radii=radii, attack=attack)
            errors = cell["error"].values.astype(float)  # [share, trial]
            for index, share in enumerate(shares):
                square = squared_radius(share, num_clusters, noise, separation)
                row: dict[str, Any] = {"radii": radii, "attack": attack, "share": share}
                row |= interval(errors[index], "error", error_rate)
                row["radius"] = float(cell["radius"].values[index].mean())
                row["bound"] = share**2 * square
                row["below"] = share < end
                if radii == "fixed" and share:
                    gained = (errors[index] - errors[0]) / row["bound"]
                    row |= interval(gained, "influence", error_rate / number)
                table.append(row)
    return table


def breakdown_rows(
    results: xr.Dataset, *, num_clusters: int, noise: float, error_rate: float
) -> list[dict[str, Any]]:
    """One row for each attack and separation; no share unless every trial broke."""
    table = []
    for attack in results["attack"].values.tolist():
        for separation in results["separation"].values.tolist():
            cell = results.sel(attack=attack, separation=separation)
            shares = cell["share"].values.astype(float)
            found = int(np.isfinite(shares).sum())
            row: dict[str, Any] = {"attack": attack, "separation": separation}
            row["found"] = f"{found}/{len(shares)}"
            row |= dict.fromkeys(("share", "share_low", "share_high", "threshold"))
            if found == len(shares):
                row |= interval(shares, "share", error_rate)
                scale = num_clusters, noise, separation
                row["threshold"] = BROKEN * squared_radius(row["share"], *scale)
            if attack == "edge_adaptive":
                end = predicted_breakdown(num_clusters, noise, separation)
                row["predicted"] = end
            table.append(row)
    return table


def overview(table: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Errors only, shares across."""
    found: dict[tuple, dict[str, Any]] = {}
    for line in table:
        start = {"radius": line["radii"], "attack": line["attack"]}
        row = found.setdefault((line["radii"], line["attack"]), start)
        row[f"β/δ = {line['share']:g}"] = line["error"]
    return list(found.values())


def note(table: Sequence[dict[str, Any]], broken: Sequence[dict[str, Any]]) -> str:
    """The rules' decisions, made from the rows."""
    text = []
    asked = [row for row in table if row["below"] and "influence" in row]
    above = [row for row in asked if not row["influence_low"] <= 1]
    if asked:
        most = max(asked, key=lambda row: row["influence"])
        text.append(
            "Influence at most 1 below the predicted breakdown: "
            f"{_verdict(not above)}, in {len(asked) - len(above)} of {len(asked)} "
            f"settings; the largest is {most['influence']:.3g} "
            f"[{most['influence_low']:.3g}, {most['influence_high']:.3g}], by "
            f"{most['attack']} at {most['share']:g}."
        )
    for row in broken:
        if row["attack"] != "edge_adaptive":
            continue
        where = f"Breakdown of the adaptive edge at Δ = {row['separation']:g}"
        if row["share"] is None:
            text.append(f"{where}: none in some trials ({row['found']} broke).")
            continue
        near = abs(row["share"] - row["predicted"]) <= NEAR
        text.append(
            f"{where}: {row['share']:.3g} [{row['share_low']:.3g}, "
            f"{row['share_high']:.3g}], predicted {row['predicted']:.3g}; within "
            f"{NEAR:g}: {_verdict(near)}."
        )
    return "\n".join(text)


def _verdict(holds: bool) -> str:
    return "yes" if holds else "no"
