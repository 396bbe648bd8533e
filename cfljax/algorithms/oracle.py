"""Oracle: the true clusters are given, each trains one model.

The upper baseline of clustered federated learning: what IFCA would do if every
identity estimate were right ("ground truth" in Werner et al., section 4).
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from cfljax.base.checks import is_traced
from cfljax.base.constructor import constructor
from cfljax.base.describe import summary
from cfljax.base.types import Algorithm, ClientData, Stacked, StepSize, Task, Threat
from cfljax.federated.answers import join_best_cluster, predict_own_cluster
from cfljax.federated.average import Normalise
from cfljax.federated.local_update import LocalUpdate
from cfljax.federated.robust import Aggregate
from cfljax.federated.rounds import Info, fixed_round
from cfljax.federated.sharing import Shared, SharingVariant
from cfljax.federated.training import (
    LocalState,
    Option,
    Training,
    Weights,
    first_local_state,
    option_for,
    start_models,
)


class State(NamedTuple):
    """All that the next round needs.

    models: leaves `[clusters, ...]`.
    clusters: of each client, the true ones.
    local_state: of local updates; None if they need none.
    """

    models: Stacked
    clusters: Int[Array, " clients"]
    local_state: LocalState | None = None

    __repr__ = summary


@constructor
def oracle(
    task: Task,
    *,
    clusters: Int[Array, " clients"],
    num_clusters: int,
    step_size: StepSize,
    option: Option | None = None,
    num_steps: int = 1,
    normalise: Normalise = "all",
    weights: Weights = "clients",
    participation: float = 1.0,
    update: LocalUpdate | None = None,
    shared: Shared | None = None,
    variant: SharingVariant = "paper",
    threat: Threat | None = None,
    aggregate: Aggregate | None = None,
) -> Algorithm:
    """Federated training of one model for each true cluster, with arguments as of
    `ifca`.

    Args:
      task: the learning problem.
      clusters: true cluster of each client, in `[0, num_clusters)`.
      num_clusters: number of models k, at least 1.
      step_size: gamma; may be traced.
      option: "gradient" or "model"; by `num_steps` if None.
      num_steps: local steps of option "model", at least 1.
      normalise: divisor of the summed gradients.
      weights: of the clients in an average.
      participation: fraction of the clients drawn each round.
      update: how clients train with option "model".
      shared: which leaves all clusters have in common.
      variant: whether they are trained.
      threat: what Byzantine clients do.
      aggregate: mean of the members' messages.

    Raises:
      ValueError: where an argument is out of its range.

    Nobody knows the cluster of a newcomer: it takes the one whose model it loses least
    with, once it was sent all.

    Cost of a round: that of `federated.rounds.train_round`.
    """
    if not is_traced(clusters):
        _check_clusters(np.asarray(clusters), num_clusters)
    training = Training(
        step_size=step_size,
        option=option_for(option, num_steps),
        num_steps=num_steps,
        normalise=normalise,
        weights=weights,
        participation=participation,
        update=update or LocalUpdate(),
        shared=shared,
        variant=variant,
        threat=threat,
        aggregate=aggregate,
    )

    def init(key: PRNGKeyArray, data: ClientData) -> State:
        if len(clusters) != data.mask.shape[0]:
            raise ValueError(
                f"`clusters` must have one entry for each of {data.mask.shape[0]} "
                f"clients, got {len(clusters)}."
            )
        models = start_models(task, key, num_clusters)
        local_state = first_local_state(training, models, data.mask.shape[0])
        return State(models, jnp.asarray(clusters), local_state)

    def step(key: PRNGKeyArray, state: State, data: ClientData) -> tuple[State, Info]:
        after, info = fixed_round(key, task, state, data, training)
        return State(after.models, state.clusters, after.local_state), info

    join = join_best_cluster(task, training.update.clients_per_chunk)
    return Algorithm(init, step, predict_own_cluster(task), join)


def _check_clusters(clusters: np.ndarray, num_clusters: int) -> None:
    """Raise ValueError unless they are numbers of clusters, one for each client."""
    if clusters.ndim != 1 or clusters.dtype.kind not in "iu":
        raise ValueError(
            "`clusters` must be whole numbers, one for each client, got "
            f"{clusters.dtype} of shape {clusters.shape}."
        )
    wrong = clusters[(clusters < 0) | (clusters >= num_clusters)]
    if wrong.size:
        raise ValueError(
            f"`clusters` must be in 0..{num_clusters - 1}, got {wrong[0]}."
        )
