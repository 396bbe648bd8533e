"""Definition 1 and the threat model: how much bad points can do to rule (4).

With infinitely many points, exactly. The cluster is on the line with noise well within
the ball, so that E_1 = 0 and all error is the bad points'.
"""

import functools
import itertools
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from theory.judges import never_exceeds
from theory.statement import Preset, Statement
from theory.verdict import Verdict, combine
from theory.werner.laws import sym3
from theory.werner.population_map import Mixture, move, settle
from theory.werner.theorem1_setting import CONSTANTS, Instance, margins

__all__ = [
    "ATTACKS",
    "STATEMENTS",
    "check_influence",
    "check_robust",
    "squared_errors",
]

DEFINITION, THREAT = "werner.def1", "werner.threat"

# Where points that never move are, in radii from where the centre starts, infinity for
# the mean of the other clusters; None follows the centre on the edge.
ATTACKS: dict[str, tuple[float, ...] | None] = {
    "edge, adaptive": None,
    "edge, static": (0.999,),
    "staged": (1.0, 1.1, 1.2, 1.3, 1.4),
    "far": (1e6,),
    "middle": (0.5,),
    "two sides": (-0.999, 0.999),
    "other cluster": (np.inf,),
}
_MOST = 5  # points of an attack


def squared_errors(
    instances: Sequence[Instance], attacks: Sequence[str]
) -> Float[np.ndarray, " cases"]:
    """|v_l - mu|^2 from v_0 = mu, l five times that of the slowest instance.

    Args:
      instances: the cluster and, on the other side than the bad points, all others.
      attacks: one of `ATTACKS` for each.
    """
    own, places, masses, pushes = sym3(2.0, 1.0), [], [], []
    for one, attack in zip(instances, attacks, strict=True):
        bad = ATTACKS[attack]
        at = np.array(bad or ()) * one.radius
        at = np.where(np.isinf(at), -one.separation, at)
        unused = np.zeros(_MOST - len(at))
        rest = 1 - one.share - one.bad
        share = one.bad / max(1, len(at))
        places.append([*own.values, -one.separation, *at, *unused])
        masses.append([*(one.share * own.chances), rest, *(at * 0 + share), *unused])
        pushes.append(one.bad if bad is None else 0.0)
    found = settle(
        Mixture(np.array(places), np.array(masses)),
        np.zeros(len(places)),
        np.array([one.radius for one in instances]),
        num_rounds=5 * max(one.num_rounds for one in instances),
        push=np.array(pushes),
    )
    return found**2


def _battery(
    relative: Float[np.ndarray, " levels"],
) -> tuple[list[Instance], list[str], Float[np.ndarray, " cases"]]:
    """Instances, attacks and errors for beta/delta = `relative`."""
    cases = list(
        itertools.product((2, 4, 16), (24.0, 200.0, 5000.0), relative, ATTACKS)
    )
    instances = [
        Instance(1 / clusters, factor * clusters, float(share) / clusters)
        for clusters, factor, share, _ in cases
    ]
    attacks = [attack for *_, attack in cases]
    return instances, attacks, squared_errors(instances, attacks)


def check_robust(preset: Preset, *, largest: float = 1 / 12) -> Verdict:
    """(Err - E_1)/beta <= sigma Delta for all attacks, beta/delta up to `largest`."""
    levels = preset.choose(quick=3, full=12)
    relative = largest * np.arange(1, levels + 1) / levels
    instances, attacks, errors = _battery(relative)
    influence = errors / np.array([one.bad for one in instances])
    bounds = np.array([one.separation for one in instances])
    worst = int(np.argmax(influence / bounds))
    return never_exceeds(
        DEFINITION,
        influence,
        bounds,
        rounding=1e-12 * bounds,
        detail=f"{len(ATTACKS)} attacks, K = 2 to 16, Delta delta/sigma = 24 to 5000, "
        f"beta <= {largest:.3g} delta: E_2 up to {influence[worst] / bounds[worst]:.3g}"
        f" sigma Delta ({attacks[worst]})",
    )


def check_influence(preset: Preset, *, static: bool = False) -> Verdict:
    """|v_l - mu| <= beta tau/delta for all attacks, and a round moves by <= beta tau.

    Args:
      preset: unused.
      static: whether points that stay where they are at the start, on the edge, are
        taken to be the worst, which would give beta tau/(beta + delta).
    """
    del preset
    instances, attacks, errors = _battery(np.array([0.02, 0.08, 0.16, 0.32]))
    claimed = np.array(
        [one.bad * one.radius / (one.share + one.bad * static) for one in instances]
    )
    shifts = np.sqrt(errors)
    fixed = np.array([attack == "edge, static" for attack in attacks])
    moving = np.array([attack == "edge, adaptive" for attack in attacks])
    ratios = errors[fixed] / errors[moving]
    settled = never_exceeds(
        THREAT,
        shifts,
        claimed,
        rounding=1e-12 * claimed,
        detail=f"{len(attacks)} cases: |v_l - mu| to "
        f"{np.max(shifts / claimed):.6f} of the bound; static over adaptive squared "
        f"error {np.min(ratios):.2f} to {np.max(ratios):.2f}",
    )
    # One round, a bad point of mass 1/10 at each of many distances, alone.
    distances = np.concatenate([np.linspace(0, 3, 301), [1 - 1e-12, 1 + 1e-12, 1e9]])
    alone = Mixture(distances[:, None], np.full((len(distances), 1), 0.1))
    moved = move(alone, np.zeros(len(distances)), 1.0)
    once = never_exceeds(
        THREAT, moved, np.full(len(moved), 0.1), rounding=1e-15, detail=""
    )
    best = distances[int(np.argmax(moved))]
    detail = f"{settled.detail}; a round is moved most from {best:g} tau"
    return combine(THREAT, [settled, once], detail=detail)


def _instances() -> tuple[Instance, ...]:
    return (Instance(0.5, 48.0, 0.5 / 12), Instance(1 / 16, 384.0, 1 / 192))


_row = functools.partial(Statement, paper="werner")

STATEMENTS = (
    _row(
        id=DEFINITION,
        place="Definition 1",
        text="Threshold-Clustering is robust: Err <= E_1 + beta E_2, E_2 = sigma Delta",
        preconditions=(
            "Delta >= 24 sigma/delta_i, beta_i <= delta_i/12, tau as stated",
            "infinitely many points: v follows the mean over them",
        ),
        constants=CONSTANTS,
        claimed="E_2 bounded; no condition on beta in the definition",
        check=check_robust,
        control=functools.partial(check_robust, largest=0.98),
        margins=lambda: margins(*_instances(), start=0.0),
        note="The error of the bad points is even (beta/delta)^2 tau^2, quadratic in "
        "beta. For beta/delta beyond 1 - sigma/tau points that follow the centre drag "
        "it out of its cluster, and E_2 is unbounded: the control goes to 0.98.",
    ),
    _row(
        id=THREAT,
        place="Section 3.1.1, Threat model",
        text="a bad point has most influence on the edge of the ball: |v_l - E z_i| <= "
        "beta tau/delta, and a round moves by at most beta tau",
        preconditions=(
            "the cluster stays in the ball, nobody else is in it",
            "infinitely many points: v follows the mean over them",
        ),
        check=check_influence,
        control=functools.partial(check_influence, static=True),
        note="Attained by points that follow the centre. Points sent once, as in the "
        "protocol, give beta tau/(beta + delta), which the control claims for all. "
        "What the paper calls an error of order sigma Delta is the squared radius; it "
        "is (beta/delta)^2 of it.",
    ),
)
