"""EMD-CFL: clients are clustered once, by how far their features are to be moved.

Zhang, Williams, Toni. "Clustered Federated Learning via Embedding Distributions". 2025,
arXiv:2506.07769. Of its text the abstract and a review that has its definitions could
be opened; the steps below are those of `Trainer.fit_emdcfl` of a copy of the authors'
code. (1) Every client trains the common start alone. (2) With its own features it
compares what it trained on with samples that others held out, by the earth mover's
distance. (3) Clients are neighbours where either finds the other's samples hardly
further than its own; clients with the same neighbours are a cluster. Then (4) FedAvg
among neighbours, all from one start. The clustering is never corrected.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, ScalarLike

from cfljax.base.checks import check_positive, check_threat
from cfljax.base.constructor import constructor
from cfljax.base.describe import summary
from cfljax.base.streams import Stream
from cfljax.base.tree import finite_rows, length, repeat, select, take
from cfljax.base.types import (
    NO_CLUSTER,
    Algorithm,
    ClientData,
    Stacked,
    StepSize,
    Task,
    Threat,
)
from cfljax.clustering.distances import match_clusters
from cfljax.federated.answers import join_best_model, predict_own_model
from cfljax.federated.average import means_of_members
from cfljax.federated.evaluate import client_losses
from cfljax.federated.local_update import LocalUpdate
from cfljax.federated.prototypes import layers_of
from cfljax.federated.rounds import global_start
from cfljax.federated.traffic import num_bytes, single, traffic
from cfljax.federated.training import (
    LocalState,
    Weights,
    averaging,
    cohort,
    first_local_state,
    next_local_state,
    shares,
    spread,
    train_alone,
)


class State(NamedTuple):
    """All that the next round needs.

    models: leaves `[clients, ...]`, the mean of each client's neighbours.
    neighbours: who is near whom, mutually; a client is its own neighbour unless it has
      no samples or its solution is not finite.
    round: rounds that are over.
    local_state: of local updates; None if they need none.
    """

    models: Stacked
    neighbours: Bool[Array, "clients clients"]
    round: Int[Array, ""]
    local_state: LocalState | None = None

    __repr__ = summary


class Info(NamedTuple):
    """What one round did; nothing here is carried over.

    assignment: the client's cluster, called by the lowest of its members; `NO_CLUSTER`
      if it was not asked, has no neighbours or its loss or its trained model is not
      finite.
    losses: under the model received, before training; NaN for a client that was not
      asked.
    found: clusters of clients with neighbours.
    received: bytes from the server to each client: one model; in the first round
      besides held-out points of all clients.
    sent: bytes from each client to the server: one model; in the first round besides
      its held-out points and its distances.
    """

    assignment: Int[Array, " clients"]
    losses: Float[Array, " clients"]
    found: Int[Array, ""]
    received: Int[Array, " clients"]
    sent: Int[Array, " clients"]


@constructor
def emd_cfl(
    task: Task,
    *,
    step_size: StepSize,
    tolerance: ScalarLike,
    num_points: int = 64,
    num_local_steps: int | None = None,
    num_steps: int = 1,
    weights: Weights = "samples",
    participation: float = 1.0,
    update: LocalUpdate | None = None,
    threat: Threat | None = None,
) -> Algorithm:
    """FedAvg among clients whose features each other's networks find alike.

    Every second sample of a client is held out while it trains alone, then W_ij is the
    earth mover's distance, of cosine distances between features of client i's network,
    from the samples that it trained on to those that client j held out. Clients i and j
    are neighbours where `W_ij - W_ii < tolerance` and `W_ji - W_jj < tolerance`. A
    client's model is the mean of its neighbours' trained ones; where neighbours of
    neighbours are none, that mixes clusters.

    Args:
      task: the learning problem, with `layers`.
      step_size: may be traced.
      tolerance: of differences of distances, which are between -2 and 2, not negative;
        may be traced. The released settings have .1.
      num_points: samples of either half that distances are of, spread evenly over them.
        Where a client has fewer each is taken again, as often as the others or once
        more, so that weights are equal where it has a divisor of `num_points`. At least
        1; the released code takes up to 512.
      num_local_steps: of the training alone; `num_steps` if None.
      num_steps: local steps in each round.
      weights: of the clients in a mean.
      participation: fraction of the clients drawn each round; the clustering is of all.
      update: how clients train.
      threat: what Byzantine clients do in training; the clustering is honest. Its
        target is the cluster of the first client, 0.

    Raises:
      ValueError: where an argument is out of its range, or the task has no layers.

    A newcomer takes the client's model that it loses least with.

    Cost: `init` trains every client, and takes for each pair a forward pass over the
    points of one and a matching of the points, cubic in their number, as good as serial
    on an accelerator. A round is a forward pass and the local steps of each
    participant. Memory: a model of every client.
    """
    layers = layers_of(task)
    check_positive(num_local_steps=num_local_steps)
    training = averaging(step_size, num_steps, weights, participation, update, threat)
    alone_steps = num_steps if num_local_steps is None else num_local_steps
    if training.update.num_epochs is not None:
        alone_steps = 1
    alone = averaging(step_size, alone_steps, weights, 1.0, update, None)

    def init(key: PRNGKeyArray, data: ClientData) -> State:
        num_clients = data.mask.shape[0]
        model, local_state = global_start(key, task, training, num_clients)
        models = repeat(model, num_clients)
        kept, held_out = halves(data.mask)
        own = data._replace(mask=kept)
        trained, _ = train_alone(key, task, models, own, alone)  # step 1
        usable = jnp.any(kept, axis=1) & jnp.any(held_out, axis=1)
        usable = usable & finite_rows(trained)
        distances = distances_of(trained, data, kept, held_out)  # step 2
        bound = jnp.asarray(tolerance, distances.dtype)
        near = distances - jnp.diagonal(distances)[:, None] < bound  # step 3
        near = near & usable[:, None] & usable[None, :]
        near = (near & near.T) | (jnp.eye(num_clients, dtype=bool) & usable[:, None])
        none = jnp.zeros((), jnp.int32)
        return State(models, near, none, local_state)

    def distances_of(
        models: Stacked,
        data: ClientData,
        kept: Bool[Array, "clients samples"],
        held_out: Bool[Array, "clients samples"],
    ) -> Float[Array, "clients clients"]:
        """W of all pairs, by the networks of the rows."""
        ours = points_of(data.inputs, kept, num_points)
        theirs = points_of(data.inputs, held_out, num_points)

        def row(theirs: Array, model: PyTree, own: Array) -> Float[Array, " clients"]:
            source = layers.embed(model, own)
            to = lambda others: movers_distance(source, layers.embed(model, others))
            return jax.lax.map(to, theirs)

        return training.update.over_clients(row)(theirs, models, ours)

    def step(key: PRNGKeyArray, state: State, data: ClientData) -> tuple[State, Info]:
        num_clients, before = data.mask.shape[0], state.local_state
        check_threat(threat, num_clients, 1)
        clients, present = cohort(key, data, participation)
        same = state.neighbours[:, None, :] == state.neighbours[None, :, :]
        names = jnp.argmax(jnp.all(same, axis=2), axis=1).astype(jnp.int32)
        starts = take(state.models, clients)
        if threat is not None:
            starts = threat.evaluate(starts, clients)
        losses = client_losses(task, starts, present, **training.update.placement)
        trained, moments = train_alone(
            key, task, starts, present, training, before, clients
        )
        if threat is not None:
            trained = threat.send(
                jax.random.fold_in(key, Stream.ATTACKERS),
                trained,
                clients,
                state.models,
                clusters=names[clients],
                round=state.round,
            )
        usable = jnp.any(present.mask, axis=1) & jnp.isfinite(losses)
        usable = usable & finite_rows(trained)
        weight = jnp.where(usable, shares(training, present), 0)
        inside = state.neighbours[:, clients]
        models = means_of_members(  # step 4
            inside, weight, trained, empty=state.models
        )
        if before is not None and jax.tree.leaves(moments):
            moments = select(usable, moments, take(before.moments, clients))
        placed = jnp.any(state.neighbours, axis=1)
        everybody = lambda some, rest: spread(some, clients, num_clients, absent=rest)
        counted = everybody(usable, False) & placed
        assignment = jnp.where(counted, names, NO_CLUSTER)
        took_part = everybody(jnp.ones(clients.shape, bool), False)
        size = num_bytes(state.models) // length(state.models)
        received, sent = traffic(single(size), took_part, assignment)
        one = jax.eval_shape(lambda leaf: leaf[0, 0], data.inputs)
        points = num_points * num_bytes(one)
        real = jnp.any(data.mask, axis=1)
        first = jnp.where(real & (state.round == 0), 1, 0).astype(jnp.int32)
        numbers = num_clients * losses.dtype.itemsize
        info = Info(
            assignment=assignment,
            losses=everybody(losses, jnp.nan),
            found=jnp.sum(placed & (names == jnp.arange(num_clients, dtype=jnp.int32))),
            received=received + num_clients * points * first,
            sent=sent + (points + numbers) * first,
        )
        after = next_local_state(before, clients, moments)
        return State(models, state.neighbours, state.round + 1, after), info

    best = join_best_model(task, training.update.clients_per_chunk)

    def join(key: PRNGKeyArray, state: State, data: ClientData) -> State:
        number = data.mask.shape[0]
        joined = best(key, state, data)
        return joined._replace(
            neighbours=jnp.eye(number, dtype=bool),
            local_state=first_local_state(training, joined.models, number),
        )

    return Algorithm(init, step, predict_own_model(task), join)


# Step 2: distances.


def halves(
    mask: Bool[Array, "clients samples"],
) -> tuple[Bool[Array, "clients samples"], Bool[Array, "clients samples"]]:
    """The first, third, ... real samples of each client, and the others, which are held
    out."""
    rank = jnp.cumsum(mask, axis=1)
    return mask & (rank % 2 == 1), mask & (rank % 2 == 0)


def points_of(
    inputs: Array, mask: Bool[Array, "clients samples"], num_points: int
) -> Array:
    """So many of each client's masked inputs, spread evenly over them, repeated where
    there are fewer; `[clients, points, ...]`. A client without any has some other."""

    def one(inputs: Array, mask: Bool[Array, " samples"]) -> Array:
        order = jnp.argsort(~mask, stable=True)
        number = jnp.maximum(jnp.sum(mask, dtype=jnp.int32), 1)
        place = jnp.arange(num_points, dtype=jnp.int32) * number // num_points
        return inputs[order[place]]

    return jax.vmap(one)(inputs, mask)


def movers_distance(
    left: Float[Array, "points features"], right: Float[Array, "points features"]
) -> Float[Array, ""]:
    """The earth mover's distance of two sets of as many points, each of the same
    weight, where a unit is moved for 1 minus the cosine of its two ends.

    Some best plan moves every point whole (Birkhoff), so that it is a matching. A point
    without a direction, or not finite, is at 1 from all others, as far as one across.
    """

    def unit(points: Array) -> Array:
        largest = jnp.max(jnp.abs(points), axis=1, keepdims=True)
        fine = jnp.isfinite(largest) & (largest > 0)
        scaled = jnp.where(fine, points / jnp.where(fine, largest, 1), 0)
        norm = jnp.linalg.norm(scaled, axis=1, keepdims=True)
        return scaled / jnp.where(norm > 0, norm, 1)

    cosines = jnp.matmul(unit(left), unit(right).T, precision="highest")
    cost = 1 - jnp.clip(cosines, -1, 1)
    best = match_clusters(cost)
    return jnp.mean(jnp.take_along_axis(cost, best[:, None], axis=1))
