"""pFedMe: personal models near a common one, which follows where they pull it.

T. Dinh, Tran, Nguyen. "Personalized Federated Learning with Moreau Envelopes". NeurIPS
2020, Algorithm 1. Of the paper its abstract and introduction were at hand; the rules
below are Algorithm 1 as it is widely quoted, and as the authors' released code has it
(CharlieDinh/pFedMe: servers and users read and not copied) where that agrees.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, ScalarLike

from cfljax.base.checks import check_positive
from cfljax.base.constructor import constructor
from cfljax.base.describe import summary
from cfljax.base.tree import length, repeat, trained_part, with_trained
from cfljax.base.types import (
    Algorithm,
    ClientData,
    Stacked,
    StepSize,
    Task,
    Threat,
    Variables,
)
from cfljax.federated.answers import check_clients
from cfljax.federated.evaluate import masked_mean, predict_own
from cfljax.federated.exchange import (
    Worked,
    exchange,
    first_moments,
    server_step,
    work_of_newcomers,
)
from cfljax.federated.local_update import (
    LocalUpdate,
    batch_loss,
    check_schedules,
    client_update,
    losses_of_gradient,
    step_size_at,
)
from cfljax.federated.rounds import Info, global_start
from cfljax.federated.training import Weights, averaging


class Own(NamedTuple):
    """What clients keep, a row for each.

    models: theta, leaves `[clients, ...]`, personal models.
    moments: optimiser states of the local models, an empty tree if none are kept.
    """

    models: Stacked
    moments: Stacked


class State(NamedTuple):
    """All that the next round needs.

    model: w, the global model, leaves without a leading axis.
    own: what clients keep; personal models are for answers, no round starts from them.
    round: rounds that are over.
    """

    model: PyTree
    own: Own
    round: Int[Array, ""]

    __repr__ = summary


@constructor
def pfedme(
    task: Task,
    *,
    step_size: StepSize,
    personal_step_size: StepSize,
    penalty: ScalarLike = 15.0,
    server_step_size: ScalarLike = 1.0,
    num_steps: int = 1,
    num_personal_steps: int = 1,
    weights: Weights = "clients",
    participation: float = 1.0,
    update: LocalUpdate | None = None,
    threat: Threat | None = None,
) -> Algorithm:
    """The mean of Moreau envelopes `min_v F_i(v) + penalty / 2 |v - w|^2` is minimised.

    A participant starts its local model w_i at the model received and, in each local
    step, first approaches `theta = argmin_v F_i(v) + penalty / 2 |v - w_i|^2` and then
    takes a step along the envelope's gradient,

        w_i <- w_i - step_size penalty (w_i - theta).

    It sends w_i, and answers with the last theta.

    Args:
      task: the learning problem.
      step_size: eta, of local models; `step_size * penalty` is how much of the way to
        theta they go. May be traced.
      personal_step_size: of the gradient descent that approaches theta; may be traced.
      penalty: lambda, not negative; may be traced. With 0 the global model stays and
        every client trains alone, from it.
      server_step_size: beta: the model becomes `(1 - beta) w + beta mean`; not
        negative, may be traced. Statistics become the mean.
      num_steps: R, local steps in each round.
      num_personal_steps: K, steps towards theta in each local step, all on the local
        step's batch. They start from the model received, in later local steps from
        where the last ones ended.
      weights: of the clients in the model; the paper's are equal, the released code
        counts samples.
      participation: fraction of the clients drawn each round. The others keep their
        personal models; in Algorithm 1 they train as well, and are not heard.
      update: how clients take their local steps. Those towards theta are plain.
      threat: what Byzantine clients do to the local models they send.

    Raises:
      ValueError: where an argument is out of its range.

    A client whose loss, local or personal model is not finite has no weight and keeps
    what it had. `Info.losses` are those under personal models, before training. A
    newcomer works for one round from the global model and answers with its theta.

    Cost of a round: `num_steps` times `num_personal_steps` passes forward and backward
    and a forward pass for each participant. Memory: a model of every client.
    """
    check_positive(num_personal_steps=num_personal_steps)
    check_schedules(personal_step_size=personal_step_size)
    training = averaging(step_size, num_steps, weights, participation, update, threat)

    def first_own(model: PyTree, num_clients: int) -> Own:
        """Before anybody worked."""
        moments = first_moments(training, model, num_clients)
        return Own(repeat(model, num_clients), moments)

    def init(key: PRNGKeyArray, data: ClientData) -> State:
        model, _ = global_start(key, task, training, data.mask.shape[0])
        own = first_own(model, data.mask.shape[0])
        return State(model, own, jnp.zeros((), jnp.int32))

    def told(state: State) -> tuple[Array, Array, Array]:
        """Numbers of the round: both step sizes and the penalty."""
        size = lambda of: step_size_at(training.update, of, state.round)
        strength = jnp.asarray(penalty, jnp.result_type(float))
        return size(step_size), size(personal_step_size), strength

    def step(key: PRNGKeyArray, state: State, data: ClientData) -> tuple[State, Info]:
        after = exchange(
            key,
            state.model,
            state.own,
            data,
            training,
            work,
            shared=told(state),
            origin=state.model,
            round_index=state.round,
        )
        model = server_step(state.model, after.mean, server_step_size)
        return State(model, after.kept, state.round + 1), after.info

    def work(
        shared: tuple, key: PRNGKeyArray, model: PyTree, own: Own, data: ClientData
    ) -> Worked:
        size, personal_size, penalty = shared
        loss = masked_mean(task.losses(own.models, *data[:2]), data.mask)
        envelope = _envelope(task, num_personal_steps, personal_size, penalty)
        train = client_update(envelope, training.update, num_steps)
        start = Variables(trained_part(model), model)
        after, moments = train(key, size, start, own.moments, data)
        theta = after.statistics
        local = with_trained(theta, after.weights)
        return Worked(local, Own(theta, moments), loss)

    def predict(state: State, data: ClientData, inputs: Array) -> Array:
        models = state.own.models
        check_clients(length(models), data, inputs)
        return predict_own(task, models, jnp.arange(data.mask.shape[0]), inputs)

    def join(key: PRNGKeyArray, state: State, data: ClientData) -> State:
        fresh = first_own(state.model, data.mask.shape[0])
        own = work_of_newcomers(
            key, state.model, fresh, data, training, work, shared=told(state)
        )
        return state._replace(own=own)

    return Algorithm(init, step, predict, join)


def _envelope(
    task: Task, num_steps: int, step_size: ScalarLike, penalty: ScalarLike
) -> Task:
    """The task whose training gradient is that of the Moreau envelope at a local model,
    `penalty (w - theta)`: its params are `Variables` of w and, as what is measured on
    each batch, of the whole personal model."""

    def fit(
        key: PRNGKeyArray,
        params: Variables,
        inputs: Array,
        targets: Array,
        mask: Bool[Array, " samples"],
    ) -> tuple[Float[Array, " samples"], Variables]:
        batch = ClientData(inputs, targets, mask)
        here = jax.lax.stop_gradient(params.weights)

        def approach(index: Array, model: PyTree) -> PyTree:
            own = jax.random.fold_in(key, index)
            loss = lambda at: batch_loss(task, with_trained(model, at), batch, own)
            weights = trained_part(model)
            gradient, after = jax.grad(loss, has_aux=True)(weights)
            move = lambda v, g, w: v - step_size * (g + penalty * (v - w))
            return with_trained(after, jax.tree.map(move, weights, gradient, here))

        start = jax.lax.stop_gradient(params.statistics)
        theta = jax.lax.fori_loop(0, num_steps, approach, start)
        slope = lambda w, v: penalty * (w - v)
        gradient = jax.tree.map(slope, here, trained_part(theta))
        losses = losses_of_gradient(gradient, params.weights, mask)
        return losses, Variables(params.weights, theta)

    return task._replace(fit=fit, layers=None)
