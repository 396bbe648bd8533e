"""Lemma 1, from pairs of models to all of them.

The paper: P(not E_i) is at most k times the bound on a pair, by the union bound. A
client has k - 1 wrong models to choose from, and k - 1 is what is checked.
"""

import functools
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from theory.ifca.lemma1 import C1, C2, PRECONDITIONS, lemma1_bound
from theory.ifca.linear_model import Client, wrong_choices
from theory.judges import at_most, tally
from theory.statement import Preset, Statement
from theory.verdict import Verdict

__all__ = ["STATEMENTS", "check_union"]

UNION = "ifca.lem1.union"


class _Point(NamedTuple):
    """A client whose rivals are as close as allowed and evenly spread around it.

    num_clusters: k, at least 3.
    alpha: margin of the lemma.
    rho: squared separation over noise variance.
    num_samples: n'.
    cosine: of the angle between any two rivals, seen from the truth: from
      -1 / (k - 2), a regular simplex around the truth, to 1/2, where the rivals' truths
      are as close to each other as to the client's.
    side: 1 with the own model on the rivals' side of the truth, -1 on the other.
    """

    num_clusters: int
    alpha: float
    rho: float
    num_samples: int
    cosine: float
    side: int


# From a search on grids, k = 3, 5 and 10, for probabilities close to a bound below 1.
# That takes n' (alpha rho / (rho + 1))^2 > log((k - 1) / 2) / c2: for k > 3 a small n'
# only goes with a large alpha, and at a small alpha the law stays far below the bound.
_POINTS = (
    _Point(3, 0.02, 0.5, 1, 1 / 2, 1),
    _Point(5, 0.2, 1.5, 29, 0.0, -1),
    _Point(5, 0.4999, 1.3, 5, -1 / 3, -1),
    _Point(10, 0.4, 1.5, 16, 0.0, -1),
    _Point(10, 0.4999, 1.5, 10, -1 / 8, -1),
)


def check_union(preset: Preset, *, pairwise: bool = True) -> Verdict:
    """Raw data of k models: P(not E_i) <= (k - 1) c1 exp(...).

    Without `pairwise` the factor k - 1 is left out, which is false for k > 2.
    """
    return at_most(
        UNION,
        tally(_events(preset)),
        _bounds(pairwise=pairwise),
        detail=f"raw data of {', '.join(f'{row.num_clusters}' for row in _POINTS)} "
        "models",
    )


def _bounds(*, pairwise: bool = True) -> Float[np.ndarray, " points"]:
    num_clusters, alpha, rho, num_samples, _, _ = np.array(_POINTS).T
    bounds = np.exp(lemma1_bound(alpha, rho, num_samples))
    return (num_clusters - 1) * bounds if pairwise else bounds


@functools.lru_cache(maxsize=1)
def _events(preset: Preset) -> Bool[np.ndarray, "points trials"]:
    num_trials = preset.choose(quick=40_000, full=2_000_000)
    return np.array(
        [
            wrong_choices(preset, UNION, index, _client(point), num_trials=num_trials)
            for index, point in enumerate(_POINTS)
        ]
    )


def _client(point: _Point) -> Client:
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


STATEMENTS = (
    Statement(
        id=UNION,
        paper="ifca",
        place="Lemma 1, second display",
        text="P(not E_i) <= (k - 1) c1 exp(-c2 n' (alpha rho / (rho + 1))^2)",
        preconditions=PRECONDITIONS,
        constants={"c1": C1, "c2": C2},
        check=check_union,
        control=functools.partial(check_union, pairwise=False),
        note="The paper has k in place of k - 1. The control has 1.",
    ),
)
