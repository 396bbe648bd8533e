"""Cells that are computed together, and cells that a rule stops."""

import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from engine_trial import (
    AXES,
    JOINT,
    Trial,
    draw,
    draw_jointly,
    interrupted_after,
    is_alike,
    lose,
    plain_grid,
)

from cfljax.engine import Joint, StoreError, SweepError, sweep
from cfljax.engine.progress import Bar
from cfljax.engine.store import MemoryLimitError, Store

# Against itself: they are what they are one by one, with the same failures

GRID = plain_grid(axes=AXES)


class Counted:
    """`JOINT`, with a record of the cells that each call was for; some calls fail."""

    def __init__(
        self,
        simulate: Any = draw_jointly,
        *,
        fails: Callable[[int, Sequence[Trial]], bool] = lambda call, trials: False,
        error: type[BaseException] = RuntimeError,
    ) -> None:
        self.calls: list[list[tuple[float, int]]] = []
        self._simulate, self._fails, self._error = simulate, fails, error
        self.joint = Joint(self.simulate, JOINT.shares)

    def simulate(self, trials: Sequence[Trial], key: Any, constants: Any) -> Any:
        self.calls.append([(t.separation, t.num_clients) for t in trials])
        if self._fails(len(self.calls), trials):
            raise self._error("no room")
        return self._simulate(trials, key, constants)


def always(call: int, trials: Sequence[Trial]) -> bool:
    return True


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    """Of a store."""
    return tmp_path / "s"


@pytest.fixture
def written(monkeypatch):
    """The blocks that were written."""
    blocks, original = [], Store.write

    def noted(self, block, *arguments, **options):
        blocks.append(block)
        original(self, block, *arguments, **options)

    monkeypatch.setattr(Store, "write", noted)
    return blocks


@pytest.mark.long
def test_joint_cells_are_the_traced_ones(path, tmp_path):
    traced = sweep(GRID, draw, tmp_path / "traced")
    counted = Counted()
    joint = sweep(GRID, None, path, joint=counted.joint)
    assert is_alike(joint, traced)
    groups = [[(s, n) for s in AXES["separation"]] for n in AXES["num_clients"]]
    assert counted.calls == [group for group in groups for _ in range(23)]
    assert sweep(GRID, draw, path).identical(joint)
    (run,) = json.loads((path / "provenance.json").read_text())["runs"]
    assert (run["joint"], run["blocks"]) == (True, 18)


def drawn_beside(trials: Sequence[Any], key: Any, constants: Any) -> Any:
    """`draw_jointly`, changed by the number of cells that are computed together."""
    drawn = draw_jointly(trials, key, constants)
    return [{"value": own["value"] + np.float32(len(trials))} for own in drawn]


def test_all_cells_of_a_group_are_asked_for_where_one_lacks_a_block(
    path, tmp_path, written
):
    """And only what is lacking is written: bits cannot depend on the history."""
    first = sweep(GRID, None, path, joint=Counted(drawn_beside).joint)
    lose(path, GRID, (0, 1, 2), (2, 1, 2), (1, 0, 0))
    counted = Counted(drawn_beside)
    written.clear()
    again = sweep(GRID, None, path, joint=counted.joint)
    assert again.identical(first)
    four, six = ([(s, n) for s in AXES["separation"]] for n in AXES["num_clients"])
    assert counted.calls == [four] * 10 + [six] * 3
    assert sorted(written) == [(0, 1, 2), (1, 0, 0), (2, 1, 2)]
    alone = plain_grid(axes=AXES | {"separation": (0.5,)})  # Control: bits do differ.
    other = sweep(alone, None, tmp_path / "t", joint=Counted(drawn_beside).joint)
    assert not np.any(other["value"].values == first["value"][:1].values)


def test_cells_that_have_stopped_are_left_out(path):
    """Of a unit that lacks a block anywhere, whatever is done of it."""
    first = sweep(GRID, None, path, joint=Counted(drawn_beside).joint, enough=narrow)
    assert first["trials"].values.tolist() == [[10, 10], [20, 20], [23, 23]]
    lose(path, GRID, (2, 1, 1))
    counted = Counted(drawn_beside)
    again = sweep(GRID, None, path, joint=counted.joint, enough=narrow)
    assert again.identical(first)
    assert counted.calls == [[(1.0, 6), (2.0, 6)]] * 10


def test_cell_that_was_not_written_does_not_fail(path, tmp_path):
    """Beside one that must be repaired, and cannot be."""
    sweep(GRID, None, path, joint=Counted().joint)
    lose(path, GRID, (0, 1, 1))
    result = sweep(GRID, None, path, joint=Counted(fails=always).joint)
    assert result["failed"].values.tolist() == [[0, 1], [0, 0], [0, 0]]
    assert result["trials"].values.tolist() == [[23, 13], [23, 23], [23, 23]]
    assert len((path / "failures.jsonl").read_text().splitlines()) == 1


def test_failed_cell_is_tried_with_those_beside_it(path):
    """It failed in one block; in the next one the others give it its numbers."""
    whole = sweep(GRID, None, path, joint=Counted().joint)
    lose(path, GRID, (0, 0, 1), (0, 0, 2), (1, 0, 2))
    counted = Counted(fails=lambda call, trials: call == 1)
    result = sweep(GRID, None, path, joint=counted.joint)
    assert len(counted.calls) == 1 + 3
    assert result["failed"].values.tolist() == [[1, 0], [0, 0], [0, 0]]
    assert result["trials"].values.tolist() == [[13, 23], [23, 23], [23, 23]]
    assert sweep(GRID, None, path, joint=Counted().joint).identical(whole)


@pytest.mark.long
def test_failure_is_that_of_the_cells_computed(path, tmp_path):
    fails = lambda call, trials: trials[0].num_clients == 6 and call > 23 + 12
    counted = Counted(fails=fails)
    result = sweep(GRID, None, path, joint=counted.joint)
    assert len(counted.calls) == 23 + 13  # The group's last block is not tried.
    assert result["failed"].sel(num_clients=6).all()
    assert not result["failed"].sel(num_clients=4).any()
    assert (result["trials"] == [[23, 10]] * 3).all()
    lines = (path / "failures.jsonl").read_text().splitlines()
    cells = [json.loads(line)["cell"] for line in lines]
    assert cells == [{"separation": s, "num_clients": 6} for s in AXES["separation"]]
    fixed = sweep(GRID, None, path, joint=Counted().joint)
    assert is_alike(fixed, sweep(GRID, draw, tmp_path / "whole"))


def test_what_another_run_has_just_failed_is_left_for_the_next_call(path):
    """As does a second run that comes to a cell later, and finds it marked."""

    def meanwhile(trials, key, constants):
        if len(counted.calls) == 1:
            for separation in range(3):
                Store(path, GRID).fail((separation, 1, 2))
        return draw_jointly(trials, key, constants)

    counted = Counted(meanwhile)
    result = sweep(GRID, None, path, joint=counted.joint)
    assert len(counted.calls) == 23 + 20
    assert result["failed"].values.tolist() == [[0, 1]] * 3
    assert sweep(GRID, None, path, joint=Counted().joint)["trials"].values.min() == 23


@pytest.mark.long
def test_interrupt_keeps_the_blocks_that_are_done(path, tmp_path):
    fails = lambda call, trials: call > 23 + 14
    counted = Counted(fails=fails, error=KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        sweep(GRID, None, path, joint=counted.joint)
    counted = Counted()
    resumed = sweep(GRID, None, path, joint=counted.joint)
    assert len(counted.calls) == 13
    assert is_alike(resumed, sweep(GRID, draw, tmp_path / "whole"))


@pytest.mark.parametrize("kind", [StoreError, MemoryLimitError])
def test_errors_of_the_machine_end_the_sweep(path, tmp_path, kind):
    counted = Counted(fails=always, error=kind)
    with pytest.raises(kind, match="no room"):
        sweep(plain_grid(), None, path, joint=counted.joint)
    assert not (path / "failures.jsonl").exists()


def test_mistake_in_every_group_is_raised(path):
    counted = Counted(fails=always, error=TypeError)
    with pytest.raises(SweepError, match="all cells failed, the first with TypeErr"):
        sweep(plain_grid(), None, path, joint=counted.joint)


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
def test_outputs_that_cannot_be_stored_are_named(path, tmp_path, outputs, message):
    joint = Joint(lambda trials, key, constants: outputs(trials), JOINT.shares)
    with pytest.raises(ValueError, match=message):
        sweep(plain_grid(), None, path, joint=joint)
    assert not (path / "failures.jsonl").exists()


def test_bar_moves_at_every_trial(path, monkeypatch):
    moves: list[tuple[str, int]] = []
    for name in ("advance", "expect"):
        note = lambda self, trials, name=name: moves.append((name, trials))
        monkeypatch.setattr(Bar, name, note)
    sweep(plain_grid(), None, path, joint=JOINT)
    assert moves[0] == ("expect", 4 * 23)
    assert [count for name, count in moves if name == "advance"] == [4] * 23
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
def test_misuse_is_refused(path, tmp_path, simulate, options, message):
    with pytest.raises(ValueError, match=message) as caught:
        sweep(plain_grid(), simulate, path, **options)
    assert "\n" not in str(caught.value) and not list(tmp_path.iterdir())


# Against itself: where a rule stops a cell depends on its results alone

STOPPED = plain_grid(axes={"separation": (0.5, 1.0, 2.0), "noise": (1.0, 2.0)})
WANTED = np.asarray([[10, 10], [20, 20], [23, 23]])


def narrow(outputs: Mapping[str, np.ndarray], trial: Trial) -> bool:
    """More trials where the numbers are larger."""
    assert outputs["value"].shape[1:] == (3,)
    return len(outputs["value"]) >= 20 * trial.separation


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    return sweep(STOPPED, draw, tmp_path_factory.mktemp("everything") / "s")


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    path = tmp_path_factory.mktemp("stopped") / "s"
    return sweep(STOPPED, draw, path, enough=narrow)


WAYS = [(draw, {}), (None, {"joint": JOINT})]


@pytest.mark.long
@pytest.mark.parametrize(("simulate", "way"), WAYS, ids=["traced", "joint"])
def test_cells_stop_after_the_block_that_is_enough(
    path, written, everything, stopped, simulate, way
):
    result = sweep(STOPPED, simulate, path, enough=narrow, **way)
    assert result.identical(stopped)
    np.testing.assert_array_equal(result["trials"], WANTED)
    assert (result.attrs["open_blocks"], result.attrs["failures"]) == (0, 0)
    assert len(written) == 2 * (1 + 2 + 3) == len(set(written))
    used = result["trial"] < result["trials"]
    assert result["value"].identical(everything["value"].where(used))
    assert sweep(STOPPED, None, path, joint=JOINT, enough=narrow).identical(stopped)
    assert len(written) == 12  # A cell that is stopped is complete.
    whole = sweep(STOPPED, simulate, path, **way)
    assert whole.identical(everything) and len(written) == 18
    np.testing.assert_array_equal(whole["trials"], np.full((3, 2), 23))


@pytest.mark.long
@pytest.mark.parametrize(("simulate", "way"), WAYS, ids=["traced", "joint"])
def test_history_does_not_matter(path, stopped, written, simulate, way):
    """Blocks stored without the rule, with gaps, damage and failures among them."""
    whole = sweep(STOPPED, draw, path)
    assert not whole.identical(stopped)
    assert sweep(STOPPED, simulate, path, enough=narrow, **way).identical(stopped)
    lose(path, STOPPED, (0, 1, 2))  # Beyond the stop.
    Store(path, STOPPED).fail((1, 1, 2))  # Likewise.
    written.clear()
    assert sweep(STOPPED, simulate, path, enough=narrow, **way).identical(stopped)
    assert not written
    lose(path, STOPPED, (0, 0, 0), (1, 0, 1), (2, 0, 1))
    assert sweep(STOPPED, simulate, path, enough=narrow, **way).identical(stopped)
    assert sorted(written) == [(0, 0, 0), (1, 0, 1), (2, 0, 1)]


def test_part_with_a_gap_shows_what_comes_before_it(path, everything):
    sweep(STOPPED, draw, path)
    lose(path, STOPPED, (2, 1, 1))  # The last cell's, of another shard.
    part = sweep(STOPPED, draw, path, enough=narrow, shard=(1, 6))
    np.testing.assert_array_equal(part["trials"], WANTED - [[0, 0], [0, 0], [0, 13]])
    assert part.attrs["open_blocks"] == 1
    plain = sweep(STOPPED, draw, path, shard=(1, 6))
    assert plain["trials"][2, 1] == 13  # Without a rule all that is done counts.


def test_interrupted_rule_resumes_to_the_same(path, stopped):
    with interrupted_after(7):
        sweep(STOPPED, None, path, joint=JOINT, enough=narrow)
    assert sweep(STOPPED, draw, path, enough=narrow).identical(stopped)


def test_rule_sees_all_trials_so_far_once(path, everything):
    seen = []

    def watch(outputs, trial):
        seen.append((trial.separation, trial.noise, outputs["value"]))
        return False

    sweep(STOPPED, draw, path, enough=watch)
    assert len(seen) == 18
    for separation, noise, values in seen:
        cell = everything["value"].sel(separation=separation, noise=noise)
        np.testing.assert_array_equal(values, cell[: len(values)])
    assert [len(values) for *_, values in seen[:3]] == [10, 20, 23]


def test_rule_that_raises_is_no_failed_cell(path, tmp_path):
    with pytest.raises(KeyError):
        sweep(STOPPED, draw, path, enough=lambda outputs, _: bool(outputs["other"]))
    assert not (path / "failures.jsonl").exists()
