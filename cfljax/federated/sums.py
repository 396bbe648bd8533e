"""Weighted sums over clients inside their clusters, without keeping the summands.

What clients train is as large as a model each. A server needs only sums of it, so
clients are added up as they finish: memory does not grow with their number.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from cfljax.base.tree import length, rows
from cfljax.base.types import Stacked
from cfljax.federated.backend import (
    Order,
    added_over_devices,
    clients_at_once,
    num_devices,
    over_devices,
    padded,
    resolve,
    rounded_apart,
)

# Sequential clients are added up in this many lanes, and the lanes in their order. The
# order of the additions is then the same on 1, 2, 4 and 8 devices, and so are the bits.
LANES = 8


class _Members(NamedTuple):
    """Where each client's value goes: the row of the sums, and its weight, without
    which it is not computed."""

    row: Int[Array, " clients"]
    weight: Float[Array, " clients"]


Summand = Callable[..., tuple[PyTree, PyTree]]


def sum_in_clusters(
    function: Summand,
    shared: PyTree,
    kept: Stacked,
    clients: tuple,
    *,
    assignment: Int[Array, " clients"],
    weights: Float[Array, " clients"],
    num_clusters: int,
    order: Order | None = None,
    clients_per_chunk: int | None = None,
) -> tuple[tuple[Stacked, Stacked], Stacked]:
    """Sums of clients' values inside each cluster, and over all clusters.

    Args:
      function: `(shared, kept, *client) -> ((own, common), kept)`: a client's
        value in two parts. `own` is added up inside its cluster, `common` over all.
        A part may be an empty tree. Nothing that an outer transformation maps may be
        closed over.
      shared: given to every client.
      kept: what a client carries on to the next round, leaves `[clients, ...]`, or
        an empty tree; a client that is not computed keeps it.
      clients: further arguments, leaves `[clients, ...]`.
      assignment: cluster of each client; of no meaning where it has no weight.
      weights: not negative; a client with weight 0 is left out, whatever its value.
      num_clusters: rows of the sums of `own`.
      order: see `backend.over_clients`.
      clients_per_chunk: bounds memory in batched order.

    Returns:
      The sums, `own` with leaves `[clusters, ...]` and `common` with leaves
      `[1, ...]`; and what clients keep. A value that is not finite spoils its own
      cluster's row, and the row of `common`.

    Cost: `function` once for each client of positive weight in sequential order, for
    each client otherwise. Memory: three sets of sums on one device, eight on several,
    or the values of a chunk.
    """
    stacked = (_Members(jnp.maximum(assignment, 0), weights), kept, clients)
    one = lambda row: jax.tree.map(lambda leaf: leaf[0], row)
    shapes = jax.eval_shape(lambda: function(shared, one(kept), *one(clients))[0])
    zeros = lambda count: lambda leaf: jnp.zeros((count,) + leaf.shape, leaf.dtype)
    own = jax.tree.map(zeros(num_clusters), shapes[0])
    empty = own, jax.tree.map(zeros(1), shapes[1])
    if resolve(order) == "sequential":
        run = jax.custom_batching.sequential_vmap(_in_lanes(function))
        return run(shared, empty, stacked)
    return _in_chunks(function, clients_per_chunk)(shared, empty, stacked)


def _in_lanes(function: Summand) -> Callable[..., Any]:
    """One client after the other in each lane."""

    def lane(shared: tuple, stacked: tuple, slots: tuple) -> tuple:
        constants, empty = shared

        def one(sums: tuple, slot: tuple[Array, Array]) -> tuple[tuple, PyTree]:
            # Looked up one by one: a lane of rows would be a copy of an eighth of all.
            place, used = slot
            member, kept, client = jax.tree.map(lambda leaf: leaf[place], stacked)

            def add(sums: tuple) -> tuple[tuple, PyTree]:
                value, after = function(constants, kept, *client)
                at_row = lambda s, v: s.at[member.row].add(member.weight * v)
                own = jax.tree.map(at_row, sums[0], value[0])
                everywhere = lambda s, v: s + member.weight * v[None]
                return (own, jax.tree.map(everywhere, sums[1], value[1])), after

            computed = used & (member.weight > 0)
            return jax.lax.cond(computed, add, lambda sums: (sums, kept), sums)

        return jax.lax.scan(one, empty, slots)

    def run(shared: PyTree, empty: tuple, stacked: tuple) -> tuple:
        number = length(stacked)
        devices = num_devices()
        lanes = -(-LANES // devices) * devices
        if devices == 1:  # The same order of additions, in the memory of one lane.

            def next_lane(total: tuple, slots: tuple) -> tuple[tuple, PyTree]:
                sums, kept = lane((shared, empty), stacked, slots)
                return jax.tree.map(jnp.add, total, sums), kept

            total, kept = jax.lax.scan(next_lane, empty, _table(number, lanes))
            return total, _unfold(kept, number)

        def own_lanes(shared: tuple, folded: tuple) -> tuple:
            places = jnp.arange(folded[0].weight.size).reshape(folded[0].weight.shape)
            rows = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), folded)
            one = lambda slots: lane(shared, rows, slots)
            return jax.lax.map(one, (places, jnp.ones(places.shape, bool)))

        folded = _fold(stacked, lanes)
        add_up = added_over_devices(own_lanes, LANES)
        total, kept = add_up((shared, empty), folded)
        return total, _unfold(kept, number)

    return run


def _fold(stacked: tuple, lanes: int) -> tuple:
    """Leaves `[clients, ...]` as `[lanes, clients / LANES, ...]`, consecutive clients
    in one of the first `LANES` lanes; copies unless the clients fill them evenly."""
    number = length(stacked)
    if number % LANES == 0 and lanes == LANES:
        fold = lambda leaf: leaf.reshape((LANES, -1) + leaf.shape[1:])
        return jax.tree.map(fold, stacked)
    index, used = _table(number, lanes)
    members, *others = jax.tree.map(lambda leaf: leaf[index], stacked)
    weight = jnp.where(used, members.weight, 0)
    return members._replace(weight=weight), *others


def _unfold(kept: Stacked, number: int) -> Stacked:
    """The inverse of `_fold`, without its padding."""
    if not jax.tree.leaves(kept):
        return kept
    index, used = _table(number, length(kept))
    if number % LANES == 0:
        unfold = lambda leaf: leaf[:LANES].reshape((number,) + leaf.shape[2:])
        return jax.tree.map(unfold, kept)
    lane, place = np.nonzero(used)
    place, lane = place[np.argsort(index[used])], lane[np.argsort(index[used])]
    return jax.tree.map(lambda leaf: leaf[lane, place], kept)


def _table(number: int, lanes: int) -> tuple[np.ndarray, np.ndarray]:
    """Client of each slot, `[lanes, slots]`, and which slots are used: lanes differ by
    one client at most, so that devices have the same work."""
    ends = number * np.arange(LANES + 1) // LANES
    slots = max(-(-number // LANES), 1)
    index = ends[:-1, None] + np.arange(slots)[None, :]
    used = index < ends[1:, None]
    index, used = np.minimum(index, number - 1), used
    more = ((0, lanes - LANES), (0, 0))
    return np.pad(index, more), np.pad(used, more)


def _in_chunks(
    function: Summand, clients_per_chunk: int | None
) -> Callable[..., tuple[tuple, Stacked]]:
    """All clients of a chunk at once."""

    def chunk_sums(shared: PyTree, empty: tuple, chunk: tuple) -> tuple[tuple, PyTree]:
        members, kept, clients = chunk
        values, changed = jax.vmap(lambda m, c: function(shared, m, *c))(kept, clients)
        present = members.weight > 0
        weigh = lambda leaf: jnp.where(
            rows(present, leaf), rows(members.weight, leaf) * leaf, 0
        )
        own, common = jax.tree.map(weigh, values)
        number = [length(part) if jax.tree.leaves(part) else 1 for part in empty]
        add = lambda leaf: jax.ops.segment_sum(leaf, members.row, number[0])
        own = jax.tree.map(add, own)
        common = jax.tree.map(lambda leaf: jnp.sum(leaf, axis=0, keepdims=True), common)
        keep = lambda new, old: jnp.where(rows(present, new), new, old)
        return (own, common), jax.tree.map(keep, changed, kept)

    def run(shared: PyTree, empty: tuple, stacked: tuple) -> tuple[tuple, Stacked]:
        number, devices = length(stacked), num_devices()
        share = -(-number // devices)
        size = clients_at_once(clients_per_chunk, share)
        filled = padded(stacked, size * devices)
        real = jnp.arange(length(filled)) < number
        members, *others = filled
        weight = rounded_apart(jnp.where(real, members.weight, 0))
        members = members._replace(weight=weight)

        def device(shared: tuple, own: tuple) -> tuple:
            constants, empty = shared
            fold = lambda leaf: leaf.reshape((-1, size) + leaf.shape[1:])

            def step(sums: tuple, chunk: tuple) -> tuple[tuple, PyTree]:
                more, kept = chunk_sums(constants, empty, chunk)
                return jax.tree.map(jnp.add, sums, more), kept

            sums, kept = jax.lax.scan(step, empty, jax.tree.map(fold, own))
            unfold = lambda leaf: leaf.reshape((-1,) + leaf.shape[2:])
            own_sums = jax.tree.map(lambda leaf: leaf[None], sums)
            return own_sums, jax.tree.map(unfold, kept)

        sums, kept = over_devices(device)((shared, empty), (members, *others))
        total = jax.tree.map(lambda leaf: jnp.sum(leaf, axis=0), sums)
        return total, jax.tree.map(lambda leaf: leaf[:number], kept)

    return run
