"""IFCA: every client joins the model that fits it best, then trains it.

Ghosh, Chung, Yin, Ramchandran. "An Efficient Framework for Clustered Federated
Learning". NeurIPS 2020. Algorithm 2: option I (gradient averaging) and option II
(model averaging). Line numbers below are those of the algorithm.
"""

from typing import NamedTuple

import jax
from jaxtyping import Array, Float, Int, PRNGKeyArray, ScalarLike

from cfljax.kernels.average import Normalise
from cfljax.kernels.evaluate import choose_cluster, loss_matrix, predict_own
from cfljax.kernels.training import Option, Weights, check_training, train_round
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


def ifca(
    task: Task,
    *,
    num_clusters: int,
    step_size: ScalarLike,
    option: Option = "gradient",
    num_steps: int = 1,
    normalise: Normalise = "all",
    weights: Weights = "clients",
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
      normalise: divisor of option I's summed gradients: "all", m clients, as in the
        paper and its released code; "participants"; or "cluster", its members. It
        changes the effective step size: for k balanced clusters under full
        participation "cluster" moves k times further than the others.
      weights: of the clients in an average, "clients" for equal ones as in the paper,
        "samples" for their numbers of samples.
      participation: fraction of the clients drawn for M_t in each round.
      resample: estimate identities on the first half of the round's samples and
        train on the second, as in section 5; give the engine fresh data for each
        round (`data.split_rounds`) for the paper's 2T folds. Meant for clients of
        equal sample counts: padding counts as samples here.

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
        weights=weights,
    )

    def init(key: PRNGKeyArray, data: ClientData) -> State:
        del data  # Models start anywhere; nothing is learned from the data yet.
        return State(models=jax.vmap(task.init)(jax.random.split(key, num_clusters)))

    def step(key: PRNGKeyArray, state: State, data: ClientData) -> tuple[State, Info]:
        models, assignment, losses = train_round(
            key,
            task,
            state.models,
            data,
            choose=lambda losses, _: choose_cluster(losses),  # line 6
            option=option,
            step_size=step_size,
            num_steps=num_steps,
            normalise=normalise,
            weights=weights,
            participation=participation,
            resample=resample,
        )
        return State(models), Info(assignment=assignment, losses=losses)

    def predict(state: State, data: ClientData, inputs: Array) -> Array:
        choice = choose_cluster(loss_matrix(task, state.models, data))
        return predict_own(task, state.models, choice, inputs)

    return Algorithm(init=init, step=step, predict=predict)
