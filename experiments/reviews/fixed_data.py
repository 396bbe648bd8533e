"""Mixed linear regression on data drawn once, and IFCA's many runs on them, in NumPy.

A client's samples enter every quantity here through their Gram matrix, so each client
is held by the triangular factor of [inputs, targets]: at most d + 1 rows, whatever n.
Costs below count those.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from cfljax import metrics


class Clients(NamedTuple):
    """Samples of all clients, up to a rotation of each client's rows."""

    inputs: Float[np.ndarray, "clients rows features"]
    targets: Float[np.ndarray, "clients rows"]
    num_samples: int  # n that the rows stand for, the same for every client


class Problem(NamedTuple):
    """One data set: clients to train on, others to validate on, and the truth."""

    clients: Clients
    validation: Clients  # further samples of the same clients, never trained on
    clusters: Int[np.ndarray, " clients"]  # true cluster of each
    # `[clusters, features]`, orthogonal and at distance 1 from each other.
    truths: Float[np.ndarray, "clusters features"]


def compress(
    inputs: Float[np.ndarray, "clients samples features"],
    targets: Float[np.ndarray, "clients samples"],
) -> Clients:
    """The clients with at most features + 1 rows each, by QR; every sum of squared
    residuals and every gradient stays what it was."""
    num_samples, num_features = inputs.shape[1:]
    if num_samples > num_features + 1:
        both = np.concatenate([inputs, targets[..., None]], axis=2)
        both = np.asarray(np.linalg.qr(both, mode="r"))
        inputs, targets = both[..., :-1], both[..., -1]
    return Clients(np.ascontiguousarray(inputs), targets, num_samples)


def draw(
    generator: np.random.Generator,
    *,
    num_clients: int,
    num_clusters: int,
    num_samples: int,
    num_features: int,
    rho: float,
    num_validation: int = 0,
) -> Problem:
    """Balanced clusters at distance 1, label noise 1 / sqrt(rho), normal inputs, those
    to validate on last; sample s is the same for every number of samples.
    """
    clusters = np.arange(num_clients) % num_clusters
    truths = np.eye(num_clusters, num_features) / math.sqrt(2)
    total = num_samples + num_validation
    rows = generator.standard_normal((total, num_clients, num_features + 1))
    inputs = np.ascontiguousarray(np.swapaxes(rows[..., :-1], 0, 1))
    noise = rows[..., -1].T / math.sqrt(rho)
    targets = np.einsum("msd,md->ms", inputs, truths[clusters]) + noise
    train, later = slice(num_samples), slice(num_samples, total)
    return Problem(
        compress(inputs[:, train], targets[:, train]),
        compress(inputs[:, later], targets[:, later]),
        clusters,
        truths,
    )


def problem_of(
    cell: Mapping[str, Any], generator: np.random.Generator, **others: Any
) -> Problem:
    """What `draw` gives for the settings of a cell, and others beside or instead."""
    names = ("num_clients", "num_clusters", "num_samples", "num_features", "rho")
    return draw(generator, **({k: cell[k] for k in names if k in cell} | others))


def random_starts(
    generator: np.random.Generator, problem: Problem, num_starts: int
) -> Float[np.ndarray, "starts clusters features"]:
    """Normal models about as long as the truths."""
    clusters, features = problem.truths.shape
    scale = 1 / math.sqrt(2 * features)
    return scale * generator.standard_normal((num_starts, clusters, features))


def _residuals(clients: Clients, models: Float[np.ndarray, "runs models features"]):
    """Prediction - target, `[clients, rows, runs, models]`; one product for all."""
    num_clients, num_rows, num_features = clients.inputs.shape
    flat = clients.inputs.reshape(-1, num_features) @ models.reshape(-1, num_features).T
    shape = (num_clients, num_rows, *models.shape[:2])
    return flat.reshape(shape) - clients.targets[..., None, None]


def all_losses(
    clients: Clients, models: Float[np.ndarray, "runs models features"]
) -> Float[np.ndarray, "clients runs models"]:
    """Mean squared residuals."""
    return np.sum(_residuals(clients, models) ** 2, axis=1) / clients.num_samples


def assign(
    losses: Float[np.ndarray, "clients runs models"],
) -> Int[np.ndarray, "clients runs"]:
    """Model of lowest finite loss; -1 where no loss is finite."""
    finite = np.isfinite(losses)
    best = np.argmin(np.where(finite, losses, np.inf), axis=-1)
    return np.where(np.any(finite, axis=-1), best, -1)


def ifca_round(
    clients: Clients,
    models: Float[np.ndarray, "runs models features"],
    step_sizes: Float[np.ndarray, " runs"],
    assignment: Int[np.ndarray, "clients runs"] | None = None,
) -> tuple[Float[np.ndarray, "runs models features"], Int[np.ndarray, "clients runs"]]:
    """One round of IFCA, option I, divisor m, for every run at once: models after it,
    and the assignment that made them, as given or else of least loss. Diverged models
    are not finite and chosen by nobody.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        residuals = _residuals(clients, models)
        if assignment is None:
            assignment = assign(np.sum(residuals**2, axis=1) / clients.num_samples)
        chosen = assignment[:, None, :, None] == np.arange(models.shape[1])
        residuals = np.where(chosen, residuals, 0.0)
        num_clients, _, num_features = clients.inputs.shape
        flat = residuals.reshape(-1, models.shape[0] * models.shape[1])
        sums = flat.T @ clients.inputs.reshape(-1, num_features)
        scale = 2 * step_sizes / (clients.num_samples * num_clients)
        after = models - scale[:, None, None] * sums.reshape(models.shape)
    return after, assignment


def ifca_runs(
    clients: Clients,
    starts: Float[np.ndarray, "runs models features"],
    step_sizes: Float[np.ndarray, " runs"],
    num_rounds: int,
) -> Float[np.ndarray, "runs models features"]:
    """Models after so many rounds.

    Cost of a round: two products of `[clients x rows, features]` with all models.
    """
    models = starts
    for _ in range(num_rounds):
        models, _ = ifca_round(clients, models, step_sizes)
    return models


def training_loss(
    clients: Clients, models: Float[np.ndarray, "runs models features"]
) -> Float[np.ndarray, " runs"]:
    """Mean over clients of the least loss; infinite for a run that diverged."""
    losses = all_losses(clients, models)
    lowest = np.min(np.where(np.isfinite(losses), losses, np.inf), axis=2)
    return np.mean(lowest, axis=0)


def least_squares(
    clients: Clients, members: np.ndarray
) -> Float[np.ndarray, " features"]:
    """Least squares on some clients' rows, the shortest solution of several."""
    inputs, targets = clients.inputs[members], clients.targets[members]
    rows = inputs.reshape(-1, inputs.shape[-1])
    return np.linalg.lstsq(rows, targets.ravel(), rcond=None)[0]


def by_clusters(
    clients: Clients, clusters: Int[np.ndarray, " clients"]
) -> Float[np.ndarray, "clients features"]:
    """Each client's model, least squares in its cluster: where training there ends."""
    models = np.empty((len(clusters), clients.inputs.shape[-1]))
    for label in np.unique(clusters):
        members = clusters == label
        models[members] = least_squares(clients, members)
    return models


def local_models(clients: Clients) -> Float[np.ndarray, "clients features"]:
    """Each client alone; the shortest solution where there are several."""
    return by_clusters(clients, np.arange(len(clients.inputs)))


def k_means(
    solutions: Float[np.ndarray, "clients features"], num_clusters: int, seed: int
) -> Int[np.ndarray, " clients"]:
    """One-shot clustering, Algorithm 1 of the paper: by the clients' own solutions."""
    from sklearn.cluster import KMeans  # Slow to import.

    starts: Any = 10  # The stubs know of "auto" only.
    means = KMeans(num_clusters, n_init=starts, random_state=seed).fit(solutions)
    return np.asarray(means.labels_, int)


def centre_errors(
    problem: Problem, models: Float[np.ndarray, "runs models features"]
) -> Float[np.ndarray, " runs"]:
    """Mean distance of models and truths, matched one to one; NaN if diverged."""
    import scipy.optimize  # Slow to import.

    gaps = np.linalg.norm(models[:, :, None] - problem.truths, axis=-1)
    errors = np.full(len(models), np.nan)
    for run, table in enumerate(gaps):
        if np.all(np.isfinite(table)):
            errors[run] = np.mean(table[scipy.optimize.linear_sum_assignment(table)])
    return errors


def oracle_error(problem: Problem) -> float:
    """The same distance of least squares in the true clusters."""
    clients, clusters = problem.clients, problem.clusters
    labels = range(len(problem.truths))
    own = np.stack([least_squares(clients, clusters == label) for label in labels])
    return float(np.mean(np.linalg.norm(own - problem.truths, axis=1)))


def rand_index(
    labels: Int[np.ndarray, "runs clients"], clusters: Int[np.ndarray, " clients"]
) -> Float[np.ndarray, " runs"]:
    """Adjusted Rand index of every partition with the true one."""
    number = int(clusters.max()) + 1
    index = lambda own: metrics.adjusted_rand_index(own, jnp.asarray(clusters), number)
    return np.asarray(jax.vmap(index)(jnp.asarray(labels)), float)
