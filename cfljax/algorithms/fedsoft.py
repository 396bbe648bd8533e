"""FedSoft: soft clusters whose centres train through one personal model of each client.

Ruan, Joe-Wong. "FedSoft: Soft Clustered Federated Learning with Proximal Local
Updating". AAAI 2022, Algorithm 1. A client counts under which centre each of its
samples loses least, trains one model held near all centres by these shares, and the
server averages the models in every cluster by them. The paper's abstract and
introduction, and the authors' released code (github.com/ycruan/FedSoft: `clients.py`,
`servers.py`, `solvers.py`), were at hand; numbers of the paper's equations were not.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, ScalarLike

from cfljax.base.constructor import constructor
from cfljax.base.describe import summary
from cfljax.base.streams import Stream
from cfljax.base.tree import finite_rows, put, rows, select, take, trained_part
from cfljax.base.types import NO_CLUSTER, Algorithm, ClientData, Stacked, StepSize, Task
from cfljax.federated.answers import predict_own_model
from cfljax.federated.average import mean_of_sums
from cfljax.federated.backend import everywhere
from cfljax.federated.evaluate import choose_cluster, mean_losses, sample_losses
from cfljax.federated.local_update import (
    LocalUpdate,
    client_update,
    step_size_at,
    training_losses,
    work_alone,
)
from cfljax.federated.rounds import Info
from cfljax.federated.traffic import num_bytes, traffic
from cfljax.federated.training import (
    LocalState,
    Weights,
    averaging,
    cohort,
    first_local_state,
    message_bytes,
    moments_of,
    newcomers_local_state,
    next_local_state,
    round_of,
    shares,
    spread,
    start_models,
    start_own_models,
)


class State(NamedTuple):
    """All that the next round needs.

    models: c, the centres, leaves `[clusters, ...]`.
    personal: w, leaves `[clients, ...]`, one model for each client.
    importance: u, the share of each client's samples that lose least under a centre,
      but `smallest_weight` at least; 0 for a client that was never asked.
    round: rounds that are over.
    local_state: of local updates of the personal models; None if they need none.
    """

    models: Stacked
    personal: Stacked
    importance: Float[Array, "clients clusters"]
    round: Int[Array, ""]
    local_state: LocalState | None = None

    __repr__ = summary


class Seen(NamedTuple):
    """What participants find before they train: their importance, whether any sample
    says something, and their mean losses under the centres, NaN where not asked."""

    importance: Float[Array, "participants clusters"]
    able: Bool[Array, " participants"]
    losses: Float[Array, "participants clusters"]


@constructor
def fedsoft(
    task: Task,
    *,
    num_clusters: int,
    step_size: StepSize,
    penalty: ScalarLike = 0.1,
    smallest_weight: ScalarLike = 1e-4,
    rounds_between: int = 1,
    num_steps: int = 1,
    weights: Weights = "samples",
    participation: float = 1.0,
    update: LocalUpdate | None = None,
) -> Algorithm:
    """Soft clustering with one proximal training of each participant in a round.

    A participant k sets u_ks, the share of its samples whose loss is least under centre
    s, but at least `smallest_weight`, and goes on training its personal model by

        f_k(w) + penalty / 2 sum_s u_ks |w - c_s|^2,

    the centres being those received. The server sets each centre to the mean of the
    participants' models, weighted by u_ks times their samples.

    Args:
      task: the learning problem.
      num_clusters: S, number of centres, at least 1.
      step_size: local step size; may be traced.
      penalty: lambda, not negative; may be traced. With 0 every client trains alone.
      smallest_weight: sigma, that of a centre which no sample is best under; not
        negative, may be traced.
      rounds_between: tau, from one estimate of importance to the next; a participant
        that has none makes one at once.
      num_steps: local steps in each round.
      weights: of the clients beside their importance; "samples" as in the paper.
      participation: fraction of the clients drawn each round, alike for all clusters;
        the others keep what is theirs. The released code draws clients for each cluster
        by their weights in it, and then averages alike.
      update: how clients train. A proximal term of its own would pull to the personal
        model of before.

    Raises:
      ValueError: where an argument is out of its range.

    Answers are those of the personal models. `Info.assignment` is the centre of largest
    importance, and the losses are those under the centres, NaN in a round without an
    estimate.

    All personal models start alike. A newcomer makes an estimate and trains for one
    round, from the centre of its largest importance.

    Cost of a round: for each participant a forward pass for each centre, where
    importance is estimated, and `num_steps` passes. Memory: a model of every client.
    """
    training = averaging(step_size, num_steps, weights, participation, update, None)
    chunk = training.update.clients_per_chunk

    def init(key: PRNGKeyArray, data: ClientData) -> State:
        number = len(data.mask)
        personal = start_own_models(task, key, number, "identical")
        own = jax.random.fold_in(key, Stream.ALGORITHM)
        models = start_models(task, own, num_clusters)
        nothing = jnp.zeros((number, num_clusters), jnp.result_type(float))
        local_state = first_local_state(training, personal, number)
        now = jnp.zeros((), jnp.int32)
        return State(models, personal, nothing, now, local_state)

    def estimate(models: Stacked, data: ClientData) -> Seen:
        losses = sample_losses(task, models, data, clients_per_chunk=chunk)
        kind = jnp.result_type(float)
        means = mean_losses(losses, data.mask).astype(kind)
        best = jax.vmap(choose_cluster)(losses)
        best = jnp.where(data.mask, best, NO_CLUSTER)
        counts = jnp.sum(jax.nn.one_hot(best, num_clusters, dtype=kind), axis=1)
        total = jnp.sum(counts, axis=1, keepdims=True)
        importance = counts / jnp.maximum(total, 1)
        floor = jnp.asarray(smallest_weight, kind)
        importance = jnp.where(total > 0, jnp.maximum(importance, floor), 0)
        return Seen(importance, total[:, 0] > 0, means)

    def seen_by(
        state: State, clients: Int[Array, " participants"], present: ClientData
    ) -> Seen:
        """What is estimated, or else remembered."""
        old = state.importance[clients]
        known = jnp.any(old > 0, axis=1)

        def again() -> Seen:
            found = estimate(state.models, present)
            # A client that says nothing keeps what it said.
            kept = jnp.where(found.able[:, None], found.importance, old)
            return found._replace(importance=kept)

        if rounds_between == 1:
            return again()
        unknown = ~known & jnp.any(present.mask, axis=1)
        due = (state.round % rounds_between == 0) | jnp.any(unknown)
        unasked = Seen(old, known, jnp.full_like(old, jnp.nan))
        return jax.lax.cond(due, again, lambda: unasked)

    def step(key: PRNGKeyArray, state: State, data: ClientData) -> tuple[State, Info]:
        number = len(data.mask)
        clients, present = cohort(key, data, training.participation)
        seen = seen_by(state, clients, present)
        before = take(state.personal, clients)
        trained, moved = train(key, state, before, seen.importance, clients, present)
        usable = seen.able & finite_rows(trained)
        kept = select(usable, trained, before)
        moments = select(usable, moved, moments_of(state.local_state, clients))
        share = jnp.where(usable, shares(training, present), 0)
        share = share[:, None] * seen.importance
        sums = jax.tree.map(lambda leaf: _added(share, leaf), kept)
        totals = everywhere(functools.partial(jnp.sum, axis=0))(share)
        models = mean_of_sums(sums, totals, empty=state.models)
        best = jnp.where(usable, jnp.argmax(seen.importance, axis=1), NO_CLUSTER)
        assignment = spread(best, clients, number, absent=NO_CLUSTER)
        sizes = message_bytes(training, state.models)
        answer = sizes.one_model + num_bytes(seen.importance[0])
        everyone = jnp.zeros(number, bool).at[clients].set(True)
        received, sent = traffic(sizes._replace(answer=answer), everyone, assignment)
        losses = spread(seen.losses, clients, number, absent=jnp.nan)
        after = State(
            models,
            put(state.personal, clients, kept),
            put(state.importance, clients, seen.importance),
            state.round + 1,
            next_local_state(state.local_state, clients, moments),
        )
        return after, Info(assignment, losses, received, sent)

    def train(
        key: PRNGKeyArray,
        state: State,
        starts: Stacked,
        importance: Float[Array, "participants clusters"],
        clients: Int[Array, " participants"],
        data: ClientData,
    ) -> tuple[Stacked, Stacked]:
        """Personal models of participants, and moments, after local training."""

        def one(
            shared: tuple,
            client: Array,
            model: PyTree,
            moments: PyTree,
            importance: Array,
            data: ClientData,
        ) -> tuple[PyTree, PyTree]:
            key, step_size, penalty, models = shared
            local = near_centres(task, models, importance, penalty)
            step = client_update(local, training.update, num_steps)
            learn = lambda own: step(own, step_size, model, moments, data)
            return work_alone(key, client, data, learn, (model, moments))

        size = step_size_at(training.update, step_size, round_of(state.local_state))
        strength = jnp.asarray(penalty, importance.dtype)
        shared = key, size, strength, state.models
        moments = moments_of(state.local_state, clients)
        apply = training.update.over_clients(one)
        return apply(shared, clients, starts, moments, importance, data)

    def join(key: PRNGKeyArray, state: State, data: ClientData) -> State:
        number = len(data.mask)
        seen = estimate(state.models, data)
        starts = take(state.models, jnp.argmax(seen.importance, axis=1))
        kept = newcomers_local_state(training, state.local_state, starts, number)
        fresh = State(state.models, starts, seen.importance, state.round, kept)
        everyone = jnp.arange(number)
        trained, _ = train(key, fresh, starts, seen.importance, everyone, data)
        usable = seen.able & finite_rows(trained)
        return fresh._replace(personal=select(usable, trained, starts))

    return Algorithm(init, step, predict_own_model(task, "personal"), join)


@everywhere
def _added(share: Float[Array, "participants clusters"], leaf: Array) -> Array:
    """Rows of a leaf added up with their shares in each cluster."""
    return jnp.einsum("ks,k...->s...", share, leaf, precision="highest")


def near_centres(
    task: Task,
    models: Stacked,
    importance: Float[Array, " clusters"],
    penalty: ScalarLike,
) -> Task:
    """The task whose losses have `penalty / 2 sum_s u_s |w - c_s|^2` added, but for a
    constant: the distance to the weighted mean of the centres' weights, times the sum
    of the u_s, has the same gradient."""
    total = jnp.sum(importance)
    strength = jnp.asarray(penalty, total.dtype) * total / 2
    shares = importance / jnp.where(total > 0, total, 1)

    def middle(leaf: Array) -> Array:
        # A centre without importance counts for nothing, not even NaN.
        each = jnp.where(rows(shares > 0, leaf), rows(shares, leaf) * leaf, 0)
        return jnp.sum(each, axis=0)

    anchor = jax.tree.map(middle, trained_part(models))

    def pull(params: PyTree) -> Float[Array, ""]:
        apart = lambda w, c: jnp.sum(jnp.square(w - c))
        squares = jax.tree.leaves(jax.tree.map(apart, trained_part(params), anchor))
        return strength * sum(squares[1:], squares[0])

    def fit(
        key: PRNGKeyArray, params: PyTree, *batch: Array
    ) -> tuple[Float[Array, " samples"], PyTree]:
        losses, after = training_losses(task, key, params, ClientData(*batch))
        return losses + pull(params), after

    return task._replace(fit=fit)
