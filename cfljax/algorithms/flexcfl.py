"""FlexCFL: clients grouped once, by the directions of a short pre-training.

Duan, Liu, Ji, Wu, Liang, Chen, Tan et al. "Flexible Clustered Federated Learning for
Client-Level Data Distribution Shift". IEEE Transactions on Parallel and Distributed
Systems, 2022; its first form is FedGroup (ISPA 2021). Group cold start, newcomer cold
start, FedAvg within the groups, and learning between them. A baseline of CLoVE.
"""

import dataclasses
import functools
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, ScalarLike

from cfljax.base.checks import (
    at_most_clients,
    check_member,
    check_positive,
    is_traced,
)
from cfljax.base.constructor import constructor
from cfljax.base.decompositions import eigenvectors
from cfljax.base.describe import summary
from cfljax.base.tree import flat, repeat, rows, take, trained_part, with_trained
from cfljax.base.types import (
    NO_CLUSTER,
    Algorithm,
    ClientData,
    Stacked,
    StepSize,
    Task,
    Threat,
)
from cfljax.clustering.distances import cosines, norms
from cfljax.clustering.kmeans import k_means
from cfljax.clustering.linkage import agglomerate_distances
from cfljax.federated.answers import predict_own_cluster
from cfljax.federated.average import centres_of, membership
from cfljax.federated.backend import everywhere
from cfljax.federated.evaluate import choose_cluster
from cfljax.federated.local_update import (
    LocalUpdate,
    client_update,
    step_size_at,
    work_alone,
)
from cfljax.federated.rounds import Info, assigned_round
from cfljax.federated.traffic import num_bytes, single, traffic
from cfljax.federated.training import (
    LocalState,
    Training,
    Weights,
    averaging,
    first_local_state,
    message_bytes,
    train_alone,
)


class State(NamedTuple):
    """All that the next round needs.

    models: leaves `[clusters, ...]`, one for each group.
    clusters: the group of each client, for good; `NO_CLUSTER` for one without samples
      or whose pre-training diverged.
    start: the model that every client is pre-trained from.
    directions: of the groups, mean updates of their first members in pre-training,
      trained weights with leaves `[clusters, ...]`; 0 for an empty group.
    started: clients whose cold start was paid for, in `round` 0 to be paid for.
    round: rounds that are over.
    local_state: of local updates; None if they need none.
    """

    models: Stacked
    clusters: Int[Array, " clients"]
    start: PyTree
    directions: Stacked
    started: Bool[Array, " clients"]
    round: Int[Array, ""]
    local_state: LocalState | None = None

    __repr__ = summary


Clustering = Literal["decomposed_cosine", "pairwise"]


@constructor
def flexcfl(
    task: Task,
    *,
    num_clusters: int,
    step_size: StepSize,
    num_steps: int = 1,
    weights: Weights = "samples",
    participation: float = 1.0,
    update: LocalUpdate | None = None,
    clustering: Clustering = "decomposed_cosine",
    num_pretrain_steps: int = 50,
    pretrain_scale: int | None = 20,
    inter_group_step_size: ScalarLike = 0.0,
    num_restarts: int = 10,
    threat: Threat | None = None,
) -> Algorithm:
    """Groups by directions of pre-training, then FedAvg within each group.

    Group cold start: some clients are pre-trained from one model, their updates are
    grouped by direction, a group's model starts at the mean of its members' models,
    and its direction is the mean of their updates, all weighing alike. Newcomer cold
    start: any other client is pre-trained from the same model and takes the group of
    the nearest direction, 1 - cos. Nobody changes groups afterwards.

    Left out: migration of clients whose labels shift (data do not change in a run) and
    the ablations with random groups.

    Args:
      task: the learning problem.
      num_clusters: K, from 1 to the number of clients; some groups stay empty where
        fewer of them have samples.
      step_size: local step size, of pre-training as well; may be traced.
      num_steps: local steps of a round.
      weights: of the clients in a group's mean.
      participation: fraction of the clients drawn each round.
      update: how clients train.
      clustering: "decomposed_cosine" (EDC) or "pairwise" (MADC), see `group_updates`.
        Cosines are to 0, so K groups are told apart in the K main directions of the
        updates, what they have in common among them.
      num_pretrain_steps: of pre-training, as in the released code; with the update's
        mini-batches and optimiser, but neither its epochs nor its proximal term.
      pretrain_scale: alpha; the group cold start takes `min(alpha K, clients)` clients,
        drawn at random; all of them if None. The released code takes 20 whatever it
        is told.
      inter_group_step_size: eta_g of learning between groups after every round, see
        `towards_others`, as in the released code; none with 0. May be traced.
      num_restarts: of k-means.
      threat: what Byzantine clients do in training; they are honest in their cold
        start.

    Raises:
      ValueError: where an argument is out of its range; in `init`, where there are
        fewer clients than clusters.

    `Info` counts a cold start, the start received and the pre-training's update sent,
    for clients of the group cold start in the first round, for others in their first.

    It fails where clients of different groups move a fresh model alike, or where their
    updates are mostly noise. A newcomer takes its group by the newcomer cold start.

    Cost: `init` pre-trains every client, and holds the models of the group cold start
    side by side; a round takes a forward pass and `num_steps` passes of each
    participant. The state holds every group's model twice.
    """
    check_positive(num_pretrain_steps=num_pretrain_steps)
    check_member(Clustering, clustering=clustering)
    training = averaging(step_size, num_steps, weights, participation, update, threat)
    # By a number of steps from a fresh optimiser, towards nothing.
    plain = dataclasses.replace(
        training.update, num_epochs=None, proximal=0.0, keep_optimizer=False
    )
    pretraining = Training(
        step_size=step_size, num_steps=num_pretrain_steps, update=plain
    )

    def init(key: PRNGKeyArray, data: ClientData) -> State:
        start_key, cold_key = jax.random.split(key)
        start = task.init(start_key)
        draw_key, train_key, group_key = jax.random.split(cold_key, 3)
        number, first = data.mask.shape[0], jnp.arange(data.mask.shape[0])
        others = first[:0]
        wanted = (number if pretrain_scale is None else pretrain_scale) * num_clusters
        if wanted < number:
            order = jax.random.permutation(draw_key, number)
            first, others = jnp.sort(order[:wanted]), jnp.sort(order[wanted:])
        # Group cold start.
        some, starts = take(data, first), repeat(start, first.shape[0])
        trained, _ = train_alone(
            train_key, task, starts, some, pretraining, clients=first
        )
        move = lambda new, old: new - old[None]
        moves = jax.tree.map(move, trained_part(trained), trained_part(start))
        real = jnp.any(some.mask, axis=1)
        group = functools.partial(
            group_updates,
            num_clusters=num_clusters,
            clustering=clustering,
            num_restarts=num_restarts,
        )
        rows = jnp.where(real[:, None], flat(moves), jnp.nan)
        groups = everywhere(group)(group_key, rows)
        alike = jnp.ones(first.shape[0], jnp.result_type(float))
        empty = repeat(start, num_clusters)
        models = centres_of(trained, alike, groups, empty=empty)
        nowhere = jax.tree.map(jnp.zeros_like, trained_part(empty))
        directions = centres_of(moves, alike, groups, empty=nowhere)
        clusters = jnp.full(number, NO_CLUSTER, jnp.result_type(int))
        clusters = clusters.at[first].set(groups)
        if others.shape[0]:
            late = take(data, others)
            nearest = newcomer_start(train_key, start, directions, late, others)
            clusters = clusters.at[others].set(nearest)
        return State(
            models=models,
            clusters=clusters,
            start=start,
            directions=directions,
            started=jnp.zeros(number, bool).at[first].set(True),
            round=jnp.zeros((), jnp.int32),
            local_state=first_local_state(training, models, number),
        )

    def newcomer_start(
        key: PRNGKeyArray,
        start: PyTree,
        directions: Stacked,
        data: ClientData,
        clients: Int[Array, " clients"],
    ) -> Int[Array, " clients"]:
        """The group of direction nearest to a client's own; `NO_CLUSTER` without
        samples or with an update that is not finite."""
        train = client_update(task, plain, num_pretrain_steps)

        def one(shared: tuple, client: Array, data: ClientData) -> Array:
            key, step_size, start, directions = shared

            def compared(own: PRNGKeyArray) -> Float[Array, " groups"]:
                trained, _ = train(own, step_size, start, (), data)
                move = lambda new, old: new - old
                moved = jax.tree.map(move, trained_part(trained), trained_part(start))
                return direction_cosines(moved, directions)

            shape = jax.eval_shape(compared, key)
            nothing = jnp.full(shape.shape, jnp.nan, shape.dtype)
            return work_alone(key, client, data, compared, nothing)

        shared = key, step_size_at(plain, step_size, None), start, directions
        found = plain.over_clients(one)(shared, clients, data)
        return choose_cluster((1 - found) / 2)

    def step(key: PRNGKeyArray, state: State, data: ClientData) -> tuple[State, Info]:
        after, losses = assigned_round(key, task, state, data, training)
        models = after.models
        if is_traced(inter_group_step_size) or inter_group_step_size != 0:
            used = jnp.any(membership(state.clusters, num_clusters), axis=0)
            models = towards_others(models, inter_group_step_size, used)
        # The server knows the groups: nobody sends an index.
        one = message_bytes(training, state.models).one_model
        received, sent = traffic(single(one), after.present, after.assignment)
        late = after.present & ~state.started  # Whose cold start is to be paid for.
        owing = jnp.where(state.round == 0, state.started | late, late)
        owing = owing & jnp.any(data.mask, axis=1)
        moves = num_bytes(trained_part(state.start))
        received = received + jnp.where(owing, one, 0).astype(received.dtype)
        sent = sent + jnp.where(owing, moves, 0).astype(sent.dtype)
        state = state._replace(
            models=models,
            started=state.started | after.present,
            round=state.round + 1,
            local_state=after.local_state,
        )
        return state, Info(after.assignment, losses, received, sent)

    def join(key: PRNGKeyArray, state: State, data: ClientData) -> State:
        number = data.mask.shape[0]
        start, directions, own = state.start, state.directions, jnp.arange(number)
        nearest = newcomer_start(key, start, directions, data, own)
        return state._replace(clusters=nearest, started=jnp.zeros(number, bool))

    check = at_most_clients(num_clusters)
    return Algorithm(init, step, predict_own_cluster(task), join, check=check)


_Updates = Float[Array, "clients features"]


def group_updates(
    key: PRNGKeyArray,
    updates: _Updates,
    num_clusters: int,
    *,
    clustering: str,
    num_restarts: int = 10,
    num_iterations: int = 20,
) -> Int[Array, " clients"]:
    """Groups of clients whose updates have like directions; `NO_CLUSTER` for one that
    is not finite. With fewer updates than groups some stay empty.

    "decomposed_cosine" is k-means of `decomposed_cosines`; "pairwise" merges by
    complete linkage of `cosine_differences`, cubic in the updates.
    """
    check_member(Clustering, clustering=clustering)
    if clustering == "pairwise":
        finite = jnp.all(jnp.isfinite(updates), axis=1)
        distances = cosine_differences(updates)
        partitions = agglomerate_distances(
            distances, num_clusters, linkage="complete", present=finite
        )
        return partitions[num_clusters - 1]
    found = k_means(
        key,
        decomposed_cosines(updates, num_clusters),
        num_clusters,
        num_restarts=num_restarts,
        num_iterations=num_iterations,
    )
    return found.assignment


def decomposed_cosines(
    updates: _Updates, num_directions: int
) -> Float[Array, "clients directions"]:
    """Cosine of every update to the main directions of all of them (EDC); NaN for an
    update that is not finite, 0 for one that is 0 and for directions beyond the rank.

    The directions are the right singular vectors of the largest singular values. Their
    signs, and rotations within equal singular values, are arbitrary; Euclidean
    distances of the rows, and with them k-means, change with neither.

    From the eigenvectors v of the Gram matrix of the shorter side: with fewer clients
    than features the inner product of update i and direction j is `sigma_j v_ij`, and
    no direction is ever formed. Squaring costs half of the digits: a direction whose
    singular value is below `sqrt(n eps)` of the largest (n clients; a thousandth for
    ten of them in single precision) is rounding and counts as absent.
    """
    check_positive(num_directions=num_directions)
    # In units of the largest entry, squares neither overflow nor all vanish.
    finite = jnp.all(jnp.isfinite(updates), axis=1)
    rows = jnp.where(finite[:, None], updates, 0)
    largest = jnp.max(jnp.abs(rows))
    rows = rows / jnp.where(largest > 0, largest, 1)
    number, features = rows.shape
    wide = number <= features
    gram = _products(rows, rows) if wide else _products(rows.T, rows.T)
    values, vectors = eigenvectors(gram)
    few = min(num_directions, gram.shape[0])
    values, vectors = values[::-1][:few], vectors[:, ::-1][:, :few]
    least = number * jnp.finfo(rows.dtype).eps * values[0]
    known = (values > least) & (values > 0)
    scales = jnp.sqrt(jnp.where(known, values, 0))
    inner = vectors * scales[None] if wide else _products(rows, vectors.T)
    inner = jnp.where(known[None], inner, 0)
    lengths = norms(rows)
    found = inner / jnp.where(lengths > 0, lengths, 1)[:, None]
    found = jnp.pad(found, ((0, 0), (0, num_directions - few)))
    return jnp.where(finite[:, None], found, jnp.nan)


def cosine_differences(updates: _Updates) -> Float[Array, "clients clients"]:
    """Mean absolute difference of two updates' cosines to all others (MADC).

    `d_ij = sum_z |cos_iz - cos_jz| / (n - 2)` over the n - 2 other updates z; 0 where
    there are none. An update that is 0 has cosine 0 to all; one that is not finite is
    neither compared, NaN, nor compared with. `n^3` differences, `n^2` at a time.
    """
    finite = jnp.all(jnp.isfinite(updates), axis=1)
    rows = jnp.where(finite[:, None], updates, 0)
    between = cosines(rows, rows)
    others = jnp.maximum(jnp.sum(finite) - 2, 1).astype(rows.dtype)
    index = jnp.arange(rows.shape[0])

    def to_all(i: Int[Array, ""]) -> Float[Array, " clients"]:
        apart = jnp.abs(between[i][None] - between)
        counts = (index[None] != i) & (index[None] != index[:, None]) & finite[None]
        return jnp.sum(jnp.where(counts, apart, 0), axis=1) / others

    distances = jax.lax.map(to_all, index)
    known = finite[:, None] & finite[None]
    return jnp.where(known, distances, jnp.nan)


def _products(left: Array, right: Array) -> Float[Array, "rows columns"]:
    """Inner products of all rows, in full precision on every machine."""
    return jnp.matmul(left, right.T, precision="highest")


def direction_cosines(update: PyTree, directions: Stacked) -> Float[Array, " groups"]:
    """Cosine of an update to every group's direction: 0 for an update that is 0, NaN
    for a direction that is, and everywhere if the update is not finite."""
    size = lambda leaf: jnp.max(jnp.abs(leaf.reshape(leaf.shape[0], -1)), axis=1)
    sizes = [size(leaf) for leaf in jax.tree.leaves(directions)]
    found = cosines(repeat(update, 1), directions)[0]
    return jnp.where(jnp.max(jnp.stack(sizes), axis=0) > 0, found, jnp.nan)


def towards_others(
    models: Stacked, step: ScalarLike, used: Bool[Array, " groups"]
) -> Stacked:
    """Means of all groups' models, in which the others weigh `step` over their norms:

    `w_g <- (w_g + step sum_l w_l / |w_l|) / (1 + step sum_l 1 / |w_l|)`

    over the other groups l. A group that is not used neither moves nor is moved to, nor
    is a model of norm 0. Statistics (`Variables`) stay with their group. With step 0
    nothing moves.
    """
    weights = trained_part(models)
    sizes = norms(weights)
    counts = used & (sizes > 0)
    step = jnp.asarray(step, sizes.dtype)
    share = jnp.where(counts, step / jnp.where(counts, sizes, 1), 0)
    apart = ~jnp.eye(sizes.shape[0], dtype=bool)
    others = jnp.where(apart & used[:, None], share[None], 0)
    total: Float[Array, " groups"] = 1 + jnp.sum(others, axis=1)

    def move(leaf: Array) -> Array:
        # A group that does not count may hold anything, NaN included.
        known = jnp.where(rows(counts, leaf), leaf, 0)
        added = jnp.tensordot(others.astype(leaf.dtype), known, axes=1)
        moved = (leaf + added) / rows(total, leaf)
        return jnp.where(rows(used, leaf), moved, leaf)

    return with_trained(models, jax.tree.map(move, weights))
