"""How a function of one client is carried to all clients on this machine.

The one place that knows about processors. Two choices are made here:

- Order. Clients that train weights of their own share no matrix product. On a CPU they
  run one after the other, so that one client's weights stay in cache through all its
  local steps; on an accelerator they run batched. Both give the same numbers up to
  rounding.
- Devices. Where the ambient mesh (`jax.set_mesh`) has an axis `clients`, clients are
  spread over its devices; see `engine.clients_over_devices`. Without one, everything
  runs on one device.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import PartitionSpec
from jaxtyping import Array, PyTree

from cfljax.base.checks import check_member, check_positive
from cfljax.base.platforms import default_platform
from cfljax.base.tree import length
from cfljax.base.types import Stacked

Order = Literal["sequential", "batched"]

# Clients that an accelerator computes together where nothing is said. A round of a
# thousand convolutional networks takes an H200 .78 s by 100 and .77 s by 200, but 12 s
# by 400 and 10 s by 1000; one of perceptrons takes 13 ms by 100 and 9 ms by 1000.
TOGETHER = 100
CLIENTS = "clients"  # Axis of a device mesh that clients are spread over.
ROWS = PartitionSpec(CLIENTS)
EVERYWHERE = PartitionSpec()
ROUNDED_APART = "rounded otherwise on each number of devices"


def check_order(order: str | None, clients_per_chunk: int | None) -> None:
    """Raises ValueError, naming the argument, where one is out of its range."""
    if order is not None:
        check_member(Order, order=order)
    check_positive(clients_per_chunk=clients_per_chunk)


def resolve(order: Order | None) -> Order:
    """The order asked for, or the one that suits the backend."""
    if order is not None:
        return order
    return "sequential" if default_platform() == "cpu" else "batched"


def clients_at_once(clients_per_chunk: int | None, number: int) -> int:
    """Of so many clients, how many are computed together: as many as asked for.
    None leaves it to the platform: all of them on a CPU, which computes few
    together anyway, and at most `TOGETHER` on an accelerator."""
    if clients_per_chunk is None:
        clients_per_chunk = number if default_platform() == "cpu" else TOGETHER
    return min(clients_per_chunk, number)


def num_devices() -> int:
    """Devices that clients are spread over at this point of the program."""
    mesh = jax.sharding.get_abstract_mesh()
    if CLIENTS not in mesh.axis_names or CLIENTS in mesh.manual_axes:
        return 1
    return mesh.shape[CLIENTS]


def over_devices(function: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """`function(shared, stacked)` on each device's own rows of `stacked`.

    Leading axes must be multiples of the number of devices; `shared` is given to all.
    """
    if num_devices() == 1:
        return function
    return jax.shard_map(
        function, in_specs=(EVERYWHERE, ROWS), out_specs=ROWS, check_vma=False
    )


def added_over_devices(
    function: Callable[..., tuple[PyTree, PyTree]], number: int
) -> Callable[..., tuple[PyTree, PyTree]]:
    """`over_devices` of a pair, whose first part, leaves `[rows, ...]`, becomes the sum
    of the first `number` of all devices' rows, added in their order: the same numbers
    on any number of devices.

    Each device adds its rows to what the one before hands it: none holds the others'.
    """

    def in_order(leaf: Array) -> Array:
        place = jax.lax.axis_index(CLIENTS)
        own = leaf.shape[0]
        users = math.ceil(number / own)  # Devices that have any of these rows.
        total = leaf[0]
        for device in range(users):
            mine = [leaf[i] for i in range(min(own, number - device * own))]
            if device:
                step = [(device - 1, device)]
                mine.insert(0, jax.lax.ppermute(total, CLIENTS, step))
            total = jnp.where(place == device, functools.reduce(jnp.add, mine), total)
        return jax.lax.psum(jnp.where(place == users - 1, total, 0), CLIENTS)

    def run(shared: PyTree, stacked: Stacked) -> tuple[PyTree, PyTree]:
        part, rest = function(shared, stacked)
        return jax.tree.map(in_order, part), rest

    return jax.shard_map(
        run, in_specs=(EVERYWHERE, ROWS), out_specs=(EVERYWHERE, ROWS), check_vma=False
    )


def everywhere(function: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """What a server does: `function(*arrays, **arrays)` of arrays of all clients,
    computed whole by each device, as one device would.

    Left to itself the compiler gives each device the sum of its own clients, so that
    the order of additions, and with it the last bits, depend on the number of devices.

    Cost: what is computed is not shared out. Memory: while it runs, each device holds
    all of its arguments; call it leaf by leaf where they are models of all clients.
    """

    @functools.wraps(function)
    def run(*arrays: PyTree, **named: PyTree) -> PyTree:
        if num_devices() == 1:
            return function(*arrays, **named)
        apart = lambda arrays, named: function(*arrays, **named)
        whole = jax.shard_map(
            apart, in_specs=EVERYWHERE, out_specs=EVERYWHERE, check_vma=False
        )
        return whole(arrays, named)

    return run


def kept_apart(tree: PyTree) -> PyTree:
    """What a client reads a second time in its work, targets for example.

    Among several devices the compiler merges equal parts of the work before it
    simplifies them, on one device after that, and rounds them differently: a barrier
    hides from it that they are equal.
    """
    if CLIENTS in jax.sharding.get_abstract_mesh().manual_axes:
        return jax.lax.optimization_barrier(tree)
    return tree


def rounded_apart(leaf: Array) -> Array:
    """The array itself, marked as a part of what is rounded otherwise on each number of
    devices: `run` by default computes it on one, so that results do not depend on the
    cores of a machine."""
    return checkpoint_name(leaf, ROUNDED_APART)


def padded(stacked: Stacked, multiple: int) -> Stacked:
    """Rows of the leading axis up to a multiple; the last row is repeated."""
    rows = length(stacked)
    total = math.ceil(rows / multiple) * multiple
    if total == rows:
        return stacked
    index = np.minimum(np.arange(total), rows - 1)
    return jax.tree.map(lambda leaf: leaf[index], stacked)


def over_clients(
    function: Callable[..., PyTree],
    order: Order | None = None,
    clients_per_chunk: int | None = None,
) -> Callable[..., PyTree]:
    """`function(shared, *client)` for all clients: `apply(shared, *clients)`.

    Like `jax.vmap` over all arguments but the first, computed in the order that suits
    the backend, on all devices of the mesh. It may be nested in further
    transformations; gradients through it need the order "batched".

    Args:
      function: of what all clients share and one client's values. It must not close
        over values that an outer transformation maps: pass them as `shared`.
      order: forces the choice.
      clients_per_chunk: bounds memory in batched order, see `clients_at_once`. In
        sequential order one client is computed at a time and it changes nothing.
    """
    order = resolve(order)

    def sequential(shared: PyTree, clients: tuple) -> PyTree:
        return jax.lax.map(lambda client: function(shared, *client), clients)

    def batched(shared: PyTree, clients: tuple) -> PyTree:
        one = lambda client: function(shared, *client)
        number = length(clients)
        size = clients_at_once(clients_per_chunk, number)
        if size == number:
            return jax.vmap(one)(clients)
        return jax.lax.map(one, clients, batch_size=size)

    def apply(shared: PyTree, *clients: Any) -> PyTree:
        number = length(clients)
        rows = padded(clients, num_devices())
        if order == "sequential":
            # Stays sequential under an outer vmap, over trials for example.
            run = jax.custom_batching.sequential_vmap(over_devices(sequential))
        else:
            own = over_devices(batched)
            run = lambda *given: jax.tree.map(rounded_apart, own(*given))
        results = run(shared, rows)
        return jax.tree.map(lambda leaf: leaf[:number], results)

    return apply


def clients_in_chunks(
    function: Callable[[PyTree, PyTree], PyTree],
    shared: PyTree,
    clients: Stacked,
    clients_per_chunk: int | None = None,
) -> Stacked:
    """`function(shared, chunk)`, which treats many clients at once, from leaves
    `[chunk, ...]` to such, on all of them; a client's row must not depend on the
    others'. For `clients_per_chunk` see `clients_at_once`."""
    number = length(clients)
    devices = num_devices()
    size = clients_at_once(clients_per_chunk, math.ceil(number / devices))
    if size == number:
        return function(shared, clients)

    def run(shared: PyTree, own: Stacked) -> Stacked:
        fold = lambda leaf: leaf.reshape((-1, size) + leaf.shape[1:])
        unfold = lambda leaf: leaf.reshape((-1,) + leaf.shape[2:])
        of_chunk = lambda chunk: function(shared, chunk)
        results = jax.lax.map(of_chunk, jax.tree.map(fold, own))
        return jax.tree.map(unfold, results)

    results = over_devices(run)(shared, padded(clients, size * devices))
    return jax.tree.map(lambda leaf: jnp.asarray(leaf)[:number], results)
