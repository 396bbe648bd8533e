"""The benchmarks at tiny sizes: equal work, honest counts, ratios and tables."""

import dataclasses
import importlib.util
import json
import pathlib
import sys
import warnings
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toy_experiments import configured

from cfljax.algorithms import REGISTRY
from cfljax.engine.checkpoints import Checkpoint
from cfljax.montecarlo import Work as Columns
from cfljax.report import read_csv, save
from cfljax.report.figures import BarPanel, bars
from experiments.__main__ import plain
from experiments.bench import (
    checkpoints,
    clustering,
    fig3,
    fig3_comparison,
    linear,
    neural,
    neural_algorithms,
    neural_jobs,
    peers,
    peers_jobs,
    thresholding,
    timing,
)
from experiments.bench.neural_algorithms import EXCESS, MEASURED, PREDICTED, PROCESSOR
from experiments.bench.neural_jobs import client_data, measure
from experiments.bench.processes import Process
from experiments.bench.work import Work, in_torch_layout
from experiments.ifca.fig3_trial import simulate
from experiments.options import Options

# Whole programs: half a second or more each, on a fresh machine.
pytestmark = pytest.mark.long

# Clustering and thresholding

SMALL = clustering.Config(num_clients=30, num_clusters=3, num_restarts=2, repeats=1)


def test_both_find_the_clusters_of_models_near_their_truths(tmp_path):
    summary = clustering.main(SMALL, Options(out=tmp_path))
    near, far = summary["rows"][:2], summary["rows"][2:]
    assert [row["ARI"] for row in near] == [1, 1]
    assert len(far) == 2 and all(row["ms"] > 0 for row in near + far)
    assert near[0]["its time / cfljax"] == 1 != near[1]["its time / cfljax"]


def test_losses_have_their_mean_and_spread():
    many = dataclasses.replace(SMALL, num_clients=3000)
    losses, clusters = clustering.draw(many, 0.25)
    own = clusters[:, None] == np.arange(3)
    for entries, square in ((losses[own], 0.0725), (losses[~own], 2.0725)):
        error = square * np.sqrt(2 / SMALL.num_samples / len(entries))
        assert abs(entries.mean() - square) < 4 * error
        np.testing.assert_allclose(entries.std(), square * np.sqrt(0.1), rtol=0.1)


LITTLE = configured(
    "thresholding",
    "--num-clients 5 --num-samples 3 --num-groups 2 --num-hidden 4 --num-points 20"
    " --num-features 30 --num-clipping-rounds 2 --num-compared 2 --repeats 1",
)


def test_work_by_hand():
    first, second = 784 * 4 * 3 * 2, 4 * 10 * 3 * 2  # Of one client at one model.
    assert thresholding.work(LITTLE) == (3**2 + 2**2) * (2 * first + 3 * second)


def test_the_reference_by_hand():
    points = np.array([[0.0], [1.0], [4.0]])
    config = dataclasses.replace(LITTLE, num_compared=1, num_clipping_rounds=2)
    # To (0 + 1 + 0) / 3, then with both inside again.
    np.testing.assert_allclose(
        thresholding.by_coordinates(points, config, 1.0),
        [[1 / 3 + (-1 / 3 + 2 / 3) / 3]],
    )


@pytest.mark.slow
def test_both_forms_agree(tmp_path):
    rows = thresholding.main(LITTLE, Options(out=tmp_path))["rows"]
    assert len(rows) == 6 and all(row["seconds"] > 0 for row in rows)
    (difference,) = {row["largest difference"] for row in rows} - {None}
    assert difference < 1e-12
    assert rows[1]["share of the product's rate"] == 1


# Figure 3

TINY = configured(
    "fig3",
    "--num-trials 2 --separation 0.1 1.0 --num-clients 6 --num-samples 10 --panels a"
    " --num-features 8 --num-restarts 2 --step-sizes 0.5 0.1 --num-rounds 20"
    " --scaling-trials 1 --scaling-clients 4 6 --scaling-samples 5 10"
    " --scaling-features 4 8",
)
TRIAL = TINY.cells()[1]


def run_part(part, folder, **changes):
    config = dataclasses.replace(TINY, parts=(part,), **changes)
    return fig3.main(config, Options(out=folder))


@pytest.fixture
def without_torch(monkeypatch):
    monkeypatch.setattr(timing, "has_torch", lambda: False)


@pytest.fixture
def tiny_panel(monkeypatch):
    """A panel of two sizes, and how often a size was timed."""
    config = configured(
        "ifca.fig3a",
        "--separation 0.1 1.0 --noise 0.1 --num-clients 4 6 --num-samples 10"
        " --num-features 5 --num-restarts 2 --num-rounds 5",
        preset="paper",
    )
    monkeypatch.setattr(fig3, "panel_config", lambda letter: config)
    calls = []

    def made_up(trials, key, step_sizes):
        calls.append((len(trials), trials[0].num_clients, trials[0].decide))

    monkeypatch.setattr(fig3, "simulate_jointly", made_up)
    return calls


@pytest.mark.slow
def test_pytorch_makes_the_same_trials():
    """Its final distances are those of `simulate`, from the same key alone."""
    pytest.importorskip("torch")
    key = fig3_comparison.trial_key(0, 1)
    plain_trial = dataclasses.replace(TRIAL, shortcuts=False)
    steps = jnp.asarray(TINY.step_sizes, jnp.float32)
    expected = jax.jit(lambda key: simulate(plain_trial, key, steps))(key)
    job = fig3_comparison.by_pytorch(TRIAL, TINY.step_sizes, 0, 0)
    (found,) = job.judge(1, job.prepare(1)())
    np.testing.assert_allclose(found["distance"], expected["distance"], rtol=1e-4)
    np.testing.assert_array_equal(found["recovered"], expected["recovered"])
    # Control: another trial ends elsewhere.
    (other,) = job.judge(0, job.prepare(0)())
    assert not np.allclose(other["distance"], expected["distance"], rtol=1e-2)


def test_pytorch_by_hand():
    """Two rounds in NumPy, and no assignment where no loss is finite."""
    pytest.importorskip("torch")
    generator = np.random.default_rng(0)
    normal = lambda *shape: generator.normal(size=shape).astype(np.float32)
    inputs, targets, start = normal(6, 10, 8), normal(6, 10), normal(2, 8)
    models = start
    losses = lambda: np.mean((inputs @ models.T - targets[..., None]) ** 2, axis=1)
    for _ in range(2):
        gradient = np.zeros_like(models)
        for client, own in enumerate(np.argmin(losses(), axis=1)):
            errors = inputs[client] @ models[own] - targets[client]
            gradient[own] += 2 / 10 * errors @ inputs[client]
        models = models - 0.5 / 6 * gradient
    steps = np.array([0.5, 1e30], np.float32)
    starts = np.stack([start, start])
    ends = linear.torch_on_data(inputs, targets, starts, steps, num_rounds=2)()
    np.testing.assert_allclose(ends.models[0], models, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(ends.assignment[0], np.argmin(losses(), axis=1))
    assert len(np.unique(ends.assignment[0])) == 2  # Both models were trained.
    assert np.all(ends.assignment[1] == -1)


def outputs(distances):
    distance = np.array([distances])  # [restart, step_size]
    nothing = np.zeros_like(distance)
    followed = np.isfinite(distance).astype(float)
    return {"distance": distance, "recovered": nothing, "followed": followed}


def test_differences_are_counted():
    """Thresholds are .061 of the paper and above .01 of the floor; .5 is stable."""
    limit = 0.6 * TRIAL.noise + TRIAL.tolerance
    steps = np.array([0.5, 100.0])

    def count(own, other):
        pair = [outputs(own)], [outputs(other)]
        return [*fig3_comparison.differences(*pair, TRIAL, steps).values()]

    assert count([1.0, 1.0], [1.0, 2.0]) == [1, 0, 0, 2, 0, 0]
    assert count([0.0, 1.0], [0.0, limit]) == [1, 1, 0, 2, 1, 0]
    assert count([1.0, 0.0], [0.0, 0.0]) == [1, 1, 0, 2, 1, 1]
    assert count([1.0, 1.0], [0.0, 1.0]) == [1, 0, 1, 2, 1, 1]
    # A run that was left alone neither counts nor decides.
    assert count([0.0, np.nan], [0.0, 0.0]) == [1, 1, 0, 1, 0, 0]
    assert count([np.nan, 1.0], [0.0, 1.0]) == [1, 0, 1, 1, 0, 0]


def record(what, cells, seconds, data):
    found = fig3_comparison.Record(what, cells, 9.0)
    found.seconds, found.data = seconds, data
    found.processor = [2 * own for own in seconds]
    found.outputs = [[outputs([0.0, 1.0])] * len(cells)] * len(seconds)
    return found


def test_ratios_by_hand():
    cells, steps = TINY.cells(), np.array(TINY.step_sizes)
    seconds = [10.0, 30.0], [1.0, 1.0]
    theirs = [record(fig3_comparison.PYTORCH, (cell,), *seconds) for cell in (0, 1)]
    ours = record(fig3_comparison.NAMES["decide"], (0, 1), [3.0, 5.0], [1.0, 1.0])
    rows = fig3_comparison.table(cells, steps, [ours, *theirs])
    together, alone, _ = rows
    assert together["R"] == "0.1 and 1" and alone["R"] == "0.1"
    assert together["s, with data"] == 4 and together["s, without data"] == 3
    # Two cells of 10 or 30 s, on one data set.
    assert together["PyTorch's median / this, with data"] == (40 + 1) / 4
    assert together["PyTorch's total / this, without data"] == 80 / 6
    assert together["PyTorch's processor median / this"] == 40 / 4
    assert together["trials checked"] == together["trials succeed"] == 4
    assert together["trials differ"] == 0
    assert alone["s, with data"] == 21 and alone["s, without data"] == 20
    assert alone["PyTorch's total / this, with data"] == 1
    assert "trials checked" not in alone
    (lonely,) = fig3_comparison.table(cells, steps, [ours])
    assert not any("PyTorch" in name or "checked" in name for name in lonely)


@pytest.mark.slow
def test_outcomes_are_those_of_pytorch(tmp_path):
    pytest.importorskip("torch")
    rows = run_part("comparison", tmp_path, ways=("decide", "follow"))["rows"]
    assert len(rows) == 2 * 3 + 2
    checked = [row for row in rows if "PyTorch" not in row["what"]]
    assert [row["trials checked"] for row in checked] == [2, 2, 4] * 2
    assert all(row["trials differ"] == row["runs differ"] == 0 for row in checked)
    followed = [row["runs checked"] for row in checked if "followed" in row["what"]]
    assert followed == [8, 8, 16]
    assert len(read_csv(tmp_path / "trials.csv")) == 2 * len(rows)


@pytest.mark.slow
def test_without_pytorch_its_rows_are_left_out(tmp_path, without_torch):
    sizes = {"num_trials": 1, "separation": (1.0,), "num_rounds": 3}
    summary = run_part("comparison", tmp_path, **sizes)
    (row,) = summary["rows"]
    assert row["what"] == "cfljax, until decided" and row["s, with data"] > 0
    assert "PyTorch is not installed" in summary["headline"]
    assert read_csv(tmp_path / "table.csv")[0]["settings"] == summary["settings"]
    json.dumps(plain(summary), allow_nan=False)


def measured(exponent):
    """Sizes along m alone, of made-up times and columns."""
    return [
        fig3.Measured(
            dataclasses.replace(TRIAL, num_clients=m),
            num_runs=4,
            seconds_full=[float(m)] * 2,
            seconds=[float(m) ** exponent, 1.0],
            work=[Columns(full=10, forward=3, backward=2, frozen=7)] * 2,
        )
        for m in (10, 30, 100)
    ]


def test_slopes_and_operations_by_hand():
    (row, *_) = fig3.scaling_rows(measured(0.5))
    product = 10 * TRIAL.num_samples * TRIAL.num_features
    assert row["operations, all rounds"] == 2 * product * 10
    features = TRIAL.num_features
    expected = 2 * product * (5 + features) + 2 * features**2 * 7
    assert row["operations, with shortcuts"] == expected
    each = 4 * TRIAL.num_rounds
    assert row["columns, with shortcuts per run and round"] == 5 / each
    assert row["rounds by Gram matrices per run and round"] == 7 / each
    found = {slope["quantity"]: slope for slope in fig3.slopes(measured(0.5))}
    assert {slope["along"] for slope in found.values()} == {"m"}
    full, short = found["s, all rounds"], found["s, with shortcuts"]
    assert full["slope"] == pytest.approx(1) == full["lowest"]
    assert short["lowest"] == pytest.approx(0, abs=1e-9)
    assert short["highest"] == pytest.approx(0.5) and (short["from"], 10) == (10, 10)


@pytest.mark.slow
def test_scaling_measures_every_size(tmp_path):
    tables = run_part("scaling", tmp_path)["tables"]
    sizes = {(row["m"], row["n"], row["d"]) for row in tables["scaling"]}
    assert sizes == {(6, 10, 8), (4, 10, 8), (6, 5, 8), (6, 10, 4)}
    slopes = [(row["quantity"], row["slope"]) for row in tables["slopes"]]
    by_construction = [own for name, own in slopes if name == "operations, all rounds"]
    np.testing.assert_allclose(by_construction, np.ones(3))
    for row in tables["scaling"]:  # Models meet all samples in every round, twice.
        assert row["columns, all rounds per run and round"] == 2 * TINY.num_clusters


def test_projection_resumes(tmp_path, tiny_panel):
    tables = run_part("projection", tmp_path)["tables"]
    # Both conventions and separations together, each size cold and warm.
    assert tiny_panel == [(4, 4, True)] * 2 + [(4, 6, True)] * 2
    groups, (panel,) = tables["projection"], tables["panels"]
    for row in groups:
        total = row["cold, s"] + 39 * row["warm, s"]
        assert row["hours"] == pytest.approx(total / 3600)
    assert panel["cells"] == 8 and panel["trials of cells"] == 320
    assert panel["hours"] == pytest.approx(sum(row["hours"] for row in groups))
    # What is kept is not measured again; what is not, is.
    path = tmp_path / "projection.json"
    kept = json.loads(path.read_text())
    kept["times"].popitem()
    path.write_text(json.dumps(kept))
    tiny_panel.clear()
    again = run_part("projection", tmp_path)["tables"]["projection"]
    assert tiny_panel == [(4, 6, True)] * 2
    assert again[0] == groups[0]


@pytest.mark.parametrize("content", ["other machine", "half of a fi", "[]"])
def test_times_of_others_are_not_kept(tmp_path, tiny_panel, content):
    run_part("projection", tmp_path)
    path = tmp_path / "projection.json"
    if content == "other machine":
        kept = json.loads(path.read_text())
        kept["run"]["cores"] += 1
        content = json.dumps(kept)
    path.write_text(content)
    run_part("projection", tmp_path)
    assert len(tiny_panel) == 8


# Neural networks

MLP = Work(5, 6, 2, num_clusters=2, image=8, hidden=7, clients_per_chunk=2)
CNN = dataclasses.replace(MLP, channels=(2, 3))
NEURAL = configured(
    "neural",
    "--mlp-clients 2 5 --mlp-samples 6 --mlp-steps 2 --mlp-hidden 7 --cnn-clients"
    " --image 8 --num-clusters 2 --clients-per-chunk 2 --loss-chunks 2 --repeats 2"
    " --seconds 60",
)


@pytest.fixture
def without_children(monkeypatch):
    """Processes cost seconds: their numbers are made up."""
    made_up = {
        "memory": {"data": 2.0, "models": 1.0, "peak": 3.0},
        "compilation": {"round": 1.0, "processor": 1.5, "all": 2.0},
    }
    monkeypatch.setattr(neural, "measure", lambda what, *_, **__: made_up[what])


@pytest.fixture
def without_rounds(monkeypatch):
    """Every round would be compiled: instead, one that does nothing."""
    names = ("cfljax, sequential", "cfljax, batched")
    nothing = lambda work: {name: lambda: None for name in names}
    monkeypatch.setattr(neural_jobs, "training", nothing)


def distance(one, other):
    """Largest distance between the leaves of two lists or trees."""
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return max(float(np.max(np.abs(np.asarray(a) - np.asarray(b)))) for a, b in pairs)


@pytest.mark.slow
def test_both_orders_do_the_same_work():
    jobs = neural_jobs.training(MLP)
    models = [jobs[f"cfljax, {order}"]() for order in ("sequential", "batched")]
    assert distance(*models) < 1e-6
    # Control: the models have moved further than that.
    assert distance(models[0], neural_jobs.first_models(MLP)) > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("work", [MLP, CNN], ids=["MLP", "CNN"])
def test_pytorch_does_the_same_work(work):
    pytest.importorskip("torch")
    trained = neural_jobs.round_program(work, "sequential", 1)()
    expected = in_torch_layout(work, trained)
    for job in neural_jobs.torch_training(work).values():
        for _ in range(2):  # A repeat starts from the same models again.
            assert distance(job(), expected) < 1e-6
    # Control: one step less is not the same.
    fewer = neural_jobs.torch_training(dataclasses.replace(work, num_steps=1))
    assert distance(fewer["PyTorch, loop"](), expected) > 1e-4


def test_chunks_give_the_same_loss_matrix():
    jobs = neural_jobs.losses(MLP, (2,))
    matrices = [np.asarray(job()) for job in jobs.values()]
    assert matrices[0].shape == (5, 2)
    assert all(distance(matrix, matrices[0]) < 1e-6 for matrix in matrices)
    assert distance(matrices[0][:, 0], matrices[0][:, 1]) > 1e-3


def test_bare_products_are_those_of_the_network():
    """By hand, for a perceptron without its biases and ReLU."""
    images = np.asarray(neural_jobs.client_data(MLP).inputs).reshape(30, 64)
    layers = neural_jobs.first_models(MLP)["layers"]
    outputs = neural_jobs.bare_products(MLP)()
    for model, found in enumerate(outputs):
        kernels = [np.asarray(layers[i]["kernel"])[model] for i in (0, 1)]
        assert distance(found, images @ kernels[0] @ kernels[1]) < 1e-5
    assert distance(outputs[0], outputs[1]) > 1e-3


def test_tables_and_figure_are_written(
    tmp_path, without_torch, without_children, without_rounds
):
    summary = neural.main(NEURAL, Options(out=tmp_path))
    rows = read_csv(tmp_path / "training.csv")
    assert {row["clients"] for row in rows} == {2, 5}
    for row in rows:
        per_round = row["ms per client-step"] * row["clients"] * NEURAL.mlp_steps / 1e3
        assert row["rounds/s"] * per_round == pytest.approx(1)
    assert {row["what"] for row in rows} >= {"cfljax, sequential", "cfljax, batched"}
    assert not any("PyTorch" in row["what"] for row in rows)
    assert "PyTorch is not installed" in summary["headline"]
    losses = read_csv(tmp_path / "losses.csv")
    assert losses[0][neural.SPEED] == 1
    assert all((tmp_path / name).exists() for name in ("training.svg", "growth.csv"))
    assert len(summary["files"]) == 9
    json.dumps(plain(summary), allow_nan=False)


def test_growth_tells_proportional_times_from_others():
    def rows(power):
        return [
            {"network": "MLP", "what": "a", "clients": c, "rounds/s": 1 / c**power}
            for c in (25, 120, 1200)
        ]

    (linear,) = neural.growth(rows(1))
    assert linear["per client, ms"] == pytest.approx(1e3)
    assert linear["exponent"] == pytest.approx(1)
    assert linear["largest deviation"] < 1e-9
    (square,) = neural.growth(rows(2))
    assert square["exponent"] == pytest.approx(2)
    assert square["largest deviation"] > 0.1
    (two,) = neural.growth(rows(1)[:2])
    assert two["largest deviation"] is None
    assert neural.growth(rows(1)[:1]) == []


def test_targets_are_reached_or_not():
    def tables(ratio, speed, seconds):
        training = {"network": "MLP", "clients": 5, "what": "cfljax, sequential"}
        compilation = {"network": "MLP", "cache": "warm", "the round, s": seconds}
        return {
            "training": [training | {neural.RATIO: ratio}],
            "losses": [{neural.SPEED: 1.0}, {neural.SPEED: speed}],
            "compilation": [compilation],
        }

    judged = lambda *values: neural.targets(tables(*values), busy=False)
    good, bad = judged(1.4, 0.7, 1.0), judged(1.2, 0.5, 3.0)
    assert [row["reached"] for row in good] == ["yes"] * 3
    assert [row["reached"] for row in bad] == ["no"] * 3
    unknown = judged(float("nan"), float("nan"), float("nan"))
    assert [row["reached"] for row in unknown] == ["no"] * 3
    beside_others = neural.targets(tables(1.4, 0.7, 1.0), busy=True)
    assert [row["reached"] for row in beside_others] == ["open"] * 3


def test_a_repeat_is_left_out_when_the_time_is_up():
    for seconds, repeats in ((60, 3), (0, 1)):
        times = timing.timed({"": lambda: None}, repeats=3, seconds=seconds)[""]
        assert [len(values) for values in times] == [repeats, repeats]


@pytest.mark.slow
def test_children_measure_more_for_more(tmp_path):
    cold, warm = (measure("compilation", MLP, folder=tmp_path) for _ in range(2))
    assert warm["round"] < 0.7 * cold["round"]
    small = measure("memory", MLP, folder=tmp_path)
    sizes = {"num_clients": 600, "image": 28, "num_samples": 50, "hidden": 200}
    work = dataclasses.replace(MLP, **sizes)
    large = measure("memory", work, folder=tmp_path, order="batched")
    if small:
        assert large["data"] == pytest.approx(600 * 50 * 784 * 4 / 2**20)
        assert large["peak"] > small["peak"]
    with pytest.raises(RuntimeError, match="measuring nothing failed"):
        measure("nothing", dataclasses.replace(MLP, num_clients=0), folder=tmp_path)


WORK = Work(6, 5, 3, num_clusters=2, image=4, hidden=3)
SECONDS = {"unit": [1.0, 2.0, 8.0], "ifca": [3.0, 4.0, 12.0], "local": [1.0, 1.0, 1.0]}


@pytest.fixture
def made_up(monkeypatch):
    """Rounds that are never run, and times that are known."""

    def timed(jobs, *, repeats, seconds):
        half = lambda name: np.array(SECONDS[name][:repeats])
        return {name: timing.Times(half(name), half(name) ** 2) for name in jobs}

    program = SimpleNamespace(seconds=0.5)
    monkeypatch.setattr(neural_algorithms, "third_round", lambda *_: program)
    monkeypatch.setattr(neural_algorithms, "timed", timed)


def test_a_row_is_what_was_measured_beside_what_was_predicted(made_up):
    (row,) = neural_algorithms.rows(("ifca",), WORK, repeats=3, seconds=1)
    assert row[MEASURED] == 2.0  # The median of 3, 2 and 1.5.
    assert row[PROCESSOR] == 4.0
    assert row["ms"] == 4000 and row["repeats"] == 3
    assert (row["forward"], row["backward"]) == (2 + 3, 3)
    assert row[PREDICTED] == pytest.approx((5 + 2 * 3) / (4 + 2 * 3))
    assert row[EXCESS] == pytest.approx(2.0 / 1.1)


def test_targets_of_algorithms_are_reached_or_not():
    table = [
        {"network": "MLP", "algorithm": str(excess), EXCESS: excess}
        for excess in (0.5, 2.0, 2.01, float("nan"))
    ]
    for busy, reached in ((False, ["yes", "yes", "no", "no"]), (True, ["open"] * 4)):
        judged = neural_algorithms.targets(table, busy=busy)
        assert [row["reached"] for row in judged] == reached


def test_tables_and_figure_of_algorithms_are_written(made_up, tmp_path, capsys):
    works = [WORK, Work(6, 5, 3, num_clusters=2, image=4, channels=(2,))]
    names, options = ("ifca", "local"), Options(out=tmp_path)
    summary = neural_algorithms.main(names, works, options, repeats=2, seconds=1)
    assert "CNN, local" in capsys.readouterr().err
    found = read_csv(tmp_path / "algorithms.csv")
    rows = [(row["network"], row["algorithm"]) for row in found]
    assert rows == [(network, name) for network in ("MLP", "CNN") for name in names]
    assert len(read_csv(tmp_path / "algorithm_targets.csv")) == 4
    assert len(summary["files"]) == 5
    ends = ("svg", "pdf", "png")
    assert all((tmp_path / f"algorithms.{end}").exists() for end in ends)
    assert "a backward pass 2" in summary["headline"]
    json.dumps(plain(summary), allow_nan=False)


def test_names_are_all_or_those_between_commas():
    assert neural_algorithms.names("all") == tuple(REGISTRY)
    assert neural_algorithms.names("clove, ifca") == ("clove", "ifca")
    assert neural_algorithms.names("") == ()
    with pytest.raises(ValueError, match="got 'ifka'; nearest: ifca"):
        neural_algorithms.names("clove,ifka")
    with pytest.raises(ValueError, match="`algorithms` must"):
        neural.Config(algorithms="clove,")


def test_the_flag_chooses_the_benchmark(monkeypatch, tmp_path):
    seen = []
    look = lambda *given, **_: seen.append(given[:2]) or {}
    monkeypatch.setattr(neural_algorithms, "main", look)
    asked: dict = {"algorithm_clients": 7, "algorithm_samples": 3, "mlp_hidden": 9}
    config = neural.Config(algorithms="ifca", algorithm_channels=(2,), **asked)
    assert neural.main(config, Options(out=tmp_path)) == {}
    ((chosen, works),) = seen
    assert chosen == ("ifca",)
    sizes = lambda one: (one.name, one.num_clients, one.num_samples, one.hidden)
    assert [sizes(one) for one in works] == [("MLP", 7, 3, 9), ("CNN", 7, 3, 9)]
    assert neural.preset("quick").algorithms == ""


def test_runs_that_are_saved_are_whole_runs(monkeypatch, tmp_path):
    """None goes on from another one's file: each saves what it says it does."""
    saved = []
    original = Checkpoint.write

    def noted(self, done):
        original(self, done)
        saved.append(done.rounds)

    monkeypatch.setattr(Checkpoint, "write", noted)
    sizes: dict[str, Any] = {"num_clients": 4, "num_samples": 4, "channels": ()}
    config = checkpoints.Config(**sizes, algorithms=("local",), num_rounds=3, repeats=2)
    summary = checkpoints.main(config, Options(out=tmp_path))
    assert saved == [3, 1, 2, 3] * 3  # At the end, after each; once to compile.
    (row,) = summary["rows"]
    assert row["file, MiB"] == pytest.approx(
        4 * 4 * (785 * 200 + 2010) / 2**20, rel=0.05
    )
    both = row["portions, %"] + row["saves, %"]
    assert row["together, %"] == pytest.approx(both)


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_every_algorithm_is_made_from_its_row(name):
    algorithm = neural_algorithms.build(name, WORK)
    assert neural_algorithms.passes(name, WORK).units > 0
    assert callable(algorithm.step)


@pytest.mark.slow
def test_the_third_round_is_what_runs():
    program = neural_algorithms.third_round("local", WORK)
    algorithm, data = neural_algorithms.build("local", WORK), client_data(WORK)
    states = [jax.jit(algorithm.init)(jax.random.key(0), data)]
    for index in (1, 2, 3):
        states.append(algorithm.step(jax.random.key(index), states[-1], data)[0])
    begins, ends = program.arguments[1], program()[0]
    close = lambda a, b: np.allclose(a, b, atol=1e-6)
    same = lambda *pair: jax.tree.all(jax.tree.map(close, *pair))
    assert same(begins, states[2]) and same(ends, states[3])
    assert not same(begins, states[1])  # Control.


# Peers

PEERS = configured(
    "peers",
    "--mlp-clients 6 --mlp-samples 7 --mlp-steps 2 --mlp-hidden 5 --num-clusters 2"
    " --cnn-clients 3 --cnn-samples 7 --batch-size 4 --cnn-channels 2 --cnn-hidden 5"
    " --image 8 --clients-per-chunk 4 --repeats 2",
)
# FedJAX hands over buffers that this JAX cannot use again, and says so.
tolerates_fedjax = pytest.mark.filterwarnings("ignore:Some donated buffers")


@pytest.fixture
def makers(monkeypatch):
    """From a work to how each installed implementation makes it, but this library; in
    JAX as it is in processes of their own."""
    monkeypatch.setattr(jax, "tree_map", jax.tree.map, raising=False)  # As FedJAX asks.

    def found(work):
        every = peers_jobs.implementations(work, None).items()
        return {
            name: own.make
            for name, own in every
            if name != peers_jobs.OURS
            and (own.package is None or importlib.util.find_spec(own.package))
        }

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Of syntax, when it is first compiled.
        if importlib.util.find_spec("fedjax"):
            importlib.import_module("fedjax")
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        yield found


def models_of(work, found):
    return found if isinstance(found, list) else in_torch_layout(work, found)


slow = pytest.mark.slow


@tolerates_fedjax
@pytest.mark.parametrize(
    "name",
    ["ifca_mlp", *(pytest.param(n, marks=slow) for n in ("fedavg_mlp", "fedavg_cnn3"))],
)
def test_peers_compute_the_same(name, makers):
    work = PEERS.work(name).without_chance()
    start = peers.start_of(work, None)
    before = in_torch_layout(work, start.models)
    expected = models_of(work, peers_jobs.ours(work, start)())
    made = {name: make(work, start)() for name, make in makers(work).items()}
    differ = lambda own: peers.difference(models_of(work, own), expected, before)
    assert all(differ(own) < peers.ROUNDING for own in made.values())
    if work.chooses:  # Both models were chosen, so that both are averaged apart.
        moved = np.max(np.abs(expected[0] - before[0]), axis=(1, 2))
        assert np.all(moved > 0)
    # Control: a step less, a client less, a longer step.
    for change in ({"num_steps": 1}, {"num_clients": 2}, {"step_size": 0.055}):
        other = dataclasses.replace(work, **change)
        assert differ(peers_jobs.looped(other, fewer(start, other))()) > peers.ROUNDING


def fewer(start, work):
    number = work.num_clients
    return start._replace(images=start.images[:number], labels=start.labels[:number])


@slow
@tolerates_fedjax
def test_an_epoch_has_a_step_for_every_batch(makers):
    """Of equal samples, so that their order does not matter: 7 in batches of 4."""
    batches = dataclasses.replace(PEERS.work("fedavg_cnn3"), channels=())
    steps = dataclasses.replace(batches, batch_size=None, num_steps=2)
    start = peers.start_of(steps, None)
    repeated = lambda leaf: np.repeat(leaf[:, :1], 7, axis=1)
    start = start._replace(images=repeated(start.images), labels=repeated(start.labels))
    before = in_torch_layout(steps, start.models)
    expected = models_of(steps, peers_jobs.looped(steps, start)())
    for make in (peers_jobs.ours, *makers(batches).values()):
        own = models_of(batches, make(batches, start)())
        assert peers.difference(own, expected, before) < peers.ROUNDING
        # Control: a third step.
        more = dataclasses.replace(batches, batch_size=3)
        own = models_of(more, make(more, start)())
        assert peers.difference(own, expected, before) > 0.1


def test_a_clone_of_pfllib_trains_on_the_clients_files(tmp_path, monkeypatch):
    """With a client in its place that moves its model by a number of its file."""
    torch = pytest.importorskip("torch")
    clients = tmp_path / "system" / "flcore" / "clients"
    clients.mkdir(parents=True)
    (clients / "clientavg.py").write_text(
        """
import copy
import numpy as np

class clientAVG:
    def __init__(self, args, id, train_samples, test_samples, **kwargs):
        self.model, self.id = copy.deepcopy(args.model), id
        self.rate = args.local_learning_rate * args.local_epochs

    def set_parameters(self, model):
        for own, new in zip(self.model.parameters(), model.parameters()):
            own.data = new.data.clone()

    def train(self):
        path = f"../dataset/peers/train/{self.id}.npz"
        data = np.load(path, allow_pickle=True)["data"].tolist()
        for weight in self.model.parameters():
            weight.data += self.rate * float(data["x"].mean() + data["y"][0])
"""
    )
    monkeypatch.setattr("sys.path", [*sys.path])
    with monkeypatch.context() as patched:
        for name in ("flcore", "flcore.clients", "flcore.clients.clientavg"):
            patched.setitem(sys.modules, name, None)  # To be forgotten afterwards.
            del sys.modules[name]
        config = dataclasses.replace(PEERS, pfllib=tmp_path)
        work = config.work("fedavg_mlp")
        assert peers_jobs.PFLLIB not in peers_jobs.implementations(
            config.work("ifca_mlp"), tmp_path
        )
        start = peers.start_of(work, None)
        own = peers_jobs.implementations(work, tmp_path)[peers_jobs.PFLLIB]
        job = own.make(work, start)
        found = [job(), job()][-1]  # The second begins where the first did.
    moved = (
        work.step_size * 2 * np.mean(start.images.mean((1, 2, 3)) + start.labels[:, 0])
    )
    for model, before in zip(found, in_torch_layout(work, start.models), strict=True):
        np.testing.assert_allclose(model - before, moved, rtol=1e-4)
    assert torch.is_grad_enabled()


def test_operations_of_a_round_by_hand():
    first, second = 2 * 64 * 5, 2 * 5 * 10
    step = 2 * first + 3 * second  # No gradient of the images.
    assert PEERS.work("fedavg_mlp").flops() == 6 * 7 * 2 * step
    choice = 2 * (first + second)
    assert PEERS.work("ifca_mlp").flops() == 6 * 7 * (2 * step + choice)
    layers = 2 * 9 * 2 * 64, 2 * 2 * 16 * 5, 2 * 5 * 10
    assert PEERS.work("fedavg_cnn3").layer_flops() == list(layers)
    assert PEERS.work("fedavg_cnn3").flops() == 3 * 7 * (3 * sum(layers) - layers[0])


def made_of(seconds, difference=0.0):
    times = timing.Times(np.array(seconds), np.array(seconds))
    return peers.Found(times, 9.0, {"peak": 3.0, "round": 1.0}, difference)


def test_peers_are_compared_by_image_and_beside_the_limit():
    work = dataclasses.replace(
        PEERS.work("fedavg_cnn3"), num_samples=500, batch_size=64
    )
    found = {
        peers_jobs.OURS: made_of([1.0, 2.0, 6.0]),
        peers_jobs.FEDJAX: made_of([2.048, 4.096, 6.144]),
        peers_jobs.LOOP: made_of([5.0, 6.0, 4.0]),
        peers_jobs.POOL: made_of([0.1] * 3, 0.03),
        peers_jobs.VMAP: made_of([0.1] * 3, float("nan")),
    }
    everybody = peers_jobs.implementations(work, None)
    rows = {
        row["implementation"]: row
        for row in peers.rows_of(work, everybody, found, work.flops() / 0.5)
    }
    ours, fedjax = rows[peers_jobs.OURS], rows[peers_jobs.FEDJAX]
    assert (ours["images"], fedjax["images"]) == (3 * 500, 3 * 512)
    assert ours["limit, s"] == pytest.approx(0.5)
    assert ours[peers.SHARE] == pytest.approx(0.25)
    assert fedjax[peers.SHARE] == pytest.approx(0.5 * 512 / 500 / 4.096)
    assert fedjax[peers.RATIO] == 1 > rows[peers_jobs.LOOP][peers.RATIO]
    assert ours[peers.RATIO] == pytest.approx(2.0)  # The median of 2, 2 and 1.
    for name in (peers_jobs.POOL, peers_jobs.VMAP):  # They compute something else.
        assert not rows[name]["same weights"]
        assert peers.RATIO not in rows[name] and peers.SHARE not in rows[name]
    clone = peers_jobs.implementations(work, pathlib.Path("clone"))[peers_jobs.PFLLIB]
    assert clone.images(500, 64) == 448


@pytest.mark.parametrize("is_wrong", [False, True])
def test_whoever_computes_something_else_fails(is_wrong, tmp_path, monkeypatch):
    def measured(work, pool, config, peak, bar):
        everybody = peers_jobs.implementations(work, None)
        found = {
            peers_jobs.OURS: made_of([1.0]),
            peers_jobs.LOOP: made_of([2.0], 0.1 * is_wrong),
        }
        return peers.rows_of(work, everybody, found, peak), ["FedJAX: left out."]

    monkeypatch.setattr(peers, "_measured", measured)
    monkeypatch.setattr(peers, "square_peak", lambda sizes: (4, 1e9))
    summary = peers.main(PEERS, Options(out=tmp_path))
    rows = read_csv(tmp_path / "table.csv")
    assert [row["work"] for row in rows] == [n for n in PEERS.works for _ in range(2)]
    assert summary["failed_cells"] == 4 * is_wrong
    said = "PyTorch, loop computes something else" in summary["headline"]
    assert said == is_wrong and "FedJAX: left out." in summary["notes"]
    assert (rows[0][peers.RATIO] is None) == is_wrong
    assert all((tmp_path / f"times.{end}").exists() for end in ("svg", "pdf", "png"))
    json.dumps(plain(summary), allow_nan=False)


@slow
def test_every_peer_is_asked_in_a_process_of_its_own(tmp_path):
    config = dataclasses.replace(PEERS, works=("fedavg_mlp", "fedavg_cnn3"))
    summary = peers.main(config, Options(out=tmp_path, progress=False))
    assert not summary["failed_cells"] and len(summary["rows"]) >= 2 * 3
    for row in summary["rows"]:
        assert row["s"] > 0 and row["repeats"] == 2 and row["first round, s"] > 0
        assert row["peak, MiB"] > row["peak of rounds, MiB"] > 0
    ours = [row for row in summary["rows"] if row["implementation"] == peers_jobs.OURS]
    assert [row[peers.DIFFERENCE] for row in ours] == [0.0, 0.0]


def test_a_process_that_fails_leaves_its_last_words():
    with (
        Process("experiments.bench.nothing", []) as process,
        pytest.raises(
            RuntimeError, match=r"No module named experiments\.bench\.nothing"
        ),
    ):
        process.ask("round")


def test_images_of_another_size_are_refused(tmp_path, monkeypatch):
    arrays = SimpleNamespace(train_inputs=np.zeros((60, 28, 28), np.uint8))
    found = lambda *_, **__: SimpleNamespace(arrays=arrays)
    monkeypatch.setattr(peers, "find_images", found)
    options = Options(out=tmp_path, data=tmp_path)
    with pytest.raises(
        ValueError, match="42 images of 8 x 8 pixels, got 60 of 28 x 28"
    ):
        peers.main(PEERS, options)


def test_the_fastest_square_product_is_told():
    size, rate = peers.square_peak((8, 64))
    assert size in (8, 64) and 0 < rate < 1e14


# Bars


def test_bars_are_as_long_as_the_numbers(tmp_path):
    values = {"measured": np.array([1.0, np.nan]), "predicted": np.array([2.0, 3.0])}
    panel = BarPanel(["a", "b"], values, "time", title="MLP", limit=("least", 0.5))
    figure = bars([panel])
    drawn: list[Any] = list(figure.axes[0].patches)
    assert list(np.ravel(figure.axes[0].lines[0].get_xdata())) == [0.5, 0.5]
    shown = [text.get_text() for text in figure.legends[0].get_texts()]
    assert shown == ["measured", "predicted", "least"]
    lengths = [bar.get_width() for bar in drawn]
    assert lengths == [1.0, 0.0, 2.0, 3.0]
    first, again = (save(figure, tmp_path / name) for name in ("a", "b"))
    for one, other in zip(first, again, strict=True):
        assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize(
    "names, lengths, named", [(["a"], [1.0, 2.0], "series"), ([], [], "names")]
)
def test_bars_that_do_not_fit_are_refused(names, lengths, named):
    with pytest.raises(ValueError, match=f"`{named}` must hold"):
        BarPanel(names, {"measured": np.array(lengths)}, "time")


def test_panels_of_other_series_are_refused():
    panel = lambda *kinds: BarPanel(["a"], {k: np.ones(1) for k in kinds}, "time")
    with pytest.raises(ValueError, match="same series"):
        bars([panel("measured"), panel("predicted")])
    with pytest.raises(ValueError, match="same series"):
        bars([])
    with pytest.raises(ValueError, match="at most 7 series, got 8"):
        bars([panel(*map(str, range(8)))])
