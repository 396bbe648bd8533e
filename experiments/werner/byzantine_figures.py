"""Figures of the attacks: errors and influences against the share of attackers."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from cfljax import report
from experiments.werner.byzantine_report import predicted_breakdown, squared_radius

__all__ = ["draw", "draw_influence"]

RADII = {
    "fixed": "fixed radius τ = √(δσΔ)",
    "quantile": "quantile of the distances",
    "inner": "inner gap of the distances",
    "outer": "outer gap of the distances",
}
SHARE = "attackers per honest member, β/δ"
BROKEN = "adaptive edge breaks down"
_LIMITS = (5e-3, 1e5)
_AT_A_TIME = 6  # Attacks of one figure; the breakdown is the seventh name.

Rows = Sequence[dict[str, Any]]


def draw(table: Rows, broken: Rows, **known: Any) -> dict[str, Figure]:
    """Errors, a panel for each radius and a figure for each few attacks.

    Args:
      table: of errors.
      broken: of breakdowns; that of the adaptive edge at `separation` is drawn.
      **known: `separation` and `noise` of the errors, `num_members` and
        `num_clusters`.
    """
    attacks = list(dict.fromkeys(row["attack"] for row in table))
    figures = {}
    for first in range(0, len(attacks), _AT_A_TIME):
        shown = attacks[first : first + _AT_A_TIME]
        panels = []
        for radii in dict.fromkeys(row["radii"] for row in table):
            own = [row for row in table if row["radii"] == radii]
            curves = [_curve(own, attack, "error") for attack in shown]
            if radii == "fixed" and "edge_adaptive" in shown:
                curves += _predicted(broken, **known)
            panels.append(
                report.CurvePanel(
                    curves,
                    x_label=SHARE,
                    y_label="squared error of the centre",
                    y_limits=_LIMITS,
                    log_y=True,
                    title=RADII[radii],
                    aside=False,
                )
            )
        name = "errors" if not first else f"errors_{first // _AT_A_TIME + 1}"
        figures[name] = report.curves(
            panels,
            title="Threshold-Clustering of one cluster's centre under attack",
            legend_title="means with intervals",
            panels_per_row=3 if len(panels) == 3 else 2,
        )
    return figures


def draw_influence(table: Rows) -> Figure:
    """Influences with the fixed radius below the predicted breakdown.

    Of more attacks than a panel can tell apart, those of most influence.
    """
    own = [row for row in table if row["below"] and "influence" in row]
    most: dict[str, float] = {}
    for row in own:
        most[row["attack"]] = max(most.get(row["attack"], -np.inf), row["influence"])
    shown = sorted(most, key=lambda attack: -most[attack])[:_AT_A_TIME]
    panel = report.CurvePanel(
        [_curve(own, attack, "influence") for attack in shown],
        x_label=SHARE,
        y_label="(Err − Err(0)) / ((β/δ)² τ²)",
        y_limits=None,
        title=RADII["fixed"],
        aside=False,
        levels=[report.Level("bound", 1.0, _name(shown[0]))],
    )
    return report.curves(
        [panel],
        title="Influence of attackers",
        legend_title="means with joint intervals, most influence first",
    )


def _curve(rows: Rows, attack: str, name: str) -> report.Curve:
    own = [row for row in rows if row["attack"] == attack]
    column = lambda key: np.array([row[key] for row in own], float)
    at = column("share")
    low = column(f"{name}_low")
    if name == "error":  # A logarithmic axis has no room for what is not positive.
        low = np.maximum(low, _LIMITS[0] / 2)
    return report.Curve(_name(attack), at, column(name), low, column(f"{name}_high"))


def _predicted(
    broken: Rows, separation: float, noise: float, num_members: int, num_clusters: int
) -> list[report.Curve]:
    """The exact error of the adaptive edge, and where it ends."""
    end = predicted_breakdown(num_clusters, noise, separation)
    at = np.linspace(0, end, 100)
    square = np.array([squared_radius(s, num_clusters, noise, separation) for s in at])
    exact = noise**2 / num_members + at**2 * square
    like = _name("edge_adaptive")
    curves = [report.Curve("its prediction σ²/n + (β/δ)² τ²", at, exact, like=like)]
    wanted = ("edge_adaptive", separation)
    for row in broken:
        if (row["attack"], row["separation"]) == wanted and row["share"] is not None:
            place = np.array([row["share"]]), np.array([row["threshold"]])
            curves.append(report.Curve(BROKEN, *place))
            ends = np.full(2, row["predicted"]), np.array(_LIMITS)
            curves.append(report.Curve("its prediction 1 − σ/τ", *ends, like=BROKEN))
    return curves


def _name(attack: str) -> str:
    return attack.replace("_", " ")
