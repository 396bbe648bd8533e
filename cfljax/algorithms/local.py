"""Local: every client trains alone and nothing is sent.

The "local model" baseline of IFCA's section 6.2, of CLoVE and of Werner et al.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from cfljax.base.constructor import constructor
from cfljax.base.describe import summary
from cfljax.base.types import Algorithm, ClientData, Stacked, StepSize, Task
from cfljax.federated.answers import predict_own_model
from cfljax.federated.evaluate import client_losses
from cfljax.federated.local_update import LocalUpdate
from cfljax.federated.training import (
    LocalState,
    Training,
    first_local_state,
    start_own_models,
    train_alone,
)


class State(NamedTuple):
    """All that the next round needs.

    models: leaves `[clients, ...]`, one model for each client.
    local_state: of local updates; None if they need none.
    """

    models: Stacked
    local_state: LocalState | None = None

    __repr__ = summary


class Info(NamedTuple):
    """What one round did; nothing here is carried over.

    losses: each client's loss under its own model, before training.
    received: bytes from a server to each client: none.
    sent: bytes from each client to a server: none.
    """

    losses: Float[Array, " clients"]
    received: Int[Array, " clients"]
    sent: Int[Array, " clients"]


@constructor
def local(
    task: Task,
    *,
    step_size: StepSize,
    num_steps: int = 1,
    update: LocalUpdate | None = None,
) -> Algorithm:
    """Gradient descent of every client on its own data.

    Clients start from models of their own, drawn independently.

    Args:
      task: the learning problem.
      step_size: may be traced.
      num_steps: local steps per round, at least 1.
      update: how clients train; full-batch gradient descent if None.

    Raises:
      ValueError: if `num_steps` is below 1, or given beside a number of epochs.

    A newcomer has trained for one round, from a start of its own.

    Cost of a round: one forward pass and `num_steps` passes per client.
    """
    training = Training(
        step_size=step_size, num_steps=num_steps, update=update or LocalUpdate()
    )

    def init(key: PRNGKeyArray, data: ClientData) -> State:
        number = data.mask.shape[0]
        models = start_own_models(task, key, number, "independent")
        return State(models, first_local_state(training, models, number))

    def step(key: PRNGKeyArray, state: State, data: ClientData) -> tuple[State, Info]:
        models, before = state
        losses = client_losses(task, models, data, **training.update.placement)
        models, moments = train_alone(key, task, models, data, training, before)
        after = None if before is None else LocalState(before.round + 1, moments)
        nothing = jnp.zeros(data.mask.shape[0], jnp.int32)
        return State(models, after), Info(losses, received=nothing, sent=nothing)

    def join(key: PRNGKeyArray, state: State, data: ClientData) -> State:
        del state  # Nobody sends a newcomer anything.
        start_key, round_key = jax.random.split(key)
        return step(round_key, init(start_key, data), data)[0]

    return Algorithm(init, step, predict_own_model(task), join)
