"""What a round knows: its participants, and what it is told to do."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from cfljax.kernels.training import Training
from cfljax.types import ClientData, Stacked, Task

__all__ = ["Cohort", "Parts", "Setting", "shares"]

Parts = tuple[Stacked, PyTree]  # What clusters have of their own, and in common.


class Cohort(NamedTuple):
    """The participants of a round, the leading axis of everything here.

    clients: index of each among all clients.
    train: what they train on.
    estimate: what they choose a cluster by.
    moments: optimiser states that they kept; an empty tree if none are kept.
    """

    clients: Int[Array, " participants"]
    train: ClientData
    estimate: ClientData
    moments: Stacked


class Setting(NamedTuple):
    """What a round is told.

    task: the learning problem.
    training: how models are trained.
    step_size: of this round.
    num_clients: m, counting the clients that do not participate.
    choose: from the loss matrix to a cluster for each participant.
    skip: whether to leave out the losses; None for never.
    round_index: rounds that are over; None where nothing depends on it.
    """

    task: Task
    training: Training
    step_size: Array
    num_clients: int
    choose: Callable[[Float[Array, "participants clusters"]], Array]
    skip: Bool[Array, ""] | None
    round_index: Int[Array, ""] | None


def shares(training: Training, data: ClientData) -> Float[Array, " participants"]:
    """Weight of each participant; none for a client without samples."""
    count = jnp.sum(data.mask, axis=1, dtype=jnp.result_type(float))
    if training.weights == "samples":
        return count
    return jnp.where(count > 0, jnp.ones_like(count), 0)
