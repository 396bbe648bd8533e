"""Sweep: run a grid of trials, and never lose one that is done.

A call of `sweep` looks at the store, cuts what it lacks into pieces, claims them one
after the other, computes and stores their blocks, and returns everything that is done.
"""

import contextlib
import logging
import os
import pathlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import xarray
from jaxtyping import Int8, PyTree

from cfljax.engine.cache import keep_programs
from cfljax.engine.claims import Claims
from cfljax.engine.grid import BLOCK, Cell, Grid
from cfljax.engine.kept import StoreError, disk_errors, key_of, read
from cfljax.engine.objects import Leases, claims_on, folder_of
from cfljax.engine.processes import follow, is_first, lead, num_processes
from cfljax.engine.programs import Batching, Simulate, check_results
from cfljax.engine.progress import Bar
from cfljax.engine.provenance import Journal, commit, describe_run, note_runs
from cfljax.engine.quantities import explain
from cfljax.engine.sources import describe
from cfljax.engine.store import (
    DONE,
    FAILED,
    OPEN,
    SPARE,
    Block,
    MemoryLimitError,
    Outputs,
    OutputsError,
    Store,
    SweepError,
)
from cfljax.engine.ways import (
    Compute,
    Joint,
    Way,
    Work,
    calls_of,
    choose_way,
    default_batching,
    groups_of,
    most_at_once,
)

log = logging.getLogger(__name__)

Enough = Callable[[Outputs, Any], bool]

# A sweep ends with these; with others that a trial raises only its cell does.
FATAL = (MemoryLimitError, OutputsError, StoreError)
# What states may take on the disk with that of a trial that is done, which stays for
# more rounds to be added. Those of trials under way stay however many there are.
STATE_BYTES = 10 * 2**30
WAIT = 2.0  # Seconds from one look at what other runs hold to the next.


def sweep(
    grid: Grid,
    simulate: Simulate | None,
    path: str | os.PathLike[str],
    *,
    constants: PyTree = None,
    chunk: int | None = None,
    memory: int | None = None,
    progress: bool = True,
    batching: Batching | None = None,
    devices: int | None = None,
    joint: Joint | None = None,
    shard: tuple[int, int] | None = None,
    waits: bool = False,
    enough: Enough | None = None,
    by_rounds: bool = False,
    accept_code: str | None = None,
) -> xarray.Dataset:
    """Run what the store at `path` lacks of a grid, and return all of it.

    A sweep that was killed, interrupted or stopped by a full disk resumes where it
    was when it is called again; one that is complete is only read. A cell that raises
    is recorded as failed, and tried again by the next call. Runs that diverge are
    results like any other.

    A store holds cells of any sweeps; which cell is which is a question of what its
    trials mean, see `Grid.meaning`. So axes, values and trials can be added, and what
    another sweep has computed of the same meaning is only read. Within one cell all
    trials are of one code: the modules that `simulate` reaches, JAX's version and
    settings, flags; see `sources`.

    Trial `i` of each cell gets `fold_in(key(seed), i)`. The fields that `grid.traced`
    names reach `simulate` traced, so cells that differ only in those share one
    compilation; the others are static.

    Any number of runs, on any machines that see the folder, may work on one store at
    once. Each claims what it computes (a cell, or as many as are computed at once; if
    `joint`, a block of all cells that share their data, or all their blocks with
    `enough`) by locks that die with their process, see `claims`, and passes over what
    others hold. A run that is killed loses
    at most the blocks that it was computing.

    Cost: memory is that of one chunk, by XLA's own account, and of the results, twice.

    Args:
      grid: cells and trials.
      simulate: `(trial, key, constants) -> {name: array}`, one trial; pure and
        traceable. Its outputs have the same shapes in all cells. None with `joint`.
      path: the store, a folder, made if missing, see `store`; or s3://BUCKET/PREFIX,
        see `objects`.
      constants: arrays that all trials share. They are no part of what identifies a
        store: raise `grid.revision` when they change.
      chunk: trials per compiled call, `BLOCK` at most; None for as many as fit. Where
        cells are computed at once, cells per call, at most; None for 32, or as many as
        fit.
      memory: bytes that a compiled call may take; None for half of what is available.
      progress: whether to show a bar, where the standard error is a terminal.
      batching: "map" (one trial after the other, the default on a CPU, where one fills
        the cores) or "vmap" (all at once, the default on an accelerator). With "map"
        the chunk never changes a bit of the result; see `programs.compile_trials`.
        With "vmap" and one trial a cell, cells that differ in traced fields alone are
        computed at once, on one device, unless there is a rule, `enough`.
      devices: local devices that the trials of a chunk are spread over; None for one
        on a CPU, and all on an accelerator unless clients are spread over them.
      joint: instead of `simulate`, how to compute cells that share their random data
        together; `chunk`, `memory`, `batching` and `devices` are its own affair.
      shard: `(i, n)`, 1 <= i <= n: do only every n-th piece of work from the i-th on,
        and return what is done by then.
      waits: whether to stay, where all that is left is computed by other runs, until
        they end: what one leaves undone because it was killed is then computed here.
      enough: `(outputs, trial) -> bool`, whether a cell needs no more trials, asked
        after each block with all outputs `[n, ...]` of the cell's first n trials; a
        pure function, so that it does not matter who computed what and when. Blocks
        beyond are neither computed nor, if they are stored, used.
      by_rounds: whether trials are long runs of many rounds. Then each is called by
        itself, not traced, what `run` does in it is compiled there, and its state is
        kept in the store every few minutes: a run that was killed goes on from there,
        bit for bit, and so does one of more rounds, see `Grid.growing`, while states
        take less than `STATE_BYTES`; `chunk`, `memory`, `batching` and `devices` do
        not apply.
      accept_code: why it is harmless that cells which were begun by other code are
        completed by this one; their blocks keep the reason.

    Inside of `clients_over_processes` the first process alone has a store: of each
    block trials are shared out among all, or clients of each trial if `by_rounds`, and
    all return the same.

    Returns:
      One variable of floats per output (integers and booleans become float64), NaN
      where a trial was not computed; coordinates for the axes, for `trial` and for the
      own axes that have labels, and `code`, texts `[*axes]`, digests of the code that
      computed a cell; `failed`, booleans `[*axes]`; and `trials`, integers
      `[*axes]`, how many of a cell's trials are used, its first ones unless some
      failed. A trial that diverged has whatever it returned. The attributes count
      `failures`, cells, and `open_blocks`, which are yet to be computed with `shard`.

    Raises:
      StoreError: if `path` belongs to something else, a cell was begun by other code,
        the disk or server refuses or, without `shard` and `waits`, other runs still
        compute blocks. Blocks that are done stay done.
      ValueError: if an argument is out of its range, a trial or the chunk does not
        fit in `memory`, the results do not fit in what is free, or outputs are not
        what the grid announces.
      SweepError: if every cell failed before its outputs were known.
    """
    keep_programs()
    _check_shard(shard)
    way = choose_way(
        grid,
        simulate,
        joint,
        constants,
        by_rounds=by_rounds,
        stops=enough is not None,
        batching=batching,
        chunk=chunk,
        memory=memory,
        devices=devices,
    )
    check_results(grid)
    fill = lambda together: _fill(
        way,
        path,
        lambda work: together(way.compute(work)),
        progress=progress,
        shard=shard,
        waits=waits,
        enough=enough,
        accept_code=accept_code,
    )
    if num_processes() == 1:
        return fill(lambda compute: compute)
    return lead(fill) if is_first() else follow(way.compute(Work()))


def _fill(
    way: Way,
    path: str | os.PathLike[str],
    compute_of: Callable[["_Run"], Compute],
    *,
    progress: bool,
    shard: tuple[int, int] | None,
    waits: bool,
    enough: Enough | None,
    accept_code: str | None,
) -> xarray.Dataset:
    """What `sweep` does, once it is known how to compute."""
    grid, path = way.grid, folder_of(path)
    cells = grid.cells()
    rule = _Rule(enough)
    store = Store(path, grid)
    states = rule.states(grid, cells, store)
    is_open = (states == OPEN) | (states == FAILED)
    if not np.any(is_open):
        _note_runs(store, states)
        return _labelled(grid, store, states)
    pieces = _pieces(
        grid,
        cells,
        joint=way.joint,
        by_block=enough is None,
        at_once=way.at_once,
        shard=shard,
    )
    code = describe(way.simulates)
    mine = [cell.index for piece in pieces for cell in piece.cells]
    begun = [index for index in dict.fromkeys(mine) if np.any(is_open[index])]
    store.check_code(begun, code, accept_code)
    if damaged := set(store.damaged):
        log.warning(
            "`%s`: %d blocks are damaged or not what their place says; computing them"
            " again.",
            store.name,
            len(damaged),
        )
    with claims_on(path) as claims:
        store.hold(claims.folder)
        journal = Journal(store.name, claims)
        options: dict[str, Any] = {"batching": way.batching, "chunk": way.chunk}
        options |= {"memory": way.memory, "devices_used": way.devices}
        options |= {"joint": way.joint is not None, "by_rounds": way.by_rounds}
        options["shard"] = None if shard is None else "{}/{}".format(*shard)
        options["experiment"], options["revision"] = grid.experiment, grid.revision
        options |= {"cells": len(cells), "trials": grid.num_trials, "seed": grid.seed}
        journal.start({**describe_run(), **options})
        store.tidy()
        store.keep_code(code)
        origin = _Origin(code, commit(), journal.run, accept_code)
        with Bar(grid.experiment, visible=progress) as bar:
            work = _Run(grid, store, claims, journal, bar, rule, states, origin)
            work.run(pieces, compute_of(work), waits=waits)
    whole = (grid, cells, path, rule, journal)
    return _results(*whole, damaged=damaged, is_part=shard is not None)


def _check_shard(shard: tuple[int, int] | None) -> None:
    """Raises ValueError unless it is one of n."""
    if shard is None:
        return
    whole = len(shard) == 2 and all(type(number) is int for number in shard)
    if not whole or not 1 <= shard[0] <= shard[1]:
        raise ValueError(
            f"`shard` must be (i, n) of whole numbers, 1 <= i <= n, got {shard!r}."
        )


def _results(
    grid: Grid,
    cells: list[Cell],
    path: pathlib.Path,
    rule: "_Rule",
    journal: Journal,
    *,
    damaged: set[Block],
    is_part: bool,
) -> xarray.Dataset:
    """What is stored now, by this run and others, who may hold blocks if `is_part`,
    among them some that were `damaged` before."""
    store = Store(path, grid)
    states = rule.states(grid, cells, store)
    if any(states[block] == OPEN for block in store.damaged - damaged):
        raise StoreError(
            f"`{store.name}` was damaged while it was written; run again to repair it."
        )
    dataset = _labelled(grid, store, states)
    count, failed = dataset.attrs["open_blocks"], dataset.attrs["failures"]
    first = journal.first_error or "an error in another run"
    if failed and not np.any(states == DONE):
        raise SweepError(
            f"all cells {'so far ' if count else ''}failed, the first with {first};"
            f" see `{journal.failures}`."
        )
    if failed:
        log.warning(
            "%d of %d cells failed, the first with %s; see `%s`. Run again to retry.",
            failed,
            len(cells),
            first,
            journal.failures,
        )
    if count and not is_part:
        raise StoreError(
            f"{count} blocks of `{store.name}` are being computed by another run; start"
            " again when it has ended, or with `waits`, `--wait`. What is done stays"
            " done."
        )
    _note_runs(store, states)
    return dataset


def _note_runs(store: Store, states: Int8[np.ndarray, "*axes blocks"]) -> None:
    """Say which runs computed the blocks that are used."""
    used = [store.about(tuple(block)) for block in np.argwhere(states == DONE).tolist()]
    note_runs(store.path, {about["run"]: about["commit"] for about in used})


def _labelled(
    grid: Grid, store: Store, states: Int8[np.ndarray, "*axes blocks"]
) -> xarray.Dataset:
    """Outputs `[*axes, trials, *own]` with names on their axes, of done blocks alone;
    see what `sweep` returns."""
    codes = np.empty(grid.shape, object)
    codes[...] = ""
    for *index, block in np.argwhere(states == DONE).tolist():
        own, now = store.about((*index, block))["code"], codes[tuple(index)]
        codes[tuple(index)] = now if own in now.split() else f"{now} {own}".strip()
    computed = np.repeat(states == DONE, BLOCK, axis=-1)[..., : grid.num_trials]
    variables = {}
    for name, array in store.values().items():
        is_float = np.issubdtype(array.dtype, np.floating)
        plain = array if is_float else array.astype(np.float64)
        own = grid.dims[name]
        where = computed.reshape(computed.shape + (1,) * len(own))
        if not np.all(where):
            plain = np.where(where, plain, np.asarray(np.nan, plain.dtype))
        variables[name] = ((*grid.axes, "trial", *own), plain)
    failed = np.any(states == FAILED, axis=-1)
    variables["failed"] = (tuple(grid.axes), failed)
    variables["trials"] = (tuple(grid.axes), np.sum(computed, axis=-1))
    dataset = xarray.Dataset(
        variables,
        coords={
            **{name: list(axis) for name, axis in grid.axes.items()},
            "code": (tuple(grid.axes), codes.astype(str)),
            "trial": np.arange(grid.num_trials),
            **{name: np.asarray(labels) for name, labels in grid.coords.items()},
        },
        attrs={
            "experiment": grid.experiment,
            "revision": grid.revision,
            "seed": grid.seed,
            "failures": int(np.sum(failed)),
            "open_blocks": int(np.sum(states == OPEN)),
        },
    )
    return explain(dataset, grid.quantities)


class _Rule:
    """Asks `enough` after each block of a cell in order, and remembers the answers."""

    def __init__(self, enough: Enough | None) -> None:
        self.enough = enough
        self._answers: dict[tuple[Block, int], bool] = {}

    def stops(self, cell: Cell, blocks: Sequence[Outputs]) -> bool:
        """Whether a cell needs no block after these, its first ones."""
        if self.enough is None:
            return False
        question = (cell.index, len(blocks))
        if question not in self._answers:
            outputs = {
                name: np.concatenate([block[name] for block in blocks])
                for name in blocks[0]
            }
            self._answers[question] = bool(self.enough(outputs, cell.trial))
        return self._answers[question]

    def states(
        self, grid: Grid, cells: Sequence[Cell], store: Store
    ) -> Int8[np.ndarray, "*axes blocks"]:
        """The state of every block: `SPARE` behind where a cell stops or has a gap, so
        that what was stored there once, under another rule, counts for nothing."""
        states = store.states.copy()
        if self.enough is None:
            return states
        for cell in cells:
            own = states[cell.index]
            blocks = []
            for number in range(grid.num_blocks):
                if own[number] != DONE:
                    later = own[number:]
                    later[later == DONE] = SPARE
                    break
                blocks.append(store.outputs((*cell.index, number)))
                if self.stops(cell, blocks):
                    own[number + 1 :] = SPARE
                    break
        return states


class _Origin(NamedTuple):
    """Where what a run writes comes from: see `Store` and `provenance`."""

    code: dict[str, Any]  # See `sources`.
    commit: dict[str, Any] | None
    run: str
    accepted: str | None  # Why code of two kinds within a cell is harmless.


def num_pieces(grid: Grid, *, by_rounds: bool = False, chunk: int | None = None) -> int:
    """Pieces of work that a sweep deals out on this machine, cells or as many as are
    computed at once, none of them `joint`; arguments as of `sweep`."""
    batching = None if by_rounds else default_batching()
    at_once = most_at_once(grid, batching=batching, chunk=chunk)
    cut = {"joint": None, "by_block": True, "at_once": at_once, "shard": None}
    return len(_pieces(grid, grid.cells(), **cut))


class _Piece(NamedTuple):
    """What one run claims, computes and stores at a time: of a group that shares a
    compilation one cell, or as many as are computed at once; of one that shares random
    data, if joint, all, and what any of them lacks of all."""

    group: int
    cells: tuple[Cell, ...]
    blocks: range
    is_joint: bool


def _pieces(
    grid: Grid,
    cells: Sequence[Cell],
    *,
    joint: Joint | None,
    by_block: bool,
    at_once: int,
    shard: tuple[int, int] | None,
) -> list[_Piece]:
    """A grid cut in the same way for every run that asks the same; blocks of a joint
    group apart if `by_block`, as a rule that stops cells needs them in order."""
    groups = groups_of(cells, grid.static if joint is None else joint.shares)
    every = range(grid.num_blocks)
    pieces = []
    for group, members in enumerate(groups):
        if joint is None:
            calls = calls_of(members, at_once)
            pieces += [_Piece(group, own, every, False) for own in calls]
        else:
            parts = [range(b, b + 1) for b in every] if by_block else [every]
            pieces += [_Piece(group, tuple(members), own, True) for own in parts]
    return pieces if shard is None else pieces[shard[0] - 1 :: shard[1]]


class _Run(Work):
    """One run over a store: claim, compute and store what it lacks, piece by piece."""

    def __init__(
        self,
        grid: Grid,
        store: Store,
        claims: Claims | Leases,
        journal: Journal,
        bar: Bar,
        rule: _Rule,
        states: Int8[np.ndarray, "*axes blocks"],
        origin: _Origin,
    ) -> None:
        self._grid, self._store, self._claims = grid, store, claims
        self._journal, self._bar, self._rule = journal, bar, rule
        self.origin = origin
        self._begun = states
        self._todo = (states == OPEN) | (states == FAILED)
        self._blocks, self._seconds, self._trials = 0, 0.0, 0
        self._failed: set[Block] = set()  # Cells, in this run.
        self._earlier = 0.0  # Core-seconds of others on the block under way.
        self._outputs: dict[str, jax.ShapeDtypeStruct] | None = None

    def accept(self, outputs: dict[str, jax.ShapeDtypeStruct]) -> None:
        if outputs != self._outputs:
            self._store.check_outputs(outputs)
            self._outputs = dict(outputs)

    def advance(self, trials: int) -> None:
        self._trials += trials
        self._bar.advance(trials)

    def run(
        self, pieces: Sequence[_Piece], compute: Compute, *, waits: bool = False
    ) -> None:
        """Do every piece that no other run holds, or has done meanwhile; held ones
        again while any gets done, or for as long as they are held if it `waits`: the
        run that held them may have been killed."""
        left, is_told = list(pieces), False
        self._bar.expect(sum(self._count(self._remaining(piece)) for piece in left))
        try:
            while left:
                held = [piece for piece in left if not self._take(piece, compute)]
                if len(held) == len(left):
                    if not waits and not self._claims.may_be_over():
                        break
                    if not is_told:
                        is_told = True
                        log.warning("other runs compute all that is left; waiting.")
                    time.sleep(WAIT)
                left = held
        finally:
            with contextlib.suppress(StoreError):  # Nothing that a result depends on.
                self._journal.finish(seconds=self._seconds, blocks=self._blocks)

    def _remaining(self, piece: _Piece) -> list[Block]:
        """The blocks of a piece that were to be done at the start."""
        every = ((*c.index, block) for c in piece.cells for block in piece.blocks)
        return [block for block in every if self._todo[block]]

    def _every(self) -> range:
        return range(self._grid.num_blocks)

    def _count(self, blocks: Sequence[Block]) -> int:
        """Number of trials in some blocks."""
        trials = (self._grid.block(number) for *_, number in blocks)
        return sum(own.stop - own.start for own in trials)

    def _take(self, piece: _Piece, compute: Compute) -> bool:
        """Claim and do what a piece lacks; False if another run holds it."""
        if not (remaining := self._remaining(piece)):
            return True
        before = [self._begun[block] for block in remaining]
        trials = self._trials
        names = [self._store.key(block) for block in remaining]
        with self._claims.claim(names) as is_mine:
            if not is_mine:
                return False
            begun = [cell.index for cell in piece.cells]
            self._store.refresh([(*i, n) for i in begun for n in self._every()])
            after = [self._store.states[block] for block in remaining]
            if any(state != DONE for state in after):
                self._check_code({block[:-1] for block in remaining})
            # Another run has tried these since, and the next call will again.
            tried = {
                block[:-1]
                for block, old, new in zip(remaining, before, after, strict=True)
                if old != new == FAILED
            }
            asked = {block[:-1] for block in remaining}
            if asked - tried - self._failed:
                self._compute(piece, compute)
            else:
                for index in self._failed & asked:
                    self._mark_failed(self._lacking(piece, index))
        self._bar.expect(self._trials - trials - self._count(remaining))
        return True

    def _check_code(self, cells: Iterable[Block]) -> None:
        """Raises StoreError where other code began what this run would complete."""
        self._store.check_code(cells, self.origin.code, self.origin.accepted)

    def _compute(self, piece: _Piece, compute: Compute) -> None:
        """Do a claimed piece in order: a block that any cell lacks of all that have not
        stopped before it, as the cells beside it may decide a cell's last bits."""
        running = list(piece.cells)
        known: dict[Block, list[Outputs]] = {cell.index: [] for cell in running}
        for number in piece.blocks:
            found = self._attempt(piece, running, number, compute)
            if found is None:
                return  # Which cells would stop here is not known.
            if self._rule.enough is None:
                continue
            for cell in list(running):
                stored = self._store.outputs((*cell.index, number))
                known[cell.index].append(stored)
                if self._rule.stops(cell, known[cell.index]):
                    running.remove(cell)

    def _attempt(
        self, piece: _Piece, cells: list[Cell], number: int, compute: Compute
    ) -> dict[Block, Outputs] | None:
        """Compute a block of some cells, and store it of those that lack it; what was
        stored, or None if the computation raised, which is recorded."""
        whole = self._grid.block(number)
        size = whole.stop - whole.start
        if not piece.is_joint:
            has = lambda cell: self._store.num_trials((*cell.index, number))
            cells = [cell for cell in cells if has(cell) < size]
        blocks = [(*cell.index, number) for cell in cells]
        held = [self._store.num_trials(block) for block in blocks]
        lacking = [b for b, n in zip(blocks, held, strict=True) if n < size]
        if not lacking:
            return {}
        places = [cell.index for cell in cells]
        missing = slice(whole.start + min(held), whole.stop)
        before, self._earlier = time.process_time(), 0.0
        try:
            results, seconds = compute(piece.group, places, missing)
        except FATAL:
            raise
        except Exception as error:
            if len(cells) > 1 and not piece.is_joint:  # One of them, perhaps.
                alone = [self._attempt(piece, [c], number, compute) for c in cells]
                stored = [own for own in alone if own is not None]
                return {index: own for each in stored for index, own in each.items()}
            for cell in cells:
                self._fail(piece, cell, error)
            return None
        core_seconds = self._earlier + time.process_time() - before
        took = {"seconds": seconds, "core_seconds": core_seconds}
        took = {name: value / len(cells) for name, value in took.items()}
        # What a run of other code that began at the same time has left meanwhile.
        self._store.refresh([(*c.index, n) for c in cells for n in self._every()])
        self._check_code({block[:-1] for block in lacking})
        self._claims.check()
        found = {}
        for block, had, outputs in zip(blocks, held, results, strict=True):
            if block not in lacking:
                continue
            # What other cells of a joint group have, they were computed for alone.
            own = {name: array[had - min(held) :] for name, array in outputs.items()}
            found[block[:-1]] = own
            about = self._about(block) | took
            if not self._store.write(block, own, about, behind=had):
                self._check_code([block[:-1]])  # Of whoever was faster.
            self._forget(block, range(missing.start, missing.stop))
        self._blocks += len(found)
        self._seconds += seconds
        return found

    def state_file(self, trial: Any, index: int) -> pathlib.Path:
        self._store.pull_states(trial, index)
        return _sound(self._store.state_file(trial, index, key_of(self.origin.code)))

    def took_up(self, core_seconds: float) -> None:
        self._earlier += core_seconds

    def _forget(self, block: Block, trials: Sequence[int]) -> None:
        """Delete states of trials to which no round can be added. Of others those
        before the last, or all if there is no room, unless another run is at them."""
        trial = self._grid.cell(block[:-1]).trial
        if not self._grid.growing(trial):
            self._delete_states(trial, trials)
            return
        has_room = self._store.state_bytes() <= STATE_BYTES
        with self._claim_states(trial) as is_alone:
            if is_alone:
                self._delete_states(trial, trials, but_last=has_room)

    def _delete_states(
        self,
        trial: Any,
        trials: Sequence[int],
        *,
        but_own: bool = False,
        but_last: bool = False,
    ) -> None:
        """Of some trials, those of all code, or but of this run's, or but the last."""
        code = key_of(self.origin.code)
        own = tuple(self._store.state_file(trial, i, code).stem for i in trials)
        for state in self._store.state_files(trial, trials):
            is_own, is_last = state.name.startswith(own), state.suffix == ".npz"
            if not (but_own and is_own) and not (but_last and is_last):
                self._store.delete_state(state)

    @contextlib.contextmanager
    def own_states(self, trial: Any, trials: Sequence[int]) -> Iterator[None]:
        with self._claim_states(trial) as is_alone:
            if is_alone:
                self._delete_states(trial, trials, but_own=True)
            yield

    def _claim_states(self, trial: Any) -> contextlib.AbstractContextManager[bool]:
        """The states of a trial, however many its rounds."""
        return self._claims.claim([f"states/{self._store.state_key(trial)}"])

    def _about(self, block: Block) -> dict[str, Any]:
        """Where a block comes from that this run writes."""
        code = key_of(self.origin.code)
        accepted = self._store.accepted(block[:-1], code, self.origin.accepted)
        own = {"code": code, "accepted": accepted}
        return self.origin._asdict() | own

    def _fail(self, piece: _Piece, cell: Cell, error: Exception) -> None:
        """Record that a cell raised, if it lacks anything of the piece; its other
        blocks are left for the next call."""
        lacking = self._lacking(piece, cell.index)
        if lacking and cell.index not in self._failed:
            self._journal.record(self._grid.point(cell.index), error)
            self._failed.add(cell.index)
            self._bar.fail()
        self._mark_failed(lacking)

    def _lacking(self, piece: _Piece, index: Block) -> list[Block]:
        """What a cell lacks of a piece."""
        remaining, states = self._remaining(piece), self._store.states
        return [b for b in remaining if b[:-1] == index and states[b] != DONE]

    def _mark_failed(self, blocks: Sequence[Block]) -> None:
        for block in blocks:
            self._store.fail(block)


def _sound(state: pathlib.Path) -> pathlib.Path:
    """The file of a state, which is begun anew where nothing of it can be read."""
    for own in sorted(state.parent.glob(f"{state.stem}.*")):  # Of all its runs.
        earlier = own.with_name(f"{own.name}.before")
        if own.suffix == ".npz" and not (read(own) or read(earlier)):
            log.warning("`%s` is damaged; its run begins anew.", own)
            with disk_errors(own):
                own.unlink()
                earlier.unlink(missing_ok=True)
    return state
