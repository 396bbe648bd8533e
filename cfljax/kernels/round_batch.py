"""One batch of every client for a whole round."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from cfljax.kernels.batches import batch_at, first_order, schedule
from cfljax.kernels.local_update import client_key
from cfljax.types import ClientData

__all__ = ["draw_batch"]


def draw_batch(
    key: PRNGKeyArray, data: ClientData, batch_size: int | None
) -> ClientData:
    """The samples that each client computes gradients on in a round.

    Args:
      key: of the round; a client's own is folded with its index.
      data: leaves `[clients, samples, ...]`.
      batch_size: samples drawn without replacement from the client's real ones, all
        of them if it has fewer; the data as they are, and no draw, if None.

    Returns:
      Leaves `[clients, batch, ...]`.
    """
    if batch_size is None:
        return data

    def one(client: Array, rows: ClientData) -> ClientData:
        plan = schedule(rows.mask, batch_size)
        order = first_order(rows.mask, plan)
        first = jnp.zeros((), jnp.int32)
        return batch_at(client_key(key, client), first, order, plan, rows)[0]

    return jax.vmap(one)(jnp.arange(data.mask.shape[0]), data)
