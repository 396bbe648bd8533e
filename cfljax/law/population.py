"""Who takes part in an exact-law simulation, and where everybody stands.

Setting: Ghosh et al., Section 5.1. A client of cluster l draws n' fresh samples
y = <x, truths[l]> + noise z for every use, with standard normal x in d dimensions. The
laws only depend on inner products of truths and models, so vectors are held by their
coordinates in a frame:

- d dimensions where d is small, with nothing left out ("plain");
- else one dimension per truth, one per model, and a law for what is outside.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Num, PRNGKeyArray

from cfljax.law.gradients import bartlett


class Population(NamedTuple):
    """The clients, known up to rotation.

    truths: `[clusters, frame]`, coordinates of the true models.
    num_clients: `[clusters]`, clients of each true cluster.
    num_samples: n', samples that a client draws afresh for each use, at least 1.
    num_features: d.
    noise: standard deviation of the label noise, at least 0.
    """

    truths: Float[np.ndarray, "clusters frame"]
    num_clients: Float[np.ndarray, " clusters"]
    num_samples: float
    num_features: float
    noise: float


def population(
    truths: Float[np.ndarray, "clusters features"],
    *,
    num_models: int,
    num_clients: Num[np.ndarray, " counts"],
    num_samples: int | float,
    num_features: int | float,
    noise: int | float,
) -> Population:
    """A checked population whose truths are given in any orthonormal coordinates.

    Args:
      truths: `[clusters, features]`; features beyond the last one given are 0, so a
        dimension of 1e8 needs no more columns than there are truths.
      num_models: models that will be trained, at least 1.
      num_clients: `[clusters]`, whole numbers of at least 0.
      num_samples: n', a whole number of at least 1.
      num_features: d, at least the number of columns of `truths`.
      noise: at least 0.

    Raises:
      ValueError: on anything outside of these ranges.
    """
    counts = np.asarray(num_clients, float)
    if counts.shape != truths.shape[:1] or np.any((counts < 0) | (counts % 1 != 0)):
        raise ValueError(
            f"`num_clients` must be one whole number per truth, got {num_clients}."
        )
    if num_models < 1:
        raise ValueError(f"`num_models` must be at least 1, got {num_models}.")
    if not (num_samples >= 1 and num_samples % 1 == 0):
        raise ValueError(
            f"`num_samples` must be a whole number of at least 1, got {num_samples}."
        )
    if not (num_features >= truths.shape[1] and num_features % 1 == 0):
        raise ValueError(
            f"`num_features` must be a whole number of at least {truths.shape[1]}, the "
            f"columns of `truths`, got {num_features}."
        )
    if not noise >= 0:
        raise ValueError(f"`noise` must be at least 0, got {noise}.")
    clusters = len(truths)
    if is_plain(clusters, num_models, num_features):
        coordinates = np.pad(truths.astype(float), _right(truths, int(num_features)))
    else:
        along = _rotated(truths, truths)[:, :clusters]
        coordinates = np.pad(along, ((0, 0), (0, num_models)))
    return Population(
        coordinates, counts, float(num_samples), float(num_features), float(noise)
    )


def is_plain(num_clusters: int, num_models: int, num_features: int | float) -> bool:
    """Whether all d coordinates are held: with fewer than clusters + 2 models of them
    nothing, or too little for a Wishart law, would be left outside the frame."""
    return num_features < num_clusters + 2 * num_models


def place(
    truths: Float[np.ndarray, "clusters features"],
    models: Float[np.ndarray, "*trials models others"],
    *,
    num_features: int | float,
) -> Float[np.ndarray, "*trials models frame"]:
    """Coordinates of models in the frame of `population`, inner products preserved.

    Args:
      truths: as given to `population`.
      models: `[..., models, others]`, in the same coordinates as `truths`, of which
        either may leave out those that are 0.
      num_features: d.

    Returns:
      `[..., models, frame]`.
    """
    if is_plain(len(truths), models.shape[-2], num_features):
        return np.pad(models.astype(float), _right(models, int(num_features)))
    along, outside = np.split(_rotated(truths, models), [len(truths)], axis=-1)
    return np.concatenate([along, _triangular(outside)], axis=-1)


def random_starts(
    key: PRNGKeyArray,
    population: Population,
    *,
    num_trials: int,
    num_models: int,
    scale: int | float,
    first_trial: int = 0,
) -> Float[np.ndarray, "trials models frame"]:
    """Models with independent N(0, scale^2) features, exactly in law.

    What lies outside the truths' span has a Wishart Gram matrix, drawn by Bartlett's
    decomposition. Trial i uses `fold_in(key, i)`.

    Args:
      key: of all trials.
      population: made by `population` for the same `num_models`.
      num_trials: at least 1.
      num_models: K.
      scale: standard deviation of each feature.
      first_trial: number of the first of these trials, at least 0.

    Raises:
      ValueError: if `first_trial` is negative.
    """
    if first_trial < 0:
        raise ValueError(f"`first_trial` must be at least 0, got {first_trial}.")
    clusters, frame = population.truths.shape
    plain = is_plain(clusters, num_models, float(population.num_features))
    with jax.enable_x64(True):
        starts = _standard_starts(
            key,
            jnp.asarray(population.num_features - clusters),
            first_trial + jnp.arange(num_trials),
            shape=(num_models, frame if plain else clusters),
            plain=plain,
        )
        return scale * np.asarray(starts)


@functools.partial(jax.jit, static_argnames=("shape", "plain"))
def _standard_starts(
    key: PRNGKeyArray,
    num_outside: Float[Array, ""],
    indices: Int[Array, " trials"],
    *,
    shape: tuple[int, int],
    plain: bool,
) -> Float[Array, "trials models frame"]:
    """Starts of scale 1. Compiled once for every number of trials and shape."""

    def start(index: Int[Array, ""]) -> Array:
        along_key, outside_key = jax.random.split(jax.random.fold_in(key, index))
        along = jax.random.normal(along_key, shape)
        if plain:
            return along
        outside = bartlett(outside_key, shape[0], num_outside)
        return jnp.concatenate([along, outside], axis=1)

    return jax.vmap(start)(indices)


def distances(
    truths: Float[np.ndarray, "clusters frame"],
    models: Float[np.ndarray, "*trials models frame"],
) -> Float[np.ndarray, "*trials clusters models"]:
    """|truths[l] - models[..., j]|, `[..., clusters, models]`."""
    return np.linalg.norm(truths[:, None] - models[..., None, :, :], axis=-1)


def _rotated(
    truths: Float[np.ndarray, "clusters features"],
    vectors: Float[np.ndarray, "*trials rows others"],
) -> Float[np.ndarray, "*trials rows columns"]:
    """Coordinates in an orthonormal basis whose first vectors span the truths, by
    Householder's reflections, so that dependent truths do no harm."""
    columns = max(vectors.shape[-1], *truths.shape)
    padded = np.pad(np.asarray(truths, float), _right(truths, columns))
    basis, upper = np.linalg.qr(padded.T, mode="complete")
    signs = np.ones(columns)
    signs[: len(truths)] = np.where(np.diag(upper) < 0, -1.0, 1.0)
    return np.pad(np.asarray(vectors, float), _right(vectors, columns)) @ (
        basis * signs
    )


def _right(vectors: np.ndarray, columns: int) -> list[tuple[int, int]]:
    """Widths of zeros to the right, for `np.pad`."""
    return [(0, 0)] * (vectors.ndim - 1) + [(0, max(0, columns - vectors.shape[-1]))]


def _triangular(
    vectors: Float[np.ndarray, "*trials rows features"],
) -> Float[np.ndarray, "*trials rows rows"]:
    """Lower-triangular rows with the vectors' inner products, signs positive."""
    wide = np.pad(np.asarray(vectors, float), _right(vectors, vectors.shape[-2]))
    upper = np.linalg.qr(np.swapaxes(wide, -1, -2), mode="r")
    signs = np.where(np.diagonal(upper, axis1=-2, axis2=-1) < 0, -1.0, 1.0)
    return np.swapaxes(upper * signs[..., None], -1, -2)
