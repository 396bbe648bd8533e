"""FedDrift: clients whose data drift are isolated, and similar clusters merged.

Jothimurugesan, Hsieh, Wang, Joshi, Gibbons. "Federated Learning under Distributed
Concept Drift". AISTATS 2023. Of its text the abstract and the introduction could be
opened; the rules below are those of the authors' released code, `SoftClusterState` of
`FedAvgEnsDataLoader.py`. At the start of each time step (1) every client takes the
model that it loses least with on its new samples, unless (2) it loses much more than
before: then it begins a model of its own; (3) clusters that lose little under each
other's models are merged. Then (4) FedAvg within each cluster, for all rounds of the
time step.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, ScalarLike

from cfljax.base.checks import check_member
from cfljax.base.constructor import constructor
from cfljax.base.describe import summary
from cfljax.base.tree import repeat, select, take
from cfljax.base.types import (
    NO_CLUSTER,
    Algorithm,
    ClientData,
    Stacked,
    StepSize,
    Task,
    Threat,
)
from cfljax.clustering.linkage import cut_distances
from cfljax.federated.answers import predict_own_cluster
from cfljax.federated.average import centres_of, membership
from cfljax.federated.backend import everywhere
from cfljax.federated.evaluate import choose_cluster, loss_matrix
from cfljax.federated.local_update import LocalUpdate
from cfljax.federated.rounds import assigned_round, global_start
from cfljax.federated.traffic import single, traffic
from cfljax.federated.training import (
    LocalState,
    Weights,
    averaging,
    message_bytes,
)

Variant = Literal["feddrift", "eager"]
FirstClusters = Literal["one", "own"]


class Models(NamedTuple):
    """What the server knows of each model that there is room for.

    used: which there are; the others may be given to anybody.
    last: the latest time step that a client had it in, -1 if none.
    weight: clients that had it, counted in each time step, since it began.
    """

    used: Bool[Array, " clusters"]
    last: Int[Array, " clusters"]
    weight: Float[Array, " clusters"]


class State(NamedTuple):
    """All that the next round needs.

    models: leaves `[clusters, ...]`.
    clusters: of each client in this time step; `NO_CLUSTER` for one without a finite
      loss.
    known: what is known of the models.
    remembered: least loss of each client at the start of the latest time step, in units
      of the loss; infinite before the first.
    round: rounds that are over.
    local_state: of local updates; None if they need none.
    """

    models: Stacked
    clusters: Int[Array, " clients"]
    known: Models
    remembered: Float[Array, " clients"]
    round: Int[Array, ""]
    local_state: LocalState | None = None

    __repr__ = summary


class Info(NamedTuple):
    """What one round did; nothing here is carried over.

    assignment: the client's cluster, `NO_CLUSTER` if it was not asked, has none or its
      loss is not finite.
    losses: under the model received, before training; NaN for a client that was not
      asked or has no cluster.
    drifted: whose drift was detected in this round, whether or not there was room for
      another model.
    number: models in use.
    received: bytes from the server to each client: its model; at the start of a time
      step besides, to everybody, all that are in use.
    sent: bytes from each client to the server: its model; at the start of a time step
      besides, from everybody, a loss under each of them.
    """

    assignment: Int[Array, " clients"]
    losses: Float[Array, " clients"]
    drifted: Bool[Array, " clients"]
    number: Int[Array, ""]
    received: Int[Array, " clients"]
    sent: Int[Array, " clients"]


@constructor
def feddrift(
    task: Task,
    *,
    num_clusters: int,
    step_size: StepSize,
    threshold: ScalarLike,
    step_rounds: int,
    merge_threshold: ScalarLike | None = None,
    variant: Variant = "feddrift",
    first_clusters: FirstClusters = "one",
    num_steps: int = 1,
    weights: Weights = "samples",
    participation: float = 1.0,
    update: LocalUpdate | None = None,
    threat: Threat | None = None,
) -> Algorithm:
    """Clusters that follow data which change at the start of time steps.

    A client drifts where its least loss under the models in use exceeds that of the
    time step before by more than `threshold`. It is given a copy of the model that it
    loses least with, in a place that nobody uses, those first that were longest without
    clients; if there is none it keeps that model. In the next time step this is a model
    like all others. With L_ij the mean loss of model i on the samples of cluster j, of
    models that have clients and did not begin in this time step, the distance

        D_ij = max(L_ij - L_ii, L_ji - L_jj, 0)

    is what clusters are merged by, complete linkage, up to `merge_threshold`. A merged
    cluster has the first one's place, and the mean of the models, each weighted by how
    many clients had it in all time steps.

    Args:
      task: the learning problem.
      num_clusters: models that there is room for, at least 1, one for each isolated
        client among them. With 1, or an infinite threshold, this is FedAvg.
      step_size: of local training; may be traced.
      threshold: delta, in units of the loss, not negative; may be traced.
      step_rounds: rounds of a time step, at least 1; give the engine data of each round
        (`data.over_rounds`) whose changes begin with time steps.
      merge_threshold: `threshold` if None; may be traced.
      variant: "feddrift"; or "eager", where all clients that drift at once share one
        new model and nothing is merged.
      first_clusters: "one" model for everybody in the first time step; or an "own" one
        for each client, which needs as much room.
      num_steps: local steps in each round.
      weights: of the clients in an average.
      participation: fraction of the clients drawn each round for training; all are
        asked for losses at the start of a time step.
      update: how clients train.
      threat: what Byzantine clients do in training; their losses are honest.

    Raises:
      ValueError: where an argument is out of its range; in `init`, where there is no
        room for every client's own model.

    A newcomer takes the model in use that it loses least with.

    Cost of a round: a forward pass and the local steps of each participant; at the
    start of a time step a forward pass of every client for each model, and a time cubic
    in the models.
    """
    check_member(Variant, variant=variant)
    check_member(FirstClusters, first_clusters=first_clusters)
    height = threshold if merge_threshold is None else merge_threshold
    training = averaging(step_size, num_steps, weights, participation, update, threat)

    def losses_of(state: State, data: ClientData) -> Float[Array, "clients clusters"]:
        """Losses under the models in use, infinite under others."""
        chunk = training.update.clients_per_chunk
        losses = loss_matrix(task, state.models, data, clients_per_chunk=chunk)
        return jnp.where(state.known.used[None, :], losses, jnp.inf)

    def init(key: PRNGKeyArray, data: ClientData) -> State:
        num_clients = data.mask.shape[0]
        if first_clusters == "own" and num_clients > num_clusters:
            raise ValueError(
                f"`num_clusters` must be at least {num_clients}, the number of clients,"
                f" with `first_clusters='own'`, got {num_clusters}."
            )
        model, local_state = global_start(key, task, training, num_clients)
        models = repeat(model, num_clusters)
        clusters = jnp.zeros(num_clients, jnp.result_type(int))
        if first_clusters == "own":
            clusters = jnp.arange(num_clients)
        known = Models(
            used=jnp.any(membership(clusters, num_clusters), axis=0),
            last=jnp.full(num_clusters, -1, jnp.int32),
            weight=jnp.zeros(num_clusters, jnp.result_type(float)),
        )
        never = jnp.full(num_clients, jnp.inf, jnp.result_type(float))
        return State(
            models, clusters, known, never, jnp.zeros((), jnp.int32), local_state
        )

    def begin(state: State, data: ClientData) -> tuple[State, Bool[Array, " clients"]]:
        """Steps 1 to 3, and who drifted."""
        losses = losses_of(state, data)
        chosen = choose_cluster(losses)
        best = jnp.where((state.round == 0) & (chosen >= 0), state.clusters, chosen)
        least = jnp.min(jnp.where(jnp.isfinite(losses), losses, jnp.inf), axis=1)
        drifted = (best >= 0) & (least > state.remembered + threshold)
        now = state.round // step_rounds
        moved, is_new = _isolated(state, best, drifted, now, variant == "eager")
        is_new = is_new | (state.round == 0)
        remembered = jnp.where(best >= 0, least, state.remembered)
        moved = moved._replace(remembered=remembered)
        if variant == "eager" or num_clusters == 1:
            return moved, drifted
        sizes = jnp.sum(data.mask, axis=1, dtype=losses.dtype)
        return _merged(moved, losses, sizes, is_new, height), drifted

    def step(key: PRNGKeyArray, state: State, data: ClientData) -> tuple[State, Info]:
        starts = state.round % step_rounds == 0
        nobody = jnp.zeros(data.mask.shape[0], bool)
        asked = jnp.sum(state.known.used, dtype=jnp.int32)
        moved, drifted = jax.lax.cond(
            starts, begin, lambda state, _: (state, nobody), state, data
        )
        after, losses = assigned_round(key, task, moved, data, training)  # step 4
        served = after.present & (moved.clusters >= 0)
        one = message_bytes(training, state.models).one_model
        received, sent = traffic(single(one), served, after.assignment)
        asked = jnp.where(starts, asked, 0)
        scalar = losses.dtype.itemsize
        info = Info(
            assignment=after.assignment,
            losses=losses,
            drifted=drifted,
            number=jnp.sum(moved.known.used, dtype=jnp.int32),
            received=received + asked * one,
            sent=sent + asked * scalar,
        )
        state = moved._replace(models=after.models, local_state=after.local_state)
        return state._replace(round=state.round + 1), info

    def join(key: PRNGKeyArray, state: State, data: ClientData) -> State:
        del key
        losses = losses_of(state, data)
        best = choose_cluster(losses)
        return state._replace(clusters=best, remembered=jnp.min(losses, axis=1))

    return Algorithm(init, step, predict_own_cluster(task), join)


def _isolated(
    state: State,
    best: Int[Array, " clients"],
    drifted: Bool[Array, " clients"],
    now: Int[Array, ""],
    together: bool,
) -> tuple[State, Bool[Array, " clusters"]]:
    """The state of a time step whose clients are in their best clusters, but for those
    that drifted, and which models are new; `together` gives these a single one."""
    number = state.known.used.shape[0]
    free = ~jnp.any(membership(best, number), axis=0)
    age = jnp.where(free, jnp.where(state.known.used, state.known.last, -1), now + 1)
    places = jnp.argsort(age, stable=True)
    rank = jnp.cumsum(drifted) - 1
    rank = jnp.where(together, 0, rank)
    gets = drifted & (rank < jnp.sum(free))
    own = places[jnp.clip(rank, 0, number - 1)]
    clusters = jnp.where(gets, own, best)
    owners = membership(jnp.where(gets, own, NO_CLUSTER), number)
    is_new = jnp.any(owners, axis=0)
    origin = jnp.maximum(best, 0)[jnp.argmax(owners, axis=0)]
    members = membership(clusters, number)
    weight = jnp.where(is_new, 0, state.known.weight)
    weight = weight + jnp.sum(members, axis=0, dtype=weight.dtype)
    known = Models(
        used=state.known.used | is_new,
        last=jnp.where(jnp.any(members, axis=0), now, state.known.last),
        weight=weight,
    )
    models = select(is_new, take(state.models, origin), state.models)
    return state._replace(models=models, clusters=clusters, known=known), is_new


def _merged(
    state: State,
    losses: Float[Array, "clients clusters"],
    sizes: Float[Array, " clients"],
    is_new: Bool[Array, " clusters"],
    height: ScalarLike,
) -> State:
    """The state after the merges of clusters that are not new."""
    distances, there = cluster_distances(losses, sizes, state.clusters)
    there = there & state.known.used & ~is_new
    cut = cut_distances(
        distances,
        jnp.asarray(height, distances.dtype),
        linkage="complete",
        present=there,
    )
    number = there.shape[0]
    each = jnp.arange(number)
    same = (cut[:, None] == cut[None, :]) & there[:, None] & there[None, :]
    leader = jnp.where(there, jnp.argmax(same, axis=1), each)
    gone = leader != each
    grown = (jnp.sum(same, axis=1) > 1) & ~gone
    weight = state.known.weight
    means = centres_of(state.models, weight, leader, empty=state.models)
    total = jax.ops.segment_sum(weight, leader, number)
    own = leader[jnp.maximum(state.clusters, 0)]
    return state._replace(
        models=select(grown, means, state.models),
        clusters=jnp.where(state.clusters >= 0, own, state.clusters),
        known=Models(
            used=state.known.used & ~gone,
            last=jnp.where(gone, -1, state.known.last),
            weight=jnp.where(gone, 0, total),
        ),
    )


@everywhere
def cluster_distances(
    losses: Float[Array, "clients models"],
    sizes: Float[Array, " clients"],
    clusters: Int[Array, " clients"],
) -> tuple[Float[Array, "models models"], Bool[Array, " models"]]:
    """D of all pairs of models, and which have clients, without which D is without
    meaning: `max(L_ij - L_ii, L_ji - L_jj, 0)`, L_ij the mean loss of model i over the
    samples of the clients in cluster j."""
    number = losses.shape[1]
    members = membership(clusters, number) & (sizes > 0)[:, None]
    share = jnp.where(members, sizes[:, None], 0)
    total = jnp.sum(share, axis=0)
    # A loss that is not finite is not to meet a weight of 0.
    each = jnp.where(members[:, None, :], share[:, None, :] * losses[:, :, None], 0)
    means = jnp.sum(each, axis=0) / jnp.where(total > 0, total, 1)[None, :]
    own = jnp.diagonal(means)
    worse = means - own[:, None]
    return jnp.maximum(jnp.maximum(worse, worse.T), 0), total > 0
