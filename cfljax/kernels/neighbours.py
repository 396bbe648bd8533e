"""Nearest neighbours among a client's own samples, and means over them."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, ScalarLike

from cfljax.kernels.checks import check_optional, check_positive

__all__ = ["nearest_samples", "neighbour_mean"]


def nearest_samples(
    points: Float[Array, "samples features"],
    mask: Bool[Array, " samples"],
    queries: Float[Array, "queries features"],
    num_neighbours: int,
    *,
    queries_per_chunk: int | None = None,
) -> tuple[Int[Array, "queries neighbours"], Float[Array, "queries neighbours"]]:
    """Indices and squared Euclidean distances of each query's nearest points.

    Args:
      points: what is searched.
      mask: false on padding, which is nobody's neighbour; nor is a point that is not
        finite.
      queries: a query that is not finite has no neighbours.
      num_neighbours: k, at least 1; all points if there are fewer.
      queries_per_chunk: queries searched at a time; all at once if None.

    Returns:
      Nearest first, ties in the order of the points. Where there are fewer than k,
      the distances of the rest are infinite and their indices without meaning.

    Raises:
      ValueError: if a number is below 1.

    Cost: a product of `[queries, features]` and `[features, samples]`, and a search
    of the k largest; memory grows with `queries_per_chunk x samples`. Points are
    centred first, which keeps the digits that inner products of far-away points
    would lose.
    """
    check_positive(num_neighbours=num_neighbours)
    check_optional(queries_per_chunk=queries_per_chunk)
    real = mask & jnp.all(jnp.isfinite(points), axis=1)
    kept = jnp.where(real[:, None], points, 0)
    number = jnp.maximum(jnp.sum(real, dtype=points.dtype), 1)
    middle = (jnp.sum(kept, axis=0) / number)[None, :]
    kept = jnp.where(real[:, None], points - middle, 0)
    lengths = jnp.sum(jnp.square(kept), axis=1)
    count = min(num_neighbours, points.shape[0])

    def search(query: Float[Array, " features"]) -> tuple[Array, Array]:
        inner = jnp.matmul(kept, query, precision=jax.lax.Precision.HIGHEST)
        squares = jnp.maximum(lengths + jnp.sum(jnp.square(query)) - 2 * inner, 0)
        squares = jnp.where(real & jnp.isfinite(squares), squares, jnp.inf)
        nearest, indices = jax.lax.top_k(-squares, count)
        return indices, -nearest

    centred = queries - middle
    if queries_per_chunk is None:
        return jax.vmap(search)(centred)
    size = min(queries_per_chunk, queries.shape[0])
    return jax.lax.map(search, centred, batch_size=size)


def neighbour_mean(
    values: Float[Array, "samples outputs"],
    indices: Int[Array, "queries neighbours"],
    squares: Float[Array, "queries neighbours"],
    width: ScalarLike,
) -> tuple[Float[Array, "queries outputs"], Bool[Array, " queries"]]:
    """Mean of the neighbours' values, weighted by `exp(-squares / width)`.

    Weights are taken relative to the nearest one, so that far queries do not divide
    zero by zero.

    Args:
      values: of the points, such as one-hot labels.
      indices: of `nearest_samples`.
      squares: likewise.
      width: of the kernel, in units of a squared distance; may be traced.

    Returns:
      The means, zero where there is no neighbour, and where there is one.
    """
    used = jnp.isfinite(squares)
    known = jnp.any(used, axis=1)
    nearest = jnp.where(known, jnp.min(squares, axis=1), 0)
    beyond = jnp.where(used, squares - nearest[:, None], 0)
    weights = jnp.where(used, jnp.exp(-beyond / width), 0)
    total = jnp.where(known, jnp.sum(weights, axis=1), 1)
    means = jnp.einsum("qk,qko->qo", weights, values[indices], precision="highest")
    return means / total[:, None], known
