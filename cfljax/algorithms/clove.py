"""CLoVE: clients are clustered by their loss vectors, clusters matched to models.

"CLoVE: Personalized Federated Learning through Clustering of Loss Vector Embeddings".
Algorithm 1: option I (model averaging) and option II (gradient averaging); Algorithm 2:
the number of clusters. Line numbers below are those of Algorithm 1.
"""

import dataclasses
import functools
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from cfljax.base.checks import at_most_clients, check_member, check_positive
from cfljax.base.constructor import constructor
from cfljax.base.describe import summary
from cfljax.base.streams import Stream
from cfljax.base.tree import take
from cfljax.base.types import (
    NO_CLUSTER,
    Algorithm,
    ClientData,
    Stacked,
    StepSize,
    Task,
    Threat,
)
from cfljax.clustering.distances import match_clusters, squared_euclidean
from cfljax.clustering.kmeans import k_means, spectral_k_means
from cfljax.clustering.linkage import agglomerate, select_clusters
from cfljax.federated.answers import check_clients
from cfljax.federated.average import membership
from cfljax.federated.backend import everywhere
from cfljax.federated.evaluate import choose_cluster, loss_matrix, predict_own
from cfljax.federated.local_update import LocalUpdate
from cfljax.federated.rounds import train_round
from cfljax.federated.traffic import identity_bytes, num_bytes, traffic
from cfljax.federated.training import (
    FirstRound,
    LocalState,
    Option,
    Start,
    Training,
    Weights,
    first_local_state,
    message_bytes,
    start_models,
)


class Stability(NamedTuple):
    """What clients and server know of the clustering's past.

    Not IFCA's `History`: here every participant must have kept its model in its own
    latest rounds, there nobody may have changed in the latest rounds of all.

    identities: latest model of each client, `NO_CLUSTER` before its first.
    streak: how many of a client's latest rounds in a row had that model.
    stable: whether the clustering has come to rest.
    """

    identities: Int[Array, " clients"]
    streak: Int[Array, " clients"]
    stable: Bool[Array, ""]


class Anchor(NamedTuple):
    """Models and centroids, saved together (CLoVE, Algorithm 1, line 15).

    models: leaves `[clusters, ...]`, those that the latest clustering was made with.
    centroids: mean embedding, under these models, of the clients of each model; of an
      earlier clustering for a model that nobody was matched to in the latest; NaN
      for one that nobody ever was.
    """

    models: Stacked
    centroids: Float[Array, "clusters clusters"]


class State(NamedTuple):
    """All that the next round needs.

    models: leaves `[clusters, ...]`.
    round: rounds that are over.
    stability: identities, and whether clustering is over.
    anchor: of the latest clustering.
    local_state: of local updates; None if they need none.
    """

    models: Stacked
    round: Int[Array, ""]
    stability: Stability
    anchor: Anchor
    local_state: LocalState | None = None

    __repr__ = summary


class Info(NamedTuple):
    """What one round did; nothing here is carried over.

    assignment: model each client trained this round, `NO_CLUSTER` for a client that
      was not asked or has a loss that is not finite.
    losses: loss vectors under the models received, before training; NaN for a client
      that was not asked for one, or was asked about saved models, as a newcomer.
    stable: whether clustering was over before the round.
    received: bytes from the server to each client.
    sent: bytes from each client to the server.
    """

    assignment: Int[Array, " clients"]
    losses: Float[Array, "clients clusters"]
    stable: Bool[Array, ""]
    received: Int[Array, " clients"]
    sent: Int[Array, " clients"]


Embedding = Literal["loss", "square_root", "log"]
Clustering = Literal["k_means", "kumar_kannan", "agglomerative"]


@constructor
def clove(
    task: Task,
    *,
    num_clusters: int,
    step_size: StepSize,
    option: Option = "model",
    num_steps: int = 1,
    weights: Weights = "samples",
    participation: float = 1.0,
    update: LocalUpdate | None = None,
    embedding: Embedding = "loss",
    clustering: Clustering = "k_means",
    matching: bool = True,
    select_number: bool = False,
    num_restarts: int = 10,
    first_round: FirstRound = "evaluation",
    start: Start = "independent",
    stable_rounds: int | None = None,
    threat: Threat | None = None,
) -> Algorithm:
    """Clustering of Loss Vector Embeddings.

    A model that no cluster was matched to keeps its parameters. Fewer participants
    than models leave models unmatched; no participant is left without one. Clusters are
    matched to models by their losses, whatever is embedded, as Algorithm 1 has it; the
    released code takes the square roots of losses there too.

    Args:
      task: the learning problem.
      num_clusters: number of models, at least 1: K, at most the number of clients, or
        its upper bound where `select_number` is true. With 1 this is FedAvg.
      step_size: gamma; may be traced.
      option: "model" (I) or "gradient" (II).
      num_steps: local steps of option I.
      weights: of the clients in an average, "samples" as in the paper or "clients".
      participation: fraction rho of the clients drawn each round.
      update: how clients train in option I.
      embedding: what is clustered, see `Grouping`: "loss" as in the paper's
        experiments, "square_root" as in its theory, or "log".
      clustering: "k_means", "kumar_kannan" or "agglomerative", see there.
      matching: false for the ablation without min-cost matching.
      select_number: whether Algorithm 2 chooses how many clusters there are, in every
        round; needs "agglomerative". It never finds fewer than 2; here there is 1
        where no number has a silhouette above 0 (`clustering.linkage`).
      num_restarts: of k-means.
      first_round: "evaluation" clusters loss vectors from the first round on; "random"
        draws a model for every participant of the first round instead.
      start: "independent" random models, or "identical" ones. Identical models give
        loss vectors of equal entries: the first clusters are those of easy and hard
        data and their matching is arbitrary.
      stable_rounds: once the participants of a round have had the same models in so
        many of their rounds, clustering is over: everyone keeps its model and is
        sent no other, newcomers get the one of the nearest centroid (lines 13-16).
        The paper takes 3; never if None.
      threat: what Byzantine clients do to what is averaged; loss vectors are honest.

    Raises:
      ValueError: where an argument is out of its range; in `init`, where there are
        fewer clients than clusters.

    The index of the model that the server chose for a client, a byte, is not counted
    in `Info.received`.

    Cost of a round: that of `federated.rounds.train_round` and `group_clients`. The
    state holds every model twice.
    """
    check_member(FirstRound, first_round=first_round)
    check_member(Start, start=start)
    is_first_random = first_round == "random"
    training = Training(
        step_size=step_size,
        option=option,
        num_steps=num_steps,
        normalise="cluster",  # line 23
        weights=weights,
        participation=participation,
        update=update or LocalUpdate(),
        threat=threat,
    )
    grouping = Grouping(
        embedding=embedding,
        clustering=clustering,
        matching=matching,
        select_number=select_number,
        num_restarts=num_restarts,
    )

    group = everywhere(functools.partial(group_clients, grouping=grouping))

    def init(key: PRNGKeyArray, data: ClientData) -> State:
        models = start_models(task, key, num_clusters, start)  # line 1
        nowhere = jnp.full((num_clusters,) * 2, jnp.nan, jnp.result_type(float))
        return State(
            models=models,
            round=jnp.zeros((), jnp.int32),
            stability=first_stability(data.mask.shape[0]),
            anchor=Anchor(models, nowhere),
            local_state=first_local_state(training, models, data.mask.shape[0]),
        )

    def step(key: PRNGKeyArray, state: State, data: ClientData) -> tuple[State, Info]:
        stability = state.stability
        unasked = stability.stable
        if is_first_random:
            unasked = unasked | (state.round == 0)

        def choose(
            losses: Float[Array, "participants clusters"],
            clients: Int[Array, " participants"],
        ) -> Int[Array, " participants"]:
            """Models of the participants (lines 4-16)."""
            own = jax.random.fold_in(key, Stream.ALGORITHM)
            chosen = group(own, losses)
            if is_first_random:
                drawn = jax.random.randint(own, chosen.shape, 0, losses.shape[1])
                chosen = jnp.where(state.round == 0, drawn, chosen)
            if stable_rounds is None:
                return chosen
            known = stability.identities[clients]
            find = lambda: newcomers(state, take(data, clients))
            nobody = lambda: jnp.full_like(clients, NO_CLUSTER)
            found = jax.lax.cond(stability.stable & jnp.any(known < 0), find, nobody)
            kept = jnp.where(known >= 0, known, found)
            return jnp.where(stability.stable, kept, chosen)

        may_skip = is_first_random or stable_rounds is not None
        known = (lambda _: unasked) if may_skip else None
        after = train_round(key, task, state, data, training, choose, all_known=known)
        points = embed(after.losses, embedding)
        centroids = centroids_of(points, after.assignment, empty=state.anchor.centroids)
        kept = lambda old, new: jnp.where(unasked, old, new)  # Nothing was clustered.
        new = State(
            models=after.models,
            round=state.round + 1,
            stability=observe_round(stability, after.assignment, stable_rounds),
            anchor=jax.tree.map(kept, state.anchor, Anchor(state.models, centroids)),
            local_state=after.local_state,
        )
        # A client that is asked sends a loss vector, not an index.
        plain = message_bytes(training, state.models)
        answer = plain.answer - identity_bytes(num_clusters)
        shape = jax.ShapeDtypeStruct((num_clusters,), after.losses.dtype)
        newcomer = (stability.identities < 0) & stability.stable
        alone = unasked & ~newcomer
        sizes = plain._replace(answer=answer + num_bytes(shape))
        each = jnp.broadcast_to(alone, after.present.shape)
        received, sent = traffic(sizes, after.present, after.assignment, each)
        sent = jnp.where((sent > 0) & alone, answer, sent).astype(sent.dtype)
        # A newcomer was asked about the saved models; it trains the present one.
        current = jnp.where(newcomer & after.present, plain.one_model, 0)
        info = Info(
            assignment=after.assignment,
            losses=jnp.where(unasked, jnp.nan, after.losses),
            stable=stability.stable,
            received=received + current.astype(received.dtype),
            sent=sent,
        )
        return new, info

    def newcomers(state: State, data: ClientData) -> Int[Array, " clients"]:
        """The model of nearest centroid, for clients that were never clustered (line
        15); that of least loss before the first clustering."""
        chunk = training.update.clients_per_chunk
        losses = loss_matrix(task, state.anchor.models, data, clients_per_chunk=chunk)
        nearest = nearest_centroid(embed(losses, embedding), state.anchor.centroids)
        return jnp.where(nearest >= 0, nearest, choose_cluster(losses))

    def predict(state: State, data: ClientData, inputs: Array) -> Array:
        known = state.stability.identities
        check_clients(len(known), data, inputs)
        choice = jnp.where(known >= 0, known, newcomers(state, data))
        return predict_own(task, state.models, choice, inputs)

    def join(_: PRNGKeyArray, state: State, data: ClientData) -> State:
        return state._replace(stability=first_stability(data.mask.shape[0]))  # line 15

    # Of an upper bound Algorithm 2 takes what there is.
    check = at_most_clients(None if select_number else num_clusters)
    return Algorithm(init, step, predict, join, check=check)


@dataclasses.dataclass(frozen=True)
class Grouping:
    """How loss vectors become clusters, and clusters choose models.

    embedding: what is clustered: "loss" vectors as in the experiments, "square_root"
      of them as in the theory of CLoVE's section 4, or their "log".
    clustering: "k_means" with k-means++ starts; "kumar_kannan", `spectral_k_means`,
      the start for which the theory is stated; or "agglomerative" (Ward).
    matching: whether clusters are matched to models at least total loss; otherwise
      the cluster of the first client takes the first model, that of the first client
      of another cluster the second, and so on, as in CLoVE's ablation (appendix D.5).
    select_number: whether the number of clusters is the one of largest silhouette,
      from 2 to the number of models (Algorithm 2).
    num_restarts: of k-means.
    num_iterations: of Lloyd, at most.

    Raises:
      ValueError: where an argument is out of its range.
    """

    embedding: str = "loss"
    clustering: str = "k_means"
    matching: bool = True
    select_number: bool = False
    num_restarts: int = 10
    num_iterations: int = 50

    def __post_init__(self) -> None:
        check_member(Embedding, embedding=self.embedding)
        check_member(Clustering, clustering=self.clustering)
        check_positive(
            num_restarts=self.num_restarts, num_iterations=self.num_iterations
        )
        if self.select_number and self.clustering != "agglomerative":
            raise ValueError(
                "`select_number` compares agglomerative partitions; give "
                f"`clustering='agglomerative'`, got {self.clustering!r}."
            )


_LARGEST = 1e15  # Loss of a model that has not diverged.


def group_clients(
    key: PRNGKeyArray, losses: Float[Array, "clients clusters"], grouping: Grouping
) -> Int[Array, " clients"]:
    """The model of each client (CLoVE, Algorithm 1, lines 10-12).

    `NO_CLUSTER` for a client with a loss that is not finite, unless nobody's is under
    that model. With fewer clients than models some models go without. A cluster left
    with a model that diverged trains those of its clients' least losses instead.
    """
    points, number = embed(losses, grouping.embedding), losses.shape[1]
    settings = {
        "num_restarts": grouping.num_restarts,
        "num_iterations": grouping.num_iterations,
    }
    if grouping.select_number:
        clusters = select_clusters(points, number).assignment  # line 10
    elif grouping.clustering == "agglomerative":
        clusters = agglomerate(points, number)[number - 1]
    elif grouping.clustering == "kumar_kannan":
        clusters = spectral_k_means(key, points, number, **settings).assignment
    else:
        clusters = k_means(key, points, number, **settings).assignment  # line 11
    if grouping.matching:
        models = match_to_models(losses, clusters)  # line 12
    else:
        models = _ranks(clusters, number)
    chosen = models[jnp.maximum(clusters, 0)].astype(clusters.dtype)
    alive = jnp.any(losses <= _LARGEST, axis=0)[chosen]
    chosen = jnp.where(alive, chosen, choose_cluster(losses))
    return jnp.where(clusters >= 0, chosen, NO_CLUSTER)


def embed(
    losses: Float[Array, "clients clusters"], embedding: str
) -> Float[Array, "clients clusters"]:
    """The points that are clustered, rows of the clients.

    NaN for a client with a loss that is not finite, or above 1e15, whose squares single
    precision cannot add up; but a model under which nobody has another tells clients
    apart by nothing and is a column of zeros. Negative losses have no square root or
    logarithm and make the row NaN as well; a loss of exactly 0 counts as the smallest
    number that is not, for the logarithm.
    """
    finite = losses <= _LARGEST  # Not where it is NaN.
    heard = jnp.any(finite, axis=1)  # Clients that sent anything at all.
    dead = ~jnp.any(finite, axis=0)
    if embedding == "square_root":
        losses = jnp.sqrt(losses)
    if embedding == "log":
        losses = jnp.log(jnp.where(losses == 0, jnp.finfo(losses.dtype).tiny, losses))
    points = jnp.where(finite, losses, jnp.nan)
    points = jnp.where(dead[None, :], 0, points)
    return jnp.where(heard[:, None], points, jnp.nan)


def match_to_models(
    losses: Float[Array, "clients clusters"], clusters: Int[Array, " clients"]
) -> Int[Array, " clusters"]:
    """The model of each cluster, one for each, at the least sum of losses (line 12);
    clusters without members take the models that the others leave."""
    number = losses.shape[1]
    members = membership(clusters, number)
    of_members = jnp.where(members[:, :, None], losses[:, None, :], 0)
    return match_clusters(jnp.sum(of_members, axis=0))


def _ranks(clusters: Int[Array, " clients"], number: int) -> Int[Array, " clusters"]:
    """Place of each cluster in the order of their first clients; empty ones last."""
    num_clients = clusters.shape[0]
    members = membership(clusters, number)
    places = jnp.where(members, jnp.arange(num_clients)[:, None], num_clients)
    return jnp.argsort(jnp.argsort(jnp.min(places, axis=0)))


@everywhere
def centroids_of(
    points: Float[Array, "clients clusters"],
    assignment: Int[Array, " clients"],
    *,
    empty: Float[Array, "clusters clusters"],
) -> Float[Array, "clusters clusters"]:
    """Mean embedding of the clients of each model, negative ones left out; a model
    without clients keeps its row of `empty`."""
    number = points.shape[1]
    members = membership(assignment, number)
    kept = jnp.where(members[:, :, None], points[:, None, :], 0)
    sizes = jnp.sum(members, axis=0, dtype=points.dtype)[:, None]
    means = jnp.sum(kept, axis=0) / jnp.maximum(sizes, 1)
    return jnp.where(sizes > 0, means, empty)


def nearest_centroid(
    points: Float[Array, "clients clusters"],
    centroids: Float[Array, "clusters clusters"],
) -> Int[Array, " clients"]:
    """The model whose clients' mean embedding is nearest; `NO_CLUSTER` for a point that
    is not finite, and while there is no centroid. Rows of NaN are no centroids."""
    squares = squared_euclidean(points, centroids)
    known = jnp.isfinite(squares)
    nearest = jnp.argmin(jnp.where(known, squares, jnp.inf), axis=1)
    return jnp.where(jnp.any(known, axis=1), nearest, NO_CLUSTER)


def first_stability(num_clients: int) -> Stability:
    """Nothing is known."""
    return Stability(
        identities=jnp.full(num_clients, NO_CLUSTER, int),
        streak=jnp.zeros(num_clients, int),
        stable=jnp.zeros((), bool),
    )


def observe_round(
    stability: Stability, assignment: Int[Array, " clients"], stable_rounds: int | None
) -> Stability:
    """What is known after a round (CLoVE, section 3), given the model of each client in
    it, negative for absent ones.

    The clustering is stable from the first round on in which every participant has had
    the same model in each of its latest `stable_rounds` rounds, that one included;
    never if None. All of them count: a client that went to another model and came back
    starts anew. Clients that are absent neither confirm nor deny.
    """
    present = assignment >= 0
    again = assignment == stability.identities
    streak = jnp.where(again, stability.streak + 1, 1)
    streak = jnp.where(present, streak, stability.streak)
    stable = stability.stable
    if stable_rounds is not None:
        enough = jnp.all(~present | (streak >= stable_rounds))
        stable = stable | (enough & jnp.any(present))
    identities = jnp.where(present, assignment, stability.identities)
    return Stability(identities, streak, stable)
