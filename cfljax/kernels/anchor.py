"""The latest clustering of loss vectors, by which a newcomer finds its model."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from cfljax.kernels.distance import squared_euclidean
from cfljax.kernels.evaluate import NO_CLUSTER, choose_cluster, loss_matrix
from cfljax.kernels.loss_vectors import embed
from cfljax.kernels.tree import length
from cfljax.types import ClientData, Stacked, Task

__all__ = [
    "Anchor",
    "centroids_of",
    "first_anchor",
    "join_anchor",
    "move_anchor",
    "nearest_centroid",
]


class Anchor(NamedTuple):
    """Models and centroids, saved together (CLoVE, Algorithm 1, line 15).

    models: leaves `[clusters, ...]`, those that the latest clustering was made with.
    centroids: mean embedding, under these models, of the clients of each model; of an
      earlier clustering for a model that nobody was matched to in the latest; NaN
      for one that nobody ever was.
    """

    models: Stacked
    centroids: Float[Array, "clusters clusters"]


def first_anchor(models: Stacked) -> Anchor:
    """No clustering yet."""
    number = length(models)
    return Anchor(models, jnp.full((number, number), jnp.nan, jnp.result_type(float)))


def move_anchor(
    anchor: Anchor,
    models: Stacked,
    points: Float[Array, "clients clusters"],
    assignment: Int[Array, " clients"],
    *,
    stays: Bool[Array, ""],
) -> Anchor:
    """The anchor after a clustering.

    Args:
      anchor: of the clustering before.
      models: leaves `[clusters, ...]`, which the clients evaluated.
      points: the clients' embedded loss vectors.
      assignment: model of each client; negative for clients that count for nothing.
      stays: true where nothing was clustered, which keeps the old anchor.
    """
    new = Anchor(models, centroids_of(points, assignment, empty=anchor.centroids))
    return jax.tree.map(lambda old, new: jnp.where(stays, old, new), anchor, new)


def join_anchor(
    task: Task,
    anchor: Anchor,
    data: ClientData,
    *,
    embedding: str,
    clients_per_chunk: int | None = None,
) -> Int[Array, " clients"]:
    """The model of nearest centroid for clients that were never clustered (line 15).

    Args:
      task: the learning problem.
      anchor: of the latest clustering; before the first, the model of least loss is
        taken.
      data: of the clients.
      embedding: see `kernels.loss_vectors.embed`.
      clients_per_chunk: see `kernels.evaluate.loss_matrix`, whose cost this has.
    """
    losses = loss_matrix(task, anchor.models, data, clients_per_chunk=clients_per_chunk)
    nearest = nearest_centroid(embed(losses, embedding), anchor.centroids)
    return jnp.where(nearest >= 0, nearest, choose_cluster(losses))


def centroids_of(
    points: Float[Array, "clients clusters"],
    assignment: Int[Array, " clients"],
    *,
    empty: Float[Array, "clusters clusters"],
) -> Float[Array, "clusters clusters"]:
    """Mean embedding of the clients of each model.

    Args:
      points: embedded loss vectors.
      assignment: model of each client; negative for clients that count for nothing.
      empty: what a model without clients keeps.
    """
    number = points.shape[1]
    members = assignment[:, None] == jnp.arange(number)[None, :]
    kept = jnp.where(members[:, :, None], points[:, None, :], 0)
    sizes = jnp.sum(members, axis=0, dtype=points.dtype)[:, None]
    means = jnp.sum(kept, axis=0) / jnp.maximum(sizes, 1)
    return jnp.where(sizes > 0, means, empty)


def nearest_centroid(
    points: Float[Array, "clients clusters"],
    centroids: Float[Array, "clusters clusters"],
) -> Int[Array, " clients"]:
    """The model whose clients' mean embedding is nearest.

    `NO_CLUSTER` for a point that is not finite, and while there is no centroid; rows
    of NaN are no centroids.
    """
    squares = squared_euclidean(points, centroids)
    known = jnp.isfinite(squares)
    nearest = jnp.argmin(jnp.where(known, squares, jnp.inf), axis=1)
    return jnp.where(jnp.any(known, axis=1), nearest, NO_CLUSTER)
