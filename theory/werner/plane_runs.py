"""Federated-Clustering in the plane without noise, with unlike losses in a cluster.

The cluster's losses have x-parts s x^2/2, with s = 1 on average and |s - 1| <= A; those
of the other clusters have slope -x up to |x| = R and rise again beyond. Y-parts keep
gradients of different clusters Delta = 1 apart everywhere, so that Assumptions 4, 5 and
7 hold with A, D = 0 and L = 1 + A. Places and gradients are complex numbers.
"""

import functools
from typing import NamedTuple

import numpy as np
from jaxtyping import Complex, Float

__all__ = ["NOISE", "SEPARATION", "Plane", "follow", "slopes"]

SEPARATION, NOISE = 1.0, 1e-4  # Delta and sigma

_FAR, _START = 100.0, 1.0  # R, and x_0; y_0 = 0 is the cluster's best


class Plane(NamedTuple):
    """One run.

    similarity: A.
    factor: C of the radius.
    share: delta, of the cluster; the others are bad if `attacked`, else good.
    grows: whether the radius has the term A^4 |grad fbar|^2.
    attacked: whether the others are on the edge of the ball, against the gradient.
    members: n_i.
    """

    similarity: float
    factor: float
    share: float = 0.25
    grows: bool = True
    attacked: bool = False
    members: int = 8

    @property
    def beta(self) -> float:
        """Share of bad clients."""
        return (1 - self.share) * self.attacked

    @property
    def smoothness(self) -> float:
        """L."""
        return 1 + self.similarity

    @property
    def num_rounds(self) -> int:
        """l of Theorem 3."""
        ratio = np.log(NOISE / SEPARATION) / np.log(1 - self.share / 2)
        return int(np.ceil(ratio))

    def bound(self, rounds: Float[np.ndarray, " levels"]) -> Float[np.ndarray, "..."]:
        """sqrt(max(1, A^2) V/T), the right side of (3)."""
        pull = self.beta * NOISE * SEPARATION
        variance = NOISE**2 / self.members + NOISE**3 / SEPARATION + pull
        return np.sqrt(max(1.0, self.similarity**2) * variance / rounds)

    def repaired(
        self, rounds: Float[np.ndarray, " levels"]
    ) -> Float[np.ndarray, "..."]:
        """L (F0 + A^2 Fbar0)/T and the noise of (3')."""
        start = self.smoothness * (1 + self.similarity**2) * _START**2 / 2
        noise = NOISE**2 / self.members + NOISE**3 / (self.share * SEPARATION)
        pull = self.beta**2 * NOISE * SEPARATION / self.share
        return start / rounds + max(1.0, self.similarity**2) * (noise + pull)


@functools.lru_cache(maxsize=8)
def follow(runs: tuple[Plane, ...], num_steps: int) -> Float[np.ndarray, "runs steps"]:
    """|grad f_i(x_{t-1})|^2 of a client with s = 1, for t = 1 to `num_steps`.

    No gradient is noisy: sigma is only a bound. Cost: l rounds of a few calls a step.
    """
    beta = np.array([run.beta for run in runs])
    curvatures, masses = slopes(runs)
    far = 1 - np.sum(masses, axis=1) - beta
    masses = np.append(masses, far[:, None], axis=1)
    step = 1 / (2 * np.array([run.smoothness for run in runs]))
    place, squares = np.full(len(runs), _START + 0j), []
    for _ in range(num_steps):
        along, across = np.real(place), np.imag(place)
        other = np.where(
            np.abs(along) <= _FAR, -along, along - 2 * _FAR * np.sign(along)
        )
        ours = curvatures * along[:, None] + 1j * across[:, None]
        theirs = other + 1j * (across - SEPARATION)
        points = np.append(ours, theirs[:, None], axis=1)
        centre = _centre(runs, points, masses, place, beta)
        squares.append(np.abs(place) ** 2)
        place = place - step * centre
    return np.array(squares).T


def slopes(
    runs: tuple[Plane, ...],
) -> tuple[Float[np.ndarray, "runs 3"], Float[np.ndarray, "runs 3"]]:
    """Slopes 1 + A, max(0, 1 - A) and 1 with mean 1, and their shares of all clients.

    An eighth of the cluster is steep; no loss is unbounded from below.
    """
    similarity = np.array([run.similarity for run in runs])
    flat = np.maximum(similarity, 1) / 8
    each = np.stack(
        [1 + similarity, np.maximum(1 - similarity, 0), np.ones(len(runs))], axis=1
    )
    parts = np.stack([np.full(len(runs), 1 / 8), flat, 7 / 8 - flat], axis=1)
    return each, parts * np.array([run.share for run in runs])[:, None]


def _centre(
    runs: tuple[Plane, ...],
    points: Complex[np.ndarray, "runs points"],
    masses: Float[np.ndarray, "runs points"],
    mean: Complex[np.ndarray, " runs"],
    push: Float[np.ndarray, " runs"],
) -> Complex[np.ndarray, " runs"]:
    """v after l rounds from v_0 = g_i; grad fbar is the client's own, s = 1."""
    factor, shares = np.array([(run.factor, run.share) for run in runs]).T
    growth = np.array([run.similarity**4 * run.grows for run in runs])
    floor = shares * NOISE * SEPARATION + growth * np.abs(mean) ** 2
    against = push * np.where(mean == 0, 0, -mean / np.where(mean == 0, 1, abs(mean)))
    centres = mean.copy()
    for _ in range(max(run.num_rounds for run in runs)):
        # As `theory.werner.population_map.move`, whose call would cost as much again.
        radius = np.sqrt(factor * (np.abs(centres - mean) ** 2 + floor))
        apart = points - centres[:, None]
        inside = np.abs(apart) <= radius[:, None]
        pull = np.sum(np.where(inside, masses * apart, 0), axis=1)
        centres = centres + pull + against * radius
    return centres
