"""Lemma 1: a client near its own model rarely prefers another.

The paper: for i in S_j* and j' != j,
P(E_i^{j,j'}) <= c1 exp(-c2 n' (alpha rho / (rho + 1))^2).
With the exact law and its worst case the constants become explicit.
"""

import dataclasses
import functools
import itertools
from typing import NamedTuple

import numpy as np
import scipy.optimize
from jaxtyping import Float

from cfljax import law
from cfljax.base import Numbers
from cfljax.statements import Preset, Verdict, at_most, combine, never_exceeds, tally
from theory.ifca.common.checks import (
    Broadcast,
    Events,
    PerPoint,
    grid,
    log_rounding,
    row,
    unit,
)
from theory.ifca.common.linear import log_worst_chance
from theory.ifca.common.raw_data import Client, all_wrong_choices, worst_client
from theory.rows import listed

BOUND, SHARP = "ifca.lem1.bound", "ifca.lem1.sharp"
STRONGER = "ifca.lem1.stronger"

C1 = 0.5
C2 = 1.7617  # min over rho of 2 log(1 + rho/4) (1 + 1/rho)^2, rounded down

_ALPHAS = (1e-6, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.49, 0.4999)
_RHOS = (1e-3, 0.05, 0.2, 1.0, 1.293, 4.0, 16.0, 64.0, 256.0, 1e4)
_NUM_SAMPLES = (1, 3, 10, 30, 100, 10**4, 10**6, 10**8)

# alpha, rho, num_features, num_samples: worst cases drawn as raw data
_SPOTS = (
    (0.05, 1.0, 2, 1),
    (0.05, 16.0, 2, 10),
    (0.1, 1.0, 2, 10),
    (0.1, 4.0, 5, 3),
    (0.2, 0.2, 1, 30),
    (0.2, 64.0, 3, 5),
    (0.3, 1.293, 10, 10),
    (0.4, 4.0, 2, 10),
    (0.4, 16.0, 20, 5),
    (0.49, 1.293, 4, 20),
)


def lemma1_bound(
    alpha: Numbers,
    rho: Numbers,
    num_samples: Numbers,
    *,
    c1: float = C1,
    c2: float = C2,
) -> Broadcast:
    """log of c1 exp(-c2 n' (alpha rho / (rho + 1))^2), of the broadcast shape."""
    exponent = c2 * num_samples * (alpha * rho / (rho + 1)) ** 2
    return np.asarray(np.log(c1) - exponent)


def check_bound(preset: Preset, *, c1: float = C1, c2: float = C2) -> Verdict:
    """The worst case's exact probability on a grid, and raw data at some of its points.
    The grid is judged in logarithms, where nothing underflows."""
    halves = [_by_raw_data(preset, c1=c1, c2=c2), _by_exact_law(c1=c1, c2=c2)]
    verdict = combine(BOUND, halves)
    found = "; ".join(f"{half.detail}: {half.status.value}" for half in halves)
    decided = verdict.detail.split(" at ")[0]
    return dataclasses.replace(verdict, detail=f"decided by {decided} ({found})")


def _by_raw_data(preset: Preset, *, c1: float, c2: float) -> Verdict:
    alpha, rho, _, num_samples = np.array(_SPOTS).T
    return at_most(
        BOUND,
        tally(_spot_events(preset)),
        np.exp(lemma1_bound(alpha, rho, num_samples, c1=c1, c2=c2)),
        detail=f"raw data at {len(_SPOTS)} worst cases",
    )


def _by_exact_law(*, c1: float, c2: float) -> Verdict:
    alpha, rho, num_samples = _grid()
    exact = log_worst_chance(alpha, rho, num_samples)
    return never_exceeds(
        BOUND,
        exact,
        lemma1_bound(alpha, rho, num_samples, c1=c1, c2=c2),
        rounding=log_rounding(exact),
        logarithmic=True,
        detail=f"exact law at {len(exact)} worst cases, in natural logarithms",
    )


@functools.lru_cache(maxsize=1)
def _spot_events(preset: Preset) -> Events:
    trials = preset.choose(quick=100_000, full=2_000_000)
    clients = [
        worst_client(preset.generator(BOUND, index), *spot)
        for index, spot in enumerate(_SPOTS)
    ]
    return all_wrong_choices(preset, BOUND, clients, trials)


def check_sharp(preset: Preset, *, c2: float = C2, slack: float = 1e-4) -> Verdict:
    """`c2` suffices, and `c2 + slack` or a `c1` of 0.4999 would not. Sufficient: the
    exponent over its form is at least `c2`, at the minimum found by optimisation. Not
    improvable: some worst case exceeds the bound with `c2 + slack` (at large n',
    whatever c1), and another the bound with `c1 = 0.4999`."""
    alpha, rho, smallest = _smallest_ratio(preset)
    large, small = 10.0**8, 1e-9
    too_fast = lemma1_bound(alpha, rho, large, c2=c2 + slack)
    too_low = lemma1_bound(small, rho, 1.0, c1=0.4999, c2=c2)
    exact = log_worst_chance(np.array([alpha, small]), rho, np.array([large, 1.0]))
    values = np.array([c2, too_fast, too_low])
    return never_exceeds(
        SHARP,
        values,
        np.array([smallest, *exact]),
        rounding=log_rounding(values),
        detail=f"least exponent / (alpha rho / (rho + 1))^2 found: {smallest:.6f} at "
        f"alpha = {alpha:.6f}, rho = {rho:.4f}",
    )


@functools.lru_cache(maxsize=1)
def _smallest_ratio(preset: Preset) -> tuple[float, float, float]:
    """Minimise exponent / (alpha rho / (rho + 1))^2 over alpha and log rho."""

    def ratio(point: Float[np.ndarray, " 2"]) -> float:
        alpha, rho = point[0], np.exp(point[1])
        exponent = law.error_exponent(law.worst_kappa(alpha, rho))
        return float(exponent / (alpha * rho / (rho + 1)) ** 2)

    generator = preset.generator(SHARP)
    limits = [(1e-4, 0.5 - 1e-6), (np.log(1e-3), np.log(1e6))]
    starts = [(0.4, 0.0), (0.4, 3.0)]
    starts += [
        tuple(generator.uniform(*pair) for pair in limits)
        for _ in range(preset.choose(quick=20, full=400))
    ]
    found = [
        scipy.optimize.minimize(ratio, start, bounds=limits, method="L-BFGS-B")
        for start in starts
    ]
    best = min(found, key=lambda result: result.fun)
    return float(best.x[0]), float(np.exp(best.x[1])), float(best.fun)


def check_stronger(_: Preset, *, rate: float = 0.5) -> Verdict:
    """P(E_i^{j,j'}) <= exp(-rate n' alpha^2 rho / (1 + rho)) / 2 on the grid."""
    alpha, rho, num_samples = _grid()
    exact = log_worst_chance(alpha, rho, num_samples)
    return never_exceeds(
        STRONGER,
        exact,
        np.log(0.5) - rate * num_samples * alpha**2 * rho / (1 + rho),
        rounding=log_rounding(exact),
        logarithmic=True,
        detail=f"exact law of the worst case at {len(exact)} points, in natural "
        "logarithms",
    )


def _grid() -> list[PerPoint]:
    return grid(_ALPHAS, _RHOS, _NUM_SAMPLES, indexing="ij")


PRECONDITIONS = (
    "|theta_l - theta_l*| <= (1/2 - alpha) Delta for l = j, j', 0 < alpha < 1/2",
    "standard normal features, normal noise, a fold independent of the models",
)

UNION = "ifca.lem1.union"


class _UnionPoint(NamedTuple):
    """A client whose rivals are as close as allowed and evenly spread around it."""

    num_clusters: int  # k, at least 3
    alpha: float  # margin of the lemma
    rho: float  # squared separation over noise variance
    num_samples: int  # n'
    # Of the angle between any two rivals, seen from the truth: from -1 / (k - 2), a
    # regular simplex around the truth, to 1/2, rivals' truths as close to each other.
    cosine: float
    side: int  # 1 with the own model on the rivals' side of the truth, -1 on the other


# From a search on grids, k = 3, 5 and 10, for probabilities close to a bound below 1.
# That takes n' (alpha rho / (rho + 1))^2 > log((k - 1) / 2) / c2: for k > 3 a small n'
# only goes with a large alpha, and at a small alpha the law stays far below the bound.
_UNION_POINTS = (
    _UnionPoint(3, 0.02, 0.5, 1, 1 / 2, 1),
    _UnionPoint(5, 0.2, 1.5, 29, 0.0, -1),
    _UnionPoint(5, 0.4999, 1.3, 5, -1 / 3, -1),
    _UnionPoint(10, 0.4, 1.5, 16, 0.0, -1),
    _UnionPoint(10, 0.4999, 1.5, 10, -1 / 8, -1),
)


def check_union(preset: Preset, *, pairwise: bool = True) -> Verdict:
    """Raw data of k models: P(not E_i) <= (k - 1) c1 exp(...). Without `pairwise` the
    factor k - 1 is left out, which is false for k > 2."""
    clusters = listed((one.num_clusters for one in _UNION_POINTS), "d")
    return at_most(
        UNION,
        tally(_union_events(preset)),
        _union_bounds(pairwise=pairwise),
        detail=f"raw data of {clusters} models",
    )


def _union_bounds(*, pairwise: bool = True) -> PerPoint:
    num_clusters, alpha, rho, num_samples, _, _ = np.array(_UNION_POINTS).T
    bounds = np.exp(lemma1_bound(alpha, rho, num_samples))
    return (num_clusters - 1) * bounds if pairwise else bounds


@functools.lru_cache(maxsize=1)
def _union_events(preset: Preset) -> Events:
    trials = preset.choose(quick=40_000, full=2_000_000)
    clients = [_union_client(point) for point in _UNION_POINTS]
    return all_wrong_choices(preset, UNION, clients, trials)


def _union_client(point: _UnionPoint) -> Client:
    """The truth at the origin, each rival's at distance 1 along its own direction."""
    num_rivals = point.num_clusters - 1
    spread = np.sqrt(1 - point.cosine)
    # (spread e_i + shift 1) . (spread e_j + shift 1) = cosine; 0 under the root for a
    # simplex around the origin, up to rounding.
    root = np.sqrt(max(0.0, 1 + (num_rivals - 1) * point.cosine))
    directions = spread * np.eye(num_rivals) + (root - spread) / num_rivals
    own = np.full((1, num_rivals), point.side / np.sqrt(num_rivals))
    models = np.concatenate(
        [(0.5 - point.alpha) * own, (0.5 + point.alpha) * directions]
    )
    return Client(np.zeros(num_rivals), models, point.rho**-0.5, point.num_samples)


WORST = "ifca.exact.worst"

_WORST_ALPHAS = (0.02, 0.1, 0.3, 0.49)
_WORST_RHOS = (0.05, 1.0, 3.9, 4.1, 16.0, 256.0, 1e4)

# Configurations: the formula's kappa, the actual one, its rounding error.
_Found = tuple[PerPoint, ...]


def check_worst(preset: Preset, *, factor: float = 1.0) -> Verdict:
    """Look for a smaller kappa than `factor` times the formula's. Three parts: random
    configurations in 1, 2, 3 and 10 dimensions; bounded minimisation of kappa over
    lengths and angle; and equality at the formula's corner."""
    corner, minima, *random = found = _searched(preset)
    formula, kappa, rounding = map(np.concatenate, zip(*found, strict=True))
    return never_exceeds(
        WORST,
        np.concatenate([factor * formula, corner[1]]),
        np.concatenate([kappa, factor * corner[0]]),
        rounding=np.concatenate([rounding, corner[2]]),
        detail=f"equality at {len(corner[0])} corners; {len(minima[0])} minimisations "
        f"and {sum(len(one[0]) for one in random)} random configurations above",
    )


@functools.lru_cache(maxsize=1)
def _searched(preset: Preset) -> tuple[_Found, ...]:
    random = (_random_configurations(preset, number) for number in (1, 2, 3, 10))
    return _at_corner(preset), _minimised(preset), *random


def _kappa_rounding(rho: Numbers, num_features: int, reach: float) -> Broadcast:
    """Error of kappa: relative to |offset| / noise, not to kappa, because the offset's
    projection may cancel; `reach` bounds the lengths in units of the separation."""
    length = 1 + reach * np.sqrt(rho)
    return np.asarray(50 * np.finfo(float).eps * num_features * length)


def _at_corner(preset: Preset) -> _Found:
    rows = []
    for number, alpha, rho in itertools.product((1, 2, 7), _WORST_ALPHAS, _WORST_RHOS):
        one = worst_client(preset.generator(WORST, 0), alpha, rho, number, 1)
        own, other = one.models
        kappa = law.misassignment_kappa(one.truth, own, other, one.noise)
        formula = law.worst_kappa(alpha, rho, one_dimensional=number == 1)
        rows.append((formula, kappa, _kappa_rounding(rho, number, reach=5.0)))
    return tuple(np.array(rows, float).T)


def _minimised(preset: Preset) -> _Found:
    """kappa over |a| <= 1/2 - alpha, 1/2 + alpha <= |b| <= 3, any angle, D = 1."""

    def kappa(point: Float[np.ndarray, " 3"], noise: float) -> float:
        own, other, angle = point
        rival = other * np.array([np.cos(angle), np.sin(angle)])
        own = np.array([own, 0.0])
        return float(law.misassignment_kappa(np.zeros(2), own, rival, noise))

    generator = preset.generator(WORST, 1)
    rows = []
    for alpha, rho in itertools.product(_WORST_ALPHAS, _WORST_RHOS):
        bounds = [(0.0, 0.5 - alpha), (0.5 + alpha, 3.0), (0.0, np.pi)]
        for _ in range(preset.choose(quick=2, full=20)):
            start = [generator.uniform(*pair) for pair in bounds]
            best = scipy.optimize.minimize(
                kappa, start, args=(rho**-0.5,), bounds=bounds, method="L-BFGS-B"
            )
            formula = law.worst_kappa(alpha, rho)
            rows.append((formula, best.fun, _kappa_rounding(rho, 2, 3.0)))
    return tuple(np.array(rows, float).T)


def _random_configurations(preset: Preset, num_features: int) -> _Found:
    """Truths at least 1 apart, models in balls around them, half on the spheres."""
    generator = preset.generator(WORST, 2, num_features)
    points = preset.choose(quick=50_000, full=2_000_000)
    alpha = generator.uniform(0.001, 0.499, points)
    rho = 10 ** generator.uniform(-3, 4, points)
    further = generator.exponential(size=points) * generator.integers(0, 2, points)

    def ball():
        direction = unit(generator.standard_normal((points, num_features)))
        length = generator.uniform(size=points) ** (1 / num_features)
        length = np.where(generator.uniform(size=points) < 0.5, 1.0, length)
        return direction * ((0.5 - alpha) * length)[:, None]

    other_truth = (1 + further[:, None]) * np.eye(1, num_features)
    kappa = law.misassignment_kappa(
        np.zeros(num_features), ball(), other_truth + ball(), rho**-0.5
    )
    formula = law.worst_kappa(alpha, rho, one_dimensional=num_features == 1)
    reach = float(np.max(1 + further)) + 1
    return formula, kappa, _kappa_rounding(rho, num_features, reach)


STATEMENTS = (
    row(
        id=BOUND,
        place="Lemma 1, first display",
        text="P(E_i^{j,j'}) <= c1 exp(-c2 n' (alpha rho / (rho + 1))^2)",
        preconditions=PRECONDITIONS,
        constants={"c1": C1, "c2": C2},
        check=check_bound,
        control={"c2": 3.0},
        note="The paper leaves c1 and c2 unnamed; its own route gives 2 and 1/4. The "
        "control claims c2 = 3, which raw data and exact law each refute.",
    ),
    row(
        id=SHARP,
        place="Lemma 1, first display",
        text="c2 = 1.7617 and c1 = 1/2 are the best constants (to 1e-4)",
        preconditions=PRECONDITIONS,
        constants={"c1": C1, "c2": C2},
        check=check_sharp,
        control={"c2": 1.77},
        note="The control claims c2 = 1.77.",
    ),
    row(
        id=STRONGER,
        place="Lemma 1, stronger form",
        text="P(E_i^{j,j'}) <= (1/2) exp(-(n'/2) alpha^2 rho / (1 + rho))",
        preconditions=PRECONDITIONS,
        constants={"c1": 0.5, "c2": 0.5},
        check=check_stronger,
        control={"rate": 0.51},
        note="Not in the paper: at low signal its exponent is too small by a factor of "
        "about rho. The control claims a rate of 0.51.",
    ),
    row(
        id=UNION,
        place="Lemma 1, second display",
        text="P(not E_i) <= (k - 1) c1 exp(-c2 n' (alpha rho / (rho + 1))^2)",
        preconditions=PRECONDITIONS,
        constants={"c1": C1, "c2": C2},
        check=check_union,
        control={"pairwise": False},
        note="The paper has k in place of k - 1. The control has 1.",
    ),
    row(
        id=WORST,
        place="Lemma 1, its worst case",
        text="kappa >= kappa*(alpha, rho), attained: independent losses where "
        "(1/4 - alpha^2) rho >= 1, else alpha sqrt(rho)",
        preconditions=(
            "|theta_l - theta_l*| <= (1/2 - alpha) Delta for both models",
            "|theta_j* - theta_j'*| >= Delta, rho = Delta^2 / sigma^2",
        ),
        check=check_worst,
        control={"factor": 1.02},
        note="Not in the paper. The control claims 2 % more.",
    ),
)
