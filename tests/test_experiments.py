"""Experiments of all papers: their presets, what they refuse, what they write."""

import dataclasses
import json
import pathlib

import numpy as np
import pytest

from experiments.__main__ import main
from experiments.registry import BENCHMARKS, COMPARISON, EXPERIMENTS
from experiments.werner.fig3_trial import SCENES

NAN, INF = float("nan"), float("inf")


def presets(name):
    """The quick and the paper preset."""
    module = EXPERIMENTS[name].load()
    return module.preset("quick"), module.preset("paper")


# Against itself


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("werner.byzantine", ("attack", "share", "radii")),
        ("werner.fig1", ("myopic_radius", "symmetric_radius", "batch_size")),
        ("werner.fig3", ("panels", "scene", "factor")),
    ],
)
def test_paper_has_all_of_quick(name, fields):
    quick, paper = presets(name)
    for field in fields:
        assert set(getattr(quick, field)) < set(getattr(paper, field))
    assert type(paper) is type(quick) and paper.num_trials > quick.num_trials


@pytest.mark.parametrize("name", ["clove.fig3", "werner.fig2", "werner.fig4"])
def test_presets_differ_in_size_only(name):
    quick, paper = presets(name)
    assert dataclasses.replace(quick, num_trials=paper.num_trials) == paper


def test_paper_is_as_published():
    _, second = presets("werner.fig2")
    assert (second.num_clusters, second.num_members) == (4, 75)
    quick, third = presets("werner.fig3")
    assert third.panels == [(4, 4), (4, 16), (16, 4)]
    assert {*quick.method, *quick.first_method} < set(third.method)
    assert set(third.scene) == set(SCENES)
    assert third.num_clipping_rounds == 10 and set(third.num_trials) == {20}
    for own in (second, third):
        assert (own.num_features, own.num_samples) == (10, 9)
    quick, fourth = presets("werner.fig4")
    samples = fourth.num_clusters * fourth.num_members
    assert (samples, fourth.num_features, fourth.quantile) == (90, 10, 0.1)
    assert (fourth.deviation, quick.num_trials) == ((0.5, 1.0, 2.0, 4.0), 10)


COMMANDS = {
    "clove.fig3": (
        "--num-trials 1 --num-rounds 2 --num-samples 20 --separation 0.1 1.0"
        " --noise 0.01 --method clove k_fed",
        "final.svg rounds.svg",
        2 * 2,
    ),
    "werner.byzantine": (
        "--num-trials 2 --num-rounds 30 --radii fixed --attack edge_adaptive --share 0"
        " 0.5 --broken-attack edge_adaptive --num-members 8 --num-places 10"
        " --num-clusters 2 --broken-separation 200 --num-features 2",
        "breakdown.csv errors.svg influence.png",
        2,
    ),
    "werner.fig1": (
        "--num-trials 2 --num-rounds 8 --batch-size 2 --myopic-radius 0.5 0.9"
        " --symmetric-radius 1.0 --bipartition-radius 0.25",
        "failing.csv windows.csv paths.svg radii.png",
        6 + 2 + 3,
    ),
    "werner.fig2": (
        "--num-trials 2 --num-rounds 3 --num-members 3",
        "constants.svg",
        2 * 4,
    ),
    # The first panel is without the released IFCA, the second the gap.
    "werner.fig3": (
        "--num-clusters 2 2 --num-members 2 3 --num-trials 2 2 --num-rounds 4"
        " --num-tests 2 --num-steps 2 --method local ifca ifca_released oracle"
        " quantile_cluster --first-method gap_inner --factor 0 .5 --num-features 3",
        "claims.csv errors_zero.svg errors_reference_near.png",
        2 * (7 + 7),
    ),
    "werner.fig4": (
        "--num-trials 2 --num-rounds 12 --start near origin --deviation 0.5 4"
        " --num-clusters 3 --num-features 3",
        "distances.svg printed.svg elbows.png",
        4,
    ),
    "werner.table1": (
        "--dataset digits --num-trials 2 --num-clients 8 --num-hidden 4 --num-groups 2"
        " --num-rounds 4 --num-tests 2 --num-long-rounds 4 --num-samples 12"
        " --num-test-samples 4",
        "long.csv clustered.svg baselines.png",
        2 * 9,
    ),
}
SLOW = [
    pytest.param(name, marks=pytest.mark.slow)
    for name in COMMANDS
    if name != "werner.byzantine"
]


@pytest.mark.long
@pytest.mark.parametrize("name", ["werner.byzantine", *SLOW])
def test_command_writes_all(name, tmp_path, capsys):
    flags, files, rows = COMMANDS[name]
    out = tmp_path / "out"
    arguments = ["run", name, "--json", "--out", str(out), *flags.split()]
    assert main(arguments) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["failed_cells"] == 0 and len(summary["rows"]) == rows
    for file in ("table.csv", "table.md", "config.json", *files.split()):
        assert (out / file).stat().st_size > 0
    if name == "werner.fig3":  # A radius of 0 is training alone.
        found = {row["method"]: row for row in summary["rows"][-rows // 4 :]}
        for error in ("squared", "distance_mean"):
            pair = found["local"][error], found["fixed 0"][error]
            np.testing.assert_allclose(*pair, rtol=1e-4)


# Against misuse


@pytest.mark.parametrize("name", ["clove.unknown_k", "ifca.table2_femnist"])
def test_without_data_one_message_says_how_to_get_them(
    name, tmp_path, monkeypatch, capsys
):
    monkeypatch.delenv("CFLJAX_DATA", raising=False)
    assert main(["run", name, "--out", str(tmp_path / "out")]) == 2
    assert "No folder of data is named" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


REFUSED = {
    "clustering": [
        ({"repeats": 0}, "`repeats` must be at least 1, got 0"),
        ({"num_clients": 2}, "`num_clients` must be at least `num_clusters`"),
    ],
    "checkpoints": [
        ({"num_rounds": 1}, "`num_rounds` must be at least 2, got 1"),
        ({"every": NAN}, "`every` must not be negative, got nan"),
        ({"algorithms": ("ifka",)}, "got ifka"),
        ({"algorithms": ()}, "`algorithms` must hold different values"),
    ],
    "thresholding": [
        ({"repeats": 0}, "`repeats` must be at least 1, got 0"),
        ({"num_groups": 39}, "`num_groups` must be at most `num_clients`"),
    ],
    "fig3": [
        ({"parts": ()}, "`parts` must hold different values, got ()"),
        ({"panels": ("a", "a")}, "`panels` must hold different values"),
        ({"num_trials": 0}, "`num_trials` must be at least 1, got 0"),
        ({"noise": -0.1}, "`noise` must not be negative, got -0.1"),
        ({"scaling_features": (8, 4)}, "`scaling_features` must hold at least 2 asc"),
        ({"num_clients": 7}, "`num_clients` must be divisible by `num_clusters`"),
    ],
    "neural": [
        ({"mlp_clients": ()}, "`mlp_clients` must"),
        ({"repeats": 0}, "`repeats` must"),
        ({"seconds": -1.0}, "`seconds` must"),
        ({"loss_chunks": (0,)}, "`loss_chunks` must"),
    ],
    "peers": [
        ({"works": ()}, "`works` must hold different values, got ()"),
        ({"repeats": 0}, "`repeats` must be at least 1, got 0"),
        ({"cnn_channels": ()}, "`cnn_channels` must hold positive numbers"),
        ({"pfllib": pathlib.Path("nowhere")}, "`pfllib` must be the folder of a clone"),
    ],
    "clove.fig3": [
        ({"separation": (0.0,)}, "`separation` must be in"),
        ({"separation": (0.1, 0.1)}, "`separation` must hold different"),
        ({"noise": (-1.0,)}, "`noise` must not be negative"),
        ({"num_trials": 0}, "`num_trials` must be at least 1"),
        ({"num_clients": 24}, "`num_clients` must be a multiple"),
        ({"num_features": 1}, "`num_features` must be at least 2"),
        ({"error_rate": 0.0}, "`error_rate` must be in"),
    ],
    "clove.table1": [
        ({"partitions": ()}, "`partitions` must hold different names"),
        ({"methods": ("clove", "clove")}, "`methods` must hold different names"),
        ({"cluster_sizes": (0,)}, "`cluster_sizes` must be at least 1, got"),
        ({"num_samples": ()}, "`num_samples` must hold at least one"),
        ({"gradient_step_size": -1.0}, "`gradient_step_size` must not be negative"),
        ({"num_rounds": 0}, "`num_rounds` must be at least 1, got 0"),
        ({"participations": (1.5,)}, "`participations` must be in (0, 1]"),
        ({"step_size": NAN}, "`step_size` must be finite"),
        ({"num_clients": (10,)}, "`cluster_sizes` and `num_clients` exclude"),
        ({"num_samples": (1, 2, 3), "cluster_sizes": (1, 2)}, "as many as each other"),
    ],
    "clove.unknown_k": [
        ({"methods": ()}, "`methods` must hold different names"),
        ({"methods": ("clove", "clove")}, "`methods` must hold different names"),
        ({"methods": ("ifca",)}, "a method must be clove"),
        ({"max_clusters": 1}, "`max_clusters` must be at least 2, got 1"),
        ({"num_clients": 1}, "`num_clients` must be at least 2, got 1"),
        ({"num_epochs": 0}, "`num_epochs` must be at least 1, got 0"),
        ({"step_size": NAN}, "`step_size` must be finite"),
    ],
    "ifca.table1_mnist": [
        ({"num_clients": (8, 12)}, "one entry for each setting"),
        ({"num_trials": 0}, "`num_trials` must be at least 1, got 0"),
        ({"step_size": NAN}, "`step_size` must be finite"),
        ({"algorithms": ()}, "`algorithms` must hold different names"),
    ],
    "ifca.table2_femnist": [
        ({"methods": ("ifca-2", "ifca-2")}, "`methods` must hold different names"),
        ({"variants": ()}, "`variants` must hold different names"),
        ({"num_trials": 0}, "`num_trials` must be at least 1, got 0"),
        ({"step_size": NAN}, "`step_size` must be finite"),
        ({"warm_up_rounds": -1}, "`warm_up_rounds` must be at least 0"),
    ],
    "ifca.fig4": [
        ({"num_rounds": (3,)}, "`num_rounds` must have one entry for each"),
        ({"images": ("mnist", "mnist")}, "`images` must hold different"),
    ],
    "compare": [
        ({"algorithms": ()}, "`algorithms` must hold different algorithms, got none"),
        ({"algorithms": ("ifca,ifca",)}, "must hold different algorithms, got ifca"),
        ({"baseline": "clove"}, "`baseline`: unknown algorithm 'clove'"),
        ({"search": ("ifca",)}, "`search` must be NAME:ARGUMENT=V1,V2"),
        ({"search": ("clove:num_steps=1,2",)}, "`search`: unknown algorithm 'clove'"),
        ({"search": ("ifca:num_steps=1,1",)}, "no value yet, with different values"),
        ({"search": ("ifca:num_steps=1", "ifca:num_steps=2")}, "has no value yet"),
        (
            {"algorithms": ("ditto:penalty=1",), "search": ("ditto:penalty=1,2",)},
            "got ditto:penalty=1,2 for ditto:penalty=1.",
        ),
        ({"step_sizes": (0.1, 0.1)}, "`step_sizes` must hold different values"),
        ({"step_sizes": (-0.1,)}, "`step_sizes` must not be negative"),
        ({"num_trials": 1}, "`num_trials` must be at least 2, got 1"),
        ({"num_newcomers": -1}, "`num_newcomers` must be at least 0"),
        ({"num_validation_samples": 0}, "`num_validation_samples` must be at least 1"),
        ({"rounds_between": 3}, "`rounds_between` must divide `num_rounds`"),
        ({"error_rate": 0.0}, "`error_rate` must be in [1e-15, 1)"),
        ({"network": "mlp", "dataset": "ag_news"}, "`network` mlp needs numbers"),
    ],
    "werner.byzantine": [
        ({"attack": ("edges",)}, "`attack` must be in"),
        ({"attack": ()}, "`attack` must hold different"),
        ({"share": (0.1, 0.2)}, "`share` must start with 0"),
        ({"share": (0.0, 0.25)}, "`share` must be a whole number of attackers"),
        ({"share": (0.0, 1.6)}, "`share` must be in"),
        ({"share": (0.0, NAN)}, "`share` must be finite"),
        ({"broken_attack": ("staged",)}, "`broken_attack` must hold edge_adaptive"),
        ({"num_clusters": 1}, "`num_clusters` must be at least 2"),
        ({"num_features": 3}, "`num_clusters` must be at least 2 and at most"),
        ({"separation": 0.0}, "`separation` must be positive"),
        ({"noise": INF}, "`noise` must be finite"),
        ({"quantile": 1.1}, "`quantile` must be in [0, 1]"),
        ({"num_places": 0}, "`num_places` must be at least 1"),
        ({"num_trials": 1}, "`num_trials` must be at least 2"),
    ],
    "werner.fig1": [
        ({"myopic_radius": (-0.1,)}, "`myopic_radius` must not be negative"),
        ({"symmetric_radius": (NAN,)}, "`symmetric_radius` must not be negative"),
        ({"bipartition_radius": ()}, "`bipartition_radius` must hold different"),
        ({"batch_size": (0,)}, "`batch_size` must be at least 1"),
        ({"batch_size": (1, 1)}, "`batch_size` must hold different"),
        ({"num_trials": 1}, "`num_trials` must be at least 2"),
        ({"step_size": 1.0}, "`step_size` must be in"),
        ({"tolerance": 0.5}, "`tolerance` must be in"),
        ({"error_rate": 1.0}, "`error_rate` must be in"),
        ({"num_rounds": 0}, "`num_rounds` must be at least 1"),
    ],
    "werner.fig2": [
        ({"num_trials": 0}, "`num_trials` must be at least 1"),
        ({"num_clusters": 1}, "`num_clusters` must be at least 2"),
        ({"num_members": 0}, "`num_members` must be at least 1"),
        ({"num_rounds": 0}, "`num_rounds` must be at least 1"),
        ({"first_mean": INF}, "`first_mean` must be finite"),
    ],
    "werner.fig3": [
        ({"num_members": (4,)}, "must have as many values"),
        ({"num_members": (4, 4)}, "`panels` must hold different"),
        ({"num_clusters": (1, 4)}, "`num_clusters` must be at least 2"),
        ({"num_trials": (0, 4)}, "`num_trials` must be at least 1"),
        ({"scene": ("zero", "zero")}, "`scene` must hold different"),
        ({"factor": ()}, "`factor` must hold different"),
        ({"factor": (NAN,)}, "`factor` must be finite"),
        ({"first_method": ("local",)}, "`method` must hold different"),
        ({"method": ("local", "ifca")}, "`method` must hold oracle"),
        ({"first_method": ("fixed",)}, "`method` must leave out fixed"),
        ({"num_tests": 7}, "`num_tests` must divide `num_rounds`"),
        ({"num_steps": 0}, "`num_steps` must be at least 1"),
        ({"num_restarts": 0}, "`num_restarts` must be at least 1"),
        ({"num_clipping_rounds": 0}, "`num_clipping_rounds` must be at least 1"),
        ({"largest_share": 0.0}, "`largest_share` must be positive"),
        ({"step_ratio": 1.0}, "`step_ratio` must be above 1"),
        ({"momentum": 1.0}, "`momentum` must be in"),
        ({"first_mean": NAN}, "`first_mean` must be finite"),
    ],
    "werner.fig4": [
        ({"start": ()}, "`start` must hold different"),
        ({"deviation": (1.0, 1.0)}, "`deviation` must hold different"),
        ({"deviation": (0.0,)}, "`deviation` must be positive"),
        ({"quantile": 1.5}, "`quantile` must be in [0, 1]"),
        ({"num_clusters": 1}, "`num_clusters` must be at least 2"),
        ({"num_members": 0}, "`num_members` must be at least 1"),
        ({"num_trials": 1}, "`num_trials` must be at least 2"),
        ({"box": 0.0}, "`box` must be positive"),
        ({"spread": NAN}, "`spread` must be finite"),
        ({"threshold": 1.0}, "`threshold` must be in"),
        ({"error_rate": 0.0}, "`error_rate` must be in"),
    ],
    "werner.table1": [
        ({"methods": ()}, "`methods` must hold different"),
        ({"num_trials": 1}, "`num_trials` must be at least 2"),
        ({"num_clients": 10}, "`num_clients` must be a multiple of the 4 clusters"),
        ({"num_groups": 0}, "`num_groups` must be at least 1"),
        ({"knn_weights": (0.5,)}, "`knn_weights` must have a weight for each"),
        ({"num_rounds": 7}, "`num_tests` must divide `num_rounds`"),
        ({"num_long_rounds": 7}, "`num_tests` must divide `num_long_rounds`"),
        ({"error_rate": 1.0}, "`error_rate` must be in"),
    ],
}


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [(name, *row) for name, rows in REFUSED.items() for row in rows],
)
def test_misuse_is_named(name, change, message):
    entries = {**EXPERIMENTS, **BENCHMARKS, "compare": COMPARISON}
    config = entries[name].load().preset("quick")
    with pytest.raises(ValueError) as refused:
        dataclasses.replace(config, **change)
    assert message in str(refused.value)
