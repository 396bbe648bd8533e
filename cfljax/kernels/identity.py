"""Identities that a server remembers, and when it takes them for settled."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from cfljax.kernels.evaluate import NO_CLUSTER

__all__ = ["History", "first_history", "is_settled", "remember"]


class History(NamedTuple):
    """What the server knows of the clients' clusters.

    identities: latest estimate of each client, `NO_CLUSTER` before its first.
    unchanged: rounds in a row in which no client changed an estimate of its own.
    """

    identities: Int[Array, " clients"]
    unchanged: Int[Array, ""]


def first_history(num_clients: int) -> History:
    """Nothing is known."""
    return History(
        jnp.full(num_clients, NO_CLUSTER, jnp.int32), jnp.zeros((), jnp.int32)
    )


def is_settled(history: History, stable_rounds: int) -> Bool[Array, " clients"]:
    """Which clients are sent only the model of their known cluster.

    Args:
      history: of the server.
      stable_rounds: rounds without a change after which identities stay as they are.
    """
    known = history.identities != NO_CLUSTER
    return known & (history.unchanged >= stable_rounds)


def remember(history: History, assignment: Int[Array, " clients"]) -> History:
    """The history after a round.

    A first estimate is no change and confirms nothing; a round of first estimates
    only leaves the count as it is.
    """
    made = assignment != NO_CLUSTER
    again = made & (history.identities != NO_CLUSTER)
    changed = jnp.any(again & (assignment != history.identities))
    confirmed = history.unchanged + jnp.any(again).astype(jnp.int32)
    identities = jnp.where(made, assignment, history.identities)
    return History(identities.astype(jnp.int32), jnp.where(changed, 0, confirmed))
