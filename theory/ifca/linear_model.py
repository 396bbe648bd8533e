"""Raw data of the paper's mixture of linear regressions, drawn sample by sample.

Nothing here knows the exact laws: it is the independent side of every comparison.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from theory.statement import Preset

__all__ = ["Client", "place_pair", "worst_client", "wrong_choices"]

_CHUNK = 60_000  # features drawn at a time: half a megabyte stays in the cache


class Client(NamedTuple):
    """One client and the models it chooses from.

    truth: `[features]`, the model of its data.
    models: `[clusters, features]`, the first being the one it should pick.
    noise: standard deviation of the label noise.
    num_samples: samples in the client's fold.
    """

    truth: Float[np.ndarray, " features"]
    models: Float[np.ndarray, "clusters features"]
    noise: float
    num_samples: int


def place_pair(
    generator: np.random.Generator,
    *,
    num_features: int,
    own_error: float,
    other_error: float,
    cosine: float,
    noise: float,
    num_samples: int,
) -> Client:
    """A client with two models at given distances, in a random position.

    Args:
      generator: picks the truth and the plane of the two errors.
      num_features: 1 (then `cosine` must be 1 or -1) or more.
      own_error: |truth - own model|.
      other_error: |truth - other model|.
      cosine: of the angle between the two errors.
      noise: see `Client`.
      num_samples: see `Client`.
    """
    shape = (num_features, min(num_features, 2))
    frame = np.linalg.qr(generator.standard_normal(shape))[0].T
    directions = np.array([[1.0, 0.0], [cosine, np.sqrt(1 - cosine**2)]])
    lengths = np.array([[own_error], [other_error]])
    truth = generator.standard_normal(num_features)
    models = truth - (lengths * directions)[:, : len(frame)] @ frame
    return Client(truth, models, noise, num_samples)


def worst_client(
    generator: np.random.Generator,
    *,
    alpha: float,
    rho: float,
    num_features: int,
    num_samples: int,
) -> Client:
    """The client that Lemma 1's assumptions make likeliest to choose wrongly.

    The own model is (1/2 - alpha) from the truth and the other (1/2 + alpha), in units
    of the separation, at the angle that makes the two losses independent, or opposite
    where no angle does (see `cfljax.law.worst_kappa`).
    """
    own_error, other_error = 0.5 - alpha, 0.5 + alpha
    independent = -1 / (rho * own_error * other_error)
    return place_pair(
        generator,
        num_features=num_features,
        own_error=own_error,
        other_error=other_error,
        cosine=max(-1.0, independent) if num_features > 1 else -1.0,
        noise=rho**-0.5,
        num_samples=num_samples,
    )


def wrong_choices(
    preset: Preset, name: str, index: int, client: Client, *, num_trials: int
) -> Bool[np.ndarray, " trials"]:
    """Whether the client fails to pick its own model, in independent data sets.

    True unless the own model's loss is strictly the smallest, so that a tie or an
    undefined loss counts as a failure. Costs num_trials * num_samples * num_features
    normal draws; they come in chunks, which do not change the result.

    Args:
      preset: holds the seed.
      name: of the random stream.
      index: of the point within the stream.
      client: whose data to draw.
      num_trials: number of data sets.
    """
    features_stream = preset.generator(name, index, 0)
    noise_stream = preset.generator(name, index, 1)
    size = client.num_samples * len(client.truth)
    chunk = max(1, _CHUNK // size)
    wrong = np.empty(num_trials, bool)
    for start in range(0, num_trials, chunk):
        trials = min(chunk, num_trials - start)
        rows = trials * client.num_samples
        inputs = features_stream.standard_normal((rows, len(client.truth)))
        labels = inputs @ client.truth
        labels += client.noise * noise_stream.standard_normal(rows)
        residuals = labels[:, None] - inputs @ client.models.T
        shape = (trials, client.num_samples, len(client.models))
        residuals = residuals.reshape(shape)
        losses = np.einsum("tnk,tnk->tk", residuals, residuals) / client.num_samples
        correct = np.all(losses[:, :1] < losses[:, 1:], axis=1)
        wrong[start : start + trials] = ~correct
    return wrong
