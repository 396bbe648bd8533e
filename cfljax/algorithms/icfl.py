"""ICFL: clients leave a pool for clusters, which are cut in two as rounds go by.

Yan, Tong, Wang. "Clustered Federated Learning in Heterogeneous Environment". IEEE
TNNLS, 2023, doi 10.1109/TNNLS.2023.3264740. Of it only the abstract could be read, and
its authors' code is not public. The steps below are those of a baseline of FedRC's
released code, class `ICFLAggregator` of `aggregator.py`, mended where it has defects:
(1) clients of the pool that take part join the cluster that moved as they did; (2)
where the last updates of a cluster's members are connected too loosely it is cut in
two; (3) clusters average, and the global model is the mean of theirs. The card says
what was mended, and what is this library's own.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, ScalarLike

from cfljax.base.checks import check_threat
from cfljax.base.constructor import constructor
from cfljax.base.decompositions import eigenvectors
from cfljax.base.describe import summary
from cfljax.base.streams import Stream
from cfljax.base.tree import (
    finite_rows,
    length,
    nonzero_rows,
    put,
    repeat,
    select,
    take,
    trained_part,
)
from cfljax.base.types import (
    NO_CLUSTER,
    Algorithm,
    ClientData,
    Stacked,
    StepSize,
    Task,
    Threat,
)
from cfljax.clustering.distances import cosines
from cfljax.clustering.kmeans import k_means
from cfljax.federated.answers import predict_own_cluster
from cfljax.federated.average import means_of_members, membership
from cfljax.federated.backend import everywhere
from cfljax.federated.evaluate import choose_cluster, client_losses, loss_matrix
from cfljax.federated.local_update import LocalUpdate
from cfljax.federated.rounds import global_start
from cfljax.federated.traffic import single, traffic
from cfljax.federated.training import (
    LocalState,
    Weights,
    averaging,
    cohort,
    message_bytes,
    moments_of,
    next_local_state,
    shares,
    spread,
    train_alone,
)

RATE = (1 - math.log(4)) ** 2 / -math.log(1 - 0.85)  # epsilon_1 = 4, alpha_0 = .85


class State(NamedTuple):
    """All that the next round needs.

    models: leaves `[models, ...]`: the global one, then those of clusters 1, 2, ...;
      rows of clusters that there are not yet are without meaning.
    clusters: of each client, 0 for one in the pool, which has the global model.
    updates: each client's last one that counted, trained minus received, leaves
      `[clients, ...]` of what is trained; 0 before. Whoever is in a cluster has one.
    round: rounds that are over.
    local_state: of local updates; None if they need none.
    """

    models: Stacked
    clusters: Int[Array, " clients"]
    updates: Stacked
    round: Int[Array, ""]
    local_state: LocalState | None = None

    __repr__ = summary


class Info(NamedTuple):
    """What one round did; nothing here is carried over.

    assignment: the client's cluster after the round, 0 for one in the pool;
      `NO_CLUSTER` for a client that was not asked or whose model does not count.
    losses: under the model received, before training; NaN for a client that was not
      asked.
    number: clusters after the round, the pool not counted.
    connectivity: of each cluster before it may be cut, in (0, 1]; first that of the
      pool's participants while there are no clusters. NaN for one without members.
    received: bytes from the server to each client: one model.
    sent: bytes from each client to the server: one model.
    """

    assignment: Int[Array, " clients"]
    losses: Float[Array, " clients"]
    number: Int[Array, ""]
    connectivity: Float[Array, " models"]
    received: Int[Array, " clients"]
    sent: Int[Array, " clients"]


@constructor
def icfl(
    task: Task,
    *,
    step_size: StepSize,
    max_clusters: int,
    rate: ScalarLike = RATE,
    limit: ScalarLike = 1.0,
    num_steps: int = 1,
    weights: Weights = "samples",
    participation: float = 1.0,
    update: LocalUpdate | None = None,
    threat: Threat | None = None,
) -> Algorithm:
    """Clusters of unknown number, found bit by bit, of a sample of clients.

    All clients begin in a pool, which trains the global model by averaging. With A the
    cosines of updates, trained minus received models, a set of n clients has the
    connectivity `lambda_1(A) / n`, lambda_1 being the largest eigenvalue: at least the
    mean of A's entries, the average connectivity, and equal to it where all rows of A
    have one mean and no cosine is negative. In round t, 0 in the first, each cluster
    whose connectivity is
    below

        alpha_t = limit (1 - exp(-rate t))

    is cut in two while there is room, lower numbers first: by k-means with 2 means, of
    the clients' entries in the two leading eigenvectors. The part with its first client
    keeps the number. While there are no clusters, the pool's participants may so become
    clusters 1 and 2. Once there are some, a participant of the pool joins the cluster
    whose displacement from the global model has the largest cosine with its update,
    before anything is cut. Nobody ever returns to the pool, and nothing is merged.

    Args:
      task: the learning problem.
      step_size: may be traced.
      max_clusters: no more than that are made; with 1 this is FedAvg.
      rate: how fast alpha grows, for each round, in [0, 1]; may be traced. The default
        is .0787, what the code's epsilon_1 = 4 and alpha_0 = .85 come to. With 0 this
        is FedAvg.
      limit: of alpha, in [0, 1]; may be traced. With 1, as in the code, every cluster
        falls apart in the end. A set of n is never below 1 / n.
      num_steps: local steps in each round.
      weights: of the clients in a mean; "samples" as in the code.
      participation: fraction of the clients drawn each round, one draw of all; the code
        draws within the pool and each cluster apart.
      update: how clients train. Statistics are averaged, but do not count in cosines.
      threat: Byzantine clients lie about their trained models, and so in cosines; their
        losses are honest.

    Raises:
      ValueError: where an argument is out of its range.

    A participant whose loss or model is not finite is left out, and keeps its update
    before, as the absent do. One of the pool whose update is 0 stays there, and counts
    in the mean while there are no clusters: every member of a cluster has an update.
    A cluster's model is the mean
    of its participants' models; without any it keeps its own, a new part that of the
    set it was cut from. The global model is the mean of all clusters' models, once
    there are some, each weighted by all of its members, whether or not they took part.
    A newcomer takes the model that it loses least with among those of the clusters and
    the global one.

    Cost of a round: a forward pass and the local steps of each participant, the
    products of all pairs of clients' updates, and for each cluster a time cubic in the
    clients. Memory: an update of every client, a model and an update of every
    participant.
    """
    training = averaging(step_size, num_steps, weights, participation, update, threat)

    def init(key: PRNGKeyArray, data: ClientData) -> State:
        num_clients = data.mask.shape[0]
        model, local_state = global_start(key, task, training, num_clients)
        nothing = jax.tree.map(jnp.zeros_like, trained_part(model))
        return State(
            models=repeat(model, 1 + max_clusters),
            clusters=jnp.zeros(num_clients, jnp.result_type(int)),
            updates=repeat(nothing, num_clients),
            round=jnp.zeros((), jnp.int32),
            local_state=local_state,
        )

    def step(key: PRNGKeyArray, state: State, data: ClientData) -> tuple[State, Info]:
        num_clients, before = data.mask.shape[0], state.local_state
        check_threat(threat, num_clients, length(state.models))
        clients, present = cohort(key, data, participation)
        own = state.clusters[clients]
        received = take(state.models, own)
        starts = received if threat is None else threat.evaluate(received, clients)
        losses = client_losses(task, starts, present, **training.update.placement)
        trained, moments = train_alone(
            key, task, starts, present, training, before, clients
        )
        if threat is not None:
            trained = threat.send(
                jax.random.fold_in(key, Stream.ATTACKERS),
                trained,
                clients,
                state.models,
                clusters=own,
                round=state.round,
            )
        moved = jax.tree.map(jnp.subtract, *map(trained_part, (trained, received)))
        usable = jnp.any(present.mask, axis=1) & jnp.isfinite(losses)
        usable = usable & finite_rows(trained)
        tells = usable & nonzero_rows(moved)
        updates = select(tells, moved, take(state.updates, clients))
        updates = put(state.updates, clients, updates)
        # Steps 1 and 2.
        nearest = _nearest_clusters(moved, state)
        joined = jnp.where(tells & (own == 0), nearest, own)
        joined = state.clusters.at[clients].set(joined)
        # Of the pool its participants, who have left it once there are clusters.
        is_here = (joined > 0).at[clients].max(tells)
        members = membership(joined, 1 + max_clusters).T & is_here[None, :]
        connectivity, leaving = everywhere(_bisected)(
            jax.random.fold_in(key, Stream.ALGORITHM),
            everywhere(cosines)(updates, updates),
            members,
            least_connectivity(state.round),
        )
        clusters, origins = _numbered(joined, members, leaving)
        # Step 3. While there are no clusters all participants are in the pool.
        weight = jnp.where(usable, shares(training, present), 0)
        models = means_of_members(
            membership(clusters[clients], 1 + max_clusters).T,
            weight,
            trained,
            empty=take(state.models, origins),
        )
        share = shares(training, data)[:, None]
        sizes = jnp.where(membership(clusters, 1 + max_clusters), share, 0)
        sizes = jnp.sum(sizes, axis=0).at[0].set(0)
        everything = jnp.ones((1, 1 + max_clusters), bool)
        first = jax.tree.map(lambda leaf: leaf[:1], models)
        whole = means_of_members(everything, sizes, models, empty=first)
        if before is not None and jax.tree.leaves(moments):
            moments = select(usable, moments, moments_of(before, clients))
        after = State(
            models=put(models, jnp.zeros(1, jnp.int32), whole),
            clusters=clusters,
            updates=updates,
            round=state.round + 1,
            local_state=next_local_state(before, clients, moments),
        )
        everybody = lambda some, rest: spread(some, clients, num_clients, absent=rest)
        chosen = everybody(jnp.where(usable, clusters[clients], NO_CLUSTER), NO_CLUSTER)
        took_part = jnp.zeros(num_clients, bool).at[clients].set(True)
        one = message_bytes(training, state.models).one_model
        received_bytes, sent_bytes = traffic(single(one), took_part, chosen)
        info = Info(
            assignment=chosen,
            losses=everybody(losses, jnp.nan),
            number=jnp.max(clusters),
            connectivity=connectivity,
            received=received_bytes,
            sent=sent_bytes,
        )
        return after, info

    def least_connectivity(now: Int[Array, ""]) -> Float[Array, ""]:
        """alpha of a round."""
        own = jnp.result_type(float)
        grown = -jnp.expm1(-jnp.asarray(rate, own) * now.astype(own))
        return jnp.asarray(limit, own) * grown

    def join(key: PRNGKeyArray, state: State, data: ClientData) -> State:
        del key
        losses = loss_matrix(
            task,
            state.models,
            data,
            clients_per_chunk=training.update.clients_per_chunk,
        )
        is_there = jnp.arange(1 + max_clusters) <= jnp.max(state.clusters)
        best = choose_cluster(jnp.where(is_there[None, :], losses, jnp.inf))
        return state._replace(clusters=best)

    return Algorithm(init, step, predict_own_cluster(task), join)


# Step 1: who joins a cluster.


def _nearest_clusters(updates: Stacked, state: State) -> Int[Array, " participants"]:
    """The cluster whose displacement from the global model is most like each update; 0
    while there are none. A cosine that is not a number never wins."""
    trained = trained_part(state.models)
    moved = jax.tree.map(lambda leaf: leaf - leaf[:1], trained)
    towards = everywhere(cosines)(updates, moved)
    number = jnp.arange(towards.shape[1])
    can = (number > 0) & (number <= jnp.max(state.clusters))
    towards = jnp.where(can[None, :] & ~jnp.isnan(towards), towards, -jnp.inf)
    return jnp.argmax(towards, axis=1)


# Step 2: clusters cut in two.


def _bisected(
    key: PRNGKeyArray,
    similarities: Float[Array, "clients clients"],
    members: Bool[Array, "sets clients"],
    least: Float[Array, ""],
) -> tuple[Float[Array, " sets"], Bool[Array, "sets clients"]]:
    """Connectivity of each set, NaN without members, and who leaves it: the part
    without its first member, of a set that is cut as its connectivity is below
    `least`."""
    nobody = jnp.zeros(similarities.shape[0], bool)

    def of_set(
        given: tuple[PRNGKeyArray, Array],
    ) -> tuple[Float[Array, ""], Bool[Array, " clients"]]:
        key, row = given
        number = jnp.sum(row, dtype=similarities.dtype)

        def examine() -> tuple[Array, Array]:
            inside = jnp.where(row[:, None] & row[None, :], similarities, 0)
            values, vectors = eigenvectors(inside)
            connectivity = values[-1] / number

            def cut() -> Array:
                # Distances of rows do not hang on the signs of eigenvectors.
                points = jnp.where(row[:, None], vectors[:, -2:], jnp.nan)
                parts = k_means(key, points, 2).assignment
                return row & (parts != parts[jnp.argmax(row)])

            loose = connectivity < least
            return connectivity, jax.lax.cond(loose, cut, lambda: nobody)

        unknown = jnp.full((), jnp.nan, similarities.dtype), nobody
        return jax.lax.cond(number > 0, examine, lambda: unknown)

    return jax.lax.map(of_set, (jax.random.split(key, members.shape[0]), members))


def _numbered(
    clusters: Int[Array, " clients"],
    members: Bool[Array, "models clients"],
    leaving: Bool[Array, "models clients"],
) -> tuple[Int[Array, " clients"], Int[Array, " models"]]:
    """Clusters after the cuts that there is room for, lower numbers first, and the
    model that each goes on with: that of its origin.

    While there are no clusters, the set that may be cut is row 0: both parts get a
    number. Later that row is empty."""
    each = jnp.arange(members.shape[0])
    number = jnp.max(clusters)
    from_pool = number == 0
    cut = jnp.any(leaving, axis=1)
    new = jnp.where(from_pool, 1, number) + jnp.cumsum(cut, dtype=clusters.dtype)
    cut = cut & (new < members.shape[0])
    new = jnp.where(cut, new, members.shape[0])
    leaves = jnp.any(leaving & cut[:, None], axis=0)
    after = jnp.where(leaves, new[clusters], clusters)
    after = jnp.where(from_pool & cut[0] & members[0] & ~leaves, 1, after)
    origins = each.at[new].set(each, mode="drop")
    return after, jnp.where(from_pool, 0, origins)
