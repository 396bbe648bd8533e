"""Sweep: run a grid of trials, and never lose one that is done.

A call of `sweep` looks at the store, cuts what it lacks into pieces, claims them one
after the other, computes and stores their blocks, and returns everything that is done.
"""

import contextlib
import logging
import os
import pathlib
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import xarray
from jaxtyping import Int8, PRNGKeyArray, PyTree

from cfljax.base.platforms import default_platform
from cfljax.engine.cache import keep_programs
from cfljax.engine.checkpoints import checkpoints
from cfljax.engine.claims import Claims
from cfljax.engine.devices import trial_devices
from cfljax.engine.grid import BLOCK, Cell, Grid
from cfljax.engine.kept import StoreError, disk_errors, key_of, read
from cfljax.engine.objects import Leases, claims_on, folder_of
from cfljax.engine.processes import (
    follow,
    gathered,
    is_first,
    lead,
    num_processes,
    part,
    portable,
)
from cfljax.engine.programs import (
    Batching,
    Program,
    Simulate,
    check_results,
    compile_cells,
    compile_trials,
    fit_chunk,
    placed,
    run_cells,
    run_trials,
)
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

log = logging.getLogger(__name__)

Enough = Callable[[Outputs, Any], bool]
# What computes a range of trials of some cells that belong together, given the number
# of their group and their places: outputs of each cell, and the seconds they took.
Compute = Callable[[int, Sequence[Block], slice], tuple[Sequence[Outputs], float]]

# A sweep ends with these; with others that a trial raises only its cell does.
FATAL = (MemoryLimitError, OutputsError, StoreError)
# What states may take on the disk with that of a trial that is done, which stays for
# more rounds to be added. Those of trials under way stay however many there are.
STATE_BYTES = 10 * 2**30
AT_ONCE = 32  # Cells: few enough to lose little with a run that is killed.
WAIT = 2.0  # Seconds from one look at what other runs hold to the next.


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
        cells are computed at once, so many of them; None for 32, or as many as fit.
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
    given = {"chunk": chunk, "memory": memory, "batching": batching, "devices": devices}
    keep_programs()
    _check_ways(simulate, joint, given, by_rounds=by_rounds)
    _check_shard(shard)
    if joint is None and not by_rounds:
        given |= {"batching": batching or _batching(), "devices": devices or _devices()}
        trial_devices(given["devices"])  # Raises if there are not so many.
    at_once = 1
    if given["batching"] == "vmap" and enough is None:
        at_once = _most_at_once(grid, chunk)
        given["devices"] = 1 if at_once > 1 else given["devices"]
    check_results(grid)

    def compute_of(work: "_Work | _Helper") -> Compute:
        key = jax.random.key(grid.seed, impl="threefry2x32")
        if joint is not None:
            compute = _jointly(grid, joint, key, constants, work)
        elif by_rounds:
            assert simulate is not None  # As `_check_ways` has seen.
            return _round_by_round(grid, simulate, key, constants, work)
        else:
            assert simulate is not None
            placed = jax.device_put(constants)
            own = (grid, simulate, key, placed, work, given)
            compute = _one_by_one(*own)
            if at_once > 1:
                compute = _at_once(*own, at_once, compute)
        return compute if num_processes() == 1 else _shared_out(compute, work)

    fill = lambda together: _fill(
        grid,
        path,
        simulate,
        lambda work: together(compute_of(work)),
        given=given,
        progress=progress,
        joint=joint,
        at_once=at_once,
        shard=shard,
        waits=waits,
        enough=enough,
        by_rounds=by_rounds,
        accept_code=accept_code,
    )
    if num_processes() == 1:
        return fill(lambda compute: compute)
    return lead(fill) if is_first() else follow(compute_of(_Helper()))


def _fill(
    grid: Grid,
    path: str | os.PathLike[str],
    simulate: Simulate | None,
    compute_of: Callable[["_Work"], Compute],
    *,
    given: dict[str, Any],
    progress: bool,
    joint: Joint | None,
    at_once: int,
    shard: tuple[int, int] | None,
    waits: bool,
    enough: Enough | None,
    by_rounds: bool,
    accept_code: str | None,
) -> xarray.Dataset:
    """What `sweep` does, once it is known how to compute."""
    cells, path = grid.cells(), folder_of(path)
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
        joint=joint,
        by_block=enough is None,
        at_once=at_once,
        shard=shard,
    )
    own = simulate if joint is None else joint.simulate
    assert own is not None  # As `_check_ways` has seen.
    code = describe(own)
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
        options = {name: given[name] for name in ("batching", "chunk", "memory")}
        options |= {"devices_used": given["devices"], "joint": joint is not None}
        options |= {"by_rounds": by_rounds}
        options["shard"] = None if shard is None else "{}/{}".format(*shard)
        options["experiment"], options["revision"] = grid.experiment, grid.revision
        options |= {"cells": len(cells), "trials": grid.num_trials, "seed": grid.seed}
        journal.start({**describe_run(), **options})
        store.tidy()
        store.keep_code(code)
        origin = _Origin(code, commit(), journal.run, accept_code)
        with Bar(grid.experiment, visible=progress) as bar:
            work = _Work(grid, store, claims, journal, bar, rule, states, origin)
            work.run(pieces, compute_of(work), waits=waits)
    whole = (grid, cells, path, rule, journal)
    return _results(*whole, damaged=damaged, is_part=shard is not None)


def _check_ways(
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


def _check_shard(shard: tuple[int, int] | None) -> None:
    """Raises ValueError unless it is one of n."""
    if shard is None:
        return
    whole = len(shard) == 2 and all(type(number) is int for number in shard)
    if not whole or not 1 <= shard[0] <= shard[1]:
        raise ValueError(
            f"`shard` must be (i, n) of whole numbers, 1 <= i <= n, got {shard!r}."
        )


def _batching() -> Batching:
    return "map" if default_platform() == "cpu" else "vmap"


def _devices() -> int:
    busy = not jax.sharding.get_abstract_mesh().empty
    return 1 if busy or jax.default_backend() == "cpu" else jax.local_device_count()


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
    is_plain = by_rounds or _batching() == "map"
    at_once = 1 if is_plain else _most_at_once(grid, chunk)
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
    groups: dict[Hashable, list[Cell]] = {}
    for cell in cells:
        shares = grid.static(cell.trial) if joint is None else joint.shares(cell.trial)
        groups.setdefault(shares, []).append(cell)
    every = range(grid.num_blocks)
    pieces = []
    for group, members in enumerate(groups.values()):
        if joint is None:
            firsts = range(0, len(members), at_once)
            some = [tuple(members[first : first + at_once]) for first in firsts]
            pieces += [_Piece(group, own, every, False) for own in some]
        else:
            parts = [range(b, b + 1) for b in every] if by_block else [every]
            pieces += [_Piece(group, tuple(members), own, True) for own in parts]
    return pieces if shard is None else pieces[shard[0] - 1 :: shard[1]]


class _Work:
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
        """Check a trial's outputs: ValueError if they are not what the grid announces
        or the store holds."""
        if outputs != self._outputs:
            self._store.check_outputs(outputs)
            self._outputs = dict(outputs)

    def advance(self, trials: int) -> None:
        """Count trials that are over."""
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
        """Where the state of a trial is kept that is a long run."""
        self._store.pull_states(trial, index)
        return _sound(self._store.state_file(trial, index, key_of(self.origin.code)))

    def took_up(self, core_seconds: float) -> None:
        """Of the block under way so much was done by other processes."""
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
        """Inside, states of some trials are this run's. Those of other code go, unless
        another run is at the same trials, with more rounds or fewer."""
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


class _Helper:
    """What a process has in place of `_Work` that computes for the first one."""

    def accept(self, outputs: dict[str, jax.ShapeDtypeStruct]) -> None:
        """It is the first that checks them."""

    def advance(self, trials: int) -> None:
        """It is the first that counts them."""

    def took_up(self, core_seconds: float) -> None:
        """It is the first that counts them."""

    def state_file(self, trial: Any, index: int) -> pathlib.Path:
        """A name that is never used."""
        del trial, index
        return pathlib.Path("state.npz")

    def own_states(
        self, trial: Any, trials: Sequence[int]
    ) -> contextlib.AbstractContextManager[None]:
        """It is the first that has them."""
        del trial, trials
        return contextlib.nullcontext()


def _shared_out(compute: Compute, work: _Work | _Helper) -> Compute:
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


def _one_by_one(
    grid: Grid,
    simulate: Simulate,
    key: PRNGKeyArray,
    constants: PyTree,
    work: _Work | _Helper,
    given: dict[str, Any],
) -> Compute:
    """One cell at a time, compiled once for each group; remembers the last group."""
    last: tuple[int, Program | Exception, list[PyTree]] | None = None
    memory = {name: given[name] for name in ("chunk", "memory")}
    how = {name: given[name] for name in ("batching", "devices")}
    block = min(BLOCK, grid.num_trials)

    def compile_group(trial: Any) -> Program | Exception:
        compile_chunk = lambda size: compile_trials(
            simulate, trial, key, constants, chunk=size, traced=grid.traced, **how
        )
        try:
            return fit_chunk(compile_chunk, block=block, **memory)
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


def _most_at_once(grid: Grid, chunk: int | None) -> int:
    """Most cells that are computed at once, if trials of a cell can be: those that
    differ in traced fields alone, where a cell has but one trial."""
    if grid.num_trials > 1 or not grid.traced:
        return 1
    return AT_ONCE if chunk is None else chunk


def _at_once(
    grid: Grid,
    simulate: Simulate,
    key: PRNGKeyArray,
    constants: PyTree,
    work: _Work | _Helper,
    given: dict[str, Any],
    at_once: int,
    one_by_one: Compute,
) -> Compute:
    """The only trial of several cells at once, compiled once for each group; remembers
    the last group. A cell that is alone is computed as if there were no others."""
    last: tuple[int, Program | Exception] | None = None
    memory = {name: given[name] for name in ("chunk", "memory")}

    def compute(
        group: int, cells: Sequence[Block], trials: slice
    ) -> tuple[Sequence[Outputs], float]:
        nonlocal last
        if len(cells) == 1:
            return one_by_one(group, cells, trials)
        own = [grid.cell(place).trial for place in cells]
        trial_key = jax.random.fold_in(key, trials.start)
        if last is None or last[0] != group:
            last = None  # Two programs must not be alive at once.
            compile_chunk = lambda size: compile_cells(
                simulate, own[0], trial_key, constants, chunk=size, traced=grid.traced
            )
            try:
                last = group, fit_chunk(compile_chunk, block=at_once, **memory)
            except Exception as error:
                last = group, error
        _, program = last
        if isinstance(program, Exception):  # For all cells of a group.
            raise program
        work.accept(program.outputs)
        outputs, seconds = run_cells(program, own, trial_key, constants)
        work.advance(len(cells))
        return outputs, seconds

    return compute


def _round_by_round(
    grid: Grid,
    simulate: Simulate,
    key: PRNGKeyArray,
    constants: PyTree,
    work: _Work | _Helper,
) -> Compute:
    """One trial after the other, as it is: what it runs is compiled and kept there."""

    def compute(
        group: int, cells: Sequence[Block], trials: slice
    ) -> tuple[list[Outputs], float]:
        del group
        (cell,) = (grid.cell(place).trial for place in cells)
        begin, gathered = time.perf_counter(), []
        indices = range(trials.start, trials.stop)
        with work.own_states(cell, indices):
            for index in indices:
                with checkpoints(work.state_file(cell, index)) as spent:
                    found = simulate(cell, jax.random.fold_in(key, index), constants)
                work.took_up(spent.core_seconds)
                own = {name: np.asarray(value) for name, value in found.items()}
                work.accept(_shapes_of(own))
                gathered.append(own)
                work.advance(1)
        return [_stack(gathered)], time.perf_counter() - begin

    return compute


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


def _shapes_of(outputs: Outputs) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes and types of the outputs of one trial."""
    return {n: jax.ShapeDtypeStruct(a.shape, a.dtype) for n, a in outputs.items()}


def _stack(trials: Sequence[Outputs]) -> Outputs:
    """Outputs `[trials, ...]` of several trials."""
    return {name: np.stack([own[name] for own in trials]) for name in trials[0]}


def _jointly(
    grid: Grid,
    joint: Joint,
    key: PRNGKeyArray,
    constants: PyTree,
    work: _Work | _Helper,
) -> Compute:
    """All cells of a group at once, one index of a trial after the other."""

    def one(cells: Sequence[Any], index: int) -> list[Outputs]:
        found = joint.simulate(cells, jax.random.fold_in(key, index), constants)
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
        begin, asked = time.perf_counter(), [grid.cell(place).trial for place in cells]
        found: list[list[Outputs]] = [[] for _ in cells]
        for index in range(trials.start, trials.stop):
            for own, outputs in zip(found, one(asked, index), strict=True):
                own.append(outputs)
            work.advance(len(cells))
        stacked = [_stack(own) for own in found]
        return stacked, time.perf_counter() - begin

    return compute
