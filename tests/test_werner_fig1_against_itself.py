"""Werner's Figure 1: rows by hand, misuse and the command."""

import dataclasses
import json

import numpy as np
import pytest
import xarray as xr

from experiments.__main__ import main as command
from experiments.werner.fig1 import Config, preset
from experiments.werner.fig1_report import failing_rows, note, rows


def made_up(positions, tails):
    """One radius of the second example; positions `[trial, round, client]`."""
    positions, tails = np.array(positions, float), np.array(tails, float)
    axes = ("batch_size", "radius", "trial", "client")
    counts = np.zeros((1, 1, *tails.shape))
    data = {
        "position": ((*axes[:3], "round", "client"), positions[None, None]),
        "tail": (axes, tails[None, None]),
        "company": (axes, counts),
        "strangers": (axes, counts),
    }
    found = xr.Dataset(data, {"batch_size": [1], "radius": [0.5]})
    return rows({"symmetric": found}, tolerance=0.1, error_rate=0.05)


def test_a_cycle_around_the_optimum_is_not_right():
    still = [[[0, 0], [-0.5, 0.5], [-0.5, 0.5], [-0.5, 0.5]]]
    swings = [[[0, 0], [-0.5, 0.5], [-0.3, 0.5], [-0.7, 0.5]]]
    assert [row["right"] for row in made_up(still, [[-0.5, 0.5]])] == [True, True]
    assert [row["right"] for row in made_up(swings, [[-0.5, 0.5]])] == [False, True]


def test_what_is_no_number_is_not_right():
    lost = [[[0, 0], [-0.5, 0.5], [np.nan, 0.5], [-0.5, 0.5]]]
    assert [row["right"] for row in made_up(lost, [[np.nan, 0.5]])] == [False, True]
    pair = [[-0.5, np.nan], [-0.5, 0.5]]
    two = made_up(np.zeros((2, 4, 2)), pair)
    assert [row["right"] for row in two] == [True, False]
    positions = np.array([[[[np.nan, 0.5]]]])
    data = xr.Dataset(
        {"position": (("method", "trial", "round", "client"), positions)},
        {"method": ["option_one"]},
    )
    failed = failing_rows({"symmetric": data}, 0.05)
    assert [row["right"] for row in failed] == [False, True]
    assert "wrong: 1." in note(failed)


@pytest.mark.slow
def test_command_writes_all(tmp_path, capsys):
    arguments = "run werner.fig1 --json --num-trials 2 --num-rounds 8 --batch-size 2"
    arguments += " --myopic-radius 0.5 0.9 --symmetric-radius 1.0"
    arguments += " --bipartition-radius 0.25"
    out = tmp_path / "out"
    assert command([*arguments.split(), "--out", str(out)]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["failed_cells"] == 0 and len(summary["rows"]) == 6 + 2 + 3
    names = ("table.csv", "failing.csv", "windows.csv", "table.md", "config.json")
    for name in (*names, "paths.svg", "radii.png"):
        assert (out / name).stat().st_size > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"myopic_radius": (-0.1,)}, "`radius` must not be negative"),
        ({"symmetric_radius": (float("nan"),)}, "`radius` must not be negative"),
        ({"bipartition_radius": ()}, "`bipartition_radius` must hold different"),
        ({"batch_size": (0,)}, "`batch_size` must be at least 1"),
        ({"batch_size": (1, 1)}, "`batch_size` must hold different"),
        ({"num_trials": 1}, "`num_trials` must be at least 2"),
        ({"step_size": 1.0}, "`step_size` must be in"),
        ({"tolerance": 0.5}, "`tolerance` must be in"),
        ({"error_rate": 1.0}, "`error_rate` must be in"),
        ({"num_rounds": 0}, "`num_rounds` must be at least 1"),
    ],
)
def test_misuse_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(preset("quick"), **change)


def test_paper_has_all_of_quick():
    quick, paper = preset("quick"), preset("paper")
    for name in ("myopic_radius", "symmetric_radius", "batch_size"):
        assert set(getattr(quick, name)) < set(getattr(paper, name))
    assert isinstance(paper, Config)
