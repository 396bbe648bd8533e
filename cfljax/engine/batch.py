"""Batch: many trials of one cell in one compiled call."""

import copy
import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

__all__ = ["Batching", "Program", "Simulate", "compile_trials", "floats", "run_trials"]

Batching = Literal["map", "vmap"]
Simulate = Callable[[Any, PRNGKeyArray, PyTree], dict[str, Array]]


class Program(NamedTuple):
    """A compiled batch of trials.

    compiled: `(floats, key, start, count, constants) -> leaves [chunk, ...]`.
    chunk: most trials per call.
    outputs: shape and type of each output of one trial.
    """

    compiled: jax.stages.Compiled
    chunk: int
    outputs: dict[str, jax.ShapeDtypeStruct]


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
) -> Program:
    """Compile `chunk` trials of every cell that differs from `trial` only in floats.

    With "map" the trials run one after the other in a loop of variable length, whose
    body is the same program whatever the chunk: results do not depend on it, to the
    last bit. With "vmap" they run at once; XLA may then order a sum differently for
    another chunk, so results agree up to rounding only.

    Args:
      simulate: `(trial, key, constants) -> {name: array}`, pure and traceable.
      trial: fields; the floats among them are traced, the others are static.
      key: of the sweep, folded with the index of the trial.
      constants: arrays passed through to `simulate`.
      chunk: most trials per call, at least 1.
      batching: "map" or "vmap".
    """

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
        empty = lambda s: jnp.zeros((chunk, *s.shape), s.dtype)
        return jax.lax.fori_loop(0, count, body, jax.tree.map(empty, shapes))

    def vectorised(values, key, start, count, constants):
        del count  # The caller drops what lies beyond.
        indices = start + jnp.arange(chunk, dtype=jnp.uint32)
        return jax.vmap(one, in_axes=(None, None, 0, None))(
            values, key, indices, constants
        )

    # A batch of one is the plain trial: XLA would drop the axis and, having other
    # shapes to fuse, round differently.
    run_chunk = mapped if batching == "map" or chunk == 1 else vectorised
    arguments = (floats(trial), key, np.uint32(0), np.int32(0), constants)
    lowered = jax.jit(run_chunk).lower(*arguments)
    outputs = {
        name: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype)
        for name, leaf in lowered.out_info.items()
    }
    return Program(lowered.compile(), chunk, outputs)


def run_trials(
    program: Program, trial: Any, key: PRNGKeyArray, constants: PyTree, *, trials: slice
) -> tuple[dict[str, np.ndarray], float]:
    """Run a range of trials, a chunk at a time.

    Returns:
      Outputs `[trials, ...]` in the host's memory, and the seconds they took.
    """
    begin = time.perf_counter()
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
            results[name][start : start + count] = np.asarray(leaf)[:count]
        del part, leaf  # Two chunks must not be alive at once.
    return results, time.perf_counter() - begin
