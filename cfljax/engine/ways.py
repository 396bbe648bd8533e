"""Ways: how a range of trials of some cells is computed.

One cell after the other, several of one trial at once, all that share random data
jointly, or long runs round by round; and any of these by several processes.
"""

import contextlib
import itertools
import math
import pathlib
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from cfljax.base.platforms import default_platform
from cfljax.engine.checkpoints import checkpoints
from cfljax.engine.devices import trial_devices
from cfljax.engine.grid import BLOCK, Cell, Grid
from cfljax.engine.processes import gathered, num_processes, part, portable
from cfljax.engine.programs import (
    Batching,
    Program,
    Simulate,
    compile_cells,
    compile_trials,
    fit_chunk,
    placed,
    run_cells,
    run_trials,
)
from cfljax.engine.store import Block, Outputs, OutputsError

AT_ONCE = 32  # Cells: few enough to lose little with a run that is killed.

# What computes a range of trials of some cells that belong together, given the number
# of their group and their places: outputs of each cell, and the seconds they took.
Compute = Callable[[int, Sequence[Block], slice], tuple[Sequence[Outputs], float]]


class Joint(NamedTuple):
    """How to compute one trial index of many cells at once.

    Not traced: it runs on the host and compiles what it likes. Where its store lacks a
    trial of any cell, a sweep asks for all cells that share their data, in the grid's
    order, and writes the ones it lacks: so what a cell gets may depend on the others in
    its last bits, but on nothing that was killed, repaired or left to another run. With
    `enough`, cells that have stopped before a block are left out of it; of a store that
    was partly filled under another rule, or none, the last bits are those of either.

    simulate: `(trials, key, constants) -> one {name: array} for each of trials`, where
      `trials` are those of the cells and `key` is `fold_in(key(seed), i)`, i the index
      that they share.
    shares: `trial -> hashable`; cells that give the same one are computed together.
    """

    simulate: Callable[[Sequence[Any], PRNGKeyArray, PyTree], Sequence[Outputs]]
    shares: Callable[[Any], Hashable]


class Work:
    """Whom what computes asks and tells how far it is. As it is here, that of a process
    that computes for the first one, which checks, counts and stores."""

    def accept(self, outputs: dict[str, jax.ShapeDtypeStruct]) -> None:
        """Check a trial's outputs: ValueError if they are not what the grid announces
        or the store holds."""

    def advance(self, trials: int) -> None:
        """Count trials that are over."""

    def took_up(self, core_seconds: float) -> None:
        """Of the block under way so much was done by other processes."""

    def state_file(self, trial: Any, index: int) -> pathlib.Path:
        """Where the state of a trial is kept that is a long run; never used here."""
        del trial, index
        return pathlib.Path("state.npz")

    def own_states(
        self, trial: Any, trials: Sequence[int]
    ) -> contextlib.AbstractContextManager[None]:
        """Inside, states of some trials are this run's. Those of other code go, unless
        another run is at the same trials, with more rounds or fewer."""
        del trial, trials
        return contextlib.nullcontext()


class Way(NamedTuple):
    """How a grid's trials are computed; the fields but one are as of `sweep`, with its
    defaults in their places.

    at_once: most cells that are computed by one call, unless jointly.
    """

    grid: Grid
    simulate: Simulate | None
    joint: Joint | None
    constants: PyTree
    by_rounds: bool
    batching: Batching | None
    chunk: int | None
    memory: int | None
    devices: int | None
    at_once: int

    @property
    def simulates(self) -> Callable[..., Any]:
        """The function that is given, of whichever kind."""
        own = self.simulate if self.joint is None else self.joint.simulate
        assert own is not None  # As `choose_way` has seen.
        return own

    def compute(self, work: Work) -> Compute:
        """What computes, and tells `work`; if there are several processes, what is done
        by all, each its part."""
        key = jax.random.key(self.grid.seed, impl="threefry2x32")
        if self.by_rounds:  # All processes compute each trial, of some clients each.
            return _round_by_round(self, key, work)
        if self.joint is not None:
            compute = _jointly(self, self.joint, key, work)
        else:
            constants = jax.device_put(self.constants)
            compute = _one_by_one(self, key, constants, work)
            if self.at_once > 1:
                compute = _at_once(self, key, constants, work, compute)
        return compute if num_processes() == 1 else _shared_out(compute, work)


def choose_way(
    grid: Grid,
    simulate: Simulate | None,
    joint: Joint | None,
    constants: PyTree,
    *,
    by_rounds: bool,
    stops: bool,
    batching: Batching | None,
    chunk: int | None,
    memory: int | None,
    devices: int | None,
) -> Way:
    """The way that is asked for, on this machine.

    Args:
      grid: cells and trials.
      simulate: as of `sweep`, and so are the others that are not here.
      joint: instead of it.
      constants: arrays that all trials share.
      by_rounds: whether trials are long runs.
      stops: whether there is a rule by which cells stop.
      batching: None for the machine's.
      chunk: None for as many as fit.
      memory: None for half of what is available.
      devices: None for the machine's.

    Raises:
      ValueError: unless there is one way, with its own options, and so many devices.
    """
    given = {"chunk": chunk, "memory": memory, "batching": batching, "devices": devices}
    _check(simulate, joint, given, by_rounds=by_rounds)
    if joint is None and not by_rounds:
        batching, devices = batching or default_batching(), devices or _devices()
        trial_devices(devices)  # Raises if there are not so many.
    at_once = 1 if stops else most_at_once(grid, batching=batching, chunk=chunk)
    devices = 1 if at_once > 1 else devices
    asked = (grid, simulate, joint, constants, by_rounds)
    return Way(*asked, batching, chunk, memory, devices, at_once)


def _check(
    simulate: Simulate | None,
    joint: Joint | None,
    given: dict[str, Any],
    *,
    by_rounds: bool,
) -> None:
    """Raises ValueError unless there is one way to compute, with its own options."""
    if (simulate is None) == (joint is None):
        found = "neither" if simulate is None else "both"
        raise ValueError(f"give `simulate` or `joint`, one of the two; got {found}.")
    for name, value in given.items():
        if joint is not None and value is not None:
            raise ValueError(f"`{name}` does not apply to a `joint` one; leave it out.")
        if by_rounds and value is not None:
            raise ValueError(f"`{name}` does not apply with `by_rounds`; leave it out.")
    if joint is not None and by_rounds:
        raise ValueError("`by_rounds` does not apply to a `joint` one; leave it out.")
    if given["batching"] not in (None, "map", "vmap"):
        got = given["batching"]
        raise ValueError(f"`batching` must be 'map' or 'vmap', got {got!r}.")
    for name, unit in (("chunk", ""), ("memory", " byte"), ("devices", "")):
        value = given[name]
        if value is not None and value < 1:
            raise ValueError(f"`{name}` must be at least 1{unit}, got {value}.")


def default_batching() -> Batching:
    """How trials are computed on this machine if nothing else is said."""
    return "map" if default_platform() == "cpu" else "vmap"


def _devices() -> int:
    busy = not jax.sharding.get_abstract_mesh().empty
    return 1 if busy or jax.default_backend() == "cpu" else jax.local_device_count()


def most_at_once(grid: Grid, *, batching: Batching | None, chunk: int | None) -> int:
    """Most cells that one call computes, if it does trials of a cell at once: those
    that differ in traced fields alone, where a cell has but one trial."""
    if batching != "vmap" or grid.num_trials > 1 or not grid.traced:
        return 1
    return AT_ONCE if chunk is None else chunk


def groups_of(
    cells: Sequence[Cell], shares: Callable[[Any], Hashable]
) -> list[list[Cell]]:
    """Cells whose trials share something, by the number of their group."""
    groups: dict[Hashable, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(shares(cell.trial), []).append(cell)
    return list(groups.values())


def calls_of(cells: Sequence[Cell], at_once: int) -> list[tuple[Cell, ...]]:
    """The cells of a group by the calls that compute them, of which none has more than
    one less than another: what a call lacks of the largest is computed in vain."""
    number = math.ceil(len(cells) / at_once)
    ends = [math.ceil(len(cells) * call / number) for call in range(number + 1)]
    return [tuple(cells[a:b]) for a, b in itertools.pairwise(ends)]


def _one_by_one(way: Way, key: PRNGKeyArray, constants: PyTree, work: Work) -> Compute:
    """One cell at a time, compiled once for each group; remembers the last group."""
    grid, simulate = way.grid, way.simulates
    last: tuple[int, Program | Exception, list[PyTree]] | None = None
    block = min(BLOCK, grid.num_trials)
    assert way.batching is not None and way.devices is not None
    how = {"batching": way.batching, "devices": way.devices}

    def compile_group(trial: Any) -> Program | Exception:
        compile_chunk = lambda size: compile_trials(
            simulate, trial, key, constants, chunk=size, traced=grid.traced, **how
        )
        try:
            return fit_chunk(
                compile_chunk, block=block, chunk=way.chunk, memory=way.memory
            )
        except Exception as error:
            return error

    def compute(
        group: int, cells: Sequence[Block], trials: slice
    ) -> tuple[list[Outputs], float]:
        nonlocal last
        (cell,) = (grid.cell(place).trial for place in cells)
        if last is None or last[0] != group:
            last = None  # Two programs must not be alive at once.
            program = compile_group(cell)
            failed = isinstance(program, Exception)
            last = (group, program, [] if failed else placed(program, constants))
        _, program, own = last
        if isinstance(program, Exception):  # For each cell of a group.
            raise program
        work.accept(program.outputs)
        outputs, seconds = run_trials(program, cell, key, own, trials=trials)
        work.advance(trials.stop - trials.start)
        return [outputs], seconds

    return compute


def _at_once(
    way: Way, key: PRNGKeyArray, constants: PyTree, work: Work, one_by_one: Compute
) -> Compute:
    """The only trial of several cells at once, compiled once for each group; remembers
    the last group. A cell of a group of its own is computed as if there were no others,
    and so is one where the program of the group cannot be made."""
    grid, simulate = way.grid, way.simulates
    last: tuple[int, Program | Exception] | None = None
    # Whatever of a group is done: so what was killed ends in the same bits.
    groups = groups_of(grid.cells(), grid.static)
    sizes = [max(map(len, calls_of(cells, way.at_once))) for cells in groups]

    def compute(
        group: int, cells: Sequence[Block], trials: slice
    ) -> tuple[Sequence[Outputs], float]:
        nonlocal last
        if sizes[group] == 1:
            return one_by_one(group, cells, trials)
        own = [grid.cell(place).trial for place in cells]
        trial_key = jax.random.fold_in(key, trials.start)
        if last is None or last[0] != group:
            last = None  # Two programs must not be alive at once.
            compile_chunk = lambda size: compile_cells(
                simulate, own[0], trial_key, constants, chunk=size, traced=grid.traced
            )
            try:
                fits = {"chunk": way.chunk, "memory": way.memory}
                last = group, fit_chunk(compile_chunk, block=sizes[group], **fits)
            except Exception as error:
                last = group, error
        _, program = last
        if isinstance(program, Exception):
            if len(cells) == 1:
                return one_by_one(group, cells, trials)
            raise program  # What is asked next is each alone.
        work.accept(program.outputs)
        outputs, seconds = run_cells(program, own, trial_key, constants)
        work.advance(len(cells))
        return outputs, seconds

    return compute


def _round_by_round(way: Way, key: PRNGKeyArray, work: Work) -> Compute:
    """One trial after the other, as it is: what it runs is compiled and kept there."""
    simulate = way.simulates

    def compute(
        group: int, cells: Sequence[Block], trials: slice
    ) -> tuple[list[Outputs], float]:
        del group
        (cell,) = (way.grid.cell(place).trial for place in cells)
        begin, gathered = time.perf_counter(), []
        indices = range(trials.start, trials.stop)
        with work.own_states(cell, indices):
            for index in indices:
                own_key = jax.random.fold_in(key, index)
                with checkpoints(work.state_file(cell, index)) as spent:
                    found = simulate(cell, own_key, way.constants)
                work.took_up(spent.core_seconds)
                own = {name: np.asarray(value) for name, value in found.items()}
                work.accept(_shapes_of(own))
                gathered.append(own)
                work.advance(1)
        return [_stack(gathered)], time.perf_counter() - begin

    return compute


def _jointly(way: Way, joint: Joint, key: PRNGKeyArray, work: Work) -> Compute:
    """All cells of a group at once, one index of a trial after the other."""

    def one(cells: Sequence[Any], index: int) -> list[Outputs]:
        found = joint.simulate(cells, jax.random.fold_in(key, index), way.constants)
        if len(found) != len(cells):
            raise OutputsError(
                f"`joint.simulate` must give outputs for each of {len(cells)} cells,"
                f" got {len(found)}."
            )
        every = [
            {name: np.asarray(value) for name, value in outputs.items()}
            for outputs in found
        ]
        for own in every:
            work.accept(_shapes_of(own))
        return every

    def compute(
        group: int, cells: Sequence[Block], trials: slice
    ) -> tuple[list[Outputs], float]:
        del group
        begin = time.perf_counter()
        asked = [way.grid.cell(place).trial for place in cells]
        found: list[list[Outputs]] = [[] for _ in cells]
        for index in range(trials.start, trials.stop):
            for own, outputs in zip(found, one(asked, index), strict=True):
                own.append(outputs)
            work.advance(len(cells))
        stacked = [_stack(own) for own in found]
        return stacked, time.perf_counter() - begin

    return compute


def _shapes_of(outputs: Outputs) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes and types of the outputs of one trial."""
    return {n: jax.ShapeDtypeStruct(a.shape, a.dtype) for n, a in outputs.items()}


def _stack(trials: Sequence[Outputs]) -> Outputs:
    """Outputs `[trials, ...]` of several trials."""
    return {name: np.stack([own[name] for own in trials]) for name in trials[0]}


def _shared_out(compute: Compute, work: Work) -> Compute:
    """The same by all processes, of which each computes a part of the trials."""

    def attempt(
        group: int, cells: Sequence[Block], own: slice
    ) -> tuple[Sequence[Outputs] | None, float, Exception | None]:
        if own.start == own.stop:
            return None, 0.0, None
        before = time.process_time()
        try:
            outputs, _ = compute(group, cells, own)
        except Exception as error:  # Of this process alone, perhaps.
            return None, 0.0, portable(error)
        return outputs, time.process_time() - before, None

    def together(
        group: int, cells: Sequence[Block], trials: slice
    ) -> tuple[list[Outputs], float]:
        begin, own = time.perf_counter(), part(trials)
        mine, *others = gathered(attempt(group, cells, own))
        for _, _, error in (mine, *others):
            if error is not None:
                raise error
        work.took_up(sum(core_seconds for _, core_seconds, _ in others))
        size = trials.stop - trials.start - (own.stop - own.start)
        work.advance(size * len(cells))
        every = [outputs for outputs, _, _ in (mine, *others) if outputs is not None]
        joined = [
            {name: np.concatenate([one[name] for one in parts]) for name in parts[0]}
            for parts in zip(*every, strict=True)
        ]
        return joined, time.perf_counter() - begin

    return together
