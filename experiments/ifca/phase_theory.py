"""Where theory draws the boundaries of IFCA's phase diagram.

Every prediction is a set of conditions, each with a score: how far it is met, above 0
where it is and below 0 where it is not. It holds where the least of them is above 0,
and its boundary is where that changes sign.

Promises, of Theorem 1 of Ghosh et al., made for T rounds by the union over rounds; one
counts where success is promised with probability 1/2 at least, to be compared with the
settings where half of the runs succeed:

- "printed": Assumptions 1 and 2, whose constants the paper leaves unnamed, with those
  that the theory's rows certify (`theory.ifca.common.linear.Hidden`), and a chance of
  failure of 1/m in each round; (1) with c2 = 3 / sqrt(2) and c3 = 0, enough by
  `ifca.thm1.corrected` and `ifca.thm1.third_term`.
- "corrected": `ifca.thm1.corrected`, with the conditions on c1 and N that it names.
- "explicit": `ifca.thm1.explicit`, the same proof with no constant left.

Exact laws, of no theorem's constants and no union:

- "floor": where the root-mean-square error of the exact law comes to rest
  (`law.error_floor`) is at most 0.6 sigma.
- "clusters": there, at models in random directions of high dimension, the clients that
  the exact Student law misassigns are less than log 2 in expectation, so that half of
  the rounds have none.
- "start": the chance that every truth is nearest to its own model at the start is at
  least 1/2: where the boundary comes to lie as n' grows. With few samples fewer runs
  find the clusters from afar, and no law of one round says how many.
- "least squares": on re-used data, where gradient descent ends in the true clusters,
  sigma sqrt(d / (N - d - 1)), is at most 0.6 sigma.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from jaxtyping import Float

from cfljax import law
from cfljax.statements import plain
from experiments.ifca.phase_runs import NEAR_FACTOR, Setting
from theory.ifca.common import linear
from theory.ifca.theorem1 import C2, second_and_third
from theory.ifca.theorem1_corrected import CONSTANTS, explicit_bound

Points = Float[np.ndarray, " points"]
Scores = Mapping[str, Points]  # Of each condition of a prediction, by what it says.

PROMISED = 0.5  # Probability of success from which a promise counts.
_LEAST = -9.0  # Score of what is not met at all.
_DRAWS = 20_000  # Of starts, for the chance that they are separating.


def score(scores: Scores) -> Points:
    """Above 0 where all conditions are met."""
    return np.min(list(scores.values()), axis=0)


def _margin(have: np.ndarray, need: np.ndarray | float) -> Points:
    """log of have / need, cut off where there is no such number."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.log(have) - np.log(need)
    return np.clip(np.nan_to_num(found, nan=_LEAST), _LEAST, -_LEAST)


class _Columns:
    """Settings of one k, c1 and T, as arrays of one entry each."""

    def __init__(self, settings: Sequence[Setting]) -> None:
        column = lambda name: np.array([getattr(own, name) for own in settings], float)
        self.separation, self.samples = column("separation"), column("num_samples")
        self.clients, self.features = column("num_clients"), column("num_features")
        self.start = column("start")
        first = settings[0]
        self.clusters, self.step = first.num_clusters, first.step
        self.rounds = first.num_rounds
        self.rows = self.clients / self.clusters * self.samples  # N of a cluster.


def printed(settings: Sequence[Setting]) -> Scores:
    """Theorem 1 and its assumptions as printed, one setting after the other."""
    found = [_printed(own) for own in settings]
    names = dict.fromkeys(name for scores in found for name in scores)
    return {
        name: np.clip([own.get(name, _LEAST) for own in found], _LEAST, -_LEAST)
        for name in names
    }


def _printed(own: Setting) -> dict[str, float]:
    """Scores at one setting, of Assumption 1 alone where it fails."""
    if own.start >= 0.5:
        return {"α0 > 0": _LEAST}
    floor = second_and_third(_in_separations(own)) * own.separation
    error = own.start * own.separation / 2**own.num_rounds + 2 * floor
    likely = (1 - PROMISED) * own.num_clients / own.num_rounds
    return {
        "α0 > 0": -_LEAST,
        **_assumption2(own),
        "the bound ≤ 0.6 σ": math.log(NEAR_FACTOR / error),
        "T/m ≤ 1/2": math.log(likely),
    }


def _in_separations(own: Setting) -> linear.Setting:
    """The theory's form of a setting, Delta = 1."""
    share = 1 / own.num_clusters
    sizes = map(float, (own.num_clients, own.num_samples, own.num_features))
    return linear.Setting(
        *sizes,
        noise=1 / own.separation,
        shares=(share, share),
        step=own.step,
        alpha=0.5 - own.start,
    )


def _assumption2(own: Setting) -> dict[str, float]:
    """Scores of its inequalities. Two of them bound |theta*| and sigma by 1, which is
    but a choice of units: the largest that are allowed are the most favourable."""
    radius = own.separation / math.sqrt(2)
    unit = max(radius, 1.0)
    situation = linear.Situation(
        (own.members,) * own.num_clusters,
        float(own.num_samples),
        float(own.num_features),
        noise=1 / unit,
        separation=own.separation / unit,
        alpha=0.5 - own.start,
        radius=radius / unit,
    )
    hidden = linear.Hidden()
    # In their order; not those two, nor p_max <= 3 p, which is not printed.
    constants = hidden[1:6]
    margins = [one for one in linear.assumption2(situation) if one.at_least]
    return {
        _named(margin.assumption, constant): math.log(margin.factor)
        for margin, constant in zip(margins, constants, strict=True)
    }


def _named(text: str, constant: float) -> str:
    """A condition for people, with the number that its C stands for."""
    return plain(text).removeprefix("ifca.asm2: ").replace("≥ C", f"≥ {constant:g}")


def corrected(settings: Sequence[Setting]) -> Scores:
    """Theorem 1 with the conditions and constants that it lacks."""
    own = _Columns(settings)
    step = 2 * own.step
    spread = np.sqrt(own.features / (own.clients * own.samples))
    floor = C2 * own.clusters * spread
    factor = explicit_bound(
        np.ones_like(own.rows), step, own.rows, num_features=own.features, noise=0.0
    )
    allowed = 0.25 <= own.step <= 0.75  # p_max = p.
    contraction = f"|1 - x| + {CONSTANTS[0]:g} x sqrt(d/N) ≤ 1/2"
    return {
        "1/4 ≤ c1 ≤ 3/4": np.full_like(own.rows, -_LEAST if allowed else _LEAST),
        contraction: _margin(np.full_like(factor, 0.5), factor),
        **_promise(own, lambda error: error / 2 + floor),
    }


def explicit(settings: Sequence[Setting]) -> Scores:
    """The explicit form of Theorem 1, round by round."""
    own = _Columns(settings)

    def after(error: Points) -> Points:
        return explicit_bound(
            error, 2 * own.step, own.rows, num_features=own.features, noise=1.0
        )

    return {"N ≥ 4 d": _margin(own.rows, 4 * own.features), **_promise(own, after)}


def _promise(own: _Columns, after: Callable[[Points], Points]) -> Scores:
    """What follows for T rounds of a bound that holds, and nobody is misassigned, but
    for the explicit form's probability in each of them."""
    error = own.start * own.separation
    rows, features = own.rows, own.features
    sizes, places = np.unique(np.stack([rows, features]), axis=1, return_inverse=True)
    log_tails = law.log_product_tail(sizes[0], sizes[1], 4 * sizes[0] * sizes[1])
    tails = np.exp(log_tails)[places]
    each = 2 * own.clusters * np.exp(-features / 2) + own.clusters * tails
    failure = np.zeros_like(error)
    for _ in range(own.rounds):
        alpha = 0.5 - error / own.separation
        inside = alpha > 0
        alpha = np.clip(alpha, 1e-9, 0.5 - 1e-9)
        kappa = law.worst_kappa(alpha, own.separation**2)
        chance = law.misassignment_probability(kappa, own.samples)
        chance = own.clients * (own.clusters - 1) * chance
        failure += np.where(inside, chance + each, 1.0)
        error = np.minimum(after(error), 1e9)
    return {
        "the bound ≤ 0.6 σ": _margin(np.full_like(error, NEAR_FACTOR), error),
        "the chance of failure ≤ 1/2": _margin(
            np.full_like(error, 1 - PROMISED), failure
        ),
    }


def promised(scores: Scores) -> Points:
    """Probability of success that `corrected` or `explicit` promise; 0 for nothing."""
    name = "the chance of failure ≤ 1/2"
    failure = (1 - PROMISED) * np.exp(-scores[name])
    return np.where(score(scores) >= 0, 1 - failure, 0.0)


def floor(settings: Sequence[Setting]) -> Scores:
    """Whether the exact floor is low enough."""
    own = _Columns(settings)
    rest = law.error_floor(own.features, own.rows, own.step, 1.0)
    rest = np.where(np.isfinite(rest), rest, np.inf)
    return {"exact floor ≤ 0.6 σ": _margin(np.full_like(rest, NEAR_FACTOR), rest)}


def clusters(settings: Sequence[Setting]) -> Scores:
    """Whether half of the rounds at the exact floor have nobody misassigned; between
    any two clusters, of which there are k - 1 for each client."""
    own = _Columns(settings)
    rest = law.error_floor(own.features, own.rows, own.step, 1.0)
    rest = np.where(np.isfinite(rest), rest, np.inf)
    kappa = typical_kappa(own.separation, rest)
    chance = law.log_misassignment_probability(kappa, own.samples)
    number = np.log(own.clients * (own.clusters - 1)) + chance
    return {"m (k - 1) q ≤ log 2": np.clip(np.log(np.log(2)) - number, -9, 9)}


def typical_kappa(separation: Points, error: Points) -> Points:
    """kappa between two models at this distance from their truths, in directions that
    are orthogonal to all else, as random ones of high dimension; sigma = 1. With s the
    distance in separations the truth is at height Delta / (2 sqrt(1 + 2 s^2)) over the
    hyperplane between the models, and its distance from their midpoint is Delta
    sqrt(1 + 2 s^2) / 2."""
    spread = 1 + 2 * (error / separation) ** 2
    height = separation / (2 * np.sqrt(spread))
    width = (separation / 2) ** 2 * (spread - 1 / spread)
    return np.where(np.isfinite(spread), height / np.sqrt(width + 1), 0.0)


def start(settings: Sequence[Setting]) -> Scores:
    """Whether half of the starts are separating, each model its own truth's."""
    own = _Columns(settings)
    found = np.empty_like(own.start)
    for features in np.unique(own.features):
        where = own.features == features
        sizes = max(round(features), own.clusters), own.clusters
        found[where] = separating_chance(own.start[where], *sizes)
    return {"half of the starts separating": found - 0.5}


def separating_chance(
    distances: Points, num_features: int, num_clusters: int
) -> Points:
    """Chance that every truth is nearer to its own model than to any other, with models
    at these distances, in separations, in random directions; by 20,000 draws. Of truth
    l and model j that is |theta_l* - theta_j*|^2 + 2 <theta_j* - theta_l*, e_j> > 0."""
    random = np.random.default_rng(0)
    normal = random.standard_normal((_DRAWS, num_clusters, num_clusters))
    outside = np.zeros(normal.shape[:2])
    if num_features > num_clusters:
        outside = random.chisquare(num_features - num_clusters, outside.shape)
    length = np.sqrt(np.sum(normal**2, axis=-1) + outside)
    along = normal / length[..., None] / math.sqrt(2)  # Truths are unit vectors / √2.
    own = np.diagonal(along, axis1=1, axis2=2)
    # How far a model is off towards another truth, and away from its own.
    worst = np.sort(np.max(np.max(along, axis=2) - own, axis=1))
    with np.errstate(divide="ignore"):
        return np.searchsorted(worst, 1 / (2 * distances)) / _DRAWS


def least_squares(settings: Sequence[Setting]) -> Scores:
    """Whether least squares in the true clusters are near enough."""
    own = _Columns(settings)
    error = np.sqrt(law.oracle_risk(own.rows, own.features, 1.0))
    name = "least squares ≤ 0.6 σ"
    return {name: _margin(np.full_like(error, NEAR_FACTOR), error)}
