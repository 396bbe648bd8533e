"""IFCA: every client joins the model that fits it best, then trains it.

Ghosh, Chung, Yin, Ramchandran. "An Efficient Framework for Clustered Federated
Learning". NeurIPS 2020. Algorithm 2: option I (gradient averaging) and option II
(model averaging). Line numbers below are those of the algorithm.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, ScalarLike

from cfljax.kernels.average import Normalise
from cfljax.kernels.evaluate import (
    NO_CLUSTER,
    choose_cluster,
    loss_matrix,
    predict_own,
)
from cfljax.kernels.participate import cohort, spread
from cfljax.kernels.training import Option, check_training, train_clusters
from cfljax.types import Algorithm, ClientData, Stacked, Task

__all__ = ["Info", "State", "ifca"]


class State(NamedTuple):
    """All that the next round needs.

    models: leaves `[clusters, ...]`.
    """

    models: Stacked


class Info(NamedTuple):
    """What one round did; nothing here is carried over.

    assignment: cluster each client trained this round, `NO_CLUSTER` for a client
      that was not asked or has no finite loss.
    losses: client losses under the models received, before training; NaN for a
      client that was not asked.
    """

    assignment: Int[Array, " clients"]
    losses: Float[Array, "clients clusters"]


def halves(data: ClientData) -> tuple[ClientData, ClientData]:
    """First and second half of every client's samples."""
    num_samples = data.mask.shape[1]
    if num_samples % 2:
        raise ValueError(
            "`resample` needs an even number of samples per client and round, got "
            f"{num_samples}."
        )
    middle = num_samples // 2
    first = jax.tree.map(lambda leaf: leaf[:, :middle], data)
    return first, jax.tree.map(lambda leaf: leaf[:, middle:], data)


def ifca(
    task: Task,
    *,
    num_clusters: int,
    step_size: ScalarLike,
    option: Option = "gradient",
    num_steps: int = 1,
    normalise: Normalise = "all",
    participation: float = 1.0,
    resample: bool = False,
) -> Algorithm:
    """Iterative Federated Clustering Algorithm.

    A cluster that nobody chose keeps its model. Ties go to the lowest index and a
    loss that is not finite is never chosen (`kernels.evaluate.choose_cluster`).

    Args:
      task: the learning problem.
      num_clusters: number of models k, at least 1. With 1 this is FedAvg.
      step_size: gamma. May be traced, so that it can be swept by vmap.
      option: "gradient" (I) or "model" (II).
      num_steps: local steps tau of option II, at least 1.
      normalise: divisor of option I's summed gradients; it changes the effective
        step size, see `kernels.average.gradient_step`. The paper and its released
        code use "all".
      participation: fraction of the clients drawn for M_t in each round.
      resample: estimate identities on the first half of the round's samples and
        train on the second, as in section 5; give the engine fresh data for each
        round (`data.split_rounds`) for the paper's 2T folds.

    Raises:
      ValueError: where an argument is out of its range; in a round, where
        `resample` meets an odd number of samples.

    Cost of a round: that of `kernels.training.train_clusters`.
    """
    check_training(
        option=option,
        num_steps=num_steps,
        normalise=normalise,
        participation=participation,
        num_clusters=num_clusters,
    )

    def init(key: PRNGKeyArray, data: ClientData) -> State:
        del data  # Models start anywhere; nothing is learned from the data yet.
        return State(models=jax.vmap(task.init)(jax.random.split(key, num_clusters)))

    def step(key: PRNGKeyArray, state: State, data: ClientData) -> tuple[State, Info]:
        num_clients = data.mask.shape[0]
        participants, present = cohort(key, data, participation)  # line 4
        estimate, train = halves(present) if resample else (None, present)
        models, assignment, losses = train_clusters(  # lines 5-15
            task,
            state.models,
            train,
            choose=choose_cluster,
            option=option,
            step_size=step_size,
            num_steps=num_steps,
            normalise=normalise,
            num_clients=num_clients,
            estimate=estimate,
        )
        return State(models=models), Info(
            assignment=spread(assignment, participants, num_clients, absent=NO_CLUSTER),
            losses=spread(losses, participants, num_clients, absent=jnp.nan),
        )

    def predict(state: State, data: ClientData, inputs: Array) -> Array:
        choice = choose_cluster(loss_matrix(task, state.models, data))
        return predict_own(task, state.models, choice, inputs)

    return Algorithm(init=init, step=step, predict=predict)
