"""IFCA: every client joins the model that fits it best, then trains it.

Ghosh, Chung, Yin, Ramchandran. "An Efficient Framework for Clustered Federated
Learning". NeurIPS 2020. Algorithm 2: option I (gradient averaging) and option II
(model averaging). Line numbers below are those of the algorithm.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from cfljax.base.checks import check_member
from cfljax.base.constructor import constructor
from cfljax.base.describe import summary
from cfljax.base.streams import Stream
from cfljax.base.types import (
    NO_CLUSTER,
    Algorithm,
    ClientData,
    Stacked,
    StepSize,
    Task,
    Threat,
)
from cfljax.federated.answers import predict_best_model
from cfljax.federated.average import Normalise
from cfljax.federated.evaluate import choose_cluster
from cfljax.federated.local_update import LocalUpdate
from cfljax.federated.robust import Aggregate
from cfljax.federated.rounds import Info, train_round
from cfljax.federated.sharing import Shared, SharingVariant
from cfljax.federated.traffic import traffic
from cfljax.federated.training import (
    FirstRound,
    LocalState,
    Option,
    Start,
    Training,
    Weights,
    first_local_state,
    message_bytes,
    option_for,
    start_models,
)


class History(NamedTuple):
    """What the server knows of the clients' clusters.

    Not CLoVE's `Stability`: there every participant must have kept its model in its own
    latest rounds, here nobody may have changed in the latest rounds of all.

    identities: latest estimate of each client, `NO_CLUSTER` before its first.
    unchanged: rounds in a row in which no client changed an estimate of its own.
    """

    identities: Int[Array, " clients"]
    unchanged: Int[Array, ""]


class State(NamedTuple):
    """All that the next round needs.

    models: leaves `[clusters, ...]`; shared leaves have equal rows.
    local_state: of local updates; None if they need none.
    history: of identities; None unless they may settle.
    is_first: whether no round is over; None unless the first is different.
    """

    models: Stacked
    local_state: LocalState | None = None
    history: History | None = None
    is_first: Bool[Array, ""] | None = None

    __repr__ = summary


@constructor
def ifca(
    task: Task,
    *,
    num_clusters: int,
    step_size: StepSize,
    option: Option | None = None,
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
    loss that is not finite is never chosen (`federated.evaluate.choose_cluster`). More
    on arguments is in `federated.training`.

    Args:
      task: the learning problem.
      num_clusters: number of models k, at least 1. With 1 this is FedAvg. There may be
        more than clients: Algorithm 2 leaves those that nobody chooses as they are.
      step_size: gamma; may be traced, so that it can be swept by vmap.
      option: "gradient" (I) or "model" (II); if None the first with one local step
        and the second with more.
      num_steps: local steps tau of option II, at least 1.
      normalise: divisor of option I's summed gradients: "all", m clients, as in the
        paper and its released code; "participants"; or "cluster".
      weights: of the clients in an average, "clients" as in the paper or "samples".
      participation: fraction of the clients drawn for M_t in each round.
      resample: estimate identities on the first half of the round's samples and
        train on the second, as in section 5; give the engine fresh data for each
        round (`data.split_rounds`) for the paper's 2T folds. Meant for clients of
        equal sample counts: padding counts as samples here.
      update: how clients train in option II.
      shared: from a leaf's name to whether all clusters share it (section 4.3).
      variant: "paper" trains shared leaves with all participants, as section 4.3
        describes; "reference" leaves them as they start, as the released code does
        with pretrained ones (`federated.sharing.with_frozen`), which is how the
        published numbers of Table 2 came about.
      stable_rounds: once no client has changed its estimate for so many rounds, the
        server sends a client of known identity only its own model (section 4.3), and
        identities stay as they are; never if None.
      first_round: "evaluation" chooses by losses from the first round on, as in the
        paper; "random" draws a model for every participant of the first round, as
        CLoVE's Figure 2 has it.
      start: "independent" random models, or "identical" ones. Of these everybody
        chooses the first in the first round. Later, whoever loses more under it than
        under its untouched copies flees to the next of them, which then is trained:
        clusters appear one after the other, as far as clients disagree.
      threat: what Byzantine clients do.
      aggregate: mean of the members' messages, one of `federated.robust`'s. Released
        robust versions divide means by m and medians by the members, which is
        `normalise` "all" with the mean and "cluster" with the others.

    Raises:
      ValueError: where an argument is out of its range; in a round, where
        `resample` meets an odd number of samples.

    `Info.losses` are NaN also for a client that was sent only its own model. A newcomer
    takes the cluster whose model it loses least with, as in a round.

    Cost of a round: that of `federated.rounds.train_round`.
    """
    check_member(FirstRound, first_round=first_round)
    check_member(Start, start=start)
    training = Training(
        step_size=step_size,
        option=option_for(option, num_steps),
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
            local_state=first_local_state(training, models, len(data.mask)),
            history=None if stable_rounds is None else first_history(len(data.mask)),
            is_first=jnp.array(True) if first_round == "random" else None,
        )

    def step(key: PRNGKeyArray, state: State, data: ClientData) -> tuple[State, Info]:
        history, alone = state.history, None
        if history is not None and stable_rounds is not None:
            alone = is_settled(history, stable_rounds)

        def choose(
            losses: Float[Array, "participants clusters"],
            clients: Int[Array, " participants"],
        ) -> Int[Array, " participants"]:
            """The model of lowest loss, but for clients whose identity is settled."""
            estimate = choose_cluster(losses)  # line 6
            if state.is_first is not None:
                own = jax.random.fold_in(key, Stream.ALGORITHM)
                drawn = jax.random.randint(own, estimate.shape, 0, losses.shape[1])
                estimate = jnp.where(state.is_first, drawn, estimate)
            if history is None or alone is None:
                return estimate
            return jnp.where(alone[clients], history.identities[clients], estimate)

        known = None if alone is None else lambda some: jnp.all(alone[some])
        after = train_round(key, task, state, data, training, choose, all_known=known)
        losses = after.losses
        if history is not None and alone is not None:
            losses = jnp.where(alone[:, None], jnp.nan, losses)
            history = remember(history, after.assignment)
        sizes = message_bytes(training, state.models)
        received, sent = traffic(sizes, after.present, after.assignment, alone)
        info = Info(after.assignment, losses, received, sent)
        is_first = None if state.is_first is None else jnp.array(False)
        return State(after.models, after.local_state, history, is_first), info

    predict = predict_best_model(task, training.update.clients_per_chunk)
    return Algorithm(init, step, predict)


def first_history(num_clients: int) -> History:
    """Nothing is known."""
    nobody = jnp.full(num_clients, NO_CLUSTER, jnp.int32)
    return History(nobody, jnp.zeros((), jnp.int32))


def is_settled(history: History, stable_rounds: int) -> Bool[Array, " clients"]:
    """Which clients are sent only the model of their known cluster, after so many
    rounds without a change."""
    known = history.identities != NO_CLUSTER
    return known & (history.unchanged >= stable_rounds)


def remember(history: History, assignment: Int[Array, " clients"]) -> History:
    """The history after a round.

    A first estimate is no change and confirms nothing; a round of first estimates
    only leaves the count as it is.
    """
    made = assignment != NO_CLUSTER
    again = made & (history.identities != NO_CLUSTER)
    changed = jnp.any(again & (assignment != history.identities))
    confirmed = history.unchanged + jnp.any(again).astype(jnp.int32)
    identities = jnp.where(made, assignment, history.identities)
    return History(identities.astype(jnp.int32), jnp.where(changed, 0, confirmed))
