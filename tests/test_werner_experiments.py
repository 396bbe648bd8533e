"""Werner's experiments together: their presets, what they refuse, what they write."""

import dataclasses
import json

import numpy as np
import pytest

from experiments.__main__ import main
from experiments.registry import EXPERIMENTS
from experiments.werner.fig3_trial import SCENES

NAN = float("nan")


def presets(name):
    """The quick and the paper preset."""
    module = EXPERIMENTS[f"werner.{name}"].load()
    return module.preset("quick"), module.preset("paper")


# Against itself


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("byzantine", ("attack", "share", "radii")),
        ("fig1", ("myopic_radius", "symmetric_radius", "batch_size")),
        ("fig3", ("panels", "scene", "factor")),
    ],
)
def test_paper_has_all_of_quick(name, fields):
    quick, paper = presets(name)
    for field in fields:
        assert set(getattr(quick, field)) < set(getattr(paper, field))
    assert type(paper) is type(quick) and paper.num_trials > quick.num_trials


@pytest.mark.parametrize("name", ["fig2", "fig4"])
def test_presets_differ_in_size_only(name):
    quick, paper = presets(name)
    assert dataclasses.replace(quick, num_trials=paper.num_trials) == paper


def test_paper_is_as_published():
    _, second = presets("fig2")
    assert (second.num_clusters, second.num_members) == (4, 75)
    quick, third = presets("fig3")
    assert third.panels == [(4, 4), (4, 16), (16, 4)]
    assert {*quick.method, *quick.first_method} < set(third.method)
    assert set(third.scene) == set(SCENES)
    assert third.num_clipping_rounds == 10 and set(third.num_trials) == {20}
    for own in (second, third):
        assert (own.num_features, own.num_samples) == (10, 9)
    quick, fourth = presets("fig4")
    samples = fourth.num_clusters * fourth.num_members
    assert (samples, fourth.num_features, fourth.quantile) == (90, 10, 0.1)
    assert (fourth.deviation, quick.num_trials) == ((0.5, 1.0, 2.0, 4.0), 10)


COMMANDS = {
    "byzantine": (
        "--num-trials 2 --num-rounds 30 --radii fixed --attack edge_adaptive --share 0"
        " 0.5 --broken-attack edge_adaptive --num-members 8 --num-places 10"
        " --num-clusters 2 --broken-separation 200 --num-features 2",
        "breakdown.csv errors.svg influence.png",
        2,
    ),
    "fig1": (
        "--num-trials 2 --num-rounds 8 --batch-size 2 --myopic-radius 0.5 0.9"
        " --symmetric-radius 1.0 --bipartition-radius 0.25",
        "failing.csv windows.csv paths.svg radii.png",
        6 + 2 + 3,
    ),
    "fig2": ("--num-trials 2 --num-rounds 3 --num-members 3", "constants.svg", 2 * 4),
    "fig3": (  # The first panel is without the released IFCA, the second the gap.
        "--num-clusters 2 2 --num-members 2 3 --num-trials 2 2 --num-rounds 4"
        " --num-tests 2 --num-steps 2 --method local ifca ifca_released oracle"
        " quantile_cluster --first-method gap_inner --factor 0 .5 --num-features 3",
        "claims.csv errors_zero.svg errors_reference_near.png",
        2 * (7 + 7),
    ),
    "fig4": (
        "--num-trials 2 --num-rounds 12 --start near origin --deviation 0.5 4"
        " --num-clusters 3 --num-features 3",
        "distances.svg printed.svg elbows.png",
        4,
    ),
    "table1": (
        "--dataset digits --num-trials 2 --num-clients 8 --num-hidden 4 --num-groups 2"
        " --num-rounds 4 --num-tests 2 --num-long-rounds 4 --num-samples 12"
        " --num-test-samples 4",
        "long.csv clustered.svg baselines.png",
        2 * 9,
    ),
}
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in list(COMMANDS)[1:]]


@pytest.mark.parametrize("name", ["byzantine", *SLOW])
def test_command_writes_all(name, tmp_path, capsys):
    flags, files, rows = COMMANDS[name]
    out = tmp_path / "out"
    arguments = ["run", f"werner.{name}", "--json", "--out", str(out), *flags.split()]
    assert main(arguments) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["failed_cells"] == 0 and len(summary["rows"]) == rows
    for file in ("table.csv", "table.md", "config.json", *files.split()):
        assert (out / file).stat().st_size > 0
    if name == "fig3":  # A radius of 0 is training alone.
        found = {row["method"]: row for row in summary["rows"][-rows // 4 :]}
        for error in ("squared", "distance_mean"):
            pair = found["local"][error], found["fixed 0"][error]
            np.testing.assert_allclose(*pair, rtol=1e-4)


# Against misuse


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("byzantine", {"attack": ("edges",)}, "`attack` must be in"),
        ("byzantine", {"attack": ()}, "`attack` must hold different"),
        ("byzantine", {"share": (0.1, 0.2)}, "`share` must start with 0"),
        (
            "byzantine",
            {"share": (0.0, 0.25)},
            "`share` must be a whole number of attackers",
        ),
        ("byzantine", {"share": (0.0, 1.6)}, "`share` must be in"),
        ("byzantine", {"share": (0.0, NAN)}, "`share` must be in"),
        (
            "byzantine",
            {"broken_attack": ("staged",)},
            "`broken_attack` must hold edge_adaptive",
        ),
        ("byzantine", {"num_clusters": 1}, "`num_clusters` must be at least 2"),
        (
            "byzantine",
            {"num_features": 3},
            "`num_clusters` must be at least 2 and at most",
        ),
        ("byzantine", {"separation": 0.0}, "`separation` must be positive"),
        ("byzantine", {"noise": float("inf")}, "`noise` must be positive"),
        ("byzantine", {"quantile": 1.1}, "`quantile` must be from 0 to 1"),
        ("byzantine", {"num_places": 0}, "`num_places` must be at least 1"),
        ("byzantine", {"num_trials": 1}, "`num_trials` must be at least 2"),
        ("fig1", {"myopic_radius": (-0.1,)}, "`radius` must not be negative"),
        ("fig1", {"symmetric_radius": (NAN,)}, "`radius` must not be negative"),
        (
            "fig1",
            {"bipartition_radius": ()},
            "`bipartition_radius` must hold different",
        ),
        ("fig1", {"batch_size": (0,)}, "`batch_size` must be at least 1"),
        ("fig1", {"batch_size": (1, 1)}, "`batch_size` must hold different"),
        ("fig1", {"num_trials": 1}, "`num_trials` must be at least 2"),
        ("fig1", {"step_size": 1.0}, "`step_size` must be in"),
        ("fig1", {"tolerance": 0.5}, "`tolerance` must be in"),
        ("fig1", {"error_rate": 1.0}, "`error_rate` must be in"),
        ("fig1", {"num_rounds": 0}, "`num_rounds` must be at least 1"),
        ("fig2", {"num_trials": 0}, "`num_trials` must be at least 1"),
        ("fig2", {"num_clusters": 1}, "`num_clusters` must be at least 2"),
        ("fig2", {"num_members": 0}, "`num_members` must be at least 1"),
        ("fig2", {"num_rounds": 0}, "`num_rounds` must be at least 1"),
        ("fig2", {"first_mean": float("inf")}, "`first_mean` must be finite"),
        ("fig3", {"num_members": (4,)}, "must have as many values"),
        ("fig3", {"num_members": (4, 4)}, "`panels` must hold different"),
        ("fig3", {"num_clusters": (1, 4)}, "`num_clusters` must be at least 2"),
        ("fig3", {"num_trials": (0, 4)}, "`num_trials` must be at least 1"),
        ("fig3", {"scene": ("zero", "zero")}, "`scene` must hold different"),
        ("fig3", {"factor": ()}, "`factor` must hold different"),
        ("fig3", {"factor": (NAN,)}, "`factor` must not be negative"),
        ("fig3", {"first_method": ("local",)}, "`method` must hold different"),
        ("fig3", {"method": ("local", "ifca")}, "`method` must hold oracle"),
        ("fig3", {"first_method": ("fixed",)}, "`method` must leave out fixed"),
        ("fig3", {"num_tests": 7}, "`num_tests` must divide `num_rounds`"),
        ("fig3", {"num_steps": 0}, "`num_steps` must be at least 1"),
        ("fig3", {"num_restarts": 0}, "`num_restarts` must be at least 1"),
        (
            "fig3",
            {"num_clipping_rounds": 0},
            "`num_clipping_rounds` must be at least 1",
        ),
        ("fig3", {"largest_share": 0.0}, "`largest_share` must be positive"),
        ("fig3", {"step_ratio": 1.0}, "`step_ratio` must be above 1"),
        ("fig3", {"momentum": 1.0}, "`momentum` must be in"),
        ("fig3", {"first_mean": NAN}, "`first_mean` must be finite"),
        ("fig4", {"start": ()}, "`start` must hold different"),
        ("fig4", {"deviation": (1.0, 1.0)}, "`deviation` must hold different"),
        ("fig4", {"deviation": (0.0,)}, "`deviation` must be positive"),
        ("fig4", {"quantile": 1.5}, "`quantile` must be from 0 to 1"),
        ("fig4", {"num_clusters": 1}, "`num_clusters` must be at least 2"),
        ("fig4", {"num_members": 0}, "`num_members` must be at least 1"),
        ("fig4", {"num_trials": 1}, "`num_trials` must be at least 2"),
        ("fig4", {"box": 0.0}, "`box` must be positive"),
        ("fig4", {"spread": NAN}, "`spread` must be positive"),
        ("fig4", {"threshold": 1.0}, "`threshold` must be in"),
        ("fig4", {"error_rate": 0.0}, "`error_rate` must be in"),
        ("table1", {"methods": ()}, "`methods` must hold different"),
        ("table1", {"num_trials": 1}, "`num_trials` must be at least 2"),
        (
            "table1",
            {"num_clients": 10},
            "`num_clients` must be a multiple of the 4 clusters",
        ),
        ("table1", {"num_groups": 0}, "`num_groups` must be at least 1"),
        (
            "table1",
            {"knn_weights": (0.5,)},
            "`knn_weights` must have a weight for each",
        ),
        ("table1", {"num_rounds": 7}, "`num_tests` must divide `num_rounds`"),
        ("table1", {"num_long_rounds": 7}, "`num_tests` must divide `num_long_rounds`"),
        ("table1", {"error_rate": 1.0}, "`error_rate` must be in"),
    ],
)
def test_misuse_is_named(name, change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(presets(name)[0], **change)
