"""Theorem 2: no algorithm can tell two mixtures with the same points apart.

M mixes delta Bernoulli(p) and delta Bernoulli(1 - p), M~ mixes 0 and delta: both are 0
or delta with probability 1/2. Whatever an algorithm answers for the first mean, 0 or
delta p, one of the squared errors is at least (delta p)^2/4 in the mean.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from theory.judges import never_exceeds
from theory.statement import Preset, Statement
from theory.verdict import Status, Verdict, combine
from theory.werner.hidden_constants import exactly, one_constant
from theory.werner.population_map import Mixture, settle
from theory.werner.theorem1_setting import Instance

__all__ = [
    "ALGORITHMS",
    "STATEMENTS",
    "Laws",
    "check_factor",
    "check_minimax",
    "check_samples",
    "laws_apart",
]

MINIMAX, FACTOR = "werner.thm2", "werner.thm2.factor"


class Laws(NamedTuple):
    """What an algorithm is told; sigma = 1.

    separation: Delta.
    size: delta = sqrt(4 + Delta^2), the upper atom.
    chance: p = 1/2 - Delta/(2 delta).
    """

    separation: float
    size: float
    chance: float

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


def _mean(laws: Laws, ones: Answers) -> Answers:
    return laws.size * ones


def _median(laws: Laws, ones: Answers) -> Answers:
    return laws.size * np.where(ones > 0.5, 1.0, np.where(ones < 0.5, 0.0, 0.5))


def _two_means(laws: Laws, ones: Answers) -> Answers:
    # Two atoms: the centres are the atoms, unless all points are alike.
    return laws.size * (ones == 1)


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
    start = np.zeros(len(ones))
    return settle(points, start, float(radius), num_rounds=one.num_rounds)


def _half_way(laws: Laws, ones: Answers) -> Answers:
    return np.full_like(ones, laws.size * laws.chance / 2)


ALGORITHMS: dict[str, Algorithm] = {
    "mean": _mean,
    "median": _median,
    "2-means": _two_means,
    "EM": _expectation_maximisation,
    "Threshold-Clustering": functools.partial(_threshold, wide=False),
    "Threshold-Clustering, wide": functools.partial(_threshold, wide=True),
    "half-way": _half_way,
}


def check_minimax(preset: Preset, *, factor: float = 1.0) -> Verdict:
    """(S - Delta)^2/16 <= the larger of both risks, on the same draws for both.

    All algorithms know delta, p and which centre is the first; answers depend on the
    share of points that are delta.
    """
    risks, bounds, names = [], [], []
    for index, separation in enumerate((1.5, 2.0, 4.0, 8.0, 32.0)):
        laws = laws_apart(separation)
        for number in (10, 100, 10_000):
            generator = preset.generator(MINIMAX, index, number)
            draws = preset.choose(quick=200, full=20_000)
            ones = generator.binomial(number, 0.5, draws) / number
            for name, algorithm in ALGORITHMS.items():
                answers = algorithm(laws, ones)
                truth = laws.size * laws.chance
                risk = max(np.mean((answers - truth) ** 2), np.mean(answers**2))
                risks.append(risk)
                bounds.append(laws.least_risk)
                names.append(name)
    larger, least = np.array(risks), np.array(bounds)
    best = names[int(np.argmin(larger / least))]
    return never_exceeds(
        MINIMAX,
        factor * least,
        larger,
        rounding=1e-12 * least,  # S - Delta loses two digits
        detail=f"{len(least)} cells, {len(ALGORITHMS)} algorithms: larger risk at "
        f"least {np.min(larger / least):.4f} times (S - Delta)^2/16, {best}",
    )


def check_samples(preset: Preset, *, factor: float = 0.25) -> Verdict:
    """`factor` sigma^2/n <= risk of the best answer to two normal laws 2 sigma/sqrt(n)
    apart, by quadrature, and hence of any answer to one of them."""
    del preset
    grid, step = np.linspace(-12, 12, 4801, retstep=True)
    # In units of sigma/sqrt(n), the means at -1 and 1.
    density = np.exp(-((grid - 1) ** 2) / 2) / np.sqrt(2 * np.pi)
    mirrored = density[::-1]
    total = density + mirrored
    unsure = np.where(total > 0, density * mirrored / np.maximum(total, 1e-300), 0)
    best = 4 * float(np.sum(unsure / 2) * step)
    numbers = 2.0 ** np.arange(2, 9)
    return never_exceeds(
        MINIMAX,
        factor / numbers,
        best / numbers,
        rounding=1e-12 / numbers,
        detail=f"n = 4 to 256: the best answer's risk is {best:.4f} sigma^2/n",
    )


def check_theorem(preset: Preset, *, factor: float = 1.0) -> Verdict:
    """Both lower bounds; their larger one is at least half of their sum."""
    parts = [check_minimax(preset, factor=factor), check_samples(preset)]
    return combine(MINIMAX, parts, detail="; ".join(part.detail for part in parts))


def check_factor(preset: Preset, *, name: str, power: float) -> Verdict:
    """(2) over 16 times the bound of Theorem 2 is at most C (Delta/sigma)^power.

    None bad, n infinite.
    """
    del preset
    separations = 24.0 * 2.0 ** np.arange(8)
    upper = np.array([Instance(0.5, float(one)).printed() for one in separations])
    lower = np.array([16 * laws_apart(float(one)).least_risk for one in separations])
    ratios = upper / lower / separations**power
    family = exactly("Delta", separations, ratios)
    return one_constant(name, [family], constant=2.0, detail=f"power {power:g}")


_row = functools.partial(Statement, paper="werner")

STATEMENTS = (
    _row(
        id=MINIMAX,
        place="Theorem 2",
        text="for any algorithm there is a mixture with E|mu_1^ - mu_1|^2 >= c "
        "(sigma^4/Delta^2 + sigma^2/n_i)",
        preconditions=(
            "the points are unlabelled: v_0 = z_i would cost a factor 1 - p",
            "component variances at most sigma^2, not equal to it: M~ has none",
        ),
        constants={"c": 1 / 32, "sigma^4/Delta^2": 1 / 16, "sigma^2/n_i": 1 / 4},
        check=check_theorem,
        control=functools.partial(check_theorem, factor=1.01),
        note="True with c = 1/32, though not for the reason that is printed. The two "
        "terms come from different mixtures: the larger is at least half of the sum. "
        "Answering delta p/2 attains the bound; the control claims 1.01 of it.",
    ),
    _row(
        id=FACTOR,
        place="Section 3.1.2",
        text="(2) is tight within a factor of sigma/Delta: upper <= C (sigma/Delta) "
        "lower bound",
        preconditions=("beta_i = 0, n_i large, Delta >= 24 sigma",),
        constants={"C": 2.0},
        expected=Status.VIOLATED,
        check=functools.partial(check_factor, name=FACTOR, power=-1.0),
        control=functools.partial(check_factor, name=FACTOR, power=0.5),
        note="(sigma^3/Delta)/(sigma^4/Delta^2) = Delta/sigma: turned upside down, and "
        "it grows with the separation. An upper bound below the lower one would "
        "contradict Theorem 2. The control claims sqrt(Delta/sigma).",
    ),
    _row(
        id=f"{FACTOR}.corrected",
        place="Section 3.1.2",
        text="(2) is tight within a factor of Delta/sigma",
        preconditions=("beta_i = 0, n_i large, Delta >= 24 sigma",),
        constants={"C": 2.0},
        check=functools.partial(check_factor, name=f"{FACTOR}.corrected", power=1.0),
        control=functools.partial(check_factor, name=f"{FACTOR}.corrected", power=0.8),
        note="The gap is of the radius, see werner.thm1.tauopt. The control claims "
        "(Delta/sigma)^0.8.",
    ),
)
