"""A sweep and its store: how it is cut, interrupted and resumed; failures and disks."""

import dataclasses
import io
import json
import logging
import pathlib
import resource
import shutil
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray
from engine_trial import (
    CONVENTIONS,
    STEP_SIZES,
    Trial,
    block_file,
    contents,
    damage,
    draw,
    filling,
    interrupted_after,
    lose,
    num_done,
    plain_grid,
    simulate,
    small_grid,
)

import cfljax.engine.progress
from cfljax.engine import StoreError, SweepError, kept, sweep, ways
from cfljax.engine.claims import Claims
from cfljax.engine.programs import run_trials
from cfljax.engine.progress import Bar
from cfljax.engine.store import Store

# Against itself: not how it is cut, interrupted or resumed matters

ONE = jnp.float32(1.0)
NAMED = dataclasses.make_dataclass("Named", ["name"])("a")
LISTED = dataclasses.make_dataclass("Listed", ["x"])([1])


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> xarray.Dataset:
    path = tmp_path_factory.mktemp("reference") / "toy"
    return sweep(small_grid(), simulate, path, constants=ONE)


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The trials for which something was compiled."""
    trials: list[Any] = []
    original = ways.compile_trials

    def counted(simulate, trial, *arguments, **options):
        trials.append(trial)
        return original(simulate, trial, *arguments, **options)

    monkeypatch.setattr(ways, "compile_trials", counted)
    return trials


@pytest.mark.parametrize("chunk", [1, 3])
def test_chunks_give_the_same_bits(tmp_path, reference, chunk):
    again = sweep(small_grid(), simulate, tmp_path / "s", constants=ONE, chunk=chunk)
    assert again.identical(reference)


@pytest.mark.long
@pytest.mark.parametrize("chunk", [3, 10])
def test_trials_at_once_agree_up_to_rounding(tmp_path, reference, chunk):
    # Not to the last bit: XLA may order a sum differently for another batch.
    options = {"constants": ONE, "chunk": chunk, "batching": "vmap"}
    again = sweep(small_grid(), simulate, tmp_path / "s", **options)
    np.testing.assert_array_equal(again["assignment"], reference["assignment"])
    np.testing.assert_allclose(again["distance"], reference["distance"], rtol=1e-4)


def test_another_seed_gives_other_numbers(tmp_path):
    one, other = (
        sweep(plain_grid(axes={}, seed=seed), draw, tmp_path / str(seed))
        for seed in (0, 1)
    )
    assert not np.any(one["value"].values == other["value"].values)


def test_trial_is_that_of_its_key(tmp_path, reference):
    key = jax.random.fold_in(jax.random.key(0), 22)
    trial = Trial(separation=0.5)
    alone = jax.jit(simulate, static_argnums=0)(trial, key, ONE)
    cell = reference.sel(separation=0.5)
    np.testing.assert_allclose(cell["distance"][22], alone["distance"], rtol=1e-4)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(cell["distance"][21], alone["distance"], rtol=1e-4)


def test_cell_does_not_depend_on_its_grid(tmp_path):
    axes = {"separation": (1.0, 7.0)}
    part = sweep(plain_grid(axes=axes, num_trials=4), draw, tmp_path / "part")
    axes = {"separation": (0.5, 1.0), "num_clients": (8,)}
    whole = sweep(plain_grid(axes=axes), draw, tmp_path / "whole")
    cell = whole["value"].sel(separation=1.0, num_clients=8)
    np.testing.assert_array_equal(part["value"].sel(separation=1.0), cell[:4])


def test_double_precision_survives_the_store(tmp_path):
    with jax.enable_x64(True):
        result = sweep(plain_grid(), draw, tmp_path / "s")
        read = sweep(plain_grid(), draw, tmp_path / "s")
    assert result["value"].dtype == np.float64
    assert result.attrs["failures"] == 0 and np.all(np.isfinite(result["value"]))
    assert read.identical(result)
    lose(tmp_path / "s", plain_grid(), (0, 0, 0))
    with pytest.raises(StoreError, match=r"other code .*: x64 \(True, here False\)"):
        sweep(plain_grid(), draw, tmp_path / "s")
    with pytest.raises(StoreError, match=r"holds `value` as float64.* gives float32"):
        sweep(plain_grid(), draw, tmp_path / "s", accept_code="it does no harm")


def test_cells_of_two_precisions_are_not_mixed(tmp_path):
    """Each is a sweep of its own; one of both would have to change the bits of one."""
    one, two = (plain_grid(axes={"separation": (s,)}) for s in (0.5, 1.0))
    with jax.enable_x64(True):
        sweep(one, draw, tmp_path / "s")
    assert sweep(two, draw, tmp_path / "s")["value"].dtype == np.float32
    both = plain_grid(axes={"separation": (0.5, 1.0)})
    refused = "holds `value` as float32.* another cell has it as float64"
    with pytest.raises(StoreError, match=refused):
        sweep(both, draw, tmp_path / "s")


def test_result_is_labelled(tmp_path, reference):
    axes = ("separation", "trial", "restart", "step_size")
    assert reference["distance"].dims == axes
    np.testing.assert_array_equal(reference["step_size"], STEP_SIZES)
    assert reference["distance"].dtype == np.float32
    assert reference["success"].dtype == np.float64
    assert reference.attrs["failures"] == 0
    assert not reference["failed"].any()
    plain = sweep(plain_grid(axes=CONVENTIONS), draw, tmp_path / "s")
    assert list(plain["convention"].values) == ["paper", "reference"]
    paper, other = (plain["value"].sel(convention=c) for c in plain["convention"])
    np.testing.assert_array_equal(paper, other)  # Common random numbers.


@pytest.mark.long
def test_traced_fields_share_a_compilation(tmp_path, compilations):
    """Those that the grid names, and no other, whatever their type."""
    traces = []

    def traced(trial, key, constants):
        traces.append(trial)
        return draw(trial, key, constants)

    noises = {"noise": (1.0, 2.0)}
    for axes, names, count in (
        ({"separation": (0.1, 0.2, 0.3), **noises}, ("separation", "noise"), 1),
        ({"separation": (0.1, 0.2), "num_clients": (4, 6)}, ("separation", "noise"), 3),
        ({"separation": (0.1, 0.2), **noises}, ("noise",), 5),
    ):
        grid = plain_grid(axes=axes, traced=names)
        sweep(grid, traced, tmp_path / str(count))
        assert len(compilations) == len(traces) == count


def test_finished_sweep_is_only_read(tmp_path, compilations):
    def never(trial, key, constants):
        raise AssertionError("a finished sweep must not run anything")

    path = tmp_path / "s"
    first = sweep(plain_grid(), draw, path)
    before = len(compilations)
    stamps = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")}
    begin = time.perf_counter()
    again = sweep(plain_grid(), never, path)
    assert time.perf_counter() - begin < 1
    assert again.identical(first)
    assert len(compilations) == before > 0
    assert stamps == {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")}


def test_refusing_work_refuses_only_what_is_not_done(tmp_path, refuse_work):
    """Control of the fixture by which slow tests say that nothing is run again."""
    first = sweep(plain_grid(), draw, tmp_path / "done")
    refuse_work()
    assert sweep(plain_grid(), draw, tmp_path / "done").identical(first)
    with pytest.raises(TypeError, match="NoneType"):
        sweep(plain_grid(), draw, tmp_path / "new")


@pytest.mark.long
def test_interrupt_passes_through_and_resumes(tmp_path, monkeypatch):
    path = tmp_path / "s"
    with interrupted_after(5):
        sweep(plain_grid(), draw, path)
    computed = []

    def counted(program, trial, *arguments, **options):
        computed.append(trial)
        return run_trials(program, trial, *arguments, **options)

    monkeypatch.setattr(ways, "run_trials", counted)
    resumed = sweep(plain_grid(), draw, path)
    assert resumed.identical(sweep(plain_grid(), draw, tmp_path / "unbroken"))
    assert len(computed) == (12 - 5) + 12


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_trials": 0}, "`num_trials` must be at least 1, got 0"),
        ({"axes": {"speed": (1.0,)}}, r"fields of the trial .* got speed"),
        ({"axes": {"num_clients": (1.5,)}}, "of type int"),
        ({"axes": {"noise": (1, 1.0)}}, "must not repeat"),
        ({"dims": {"trial": ()}, "coords": {}}, "`trial` twice"),
        ({"coords": {"step_sizes": (1.0,)}}, "own axis of an output, got `step_sizes`"),
        ({"traced": ("speed",)}, r"`traced` must name .* got speed"),
        ({"traced": ("noise", "noise")}, "`traced` must not repeat"),
        (
            {"trial": NAMED, "axes": {}, "traced": ("name",)},
            "hold numbers, got name, str",
        ),
        ({"trial": LISTED, "axes": {}}, r"`trial.x` must be an int.* got list"),
    ],
)
def test_grid_refuses_what_it_cannot_mean(changes, message):
    with pytest.raises(ValueError, match=message):
        small_grid(**changes)


def test_axes_of_numpy_are_of_the_types_of_fields():
    noise = small_grid(axes={"noise": tuple(np.linspace(0, 1, 3))}).axes["noise"]
    assert noise == (0, 0.5, 1) and {type(value) for value in noise} == {float}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dims": {"other": ("number",)}}, "must name the outputs"),
        ({"dims": {"value": ()}}, "must name the axes of shape"),
        ({"coords": {"number": (1.0, 2.0)}}, "as many labels"),
    ],
)
def test_outputs_must_be_those_announced(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        sweep(plain_grid(**changes), draw, tmp_path / "s")


@pytest.mark.long
def test_outputs_must_have_one_shape(tmp_path):
    def clients(trial, key, constants):
        return {"value": jax.random.uniform(key, (trial.num_clients,))}

    grid = plain_grid(axes={"num_clients": (4, 6)})
    with pytest.raises(ValueError, match="one shape and type in all"):
        sweep(grid, clients, tmp_path / "s")


@pytest.mark.parametrize(
    "option", [{"chunk": 0}, {"memory": 0}, {"batching": "loop"}], ids=str
)
def test_options_out_of_range_are_refused(tmp_path: pathlib.Path, option):
    name = next(iter(option))
    with pytest.raises((ValueError, TypeError), match=name):
        sweep(small_grid(), simulate, tmp_path / "s", constants=ONE, **option)
    assert not list(tmp_path.iterdir())


# Against failures: cells that raise are recorded, and do not stop the others


def refuse_reference(trial, key, constants):
    if trial.convention == "reference":
        raise ValueError(f"no `convention` {trial.convention} in /some/folder/it.py")
    return draw(trial, key, constants)


def test_cell_that_does_not_trace_is_recorded(tmp_path, caplog):
    path = tmp_path / "s"
    with caplog.at_level(logging.WARNING):
        result = sweep(plain_grid(axes=CONVENTIONS), refuse_reference, path)
    assert "2 of 4 cells failed, the first with ValueError: no" in caplog.text
    failed = result["failed"].sel(convention="reference")
    assert failed.all() and result["failed"].sum() == result.attrs["failures"] == 2
    assert np.isnan(result["value"].sel(convention="reference")).all()
    lines = (path / "failures.jsonl").read_text().splitlines()
    entries = [json.loads(line) for line in lines]
    assert [entry["cell"]["separation"] for entry in entries] == [0.5, 1.0]
    assert entries[0]["message"] == "no `convention` reference in it.py"
    assert entries[0]["place"].startswith("test_engine_sweep.py:")
    retried = sweep(plain_grid(axes=CONVENTIONS), draw, path)
    assert not retried["failed"].any() and not np.isnan(retried["value"]).any()
    again, first = (r["value"].sel(convention="paper") for r in (retried, result))
    np.testing.assert_array_equal(again, first)


def test_cell_that_raises_while_it_runs_is_recorded(tmp_path):
    """As when an accelerator runs out of memory: after some blocks were done."""

    def check(value):
        if value > 0.9:
            raise RuntimeError("out of something")
        return value

    def fragile(trial, key, constants):
        value = trial.separation * jax.random.uniform(key)
        shape = jax.ShapeDtypeStruct((), value.dtype)
        return {"value": jax.pure_callback(check, shape, value)[None]}

    result = sweep(plain_grid(axes={"separation": (0.5, 1.0)}), fragile, tmp_path / "s")
    assert result["failed"].values.tolist() == [False, True]
    assert not np.isnan(result["value"][0]).any()
    assert np.isnan(result["value"][1]).any()
    assert "out of something" in (tmp_path / "s" / "failures.jsonl").read_text()


def test_mistake_in_every_cell_is_raised(tmp_path):
    def broken(trial, key, constants):
        return {"value": jnp.ones(3) @ jnp.ones(4)}

    with pytest.raises(SweepError, match="all cells failed, the first with TypeErr"):
        sweep(plain_grid(), broken, tmp_path / "s")
    fixed = sweep(plain_grid(), draw, tmp_path / "s")
    assert not fixed["failed"].any()


class Screen(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stream", "visible", "delay", "shown"),
    [
        (Screen, True, 0.0, True),
        (Screen, True, 60.0, False),
        (Screen, False, 0.0, False),
        (io.StringIO, True, 0.0, False),
    ],
)
def test_bar_shows_only_to_those_who_watch(monkeypatch, stream, visible, delay, shown):
    out = stream()
    monkeypatch.setattr("sys.stderr", out)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(cfljax.engine.progress, "DELAY", delay)
    with Bar("toy", visible=visible) as bar:
        bar.expect(7)
        bar.advance(3)
        bar.expect(-2)
        bar.fail()
        deadline = time.monotonic() + (5.0 if shown else 0.1)
        while time.monotonic() < deadline and "3/5" not in out.getvalue():
            time.sleep(0.01)
    assert ("3/5" in out.getvalue() and "1 failed" in out.getvalue()) == shown
    assert bool(out.getvalue()) == shown


def test_what_another_run_holds_is_left_to_it(tmp_path):
    """While one sweep computes, another on its store stops and loses nothing."""
    path, grid = tmp_path / "store", plain_grid(axes={}, num_trials=2)
    block = [Store(path, grid).key((0,))]
    compute = lambda *_: {"value": jnp.zeros(1)}
    refused = pytest.raises(StoreError, match=r"1 blocks .* computed by another run")
    with Claims(path) as claims:
        with claims.claim(block) as is_held:
            assert is_held
            with refused:
                sweep(grid, compute, path)
        assert not (path / "cells").exists()
        assert sweep(grid, compute, path).sizes["trial"] == 2
        with claims.claim(block):  # Reading what is done needs no lock.
            assert sweep(grid, compute, path).sizes["trial"] == 2


def test_results_that_cannot_be_held_are_refused(tmp_path):
    grid = plain_grid(axes={}, num_trials=10**12)
    with pytest.raises(ValueError, match=r"need .* GiB but .* trials would fit"):
        sweep(grid, lambda *_: {}, tmp_path / "store")
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("value", [jnp.zeros(0), jnp.zeros(1, complex)])
def test_outputs_that_cannot_be_stored_are_named(tmp_path, value):
    grid = plain_grid(axes={}, num_trials=2)
    with pytest.raises((ValueError, SweepError), match="real numbers"):
        sweep(grid, lambda *_: {"value": value}, tmp_path / "store")


# Against failures: what a disk may do to a store, and what the store makes of it


CELLS = plain_grid(axes={"separation": (0.5, 1.0)})


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("finished")
    sweep(CELLS, draw, folder / "s")
    return folder


@pytest.fixture(scope="module")
def unbroken(finished: pathlib.Path) -> xarray.Dataset:
    return sweep(CELLS, draw, finished / "s")


@pytest.fixture
def path(tmp_path: pathlib.Path, finished: pathlib.Path) -> pathlib.Path:
    """A finished store."""
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    return tmp_path / "s"


def test_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "thesis.tex").write_text("precious")
    (tmp_path / "file").write_text("precious")
    (tmp_path / "array" / "done").mkdir(parents=True)
    (tmp_path / "array" / "zarr.json").write_text("{}")  # Of an earlier version.
    before = contents(tmp_path)
    for name in ("notes", "file", "array"):
        with pytest.raises(StoreError, match=r"not a store .* choose another folder"):
            sweep(CELLS, draw, tmp_path / name)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("left", ["nothing", "lock", "provenance.json", ".1.partial"])
def test_folder_of_a_store_that_was_just_begun_is_taken(tmp_path, unbroken, left):
    (tmp_path / "s").mkdir()
    if left != "nothing":
        (tmp_path / "s" / left).touch()
    assert sweep(CELLS, draw, tmp_path / "s").identical(unbroken)


@pytest.mark.parametrize("kind", ["truncated", "empty", "flipped", "missing"])
@pytest.mark.parametrize("block", [(0, 1), (1, 2)])  # The second is a short one.
def test_damaged_block_is_computed_again(path, unbroken, caplog, kind, block):
    file = block_file(path, CELLS, *block)
    whole = kept.read(file)
    damage(file, kind)
    with caplog.at_level(logging.WARNING):
        repaired = sweep(CELLS, draw, path)
    assert repaired.identical(unbroken)
    told = f"`{path}`: 1 blocks are damaged or not what their place says"
    assert [told in line for line in caplog.messages] == [True] * (kind != "missing")
    again = kept.read(file)
    assert whole is not None and again is not None
    assert again.arrays["value"].tobytes() == whole.arrays["value"].tobytes()
    caplog.clear()
    assert sweep(CELLS, draw, path).identical(unbroken)
    assert not caplog.text


def test_damage_outside_of_a_share_is_left_to_the_others(path, unbroken):
    damage(block_file(path, CELLS, 1, 1), "flipped")
    part = sweep(CELLS, draw, path, shard=(1, 2))
    assert part.attrs["open_blocks"] == 1 and num_done(path, CELLS) == 5
    assert sweep(CELLS, draw, path, shard=(2, 2)).identical(unbroken)


@pytest.mark.parametrize("lost", ["lock", "provenance.json", "code"])
def test_what_lies_beside_the_blocks_may_be_lost(path, unbroken, lost):
    shutil.rmtree(path / lost) if lost == "code" else (path / lost).unlink()
    assert sweep(CELLS, draw, path).identical(unbroken)
    lose(path, CELLS, (0, 1))
    assert sweep(CELLS, draw, path).identical(unbroken)
    assert (path / lost).exists()


def test_results_without_numbers_are_results(tmp_path):
    """Diverged runs and plain failures, of zeros and of no numbers."""

    def diverged(trial, key, constants):
        del key, constants
        value = jnp.stack([jnp.inf, jnp.nan, 0.0]) * jnp.float32(trial.separation)
        return {"value": value, "count": jnp.int32(0)}

    dims = {"value": ("number",), "count": ()}
    cells = plain_grid(axes={"separation": (0.5,)}, dims=dims)
    result = sweep(cells, diverged, tmp_path / "s")
    assert not result["failed"].any()
    np.testing.assert_array_equal(result["value"][0, 0], [np.inf, np.nan, 0.0])
    assert (result["count"] == 0).all()
    again = sweep(cells, draw, tmp_path / "s")  # Would fail if anything were run.
    assert again.identical(result)


def test_full_disk_keeps_what_is_done(tmp_path, unbroken, monkeypatch):
    path = tmp_path / "s"
    with monkeypatch.context() as patch:
        filling(patch, room=5)  # The run, its code, and some blocks.
        with pytest.raises(StoreError, match=r"s`: No space left on device\.") as error:
            sweep(CELLS, draw, path)
    assert "\n" not in str(error.value)
    assert num_done(path, CELLS) == 3
    assert not [file for file in path.rglob("*") if file.suffix == ".partial"]
    assert sweep(CELLS, draw, path).identical(unbroken)


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
    assert num_done(path, cells) == 0
    resumed = sweep(cells, large, path)
    assert np.isfinite(resumed["value"]).all() and not resumed["failed"].any()


def test_path_below_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="Not a directory"):
        sweep(CELLS, draw, tmp_path / "file" / "s")


def test_provenance_lists_the_runs(path):
    file = path / "provenance.json"
    lose(path, CELLS, (1, 2))
    sweep(CELLS, draw, path, chunk=2)
    runs = json.loads(file.read_text())["runs"]
    assert [run["blocks"] for run in runs] == [6, 1]
    assert [run["chunk"] for run in runs] == [None, 2]
    assert all(run["finished"] >= run["started"] for run in runs)
    assert {"commit", "python", "jax", "jaxlib", "numpy", "cfljax"} <= set(runs[0])
    assert runs[0]["device"] and runs[0]["devices"] >= 1 and runs[0]["cores"] >= 1
    of_block = {
        (*cell.index, number): Store(path, CELLS).about((*cell.index, number))
        for cell in CELLS.cells()
        for number in range(3)
    }
    names = {block: about["run"] for block, about in of_block.items()}
    assert names.pop((1, 2)) == runs[1]["run"] != runs[0]["run"]
    assert set(names.values()) == {runs[0]["run"]}
    assert all(about["commit"] == runs[0]["commit"] for about in of_block.values())
    text = "".join(own.read_text() for own in (file, *(path / "code").iterdir()))
    text += json.dumps(list(of_block.values()))
    assert str(pathlib.Path.home()) not in text and str(path.parent) not in text
