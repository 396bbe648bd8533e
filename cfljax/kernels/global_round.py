"""A round of one model that all clients share, for whatever is made of it beside."""

from typing import NamedTuple

import jax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from cfljax.kernels.evaluate import choose_cluster
from cfljax.kernels.rounds import train_round
from cfljax.kernels.traffic import traffic
from cfljax.kernels.training import Memory, Training, first_memory, messages
from cfljax.kernels.tree import repeat
from cfljax.types import ClientData, Task

__all__ = ["GlobalRound", "global_round", "global_start"]


class GlobalRound(NamedTuple):
    """What a round leaves behind.

    model: leaves without a leading axis.
    memory: of the local updates.
    assignment: 0 for a client that trained, `NO_CLUSTER` for one that was not asked
      or whose loss is not finite.
    losses: under the model received, before training; NaN for an absent client.
    received: bytes from the centre to each client: the model.
    sent: bytes from each client to the centre: what it trained.
    """

    model: PyTree
    memory: Memory | None
    assignment: Int[Array, " clients"]
    losses: Float[Array, " clients"]
    received: Int[Array, " clients"]
    sent: Int[Array, " clients"]


def global_start(
    key: PRNGKeyArray, task: Task, training: Training, num_clients: int
) -> tuple[PyTree, Memory | None]:
    """A random model and the memory before the first round, as FedAvg draws them."""
    (first,) = jax.random.split(key, 1)  # As IFCA with one cluster draws it.
    model = task.init(first)
    return model, first_memory(training, repeat(model, 1), num_clients)


def global_round(
    key: PRNGKeyArray,
    task: Task,
    model: PyTree,
    memory: Memory | None,
    data: ClientData,
    training: Training,
) -> GlobalRound:
    """A round of federated averaging: that of `rounds.train_round` with one cluster.

    Args:
      key: of the round.
      task: the learning problem.
      model: as broadcast.
      memory: of the local updates.
      data: all clients' samples.
      training: how the model is trained.
    """
    models = repeat(model, 1)
    after = train_round(
        key,
        task,
        models,
        memory,
        data,
        training=training,
        choose=lambda losses, _: choose_cluster(losses),
    )
    received, sent = traffic(
        messages(training, models), after.present, after.assignment
    )
    return GlobalRound(
        model=jax.tree.map(lambda leaf: leaf[0], after.models),
        memory=after.memory,
        assignment=after.assignment,
        losses=after.losses[:, 0],
        received=received,
        sent=sent,
    )
