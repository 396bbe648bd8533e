"""Families of runs of Federated-Clustering, and the two bounds they are held against.

One level is one cluster, one start and one number of rounds T; the ratio of the mean
square gradient to a bound then goes to `theory.werner.hidden_constants`.
"""

import functools
import zlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from theory.statement import Preset
from theory.verdict import Verdict
from theory.werner.hidden_constants import DECLARED, Family, one_constant
from theory.werner.one_client import (
    Cluster,
    Moments,
    centre_errors,
    mean_square_between,
    moments,
)

__all__ = ["Level", "check_family", "corrected", "family", "measured", "printed"]


class Level(NamedTuple):
    """One run.

    value: of the parameter along the family.
    cluster: whose client runs.
    start: |grad f(x_0)|, in the units of sigma.
    step: eta L.
    rounds: T.
    by_batch: whether tau is that of the proof, by rho, and not by sigma.
    """

    value: float
    cluster: Cluster
    start: float = 0.0
    step: float = 0.5
    rounds: float = 100.0
    by_batch: bool = False

    @property
    def radius(self) -> float:
        """tau."""
        cluster = self.cluster
        return cluster.radius(cluster.rho if self.by_batch else cluster.sigma)

    @property
    def initial(self) -> float:
        """L F0 = G_0^2/2."""
        return self.start**2 / 2


def printed(level: Level) -> float:
    """sqrt(V/T), the right side of (3)."""
    return float(np.sqrt(level.cluster.printed / level.rounds))


def corrected(level: Level, *, share: float = 1.0, power: float = 1.0) -> float:
    """`share` (L F0)^`power`/T + rho^2/n + rho^3/(delta Delta) + beta^2 rho
    Delta/delta."""
    first = share * level.initial**power / level.rounds
    return first + level.cluster.repaired(level.cluster.rho)


def measured(
    preset: Preset, name: str, levels: Sequence[Level]
) -> list[tuple[float, float]]:
    """Intervals of the mean square gradient, with normal noise."""
    return [
        mean_square_between(
            level.start,
            level.step,
            _moments(preset, name, level.cluster, level.radius, len(levels)),
            level.rounds,
        )
        for level in levels
    ]


@functools.lru_cache(maxsize=256)
def _moments(
    preset: Preset, name: str, cluster: Cluster, radius: float, points: int
) -> Moments:
    trials = preset.choose(quick=6000, full=30_000)
    index = zlib.crc32(repr((cluster, radius)).encode())
    generator = preset.generator(name, index)
    noise = cluster.rho * generator.standard_normal((trials, cluster.good))
    return moments(centre_errors(cluster, noise, radius), points=points)


def family(
    preset: Preset,
    name: str,
    parameter: str,
    levels: Sequence[Level],
    bound: Callable[[Level], float],
) -> Family:
    """Ratios of the mean square gradient to a bound."""
    ends = np.array(measured(preset, name, levels))
    bounds = np.array([bound(level) for level in levels])
    values = np.array([level.value for level in levels])
    # Rounding would be all that is left of an interval without noise.
    low, high = ends[:, 0] / bounds * (1 - 1e-9), ends[:, 1] / bounds * (1 + 1e-9)
    return Family(parameter, values, low, high)


def check_family(
    preset: Preset,
    *,
    name: str,
    parameter: str,
    levels: Sequence[Level],
    bound: Callable[[Level], float],
    relief: float = 0.0,
    constant: float = DECLARED,
) -> Verdict:
    """One constant does for all levels, and the ratio does not grow along them.

    Args:
      preset: 6000 independent calls of Threshold-Clustering at each level, or 30,000.
      name: id of the row.
      parameter: name of what the levels vary.
      levels: five or more.
      bound: of the mean square gradient.
      relief: see `theory.werner.hidden_constants.one_constant`.
      constant: declared; infinite where no constant is to do.
    """
    trials = preset.choose(quick=6000, full=30_000)
    return one_constant(
        name,
        [family(preset, name, parameter, levels, bound)],
        constant=constant,
        relief=relief,
        num_trials=trials * len(levels),
    )
