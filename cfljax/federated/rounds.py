"""One round of training cluster models, whatever chooses the clusters.

Sums over clients (`sums`) never hold a single client's message. Byzantine clients and
robust means need them all, side by side: rounds with either take the second path below.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from cfljax.base.checks import check_threat
from cfljax.base.describe import summary
from cfljax.base.streams import Stream
from cfljax.base.tree import finite_rows, is_finite, length, repeat, select, take
from cfljax.base.types import NO_CLUSTER, ClientData, Stacked, Task
from cfljax.federated.average import gradient_step, mean_of_sums, membership
from cfljax.federated.backend import rounded_apart
from cfljax.federated.evaluate import (
    assigned_losses,
    keep_cluster,
    loss_matrix,
)
from cfljax.federated.local_update import (
    client_gradients,
    client_key,
    client_update,
    step_size_at,
    work_alone,
)
from cfljax.federated.robust import mean
from cfljax.federated.sharing import merge_shared, split, with_common
from cfljax.federated.sums import sum_in_clusters
from cfljax.federated.traffic import traffic
from cfljax.federated.training import (
    LocalState,
    Training,
    cohort,
    first_local_state,
    message_bytes,
    moments_of,
    next_local_state,
    round_of,
    shares,
    spread,
)


class Info(NamedTuple):
    """What one round did; nothing here is carried over.

    assignment: cluster each client trained, 0 where there is one model; `NO_CLUSTER`
      for a client that was not asked, has none, or has no finite loss to choose by.
    losses: client losses under the models received, before training, `[clients]` or
      `[clients, clusters]`; NaN for a client that was not asked.
    received: bytes from the server to each client.
    sent: bytes from each client to the server.
    """

    assignment: Int[Array, " clients"]
    losses: Float[Array, "clients *clusters"]
    received: Int[Array, " clients"]
    sent: Int[Array, " clients"]


class Round(NamedTuple):
    """What a round leaves behind.

    models: leaves `[clusters, ...]`.
    local_state: of the local updates.
    assignment: `NO_CLUSTER` for clients that took no part or chose none.
    losses: that decided it, NaN for clients that took no part.
    present: who took part.
    """

    models: Stacked
    local_state: LocalState | None
    assignment: Int[Array, " clients"]
    losses: Float[Array, "clients clusters"]
    present: Bool[Array, " clients"]


Choose = Callable[
    [Float[Array, "participants clusters"], Int[Array, " participants"]],
    Int[Array, " participants"],
]


def train_round(
    key: PRNGKeyArray,
    task: Task,
    state: Any,
    data: ClientData,
    training: Training,
    choose: Choose | Int[Array, " clients"],
    *,
    all_known: Callable[[Int[Array, " participants"]], Bool[Array, ""]] | None = None,
) -> Round:
    """Participants choose clusters, whose members train their models.

    IFCA's Algorithm 2, lines 4-15, with the choice of line 6 left open.

    Args:
      key: of the round, for the participants and their draws.
      task: the learning problem.
      state: with `local_state` and `models`, leaves `[clusters, ...]`, as broadcast;
        leaves that are shared have equal rows, and are evaluated once for all clusters.
      data: all clients' samples.
      training: how models are trained.
      choose: from the participants' losses and indices to their clusters; or clusters
        of all clients, found before, `NO_CLUSTER` for those without one.
      all_known: from the participants' indices to whether `choose` needs no losses;
        they are then NaN and, with option "model", not computed.

    Raises:
      ValueError: if `resample` meets an odd number of samples, or a threat other
        clients or clusters than there are.

    Cost: a forward pass for each participant and model; then a backward pass for each
    (option "gradient", merged over clients), or the participants' local steps (option
    "model"), whose trained models are added up as they come. Where clusters are given
    and messages summed up, option "model" needs no losses: a compiler leaves out the
    forward passes unless somebody looks at `Round.losses`.
    """
    models, local_state = state.models, state.local_state
    num_clients, threat = data.mask.shape[0], training.threat
    check_threat(threat, num_clients, length(models))
    clients, present = cohort(key, data, training.participation)  # line 4
    estimate, train = _halves(present) if training.resample else (present, present)

    settled = None
    if not callable(choose):
        settled = found = choose[clients]
        choose = lambda losses, _: keep_cluster(losses, found)

    def claimed(losses: Array) -> Int[Array, " participants"]:
        chosen = choose(losses, clients)  # line 6
        return chosen if threat is None else threat.claim(chosen, clients)

    now = round_of(local_state)
    setting = _Setting(
        key=key,
        task=task,
        training=training,
        step_size=step_size_at(training.update, training.step_size, now),
        num_clients=num_clients,
        clients=clients,
        train=train,
        estimate=estimate,
        moments=moments_of(local_state, clients),
        choose=claimed,
        settled=settled,
        skip=None if all_known is None else all_known(clients),
        round_index=now,
    )
    own, common = split(models, training.shared)
    common = jax.tree.map(lambda leaf: leaf[0], common)
    average = _average_gradients if training.option == "gradient" else _average_models
    parts, assignment, losses, moments = average(setting, (own, common))
    return Round(
        models=_whole(parts),
        local_state=next_local_state(local_state, clients, moments),
        assignment=spread(assignment, clients, num_clients, absent=NO_CLUSTER),
        losses=spread(losses, clients, num_clients, absent=jnp.nan),
        present=jnp.zeros(num_clients, bool).at[clients].set(True),
    )


_Parts = tuple[Stacked, PyTree]  # What clusters have of their own, and in common.
_Assignment = Int[Array, " participants"]
_Shares = Float[Array, " participants"]
_Averaged = tuple[_Parts, _Assignment, Array, Stacked]


class _Setting(NamedTuple):
    """What is settled before a round: `choose` has clusters as claimed, `settled` those
    that nobody chooses, `skip` leaves out losses; None for never, and for a
    `round_index` that nothing depends on."""

    key: PRNGKeyArray
    task: Task
    training: Training
    step_size: Array
    num_clients: int
    clients: Int[Array, " participants"]
    train: ClientData
    estimate: ClientData
    moments: Stacked
    choose: Callable[[Float[Array, "participants clusters"]], Array]
    settled: Int[Array, " participants"] | None
    skip: Bool[Array, ""] | None
    round_index: Int[Array, ""] | None

    def losses(
        self, parts: _Parts, data: ClientData
    ) -> Float[Array, "participants clusters"]:
        """Losses of the participants under all models."""
        own, common = parts
        chunk = self.training.update.clients_per_chunk
        return loss_matrix(self.task, own, data, common=common, clients_per_chunk=chunk)


def _whole(parts: _Parts) -> Stacked:
    """The models of all clusters, leaves `[clusters, ...]`."""
    own, common = parts
    return own if common is None else merge_shared(own, repeat(common, length(own)))


def _halves(data: ClientData) -> tuple[ClientData, ClientData]:
    """First and second half of every client's samples."""
    num_samples = data.mask.shape[1]
    if num_samples % 2:
        raise ValueError(
            "`resample` needs an even number of samples per client and round, got "
            f"{num_samples}."
        )
    middle = num_samples // 2
    first = jax.tree.map(lambda leaf: leaf[:, :middle], data)
    return first, jax.tree.map(lambda leaf: leaf[:, middle:], data)


# Option I.


def _average_gradients(setting: _Setting, parts: _Parts) -> _Averaged:
    """One gradient step of every cluster model (lines 9, 14): new parts, the
    assignment, the losses that decided it, and the moments."""
    task, training = setting.task, setting.training
    if task.fit is not None:
        raise ValueError(
            "`option='gradient'` takes gradients of the task's `losses`, but this task "
            "trains with dropout, augmentation or batch statistics; use "
            "`option='model'`."
        )
    of_training = lambda parts: setting.losses(parts, setting.train)
    losses, pullback = jax.vjp(of_training, parts)
    if setting.estimate is not setting.train:
        losses = setting.losses(parts, setting.estimate)
    if setting.skip is not None:
        losses = jnp.where(setting.skip, jnp.nan, losses)
    assignment = setting.choose(losses)  # line 6
    if _needs_each_message(training):
        pullback = _gradient_pullback(setting, parts, assignment)
    members = membership(assignment, losses.shape[1])  # line 7
    counts = shares(training, setting.train)
    weights = jnp.where(members, counts[:, None], 0)
    if not _needs_each_message(training):  # One product of all clients' samples.
        weights = rounded_apart(weights)
    by_cluster = training.normalise == "cluster"
    total = jnp.sum(counts)
    if training.normalise == "all":
        total = jnp.asarray(setting.num_clients, counts.dtype)
    own, common = parts
    own = gradient_step(  # lines 9, 14
        own,
        lambda cotangent: (pullback(cotangent)[0][0],),
        weights,
        step_size=setting.step_size,
        total=total,
        per_cluster=by_cluster,
    )
    if common is not None and training.variant == "paper":  # section 4.3
        used = jnp.sum(weights)
        divisor = jnp.where(used > 0, used, 1) if by_cluster else total
        gradient = pullback(weights / divisor)[0][1]
        move = lambda a, g: a - setting.step_size * g
        common = jax.tree.map(move, common, gradient)
    return (own, common), assignment, losses, setting.moments


def _gradient_pullback(
    setting: _Setting, parts: _Parts, assignment: _Assignment
) -> Callable[[Float[Array, "participants clusters"]], tuple[_Parts]]:
    """From weights, all but those of a client's own cluster 0, to the sums of
    gradients: the robust mean of the members' messages times their summed weights."""
    training, (own, common) = setting.training, parts
    models = take(own, jnp.maximum(assignment, 0))
    if training.threat is not None:
        models = training.threat.evaluate(models, setting.clients)
    _, gradients = client_gradients(
        setting.task, models, setting.train, common=common, **training.update.placement
    )
    gradients = _arrived(setting, assignment, gradients, None)
    aggregate = training.aggregate or mean()

    def pullback(weights: Float[Array, "participants clusters"]) -> tuple[_Parts]:
        sums = []
        for part, parted in zip(gradients, (weights.T, _all(weights)), strict=True):

            def one(weights: _Shares, part: Stacked = part) -> PyTree:
                zero = jax.tree.map(lambda leaf: jnp.zeros_like(leaf[0]), part)
                found, total = aggregate(part, weights, zero), jnp.sum(weights)
                # The mean of nobody may be anything; their sum is 0.
                whole = lambda leaf: jnp.where(total > 0, leaf * total, 0)
                return jax.tree.map(whole, found)

            sums.append(jax.lax.map(one, parted) if jax.tree.leaves(part) else part)
        return ((sums[0], jax.tree.map(lambda leaf: leaf[0], sums[1])),)

    return pullback


# Option II.


def _average_models(setting: _Setting, parts: _Parts) -> _Averaged:
    """Members train their cluster's model, which becomes their mean (lines 11, 15), of
    finite models unless it is robust; results as of `_average_gradients`."""
    training = setting.training
    compute = lambda: setting.losses(parts, setting.estimate)
    if setting.skip is None:
        losses = compute()
    else:
        shape = jax.eval_shape(compute)
        nothing = lambda: jnp.full(shape.shape, jnp.nan, shape.dtype)
        losses = jax.lax.cond(setting.skip, nothing, compute)
    assignment = _clusters(setting, parts, losses)  # line 6
    weights = jnp.where(assignment >= 0, shares(training, setting.train), 0)
    own, common = parts
    if _needs_each_message(training):
        sent, moments = _sent_models(setting, parts, assignment)
        parts = _mean_models(setting, parts, sent, assignment, weights)
        return parts, assignment, losses, moments
    train = _member_training(setting)

    def summand(
        shared: tuple, kept: tuple, client: Array, cluster: Array, data: ClientData
    ) -> tuple[_Parts, tuple]:
        """What a member adds to the sums, 0 if it is not finite; its moments, and
        whether it is."""
        key, step_size, own, common = shared
        start, (moments, _) = take(own, cluster), kept
        own_key = client_key(key, client)
        sent, moved = train(own_key, step_size, start, common, moments, data)
        finite = is_finite(sent)
        sent = jax.tree.map(lambda leaf: jnp.where(finite, leaf, 0), sent)
        keep = lambda new, old: jnp.where(finite, new, old)
        return sent, (jax.tree.map(keep, moved, moments), finite)

    sums, (moments, finite) = sum_in_clusters(  # line 11
        summand,
        (setting.key, setting.step_size, own, common),
        (setting.moments, jnp.ones(weights.shape, bool)),
        (setting.clients, jnp.maximum(assignment, 0), setting.train),
        assignment=assignment,
        weights=weights,
        num_clusters=losses.shape[1],
        **training.update.placement,
    )
    members = membership(assignment, losses.shape[1]) & finite[:, None]
    totals = jnp.sum(jnp.where(members, weights[:, None], 0), axis=0)
    own = mean_of_sums(sums[0], totals, empty=own)  # line 15
    if common is not None and training.variant == "paper":  # section 4.3
        row = jax.tree.map(lambda leaf: leaf[None], common)
        means = mean_of_sums(sums[1], jnp.sum(totals)[None], empty=row)
        common = jax.tree.map(lambda leaf: leaf[0], means)
    return (own, common), assignment, losses, moments


def _clusters(
    setting: _Setting, parts: _Parts, losses: Float[Array, "participants clusters"]
) -> _Assignment:
    """The participants' clusters as they claim them. Where these are settled the losses
    are not used: a sum leaves out whatever is not finite, and for single messages every
    participant is asked about its own model only."""
    settled, training = setting.settled, setting.training
    if settled is None:
        return setting.choose(losses)
    if not _needs_each_message(training):
        has_samples = jnp.any(setting.train.mask, axis=1)
        return jnp.where(has_samples, settled, jnp.asarray(NO_CLUSTER, settled.dtype))
    placement, models = training.update.placement, _whole(parts)
    own = assigned_losses(setting.task, models, settled, setting.estimate, **placement)
    return setting.choose(jnp.broadcast_to(own[:, None], losses.shape))


def _member_training(setting: _Setting) -> Callable[..., tuple[_Parts, PyTree]]:
    """What one participant trains: `(its key, step_size, own, common, moments, data) ->
    ((own, common), moments)`, from its cluster's model."""
    task, training = setting.task, setting.training
    trains_common = training.shared is not None and training.variant == "paper"

    def one(
        key: PRNGKeyArray,
        step_size: Array,
        start: PyTree,
        common: PyTree,
        moments: PyTree,
        data: ClientData,
    ) -> tuple[_Parts, PyTree]:
        local = task
        if trains_common:
            start = merge_shared(start, common)
        elif common is not None:
            local = with_common(task, common, training.shared)
        train = client_update(local, training.update, training.num_steps)
        trained, moments = train(key, step_size, start, moments, data)
        if trains_common:
            return split(trained, training.shared), moments
        return (trained, ()), moments

    return one


def _sent_models(
    setting: _Setting, parts: _Parts, assignment: _Assignment
) -> tuple[_Parts, Stacked]:
    """The participants' trained models as they arrive, and the moments they keep; not
    to be weighed without a cluster, where the first is trained, or without samples."""
    training, (own, common) = setting.training, parts
    models = take(own, jnp.maximum(assignment, 0))
    if training.threat is not None:
        models = training.threat.evaluate(models, setting.clients)
    train = _member_training(setting)

    def one(
        shared: tuple, client: Array, model: PyTree, moments: PyTree, data: ClientData
    ) -> tuple[_Parts, PyTree]:
        key, step_size, common = shared
        frozen = training.shared is None or training.variant == "reference"
        learn = lambda own: train(own, step_size, model, common, moments, data)
        nothing = (model, () if frozen else common), moments
        return work_alone(key, client, data, learn, nothing)

    shared = setting.key, setting.step_size, common
    sent, moved = training.update.over_clients(one)(
        shared, setting.clients, models, setting.moments, setting.train
    )
    used = (assignment >= 0) & jnp.any(setting.train.mask, axis=1)
    used = used & finite_rows(sent)
    moments = select(used, moved, setting.moments)
    origin = own, ()
    if jax.tree.leaves(sent[1]):
        origin = own, repeat(common, length(own))
    return _arrived(setting, assignment, sent, origin), moments


def _mean_models(
    setting: _Setting,
    parts: _Parts,
    sent: _Parts,
    assignment: _Assignment,
    weights: _Shares,
) -> _Parts:
    """The robust mean of what each cluster's members sent, kept where there are none;
    without a robust one, the mean of those that are finite."""
    own, common = parts
    aggregate = setting.training.aggregate
    if aggregate is None:
        aggregate, weights = mean(), jnp.where(finite_rows(sent), weights, 0)
    members = membership(assignment, length(own))
    by_cluster = jnp.where(members, weights[:, None], 0)
    of_one = lambda row: aggregate(sent[0], row[0], row[1])
    means = jax.lax.map(of_one, (by_cluster.T, own))
    own = select(jnp.any(by_cluster > 0, axis=0), means, own)
    if jax.tree.leaves(sent[1]):
        used = jnp.any(by_cluster > 0)
        found = aggregate(sent[1], _all(by_cluster)[0], common)
        common = jax.tree.map(lambda a, b: jnp.where(used, a, b), found, common)
    return own, common


# Single messages, of either option.


def _needs_each_message(training: Training) -> bool:
    """Whether single messages are needed, not only their sums."""
    return training.threat is not None or training.aggregate is not None


def _all(weights: Float[Array, "participants clusters"]) -> Float[Array, "1 members"]:
    """Weights of the participants, whatever their cluster."""
    return jnp.sum(weights, axis=1)[None]


def _arrived(
    setting: _Setting, assignment: _Assignment, messages: _Parts, origin: _Parts | None
) -> _Parts:
    """The messages as they arrive, Byzantine clients' among them."""
    threat = setting.training.threat
    if threat is None:
        return messages
    own, now = jax.random.fold_in(setting.key, Stream.ATTACKERS), setting.round_index
    return threat.send(
        own, messages, setting.clients, origin, clusters=assignment, round=now
    )


# Rounds of algorithms that have nothing to choose.


class GlobalState(NamedTuple):
    """All that a round of one model needs.

    model: the global model, leaves without a leading axis.
    local_state: of local updates; None if they need none.
    """

    model: PyTree
    local_state: LocalState | None = None

    __repr__ = summary


def global_start(
    key: PRNGKeyArray, task: Task, training: Training, num_clients: int
) -> GlobalState:
    """A random model and the state before the first round, as FedAvg draws them."""
    (first,) = jax.random.split(key, 1)  # As IFCA with one cluster draws it.
    model = task.init(first)
    local_state = first_local_state(training, repeat(model, 1), num_clients)
    return GlobalState(model, local_state)


def global_round(
    key: PRNGKeyArray,
    task: Task,
    state: GlobalState,
    data: ClientData,
    training: Training,
) -> tuple[GlobalState, Info]:
    """A round of federated averaging: `train_round` with one cluster."""
    models = repeat(state.model, 1)
    one = SimpleNamespace(models=models, local_state=state.local_state)
    everyone = jnp.zeros(data.mask.shape[0], jnp.result_type(int))
    after = train_round(key, task, one, data, training, everyone)
    sizes = message_bytes(training, models)
    received, sent = traffic(sizes, after.present, after.assignment)
    model = jax.tree.map(lambda leaf: leaf[0], after.models)
    info = Info(after.assignment, after.losses[:, 0], received, sent)
    return GlobalState(model, after.local_state), info


def fixed_round(
    key: PRNGKeyArray, task: Task, state: Any, data: ClientData, training: Training
) -> tuple[Round, Info]:
    """Federated averaging inside the `clusters` of a state, found once, `NO_CLUSTER`
    for a client without one. A client is sent the model of its own; its losses under
    all `models` are in the info."""
    after = train_round(key, task, state, data, training, state.clusters)
    sizes = message_bytes(training, state.models)
    received, sent = traffic(sizes, after.present, after.assignment, after.present)
    return after, Info(after.assignment, after.losses, received, sent)


def assigned_round(
    key: PRNGKeyArray, task: Task, state: Any, data: ClientData, training: Training
) -> tuple[Round, Float[Array, " clients"]]:
    """The same with losses under the model of a client's own cluster: the round, and
    the losses before it, NaN for a client that was not asked or has no cluster."""
    # The same key draws the same participants as the round does.
    clients, present = cohort(key, data, training.participation)
    own = state.clusters[clients]
    losses = assigned_losses(
        task, state.models, own, present, **training.update.placement
    )
    after = train_round(key, task, state, data, training, state.clusters)
    return after, spread(losses, clients, data.mask.shape[0], absent=jnp.nan)
