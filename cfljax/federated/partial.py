"""Models of which the server averages one part, and clients keep the other."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from cfljax.base.describe import summary
from cfljax.base.tree import length, repeat
from cfljax.base.types import Algorithm, ClientData, Stacked, Task
from cfljax.federated.answers import check_clients
from cfljax.federated.backend import over_clients
from cfljax.federated.exchange import (
    Worked,
    exchange,
    first_moments,
    work_of_newcomers,
)
from cfljax.federated.rounds import Info, global_start
from cfljax.federated.sharing import Shared, merge_shared, split
from cfljax.federated.training import Training


class Own(NamedTuple):
    """What clients keep, a row for each.

    part: their leaves of the model, `[clients, ...]`, None for those averaged.
    moments: optimiser states, an empty tree if none are kept.
    """

    part: Stacked
    moments: Stacked


class State(NamedTuple):
    """All that the next round needs.

    model: leaves without a leading axis: those averaged, and as they were drawn those
      that clients keep, from which newcomers start.
    own: what clients keep.
    round: rounds that are over.
    """

    model: PyTree
    own: Own
    round: Int[Array, ""]

    __repr__ = summary


# `(shared, key, model, moments, data) -> (model, moments, loss before)` of one client.
Train = Callable[
    [Any, PRNGKeyArray, PyTree, PyTree, ClientData],
    tuple[PyTree, PyTree, Float[Array, ""]],
]


def partly_averaged(
    task: Task,
    training: Training,
    is_kept: Shared,
    train: Train,
    *,
    told: Callable[[Int[Array, ""]], Any],
    optimised: Callable[[PyTree], PyTree],
) -> Algorithm:
    """The algorithm that averages trained models but for the leaves that clients keep.

    A client whose loss or trained model is not finite has no weight and keeps what it
    had. A newcomer trains for one round, from the averaged leaves and those of its own
    as everybody's were drawn, and answers with its own and the averaged ones.

    Args:
      task: the learning problem.
      training: how models are trained and averaged.
      is_kept: from a leaf's name (see `sharing.paths`) to whether clients keep it; of
        some leaves true, of others false.
      train: what a client makes of a whole model, from what all are told.
      told: from the rounds that are over to what all participants are told.
      optimised: from a model to what optimisers that are kept have a state of.

    Cost: `train` of each participant. Memory: the kept leaves of every client.
    """

    def first_own(model: PyTree, num_clients: int) -> Own:
        part = split(model, is_kept)[1]
        moments = first_moments(training, optimised(model), num_clients)
        return Own(repeat(part, num_clients), moments)

    def init(key: PRNGKeyArray, data: ClientData) -> State:
        model, _ = global_start(key, task, training, data.mask.shape[0])
        own = first_own(model, data.mask.shape[0])
        return State(model, own, jnp.zeros((), jnp.int32))

    def work(
        shared: Any, key: PRNGKeyArray, common: PyTree, own: Own, data: ClientData
    ) -> Worked:
        model = merge_shared(common, own.part)
        trained, moments, loss = train(shared, key, model, own.moments, data)
        message, part = split(trained, is_kept)
        return Worked(message, Own(part, moments), loss)

    def step(key: PRNGKeyArray, state: State, data: ClientData) -> tuple[State, Info]:
        common, first = split(state.model, is_kept)
        after = exchange(
            key,
            common,
            state.own,
            data,
            training,
            work,
            shared=told(state.round),
            origin=common,
            round_index=state.round,
        )
        model = merge_shared(after.mean, first)
        return State(model, after.kept, state.round + 1), after.info

    def predict(state: State, data: ClientData, inputs: Array) -> Array:
        check_clients(length(state.own.part), data, inputs)
        one = lambda common, part, own_inputs: task.predict(
            merge_shared(common, part), own_inputs
        )
        common = split(state.model, is_kept)[0]
        return over_clients(one)(common, state.own.part, inputs)

    def join(key: PRNGKeyArray, state: State, data: ClientData) -> State:
        own = work_of_newcomers(
            key,
            split(state.model, is_kept)[0],
            first_own(state.model, data.mask.shape[0]),
            data,
            training,
            work,
            shared=told(state.round),
        )
        return state._replace(own=own)

    return Algorithm(init, step, predict, join)


def leaves_of(task: Task) -> PyTree:
    """Shapes of the task's params; nothing is computed."""
    return jax.eval_shape(task.init, jax.random.key(0))
