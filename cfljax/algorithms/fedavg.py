"""FedAvg: one global model, averaged over the clients.

McMahan, Moore, Ramage, Hampson, Aguera y Arcas. "Communication-Efficient Learning of
Deep Networks from Decentralized Data". AISTATS 2017, Algorithm 1. With a proximal
local update it is FedProx (Li et al., MLSys 2020). The "global model" baseline of
IFCA's section 6.2 and IFCA's limit of one cluster.
"""

from jaxtyping import PRNGKeyArray

from cfljax.base.constructor import constructor
from cfljax.base.types import Algorithm, ClientData, StepSize, Task, Threat
from cfljax.federated.answers import predict_one_model
from cfljax.federated.local_update import LocalUpdate
from cfljax.federated.robust import Aggregate
from cfljax.federated.rounds import GlobalState as State
from cfljax.federated.rounds import Info, global_round, global_start
from cfljax.federated.training import Option, Training, Weights


@constructor
def fedavg(
    task: Task,
    *,
    step_size: StepSize,
    option: Option = "model",
    num_steps: int = 1,
    weights: Weights = "samples",
    participation: float = 1.0,
    update: LocalUpdate | None = None,
    threat: Threat | None = None,
    aggregate: Aggregate | None = None,
) -> Algorithm:
    """Federated averaging of one model; more on arguments in `federated.training`.

    Args:
      task: the learning problem.
      step_size: of local steps; may be traced.
      option: "model" averages the participants' models (FedAvg), "gradient" their
        gradients at the global model (FedSGD).
      num_steps: local steps of `option="model"`.
      weights: "samples" as FedAvg has it, "clients" as IFCA's global baseline.
      participation: fraction of the clients drawn each round.
      update: how clients train with `option="model"`.
      threat: what Byzantine clients do.
      aggregate: mean of the messages; needs `weights="clients"`.

    Raises:
      ValueError: where an argument is out of its range.

    A newcomer answers with the model.

    Cost of a round: that of `federated.rounds.train_round` with one model.
    """
    training = Training(
        step_size=step_size,
        option=option,
        num_steps=num_steps,
        normalise="cluster",
        weights=weights,
        participation=participation,
        update=update or LocalUpdate(),
        threat=threat,
        aggregate=aggregate,
    )

    def init(key: PRNGKeyArray, data: ClientData) -> State:
        return global_start(key, task, training, data.mask.shape[0])

    def step(key: PRNGKeyArray, state: State, data: ClientData) -> tuple[State, Info]:
        return global_round(key, task, state, data, training)

    return Algorithm(init, step, predict_one_model(task))
