"""One client of Federated-Clustering on a line, with exact means over the rounds.

In Algorithm 2 the path of client i depends on nothing but the gradients g_j(x_i) at its
own model, so that one client is a replicate. All losses of its cluster are here f(x) =
L x^2/2 and those of the others Delta steeper, so that the error of a centre, e = v -
grad f, has a law that depends neither on the model nor on the round. Then gradients
follow G_t = (1 - eta L) G_{t-1} - eta L e_t, and their mean square is known exactly
from the first two moments of e. These are known exactly where noise is -rho or rho, as
nobody of the cluster then ever leaves the ball. No lengths of models are needed: with
L F0 = G_0^2/2 everything is in units of gradients.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from cfljax.base import Numbers
from cfljax.statements import Margin, Preset, Verdict, combine, within
from theory.werner.common.claims import Family, exactly, one_constant

_SEPARATION, _MALICIOUS = 24.0, 12.0  # C_Delta and C_beta of the corrected forms


class Cluster(NamedTuple):
    """The cluster of client i among N clients."""

    good: int = 24  # n_i, clients of the cluster
    other: int = 24  # clients of other clusters, whose gradients are `separation` away
    bad: int = 0  # malicious clients
    separation: float = 50.0  # Delta
    sigma: float = 1.0  # of a stochastic gradient
    batch: float = 1.0  # |B|

    @property
    def delta(self) -> float:
        """delta_i = n_i/N."""
        return self.good / (self.good + self.other + self.bad)

    @property
    def beta(self) -> float:
        """beta_i, share of malicious clients."""
        return self.bad / (self.good + self.other + self.bad)

    @property
    def rho(self) -> float:
        """rho = sigma/sqrt(|B|), of a gradient from a batch."""
        return self.sigma / math.sqrt(self.batch)

    @property
    def printed(self) -> float:
        """V = sigma^2/n + sigma^3/Delta + beta sigma Delta, as Theorem 3 prints it."""
        pull = self.beta * self.sigma * self.separation
        return self.sigma**2 / self.good + self.sigma**3 / self.separation + pull

    def repaired(self, noise: float) -> float:
        """rho^2/n + rho^3/(delta Delta) + beta^2 rho Delta/delta for rho = `noise`."""
        pull = self.beta**2 * noise * self.separation / self.delta
        return noise**2 / self.good + noise**3 / (self.delta * self.separation) + pull

    @property
    def num_rounds(self) -> int:
        """l of Theorem 3."""
        ratio = math.log(self.rho / self.separation) / math.log(1 - self.delta / 2)
        return max(1, math.ceil(ratio))

    def radius(self, noise: float) -> float:
        """tau = sqrt(delta rho Delta) for rho = `noise`; sigma in the statement."""
        return math.sqrt(self.delta * noise * self.separation)


class Moments(NamedTuple):
    """Of the error e of a centre."""

    first: float  # E e
    second: float  # E e^2


def settled(
    places: Float[np.ndarray, "*#batch points"],
    masses: Float[np.ndarray, "*#batch points"],
    starts: Float[np.ndarray, "*batch"],
    radius: Float[np.ndarray, "*#batch"] | float,
    *,
    num_rounds: int,
    push: Float[np.ndarray, "*#batch"] | float = 0.0,
) -> Float[np.ndarray, "*batch"]:
    """Centres on a line after `num_rounds` rounds of rule (4), like those of
    `population_map.settle`, in a few passes over the points: once the ball holds the
    same points now and at its fixed point, which the centre approaches in a straight
    line, the remaining rounds are one power of 1 - mass."""
    centres, radius = starts.copy(), np.broadcast_to(radius, starts.shape)
    pull = push * radius
    left = np.full(starts.shape, num_rounds)
    while np.any(left > 0):
        apart = places - centres[..., None]
        inside = np.abs(apart) <= radius[..., None]
        mass = np.sum(masses * inside, axis=-1)
        move = np.sum(masses * inside * apart, axis=-1) + pull
        limit = centres + np.divide(move, mass, out=np.zeros_like(move), where=mass > 0)
        # Steady: nobody enters or leaves the ball between here and there.
        final = places - limit[..., None]
        alike = inside == (np.abs(final) <= radius[..., None])
        alike &= inside | (apart * final > 0)
        steady = np.all(alike, axis=-1) & ((mass > 0) | (move == 0))
        jump = limit + (1 - mass) ** left * (centres - limit)
        centres = np.where(left > 0, np.where(steady, jump, centres + move), centres)
        left = np.where(steady, 0, left - 1)
    return centres


def centre_errors(
    cluster: Cluster,
    noise: Float[np.ndarray, "trials good"],
    radius: float,
    *,
    own_start: bool = True,
    direction: float = 1.0,
) -> Float[np.ndarray, " trials"]:
    """e of independent trials: centre less the true gradient.

    The bad clients pull towards `direction`, -1 being that of the other clusters, from
    the edge of the ball in every round; v_0 is the noise of client i, the first, or 0.
    """
    trials, good = noise.shape
    total = cluster.good + cluster.other + cluster.bad
    return settled(
        np.concatenate([noise, np.full((trials, 1), -cluster.separation)], axis=1),
        np.append(np.full(good, 1 / total), cluster.other / total),
        noise[:, 0] if own_start else np.zeros(trials),
        radius,
        num_rounds=cluster.num_rounds,
        push=direction * cluster.beta,
    )


def moments(cluster: Cluster, radius: float) -> Moments:
    """E e and E e^2, exactly, from v_0 = g_i with independent noise -rho or rho, and
    bad clients that pull to one side.

    All of the cluster and nobody else is in the ball in every round, so that for the
    mean m of the cluster's noise, with k = (1 - delta)^l,

      e = (1 - k) (m + beta tau/delta) + k xi_i,  E e^2 = rho^2 (1/n + k^2 (1 - 1/n)) +
      (E e)^2.

    Raises:
      ValueError: if a ball might lose a member, or win another.
    """
    rho, pull = cluster.rho, cluster.beta * radius / cluster.delta
    if not (2 * rho + pull <= radius <= cluster.separation - rho - pull):
        raise ValueError(
            f"`radius` must lie between {2 * rho + pull:g} and "
            f"{cluster.separation - rho - pull:g}, got {radius:g}."
        )
    kept = (1 - cluster.delta) ** cluster.num_rounds
    first = (1 - kept) * pull
    spread = 1 / cluster.good + kept**2 * (1 - 1 / cluster.good)
    return Moments(first, rho**2 * spread + first**2)


def mean_square(
    start: Numbers, step: Numbers, first: Numbers, second: Numbers, rounds: Numbers
) -> Float[np.ndarray, "..."]:
    """(1/T) sum_{t=0}^{T-1} E G_t^2, exactly, from G_0, eta L in (0, 1], E e, E e^2 and
    T."""
    start, step, first, second, rounds = np.broadcast_arrays(
        *(np.asarray(one, float) for one in (start, step, first, second, rounds))
    )
    kept = 1 - step
    once = (1 - kept**rounds) / step
    twice = (1 - kept ** (2 * rounds)) / (step * (2 - step))
    away = start + first
    means = rounds * first**2 - 2 * first * away * once + away**2 * twice
    spread = (second - first**2) * step / (2 - step) * (rounds - twice)
    return np.asarray((means + spread) / rounds)


def margins(*clusters: Cluster) -> tuple[Margin, ...]:
    """Conditions of Theorems 3 and 4 on Delta and beta, each where it is met least."""
    far = min(clusters, key=lambda one: one.separation * one.delta / one.sigma)
    few = max(clusters, key=lambda one: one.beta / one.delta)
    found = Margin(
        r"werner.thm3, thm4: $\Delta \ge 24 \max(1, A^4) \sigma/\delta$, $D = 0$",
        far.separation,
        _SEPARATION * far.sigma / far.delta,
    )
    if not few.bad:
        return (found,)
    limit = few.delta / _MALICIOUS
    return (
        found,
        Margin(
            r"werner.thm3, thm4: $\beta \le \delta/12$", few.beta, limit, at_least=False
        ),
    )


class Level(NamedTuple):
    """One run."""

    value: float  # of the parameter along the family
    cluster: Cluster  # whose client runs
    start: float = 0.0  # |grad f(x_0)|, in the units of sigma
    step: float = 0.5  # eta L
    rounds: float = 100.0  # T
    by_batch: bool = False  # whether tau is that of the proof, by rho, and not by sigma

    @property
    def radius(self) -> float:
        """tau."""
        cluster = self.cluster
        return cluster.radius(cluster.rho if self.by_batch else cluster.sigma)

    @property
    def initial(self) -> float:
        """L F0 = G_0^2/2."""
        return self.start**2 / 2


def printed(level: Level) -> float:
    """sqrt(V/T), the right side of (3)."""
    return float(np.sqrt(level.cluster.printed / level.rounds))


def corrected(level: Level, *, share: float = 1.0, power: float = 1.0) -> float:
    """`share` (L F0)^`power`/T + rho^2/n + rho^3/(delta Delta) + beta^2 rho
    Delta/delta."""
    first = share * level.initial**power / level.rounds
    return first + level.cluster.repaired(level.cluster.rho)


def family(
    parameter: str, levels: Sequence[Level], bound: Callable[[Level], float]
) -> Family:
    """Ratios of the mean square gradient to a bound, with noise -rho or rho."""
    ratios = [
        float(
            mean_square(
                level.start,
                level.step,
                *moments(level.cluster, level.radius),
                level.rounds,
            )
        )
        / bound(level)
        for level in levels
    ]
    clusters = [level.cluster for level in levels]
    return exactly(
        parameter,
        np.array([level.value for level in levels]),
        np.array(ratios),
        rounds=np.array([level.rounds for level in levels]),
        members=np.array([float(one.good) for one in clusters]),
        share=np.array([one.delta for one in clusters]),
        malicious=np.array([one.beta for one in clusters]),
        separation=np.array([one.separation for one in clusters]),
        noise=np.array([one.sigma for one in clusters]),
        batch=np.array([float(one.batch) for one in clusters]),
    )


def banded(
    statement: str,
    families: Sequence[Family],
    *,
    least: float = 0.0,
    relief: float = 0.0,
    **judged: Any,
) -> Verdict:
    """Judge that one constant does for all families, as `one_constant`, and that none
    below `least` would do at any level: no term of the bound is larger than needed."""
    upper = one_constant(statement, families, relief=relief, **judged)
    if not least:
        return upper
    relieved = [one.relieved(relief) for one in families]
    low = np.concatenate([one.low for one in relieved])
    high = np.concatenate([one.high for one in relieved])
    floor = within(
        statement,
        (low, high),
        (least, np.inf),
        num_trials=low.size,
        error_rate=0.0,
        grade=upper.grade,
        detail=f"at least {np.min(low):.3g}",
    )
    both = combine(statement, [upper, floor], detail=upper.detail)
    return dataclasses.replace(
        both,
        num_trials=upper.num_trials,
        error_rate=upper.error_rate,
        points=upper.points,
    )


def check_family(
    _: Preset,
    name: str,
    *,
    parameter: str,
    levels: Sequence[Level],
    bound: Callable[[Level], float],
    **judged: Any,
) -> Verdict:
    """One constant does for all levels, and the ratio does not grow along them."""
    return banded(name, [family(parameter, levels, bound)], **judged)
