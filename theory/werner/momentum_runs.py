"""One cluster of Momentum-Clustering on a line, next to one that never converges.

The cluster's losses are L x^2/2 and share their model; in units of gradients G_t =
G_{t-1} - eta L v_t. The other cluster's losses are linear, with the gradient -Delta/
alpha, so that expected momenta are Delta apart from the first round on and stay so: the
one way to keep Assumption 9.
"""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from theory.werner.one_client import Cluster, settled

__all__ = ["Run", "follow", "mean_squares"]

Noise = Callable[[np.random.Generator, tuple[int, ...]], Float[np.ndarray, "..."]]


class Run(NamedTuple):
    """One level.

    cluster: sizes, Delta and sigma; all runs of a call have as many members.
    rounds: T.
    step: eta L.
    alpha: of the momentum.
    start: G_0, at a common model.
    """

    cluster: Cluster
    rounds: int
    step: float
    alpha: float
    start: float

    @property
    def rho(self) -> float:
        """sqrt(alpha) sigma, of a momentum."""
        return float(np.sqrt(self.alpha)) * self.cluster.sigma

    @property
    def initial(self) -> float:
        """L F0 = G_0^2/2."""
        return self.start**2 / 2

    @property
    def printed(self) -> float:
        """Right side of (5)."""
        still = self.cluster._replace(bad=0).printed
        cluster = self.cluster
        pull = cluster.beta * cluster.sigma * cluster.separation
        return float(
            np.sqrt(still / self.rounds) + pull / (self.rounds * still) ** 0.25
        )

    @property
    def corrected(self) -> float:
        """L F0/(eta L T) + rho^2/n + rho^3/(delta Delta) + beta^2 rho Delta/delta."""
        first = self.initial / (self.step * self.rounds)
        return first + self.cluster.repaired(self.rho)


def follow(
    runs: Sequence[Run],
    generator: np.random.Generator,
    noise: Noise,
    *,
    trials: int,
    start: Literal["member", "previous"] = "member",
    by_momentum: bool = True,
) -> Float[np.ndarray, "runs trials rounds"]:
    """G_{t-1}^2 for t = 1 to the largest T, m_0 = 0.

    Bad clients sit on the edge of the ball in every round.

    Args:
      runs: levels, side by side.
      generator: to draw from.
      noise: of gradients, of a given shape, in units of sigma.
      trials: independent runs of each level.
      start: of Threshold-Clustering: the momentum of a member, or as in Algorithm 4 the
        centre of the previous round, first 0.
      by_momentum: whether tau^2 is delta rho Delta rather than delta sigma Delta.

    Cost: for each round a few passes over runs times trials times members.
    """
    members = runs[0].cluster.good
    sizes = np.array([(run.cluster.good, run.cluster.other) for run in runs], float)
    sizes /= np.array([[run.cluster.good / run.cluster.delta] for run in runs])
    masses = np.append(
        np.repeat(sizes[:, :1] / members, members, axis=1), sizes[:, 1:], axis=1
    )[:, None]
    push = np.array([[run.cluster.beta] for run in runs])
    alpha, step, sigma, place, slope = (
        np.array(values)[:, None]
        for values in (
            [run.alpha for run in runs],
            [run.step for run in runs],
            [run.cluster.sigma for run in runs],
            [run.start for run in runs],
            [-run.cluster.separation / run.alpha for run in runs],
        )
    )
    radius = np.array(
        [
            run.cluster.radius(run.rho if by_momentum else run.cluster.sigma)
            for run in runs
        ]
    )[:, None]
    place = np.broadcast_to(place, (len(runs), trials)).copy()
    momenta, centre, squares = (
        np.zeros((*place.shape, members)),
        np.zeros_like(place),
        [],
    )
    for number in range(1, max(run.rounds for run in runs) + 1):
        squares.append(place**2)
        drawn = noise(generator, momenta.shape) * sigma[..., None]
        momenta += alpha[..., None] * (place[..., None] + drawn - momenta)
        others = np.broadcast_to((1 - (1 - alpha) ** number) * slope, place.shape)
        centre = settled(
            np.append(momenta, others[..., None], axis=-1),
            masses,
            momenta[..., 0] if start == "member" else centre,
            radius,
            num_rounds=max(run.cluster.num_rounds for run in runs),
            push=push,
        )
        place = place - step * centre
    return np.stack(squares, axis=-1)


def mean_squares(
    runs: Sequence[Run], squares: Float[np.ndarray, "runs trials rounds"]
) -> Float[np.ndarray, "runs trials"]:
    """(1/T) sum_t G_{t-1}^2, each level over its own rounds."""
    return np.stack(
        [
            np.mean(one[:, : run.rounds], axis=-1)
            for run, one in zip(runs, squares, strict=True)
        ]
    )
