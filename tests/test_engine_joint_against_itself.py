"""Cells computed together must be what they are one by one, with the same failures."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from engine_trial import JOINT, draw, draw_jointly, plain_grid

from cfljax.engine import Joint, StoreError, SweepError, sweep
from cfljax.engine.progress import Bar
from cfljax.engine.store import FAILED, MemoryLimitError, Store

AXES = {"separation": (0.5, 1.0, 2.0), "num_clients": (4, 6)}


class Counted:
    """`JOINT`, with a record of the cells that each call was for."""

    def __init__(self, simulate: Any = draw_jointly) -> None:
        self.calls: list[list[tuple[float, int]]] = []
        self._simulate = simulate
        self.joint = Joint(self.simulate, JOINT.shares)

    def simulate(self, trials: Sequence[Any], key: Any, constants: Any) -> Any:
        self.calls.append([(t.separation, t.num_clients) for t in trials])
        return self._simulate(trials, key, constants)


def test_joint_cells_are_the_traced_ones(tmp_path):
    traced = sweep(plain_grid(axes=AXES), draw, tmp_path / "traced")
    counted = Counted()
    joint = sweep(plain_grid(axes=AXES), None, tmp_path / "s", joint=counted.joint)
    assert joint.identical(traced)
    groups = [[(s, n) for s in AXES["separation"]] for n in AXES["num_clients"]]
    assert counted.calls == [group for group in groups for _ in range(23)]
    assert sweep(plain_grid(axes=AXES), draw, tmp_path / "s").identical(joint)
    (run,) = json.loads((tmp_path / "s.provenance.json").read_text())["runs"]
    assert (run["joint"], run["blocks"]) == (True, 18)


def drawn_beside(trials: Sequence[Any], key: Any, constants: Any) -> Any:
    """`draw_jointly`, changed by the number of cells that are computed together."""
    drawn = draw_jointly(trials, key, constants)
    return [{"value": own["value"] + np.float32(len(trials))} for own in drawn]


@pytest.mark.parametrize("lost", ["done", "value"])
def test_all_cells_of_a_group_are_asked_for_where_one_lacks_a_block(
    tmp_path, monkeypatch, lost
):
    """And only what is lacking is written: bits cannot depend on the history."""
    path, grid = tmp_path / "s", plain_grid(axes=AXES)
    first = sweep(grid, None, path, joint=Counted(drawn_beside).joint)
    for block in ("c.0.1.2", "c.2.1.2", "c.1.0.0"):
        (path / lost / (block if lost == "done" else block + ".0")).unlink()
    written, write = [], Store.write

    def noted(self, cell, block, *arguments):
        written.append((*cell, block))
        write(self, cell, block, *arguments)

    monkeypatch.setattr(Store, "write", noted)
    counted = Counted(drawn_beside)
    again = sweep(grid, None, path, joint=counted.joint)
    assert again.identical(first)
    four, six = ([(s, n) for s in AXES["separation"]] for n in AXES["num_clients"])
    assert counted.calls == [four] * 10 + [six] * 3
    assert sorted(written) == [(0, 1, 2), (1, 0, 0), (2, 1, 2)]
    alone = plain_grid(axes=AXES | {"separation": (0.5,)})  # Control: bits do differ.
    other = sweep(alone, None, tmp_path / "t", joint=Counted(drawn_beside).joint)
    assert not np.any(other["value"].values == first["value"][:1].values)


def test_cells_that_have_stopped_are_left_out(tmp_path):
    """Of a unit that lacks a block anywhere, whatever is done of it."""
    path, grid = tmp_path / "s", plain_grid(axes=AXES)
    enough = lambda outputs, trial: len(outputs["value"]) >= 20 * trial.separation
    rule: dict[str, Any] = {"enough": enough}
    first = sweep(grid, None, path, joint=Counted(drawn_beside).joint, **rule)
    assert first["trials"].values.tolist() == [[10, 10], [20, 20], [23, 23]]
    (path / "done" / "c.2.1.1").unlink()
    counted = Counted(drawn_beside)
    assert sweep(grid, None, path, joint=counted.joint, **rule).identical(first)
    assert counted.calls == [[(1.0, 6), (2.0, 6)]] * 10


def test_cell_that_was_not_written_does_not_fail(tmp_path):
    """Beside one that must be repaired, and cannot be."""

    def refuse(trials, key, constants):
        raise RuntimeError("out of something")

    path, grid = tmp_path / "s", plain_grid(axes=AXES)
    sweep(grid, None, path, joint=JOINT)
    (path / "done" / "c.0.1.1").unlink()
    result = sweep(grid, None, path, joint=Joint(refuse, JOINT.shares))
    assert result["failed"].values.tolist() == [[0, 1], [0, 0], [0, 0]]
    assert result["trials"].values.tolist() == [[23, 13], [23, 23], [23, 23]]
    assert len((tmp_path / "s.failures.jsonl").read_text().splitlines()) == 1


def test_failed_cell_is_tried_with_those_beside_it(tmp_path):
    """It failed in one block; in the next one the others give it its numbers."""

    def refuse(trials, key, constants):
        if len(counted.calls) == 1:
            raise RuntimeError("out of something")
        return draw_jointly(trials, key, constants)

    path, grid = tmp_path / "s", plain_grid(axes=AXES)
    whole = sweep(grid, None, path, joint=JOINT)
    for block in ("c.0.0.1", "c.0.0.2", "c.1.0.2"):
        (path / "done" / block).unlink()
    counted = Counted(refuse)
    result = sweep(grid, None, path, joint=counted.joint)
    assert len(counted.calls) == 1 + 3
    assert result["failed"].values.tolist() == [[1, 0], [0, 0], [0, 0]]
    assert result["trials"].values.tolist() == [[13, 23], [23, 23], [23, 23]]
    assert sweep(grid, None, path, joint=JOINT).identical(whole)


def test_failure_is_that_of_the_cells_computed(tmp_path):
    def refuse(trials, key, constants):
        if trials[0].num_clients == 6 and len(counted.calls) > 23 + 12:
            raise RuntimeError("out of something")
        return draw_jointly(trials, key, constants)

    counted = Counted(refuse)
    path, grid = tmp_path / "s", plain_grid(axes=AXES)
    result = sweep(grid, None, path, joint=counted.joint)
    assert len(counted.calls) == 23 + 13  # The group's last block is not tried.
    assert result["failed"].sel(num_clients=6).all()
    assert not result["failed"].sel(num_clients=4).any()
    assert (result["trials"] == [[23, 10]] * 3).all()
    lines = (tmp_path / "s.failures.jsonl").read_text().splitlines()
    cells = [json.loads(line)["cell"] for line in lines]
    assert cells == [{"separation": s, "num_clients": 6} for s in AXES["separation"]]
    fixed = sweep(grid, None, path, joint=JOINT)
    assert fixed.identical(sweep(grid, draw, tmp_path / "whole"))


def test_what_another_run_has_just_failed_is_left_for_the_next_call(tmp_path):
    """As does a second run that comes to a cell later, and finds it marked."""

    def meanwhile(trials, key, constants):
        if len(counted.calls) == 1:
            for separation in range(3):
                Store(path, grid).mark((separation, 1), 2, FAILED)
        return draw_jointly(trials, key, constants)

    counted = Counted(meanwhile)
    path, grid = tmp_path / "s", plain_grid(axes=AXES)
    result = sweep(grid, None, path, joint=counted.joint)
    assert len(counted.calls) == 23 + 20
    assert result["failed"].values.tolist() == [[0, 1]] * 3
    assert sweep(grid, None, path, joint=JOINT)["trials"].values.min() == 23


def test_interrupt_keeps_the_blocks_that_are_done(tmp_path):
    def interrupted(trials, key, constants):
        if len(counted.calls) > 23 + 14:
            raise KeyboardInterrupt
        return draw_jointly(trials, key, constants)

    counted = Counted(interrupted)
    path, grid = tmp_path / "s", plain_grid(axes=AXES)
    with pytest.raises(KeyboardInterrupt):
        sweep(grid, None, path, joint=counted.joint)
    counted = Counted()
    resumed = sweep(grid, None, path, joint=counted.joint)
    assert len(counted.calls) == 13
    assert resumed.identical(sweep(grid, draw, tmp_path / "whole"))


@pytest.mark.parametrize("kind", [StoreError, MemoryLimitError])
def test_errors_of_the_machine_end_the_sweep(tmp_path, kind):
    def refuse(trials, key, constants):
        raise kind("no room")

    with pytest.raises(kind, match="no room"):
        sweep(plain_grid(), None, tmp_path / "s", joint=Joint(refuse, JOINT.shares))
    assert not (tmp_path / "s.failures.jsonl").exists()


def test_mistake_in_every_group_is_raised(tmp_path):
    def broken(trials, key, constants):
        raise TypeError("no such thing")

    with pytest.raises(SweepError, match="all cells failed, the first with TypeErr"):
        sweep(plain_grid(), None, tmp_path / "s", joint=Joint(broken, JOINT.shares))


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (lambda trials: [{"value": np.ones(3)}], "each of 4 cells, got 1"),
        (lambda trials: [{"other": np.ones(3)}] * 4, "must name the outputs"),
        (lambda trials: [{"value": np.ones(())}] * 4, "must name the axes"),
        (
            lambda trials: [{"value": np.ones(2 + (t.noise > 1))} for t in trials],
            "one shape and type in all",
        ),
    ],
    ids=["too few", "other name", "other axes", "other shapes"],
)
def test_outputs_that_cannot_be_stored_are_named(tmp_path, outputs, message):
    joint = Joint(lambda trials, key, constants: outputs(trials), JOINT.shares)
    with pytest.raises(ValueError, match=message):
        sweep(plain_grid(), None, tmp_path / "s", joint=joint)
    assert not (tmp_path / "s.failures.jsonl").exists()


def test_bar_moves_at_every_trial(tmp_path, monkeypatch):
    moves: list[tuple[str, int]] = []
    for name in ("advance", "expect"):
        note = lambda self, trials, name=name: moves.append((name, trials))
        monkeypatch.setattr(Bar, name, note)
    sweep(plain_grid(), None, tmp_path / "s", joint=JOINT)
    assert moves[0] == ("expect", 4 * 23)
    advances = [count for name, count in moves if name == "advance"]
    assert advances == [4] * 23
    assert sum(count for name, count in moves[1:] if name == "expect") == 0


@pytest.mark.parametrize(
    ("simulate", "options", "message"),
    [
        (None, {}, "got neither"),
        (draw, {"joint": JOINT}, "got both"),
        (None, {"joint": JOINT, "chunk": 2}, "`chunk` does not apply"),
        (None, {"joint": JOINT, "memory": 2}, "`memory` does not apply"),
        (None, {"joint": JOINT, "batching": "map"}, "`batching` does not apply"),
        (None, {"joint": JOINT, "devices": 1}, "`devices` does not apply"),
        (draw, {"devices": 0}, "`devices` must be at least 1, got 0"),
        (draw, {"devices": 99}, "must be in 1.."),
    ],
)
def test_misuse_is_refused(tmp_path, simulate, options, message):
    with pytest.raises(ValueError, match=message) as caught:
        sweep(plain_grid(), simulate, tmp_path / "s", **options)
    assert "\n" not in str(caught.value) and not list(tmp_path.iterdir())
