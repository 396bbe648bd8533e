"""What a disk may do to a store, and what the store makes of it."""

import errno
import json
import logging
import pathlib
import re
import resource
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray
import zarr.storage._local
from engine_trial import draw, plain_grid

from cfljax.engine import Grid, StoreError, sweep


def grid() -> Grid:
    return plain_grid(axes={"separation": (0.5, 1.0)})


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("finished")
    sweep(grid(), draw, folder / "s")
    return folder


@pytest.fixture(scope="module")
def unbroken(finished: pathlib.Path) -> xarray.Dataset:
    return sweep(grid(), draw, finished / "s")


@pytest.fixture
def path(tmp_path: pathlib.Path, finished: pathlib.Path) -> pathlib.Path:
    """A finished store."""
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    return tmp_path / "s"


def contents(folder: pathlib.Path) -> dict[pathlib.Path, bytes]:
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"revision": 2}, "by revision 1 of the trial, this is revision 2"),
        ({"seed": 3}, "with `seed` = 0, this run has 3"),
        ({"experiment": "b"}, "with `experiment` = 'plain', this run has 'b'"),
        ({"num_trials": 24}, "with `num_trials` = 23, this run has 24"),
        ({"axes": {"noise": (1.0,)}}, "`axis_order` = ['separation'], .* ['noise']"),
        ({"axes": {"separation": (0.5, 2.0)}}, "`separation` = [0.5, 1.0], .*2.0]"),
        ({"dims": {"value": ("other",)}}, "`value` = ['number'], .* ['other']"),
    ],
)
def test_store_of_another_sweep_is_refused(path, changes, message):
    before = contents(path.parent)
    pattern = re.escape(message).replace(r"\.\*", ".*")
    with pytest.raises(StoreError, match=pattern) as caught:
        sweep(plain_grid(**{"axes": grid().axes, **changes}), draw, path)
    assert "\n" not in str(caught.value) and "delete it" in str(caught.value)
    assert contents(path.parent) == before


def test_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "thesis.tex").write_text("precious")
    (tmp_path / "file").write_text("precious")
    zarr.create_group(tmp_path / "group")
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "zarr.json").write_text("")
    before = contents(tmp_path)
    for name in ("notes", "file", "group", "torn"):
        with pytest.raises(StoreError, match="choose another folder or delete it"):
            sweep(grid(), draw, tmp_path / name)
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("damage", "block"),
    [
        ("truncated", "c.0.1.0"),
        ("truncated", "c.1.2.0"),  # Shorter than its chunk.
        ("empty", "c.1.2.0"),
        ("flipped", "c.0.1.0"),
        ("missing", "c.1.2.0"),
    ],
)
def test_damaged_block_is_computed_again(path, unbroken, caplog, damage, block):
    file = path / "value" / block
    whole = file.read_bytes()
    if damage == "missing":
        file.unlink()
    else:
        flipped = bytes([whole[0] ^ 1]) + whole[1:]
        broken = {"truncated": whole[:9], "empty": b"", "flipped": flipped}
        file.write_bytes(broken[damage])
    with caplog.at_level(logging.WARNING):
        repaired = sweep(grid(), draw, path)
    assert repaired.identical(unbroken)
    assert "1 blocks are missing or damaged" in caplog.text
    assert file.read_bytes() == whole
    caplog.clear()
    assert sweep(grid(), draw, path).identical(unbroken)
    assert not caplog.text


@pytest.mark.parametrize("lost", ["done/c.1.2", "done/zarr.json", "value/zarr.json"])
def test_lost_marks_and_arrays_are_made_again(path, unbroken, lost):
    (path / lost).unlink()
    assert sweep(grid(), draw, path).identical(unbroken)


def test_results_equal_to_fill_values_are_results(tmp_path):
    """Diverged runs and plain failures leave files, unlike zarr's default."""

    def diverged(trial, key, constants):
        del key, constants
        value = jnp.stack([jnp.inf, jnp.nan, 0.0]) * jnp.float32(trial.separation)
        return {"value": value, "count": jnp.int32(0)}

    cells = plain_grid(
        axes={"separation": (0.5,)}, dims={"value": ("number",), "count": ()}
    )
    result = sweep(cells, diverged, tmp_path / "s")
    assert not result["failed"].any()
    np.testing.assert_array_equal(result["value"][0, 0], [np.inf, np.nan, 0.0])
    assert (result["count"] == 0).all()
    again = sweep(cells, draw, tmp_path / "s")  # Would fail if anything were run.
    assert again.identical(result)


def test_full_disk_keeps_what_is_done(tmp_path, unbroken, monkeypatch):
    puts, put = [], zarr.storage._local._put

    def full(path, value, *arguments, **options):
        puts.append(path)
        if len(puts) > 15:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return put(path, value, *arguments, **options)

    path = tmp_path / "s"
    with monkeypatch.context() as patch:
        patch.setattr(zarr.storage._local, "_put", full)
        with pytest.raises(
            StoreError, match=r"s`: No space left on device\."
        ) as caught:
            sweep(grid(), draw, path)
    assert "\n" not in str(caught.value)
    done = [(path / "done" / f"c.{i}.{j}").exists() for i in (0, 1) for j in (0, 1, 2)]
    assert 0 < sum(done) < 6
    assert sweep(grid(), draw, path).identical(unbroken)


def test_disk_that_really_refuses(tmp_path):
    """The system's own limit on the size of a file, which binds root as well."""

    def large(trial, key, constants):
        return {"value": jax.random.uniform(key, (1000,))}

    path, cells = tmp_path / "s", plain_grid(axes={})
    sweep(cells, large, tmp_path / "compiled")  # Into a file that is larger.
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(StoreError, match=r"cannot write results to .* too large"):
            sweep(cells, large, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not (path / "done" / "c.0").exists()
    resumed = sweep(cells, large, path)
    assert np.isfinite(resumed["value"]).all() and not resumed["failed"].any()


def test_path_below_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="Not a directory"):
        sweep(grid(), draw, tmp_path / "file" / "s")


def test_provenance_lists_the_runs(path):
    file = path.parent / "s.provenance.json"
    (path / "value" / "c.1.2.0").unlink()
    sweep(grid(), draw, path, chunk=2)
    runs = json.loads(file.read_text())["runs"]
    assert [run["blocks"] for run in runs] == [6, 1]
    assert [run["chunk"] for run in runs] == [None, 2]
    assert all(run["finished"] >= run["started"] for run in runs)
    assert {"commit", "python", "jax", "jaxlib", "numpy", "cfljax"} <= set(runs[0])
    assert runs[0]["device"] and runs[0]["devices"] >= 1 and runs[0]["cores"] >= 1
    text = file.read_text()
    assert str(pathlib.Path.home()) not in text and str(path.parent) not in text
    for stored in [path, file]:
        stored.rename(stored.with_name("old" + stored.name))
    sweep(grid(), draw, path)
    assert len(json.loads(file.read_text())["runs"]) == 1
