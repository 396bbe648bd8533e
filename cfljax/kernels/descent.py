"""Local updates: what a client does between two messages."""

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, PyTree, ScalarLike

from cfljax.kernels.backend import Order, over_clients
from cfljax.kernels.evaluate import masked_mean
from cfljax.types import ClientData, Stacked, Task

__all__ = ["local_descent"]


def local_descent(
    task: Task,
    models: Stacked,
    data: ClientData,
    *,
    step_size: ScalarLike,
    num_steps: int,
    order: Order | None = None,
) -> Stacked:
    """Full-batch gradient descent of every client from a model of its own.

    IFCA's LocalUpdate (Algorithm 2, lines 18-21) on the client's whole data.

    Args:
      task: the learning problem.
      models: leaves `[clients, ...]`, where each client starts.
      data: leaves `[clients, samples, ...]`.
      step_size: gamma; may be traced.
      num_steps: tau.
      order: see `backend.over_clients`.

    Returns:
      Leaves `[clients, ...]`.

    Cost: `num_steps` forward and backward passes per client; memory of one
    client's activations at a time in sequential order, of all of them otherwise.
    """

    def descend(
        step_size: Array, model: PyTree, inputs: Array, targets: Array, mask: Array
    ) -> PyTree:
        optimizer = optax.sgd(step_size)

        def loss(params: PyTree) -> Array:
            return masked_mean(task.losses(params, inputs, targets), mask)

        def one_step(carry: tuple, _: None) -> tuple[tuple, None]:
            params, moments = carry
            updates, moments = optimizer.update(jax.grad(loss)(params), moments)
            return (optax.apply_updates(params, updates), moments), None

        carry = (model, optimizer.init(model))
        return jax.lax.scan(one_step, carry, None, length=num_steps)[0][0]

    step_sizes = jnp.broadcast_to(step_size, data.mask.shape[:1])
    return over_clients(descend, order)(step_sizes, models, *data)
