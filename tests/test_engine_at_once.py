"""Cells of one trial each that are computed at once, as on an accelerator."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine_trial import draw, plain_grid

from cfljax.engine import num_pieces, sweep, sweeps, ways


def one_trial(separations=(0.1, 0.2, 0.3), **changes):
    """Cells of one trial each, and how they are computed at once."""
    axes = {"separation": separations, "num_clients": (4, 6)}
    made = {"axes": axes, "num_trials": 1, "traced": ("separation",)}
    return plain_grid(**made | changes)


def called(monkeypatch):
    """The separations and the chunk of each call that computes several cells."""
    calls: list[Any] = []
    original = ways.run_cells

    def counted(program, trials, key, constants):
        calls.append((program.chunk, [trial.separation for trial in trials]))
        return original(program, trials, key, constants)

    monkeypatch.setattr(ways, "run_cells", counted)
    return calls


@pytest.mark.long
def test_cells_of_one_trial_are_computed_at_once(tmp_path, monkeypatch):
    """Those that differ as traced alone; what is there already is not done again."""
    calls, grid = called(monkeypatch), one_trial()
    found = sweep(grid, draw, tmp_path / "at once", batching="vmap")
    assert calls == [(3, [0.1, 0.2, 0.3])] * 2
    plain = sweep(grid, draw, tmp_path / "one by one", batching="map")
    np.testing.assert_allclose(found["value"], plain["value"], rtol=1e-6)
    assert np.all(np.diff(plain["value"], axis=0) != 0)  # Control: cells differ.
    calls.clear()
    more = one_trial((0.1, 0.4, 0.2, 0.3, 0.5))
    again = sweep(more, draw, tmp_path / "at once", batching="vmap")
    assert calls == [(5, [0.4, 0.5])] * 2  # As if none were there.
    same = again["value"].sel(separation=[0.1, 0.2, 0.3])
    np.testing.assert_array_equal(same, found["value"])
    calls.clear()
    one_more = one_trial((0.1, 0.4, 0.2, 0.3, 0.5, 0.6))
    sweep(one_more, draw, tmp_path / "at once", batching="vmap")
    assert calls == [(6, [0.6])] * 2  # The program of all, however few are left.
    calls.clear()
    sweep(more, draw, tmp_path / "at once", batching="vmap")
    alone = one_trial((0.1,), axes={"separation": (0.1,)})
    sweep(alone, draw, tmp_path / "alone", batching="vmap")
    assert not calls  # One cell is a plain trial.


@pytest.mark.parametrize(
    "members, at_once, expected",
    [
        (1, 32, [1]),
        (3, 32, [3]),
        (32, 32, [32]),
        (33, 32, [16, 17]),
        (5, 2, [1, 2, 2]),
        (3, 1, [1, 1, 1]),
        (993, 32, [31] * 31 + [32]),
    ],
)
def test_calls_are_of_like_numbers_of_cells(members, at_once, expected):
    grid = one_trial(tuple(np.arange(1, members + 1) / members))
    cells = [cell for cell in grid.cells() if cell.trial.num_clients == 4]
    calls = ways.calls_of(cells, at_once)
    assert sorted(len(call) for call in calls) == expected
    assert [cell for call in calls for cell in call] == cells


@pytest.mark.long
def test_workers_share_cells_that_are_computed_at_once(tmp_path, monkeypatch):
    calls, grid = called(monkeypatch), one_trial((0.1, 0.2, 0.3, 0.4, 0.5))
    options = {"batching": "vmap", "chunk": 2}
    parts = [
        sweep(grid, draw, tmp_path / "s", shard=(i, 3), **options) for i in (1, 2, 3)
    ]
    assert [part.attrs["open_blocks"] for part in parts] == [6, 2, 0]
    found = sorted(calls, key=lambda call: call[1])
    assert found == [(2, [0.1, 0.2])] * 2 + [(2, [0.3, 0.4])] * 2 + [(2, [0.5])] * 2
    whole = sweep(grid, draw, tmp_path / "whole", batching="map")
    np.testing.assert_allclose(parts[-1]["value"], whole["value"], rtol=1e-6)
    monkeypatch.setattr(sweeps, "default_batching", lambda: "vmap")
    assert num_pieces(grid, chunk=2) == 6
    assert num_pieces(grid) == 2
    assert num_pieces(grid, by_rounds=True) == 10
    assert num_pieces(plain_grid()) == 4  # Of many trials each.


def test_a_run_that_is_cut_keeps_what_was_done_at_once(tmp_path, monkeypatch):
    original, calls = ways.run_cells, []

    def stopped(*arguments):
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(ways, "run_cells", stopped)
    grid, options = one_trial((0.1, 0.2, 0.3, 0.4)), {"batching": "vmap", "chunk": 2}
    with pytest.raises(KeyboardInterrupt):
        sweep(grid, draw, tmp_path / "s", **options)
    monkeypatch.setattr(ways, "run_cells", original)
    part = sweep(grid, draw, tmp_path / "s", shard=(1, 100), **options)
    assert part.attrs["open_blocks"] == 4


@pytest.mark.long
def test_one_bad_cell_of_several_at_once_fails_alone(tmp_path):
    def check(value):
        if value > 0.25:
            raise RuntimeError("too far apart")
        return np.float32(value)

    def fragile(trial, key, constants):
        kind = jax.ShapeDtypeStruct((), jnp.float32)
        value = jnp.asarray(trial.separation, jnp.float32)
        seen = jax.pure_callback(check, kind, value, vmap_method="sequential")
        return draw(trial, key, constants) | {"seen": seen}

    grid = one_trial(dims={"value": ("number",), "seen": ()})
    found = sweep(grid, fragile, tmp_path / "s", batching="vmap", progress=False)
    assert found["failed"].values.tolist() == [[False] * 2, [False] * 2, [True] * 2]
    np.testing.assert_allclose(found["seen"][:2, 0, 0], [0.1, 0.2], rtol=1e-6)
    assert np.isnan(found["seen"][2]).all()


def test_what_cannot_be_computed_at_once_is_computed_one_by_one(tmp_path):
    def lonely(trial, key, constants):
        kind = jax.ShapeDtypeStruct((), jnp.float32)
        value = jnp.asarray(trial.separation, jnp.float32)
        seen = jax.pure_callback(np.float32, kind, value)  # Not of several.
        return draw(trial, key, constants) | {"seen": seen}

    grid = one_trial(dims={"value": ("number",), "seen": ()})
    found = sweep(grid, lonely, tmp_path / "s", batching="vmap", progress=False)
    assert not np.any(found["failed"])
    np.testing.assert_allclose(found["seen"][:, 0, 0], [0.1, 0.2, 0.3], rtol=1e-6)


def test_numbers_at_once_are_of_the_types_that_each_has_alone(tmp_path):
    """Weak ones: what they are combined with keeps its own; too large ones are
    refused."""

    def typed(trial, key, constants):
        del key, constants
        narrow = jnp.bfloat16(1) * trial.separation
        assert narrow.dtype == jnp.bfloat16
        total = jnp.uint32(4_000_000_000) + trial.num_clients
        return {"value": (total - jnp.uint32(4_000_000_000)).astype(jnp.float32)}

    many: dict[str, Any] = {
        "axes": {"num_clients": (4, 6)},
        "traced": ("num_clients", "separation"),
    }
    grid = one_trial(**many, dims={"value": ()})
    found = sweep(grid, typed, tmp_path / "s", batching="vmap")
    np.testing.assert_array_equal(found["value"][:, 0], [4, 6])
    large = one_trial(
        **many | {"axes": {"num_clients": (4, 2**32 + 5)}}, dims={"value": ()}
    )
    found = sweep(large, typed, tmp_path / "large", batching="vmap", progress=False)
    assert found["failed"].values.tolist() == [False, True]
