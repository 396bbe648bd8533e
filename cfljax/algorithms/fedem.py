"""FedEM: every client's data are a mixture of a few distributions that all have.

Marfoq, Neglia, Bellet, Kameni, Vidal. "Federated Multi-Task Learning under a Mixture of
Distributions". NeurIPS 2021, Algorithm 1 (FedEM): a client answers with a mixture of M
models that all train together, by weights of its own. The paper's abstract and
introduction, and the authors' released code (github.com/omarfoq/FedEM: `client.py`,
`aggregator.py`, `learners/`), were at hand; numbers of its equations were not.
"""

from jaxtyping import PRNGKeyArray

from cfljax.base.constructor import constructor
from cfljax.base.types import Algorithm, ClientData, StepSize, Task
from cfljax.federated.answers import predict_mixture
from cfljax.federated.local_update import LocalUpdate
from cfljax.federated.mixtures import MixtureState as State
from cfljax.federated.mixtures import join_mixture, mixture_round, mixture_start
from cfljax.federated.rounds import Info
from cfljax.federated.training import Weights, averaging


@constructor
def fedem(
    task: Task,
    *,
    num_clusters: int,
    step_size: StepSize,
    num_steps: int = 1,
    weights: Weights = "samples",
    participation: float = 1.0,
    update: LocalUpdate | None = None,
) -> Algorithm:
    """Expectation maximisation of mixtures whose components are trained by FedAvg.

    In a round each participant t, with the models theta_j as received, sets

        q_ij ~ pi_tj exp(-loss_j(sample i))        responsibilities, of sum 1 over j
        pi_tj = mean of q_ij over its samples      its weights, which it keeps
        theta_tj: steps on the mean of q_ij loss_j(sample i), from theta_j

    and the server averages the theta_tj for each j by the clients' samples, whatever
    their weights: a model that a client has no share in hardly moves there. Losses are
    taken for negative logarithms of likelihoods: cross-entropies are, and a squared
    error is that of a normal distribution of variance 1/2, so that the scale of targets
    matters. With one component it is `fedavg`.

    Args:
      task: the learning problem.
      num_clusters: M, number of components, at least 1.
      step_size: local step size; may be traced.
      num_steps: local steps on every component in each round.
      weights: of the clients in a component; "samples" as in the paper.
      participation: fraction of the clients drawn each round; the others keep their
        weights. The released code averages them as well, with the models that they
        were last sent, which shortens every step.
      update: how clients train every component.

    Raises:
      ValueError: where an argument is out of its range.

    `predict` gives logarithms of mixed probabilities where targets are classes, so that
    `losses.cross_entropy` of them is the loss of the mixture, and else the mean of what
    the components answer. `Info.assignment` is the component of largest weight.

    A newcomer is sent the components and learns its weights alone, to the maximum of
    its samples' likelihood; in the released code by one round's step.

    Cost of a round: for each participant and component a forward pass and `num_steps`
    passes. Memory: with a kept optimiser a state for each client and component.
    """
    training = averaging(step_size, num_steps, weights, participation, update, None)

    def init(key: PRNGKeyArray, data: ClientData) -> State:
        return mixture_start(key, task, training, num_clusters, len(data.mask))

    def step(key: PRNGKeyArray, state: State, data: ClientData) -> tuple[State, Info]:
        after = mixture_round(key, task, state, data, training)
        return after.state, after.info

    join = join_mixture(task, training.update.clients_per_chunk)
    return Algorithm(init, step, predict_mixture(task), join)
