"""Mixtures: clients whose every sample belongs to all models, each with a share.

Expectation maximisation with weights of its own on every client and models in common:
responsibilities from the losses, weights from the responsibilities, and models trained
on losses that count by them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from cfljax.base.describe import summary
from cfljax.base.tree import is_finite, length, put
from cfljax.base.types import NO_CLUSTER, ClientData, Stacked, Task
from cfljax.federated.answers import Join
from cfljax.federated.average import mean_of_sums
from cfljax.federated.evaluate import mean_losses, sample_losses
from cfljax.federated.local_update import (
    client_key,
    client_update,
    step_size_at,
    weighted,
)
from cfljax.federated.rounds import Info
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
    start_models,
)

# Of a newcomer, which takes none of them with its models: their losses are known. The
# likelihood is concave in the weights alone, so that any start leads to its maximum.
_NEWCOMERS_STEPS = 100

LogWeights = Float[Array, "clients clusters"]
Samples = Float[Array, "clients samples clusters"]
Shift = Callable[[ClientData], Samples]


class MixtureState(NamedTuple):
    """All that the next round needs.

    models: of the components, leaves `[clusters, ...]`.
    log_weights: logarithms of each client's weights of the components.
    local_state: of local updates, whose moments have leaves `[clients, clusters, ...]`;
      None if they need none.
    """

    models: Stacked
    log_weights: LogWeights
    local_state: LocalState | None = None

    __repr__ = summary


class MixtureRound(NamedTuple):
    """What a round leaves behind.

    state: for the next one.
    info: its losses are those under every component; who takes part is assigned the
      component of largest weight.
    clients: indices of the participants.
    present: their samples.
    responsibilities: of the components for each sample of the participants; 0 for
      padding, and where no loss is finite.
    """

    state: MixtureState
    info: Info
    clients: Int[Array, " participants"]
    present: ClientData
    responsibilities: Float[Array, "participants samples clusters"]


def mixture_start(
    key: PRNGKeyArray,
    task: Task,
    training: Training,
    num_clusters: int,
    num_clients: int,
) -> MixtureState:
    """Independent random models, and equal weights everywhere."""
    models = start_models(task, key, num_clusters)
    local_state = first_local_state(training, models, num_clients)
    if local_state is not None:
        of_each = lambda leaf: jnp.repeat(leaf[:, None], num_clusters, axis=1)
        moments = jax.tree.map(of_each, local_state.moments)
        local_state = local_state._replace(moments=moments)
    return MixtureState(models, equal_weights(num_clients, num_clusters), local_state)


def equal_weights(num_clients: int, num_clusters: int) -> LogWeights:
    """Logarithms of them."""
    kind = jnp.result_type(float)
    return jnp.full((num_clients, num_clusters), -jnp.log(num_clusters), kind)


def expectation(
    log_weights: LogWeights, losses: Samples, mask: Bool[Array, "clients samples"]
) -> tuple[Samples, LogWeights]:
    """Logarithms of the responsibilities `q_j ~ pi_j exp(-loss_j)` of every sample, and
    of the weights that they make, `pi_j = mean q_j` over a client's samples.

    Logarithms, because losses of some hundreds leave no digit of the smaller share. A
    loss that is not finite takes no share. A sample without any finite loss has no
    shares and counts nowhere, as padding; a client of such samples keeps its weights.
    """
    usable = mask[:, :, None] & jnp.isfinite(losses)
    scores = jnp.where(usable, log_weights[:, None, :] - losses, -jnp.inf)
    total = jax.nn.logsumexp(scores, axis=2, keepdims=True)
    used = jnp.isfinite(total)
    responsibilities = jnp.where(used, scores - jnp.where(used, total, 0), -jnp.inf)
    count = jnp.sum(used, axis=1, dtype=losses.dtype)
    sums = jax.nn.logsumexp(responsibilities, axis=1)
    after = jnp.where(count > 0, sums - jnp.log(jnp.maximum(count, 1)), log_weights)
    return responsibilities, after


def mixture_round(
    key: PRNGKeyArray,
    task: Task,
    state: Any,
    data: ClientData,
    training: Training,
    shift: Shift | None = None,
) -> MixtureRound:
    """Participants weigh all models, train all of them, and the server averages each.

    Args:
      key: of the round. All components of a client go through the same batches.
      task: the learning problem.
      state: with the fields of a `MixtureState`.
      data: all clients' samples.
      training: how models are trained.
      shift: from samples to what is added to their losses before they are weighed.

    Cost: a forward pass for each participant and model, and the participants' local
    steps of every model, which are added up as they come.
    """
    models, before = state.models, state.local_state
    num_clients, update = len(data.mask), training.update
    clients, present = cohort(key, data, training.participation)
    chunk = update.clients_per_chunk
    losses = sample_losses(task, models, present, clients_per_chunk=chunk)
    shifted = losses if shift is None else losses + shift(present)
    logs, log_weights = expectation(state.log_weights[clients], shifted, present.mask)
    responsibilities = jnp.exp(logs)
    able = jnp.any(responsibilities > 0, axis=(1, 2))
    weights = jnp.where(able, shares(training, present), 0)

    def summand(
        shared: tuple, kept: tuple, client: Array, data: ClientData, rows: Array
    ) -> tuple[tuple[Stacked, tuple], tuple]:
        """What a client adds to the sums, 0 for a model that is not finite; its
        moments, and which models are."""
        key, step_size, models = shared
        own_key = client_key(key, client)

        def one(component: tuple) -> tuple[PyTree, PyTree, Array]:
            start, moments, rows = component
            local, samples = weighted(task, data, rows)
            train = client_update(local, update, training.num_steps)
            sent, moved = train(own_key, step_size, start, moments, samples)
            finite = is_finite(sent)
            sent = jax.tree.map(lambda leaf: jnp.where(finite, leaf, 0), sent)
            keep = lambda new, old: jnp.where(finite, new, old)
            return sent, jax.tree.map(keep, moved, moments), finite

        sent, moments, finite = jax.lax.map(one, (models, kept[0], rows.T))
        return (sent, ()), (moments, finite)

    step_size = step_size_at(update, training.step_size, round_of(before))
    finite = jnp.ones(log_weights.shape, bool)
    (sums, _), (moments, finite) = sum_in_clusters(
        summand,
        (key, step_size, models),
        (moments_of(before, clients), finite),
        (clients, present, responsibilities),
        assignment=jnp.zeros(clients.shape, jnp.int32),  # All into one sum.
        weights=weights,
        num_clusters=1,
        **update.placement,
    )
    totals = jnp.sum(jnp.where(finite, weights[:, None], 0), axis=0)
    sums = jax.tree.map(lambda leaf: leaf[0], sums)
    largest = jnp.where(able, jnp.argmax(log_weights, axis=1), NO_CLUSTER)
    means = mean_losses(losses, present.mask)
    assignment = spread(largest, clients, num_clients, absent=NO_CLUSTER)
    losses = spread(means, clients, num_clients, absent=jnp.nan)
    sizes = message_bytes(training, models)
    sizes = sizes._replace(answer=sizes.all_models)
    everyone = jnp.zeros(num_clients, bool).at[clients].set(True)
    after = MixtureState(
        mean_of_sums(sums, totals, empty=models),
        put(state.log_weights, clients, log_weights),
        next_local_state(before, clients, moments),
    )
    info = Info(assignment, losses, *traffic(sizes, everyone, assignment))
    return MixtureRound(after, info, clients, present, responsibilities)


def join_mixture(
    task: Task,
    clients_per_chunk: int | None = None,
    shift: Callable[[Any, ClientData], Samples] | None = None,
) -> Join:
    """A newcomer finds the weights that suit its samples best, from equal ones, and
    trains nothing; `shift` is that of a round, from the state and samples."""

    def join(key: PRNGKeyArray, state: Any, data: ClientData) -> Any:
        del key
        losses = sample_losses(
            task, state.models, data, clients_per_chunk=clients_per_chunk
        )
        if shift is not None:
            losses = losses + shift(state, data)
        again = lambda _, found: expectation(found, losses, data.mask)[1]
        start = equal_weights(len(data.mask), length(state.models))
        found = jax.lax.fori_loop(0, _NEWCOMERS_STEPS, again, start)
        return state._replace(log_weights=found)

    return join
