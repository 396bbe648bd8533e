"""Ditto: a personal model for every client, held near the common one.

Li, Hu, Beirami, Smith. "Ditto: Fair and Robust Federated Learning Through
Personalization". ICML 2021, Algorithm 1: the common model is trained by FedAvg as if
nobody had a model of its own. A baseline of Werner et al., section 5.
"""

import dataclasses
from typing import Literal, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, ScalarLike

from cfljax.base.checks import check_member, check_positive
from cfljax.base.constructor import constructor
from cfljax.base.describe import summary
from cfljax.base.tree import put, repeat, take, trained_part
from cfljax.base.types import Algorithm, ClientData, Stacked, StepSize, Task, Threat
from cfljax.federated.answers import predict_own_model
from cfljax.federated.evaluate import client_losses
from cfljax.federated.local_update import (
    ClientUpdate,
    LocalUpdate,
    client_update,
    held_near,
)
from cfljax.federated.rounds import GlobalState, global_round, global_start
from cfljax.federated.training import (
    LocalState,
    Start,
    Training,
    Weights,
    averaging,
    cohort,
    first_local_state,
    newcomers_local_state,
    next_local_state,
    spread,
    start_own_models,
    train_alone,
)

Variant = Literal["paper", "reference"]


class State(NamedTuple):
    """All that the next round needs.

    model: w, the common model, leaves without a leading axis.
    personal: v, leaves `[clients, ...]`, one model for each client.
    local_state: of local updates of the common model; None if they need none.
    personal_state: of those of the personal models; likewise.
    """

    model: PyTree
    personal: Stacked
    local_state: LocalState | None = None
    personal_state: LocalState | None = None

    __repr__ = summary


class Info(NamedTuple):
    """What one round did; nothing here is carried over.

    assignment: 0 for a client that trained the common model, `NO_CLUSTER` for one
      that was not asked or whose loss under it is not finite.
    losses: client losses under the personal models, before training; NaN for a
      client that was not asked.
    common_losses: those under the common model received, likewise.
    received: bytes from the server to each client.
    sent: bytes from each client to the server; personal models are never sent.
    """

    assignment: Int[Array, " clients"]
    losses: Float[Array, " clients"]
    common_losses: Float[Array, " clients"]
    received: Int[Array, " clients"]
    sent: Int[Array, " clients"]


@constructor
def ditto(
    task: Task,
    *,
    step_size: StepSize,
    penalty: ScalarLike = 1.0,
    num_steps: int = 1,
    num_personal_steps: int = 1,
    personal_step_size: StepSize | None = None,
    weights: Weights = "samples",
    participation: float = 1.0,
    update: LocalUpdate | None = None,
    personal_update: LocalUpdate | None = None,
    start: Start = "identical",
    variant: Variant = "paper",
    threat: Threat | None = None,
) -> Algorithm:
    """Personal models that minimise `F_i(v) + penalty / 2 |v - w|^2`.

    A participant trains the common model it received, and its personal model by

        v <- v - step (grad F_i(v) + penalty (v - w)),

    w being the model received, not what the client or the round makes of it. Where
    both trainings draw mini-batches of one size, they draw the same ones.

    Args:
      task: the learning problem.
      step_size: of the common model; may be traced.
      penalty: lambda, not negative; may be traced. With 0 every client trains alone.
      num_steps: local steps on the common model in each round.
      num_personal_steps: s, steps on a personal model in each round.
      personal_step_size: eta; `step_size` if None.
      weights: of the clients in the common model; "clients" as in the authors' released
        code.
      participation: fraction of the clients drawn each round; the others keep their
        personal models.
      update: how clients train the common model.
      personal_update: how they train their own; as `update` if None, without its
        proximal term, which `penalty` takes the place of.
      start: of the personal models: "identical" with the common one, or
        "independent" draws, those of `local`, of which the first client's is the
        common one.
      variant: "paper"; or "reference", where the common model stays as it was drawn,
        as in the code released with Werner et al., whose server skips weights that
        no gradient has reached. What is called Ditto there is local training with
        weight decay towards the start. It also adds the term to the optimiser's step
        and not to the gradient, which beside momentum makes it weaker.
      threat: what Byzantine clients do to the common model.

    Raises:
      ValueError: where an argument is out of its range.

    A newcomer trains a personal model for one round, from the common one and held
    near it.

    Cost of a round: that of FedAvg, and a forward pass and `num_personal_steps`
    passes for each participant. Memory: a model of every client.
    """
    check_positive(num_personal_steps=num_personal_steps)
    check_member(Start, start=start)
    check_member(Variant, variant=variant)
    training = averaging(step_size, num_steps, weights, participation, update, threat)
    if personal_update is None:
        personal_update = dataclasses.replace(training.update, proximal=0.0)
    elif personal_update.proximal:
        raise ValueError(
            "`personal_update` must have no proximal term beside `penalty`, got "
            f"{personal_update.proximal}."
        )
    own = Training(
        step_size=step_size if personal_step_size is None else personal_step_size,
        num_steps=num_personal_steps,
        participation=participation,
        update=personal_update,
    )
    is_reference = variant == "reference"

    def init(key: PRNGKeyArray, data: ClientData) -> State:
        num_clients = data.mask.shape[0]
        model, local_state = global_start(key, task, training, num_clients)
        personal = start_own_models(task, key, num_clients, start)
        personal_state = first_local_state(own, personal, num_clients)
        return State(model, personal, local_state, personal_state)

    def step(key: PRNGKeyArray, state: State, data: ClientData) -> tuple[State, Info]:
        common = GlobalState(state.model, state.local_state)
        after, seen = global_round(key, task, common, data, training)
        personal, own_state, losses = personal_round(key, state, data, participation)
        model = state.model if is_reference else after.model
        info = Info(seen.assignment, losses, seen.losses, seen.received, seen.sent)
        return State(model, personal, after.local_state, own_state), info

    def personal_round(
        key: PRNGKeyArray, state: State, data: ClientData, participation: float
    ) -> tuple[Stacked, LocalState | None, Float[Array, " clients"]]:
        """Personal models after the round, their state, and the losses before it."""
        # The same key draws the same participants as for the common model.
        clients, present = cohort(key, data, participation)
        before, models = state.personal_state, take(state.personal, clients)
        losses = client_losses(task, models, present, **own.update.placement)

        def held(shared: tuple[Array, PyTree]) -> ClientUpdate:
            penalty, anchor = shared
            apart = lambda size: size if is_reference else None
            optimizer = lambda size: held_near(
                own.update.optimizer(size), anchor, penalty, apart=apart(size)
            )
            update = dataclasses.replace(own.update, optimizer=optimizer)
            return client_update(task, update, num_personal_steps)

        goal = jnp.asarray(penalty, jnp.result_type(float)), trained_part(state.model)
        trained, moments = train_alone(
            key, task, models, present, own, before, clients, shared=goal, train_by=held
        )
        personal = put(state.personal, clients, trained)
        losses = spread(losses, clients, data.mask.shape[0], absent=jnp.nan)
        return personal, next_local_state(before, clients, moments), losses

    def join(key: PRNGKeyArray, state: State, data: ClientData) -> State:
        num_clients = data.mask.shape[0]
        models = repeat(state.model, num_clients)
        kept = newcomers_local_state(own, state.personal_state, models, num_clients)
        fresh = State(state.model, models, None, kept)
        # Each newcomer works.
        return fresh._replace(personal=personal_round(key, fresh, data, 1.0)[0])

    return Algorithm(init, step, predict_own_model(task, "personal"), join)
