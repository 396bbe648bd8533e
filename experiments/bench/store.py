"""What a store costs those who share it, and how many workers one store can bear.

Command:   python -m experiments bench store
           with --out on the file system in question, which is then measured
Targets:   none; the figures are for planning, see docs/scale.md

One block of Figure 3(a) is computed, written and read again and again; a sweep of
trials that do nothing says what all of it takes around a block; and the journal of runs
is filled. From these figures a simulation follows any number of workers on one store, a
queue before the file system and one before the journal's lock. It knows no cache, no
lost worker and no file system that gets slower under load.

Operations of the file system are counted as the interpreter tells them: files opened,
listed, renamed, removed and locked; looks at a file's date or size are not told.
"""

import dataclasses
import heapq
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from cfljax import engine
from experiments.bench.timing import headline, is_busy
from experiments.checks import check_values, configuration
from experiments.ifca import fig3
from experiments.jobs import Job, run
from experiments.options import Options
from experiments.study import write

BENCHMARKS = {"store": {"title": "what a store costs, and how many workers it bears"}}
# Events of the interpreter that are operations of a file system.
_OPERATIONS = ("open", "fcntl.fcntl", "os.listdir", "os.mkdir", "os.remove")
_OPERATIONS += ("os.rename", "os.scandir")


@configuration
class Config:
    """One field, one flag."""

    repeats: int = 200  # Times that each operation is timed.
    num_cells: int = 200  # Cells of the sweep that computes nothing.
    num_runs: int = 1000  # Runs in the journal.
    num_workers: tuple[int, ...] = (10, 100, 1000, 10_000)
    """Workers that are simulated."""
    cells_per_worker: int = 10  # Cells of the sweep that they share, for each of them.
    blocks_per_cell: int = 10  # Blocks of a cell.
    block_seconds: float = 60.0  # Of computing a block.
    operations_per_second: float = 10_000.0
    """What the shared file system can do, all workers together."""
    num_stores: tuple[int, ...] = (1, 10, 100, 1000)
    """Stores among which cells and workers are divided."""

    def __post_init__(self) -> None:
        check_values(self, "num_workers", "num_stores")


def preset(name: str) -> Config:
    """Both presets are the same."""
    return Config()


class Costs(NamedTuple):
    """What one worker asks of a file system, in operations, and of others, in seconds.

    open_cell: operations for each cell when a store is opened,
    open_block: and for each block that it has.
    claim_cell: operations before a cell is computed.
    write_block: operations for each block.
    read_block: seconds of a worker's own for each block that it reads.
    journal, journal_run: seconds that a run holds the journal's lock, twice, and
      seconds more for each run that it lists.
    """

    open_cell: float
    open_block: float
    claim_cell: float
    write_block: float
    read_block: float
    journal: float
    journal_run: float


class Outcome(NamedTuple):
    """What a simulation found.

    seconds: until the last worker ends.
    computing: seconds of the worker that computes most, had it nothing else to do.
    file_system, journal: shares of the time in which they were busy.
    """

    seconds: float
    computing: float
    file_system: float
    journal: float


def simulate(
    costs: Costs,
    *,
    num_workers: int,
    num_cells: int,
    blocks_per_cell: int,
    block_seconds: float,
    operations_per_second: float,
) -> Outcome:
    """Follow workers that share a sweep out on one store, event by event.

    A worker opens the store, enters the journal, takes its cells in turn, each of which
    it claims before it computes and writes the blocks, enters the journal again, and
    reads the store for its result. The file system and the journal serve whoever came
    first; no worker dies.

    Args:
      costs: of one worker.
      num_workers: who begin at once; worker i takes every `num_workers`-th cell.
      num_cells: of the sweep, none of which is done.
      blocks_per_cell: blocks of a cell.
      block_seconds: that a worker computes for a block.
      operations_per_second: of the file system, for all together.

    Returns:
      Times and shares, exact for this model.

    Cost: some microseconds for each block.
    """
    free = {"files": 0.0, "journal": 0.0}  # When each has served all who wait.
    busy = dict.fromkeys(free, 0.0)
    entered: set[int] = set()  # Workers that the journal lists.
    done = 0  # Blocks that are stored.

    def life(worker: int) -> Iterator[tuple[str, float]]:
        """Who is asked next, and for how many seconds."""
        nonlocal done
        files = lambda count: ("files", count / operations_per_second)
        log = lambda: ("journal", costs.journal + costs.journal_run * len(entered))
        yield files(costs.open_cell * num_cells + costs.open_block * done)
        entered.add(worker)
        yield log()
        for _ in range(worker, num_cells, num_workers):
            yield files(costs.claim_cell)
            for _ in range(blocks_per_cell):
                yield "nobody", block_seconds
                yield files(costs.write_block)
                done += 1
        yield log()
        yield files(costs.open_cell * num_cells + costs.open_block * done)
        yield "nobody", costs.read_block * done

    lives = [life(worker) for worker in range(num_workers)]
    events = [(0.0, worker) for worker in range(num_workers)]
    now = 0.0
    while events:
        now, worker = heapq.heappop(events)
        asked, seconds = next(lives[worker], ("", 0.0))
        if not asked:
            continue
        end = now + seconds
        if asked in free:
            end = free[asked] = max(now, free[asked]) + seconds
            busy[asked] += seconds
        heapq.heappush(events, (end, worker))
    most = -(-num_cells // num_workers) * blocks_per_cell * block_seconds
    shares = (busy[name] / now if now else 0.0 for name in ("files", "journal"))
    return Outcome(now, most, *shares)


class _Counted:
    """Counts operations of file systems in this process while it is asked to."""

    def __init__(self) -> None:
        self._found: list[str] | None = None
        # It cannot be undone, and hears what a check of its own types would do.
        sys.addaudithook(
            lambda event, _: (
                self._found is not None
                and event in _OPERATIONS
                and self._found.append(event)
            )
        )

    def __call__(self, call: Callable[[], Any]) -> int:
        self._found = []
        try:
            call()
            return len(self._found)
        finally:
            self._found = None


@dataclasses.dataclass(frozen=True)
class _Nothing:
    """A trial that takes no time."""

    number: int = 0


def _nothing(trial: Any, key: Any, constants: Any) -> dict[str, Any]:
    del trial, key, constants
    return {"value": np.zeros(30, np.float32)}  # As many as one of Figure 3 has runs.


def main(config: Config, options: Options) -> dict[str, Any]:
    """Time everything, simulate, and write both tables."""
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="store_", dir=options.out) as folder:
        measured, costs = _measure(pathlib.Path(folder), config)
    simulated = [
        _row(costs, config, workers, stores)
        for stores in config.num_stores
        for workers in config.num_workers
        if workers >= stores
    ]
    settings = (
        f"{config.cells_per_worker} cells a worker of {config.blocks_per_cell} blocks, "
        f"{config.block_seconds:g} s each; a file system of "
        f"{config.operations_per_second:g} operations a second"
    )
    busy = "; other programs use this machine, so times say little" * is_busy()
    tables = {"operations": measured, "workers": simulated}
    text = headline(settings + busy, tables)
    return {
        "benchmark": "store",
        "settings": settings,
        "headline": text,
        "files": write(
            options.out,
            {f"{name}.csv": rows for name, rows in tables.items()} | {"table.md": text},
        ),
        "rows": measured,
        "simulated": simulated,
    }


def _row(costs: Costs, config: Config, workers: int, stores: int) -> dict[str, Any]:
    """Workers that are divided among stores, all on one file system."""
    own = workers // stores
    found = simulate(
        costs,
        num_workers=own,
        num_cells=own * config.cells_per_worker,
        blocks_per_cell=config.blocks_per_cell,
        block_seconds=config.block_seconds,
        operations_per_second=config.operations_per_second / stores,
    )
    return {
        "workers": workers,
        "stores": stores,
        "hours": found.seconds / 3600,
        "hours of computing": found.computing / 3600,
        "share computing": found.computing / found.seconds,
        "file system busy": found.file_system,
        "journal busy": found.journal,
    }


def _measure(
    folder: pathlib.Path, config: Config
) -> tuple[list[dict[str, Any]], Costs]:
    """Rows of all operations, and what a simulation takes of them."""
    count, rows = _Counted(), []

    def add(what: str, seconds: float, **others: Any) -> float:
        rows.append({"what": what, "ms": 1000 * seconds, "a second": 1 / seconds})
        rows[-1] |= {"operations": None, "bytes": None, **others}
        return seconds

    def time_of(call: Callable[[], Any]) -> float:
        """The median."""
        took = []
        for _ in range(config.repeats):
            before = time.perf_counter()
            call()
            took.append(time.perf_counter() - before)
        return float(np.median(took))

    block, seconds = _figure_3(folder / "figure")
    add("a trial of Figure 3(a), quick", seconds)
    found = engine.kept.read(block)
    assert found is not None  # It has just been written.
    size = block.stat().st_size
    put = lambda: engine.kept.write(folder / "cell" / "0.npz", *found)
    add("write a block", time_of(put), operations=count(put), bytes=size)
    get = lambda: engine.kept.read(block)
    read = add("read a block", time_of(get), operations=count(get), bytes=size)
    look = lambda: os.listdir(folder / "cell")
    add("list a cell", time_of(look), operations=count(look))
    with engine.Claims(folder / "journal") as claims:

        def claim() -> None:
            with claims.claim(["a block"]) as is_mine:
                assert is_mine

        locks = count(claim)
        add("claim a cell, and leave it", time_of(claim), operations=locks)
        journal, each = _journal(folder / "journal", claims, config)
    add("enter an empty journal", journal)
    add(f"enter a journal of {config.num_runs} runs", journal + each * config.num_runs)
    path, grid = folder / "sweep", _grid(config.num_cells)
    before = time.perf_counter()
    own = Options(out=path, store=path, progress=False)
    whole = count(lambda: run(own, Job(grid, _nothing)))
    took = (time.perf_counter() - before) / config.num_cells
    each_cell = whole / config.num_cells
    file = next(path.glob("cells/*/*.npz"))
    add(
        "sweep of nothing, a block",
        took,
        operations=each_cell,
        bytes=file.stat().st_size,
    )
    opened = lambda: engine.progress_of(path, grid)
    full, empty = count(opened), count(lambda: engine.progress_of(folder / "no", grid))
    before = time.perf_counter()
    opened()
    took = (time.perf_counter() - before) / config.num_cells
    add("open a store, a block", took, operations=full / config.num_cells)
    open_cell = empty / config.num_cells
    # It opens its store twice before and once behind, and looks at a cell once more
    # when it has claimed it.
    open_block = full / config.num_cells - open_cell
    claims_cell = locks + open_cell
    write_block = max(each_cell - 3 * open_cell - open_block - claims_cell, 1.0)
    costs = Costs(
        open_cell=open_cell,
        open_block=open_block,
        claim_cell=claims_cell,
        write_block=write_block,
        read_block=took if took > read else read,
        journal=journal,
        journal_run=each,
    )
    return rows, costs


def _figure_3(path: pathlib.Path) -> tuple[pathlib.Path, float]:
    """A block of one cell of Figure 3(a), and the seconds of a trial."""
    panel = fig3.load("ifca.fig3a")
    usual = panel.preset("quick")
    config = dataclasses.replace(
        usual, convention=("reference",), separation=(1.0,), noise=(0.1,)
    )
    grid = fig3.grid("ifca.fig3a", config)
    fig3.compute(grid, config, Options(out=path, store=path, progress=False))
    known = engine.progress_of(path, grid)
    (file,) = path.glob("cells/*/0.npz")
    return file, float(known.seconds.sum()) / config.num_trials


def _grid(num_cells: int) -> engine.Grid:
    return engine.Grid(
        experiment="bench.store",
        trial=_Nothing(),
        axes={"number": tuple(range(num_cells))},
        num_trials=1,
        dims={"value": ("run",)},
    )


def _journal(
    store: pathlib.Path, claims: engine.Claims, config: Config
) -> tuple[float, float]:
    """Seconds that a run takes to enter a journal with few others, and more for each
    run that is there."""
    about, took = engine.describe_run(), []
    for _ in range(config.num_runs):
        own = engine.Journal(store, claims)
        before = time.perf_counter()
        own.start(about)
        took.append(time.perf_counter() - before)
    some = max(1, config.num_runs // 10)
    first, last = float(np.median(took[:some])), float(np.median(took[-some:]))
    return first, max(last - first, 0.0) / max(1, config.num_runs - some)
