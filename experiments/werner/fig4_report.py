"""Figure 4: elbows, Theorem 1's rounds, and the table."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float

from experiments.werner.write import interval

__all__ = [
    "COLUMNS",
    "asked",
    "elbow",
    "note",
    "printed",
    "rows",
]

COLUMNS = {
    "start": "start",
    "deviation": "σ",
    "first": "f(0)",
    "floor": "min f",
    "last": "f, last round",
    "nearest": "distance to the nearest, last round",
    "with_elbow": "fall at all",
    "elbow": "elbow, corrected",
    "elbow_low": "at least",
    "elbow_high": "at most",
    "fallen": "rounds to 95 % of the fall",
    "printed_first": "printed formula, l = 1",
    "printed_least": "where f gets to its minimum",
    "asked": "Theorem 1's l",
}
_SHARE = 0.95  # Of the fall.

Curve = Float[np.ndarray, " rounds"]


def elbow(curve: Curve, threshold: float) -> float:
    """The first l whose round brings less than a share of the whole fall.

    The corrected form of the paper's formula: min{l : (f(l-1) - f(l)) / (f(0) - min f)
    < threshold}. NaN where f never falls below its start, or no round brings so little.
    """
    fall = curve[0] - np.min(curve)
    if not fall > 0:
        return math.nan
    brings_little = (curve[:-1] - curve[1:]) / fall < threshold
    return float(np.argmax(brings_little) + 1) if brings_little.any() else math.nan


def printed(curve: Curve) -> Float[np.ndarray, " steps"]:
    """(f(l) - f(l-1)) / (f(l-1) - min f) for l = 1, 2, ...; NaN where it is 0 / 0."""
    left = curve[:-1] - np.min(curve)
    safe = np.where(left > 0, left, np.nan)
    return (curve[1:] - curve[:-1]) / safe


def asked(separation: float, deviation: float, share: float) -> float:
    """Theorem 1's l: log(sigma / Delta) / log(1 - delta / 2), at least 1.

    Args:
      separation: Delta.
      deviation: sigma, the root of the sum of all coordinates' variances.
      share: delta.
    """
    return max(1.0, math.log(deviation / separation) / math.log1p(-share / 2))


def rows(
    results: xr.Dataset,
    *,
    num_clusters: int,
    num_features: int,
    threshold: float,
    error_rate: float,
) -> list[dict[str, Any]]:
    """One row for each start and deviation."""
    table = []
    for start in results["start"].values.tolist():
        for deviation in results["deviation"].values.tolist():
            cell = results.sel(start=start, deviation=deviation)
            curves = cell["own"].values.astype(float)
            floors = curves.min(axis=1)
            total = deviation * math.sqrt(num_features)
            wanted = [
                asked(float(separation), total, 1 / num_clusters)
                for separation in cell["separation"].values
            ]
            elbows = _finite([elbow(curve, threshold) for curve in curves])
            firsts = [printed(curve)[0] for curve in curves]
            table.append(
                {
                    "start": start,
                    "deviation": deviation,
                    "first": float(curves[:, 0].mean()),
                    "floor": float(floors.mean()),
                    "last": float(curves[:, -1].mean()),
                    "nearest": float(cell["nearest"].values[:, -1].mean()),
                    "with_elbow": f"{len(elbows)}/{len(curves)}",
                    **_estimate(elbows, error_rate),
                    "fallen": _mean([_fallen(curve) for curve in curves]),
                    "printed_first": _mean(firsts),
                    "printed_least": _mean([_at_least(curve) for curve in curves]),
                    "asked": float(np.mean(wanted)),
                }
            )
    return table


def _finite(values: Sequence[float]) -> np.ndarray:
    """Without the repetitions whose f never falls."""
    every = np.array(values, float)
    return every[np.isfinite(every)]


def _mean(values: Sequence[float]) -> float | None:
    """Of the repetitions that have one; None if none has."""
    own = _finite(values)
    return float(own.mean()) if own.size else None


def _estimate(elbows: np.ndarray, error_rate: float) -> dict[str, float | None]:
    """The columns of an elbow; None unless two repetitions have one."""
    if len(elbows) < 2:
        return dict.fromkeys(("elbow", "elbow_low", "elbow_high"))
    return {**interval(elbows, "elbow", error_rate)}


def _fallen(curve: Curve) -> float:
    """The first l at which a share of the fall is over; NaN if there is none."""
    fall = curve[0] - np.min(curve)
    if not fall > 0:
        return math.nan
    return float(np.argmax(curve[0] - curve >= _SHARE * fall))


def _at_least(curve: Curve) -> float:
    """The printed formula in the step that reaches the minimum."""
    step = int(np.argmin(curve))
    return float(printed(curve)[step - 1]) if step else math.nan


def note(table: Sequence[dict[str, Any]]) -> str:
    """What came out, in words made from the numbers."""
    least = [row["printed_least"] for row in table if row["printed_least"] is not None]
    parts = []
    for start in dict.fromkeys(row["start"] for row in table):
        own = [row["elbow"] for row in table if row["start"] == start]
        shown = ["none" if at is None else f"{at:.3g}" for at in own]
        parts.append(f"{start} {', '.join(shown)}")
    first = [row for row in table if row["start"] == table[0]["start"]]
    wanted = ", ".join(f"{row['asked']:.3g}" for row in first)
    deviations = ", ".join(f"{row['deviation']:g}" for row in first)
    ends = f"{min(least):.3g} and {max(least):.3g}" if least else "nothing"
    return (
        f"Corrected elbows for σ = {deviations}: {'; '.join(parts)}. Theorem 1 asks "
        f"for {wanted}. Where a curve gets to its minimum the printed formula is "
        f"between {ends}, whatever the curve. Means are over the repetitions in which "
        "f falls at all."
    )
