"""One-shot clustering: local solutions are clustered once, then trained by cluster.

Ghosh, Chung, Yin, Ramchandran. "An Efficient Framework for Clustered Federated
Learning". NeurIPS 2020. Algorithm 1: (1) clients send their own solutions, (2) the
server clusters them by k-means, (3) FedAvg within each cluster. The clustering is never
corrected. Line numbers below are those of the algorithm.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from cfljax.base.checks import at_most_clients, check_positive
from cfljax.base.constructor import constructor
from cfljax.base.describe import summary
from cfljax.base.tree import flat, repeat, trained_part
from cfljax.base.types import Algorithm, ClientData, Stacked, StepSize, Task, Threat
from cfljax.clustering.kmeans import k_means
from cfljax.federated.answers import join_best_cluster, predict_own_cluster
from cfljax.federated.backend import everywhere
from cfljax.federated.local_update import LocalUpdate
from cfljax.federated.rounds import Info, fixed_round
from cfljax.federated.sharing import Shared, SharingVariant
from cfljax.federated.traffic import num_bytes
from cfljax.federated.training import (
    LocalState,
    Training,
    Weights,
    first_local_state,
    start_models,
    train_alone,
)


class State(NamedTuple):
    """All that the next round needs.

    models: leaves `[clusters, ...]`.
    clusters: of each client, for good; `NO_CLUSTER` for one without samples or whose
      local solution is not finite.
    round: rounds that are over.
    local_state: of local updates; None if they need none.
    """

    models: Stacked
    clusters: Int[Array, " clients"]
    round: Int[Array, ""]
    local_state: LocalState | None = None

    __repr__ = summary


@constructor
def one_shot(
    task: Task,
    *,
    num_clusters: int,
    step_size: StepSize,
    num_steps: int = 1,
    weights: Weights = "clients",
    participation: float = 1.0,
    update: LocalUpdate | None = None,
    shared: Shared | None = None,
    variant: SharingVariant = "paper",
    local_task: Task | None = None,
    local_step_size: StepSize | None = None,
    num_local_steps: int = 100,
    num_restarts: int = 10,
    threat: Threat | None = None,
) -> Algorithm:
    """One-shot clustering of clients by their own solutions, then FedAvg.

    Args:
      task: the learning problem of line 3.
      num_clusters: k, from 1 to the number of clients, whose solutions they divide.
      step_size: of line 3; may be traced.
      num_steps: local steps of line 3 in each round.
      weights: of the clients in an average.
      participation: fraction of the clients drawn in each round of line 3.
      update: how clients train in line 3.
      shared: which leaves all clusters have in common.
      variant: whether they are trained, as in `ifca`.
      local_task: of line 1; `task` if None. A convex one, such as
        `models.mlp(shape, hidden=())`, is what the paper has in mind: parameters of
        networks may be far apart where the networks are alike. All clients start from
        the same model.
      local_step_size: of line 1; `step_size` if None.
      num_local_steps: full-batch steps of line 1, which approximate the minimiser.
      num_restarts: of k-means (line 2).
      threat: what Byzantine clients do in training; the clustering is honest.

    Raises:
      ValueError: where an argument is out of its range; in `init`, where there are
        fewer clients than clusters.

    In the first round `Info.sent` has also the bytes of a client's solution (line 1). A
    newcomer takes the cluster whose model it loses least with, once it was sent all.

    Cost: `init` trains every client for `num_local_steps` and holds all solutions; a
    round is that of `federated.rounds.train_round`.
    """
    check_positive(num_local_steps=num_local_steps)
    update = update or LocalUpdate()
    training = Training(
        step_size=step_size,
        num_steps=num_steps,
        weights=weights,
        participation=participation,
        update=update,
        shared=shared,
        variant=variant,
        threat=threat,
    )
    group = everywhere(
        functools.partial(k_means, num_clusters=num_clusters, num_restarts=num_restarts)
    )
    first_task = task if local_task is None else local_task
    alone = Training(
        step_size=step_size if local_step_size is None else local_step_size,
        num_steps=num_local_steps,
        update=LocalUpdate(**update.placement),  # Full batches, whatever line 3 uses.
    )

    def init(key: PRNGKeyArray, data: ClientData) -> State:
        models_key, start_key, local_key, cluster_key = jax.random.split(key, 4)
        num_clients = data.mask.shape[0]
        models = start_models(task, models_key, num_clusters)
        same = repeat(first_task.init(start_key), num_clients)
        solutions, _ = train_alone(local_key, first_task, same, data, alone)  # line 1
        real = jnp.any(data.mask, axis=1)[:, None]
        points = jnp.where(real, flat(trained_part(solutions)), jnp.nan)
        found = group(cluster_key, points)
        return State(
            models=models,
            clusters=found.assignment,  # line 2
            round=jnp.zeros((), jnp.int32),
            local_state=first_local_state(training, models, num_clients),
        )

    def step(key: PRNGKeyArray, state: State, data: ClientData) -> tuple[State, Info]:
        after, info = fixed_round(key, task, state, data, training)  # line 3
        solution = num_bytes(jax.eval_shape(first_task.init, key))
        first = jnp.any(data.mask, axis=1) & (state.round == 0)  # line 1
        besides = jnp.where(first, solution, 0).astype(info.sent.dtype)
        new = State(after.models, state.clusters, state.round + 1, after.local_state)
        return new, info._replace(sent=info.sent + besides)

    join = join_best_cluster(task, training.update.clients_per_chunk)
    check = at_most_clients(num_clusters)
    return Algorithm(init, step, predict_own_cluster(task), join, check=check)
