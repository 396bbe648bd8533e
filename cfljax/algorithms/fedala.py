"""FedALA: every client learns how much of the global model to start its training from.

Zhang, Hua, Wang, Song, Xue, Ma, Guan. "FedALA: Adaptive Local Aggregation for
Personalized Federated Learning". AAAI 2023, Algorithm 1. A baseline of CLoVE.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, ScalarLike

from cfljax.base.checks import (
    check_member,
    check_positive,
    check_threat,
    is_traced,
)
from cfljax.base.constructor import constructor
from cfljax.base.describe import summary
from cfljax.base.streams import Stream
from cfljax.base.tree import (
    is_finite,
    length,
    put,
    repeat,
    take,
    trained_part,
    with_trained,
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
from cfljax.federated.answers import check_clients
from cfljax.federated.average import mean_of_sums
from cfljax.federated.evaluate import masked_mean, predict_own
from cfljax.federated.local_update import (
    LocalUpdate,
    batch_at,
    batch_loss,
    client_key,
    client_update,
    first_order,
    schedule,
    step_size_at,
    work_alone,
)
from cfljax.federated.rounds import global_start
from cfljax.federated.sharing import Shared, paths
from cfljax.federated.sums import sum_in_clusters
from cfljax.federated.traffic import traffic
from cfljax.federated.training import (
    LocalState,
    Weights,
    averaging,
    cohort,
    first_local_state,
    message_bytes,
    shares,
    spread,
    train_alone,
)

Answer = Literal["trained", "merged"]


class Own(NamedTuple):
    """What clients keep, a row for each.

    models: leaves `[clients, ...]`, as last trained; what they were sent before that.
    weights: A, leaves `[clients, ...]` in [0, 1], share of the received model in each
      merged leaf; None for other leaves.
    is_new: who has never learned its weights.
    moments: optimiser states, an empty tree if none are kept.
    """

    models: Stacked
    weights: Stacked
    is_new: Bool[Array, "*clients"]
    moments: Stacked


class State(NamedTuple):
    """All that the next round needs.

    model: the global model, leaves without a leading axis.
    own: what clients keep.
    round: rounds that are over.
    """

    model: PyTree
    own: Own
    round: Int[Array, ""]

    __repr__ = summary


class Info(NamedTuple):
    """What one round did; nothing here is carried over.

    assignment: 0 for a client that trained, `NO_CLUSTER` for one that was not asked,
      has no samples, or whose loss or trained model is not finite.
    losses: client losses under the merged models, before training; NaN for a client
      that was not asked.
    epochs: in which each client learned its weights.
    received: bytes from the server to each client: the global model.
    sent: bytes from each client to the server: what it trained, whole.
    """

    assignment: Int[Array, " clients"]
    losses: Float[Array, " clients"]
    epochs: Int[Array, " clients"]
    received: Int[Array, " clients"]
    sent: Int[Array, " clients"]


@constructor
def fedala(
    task: Task,
    *,
    step_size: StepSize,
    adaptive: Shared | None = None,
    weight_step_size: ScalarLike = 1.0,
    sample_share: ScalarLike = 0.8,
    tolerance: ScalarLike = 0.1,
    num_initial_epochs: int = 50,
    num_weight_epochs: int = 1,
    num_steps: int = 1,
    weights: Weights = "samples",
    participation: float = 1.0,
    update: LocalUpdate | None = None,
    answer: Answer = "trained",
    threat: Threat | None = None,
) -> Algorithm:
    """FedAvg of models that clients start from a mixture of their own and the global.

    A participant with model w_i receives w and starts from `w_i + (w - w_i) * A_i` in
    the adaptive leaves, from w in the others and in statistics. Before, it learns A_i
    in [0, 1] by `learn_weights`: on a random slice of its samples, the first time until
    its losses settle, then shortly in each round. A_i starts at 1 and is the client's
    own for good. In the first round w_i is w and nothing is learned.

    A client whose loss or trained model is not finite has no weight, keeps its model
    and moments, and tries again when it is next asked.

    Args:
      task: the learning problem.
      step_size: of local training; may be traced.
      adaptive: from a leaf's name (see `federated.sharing.paths`) to whether it is
        merged. The last layer of `task.layers` if None, which is the paper's p = 1 and
        the two uppermost tensors of the released code; all leaves of a task without.
      weight_step_size: eta, of the learning of A; may be traced. With 0 this is
        FedAvg: A stays 1.
      sample_share: s, share of a client's samples in a slice, in (0, 1]; may be traced.
      tolerance: of the standard deviation of the last 10 losses, the first time; has
        the unit of the losses; may be traced.
      num_initial_epochs: at most, the first time; the paper sets no bound. Weights
        settle after 11 at the earliest.
      num_weight_epochs: every other time.
      num_steps: local steps on the merged model in each round.
      weights: of the clients in the global model.
      participation: fraction of the clients drawn each round; the others keep all that
        is their own.
      update: how clients train; a proximal term holds them near the merged model. The
        learning of A goes through batches of `batch_size` too.
      answer: "trained", each client with its own model after local training; or
        "merged", with what it would start from if it were sent the present global
        model, A as it is. The released code judges merged models too, after learning A
        once more.
      threat: what Byzantine clients do to the models they send.

    Raises:
      ValueError: where an argument is out of its range.

    Cost of a round: that of FedAvg, and the epochs of `learn_weights`. Memory: a model
    and the adaptive part of one for each client, and as much for each participant.
    """
    check_member(Answer, answer=answer)
    check_positive(
        num_initial_epochs=num_initial_epochs, num_weight_epochs=num_weight_epochs
    )
    if not is_traced(sample_share) and not 0 < np.asarray(sample_share) <= 1:
        raise ValueError(f"`sample_share` must be in (0, 1], got {sample_share}.")
    chosen = _adaptive_leaves(task, adaptive)
    training = averaging(step_size, num_steps, weights, participation, update, threat)
    train = client_update(task, training.update, num_steps)

    def first_own(model: PyTree, num_clients: int) -> Own:
        """What clients have before they ever trained: the model that they are sent."""
        models = repeat(model, num_clients)
        local_state = first_local_state(training, models, num_clients)
        return Own(
            models=models,
            weights=jax.tree.map(jnp.ones_like, part_of(models, chosen)),
            is_new=jnp.ones(num_clients, bool),
            moments=() if local_state is None else local_state.moments,
        )

    def init(key: PRNGKeyArray, data: ClientData) -> State:
        model, _ = global_start(key, task, training, data.mask.shape[0])
        own = first_own(model, data.mask.shape[0])
        return State(model, own, jnp.zeros((), jnp.int32))

    def step(key: PRNGKeyArray, state: State, data: ClientData) -> tuple[State, Info]:
        num_clients = data.mask.shape[0]
        check_threat(threat, num_clients, 1)
        clients, present = cohort(key, data, participation)
        received = None  # The global model by all, unless somebody works with another.
        if threat is not None:
            copies = repeat(state.model, clients.shape[0])
            received = threat.evaluate(copies, clients)
        number = lambda value: jnp.asarray(value, jnp.result_type(float))
        size = number(step_size_at(training.update, step_size, state.round))
        rates = Rates(*map(number, (weight_step_size, sample_share, tolerance)))
        shared = key, size, rates, state.model
        apply = training.update.over_clients(one_participant)
        done, losses, epochs, fine = apply(
            shared, clients, take(state.own, clients), received, present
        )
        assignment = jnp.where(fine, 0, jnp.int32(NO_CLUSTER))
        model, assignment = mean_of_sent(
            key, state, done.models, assignment, clients, present
        )
        own = put(state.own, clients, done)
        known = lambda row, absent: spread(row, clients, num_clients, absent=absent)
        assignment = known(assignment, NO_CLUSTER)
        sizes = message_bytes(training, repeat(state.model, 1))
        took_part = jnp.zeros(num_clients, bool).at[clients].set(True)
        received, sent = traffic(sizes, took_part, assignment)
        losses, epochs = known(losses, jnp.nan), known(epochs, 0)
        info = Info(assignment, losses, epochs, received, sent)
        return State(model, own, state.round + 1), info

    def one_participant(
        shared: tuple, client: Array, own: Own, received: PyTree, data: ClientData
    ) -> tuple[Own, Array, Array, Array]:
        """What a participant has after it learned its weights, merged and trained; its
        loss before, its epochs, and whether all is finite; if not it keeps its own."""
        key, step_size, rates, model = shared
        received = model if received is None else received

        def takes_part(own_key: PRNGKeyArray) -> tuple[Own, Array, Array, Array]:
            learned = learn_weights(
                task,
                client_key(jax.random.fold_in(key, Stream.ALGORITHM), client),
                (own.weights, own.is_new),
                own.models,
                received,
                data,
                rates=rates,
                num_epochs=(num_initial_epochs, num_weight_epochs),
                batch_size=training.update.batch_size,
                chosen=chosen,
            )
            start = merged_models(own.models, received, learned.weights, chosen)
            loss = masked_mean(task.losses(start, *data[:2]), data.mask)
            # As FedAvg draws.
            trained, moments = train(own_key, step_size, start, own.moments, data)
            new = Own(trained, learned.weights, learned.is_new, moments)
            fine = is_finite((loss, trained))
            new = jax.tree.map(lambda a, b: jnp.where(fine, a, b), new, own)
            return new, loss, learned.epochs, fine

        loss = jnp.full((), jnp.nan, step_size.dtype)
        nothing = own, loss, jnp.zeros((), jnp.int32), jnp.zeros((), bool)
        return work_alone(key, client, data, takes_part, nothing)

    def mean_of_sent(
        key: PRNGKeyArray,
        state: State,
        trained: Stacked,
        assignment: Int[Array, " participants"],
        clients: Int[Array, " participants"],
        data: ClientData,
    ) -> tuple[PyTree, Int[Array, " participants"]]:
        """The mean of trained models as participants send them, added up in the order
        of `rounds.train_round`, and the assignment as they claim it."""
        origin = repeat(state.model, 1)
        if threat is not None:
            assignment = threat.claim(assignment, clients)
            own = jax.random.fold_in(key, Stream.ATTACKERS)
            trained = threat.send(
                own, trained, clients, origin, clusters=assignment, round=state.round
            )
        weights = jnp.where(assignment >= 0, shares(training, data), 0)
        sums, _ = sum_in_clusters(
            lambda shared, kept, row: ((row, ()), kept),
            (),
            (),
            (trained,),
            assignment=assignment,
            weights=weights,
            num_clusters=1,
            **training.update.placement,
        )
        means = mean_of_sums(sums[0], jnp.sum(weights)[None], empty=origin)
        return jax.tree.map(lambda leaf: leaf[0], means), assignment

    def predict(state: State, data: ClientData, inputs: Array) -> Array:
        models, everyone = state.own.models, jnp.arange(data.mask.shape[0])
        check_clients(length(models), data, inputs)
        if answer == "merged":
            received = repeat(state.model, data.mask.shape[0])
            models = merged_models(models, received, state.own.weights, chosen)
        return predict_own(task, models, everyone, inputs)

    def join(key: PRNGKeyArray, state: State, data: ClientData) -> State:
        fresh = first_own(state.model, data.mask.shape[0])
        when = LocalState(state.round, fresh.moments)
        models, moments = train_alone(key, task, fresh.models, data, training, when)
        return state._replace(own=fresh._replace(models=models, moments=moments))

    return Algorithm(init, step, predict, join)


def _adaptive_leaves(task: Task, adaptive: Shared | None) -> Shared:
    """Which leaves are merged."""
    if adaptive is None:
        return task.layers.is_head if task.layers is not None else lambda name: True
    names = paths(jax.eval_shape(lambda: task.init(jax.random.key(0))))
    if not any(adaptive(name) for name in names):
        raise ValueError(
            f"`adaptive` must be true of a leaf, got none of {', '.join(names)}."
        )
    return adaptive


# Learning how much of the global model to take.


class Rates(NamedTuple):
    """Numbers of the learning of weights, which may be traced: eta, the share of the
    client's samples that it learns from, and the standard deviation of the latest
    losses below which weights have settled."""

    step_size: ScalarLike
    sample_share: ScalarLike
    tolerance: ScalarLike


_RECENT = 10  # Losses that tell whether the weights have settled.


class _Learned(NamedTuple):
    """What learning leaves behind: A, with entries in [0, 1], whether the first time is
    still to come, and the epochs that were taken."""

    weights: PyTree
    is_new: Bool[Array, ""]
    epochs: Int[Array, ""]


def learn_weights(
    task: Task,
    key: PRNGKeyArray,
    before: tuple[PyTree, Bool[Array, ""]],
    local: PyTree,
    received: PyTree,
    data: ClientData,
    *,
    rates: Rates,
    num_epochs: tuple[int, int],
    batch_size: int | None,
    chosen: Shared,
) -> _Learned:
    """One client learns how much of the received model to take, by projected descent

        A <- clip(A - eta grad L(merged(A)) * (received - local), 0, 1)

    over the mini-batches of a random slice of its samples, the models as they are; L is
    the training loss, and a step that is not finite is not taken. `before` has the
    weights, and whether they were never learned: then learning goes on until the
    standard deviation of the last 10 epochs' losses, that of an epoch being its last
    batch's, is below the tolerance, for more than 10 epochs and at most the first of
    `num_epochs`; every other time the second.

    Where both models agree in all chosen leaves there is nothing to learn, and the
    first time is still to come. An epoch takes a forward pass over the slice, and a
    backward pass as far down as the chosen leaves.
    """
    weights, is_new = before
    ours, theirs = part_of(local, chosen), part_of(received, chosen)
    slice_key, order_key, noise_key = jax.random.split(key, 3)
    part = random_slice(slice_key, data.mask, rates.sample_share)
    data = data._replace(mask=part)
    plan = schedule(part, batch_size or part.shape[0])
    equal = jax.tree.map(lambda a, b: jnp.all(a == b), ours, theirs)
    same = jnp.all(jnp.stack(jax.tree.leaves(equal)))
    most = jnp.where(same, 0, jnp.where(is_new, *num_epochs))

    def goes_on(carry: tuple) -> Bool[Array, ""]:
        index, _, _, recent = carry
        done = index // plan.batches
        settled = is_new & (done > _RECENT) & (jnp.std(recent) < rates.tolerance)
        return (done < most) & ~settled & jnp.all(jnp.isfinite(recent))

    def move(carry: tuple) -> tuple:
        index, weights, order, recent = carry
        batch, order = batch_at(order_key, index, order, plan, data)
        noise = jax.random.fold_in(noise_key, index)
        loss = lambda at: batch_loss(task, with_part(received, at), batch, noise)[0]
        value, slope = jax.value_and_grad(loss)(merged(weights, ours, theirs))
        descend = lambda a, d, w, g: _projected(a, rates.step_size * d * (g - w))
        weights = jax.tree.map(descend, weights, slope, ours, theirs)
        is_last = (index + 1) % plan.batches == 0
        recent = jnp.where(is_last, jnp.roll(recent, -1).at[-1].set(value), recent)
        return index + 1, weights, order, recent

    recent = jnp.zeros(_RECENT, jnp.result_type(float))
    start = jnp.zeros((), jnp.int32), weights, first_order(part, plan), recent
    index, weights, _, _ = jax.lax.while_loop(goes_on, move, start)
    return _Learned(weights, is_new & same, index // plan.batches)


def _projected(weights: Array, change: Array) -> Array:
    """A step back onto [0, 1]; none where it is not finite."""
    moved = jnp.clip(weights - change, 0, 1)
    return jnp.where(jnp.isnan(moved), weights, moved)


def random_slice(
    key: PRNGKeyArray, mask: Bool[Array, " samples"], share: ScalarLike
) -> Bool[Array, " samples"]:
    """A run of consecutive real samples that starts anywhere, padding skipped: their
    share, rounded down to a whole number, at least 1."""
    real = jnp.sum(mask, dtype=jnp.int32)
    share = jnp.asarray(share, jnp.result_type(float))
    wanted = jnp.floor(share * real.astype(share.dtype)).astype(jnp.int32)
    number = jnp.maximum(wanted, 1)
    start = jax.random.randint(key, (), 0, real - number + 1, jnp.int32)
    rank = jnp.cumsum(mask, dtype=jnp.int32) - 1
    return mask & (rank >= start) & (rank < start + number)


# Merging.


def merged_models(
    models: PyTree, received: PyTree, weights: PyTree, chosen: Shared
) -> PyTree:
    """Where training starts: merged in the chosen leaves (names of `sharing.paths`),
    received in all others; of one client, or of several with leaves `[clients,
    ...]`."""
    part = merged(weights, part_of(models, chosen), part_of(received, chosen))
    return with_part(received, part)


def part_of(params: PyTree, chosen: Shared) -> PyTree:
    """The trained leaves with chosen names (see `sharing.paths`), None elsewhere."""
    weights = trained_part(params)
    leaves, form = jax.tree.flatten(weights)
    names = zip(paths(weights), leaves, strict=True)
    return form.unflatten([leaf if chosen(name) else None for name, leaf in names])


def with_part(params: PyTree, part: PyTree) -> PyTree:
    """The params with the leaves of a part in place of their own."""
    pick = lambda new, old: old if new is None else new
    is_none = lambda leaf: leaf is None
    weights = jax.tree.map(pick, part, trained_part(params), is_leaf=is_none)
    return with_trained(params, weights)


def merged(weights: PyTree, local: PyTree, received: PyTree) -> PyTree:
    """`local + (received - local) * weights`, entry by entry: exactly `received` where
    a weight is 1, whatever is in `local`, and exactly `local` where it is 0 or where
    both are equal."""
    one = lambda a, w, g: jnp.where(a == 1, g, w + (g - w) * a)
    return jax.tree.map(one, weights, local, received)
