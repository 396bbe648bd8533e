"""Myopic-Clustering (Werner et al., 2023, Algorithm 1): gradients are clustered.

The paper's motivating method, and what it shows to fail: gradients of clients whose
models differ say little about whose data are alike, and all vanish at the optima.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from cfljax.base.checks import (
    at_most_clients,
    check_fit,
    check_member,
    check_positive,
    check_threat,
)
from cfljax.base.constructor import constructor
from cfljax.base.describe import summary
from cfljax.base.streams import Stream
from cfljax.base.tree import flat, like, rows
from cfljax.base.types import Algorithm, ClientData, Stacked, StepSize, Task, Threat
from cfljax.clustering.kmeans import k_means
from cfljax.federated.answers import join_best_model, predict_own_model
from cfljax.federated.backend import Order, check_order, everywhere
from cfljax.federated.local_update import (
    check_schedules,
    client_gradients,
    draw_batch,
    scheduled,
)
from cfljax.federated.rounds import Info
from cfljax.federated.traffic import exchanged
from cfljax.federated.training import Start, start_models


class State(NamedTuple):
    """All that the next round needs.

    models: x_i, leaves `[clients, ...]`.
    round: rounds that are over.
    """

    models: Stacked
    round: Int[Array, ""]

    __repr__ = summary


@constructor
def myopic_clustering(
    task: Task,
    *,
    num_clusters: int,
    step_size: StepSize,
    batch_size: int | None = None,
    num_restarts: int = 10,
    start: Start = "identical",
    threat: Threat | None = None,
    clients_per_chunk: int | None = None,
    order: Order | None = None,
) -> Algorithm:
    """Myopic-Clustering; the clustering of line 4, which the paper leaves open, is
    k-means.

    A client without samples sends a gradient of 0, which counts like the others'.

    Args:
      task: the learning problem; it must train on the losses that it is judged by.
      num_clusters: K, from 1 to the number of clients, whose gradients they divide.
        With 1 everybody moves along the mean gradient.
      step_size: eta; may be traced.
      batch_size: samples of a client's gradient, drawn anew in each round without
        replacement; all samples if None.
      num_restarts: of k-means.
      start: "identical" models of all clients as Algorithm 1 has them, or
        "independent" ones.
      threat: what Byzantine clients do; they send once.
      clients_per_chunk: bounds memory in batched order.
      order: of the clients, see `federated.backend.over_clients`.

    Raises:
      ValueError: where an argument is out of its range, or the task has a `fit`; in
        `init`, where there are fewer clients than clusters; in a round, where `threat`
        has another number of clients.

    `Info.assignment` is k_i, `NO_CLUSTER` for a client whose gradient is not finite;
    losses are those at clients' own models, on the round's batch. A newcomer is sent
    all models and takes the one it loses least with.

    Cost of a round: a forward and a backward pass for each client, and a k-means of N
    gradients.
    """
    check_positive(batch_size=batch_size)
    check_member(Start, start=start)
    check_order(order, clients_per_chunk)
    check_fit(task)
    check_schedules(step_size=step_size)
    group = everywhere(
        functools.partial(k_means, num_clusters=num_clusters, num_restarts=num_restarts)
    )

    def init(key: PRNGKeyArray, data: ClientData) -> State:
        models = start_models(task, key, data.mask.shape[0], start)
        return State(models, jnp.zeros((), jnp.int32))

    def step(key: PRNGKeyArray, state: State, data: ClientData) -> tuple[State, Info]:
        models, clients = state.models, jnp.arange(data.mask.shape[0])
        check_threat(threat, data.mask.shape[0])
        used = models if threat is None else threat.evaluate(models, clients)
        batch = draw_batch(key, data, batch_size)
        losses, (gradients, _) = client_gradients(
            task, used, batch, order=order, clients_per_chunk=clients_per_chunk
        )
        sent = gradients  # line 3
        if threat is not None:
            own = jax.random.fold_in(key, Stream.ATTACKERS)
            points = threat.send(own, flat(gradients), clients, round=state.round)
            sent = like(points, gradients)
        own = jax.random.fold_in(key, Stream.ALGORITHM)
        found = group(own, sent)  # line 4
        row, known = jnp.maximum(found.assignment, 0), found.assignment >= 0

        size = scheduled(step_size, state.round)

        def move(x: Array, centres: Array) -> Array:
            v = jnp.where(rows(known, x), centres[row], jnp.nan)  # line 5
            return x - size * v  # line 6

        models = jax.tree.map(move, models, found.centres)
        info = Info(found.assignment, losses, *exchanged(models))
        return State(models, state.round + 1), info

    join = join_best_model(task, clients_per_chunk)
    check = at_most_clients(num_clusters)
    return Algorithm(init, step, predict_own_model(task), join, check=check)
