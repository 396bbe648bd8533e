"""One repetition of Figure 4: distances of centres from the truth, round by round."""

import dataclasses
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from cfljax.kernels.checks import check_member, check_positive
from cfljax.kernels.distance import euclidean, least_distance
from cfljax.kernels.draws import flat_normal
from cfljax.kernels.threshold import threshold_clustering
from cfljax.kernels.threshold_radius import quantile_radius

__all__ = ["DIMS", "Start", "Trial", "simulate"]

# What centre k starts from. member: the first sample of blob k; random: a sample, all
# different, and its distance is from the centre of that sample's blob; near: the true
# centre plus N(0, spread^2 I); origin: 0, so that all centres move as one.
Start = Literal["member", "random", "near", "origin"]

# Outputs of a trial and the names of their own axes.
DIMS: dict[str, tuple[str, ...]] = {
    "own": ("round",),  # mean distance of a centre from the truth of its start
    "nearest": ("round",),  # mean distance of a true centre from the nearest one
    "separation": (),  # Delta, least distance of two true centres
}


@dataclasses.dataclass(frozen=True)
class Trial:
    """Everything that one repetition's law depends on.

    deviation, box and spread are traced by the engine; the rest is static.
    """

    start: Start
    deviation: float
    quantile: str
    num_clusters: int
    num_members: int
    num_features: int
    num_rounds: int
    box: float
    spread: float

    def __post_init__(self) -> None:
        check_member(Start, start=self.start)
        check_positive(num_members=self.num_members, num_features=self.num_features)
        check_positive(num_rounds=self.num_rounds)
        quantile_radius(float(self.quantile))
        if self.num_clusters < 2:
            raise ValueError(
                f"`num_clusters` must be at least 2, got {self.num_clusters}."
            )


def simulate(trial: Trial, key: PRNGKeyArray, _: None = None) -> dict[str, Array]:
    """Blobs as scikit-learn makes them, and Threshold-Clustering of them.

    True centres are uniform in a box, samples N(centre, deviation^2 I). Deviations
    and starts share the random numbers of a repetition, hence the true centres.

    Args:
      trial: its parameters.
      key: of the repetition.

    Returns:
      The arrays of `DIMS`; round 0 is the start.
    """
    centre_key, sample_key, start_key = jax.random.split(key, 3)
    shape = (trial.num_clusters, trial.num_features)
    truth = jax.random.uniform(centre_key, shape, minval=-1, maxval=1) * trial.box
    sizes = (trial.num_clusters, trial.num_members, trial.num_features)
    noise = trial.deviation * flat_normal(sample_key, sizes)
    points = (truth[:, None, :] + noise).reshape(-1, trial.num_features)
    centres, origin = _start(trial, start_key, points, truth)

    def clip(centres: Array, _: None) -> tuple[Array, Array]:
        found = threshold_clustering(
            points,
            centres,
            num_rounds=1,
            radius=quantile_radius(float(trial.quantile)),
        )
        return found.centres, found.centres

    later = jax.lax.scan(clip, centres, None, length=trial.num_rounds)[1]
    path = jnp.concatenate([centres[None], later])
    own = jnp.mean(jnp.linalg.norm(path - truth[origin][None], axis=2), axis=1)
    nearest = jax.lax.map(
        lambda centres: jnp.mean(jnp.min(euclidean(truth, centres), axis=1)), path
    )
    return {"own": own, "nearest": nearest, "separation": least_distance(truth)}


def _start(
    trial: Trial,
    key: PRNGKeyArray,
    points: Float[Array, "points features"],
    truth: Float[Array, "clusters features"],
) -> tuple[Float[Array, "clusters features"], Array]:
    """Centres to start from, and which true centre each is measured from."""
    every = jnp.arange(trial.num_clusters)
    if trial.start == "member":
        return points[every * trial.num_members], every
    if trial.start == "random":
        chosen = jax.random.permutation(key, points.shape[0])[: trial.num_clusters]
        return points[chosen], chosen // trial.num_members
    if trial.start == "near":
        return truth + trial.spread * flat_normal(key, truth.shape), every
    return jnp.zeros_like(truth), every
