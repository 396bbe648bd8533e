"""CLoVE's Figure 3: its trials, its table, its command."""

import dataclasses
import json

import jax
import numpy as np
import pytest
import xarray as xr

from cfljax.intervals import clopper_pearson
from experiments.__main__ import main as command
from experiments.clove.fig3 import DIMS, Config, Trial, overview, preset, rows, simulate

TRIAL = Trial(
    method="clove",
    separation=0.5,
    noise=0.01,
    num_clients=6,
    num_clusters=3,
    num_samples=100,
    num_features=10,
    num_rounds=6,
    num_steps=10,
    step_size=0.05,
)


@pytest.mark.slow
def test_clove_finds_what_k_fed_cannot():
    def run(method):
        trial = dataclasses.replace(TRIAL, method=method)
        found = jax.jit(lambda key: simulate(trial, key))(jax.random.key(0))
        assert set(found) == set(DIMS)
        assert 1 <= found["least_distance"] <= found["largest_distance"] <= 5
        return np.asarray(found["rand_index"])

    clove, k_fed = run("clove"), run("k_fed")
    assert clove.shape == k_fed.shape == (6,)
    assert clove[-1] == 1 > k_fed[-1]
    assert (k_fed == k_fed[0]).all()


def made_up():
    """Two data sets for each of two separations."""
    rand = np.array([[[[0.2, 1.0], [0.1, 1.0]], [[0.0, 0.9], [0.0, np.nan]]]])
    axes = ("method", "noise", "separation", "trial", "round")
    coords = {"method": ["clove"], "noise": [0.1], "separation": [1.0, 0.1]}
    return xr.Dataset({"rand_index": (axes, rand[None])}, coords | {"round": [1, 2]})


def test_rows_by_hand():
    right, wrong = rows(made_up(), num_samples=100, error_rate=0.1)
    assert right["method"] == "CLoVE" and right["trials"] == 2
    assert right["exact"] == 1 and wrong["exact"] == 0
    low, high = clopper_pearson(2, 2, error_rate=0.05)  # Two settings share .1.
    assert (right["exact_low"], right["exact_high"]) == (low, high)
    np.testing.assert_allclose(right["rand_first"], 0.15)
    np.testing.assert_allclose(wrong["rand_last"], 0.45)  # Without one counts as 0.
    assert right["reached"] == wrong["reached"] == 2
    np.testing.assert_allclose(right["signal"], 100 * 10)
    np.testing.assert_allclose(wrong["signal"], 10)
    (line,) = overview([right, wrong])
    assert line["Δ = 1"] == "1.00 (2/2)" and line["Δ = 0.1"] == "0.45 (0/2)"


@pytest.mark.slow
def test_command_writes_all(tmp_path, capsys):
    arguments = "run clove.fig3 --json --num-trials 1 --num-rounds 2 --num-samples 20"
    arguments += " --separation 0.1 1.0 --noise 0.01 --method clove k_fed"
    out = tmp_path / "out"
    assert command([*arguments.split(), "--out", str(out)]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["failed_cells"] == 0 and len(summary["rows"]) == 4
    for name in ("table.csv", "table.md", "config.json", "final.svg", "rounds.svg"):
        assert (out / name).stat().st_size > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"separation": (0.0,)}, "`separation` must be in"),
        ({"separation": (0.1, 0.1)}, "`separation` must hold different"),
        ({"noise": (-1.0,)}, "`noise` must be finite"),
        ({"num_trials": 0}, "`num_trials` must be at least 1"),
        ({"num_clients": 24}, "`num_clients` must be a multiple"),
        ({"num_features": 1}, "`num_features` must be at least 2"),
        ({"error_rate": 0.0}, "`error_rate` must be in"),
    ],
)
def test_misuse_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(preset("quick"), **change)


def test_presets_differ_in_size_only():
    quick, paper = preset("quick"), preset("paper")
    assert dataclasses.replace(quick, num_trials=paper.num_trials) == paper
    assert isinstance(paper, Config)
