"""One run of one algorithm: a scan over communication rounds."""

import functools
import logging
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, PRNGKeyArray, PyTree

from cfljax.base.checks import is_traced
from cfljax.base.clients import check_finite_rounds
from cfljax.base.types import Algorithm, ClientData
from cfljax.engine.cache import keep_programs
from cfljax.engine.devices import clients_over_devices, devices_for
from cfljax.federated.backend import CLIENTS, EVERYWHERE

log = logging.getLogger(__name__)


def nothing(state: Any, info: Any) -> tuple[()]:
    """Keeps no trace of a round."""
    del state, info
    return ()


def run(
    algorithm: Algorithm,
    key: PRNGKeyArray,
    data: ClientData,
    *,
    num_rounds: int,
    observe: Callable[[Any, Any], PyTree] = nothing,
    data_per_round: bool = False,
    devices: int | None = None,
) -> tuple[Any, PyTree]:
    """Runs `num_rounds` communication rounds from a fresh start.

    The key's itinerary: the run's key splits into that of `init` and that of the
    rounds; round t uses the latter folded with t.

    Compiled, once for each algorithm, observer and shape of the data. On a CPU the
    clients are spread over one device for each core, as many as the log tells; models
    are the same bits as on one, and lie on the first. Inside of `jit`, `vmap` and the
    like the run becomes a part of what is transformed there, on its devices.

    Args:
      algorithm: what to run.
      key: of this run.
      data: leaves `[clients, samples, ...]`; with `data_per_round` one set for each
        round, leaves `[rounds, clients, samples, ...]`.
      num_rounds: T, at least 0; at least 1 with `data_per_round`.
      observe: `(state, info) -> pytree`, what to keep of each round, with the state
        after the round and the info of the round; nothing by default. What it does
        not return is not computed. Given once more it is not compiled again.
      data_per_round: see `data`.
      devices: local devices that clients are spread over. If None: those of
        `clients_over_devices` around the call; else on a CPU up to 8, where there are
        so many and a round is large enough to gain; else 1.

    Returns:
      The final state, and the observations stacked along a leading axis of rounds.

    Raises:
      ValueError: if `num_rounds` is negative, or not the length of `data`'s leading
        axis with `data_per_round`; where `data` are concrete, if they are not finite
        (padding included) or hold labels outside the task's classes; if there are not
        so many `devices`, or they are asked for inside of a transformation.
    """
    if num_rounds < 0:
        raise ValueError(f"`num_rounds` must be at least 0, got {num_rounds}.")
    if data_per_round and data.mask.shape[0] != max(num_rounds, 1):
        raise ValueError(
            f"`data` must hold {num_rounds} rounds, at least 1, got"
            f" {data.mask.shape[0]}."
        )
    if data_per_round:
        check_finite_rounds(data)
    else:
        algorithm.check(data)
    keep_programs()
    functions = algorithm.init, algorithm.step
    program = _program(functions, observe, num_rounds, data_per_round)
    if _is_transformed(key, data, algorithm.settings):
        if devices is not None:
            raise ValueError(
                f"`devices` must be None inside of `jit` and the like, got {devices};"
                " enter `clients_over_devices` around the outermost of them."
            )
        return program.rounds(key, data)
    return program(key, data, devices)


def _is_transformed(*values: PyTree) -> bool:
    """Whether some values are traced, or everything that is computed is."""
    return any(map(is_traced, jax.tree.leaves((*values, jnp.zeros(())))))


class _Program:
    """The rounds of one algorithm, compiled for each shape of the data."""

    def __init__(self, rounds: Callable[..., tuple[Any, PyTree]], num_rounds: int):
        self.rounds = rounds
        self.num_rounds = num_rounds
        self.compiled = jax.jit(rounds)
        self.devices: dict[Any, int] = {}  # That pay by default.

    def __call__(
        self, key: PRNGKeyArray, data: ClientData, devices: int | None
    ) -> tuple[Any, PyTree]:
        """The final state and the observations, on the first device unless the caller
        has a mesh."""
        if devices is None and not jax.sharding.get_abstract_mesh().empty:
            return self.compiled(key, data)
        if devices is None:
            devices = self._worth(key, data)
        log.info("clients on %d of %d devices", devices, jax.local_device_count())
        with clients_over_devices(devices) as number:
            if number == 1:
                return self.compiled(key, data)
            axis = data.mask.ndim - 2
            place = functools.partial(_placed, number=number, axis=axis)
            key = jax.device_put(key, EVERYWHERE)
            found = self.compiled(key, jax.tree.map(place, data))
        return jax.tree.map(_at_home, found)

    def _worth(self, key: PRNGKeyArray, data: ClientData) -> int:
        """Devices that pay for such data."""
        kind = (
            jax.tree.structure(data),
            *((leaf.shape, str(leaf.dtype)) for leaf in data),
        )
        if jax.local_device_count() > 1 and kind not in self.devices:
            jaxpr = self.compiled.trace(key, data).jaxpr.jaxpr
            self.devices[kind] = devices_for(jaxpr, self.num_rounds)
        return self.devices.get(kind, 1)


@functools.lru_cache(maxsize=16)
def _program(
    functions: tuple[Callable, Callable],
    observe: Callable[[Any, Any], PyTree],
    num_rounds: int,
    data_per_round: bool,
) -> _Program:
    """The program of these rounds, kept for as long as a few others are asked for."""
    init, step = functions

    def rounds(key: PRNGKeyArray, data: ClientData) -> tuple[Any, PyTree]:
        init_key, rounds_key = jax.random.split(key)
        first = jax.tree.map(lambda leaf: leaf[0], data) if data_per_round else data
        state = init(init_key, first)

        def one_round(state: Any, inputs: tuple) -> tuple[Any, PyTree]:
            index, fresh = inputs
            round_key = jax.random.fold_in(rounds_key, index)
            now = fresh if data_per_round else data
            state, info = step(round_key, state, now)
            return state, observe(state, info)

        per_round = (jnp.arange(num_rounds), data if data_per_round else None)
        return jax.lax.scan(one_round, state, per_round)

    return _Program(rounds, num_rounds)


def _placed(leaf: Array, number: int, axis: int) -> Array:
    """The array on the devices of the mesh: on each its own clients, or all of them
    where they cannot be shared out evenly. The cores of a CPU share its memory, so that
    nothing is copied."""
    is_even = leaf.shape[axis] % number == 0
    spec = PartitionSpec(*[None] * axis, CLIENTS) if is_even else EVERYWHERE
    if jax.default_backend() != "cpu":
        return jax.device_put(leaf, spec)
    host = np.asarray(leaf)
    parts = np.split(host, number, axis) if is_even else [host] * number
    where = NamedSharding(jax.sharding.get_mesh(), spec)
    devices = jax.local_devices()[:number]
    own = [
        jax.device_put(part, device, may_alias=True)
        for part, device in zip(parts, devices, strict=True)
    ]
    return jax.make_array_from_single_device_arrays(leaf.shape, where, own)


def _at_home(leaf: Array) -> Array:
    """The array on the first device alone, bound to it no more than any new one."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        own, kind = _at_home(jax.random.key_data(leaf)), jax.random.key_impl(leaf)
        return jax.random.wrap_key_data(own, impl=kind)
    return jax.device_put(np.asarray(leaf))
