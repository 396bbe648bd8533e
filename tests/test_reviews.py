"""What the reviewers' studies share, and each of them run whole at small sizes."""

import dataclasses
import json
import math
import pathlib
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from toy_experiments import configured

from cfljax.base.types import ClientData, Truth
from cfljax.engine import kept
from cfljax.report import read_csv
from experiments.options import Options
from experiments.registry import EXPERIMENTS
from experiments.reviews import criterion, pooling, study, tuning

# What makes each study small, as it would be typed.
SMALL = {
    "reviews.baselines": (
        "--num-samples 3 12 --num-clients 6 --rho 4 --num-trials 3 --num-features 4"
        " --num-rounds 5 --num-restarts 2 --num-resamples 639"
    ),
    "reviews.tuning": (
        "--num-samples 3 12 --rho 4 --num-trials 3 --num-clients 6 --num-features 4"
        " --num-rounds 5 --num-restarts 2"
    ),
    "reviews.comm": (
        "--num-samples 3 12 --num-clusters 2 3 --num-trials 3 --clients-per-cluster 3"
        " --num-features 4 --num-rounds 12 --num-restarts 2 --fresh-samples 2 30"
        " --fresh-trials 3 --fresh-clients 6"
    ),
    "reviews.idbatch": (
        "--rho 4 --identity-samples 1 8 --num-clients 6 --num-raw-clients 50"
        " --num-features 4 --num-trials 3 --num-rounds 8 --escape-clusters 2"
        " --escape-samples 2 50 --escape-features 4 --escape-clients 6 --escape-rounds"
        " 8 --escape-trials 3"
    ),
    "reviews.resample": (
        "--floor-rounds 2 4 --floor-samples 80 --num-samples 3 12 --rho 4"
        " --num-features 5 --num-clients 6 --num-trials 3 --num-rounds 25"
        " --floor-features 6 --floor-clients 6 --floor-trials 3 --fixed-trials 3"
    ),
    "reviews.particip": (
        "--num-participants 4 8 --few-participants 2 3 --num-rounds 15 --num-last 5"
        " --num-draws 2 --num-trials 20 --num-subsets 1000 --num-clients 8"
        " --num-clusters 2 --num-features 12 --step-size 0.5"
    ),
    "reviews.largek": (
        "--num-clusters 2 4 --random-clusters 2 --printed-clusters 2"
        " --separated-clusters 2 3 --num-trials 20 --many-trials 20 --num-starts 2000"
        " --num-clients 8 --num-features 12 --num-rounds 15"
    ),
    "reviews.k": (
        "--num-models 1 2 3 --num-trials 20 --num-clusters 2 --num-clients 8"
        " --num-features 12 --num-rounds 15"
    ),
    "reviews.pool": (
        "--num-features 8 4 --num-clients 4 12 --num-samples 200 20 --num-clusters 2"
        " 3 --shares 0.5 0.5 --num-runs 8 4 --num-trials 3000"
    ),
    "reviews.crit": (
        "--separation 1 --noise 0.1 --clients-a 4 --clients-b 8 --clients-c 4"
        " --clients-d 8 --samples-ab 8 --num-samples 8 --num-features 10 --num-trials"
        " 2 --num-restarts 2 --num-rounds 3 --num-resamples 50"
    ),
}
FAULTS: list[tuple[str, str, Any]] = [
    ("reviews.baselines", "num_clients", (7,)),
    ("reviews.baselines", "local_steps", ()),
    ("reviews.baselines", "rho", (float("nan"),)),
    ("reviews.baselines", "num_clusters", 41),
    ("reviews.baselines", "num_resamples", 638),  # Of 16 comparisons.
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
    """The study's configuration."""
    return configured(name, SMALL.get(name, ""))


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
        changes = {"id": "reviews.test", "revision": revision, "compute": compute}
        one = dataclasses.replace(tuning.STUDY, **changes)
        found = one.measure(None, cells, options)
        return [float(arrays["values"].sum()) for arrays in found]

    assert measure() == measure() == [3.0, 6.0]
    assert computed == [1, 2]
    for file in sorted((tmp_path / "cells").glob("*.npz")):
        file.write_bytes(file.read_bytes()[:-40])
        break
    assert measure() == [3.0, 6.0] and len(computed) == 3
    assert measure(revision=2) == [3.0, 6.0] and len(computed) == 5


def test_exchanged_cells_are_computed_again(tmp_path):
    make = lambda value: lambda: {"value": np.full(2, value)}
    first, second = ({"size": 1}, 1.0), ({"size": 2}, 2.0)
    for key, value in (first, second):
        kept.remembered(tmp_path, key, make(value))
    one, other = (tmp_path / f"{kept.key_of(key)}.npz" for key, _ in (first, second))
    assert kept.recalled(tmp_path, first[0]) is not None
    other.replace(one)
    assert kept.recalled(tmp_path, first[0]) is None
    assert kept.remembered(tmp_path, first[0], make(1.0))["value"].tolist() == [1, 1]


def test_names_of_cells_are_part_of_the_format():
    """They stay from version to version, so that nobody computes a study again."""
    key = ["reviews.test", 1, {"size": 3, "seed": (1, 2)}]
    assert kept.key_of(key) == "610d9f4fb98cc8822ca2e98f"
    assert kept.key_of(key) != kept.key_of([*key[:2], {"size": 3, "seed": (1, 3)}])


# The criterion, 0.6 sigma, against numbers worked by hand


def test_oracle_table_against_numbers_by_hand():
    """sqrt(1000 / (m n / k - 1001)) with m n / k = 5000, 10000 and 1250."""
    table = criterion.exact_rows()
    assert len(table) == 5 * 3 + 5 * 3 + 7 * 3 + 5 * 3
    place = lambda row: (row["panel"], row["clients"], row["samples"])
    errors = {place(row): row["oracle_over_noise"] for row in table}
    expected = {
        ("a", 100, 100): math.sqrt(1000 / 3999),
        ("b", 400, 100): math.sqrt(1000 / 8999),
        ("c", 50, 50): math.sqrt(1000 / 249),
    }
    for place, error in expected.items():
        assert errors[place] == pytest.approx(error, rel=1e-12)
        clusters = 4 if place[0] == "b" else 2
        wrong = criterion.oracle_over_noise(float(place[1] * place[2]), clusters, 999)
        assert errors[place] != pytest.approx(wrong, rel=1e-4), "control: d - 1"
    reached = {row["panel"]: 0 for row in table}
    for row in table:
        reached[row["panel"]] += row["oracle_passes"]
        assert row["oracle_passes"] == (
            row["clients"] * row["samples"]
            >= (7557.6 if row["clusters"] == 2 else 15115.1)
        )
    assert reached["a"] == reached["b"] == 15


@pytest.mark.parametrize("clusters, total", [(2, 7557.5556), (4, 15115.1111)])
def test_least_samples_are_where_the_oracle_meets_the_criterion(clusters, total):
    assert criterion.least_samples(clusters, 1000) == pytest.approx(total, abs=1e-3)
    error = criterion.oracle_over_noise(total, clusters, 1000)
    assert error == pytest.approx(0.6, rel=1e-6)
    without_one = clusters * 1000 * (1 + 0.6**-2)
    error = criterion.oracle_over_noise(without_one, clusters, 1000)
    assert error != pytest.approx(0.6, rel=1e-6), "control: the 1 forgotten"


def test_estimates_without_clusters_pass_where_they_must():
    """Zero iff R <= 0.6 sigma; the pooled fit, given samples, iff R <= 1.2 sigma."""
    zero = {
        (row["separation"], row["noise"])
        for row in criterion.exact_rows()
        if row["zero_passes"]
    }
    assert zero == {(0.1, 0.2), (0.1, 0.4)}
    for separation, passes in ((1.19, True), (1.21, False)):
        known = {"separation": separation, "noise": 1.0}
        found = criterion.pooled_over_noise(1e9, 2, 1000, **known)
        assert (found <= 0.6) == passes
    found = criterion.pooled_over_noise(1e9, 4, 10, separation=1.0, noise=0.5)
    assert found == pytest.approx(2 * math.sqrt(3 / 8))


def test_kappa_against_a_table_by_hand():
    """Cohen's own kind of table: p_o = .7, p_e = .5, kappa = .4."""
    table = np.array([[20.0, 5.0], [10.0, 15.0]])
    assert criterion.cohen_kappa(table) == pytest.approx(0.4)
    assert criterion.cohen_kappa(table) != pytest.approx(0.7), "control: bare agreement"
    assert criterion.cohen_kappa(np.array([[3, 0], [0, 2]])) == pytest.approx(1)
    assert criterion.cohen_kappa(np.array([[6, 3], [4, 2]])) == pytest.approx(
        0, abs=1e-12
    )
    assert np.isnan(criterion.cohen_kappa(np.array([[5, 0], [0, 0]])))


def test_patterns_pairs_and_shares_by_hand():
    first = np.array([[True, True, False, False, False]])
    second = np.array([[True, False, False, False, True]])
    third = np.array([[True, False, True, True, False]])
    counts = criterion.patterns(first, second, third)
    np.testing.assert_array_equal(counts, [[0, 2, 1, 0, 1, 0, 0, 1]])
    np.testing.assert_array_equal(criterion.pair(counts, 0, 2), [[[1, 2], [1, 1]]])
    np.testing.assert_array_equal(criterion.pair(counts, 1, 2), [[[1, 2], [1, 1]]])
    np.testing.assert_array_equal(criterion.pair(counts, 0, 1), [[[2, 1], [1, 1]]])
    assert criterion.share(counts, 1, among=0) == pytest.approx([2 / 3])
    assert criterion.share(counts, 0, among=1) == pytest.approx([1 / 2])


def test_bootstrap_keeps_the_runs_of_a_data_set_together():
    """100 data sets of 50 like runs: the error is sqrt(p q / 100), not / 5000."""
    counts = np.zeros((100, 8))
    counts[:40, 1], counts[40:, 0] = 50, 50
    (found,) = criterion.resampled(
        np.random.default_rng(0),
        [counts],
        [lambda own: criterion.share(own, 1, among=0)],
        num_resamples=4000,
        error_rate=0.05,
    )
    assert found.value == pytest.approx(0.4)
    width = 2 * 1.96 * math.sqrt(0.4 * 0.6 / 100)
    assert found.high - found.low == pytest.approx(width, rel=0.1)


def test_verdicts_by_hand():
    """0.6 sigma = 0.06 and 1.1 x oracle = 0.11; what diverged never succeeds."""
    distance = np.array([[[0.05, 0.1, 0.12, np.nan]]])
    recovered = np.array([[[0.0, 1.0, 1.0, 1.0]]])
    arrays = {"distance": distance, "recovered": recovered, "oracle": np.array([0.1])}
    near, floor, exact = criterion.verdicts(0.1, arrays)
    np.testing.assert_array_equal(near.ravel(), [True, False, False, False])
    np.testing.assert_array_equal(floor.ravel(), [True, True, False, False])
    np.testing.assert_array_equal(exact.ravel(), [False, True, True, False])


def test_estimates_of_noiseless_clusters():
    """The oracle is exact; with each cluster's rows alike the pooled fit is the mean
    of the truths, half their distance from either."""
    rows = np.random.default_rng(1).standard_normal((10, 3)).astype(np.float32)
    truths = np.array([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0]], np.float32)
    data = ClientData(
        inputs=jnp.asarray(np.stack([rows[:5], rows[5:]] * 2).reshape(4, 5, 3)),
        targets=jnp.asarray((rows @ truths.T).T.reshape(4, 5)),
        mask=jnp.ones((4, 5), bool),
    )
    truth = Truth(models=jnp.asarray(truths), clusters=jnp.array([0, 0, 1, 1]))
    found = criterion.estimates(data, truth)
    assert float(found["oracle"]) == pytest.approx(0, abs=1e-5)
    assert float(found["pooled"]) == pytest.approx(math.sqrt(5) / 2, rel=1e-5)
    assert float(found["zero"]) == pytest.approx(1.5, rel=1e-6)


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


@pytest.mark.long
@pytest.mark.parametrize("name", [slow_unless_fast(name) for name in [*SMALL][:5]])
def test_a_small_study_writes_everything_and_resumes(name, tmp_path):
    module, config = EXPERIMENTS[name].load(), small(name)
    options = Options(out=tmp_path, progress=False)
    first = module.main(config, options)
    outcome = (tmp_path / "outcome.md").read_text()
    assert first["headline"].startswith(outcome) and name in first["headline"]
    suffixes = {file.rsplit(".")[-1] for file in first["files"]}
    assert suffixes == {"csv", "json", "md", "svg", "pdf", "png", "txt"}
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
    names = ("table.csv", "table.md", "config.json", "outcome.md")
    figures = [p for end in ("svg", "pdf", "png") for p in folder.glob(f"*.{end}")]
    assert len(figures) == 3
    return {p.name: p.read_bytes() for p in (*(folder / n for n in names), *figures)}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["reviews.k", "reviews.largek", "reviews.particip"])
def test_a_tiny_study_is_written_and_deterministic(name, tmp_path):
    """Run whole in two folders, compare every file, and change the seed."""
    module, config = EXPERIMENTS[name].load(), small(name)
    other = dataclasses.replace(config, seed=1)
    first, _, _ = (
        module.main(own, Options(out=tmp_path / folder, progress=False))
        for folder, own in (("a", config), ("b", config), ("c", other))
    )
    assert files(tmp_path / "a") == files(tmp_path / "b")
    assert first["headline"].startswith((tmp_path / "a" / "outcome.md").read_text())
    assert set(first["decisions"].values()) <= {"yes", "no", "undecided"}
    same, changed = files(tmp_path / "a"), files(tmp_path / "c")
    assert same["table.csv"] != changed["table.csv"]
    assert same["outcome.md"] != changed["outcome.md"]


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
    options = Options(out=tmp_path, progress=False)
    summary = criterion.main(small("reviews.crit"), options)
    names = {"table.csv", "config.json", "outcome.md", "oracle.svg", "verdicts.svg"}
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
