"""Theorem 1 for finitely many points, the same in each round: what the sample adds.

Each round is rule (4) on the points themselves, so that the argument for infinitely
many (`population_map.within_reach`) goes through for any sample that is not too unlike
its law: few of the cluster far from its mean, few of the others near it. What is left
is a chance that falls exponentially in n_i. The proof is written out in `theorem1.md`.
"""

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Complex, Float, Int, Shaped
from scipy import stats

from cfljax.statements import (
    Constant,
    Evaluation,
    Grade,
    Margin,
    Preset,
    Step,
    Verdict,
    combine,
    exact,
    identity,
    never_exceeds,
    nonnegative,
)
from theory.glossary import parameter
from theory.rows import columns, listed, row
from theory.werner.common.algebra import same
from theory.werner.common.claims import reached
from theory.werner.common.instances import Instance
from theory.werner.common.laws import Discrete, skew2
from theory.werner.common.population_map import Mixture, move, settle

_EXPONENTS = np.linspace(0, 30, 3001)  # lambda of Chernoff's bound


class Sampled(NamedTuple):
    """An instance with n points in the cluster of N = n/delta; sigma = 1."""

    n: int | float
    share: int | float  # delta
    separation: int | float  # Delta
    radius: int | float  # tau
    bad: int | float = 0.0  # beta
    reach: float = 0.5  # eta: |v_0 - mu| <= eta tau

    @property
    def gap(self) -> float:
        """D = Delta - (1 + eta) tau, which a stranger in the ball is from its mean."""
        return float(self.separation - (1 + self.reach) * self.radius)

    @property
    def kept(self) -> float:
        """c = (1 + eta)/(1 + 2 eta), at most the share of the cluster in the ball."""
        return (1 + self.reach) / (1 + 2 * self.reach)

    @property
    def terms(self) -> tuple[float, float, float]:
        """What sampling, noise and strangers, and bad points make of the centre, in the
        root mean square."""
        near, gap = (1 - self.reach) * self.radius, self.gap
        sampling = 2 + self.radius / (math.sqrt(self.share) * gap)
        bias = 1 / near + self.radius / (self.share * gap**2)
        pull = self.bad * self.radius / self.share
        return (
            sampling / math.sqrt(self.n) / self.kept,
            bias / self.kept,
            pull / self.kept,
        )

    @property
    def chance(self) -> float:
        """Bound on P(the sample is unlike its law), by Chernoff: see `theorem1.md`."""
        power, reach = _EXPONENTS, self.reach
        rate = power * (reach - self.bad / self.share - 1 / self.radius)
        near = (1 - reach) * self.radius
        rate = rate - np.expm1((1 + 2 * reach) * power) / near**2
        rate = rate - np.expm1(power) / (self.share * self.gap**2)
        return math.exp(-self.n * float(np.max(rate)))

    def bound(self, distance: int | float, rounds: int | float) -> float:
        """Root mean square of |v_l - mu| from |v_0 - mu| <= `distance`."""
        left = (1 - self.kept * self.share) ** rounds * distance
        rare = (rounds + self.reach) * self.radius * math.sqrt(self.chance)
        return float(left + sum(self.terms) + rare)


def mean_square(one: Sampled, law: Discrete, start: float, rounds: int) -> float:
    """E|v_l - mu|^2 exactly, for noise of two atoms and strangers whose rare atom is in
    the ball, near its edge on the side to which bad points pull: by enumeration of how
    many of the cluster and of the others are at either atom."""
    total = round(float(one.n / one.share))
    bad = round(float(one.bad * total))
    number, others = int(one.n), total - int(one.n) - bad
    place = -0.99 * float(one.radius)
    far = float(one.separation) + place
    own, own_chances = _counts(number, float(law.chances[1]))
    stray, stray_chances = _counts(others, 1 / (1 + far**2))
    second, third = np.meshgrid(own, stray, indexing="ij")
    masses = np.stack([number - second, second, third], axis=-1) / total
    found = settle(
        Mixture(np.append(law.values, place), masses),
        np.full(second.shape, start),
        float(one.radius),
        num_rounds=rounds,
        push=-bad / total,
    )
    return float(own_chances @ found**2 @ stray_chances)


def _counts(
    number: int, chance: float
) -> tuple[Int[np.ndarray, " counts"], Float[np.ndarray, " counts"]]:
    """How many of `number` points are at an atom, and the chances of it; what is left
    out has a chance of less than 1e-15."""
    middle = number * chance
    width = 9 * math.sqrt(middle * (1 - chance)) + 40
    low, high = max(0.0, middle - width), min(float(number), middle + width)
    counts = np.arange(math.floor(low), math.ceil(high) + 1)
    chances = stats.binom.pmf(counts, number, chance)
    kept = chances > 1e-18
    return counts[kept], chances[kept]


def _rounds(one: Sampled) -> int:
    """Twice those of Theorem 1."""
    return Instance(float(one.share), float(one.separation)).num_rounds


def _theorems(
    number: int | float, share: float, factor: float, **rest: float
) -> Sampled:
    """An instance with Delta = `factor` sigma/delta and the radius of Theorem 1."""
    one = Instance(share, factor / share)
    return Sampled(number, share, one.separation, one.radius, **rest)


class Dominated(NamedTuple):
    """An instance in which one term is nearly all of the bound."""

    term: str
    instance: Sampled
    size: float  # of the noise, in tau
    attained: float  # share of the bound that is reached


# eta is as small as what remains allows.
_DOMINATED = (
    Dominated("sampling", Sampled(20_000, 0.5, 1e9, 1e4, 0.0, 0.05), 0.5, 0.4737),
    Dominated("noise", Sampled(3_000_000, 0.5, 1e9, 50.0, 0.0, 0.1), 1.003, 0.7825),
    Dominated("bad", Sampled(20_000, 0.5, 1e9, 1e5, 0.02, 0.1), 1.003, 0.9167),
)


def check_finite(preset: Preset, name: str, *, factor: float = 1.0) -> Verdict:
    """E|v_l - mu|^2, exactly, is at most the square of the bound, of which all but the
    start is taken `factor` times; and where one term is nearly all of it just the share
    that is known is reached."""
    shares = preset.choose(quick=(1 / 2, 1 / 8), full=(1 / 2, 1 / 8, 1 / 32))
    numbers = preset.choose(quick=(16, 1024), full=(8, 16, 64, 256, 1024, 4096))
    values, bounds, told = [], [], []
    for share, number, margin, relative, reach in itertools.product(
        shares, numbers, (96.0, 1600.0), (0.0, 1 / 16), (0.5, 0.25)
    ):
        one = _theorems(number, share, margin, bad=relative * share, reach=reach)
        rounds = _rounds(one)
        for size, start in itertools.product((0.6, 1.01), (0.0, reach)):
            law = skew2(size * float(one.radius), 1.0)
            distance = start * float(one.radius)
            values.append(mean_square(one, law, distance, rounds))
            started = (1 - one.kept * share) ** rounds * abs(distance)
            rest = one.bound(0.0, rounds)
            bounds.append(float(started + factor * rest))
            told.append(
                (number, share, one.separation, one.bad, reach, distance, law.values[1])
            )
    found, right = np.sqrt(values), np.array(bounds)
    below = never_exceeds(
        name,
        found,
        right,
        rounding=1e-9 * right,
        grade=Grade.EXACT,
        coordinates=columns(
            "members share separation malicious reach distance atom", told
        ),
    )
    ratios = [_reached(each) / factor for each in _DOMINATED]
    known = reached(name, ratios, [each.attained for each in _DOMINATED])
    detail = (
        f"{found.size} cells, $n = {numbers[0]}$ to {numbers[-1]}: root mean square "
        f"over bound up to {np.max(found / right):.3f}; where sampling, noise or bad "
        f"points are all: {listed(ratios, '.3f')}"
    )
    return combine(name, [below, known], detail=detail)


def _reached(each: Dominated) -> float:
    """Root mean square over bound, from the mean."""
    one = each.instance
    law = skew2(each.size * float(one.radius), 1.0)
    rounds = 60
    square = mean_square(one, law, 0.0, rounds)
    return float(np.sqrt(square) / one.bound(0.0, rounds))


_TERMS = (2, 1, 1, 1, 1)  # coefficients in the brackets of Theorem B, as they stand
_EXPONENT = (1, 1, 1, 1)  # those of beta, of the mean, and of both exponentials in psi


def _smaller(numbers: Sequence[int]) -> list[tuple[int | Fraction, ...]]:
    """The numbers with one of them less a hundredth, for each."""
    lower = [one - Fraction(1, 100) for one in numbers]
    return [
        (*numbers[:index], less, *numbers[index + 1 :])
        for index, less in enumerate(lower)
    ]


def prove_finite(
    far: int | Fraction = 2,
    terms: Sequence[int | Fraction] = _TERMS,
    moves: int | Fraction = 1,
    exponent: Sequence[int | Fraction] = _EXPONENT,
) -> list[Step]:
    r"""Written out in `theorem1.md`, Theorem B. For a sample let $m$ be the cluster's
    mean, $f$ the share of the cluster with $|z - \mu| > (1 - \eta) \tau$, $g$ the sum
    over the rest of it of $z - \mu$, over $n$, $T$ the sum of $|z - \mu|$ over the
    share $f$, over $n$, and $o$ the share in all $N = n/\delta$ points of strangers
    that are $D$ or more from their means. The sample is like its law if $|g| + (1 + 2
    \eta) \tau f + \tau (o + \beta)/\delta \le \eta \tau$.

    (i) Then $|v - \mu| \le \eta \tau$ in each round, by induction: what is in the ball
    of the cluster contains all that is counted in $g$, and beyond it at most $n f$
    points, each within $(1 + \eta) \tau$ of $\mu$. (ii) Therefore $f \le \eta/(1 + 2
    \eta)$ and $1 - f \ge c$. (iii) Hence $|v_l - \mu| \le (1 - c \delta)^l |v_0 - \mu|
    + (|m - \mu| + T + \tau (o + \beta)/\delta)/c$ in all rounds, as in Theorem A.

    (iv) Root mean squares. The mean of $k$ independent terms, each of a second moment
    of at most $s^2$, has a variance of at most $k (s/k)^2 = s^2/k$, and a root mean
    square of at most mean and deviation together, as $p^2 + d^2 \le (p + d)^2$. For
    $m$: mean 0, $s = \sigma$, $k = n$. For $T$: as $r \le r^2/t$ for $r \ge t$, the
    mean is at most $\sigma^2/((1 - \eta) \tau)$, and $s = \sigma$, $k = n$. For $o$: by
    Chebyshev's inequality the mean is at most $\sigma^2/D^2$, and $s = \sigma/D$, $k =
    N$. Minkowski's inequality adds them up.

    (v) If the sample is not like its law, $|v_l - \mu| \le (l + \eta) \tau$: at $l = 0$
    it is $\eta \tau$, and no round moves $v$ by more than $\tau$, the mean over all $N$
    points of at most $\tau$ each. The root mean square of $(l + \eta) \tau
    1\{\text{unlike}\}$ is $(l + \eta) \tau \sqrt{P}$.

    (vi) The chance $P$. $(n/\tau)(|g| + (1 + 2 \eta) \tau f)$ is at most the sum of
    $h(r)$ over the cluster, $r = |z - \mu|/\tau$, $h(r) = r$ up to $1 - \eta$ and $1 +
    2 \eta$ beyond. With $A = (\exp((1 + 2 \eta) x) - 1)/(1 - \eta)^2$, $\exp(x h(r))
    \le 1 + x r + A r^2$ for $x \ge 0$: for $r = (1 - \eta) w$, $w \le 1$, as the terms
    of $\exp(x r)$ from the second on, $(x (1 - \eta) w)^k/k$!, are at most $w^2 (x (1 -
    \eta))^k/k!$, which add up to less than $A r^2$; and beyond as $w \ge 1$. As $E r
    \le \sigma/\tau$, $E r^2 \le \sigma^2/\tau^2$ and $1 + y \le \exp(y)$, the mean over
    the cluster's $n$ points is at most $\exp(n (x \sigma/\tau + A \sigma^2/\tau^2))$,
    and $E \exp(x N o) \le \exp(N (\exp(x) - 1) \sigma^2/D^2)$. Chernoff's bound, at the
    $x$ that is best."""
    import sympy

    delta, beta, eta, f, g, o, e = sympy.symbols(
        "delta beta eta f g o e", positive=True
    )
    n, rounds, tau, sigma, gap = sympy.symbols("n l tau sigma D", positive=True)
    k, x, w, large, small = sympy.symbols("k x w E_1 E_2", positive=True)
    total, most = n / delta, eta / (1 + 2 * eta)
    near = (1 - eta) * tau
    found = [
        sigma / sympy.sqrt(n) + sigma / sympy.sqrt(n),  # of m and T
        tau / delta * sigma / (gap * sympy.sqrt(total)),
        sigma**2 / near,
        tau / delta * sigma**2 / gap**2,
        tau / delta * beta,
    ]
    claimed = [
        sigma / sympy.sqrt(n),
        tau / (sympy.sqrt(delta) * gap) * sigma / sympy.sqrt(n),
        sigma**2 / near,
        tau * sigma**2 / (delta * gap**2),
        beta * tau / delta,
    ]
    square = (large - 1) / (1 - eta) ** 2  # A; E_1 = exp((1 + 2 eta) x), E_2 = exp(x)
    chernoff = n * (x * sigma / tau + square * (sigma / tau) ** 2)
    chernoff += total * (small - 1) * (sigma / gap) ** 2 - x * (n * eta - total * beta)
    parts = [
        x * beta / delta,
        x * sigma / tau,
        (large - 1) * (sigma / near) ** 2,
        (small - 1) * sigma**2 / (delta * gap**2),
    ]
    psi = x * eta - sum(a * part for a, part in zip(exponent, parts, strict=True))
    after = (moves * (rounds + 1) + eta) * tau
    return [
        same(
            r"(i): $e' - \eta = \delta (g + (1 + 2 \eta) f + o - \eta)$ at $e = "
            r"\eta$, $\tau = 1$",
            (1 - delta * (1 - f)) * eta + delta * (g + (1 + eta) * f + o) - eta,
            delta * (g + (1 + far * eta) * f + o - eta),
        ),
        same(r"(ii): $1 - \eta/(1 + 2 \eta) = c$", 1 - most, (1 + eta) / (1 + 2 * eta)),
        same(
            r"(iii): $(1 - c \delta) r/c + \delta r = r/c$",
            (1 - delta * (1 - most)) * g / (1 - most) + delta * g,
            g / (1 - most),
        ),
        same("(iv): $k (s/k)^2 = s^2/k$", k * (sigma / k) ** 2, sigma**2 / k),
        same(
            "(iv): $(p + d)^2 - p^2 - d^2 = 2 p d$",
            (f + g) ** 2 - f**2 - g**2,
            2 * f * g,
        ),
        same("(iv): $r^2/t - r = r (r - t)/t$", e**2 / o - e, e * (e - o) / o),
        *(
            identity(f"(iv): term {number} of the sum", left - times * right)
            for number, (left, times, right) in enumerate(
                zip(found, terms, claimed, strict=True), 1
            )
        ),
        same(
            r"(v): $(l + \eta) \tau + \tau = (l + 1 + \eta) \tau$",
            (moves * rounds + eta) * tau + tau,
            after,
        ),
        same(
            r"(vi): $(n/\tau) \tau (o + \beta)/\delta = N o + N \beta$",
            n / tau * (tau * (o + beta) / delta),
            total * o + total * beta,
        ),
        identity(
            "(vi): near, $w^2 y^k - (w y)^k = w^2 y^k (1 - w^{k - 2})$",
            w**2 * f**k - (w * f) ** k - w**2 * f**k * (1 - w ** (k - 2)),
        ),
        same(
            r"(vi): beyond, $1 + A r^2 - \exp((1 + 2 \eta) x) = (w^2 - 1)(E_1 - 1)$",
            1 + square * ((1 - eta) * w) ** 2 - large,
            (w**2 - 1) * (large - 1),
        ),
        same("(vi): the exponent is -n psi", chernoff, -n * psi),
    ]


def check_path(preset: Preset, name: str, *, factor: float = 1.0) -> Verdict:
    """For drawn samples in a plane: where a sample is like its law, |v_l - mu| is below
    `factor` times the bound of the sample in every round, whatever the law; and the
    chance that a sample of two atoms is not, exactly, is below Chernoff's bound."""
    number = preset.choose(quick=300, full=20_000)
    generator, ratios, told = preset.generator(name), [], []
    for case, (share, n) in enumerate(itertools.product((0.5, 0.2), (10, 60))):
        one = _theorems(n, share, 150.0, bad=share / 20)
        noise = _heavy(generator, (number, round(n / share)), case % 2 == 0)
        places, total = noise.copy(), noise.shape[1]
        bad = round(float(one.bad) * total)
        places[:, n:] += one.separation
        masses = np.full(total, 1 / total)
        masses[total - bad :] = 0  # the last are those that pull from the edge
        starts = 0.5 * one.radius * np.exp(2j * np.pi * generator.random(number))
        ratio, good = _sample_ratios(one, places, noise, masses, starts, bad / total)
        ratios.append(ratio[good])
        told += [(n, share, draw) for draw in np.flatnonzero(good)]
    found = np.concatenate(ratios)
    path = never_exceeds(
        name,
        found,
        factor,
        rounding=1e-9,
        grade=Grade.SEARCHED,
        coordinates=columns("members share draw", told),
    )
    left, right, places = _unlike()
    rare = never_exceeds(
        name,
        left,
        factor * right,
        rounding=1e-12 * right,
        grade=Grade.EXACT,
        coordinates=places,
    )
    detail = (
        rf"{found.size} samples like their law: $|v_l - \mu|$ up to "
        f"{np.max(found):.3f} of their bound; the others' chance up to "
        f"{np.max(left / right):.3g} of its"
    )
    return combine(name, [path, rare], parts=["path", "chance"], detail=detail)


def _heavy(
    generator: np.random.Generator, shape: tuple[int, int], rare: bool
) -> Complex[np.ndarray, "trials points"]:
    """Noise in a plane with variance 1: Student's with 3 degrees of freedom, or a point
    at one of eight places about tau away, with the chance that its variance allows."""
    if not rare:
        scale = 1 / np.sqrt(6)
        parts = generator.standard_t(3, (2, *shape)) * scale
        return parts[0] + 1j * parts[1]
    size = generator.uniform(6.0, 16.0, (shape[0], 1))
    hit = generator.random(shape) < 1 / size**2
    turn = np.exp(2j * np.pi * generator.integers(0, 8, shape) / 8)
    return np.where(hit, size * turn, 0j)


def _sample_ratios(
    one: Sampled,
    places: Complex[np.ndarray, "trials points"],
    noise: Complex[np.ndarray, "trials points"],
    masses: Float[np.ndarray, " points"],
    starts: Complex[np.ndarray, " trials"],
    bad: float,
) -> tuple[Float[np.ndarray, " trials"], Bool[np.ndarray, " trials"]]:
    """Largest |v_l - mu| over the sample's own bound in 60 rounds, and whether the
    sample is like its law."""
    n, share, radius, reach = int(one.n), float(one.share), float(one.radius), one.reach
    own, total = noise[:, :n], places.shape[1]
    far = np.abs(own) > (1 - reach) * radius
    outer = np.mean(far, axis=1)
    inner = np.abs(np.mean(np.where(far, 0, own), axis=1))
    beyond = np.mean(np.where(far, np.abs(own), 0), axis=1)
    others = noise[:, n : total - round(bad * total)]
    strange = np.sum(np.abs(others) >= float(one.gap), axis=1) / total
    pull = radius * (strange + bad) / share
    good = inner + (1 + 2 * reach) * radius * outer + pull <= reach * radius
    rest = (np.abs(np.mean(own, axis=1)) + beyond + pull) / one.kept
    centres, worst = starts, np.zeros(len(starts))
    for step in range(1, 61):
        centres = move(Mixture(places, masses), centres, radius, push=bad)
        left = (1 - one.kept * share) ** step * np.abs(starts)
        worst = np.maximum(worst, np.abs(centres) / (left + rest))
    return worst, good


class _Unlike(NamedTuple):
    """Chances that a sample is unlike its law, their bounds, and where."""

    chances: Float[np.ndarray, " cases"]
    bounds: Float[np.ndarray, " cases"]
    coordinates: dict[str, Shaped[np.ndarray, " cases"]]


def _unlike() -> _Unlike:
    """By exact laws, for noise with a rare atom just beyond (1 - eta) tau and strangers
    without one."""
    left, right, told = [], [], []
    for number, factor, bad in itertools.product(
        (5, 10, 20, 40, 80), (50.0, 96.0, 400.0, 1600.0), (0.0, 1 / 24, 1 / 12)
    ):
        one = _theorems(number, 0.5, factor, bad=bad / 2)
        size = (1 - one.reach) * float(one.radius) * 1.0001
        chance = 1 / (1 + size**2)  # at size; the others at -1/size
        counts = np.arange(number + 1)
        outer, inner = counts / number, (1 - counts / number) / size
        over = inner + (1 + 2 * one.reach) * one.radius * outer
        limit = (one.reach - float(one.bad) / 0.5) * float(one.radius)
        left.append(np.sum(stats.binom.pmf(counts, number, chance)[over > limit]))
        right.append(float(one.chance))
        told.append((number, 0.5, one.separation, one.bad))
    places = columns("members share separation malicious", told)
    return _Unlike(np.array(left), np.array(right), places)


_C_DELTA, _RATE = 96.0, "0.912"  # Delta delta/sigma; chance to the power of 1/n


# One in which sampling, noise or bad points are nearly all; shares of the bound.
_RATES = (
    (Sampled(2000, 0.5, 1e8, math.sqrt(0.5e8)), 0.6, 0.0312),
    (_theorems(60_000, 0.5, 96.0), 1.03, 0.0302),
    (_theorems(60_000, 0.5, 1e6, bad=0.04), 0.6, 0.1250),
)


def check_rate(
    preset: Preset, name: str, *, constants: tuple[float, float, float] = (32, 32, 8)
) -> Verdict:
    """E|v_l - mu|^2, exactly, <= 32 sigma^2/n + 32 sigma^3/(delta Delta) + 8 beta^2
    sigma Delta/delta + 4 (l + 1/2)^2 tau^2 0.912^n after Theorem 1's rounds; and where
    one of the first three is nearly all just the share that is known is reached."""

    def sides(one: Sampled, size: float, start: float) -> tuple[float, float]:
        radius, rounds = float(one.radius), _rounds(one) // 2 + 1
        sampling, bias, pull = constants
        bound = sampling / float(one.n) + bias / radius**2
        bound += pull * (float(one.bad) / float(one.share) * radius) ** 2
        bound += 4 * ((rounds + 0.5) * radius) ** 2 * float(_RATE) ** float(one.n)
        law = skew2(size * radius, 1.0)
        return mean_square(one, law, start * radius, rounds), bound

    numbers = preset.choose(quick=(256, 1024), full=(256, 512, 1024, 16_384))
    pairs, told = [], []
    for share, number, margin, relative, start in itertools.product(
        (1 / 2, 1 / 8), numbers, (96.0, 3000.0), (0.0, 1 / 16), (0.0, 0.5)
    ):
        one = _theorems(number, share, margin, bad=relative * share)
        for size in (0.6, 1.02):
            pairs.append(sides(one, size, start))
            told.append((number, share, one.separation, one.bad, start, size))
    left, right = np.array(pairs).T
    below = never_exceeds(
        name,
        left,
        right,
        rounding=1e-9 * right,
        grade=Grade.EXACT,
        coordinates=columns("members share separation malicious start size", told),
    )
    alone = [sides(one, size, 0.0) for one, size, _ in _RATES]
    ratios = [found / bound for found, bound in alone]
    known = reached(name, ratios, [attained for *_, attained in _RATES])
    detail = (
        rf"{left.size} cells, $n = 256$ to {numbers[-1]}, $\Delta \delta/\sigma = 96$, "
        f"3000: error over bound up to {np.max(left / right):.4f}; where sampling, "
        f"noise or bad points are all: {listed(ratios, '.4f')}"
    )
    return combine(name, [below, known], detail=detail)


def prove_rate(constants: tuple[str, str, str] = ("32", "32", "8")) -> list[Step]:
    r"""Theorem B (werner.thm1.finite) at $\eta = 1/2$, $c = 3/4$, with $\tau^2 = \delta
    \sigma \Delta$, $\sigma = 1$, $\kappa = 1/\Delta = w \delta/96$ for some $w \in [0,
    1]$, $\beta \le \delta/12$, and $s = 1/\sqrt{n}$, $b = 1/\tau$. Written out in
    `theorem1.md`, Corollary.

    (i) $D/\Delta = 1 - 1.5 \sqrt{\delta \kappa}$, positive. (ii) Sampling: $(4/3)(2 +
    \sqrt{\kappa} \Delta/D) s$, 4 times the square of which is at most $32 s^2$. (iii)
    Start: as $1 - 3 \delta/4 \le (1 - \delta/2)^{3/2}$, Theorem 1's rounds leave at
    most $\kappa^{3/2} \tau/2 = \delta \sqrt{\kappa} b/2$. Start and bias together:
    $(4/3)(2 + \kappa \Delta^2/D^2) b + \delta \sqrt{\kappa} b/2$, 4 times its square at
    most $32 b^2$. (iv) Bad points: $4 (16/9) \le 8$. (v) Chance: at $\lambda = 0.66$
    the exponent is at least $-\log 0.912$, for $x = \sigma/\tau \le 1/\sqrt{96}$,
    $1/(\delta D^2) = \delta (\kappa/\delta)^2 (\Delta/D)^2$ and $\beta/\delta \le
    1/12$. The square of a sum of four is at most 4 times the sum of the squares."""
    import flint
    import sympy

    sampling, bias, pull = constants
    delta = sympy.Symbol("delta", positive=True)
    # d = sqrt(delta), and y = sqrt(w): kappa = (d y)^2/96, sigma/tau = y/sqrt 96.
    box: dict[str, Any] = {"d": (0, 1), "y": (0, 1)}
    root = lambda y: y / flint.arb(96).sqrt()
    near = lambda d, y: 1 - 3 * d**2 * root(y) / 2  # D/Delta

    def biased(d: Any, y: Any) -> Any:
        small = d * root(y)  # sqrt(kappa)
        most = 4 * (2 + small**2 / near(d, y) ** 2) / 3 + d**2 * small / 2
        return flint.arb(bias) - 4 * most**2

    def exponent(d: Any, y: Any) -> Any:
        power, x = flint.arb("0.66"), root(y)
        rate = power * (flint.arb(5) / 12 - x) - 4 * x**2 * ((2 * power).exp() - 1)
        strange = d**2 * root(y) ** 4 / near(d, y) ** 2
        return rate - strange * (power.exp() - 1) + flint.arb(_RATE).log()

    return [
        nonnegative("(i) $D > 0$", near, box, strict=True),
        nonnegative(
            r"(ii) $4 (4/3)^2 (2 + \sqrt{\kappa} \Delta/D)^2 \le 32$",
            lambda d, y: (
                flint.arb(sampling) - 64 * (2 + d * root(y) / near(d, y)) ** 2 / 9
            ),
            box,
        ),
        same(
            r"(iii) $(1 - \delta/2)^3 - (1 - 3 \delta/4)^2 = \delta^2 (3 - 2 "
            r"\delta)/16$",
            (1 - delta / 2) ** 3 - (1 - 3 * delta / 4) ** 2,
            delta**2 * (3 - 2 * delta) / 16,
        ),
        nonnegative(
            r"(iii) $4 ((4/3)(2 + \kappa (\Delta/D)^2) + \delta \sqrt{\kappa}/2)^2 "
            r"\le 32$",
            biased,
            box,
        ),
        nonnegative(
            r"(iv) $64/9 \le 8$", lambda: flint.arb(pull) - flint.arb(64) / 9, {}
        ),
        nonnegative(r"(v) the exponent is at least $-\log 0.912$", exponent, box),
    ]


def _sampled(
    members: int | float,
    share: int | float,
    separation: int | float,
    malicious: int | float,
) -> Sampled:
    return Sampled(members, share, separation, math.sqrt(share * separation), malicious)


_LAW = 1.01  # s/tau of the noise that a truth is told for


def _exact_root(
    members: int | float,
    share: int | float,
    separation: int | float,
    noise: int | float,
    malicious: int | float,
    rounds: int | float,
) -> float:
    """Root mean square, in units of the noise, for the law of the check."""
    one = _sampled(members, share, separation / noise, malicious)
    law = skew2(_LAW * float(one.radius), 1.0)
    return noise * math.sqrt(mean_square(one, law, 0.0, int(rounds)))


_PARAMETERS = (
    parameter("members", 512),
    parameter("share", 0.25),
    parameter("separation", 400.0, open=True),
    parameter("noise", 1.0, open=True),
    parameter("malicious", 0.0),
    parameter("rounds", 45, "rounds of Threshold-Clustering", least=1),
)


def _margins(
    members: int | float,
    share: int | float,
    separation: int | float,
    noise: int | float,
    malicious: int | float,
    rounds: int | float,
) -> tuple[Margin, ...]:
    least = Instance(share, max(separation / noise, 1.0)).least_rounds
    return (
        Margin(
            r"werner.thm1.finite.rate: $\Delta \ge 96 \sigma/\delta_i$",
            separation,
            _C_DELTA * noise / share,
        ),
        Margin(
            r"werner.thm1: $\beta_i \le \delta_i/12$",
            malicious,
            share / 12,
            at_least=False,
        ),
        Margin(
            r"werner.thm1: $l \ge \log(\Delta/\sigma)/|\log(1 - \delta_i/2)|$",
            float(rounds),
            least,
        ),
    )


_GENERAL = Evaluation(
    quantity=r"$(E|v_l - E z_i|^2)^{1/2}$, $v_0 = E z_i$, $\tau = \sqrt{\delta_i "
    r"\sigma \Delta}$",
    parameters=_PARAMETERS,
    bound=lambda members, share, separation, noise, malicious, rounds: float(
        noise
        * _sampled(members, share, separation / noise, malicious).bound(0.0, rounds)
    ),
    truth=lambda **at: exact(_exact_root(**at)),
    margins=lambda **at: (
        Margin(
            r"$D = \Delta - 1.5 \tau > 0$",
            at["separation"] / at["noise"],
            1.5 * math.sqrt(at["share"] * at["separation"] / at["noise"]),
        ),
    ),
    note=r"exact for noise 0 or $1.01 \tau$ and strangers near the edge of the ball",
)
_CERTIFIED = Evaluation(
    quantity=r"$E|v_l - E z_i|^2$, $v_0 = E z_i$, $\tau = \sqrt{\delta_i \sigma "
    r"\Delta}$",
    parameters=_PARAMETERS,
    bound=lambda members, share, separation, noise, malicious, rounds, **constants: (
        constants["C_n"] * noise**2 / members
        + constants["C_bias"] * noise**3 / (share * separation)
        + constants["C_bad"] * malicious**2 * noise * separation / share
        + 4 * (rounds + 0.5) ** 2 * share * noise * separation * float(_RATE) ** members
    ),
    truth=lambda **at: exact(_exact_root(**at) ** 2),
    margins=_margins,
    constants={
        "C_n": Constant(32.0, 1.0, 32.0, "proved; 1 is needed"),
        "C_bias": Constant(32.0, 1.0, 32.0, "proved; 1 is needed"),
        "C_bad": Constant(8.0, 1.0, 8.0, "proved; 1 is needed"),
    },
    note=r"exact for noise 0 or $1.01 \tau$ and strangers near the edge of the ball",
)

_finite = partial(row, place="Theorem 1, equation (2)")
_ANY_LAW = (
    r"independent points, the same in each round; $\beta_i N$ points do what they "
    "like",
    r"total variance at most $\sigma^2$ in each cluster, means $\Delta$ or more from "
    "$E z_i$",
)

STATEMENTS = (
    _finite(
        id="werner.thm1.finite",
        text=r"$(E|v_l - E z_i|^2)^{1/2} \le (1 - c \delta_i)^l r + ((2 + "
        r"\tau/(\sqrt{\delta_i} D)) \sigma/\sqrt{n_i} + \sigma^2/((1 - \eta) "
        r"\tau) + \tau \sigma^2/(\delta_i D^2) + \beta_i \tau/\delta_i)/c + (l + "
        r"\eta) \tau \sqrt{P}$, $c = (1 + \eta)/(1 + 2 \eta)$, $D = \Delta - (1 + "
        r"\eta) \tau$, $P = \exp(-n_i \max_{x \ge 0} [x (\eta - \beta_i/\delta_i - "
        r"\sigma/\tau) - (e^{(1 + 2 \eta) x} - 1) (\sigma/((1 - \eta) \tau))^2 - "
        r"(e^x - 1) \sigma^2/(\delta_i D^2)])$",
        preconditions=(
            *_ANY_LAW,
            r"$|v_0 - E z_i| \le r \le \eta \tau$, also where $v_0$ depends on the "
            "points",
            r"$0 < \eta < 1$, $D > 0$",
        ),
        check=check_finite,
        control={"factor": 0.5},
        proof=prove_finite,
        proof_control=(
            {"far": Fraction(199, 100)},
            {"moves": Fraction(99, 100)},
            *({"terms": each} for each in _smaller(_TERMS)),
            *({"exponent": each} for each in _smaller(_EXPONENT)),
        ),
        evaluation=_GENERAL,
        note="Theorem 1 with its sampling term, for each $n_i$ and law. $P$ is the "
        "chance of a sample with too many far points; with fresh points in each "
        "round $l P$ takes its place. Against the exact law with two atoms; where "
        "sampling, noise or bad points are nearly all, 0.47, 0.78 and 0.92 of the "
        "bound are reached. The control has half of it.",
    ),
    _finite(
        id="werner.thm1.finite.rate",
        text=r"$E|v_l - E z_i|^2 \le 32 (\sigma^2/n_i + \sigma^3/(\delta_i \Delta)) + "
        r"8 \beta_i^2 \sigma \Delta/\delta_i + 4 (l + 1/2)^2 \delta_i \sigma \Delta "
        r"\cdot 0.912^{n_i}$",
        preconditions=(
            *_ANY_LAW,
            r"$|v_0 - E z_i| \le \tau/2$, $\tau = \sqrt{\delta_i \sigma \Delta}$",
            r"$\Delta \ge 96 \sigma/\delta_i$, $\beta_i \le \delta_i/12$",
            r"$l \ge \log(\Delta/\sigma)/|\log(1 - \delta_i/2)|$, of Theorem 1",
        ),
        constants={"C_Delta": _C_DELTA, "C_beta": 12.0, "C": 32.0, "C_bad": 8.0},
        check=check_rate,
        control={"constants": (0.9, 0.9, 0.9)},
        proof=prove_rate,
        proof_control=[
            {"constants": each}
            for each in (("31", "32", "8"), ("32", "29", "8"), ("32", "32", "7"))
        ],
        evaluation=_CERTIFIED,
        note=r"What (2) should say: with $v_0$ near the mean, $1/\delta_i$, "
        r"$\beta_i^2/\delta_i$ for $\beta_i$, and a term that falls exponentially in "
        "$n_i$. Where sampling, noise or bad points are nearly all, 0.031, 0.030 and "
        "0.125 of the bound are reached: it is loose by 32, 33 and 8 on these laws, "
        "werner.thm1.finite by less. The control has 0.9 for all three constants.",
    ),
    _finite(
        id="werner.thm1.finite.path",
        text=r"for each sample with $|g| + (1 + 2 \eta) \tau f + \tau (o + "
        r"\beta_i)/\delta_i \le \eta \tau$: $|v_l - E z_i| \le (1 - c \delta_i)^l "
        r"|v_0 - E z_i| + (|m - E z_i| + T + \tau (o + \beta_i)/\delta_i)/c$ for all "
        "$l$; the chance of any other is at most $P$",
        preconditions=(
            *_ANY_LAW,
            r"$m$ the cluster's mean, $f$ its share with $|z - E z_i| > (1 - \eta) "
            r"\tau$, $T$ and $g$ the sums of $|z - E z_i|$ over it and of $z - E z_i$ "
            "over the rest, over $n_i$",
            "$o$ the share in all points of strangers $D$ or more from their means",
            r"$|v_0 - E z_i| \le \eta \tau$",
        ),
        check=check_path,
        control={"factor": 0.5},
        note="No expectation: true of each sample, seen on Student's noise and on rare "
        "atoms, in a plane with bad points, and exact for the chance. The control has "
        "half of both bounds.",
    ),
)
