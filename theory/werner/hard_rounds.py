"""Rounds of rule (4) that are as hard as Lemmas 7, 8, 14 and 15 allow.

On a line, with noise of standard deviation rho = 1 and the cluster's mean m at 0. The
cluster's noise is skew2 or sym3 with atoms near or beyond the edge of the ball, its
clients' own means differ from m in the square by `spread` - 1 on average, and strangers
have of all laws the one that puts most at a point in the ball (Cantelli).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from theory.werner.population_map import Mixture

__all__ = ["Rounds", "draw_rounds", "everybody"]


class Rounds(NamedTuple):
    """One round, or the first of many, in each row.

    members, member_chances: `[rounds, 6]`, law of the cluster's points, all clients
      together; its mean is 0.
    strangers, stranger_chances: `[rounds, 2]`, law of the others' points.
    shares: `[rounds]`, delta.
    spread: `[rounds]`, s^2 = rho^2 + the clients' mean squared distance from m.
    radius: `[rounds]`, tau.
    separation: `[rounds]`, distance of the strangers' mean from m.
    starts: `[rounds]`, v, at most tau/2 from m.
    """

    members: Float[np.ndarray, "rounds 6"]
    member_chances: Float[np.ndarray, "rounds 6"]
    strangers: Float[np.ndarray, "rounds 2"]
    stranger_chances: Float[np.ndarray, "rounds 2"]
    shares: Float[np.ndarray, " rounds"]
    spread: Float[np.ndarray, " rounds"]
    radius: Float[np.ndarray, " rounds"]
    separation: Float[np.ndarray, " rounds"]
    starts: Float[np.ndarray, " rounds"]


def draw_rounds(
    generator: np.random.Generator, count: int, *, heterogeneous: bool
) -> Rounds:
    """Rounds with 24 s^2 <= tau^2, tau <= Delta/3 and delta Delta^2 >= 48 rho^2.

    Args:
      generator: to draw sizes, places and directions from.
      count: number of rounds.
      heterogeneous: whether the cluster's clients have means of their own.
    """
    shares = 1 / generator.integers(2, 65, count)
    rise = generator.uniform(0, 3, count) * heterogeneous
    part = generator.uniform(0.1, 0.9, count)  # of the clients, who are at m + rise
    own = np.stack([rise, -rise * part / (1 - part)], 1)
    weights = np.stack([part, 1 - part], 1)
    spread = 1 + np.sum(weights * own**2, axis=1)
    # Half of the rounds lie on the edge of the first condition.
    slack = np.where(generator.random(count) < 0.5, 1, generator.uniform(1, 4, count))
    radius = np.sqrt(24 * spread) * slack
    near = np.maximum(3 * radius, np.sqrt(48 / shares))
    separation = near * generator.choice([1.0, 1.2, 3.0, 30.0], count)
    noise, chances = _noise(generator, radius)
    members = (own[:, :, None] + noise[:, None, :]).reshape(count, 6)
    member_chances = (weights[:, :, None] * chances[:, None, :]).reshape(count, 6)
    place = radius * generator.uniform(0, 1.3, count)
    beyond = separation + 1 / (separation - place)
    caught = 1 / (1 + (separation - place) ** 2)
    side = generator.choice([-1.0, 1.0], count)
    return Rounds(
        members,
        member_chances,
        side[:, None] * np.stack([place, beyond], 1),
        np.stack([caught, 1 - caught], 1),
        shares,
        spread,
        radius,
        separation,
        radius / 2 * generator.choice([-1.0, -0.5, 0.0, 0.5, 1.0], count),
    )


def _noise(
    generator: np.random.Generator, radius: Float[np.ndarray, " rounds"]
) -> tuple[Float[np.ndarray, "rounds 3"], Float[np.ndarray, "rounds 3"]]:
    """skew2 or sym3, as `theory.werner.laws` has them, with rho = 1."""
    count = len(radius)
    size = radius * generator.uniform(0.5, 2, count)  # at least 2, as tau^2 >= 24
    skewed = (1 - np.sqrt(1 - 4 / size**2)) / 2
    even = 1 / size**2
    zero = np.zeros(count)
    places = np.stack([-size * skewed, zero, size * (1 - skewed)], 1)
    chances = np.stack([1 - skewed, zero, skewed], 1)
    symmetric = generator.random(count) < 0.3
    places[symmetric] = np.stack([-size, zero, size], 1)[symmetric]
    chances[symmetric] = np.stack([even / 2, 1 - even, even / 2], 1)[symmetric]
    return places * generator.choice([-1.0, 1.0], count)[:, None], chances


def everybody(rounds: Rounds, bad: Float[np.ndarray, " rounds"]) -> Mixture:
    """The good points of each round, as shares of all.

    Args:
      rounds: whose points.
      bad: beta, the bad points' share, taken from the strangers'.
    """
    mine = rounds.shares[:, None] * rounds.member_chances
    others = (1 - rounds.shares - bad)[:, None] * rounds.stranger_chances
    return Mixture(
        np.concatenate([rounds.members, rounds.strangers], axis=1),
        np.concatenate([mine, others], axis=1),
    )
