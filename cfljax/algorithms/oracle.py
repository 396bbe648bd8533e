"""Oracle: the true clusters are given, each trains one model.

The upper baseline of clustered federated learning: what IFCA would do if every
identity estimate were right ("ground truth" in Werner et al., section 5).
"""

from typing import NamedTuple

import jax
from jaxtyping import Array, Float, Int, PRNGKeyArray, ScalarLike

from cfljax.kernels.average import Normalise
from cfljax.kernels.evaluate import predict_own
from cfljax.kernels.training import Option, Weights, check_training, train_round
from cfljax.types import Algorithm, ClientData, Stacked, Task

__all__ = ["Info", "State", "oracle"]


class State(NamedTuple):
    """All that the next round needs.

    models: leaves `[clusters, ...]`.
    """

    models: Stacked


class Info(NamedTuple):
    """What one round did; nothing here is carried over.

    assignment: the client's true cluster, `NO_CLUSTER` if it was not asked.
    losses: client losses under the models received, before training; NaN for a
      client that was not asked.
    """

    assignment: Int[Array, " clients"]
    losses: Float[Array, "clients clusters"]


def oracle(
    task: Task,
    *,
    clusters: Int[Array, " clients"],
    num_clusters: int,
    step_size: ScalarLike,
    option: Option = "gradient",
    num_steps: int = 1,
    normalise: Normalise = "all",
    weights: Weights = "clients",
    participation: float = 1.0,
) -> Algorithm:
    """Federated training of one model for each true cluster.

    Args:
      task: the learning problem.
      clusters: true cluster of each client, in `[0, num_clusters)`.
      num_clusters: number of models k, at least 1.
      step_size: gamma; may be traced.
      option: "gradient" or "model", as in `ifca`.
      num_steps: local steps of option "model", at least 1.
      normalise: divisor of the summed gradients, as in `ifca`.
      weights: of the clients in an average, as in `ifca`.
      participation: fraction of the clients drawn in each round.

    Raises:
      ValueError: where an argument is out of its range.

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
        del data  # Models start anywhere.
        return State(models=jax.vmap(task.init)(jax.random.split(key, num_clusters)))

    def step(key: PRNGKeyArray, state: State, data: ClientData) -> tuple[State, Info]:
        models, assignment, losses = train_round(
            key,
            task,
            state.models,
            data,
            choose=lambda _, participants: clusters[participants],
            option=option,
            step_size=step_size,
            num_steps=num_steps,
            normalise=normalise,
            weights=weights,
            participation=participation,
        )
        return State(models), Info(assignment=assignment, losses=losses)

    def predict(state: State, data: ClientData, inputs: Array) -> Array:
        del data  # Nothing to choose.
        return predict_own(task, state.models, clusters, inputs)

    return Algorithm(init=init, step=step, predict=predict)
