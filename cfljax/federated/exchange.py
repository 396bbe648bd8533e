"""A round of one model, trained by clients that keep something of their own.

What a client keeps and what it sends are the algorithm's; who takes part, who is left
out, who lies and how messages are averaged is the same for all.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, ScalarLike

from cfljax.base.checks import check_threat
from cfljax.base.streams import Stream
from cfljax.base.tree import (
    finite_rows,
    is_finite,
    put,
    repeat,
    take,
    trained_part,
    with_trained,
)
from cfljax.base.types import NO_CLUSTER, ClientData, Stacked
from cfljax.federated.average import mean_of_sums
from cfljax.federated.local_update import client_key
from cfljax.federated.robust import mean
from cfljax.federated.rounds import Info
from cfljax.federated.sums import sum_in_clusters
from cfljax.federated.traffic import num_bytes, single, traffic
from cfljax.federated.training import (
    Training,
    cohort,
    first_local_state,
    shares,
    spread,
)


class Worked(NamedTuple):
    """What one client makes of a round.

    message: to the server, of the form of what messages start from.
    kept: of the form of what it had.
    loss: before it trained.
    """

    message: PyTree
    kept: PyTree
    loss: Float[Array, "*clients"]


# `(shared, key, model, kept, data) -> Worked` of one client with samples. It must not
# close over values that an outer transformation maps: they are in `shared`.
Work = Callable[[Any, PRNGKeyArray, PyTree, PyTree, ClientData], Worked]


class Exchanged(NamedTuple):
    """What a round leaves behind.

    mean: of the messages; what they start from where nobody's counts.
    share: of all clients' weights, that of the messages that count.
    kept: of all clients.
    info: of the round.
    """

    mean: PyTree
    share: Float[Array, ""]
    kept: Stacked
    info: Info


def exchange(
    key: PRNGKeyArray,
    model: PyTree,
    kept: Stacked,
    data: ClientData,
    training: Training,
    work: Work,
    *,
    shared: Any,
    origin: PyTree,
    round_index: Int[Array, ""],
) -> Exchanged:
    """Participants work with the model and what they kept; their messages are averaged.

    A client without samples, or whose message, loss or what it would keep is not
    finite, sends nothing and keeps what it had.

    Args:
      key: of the round, for the participants and their draws.
      model: as broadcast, without a leading axis.
      kept: what clients have of their own, leaves `[clients, ...]`.
      data: all clients' samples.
      training: participation, weights, threat and where clients are computed.
      work: what a participant does.
      shared: given to every participant beside the model.
      origin: what messages start from, for those who lie about them, and their mean
        where there is none. What a participant is sent has as many bytes.
      round_index: rounds that are over.

    Raises:
      ValueError: if a threat is to other clients than there are.

    Cost: `work` of each participant. Memory: what they keep; with a threat a message of
    each besides.
    """
    num_clients, threat = data.mask.shape[0], training.threat
    check_threat(threat, num_clients, 1)
    clients, present = cohort(key, data, training.participation)
    number, is_honest = clients.shape[0], threat is None
    models = messages = ()  # What those who may lie were sent, and send, one by one.
    if threat is not None:
        models = threat.evaluate(repeat(model, number), clients)
        messages = repeat(origin, number)
    weights = shares(training, present)

    def summand(
        shared: tuple, before: tuple, client: Array, own_model: PyTree, data: ClientData
    ) -> tuple[tuple, tuple]:
        key, model, others = shared
        had, message = before[:2]
        received = model if is_honest else own_model
        worked = work(others, client_key(key, client), received, had, data)
        fine = is_finite(worked)
        part = jax.tree.map(lambda leaf: jnp.where(fine, leaf, 0), worked.message)
        keep = lambda new, old: jnp.where(fine, new, old)
        after = jax.tree.map(keep, worked.kept, had)
        value = (part, fine.astype(worked.loss.dtype)) if is_honest else ()
        if not is_honest:
            message = jax.tree.map(keep, worked.message, message)
        return (value, ()), (after, message, worked.loss, fine)

    losses = jnp.full(number, jnp.nan, weights.dtype)
    nobody = jnp.zeros(number, jnp.int32)
    (sums, _), (after, messages, losses, fine) = sum_in_clusters(
        summand,
        (key, model, shared),
        (take(kept, clients), messages, losses, jnp.zeros(number, bool)),
        (clients, models, present),
        assignment=nobody,
        weights=weights,
        num_clusters=1,
        **training.update.placement,
    )
    assignment = jnp.where(fine, 0, jnp.int32(NO_CLUSTER))
    if threat is None:
        total = sums[1][0]
        means = mean_of_sums(sums[0], sums[1], empty=repeat(origin, 1))
        found = jax.tree.map(lambda leaf: leaf[0], means)
    else:
        assignment = threat.claim(assignment, clients)
        lies = jax.random.fold_in(key, Stream.ATTACKERS)
        sent = threat.send(
            lies,
            messages,
            clients,
            repeat(origin, 1),
            clusters=assignment,
            round=round_index,
        )
        weights = jnp.where((assignment >= 0) & finite_rows(sent), weights, 0)
        total = jnp.sum(weights)
        means, is_used = mean()(sent, weights, origin), total > 0
        found = jax.tree.map(lambda a, b: jnp.where(is_used, a, b), means, origin)
    row = lambda values, absent: spread(values, clients, num_clients, absent=absent)
    assignment = row(assignment, NO_CLUSTER)
    took_part = jnp.zeros(num_clients, bool).at[clients].set(True)
    received, sent = traffic(single(num_bytes(origin)), took_part, assignment)
    return Exchanged(
        mean=found,
        share=total / jnp.maximum(jnp.sum(shares(training, data)), 1),
        kept=put(kept, clients, after),
        info=Info(assignment, row(losses, jnp.nan), received, sent),
    )


def work_of_newcomers(
    key: PRNGKeyArray,
    model: PyTree,
    kept: Stacked,
    data: ClientData,
    training: Training,
    work: Work,
    *,
    shared: Any,
) -> Stacked:
    """What clients that never took part keep after the work of one round with a model,
    whoever joins beside them; what they had where any of it is not finite."""

    def one(shared: tuple, client: Array, had: PyTree, data: ClientData) -> PyTree:
        key, model, others = shared

        def after() -> PyTree:
            worked = work(others, client_key(key, client), model, had, data)
            fine = is_finite((worked.kept, worked.loss))
            keep = lambda new, old: jnp.where(fine, new, old)
            return jax.tree.map(keep, worked.kept, had)

        return jax.lax.cond(jnp.any(data.mask), after, lambda: had)

    everyone = jnp.arange(data.mask.shape[0])
    apply = training.update.over_clients(one)
    return apply((key, model, shared), everyone, kept, data)


def first_moments(training: Training, weights: PyTree, num_clients: int) -> Stacked:
    """Optimiser states of clients that never trained, leaves `[clients, ...]`; an empty
    tree if none are kept."""
    state = first_local_state(training, repeat(weights, 1), num_clients)
    return () if state is None else state.moments


def server_step(model: PyTree, mean: PyTree, step_size: ScalarLike) -> PyTree:
    """Weights `(1 - step_size) model + step_size mean`; statistics of the mean."""
    step_size = jnp.asarray(step_size, jnp.result_type(float))
    move = lambda old, new: (1 - step_size) * old + step_size * new
    weights = jax.tree.map(move, trained_part(model), trained_part(mean))
    return with_trained(mean, weights)
