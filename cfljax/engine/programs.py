"""Compiled batches: trials of one cell in one call a device, and their memory."""

import copy
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

from cfljax.base.unpacking import host_memory
from cfljax.engine.devices import check_decompositions, trial_devices
from cfljax.engine.grid import Grid
from cfljax.engine.store import MemoryLimitError

Batching = Literal["map", "vmap"]
Simulate = Callable[[Any, PRNGKeyArray, PyTree], dict[str, Array]]


class Program(NamedTuple):
    """A compiled batch of trials.

    compiled: on each device the same `(values, key, start, count, constants) -> leaves
      [turns, ...]`, of `count` trials from `start` on.
    traced: names of the trial's fields whose values are given to each call.
    chunk: most trials per call of all.
    outputs: shape and type of each output of one trial.
    """

    compiled: tuple[jax.stages.Compiled, ...]
    traced: tuple[str, ...]
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


def _values(trial: Any, names: Sequence[str]) -> dict[str, Any]:
    """The fields of a trial that are traced, as Python's own numbers."""
    return {name: getattr(trial, name) for name in names}


def _bind(trial: Any, values: dict[str, Any]) -> Any:
    # Bypasses the constructor: its checks have been passed by the real numbers, and
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
    traced: Sequence[str] = (),
    devices: int = 1,
) -> Program:
    """Compile `chunk` trials of every cell that differs from `trial` only as traced.

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
      trial: fields.
      key: of the sweep, folded with the index of the trial.
      constants: arrays passed through to `simulate`.
      chunk: most trials per call, at least 1.
      batching: "map" or "vmap".
      traced: names of the fields that are traced; the others are static.
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
            result = one(values, key, start + i.astype(jnp.uint32), constants)
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
    arguments = (_values(trial, traced), key, np.uint32(0), np.int32(0), constants)
    compiled = []
    for place in places:
        run = jax.jit(run_share)
        if len(places) > 1:
            run = jax.jit(run_share, in_shardings=SingleDeviceSharding(place))
        staged = run.trace(*arguments)
        if len(places) > 1:
            check_decompositions(staged.jaxpr)
        compiled.append(staged.lower().compile())
    return Program(tuple(compiled), tuple(traced), chunk, _of_one(staged.out_info))


def compile_cells(
    simulate: Simulate,
    trial: Any,
    key: PRNGKeyArray,
    constants: PyTree,
    *,
    chunk: int,
    traced: Sequence[str],
) -> Program:
    """Compile one trial each of `chunk` cells that differ from `trial` only as traced,
    all at once, on one device; other arguments as of `compile_trials`, but that `key`
    is the trial's own. What is compiled takes `(values [chunk], key, constants)`."""

    def one(values, key, constants):
        outputs = simulate(_bind(trial, values), key, constants)
        return jax.tree.map(jnp.asarray, outputs)

    values = _stacked([_values(trial, traced)] * chunk)
    together = jax.jit(jax.vmap(one, in_axes=(0, None, None)))
    staged = together.trace(values, key, constants)
    compiled = (staged.lower().compile(),)
    return Program(compiled, tuple(traced), chunk, _of_one(staged.out_info))


def _of_one(outputs: dict[str, Any]) -> dict[str, jax.ShapeDtypeStruct]:
    """The outputs of one trial, of those `[turns, ...]` of several."""
    kind = lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype)
    return {name: kind(leaf) for name, leaf in outputs.items()}


def run_cells(
    program: Program, trials: Sequence[Any], key: PRNGKeyArray, constants: PyTree
) -> tuple[list[dict[str, np.ndarray]], float]:
    """One trial of each cell, a chunk at a time; the last chunk is filled up with its
    last cell.

    Args:
      program: of `compile_cells`.
      trials: of the cells.
      key: of the trial.
      constants: as they were compiled for.

    Returns:
      Outputs `[1, ...]` of each cell, and the seconds they took.
    """
    begin, found = time.perf_counter(), []
    for first in range(0, len(trials), program.chunk):
        part = [_values(own, program.traced) for own in trials[first:][: program.chunk]]
        values = _stacked(part + [part[-1]] * (program.chunk - len(part)))
        outputs = jax.tree.map(np.asarray, program.compiled[0](values, key, constants))
        rows = range(len(part))
        found += [{n: leaf[i : i + 1] for n, leaf in outputs.items()} for i in rows]
    return found, time.perf_counter() - begin


def _stacked(each: Sequence[dict[str, Any]]) -> dict[str, Array]:
    """The numbers of all, of the types that each would have alone: weak ones."""
    stack = lambda *own: jnp.stack([jnp.asarray(number) for number in own])
    return jax.tree.map(stack, *each)


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
            span = np.uint32(first), np.int32(count)
            return program.compiled[place](values, keys[place], *span, constants[place])

    values = _values(trial, program.traced)
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


def available_memory() -> int:
    """Bytes that arrays may take on the default device.

    Of an accelerator, all that its allocator may use: a constant of the machine, so
    that a sweep which resumes there chooses the same chunk again. Else the host's.
    """
    stats = jax.local_devices()[0].memory_stats() or {}
    return stats["bytes_limit"] if "bytes_limit" in stats else host_memory()


def check_results(grid: Grid) -> None:
    """Raises MemoryLimitError where a grid's results cannot be held.

    They are counted with 8 bytes a number and twice, as they are when they are read;
    an own axis without labels counts as one number, since its size is not known yet.
    """
    sizes = {name: len(labels) for name, labels in grid.coords.items()}
    numbers = sum(
        math.prod(sizes.get(dim, 1) for dim in dims) for dims in grid.dims.values()
    )
    per_trial = 16 * numbers * math.prod(grid.shape)
    allowed = host_memory()
    if per_trial * grid.num_trials > allowed:
        raise MemoryLimitError(
            f"results of {grid.num_trials} trials in {math.prod(grid.shape)} cells need"
            f" {_size(per_trial * grid.num_trials)} but {_size(allowed)} are free;"
            f" {allowed // per_trial} trials would fit."
        )


def needed_memory(program: Program, *, block: int) -> int:
    """Bytes that a compiled batch takes while it runs.

    XLA's own plan: arguments (the constants among them), temporaries and outputs;
    plus the outputs of a whole block, which are gathered on the host. Libraries
    that XLA calls may take a little more. A plan is that of one device; the cores of a
    CPU share their memory, and so its plans add up.
    """
    gathered = block * sum(
        math.prod(output.shape) * output.dtype.itemsize
        for output in program.outputs.values()
    )
    plan = program.compiled[0].memory_analysis()
    if plan is None:  # Not every backend tells.
        return gathered
    arguments = plan.argument_size_in_bytes + plan.temp_size_in_bytes
    sets = [sharding.device_set for sharding in program.shardings]
    is_cpu = next(iter(sets[0])).platform == "cpu"
    sharing = sum(len(devices) for devices in sets) if is_cpu else 1
    return sharing * (arguments + plan.output_size_in_bytes) + gathered


def fit_chunk(
    compile_chunk: Callable[[int], Program],
    *,
    block: int,
    chunk: int | None,
    memory: int | None,
) -> Program:
    """Compile the largest chunk that fits.

    Args:
      compile_chunk: number of trials -> program.
      block: trials per stored block; a chunk is never larger.
      chunk: trials per call, or None for as many as fit.
      memory: bytes allowed, or None for half of what is available.

    Raises:
      MemoryLimitError: if one trial, or `chunk` trials, need more than `memory`.
    """
    allowed = available_memory() // 2 if memory is None else memory
    wanted = min(block, chunk or block)
    program = compile_chunk(wanted)
    needed = needed_memory(program, block=block)
    if needed <= allowed:
        return program
    single = compile_chunk(1) if wanted > 1 else program
    least = needed_memory(single, block=block)
    if least > allowed:
        raise MemoryLimitError(
            f"`memory` allows {_size(allowed)} but one trial needs {_size(least)};"
            " allow more, or make the trial smaller."
        )
    # What a batch needs grows in proportion to its rows, or less: this is not too low.
    below = min(
        wanted - 1, math.ceil(program.turns * program.devices * allowed / needed)
    )
    programs = (compile_chunk(size) for size in range(below, 1, -1))
    fits = lambda program: needed_memory(program, block=block) <= allowed
    fitting = next(filter(fits, programs), single)
    if chunk is not None:
        raise MemoryLimitError(
            f"`chunk` of {wanted} trials needs {_size(needed)} but `memory` allows"
            f" {_size(allowed)}; a chunk of {fitting.chunk} would fit."
        )
    return fitting


def _size(count: int) -> str:
    unit, name = next(
        (unit, name)
        for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "bytes"))
        if count >= unit or unit == 1
    )
    return f"{count / unit:.3g} {name}"
