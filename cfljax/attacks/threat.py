"""Who is Byzantine, and what that means for a round."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from cfljax.attacks.checks import is_traced
from cfljax.attacks.scene import Attack, Context
from cfljax.types import Stacked

__all__ = ["Threat", "draw_byzantine", "threat"]


class Threat(NamedTuple):
    """What a round asks where its clients may lie.

    claim: `(assignment, clients) -> assignment`, clusters of the participants as they
      claim them.
    send: `(key, messages, clients, models=None, **known) -> messages`, what the
      participants send in place of their messages, leaves `[participants, ...]`.
      `models`, leaves `[clusters, ...]`, are what messages start from, None for
      gradients; what is `known` are further fields of a `Context`.
    """

    claim: Callable[[Array, Array], Array]
    send: Callable[..., Stacked]


def threat(
    attack: Attack, byzantine: Bool[Array | np.ndarray, " clients"], *, target: int = 0
) -> Threat:
    """An attack by some of the clients on one cluster.

    Args:
      attack: what they send.
      byzantine: who they are among all clients, whoever takes part. May be traced.
      target: the cluster they claim to be in, and whose honest clients they attack.

    Raises:
      ValueError: if nobody is honest, the mask is none, or `target` is negative.

    Cost of a round: that of the attack.
    """
    if byzantine.ndim != 1 or byzantine.dtype != bool:
        raise ValueError(
            "`byzantine` must be boolean, `[clients]`, got "
            f"{byzantine.dtype} of shape {byzantine.shape}."
        )
    if not is_traced(byzantine) and np.all(byzantine):
        raise ValueError(
            "`byzantine` must leave a client honest, got all of "
            f"{byzantine.shape[0]} clients."
        )
    if target < 0:
        raise ValueError(f"`target` must be at least 0, got {target}.")
    liars = jnp.asarray(byzantine)

    def claim(
        assignment: Int[Array, " participants"], clients: Int[Array, " participants"]
    ) -> Int[Array, " participants"]:
        return jnp.where(liars[clients], target, assignment)

    def send(
        key: PRNGKeyArray,
        messages: Stacked,
        clients: Int[Array, " participants"],
        models: Stacked = None,
        **known: Any,
    ) -> Stacked:
        origin = jax.tree.map(lambda leaf: leaf[target], models)
        context = Context(target=target, origin=origin, **known)
        return attack(key, messages, liars[clients], context)

    return Threat(claim=claim, send=send)


def draw_byzantine(
    key: PRNGKeyArray, *, num_clients: int, share: float
) -> Bool[Array, " clients"]:
    """A uniformly random set of Byzantine clients.

    Args:
      key: of the draw.
      num_clients: m.
      share: beta, of all clients; `round(beta m)` of them are Byzantine, a half
        rounded up.

    Raises:
      ValueError: if `share` is outside [0, 1), or leaves nobody honest.
    """
    if not 0 <= share < 1:
        raise ValueError(f"`share` must be in [0, 1), got {share}.")
    number = math.floor(share * num_clients + 0.5)
    if number >= num_clients:
        raise ValueError(
            f"`share` must leave a client honest, got {share}, which is {number} of "
            f"{num_clients} clients."
        )
    return jax.random.permutation(key, num_clients) < number
