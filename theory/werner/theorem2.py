"""Theorem 2: no algorithm can tell two mixtures with the same points apart.

M mixes delta Bernoulli(p) and delta Bernoulli(1 - p), M~ mixes 0 and delta: both are 0
or delta with probability 1/2. Whatever an algorithm answers for the first mean, 0 or
delta p, one of the squared errors is at least (delta p)^2/4 in the mean.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from cfljax.statements import Preset, Statement, Status, Verdict, combine, never_exceeds
from theory.rows import row
from theory.werner.common.claims import exactly, one_constant
from theory.werner.common.instances import Instance
from theory.werner.common.population_map import Mixture, settle


class Laws(NamedTuple):
    """What an algorithm is told; sigma = 1."""

    separation: float  # Delta
    size: float  # delta = sqrt(4 + Delta^2), the upper atom
    chance: float  # p = 1/2 - Delta/(2 delta)

    @property
    def least_risk(self) -> float:
        """(S - Delta)^2/16, S = delta."""
        return (self.size - self.separation) ** 2 / 16


def laws_apart(separation: float) -> Laws:
    """The pair of laws with means `separation` apart."""
    size = float(np.hypot(2, separation))
    # p without cancellation.
    return Laws(separation, size, 2 / (size * (size + separation)))


Answers = Float[np.ndarray, " counts"]
Algorithm = Callable[[Laws, Answers], Answers]


def _expectation_maximisation(laws: Laws, ones: Answers) -> Answers:
    """Mean of the lower of two normal components of variance sigma^2, equal weights."""
    low, high = np.zeros_like(ones), np.full_like(ones, laws.size)
    for _ in range(30):
        middle, gap = (low + high) / 2, high - low
        weights = [1 / (1 + np.exp(gap * (x - middle))) for x in (0.0, laws.size)]
        masses = np.stack([(1 - ones) * weights[0], ones * weights[1]])
        rest = np.stack([1 - ones, ones]) - masses
        # A component that holds nobody stays at 0.
        tiny = np.finfo(float).tiny
        low = laws.size * masses[1] / np.maximum(np.sum(masses, axis=0), tiny)
        high = laws.size * rest[1] / np.maximum(np.sum(rest, axis=0), tiny)
    return low


def _threshold(laws: Laws, ones: Answers, *, wide: bool) -> Answers:
    """Threshold-Clustering from 0 with Theorem 1's radius, or sqrt(delta_i) Delta/2."""
    one = Instance(0.5, max(float(laws.separation), 2.0))
    radius = np.sqrt(0.5) * one.separation / 2 if wide else one.radius
    points = Mixture(
        np.broadcast_to(np.array([0.0, laws.size]), (len(ones), 2)),
        np.stack([1 - ones, ones], axis=-1),
    )
    return settle(points, np.zeros(len(ones)), float(radius), num_rounds=one.num_rounds)


ALGORITHMS: dict[str, Algorithm] = {
    "mean": lambda laws, ones: laws.size * ones,
    "median": lambda laws, ones: (
        laws.size * np.where(ones > 0.5, 1.0, np.where(ones < 0.5, 0.0, 0.5))
    ),
    # Two atoms: the centres are the atoms, unless all points are alike.
    "2-means": lambda laws, ones: laws.size * (ones == 1),
    "EM": _expectation_maximisation,
    "Threshold-Clustering": partial(_threshold, wide=False),
    "Threshold-Clustering, wide": partial(_threshold, wide=True),
    "half-way": lambda laws, ones: np.full_like(ones, laws.size * laws.chance / 2),
}


def check_minimax(preset: Preset, name: str, *, factor: float = 1.0) -> Verdict:
    """(S - Delta)^2/16 <= the larger of both risks, on the same draws for both, of
    algorithms that know delta, p and which centre is the first."""
    risks, bounds, names = [], [], []
    for index, separation in enumerate((1.5, 2.0, 4.0, 8.0, 32.0)):
        laws = laws_apart(separation)
        for number in (10, 100, 10_000):
            generator = preset.generator(name, index, number)
            draws = preset.choose(quick=200, full=20_000)
            ones = generator.binomial(number, 0.5, draws) / number
            for label, algorithm in ALGORITHMS.items():
                answers = algorithm(laws, ones)
                truth = laws.size * laws.chance
                risks.append(max(np.mean((answers - truth) ** 2), np.mean(answers**2)))
                bounds.append(laws.least_risk)
                names.append(label)
    larger, least = np.array(risks), np.array(bounds)
    best = names[int(np.argmin(larger / least))]
    return never_exceeds(
        name,
        factor * least,
        larger,
        rounding=1e-12 * least,  # S - Delta loses two digits
        detail=f"{len(least)} cells, {len(ALGORITHMS)} algorithms: larger risk at "
        f"least {np.min(larger / least):.4f} times (S - Delta)^2/16, {best}",
    )


def check_samples(name: str) -> Verdict:
    """sigma^2/(4 n) <= risk of the best answer to two normal laws 2 sigma/sqrt(n)
    apart, by quadrature, and hence of any answer to one of them."""
    grid, step = np.linspace(-12, 12, 4801, retstep=True)
    # In units of sigma/sqrt(n), the means at -1 and 1.
    density = np.exp(-((grid - 1) ** 2) / 2) / np.sqrt(2 * np.pi)
    mirrored = density[::-1]
    total = density + mirrored
    unsure = np.where(total > 0, density * mirrored / np.maximum(total, 1e-300), 0)
    best = 4 * float(np.sum(unsure / 2) * step)
    numbers = 2.0 ** np.arange(2, 9)
    detail = f"n = 4 to 256: the best answer's risk is {best:.4f} sigma^2/n"
    return never_exceeds(
        name, 0.25 / numbers, best / numbers, rounding=1e-12 / numbers, detail=detail
    )


def check_theorem(preset: Preset, name: str, *, factor: float = 1.0) -> Verdict:
    """Both lower bounds; their larger one is at least half of their sum."""
    parts = [check_minimax(preset, name, factor=factor), check_samples(name)]
    return combine(name, parts, detail="; ".join(part.detail for part in parts))


def check_factor(_: Preset, name: str, *, power: float) -> Verdict:
    """(2) over 16 times the bound of Theorem 2 is at most C (Delta/sigma)^power, with
    none bad and n infinite."""
    separations = 24.0 * 2.0 ** np.arange(8)
    upper = np.array([Instance(0.5, float(one)).printed() for one in separations])
    lower = np.array([16 * laws_apart(float(one)).least_risk for one in separations])
    family = exactly("Delta", separations, upper / lower / separations**power)
    return one_constant(name, [family], constant=2.0, detail=f"power {power:g}")


_factor = partial(
    row,
    place="Section 3.1.2",
    preconditions=("beta_i = 0, n_i large, Delta >= 24 sigma",),
    constants={"C": 2.0},
)

_BOUND = (
    row(
        id="werner.thm2",
        place="Theorem 2",
        text="for any algorithm there is a mixture with E|mu_1^ - mu_1|^2 >= c "
        "(sigma^4/Delta^2 + sigma^2/n_i)",
        preconditions=(
            "the points are unlabelled: v_0 = z_i would cost a factor 1 - p",
            "component variances at most sigma^2, not equal to it: M~ has none",
        ),
        constants={"c": 1 / 32, "sigma^4/Delta^2": 1 / 16, "sigma^2/n_i": 1 / 4},
        check=check_theorem,
        control={"factor": 1.01},
        note="True with c = 1/32, though not for the reason that is printed. The two "
        "terms come from different mixtures: the larger is at least half of the sum. "
        "Answering delta p/2 attains the bound; the control claims 1.01 of it.",
    ),
    _factor(
        id="werner.thm2.factor",
        text="(2) is tight within a factor of sigma/Delta: upper <= C (sigma/Delta) "
        "lower bound",
        expected=Status.VIOLATED,
        check=partial(check_factor, power=-1.0),
        control={"power": 0.5},
        note="(sigma^3/Delta)/(sigma^4/Delta^2) = Delta/sigma: turned upside down, and "
        "it grows with the separation. An upper bound below the lower one would "
        "contradict Theorem 2. The control claims sqrt(Delta/sigma).",
    ),
    _factor(
        id="werner.thm2.factor.corrected",
        text="(2) is tight within a factor of Delta/sigma",
        check=partial(check_factor, power=1.0),
        control={"power": 0.8},
        note="The gap is of the radius, see werner.thm1.tauopt. The control claims "
        "(Delta/sigma)^0.8.",
    ),
)


# k of Delta = 0.049, 0.24, 0.58, 0.70724 > sqrt(1/2), 1.41440 > sqrt(2), 1.5, ... 1000.
_SMALL = (Fraction(41, 40), Fraction(9, 8), Fraction(4, 3), Fraction(14_143, 10_000))
_LEVELS = (*_SMALL, Fraction(1932, 1000), *map(Fraction, (2, 4, 8, 32, 1000)))
_EXACT = 1e-300  # rounding, where nothing is rounded


class Pair(NamedTuple):
    """The two laws of the proof for sigma = 1."""

    separation: Fraction  # Delta
    root: Fraction  # S

    @property
    def chance(self) -> Fraction:
        """p, as (12) has it."""
        return Fraction(1, 2) - self.separation / (2 * self.root)

    @property
    def size(self) -> Fraction:
        """delta, the upper atom: what (10) makes of p."""
        return self.separation / (1 - 2 * self.chance)

    @property
    def least_risk(self) -> Fraction:
        """delta^2 p^2/4."""
        return (self.size * self.chance) ** 2 / 4

    @property
    def means(self) -> tuple[Fraction, Fraction]:
        """E D_1 and E D_2."""
        return self.size * self.chance, self.size * (1 - self.chance)

    @property
    def variances(self) -> tuple[Fraction, Fraction]:
        """Of D_1 and D_2, about their means."""
        first, second = self.means
        low, high = self.chance, 1 - self.chance
        return (
            low * (self.size - first) ** 2 + high * first**2,
            high * (self.size - second) ** 2 + low * second**2,
        )


def pair(level: Fraction) -> Pair:
    """The laws with Delta = k - 1/k; k > 1."""
    return Pair(level - 1 / level, level + 1 / level)


Sides = Callable[[Pair], tuple[Fraction | int, Fraction]]


def check_identity(
    _: Preset, name: str, *, sides: Sequence[Sides], factor: Fraction = Fraction(1)
) -> Verdict:
    """|left - `factor` right|/left = 0, for ten Delta."""
    gaps = []
    for level in _LEVELS:
        for each in sides:
            left, right = each(pair(level))
            gaps.append(float(abs(left - factor * right) / left))
    values = np.array(gaps)
    detail = (
        f"Delta/sigma = 0.05 to 1000, in fractions: relative gap up to "
        f"{np.max(values):.3g}"
    )
    return never_exceeds(name, values, 0.0, rounding=_EXACT, detail=detail)


def check_lower(
    _: Preset, name: str, *, constant: Fraction, levels: Sequence[Fraction] = _LEVELS
) -> Verdict:
    """C sigma^4/Delta^2 <= delta^2 p^2/4, for ten Delta or those that are given."""
    laws = [pair(level) for level in levels]
    excess = [constant / one.separation**2 - one.least_risk for one in laws]
    ratios = [float(one.least_risk * one.separation**2) for one in laws]
    return never_exceeds(
        name,
        np.array([float(one) for one in excess]),
        0.0,
        rounding=_EXACT,
        detail=f"Delta from {float(laws[0].separation):.5f} sigma: delta^2 p^2/4 is "
        f"{min(ratios):.5f} to {max(ratios):.5f} times sigma^4/Delta^2, claimed "
        f"{float(constant):g}",
    )


def check_root(preset: Preset, name: str, *, least: float = 0.0) -> Verdict:
    """sqrt(1 + x) >= 1 + x/2 - x^2/8 from `least` to 10^6."""
    number = preset.choose(quick=2001, full=200_001)
    grid = np.concatenate([np.linspace(least, 8, number), np.geomspace(8, 1e6, number)])
    right = 1 + grid / 2 - grid**2 / 8
    return never_exceeds(
        name,
        right,
        np.sqrt(1 + grid),
        rounding=1e-15 * (1 + np.abs(right)),
        detail=f"{grid.size} x from {least:g} to 10^6",
    )


def _equation(
    name: str, place: str, text: str, *sides: Sides, note: str = ""
) -> Statement:
    return row(
        id=name,
        place=place,
        text=text,
        preconditions=("0 < p < 1/2 and sigma, Delta > 0",),
        check=partial(check_identity, sides=sides),
        control={"factor": 1 + Fraction(1, 10**12)},
        note=f"{note} The control is off by 10^-12.".strip(),
    )


_ALGEBRA = (
    _equation(
        "werner.eq10",
        "Theorem 2, equation (10)",
        "Delta = (1 - p) delta - p delta = (1 - 2p) delta",
        lambda laws: (laws.separation, laws.means[1] - laws.means[0]),
    ),
    _equation(
        "werner.eq11",
        "Theorem 2, equation (11)",
        "sigma^2 = delta^2 p (1 - p)",
        lambda laws: (1, laws.variances[0]),
        lambda laws: (1, laws.variances[1]),
        lambda laws: (1, laws.size**2 * laws.chance * (1 - laws.chance)),
        note="Both variances about the mean, with delta from (10) and p from (12).",
    ),
    _equation(
        "werner.eq12",
        "Theorem 2, equation (12)",
        "p = 1/2 - Delta/(2 sqrt(4 sigma^2 + Delta^2)) solves (4 sigma^2 + Delta^2) "
        "(p - p^2) = sigma^2",
        lambda laws: (1, (4 + laws.separation**2) * (laws.chance - laws.chance**2)),
    ),
    _equation(
        "werner.eq13",
        "Theorem 2, equation (13)",
        "delta^2 p^2/4 = sigma^2 p^2/(4 p (1 - p)) = sigma^2 p/(4 (1 - p))",
        lambda laws: (laws.least_risk, laws.chance / (4 * (1 - laws.chance))),
        note="The next line of the paper is wrong, see werner.thm2.printed.",
    ),
    row(
        id="werner.thm2.printed",
        place="Theorem 2, after equation (13)",
        text="delta^2 p^2/4 = (sigma^2/4) (sqrt(4 sigma^2 + Delta^2) - Delta)/Delta",
        preconditions=("sigma, Delta > 0",),
        expected=Status.VIOLATED,
        check=partial(
            check_identity,
            sides=(
                lambda laws: (
                    laws.least_risk,
                    (laws.root - laws.separation) / (4 * laws.separation),
                ),
            ),
        ),
        control={"factor": Fraction(1, 2)},
        note="p/(1 - p) = (S - Delta)/(S + Delta): the denominator became Delta, which "
        "is more than twice too much for every Delta. The control has half of it.",
    ),
    _equation(
        "werner.thm2.printed.corrected",
        "Theorem 2, after equation (13)",
        "delta^2 p^2/4 = (S - Delta)^2/16 with S = sqrt(4 sigma^2 + Delta^2)",
        lambda laws: (laws.least_risk, (laws.root - laws.separation) ** 2 / 16),
    ),
    row(
        id="werner.thm2.lower",
        place="Theorem 2, last display but one",
        text="delta^2 p^2/4 >= sigma^4/(4 Delta^2) for Delta^2 >= 2 sigma^2",
        preconditions=("sigma, Delta > 0 and Delta^2 >= 2 sigma^2",),
        expected=Status.VIOLATED,
        check=partial(check_lower, constant=Fraction(1, 4), levels=_LEVELS[4:]),
        control={"constant": Fraction(1, 5)},
        note="False for every Delta: S - Delta = 4 sigma^2/(S + Delta) < 2 "
        "sigma^2/Delta. The control claims 1/5, which is false for the first Delta.",
    ),
    row(
        id="werner.thm2.lower.corrected",
        place="Theorem 2, last display but one",
        text="delta^2 p^2/4 >= sigma^4/(16 Delta^2) for Delta^2 >= sigma^2/2",
        preconditions=("sigma, Delta > 0 and Delta^2 >= sigma^2/2",),
        check=partial(check_lower, constant=Fraction(1, 16), levels=_LEVELS[3:]),
        control={"levels": (Fraction(14_095, 10_000),)},
        note="Delta^2 >= 2 sigma^2 of the paper is more than enough, and gives 0.134 "
        "sigma^4/Delta^2. The control has Delta = 0.70003 sigma.",
    ),
    row(
        id="werner.thm2.root",
        place="Theorem 2, after equation (13)",
        text="sqrt(1 + x) >= 1 + x/2 - x^2/8 for x in [0, 8]",
        preconditions=("x from 0 to 8",),
        check=check_root,
        control={"least": -0.5},
        note="For all x >= 0: the third derivative is positive. The restriction is not "
        "needed. The control begins at -0.5.",
    ),
)

STATEMENTS = (*_BOUND, *_ALGEBRA)
