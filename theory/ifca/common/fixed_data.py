"""IFCA with the same data in every round, as in the paper's experiments.

Section 6.1: gradient averaging on mixed linear regressions, all clients in all rounds.
A client's loss and gradient only need its Gram matrix X'X / n and X'y / n, drawn here
as such where n >= d (Bartlett's decomposition): any n costs the same. Plain NumPy.
"""

import itertools
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from theory.ifca.common.checks import Broadcast, least

_Models = Float[np.ndarray, "trials starts models features"]
_Choices = Int[np.ndarray, "trials clients starts"]


class FixedData(NamedTuple):
    """What the clients' data say, in independent trials."""

    grams: Float[np.ndarray, "trials clients features features"]  # X'X / n
    moments: Float[np.ndarray, "trials clients features"]  # X'y / n
    clusters: Int[np.ndarray, " clients"]  # true cluster of each
    truths: Float[np.ndarray, "trials clusters features"]


class Outcome(NamedTuple):
    """Where runs have ended."""

    models: _Models
    # The model of least loss in the end.
    choice: Int[np.ndarray, "trials starts clients"]
    # Whether the last round changed anybody's choice.
    moving: Bool[np.ndarray, "trials starts"]


def pattern(
    generator: np.random.Generator, *shape: int, norm: float | None = None
) -> Broadcast:
    """Vectors of independent Bernoulli(1/2) coordinates, the last axis (section 6.1).
    Rescaled to the l2 norm that is asked for, the paper's R."""
    found = generator.integers(0, 2, shape).astype(float)
    if norm is None:
        return found
    found[..., 0] = np.where(np.any(found, axis=-1), found[..., 0], 1.0)
    return norm * found / np.linalg.norm(found, axis=-1, keepdims=True)


def draw_clients(
    generator: np.random.Generator,
    truths: Float[np.ndarray, "trials clusters features"],
    *,
    num_clients: int,
    num_samples: int,
    noise: float,
) -> FixedData:
    """Data of clients in equal clusters: x ~ N(0, I), y = <x, truth> + noise z. Given
    X, X' noise is N(0, noise^2 X'X): for n >= d it is drawn from the Cholesky factor of
    X'X, whose law is Bartlett's; for n < d rows are drawn. m must be a multiple of the
    number of clusters."""
    trials, num_clusters, features = truths.shape
    clusters = np.arange(num_clients) // (num_clients // num_clusters)
    shape = (trials, num_clients)
    if num_samples >= features:
        below = generator.standard_normal((*shape, features, features))
        factor = np.tril(below, -1)
        place = np.arange(features)
        freedom = num_samples - place
        factor[..., place, place] = np.sqrt(
            generator.chisquare(freedom, (*shape, features))
        )
        normal = generator.standard_normal((*shape, features, 1))
    else:
        rows = generator.standard_normal((*shape, num_samples, features))
        factor = np.swapaxes(rows, -1, -2)
        normal = generator.standard_normal((*shape, num_samples, 1))
    grams = factor @ np.swapaxes(factor, -1, -2) / num_samples
    own = truths[:, clusters, :, None]
    moments = grams @ own + noise * (factor @ normal) / num_samples
    return FixedData(grams, moments[..., 0], clusters, truths)


def train(
    data: FixedData, models: _Models, *, step_size: float, num_rounds: int
) -> Outcome:
    """Algorithm 2, option I with M_t = [m], on the same data in every round. Ties go to
    the lowest index; an undefined loss is never the smallest. Cost: O(trials clients
    starts models features^2) for each of at least 1 rounds."""
    choice = np.array(0)
    for _ in range(num_rounds):
        slopes, choice = _evaluate(data, models)
        models = _descend(models, slopes, choice, step_size)
    _, last = _evaluate(data, models)
    return Outcome(models, np.swapaxes(last, 1, 2), np.any(choice != last, axis=1))


def train_afresh(
    generator: np.random.Generator,
    data: FixedData,
    models: _Models,
    *,
    num_samples: int,
    noise: float,
    step_size: float,
    num_rounds: int,
) -> Outcome:
    """As `train`, but every round draws two folds: for identities, for gradients. From
    the truths and clusters of `data`, in at least 2 rounds."""
    before = choice = np.array(0)
    for _ in range(num_rounds):
        folds = [
            draw_clients(
                generator,
                data.truths,
                num_clients=len(data.clusters),
                num_samples=num_samples,
                noise=noise,
            )
            for _ in range(2)
        ]
        before = choice
        _, choice = _evaluate(folds[0], models)
        slopes, _ = _evaluate(folds[1], models)
        models = _descend(models, slopes, choice, step_size)
    return Outcome(models, np.swapaxes(choice, 1, 2), np.any(choice != before, axis=1))


def _evaluate(
    data: FixedData, models: _Models
) -> tuple[Float[np.ndarray, "trials clients features columns"], _Choices]:
    """Half the gradient of every client at every model, and the model it prefers."""
    trials, clients, features, _ = data.grams.shape
    columns = np.swapaxes(models.reshape(trials, -1, features), 1, 2)
    slopes = data.grams.reshape(trials, -1, features) @ columns
    slopes = slopes.reshape(trials, clients, features, -1)
    slopes -= data.moments[..., None]  # G theta - X'y / n
    # theta' G theta - 2 theta' X'y / n: the loss but for y'y / n.
    losses = np.einsum("tidc,tdc->tic", slopes, columns) - data.moments @ columns
    losses = losses.reshape(trials, clients, *models.shape[1:3])
    return slopes, least(losses)


def _descend(
    models: _Models,
    slopes: Float[np.ndarray, "trials clients features columns"],
    choice: _Choices,
    step_size: float,
) -> _Models:
    """theta_j - (gamma / m) sum of the gradients of those who chose j (line 14)."""
    trials, clients = choice.shape[:2]
    member = choice[..., None] == np.arange(models.shape[2])
    member = member.reshape(trials, clients, -1).astype(float)
    total = np.einsum("tidc,tic->tcd", slopes, member)
    return models - 2 * step_size / clients * total.reshape(models.shape)


def recovered(data: FixedData, outcome: Outcome) -> Bool[np.ndarray, "trials starts"]:
    """Whether the clients' choices are the true partition, under any names."""
    choice, clusters = outcome.choice, data.clusters
    same_choice = choice[..., :, None] == choice[..., None, :]
    same_cluster = clusters[:, None] == clusters[None]
    return np.all(same_choice == same_cluster, axis=(-2, -1))


def used_models(outcome: Outcome) -> Int[np.ndarray, "trials starts"]:
    """Number of models that some client chooses in the end."""
    names = np.arange(outcome.models.shape[2])
    return np.sum(np.any(outcome.choice[..., None] == names, axis=-2), axis=-1)


def matched_distance(
    data: FixedData, outcome: Outcome
) -> Float[np.ndarray, "trials starts"]:
    """(1/k) sum_j |model_p(j) - truth_j| under the best one-to-one matching p. For as
    many models as clusters, at most 4 of them: all matchings are tried. NaN where a
    model is not finite."""
    models, truths = outcome.models, data.truths
    # [trials, starts, models, clusters]
    gaps = np.linalg.norm(models[:, :, :, None] - truths[:, None, None], axis=-1)
    number = gaps.shape[-1]
    every = [
        np.mean(gaps[..., list(order), np.arange(number)], axis=-1)
        for order in itertools.permutations(range(number))
    ]
    return np.min(np.stack(every), axis=0)


def least_squares(data: FixedData) -> Float[np.ndarray, "trials clusters features"]:
    """Least-squares estimate of each true cluster from all of its clients' data."""
    member = data.clusters == np.arange(data.truths.shape[1])[:, None]
    grams = np.einsum("ki,tiab->tkab", member.astype(float), data.grams)
    moments = np.einsum("ki,tia->tka", member.astype(float), data.moments)
    return np.linalg.solve(grams, moments[..., None])[..., 0]
