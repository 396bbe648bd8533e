"""Damage to any array of a store is noticed, and repaired or named."""

import pathlib
import shutil

import pytest
from reliability_kinds import (
    ARRAYS,
    KINDS,
    Calls,
    chunks,
    contents,
    grid,
)

from cfljax.engine import StoreError, sweep


@pytest.fixture
def path(tmp_path: pathlib.Path, finished_sweep: pathlib.Path) -> pathlib.Path:
    """A finished store."""
    shutil.copytree(finished_sweep, tmp_path, dirs_exist_ok=True)
    return tmp_path / "s"


MORE = [(array, damage) for array in ARRAYS for damage in ("empty", "flipped")]
MORE += [(array, "missing") for array in ARRAYS if array != "count"]


@pytest.mark.parametrize(
    ("array", "damage"),
    [
        *((array, "truncated") for array in ARRAYS),
        ("count", "missing"),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in MORE),
    ],
)
def test_damaged_chunk_of_each_array_is_made_again(path, sweep_results, array, damage):
    before = contents(path)
    file = chunks(path, array)[5]
    whole = file.read_bytes()
    broken = {"truncated": whole[:-1], "empty": b"", "missing": None}
    broken["flipped"] = bytes([whole[0] ^ 1]) + whole[1:]
    if broken[damage] is None:
        file.unlink()
    else:
        file.write_bytes(broken[damage])
    calls = Calls()
    assert sweep(grid(), None, path, joint=calls.joint).identical(sweep_results)
    if array == "seconds":  # No result depends on them: nobody reads them.
        assert not calls.trials
        return
    assert sum(calls.trials.values()) == len(set(calls.trials)) in (1, 10)
    after = contents(path)
    changed = {name for name in before if before[name] != after.get(name)}
    assert all(name.startswith("seconds") for name in changed)
    calls = Calls()
    assert sweep(grid(), None, path, joint=calls.joint).identical(sweep_results)
    assert not calls.trials


@pytest.mark.parametrize("array", ARRAYS)
def test_torn_description_is_named_and_nothing_is_changed(path, array):
    file = path / array / "zarr.json"
    file.write_bytes(file.read_bytes()[:40])
    before = contents(path.parent)
    with pytest.raises(StoreError, match="cannot be read as a store") as caught:
        sweep(grid(), None, path, joint=KINDS)
    assert "\n" not in str(caught.value) and "delete it" in str(caught.value)
    assert contents(path.parent) == before
