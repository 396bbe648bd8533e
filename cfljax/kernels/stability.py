"""When a clustering has come to rest, and stays so."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from cfljax.kernels.evaluate import NO_CLUSTER

__all__ = ["Stability", "first_stability", "observe_round"]


class Stability(NamedTuple):
    """What clients and server know of the clustering's past.

    identities: latest model of each client, `NO_CLUSTER` before its first.
    streak: how many of a client's latest rounds in a row had that model.
    stable: whether the clustering has come to rest.
    """

    identities: Int[Array, " clients"]
    streak: Int[Array, " clients"]
    stable: Bool[Array, ""]


def first_stability(num_clients: int) -> Stability:
    """Nothing is known."""
    return Stability(
        identities=jnp.full(num_clients, NO_CLUSTER, int),
        streak=jnp.zeros(num_clients, int),
        stable=jnp.zeros((), bool),
    )


def observe_round(
    stability: Stability,
    assignment: Int[Array, " clients"],
    stable_rounds: int | None,
) -> Stability:
    """What is known after a round (CLoVE, section 3).

    The clustering is stable from the first round on in which every participant has
    had the same model in each of its latest `stable_rounds` rounds, that one
    included. All of them count: a client that went to another model and came back
    starts anew. Clients that are absent neither confirm nor deny.

    Args:
      stability: of the rounds before.
      assignment: model of each client in this round, negative for absent ones.
      stable_rounds: never stable if None.
    """
    present = assignment >= 0
    again = assignment == stability.identities
    streak = jnp.where(again, stability.streak + 1, 1)
    streak = jnp.where(present, streak, stability.streak)
    stable = stability.stable
    if stable_rounds is not None:
        enough = jnp.all(~present | (streak >= stable_rounds))
        stable = stable | (enough & jnp.any(present))
    identities = jnp.where(present, assignment, stability.identities)
    return Stability(identities, streak, stable)
