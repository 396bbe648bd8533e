"""Local updates of all clients: what each makes of a model of its own."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray, PyTree, ScalarLike

from cfljax.kernels.backend import over_clients
from cfljax.kernels.local_update import LocalUpdate, client_key, client_update
from cfljax.types import ClientData, Stacked, Task

__all__ = ["local_descent"]


def local_descent(
    task: Task,
    models: Stacked,
    data: ClientData,
    *,
    key: PRNGKeyArray,
    step_size: ScalarLike,
    num_steps: int,
    update: LocalUpdate,
    moments: Stacked = (),
    clients: Int[Array, " clients"] | None = None,
) -> tuple[Stacked, Stacked]:
    """Local training of every client from a model of its own.

    Args:
      task: the learning problem.
      models: leaves `[clients, ...]`, where each client starts.
      data: leaves `[clients, samples, ...]`.
      key: of the round; a client's own is folded with its index.
      step_size: gamma of this round; may be traced.
      num_steps: tau, unless the update counts epochs.
      update: everything else about it.
      moments: optimiser states that clients kept, leaves `[clients, ...]`, or an
        empty tree.
      clients: index of each client among all, for its key; 0, 1, ... if None.

    Returns:
      Trained models and moments, leaves `[clients, ...]`. A client without samples
      keeps both.

    Cost: `num_steps` forward and backward passes per client; memory of one client's
    activations in sequential order, of a chunk's in batched order.
    """
    train = client_update(task, update, num_steps)

    def one(
        shared: tuple, client: Array, model: PyTree, moments: PyTree, data: ClientData
    ) -> tuple[PyTree, PyTree]:
        key, step_size = shared
        own = client_key(key, client)
        return jax.lax.cond(
            jnp.any(data.mask),
            lambda: train(own, step_size, model, moments, data),
            lambda: (model, moments),
        )

    if clients is None:
        clients = jnp.arange(data.mask.shape[0])
    apply = over_clients(one, update.order, update.clients_per_chunk)
    shared = (key, jnp.asarray(step_size, jnp.result_type(float)))
    return apply(shared, clients, models, moments, data)
