"""Lemmas 1 to 5: one round of clipping in the proof of Theorem 1, and its slips.

A point outside of the ball is replaced by the centre v. All is exact: points and
centres are drawn from atoms.
"""

import functools
import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np

from cfljax.statements import (
    Constant,
    Evaluation,
    Margin,
    Preset,
    Status,
    Step,
    Verdict,
    combine,
    exact,
    never_exceeds,
    nonnegative,
)
from theory.glossary import parameter
from theory.polynomials import no_negative_term
from theory.rows import listed, row
from theory.werner.common.algebra import same
from theory.werner.common.claims import DECLARED, exactly, one_constant, reached
from theory.werner.common.instances import CONSTANTS, Instance, margins
from theory.werner.common.laws import Discrete, line, skew2, sym3, variance

_OPPOSITE = Fraction(25, 23) ** 2  # constant of Lemma 2, for v opposite to z


def clipped(
    law: Discrete, mean: float, centre: float, radius: float
) -> tuple[float, float]:
    """Mean and variance of y = z if |z - v| <= tau, else v."""
    places = mean + law.values
    kept = np.where(np.abs(places - centre) <= radius, places, centre)
    first = float(np.sum(law.chances * kept))
    return first, float(np.sum(law.chances * (kept - first) ** 2))


def one_round(
    instance: Instance,
    law: Discrete,
    centre: int | float,
    number: int | float,
    *,
    member: bool,
) -> float:
    """E (mean of all y - mu)^2 given v, mu = 0, for `number` points a cluster; only n_i
    - 1 are left of the first if v is a `member` of it."""
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


def _member_round(one: Instance, number: int | float) -> float:
    """E(mean of all y - mu)^2 for v = z_i and noise of three atoms just beyond tau."""
    law = sym3(1.001 * one.radius, 1.0)
    return sum(
        float(chance) * one_round(one, law, float(value), number, member=True)
        for value, chance in zip(law.values, law.chances, strict=True)
    )


def check_member(_: Preset, name: str, *, relief: float = 0.0) -> Verdict:
    """LHS - (1 - delta/2) c^2 <= C (sigma^2/n + sigma^3/Delta), v = z_i, c = sigma."""
    families = []
    for clusters in (2, 8):
        levels, ratios = 24.0 * clusters * 2.0 ** np.arange(8), []
        for level in levels:
            one = Instance(1 / clusters, float(level))
            left = _member_round(one, level)
            ratios.append((left - (1 - one.share / 2)) / one.printed(level))
        ratio = np.array(ratios)
        told = {"n": levels, "separation": levels, "share": 1 / clusters}
        families.append(exactly(f"K = {clusters}, n = Delta", levels, ratio, **told))
    return one_constant(name, families, relief=relief)


def check_fixed(
    _: Preset,
    name: str,
    *,
    constants: tuple[float, float] = (1.2, 17.0),
    reach: float = 0.5,
) -> Verdict:
    """LHS <= (1 - delta/2) c^2 + 1.2 sigma^2/n + 17 sigma^3/Delta for all |v| <=
    `reach` tau, skewed and symmetric noise around the edge of the ball, on either side;
    and what is known to be reached where each term is nearly all."""

    def bound(one: Instance, number: float, centre: float) -> float:
        kept = (1 - one.share / 2) * centre**2
        return kept + constants[0] / number + constants[1] / one.separation

    values, bounds, told = [], [], []
    for clusters, factor in itertools.product((2, 4, 16), (1.0, 4.0, 64.0)):
        one, laws = Instance(1 / clusters, 24.0 * clusters * factor), []
        for size in (0.6, 1.001, 1.1, 1.5):
            law = skew2(max(2.0, size * one.radius), 1.0)
            mirrored = Discrete(-law.values, law.chances)
            laws += [law, mirrored, sym3(size * one.radius, 1.0)]
        centres = one.radius * np.linspace(-reach, reach, 9)
        for law, number, centre in itertools.product(laws, (8.0, 1e3, 1e6), centres):
            values.append(one_round(one, law, float(centre), number, member=False))
            bounds.append(bound(one, number, float(centre)))
            told.append((number, one.share, one.separation, abs(float(centre))))
    left, right = np.array(values), np.array(bounds)
    n, share, separation, distance = np.array(told).T
    below = never_exceeds(
        name,
        left,
        right,
        rounding=1e-12 * right,
        coordinates={
            "n": n,
            "share": share,
            "separation": separation,
            "distance": distance,
        },
    )
    ratios = []
    for one, number, centre, size in (
        (Instance(1 / 64, 1e8), 1e9, 500.0, 2.0),  # the start
        (Instance(1 / 8, 1e8), 1e9, 500.0, 2.0),  # the same, of a larger cluster
        (Instance(1 / 2, 1e12), 2.0, 0.0, 2.0),  # the sample
        (Instance(1 / 2, 48.0), 1e9, 0.0, 5.2),  # the bias
    ):
        law = skew2(size, 1.0)
        found = one_round(one, law, centre, number, member=False)
        ratios.append(found / bound(one, number, centre))
    known = reached(name, ratios, [0.9768, 0.8167, 0.2083, 0.0260])
    detail = (
        f"{left.size} rounds, K = 2 to 16, n = 8 to 10^6, v to {reach:g} tau: "
        f"largest ratio {np.max(left / right):.3f}; where start, sample or bias are "
        f"all: {listed(ratios, '.4f')}"
    )
    return combine(name, [below, known], detail=detail)


def prove_round(young: int = 2) -> list[Step]:
    """One round of rule (4) without bad points, given v: e = |v - m| <= tau/2, m the
    mean and s^2 the spread of the cluster's points, rho^2 the variance of the others',
    24 s^2 <= tau^2, tau <= Delta/3; y_G is the mean of all y.

    (i) Own points: out of the ball means |z - m| > tau/2, with chance at most 4
    s^2/tau^2, so that |E y - m| <= (4 s^2/tau^2) e + 2 s^2/tau <= y := 4 s^2/tau.
    Others: in the ball means Delta/2 or more from their own mean, with chance at most 4
    rho^2/Delta^2, so that |E y - m| <= e + x, x := 4 tau rho^2/Delta^2. Together |E y_G
    - m| <= (1 - delta)(e + x) + delta y. (ii) Its square is at most (1 - delta)(e +
    x)^2 + delta y^2, by convexity, and (iii) (e + x)^2 <= (1 + delta/2) e^2 + (1 +
    2/delta) x^2, by Young. (iv) (1 - delta)(1 + delta/2) <= 1 - delta/2 and (1 -
    delta)(1 + 2/delta) <= 2/delta: the square is at most (1 - delta/2) e^2 + 16 delta
    s^4/tau^2 + 32 tau^2 rho^4/(delta Delta^4). (v) Given v points are independent. The
    variance of an own y is at most E|y - m|^2 <= E|z - m|^2, as tau >= 2 e (Lemma 3),
    and that of another at most E|y - v|^2 <= tau^2 4 rho^2/Delta^2: that of y_G is at
    most (delta^2 s^2 + 4 delta tau^2 rho^2/Delta^2)/n."""
    import sympy

    delta, e, x, y, s, tau, rho, gap = sympy.symbols(
        "delta e x y s tau rho Delta", positive=True
    )
    return [
        same(
            "(i): (4 s^2/tau^2)(tau/2) + 2 s^2/tau = 4 s^2/tau",
            4 * s**2 / tau**2 * tau / 2 + 2 * s**2 / tau,
            4 * s**2 / tau,
        ),
        same(
            "(ii): (1 - delta) e^2 + delta y^2 - square = delta (1 - delta)(e - y)^2",
            (1 - delta) * e**2 + delta * y**2 - ((1 - delta) * e + delta * y) ** 2,
            delta * (1 - delta) * (e - y) ** 2,
        ),
        same(
            "(iii): right less left is (delta/2)(e - 2 x/delta)^2",
            (1 + delta / 2) * e**2 + (1 + 2 / delta) * x**2 - (e + x) ** 2,
            delta / 2 * (e - young * x / delta) ** 2,
        ),
        same(
            "(iv): 1 - delta/2 - (1 - delta)(1 + delta/2) = delta^2/2",
            1 - delta / 2 - (1 - delta) * (1 + delta / 2),
            delta**2 / 2,
        ),
        same(
            "(iv): 2/delta - (1 - delta)(1 + 2/delta) = 1 + delta",
            2 / delta - (1 - delta) * (1 + 2 / delta),
            1 + delta,
        ),
        same(
            "(iv): delta (4 s^2/tau)^2 = 16 delta s^4/tau^2",
            delta * (4 * s**2 / tau) ** 2,
            16 * delta * s**4 / tau**2,
        ),
        same(
            "(iv): (2/delta)(4 tau rho^2/Delta^2)^2 = 32 tau^2 rho^4/(delta Delta^4)",
            2 / delta * (4 * tau * rho**2 / gap**2) ** 2,
            32 * tau**2 * rho**4 / (delta * gap**4),
        ),
    ]


def prove_fixed(bias: str = "17") -> list[Step]:
    """`prove_round` with s = rho = sigma = 1 and tau^2 = delta Delta, for which Delta
    >= 24/delta gives 24 <= tau^2 and tau <= Delta/3. The bias is 16/Delta + 32/Delta^3,
    at most 17/Delta as Delta >= 24, and the variance delta^2 (1 + 4/Delta)/n, at most
    1.2/n."""
    import flint

    inverse: dict[str, Any] = {"u": (0, Fraction(1, 24))}  # 1/Delta
    return [
        *prove_round(),
        nonnegative(
            "16 + 32 u^2 <= 17", lambda u: flint.arb(bias) - 16 - 32 * u**2, inverse
        ),
        nonnegative("1 + 4 u <= 1.2", lambda u: flint.arb("1.2") - 1 - 4 * u, inverse),
        nonnegative(
            "tau <= Delta/3: delta u <= 1/9", lambda u: flint.arb(1) / 9 - u, inverse
        ),
    ]


def check_units(_: Preset, name: str, *, power: float, sharp: float = 0.0) -> Verdict:
    """|E(y - z)|^2 <= C (c^2 + (c^2 + sigma^2) sigma^power/(delta Delta)), all lengths
    multiplied by up to 1000, v = mu, skew2 noise of 1.05 tau, Delta = 24
    sigma/delta."""
    one = Instance(0.5, 48.0)
    scales, ratios = 10.0 ** np.linspace(0, 3, 7), []
    for scale in scales:
        law = skew2(1.05 * scale * one.radius, float(scale))
        right = scale ** (2 + power) / (one.share * scale * one.separation)
        ratios.append(clipped(law, 0.0, 0.0, float(scale * one.radius))[0] ** 2 / right)
    family = exactly("unit", scales, np.array(ratios), noise=scales)
    told = f"sigma^{power:g}"
    return one_constant(name, [family], constant=1.0, sharp=sharp, detail=told)


_CONDITIONS = ("Assumptions 1 to 3, Delta >= 24 sigma/delta_i", "tau as stated")
_FIRST = Instance(0.5, 48.0), Instance(1 / 16, 384.0)
_lemma_1 = functools.partial(row, place="Lemma 1, as the proof of Theorem 1 uses it")
_units = functools.partial(
    row,
    place="Lemma 1, display (iii)",
    preconditions=(*_CONDITIONS, "v = E z_i"),
    constants={"C": 1.0},
)


def _one_round(
    n: int | float,
    share: int | float,
    separation: int | float,
    noise: int | float,
    distance: int | float,
) -> float:
    """The larger of both sides of the mean, for noise just beyond the ball."""
    one = Instance(share, separation / noise)
    law = skew2(max(2.0, 1.01 * one.radius), 1.0)
    centres = distance / noise, -distance / noise
    return noise**2 * max(one_round(one, law, c, n, member=False) for c in centres)


_ROUND = Evaluation(
    quantity="E|mean of y - E z_i|^2 given v, tau = sqrt(delta_i sigma Delta)",
    parameters=(
        parameter("n", 50, "points of the cluster"),
        parameter("share", 0.5, "share of the cluster, 1/K for K clusters"),
        parameter("separation", 100.0, open=True),
        parameter("noise", 1.0, "total standard deviation within a cluster", open=True),
        parameter("distance", 2.0, "c = |v - E z_i|"),
    ),
    bound=lambda n, share, separation, noise, distance, C_n, C_Delta: (
        (1 - share / 2) * distance**2
        + C_n * noise**2 / n
        + C_Delta * noise**3 / separation
    ),
    truth=lambda **at: exact(_one_round(**at)),
    margins=lambda n, share, separation, noise, distance: (
        Margin("Delta >= 24 sigma/delta_i", separation, 24 * noise / share),
        Margin(
            "c <= tau/2",
            distance,
            math.sqrt(share * noise * separation) / 2,
            at_least=False,
        ),
    ),
    constants={
        "C_n": Constant(1.2, 0.25, 1.2, "proved; 1/4 is needed"),
        "C_Delta": Constant(17.0, 0.25, 17.0, "proved; 1/4 is needed"),
    },
    note="exact for noise 0 or 1.01 tau in K clusters on a line",
)

_LEMMA_1 = (
    _lemma_1(
        id="werner.lem1",
        text="E|mean of y - E z_i|^2 <= (1 - delta_i/2) c^2 + C (sigma^2/n_i + "
        "sigma^3/Delta)",
        preconditions=(*_CONDITIONS, "c^2 = E|v - E z_i|^2 <= sigma^2"),
        claimed="C before (1 - delta_i) c^2 too, with which nothing contracts",
        constants={**CONSTANTS, "C": DECLARED},
        expected=Status.VIOLATED,
        fault="printed",
        check=check_member,
        control={"relief": 1.0},
        evaluation=Evaluation(
            quantity="E|mean of y - E z_i|^2, v = z_i",
            parameters=(
                parameter("n", 50, "points of the cluster"),
                parameter("share", 0.5, "share of the cluster, 1/K for K clusters"),
                parameter("separation", 100.0, open=True),
                parameter("noise", 1.0, "total deviation within a cluster", open=True),
            ),
            bound=lambda n, share, separation, noise, C: (
                (1 - share / 2) * noise**2 + C * (noise**2 / n + noise**3 / separation)
            ),
            truth=lambda n, share, separation, noise: exact(
                noise**2 * _member_round(Instance(share, separation / noise), n)
            ),
            margins=lambda n, share, separation, noise: (
                Margin("Delta >= 24 sigma/delta_i", separation, 24 * noise / share),
            ),
            constants={"C": Constant(DECLARED, 0.0, 0.0, "none holds for all n_i")},
            note="exact for noise -s, 0 or s, s = 1.001 tau, in clusters on a line",
        ),
        margins=lambda: margins(
            *_FIRST, start=round(variance(sym3(1.001 * _FIRST[0].radius, 1.0)), 12)
        ),
        note="For v = z_i and noise of three atoms the mean of y is v, and nothing "
        "contracts: c = sigma stays. The same fault as werner.thm1.start. The control "
        "allows n_i more, delta_i sigma^2 for sigma^2/n_i.",
    ),
    _lemma_1(
        id="werner.lem1.corrected",
        text="E|mean of y - E z_i|^2 <= (1 - delta_i/2) c^2 + 1.2 sigma^2/n_i + 17 "
        "sigma^3/Delta given v with |v - E z_i| = c <= tau/2",
        preconditions=(*_CONDITIONS, "points independent given v"),
        constants={**CONSTANTS, "sigma^2/n_i": 1.2, "sigma^3/Delta": 17.0},
        check=check_fixed,
        control={"reach": 1.5},
        proof=prove_fixed,
        proof_control={"bias": "16"},
        evaluation=_ROUND,
        margins=lambda: margins(*_FIRST),
        note="No 1/delta_i in one round: the factor comes with the sum over rounds. "
        "Where start, sample or bias are nearly all of it, 0.98, 0.21 and 0.026 of the "
        "bound are reached. The control lets v be 1.5 tau away, from where it does not "
        "return.",
    ),
    _units(
        id="werner.lem1.units",
        text="|E(y - z)|^2 <= C (c^2 + (c^2 + sigma^2)/(delta_i Delta))",
        expected=Status.VIOLATED,
        fault="misprint",
        check=functools.partial(check_units, power=0.0),
        control={"power": 1.0},
        note="The sides have different units: in another unit of length the ratio is "
        "whatever one likes. Lemma 2, whose bound is inserted there, has the sigma "
        "that is missing, and so has the control.",
    ),
    _units(
        id="werner.lem1.units.corrected",
        text="|E(y - z)|^2 <= C (c^2 + (c^2 + sigma^2) sigma/(delta_i Delta))",
        check=functools.partial(check_units, power=1.0, sharp=0.9),
        control={"power": 0.8},
        note="As Lemma 2 has it. The control has sigma^0.8.",
    ),
)


def check_bias(
    preset: Preset, name: str, *, constant: float = float(_OPPOSITE)
) -> Verdict:
    """|E(y - z)|^2 <= C (c^2 + sigma^3/(delta Delta)) for any joint law, tau^2 = c^2 +
    delta sigma Delta and delta Delta/sigma = 24 to 3000, all that matters; and what is
    known to be reached by v - mu opposite to z - mu, the most there is."""
    # Values of v, of z, and chances of both; E z = 0, E z^2 = 1, half independent.
    number, generator = preset.choose(quick=3000, full=300_000), preset.generator(name)
    chances = generator.dirichlet(np.full(9, 0.3), number).reshape(-1, 3, 3)
    rows, columns = chances.sum(axis=2), chances.sum(axis=1)
    independent = generator.random(number) < 0.5
    product = rows[:, :, None] * columns[:, None, :]
    chances = np.where(independent[:, None, None], product, chances)
    points = generator.standard_t(2, (number, 3))
    points -= np.sum(columns * points, axis=1)[:, None]
    points /= np.sqrt(np.sum(columns * points**2, axis=1))[:, None]
    centres = generator.standard_t(2, (number, 3))
    centres *= (10 ** generator.uniform(-2, 1, number))[:, None]
    squares, ratios = np.sum(chances.sum(axis=2) * centres**2, axis=1), []
    opposite = []
    for scaled in (24.0, 300.0, 3000.0):
        radius = np.sqrt(squares + scaled)[:, None, None]
        apart = centres[:, :, None] - points[:, None, :]
        moved = np.where(np.abs(apart) > radius, apart, 0)
        left = np.sum(chances * moved, axis=(1, 2)) ** 2
        ratios.append(left / (squares + 1 / scaled))
        # v - mu = -c (z - mu)/sigma, and the far atom of noise just out of the ball.
        for distance in np.linspace(0, 0.3, 61):
            reach = np.sqrt(distance**2 + scaled) * (1 + 1e-9)
            size = reach / (1 + distance) + (1 + distance) / reach
            law = skew2(float(size), 1.0)
            gaps = (1 + distance) * law.values
            moved = np.sum(law.chances * gaps * (np.abs(gaps) > reach / (1 + 1e-9)))
            opposite.append(moved**2 / (distance**2 + 1 / scaled))
    values = np.concatenate([*ratios, opposite])
    below = never_exceeds(name, values, constant, rounding=1e-10)
    known = reached(name, [max(opposite) / constant], [0.9067])
    detail = (
        f"{values.size} joint laws of v and z: ratio up to {np.max(values):.4f}, "
        f"claimed {constant:.4f}"
    )
    return combine(name, [below, known], detail=detail)


def prove_bias(constant: Fraction = _OPPOSITE) -> list[Step]:
    """Let sigma = 1, h = 1/(delta Delta) <= 1/24 and k = h + 1/h >= 24 + 1/24. By
    Jensen, |E(y - z)| <= E|v - z| 1{|v - z| > tau} <= E|v - z|^2/tau, and E|v - z|^2 <=
    (1 + c)^2 by Minkowski, whatever the joint law. So |E(y - z)|^2 <= (1 + c)^4/(c^2 +
    1/h), and it is to be shown that (1 + c)^4 <= C (c^2 + 1/h)(c^2 + h) = C (c^4 + k
    c^2 + 1). Over c^2, and with u = c + 1/c: (u + 2)^2 <= C (u^2 + k - 2). The right
    side rises in k; for k = 24 + 1/24 and C = (25/23)^2 it is more by (C - 1)(u - 2/(C
    - 1))^2 >= 0."""
    import sympy

    c, h, u = sympy.symbols("c h u", positive=True)
    most = sympy.Rational(constant.numerator, constant.denominator)
    least = 24 + sympy.Rational(1, 24)
    return [
        same(
            "(c^2 + 1/h)(c^2 + h) = c^4 + (h + 1/h) c^2 + 1",
            (c**2 + 1 / h) * (c**2 + h),
            c**4 + (h + 1 / h) * c**2 + 1,
        ),
        same(
            "(1 + c)^4/c^2 = (c + 1/c + 2)^2",
            (1 + c) ** 4 / c**2,
            (c + 1 / c + 2) ** 2,
        ),
        same(
            "(c^4 + k c^2 + 1)/c^2 = (c + 1/c)^2 + k - 2",
            (c**4 + u * c**2 + 1) / c**2,
            (c + 1 / c) ** 2 + u - 2,
        ),
        same(
            "h + 1/h - 24 - 1/24 = (1/h - 24)(1 - h/24)",
            h + 1 / h - least,
            (1 / h - 24) * (1 - h / 24),
        ),
        same(
            "C (u^2 + k - 2) - (u + 2)^2 = (C - 1)(u - 2/(C - 1))^2",
            most * (u**2 + least - 2) - (u + 2) ** 2,
            (most - 1) * (u - 2 / (most - 1)) ** 2,
        ),
    ]


def sum_variance(law: Discrete, number: int, radius: float) -> float:
    """E |sum_j (y_j - E y_j)|^2 for v = z_1 and n points in all, y_1 = v; given v,
    which they share, the other y_j are independent."""
    firsts, variances = np.array(
        [clipped(law, 0.0, float(value), radius) for value in law.values]
    ).T
    sums = law.values + (number - 1) * firsts
    centred = sums - np.sum(law.chances * sums)
    return float(np.sum(law.chances * (centred**2 + (number - 1) * variances)))


def check_variance(_: Preset, name: str, *, printed: bool = True) -> Verdict:
    """E|sum (y - E y)|^2 <= n sigma^2, from a member, along n; and Var y <= Var z for v
    = 0, tau = 1 and z = 1 or 1 + eps, along 1/eps; or, unless `printed`, n^2 (sigma^2 +
    E|v - mu|^2) and Var z + |v - mu|^2."""
    numbers, ratios = 8 * 2.0 ** np.arange(8), []
    for number in numbers:
        radius = float(np.sqrt(0.5 * 48 * number))
        law = sym3(1.001 * radius, 1.0)
        right = number if printed else 2 * number**2
        ratios.append(sum_variance(law, int(number), radius) / right)
    families = [exactly("v = z_i, n", numbers, np.array(ratios), n=numbers)]
    inverse, ratios = 2.0 ** np.arange(2, 9), []
    for one in inverse:
        law = Discrete(np.array([-0.5, 0.5]) / one, np.full(2, 0.5))
        mean = float(1 + 0.5 / one)
        right = 1 / (4 * one**2) + (0 if printed else mean**2)
        ratios.append(clipped(law, mean, 0.0, 1.0)[1] / right)
    families.append(exactly("v fixed, 1/eps", inverse, np.array(ratios)))
    return one_constant(name, families, constant=1.0)


def prove_conditional(reach: str = "2") -> list[Step]:
    """Given v. (i) Var y = E|y - mu|^2 - |E y - mu|^2 <= E|y - mu|^2 for one point, and
    given v the points are independent. (ii) E|y - mu|^2 = E|z - mu|^2 1{in} + |v -
    mu|^2 P(out) <= sigma^2 + |v - mu|^2. (iii) If tau >= `reach` c, c = |v - mu|, what
    is out of the ball has |z - v| = reach c + more, more >= 0, and |z - mu| >= |z - v|
    - c, whose square less c^2 is (reach^2 - 2 reach) c^2 + 2 (reach - 1) more c +
    more^2. For reach = 2 that is at least 0, so that c^2 1{out} <= |z - mu|^2 1{out}
    and E|y - mu|^2 <= E|z - mu|^2 <= sigma^2; for less it is negative at more = 0,
    where z, mu and v are on a line. The algebra of (i), for a law of two atoms a and b,
    says it for any, as both sides are linear in the law but for the square of the mean.
    """
    import sympy

    a, b, p, mu = sympy.symbols("a b p mu", real=True)
    mean = p * a + (1 - p) * b
    spread = p * (a - mean) ** 2 + (1 - p) * (b - mean) ** 2
    about = p * (a - mu) ** 2 + (1 - p) * (b - mu) ** 2
    c, more = sympy.symbols("c more", nonnegative=True)
    away = sympy.Rational(reach) * c + more - c
    return [
        same(
            "(i): E(y - mu)^2 = Var y + (E y - mu)^2",
            about,
            spread + (mean - mu) ** 2,
        ),
        no_negative_term(
            "(iii): (reach c + more - c)^2 >= c^2 for all c, more >= 0",
            away**2 - c**2,
        ),
    ]


def check_conditional(preset: Preset, name: str, *, reach: float = 2.0) -> Verdict:
    """Var(y | v) <= sigma^2 where tau >= `reach` |v - mu|, and <= sigma^2 + |v - mu|^2
    always, for random laws and for those that put an atom just beyond the ball."""
    generator = preset.generator("werner.lem3")
    number = preset.choose(quick=4000, full=400_000)
    chances = generator.dirichlet(np.full(3, 0.5), number)
    points = generator.standard_t(2, (number, 3))
    points -= np.sum(chances * points, axis=1)[:, None]
    centres = generator.standard_t(2, number)
    radii = np.abs(centres) * generator.uniform(0.1, 4, number)
    # A quarter: v = 1, an atom just out of the ball and a frequent one near the mean.
    quarter = number // 4
    radii[:quarter] = reach
    centres[:quarter] = 1.0
    far = (reach - 1) * (1 + 1e-9)
    near = 10 ** generator.uniform(-4, 0, quarter)
    points[:quarter] = np.stack([np.full(quarter, -far), near, near], axis=-1)
    chances[:quarter, 0] = near / (near + far)
    chances[:quarter, 1:] = (far / (near + far) / 2)[:, None]
    variance = np.sum(chances * points**2, axis=1)
    inside = np.abs(points - centres[:, None]) <= radii[:, None]
    kept = np.where(inside, points, centres[:, None])
    first = np.sum(chances * kept, axis=1)
    left = np.sum(chances * (kept - first[:, None]) ** 2, axis=1)
    wide = radii >= reach * np.abs(centres)
    scale = variance + centres**2
    parts = [
        never_exceeds(
            name,
            left[chosen],
            right[chosen],
            rounding=1e-12 * scale[chosen],
            detail=f"{np.sum(chosen)} laws with {what}: ratio up to "
            f"{np.max(left[chosen] / right[chosen]):.4f}",
        )
        for chosen, right, what in (
            (wide, variance, f"tau >= {reach:g} |v - mu| against sigma^2"),
            (np.full(number, True), scale, "any v against sigma^2 + |v - mu|^2"),
        )
    ]
    return combine(name, parts, detail="; ".join(part.detail for part in parts))


_FAR = 10.0  # tau of Lemma 3's evaluation, in sigma


def _opposite(
    share: int | float,
    separation: int | float,
    noise: int | float,
    distance: int | float,
) -> float:
    """|E(y - z)|^2 for v - mu = -c (z - mu)/sigma, the far atom just out of the
    ball."""
    scaled, away = share * separation / noise, distance / noise
    reach = math.sqrt(away**2 + scaled) * (1 + 1e-9)
    size = max(2.0, reach / (1 + away) + (1 + away) / reach)
    law = skew2(size, 1.0)
    gaps = (1 + away) * law.values
    out = np.abs(gaps) > reach / (1 + 1e-9)
    return noise**2 * float(np.sum(law.chances * gaps * out) ** 2)


def _stranger(
    share: int | float,
    separation: int | float,
    noise: int | float,
    distance: int | float,
) -> float:
    """E|y - mu|^2 of the worst law, C_tau = 4; c + tau stays below Delta where it is
    claimed."""
    gap, away = separation / noise, distance / noise
    radius = 2 * math.sqrt(away**2 + share * gap)
    chance = 1 / (1 + max(0.0, gap - away - radius) ** 2)
    square = (1 - chance) * away**2 + chance * (away + radius) ** 2
    return noise**2 * square


_OWN_POINTS = (
    row(
        id="werner.lem2",
        place="Lemma 2",
        text="|E(y_j - z_j)|^2 <= C (c^2 + sigma^3/(delta_i Delta)), less than the C "
        "(c^2 + (c^2 + sigma^2) sigma/(delta_i Delta)) of the text",
        preconditions=(
            "tau^2 = c^2 + delta_i sigma Delta, delta_i Delta >= 24 sigma",
            "E over v and z_j, which may depend on each other",
        ),
        constants={"C": float(_OPPOSITE)},
        claimed="C unnamed",
        check=check_bias,
        control={"constant": 1.06},
        proof=prove_bias,
        proof_control={"constant": Fraction(118, 100)},
        evaluation=Evaluation(
            quantity="|E(y_j - z_j)|^2, v - E z_i opposite to z_j - E z_i",
            parameters=(
                parameter("share", 0.5),
                parameter("separation", 48.0, open=True),
                parameter("noise", 1.0, open=True),
                parameter("distance", 0.1, "c, root mean square of v - E z_i"),
            ),
            bound=lambda share, separation, noise, distance, C: (
                C * (distance**2 + noise**3 / (share * separation))
            ),
            truth=lambda **at: exact(_opposite(**at)),
            margins=lambda share, separation, noise, distance: (
                Margin("delta_i Delta >= 24 sigma", share * separation, 24 * noise),
            ),
            constants={
                "C": Constant(
                    float(_OPPOSITE),
                    1.0711,
                    float(_OPPOSITE),
                    "(25/23)^2, proved (werner.lem2)",
                )
            },
            note="exact for noise of two atoms, the far one just out of the ball",
        ),
        note="Jensen, Markov and Minkowski. Given v it would need a fourth moment of v "
        "- E z_i. C = (25/23)^2 = 1.1815; 0.907 of it is reached where v - E z_i is "
        "opposite to z_j - E z_i, and the control has 1.06.",
    ),
    row(
        id="werner.lem3",
        place="Lemma 3",
        text="E|sum over j ~ i of (y_j - E y_j)|^2 <= n_i sigma^2",
        preconditions=(
            "v_0 = z_i, Delta = 48 n_i sigma, delta_i = 1/2",
            "tau as stated",
        ),
        constants={"C": 1.0},
        claimed="explicit",
        expected=Status.VIOLATED,
        fault="printed",
        check=check_variance,
        control={"printed": False},
        evaluation=Evaluation(
            quantity="E|sum of (y_j - E y_j)|^2, v a member of the cluster",
            parameters=(
                parameter("n", 50, "points of the cluster"),
                parameter("noise", 1.0, open=True),
            ),
            bound=lambda n, noise: n * noise**2,
            truth=lambda n, noise: exact(
                noise**2 * sum_variance(sym3(1.001 * _FAR, 1.0), int(n), _FAR)
            ),
            note="exact for noise -s, 0 or s, s = 1.001 tau, tau = 10 sigma",
        ),
        note="All y_j share v: from a member with noise of three atoms y_j = v for all "
        "j, and the ratio is n_i. Fresh points do not help, as v is common still. "
        "Clipping does not contract, either: z = 1 or 1 + eps, v = 0, tau = 1. The "
        "control has n_i^2 and |v - E z_i|^2 besides.",
    ),
    row(
        id="werner.lem3.corrected",
        place="Lemma 3",
        text="E[|sum over j ~ i of (y_j - E[y_j | v])|^2 | v] <= n_i (sigma^2 + |v - "
        "E z_i|^2), and <= n_i sigma^2 if tau >= 2 |v - E z_i|",
        preconditions=("points independent given v",),
        check=check_conditional,
        control={"reach": 1.9},
        proof=prove_conditional,
        proof_control={"reach": "1.9"},
        evaluation=Evaluation(
            quantity="E|y_j - E[y_j | v]|^2 given v, one point",
            parameters=(
                parameter("noise", 1.0, open=True),
                parameter("radius", 5.0),
                parameter("distance", 3.0, "|v - E z_i|"),
            ),
            bound=lambda noise, radius, distance: (
                noise**2 + (0.0 if radius >= 2 * distance else distance**2)
            ),
            truth=lambda noise, radius, distance: exact(
                clipped(sym3(max(noise, 1.001 * radius), noise), 0.0, distance, radius)[
                    1
                ]
            ),
            note="exact for noise -s, 0 or s, s = 1.001 tau",
        ),
        note="Per point, as they are independent given v. The 2 is sharp: the controls "
        "have 1.9.",
    ),
)


def check_others(
    _: Preset, name: str, *, constant: float = 3.2, attained: float = 0.988
) -> Verdict:
    """E|y_j - mu|^2 <= (1 + delta/2 + sigma^2/(delta Delta^2)) c^2 + C sigma^3/Delta
    given v, for the law that has most in the ball at its far end; `attained` of it is
    reached for v = mu."""
    values, bounds, told = [], [], []
    shares = (1 / 2, 1 / 4, 1 / 16, 1 / 64)
    grid = itertools.product(
        shares, (24.0, 100.0, 3000.0), (1.0, 4.0), (0.0, 0.25, 0.5, 1.0, 2.0)
    )
    for share, factor, multiple, distance in grid:
        separation, square = factor / share, distance**2
        radius = np.sqrt(multiple * (square + factor))
        kept = (1 + share / 2 + 1 / (share * separation**2)) * square
        chance = 1 / (1 + (separation - distance - radius) ** 2)
        values.append((1 - chance) * square + chance * (distance + radius) ** 2)
        bounds.append(kept + constant / separation)
        told.append((share, separation, distance))
    left, right = np.array(values), np.array(bounds)
    share, separation, distance = np.array(told).T
    below = never_exceeds(
        name,
        left,
        right,
        rounding=1e-12 * right,
        coordinates={"share": share, "separation": separation, "distance": distance},
    )
    most = np.max((left / right)[distance == 0])
    known = reached(name, [most], [attained], room=0.005)
    detail = (
        f"{left.size} cases, delta = 1/2 to 1/64: largest ratio "
        f"{np.max(left / right):.4f}, for v = mu {most:.4f}"
    )
    return combine(name, [below, known], detail=detail)


def prove_others(constant: str = "3.2") -> list[Step]:
    """Given v, c = |v - mu| <= 2, sigma = 1, and tau^2 = M (c^2 + delta Delta), 1 <= M
    <= 4. A stranger's point in the ball is Delta - c - tau or more from its mean, on
    one side of it, with chance at most p = 1/(Delta - c - tau)^2, and then at most c +
    tau from mu; else y = v. So E|y - mu|^2 <= c^2 + p (2 c tau + tau^2), and it is to
    be shown that p (2 c tau + tau^2) <= (delta/2) c^2 + C/Delta. With kappa = 1/Delta =
    w delta/24, T = kappa tau^2 = M (kappa c^2 + delta), both sides over kappa: (2 c
    sqrt(kappa T) + T)/(1 - kappa c - sqrt(kappa T))^2 <= 12 c^2 + C, as delta/(2 kappa)
    >= 12."""
    import flint

    box: dict[str, Any] = {
        "d": (0, "0.70711"),  # sqrt(delta)
        "y": (0, 1),  # sqrt(w)
        "c": (0, 2),
        "m": (1, 2),  # sqrt(M)
    }

    def margin(d: Any, y: Any, c: Any, m: Any) -> Any:
        root = y * d / flint.arb(24).sqrt()  # sqrt(kappa)
        # T = (m d)^2 (1 + w c^2/24): its root has none of d left in it.
        high = m * d * (1 + (y * c) ** 2 / 24).sqrt()
        gap = 1 - root**2 * c - root * high
        return (
            (12 * c**2 + flint.arb(constant)) * gap**2 - 2 * c * root * high - high**2
        )

    return [
        nonnegative("(12 c^2 + C) gap^2 >= 2 c sqrt(kappa T) + T", margin, box),
        nonnegative(
            "gap > 0",
            lambda d, y, c, m: (
                1
                - (y * d) ** 2 * c / 24
                - y * d / flint.arb(24).sqrt() * m * d * (1 + (y * c) ** 2 / 24).sqrt()
            ),
            box,
            strict=True,
        ),
    ]


def check_event(_: Preset, name: str, *, own: bool = False) -> Verdict:
    """Delta^2 <= C (|z_j - E z_j|^2 + tau^2 + c^2 + sigma^2) where |z_j - v| <= tau, v
    being the other mean, z_j = E z_j, with probability sigma^2/Delta^2, else mu; or
    with v's `own` |v - mu|^2 in the place of c^2."""
    factors, share = 24.0 * 4.0 ** np.arange(7), 0.5
    separations = factors / share
    right = (1 + factors) + (separations**2 if own else 1) + 1  # tau^2, c^2, sigma^2
    family = exactly(
        "Delta", separations, separations**2 / right, separation=separations
    )
    return one_constant(name, [family])


def check_chance(preset: Preset, name: str, *, constant: float = 4.5) -> Verdict:
    """P(|z_j - v| <= tau) <= 4.5 (sigma^2 + c^2)/Delta^2 for tau = Delta/3 and random
    joint laws of three values each, half of them large enough to bring both
    together."""
    generator = preset.generator("werner.lem4.event")
    number = preset.choose(quick=4000, full=400_000)
    chances = generator.dirichlet(np.full(9, 0.3), number).reshape(-1, 3, 3)
    separation = 10 ** generator.uniform(0, 2, number)[:, None]
    points = generator.standard_normal((number, 3)) * separation
    centres = generator.standard_normal((number, 3)) * separation
    # A third: all of the distance is covered by z_j alone, by v alone, or shared.
    third = number // 3
    kinds = np.array([[-2 / 3, 0], [0, 2 / 3], [-1 / 3, 1 / 3]])
    kind = kinds[generator.integers(0, 3, third)]
    # The first: both are rarely, and only together, where they just meet.
    kind[0], chances[0] = kinds[2], 0.0
    chances[0, 0, 0], chances[0, 2, 2] = 1 - 1e-6, 1e-6
    points[:third] = np.array([0.0, 0, 1]) * kind[:, :1] * separation[:third]
    centres[:third] = np.array([0.0, 0, 1]) * kind[:, 1:] * separation[:third]
    apart = separation[:, :, None] + points[:, None, :] - centres[:, :, None]
    # Atoms on the very edge count as in the ball, whatever rounding does to them.
    edge = separation[:, :, None] / 3 * (1 + 1e-12)
    left = np.sum(chances * (np.abs(apart) <= edge), axis=(1, 2))
    squares = np.sum(chances.sum(axis=2) * centres**2, axis=1)
    squares += np.sum(chances.sum(axis=1) * points**2, axis=1)
    right = constant * squares / separation[:, 0] ** 2
    most = np.max(left / np.maximum(right, 1e-300))
    detail = f"{number} joint laws of z_j and v: largest ratio {most:.6f}"
    below = never_exceeds(name, left, right, rounding=1e-11)
    known = reached(name, [float(most)], [1.0], room=1e-6)
    return combine(name, [below, known], detail=detail)


def prove_chance(parts: int = 2) -> list[Step]:
    """In the ball, Delta <= |E z_j - z_j| + |z_j - v| + |v - E z_i| <= a + tau + b, so
    that a + b >= 2 Delta/3 for tau <= Delta/3. (a + b)^2 = 2 (a^2 + b^2) - (a - b)^2,
    hence a^2 + b^2 >= 2 Delta^2/9, which has a chance of at most (sigma^2 + c^2)/(2
    Delta^2/9), by Markov, for any joint law."""
    import sympy

    a, b, gap = sympy.symbols("a b Delta", positive=True)
    return [
        same(
            "(a + b)^2 = 2 (a^2 + b^2) - (a - b)^2",
            (a + b) ** 2,
            parts * (a**2 + b**2) - (a - b) ** 2,
        ),
        same("(2 Delta/3)^2/2 = 2 Delta^2/9", (2 * gap / 3) ** 2 / 2, 2 * gap**2 / 9),
        same(
            "1/(2 Delta^2/9) = 4.5/Delta^2",
            1 / (2 * gap**2 / 9),
            sympy.Rational(9, 2) / gap**2,
        ),
    ]


def prove_bad(twice: int = 2) -> list[Step]:
    """|y_j - mu| <= |y_j - v| + |v - mu| <= tau + c for each bad point, whatever z_j
    is, and so for their mean; (tau + c)^2 = 2 tau^2 + 2 c^2 - (tau - c)^2, with
    equality for c = tau. With tau^2 = C (c^2 + delta sigma Delta) it is the second
    form."""
    import sympy

    tau, c, constant, rest = sympy.symbols("tau c C rest", positive=True)
    return [
        same(
            "(tau + c)^2 = 2 tau^2 + 2 c^2 - (tau - c)^2",
            (tau + c) ** 2,
            twice * tau**2 + 2 * c**2 - (tau - c) ** 2,
        ),
        same(
            "2 C (c^2 + rest) + 2 c^2 = (2 C + 2) c^2 + 2 C rest",
            2 * constant * (c**2 + rest) + 2 * c**2,
            (2 * constant + 2) * c**2 + 2 * constant * rest,
        ),
    ]


def check_bad(preset: Preset, name: str, *, factor: float = 1.0) -> Verdict:
    """|mean of bad y - mu|^2 <= 2 tau^2 + 2 |v - mu|^2 for bad points on the edge of
    the ball or just outside, together or scattered, in five dimensions."""
    generator = preset.generator(name)
    draws = preset.choose(quick=200, full=20_000)
    values, bounds = [], []
    for spread, distance in itertools.product(
        (0.0, 0.5, 1.0, 1.001, 3.0, 1e6), (0.0, 0.1, 1.0, 3.0)
    ):
        centre = np.zeros(5)
        centre[0] = distance
        scattered = generator.standard_normal((draws, 10, 5))
        scattered /= np.linalg.norm(scattered, axis=-1, keepdims=True)
        # A quarter: all together, on the side where v is.
        scattered[: draws // 4] = np.eye(5)[0]
        bad = centre + spread * scattered * (1 - 1e-12)
        inside = np.linalg.norm(bad - centre, axis=-1) <= 1
        kept = np.where(inside[..., None], bad, centre)
        values.append(np.sum(kept.mean(axis=1) ** 2, axis=-1))
        bounds.append(np.full(draws, 2 + 2 * distance**2))
    left, right = np.concatenate(values), np.concatenate(bounds)
    detail = (
        f"{left.size} sets of ten bad points, tau = 1: largest ratio "
        f"{np.max(left / right):.9f}"
    )
    return never_exceeds(
        name, left, factor * right, rounding=1e-13 * right, detail=detail
    )


_STRANGE_POINTS = (
    row(
        id="werner.lem4",
        place="Lemma 4",
        text="E|y_j - E z_i|^2 <= (1 + delta_i/2 + sigma^2/(delta_i Delta^2)) c^2 + C "
        "sigma^3/Delta, j in another cluster, given v",
        preconditions=(
            "Assumptions 2 and 3, Delta >= 24 sigma/delta_i, delta_i <= 1/2",
            "|v - E z_i| = c <= 2 sigma",
            "tau^2 = C_tau (c^2 + delta_i sigma Delta), 1 <= C_tau <= 4",
        ),
        constants={**CONSTANTS, "C": 3.2},
        claimed="C before all terms",
        check=check_others,
        control={"constant": 3.0},
        proof=prove_others,
        proof_control={"constant": "3.1"},
        evaluation=Evaluation(
            quantity="E|y_j - E z_i|^2 given v, tau^2 = 4 (c^2 + delta_i sigma Delta)",
            parameters=(
                parameter("share", 0.5),
                parameter("separation", 48.0, open=True),
                parameter("noise", 1.0, open=True),
                parameter("distance", 1.0, "c = |v - E z_i|"),
            ),
            bound=lambda share, separation, noise, distance, C: (
                (1 + share / 2 + noise**2 / (share * separation**2)) * distance**2
                + C * noise**3 / separation
            ),
            truth=lambda **at: exact(_stranger(**at)),
            margins=lambda share, separation, noise, distance: (
                Margin("Delta >= 24 sigma/delta_i", separation, 24 * noise / share),
                Margin("delta_i <= 1/2", share, 0.5, at_least=False),
                Margin("c <= 2 sigma", distance, 2 * noise, at_least=False),
            ),
            constants={"C": Constant(3.2, 3.16, 3.2, "proved (werner.lem4)")},
            note="exact for the law that has most at the far end of the ball",
        ),
        note="True given v though its proof has a gap, see werner.lem4.event; the "
        "sharp C is 3.16, for v = E z_i and C_tau = 4. For a random v that is seldom "
        "far c^2 needs a larger factor: v a radius before E z_j with chance c^2/(Delta "
        "- tau)^2 makes it 1.6 c^2 at Delta = 48 sigma, C_tau = 4. The control has C "
        "= 3.",
    ),
    row(
        id="werner.lem4.event",
        place="Lemma 4, proof",
        text="|z_j - v| <= tau implies Delta^2 <= C (|z_j - E z_j|^2 + tau^2 + c^2 + "
        "sigma^2), v random with E|v - E z_i|^2 = c^2",
        preconditions=(
            "Delta >= 24 sigma/delta_i, delta_i = 1/2, c = sigma",
            "tau^2 = c^2 + delta_i sigma Delta",
        ),
        constants={"C": DECLARED},
        expected=Status.VIOLATED,
        fault="printed",
        check=check_event,
        control={"own": True},
        note="The proof replaces v by E v. v may be E z_j itself with probability "
        "c^2/Delta^2, and z_j = E z_j is then in the ball. The control has |v - E "
        "z_i|^2 itself for its mean c^2.",
    ),
    row(
        id="werner.lem4.event.corrected",
        place="Lemma 4, proof",
        text="P(|z_j - v| <= tau) <= 4.5 (sigma^2 + c^2)/Delta^2 if tau <= Delta/3",
        preconditions=("tau <= Delta/3", "E|v - E z_i|^2 = c^2, any joint law"),
        constants={"C": 4.5},
        check=check_chance,
        control={"constant": 4.45},
        proof=prove_chance,
        proof_control={"parts": 1},
        note="Attained where z_j and v are each Delta/3 from their means. Lemmas 11 "
        "and 18 have the term with c. The control has 4.45.",
    ),
    row(
        id="werner.lem5",
        place="Lemma 5",
        text="|mean of bad y_j - E z_i|^2 <= 2 tau^2 + 2 |v - E z_i|^2, which is (2 C "
        "+ 2) c^2 + 2 C delta_i sigma Delta for tau^2 = C (c^2 + delta_i sigma Delta)",
        preconditions=("any bad points",),
        claimed="c^2 + delta_i sigma Delta up to a constant",
        check=check_bad,
        control={"factor": 0.999},
        proof=prove_bad,
        proof_control={"twice": 1},
        evaluation=Evaluation(
            quantity="|mean of bad y_j - E z_i|^2, all on the edge of the ball beyond "
            "v",
            parameters=(
                parameter("radius", 5.0),
                parameter("distance", 1.0, "|v - E z_i|"),
            ),
            bound=lambda radius, distance: 2 * radius**2 + 2 * distance**2,
            truth=lambda radius, distance: exact((radius + distance) ** 2),
        ),
        note="Never fails: |y_j - v| <= tau whatever z_j is. Sharp for |v - E z_i| = "
        "tau. The control has 0.999.",
    ),
)

STATEMENTS = (*_LEMMA_1, *_OWN_POINTS, *_STRANGE_POINTS)
