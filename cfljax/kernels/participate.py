"""Partial participation: who takes part in a round."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray, Shaped

from cfljax.kernels.tree import take
from cfljax.types import ClientData

__all__ = ["cohort", "spread"]


def cohort(
    key: PRNGKeyArray, data: ClientData, participation: float
) -> tuple[Int[Array, " participants"], ClientData]:
    """A uniformly random subset M_t of the clients, and their data.

    Args:
      key: of this round.
      data: leaves `[clients, ...]`.
      participation: fraction of the clients; the subset has
        `max(1, round(participation * clients))` members.

    Returns:
      Sorted client indices, and the rows of `data` that belong to them. Full
      participation copies nothing and draws nothing.
    """
    num_clients = data.mask.shape[0]
    num_participants = max(1, math.floor(participation * num_clients + 0.5))
    if num_participants >= num_clients:
        return jnp.arange(num_clients), data
    chosen = jax.random.permutation(key, num_clients)[:num_participants]
    chosen = jnp.sort(chosen)
    return chosen, take(data, chosen)


def spread(
    values: Shaped[Array, "participants ..."],
    participants: Int[Array, " participants"],
    num_clients: int,
    *,
    absent: int | float,
) -> Shaped[Array, "clients ..."]:
    """Values of the participants in rows of all clients, `absent` elsewhere."""
    if values.shape[0] == num_clients:
        return values
    everyone = jnp.full((num_clients,) + values.shape[1:], absent, values.dtype)
    return everyone.at[participants].set(values)
