"""The joint law of a client's losses on several models: diag(Wishart)/n.

Setting: "CLoVE: Personalized Federated Learning through Clustering of Loss Vector
Embeddings", Section 4. On n fresh samples the residuals of model j are W u_j, u_j =
(theta_j - theta*; -sigma), with one standard normal W, n x (d + 1), for all models. So
only the Gram matrix of the u_j matters: the losses are the diagonal of a Wishart matrix
over n. Entries are dependent. All in float64 NumPy.
"""

import numpy as np
import scipy.special
from jaxtyping import Float

from cfljax.base.checks import check_positive
from cfljax.law.chi import chi_mean_ratio

_BLOCK = 2**22  # numbers held at a time, 32 MB


def loss_factor(
    models: Float[np.ndarray, "models features"],
    truth: Float[np.ndarray, " features"],
    noise: float,
) -> Float[np.ndarray, "rank models"]:
    """B with B'B the Gram matrix of u_j = (theta_j - theta*; -sigma).

    Args:
      models: `[models, features]`, theta_j.
      truth: `[features]`, theta* of the client's cluster.
      noise: sigma, at least 0.

    Returns:
      `[rank, models]`, rank = min(d + 1, models); |column j| = alpha_j.

    Raises:
      ValueError: if `noise` is negative.
    """
    if not noise >= 0:
        raise ValueError(f"`noise` must be at least 0, got {noise}.")
    last = np.full((len(models), 1), -float(noise))
    columns = np.concatenate([models - truth, last], axis=1).T
    if len(models) >= len(columns):
        return columns
    return np.asarray(np.linalg.qr(columns, mode="r"))


def loss_vectors(
    generator: np.random.Generator,
    factor: Float[np.ndarray, "rank models"],
    *,
    num_samples: int,
    num_clients: int,
) -> Float[np.ndarray, "clients models"]:
    """Mean squared losses of independent clients of one cluster, exactly in law.

    For n >= rank by Bartlett's decomposition W = Q T, where T is upper triangular with
    independent chi_n, chi_{n-1}, ... on its diagonal and normals above: no sample is
    drawn. For n < rank W itself is smaller.

    Args:
      generator: of the draws.
      factor: `[rank, models]`, from `loss_factor`.
      num_samples: n, at least 1.
      num_clients: at least 1.

    Returns:
      `[clients, models]`. Cost: min(n, rank) * rank * models per client.

    Raises:
      ValueError: if a count is below 1.
    """
    check_positive(num_samples=num_samples, num_clients=num_clients)
    rows = min(num_samples, len(factor))
    block = max(1, _BLOCK // (rows * max(factor.shape)))
    found = []
    for start in range(0, num_clients, block):
        size = min(block, num_clients - start)
        drawn = _rows(generator, size, num_samples, len(factor))
        flat = drawn.reshape(size * rows, len(factor)) @ factor
        squares = flat.reshape(size, rows, factor.shape[1]) ** 2
        found.append(np.sum(squares, axis=1) / num_samples)
    return np.concatenate(found)


def root_loss_covariance(
    factor: Float[np.ndarray, "rank models"], num_samples: int
) -> Float[np.ndarray, "models models"]:
    """Covariance of F, the square roots of the losses of `loss_vectors`, exactly.

    E F_j F_l = alpha_j alpha_l kappa_n^2 2F1(-1/2, -1/2; n/2; r^2), r the cosine of
    u_j and u_l; about G_jl^2/(2 n alpha_j alpha_l) for large n.

    Args:
      factor: `[rank, models]`, from `loss_factor`.
      num_samples: n, at least 1.

    Returns:
      `[models, models]`, to about 1e-15 n in relative terms. Cost: a hypergeometric
      function per entry.

    Raises:
      ValueError: if `num_samples` is below 1.
    """
    ratio = chi_mean_ratio(num_samples)
    gram = factor.T @ factor
    length = np.sqrt(np.diagonal(gram))
    scale = length[:, None] * length
    cosine = np.divide(gram, scale, out=np.zeros_like(gram), where=scale > 0)
    square = np.minimum(cosine**2, 1.0)
    excess = scipy.special.hyp2f1(-0.5, -0.5, num_samples / 2, square) - 1
    return scale * ratio**2 * excess


def _rows(
    generator: np.random.Generator, clients: int, num_samples: int, rank: int
) -> Float[np.ndarray, "clients rows rank"]:
    """W, or where that has more rows than columns the T of its decomposition."""
    drawn = generator.standard_normal((clients, min(num_samples, rank), rank))
    if num_samples < rank:
        return drawn
    freedom = num_samples - np.arange(float(rank))
    diagonal = np.sqrt(generator.chisquare(freedom, (clients, rank)))
    return np.triu(drawn, 1) + np.eye(rank) * diagonal[:, None]
