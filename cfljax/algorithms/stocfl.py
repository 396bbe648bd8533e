"""StoCFL: clusters that grow by merging as clients are seen, beside one global model.

Zeng, Hu, Liu, Yu, Wang, Xu. "Stochastic Clustered Federated Learning". 2023,
arXiv:2303.00897. Of its text only the abstract could be opened. The steps below are
those of the authors' released code, `StoCFL-FCC+CFL.py` and `trainer.py`: (1) a client
that is seen for the first time tells which way an anchor model moves on its samples;
(2) clusters of participants that point the same way are merged; (3) each trains its
model, held near the global one, which (4) all participants train besides.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, ScalarLike

from cfljax.base.checks import check_positive
from cfljax.base.constructor import constructor
from cfljax.base.describe import summary
from cfljax.base.streams import Stream
from cfljax.base.tree import (
    finite_rows,
    nonzero_rows,
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
from cfljax.clustering.gram import combine
from cfljax.federated.answers import check_clients
from cfljax.federated.average import means_of_members
from cfljax.federated.backend import everywhere
from cfljax.federated.evaluate import client_losses, predict_own
from cfljax.federated.local_update import (
    ClientUpdate,
    LocalUpdate,
    client_update,
    held_near,
)
from cfljax.federated.rounds import GlobalState, global_round, global_start
from cfljax.federated.traffic import num_bytes
from cfljax.federated.training import (
    LocalState,
    Training,
    Weights,
    averaging,
    cohort,
    first_local_state,
    newcomers_local_state,
    next_local_state,
    round_of,
    shares,
    spread,
    train_alone,
)


class State(NamedTuple):
    """All that the next round needs, and what newcomers are compared with.

    model: omega, the global model, leaves without a leading axis.
    anchor: the model that everybody's direction is found with, likewise.
    models: theta, leaves `[clients, ...]`, the model of each client's cluster; without
      meaning for a client that was not seen yet.
    members: who is in whose cluster; a client that was not seen is alone.
    seen: clients that told their directions, which have finite ones.
    directions: Psi, leaves `[clients, ...]` of what is trained: what the anchor loses
      on the way to what a client makes of it.
    local_state: of local updates of the global model; None if they need none.
    cluster_state: of those of the clusters' models, likewise.
    """

    model: PyTree
    anchor: PyTree
    models: Stacked
    members: Bool[Array, "clients clients"]
    seen: Bool[Array, " clients"]
    directions: Stacked
    local_state: LocalState | None = None
    cluster_state: LocalState | None = None

    __repr__ = summary


class Info(NamedTuple):
    """What one round did; nothing here is carried over.

    assignment: the client's cluster after the round's merges, called by the lowest of
      its members; `NO_CLUSTER` for a client that was not asked, has no finite direction
      or no finite loss.
    losses: client losses under their cluster's model, before training; NaN for a client
      that was not asked.
    common_losses: those under the global model, likewise.
    number: clusters of the clients that were seen so far.
    received: bytes from the server to each client: its cluster's model and the global
      one; the first time the anchor besides.
    sent: bytes from each client to the server: both, trained; the first time its
      direction besides.
    """

    assignment: Int[Array, " clients"]
    losses: Float[Array, " clients"]
    common_losses: Float[Array, " clients"]
    number: Int[Array, ""]
    received: Int[Array, " clients"]
    sent: Int[Array, " clients"]


@constructor
def stocfl(
    task: Task,
    *,
    step_size: StepSize,
    similarity: ScalarLike,
    penalty: ScalarLike = 0.05,
    num_steps: int = 1,
    anchor_step_size: StepSize | None = None,
    num_anchor_steps: int = 1,
    weights: Weights = "clients",
    participation: float = 1.0,
    update: LocalUpdate | None = None,
    threat: Threat | None = None,
) -> Algorithm:
    """Clusters of unknown number, each near one global model, of a sample of clients.

    Every client begins as a cluster of its own. In a round the clusters of participants
    are compared, each by the mean of its participants' directions. Where the cosine of
    two is not below `similarity` they become one, and so do chains of such pairs; what
    was merged is never parted. A merged cluster goes on with the model of that of its
    parts which has most members that were seen before, the first of several; a cluster
    of clients never seen before with the global model. Then participants train

        theta <- theta - step (grad F_i(theta) + penalty (theta - omega)),

    omega being the global model received, and, apart from that, omega itself; means of
    both are taken over the cluster's and over all participants.

    Args:
      task: the learning problem.
      step_size: of both models; may be traced.
      similarity: tau, the least cosine of clusters that are merged, in [-1, 1]; may be
        traced. With -1 all participants are one cluster, with 1 nobody is merged but
        clients of equal direction. The released commands have .2 and .65: no value
        suits two data sets.
      penalty: lambda, not negative; may be traced. With 0 clusters train by themselves.
      num_steps: local steps in each round, on both models.
      anchor_step_size: `step_size` if None.
      num_anchor_steps: full-batch steps that a direction is made of. With 1 it is a
        gradient, whatever the step size.
      weights: of the clients in both means, "clients" as in the released code.
      participation: fraction of the clients drawn each round.
      update: how clients train both models; its proximal term is of the global one
        alone, `penalty` takes its place in clusters.
      threat: what Byzantine clients do to the models of both kinds that they send;
        their directions are honest.

    Raises:
      ValueError: where an argument is out of its range.

    A newcomer tells its direction. If the cosine with the mean direction of the seen
    members of a cluster is not below `similarity`, it answers with the model of the
    cluster where it is largest; if there is none, with a model that it trains alone for
    one round from the global one, held near it.

    Cost: `init` computes the directions of all clients, which bytes are counted for
    when they are first asked. A round is a forward pass and the local steps on two
    models for each participant, the products of all pairs of their directions, and
    those of all clients with the participants' models. Memory: a model and a direction
    of every client, and a model of every participant.
    """
    check_positive(num_anchor_steps=num_anchor_steps)
    training = averaging(step_size, num_steps, weights, participation, update, threat)
    own_update = dataclasses.replace(training.update, proximal=0.0)
    near_training = dataclasses.replace(training, update=own_update)
    observing = Training(
        step_size=step_size if anchor_step_size is None else anchor_step_size,
        num_steps=num_anchor_steps,
        update=LocalUpdate(**training.update.placement),
    )

    def directions_of(
        key: PRNGKeyArray, anchor: PyTree, data: ClientData
    ) -> tuple[Stacked, Bool[Array, " clients"]]:
        """Psi of every client, and who has one: 0 of a client without samples, or whose
        own is not finite."""
        anchors = repeat(anchor, data.mask.shape[0])
        moved, _ = train_alone(key, task, anchors, data, observing)
        moves = jax.tree.map(jnp.subtract, *map(trained_part, (anchors, moved)))
        usable = jnp.any(data.mask, axis=1) & finite_rows(moves)
        return select(usable, moves, jax.tree.map(jnp.zeros_like, moves)), usable

    def init(key: PRNGKeyArray, data: ClientData) -> State:
        num_clients = data.mask.shape[0]
        model, local_state = global_start(key, task, training, num_clients)
        models = repeat(model, num_clients)
        return State(
            model=model,
            anchor=model,
            models=models,
            members=jnp.eye(num_clients, dtype=bool),
            seen=jnp.zeros(num_clients, bool),
            directions=directions_of(key, model, data)[0],
            local_state=local_state,
            cluster_state=first_local_state(training, models, num_clients),
        )

    def step(key: PRNGKeyArray, state: State, data: ClientData) -> tuple[State, Info]:
        num_clients = data.mask.shape[0]
        clients, present = cohort(key, data, participation)
        own = take(state.directions, clients)
        known = jnp.any(present.mask, axis=1) & nonzero_rows(own)
        merged = _merged(state, own, known, clients, similarity)
        # The same key draws the same participants for the global model.
        common = GlobalState(state.model, state.local_state)
        after, told = global_round(key, task, common, data, training)
        starts = take(merged.models, clients)
        if threat is not None:
            starts = threat.evaluate(starts, clients)
        losses = client_losses(task, starts, present, **training.update.placement)
        trained, moments = trained_near(
            key, starts, state.model, present, state.cluster_state, clients
        )
        names = jnp.argmax(merged.members, axis=1).astype(jnp.int32)
        if threat is not None:
            own_key = jax.random.fold_in(key, Stream.ALGORITHM)
            trained = threat.send(
                jax.random.fold_in(own_key, Stream.ATTACKERS),
                trained,
                clients,
                merged.models,
                clusters=names[clients],
                round=round_of(state.cluster_state),
            )
        usable = known & jnp.isfinite(losses) & finite_rows(trained)
        weight = jnp.where(usable, shares(training, present), 0)
        inside = merged.members[:, clients]
        models = means_of_members(inside, weight, trained, empty=merged.models)
        if state.cluster_state is not None and jax.tree.leaves(moments):
            before = take(state.cluster_state.moments, clients)
            moments = select(usable, moments, before)
        everybody = lambda some, rest: spread(some, clients, num_clients, absent=rest)
        is_new = everybody(known, False) & ~state.seen
        first = is_new.astype(jnp.int32)
        counted = everybody(usable, False)
        size = num_bytes(state.model)
        direction = num_bytes(trained_part(state.model))
        answer = size * counted.astype(jnp.int32) + direction * first
        new = merged._replace(
            model=after.model,
            models=models,
            local_state=after.local_state,
            cluster_state=next_local_state(state.cluster_state, clients, moments),
        )
        info = Info(
            assignment=jnp.where(counted, names, NO_CLUSTER),
            losses=everybody(losses, jnp.nan),
            common_losses=told.losses,
            number=jnp.sum(
                merged.seen & (names == jnp.arange(num_clients, dtype=jnp.int32))
            ),
            received=2 * told.received + size * first,
            sent=told.sent + answer,
        )
        return new, info

    def trained_near(
        key: PRNGKeyArray,
        models: Stacked,
        model: PyTree,
        data: ClientData,
        before: LocalState | None,
        clients: Int[Array, " participants"] | None,
    ) -> tuple[Stacked, Stacked]:
        """What clients make of their cluster's models, held near the global one, and
        their moments."""

        def held(shared: tuple[Array, PyTree]) -> ClientUpdate:
            penalty, anchor = shared
            optimizer = own_update.optimizer
            near = lambda size: held_near(optimizer(size), anchor, penalty)
            update = dataclasses.replace(own_update, optimizer=near)
            return client_update(task, update, num_steps)

        goal = jnp.asarray(penalty, jnp.result_type(float)), trained_part(model)
        return train_alone(
            key,
            task,
            models,
            data,
            near_training,
            before,
            clients,
            shared=goal,
            train_by=held,
        )

    def predict(state: State, data: ClientData, inputs: Array) -> Array:
        num_clients = state.seen.shape[0]
        check_clients(num_clients, data, inputs)
        models = select(state.seen, state.models, repeat(state.model, num_clients))
        return predict_own(task, models, jnp.arange(num_clients), inputs)

    def join(key: PRNGKeyArray, state: State, data: ClientData) -> State:
        number = data.mask.shape[0]
        directions, known = directions_of(key, state.anchor, data)
        ours = _mean_directions(state.members, state.directions, state.seen)
        towards = cosines(directions, ours)
        towards = jnp.where(known[:, None] & state.seen[None, :], towards, -jnp.inf)
        nearest = jnp.argmax(towards, axis=1)
        joins = jnp.max(towards, axis=1) >= jnp.asarray(similarity, towards.dtype)
        starts = repeat(state.model, number)
        fresh = newcomers_local_state(training, state.cluster_state, starts, number)
        alone, _ = trained_near(key, starts, state.model, data, fresh, None)
        return state._replace(
            models=select(joins, take(state.models, nearest), alone),
            members=jnp.eye(number, dtype=bool),
            seen=known,
            directions=directions,
            cluster_state=fresh,
        )

    return Algorithm(init, step, predict, join)


# Step 2: clusters.


def _mean_directions(
    members: Bool[Array, "clients others"],
    directions: Stacked,
    counted: Bool[Array, " others"],
) -> Stacked:
    """Mean direction of those of the others that are in each client's cluster and
    counted; 0 where there are none."""
    each = (members & counted[None, :]).astype(jnp.result_type(float))
    total = jnp.maximum(jnp.sum(each, axis=1), 1)
    return everywhere(combine)(each * (1 / total)[:, None], directions)


def _merged(
    state: State,
    directions: Stacked,
    known: Bool[Array, " participants"],
    clients: Int[Array, " participants"],
    similarity: ScalarLike,
) -> State:
    """The state after the merges among clusters of participants, whose directions are
    given, `known` telling who has one; members of a cluster have the same model."""
    before = state.members[clients][:, clients]
    means = _mean_directions(before, directions, known)
    towards = cosines(means, means)
    near = towards >= jnp.asarray(similarity, towards.dtype)
    near = near & known[:, None] & known[None, :]
    linked = state.members.at[clients[:, None], clients[None, :]].max(near)
    members = _connected(linked)
    sizes = jnp.sum(state.members & state.seen[None, :], axis=1)
    sizes = jnp.where(state.seen, sizes, 0)
    donor = jnp.argmax(jnp.where(members, sizes[None, :], -1), axis=1)
    has_model = jnp.any(members & state.seen[None, :], axis=1)
    models = take(state.models, donor)
    start = repeat(state.model, members.shape[0])
    return state._replace(
        models=select(has_model, models, start),
        members=members,
        seen=state.seen.at[clients].max(known),
    )


def _connected(
    linked: Bool[Array, "clients clients"],
) -> Bool[Array, "clients clients"]:
    """Who is reached from whom by links, which are mutual and of everybody to itself:
    the lowest name is passed on until nobody has a lower neighbour."""
    number = linked.shape[0]
    lowest = lambda names: jnp.min(jnp.where(linked, names[None, :], number), axis=1)
    goes_on = lambda pair: jnp.any(pair[0] != pair[1])
    start = jnp.arange(number)
    pass_on = lambda pair: (pair[1], lowest(pair[1]))
    names, _ = jax.lax.while_loop(goes_on, pass_on, (start, lowest(start)))
    return names[:, None] == names[None, :]
