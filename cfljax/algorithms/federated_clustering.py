"""Federated-Clustering (Werner et al., 2023, Algorithm 2): no server, no clusters.

Every client has a model of its own. In a round each client computes its gradient at
every client's model, and every client makes one of the gradients it gets by
Threshold-Clustering (Algorithm 3) from its own one on. Past mistakes are seen, because
gradients are compared at one model, at N^2 gradients a round.
"""

import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.core import eval_jaxpr
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from cfljax.base.checks import check_fit, check_member, check_positive, check_threat
from cfljax.base.constructor import constructor
from cfljax.base.describe import summary
from cfljax.base.streams import Stream
from cfljax.base.tree import repeat, take
from cfljax.base.types import Algorithm, ClientData, Stacked, StepSize, Task, Threat
from cfljax.clustering.threshold import (
    Edge,
    Form,
    Radius,
    check_form,
    check_one_radius,
    threshold_messages,
)
from cfljax.federated.answers import join_best_model, predict_own_model
from cfljax.federated.backend import Order, check_order, num_devices, over_clients
from cfljax.federated.local_update import (
    batch_loss,
    check_schedules,
    draw_batch,
    scheduled,
)
from cfljax.federated.traffic import pairwise_traffic
from cfljax.federated.training import Start, start_models

# Where momentum is taken. paper: before thresholding, of what is clustered, as
# equation (6) has it for Algorithm 4; reference: after thresholding and undamped,
# m <- beta m + v, as the released MNIST code does.
Variant = Literal["paper", "reference"]


class State(NamedTuple):
    """All that the next round needs.

    models: x_i, leaves `[clients, ...]`.
    momenta: leaves `[clients, ...]` with variant "reference"; of each pair of a
      receiver and a sender, leaves `[clients, clients, ...]`, with variant "paper"; an
      empty tree without momentum.
    round: rounds that are over.
    """

    models: Stacked
    momenta: Stacked
    round: Int[Array, ""]

    __repr__ = summary


class Info(NamedTuple):
    """What one round did; nothing here is carried over.

    losses: of each client at its own model, on the round's batch, before the step; NaN
      without samples.
    members: whose gradients were in client i's ball in the last clipping round.
    counts: how many were, in each clipping round.
    radii: tau of each clipping round.
    received: bytes from other clients: their models, and their gradients.
    sent: bytes to other clients, as many.
    """

    losses: Float[Array, " clients"]
    members: Bool[Array, "clients clients"]
    counts: Int[Array, "clients rounds"]
    radii: Float[Array, "clients rounds"]
    received: Int[Array, " clients"]
    sent: Int[Array, " clients"]


@constructor
def federated_clustering(
    task: Task,
    *,
    step_size: StepSize,
    radius: Radius,
    num_clipping_rounds: int = 10,
    num_groups: int = 1,
    batch_size: int | None = None,
    momentum: float = 0.0,
    variant: Variant = "paper",
    edge: Edge = "paper",
    start: Start = "independent",
    form: Form | None = None,
    threat: Threat | None = None,
    models_per_chunk: int = 1,
    order: Order | None = None,
) -> Algorithm:
    """Federated-Clustering.

    A client without samples sends gradients of 0, which count like the others'.

    Args:
      task: the learning problem; it must train on the losses that it is judged by.
      step_size: eta; may be traced.
      radius: tau: a number, one that is traced, or a rule on distances such as
        `quantile_radius(0.2)`, the paper's for MNIST. Theorem 3 has sqrt(delta_i sigma
        Delta); 0 is training alone, infinity the mean of all.
      num_clipping_rounds: l of Threshold-Clustering, 10 in the paper.
      num_groups: random subgroups of the round, 16 in the paper; gradients are sent
        inside them only.
      batch_size: |B_i| samples of a client, drawn anew in each round without
        replacement and used at all models; all samples if None.
      momentum: beta from 0 to below 1; the released code has .9, the paper none.
      variant: where it is taken, see `Variant`. "paper" keeps a momentum of every pair,
        which takes one group and N^2 gradients of memory.
      edge: whether the edge belongs to the ball; "reference" leaves it out, as the
        released code of the paper's Figures 2 and 3 does.
      start: "independent" models of all clients, as Algorithm 2 has them, or
        "identical" ones.
      form: of distances, see `clustering.threshold`.
      threat: what Byzantine clients do; with `adaptive` they see every clipping round.
      models_per_chunk: receivers computed at a time, which bounds memory. One suits a
        processor; an accelerator wants more.
      order: of the groups, see `federated.backend.over_clients`.

    Raises:
      ValueError: where an argument is out of its range, or the task has a `fit`; in a
        round, where `threat` has another number of clients.

    A newcomer is sent all models and takes the one it loses least with.

    Cost of a round: N^2 forward and backward passes over a batch, divided by the
    number of groups; the forward passes at one model are one matrix product. Memory:
    the gradients of one group at `models_per_chunk` models.
    """
    check_positive(batch_size=batch_size)
    check_one_radius(radius)
    check_member(Variant, variant=variant)
    check_member(Edge, edge=edge)
    check_member(Start, start=start)
    check_order(order, None)
    check_form(form, threat)
    of_pairs = momentum if variant == "paper" else 0.0  # Taken before thresholding.
    if not 0 <= momentum < 1:
        raise ValueError(f"`momentum` must be in [0, 1), got {momentum}.")
    if of_pairs and num_groups > 1:
        raise ValueError(
            "`momentum` of pairs needs `num_groups=1`, or `variant='reference'`; got "
            f"{num_groups} groups."
        )
    check_fit(task)
    check_schedules(step_size=step_size)
    loss_of = lambda model, data: batch_loss(task, model, data)[0]
    gradient = jax.value_and_grad(loss_of)  # line 5
    made_one = functools.partial(  # line 6
        threshold_messages,
        threat=threat,
        num_rounds=num_clipping_rounds,
        radius=radius,
        edge=edge,
        form=form,
    )

    def init(key: PRNGKeyArray, data: ClientData) -> State:
        number = data.mask.shape[0]
        models = start_models(task, key, number, start)  # line 2
        zero = jax.tree.map(jnp.zeros_like, models)
        momenta = ()
        if momentum:  # Of each pair, or of each client.
            momenta = repeat(zero, number) if of_pairs else zero
        return State(models, momenta, jnp.zeros((), jnp.int32))

    def step(key: PRNGKeyArray, state: State, data: ClientData) -> tuple[State, Info]:
        check_threat(threat, data.mask.shape[0])
        groups = draw_groups(key, data.mask.shape[0], num_groups)
        moves, of_each_pair, losses, members, counts, radii = _in_groups(
            one_group,
            groups,
            order,
            key,
            state.models,
            draw_batch(key, data, batch_size),
            state.momenta if of_pairs else (),
            state.round,
        )
        momenta = of_each_pair if of_pairs else state.momenta
        if momentum and not of_pairs:
            add = lambda m, v: momentum * m + v
            moves = momenta = jax.tree.map(add, momenta, moves)
        size = scheduled(step_size, state.round)
        move = lambda x, v: x - size * v  # line 7
        models = jax.tree.map(move, state.models, moves)
        info = Info(losses, members, counts, radii, *pairwise_traffic(models, groups))
        return State(models, momenta, state.round + 1), info

    def one_group(shared: tuple, index: Int[Array, " members"]) -> tuple:
        """Lines 5 and 6 for every member: what its model moves along, its momenta, its
        loss, and what was in its ball."""
        key, models, data, momenta, round_index = shared
        batch = take(data, index)

        def one(place: Int[Array, ""]) -> tuple:
            receiver = index[place]
            mine = lambda leaf: leaf[receiver]
            model, kept = jax.tree.map(mine, models), jax.tree.map(mine, momenta)
            if threat is None:
                losses, gradients = jax.vmap(gradient, (None, 0))(model, batch)
            else:
                used = threat.evaluate(repeat(model, index.shape[0]), index)
                losses, gradients = jax.vmap(gradient)(used, batch)
            if of_pairs:  # (6)
                blend = lambda g, m: (1 - of_pairs) * g + of_pairs * m
                kept = gradients = jax.tree.map(blend, gradients, kept)
            own_key = jax.random.fold_in(key, Stream.ATTACKERS)
            found = made_one(
                jax.random.fold_in(own_key, receiver),
                gradients,
                index,
                place[None],
                receiver=receiver,
                round_index=round_index,
            )
            move = jax.tree.map(lambda leaf: leaf[0], found.centres)
            # Who of all clients was in the ball.
            members = jnp.zeros(data.mask.shape[0], bool)
            members = members.at[index].set(found.members[0])
            seen = members, found.counts[0], found.radii[0]
            loss = jnp.where(jnp.any(batch.mask[place]), losses[place], jnp.nan)
            return move, kept, loss, *seen

        places = jnp.arange(index.shape[0])
        size = min(models_per_chunk, index.shape[0])
        # A batch of one is slower than none.
        return jax.lax.map(one, places, batch_size=size if size > 1 else None)

    return Algorithm(init, step, predict_own_model(task), join_best_model(task))


def draw_groups(
    key: PRNGKeyArray, num_clients: int, num_groups: int
) -> tuple[Int[Array, "_ _"], ...]:
    """Clients split into groups at random (Werner et al., section 4.2); a single group
    draws nothing.

    One array of client indices `[groups, members]` for each size, so that no member is
    padding: of 300 clients in 16 groups, 12 have 19 members and 4 have 18.
    """
    if not 1 <= num_groups <= num_clients:
        raise ValueError(
            f"`num_groups` must be from 1 to the {num_clients} clients, got "
            f"{num_groups}."
        )
    if num_groups == 1:
        return (jnp.arange(num_clients)[None, :],)
    order = jax.random.permutation(key, num_clients)
    size, larger = divmod(num_clients, num_groups)
    middle = larger * (size + 1)
    smaller = order[middle:].reshape(num_groups - larger, size)
    if not larger:
        return (smaller,)
    return order[:middle].reshape(larger, size + 1), smaller


def _in_groups(
    one_group: Callable[..., tuple],
    groups: tuple[Int[Array, "_ _"], ...],
    order: Order | None,
    *shared: Any,
) -> tuple:
    """`one_group(shared, members)` of all groups, in rows of the clients."""
    blocks = []
    for block in groups:
        run, known = _opened(one_group, shared, block[0])
        blocks.append(over_clients(run, order, 1)((known, shared), block))
    merge = lambda leaf: leaf.reshape((-1,) + leaf.shape[2:])
    rows = [jax.tree.map(merge, block) for block in blocks]
    joined = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *rows)
    back = jnp.argsort(jnp.concatenate([block.reshape(-1) for block in groups]))
    return take(joined, back)


def _opened(function: Callable[..., PyTree], *arguments: Any) -> tuple[Callable, list]:
    """The function of what it closes over too, and that: a radius or a threat that an
    outer transformation maps can be passed on only as an argument."""
    if num_devices() > 1:  # A program of one device cannot be spread afterwards.
        return lambda shared, *others: function(shared[1], *others), []
    program, shapes = jax.make_jaxpr(function, return_shape=True)(*arguments)

    def run(shared: tuple, *others: Any) -> PyTree:
        known, first = shared
        leaves = jax.tree.leaves((first, *others))
        results = eval_jaxpr(program.jaxpr, known, *leaves)
        return jax.tree.unflatten(jax.tree.structure(shapes), results)

    return run, program.consts
