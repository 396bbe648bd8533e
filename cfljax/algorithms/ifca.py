"""IFCA: every client joins the model that fits it best, then trains it.

Ghosh, Chung, Yin, Ramchandran. "An Efficient Framework for Clustered Federated
Learning". NeurIPS 2020. Algorithm 2: option I (gradient averaging) and option II
(model averaging). Line numbers below are those of the algorithm.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, ScalarLike

from cfljax.kernels.average import Normalise
from cfljax.kernels.checks import check_member, check_optional, check_positive
from cfljax.kernels.evaluate import choose_cluster, loss_matrix, predict_own
from cfljax.kernels.identity import History, first_history, is_settled, remember
from cfljax.kernels.local_update import LocalUpdate
from cfljax.kernels.robust import Aggregate
from cfljax.kernels.rounds import train_round
from cfljax.kernels.sharing import Shared, SharingVariant
from cfljax.kernels.traffic import traffic
from cfljax.kernels.training import (
    FirstRound,
    Memory,
    Option,
    Start,
    Training,
    Weights,
    first_memory,
    messages,
    start_models,
)
from cfljax.types import Algorithm, ClientData, Stacked, Task, Threat

__all__ = ["Info", "State", "ifca"]


class State(NamedTuple):
    """All that the next round needs.

    models: leaves `[clusters, ...]`; shared leaves have equal rows.
    memory: of local updates; None if they need none.
    history: of identities; None unless they may settle.
    is_first: whether no round is over; None unless the first is different.
    """

    models: Stacked
    memory: Memory | None = None
    history: History | None = None
    is_first: Bool[Array, ""] | None = None


class Info(NamedTuple):
    """What one round did; nothing here is carried over.

    assignment: cluster each client trained this round, `NO_CLUSTER` for a client
      that was not asked or has no finite loss.
    losses: client losses under the models received, before training; NaN for a
      client that was not asked or was sent only its own model.
    received: bytes from the centre to each client.
    sent: bytes from each client to the centre.
    """

    assignment: Int[Array, " clients"]
    losses: Float[Array, "clients clusters"]
    received: Int[Array, " clients"]
    sent: Int[Array, " clients"]


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
    update: LocalUpdate | None = None,
    shared: Shared | None = None,
    variant: SharingVariant = "paper",
    stable_rounds: int | None = None,
    first_round: FirstRound = "evaluation",
    start: Start = "independent",
    threat: Threat | None = None,
    aggregate: Aggregate | None = None,
) -> Algorithm:
    """Iterative Federated Clustering Algorithm.

    A cluster that nobody chose keeps its model. Ties go to the lowest index and a
    loss that is not finite is never chosen (`kernels.evaluate.choose_cluster`). With
    option "model" a model that is not finite once trained is left out of the mean; a
    robust `aggregate` is given it.

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
      update: how clients train in option II: mini-batches, epochs, decay of the step
        size, optimiser ...; full-batch gradient descent if None.
      shared: from the name of a leaf, such as "output/kernel", to whether all
        clusters share it (section 4.3); nothing is shared if None. Names are those
        of `kernels.sharing.paths`.
      variant: "paper" trains shared leaves with all participants, as section 4.3
        describes; "reference" leaves them as they start, as the released code does
        with pretrained ones (`kernels.sharing.with_frozen`), which is how the
        published numbers of Table 2 came about.
      stable_rounds: once no client has changed its estimate for so many rounds, the
        centre sends a client of known identity only its own model (section 4.3), and
        identities stay as they are; never if None.
      first_round: "evaluation" chooses by losses from the first round on, as in the
        paper; "random" draws a model for every participant of the first round, as
        CLoVE's Figure 2 has it.
      start: "independent" random models, or "identical" ones, of which an evaluation
        always chooses the first: the others are then never trained.
      threat: what Byzantine clients do, see `attacks.threat`; all are honest if None.
      aggregate: mean of the members' messages, one of `kernels.robust`'s: `median()`,
        `trimmed_mean(share)`, `centred_clipping(radius)`; the plain mean if None.
        Released robust versions divide means by m and medians by the members, which is
        `normalise` "all" with the mean and "cluster" with the others.

    Raises:
      ValueError: where an argument is out of its range; in a round, where
        `resample` meets an odd number of samples.

    A newcomer takes the cluster whose model it loses least with, as in a round.

    Cost of a round: that of `kernels.rounds.train_round`.
    """
    check_positive(num_clusters=num_clusters)
    check_optional(stable_rounds=stable_rounds)
    check_member(FirstRound, first_round=first_round)
    check_member(Start, start=start)
    training = Training(
        step_size=step_size,
        option=option,
        num_steps=num_steps,
        normalise=normalise,
        weights=weights,
        participation=participation,
        resample=resample,
        update=update or LocalUpdate(),
        shared=shared,
        variant=variant,
        threat=threat,
        aggregate=aggregate,
    )

    def init(key: PRNGKeyArray, data: ClientData) -> State:
        models = start_models(task, key, num_clusters, start)  # Nothing learned yet.
        return State(
            models=models,
            memory=first_memory(training, models, len(data.mask)),
            history=None if stable_rounds is None else first_history(len(data.mask)),
            is_first=jnp.array(True) if first_round == "random" else None,
        )

    def step(key: PRNGKeyArray, state: State, data: ClientData) -> tuple[State, Info]:
        history, alone = state.history, None
        if history is not None and stable_rounds is not None:
            alone = is_settled(history, stable_rounds)
        after = train_round(
            key,
            task,
            state.models,
            state.memory,
            data,
            training=training,
            choose=lambda losses, some: _choose(key, state, losses, some, alone),
            all_known=None if alone is None else lambda some: jnp.all(alone[some]),
        )
        losses = after.losses
        if history is not None and alone is not None:
            losses = jnp.where(alone[:, None], jnp.nan, losses)
            history = remember(history, after.assignment)
        received, sent = traffic(
            messages(training, state.models), after.present, after.assignment, alone
        )
        info = Info(after.assignment, losses, received, sent)
        is_first = None if state.is_first is None else jnp.array(False)
        return State(after.models, after.memory, history, is_first), info

    def predict(state: State, data: ClientData, inputs: Array) -> Array:
        chunk = training.update.clients_per_chunk
        losses = loss_matrix(task, state.models, data, clients_per_chunk=chunk)
        return predict_own(task, state.models, choose_cluster(losses), inputs)

    return Algorithm(init=init, step=step, predict=predict)


def _choose(
    key: PRNGKeyArray,
    state: State,
    losses: Float[Array, "participants clusters"],
    clients: Int[Array, " participants"],
    alone: Bool[Array, " clients"] | None,
) -> Int[Array, " participants"]:
    """The model of lowest loss, but for clients whose identity is settled."""
    estimate = choose_cluster(losses)  # line 6
    if state.is_first is not None:
        own = jax.random.fold_in(key, 1)  # Clients draw from 0.
        drawn = jax.random.randint(own, estimate.shape, 0, losses.shape[1])
        estimate = jnp.where(state.is_first, drawn, estimate)
    if state.history is None or alone is None:
        return estimate
    return jnp.where(alone[clients], state.history.identities[clients], estimate)
