"""Cells that raise are recorded, and do not stop the others."""

import io
import json
import logging
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine_trial import CONVENTIONS, draw, plain_grid

import cfljax.engine.progress
from cfljax.engine import StoreError, SweepError, sweep
from cfljax.engine.claims import Claims
from cfljax.engine.progress import Bar


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
    lines = (tmp_path / "s.failures.jsonl").read_text().splitlines()
    entries = [json.loads(line) for line in lines]
    assert [entry["cell"]["separation"] for entry in entries] == [0.5, 1.0]
    assert entries[0]["message"] == "no `convention` reference in it.py"
    assert entries[0]["place"].startswith("test_engine_sweep_against_failures.py:")
    retried = sweep(plain_grid(axes=CONVENTIONS), draw, path)
    assert not retried["failed"].any() and not np.isnan(retried["value"]).any()
    np.testing.assert_array_equal(
        retried["value"].sel(convention="paper"),
        result["value"].sel(convention="paper"),
    )


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
    assert "out of something" in (tmp_path / "s.failures.jsonl").read_text()


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
    number = {"value": jnp.zeros(1)}
    with Claims(path, (1,)) as claims:
        with claims.claim([(0,)]) as is_held:
            assert is_held
            with pytest.raises(
                StoreError, match=r"1 blocks .* computed by another run"
            ):
                sweep(grid, lambda *_: number, path)
        assert not (path / "value").exists()
        assert sweep(grid, lambda *_: number, path).sizes["trial"] == 2
        with claims.claim([(0,)]):  # Reading what is done needs no lock.
            assert sweep(grid, lambda *_: number, path).sizes["trial"] == 2


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
