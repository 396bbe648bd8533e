"""What a store costs, how many workers it bears, and what is done about it."""

import dataclasses
import shutil

import pytest
from engine_trial import JOINT, num_done, plain_grid
from toy_experiments import configured

from cfljax.engine import sweep
from experiments.bench import store
from experiments.bench.store import Costs, simulate
from experiments.options import Options

UNIT = Costs(
    open_cell=1.0,
    open_block=1.0,
    claim_cell=1.0,
    write_block=1.0,
    read_block=0.0,
    journal=0.25,
    journal_run=0.0,
)


# Against equations


def test_two_workers_by_hand():
    """A file system of two operations a second; times at which each step ends.

    open        first 1, second waits: 2
    journal     1.25, 2.25
    claim       first waits for the second to open: 2.5; second 3
    compute     5.5, 6
    write       6, 6.5
    journal     6.25, 6.75
    read        2 cells and 1 block behind the second's write: 8; 2 blocks: 10
    """
    sizes = {"num_workers": 2, "num_cells": 2, "blocks_per_cell": 1}
    found = simulate(UNIT, **sizes, block_seconds=3.0, operations_per_second=2.0)
    assert found == (10.0, 3.0, 0.75, 0.1)
    # The first worker ends when all are done: each second of reading is added.
    reading = UNIT._replace(read_block=0.5)
    later = simulate(reading, **sizes, block_seconds=3.0, operations_per_second=2.0)
    assert later.seconds == 11.0
    # Control: the second who enters the journal finds two there, and so do both later.
    listing = UNIT._replace(journal_run=0.125)
    later = simulate(listing, **sizes, block_seconds=3.0, operations_per_second=2.0)
    assert later.journal * later.seconds == pytest.approx(1.0 + 0.125 * (1 + 3 * 2))


@pytest.mark.parametrize("workers", [1, 3, 51, 52, 200])
def test_a_queue_saturates_where_it_must(workers):
    """Where blocks alone cost, of one second each and .02 of the file system: up to
    (1 + .02) / .02 = 51 workers wait for all others once; more wait at every block."""
    costs = Costs(0.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0)
    own = {"num_workers": workers, "num_cells": workers, "blocks_per_cell": 20}
    found = simulate(costs, **own, block_seconds=1.0, operations_per_second=100.0)
    alone = 20 * 1.02 + (workers - 1) * 0.02
    expected = alone if workers <= 51 else 1.0 + 20 * workers * 0.02
    assert found.seconds == pytest.approx(expected)
    busy = workers * 20 * 0.02 / expected
    assert found[1:] == pytest.approx((20.0, busy, 0.0))


# Against itself


@pytest.mark.long
def test_stores_of_some_cells_each_are_merged_by_copying(tmp_path):
    cells = {"num_clients": (4, 6)}
    whole = plain_grid(axes={"separation": (0.5, 1.0), **cells}, num_trials=12)
    for value in (0.5, 1.0):
        part = dataclasses.replace(whole, axes={"separation": (value,), **cells})
        sweep(part, None, tmp_path / str(value), joint=JOINT, progress=False)
    for value in (0.5, 1.0):
        for name in ("cells", "code"):
            there = tmp_path / "merged" / name
            shutil.copytree(tmp_path / str(value) / name, there, dirs_exist_ok=True)
        assert num_done(tmp_path / "merged", whole) == (4 if value == 0.5 else 8)
    found = sweep(whole, None, tmp_path / "merged", joint=JOINT, progress=False)
    assert not (tmp_path / "merged" / "provenance.json").exists()  # Nobody computed.
    expected = sweep(whole, None, tmp_path / "whole", joint=JOINT, progress=False)
    assert found.identical(expected)


@pytest.mark.slow
def test_what_is_measured_is_what_is_simulated(tmp_path):
    flags = "--repeats 3 --num-cells 5 --num-runs 20 --num-workers 1 4 --num-stores 1 2"
    config = configured("store", flags + " --cells-per-worker 2 --block-seconds .5")
    found = store.main(config, Options(out=tmp_path, progress=False))
    rows = {row["what"]: row for row in found["rows"]}
    assert all(row["ms"] > 0 for row in rows.values())
    assert rows["write a block"]["operations"] == 3  # Folder, file, name.
    assert rows["claim a cell, and leave it"]["operations"] == 2
    workers = [(row["workers"], row["stores"]) for row in found["simulated"]]
    assert workers == [(1, 1), (4, 1), (4, 2)]
    assert all(0 < row["share computing"] <= 1 for row in found["simulated"])
    assert {path.name for path in tmp_path.iterdir()} == {
        *("operations.csv", "workers.csv", "table.md")
    }


# Against misuse


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_workers": (0,)},
        {"num_stores": ()},
        {"block_seconds": 0.0},
        {"operations_per_second": float("inf")},
    ],
)
def test_impossible_sizes_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        store.Config(**wrong)
