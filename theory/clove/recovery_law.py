"""Section 4: how often a square-root loss vector is nearer to a foreign mean.

The vector is nearly normal around c_j, with covariance Sigma = G o G/(2 n alpha
alpha'), G the Gram matrix of the (theta_l - theta*; -sigma). So with w = c_j' - c_j the
chance is nearly Phi(-|w|^2/(2 sqrt(w' Sigma w))). For orthonormal models turned at
random to the truths |w|^2 = Delta^2/2 and w' Sigma w = |w|^2/n, nearly and for any d:
exp(-n Delta^2/16), and n* = 16 log(M)/Delta^2 for all of M clients.
"""

import functools

import numpy as np
import scipy.special
from jaxtyping import Float

from cfljax import intervals, law
from theory.clove.recovery_models import NOISE, Cell, models_and_truths
from theory.judges import ERROR_RATE, within
from theory.statement import Preset, Statement
from theory.verdict import Verdict

__all__ = ["STATEMENTS", "check_law", "pair_error"]

LAW = "clove.thm41.law"

_CELLS = (  # one client at a time: their number means nothing here, n follows
    Cell("orthonormal", 10, 2, 2, 1, 0.5),
    Cell("orthonormal", 20, 2, 2, 1, 0.5),
    Cell("orthonormal", 50, 2, 2, 1, 0.5),
    Cell("level", 10, 2, 2, 1),
    Cell("level", 20, 2, 2, 1),
    Cell("random", 10, 2, 2, 1, 0.5),
    Cell("few", 10, 2, 2, 1, 0.5),
    Cell("few", 20, 5, 5, 1, 0.5),
)
_CHANCES = (0.1, 0.01)


def pair_error(
    own: Float[np.ndarray, "rank models"],
    foreign: Float[np.ndarray, "rank models"],
    num_samples: int,
    *,
    dependent: bool = True,
) -> float:
    """Phi(-|w|^2/(2 sqrt(w' Sigma w))): a client of one cluster nearer to another mean.

    Args:
      own: factor of the client's cluster, from `law.loss_factor`.
      foreign: factor of the other cluster.
      num_samples: n.
      dependent: whether the losses of a client under several models are.
    """
    gram = own.T @ own
    lengths = np.sqrt(np.diagonal(gram))
    offset = np.linalg.norm(foreign, axis=0) - lengths
    offset = offset * law.chi_mean_ratio(num_samples)
    covariance = gram**2 / (2 * num_samples * lengths[:, None] * lengths)
    if not dependent:
        covariance = np.diag(np.diagonal(covariance))
    spread = np.sqrt(offset @ covariance @ offset)
    return float(scipy.special.ndtr(-(offset @ offset) / (2 * spread)))


def _samples_for(
    own: Float[np.ndarray, "rank models"],
    foreign: Float[np.ndarray, "rank models"],
    chance: float,
) -> int:
    """About the n at which `pair_error` is `chance`, its quantile being of order
    sqrt(n)."""
    at_hundred = scipy.special.ndtri(pair_error(own, foreign, 100))
    return max(1, round(100 * float(scipy.special.ndtri(chance) / at_hundred) ** 2))


@functools.lru_cache(maxsize=1)
def _counts(preset: Preset) -> Float[np.ndarray, "points 5"]:
    """Events, clients, the predicted chance with and without dependence, and n."""
    found = []
    clients = preset.choose(quick=40_000, full=1_000_000)
    for index, cell in enumerate(_CELLS):
        generator = preset.generator(LAW, index)
        models, truths = models_and_truths(generator, cell)
        own, foreign = (law.loss_factor(models, truth, NOISE) for truth in truths[:2])
        for chance in _CHANCES:
            count = _samples_for(own, foreign, chance)
            losses = law.loss_vectors(
                generator, own, num_samples=count, num_clients=clients
            )
            ratio = law.chi_mean_ratio(count)
            one, two = (np.linalg.norm(part, axis=0) * ratio for part in (own, foreign))
            # Nearer to the foreign mean: beyond the middle, along the line of both.
            events = np.sum((np.sqrt(losses) - (one + two) / 2) @ (two - one) > 0)
            exact = pair_error(own, foreign, count)
            naive = pair_error(own, foreign, count, dependent=False)
            found.append([events, clients, exact, naive, count])
    return np.array(found)


def check_law(preset: Preset, *, dependent: bool = True) -> Verdict:
    """P(nearer to the foreign mean) is Phi(...), within a factor of 2."""
    events, clients, exact, naive, counts = _counts(preset).T
    claimed = exact if dependent else naive
    each = ERROR_RATE / len(events)
    low, high = intervals.clopper_pearson(events, clients, error_rate=each)
    ratio = events / clients / claimed
    return within(
        LAW,
        (low, high),
        (claimed / 2, claimed * 2),
        num_trials=int(np.sum(clients)),
        detail=f"{len(_CELLS)} sets of models and truths at two n each, n from "
        f"{np.min(counts):g} to {np.max(counts):g}, {clients[0]:g} clients: shares "
        f"{np.min(events / clients):.2g} to {np.max(events / clients):.2g}, over the "
        f"formula {np.min(ratio):.2f} to {np.max(ratio):.2f}",
    )


STATEMENTS = (
    Statement(
        id=LAW,
        paper="clove",
        place="Theorem 4.1",
        text="P(|a - c_j'| < |a - c_j|) = Phi(-|w|^2/(2 sqrt(w' Sigma w))) within a "
        "factor of 2, w = c_j' - c_j, Sigma = G o G/(2 n alpha alpha')",
        preconditions=(
            "square-root loss vectors of fresh samples, sigma = 0.1",
            "orthonormal or random models, n >= 20, chances of about 0.1 and 0.01",
        ),
        constants={"factor": 2.0},
        check=check_law,
        control=functools.partial(check_law, dependent=False),
        note="Predicts recovery curves: n* = 16 log(M)/Delta^2 for orthonormal models "
        "turned at random to the truths, whatever d; d/K times that for K random ones; "
        "order N log(M)/Delta^2 for truths that differ along the sum of the models. "
        "Proximal models need so few samples that the formula is several times too "
        "large. "
        "The control takes a client's losses for independent.",
    ),
)
