"""The synthetic regression of section 4.1, and its constants of Assumptions 4 to 6.

Client i of cluster k has A_i in R^{d x n} with entries N(k, 1), targets y_i = A_i^T
x*_k and the loss f_i(x) = |A_i^T x - y_i|^2 / (2 n), whose gradient is H_i (x - x*_k)
with H_i = A_i A_i^T / n. All of a cluster share the minimiser. The paper leaves open
the law of x*_k, here N(0, I), the first k, here 1, and the loss's factor, here 1/(2 n).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

__all__ = [
    "Regression",
    "certificate",
    "descent",
    "draw_regression",
    "gradients",
    "intra_ratio",
    "least_apart",
    "noise_forms",
    "worst_ratio",
]


class Regression(NamedTuple):
    """Clients of the task.

    inputs: `[clusters, clients, features, samples]`, A_i.
    hessians: `[clusters, clients, features, features]`, H_i.
    optima: `[clusters, features]`, x*_k.
    """

    inputs: Float[np.ndarray, "clusters clients features samples"]
    hessians: Float[np.ndarray, "clusters clients features features"]
    optima: Float[np.ndarray, "clusters features"]


def draw_regression(
    generator: np.random.Generator,
    *,
    num_clients: int = 75,
    num_clusters: int = 4,
    features: int = 10,
    samples: int = 9,
) -> Regression:
    """A draw of the task, by default of the size of Figure 2.

    Args:
      generator: to draw from.
      num_clients: n_i, in each cluster.
      num_clusters: K; cluster k = 1 .. K has inputs with mean k.
      features: d.
      samples: n of each client.
    """
    shape = (num_clusters, num_clients, features, samples)
    means = np.arange(1, num_clusters + 1, dtype=float)[:, None, None, None]
    inputs = means + generator.standard_normal(shape)
    hessians = inputs @ np.swapaxes(inputs, -1, -2) / samples
    optima = generator.standard_normal((num_clusters, features))
    return Regression(inputs, hessians, optima)


def gradients(
    task: Regression, place: Float[np.ndarray, " features"]
) -> Float[np.ndarray, "clusters clients features"]:
    """grad f_i of every client at one place x."""
    error = place - task.optima
    return np.einsum("knij,kj->kni", task.hessians, error)


def intra_ratio(
    task: Regression, cluster: int, places: Float[np.ndarray, "places features"]
) -> Float[np.ndarray, "places clients"]:
    """Ratio (7) of each client of a cluster, NaN at the minimiser, where it is 0/0."""
    error = places - task.optima[cluster]
    own = np.einsum("nij,pj->pni", task.hessians[cluster], error)
    mean = np.mean(own, axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        apart = np.sum((own - mean) ** 2, axis=-1)
        return apart / np.sum(mean**2, axis=-1)


def least_apart(
    task: Regression, models: Float[np.ndarray, "clusters features"]
) -> float:
    """Least |grad f_i - grad f_j|^2 over i !~ j, at the model of the cluster of i."""
    least = np.inf
    for cluster, model in enumerate(models):
        found = gradients(task, model)
        others = np.delete(found, cluster, axis=0).reshape(-1, len(model))
        apart = found[cluster][:, None] - others[None]
        least = min(least, float(np.min(np.sum(apart**2, axis=-1))))
    return least


def worst_ratio(
    task: Regression, cluster: int
) -> tuple[Float[np.ndarray, " clients"], Float[np.ndarray, "clients features"]]:
    """A_i^2, the largest ratio (7) over all x, and an x where it is attained.

    It is the squared operator norm of (H_i - Hbar) Hbar^-1.

    Raises:
      LinAlgError: if the cluster's mean Hessian is singular.
    """
    hessians = task.hessians[cluster]
    inverse = np.linalg.inv(np.mean(hessians, axis=0))
    apart = (hessians - np.mean(hessians, axis=0)) @ inverse
    _, singular, rows = np.linalg.svd(apart)
    return singular[:, 0] ** 2, task.optima[cluster] + rows[:, 0] @ inverse


def descent(task: Regression, num_steps: int) -> Float[np.ndarray, "steps k features"]:
    """Models of the clusters under gradient descent with the true clusters, from 0.

    The step size is 1/L for L the largest eigenvalue of any cluster's mean Hessian.
    Row t is the model after t steps.
    """
    means = np.mean(task.hessians, axis=1)
    step_size = 1 / np.max(np.linalg.eigvalsh(means))
    models = [np.zeros_like(task.optima)]
    for _ in range(num_steps - 1):
        error = models[-1] - task.optima
        models.append(models[-1] - step_size * np.einsum("kij,kj->ki", means, error))
    return np.array(models)


def certificate(
    task: Regression, slack: float
) -> tuple[Float[np.ndarray, " pairs"], Float[np.ndarray, "pairs features"]]:
    """min_x |grad f_i - grad f_j|^2 + D^2 |grad f_i|^2 of each pair, and where it is.

    Assumption 5 holds with (Delta, D) if and only if Delta^2 is no more than the least
    of them. Each is the residual of one least-squares problem with 2 d equations.

    Args:
      task: with K clusters of n clients each.
      slack: D, at least 0.

    Returns:
      For the n^2 K (K - 1) ordered pairs of clients from different clusters.
    """
    size, features = task.hessians.shape[1], task.optima.shape[1]
    hessians = task.hessians.reshape(-1, features, features)
    optima = np.repeat(task.optima, size, axis=0)
    cluster = np.repeat(np.arange(len(task.optima)), size)
    first, second = np.nonzero(cluster[:, None] != cluster[None, :])
    own = np.einsum("nij,nj->ni", hessians, optima)
    matrix = np.concatenate(
        [hessians[first] - hessians[second], slack * hessians[first]], axis=1
    )
    right = np.concatenate([own[first] - own[second], slack * own[first]], axis=1)
    places = np.einsum("pij,pj->pi", np.linalg.pinv(matrix), right)
    left = np.einsum("pij,pj->pi", matrix, places)
    return np.sum((left - right) ** 2, axis=-1), places


def noise_forms(task: Regression) -> Float[np.ndarray, "clusters clients d d"]:
    """Q_i, by which a batch of one sample has the variance (x - x*)^T Q_i (x - x*).

    Q_i = (1/n) sum_b (a_b a_b^T)^2 - H_i^2 over the client's inputs a_b.
    """
    samples = task.inputs.shape[-1]
    norms = np.sum(task.inputs**2, axis=-2, keepdims=True)
    squares = (norms * task.inputs) @ np.swapaxes(task.inputs, -1, -2) / samples
    return squares - task.hessians @ task.hessians
