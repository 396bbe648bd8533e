"""Lemmas 9 and 16 and (20): how far clipping moves the mean of a cluster's own points.

A point z_j outside of the ball is replaced by the centre v, y_j = z_j 1{in} + v 1{out}.
With c^2 = E |v - m|^2, m the cluster's mean, everything is computed from the joint law
of v and z_j, atom by atom. The expectation is over both: given v, which Lemmas 8 and 15
would need, a fourth moment of v - m takes the place of c^4.
"""

import functools
import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from theory.judges import never_exceeds
from theory.statement import Preset, Statement
from theory.verdict import Verdict, combine
from theory.werner.laws import Discrete, skew2, sym3

__all__ = ["STATEMENTS", "check_chain", "check_lemma", "moments"]

GRADIENTS, MOMENTA, CHAIN = "werner.lem9", "werner.lem16", "werner.eq20"

_ROUNDING = 1e-12  # relative to the bound; a dozen terms, none larger than it
_STARTS = ("at the mean", "beside it", "rarely far", "a copy", "opposite")


class Setting(NamedTuple):
    """One round at a given x, in units of the noise, rho = 1.

    share: delta_i.
    margin: Delta delta/(rho max(1, A^4)).
    constant: C of the radius.
    spread: A; half of the clients are at m + A sqrt(G), half at m - A sqrt(G).
    square: G = |grad F_i(x)|^2.
    start: of `_STARTS`.
    """

    share: float
    margin: float
    constant: float
    spread: float
    square: float
    start: str

    @property
    def separation(self) -> float:
        """Delta."""
        return self.margin / self.share * max(1, self.spread**4)

    @property
    def distance(self) -> float:
        """c^2."""
        return 0.0 if self.start == "at the mean" else 1.0

    @property
    def radius(self) -> float:
        """tau, tau^2 = C (c^2 + A^4 G + delta rho Delta)."""
        far = self.spread**4 * self.square + self.share * self.separation
        return float(np.sqrt(self.constant * (self.distance + far)))


class Moments(NamedTuple):
    """Of one round, first for the clients below the mean, then for those above.

    gap: |E (y - z)|^2.
    clipped: (E |y - z|)^2.
    apart: E |v - z|^2.
    """

    gap: Float[np.ndarray, " 2"]
    clipped: Float[np.ndarray, " 2"]
    apart: Float[np.ndarray, " 2"]


def moments(noise: Discrete, setting: Setting) -> Moments:
    """What one round does to points with this noise, exactly."""
    start, own, chances = _joint(noise, setting.start)
    found = []
    for side in (-1, 1):
        points = side * setting.spread * np.sqrt(setting.square) + own
        moved = np.where(np.abs(start - points) > setting.radius, start - points, 0)
        found.append(
            (
                np.sum(chances * moved) ** 2,
                np.sum(chances * np.abs(moved)) ** 2,
                np.sum(chances * (start - points) ** 2),
            )
        )
    return Moments(*np.array(found).T)


def _joint(
    noise: Discrete, start: str
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Atoms of v - m and of the noise, and their chances; E (v - m)^2 = c^2."""
    if start == "opposite":
        return -noise.values, noise.values, noise.chances
    centres = {
        "at the mean": Discrete(np.zeros(1), np.ones(1)),
        "beside it": Discrete(np.ones(1), np.ones(1)),
        "rarely far": sym3(50.0, 1.0),
        "a copy": noise,
    }[start]
    places = np.meshgrid(centres.values, noise.values, indexing="ij")
    chances = np.outer(centres.chances, noise.chances)
    return places[0].ravel(), places[1].ravel(), chances.ravel()


def _rounds(preset: Preset, spreads: tuple[float, ...]) -> Iterator[tuple]:
    """Settings with each law of the noise."""
    grid = itertools.product(
        preset.choose(quick=(0.5, 1 / 16), full=(1.0, 0.5, 0.25, 1 / 16, 1 / 256)),
        preset.choose(quick=(2.0, 32.0), full=(1.0, 2.0, 8.0, 32.0, 128.0, 1e4)),
        (1.0, 4.0, 24.0),
        spreads,
        (0.0, 1.0, 100.0),
        _STARTS,
    )
    for entry in grid:
        setting = Setting(*entry)
        if setting.spread == 0 < setting.square:
            continue
        for part in (0.51, 1.01, 2.0):
            for law in (skew2, sym3):
                yield law(max(2.0, part * setting.radius), 1.0), setting


@functools.lru_cache(maxsize=4)
def _found(
    preset: Preset, spreads: tuple[float, ...]
) -> tuple[Float[np.ndarray, "rounds 3 2"], Float[np.ndarray, "rounds 6"]]:
    """Moments, and delta, Delta, C, A, G and c^2, of all rounds."""
    rounds = list(_rounds(preset, spreads))
    values = np.array([moments(*one) for one in rounds])
    known = [
        (s.share, s.separation, s.constant, s.spread, s.square, s.distance)
        for _, s in rounds
    ]
    return values, np.array(known)


_SPREADS = (0.0, 0.5, 1.0, 2.0)


def check_lemma(
    preset: Preset, *, name: str, spreads: tuple[float, ...], constant: float
) -> Verdict:
    """|E (y - z)|^2 <= `constant`/C (c^2 + G + rho^3/(delta Delta)).

    Args:
      preset: size of the grid.
      name: id of the row.
      spreads: A; only 0 for momenta, which have one law in the cluster.
      constant: what the lemma hides, times C.
    """
    values, known = _found(preset, spreads)
    share, separation, radius_constant, _, square, distance = known.T
    right = (distance + square + 1 / (share * separation)) / radius_constant
    gaps = np.mean(values[:, 0], axis=1)
    ratio = gaps / right
    return never_exceeds(
        name,
        gaps,
        constant * right,
        rounding=_ROUNDING * constant * right,
        detail=f"{len(ratio)} rounds, all atoms: C times the left-hand side over the "
        f"right-hand one is at most {np.max(ratio):.3g}",
    )


def check_chain(preset: Preset, *, young: float = 3.0) -> Verdict:
    """Each step of (20), `young` being the constant of Young's inequality in it."""
    found, known = _found(preset, _SPREADS)
    values = np.concatenate([found[:, :, 0], found[:, :, 1]])  # client by client
    share, separation, constant, spread, square, distance = np.tile(known.T, 2)
    own = spread**2 * square
    radius = constant * (distance + spread**4 * square + share * separation)
    steps = {
        "Jensen": (values[:, 0], values[:, 1]),
        "Markov": (values[:, 1], values[:, 2] ** 2 / radius),
        "Young": (values[:, 2], young * (distance + own + 1)),
    }
    loss = 1 / (share * separation)
    last = (1 + loss) * distance + (1 + loss * spread**2) * square + loss
    steps["fractions"] = (distance + own + 1) ** 2 / radius, 3 / constant * last
    steps["Delta"] = last, 2 * (distance + square + loss)
    verdicts = [
        never_exceeds(CHAIN, *both, rounding=_ROUNDING * (1 + both[1]))
        for both in steps.values()
    ]
    reach = {  # steps that start from 0 tell nothing
        step: np.max(left[right > 0] / right[right > 0])
        for step, (left, right) in steps.items()
    }
    told = ", ".join(f"{step} {ratio:.3g}" for step, ratio in reach.items())
    return combine(
        CHAIN,
        verdicts,
        detail=f"{len(found)} rounds, largest left over right: {told}",
    )


_row = functools.partial(Statement, paper="werner")
_RADIUS = "tau^2 = C (c^2 + A^4 G + delta_i rho Delta), c^2 = E|v - grad F_i|^2"
_lemma = functools.partial(check_lemma, name=GRADIENTS, spreads=_SPREADS, constant=27.0)
_momenta = functools.partial(check_lemma, name=MOMENTA, spreads=(0.0,), constant=8.0)

STATEMENTS = (
    _row(
        id=GRADIENTS,
        place="Lemma 9",
        text="E_{j~i} |E(y_j - g_j)|^2 <= C1 (c^2 + E|grad F_i|^2 + rho^3/(delta_i "
        "Delta))",
        preconditions=(
            "F_i = mean of f_j over j ~ i",
            _RADIUS,
            "Delta >= max(1, A^4) rho/delta_i",
        ),
        constants={"C1 C": 27.0},
        claimed="constant unnamed",
        check=_lemma,
        control=functools.partial(_lemma, constant=0.5),
        note="Whether or not v depends on g_j. The last display of the proof has E_x "
        "where the first has E: given x and v it needs E|v - grad F_i|^4. The "
        "control has 0.5 for 27.",
    ),
    _row(
        id=CHAIN,
        place="(20)",
        text="|E(y_j - g_j)|^2 <= (E|y_j - g_j|)^2 <= (E|v - g_j|^2)^2/tau^2 <= 9 (c^2 "
        "+ A^2 G + rho^2)^2/tau^2 <= 27/C ((1 + rho/(delta_i Delta)) c^2 + (1 + rho "
        "A^2/(delta_i Delta)) G + rho^3/(delta_i Delta)), each factor at most 2",
        preconditions=(
            "F_i = mean of f_j over j ~ i, G = |grad F_i|^2",
            _RADIUS,
            "Delta >= max(1, A^4) rho/delta_i",
        ),
        claimed="constants unnamed",
        check=check_chain,
        control=functools.partial(check_chain, young=1.0),
        note="Young's constant 3 cannot be left out, as v and grad f_j may be on "
        "different sides of the mean. The control does.",
    ),
    _row(
        id=MOMENTA,
        place="Lemma 16",
        text="E_{j~i} |E(y_j - m_j)|^2 <= C1 (c^2 + rho^3/(delta_i Delta))",
        preconditions=(
            "mu_i = E_x of the mean momentum in the cluster of i",
            "tau^2 = C (c^2 + delta_i rho Delta), c^2 = E|v - mu_i|^2",
            "Delta >= rho/delta_i",
        ),
        constants={"C1 C": 8.0},
        claimed="constant unnamed",
        check=_momenta,
        control=functools.partial(_momenta, constant=0.5),
        note="Whether or not v depends on m_j; 2 for 8 if it does not. The proof "
        "prints |E y_j - m_j|^2 for |E(y_j - m_j)|^2. The control has 0.5 for 8.",
    ),
)
