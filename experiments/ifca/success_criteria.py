"""When a run of the success-probability experiment succeeds, and how it fails."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Bool

from experiments.ifca.success import Trial

__all__ = [
    "CRITERIA",
    "oracle_floor",
    "outcome_shares",
    "sizes",
    "stability_bound",
    "successful",
    "thresholds",
]

# Columns of a criterion start with its prefix; the paper's own has none.
CRITERIA = {"paper": "", "floor": "floor_", "recovery": "recovery_"}


def oracle_floor(
    *,
    noise: float,
    num_clients: int,
    num_samples: int,
    num_clusters: int,
    num_features: int,
) -> float:
    """Root-mean-square error of least squares with known clusters.

    `sigma sqrt(d / (N - d - 1))` with `N = m n / k` Gaussian rows; infinite where
    N <= d + 1, since the estimate then has no finite second moment.
    """
    spare = num_clients * num_samples / num_clusters - num_features - 1
    return noise * math.sqrt(num_features / spare) if spare > 0 else math.inf


def stability_bound(
    *, num_clients: int, num_samples: int, num_clusters: int, num_features: int
) -> float:
    """Largest stable step size of a true cluster's gradient descent, divisor m.

    The step multiplies the error by `I - (2 gamma / k) G` with G the cluster's Gram
    matrix over N = m n / k rows; its largest eigenvalue is near
    `(1 + sqrt(d / N))^2` (Marchenko-Pastur), so `gamma < k / (1 + sqrt(d/N))^2`.
    """
    rows_per_cluster = num_clients * num_samples / num_clusters
    edge = (1 + math.sqrt(num_features / rows_per_cluster)) ** 2
    return num_clusters / edge


def sizes(trial: Trial) -> dict[str, int]:
    """What the floor and the bound on the step size depend on, besides the noise."""
    names = ("num_clients", "num_samples", "num_clusters", "num_features")
    return {name: getattr(trial, name) for name in names}


def thresholds(trial: Trial, tolerance: float) -> dict[str, float]:
    """Largest distance of a success under each criterion that has one.

    Args:
      trial: of the cell.
      tolerance: added to both.
    """
    floor = oracle_floor(noise=trial.noise, **sizes(trial))
    return {
        "paper": 0.6 * trial.noise + tolerance,
        # No estimate can be asked to reach an infinite floor.
        "floor": 1.1 * floor + tolerance if math.isfinite(floor) else -math.inf,
    }


def successful(
    outputs: Mapping[Any, Any], thresholds: Mapping[str, float]
) -> dict[str, Bool[np.ndarray, "trial restart step_size"]]:
    """Runs that succeed under each criterion; one that diverged never does.

    Args:
      outputs: of a cell's trials, see `success.DIMS`; `[trial, restart, step_size]`.
      thresholds: as the function of this name has them.
    """
    distance = np.asarray(outputs["distance"])
    finite = np.isfinite(distance)
    return {
        "paper": finite & (distance <= thresholds["paper"]),
        "floor": finite & (distance <= thresholds["floor"]),
        "recovery": finite & (np.asarray(outputs["recovered"]) == 1),
    }


def outcome_shares(cell: xr.Dataset, success: np.ndarray) -> dict[str, float]:
    """Share of the runs followed to their end in each of four exclusive outcomes.

    A run that did not succeed has diverged if its distance is not finite or its
    loss ended above where it started; else collapsed if all clients prefer one
    model in the end; else it missed the threshold.
    """
    first = cell["first_loss"].values[..., None]
    diverged = ~np.isfinite(cell["distance"].values) | ~(cell["loss"].values <= first)
    diverged &= ~success
    collapsed = (cell["used_clusters"].values <= 1) & ~success & ~diverged
    missed = ~success & ~diverged & ~collapsed
    followed = cell["followed"].values == 1
    share = lambda which: float(which[followed].mean()) if followed.any() else math.nan
    return {
        "share_succeeded": share(success),
        "share_collapsed": share(collapsed),
        "share_diverged": share(diverged),
        "share_missed": share(missed),
    }
