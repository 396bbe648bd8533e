"""Momentum-Clustering (Werner et al., 2023, Algorithm 4): N messages a round.

Every client has a model of its own and keeps a momentum of its gradients there. A
server makes cluster centres of the momenta by Threshold-Clustering, and every client
moves along its own.
"""

import functools
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, ScalarLike

from cfljax.base.checks import (
    at_most_clients,
    check_fit,
    check_member,
    check_positive,
    check_threat,
    is_traced,
)
from cfljax.base.constructor import constructor
from cfljax.base.describe import summary
from cfljax.base.streams import Stream
from cfljax.base.tree import flat, like
from cfljax.base.types import Algorithm, ClientData, Stacked, StepSize, Task, Threat
from cfljax.clustering.kmeans import plus_plus
from cfljax.clustering.threshold import (
    Edge,
    Form,
    Radius,
    check_form,
    check_one_radius,
    known_radius,
    threshold_clustering,
    threshold_messages,
)
from cfljax.federated.answers import join_best_model, predict_own_model
from cfljax.federated.backend import Order, check_order, everywhere, rounded_apart
from cfljax.federated.evaluate import choose_cluster
from cfljax.federated.local_update import (
    check_schedules,
    client_gradients,
    draw_batch,
    scheduled,
)
from cfljax.federated.traffic import exchanged
from cfljax.federated.training import Start, start_models

# Where the centres start. member: one for each client, at its own momentum, as the
# proof of Theorem 4 and the released class have it. warm: one for each of K clusters,
# where it ended in the round before, as line 4 prints it; the first ones, which the
# paper leaves open, are momenta drawn far apart (k-means++).
CentreStart = Literal["member", "warm"]
# m_0, which the paper leaves open: with "gradient", its first gradient, the variance of
# Lemma 13 holds only after many rounds.
FirstMomentum = Literal["zero", "gradient"]


class State(NamedTuple):
    """All that the next round needs.

    models: x_i, leaves `[clients, ...]`.
    momenta: m_i, leaves `[clients, ...]`.
    centres: v_k of centre start "warm", None otherwise.
    round: rounds that are over.
    """

    models: Stacked
    momenta: Stacked
    centres: Float[Array, "clusters features"] | None
    round: Int[Array, ""]

    __repr__ = summary


class Info(NamedTuple):
    """What one round did; nothing here is carried over.

    assignment: k_i, the nearest centre of centre start "warm", `NO_CLUSTER` where
      none is finite; None with a centre for each client.
    losses: of each client at its own model, on the round's batch, before the step; NaN
      without samples.
    members: whose momenta were in the ball of client i's centre in the last clipping
      round.
    received: bytes from the server to each client: a centre.
    sent: bytes from each client to the server: a momentum.
    """

    assignment: Int[Array, " clients"] | None
    losses: Float[Array, " clients"]
    members: Bool[Array, "clients clients"]
    received: Int[Array, " clients"]
    sent: Int[Array, " clients"]


@constructor
def momentum_clustering(
    task: Task,
    *,
    step_size: StepSize,
    radius: Radius,
    num_clusters: int | None = None,
    gradient_weight: ScalarLike = 0.1,
    num_clipping_rounds: int = 10,
    batch_size: int | None = None,
    centre_start: CentreStart = "member",
    first_momentum: FirstMomentum = "zero",
    edge: Edge = "paper",
    start: Start = "identical",
    form: Form | None = None,
    threat: Threat | None = None,
    centres_per_chunk: int | None = None,
    clients_per_chunk: int | None = None,
    order: Order | None = None,
) -> Algorithm:
    """Momentum-Clustering.

    Momenta are taken at clients' own models: where all converge they vanish, and with
    them the separation that Theorem 4 assumes for all rounds. A radius that follows the
    noise (`quantile_radius`, or small) keeps clusters apart longest. The gradient of a
    client without samples is 0, and its momentum counts like the others'.

    Args:
      task: the learning problem; it must train on the losses that it is judged by.
      step_size: eta; may be traced.
      radius: tau, as in `federated_clustering`.
      num_clusters: K of centre start "warm", from 1 to the number of clients, whose
        momenta the first centres are; None otherwise.
      gradient_weight: alpha of equation (6), in (0, 1], of the new gradient; 1 keeps
        none of the old. May be traced.
      num_clipping_rounds: l of Threshold-Clustering.
      batch_size: samples of a client's gradient, drawn anew in each round without
        replacement; all samples if None.
      centre_start: "warm", from where a cluster's centre ended in the round before, is
        what line 4 of Algorithm 4 prints. The default is "member", a centre for each
        client from its own momentum on, for it is what Theorem 4 is proved for and the
        released class does, needs no K, and leaves no first centres open. See
        `CentreStart`.
      first_momentum: "zero" or "gradient", see `FirstMomentum`.
      edge: whether the edge belongs to the ball, as in `federated_clustering`.
      start: "identical" models of all clients as Algorithm 4 has them, or
        "independent" ones.
      form: of distances, see `clustering.threshold`; of centre start "member".
      threat: what Byzantine clients do.
      centres_per_chunk: bounds memory of the clustering.
      clients_per_chunk: bounds memory of the gradients in batched order.
      order: of the clients, see `federated.backend.over_clients`.

    Raises:
      ValueError: where an argument is out of its range, belongs to another centre
        start, or the task has a `fit`; in `init`, where there are fewer clients than
        clusters; in a round, where `threat` has another number of clients.

    A newcomer is sent all models and takes the one it loses least with.

    Cost of a round: a forward and a backward pass for each client, and
    Threshold-Clustering of N momenta from N or K centres. Memory: three models for
    each client.
    """
    check_positive(batch_size=batch_size)
    check_one_radius(radius)
    check_member(CentreStart, centre_start=centre_start)
    check_member(FirstMomentum, first_momentum=first_momentum)
    check_member(Edge, edge=edge)
    check_member(Start, start=start)
    check_order(order, clients_per_chunk)
    _check_start(centre_start, num_clusters, form, threat)
    weight = gradient_weight
    if not is_traced(weight) and not 0 < float(np.asarray(weight)) <= 1:
        raise ValueError(f"`gradient_weight` must be in (0, 1], got {weight}.")
    check_fit(task)
    check_schedules(step_size=step_size)
    clipping = {
        "num_rounds": num_clipping_rounds,
        "radius": radius,
        "edge": edge,
        "centres_per_chunk": centres_per_chunk,
    }
    member_centres = everywhere(
        functools.partial(threshold_messages, threat=threat, form=form, **clipping)
    )
    kept_centres = everywhere(functools.partial(threshold_clustering, **clipping))

    def init(key: PRNGKeyArray, data: ClientData) -> State:
        models = start_models(task, key, data.mask.shape[0], start)
        momenta = jax.tree.map(jnp.zeros_like, models)  # m_0
        centres = None
        if num_clusters is not None:
            points = flat(models)  # For the shapes: the first round draws them.
            centres = jnp.zeros((num_clusters, points.shape[1]), points.dtype)
        return State(models, momenta, centres, jnp.zeros((), jnp.int32))

    def step(key: PRNGKeyArray, state: State, data: ClientData) -> tuple[State, Info]:
        models, clients = state.models, jnp.arange(data.mask.shape[0])
        check_threat(threat, data.mask.shape[0])
        used = models if threat is None else threat.evaluate(models, clients)
        batch = draw_batch(key, data, batch_size)
        losses, (gradients, _) = client_gradients(
            task, used, batch, order=order, clients_per_chunk=clients_per_chunk
        )
        weight = jnp.asarray(gradient_weight, jnp.result_type(float))
        if first_momentum == "gradient":
            weight = jnp.where(state.round == 0, 1, weight)
        # Other devices, other multiply-adds.
        weight = rounded_apart(weight)
        blend = lambda g, m: weight * g + (1 - weight) * m
        momenta = jax.tree.map(blend, gradients, state.momenta)  # (6)
        assignment, centres = None, state.centres
        if centres is None:  # line 4
            own = jax.random.fold_in(key, Stream.ATTACKERS)
            now = state.round
            found = member_centres(own, momenta, clients, clients, round_index=now)
            moves, members = found.centres, found.members
        else:
            centres, assignment, moves, members = warm_centres(
                key, flat(momenta), centres, state.round
            )
            moves = like(moves, models)
        size = scheduled(step_size, state.round)
        move = lambda x, v: x - size * v  # line 5
        models = jax.tree.map(move, models, moves)
        info = Info(assignment, losses, members, *exchanged(models))
        return State(models, momenta, centres, state.round + 1), info

    def warm_centres(
        key: PRNGKeyArray,
        points: Float[Array, "clients features"],
        before: Float[Array, "clusters features"],
        round_index: Int[Array, ""],
    ) -> tuple[Array, Array, Array, Array]:
        """The centres from where they ended on, each client's nearest, its coordinates
        (NaN without a finite distance), and whose momenta were in its ball."""
        if threat is not None:
            own = jax.random.fold_in(key, Stream.ATTACKERS)
            everyone, ball = jnp.arange(points.shape[0]), known_radius(radius)
            points = threat.send(own, points, everyone, radius=ball, round=round_index)
        finite = jnp.all(jnp.isfinite(points), axis=1)
        kept = jnp.where(finite[:, None], points, 0)
        own = jax.random.fold_in(key, Stream.ALGORITHM)
        drawn = functools.partial(plus_plus, num_clusters=before.shape[0])
        draw = lambda: everywhere(drawn)(own, kept, finite)
        begin = jax.lax.cond(round_index == 0, draw, lambda: before)
        found = kept_centres(points, begin)
        # One centre after the other, in the memory of one set of differences.
        to = lambda centre: jnp.sum(jnp.square(points - centre[None]), axis=1)
        assignment = choose_cluster(jax.lax.map(to, found.centres).T)
        row, known = jnp.maximum(assignment, 0), assignment[:, None] >= 0
        moves = jnp.where(known, found.centres[row], jnp.nan)
        return found.centres, assignment, moves, found.members[row] & known

    join = join_best_model(task, clients_per_chunk)
    check = at_most_clients(num_clusters)
    return Algorithm(init, step, predict_own_model(task), join, check=check)


def _check_start(
    centre_start: str, num_clusters: int | None, form: str | None, threat: Threat | None
) -> None:
    """Raises ValueError where arguments belong to the other centre start."""
    check_form(form, threat)
    if centre_start == "member":
        if num_clusters is not None:
            raise ValueError(
                "`num_clusters` belongs to `centre_start='warm'`: with 'member' every "
                f"client's momentum starts a centre; got {num_clusters}."
            )
        return
    if num_clusters is None:
        raise ValueError("`num_clusters` must be given with `centre_start='warm'`.")
    if form == "gram":
        raise ValueError(
            "`form='gram'` belongs to `centre_start='member'`: kept centres are no "
            "combinations of the momenta."
        )
    if threat is not None and threat.adaptive:
        raise ValueError("`threat` may be adaptive with `centre_start='member'` only.")
