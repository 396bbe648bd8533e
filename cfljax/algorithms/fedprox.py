"""FedProx: FedAvg whose clients are held near the model they received.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith. "Federated Optimization in Heterogeneous
Networks". MLSys 2020, Algorithm 2. A baseline that CLoVE names beside FedAvg.
"""

import dataclasses

from jaxtyping import PRNGKeyArray

from cfljax.base.constructor import constructor
from cfljax.base.types import Algorithm, ClientData, StepSize, Task, Threat
from cfljax.federated.answers import predict_one_model
from cfljax.federated.local_update import LocalUpdate
from cfljax.federated.robust import Aggregate
from cfljax.federated.rounds import GlobalState as State
from cfljax.federated.rounds import Info, global_round, global_start
from cfljax.federated.training import Weights, averaging


@constructor
def fedprox(
    task: Task,
    *,
    step_size: StepSize,
    proximal: float,
    num_steps: int = 1,
    weights: Weights = "samples",
    participation: float = 1.0,
    update: LocalUpdate | None = None,
    threat: Threat | None = None,
    aggregate: Aggregate | None = None,
) -> Algorithm:
    """Federated averaging of models that minimise `F_i(w) + proximal / 2 |w - w_t|^2`.

    w_t is the model received in round t. The term matters from the second local step
    on: its gradient is 0 at w_t, so that with one step a round this is FedAvg. An
    inexact minimiser is what the local steps reach; all participants take all of
    theirs, so that the paper's stragglers, who send what they have, are not played.
    With an update that counts epochs, clients of few samples take fewer steps.

    Args:
      task: the learning problem.
      step_size: of local steps; may be traced.
      proximal: mu, not negative; a Python number, never traced. With 0 this is FedAvg
        bit for bit. The larger `step_size * proximal`, the more a step undoes of the
        ones before; above 2 they grow instead.
      num_steps: local steps, at least 1.
      weights: of the clients. The paper draws clients by their numbers of samples and
        weighs them alike; here they are drawn alike, and "samples" weighs them by
        these numbers, which aims at the same objective.
      participation: fraction of the clients drawn each round.
      update: how clients train, without a proximal term of its own.
      threat: what Byzantine clients do to the models they send.
      aggregate: mean of the messages; needs `weights="clients"`.

    Raises:
      ValueError: where an argument is out of its range.

    The losses of `Info` are without the proximal term, which is 0 where they are taken.

    Cost of a round: that of FedAvg.
    """
    update = update or LocalUpdate()
    if update.proximal not in (0, proximal):
        raise ValueError(
            "`update` must have no other proximal term than `proximal`, got "
            f"{update.proximal} beside {proximal}."
        )
    held = dataclasses.replace(update, proximal=proximal)
    training = averaging(
        step_size, num_steps, weights, participation, held, threat, aggregate
    )

    def init(key: PRNGKeyArray, data: ClientData) -> State:
        return global_start(key, task, training, data.mask.shape[0])

    def step(key: PRNGKeyArray, state: State, data: ClientData) -> tuple[State, Info]:
        return global_round(key, task, state, data, training)

    return Algorithm(init, step, predict_one_model(task))
