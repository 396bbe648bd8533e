"""CFL: a cluster whose model has converged but not its members' is split in two.

Sattler, Mueller, Samek. "Clustered Federated Learning: Model-Agnostic Distributed
Multitask Optimization Under Privacy Constraints". IEEE TNNLS 32(8), 2021, the version
with weight updates in place of gradients. A baseline of CLoVE, called CFL-S there.
"""

import dataclasses
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, ScalarLike

from cfljax.base.checks import (
    check_member,
    check_threat,
    is_traced,
)
from cfljax.base.constructor import constructor
from cfljax.base.describe import summary
from cfljax.base.streams import Stream
from cfljax.base.tree import length, put, repeat, select, take, trained_part
from cfljax.base.types import (
    NO_CLUSTER,
    Algorithm,
    ClientData,
    Stacked,
    StepSize,
    Task,
    Threat,
)
from cfljax.clustering.distances import cosines, inner_products, norms
from cfljax.clustering.linkage import agglomerate_distances
from cfljax.federated.answers import check_clients
from cfljax.federated.backend import everywhere
from cfljax.federated.evaluate import masked_mean, predict_own
from cfljax.federated.local_update import (
    LocalUpdate,
    client_key,
    client_update,
    step_size_at,
    work_alone,
)
from cfljax.federated.rounds import global_start
from cfljax.federated.traffic import MessageBytes, num_bytes, traffic
from cfljax.federated.training import (
    Weights,
    averaging,
    cohort,
    first_local_state,
    shares,
    spread,
)

Variant = Literal["paper", "reference"]


class SplitTree(NamedTuple):
    """What is kept of every split. Split `s` made cluster `s + 1`.

    models: leaves `[splits, ...]`, that the members had when they were parted.
    directions: leaves `[splits, ...]` of what is trained: mean of the members' updates
      at that model, each scaled to norm 1, of those that left, minus that of those
      that stayed.
    parents: cluster that was split; `NO_CLUSTER` for a split that never happened.
    rounds: that were over before it.
    """

    models: Stacked
    directions: Stacked
    parents: Int[Array, " splits"]
    rounds: Int[Array, " splits"]


class Splits(NamedTuple):
    """Clusters between two rounds.

    members: who belongs to which cluster; rows beyond `number` are all false.
    number: clusters that there are.
    tree: of the splits; None if none is kept.
    seen: splits that each client was placed by; None if nobody is ever absent.
    scale: the largest norm of a cluster's mean update so far, the decay of step sizes
      divided out, which thresholds are relative to; None where they are absolute.
    """

    members: Bool[Array, "clusters clients"]
    number: Int[Array, ""]
    tree: SplitTree | None
    seen: Int[Array, " clients"] | None
    scale: Float[Array, ""] | None


class State(NamedTuple):
    """All that the next round needs.

    models: leaves `[clusters, ...]`, `[clients, ...]` in the variant "reference"; rows
      of clusters that there are not yet are without meaning.
    splits: who belongs to which cluster: every client to one, but for the variant
      "reference"; and the tree, which that variant does not keep.
    round: rounds that are over.
    moments: optimiser states that clients keep; an empty tree if they keep none.
    """

    models: Stacked
    splits: Splits
    round: Int[Array, ""]
    moments: Stacked = ()

    __repr__ = summary


class Info(NamedTuple):
    """What one round did; nothing here is carried over.

    assignment: the client's cluster after the round's splits, the first of them if it
      is in several; `NO_CLUSTER` for a client that was not asked, has no finite
      update or is in no cluster.
    losses: client losses under the model received, before training; NaN for a client
      that was not asked.
    number: clusters after the round.
    received: bytes from the server to each client: its cluster's model, and one of
      every split that it is asked about.
    sent: bytes from each client to the server: an update for each of these.
    """

    assignment: Int[Array, " clients"]
    losses: Float[Array, " clients"]
    number: Int[Array, ""]
    received: Int[Array, " clients"]
    sent: Int[Array, " clients"]


Thresholds = Literal["absolute", "relative"]
SplitLinkage = Literal["complete", "single"]


@constructor
def cfl_s(
    task: Task,
    *,
    step_size: StepSize,
    max_clusters: int,
    mean_norm: ScalarLike | None = None,
    largest_norm: ScalarLike | None = None,
    thresholds: Thresholds = "absolute",
    first_split: int = 20,
    min_members: int = 3,
    linkage: SplitLinkage = "complete",
    incongruence: ScalarLike | None = None,
    num_steps: int = 1,
    weights: Weights = "clients",
    participation: float = 1.0,
    update: LocalUpdate | None = None,
    variant: Variant = "paper",
    threat: Threat | None = None,
) -> Algorithm:
    """Clustered Federated Learning by recursive bipartition; nothing is ever merged.

    A cluster's model moves by the mean of its members' updates Delta_i. Where
    `|mean Delta_i| < mean_norm`, so that it has converged, but `max |Delta_i| >
    largest_norm`, so that they have not, it is split by the cosines of the Delta_i.

    Args:
      task: the learning problem.
      step_size: may be traced.
      max_clusters: no more are split than there is room for, lower numbers first; with
        1 this is FedAvg.
      mean_norm: epsilon_1, in units of parameters; 0.4 if None, as in the released
        code. May be traced.
      largest_norm: epsilon_2, likewise; 1.6 if None.
      thresholds: "absolute", which fit one scale of updates: where no update is ever
        longer than epsilon_2, 1.6 by default, nothing is split, and this runs as FedAvg
        without a word (`Info.number` stays 1). Or "relative" to the largest norm that a
        cluster's mean update had so far, the step sizes' schedule and decay divided
        out, so that the scale need not be known. None is then 0.1 and 0.4, this
        project's own choice.
      first_split: rounds that pass before a cluster may be split.
      min_members: of a cluster that may be split, whose updates arrived; at least 2.
      linkage: "complete" as in the released code; "single" is the paper's optimal
        bipartition. See `bisect_clusters`.
      incongruence: gamma_max in [0, 1): split only where `sqrt((1 - alpha) / 2)` is
        above it, alpha the largest cosine across, see `is_congruent`. No such check if
        None, as in the released code. May be traced.
      num_steps: local steps in each round.
      weights: of the clients in a mean: "clients" as in the released code, "samples"
        as in the paper.
      participation: fraction of the clients drawn each round, everybody in the paper.
        Only updates of one round are compared. A client that was absent when its
        cluster was split is placed when it next takes part, as newcomers are; until
        then it is answered by the part that kept the number, as is for good one whose
        update is not finite where everybody takes part.
      update: how clients train. Statistics are averaged, but count neither in norms
        nor in cosines.
      variant: "paper"; or "reference", where later splits than the first take places
        inside the cluster for clients, as the released code and most copies of it do.
        Clients have models of their own there: one in several clusters is moved by
        the sum of their means, one in none stays as it is. It answers by its own
        model, as in that code's curves; the best model of those cached before splits,
        by held-out data, as in that code's table, is not looked for.
      threat: Byzantine clients lie about their updates, and so in the mean, in both
        norms and in the cosines; their losses and their walks are honest.

    Raises:
      ValueError: where an argument is out of its range; in `join` of "reference".

    Cost of a round: a forward pass and the local steps of each participant. In a round
    that a cluster is due in, also the products of all pairs of updates, and a time
    cubic in the participants. Memory: an update for each participant; the state holds
    `3 max_clusters - 2` models, in "reference" one for each client.
    """
    check_member(Thresholds, thresholds=thresholds)
    check_member(Variant, variant=variant)
    check_member(SplitLinkage, linkage=linkage)
    is_reference, is_relative = variant == "reference", thresholds == "relative"
    if is_reference and participation != 1:
        needed = "`participation` must be 1 with `variant='reference'`, got"
        raise ValueError(f"{needed} {participation}.")
    defaults = (0.1, 0.4) if is_relative else (0.4, 1.6)
    mean_norm = defaults[0] if mean_norm is None else mean_norm
    largest_norm = defaults[1] if largest_norm is None else largest_norm
    if min_members < 2:
        raise ValueError(
            "`min_members` must be at least 2, for a cluster to have two parts, got "
            f"{min_members}."
        )
    known = incongruence is not None and not is_traced(incongruence)
    if known and not 0 <= float(np.asarray(incongruence)) < 1:
        raise ValueError(f"`incongruence` must be in [0, 1), got {incongruence}.")
    training = averaging(step_size, num_steps, weights, participation, update, threat)

    def init(key: PRNGKeyArray, data: ClientData) -> State:
        num_clients = data.mask.shape[0]
        model, local_state = global_start(key, task, training, num_clients)
        everybody = jnp.zeros(num_clients, jnp.int32)
        empty = repeat(jax.tree.map(jnp.zeros_like, model), max_clusters - 1)
        tree = SplitTree(
            models=empty,
            directions=trained_part(empty),
            parents=jnp.full(max_clusters - 1, NO_CLUSTER, jnp.int32),
            rounds=jnp.zeros(max_clusters - 1, jnp.int32),
        )
        splits = Splits(
            members=_one_hot(everybody, max_clusters),
            number=jnp.ones((), jnp.int32),
            tree=None if is_reference else tree,
            seen=everybody if participation < 1 else None,
            scale=jnp.zeros((), jnp.result_type(float)) if is_relative else None,
        )
        return State(
            models=repeat(model, num_clients if is_reference else max_clusters),
            splits=splits,
            round=jnp.zeros((), jnp.int32),
            moments=() if local_state is None else local_state.moments,
        )

    def step(key: PRNGKeyArray, state: State, data: ClientData) -> tuple[State, Info]:
        before = state.splits
        check_threat(threat, data.mask.shape[0], max_clusters)
        clients, present = cohort(key, data, participation)
        members, asked = before.members[:, clients], jnp.zeros_like(clients)
        if before.tree is not None and before.seen is not None:
            own = jax.random.fold_in(key, Stream.RETURNING)
            at, seen = _first(members), before.seen[clients]
            clusters, asked = walk(own, before.tree, present, at, seen, clients)
            members = _one_hot(clusters, max_clusters)
        found = updates(key, state, _first(members), clients, present)
        weight = shares(training, present)
        parted, splits = split(state, members, clients, found, weight)
        counted = parted.members & found.usable[None, :]
        means = _means(counted, weight, found.updates)
        if is_reference:  # Models of the clients' own, moved by all their clusters.
            models = state.models
            inside = lambda leaf: _combined(parted.members.T, leaf)
            means = jax.tree.map(inside, means)
        else:  # A new cluster starts from its parent's model.
            row = jnp.arange(1, max_clusters, dtype=parted.parents.dtype)
            row = jnp.where(parted.parents >= 0, parted.parents, row)
            models = take(state.models, jnp.append(0, row))
        after = State(
            models=jax.tree.map(jnp.add, models, means),
            splits=splits,
            round=state.round + 1,
            moments=put(state.moments, clients, found.moments),
        )
        # Whoever may be late is asked about fewer splits than there may be clusters.
        most = 1 if before.seen is None else max_clusters
        model = num_bytes(after.models) // length(after.models)
        used = found.usable & jnp.any(parted.members, axis=0)
        chosen = jnp.where(used, _first(parted.members), NO_CLUSTER)
        number = data.mask.shape[0]
        everybody = lambda some, rest: spread(some, clients, number, absent=rest)
        took_part = everybody(jnp.ones(clients.shape, bool), False)
        answered = everybody(jnp.where(found.usable, 0, NO_CLUSTER), NO_CLUSTER)
        sizes = MessageBytes(most * model, model, model)
        received, sent = traffic(sizes, took_part, answered, alone=took_part)
        besides = everybody(asked * model, 0).astype(jnp.int32)
        info = Info(
            assignment=everybody(chosen, NO_CLUSTER),
            losses=everybody(found.losses, jnp.nan),
            number=parted.number,
            received=received + besides,
            sent=sent + besides,
        )
        return after, info

    def walk(
        key: PRNGKeyArray,
        tree: SplitTree,
        data: ClientData,
        clusters: Int[Array, " clients"],
        seen: Int[Array, " clients"],
        clients: Int[Array, " clients"],
    ) -> tuple[Int[Array, " clients"], Int[Array, " clients"]]:
        """Clusters of clients that were absent when theirs were split, by training the
        model of each split from `seen` on, and how many splits each was asked about."""
        fresh = dataclasses.replace(training.update, keep_optimizer=False)
        train = client_update(task, fresh, num_steps)

        def one(
            shared: tuple, client: Array, cluster: Array, seen: Array, data: ClientData
        ) -> tuple[Array, Array]:
            key, sizes, tree = shared
            own = client_key(key, client)

            def pass_by(at: tuple, row: tuple) -> tuple[tuple, None]:
                cluster, asked = at
                index, size, (model, direction, parent, _) = row

                def choose() -> tuple:
                    after, _ = train(own, size, model, (), data)
                    pair = trained_part(after), trained_part(model)
                    moved = jax.tree.map(jnp.subtract, *pair)
                    pair = repeat(moved, 1), repeat(direction, 1)
                    towards = inner_products(*pair)[0, 0]
                    return jnp.where(towards > 0, index + 1, cluster), asked + 1

                concerned = (parent == cluster) & (index >= seen) & jnp.any(data.mask)
                return jax.lax.cond(concerned, choose, lambda: at), None

            indices = jnp.arange(tree.parents.shape[0], dtype=jnp.int32)
            return jax.lax.scan(
                pass_by, (cluster, jnp.int32(0)), (indices, sizes, tree)
            )[0]

        size_at = lambda index: step_size_at(fresh, step_size, index)
        shared = key, jax.lax.map(size_at, tree.rounds), tree  # As in its round.
        return fresh.over_clients(one)(shared, clients, clusters, seen, data)

    def updates(
        key: PRNGKeyArray,
        state: State,
        clusters: Int[Array, " participants"],
        clients: Int[Array, " participants"],
        data: ClientData,
    ) -> _Updates:
        """What participants send, trained model minus received model, as it arrives."""
        models, choice = state.models, clients if is_reference else clusters
        if threat is not None:
            models = threat.evaluate(take(models, choice), clients)
            choice = jnp.arange(clients.shape[0])
        train = client_update(task, training.update, num_steps)

        def one(
            shared: tuple, client: Array, row: Array, moments: PyTree, data: ClientData
        ) -> tuple[Array, tuple[PyTree, PyTree]]:
            key, step_size, models = shared
            start = take(models, row)
            loss = masked_mean(task.losses(start, data.inputs, data.targets), data.mask)

            def trained(own: PRNGKeyArray) -> tuple[PyTree, PyTree]:
                after, kept = train(own, step_size, start, moments, data)
                return jax.tree.map(jnp.subtract, after, start), kept

            unmoved = jax.tree.map(jnp.zeros_like, start), moments
            return loss, work_alone(key, client, data, trained, unmoved)

        moments = take(state.moments, clients)
        shared = key, step_size_at(training.update, step_size, state.round), models
        apply = training.update.over_clients(one)
        losses, (moves, kept) = apply(shared, clients, choice, moments, data)
        if threat is not None:
            own = jax.random.fold_in(key, Stream.ATTACKERS)
            now = state.round
            moves = threat.send(own, moves, clients, clusters=clusters, round=now)
        usable = jnp.any(data.mask, axis=1) & jnp.isfinite(losses)
        usable = usable & jnp.isfinite(norms(moves))
        sizes = jnp.where(usable, norms(trained_part(moves)), 0)
        moves = select(usable, moves, jax.tree.map(jnp.zeros_like, moves))
        if jax.tree.leaves(moments):
            kept = select(usable, kept, moments)
        return _Updates(losses, moves, sizes, usable, kept)

    def split(
        state: State,
        members: Bool[Array, "clusters participants"],
        clients: Int[Array, " participants"],
        found: _Updates,
        weight: Float[Array, " participants"],
    ) -> tuple[Bipartition, Splits]:
        """Clusters of the participants, and all about clusters after the round. Cosines
        are taken only in a round in which a cluster is due."""
        splits, moved = state.splits, trained_part(found.updates)
        counted = members & found.usable[None, :]
        averages = norms(_means(counted, weight, moved))
        unit, scale = jnp.ones((), averages.dtype), splits.scale
        if scale is not None:
            relative = step_size if callable(step_size) else 1.0
            factor = step_size_at(training.update, relative, state.round)
            divided = jnp.max(averages) / jnp.where(factor > 0, factor, jnp.inf)
            scale = jnp.maximum(scale, divided)
            unit = scale * factor
        largest = jnp.max(jnp.where(counted, found.sizes[None, :], 0), axis=1)
        due = (averages < mean_norm * unit) & (largest > largest_norm * unit)
        due = due & (jnp.sum(counted, axis=1) >= min_members)
        due = due & (state.round >= first_split)

        def bisect(same: Bipartition, tree: SplitTree | None) -> tuple:
            parted = bisect_clusters(
                cosines(moved, moved),
                same.members,
                same.number,
                due,
                found.usable,
                linkage=linkage,
                incongruence=incongruence,
                by_position=is_reference,
            )
            if tree is not None:
                tree = _recorded(tree, state, parted, found)
            return parted, tree

        nobody = jnp.full(max_clusters - 1, NO_CLUSTER, jnp.int32)
        parted, tree = Bipartition(members, splits.number, nobody), splits.tree
        if max_clusters > 1:  # There is room for a split.
            keep = lambda *same: same
            parted, tree = jax.lax.cond(jnp.any(due), bisect, keep, parted, tree)
        seen = splits.seen
        if seen is not None:  # An update that does not count places nobody.
            known = jnp.where(found.usable, parted.number, splits.number) - 1
            seen = seen.at[clients].set(known)
        everybody = splits.members.at[:, clients].set(parted.members)
        return parted, Splits(everybody, parted.number, tree, seen, scale)

    def predict(state: State, data: ClientData, inputs: Array) -> Array:
        check_clients(state.splits.members.shape[1], data, inputs)
        own = jnp.arange(data.mask.shape[0])
        choice = own if is_reference else _first(state.splits.members)
        return predict_own(task, state.models, choice, inputs)

    def join(key: PRNGKeyArray, state: State, data: ClientData) -> State:
        splits, number = state.splits, data.mask.shape[0]
        if splits.tree is None:
            raise ValueError(
                "`join` needs the tree of splits, got a `variant` without it."
            )
        nobody = jnp.zeros(number, jnp.int32)
        clusters, _ = walk(key, splits.tree, data, nobody, nobody, jnp.arange(number))
        splits = splits._replace(
            members=_one_hot(clusters, max_clusters),
            seen=None if splits.seen is None else nobody + splits.number - 1,
        )
        fresh = first_local_state(training, state.models, number)
        moments = () if fresh is None else fresh.moments
        return state._replace(splits=splits, moments=moments)

    return Algorithm(init, step, predict, join)


class _Updates(NamedTuple):
    """What participants send and keep: updates, and norms of what is trained of them,
    are 0 unless `usable`, which needs finite ones, a finite loss, and samples."""

    losses: Float[Array, " participants"]
    updates: Stacked
    sizes: Float[Array, " participants"]
    usable: Bool[Array, " participants"]
    moments: Stacked


class Bipartition(NamedTuple):
    """Clusters after some of them were cut in two.

    members: who belongs to which cluster.
    number: clusters that there are; the others have no members.
    parents: cluster that a new one was cut from; entry `s` is that of cluster
      `s + 1`, `NO_CLUSTER` where that one is not new.
    """

    members: Bool[Array, "clusters clients"]
    number: Int[Array, ""]
    parents: Int[Array, " splits"]


def _first(members: Bool[Array, "clusters clients"]) -> Int[Array, " clients"]:
    """The first cluster of each client, 0 for a client in none."""
    return jnp.argmax(members, axis=0).astype(jnp.int32)


def _one_hot(
    clusters: Int[Array, " clients"], max_clusters: int
) -> Bool[Array, "clusters clients"]:
    """Members of clusters, each client of one."""
    each = jnp.arange(max_clusters, dtype=clusters.dtype)
    return each[:, None] == clusters[None, :]


@everywhere
def _combined(weights: Array, leaf: Array) -> Array:
    """Rows of a leaf added up with weights, in full precision on every machine."""
    return jnp.tensordot(weights.astype(leaf.dtype), leaf, axes=1, precision="highest")


def _means(
    members: Bool[Array, "clusters clients"],
    weights: Float[Array, " clients"],
    updates: Stacked,
) -> Stacked:
    """Weighted mean of the members' updates, which are finite, leaves `[clusters,
    ...]`; 0 for a cluster without weight."""
    each = jnp.where(members, weights[None, :], 0)
    total = jnp.sum(each, axis=1)
    each = each * (1 / jnp.where(total > 0, total, 1))[:, None]
    return jax.tree.map(lambda leaf: _combined(each, leaf), updates)


# The tree of splits.


def _recorded(
    tree: SplitTree, before: State, parted: Bipartition, found: _Updates
) -> SplitTree:
    """The tree after the splits of a round, each cluster having been split once at
    most; `before` has the models that the updates start from."""
    members = parted.members & found.usable[None, :]
    new = parted.parents >= 0
    row = jnp.maximum(parted.parents, 0)
    left, stayed = members[1:], members[row]
    sizes = found.sizes
    inverse = jnp.where(sizes > 0, 1 / jnp.where(sizes > 0, sizes, 1), 0)

    def share(part: Bool[Array, "splits clients"]) -> Float[Array, "splits clients"]:
        count = jnp.sum(part, axis=1, dtype=inverse.dtype)
        return part.astype(inverse.dtype) / jnp.maximum(count, 1)[:, None]

    weights = (share(left) - share(stayed)) * inverse[None, :]
    mean = lambda leaf: _combined(weights, leaf)
    moved = jax.tree.map(mean, trained_part(found.updates))
    return SplitTree(
        models=select(new, take(before.models, row), tree.models),
        directions=select(new, moved, tree.directions),
        parents=jnp.where(new, parted.parents, tree.parents),
        rounds=jnp.where(new, before.round, tree.rounds),
    )


# Cutting clusters in two.


def bisect_clusters(
    similarities: Float[Array, "clients clients"],
    members: Bool[Array, "clusters clients"],
    number: Int[Array, ""],
    due: Bool[Array, " clusters"],
    present: Bool[Array, " clients"],
    *,
    linkage: str = "complete",
    incongruence: ScalarLike | None = None,
    by_position: bool = False,
) -> Bipartition:
    """Cuts every cluster that is due, in the order of their numbers, while there is
    room.

    Of the two parts the one with the cluster's first present member keeps its number,
    and whoever is not present; the other becomes the next cluster. Fewer than two
    present members are not cut.

    Present members are merged by the linkage until two parts are left, distances being
    `1 - similarities`. "single" makes the largest similarity across the cut as small as
    any cut can (the optimal bipartition of Sattler et al.), "complete" is what their
    released code does. Where members are more similar inside two groups than across,
    both find the groups. Cubic in the clients for each cluster.

    With `by_position` the places of the parts' members inside their cluster are taken
    for clients, as the released code does: clients 0, 1, ... up to the cluster's size
    are in the two parts, whoever was in the cluster before.
    """
    most = members.shape[0]

    def cut(cluster: Int[Array, ""], found: Bipartition) -> Bipartition:
        """`found` with one cluster more, if it has two parts."""
        row = found.members[cluster]
        parts = agglomerate_distances(
            1 - similarities, 2, linkage=linkage, present=row & present
        )[1]
        kept, new = row & (parts != 1), parts == 1
        sound = jnp.any(new)
        if incongruence is not None:
            across = largest_across(similarities, parts == 0, new)
            sound = sound & ~is_congruent(across, incongruence)
        if by_position:
            kept, new = _places(row, kept), _places(row, new)
        rows = found.members.at[cluster].set(kept).at[found.number].set(new)
        parents = found.parents.at[found.number - 1].set(cluster.astype(jnp.int32))
        more = Bipartition(rows, found.number + 1, parents)
        return jax.tree.map(lambda old, new: jnp.where(sound, new, old), found, more)

    def one(cluster: Int[Array, ""], found: Bipartition) -> Bipartition:
        room = due[cluster] & (found.number < most)
        return jax.lax.cond(room, lambda: cut(cluster, found), lambda: found)

    nobody = jnp.full(most - 1, NO_CLUSTER, number.dtype)
    return jax.lax.fori_loop(0, most, one, Bipartition(members, number, nobody))


def _places(
    row: Bool[Array, " clients"], part: Bool[Array, " clients"]
) -> Bool[Array, " clients"]:
    """Places of a part's members among those of its cluster, as clients."""
    place = jnp.where(part, jnp.cumsum(row) - 1, row.shape[0])
    return jnp.zeros_like(row).at[place].set(True, mode="drop")


def largest_across(
    similarities: Float[Array, "clients clients"],
    first: Bool[Array, " clients"],
    second: Bool[Array, " clients"],
) -> Float[Array, ""]:
    """alpha_cross, the largest similarity of one of the first and one of the second;
    minus infinity where there are none."""
    across = first[:, None] & second[None, :]
    return jnp.max(jnp.where(across, similarities, -jnp.inf))


def is_congruent(across: Float[Array, ""], incongruence: ScalarLike) -> Bool[Array, ""]:
    """Whether a cut may part clients of one distribution: `sqrt((1 - across) / 2)` is
    not above `incongruence`, gamma_max, `across` being the largest cosine across the
    cut.

    Sattler et al., section on distinguishing congruent from incongruent clients: let
    every client's gradient differ from its distribution's by at most gamma_max times
    the latter's norm. Each then is at most `arcsin gamma_max` away from it in angle,
    two of one distribution at most twice that, and their cosine is at least `1 - 2
    gamma_max^2`. A cut across which all cosines are smaller parts no such two.
    """
    bound = jnp.asarray(incongruence, across.dtype)
    return ~(jnp.sqrt(jnp.maximum(1 - across, 0) / 2) > bound)
