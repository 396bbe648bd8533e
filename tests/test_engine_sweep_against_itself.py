"""A sweep must not depend on how it is cut, interrupted or resumed."""

import dataclasses
import pathlib
import sys
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
    draw,
    plain_grid,
    simulate,
    small_grid,
)

from cfljax.engine import Grid, sweep
from cfljax.engine.programs import run_trials
from cfljax.engine.store import Store

ONE = jnp.float32(1.0)
MODULE = sys.modules[sweep.__module__]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> xarray.Dataset:
    path = tmp_path_factory.mktemp("reference") / "toy"
    return sweep(small_grid(), simulate, path, constants=ONE)


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The trials for which something was compiled."""
    trials: list[Any] = []
    original = MODULE.compile_trials

    def counted(simulate, trial, *arguments, **options):
        trials.append(trial)
        return original(simulate, trial, *arguments, **options)

    monkeypatch.setattr(MODULE, "compile_trials", counted)
    return trials


@pytest.mark.parametrize("chunk", [1, 3])
def test_chunks_give_the_same_bits(tmp_path, reference, chunk):
    again = sweep(small_grid(), simulate, tmp_path / "s", constants=ONE, chunk=chunk)
    assert again.identical(reference)


@pytest.mark.parametrize("chunk", [3, 10])
def test_trials_at_once_agree_up_to_rounding(tmp_path, reference, chunk):
    # Not to the last bit: XLA may order a sum differently for another batch.
    again = sweep(
        small_grid(),
        simulate,
        tmp_path / "s",
        constants=ONE,
        chunk=chunk,
        batching="vmap",
    )
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
    with pytest.raises(ValueError, match="holds `value` as float64"):
        (tmp_path / "s" / "done" / "c.0.0.0").unlink()
        sweep(plain_grid(), draw, tmp_path / "s")


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


def test_traced_fields_share_a_compilation(tmp_path, compilations):
    """Those that the grid names, and no other, whatever their type."""
    traces = []

    def traced(trial, key, constants):
        traces.append(trial)
        return draw(trial, key, constants)

    axes = {"separation": (0.1, 0.2, 0.3), "noise": (1.0, 2.0)}
    grid = plain_grid(axes=axes)
    sweep(grid, traced, tmp_path / "floats")
    assert len(compilations) == len(traces) == 1
    axes = {"separation": (0.1, 0.2), "num_clients": (4, 6)}
    sweep(dataclasses.replace(grid, axes=axes), traced, tmp_path / "static")
    assert len(compilations) == len(traces) == 3
    axes = {"separation": (0.1, 0.2), "noise": (1.0, 2.0)}
    partly = dataclasses.replace(grid, axes=axes, traced=("noise",))
    sweep(partly, traced, tmp_path / "partly")
    assert len(compilations) == len(traces) == 5


def test_finished_sweep_is_only_read(tmp_path, compilations):
    path = tmp_path / "s"
    first = sweep(plain_grid(), draw, path)
    before = len(compilations)
    stamps = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")}
    begin = time.perf_counter()
    again = sweep(plain_grid(), _never, path)
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


def _never(trial, key, constants):
    raise AssertionError("a finished sweep must not run anything")


def test_interrupt_passes_through_and_resumes(tmp_path, monkeypatch):
    writes, original = [], Store.write

    def interrupted(self, *arguments):
        if len(writes) == 5:
            raise KeyboardInterrupt
        writes.append(arguments)
        original(self, *arguments)

    path = tmp_path / "s"
    with monkeypatch.context() as patch:
        patch.setattr(Store, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            sweep(plain_grid(), draw, path)
    computed = []

    def counted(program, trial, *arguments, **options):
        computed.append(trial)
        return run_trials(program, trial, *arguments, **options)

    monkeypatch.setattr(MODULE, "run_trials", counted)
    resumed = sweep(plain_grid(), draw, path)
    assert resumed.identical(sweep(plain_grid(), draw, tmp_path / "unbroken"))
    assert len(computed) == (12 - 5) + 12


def test_grid_refuses_what_it_cannot_mean():
    with pytest.raises(ValueError, match="`num_trials` must be at least 1, got 0"):
        small_grid(num_trials=0)
    with pytest.raises(ValueError, match=r"fields of the trial .* got speed"):
        small_grid(axes={"speed": (1.0,)})
    with pytest.raises(ValueError, match="of type int"):
        small_grid(axes={"num_clients": (1.5,)})
    with pytest.raises(ValueError, match="must not repeat"):
        small_grid(axes={"noise": (1, 1.0)})
    with pytest.raises(ValueError, match="`trial` twice"):
        small_grid(dims={"trial": ()}, coords={})
    with pytest.raises(ValueError, match="own axis of an output, got `step_sizes`"):
        small_grid(coords={"step_sizes": (1.0,)})
    with pytest.raises(ValueError, match=r"`traced` must name .* got speed"):
        small_grid(traced=("speed",))
    named = dataclasses.make_dataclass("Named", ["name"])("a")
    with pytest.raises(ValueError, match="hold numbers, got name, str"):
        Grid("x", named, {}, 1, {"y": ()}, traced=("name",))
    with pytest.raises(ValueError, match="`traced` must not repeat"):
        small_grid(traced=("noise", "noise"))
    with pytest.raises(ValueError, match=r"`trial.x` must be an int.* got list"):
        Grid("x", dataclasses.make_dataclass("T", ["x"])([1]), {}, 1, {"y": ()})
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
