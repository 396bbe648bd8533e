"""Where a rule stops a cell must depend on its results alone, not on their history."""

from collections.abc import Mapping

import numpy as np
import pytest
from engine_trial import JOINT, Trial, draw, plain_grid

from cfljax.engine import sweep
from cfljax.engine.store import Store

GRID = plain_grid(axes={"separation": (0.5, 1.0, 2.0), "noise": (1.0, 2.0)})
WANTED = np.asarray([[10, 10], [20, 20], [23, 23]])


def narrow(outputs: Mapping[str, np.ndarray], trial: Trial) -> bool:
    """More trials where the numbers are larger."""
    assert outputs["value"].shape[1:] == (3,)
    return len(outputs["value"]) >= 20 * trial.separation


@pytest.fixture
def written(monkeypatch):
    """The blocks that were written."""
    blocks, original = [], Store.write

    def noted(self, cell, block, *arguments):
        blocks.append((*cell, block))
        original(self, cell, block, *arguments)

    monkeypatch.setattr(Store, "write", noted)
    return blocks


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    return sweep(GRID, draw, tmp_path_factory.mktemp("everything") / "s")


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    path = tmp_path_factory.mktemp("stopped") / "s"
    return sweep(GRID, draw, path, enough=narrow)


WAYS = [(draw, {}), (None, {"joint": JOINT})]


@pytest.mark.parametrize(("simulate", "way"), WAYS, ids=["traced", "joint"])
def test_cells_stop_after_the_block_that_is_enough(
    tmp_path, written, everything, stopped, simulate, way
):
    path = tmp_path / "s"
    result = sweep(GRID, simulate, path, enough=narrow, **way)
    assert result.identical(stopped)
    np.testing.assert_array_equal(result["trials"], WANTED)
    assert (result.attrs["open_blocks"], result.attrs["failures"]) == (0, 0)
    assert len(written) == 2 * (1 + 2 + 3) == len(set(written))
    used = result["trial"] < result["trials"]
    assert result["value"].identical(everything["value"].where(used))
    assert sweep(GRID, None, path, joint=JOINT, enough=narrow).identical(stopped)
    assert len(written) == 12  # A cell that is stopped is complete.
    whole = sweep(GRID, simulate, path, **way)
    assert whole.identical(everything) and len(written) == 18
    np.testing.assert_array_equal(whole["trials"], np.full((3, 2), 23))


@pytest.mark.parametrize(("simulate", "way"), WAYS, ids=["traced", "joint"])
def test_history_does_not_matter(tmp_path, stopped, written, simulate, way):
    """Blocks stored without the rule, with gaps, damage and failures among them."""
    path = tmp_path / "s"
    whole = sweep(GRID, draw, path)
    assert not whole.identical(stopped)
    assert sweep(GRID, simulate, path, enough=narrow, **way).identical(stopped)
    (path / "value" / "c.0.1.2.0").unlink()  # Beyond the stop.
    store = Store(path, GRID)
    store.mark((1, 1), 2, -1)  # Likewise.
    written.clear()
    assert sweep(GRID, simulate, path, enough=narrow, **way).identical(stopped)
    assert not written
    for lost in ("c.0.0.0", "c.1.0.1", "c.2.0.1"):
        (path / "done" / lost).unlink()
    assert sweep(GRID, simulate, path, enough=narrow, **way).identical(stopped)
    assert sorted(written) == [(0, 0, 0), (1, 0, 1), (2, 0, 1)]


def test_part_with_a_gap_shows_what_comes_before_it(tmp_path, everything):
    path = tmp_path / "s"
    sweep(GRID, draw, path)
    (path / "done" / "c.2.1.1").unlink()  # The last cell's, of another shard.
    part = sweep(GRID, draw, path, enough=narrow, shard=(1, 6))
    np.testing.assert_array_equal(part["trials"], WANTED - [[0, 0], [0, 0], [0, 13]])
    assert part.attrs["open_blocks"] == 1
    plain = sweep(GRID, draw, path, shard=(1, 6))
    assert plain["trials"][2, 1] == 13  # Without a rule all that is done counts.


def test_interrupted_rule_resumes_to_the_same(tmp_path, stopped, monkeypatch):
    original, count = Store.write, []

    def interrupted(self, *arguments):
        if len(count) == 7:
            raise KeyboardInterrupt
        count.append(arguments)
        original(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            sweep(GRID, None, tmp_path / "s", joint=JOINT, enough=narrow)
    assert sweep(GRID, draw, tmp_path / "s", enough=narrow).identical(stopped)


def test_rule_sees_all_trials_so_far_once(tmp_path, everything):
    seen = []

    def watch(outputs, trial):
        seen.append((trial.separation, trial.noise, outputs["value"]))
        return False

    sweep(GRID, draw, tmp_path / "s", enough=watch)
    assert len(seen) == 18
    for separation, noise, values in seen:
        cell = everything["value"].sel(separation=separation, noise=noise)
        np.testing.assert_array_equal(values, cell[: len(values)])
    assert [len(values) for *_, values in seen[:3]] == [10, 20, 23]


def test_rule_that_raises_is_no_failed_cell(tmp_path):
    def broken(outputs, trial):
        return outputs["no such name"]

    with pytest.raises(KeyError):
        sweep(GRID, draw, tmp_path / "s", enough=broken)
    assert not (tmp_path / "s.failures.jsonl").exists()
