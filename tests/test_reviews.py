"""What the reviewers' studies share, and each of them run whole at small sizes."""

import dataclasses
import json
import math
import pathlib
from typing import Any

import numpy as np
import pytest

from cfljax.report import read_csv
from experiments.kept import Kept
from experiments.options import Options
from experiments.registry import EXPERIMENTS
from experiments.reviews import criterion, pooling, study, tuning

SMALL: dict[str, dict[str, Any]] = {
    "reviews.baselines": {
        "num_samples": (3, 12),
        "num_clients": (6,),
        "rho": (4.0,),
        "num_trials": 3,
        "num_features": 4,
        "num_rounds": 5,
        "num_restarts": 2,
        "num_resamples": 50,
    },
    "reviews.tuning": {
        "num_samples": (3, 12),
        "rho": (4.0,),
        "num_trials": 3,
        "num_clients": 6,
        "num_features": 4,
        "num_rounds": 5,
        "num_restarts": 2,
    },
    "reviews.comm": {
        "num_samples": (3, 12),
        "num_clusters": (2, 3),
        "num_trials": 3,
        "clients_per_cluster": 3,
        "num_features": 4,
        "num_rounds": 12,
        "num_restarts": 2,
        "fresh_samples": (2, 30),
        "fresh_trials": 3,
        "fresh_clients": 6,
    },
    "reviews.idbatch": {
        "rho": (4.0,),
        "identity_samples": (1, 8),
        "num_clients": 6,
        "num_raw_clients": 50,
        "num_features": 4,
        "num_trials": 3,
        "num_rounds": 8,
        "escape_clusters": (2,),
        "escape_samples": (2, 50),
        "escape_features": 4,
        "escape_clients": 6,
        "escape_rounds": 8,
        "escape_trials": 3,
    },
    "reviews.resample": {
        "floor_rounds": (2, 4),
        "floor_samples": 80,
        "num_samples": (3, 12),
        "rho": (4.0,),
        "num_features": 5,
        "num_clients": 6,
        "num_trials": 3,
        "num_rounds": 25,
        "floor_features": 6,
        "floor_clients": 6,
        "floor_trials": 3,
        "fixed_trials": 3,
    },
    "reviews.particip": {
        "num_participants": (4, 8),
        "few_participants": (2, 3),
        "num_rounds": 15,
        "num_last": 5,
        "num_draws": 2,
        "num_trials": 20,
        "num_subsets": 1000,
        "num_clients": 8,
        "num_clusters": 2,
        "num_features": 12,
        "step_size": 0.5,
    },
    "reviews.largek": {
        "num_clusters": (2, 4),
        "random_clusters": (2,),
        "printed_clusters": (2,),
        "separated_clusters": (2, 3),
        "num_trials": 20,
        "many_trials": 20,
        "num_starts": 2000,
        "num_clients": 8,
        "num_features": 12,
        "num_rounds": 15,
    },
    "reviews.k": {
        "num_models": (1, 2, 3),
        "num_trials": 20,
        "num_clusters": 2,
        "num_clients": 8,
        "num_features": 12,
        "num_rounds": 15,
    },
    "reviews.pool": {
        "num_features": (8, 4),
        "num_clients": (4, 12),
        "num_samples": (200, 20),
        "num_clusters": (2, 3),
        "shares": (0.5, 0.5),
        "num_runs": (8, 4),
        "num_trials": 3000,
    },
    "reviews.crit": {
        "separation": (1.0,),
        "noise": (0.1,),
        "clients_a": 4,
        "clients_b": 8,
        "clients_c": (4,),
        "clients_d": (8,),
        "samples_ab": 8,
        "num_samples": (8,),
        "num_features": 10,
        "num_trials": 2,
        "num_restarts": 2,
        "num_rounds": 3,
        "num_resamples": 50,
    },
}
FAULTS: list[tuple[str, str, Any]] = [
    ("reviews.baselines", "num_clients", (7,)),
    ("reviews.baselines", "local_steps", ()),
    ("reviews.baselines", "rho", (float("nan"),)),
    ("reviews.baselines", "num_clusters", 41),
    ("reviews.tuning", "fixed_step_size", 0.3),
    ("reviews.tuning", "held_out", 1.0),
    ("reviews.tuning", "num_samples", (1,)),
    ("reviews.comm", "fresh_clients", 7),
    ("reviews.comm", "num_clusters", (2, 99)),
    ("reviews.comm", "error_rate", 0.0),
    ("reviews.idbatch", "escape_rounds", 12),
    ("reviews.idbatch", "num_clients", 7),
    ("reviews.idbatch", "target", 0.7),
    ("reviews.idbatch", "rho", (1.0, 2.0, 3.0, 4.0)),
    ("reviews.resample", "floor_samples", 81),
    ("reviews.resample", "num_clients", 7),
    ("reviews.resample", "num_rounds", 5),
    ("reviews.particip", "num_participants", (8,)),
    ("reviews.particip", "num_participants", (4, 16)),
    ("reviews.particip", "num_clients", 9),
    ("reviews.particip", "num_last", 15),
    ("reviews.particip", "error_rate", 1.0),
    ("reviews.largek", "num_clusters", (2, 3)),
    ("reviews.largek", "separated_clusters", (2, 2)),
    ("reviews.largek", "num_features", 3),
    ("reviews.largek", "noise", float("nan")),
    ("reviews.k", "num_models", (1, 3)),
    ("reviews.k", "num_models", (3, 2)),
    ("reviews.k", "num_clients", 9),
    ("reviews.k", "num_rounds", 14),
    ("reviews.k", "num_features", 1),
    ("reviews.init", "margins", (0.5,)),
    ("reviews.init", "num_samples", (1,)),
    ("reviews.init", "shares", (1.0, 0.0)),
    ("reviews.pool", "num_samples", (2, 20)),
    ("reviews.pool", "num_clusters", (2, 5)),
    ("reviews.pool", "noise", 0.0),
    ("reviews.pool", "error_rate", 1.0),
    ("reviews.crit", "clients_d", (6,)),
    ("reviews.crit", "num_samples", (1,)),
    ("reviews.crit", "noise", (0.0,)),
    ("reviews.crit", "separation", ()),
]
# Changes of one field that another one's message explains.
EXPLAINED = [
    ("reviews.pool", "num_clients", (5, 12), "shares"),
    ("reviews.pool", "num_runs", (3,), "shares"),
]


def small(name: str) -> Any:
    return dataclasses.replace(
        EXPERIMENTS[name].load().preset("quick"), **SMALL.get(name, {})
    )


# What is shared


def test_a_verdict_needs_the_whole_interval():
    assert study.Estimate(1.0, 0.96, 1.04).within(0.95, 1.05) == "yes"
    assert study.Estimate(1.0, 0.94, 1.04).within(0.95, 1.05) == "undecided"
    assert study.Estimate(1.1, 1.06, 1.14).within(0.95, 1.05) == "no"
    nan = float("nan")
    assert study.Estimate(nan, nan, nan).within(0.95, 1.05) == "undecided"
    assert study.Estimate(1.1, 1.06, 1.14).above(1.0) == "yes"
    close = study.Estimate(1.0, 0.93, 1.07)
    assert study.Estimate(1.1, 1.06, 1.14).above(close) == "undecided"
    assert study.Estimate(0.9, 0.86, 0.94).above(1.0) == "no"
    assert study.Estimate(nan, nan, nan).above(1.0) == "undecided"
    assert study.all_of(["yes", "undecided", "no"]) == "no"
    assert study.all_of(["yes", "undecided"]) == "undecided"
    assert study.all_of(["yes", "yes"]) == "yes"
    assert study.all_of([]) == "undecided"


def test_ratio_uses_the_pairs():
    """Paired trials tell 1.10 from 1.11 where their spread alone would not."""
    lower, joint = 1 + 0.5 * np.random.default_rng(0).random(400), study.Intervals(1e-6)
    noise = 0.02 * np.random.default_rng(1).standard_normal(400)
    found = joint.ratio(1.1 * lower + noise, lower)
    assert found.low <= 1.1 <= found.high < 1.11
    mixed = joint.ratio(1.1 * lower[::-1] + noise, lower)
    assert mixed.low <= 1.1 <= mixed.high and mixed.high > 1.11


def test_cells_are_kept_and_damaged_ones_computed_again(tmp_path):
    options = Options(out=tmp_path, progress=False)
    cells = [{"seed": 1, "size": 3}, {"seed": 2, "size": 3}]
    computed = []

    def compute(cell):
        computed.append(cell["seed"])
        return {"values": np.full(cell["size"], float(cell["seed"]))}

    def measure(revision: int = 1) -> list[float]:
        one = dataclasses.replace(
            tuning.STUDY, id="reviews.test", revision=revision, compute=compute
        )
        found = one.measure(None, cells, options)
        return [float(arrays["values"].sum()) for arrays in found]

    assert measure() == measure() == [3.0, 6.0]
    assert computed == [1, 2]
    for file in sorted((tmp_path / "cells").glob("*.npz")):
        file.write_bytes(file.read_bytes()[:-40])
        break
    assert measure() == [3.0, 6.0] and len(computed) == 3
    assert measure(revision=2) == [3.0, 6.0] and len(computed) == 5


def test_cells_kept_by_earlier_versions_are_found(tmp_path):
    """The name of a file is part of the format: nobody computes a study again."""
    keys = [["reviews.test", 1, {"size": 3, "seed": (1, 2)}]]
    names = [Kept(tmp_path).path(key).name for key in keys]
    assert names == ["610d9f4fb98cc8822ca2e98f.npz"]


# Whole studies


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if "reviews." in name])
def test_presets_exist_and_the_published_one_is_larger(name):
    module = EXPERIMENTS[name].load()
    assert module.preset("paper").num_trials > module.preset("quick").num_trials
    assert name in module.EXPERIMENTS and module.STUDY.id == name


@pytest.mark.parametrize(
    "name, field, value, named",
    [(*fault, fault[1]) for fault in FAULTS] + EXPLAINED,
)
def test_misuse_names_the_field(name, field, value, named):
    with pytest.raises(ValueError, match=rf"^`{named}`"):
        dataclasses.replace(small(name), **{field: value})


def slow_unless_fast(name: str) -> Any:
    marks = [] if name == "reviews.tuning" else pytest.mark.slow
    return pytest.param(name, marks=marks)


@pytest.mark.parametrize("name", [slow_unless_fast(name) for name in [*SMALL][:5]])
def test_a_small_study_writes_everything_and_resumes(name, tmp_path):
    module, config = EXPERIMENTS[name].load(), small(name)
    options = Options(out=tmp_path, progress=False)
    first = module.main(config, options)
    assert first["headline"].startswith(name)
    suffixes = {file.rsplit(".")[-1] for file in first["files"]}
    assert suffixes == {"csv", "json", "md", "svg", "png"}
    assert set(first["decisions"].values()) <= {"yes", "no", "undecided"}
    table = (tmp_path / "table.csv").read_bytes()
    assert len(read_csv(tmp_path / "table.csv")) == len(first["rows"])

    def broken(cell):
        raise AssertionError(f"computed again: {cell}")

    resumed = dataclasses.replace(module.STUDY, compute=broken)
    resumed.main(config, options)
    assert (tmp_path / "table.csv").read_bytes() == table
    with pytest.raises(AssertionError, match="computed again"):
        resumed.main(dataclasses.replace(config, seed=1), options)


def files(folder: pathlib.Path) -> dict[str, bytes]:
    names = ("table.csv", "config.json", "answer.md")
    figures = [*folder.glob("*.svg"), *folder.glob("*.png")]
    assert len(figures) == 2
    return {p.name: p.read_bytes() for p in (*(folder / n for n in names), *figures)}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["reviews.k", "reviews.largek", "reviews.particip"])
def test_a_tiny_study_is_written_and_deterministic(name, tmp_path):
    """Run whole in two folders, compare every file, and change the seed."""
    module, config = EXPERIMENTS[name].load(), small(name)
    first = module.main(config, Options(out=tmp_path / "a", progress=False))
    module.main(config, Options(out=tmp_path / "b", progress=False))
    assert files(tmp_path / "a") == files(tmp_path / "b")
    assert first["headline"].startswith(name)
    assert set(first["decisions"].values()) <= {"yes", "no", "undecided"}
    other = dataclasses.replace(config, seed=1)
    module.main(other, Options(out=tmp_path / "c", progress=False))
    same, changed = files(tmp_path / "a"), files(tmp_path / "c")
    assert same["table.csv"] != changed["table.csv"]
    assert same["answer.md"] != changed["answer.md"]


@pytest.mark.slow
def test_pooling_crosses_where_predicted(tmp_path):
    config, options = small("reviews.pool"), Options(out=tmp_path)
    summary = pooling.main(config, options)
    own = [row for row in summary["rows"] if row["kind"] == "crossing"]
    assert summary["decisions"]["known clusters cross where predicted"] == "yes"
    for row in own:
        found = study.read(row, "oracle")
        assert found.low < row["exact"] < found.high
        assert found.within(1.1 * row["exact"], 1.2 * row["exact"]) == "no"
    assert all(pathlib.Path(name).stat().st_size > 0 for name in summary["files"])
    again = pooling.main(config, options)
    np.testing.assert_equal(again["rows"], summary["rows"])


@pytest.mark.slow
@pytest.mark.parametrize("panels", ["ad", "abcd"])
def test_the_criterion_writes_its_files(panels, tmp_path, monkeypatch):
    """By default one panel of each kind: every panel compiles a program of its own."""
    chosen = {panel: criterion.PANELS[panel] for panel in panels}
    monkeypatch.setattr(criterion, "PANELS", chosen)
    summary = criterion.main(
        small("reviews.crit"), Options(out=tmp_path, progress=False)
    )
    names = {"table.csv", "config.json", "answer.md", "oracle.svg", "verdicts.svg"}
    assert names <= {path.name for path in tmp_path.iterdir()}
    assert json.loads((tmp_path / "config.json").read_text())["num_features"] == 10
    replicas = [row for row in summary["rows"] if row["kind"] == "replica"]
    assert len(replicas) == 2 * len(panels)
    # Drawn lengths are those of d = 1000, where zero misses by R if as printed.
    for row in replicas:
        if row["convention"] == "paper":
            expected = row["separation"] / row["noise"]
            assert row["zero_over_noise"] == pytest.approx(expected, rel=1e-5)
    assert set(summary["decisions"].values()) <= {"yes", "no", "undecided"}
    assert len(summary["decisions"]) == 4
    read = study.read(summary["rows"][-1], "kappa_noise_recovery")
    assert math.isnan(read.value) or -1 <= read.value <= 1
