"""FedAvg: one global model, averaged over the clients.

McMahan, Moore, Ramage, Hampson, Aguera y Arcas. "Communication-Efficient Learning of
Deep Networks from Decentralized Data". AISTATS 2017, Algorithm 1. With a proximal
local update it is FedProx (Li et al., MLSys 2020). The "global model" baseline of
IFCA's section 6.2 and IFCA's limit of one cluster.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, ScalarLike

from cfljax.kernels.evaluate import choose_cluster, predict_own
from cfljax.kernels.local_update import LocalUpdate
from cfljax.kernels.robust import Aggregate
from cfljax.kernels.rounds import train_round
from cfljax.kernels.traffic import traffic
from cfljax.kernels.training import (
    Memory,
    Option,
    Training,
    Weights,
    first_memory,
    messages,
)
from cfljax.types import Algorithm, ClientData, Task, Threat

__all__ = ["Info", "State", "fedavg"]


class State(NamedTuple):
    """All that the next round needs.

    model: the global model, leaves without a leading axis.
    memory: of local updates; None if they need none.
    """

    model: PyTree
    memory: Memory | None = None


class Info(NamedTuple):
    """What one round did; nothing here is carried over.

    assignment: 0 for a client that trained, `NO_CLUSTER` for one that was not
      asked or whose loss is not finite.
    losses: client losses under the model received, before training; NaN for a
      client that was not asked.
    received: bytes from the centre to each client.
    sent: bytes from each client to the centre.
    """

    assignment: Int[Array, " clients"]
    losses: Float[Array, " clients"]
    received: Int[Array, " clients"]
    sent: Int[Array, " clients"]


def fedavg(
    task: Task,
    *,
    step_size: ScalarLike,
    option: Option = "model",
    num_steps: int = 1,
    weights: Weights = "samples",
    participation: float = 1.0,
    update: LocalUpdate | None = None,
    threat: Threat | None = None,
    aggregate: Aggregate | None = None,
) -> Algorithm:
    """Federated averaging of one model.

    Args:
      task: the learning problem.
      step_size: local step size; may be traced.
      option: "model" averages the participants' models after `num_steps` local
        steps (FedAvg), "gradient" their gradients at the global model (FedSGD); a
        client whose loss is not finite has no weight in either.
      num_steps: local steps of `option="model"`, at least 1.
      weights: "samples" weighs a client by its number of samples, as FedAvg does;
        "clients" weighs all alike, as IFCA's global baseline does.
      participation: fraction of the clients drawn in each round.
      update: how clients train with `option="model"`: mini-batches, epochs, proximal
        term ...; full-batch gradient descent if None.
      threat: what Byzantine clients do, as in `ifca`.
      aggregate: mean of the messages, as in `ifca`; needs `weights="clients"`.

    Raises:
      ValueError: where an argument is out of its range.

    Cost of a round: that of `kernels.rounds.train_round` with one model.
    """
    training = Training(
        step_size=step_size,
        option=option,
        num_steps=num_steps,
        normalise="cluster",
        weights=weights,
        participation=participation,
        update=update or LocalUpdate(),
        threat=threat,
        aggregate=aggregate,
    )
    stack = lambda model: jax.tree.map(lambda leaf: leaf[None], model)

    def init(key: PRNGKeyArray, data: ClientData) -> State:
        (first,) = jax.random.split(key, 1)  # As IFCA with one cluster draws it.
        model = task.init(first)
        memory = first_memory(training, stack(model), data.mask.shape[0])
        return State(model=model, memory=memory)

    def step(key: PRNGKeyArray, state: State, data: ClientData) -> tuple[State, Info]:
        models = stack(state.model)
        after = train_round(
            key,
            task,
            models,
            state.memory,
            data,
            training=training,
            choose=lambda losses, _: choose_cluster(losses),
        )
        model = jax.tree.map(lambda leaf: leaf[0], after.models)
        received, sent = traffic(
            messages(training, models), after.present, after.assignment
        )
        info = Info(after.assignment, after.losses[:, 0], received, sent)
        return State(model, after.memory), info

    def predict(state: State, data: ClientData, inputs: Array) -> Array:
        everyone = jnp.zeros(data.mask.shape[0], jnp.int32)
        return predict_own(task, stack(state.model), everyone, inputs)

    return Algorithm(init=init, step=step, predict=predict)
