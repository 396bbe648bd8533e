"""Participation, many clusters, number of models and what the studies share."""

import dataclasses
import pathlib
from typing import Any

import numpy as np
import pytest

from experiments.options import Options
from experiments.reviews import many_clusters, number_of_models, participation, study

STUDIES: dict[str, Any] = {
    "reviews.particip": participation,
    "reviews.largek": many_clusters,
    "reviews.k": number_of_models,
}
TINY: dict[str, Any] = {
    "reviews.particip": participation.Config(
        num_participants=(4, 8),
        few_participants=(2, 3),
        num_rounds=15,
        num_last=5,
        num_draws=2,
        num_trials=20,
        num_subsets=1000,
        num_clients=8,
        num_clusters=2,
        num_features=12,
        step_size=0.5,
    ),
    "reviews.largek": many_clusters.Config(
        num_clusters=(2, 4),
        random_clusters=(2,),
        printed_clusters=(2,),
        separated_clusters=(2, 3),
        num_trials=20,
        many_trials=20,
        num_starts=2000,
        num_clients=8,
        num_features=12,
        num_rounds=15,
    ),
    "reviews.k": number_of_models.Config(
        num_models=(1, 2, 3),
        num_trials=20,
        num_clusters=2,
        num_clients=8,
        num_features=12,
        num_rounds=15,
    ),
}
FAULTS = [
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
]


@pytest.mark.parametrize("name, field, value", FAULTS)
def test_misuse_names_the_field(name, field, value):
    with pytest.raises(ValueError, match=rf"^`{field}`"):
        dataclasses.replace(TINY[name], **{field: value})


def test_a_verdict_needs_the_whole_interval():
    assert study.Estimate(1.0, 0.96, 1.04).within(0.95, 1.05) == "yes"
    assert study.Estimate(1.0, 0.94, 1.04).within(0.95, 1.05) == "undecided"
    assert study.Estimate(1.1, 1.06, 1.14).within(0.95, 1.05) == "no"
    nan = float("nan")
    assert study.Estimate(nan, nan, nan).within(0.95, 1.05) == "undecided"
    assert study.all_of(["yes", "undecided", "no"]) == "no"
    assert study.all_of(["yes", "undecided"]) == "undecided"
    assert study.all_of(["yes", "yes"]) == "yes"
    assert study.all_of([]) == "undecided"


def test_ratio_uses_the_pairs():
    """Paired trials tell 1.10 from 1.11 where their spread alone would not."""
    lower = 1 + 0.5 * np.random.default_rng(0).random(400)
    noise = 0.02 * np.random.default_rng(1).standard_normal(400)
    found = study.ratio(1.1 * lower + noise, lower, error_rate=1e-6)
    assert found.low <= 1.1 <= found.high < 1.11
    mixed = study.ratio(1.1 * lower[::-1] + noise, lower, error_rate=1e-6)
    assert mixed.low <= 1.1 <= mixed.high and mixed.high > 1.11


def test_cells_are_kept_and_damaged_ones_computed_again(tmp_path):
    options = Options(out=tmp_path, progress=False)
    cells = [{"seed": 1, "size": 3}, {"seed": 2, "size": 3}]
    computed = []

    def compute(cell):
        computed.append(cell["seed"])
        return {"values": np.full(cell["size"], float(cell["seed"]))}

    def measure(revision: int = 1) -> list[float]:
        found = study.measure("reviews.test", revision, cells, compute, options)
        return [float(arrays["values"].sum()) for arrays in found]

    assert measure() == measure() == [3.0, 6.0]
    assert computed == [1, 2]
    for file in sorted((tmp_path / "cells").glob("*.npz")):
        file.write_bytes(file.read_bytes()[:-40])
        break
    assert measure() == [3.0, 6.0] and len(computed) == 3
    assert measure(revision=2) == [3.0, 6.0] and len(computed) == 5


def files(folder: pathlib.Path) -> dict[str, bytes]:
    names = ("table.csv", "config.json", "answer.md")
    figures = [*folder.glob("*.svg"), *folder.glob("*.png")]
    assert len(figures) == 2
    return {p.name: p.read_bytes() for p in (*(folder / n for n in names), *figures)}


def written_twice(name: str, tmp_path: pathlib.Path) -> dict[str, Any]:
    """Run whole in two folders, compare every file, and resume."""
    module, config = STUDIES[name], TINY[name]
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
    return first


@pytest.mark.slow
@pytest.mark.parametrize("name", ["reviews.k", "reviews.largek", "reviews.particip"])
def test_a_tiny_study_is_written_and_deterministic(name, tmp_path):
    written_twice(name, tmp_path)
