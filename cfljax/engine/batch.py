"""Batch: many trials of one cell in one compiled call."""

import copy
import dataclasses
import functools
import math
import time
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, PRNGKeyArray, PyTree

from cfljax.engine.devices import TRIALS, check_decompositions, everywhere

__all__ = ["Batching", "Program", "Simulate", "compile_trials", "floats", "run_trials"]

Batching = Literal["map", "vmap"]
Simulate = Callable[[Any, PRNGKeyArray, PyTree], dict[str, Array]]


class Program(NamedTuple):
    """A compiled batch of trials.

    compiled: `(floats, key, start, count, constants) -> leaves [chunk, ...]`; over
      several devices `[turns, devices, ...]`, where trial `start + i` is the `i`-th of
      the first two axes taken as one.
    chunk: most trials per call.
    outputs: shape and type of each output of one trial.
    shared: where arguments lie, whole on each device; None on one device.
    """

    compiled: jax.stages.Compiled
    chunk: int
    outputs: dict[str, jax.ShapeDtypeStruct]
    shared: NamedSharding | None = None

    @property
    def devices(self) -> int:
        """Devices that trials are spread over."""
        return 1 if self.shared is None else self.shared.num_devices

    @property
    def rows(self) -> int:
        """Trials that a call has room for: the chunk, and what fills the last turn."""
        return math.ceil(self.chunk / self.devices) * self.devices


def floats(trial: Any) -> dict[str, float]:
    """The fields of a trial that are traced: those that hold a Python float."""
    fields = ((f.name, getattr(trial, f.name)) for f in dataclasses.fields(trial))
    return {name: value for name, value in fields if type(value) is float}


def _bind(trial: Any, values: dict[str, Any]) -> Any:
    # Bypasses the constructor: its checks have been passed by the real floats, and
    # could not be made of traced ones.
    bound = copy.copy(trial)
    for name, value in values.items():
        object.__setattr__(bound, name, value)
    return bound


def compile_trials(
    simulate: Simulate,
    trial: Any,
    key: PRNGKeyArray,
    constants: PyTree,
    *,
    chunk: int,
    batching: Batching,
    devices: int = 1,
) -> Program:
    """Compile `chunk` trials of every cell that differs from `trial` only in floats.

    With "map" the trials run one after the other in a loop of variable length, whose
    body is the same program whatever the chunk: results do not depend on it, to the
    last bit. With "vmap" they run at once; XLA may then order a sum differently for
    another chunk, so results agree up to rounding only.

    Over several devices each runs its share of the chunk, every `devices`-th trial, and
    none waits for another before the chunk's end. With "map" the body is the same
    program again; XLA may still order a sum differently where it compiles for several
    devices, so results agree up to the rounding of the last bit only. No more devices
    are used than there are trials in a chunk.

    Args:
      simulate: `(trial, key, constants) -> {name: array}`, pure and traceable.
      trial: fields; the floats among them are traced, the others are static.
      key: of the sweep, folded with the index of the trial.
      constants: arrays passed through to `simulate`.
      chunk: most trials per call, at least 1.
      batching: "map" or "vmap".
      devices: most local devices that the trials are spread over.

    Raises:
      ValueError: if there are not so many devices, clients are spread over them, or
        a trial on several devices of a CPU decomposes a batch of matrices at once.
    """
    shared = everywhere(devices, at_most=chunk)
    stride = 1 if shared is None else shared.num_devices
    turns = math.ceil(chunk / stride)

    @jax.jit
    def one(values, key, index, constants):
        outputs = simulate(
            _bind(trial, values), jax.random.fold_in(key, index), constants
        )
        return jax.tree.map(jnp.asarray, outputs)

    def mapped(values, key, start, count, constants):
        def body(i, buffers):
            index = start + np.uint32(stride) * i.astype(jnp.uint32)
            result = one(values, key, index, constants)
            return jax.tree.map(lambda b, leaf: b.at[i].set(leaf), buffers, result)

        shapes = jax.eval_shape(one, values, key, start, constants)
        empty = lambda s: jnp.zeros((turns, *s.shape), s.dtype)
        return jax.lax.fori_loop(0, count, body, jax.tree.map(empty, shapes))

    def vectorised(values, key, start, count, constants):
        del count  # The caller drops what lies beyond.
        indices = start + np.uint32(stride) * jnp.arange(turns, dtype=jnp.uint32)
        return jax.vmap(one, in_axes=(None, None, 0, None))(
            values, key, indices, constants
        )

    # A batch of one is the plain trial: XLA would drop the axis and, having other
    # shapes to fuse, round differently.
    run_share = mapped if batching == "map" or turns == 1 else vectorised
    arguments = (floats(trial), key, np.uint32(0), np.int32(0), constants)
    traced = _over_devices(run_share, shared).trace(*arguments)
    if shared is not None:
        check_decompositions(traced.jaxpr)
    leading = 1 if shared is None else 2
    outputs = {
        name: jax.ShapeDtypeStruct(leaf.shape[leading:], leaf.dtype)
        for name, leaf in traced.out_info.items()
    }
    return Program(traced.lower().compile(), chunk, outputs, shared)


def _over_devices(
    run_share: Callable[..., PyTree], shared: NamedSharding | None
) -> jax.stages.Wrapped:
    """A chunk from what runs one device's share of it, compiled by the caller."""
    if shared is None:
        return jax.jit(run_share)

    def run_own(values, key, start, count, constants):
        device = jax.lax.axis_index(TRIALS)
        own = (count + shared.num_devices - 1 - device) // shared.num_devices
        first = start + device.astype(jnp.uint32)
        leaves = run_share(values, key, first, own, constants)
        return jax.tree.map(lambda leaf: leaf[:, None], leaves)

    run_chunk = jax.shard_map(
        run_own,
        mesh=shared.mesh,
        in_specs=shared.spec,
        out_specs=PartitionSpec(None, TRIALS),
        # The loop's buffers start alike on all devices and end different.
        check_vma=False,
    )
    return jax.jit(run_chunk, in_shardings=shared)


def run_trials(
    program: Program, trial: Any, key: PRNGKeyArray, constants: PyTree, *, trials: slice
) -> tuple[dict[str, np.ndarray], float]:
    """Run a range of trials, a chunk at a time.

    Returns:
      Outputs `[trials, ...]` in the host's memory, and the seconds they took.
    """
    begin = time.perf_counter()
    if program.shared is not None:  # Or every chunk would send them again.
        key, constants = jax.device_put((key, constants), program.shared)
    call = functools.partial(program.compiled, floats(trial), key)
    size = trials.stop - trials.start
    results = {
        name: np.empty((size, *output.shape), output.dtype)
        for name, output in program.outputs.items()
    }
    for start in range(0, size, program.chunk):
        count = min(program.chunk, size - start)
        part = call(np.uint32(trials.start + start), np.int32(count), constants)
        for name, leaf in part.items():
            shape = (program.rows, *program.outputs[name].shape)
            rows = np.asarray(leaf).reshape(shape)
            results[name][start : start + count] = rows[:count]
        del part, leaf, rows  # Two chunks must not be alive at once.
    return results, time.perf_counter() - begin
