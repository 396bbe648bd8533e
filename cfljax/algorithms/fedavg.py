"""FedAvg: one global model, averaged over the clients.

McMahan, Moore, Ramage, Hampson, Aguera y Arcas. "Communication-Efficient Learning of
Deep Networks from Decentralized Data". AISTATS 2017, with full-batch local steps. The
"global model" baseline of IFCA's section 6.2 and IFCA's limit of one cluster.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, ScalarLike

from cfljax.kernels.evaluate import choose_cluster, predict_own
from cfljax.kernels.training import Option, Weights, check_training, train_round
from cfljax.types import Algorithm, ClientData, Task

__all__ = ["Info", "State", "fedavg"]


class State(NamedTuple):
    """All that the next round needs.

    model: the global model, leaves without a leading axis.
    """

    model: PyTree


class Info(NamedTuple):
    """What one round did; nothing here is carried over.

    assignment: 0 for a client that trained, `NO_CLUSTER` for one that was not
      asked or whose loss is not finite.
    losses: client losses under the model received, before training; NaN for a
      client that was not asked.
    """

    assignment: Int[Array, " clients"]
    losses: Float[Array, " clients"]


def fedavg(
    task: Task,
    *,
    step_size: ScalarLike,
    option: Option = "model",
    num_steps: int = 1,
    weights: Weights = "samples",
    participation: float = 1.0,
) -> Algorithm:
    """Federated averaging of one model by full-batch local steps.

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

    Raises:
      ValueError: where an argument is out of its range.

    Cost of a round: that of `kernels.training.train_clusters` with one model.
    """
    check_training(
        option=option,
        num_steps=num_steps,
        normalise="cluster",
        participation=participation,
        weights=weights,
    )

    def init(key: PRNGKeyArray, data: ClientData) -> State:
        del data  # The model starts anywhere.
        (first,) = jax.random.split(key, 1)  # As IFCA with one cluster draws it.
        return State(model=task.init(first))

    def step(key: PRNGKeyArray, state: State, data: ClientData) -> tuple[State, Info]:
        models, assignment, losses = train_round(
            key,
            task,
            jax.tree.map(lambda leaf: leaf[None], state.model),
            data,
            choose=lambda losses, _: choose_cluster(losses),
            option=option,
            step_size=step_size,
            num_steps=num_steps,
            normalise="cluster",
            weights=weights,
            participation=participation,
        )
        model = jax.tree.map(lambda leaf: leaf[0], models)
        return State(model), Info(assignment=assignment, losses=losses[:, 0])

    def predict(state: State, data: ClientData, inputs: Array) -> Array:
        models = jax.tree.map(lambda leaf: leaf[None], state.model)
        everyone = jnp.zeros(data.mask.shape[0], jnp.int32)
        return predict_own(task, models, everyone, inputs)

    return Algorithm(init=init, step=step, predict=predict)
