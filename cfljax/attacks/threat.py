"""Who is Byzantine, and what that means for a round."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PRNGKeyArray, ScalarLike

from cfljax.attacks.scene import Attack, Context
from cfljax.base.checks import is_traced
from cfljax.base.tree import rows
from cfljax.base.types import Stacked, Threat


def threat(
    attack: Attack,
    byzantine: Bool[Array | np.ndarray, " clients"],
    *,
    target: int = 0,
    clusters: Int[Array | np.ndarray, " clients"] | None = None,
    model_factor: ScalarLike = 1.0,
    adaptive: bool = False,
) -> Threat:
    """An attack by some of the clients, on one cluster or on whoever listens.

    Args:
      attack: what they send.
      byzantine: who they are among all clients, whoever takes part. May be traced.
      target: the cluster they claim to be in, and whose honest clients they attack,
        where a centre averages clusters.
      clusters: true cluster of each client, which they go by where no centre has an
        assignment; where clients listen to each other, the target is then the cluster
        of the receiver. Without them all honest clients are the target there.
      model_factor: Byzantine clients work with so many times the model they are sent:
        gradients at 3 theta are those of the released robust IFCA. May be traced.
      adaptive: let the attack see every clipping round of a clustering of messages,
        and send anew; honest clients send once. Where nothing is clipped it changes
        nothing.

    Raises:
      ValueError: if nobody is honest, a mask or the clusters do not fit, or `target`
        is negative; in a round, if it has another number of clients, or no cluster
        `target`.

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
    if clusters is not None and clusters.shape != byzantine.shape:
        raise ValueError(
            f"`clusters` must have an entry for each of {byzantine.shape[0]} clients, "
            f"got shape {clusters.shape}."
        )
    liars = jnp.asarray(byzantine)
    truth = None if clusters is None else jnp.asarray(clusters)

    def claim(
        assignment: Int[Array, " participants"], clients: Int[Array, " participants"]
    ) -> Int[Array, " participants"]:
        return jnp.where(liars[clients], target, assignment)

    def evaluate(models: Stacked, clients: Int[Array, " participants"]) -> Stacked:
        if not is_traced(model_factor) and model_factor == 1:
            return models
        one = jnp.ones((), jnp.result_type(float))
        factors = jnp.where(liars[clients], model_factor, one)
        scaled = lambda leaf: leaf * rows(factors, leaf).astype(leaf.dtype)
        return jax.tree.map(scaled, models)

    def send(
        key: PRNGKeyArray,
        messages: Stacked,
        clients: Int[Array, " participants"],
        models: Stacked = None,
        receiver: Int[Array, ""] | None = None,
        **known: Any,
    ) -> Stacked:
        aim = target
        if truth is not None:
            aim = target if receiver is None else truth[receiver]
            if receiver is None and "clusters" not in known:
                _check_target(target, truth)
            known = {"clusters": truth[clients]} | known
        origin = jax.tree.map(lambda leaf: leaf[aim], models)
        context = Context(target=aim, origin=origin, **known)
        return attack(key, messages, liars[clients], context)

    return Threat(claim, evaluate, send, byzantine.shape[0], target, adaptive)


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


def _check_target(target: int, truth: Int[Array, " clients"]) -> None:
    """Raises ValueError if no client is known to be in the cluster."""
    if is_traced(truth) or np.any(np.asarray(truth) == target):
        return
    raise ValueError(
        "`target` must be the cluster of a client where a centre has no assignment, "
        f"got {target} for `clusters` {np.unique(truth).tolist()}."
    )
