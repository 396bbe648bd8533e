"""Local: every client trains alone and nothing is sent.

The "local model" baseline of IFCA's section 6.2, of CLoVE and of Werner et al.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, ScalarLike

from cfljax.kernels.descent import local_descent
from cfljax.kernels.evaluate import client_losses, predict_own
from cfljax.types import Algorithm, ClientData, Stacked, Task

__all__ = ["Info", "State", "local"]


class State(NamedTuple):
    """All that the next round needs.

    models: leaves `[clients, ...]`, one model for each client.
    """

    models: Stacked


class Info(NamedTuple):
    """What one round did; nothing here is carried over.

    losses: each client's loss under its own model, before training.
    """

    losses: Float[Array, " clients"]


def local(task: Task, *, step_size: ScalarLike, num_steps: int = 1) -> Algorithm:
    """Full-batch gradient descent of every client on its own data.

    Clients start from models of their own, drawn independently.

    Args:
      task: the learning problem.
      step_size: may be traced.
      num_steps: local steps per round, at least 1.

    Raises:
      ValueError: if `num_steps` is below 1.

    Cost of a round: one forward pass and `num_steps` passes per client.
    """
    if num_steps < 1:
        raise ValueError(f"`num_steps` must be at least 1, got {num_steps}.")

    def init(key: PRNGKeyArray, data: ClientData) -> State:
        clients = jnp.arange(data.mask.shape[0])
        keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, clients)
        return State(models=jax.vmap(task.init)(keys))

    def step(key: PRNGKeyArray, state: State, data: ClientData) -> tuple[State, Info]:
        del key  # Full batches: this round is deterministic.
        losses = client_losses(task, state.models, data)
        models = local_descent(
            task, state.models, data, step_size=step_size, num_steps=num_steps
        )
        return State(models=models), Info(losses=losses)

    def predict(state: State, data: ClientData, inputs: Array) -> Array:
        own = jnp.arange(data.mask.shape[0])
        return predict_own(task, state.models, own, inputs)

    return Algorithm(init=init, step=step, predict=predict)
