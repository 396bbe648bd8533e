"""FeSEM: k-means of local models, interleaved with their training.

Long, Xie, Shen, Zhou, Wang, Jiang. "Multi-center federated learning: clients
clustering for better personalization". World Wide Web 26, 2023. The E-step gives every
client the centre nearest to its local model, the M-step makes each centre the mean of
its clients' models, and clients train from their centres. A baseline of CLoVE.
"""

import functools
from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from cfljax.base.checks import (
    at_most_clients,
    check_member,
    check_threat,
)
from cfljax.base.constructor import constructor
from cfljax.base.describe import summary
from cfljax.base.streams import Stream
from cfljax.base.tree import (
    finite_rows,
    flat,
    length,
    put,
    repeat,
    rows,
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
from cfljax.clustering.kmeans import k_means
from cfljax.federated.answers import predict_own_cluster
from cfljax.federated.average import centres_of
from cfljax.federated.backend import everywhere
from cfljax.federated.evaluate import choose_cluster, client_losses
from cfljax.federated.local_update import LocalUpdate
from cfljax.federated.rounds import Info, global_start
from cfljax.federated.sharing import paths
from cfljax.federated.traffic import single, traffic
from cfljax.federated.training import (
    LocalState,
    Weights,
    averaging,
    cohort,
    message_bytes,
    next_local_state,
    round_of,
    shares,
    spread,
    start_models,
    train_alone,
)

CentreStart = Literal["k_means", "independent"]
Variant = Literal["paper", "reference"]

_GUARD = 1e-5  # Of the released divisor.


class State(NamedTuple):
    """All that the next round needs.

    models: theta, the centres, leaves `[clusters, ...]`.
    clusters: r, the centre that each client trains from next; `NO_CLUSTER`, and answers
      of the first centre, for one that has none yet or whose last model diverged.
    local: w, the clients' latest local models, leaves `[clients, ...]`.
    local_state: of local updates; None if they need none.
    """

    models: Stacked
    clusters: Int[Array, " clients"]
    local: Stacked
    local_state: LocalState | None = None

    __repr__ = summary


Compared = Literal["all", "head"]


@constructor
def fesem(
    task: Task,
    *,
    num_clusters: int,
    step_size: StepSize,
    num_steps: int = 1,
    weights: Weights = "samples",
    participation: float = 1.0,
    update: LocalUpdate | None = None,
    compared: Compared = "all",
    start: CentreStart = "k_means",
    num_restarts: int = 10,
    variant: Variant = "paper",
    threat: Threat | None = None,
) -> Algorithm:
    """Multi-centre federated learning by stochastic expectation maximisation.

    A round: participants train from their centres and send their models; the E-step
    `r_i = argmin_k |w_i - theta_k|^2` is made anew for every client that has a local
    model, the absent ones' old models included; the M-step takes the means of the
    participants' models. With one cluster it is `fedavg`. A centre that nobody is
    nearest to stays where it is. Whoever has no centre yet trains the mean of all.

    Args:
      task: the learning problem.
      num_clusters: K, from 1 to the number of clients, whose models they divide.
      step_size: local step size; may be traced.
      num_steps: local steps of a round.
      weights: of the clients in a centre; "samples" as in the authors' code.
      participation: fraction of the clients drawn each round. The first round should
        have more participants than clusters.
      update: how clients train.
      compared: what distances are taken of: "all" weights, or those of the "head",
        the last layer, which the authors' code compares. Centres are always means of
        whole models.
      start: "k_means": everybody starts from one model, and the first E-step is k-means
        of the local models, numbered by distance from that start. "independent":
        random centres, and one random model as everybody's first w, whose nearest
        centre is then everybody's; networks rarely leave it.
      num_restarts: of k-means.
      variant: "paper"; or "reference", what the code released with FlexCFL runs, with
        which CLoVE's FeSEM was measured, and which needs `start="independent"`: an
        E-step of the participants before they train, and no mean but the model of one
        member, the first of the participants in random order, whatever `weights`.
      threat: what Byzantine clients do; they lie about their models, which decide
        about their clusters as well.

    Raises:
      ValueError: where an argument is out of its range, or the last layer's of a task
        without layers; in `init`, where there are fewer clients than clusters.

    `Info.assignment` is the centre that a participant's new local model counts for,
    `NO_CLUSTER` without samples or where it diverged; nobody sends an index.

    It fails where local models stay closer to the centre that they left than to those
    of their kind: where steps are few, or noisy. A newcomer trains the mean of the
    centres for as long as in a round, and takes the centre that is nearest then.

    Cost of a round: for each participant a forward pass and `num_steps` passes; for
    each client and centre a pass over its weights; in the first round k-means. Memory:
    three models of every participant and one of every client.
    """
    check_member(CentreStart, start=start)
    check_member(Variant, variant=variant)
    if variant == "reference" and start != "independent":
        raise ValueError(
            f"`variant='reference'` needs `start='independent'`, got {start!r}."
        )
    training = averaging(step_size, num_steps, weights, participation, update, threat)
    is_reference = variant == "reference"
    leaves = leaves_of(task, compared)

    def nearest(models: Stacked, centres: Stacked) -> Int[Array, " models"]:
        """The nearest centre; `NO_CLUSTER` where no distance is finite."""
        return choose_cluster(squares_to_centres(leaves(models), leaves(centres)))

    def init(key: PRNGKeyArray, data: ClientData) -> State:
        number = data.mask.shape[0]
        model, local_state = global_start(key, task, training, number)
        clusters = jnp.full(number, NO_CLUSTER, jnp.result_type(int))
        models = repeat(model, num_clusters)
        if start == "independent":
            own = jax.random.fold_in(key, Stream.ALGORITHM)
            models = start_models(task, own, num_clusters)
            everywhere = nearest(repeat(model, 1), models)
            clusters = jnp.where(jnp.any(data.mask, axis=1), everywhere, clusters)
        return State(models, clusters, repeat(model, number), local_state)

    def step(key: PRNGKeyArray, state: State, data: ClientData) -> tuple[State, Info]:
        number, before = data.mask.shape[0], state.local_state
        check_threat(threat, number, length(state.models))
        clients, present = cohort(key, data, participation)
        known, old = state.clusters[clients], take(state.local, clients)
        if is_reference:
            known = nearest(old, state.models)
        chosen = take(state.models, jnp.maximum(known, 0))
        middle = repeat(middle_of(state.models), clients.shape[0])
        starts = select(known >= 0, chosen, middle)
        used = starts if threat is None else threat.evaluate(starts, clients)
        sent, moments = train_alone(key, task, used, present, training, before, clients)
        if threat is not None:
            own = jax.random.fold_in(key, Stream.ATTACKERS)
            at, now = jnp.maximum(known, 0), round_of(before)
            sent = threat.send(own, sent, clients, state.models, clusters=at, round=now)
        usable = finite_rows(sent) & jnp.any(present.mask, axis=1)
        local = put(state.local, clients, select(usable, sent, old))
        own = jax.random.fold_in(key, Stream.ALGORITHM)
        if is_reference:
            mine = jnp.where(usable, known, NO_CLUSTER)
            clusters = put(state.clusters, clients, mine)
            order = jax.random.permutation(own, clients.shape[0])
            models = move_to_one(sent, order, mine, centres=state.models, guard=_GUARD)
        else:
            clusters = expectation(own, state, local, clients, usable)
            mine = jnp.where(usable, clusters[clients], NO_CLUSTER)
            share = shares(training, present)
            models = centres_of(sent, share, mine, empty=state.models)  # M-step
        assignment = spread(mine, clients, number, absent=NO_CLUSTER)
        everyone = jnp.zeros(number, bool).at[clients].set(True)
        one = message_bytes(training, state.models).one_model
        losses = client_losses(task, starts, present, **training.update.placement)
        losses = spread(losses, clients, number, absent=jnp.nan)
        info = Info(assignment, losses, *traffic(single(one), everyone, assignment))
        after = next_local_state(before, clients, moments)
        return State(models, clusters, local, after), info

    def expectation(
        key: PRNGKeyArray,
        state: State,
        local: Stacked,
        clients: Int[Array, " participants"],
        usable: Bool[Array, " participants"],
    ) -> Int[Array, " clients"]:
        """The E-step, of all clients that have a local model."""
        able = (state.clusters >= 0).at[clients].set(usable)
        clusters = jnp.where(able, nearest(local, state.models), NO_CLUSTER)
        if start == "independent":
            return clusters
        rows = flat(leaves(take(local, clients)))
        rows = jnp.where(usable[:, None], rows, jnp.nan)
        origin = flat(leaves(state.models))[0]

        settings = {"num_clusters": num_clusters, "num_restarts": num_restarts}
        grouped = everywhere(functools.partial(k_means, **settings))

        def cluster(_: tuple[Array, Array]) -> tuple[Array, Array]:
            found = grouped(key, rows)
            # Numbered by the distances of their centres from the start, so that the
            # order of the clients changes no number.
            squares = jnp.sum(jnp.square(found.centres - origin[None]), axis=1)
            rank = jnp.argsort(jnp.argsort(squares))
            labels = rank[jnp.maximum(found.assignment, 0)]
            labels = jnp.where(found.assignment >= 0, labels, NO_CLUSTER)
            return jnp.zeros((), bool), labels

        # Where the predicate is mapped, over trials for example, a conditional computes
        # both of its branches in every round; a loop runs while any trial is in need.
        is_first = jnp.all(state.clusters < 0)
        nobody = jnp.full(rows.shape[0], NO_CLUSTER, jnp.result_type(int))
        start_here = (is_first, nobody)
        first = jax.lax.while_loop(lambda carry: carry[0], cluster, start_here)[1]
        first = spread(first, clients, clusters.shape[0], absent=NO_CLUSTER)
        return jnp.where(is_first, first, clusters)

    def join(key: PRNGKeyArray, state: State, data: ClientData) -> State:
        starts = repeat(middle_of(state.models), data.mask.shape[0])
        when = state.local_state and state.local_state._replace(moments=())
        local, _ = train_alone(key, task, starts, data, training, when)
        usable = finite_rows(local) & jnp.any(data.mask, axis=1)
        clusters = jnp.where(usable, nearest(local, state.models), NO_CLUSTER)
        return state._replace(clusters=clusters, local=local)

    check = at_most_clients(num_clusters)
    return Algorithm(init, step, predict_own_cluster(task), join, check=check)


def leaves_of(task: Task, compared: str) -> Callable[[Stacked], list[Array]]:
    """From models to the leaves in which they are compared: "all" weights, or those of
    the last layer, the "head"; statistics never."""
    check_member(Compared, compared=compared)
    if compared == "head" and task.layers is None:
        raise ValueError("`task` must have `layers` for `compared='head'`, got none.")

    def leaves(models: Stacked) -> list[Array]:
        weights = trained_part(models)
        every = jax.tree.leaves(weights)
        if compared == "all" or task.layers is None:
            return every
        head = [task.layers.is_head(name) for name in paths(weights)]
        return [leaf for leaf, is_head in zip(every, head, strict=True) if is_head]

    return leaves


def squares_to_centres(
    models: Stacked, centres: Stacked
) -> Float[Array, "models centres"]:
    """Squared Euclidean distance of every model to every centre, by differences: inner
    products would cancel where models have much in common. A pass over all models for
    each centre, and no copy of them."""

    def to_one(centre: PyTree) -> Float[Array, " models"]:
        pairs = zip(jax.tree.leaves(models), jax.tree.leaves(centre), strict=True)
        squares = [
            jnp.sum(jnp.square(leaf - c[None]).reshape(leaf.shape[0], -1), axis=1)
            for leaf, c in pairs
        ]
        return sum(squares[1:], squares[0])

    return jax.lax.map(to_one, centres).T


def middle_of(centres: Stacked) -> PyTree:
    """The mean of the centres; centres that are all the same, bit for bit."""
    middle = lambda leaf: leaf[0] + jnp.mean(leaf - leaf[:1], axis=0)
    return jax.tree.map(middle, centres)


def move_to_one(
    models: Stacked,
    order: Int[Array, " models"],
    clusters: Int[Array, " models"],
    *,
    centres: Stacked,
    guard: float,
) -> Stacked:
    """Centres moved to the model of one member, the one of least order, by `n / (n +
    guard)` of the way, n being the number of members; kept by a cluster without any.

    What a weighted mean becomes whose list of n members' weights has the one entry n.
    """
    number, row = length(centres), jnp.maximum(clusters, 0)
    member = clusters >= 0
    place = jnp.where(member, order, jnp.iinfo(order.dtype).max)
    least = jax.ops.segment_min(place, row, number)
    is_first = member & (order == least[row])
    sizes = jax.ops.segment_sum(member.astype(jnp.result_type(float)), row, number)
    firsts = centres_of(models, is_first.astype(sizes.dtype), clusters, empty=centres)
    share = sizes / (sizes + guard)
    move = lambda centre, first: centre + rows(share, centre) * (first - centre)
    return jax.tree.map(move, centres, firsts)
