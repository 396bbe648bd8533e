"""Local updates that are pulled towards a given model: personal models beside it."""

import dataclasses

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, PRNGKeyArray, PyTree, ScalarLike

from cfljax.kernels.backend import over_clients
from cfljax.kernels.local_update import LocalUpdate, client_key, client_update
from cfljax.kernels.tree import trained_part
from cfljax.types import ClientData, Stacked, Task

__all__ = ["pulled", "pulled_descent"]


def pulled(
    optimizer: optax.GradientTransformation,
    anchor: PyTree,
    penalty: ScalarLike,
    *,
    apart: ScalarLike | None = None,
) -> optax.GradientTransformation:
    """The optimiser of `loss + penalty / 2 |weights - anchor|^2`, of the same state.

    Args:
      optimizer: that is given the penalised gradient.
      anchor: weights that it is pulled to.
      penalty: lambda; may be traced.
      apart: step size of a pull that is added to the optimiser's step instead, which
        then knows nothing of it. The same for plain gradient descent of that step
        size; beside momentum beta it is `1 - beta` times as strong.
    """

    def update(
        updates: PyTree, state: PyTree, params: PyTree | None = None
    ) -> tuple[PyTree, PyTree]:
        share = penalty if apart is None else -jnp.asarray(apart) * penalty
        pull = lambda g, w, a: g + share * (w - a)
        if apart is None:
            updates = jax.tree.map(pull, updates, params, anchor)
        updates, state = optimizer.update(updates, state, params)
        if apart is not None:
            updates = jax.tree.map(pull, updates, params, anchor)
        return updates, state

    return optax.GradientTransformation(optimizer.init, update)


def pulled_descent(
    task: Task,
    models: Stacked,
    anchor: PyTree,
    data: ClientData,
    *,
    key: PRNGKeyArray,
    step_size: ScalarLike,
    penalty: ScalarLike,
    num_steps: int,
    update: LocalUpdate,
    moments: Stacked,
    clients: Array,
    apart: bool = False,
) -> tuple[Stacked, Stacked]:
    """`descent.local_descent` from models of the clients' own, pulled to one anchor.

    Statistics (`Variables`) are pulled nowhere. With penalty 0 this is that function,
    draws included.

    Args:
      task: the learning problem.
      models: leaves `[clients, ...]`, where each client starts.
      anchor: one model, the same for all.
      data: leaves `[clients, samples, ...]`.
      key: of the round; a client's own is folded with its index.
      step_size: of this round; may be traced.
      penalty: lambda; may be traced.
      num_steps: unless the update counts epochs.
      update: everything else about it.
      moments: optimiser states that clients kept, leaves `[clients, ...]`, or an
        empty tree.
      clients: index of each client among all, for its key.
      apart: whether the optimiser knows nothing of the pull, see `pulled`.

    Returns:
      Trained models and moments, leaves `[clients, ...]`. A client without samples
      keeps both.

    Cost: that of `local_descent`.
    """

    def one(
        shared: tuple, client: Array, model: PyTree, moments: PyTree, data: ClientData
    ) -> tuple[PyTree, PyTree]:
        key, step_size, penalty, anchor = shared
        optimizer = lambda size: pulled(
            update.optimizer(size), anchor, penalty, apart=size if apart else None
        )
        own = dataclasses.replace(update, optimizer=optimizer)
        train = client_update(task, own, num_steps)
        return jax.lax.cond(
            jnp.any(data.mask),
            lambda: train(client_key(key, client), step_size, model, moments, data),
            lambda: (model, moments),
        )

    number = lambda value: jnp.asarray(value, jnp.result_type(float))
    shared = (key, number(step_size), number(penalty), trained_part(anchor))
    apply = over_clients(one, update.order, update.clients_per_chunk)
    return apply(shared, clients, models, moments, data)
