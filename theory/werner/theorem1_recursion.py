"""Lemma 1: one round of clipping among good points, and its slips.

The recursion of Theorem 1 needs E|mean of y - mu|^2 <= (1 - delta/2) c^2 + C (sigma^2/n
+ sigma^3/Delta), c^2 = E|v - mu|^2: with a constant before c^2 it would not contract.
All is exact here: points are drawn from atoms, independent given v.
"""

import functools

import numpy as np

from theory.judges import never_exceeds
from theory.statement import Preset, Statement
from theory.verdict import Status, Verdict
from theory.werner.hidden_constants import DECLARED, exactly, one_constant
from theory.werner.laws import Discrete, line, skew2, sym3, variance
from theory.werner.theorem1_setting import CONSTANTS, Instance, margins

__all__ = [
    "STATEMENTS",
    "check_fixed",
    "check_member",
    "check_units",
    "clipped",
    "one_round",
]

LEMMA, UNITS = "werner.lem1", "werner.lem1.units"


def clipped(
    law: Discrete, mean: float, centre: float, radius: float
) -> tuple[float, float]:
    """Mean and variance of y = z if |z - v| <= tau, else v."""
    places = mean + law.values
    kept = np.where(np.abs(places - centre) <= radius, places, centre)
    first = float(np.sum(law.chances * kept))
    return first, float(np.sum(law.chances * (kept - first) ** 2))


def one_round(
    instance: Instance, law: Discrete, centre: float, number: float, *, member: bool
) -> float:
    """E (mean of all y - mu)^2 given v, mu = 0.

    Args:
      instance: 1/delta clusters on a line.
      law: noise of all clusters.
      centre: v.
      number: n_i, points of each cluster.
      member: whether v is a point of the first cluster, so that only n_i - 1 are left.
    """
    clusters = round(1 / instance.share)
    places = line(clusters, instance.separation)[:, None] + law.values
    kept = np.where(np.abs(places - centre) <= instance.radius, places, centre)
    means = np.sum(law.chances * kept, axis=1)
    variances = np.sum(law.chances * (kept - means[:, None]) ** 2, axis=1)
    counts = np.full(clusters, number)
    counts[0] -= member
    total = member * centre + np.sum(counts * means)
    points = number * clusters
    return float((total / points) ** 2 + np.sum(counts * variances) / points**2)


def check_member(preset: Preset, *, relief: float = 0.0) -> Verdict:
    """LHS - (1 - delta/2) c^2 <= C (sigma^2/n + sigma^3/Delta), v = z_i, c = sigma."""
    del preset
    families = []
    for clusters in (2, 8):
        levels = 24.0 * clusters * 2.0 ** np.arange(8)
        ratios = []
        for level in levels:
            one = Instance(1 / clusters, float(level))
            law = sym3(1.001 * one.radius, 1.0)
            left = sum(
                chance * one_round(one, law, float(value), level, member=True)
                for value, chance in zip(law.values, law.chances, strict=True)
            )
            ratios.append((left - (1 - one.share / 2)) / one.printed(level))
        families.append(exactly(f"K = {clusters}, n = Delta", levels, np.array(ratios)))
    return one_constant(LEMMA, families, relief=relief)


def check_fixed(
    preset: Preset, *, constant: float = DECLARED, reach: float = 0.5
) -> Verdict:
    """LHS <= (1 - delta/2) c^2 + C (sigma^2/n + sigma^3/Delta), all |v| <= `reach` tau.

    For fixed v, skewed and symmetric noise around the edge of the ball.
    """
    del preset
    values, bounds = [], []
    for clusters in (2, 4, 16):
        for factor in (1.0, 4.0, 64.0):
            one = Instance(1 / clusters, 24.0 * clusters * factor)
            for law in _noises(one.radius):
                for number in (8.0, 1e3, 1e6):
                    for centre in one.radius * np.linspace(-reach, reach, 9):
                        values.append(
                            one_round(one, law, float(centre), number, member=False)
                        )
                        bounds.append(
                            (1 - one.share / 2) * centre**2
                            + constant * one.printed(number)
                        )
    left, right = np.array(values), np.array(bounds)
    return never_exceeds(
        f"{LEMMA}.corrected",
        left,
        right,
        rounding=1e-12 * right,
        detail=f"{left.size} rounds, K = 2 to 16, n = 8 to 10^6, v to {reach:g} tau: "
        f"largest ratio {np.max(left / right):.3f}",
    )


def _noises(radius: float) -> list[Discrete]:
    """Laws whose far atom is around the edge of the ball, on either side."""
    found = []
    for size in (0.6, 1.001, 1.1, 1.5):
        skewed = skew2(max(2.0, size * radius), 1.0)
        found += [
            skewed,
            Discrete(-skewed.values, skewed.chances),
            sym3(size * radius, 1.0),
        ]
    return found


def check_units(
    preset: Preset, *, name: str, power: float, constant: float = DECLARED
) -> Verdict:
    """|E(y - z)|^2 <= C (c^2 + (c^2 + sigma^2) sigma^power/(delta Delta)), all lengths
    multiplied by up to 1000.

    v = mu and skew2 noise of 1.05 tau at Delta = 24 sigma/delta.
    """
    del preset
    one = Instance(0.5, 48.0)
    scales = 10.0 ** np.linspace(0, 3, 7)
    ratios = []
    for scale in scales:
        law = skew2(1.05 * scale * one.radius, float(scale))
        first, _ = clipped(law, 0.0, 0.0, float(scale * one.radius))
        right = scale ** (2 + power) / (one.share * scale * one.separation)
        ratios.append(first**2 / right)
    family = exactly("unit", scales, np.array(ratios))
    return one_constant(name, [family], constant=constant, detail=f"sigma^{power:g}")


_row = functools.partial(Statement, paper="werner")
_CONDITIONS = ("Assumptions 1 to 3, Delta >= 24 sigma/delta_i", "tau as stated")
_FIRST = Instance(0.5, 48.0), Instance(1 / 16, 384.0)

STATEMENTS = (
    _row(
        id=LEMMA,
        place="Lemma 1, as the proof of Theorem 1 uses it",
        text="E|mean of y - E z_i|^2 <= (1 - delta_i/2) c^2 + C (sigma^2/n_i + "
        "sigma^3/Delta)",
        preconditions=(*_CONDITIONS, "c^2 = E|v - E z_i|^2 <= sigma^2"),
        constants={**CONSTANTS, "C": DECLARED},
        claimed="C before (1 - delta_i) c^2 too, with which nothing contracts",
        expected=Status.VIOLATED,
        check=check_member,
        control=functools.partial(check_member, relief=0.25),
        # v = z_i has the variance of its law, sigma^2 up to rounding.
        margins=lambda: margins(
            *_FIRST, start=round(variance(sym3(1.001 * _FIRST[0].radius, 1.0)), 12)
        ),
        note="For v = z_i and noise of three atoms the mean of y is v, and nothing "
        "contracts: c = sigma stays. The control allows n_i^(1/4) more.",
    ),
    _row(
        id=f"{LEMMA}.corrected",
        place="Lemma 1, as the proof of Theorem 1 uses it",
        text="E|mean of y - E z_i|^2 <= (1 - delta_i/2) c^2 + C (sigma^2/n_i + "
        "sigma^3/Delta) given v with |v - E z_i| <= tau/2",
        preconditions=_CONDITIONS,
        constants={**CONSTANTS, "C": DECLARED},
        check=check_fixed,
        control=functools.partial(check_fixed, reach=1.5),
        margins=lambda: margins(*_FIRST),
        note="No 1/delta_i in one round: the factor comes with the sum over rounds. "
        "The control lets v be 1.5 tau away, from where it does not return.",
    ),
    _row(
        id=UNITS,
        place="Lemma 1, display (iii)",
        text="|E(y - z)|^2 <= C (c^2 + (c^2 + sigma^2)/(delta_i Delta))",
        preconditions=(*_CONDITIONS, "v = E z_i"),
        constants={"C": DECLARED},
        expected=Status.VIOLATED,
        check=functools.partial(check_units, name=UNITS, power=0.0),
        control=functools.partial(check_units, name=UNITS, power=0.5),
        note="The sides have different units: in another unit of length the ratio is "
        "whatever one likes. The control has sqrt(sigma).",
    ),
    _row(
        id=f"{UNITS}.corrected",
        place="Lemma 1, display (iii)",
        text="|E(y - z)|^2 <= C (c^2 + (c^2 + sigma^2) sigma/(delta_i Delta))",
        preconditions=(*_CONDITIONS, "v = E z_i"),
        constants={"C": DECLARED},
        check=functools.partial(check_units, name=f"{UNITS}.corrected", power=1.0),
        control=functools.partial(check_units, name=f"{UNITS}.corrected", power=0.8),
        note="As Lemma 2 has it. The control has sigma^0.8.",
    ),
)
