"""Mean loss vectors of clusters, and how far apart they are.

c_k = (E F_k(theta_1), ..., E F_k(theta_N)), E F_k(theta_j) = kappa_n alpha_kj with
alpha_kj = sqrt(|theta_j - theta_k*|^2 + sigma^2). The paper drops kappa_n.
"""

import numpy as np
from jaxtyping import Float

from cfljax.base import Numbers


def random_units(
    generator: np.random.Generator, shape: tuple[int, ...]
) -> Float[np.ndarray, "..."]:
    """Vectors uniform on the unit sphere, along the last axis of `shape`."""
    vectors = generator.standard_normal(shape)
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def alphas(
    truth: Float[np.ndarray, "*points features"],
    models: Float[np.ndarray, "*points models features"],
    noise: Numbers,
) -> Float[np.ndarray, "*points models"]:
    """alpha(theta_j, theta*) of every model."""
    square = np.sum((models - truth[..., None, :]) ** 2, axis=-1)
    return np.sqrt(square + np.asarray(noise)[..., None] ** 2)


def separation(
    first: Float[np.ndarray, "*points features"],
    second: Float[np.ndarray, "*points features"],
    models: Float[np.ndarray, "*points models features"],
    noise: Numbers,
) -> Float[np.ndarray, "*points"]:
    """|c_1 - c_2| of two truths, without kappa, as <theta_1* - theta_2*, theta_1* +
    theta_2* - 2 theta_j> / (alpha_1j + alpha_2j), which keeps its digits."""
    total = alphas(first, models, noise) + alphas(second, models, noise)
    reach = (first + second)[..., None, :] - 2 * models
    gap = np.einsum("...f,...mf->...m", first - second, reach) / total
    return np.asarray(np.linalg.norm(gap, axis=-1))


def ortho_separation(
    first: Float[np.ndarray, "*points features"],
    second: Float[np.ndarray, "*points features"],
    noise: Numbers,
) -> Float[np.ndarray, "*points"]:
    """`separation` of unit truths in the basis of N = d orthonormal models, where
    alpha_kj^2 = 2 + sigma^2 - 2 theta*_kj."""
    level = 2 + np.asarray(noise)[..., None] ** 2
    total = np.sqrt(level - 2 * first) + np.sqrt(level - 2 * second)
    return np.asarray(np.linalg.norm(2 * (first - second) / total, axis=-1))
