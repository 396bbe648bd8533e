"""Execute: blocks of trials, of one cell compiled or of several cells jointly."""

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from cfljax.engine.batch import (
    Batching,
    Program,
    Simulate,
    compile_trials,
    placed,
    run_trials,
)
from cfljax.engine.errors import OutputsError
from cfljax.engine.joint import Joint, Outputs
from cfljax.engine.memory import fit_chunk

__all__ = ["Common", "Compute", "Jointly", "Traced"]

Shapes = dict[str, jax.ShapeDtypeStruct]


# `(group, cells, trials) -> (outputs [trials, ...] of each cell, seconds)`: a block of
# some cells. `group` is the same for cells that share a compilation, `cells` holds the
# trial of each, `trials` is a range of indices; seconds without compilation if known.
Compute = Callable[[int, Sequence[Any], slice], tuple[list[Outputs], float]]


class Common(NamedTuple):
    """What any way to compute a block needs.

    key: of the sweep, folded with the index of the trial.
    constants: arrays that all trials share.
    check: raises if the outputs of one trial are not what is to be stored.
    advance: told how many trials are over.
    """

    key: PRNGKeyArray
    constants: PyTree
    check: Callable[[Shapes], None]
    advance: Callable[[int], None]


class Traced:
    """One cell at a time, compiled once per group; remembers the last group.

    Args:
      simulate: one trial, see `sweep`.
      common: see `Common`.
      batching: "map" or "vmap".
      devices: local devices that trials are spread over.
      block: most trials of a block.
      chunk: trials per compiled call, None for as many as fit.
      memory: bytes that a compiled call may take, None for the default.
    """

    def __init__(
        self,
        simulate: Simulate,
        common: Common,
        *,
        batching: Batching,
        devices: int,
        block: int,
        chunk: int | None,
        memory: int | None,
    ) -> None:
        self._common = common
        self._compile_trials = functools.partial(
            compile_trials, simulate, batching=batching, devices=devices
        )
        self._fit = functools.partial(
            fit_chunk, block=block, chunk=chunk, memory=memory
        )
        self._last: tuple[int, Program | Exception, list[PyTree]] | None = None

    def __call__(
        self, group: int, cells: Sequence[Any], trials: slice
    ) -> tuple[list[Outputs], float]:
        """See `Compute`.

        Raises:
          MemoryLimitError: if a trial or the chunk does not fit.
          Exception: whatever the trial raises, for each cell of a group that does not
            compile.
        """
        (cell,) = cells
        if self._last is None or self._last[0] != group:
            self._last = None  # Two programs must not be alive at once.
            program = self._compile(cell)
            failed = isinstance(program, Exception)
            constants = [] if failed else placed(program, self._common.constants)
            self._last = (group, program, constants)
        _, program, constants = self._last
        if isinstance(program, Exception):
            raise program
        key, _, check, advance = self._common
        check(program.outputs)
        outputs, seconds = run_trials(program, cell, key, constants, trials=trials)
        advance(trials.stop - trials.start)
        return [outputs], seconds

    def _compile(self, cell: Any) -> Program | Exception:
        key, constants, *_ = self._common
        compile_chunk = functools.partial(self._compile_trials, cell, key, constants)
        try:
            return self._fit(lambda size: compile_chunk(chunk=size))
        except Exception as error:
            return error


class Jointly:
    """All cells of a group at once, one index of a trial after the other.

    Args:
      joint: how.
      common: see `Common`.
    """

    def __init__(self, joint: Joint, common: Common) -> None:
        self._joint = joint
        self._common = common

    def __call__(
        self, group: int, cells: Sequence[Any], trials: slice
    ) -> tuple[list[Outputs], float]:
        """See `Compute`.

        Raises:
          OutputsError: if there is not one set of outputs per cell.
          Exception: whatever `joint.simulate` raises.
        """
        del group
        begin = time.perf_counter()
        gathered: list[list[Outputs]] = [[] for _ in cells]
        for index in range(trials.start, trials.stop):
            for own, outputs in zip(gathered, self._one(cells, index), strict=True):
                own.append(outputs)
            self._common.advance(len(cells))
        stacked = [
            {name: np.stack([outputs[name] for outputs in own]) for name in own[0]}
            for own in gathered
        ]
        return stacked, time.perf_counter() - begin

    def _one(self, cells: Sequence[Any], index: int) -> list[Outputs]:
        """One trial index of each cell."""
        key, constants, check, _ = self._common
        key = jax.random.fold_in(key, index)
        found = self._joint.simulate(cells, key, constants)
        if len(found) != len(cells):
            raise OutputsError(
                f"`joint.simulate` must give outputs for each of {len(cells)} cells,"
                f" got {len(found)}."
            )
        every = [
            {name: np.asarray(value) for name, value in outputs.items()}
            for outputs in found
        ]
        for outputs in every:
            check(
                {n: jax.ShapeDtypeStruct(a.shape, a.dtype) for n, a in outputs.items()}
            )
        return every
