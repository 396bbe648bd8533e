"""Raw data of the mixture of linear regressions, drawn sample by sample.

Nothing here knows the exact laws: it is the independent side of every comparison.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from cfljax.statements import Preset
from theory.ifca.common.checks import Events, chunks, least

_Models = Float[np.ndarray, "trials models features"]

_CLIENT_CHUNK = 60_000  # features drawn at a time: half a megabyte stays in the cache


class Client(NamedTuple):
    """One client and the models it chooses from."""

    truth: Float[np.ndarray, " features"]  # the model of its data
    # The first being the one it should pick.
    models: Float[np.ndarray, "clusters features"]
    noise: float  # standard deviation of the label noise
    num_samples: int  # samples in the client's fold


class Geometry(NamedTuple):
    """Where two models are: errors are |truth - model| and the cosine of their angle.
    In one dimension that must be 1 or -1."""

    num_features: int
    num_samples: int
    own_error: float
    other_error: float
    cosine: float
    noise: float


def place_pair(generator: np.random.Generator, one: Geometry) -> Client:
    """A client with two models at given distances, in a random position."""
    shape = (one.num_features, min(one.num_features, 2))
    frame = np.linalg.qr(generator.standard_normal(shape))[0].T
    directions = np.array([[1.0, 0.0], [one.cosine, np.sqrt(1 - one.cosine**2)]])
    lengths = np.array([[one.own_error], [one.other_error]])
    truth = generator.standard_normal(one.num_features)
    models = truth - (lengths * directions)[:, : len(frame)] @ frame
    return Client(truth, models, one.noise, one.num_samples)


def worst_client(
    generator: np.random.Generator,
    alpha: float,
    rho: float,
    num_features: int,
    num_samples: int,
) -> Client:
    """The client that Lemma 1's assumptions make likeliest to choose wrongly. The own
    model is (1/2 - alpha) from the truth and the other (1/2 + alpha), in units of the
    separation, at the angle that makes the two losses independent, or opposite where no
    angle does (see `cfljax.law.worst_kappa`)."""
    own_error, other_error = 0.5 - alpha, 0.5 + alpha
    independent = -1 / (rho * own_error * other_error)
    cosine = max(-1.0, independent) if num_features > 1 else -1.0
    sizes = num_features, num_samples
    return place_pair(
        generator, Geometry(*sizes, own_error, other_error, cosine, rho**-0.5)
    )


def wrong_choices(
    preset: Preset, name: str, index: int, client: Client, *, num_trials: int
) -> Bool[np.ndarray, " trials"]:
    """Whether the client fails to pick its own model, in independent data sets.

    True unless the own model's loss is strictly the smallest, so that a tie or an
    undefined loss counts as a failure. Costs num_trials * num_samples * num_features
    normal draws of the stream of that name and index; they come in chunks, which do not
    change the result.
    """
    features_stream = preset.generator(name, index, 0)
    noise_stream = preset.generator(name, index, 1)
    chunk = max(1, _CLIENT_CHUNK // (client.num_samples * len(client.truth)))
    wrong = []
    for trials in chunks(num_trials, chunk):
        rows = trials * client.num_samples
        inputs = features_stream.standard_normal((rows, len(client.truth)))
        labels = inputs @ client.truth
        labels += client.noise * noise_stream.standard_normal(rows)
        residuals = labels[:, None] - inputs @ client.models.T
        residuals = residuals.reshape(trials, client.num_samples, len(client.models))
        losses = np.einsum("tnk,tnk->tk", residuals, residuals) / client.num_samples
        wrong.append(~np.all(losses[:, :1] < losses[:, 1:], axis=1))
    return np.concatenate(wrong)


def all_wrong_choices(
    preset: Preset, name: str, clients: Sequence[Client], num_trials: int
) -> Events:
    """`wrong_choices` of each client, on streams of its own."""
    return np.array(
        [
            wrong_choices(preset, name, index, client, num_trials=num_trials)
            for index, client in enumerate(clients)
        ]
    )


def products(
    generator: np.random.Generator,
    num_rows: int,
    num_features: int,
    *,
    error: float,
    noise: float,
    num_trials: int,
    chunk: int,
) -> Iterator[Float[np.ndarray, "chunk features"]]:
    """X'(X e - eps) of raw rows in chunks of trials, e along the first axis."""
    for count in chunks(num_trials, chunk):
        inputs = generator.standard_normal((count, num_rows, num_features))
        residuals = error * inputs[:, None, :, 0]
        residuals -= noise * generator.standard_normal((count, 1, num_rows))
        yield (residuals @ inputs)[:, 0]


_ROUND_CHUNK = 400_000  # features drawn at a time, 3 megabytes


class Problem(NamedTuple):
    """The clients of a mixture of linear regressions."""

    truths: Float[np.ndarray, "clusters features"]
    num_clients: tuple[int, ...]  # clients of each cluster
    num_samples: int  # n', samples of each fold
    noise: float  # standard deviation of the label noise


class Gradients(NamedTuple):
    """What one round computes, before the step."""

    # (1/m) sum over S_j of grad F_i(theta_j).
    mean: Float[np.ndarray, "trials models features"]
    # Clients of each cluster that chose each model.
    counts: Float[np.ndarray, "trials clusters models"]


def draw_gradients(
    generator: np.random.Generator,
    problem: Problem,
    models: _Models,
    *,
    choices: Int[np.ndarray, " clients"] | None = None,
) -> Gradients:
    """One round's gradients in independent trials, each on fresh data. A loss that is
    not a number never wins. Costs 2 m n' d normal draws per trial. With `choices`, one
    for each client, cluster after cluster, nobody chooses."""
    clients = sum(problem.num_clients)
    size = clients * problem.num_samples * problem.truths.shape[1]
    chunk = max(1, _ROUND_CHUNK // size)
    parts = [
        _chunk_gradients(generator, problem, models[start : start + chunk], choices)
        for start in range(0, len(models), chunk)
    ]
    return Gradients(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def train(
    generator: np.random.Generator,
    problem: Problem,
    models: _Models,
    *,
    step_size: float,
    num_rounds: int,
) -> tuple[
    Float[np.ndarray, "steps trials models features"],
    Float[np.ndarray, "rounds trials clusters models"],
]:
    """_Models from the start on, and every round's counts."""
    path, counts = [models], []
    for _ in range(num_rounds):
        gradients = draw_gradients(generator, problem, path[-1])
        path.append(path[-1] - step_size * gradients.mean)
        counts.append(gradients.counts)
    return np.array(path), np.array(counts)


def _chunk_gradients(
    generator: np.random.Generator,
    problem: Problem,
    models: _Models,
    choices: Int[np.ndarray, " clients"] | None,
) -> Gradients:
    trials, num_models, _ = models.shape
    clusters = np.repeat(np.arange(len(problem.truths)), problem.num_clients)
    if choices is None:
        _, residuals = _draw_fold(generator, problem, models)
        chosen = least(np.sum(residuals**2, axis=2))
    else:
        chosen = np.broadcast_to(choices, (trials, len(clusters)))
    inputs, residuals = _draw_fold(generator, problem, models)
    member = chosen[:, :, None] == np.arange(num_models)
    # grad F_i = (2/n') X'(X theta - y), and the residuals are y - X theta.
    used = (residuals * member[:, :, None, :]).reshape(trials, -1, num_models)
    total = np.swapaxes(used, 1, 2) @ inputs
    mean = -2 / (problem.num_samples * len(clusters)) * total
    places = clusters == np.arange(len(problem.truths))[:, None]
    return Gradients(mean, places.astype(float) @ member.astype(float))


def _draw_fold(
    generator: np.random.Generator, problem: Problem, models: _Models
) -> tuple[
    Float[np.ndarray, "trials rows features"],
    Float[np.ndarray, "trials clients samples models"],
]:
    """Features of all clients' fresh samples, and y - <x, theta_j> for every model."""
    trials, num_models, features = models.shape
    clients, samples = sum(problem.num_clients), problem.num_samples
    inputs = generator.standard_normal((trials, clients * samples, features))
    residuals = -(inputs @ np.swapaxes(models, 1, 2))
    labels = problem.noise * generator.standard_normal((trials, clients * samples))
    start = 0
    for truth, own_clients in zip(problem.truths, problem.num_clients, strict=True):
        rows = slice(start, start + own_clients * samples)
        labels[:, rows] += inputs[:, rows] @ truth
        start = rows.stop
    residuals += labels[:, :, None]
    return inputs, residuals.reshape(trials, clients, samples, num_models)
