"""FEMNIST's samples one after the other, so that padding is neither kept nor tested.

Writers differ fivefold in their numbers of images: evaluating padded clients would
cost twice as much as evaluating their images.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from cfljax.kernels.backend import clients_in_chunks
from cfljax.kernels.sharing import join
from cfljax.types import ClientData, Stacked

__all__ = ["SAMPLES_AT_ONCE", "Samples", "mean_of_clients", "padded", "per_sample"]

SAMPLES_AT_ONCE = 256  # Bounds the memory of an evaluation, and changes no result.

PerSample = Callable[[PyTree, Array, Array], Array]


class Samples(NamedTuple):
    """Real samples of all clients.

    inputs: `[samples, ...]`, those of a client consecutive.
    targets: `[samples]`.
    owners: `[samples]`, the client of each.
    places: `[clients, most]`, where each client's samples are; 0 beyond its last.
    mask: `[clients, most]`, false beyond a client's last sample.
    """

    inputs: Array
    targets: Int[Array, " samples"]
    owners: Int[Array, " samples"]
    places: Int[Array, "clients most"]
    mask: Bool[Array, "clients most"]

    @classmethod
    def of(cls, data: ClientData) -> "Samples":
        """The real samples of padded clients."""
        inputs, targets, mask = (np.asarray(leaf) for leaf in data)
        owners = np.nonzero(mask)[0]
        places = np.zeros(mask.shape, np.int32)
        places[mask] = np.arange(len(owners))
        return cls(
            jnp.asarray(inputs[mask]),
            jnp.asarray(targets[mask]),
            jnp.asarray(owners.astype(np.int32)),
            jnp.asarray(places),
            jnp.asarray(mask),
        )


def padded(samples: Samples) -> ClientData:
    """Clients that can train; what pads them are copies of the first sample."""
    targets = jnp.where(samples.mask, samples.targets[samples.places], 0)
    return ClientData(samples.inputs[samples.places], targets, samples.mask)


def per_sample(
    function: PerSample, models: Stacked, common: PyTree, samples: Samples
) -> Float[Array, "samples clusters"]:
    """A value of every sample under every model.

    Args:
      function: `(params, inputs, targets) -> [samples]`.
      models: leaves `[clusters, ...]`, without what is common.
      common: what all models have in common, computed once; None for nothing.
      samples: whose values.

    Cost: one forward pass for each pair of sample and model, spread over devices.
    """

    def chunk(parts: tuple, rows: tuple) -> Array:
        models, common = parts
        of_model = lambda model: function(join(model, common), *rows)
        return jax.vmap(of_model)(models).T

    rows = (samples.inputs, samples.targets)
    return clients_in_chunks(chunk, (models, common), rows, SAMPLES_AT_ONCE)


def mean_of_clients(
    values: Float[Array, "samples clusters"], samples: Samples
) -> Float[Array, "clients clusters"]:
    """Mean over each client's samples; NaN for a client without any."""
    num_clients = samples.mask.shape[0]
    totals = jax.ops.segment_sum(values, samples.owners, num_clients)
    counts = jnp.sum(samples.mask, axis=1, dtype=values.dtype)
    return totals / counts[:, None]
