"""Theorem 4's radius, and where its Threshold-Clustering starts.

The statement's radius goes by sigma, the proof's by rho = sqrt(alpha) sigma; with the
former clients on the edge of the ball pull by beta tau/delta whatever alpha. And the
proof starts at a member's momentum, Algorithm 4 at the centre of the previous round. If
that is first 0, like m_0, the ball is empty in round 1: the centre stays 0, and so does
every step that is taken with it.
"""

import functools

import numpy as np
from jaxtyping import Float

from theory.statement import Margin, Preset, Statement
from theory.verdict import Status, Verdict
from theory.werner.hidden_constants import exactly, one_constant
from theory.werner.momentum_runs import Run, follow, mean_squares
from theory.werner.one_client import Cluster, centre_errors, margins, mean_square
from theory.werner.theorem4_one_cluster import runs_for

__all__ = ["STATEMENTS", "check_radius", "check_warm"]

RADIUS, WARM = "werner.thm4.radius", "werner.thm4.warm"

_CLUSTER, _ATTACKED = Cluster(), Cluster(bad=2)
_LONG = tuple(int(10.0**power) for power in range(2, 9))
_SHORT = (16, 50, 160, 500)


def _rounds(runs: tuple[Run, ...]) -> Float[np.ndarray, " levels"]:
    return np.array([run.rounds for run in runs], float)


def check_radius(
    preset: Preset, *, name: str, by_momentum: bool, relief: float = 0.0
) -> Verdict:
    """(5), or its corrected form, against clients on the edge, without any noise.

    Args:
      preset: unused: nothing is random.
      name: id of the row.
      by_momentum: whether tau^2 = delta rho Delta and the corrected bound is meant.
      relief: see `one_constant`.
    """
    del preset
    runs, left = runs_for(_ATTACKED, _LONG), []
    for run in runs:
        noise = run.rho if by_momentum else _ATTACKED.sigma
        radius = _ATTACKED.radius(noise)
        still = np.zeros((1, _ATTACKED.good))
        pull = float(centre_errors(_ATTACKED, still, radius)[0])
        left.append(float(mean_square(run.start, run.step, pull, pull**2, run.rounds)))
    corrected = name.endswith(".corrected")
    bounds = [run.corrected if corrected else run.printed for run in runs]
    return one_constant(
        name,
        [exactly("T", _rounds(runs), np.array(left) / np.array(bounds))],
        constant=16.0 if corrected else float("inf"),
        relief=relief,
    )


def _warm_runs() -> tuple[Run, ...]:
    """Small steps, and Delta = 2 alpha G_0, which Assumption 9 allows in round 1."""
    runs = []
    for rounds in _SHORT:
        alpha = 2 / np.sqrt(rounds)
        separation = 2 * alpha
        sigma = separation * _CLUSTER.delta / 24
        cluster = Cluster(separation=separation, sigma=sigma)
        runs.append(Run(cluster, rounds, alpha / 2, alpha, 1.0))
    return tuple(runs)


def check_warm(
    preset: Preset, *, name: str, member: bool, relief: float = 0.0
) -> Verdict:
    """(5) from v_{k,t-1}, v_{k,0} = 0, or the corrected bound from a member's momentum.

    Args:
      preset: unused but for a stream that nothing is drawn from.
      name: id of the row.
      member: where Threshold-Clustering starts in every round.
      relief: see `one_constant`.
    """
    runs, corrected = _warm_runs(), name.endswith(".corrected")
    squares = follow(
        runs,
        preset.generator(name),
        lambda stream, shape: np.zeros(shape),
        trials=1,
        start="member" if member else "previous",
        by_momentum=corrected,
    )
    bounds = np.array([run.corrected if corrected else run.printed for run in runs])
    ratios = mean_squares(runs, squares)[:, 0] / bounds
    return one_constant(
        name,
        [exactly("T", _rounds(runs), ratios)],
        constant=16.0 if corrected else float("inf"),
        relief=relief,
    )


def _warm_margins() -> tuple[Margin, ...]:
    run = _warm_runs()[0]
    gap = run.alpha * run.start + run.cluster.separation
    return (
        Margin(
            "werner.asm9: |E m_{i,1} - E m_{j,1}| >= Delta", gap, run.cluster.separation
        ),
        *margins(*(one.cluster for one in _warm_runs())),
    )


_row = functools.partial(Statement, paper="werner")
_attacked = functools.partial(
    _row,
    place="Theorem 4, tau",
    preconditions=(
        "other clusters' losses are linear, m_0 = 0, no noise: sigma is a bound",
        "Delta = 24 sigma/delta, beta = delta/12 on the edge of the ball",
        "eta = sqrt(F0/(L T (sigma^2/n + sigma^3/(delta Delta)))), alpha = 2 L eta",
    ),
    margins=functools.partial(margins, _ATTACKED),
)
_started = functools.partial(
    _row,
    place="Theorem 4; Algorithm 4, line 4",
    preconditions=(
        "other clusters' losses are linear, m_0 = 0, no noise: sigma = delta Delta/24",
        "Delta = 2 alpha |grad f_i(x_0)|, as Assumption 9 has it from round 1 on",
        "alpha = 2 L eta = 2/sqrt(T), beta = 0",
    ),
    margins=_warm_margins,
)
_stated = functools.partial(check_radius, name=RADIUS, by_momentum=False)
_proved = functools.partial(check_radius, name=f"{RADIUS}.corrected")
_warm = functools.partial(check_warm, name=WARM, member=False)
_member = functools.partial(check_warm, name=f"{WARM}.corrected")

STATEMENTS = (
    _attacked(
        id=RADIUS,
        text="with tau = sqrt(delta sigma Delta): avg E|grad f_i|^2 <~ sqrt(V/T) + "
        "beta sigma Delta/(T V)^(1/4), V = sigma^2/n + sigma^3/Delta",
        claimed="one unnamed constant",
        expected=Status.VIOLATED,
        check=_stated,
        control=functools.partial(_stated, relief=0.1),
        note="The floor beta^2 sigma Delta/delta does not know of alpha. The control "
        "allows T^0.1 more.",
    ),
    _attacked(
        id=f"{RADIUS}.corrected",
        text="with tau = sqrt(delta rho Delta), rho = sqrt(alpha) sigma: avg E|grad "
        "f_i|^2 <= C (L F0/(eta L T) + rho^2/n + rho^3/(delta Delta) + beta^2 rho "
        "Delta/delta)",
        constants={"C": 16.0},
        check=functools.partial(_proved, by_momentum=True),
        control=functools.partial(_proved, by_momentum=False),
        note="The control has the radius of the statement.",
    ),
    _started(
        id=WARM,
        text="from v_{k,t-1} with v_{k,0} = 0: avg E|grad f_i|^2 <~ sqrt((sigma^2/n + "
        "sigma^3/Delta)/T)",
        claimed="one unnamed constant",
        expected=Status.VIOLATED,
        check=_warm,
        control=functools.partial(_warm, relief=0.25),
        note="No momentum is within tau of 0, and x never moves: |grad f_i|^2 stays as "
        "it is at x_0. v_{k,0} and m_0 are not specified. The control allows "
        "T^(1/4) more.",
    ),
    _started(
        id=f"{WARM}.corrected",
        text="from a member's momentum: avg E|grad f_i|^2 <= C (L F0/(eta L T) + rho^2/"
        "n + rho^3/(delta Delta)), rho = sqrt(alpha) sigma",
        constants={"C": 16.0},
        check=functools.partial(_member, member=True),
        control=functools.partial(_member, member=False),
        note="The control starts at the centre of the previous round.",
    ),
)
