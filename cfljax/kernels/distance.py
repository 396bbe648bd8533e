"""Distances between sets of models."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from cfljax.kernels.cluster import match_clusters

__all__ = [
    "bottleneck_distance",
    "euclidean",
    "least_distance",
    "squared_euclidean",
]


def euclidean(
    left: Float[Array, "rows features"], right: Float[Array, "columns features"]
) -> Float[Array, "rows columns"]:
    """Euclidean distance of every row of `left` to every row of `right`.

    By differences, not by inner products, which cancel where two models are close.
    Memory grows with `rows x columns x features`.
    """
    return jnp.linalg.norm(left[:, None, :] - right[None, :, :], axis=2)


def squared_euclidean(
    left: Float[Array, "rows features"], right: Float[Array, "columns features"]
) -> Float[Array, "rows columns"]:
    """Squares of `euclidean`, by differences as well and at the same cost."""
    return jnp.sum(jnp.square(left[:, None, :] - right[None, :, :]), axis=2)


def least_distance(models: Float[Array, "clusters features"]) -> Float[Array, ""]:
    """Delta, the least distance between two of the models; infinite for one model."""
    distances = euclidean(models, models)
    apart = ~jnp.eye(models.shape[0], dtype=bool)
    return jnp.min(jnp.where(apart, distances, jnp.inf))


def bottleneck_distance(
    left: Float[Array, "clusters features"], right: Float[Array, "clusters features"]
) -> Float[Array, ""]:
    """Largest distance of a matched pair, under the matching that makes it least.

    `min_p max_j ||left_j - right_p(j)||` over one-to-one matchings p: the quantity
    that Assumption 1 of IFCA bounds by `(1/2 - alpha_0) Delta`. NaN if a model is.

    Cost: one matching for each of the `clusters^2` candidate values.
    """
    distances = euclidean(left, right)

    def pairs_beyond(radius: Float[Array, ""]) -> Float[Array, ""]:
        beyond = (distances > radius).astype(distances.dtype)
        best = match_clusters(beyond)
        return jnp.sum(jnp.take_along_axis(beyond, best[:, None], axis=1))

    candidates = distances.ravel()
    feasible = jax.vmap(pairs_beyond)(candidates) == 0
    least = jnp.min(jnp.where(feasible, candidates, jnp.inf))
    return jnp.where(jnp.any(jnp.isnan(distances)), jnp.nan, least)
