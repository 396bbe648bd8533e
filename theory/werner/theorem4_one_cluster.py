"""Theorem 4 where its assumptions can be met: one cluster that converges.

The other clusters' losses are linear, alpha = 2 L eta, the radius is that of the proof,
and Threshold-Clustering starts at a member's momentum in every round. Then the rates of
(5) are right, with L F0 under the first root, sigma^3/(delta Delta) for sigma^3/Delta
and beta^2/delta for beta.
"""

import functools
import math

import numpy as np
from jaxtyping import Float

from cfljax import intervals
from theory.judges import ERROR_RATE, within
from theory.statement import Preset, Statement
from theory.verdict import Verdict, combine
from theory.werner.hidden_constants import DECLARED
from theory.werner.momentum_runs import Run, follow, mean_squares
from theory.werner.one_client import Cluster, margins

__all__ = ["STATEMENTS", "check_corrected", "runs_for"]

THEOREM = "werner.thm4"

_CLUSTERS = (Cluster(), Cluster(bad=2))


def runs_for(cluster: Cluster, rounds: tuple[int, ...]) -> tuple[Run, ...]:
    """Levels with the theorem's step but sigma^3/(delta Delta), alpha = 2 L eta."""
    start = 0.55 * cluster.sigma
    variance = cluster._replace(bad=0).repaired(cluster.sigma)
    steps = [min(0.25, math.sqrt(start**2 / (2 * one * variance))) for one in rounds]
    return tuple(
        Run(cluster, one, step, 2 * step, start)
        for one, step in zip(rounds, steps, strict=True)
    )


@functools.lru_cache(maxsize=4)
def _measured(preset: Preset) -> tuple[Float[np.ndarray, "runs trials"], ...]:
    """Mean square gradients without and with bad clients, all runs side by side."""
    runs = [run for one in _CLUSTERS for run in runs_for(one, _levels(preset))]
    squares = follow(
        runs,
        preset.generator(f"{THEOREM}.corrected"),
        lambda stream, shape: stream.standard_normal(shape),
        trials=preset.choose(quick=32, full=128),
    )
    return tuple(np.split(mean_squares(runs, squares), len(_CLUSTERS)))


def _levels(preset: Preset) -> tuple[int, ...]:
    return preset.choose(
        quick=(100, 300, 1000, 3000), full=(100, 300, 1000, 3000, 10_000)
    )


def check_corrected(
    preset: Preset, *, slopes: tuple[float, float] = (-0.5, -0.25)
) -> Verdict:
    """The corrected bound with one constant, and its slopes in T without and with bad
    clients, within 0.1."""
    name, found = f"{THEOREM}.corrected", []
    rounds = np.array(_levels(preset), float)
    for cluster, slope, means in zip(_CLUSTERS, slopes, _measured(preset), strict=True):
        low, high = intervals.student(means, error_rate=ERROR_RATE / (4 * len(rounds)))
        bounds = np.array([run.corrected for run in runs_for(cluster, _levels(preset))])
        found.append(
            within(
                name,
                (low / bounds, high / bounds),
                (np.zeros(len(rounds)), np.full(len(rounds), DECLARED)),
                num_trials=means.size,
                error_rate=ERROR_RATE / 4,
                detail=f"beta = {cluster.beta:g}, T = {rounds[0]:g} to {rounds[-1]:g}: "
                f"over the bound {np.min(low / bounds):.2f} to "
                f"{np.max(high / bounds):.2f}",
            )
        )
        batches = np.mean(means.reshape(len(rounds), 16, -1), axis=-1)
        ends = intervals.slope(
            np.log(rounds), np.log(batches).T, error_rate=ERROR_RATE / 4
        )
        band = np.array([slope - 0.1]), np.array([slope + 0.1])
        found.append(
            within(
                name,
                (ends[0].reshape(1), ends[1].reshape(1)),
                band,
                num_trials=means.size,
                error_rate=ERROR_RATE / 4,
                detail=f"slope {float(ends[0] + ends[1]) / 2:.3f} (claimed {slope:g})",
            )
        )
    return combine(name, found, detail="; ".join(one.detail for one in found))


_row = functools.partial(Statement, paper="werner")

STATEMENTS = (
    _row(
        id=f"{THEOREM}.corrected",
        place="Theorem 4, (5)",
        text="avg E|grad f_i|^2 <= C (L F0/(eta L T) + rho^2/n + rho^3/(delta Delta) + "
        "beta^2 rho Delta/delta), rho = sqrt(alpha) sigma: exponents -1/2 for beta = 0 "
        "and -1/4 in T",
        preconditions=(
            "the other clusters' losses are linear, so that Assumption 9 holds",
            "Delta = 24 sigma/delta, beta = 0 or delta/12 on the edge of the ball",
            "eta = sqrt(F0/(L T (sigma^2/n + sigma^3/(delta Delta)))), alpha = 2 L "
            "eta, tau^2 = delta rho Delta, v_0 = a member's momentum, normal noise",
        ),
        constants={"C": DECLARED, "margin": 0.1},
        check=check_corrected,
        control=functools.partial(check_corrected, slopes=(-0.5, -0.5)),
        margins=functools.partial(margins, *_CLUSTERS),
        note="Not refuted on these families. The control claims -1/2 with bad clients, "
        "too.",
    ),
)
