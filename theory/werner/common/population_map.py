"""Rule (4) of Threshold-Clustering with infinitely many points, exactly.

Each round takes a centre v to

    v + sum_m mass_m (x_m - v) 1{|x_m - v| <= tau} + beta tau u,

where the last term are bad points that sit on the edge of the ball in every round. No
randomness is left: what is claimed of the mean over infinitely many points can be
computed in float64.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Inexact, Num

from cfljax.base import Numbers
from theory.werner.common.laws import Discrete


class Mixture(NamedTuple):
    """Where the good points are, and how many."""

    places: Inexact[np.ndarray, "*batch atoms"]  # real, or complex for those of a plane
    # Shares of all N points; with the bad ones they add up to 1.
    masses: Inexact[np.ndarray, "*batch atoms"]


def mixture(
    laws: Sequence[Discrete],
    means: Num[np.ndarray, " clusters"],
    shares: Num[np.ndarray, " clusters"],
) -> Mixture:
    """Clusters with discrete noise around their means; `shares` are delta_k, over all
    N."""
    places = [mean + law.values for law, mean in zip(laws, means, strict=True)]
    masses = [share * law.chances for law, share in zip(laws, shares, strict=True)]
    return Mixture(np.concatenate(places), np.concatenate(masses))


def move(
    points: Mixture,
    centres: Inexact[np.ndarray, "*batch"],
    radius: Num[np.ndarray, "*#batch"] | float,
    *,
    push: Num[np.ndarray, "*#batch"] | float | complex = 0.0,
) -> Inexact[np.ndarray, "*batch"]:
    """Centres after one round of rule (4).

    Points at just the distance `radius` are in the ball; `push` is beta u, the share of
    the bad points times the direction, of length 1, to which they pull from its edge.
    """
    return settle(points, centres, radius, num_rounds=1, push=push)


def settle(
    points: Mixture,
    starts: Inexact[np.ndarray, "*batch"],
    radius: Num[np.ndarray, "*#batch"] | float,
    *,
    num_rounds: int,
    push: Num[np.ndarray, "*#batch"] | float | complex = 0.0,
) -> Inexact[np.ndarray, "*batch"]:
    """Centres after `num_rounds` rounds, the others as in `move`. Cost: rounds times
    centres times atoms."""
    centres, reach = starts, np.asarray(radius)[..., None]
    for _ in range(num_rounds):
        apart = points.places - centres[..., None]
        pull = np.sum(np.where(np.abs(apart) <= reach, points.masses * apart, 0), -1)
        moved = centres + pull + push * radius
        if np.array_equal(moved, centres):
            break  # all other rounds would be like this one
        centres = moved
    return centres


class Reach(NamedTuple):
    """What is known of a centre that starts within `reach` tau of the cluster's mean.

    |v_l - mu| <= (1 - a)^l |v_0 - mu| + rest with the share a that is taken in, given
    that rest <= reach tau.
    """

    taken: Float[np.ndarray, "..."]  # a = delta (1 - q), q = s^2/((1 - reach) tau)^2
    rest: Float[np.ndarray, "..."]


def within_reach(
    share: Numbers,
    separation: Numbers,
    radius: Numbers,
    bad: Numbers,
    *,
    reach: Numbers = 0.5,
    spread: Numbers = 1.0,
    noise: Numbers = 1.0,
) -> Reach:
    """The bound that the corrected Theorem 1 has; proof in `theorem1.md`.

    Args:
      share: delta, of all points.
      separation: Delta, from the cluster's mean to those of the others.
      radius: tau.
      bad: beta, of all points.
      reach: eta, in (0, 1).
      spread: s^2, variance of the cluster's points.
      noise: variance of the others' points.
    """
    near, far = (1 - reach) * radius, separation - (1 + reach) * radius
    kept = 1 - np.asarray(spread / near**2)
    rest = spread / near + noise * radius / (share * far**2) + bad * radius / share
    return Reach(share * kept, np.asarray(rest / kept))
