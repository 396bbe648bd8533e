"""Instances of Theorem 1, in units of sigma = 1, and how well they meet its conditions.

The constants that the paper leaves unnamed are those with which the corrected form is
proved: Delta >= 24 sigma/delta_i and beta_i <= delta_i/12.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from cfljax.statements import Margin
from theory.werner.common.laws import line, skew2
from theory.werner.common.population_map import mixture, settle

LEAST_SEPARATION, _LEAST_BAD = 24.0, 12.0
CONSTANTS = {"C_Delta": LEAST_SEPARATION, "C_beta": _LEAST_BAD, "C_l": 2.0}


def asked_rounds(
    sigma: float | Float[np.ndarray, "*shape"], separation: float, share: float
) -> Float[np.ndarray, "*shape"]:
    """Theorem 1's log(sigma/Delta)/log(1 - delta/2), for the total deviation sigma."""
    return np.asarray(np.log(sigma / separation) / np.log1p(-share / 2))


class Instance(NamedTuple):
    """Clusters to be told apart; sigma = 1."""

    share: float  # delta_i, good points of the cluster over all N
    separation: float  # Delta
    bad: float = 0.0  # beta_i, bad points over all N

    @property
    def radius(self) -> float:
        """tau = sqrt(delta_i sigma Delta), of Theorem 1."""
        return math.sqrt(self.share * self.separation)

    @property
    def least_rounds(self) -> float:
        """max(1, log(sigma/Delta)/log(1 - delta_i/2)), of Theorem 1."""
        return max(1.0, float(asked_rounds(1.0, self.separation, self.share)))

    @property
    def num_rounds(self) -> int:
        """Rounds that are run: twice the least."""
        return math.ceil(2 * self.least_rounds)

    def printed(self, num_points: float = math.inf) -> float:
        """Right side of (2): sigma^2/n_i + sigma^3/Delta + beta_i sigma Delta."""
        return 1 / num_points + 1 / self.separation + self.bad * self.separation

    def corrected(self, num_points: float = math.inf) -> float:
        """sigma^2/n_i + sigma^3/(delta_i Delta) + beta_i^2 sigma Delta/delta_i."""
        bias = 1 / (self.share * self.separation)
        return 1 / num_points + bias + self.bad**2 * self.separation / self.share


def margins(*instances: Instance, start: float | None = None) -> tuple[Margin, ...]:
    """Conditions of Theorem 1, each where it is met least; `start` is the check's E|v_0
    - E z_i|^2/sigma^2, which the proof takes to be at most 1."""
    found: dict[str, Margin] = {}
    for one in instances:
        least, most = LEAST_SEPARATION / one.share, one.share / _LEAST_BAD
        conditions = [
            Margin(
                r"werner.thm1: $\Delta \ge 24 \sigma/\delta_i$", one.separation, least
            ),
            Margin(
                r"werner.thm1: $\beta_i \le \delta_i/12$", one.bad, most, at_least=False
            ),
            Margin(
                r"werner.thm1: $l \ge \max(1, \log(\sigma/\Delta)/\log(1 - "
                r"\delta_i/2))$",
                float(one.num_rounds),
                one.least_rounds,
            ),
        ]
        if start is not None:
            condition = r"werner.thm1, step (v): $E|v_0 - E z_i|^2 \le \sigma^2$"
            conditions.append(Margin(condition, start, 1.0, at_least=False))
        for margin in conditions:
            known = found.get(margin.assumption, margin)
            found[margin.assumption] = min(known, margin, key=lambda each: each.value)
    return tuple(found.values())


def settled_square(instance: Instance, size: float, *, rounds: int = 0) -> float:
    """|v_l - mu|^2 from v_0 = mu with skew2 noise of `size` tau in all clusters on a
    line, none bad, after `rounds`, or those of the instance."""
    clusters = round(1 / instance.share)
    points = mixture(
        [skew2(size * instance.radius, 1.0)] * clusters,
        line(clusters, instance.separation),
        np.full(clusters, instance.share),
    )
    found = settle(
        points, np.zeros(1), instance.radius, num_rounds=rounds or instance.num_rounds
    )
    return float(found[0] ** 2)
