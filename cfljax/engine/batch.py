"""Batch: many trials of one cell in one compiled call on each device."""

import copy
import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import SingleDeviceSharding
from jaxtyping import Array, PRNGKeyArray, PyTree

from cfljax.engine.devices import check_decompositions, trial_devices

__all__ = [
    "Batching",
    "Program",
    "Simulate",
    "compile_trials",
    "floats",
    "placed",
    "run_trials",
]

Batching = Literal["map", "vmap"]
Simulate = Callable[[Any, PRNGKeyArray, PyTree], dict[str, Array]]


class Program(NamedTuple):
    """A compiled batch of trials.

    compiled: on each device the same `(floats, key, start, count, constants) -> leaves
      [turns, ...]`, of `count` trials from `start` on.
    chunk: most trials per call of all.
    outputs: shape and type of each output of one trial.
    """

    compiled: tuple[jax.stages.Compiled, ...]
    chunk: int
    outputs: dict[str, jax.ShapeDtypeStruct]

    @property
    def devices(self) -> int:
        """Devices that trials are spread over."""
        return len(self.compiled)

    @property
    def turns(self) -> int:
        """Trials of a chunk that one device has room for."""
        return math.ceil(self.chunk / self.devices)

    @property
    def shardings(self) -> list[jax.sharding.Sharding]:
        """Where each device's part of a chunk lies."""
        outputs = (one.output_shardings for one in self.compiled)
        return [jax.tree.leaves(shardings)[0] for shardings in outputs]


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

    Over several devices each runs a part of the chunk by a program of its own, the one
    that a single device has for so many trials: with "map" results do not depend on the
    number of devices of one kind, to the last bit. No more devices are used than there
    are trials in a chunk.

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
    places = trial_devices(devices, at_most=chunk)
    turns = math.ceil(chunk / len(places))

    @jax.jit
    def one(values, key, index, constants):
        outputs = simulate(
            _bind(trial, values), jax.random.fold_in(key, index), constants
        )
        return jax.tree.map(jnp.asarray, outputs)

    def mapped(values, key, start, count, constants):
        def body(i, buffers):
            index = start + i.astype(jnp.uint32)
            result = one(values, key, index, constants)
            return jax.tree.map(lambda b, leaf: b.at[i].set(leaf), buffers, result)

        shapes = jax.eval_shape(one, values, key, start, constants)
        empty = lambda s: jnp.zeros((turns, *s.shape), s.dtype)
        return jax.lax.fori_loop(0, count, body, jax.tree.map(empty, shapes))

    def vectorised(values, key, start, count, constants):
        del count  # The caller drops what lies beyond.
        indices = start + jnp.arange(turns, dtype=jnp.uint32)
        return jax.vmap(one, in_axes=(None, None, 0, None))(
            values, key, indices, constants
        )

    # A batch of one is the plain trial: XLA would drop the axis and, having other
    # shapes to fuse, round differently.
    run_share = mapped if batching == "map" or turns == 1 else vectorised
    arguments = (floats(trial), key, np.uint32(0), np.int32(0), constants)
    compiled = []
    for place in places:
        run = jax.jit(run_share)
        if len(places) > 1:
            run = jax.jit(run_share, in_shardings=SingleDeviceSharding(place))
        traced = run.trace(*arguments)
        if len(places) > 1:
            check_decompositions(traced.jaxpr)
        compiled.append(traced.lower().compile())
    outputs = {
        name: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype)
        for name, leaf in traced.out_info.items()
    }
    return Program(tuple(compiled), chunk, outputs)


def run_trials(
    program: Program,
    trial: Any,
    key: PRNGKeyArray,
    constants: Sequence[PyTree],
    *,
    trials: slice,
) -> tuple[dict[str, np.ndarray], float]:
    """Run a range of trials, a chunk at a time.

    Args:
      program: of `compile_trials`.
      trial: fields.
      key: of the sweep.
      constants: on each of the program's devices, see `placed`.
      trials: range of indices.

    Returns:
      Outputs `[trials, ...]` in the host's memory, and the seconds they took.
    """
    begin = time.perf_counter()
    is_double = jax.dtypes.canonicalize_dtype(float) == np.float64

    def run_part(place: int, first: int, count: int) -> dict[str, Array]:
        with jax.enable_x64(is_double):  # A thread has settings of its own.
            own = floats(trial), keys[place], np.uint32(first), np.int32(count)
            return program.compiled[place](*own, constants[place])

    keys = placed(program, key)
    size = trials.stop - trials.start
    results = {
        name: np.empty((size, *output.shape), output.dtype)
        for name, output in program.outputs.items()
    }
    with ThreadPoolExecutor(program.devices) as pool:
        for start in range(0, size, program.chunk):
            parts = _parts(start, min(program.chunk, size - start), program.devices)
            jobs = [
                pool.submit(run_part, place, trials.start + first, count)
                for place, (first, count) in enumerate(parts)
            ]
            for job, (first, count) in zip(jobs, parts, strict=True):
                for name, leaf in job.result().items():
                    results[name][first : first + count] = np.asarray(leaf)[:count]
            del jobs, job, leaf  # Two chunks must not be alive at once.
    return results, time.perf_counter() - begin


def placed(program: Program, values: PyTree) -> list[PyTree]:
    """Values for each of a program's devices; where there are several, sent there."""
    if program.devices == 1:
        return [values]
    return [jax.device_put(values, place) for place in program.shardings]


def _parts(start: int, count: int, devices: int) -> list[tuple[int, int]]:
    """First trial and number of trials of each device, without empty parts."""
    size = math.ceil(count / devices)
    firsts = range(start, start + count, size)
    return [(first, min(size, start + count - first)) for first in firsts]
