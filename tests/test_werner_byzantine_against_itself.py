"""Attacks on Threshold-Clustering: rows by hand, misuse and the command."""

import dataclasses
import json

import numpy as np
import pytest
import xarray as xr

from experiments.__main__ import main as command
from experiments.werner.byzantine import preset
from experiments.werner.byzantine_report import breakdown_rows, note, overview, rows

KNOWN = {"num_clusters": 4, "noise": 1.0, "error_rate": 0.05}


def made_up(errors):
    """One attack, fixed radius; errors `[share, trial]` of shares 0, .5, 1."""
    values = np.array(errors, float)[None, None]
    axes = ("radii", "attack", "share", "trial")
    coords = {"radii": ["fixed"], "attack": ["alie"], "share": [0.0, 0.5, 1.0]}
    data = {"error": (axes, values), "radius": (axes, np.ones_like(values))}
    return rows(xr.Dataset(data, coords), separation=200.0, **KNOWN)


def broken(shares):
    axes = ("attack", "separation", "trial")
    coords = {"attack": ["edge_adaptive"], "separation": [200.0]}
    data = {"share": (axes, np.array(shares, float)[None, None])}
    return breakdown_rows(xr.Dataset(data, coords), **KNOWN)


def test_influence_by_hand():
    none, some, many = made_up([[1, 3], [12, 14], [1, 3]])
    assert "influence" not in none and none["bound"] == 0
    np.testing.assert_allclose(some["bound"], 0.25 * 200 / 4.5)
    np.testing.assert_allclose(some["influence"], 11 / (50 / 4.5))
    np.testing.assert_allclose(some["influence_low"], 11 / (50 / 4.5))
    assert some["below"] and not many["below"] and many["influence"] == 0
    (line,) = overview([none, some, many])
    assert [line[f"β/δ = {share}"] for share in ("0", "0.5", "1")] == [2, 13, 2]


@pytest.mark.parametrize(
    ("errors", "verdict"),
    [
        ([[1, 1], [12, 12], [9, 9]], "yes, in 1 of 1"),  # 11 / 11.1
        ([[1, 1], [13, 13], [9, 9]], "no, in 0 of 1"),  # 12 / 11.1, without spread
        ([[1, 1], [12, 15], [9, 9]], "yes, in 1 of 1"),  # within its interval
        ([[1, 1], [np.nan, 1], [9, 9]], "no, in 0 of 1"),
    ],
)
def test_the_rule_of_influences(errors, verdict):
    assert f"breakdown: {verdict} settings" in note(made_up(errors), [])


@pytest.mark.parametrize(
    ("shares", "text"),
    [
        ([0.9, 0.92], "within 0.1: yes"),
        ([0.98, 0.96], "within 0.1: no"),
        ([0.9, np.inf], "none in some trials (1/2 broke)"),
        ([0.9, np.nan], "none in some trials (1/2 broke)"),
    ],
)
def test_the_rule_of_the_breakdown(shares, text):
    (row,) = broken(shares)
    exact = 1 - np.sqrt((4 + row["predicted"]) / 200)
    np.testing.assert_allclose(row["predicted"], exact, rtol=1e-12)
    assert text in note([], [row])


def test_command_writes_all(tmp_path, capsys):
    arguments = "run werner.byzantine --json --num-trials 2 --num-rounds 30 --radii"
    arguments += " fixed --attack edge_adaptive --broken-attack edge_adaptive"
    arguments += " --share 0 0.5 --num-members 8 --num-places 10 --num-clusters 2"
    arguments += " --broken-separation 200 --num-features 2"
    out = tmp_path / "out"
    assert command([*arguments.split(), "--out", str(out)]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["failed_cells"] == 0 and len(summary["rows"]) == 2
    names = ("table.csv", "breakdown.csv", "table.md", "config.json", "errors.svg")
    for name in (*names, "influence.png"):
        assert (out / name).stat().st_size > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"attack": ("edges",)}, "`attack` must be in"),
        ({"attack": ()}, "`attack` must hold different"),
        ({"share": (0.1, 0.2)}, "`share` must start with 0"),
        ({"share": (0.0, 0.25)}, "`share` must be a whole number of attackers"),
        ({"share": (0.0, 1.6)}, "`share` must be in"),
        ({"share": (0.0, float("nan"))}, "`share` must be in"),
        ({"broken_attack": ("staged",)}, "`broken_attack` must hold edge_adaptive"),
        ({"num_clusters": 1}, "`num_clusters` must be at least 2"),
        ({"num_features": 3}, "`num_clusters` must be at least 2 and at most"),
        ({"separation": 0.0}, "`separation` must be positive"),
        ({"noise": float("inf")}, "`noise` must be positive"),
        ({"quantile": 1.1}, "`quantile` must be from 0 to 1"),
        ({"num_places": 0}, "`num_places` must be at least 1"),
        ({"num_trials": 1}, "`num_trials` must be at least 2"),
    ],
)
def test_misuse_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(preset("quick"), **change)


def test_paper_has_all_of_quick():
    quick, paper = preset("quick"), preset("paper")
    for name in ("attack", "share", "radii"):
        assert set(getattr(quick, name)) < set(getattr(paper, name))
    assert paper.num_trials > quick.num_trials
