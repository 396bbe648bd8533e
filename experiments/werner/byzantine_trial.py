"""One trial of attacks on Threshold-Clustering: how far a centre ends from its mean.

The number of attackers is traced, so that all shares run in one program: clients beyond
it are absent, points that are not finite. The kernel counts these among its N points;
its steps are scaled back to the clients that are there: rule (4) up to rounding.
"""

import dataclasses
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from cfljax.attacks import ATTACKS, Context, build
from cfljax.kernels.checks import check_member, check_positive
from cfljax.kernels.draws import flat_normal
from cfljax.kernels.threshold import threshold_clustering
from experiments.werner.byzantine_radii import BROKEN, Radii, radii, theorem_radius

__all__ = ["BREAKDOWN_DIMS", "DIMS", "Trial", "breakdown", "simulate"]

# Outputs of the trials and the names of their own axes.
DIMS: dict[str, tuple[str, ...]] = {
    "error": (),  # |v - mu|^2 after the last round
    "radius": (),  # tau of the last round
}
BREAKDOWN_DIMS: dict[str, tuple[str, ...]] = {
    "share": (),  # least attackers over honest clients whose error is above 4 tau^2
    "radius": (),  # Theorem 1's tau there
}


@dataclasses.dataclass(frozen=True)
class Trial:
    """Everything that one trial's law depends on.

    share is the number of attackers over that of the target's honest clients, which is
    beta / delta; num_places is the most attackers there can be. share, noise,
    separation and quantile are traced by the engine; the rest is static.
    """

    attack: str
    radii: Radii
    share: float
    noise: float
    separation: float
    quantile: float
    num_clusters: int
    num_members: int
    num_places: int
    num_features: int
    num_rounds: int

    def __post_init__(self) -> None:
        if self.attack not in ATTACKS:
            raise ValueError(
                f"`attack` must be in {tuple(ATTACKS)}, got {self.attack!r}."
            )
        check_member(Radii, radii=self.radii)
        for name in ("num_members", "num_places", "num_rounds"):
            check_positive(**{name: getattr(self, name)})
        if not 2 <= self.num_clusters <= self.num_features:
            raise ValueError(
                "`num_clusters` must be at least 2 and at most `num_features`, got "
                f"{self.num_clusters} and {self.num_features}."
            )
        most = self.num_places / self.num_members
        if not 0 <= self.share <= most:
            raise ValueError(f"`share` must be in [0, {most:g}], got {self.share}.")
        number = self.share * self.num_members
        if abs(number - round(number)) > 1e-6:
            raise ValueError(
                "`share` must be a whole number of attackers over `num_members`, got "
                f"{self.share} of {self.num_members}."
            )
        for name in ("noise", "separation"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"`{name}` must be positive, got {value}.")
        if not 0 <= self.quantile <= 1:
            raise ValueError(f"`quantile` must be from 0 to 1, got {self.quantile}.")


class Crowd(NamedTuple):
    """Honest points, then places for attackers, whose points are NaN and clusters -1.

    mean: mu, the true one of the target, cluster 0.
    """

    points: Float[Array, "clients features"]
    clusters: Int[Array, " clients"]
    mean: Float[Array, " features"]


def simulate(trial: Trial, key: PRNGKeyArray, _: None = None) -> dict[str, Array]:
    """One set of honest points under one attack: the arrays of `DIMS`.

    Attacks, radii and shares share the honest points of a trial.

    Args:
      trial: its parameters.
      key: splits into the keys of points and attack.
    """
    points_key, attack_key = jax.random.split(key)
    number = jnp.round(trial.share * trial.num_members).astype(int)
    error, radius = _attacked(trial, _crowd(trial, points_key), attack_key, number)
    return {"error": error, "radius": radius}


def breakdown(trial: Trial, key: PRNGKeyArray, _: None = None) -> dict[str, Array]:
    """The fewest attackers that send a centre away, by bisection.

    Away is an error above 4 tau^2. Of the numbers from 1 to `num_places` the least is
    found if whatever does so for some does for more, as an edge does.

    Args:
      trial: its parameters; its share has no part.
      key: as in `simulate`.

    Returns:
      The arrays of `BREAKDOWN_DIMS`; infinite where not even `num_places` do.
    """
    points_key, attack_key = jax.random.split(key)
    crowd = _crowd(trial, points_key)

    def halve(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        held, lost = ends  # It holds against so many, and is lost or beyond at so many.
        middle = (held + lost) // 2
        error, _ = _attacked(trial, crowd, attack_key, middle)
        broken = ~(error <= BROKEN * jnp.square(_theorem(trial, middle)))
        return jnp.where(broken, held, middle), jnp.where(broken, middle, lost)

    steps = math.ceil(math.log2(trial.num_places + 1))
    first = (jnp.zeros((), int), jnp.full((), trial.num_places + 1))
    _, lost = jax.lax.fori_loop(0, steps, halve, first)
    share = lost.astype(crowd.points.dtype) / trial.num_members
    share = jnp.where(lost > trial.num_places, jnp.inf, share)
    return {"share": share, "radius": _theorem(trial, lost)}


def _crowd(trial: Trial, key: PRNGKeyArray) -> Crowd:
    """Clusters at the corners of a simplex with edges Delta, sigma^2 over all axes."""
    corner = jnp.eye(trial.num_clusters, trial.num_features)
    means = trial.separation / math.sqrt(2) * corner
    honest = jnp.arange(trial.num_clusters * trial.num_members) // trial.num_members
    shape = (honest.shape[0], trial.num_features)
    spread = trial.noise / math.sqrt(trial.num_features)
    points = means[honest] + spread * flat_normal(key, shape)
    absent = jnp.full((trial.num_places, trial.num_features), jnp.nan, points.dtype)
    clusters = jnp.concatenate([honest, jnp.full((trial.num_places,), -1)])
    return Crowd(jnp.concatenate([points, absent]), clusters, means[0])


def _attacked(
    trial: Trial, crowd: Crowd, key: PRNGKeyArray, number: Int[Array, ""]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Squared error and radius of the target's centre, which starts at a member.

    The adaptive attack is asked in every round, all others once: clients send once.
    """
    attack, adaptive = build(trial.attack), trial.attack == "edge_adaptive"
    place = jnp.arange(crowd.clusters.shape[0])
    num_honest = trial.num_clusters * trial.num_members
    byzantine = (place >= num_honest) & (place < num_honest + number)
    crowd = crowd._replace(clusters=jnp.where(byzantine, 0, crowd.clusters))
    there = (num_honest + number).astype(crowd.points.dtype)
    radius, lure = radii(
        trial.radii, _theorem(trial, number), trial.quantile * (there - 1)
    )
    start = crowd.points[0]

    def send(centre: Float[Array, " features"]) -> Float[Array, "clients features"]:
        known = lure
        if callable(lure):
            alone = threshold_clustering(
                crowd.points, centre[None], num_rounds=1, radius=lure
            )
            known = alone.radii[0, 0]
        context = Context(clusters=crowd.clusters, start=start, centre=centre)
        return attack(key, crowd.points, byzantine, context._replace(radius=known))

    once = send(start)

    def clip(centre: Array, _: None) -> tuple[Array, Array]:
        messages = send(centre) if adaptive else once
        found = threshold_clustering(
            messages, centre[None], num_rounds=1, radius=radius
        )
        move = found.centres[0] - centre
        return centre + move * (place.shape[0] / there), found.radii[0, 0]

    centre, used = jax.lax.scan(clip, start, None, length=trial.num_rounds)
    return jnp.sum(jnp.square(centre - crowd.mean)), used[-1]


def _theorem(trial: Trial, number: Array) -> Float[Array, ""]:
    """tau of Theorem 1 with so many attackers."""
    share = number.astype(jnp.result_type(float)) / trial.num_members
    return theorem_radius(share, trial.num_clusters, trial.noise, trial.separation)
