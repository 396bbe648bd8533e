"""One data set of Figure 2: what the assumptions' constants are along the way."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from cfljax.kernels.checks import check_member, check_positive
from experiments.werner.synthetic import Minimisers, curvatures, shifted_linear

__all__ = ["DIMS", "Trial", "simulate"]

# Outputs of a trial and the names of their own axes.
DIMS: dict[str, tuple[str, ...]] = {
    "within": ("round", "client"),  # (7) at the model of the client's cluster
    "between": ("round", "client"),  # (8), least over clients of other clusters
    "within_anywhere": ("client",),  # sup of (7) over all models
    "between_anywhere": (),  # (8) of one pair of clients, at one model
    "distance": ("round", "cluster"),  # of the cluster's model from its minimiser
}

_LEAST = 1e-8  # Of the first mean gradient: below it (7) is 0 / 0.


@dataclasses.dataclass(frozen=True)
class Trial:
    """Everything that one data set's law depends on.

    first_mean is traced by the engine; the rest is static.
    """

    minimisers: Minimisers
    first_mean: float
    num_clusters: int
    num_members: int
    num_samples: int
    num_features: int
    num_rounds: int

    def __post_init__(self) -> None:
        check_member(Minimisers, minimisers=self.minimisers)
        check_positive(num_members=self.num_members, num_samples=self.num_samples)
        check_positive(num_features=self.num_features, num_rounds=self.num_rounds)
        if self.num_clusters < 2:
            raise ValueError(
                f"`num_clusters` must be at least 2, got {self.num_clusters}."
            )


def simulate(trial: Trial, key: PRNGKeyArray, _: None = None) -> dict[str, Array]:
    """Gradient descent of every cluster, with everybody in the right one.

    All clusters start at 0 and use one step size, 1 over the largest curvature of a
    cluster's loss. All gradients are linear in the distance from a minimiser, which is
    what is iterated, so that nothing cancels near the end.

    Args:
      trial: its parameters.
      key: of the data set.

    Returns:
      The arrays of `DIMS`; (7) is NaN where the mean gradient is below 1e-8 of the
      first.
    """
    data, truth = shifted_linear(
        key,
        num_clusters=trial.num_clusters,
        num_members=trial.num_members,
        num_samples=trial.num_samples,
        num_features=trial.num_features,
        minimisers=trial.minimisers,
        first_mean=trial.first_mean,
    )
    own = curvatures(data)
    sizes = (trial.num_clusters, trial.num_members, *own.shape[1:])
    means = jnp.mean(own.reshape(sizes), axis=1)  # of the clusters' mean losses
    step = 1 / jnp.max(jnp.linalg.eigvalsh(means))
    models, clusters = truth.models, truth.clusters
    first = -models  # x_0 - x*
    initial = _norms(_apply(means, first))

    def move(aside: Array, _: None) -> tuple[Array, tuple[Array, ...]]:
        mean = _apply(means, aside)  # of the gradients, [clusters, features]
        ratio = (
            _norms(_apply(own, aside[clusters]) - mean[clusters])
            / jnp.where(_norms(mean) > _LEAST**2 * initial, _norms(mean), jnp.nan)[
                clusters
            ]
        )  # (7)
        at = (aside + models)[:, None, :] - models[clusters][None]  # x_k - x*_j
        gradients = jnp.einsum("jde,kje->kjd", own, at, precision="highest")
        found = ratio, _between(gradients, clusters), jnp.sqrt(_norms(aside))
        return aside - step * mean, found

    found = jax.lax.scan(move, first, None, length=trial.num_rounds)[1]
    return {
        **dict(zip(("within", "between", "distance"), found, strict=True)),
        "within_anywhere": _largest(own, means[clusters]),
        "between_anywhere": _meeting(own, models, clusters),
    }


def _apply(matrices: Array, vectors: Array) -> Array:
    return jnp.einsum("kde,ke->kd", matrices, vectors, precision="highest")


def _norms(vectors: Float[Array, "rows features"]) -> Float[Array, " rows"]:
    """Squared."""
    return jnp.sum(jnp.square(vectors), axis=1)


def _between(
    gradients: Float[Array, "clusters clients features"], clusters: Array
) -> Float[Array, " clients"]:
    """(8) of each client at its cluster's model, least over other clusters' clients."""

    def of(index: Array) -> Array:
        there = gradients[clusters[index]]
        gaps = _norms(there - there[index][None])
        return jnp.min(jnp.where(clusters == clusters[index], jnp.inf, gaps))

    return jax.lax.map(of, jnp.arange(clusters.shape[0]))


def _largest(own: Array, mean: Array) -> Float[Array, " clients"]:
    """sup over all models of (7): the squared norm of (H_i - H) H^-1."""
    turned = jnp.linalg.solve(mean, own - mean)  # The transposed of it: both symmetric.
    return jnp.square(jnp.linalg.norm(turned, ord=2, axis=(1, 2)))


def _meeting(own: Array, models: Array, clusters: Array) -> Float[Array, ""]:
    """(8) of the first and the last client where their gradients should be the same.

    H_i (x - x*_k) = H_j (x - x*_l) has a solution x wherever H_i - H_j is invertible.
    """
    i, j = 0, clusters.shape[0] - 1
    product = lambda matrix, vector: jnp.matmul(matrix, vector, precision="highest")
    target = product(own[i], models[clusters[i]]) - product(own[j], models[clusters[j]])
    at = jnp.linalg.solve(own[i] - own[j], target)
    gap = product(own[i], at - models[clusters[i]])
    gap = gap - product(own[j], at - models[clusters[j]])
    return jnp.sum(jnp.square(gap))
