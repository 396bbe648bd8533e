"""Theorem 4 and Assumption 9: momenta cannot stay apart while both losses converge.

A momentum is evaluated at the client's own model. Convergence (5) of two clients makes
their gradients small on average; with m_0 = 0 an expected momentum is an average of
past expected gradients, hence min_t |E m_i - E m_j|^2 <= 2 (avg|grad f_i|^2 +
avg|grad f_j|^2), and Assumption 9 fails from some round on. What is left is one cluster
that converges while the others, with linear losses say, never do.
"""

import functools
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from theory.judges import never_exceeds
from theory.statement import Margin, Preset, Statement
from theory.verdict import Status, Verdict

__all__ = [
    "STATEMENTS",
    "check_consequence",
    "check_printed",
    "check_separation",
    "pair",
]

THEOREM, ASSUMPTION = "werner.thm4", "werner.asm9"

_SHARES = (0.5, 0.1, 0.02)  # of the widest separation that is asked for
_MEMBERS, _ROUNDS = 24, (300, 1000, 3000, 10_000)


def pair(
    step: Float[np.ndarray, " cells"],
    alpha: Float[np.ndarray, " cells"],
    num_rounds: int,
    *,
    linear: bool = False,
) -> tuple[Float[np.ndarray, "cells rounds"], Float[np.ndarray, "cells rounds"]]:
    """Expected momenta of two clusters that are never confused.

    Losses L (x + 1)^2/2 and L (x - 1)^2/2 from x_0 = 0 and m_0 = 0, or the second
    linear with the same first gradient. No noise is needed: it has no mean.

    Args:
      step: eta L.
      alpha: of the momentum.
      num_rounds: T.
      linear: whether the second loss has no minimum.

    Returns:
      |E m_1 - E m_2| and the first cluster's squared gradient before each round.
    """
    gradient, momentum = np.ones(len(step)), np.zeros(len(step))
    apart, squares = [], []
    for number in range(1, num_rounds + 1):
        squares.append(gradient**2)
        momentum = momentum + alpha * (gradient - momentum)
        other = -(1 - (1 - alpha) ** number) if linear else -momentum
        apart.append(np.abs(momentum - other))
        gradient = gradient - step * momentum
    return np.stack(apart, axis=1), np.stack(squares, axis=1)


class _Cells(NamedTuple):
    """Every T with every Delta, and Theorem 4's own step size.

    rounds: T.
    separation: Delta.
    bound: right side of (5).
    mean: avg|grad f_1|^2.
    first: round in which the momenta are first closer than Delta after they were
      furthest apart; infinite if that does not happen.
    early: their distance at T/10; at T it may be too small for a float.
    sigma: of a gradient.
    """

    rounds: Float[np.ndarray, " cells"]
    separation: Float[np.ndarray, " cells"]
    bound: Float[np.ndarray, " cells"]
    mean: Float[np.ndarray, " cells"]
    first: Float[np.ndarray, " cells"]
    early: Float[np.ndarray, " cells"]
    sigma: Float[np.ndarray, " cells"]


@functools.lru_cache(maxsize=2)
def _cells(linear: bool) -> _Cells:
    rounds = np.repeat(np.array(_ROUNDS), len(_SHARES))
    share = np.tile(np.array(_SHARES), len(_ROUNDS))
    # Momenta are at least alpha 2 = 1 apart at their widest.
    sigma = share * 0.5 / 24
    variance = sigma**2 / _MEMBERS + sigma**3 / share
    step = np.minimum(0.25, np.sqrt(0.5 / (rounds * variance)))
    apart, squares = pair(step, 2 * step, max(_ROUNDS), linear=linear)
    separation, widest = share * np.max(apart, axis=1), np.argmax(apart, axis=1)
    later = np.arange(apart.shape[1])[None] > widest[:, None]
    narrow = later & (apart < separation[:, None])
    first = np.where(np.any(narrow, axis=1), np.argmax(narrow, axis=1) + 1, np.inf)

    def at_end(
        values: Float[np.ndarray, "cells rounds"],
    ) -> Float[np.ndarray, " cells"]:
        return np.take_along_axis(values, rounds[:, None] - 1, 1)[:, 0]

    return _Cells(
        rounds=rounds.astype(float),
        separation=separation,
        bound=np.sqrt(variance / rounds),
        mean=at_end(np.cumsum(squares, axis=1)) / rounds,
        first=first,
        early=np.take_along_axis(apart, rounds[:, None] // 10 - 1, 1)[:, 0],
        sigma=sigma,
    )


def check_printed(
    preset: Preset, *, linear: bool = False, factor: float = 1.0
) -> Verdict:
    """(5) where Assumption 9 holds for all t <= T: VACUOUS if it nowhere does.

    Args:
      preset: unused: nothing is random.
      linear: whether the second cluster's loss has no minimum.
      factor: of the right side of (5), whose constant is unnamed.
    """
    del preset
    cells = _cells(linear)
    met = cells.first > cells.rounds
    return never_exceeds(
        THEOREM,
        cells.mean,
        np.where(met, factor * cells.bound, np.inf),
        rounding=1e-12,
        detail=f"Assumption 9 for all t <= T in {np.sum(met)} of {len(met)} cells; "
        f"fails after {np.min(cells.first):.0f} to {np.max(cells.first):.0f} rounds",
    )


def check_separation(preset: Preset, *, factor: float = 1.0) -> Verdict:
    """|E m_1 - E m_2| >= Delta until T = 300 to 10,000, judged at T/10."""
    del preset
    cells = _cells(False)
    return never_exceeds(
        ASSUMPTION,
        factor * cells.separation,
        cells.early,
        rounding=1e-12,
        detail=f"{len(cells.early)} cells: |E m_1 - E m_2| at T/10 is at most "
        f"{np.max(cells.early / cells.separation):.2g} Delta",
    )


def check_consequence(preset: Preset, *, factor: float = 1.0) -> Verdict:
    """min_t |E m_1 - E m_2|^2 <= `factor` 2 (avg|grad f_1|^2 + avg|grad f_2|^2).

    Also at gradients that never change and alpha = 1, where both sides are equal.
    """
    del preset
    # Of the last pair neither gradient changes.
    step, alpha = np.array([0.02, 0.1, 0.25, 0.0]), np.array([0.04, 0.2, 0.5, 1.0])
    lasts, found, claimed = np.array([1, 3, 10, 30, 100]), [], []
    for linear in (False, True):
        apart, squares = pair(step, alpha, int(lasts[-1]), linear=linear)
        means = (np.cumsum(squares, axis=1)[:, lasts - 1] / lasts).ravel()
        found.append(np.minimum.accumulate(apart, axis=1)[:, lasts - 1].ravel() ** 2)
        claimed.append(2 * (means + (1 if linear else means)))
    values, bounds = np.concatenate(found), np.concatenate(claimed)
    return never_exceeds(
        f"{ASSUMPTION}.corrected",
        values,
        factor * bounds,
        rounding=1e-12,
        detail=f"{len(values)} settings: at most {np.max(values / bounds):.3g} of it",
    )


def _margins() -> tuple[Margin, ...]:
    cells = _cells(False)
    worst = int(np.argmin(cells.separation / cells.sigma))
    have, need = float(cells.separation[worst]), 48 * float(cells.sigma[worst])
    return (Margin("werner.thm4: Delta >= 24 sigma/delta", have, need),)


_row = functools.partial(Statement, paper="werner")
_TWO = (
    "losses L (x + 1)^2/2 and L (x - 1)^2/2, x_0 = 0, m_0 = 0, nobody confused",
    "eta as in Theorem 4, alpha = 2 L eta",
)

STATEMENTS = (
    _row(
        id=ASSUMPTION,
        place="Assumption 9",
        text="|E m_{i,t} - E m_{j,t}| >= Delta for all t <= T where both losses have a "
        "minimum and both clients converge",
        preconditions=(*_TWO, "Delta at most half of the widest separation"),
        expected=Status.VIOLATED,
        check=check_separation,
        control=functools.partial(check_separation, factor=0.5),
        note="Each momentum goes to 0 with its own client's gradient. The first rounds "
        "are left out, see werner.thm4.first. The control has half of Delta.",
    ),
    _row(
        id=f"{ASSUMPTION}.corrected",
        place="Assumption 9",
        text="min_t |E m_{i,t} - E m_{j,t}|^2 <= 2 (avg|grad f_i|^2 + avg|grad f_j|^2)",
        preconditions=(
            "m_0 = 0, eta L = 0, 0.02, 0.1 and 0.25, T = 1 to 100",
            "two quadratic losses, or one and a linear one",
        ),
        constants={"C": 2.0},
        check=check_consequence,
        control=functools.partial(check_consequence, factor=0.9),
        note="By convexity, for every algorithm: with (5) for both clients Assumption "
        "9 fails as soon as 2 (R_i + R_j) < Delta^2. The control has 0.9 of it.",
    ),
    _row(
        id=THEOREM,
        place="Theorem 4, (5)",
        text="avg E|grad f_i|^2 <~ sqrt((sigma^2/n + sigma^3/Delta)/T) for all i, "
        "under Assumption 9 for all t <= T",
        preconditions=(
            *_TWO,
            "Delta from 1/2 to 1/50 of the widest separation",
        ),
        claimed="one unnamed constant in <~",
        expected=Status.VACUOUS,
        check=check_printed,
        control=functools.partial(check_printed, linear=True, factor=0.01),
        margins=_margins,
        note="Assumption 9 fails before T in all cells: with it (5) cannot hold for "
        "two clusters at large T. Where one cluster never converges the bound says "
        "something; the control claims a hundredth of it there.",
    ),
)
