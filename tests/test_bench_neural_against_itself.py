"""The benchmark of neural training: equal work, whole tables, honest ratios."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from cfljax.report import read_csv
from experiments.__main__ import plain
from experiments.bench import neural, neural_jobs, neural_report, torch_neural
from experiments.bench.neural_child import measure
from experiments.bench.neural_jobs import Work
from experiments.options import Options

MLP = Work(5, 6, 2, num_clusters=2, image=8, hidden=7, clients_per_chunk=2)
CNN = dataclasses.replace(MLP, channels=(2, 3))
TINY = neural.Config(
    mlp_clients=(2, 5),
    mlp_samples=6,
    mlp_steps=2,
    mlp_hidden=7,
    cnn_clients=(),
    image=8,
    num_clusters=2,
    clients_per_chunk=2,
    loss_chunks=(2,),
    repeats=2,
)


@pytest.fixture
def without_torch(monkeypatch):
    monkeypatch.setattr(torch_neural, "available", lambda: False)


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
    expected = torch_neural.in_torch_layout(work, trained)
    for job in torch_neural.training(work).values():
        for _ in range(2):  # A repeat starts from the same models again.
            found = [leaf.detach().numpy() for leaf in job()]
            assert distance(found, expected) < 1e-6
    # Control: one step less is not the same.
    fewer = torch_neural.training(dataclasses.replace(work, num_steps=1))
    shorter = [leaf.detach().numpy() for leaf in fewer["PyTorch, loop"]()]
    assert distance(shorter, expected) > 1e-4


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
    summary = neural.main(TINY, Options(out=tmp_path))
    rows = read_csv(tmp_path / "training.csv")
    assert {row["clients"] for row in rows} == {2, 5}
    for row in rows:
        per_round = row["ms per client-step"] * row["clients"] * TINY.mlp_steps / 1e3
        assert row["rounds/s"] * per_round == pytest.approx(1)
    assert {row["what"] for row in rows} >= {"cfljax, sequential", "cfljax, batched"}
    assert not any("PyTorch" in row["what"] for row in rows)
    assert "PyTorch is not installed" in summary["headline"]
    losses = read_csv(tmp_path / "losses.csv")
    assert losses[0][neural_report.SPEED] == 1
    assert all((tmp_path / name).exists() for name in ("training.svg", "growth.csv"))
    assert len(summary["files"]) == 8
    json.dumps(plain(summary), allow_nan=False)


def test_growth_tells_proportional_times_from_others():
    def rows(power):
        return [
            {"network": "MLP", "what": "a", "clients": c, "rounds/s": 1 / c**power}
            for c in (25, 120, 1200)
        ]

    (linear,) = neural_report.growth(rows(1))
    assert linear["per client, ms"] == pytest.approx(1e3)
    assert linear["exponent"] == pytest.approx(1)
    assert linear["largest deviation"] < 1e-9
    (square,) = neural_report.growth(rows(2))
    assert square["exponent"] == pytest.approx(2)
    assert square["largest deviation"] > 0.1
    (two,) = neural_report.growth(rows(1)[:2])
    assert two["largest deviation"] is None
    assert neural_report.growth(rows(1)[:1]) == []


def test_targets_are_reached_or_not():
    def tables(ratio, speed, seconds):
        training = {"network": "MLP", "clients": 5, "what": "cfljax, sequential"}
        compilation = {"network": "MLP", "cache": "warm", "the round, s": seconds}
        return {
            "training": [training | {neural_report.RATIO: ratio}],
            "losses": [{neural_report.SPEED: 1.0}, {neural_report.SPEED: speed}],
            "compilation": [compilation],
        }

    judged = lambda *values: neural_report.targets(tables(*values), busy=False)
    good, bad = judged(1.4, 0.7, 1.0), judged(1.2, 0.5, 3.0)
    assert [row["reached"] for row in good] == ["yes"] * 3
    assert [row["reached"] for row in bad] == ["no"] * 3
    unknown = judged(float("nan"), float("nan"), float("nan"))
    assert [row["reached"] for row in unknown] == ["no"] * 3
    beside_others = neural_report.targets(tables(1.4, 0.7, 1.0), busy=True)
    assert [row["reached"] for row in beside_others] == ["open"] * 3


def test_a_repeat_is_left_out_when_the_time_is_up():
    jobs = {"nothing": lambda: None}
    repeats = lambda seconds: [
        len(values)
        for values in neural.timed(jobs, repeats=3, seconds=seconds)["nothing"]
    ]
    assert repeats(60) == [3, 3]
    assert repeats(0) == [1, 1]


@pytest.mark.parametrize(
    "field, value",
    [("mlp_clients", ()), ("repeats", 0), ("seconds", -1.0), ("loss_chunks", (0,))],
)
def test_what_makes_no_sense_is_refused(field, value):
    with pytest.raises(ValueError, match=f"`{field}` must"):
        dataclasses.replace(TINY, **{field: value})


@pytest.mark.slow
def test_children_measure_more_for_more(tmp_path):
    cold, warm = (measure("compilation", MLP, folder=tmp_path) for _ in range(2))
    assert warm["round"] < 0.7 * cold["round"]
    small = measure("memory", MLP, folder=tmp_path)
    large = measure(
        "memory",
        dataclasses.replace(MLP, num_clients=600, image=28, num_samples=50, hidden=200),
        folder=tmp_path,
        order="batched",
    )
    if small:
        assert large["data"] == pytest.approx(600 * 50 * 784 * 4 / 2**20)
        assert large["peak"] > small["peak"]
    with pytest.raises(RuntimeError, match="measuring nothing failed"):
        measure("nothing", dataclasses.replace(MLP, num_clients=0), folder=tmp_path)
