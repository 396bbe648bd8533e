"""The benchmark of neural training: equal work, whole tables, honest ratios."""

import dataclasses
import json
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from cfljax.algorithms import REGISTRY
from cfljax.report import read_csv, save
from cfljax.report.figures import BarPanel, bars
from experiments.__main__ import plain
from experiments.bench import neural, neural_algorithms, neural_jobs, timing
from experiments.bench.neural_algorithms import EXCESS, MEASURED, PREDICTED, PROCESSOR
from experiments.bench.neural_jobs import Work, client_data, measure
from experiments.bench.timing import Times
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
    monkeypatch.setattr(timing, "has_torch", lambda: False)


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
    expected = neural_jobs.in_torch_layout(work, trained)
    for job in neural_jobs.torch_training(work).values():
        for _ in range(2):  # A repeat starts from the same models again.
            found = [leaf.detach().numpy() for leaf in job()]
            assert distance(found, expected) < 1e-6
    # Control: one step less is not the same.
    fewer = neural_jobs.torch_training(dataclasses.replace(work, num_steps=1))
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
    assert losses[0][neural.SPEED] == 1
    assert all((tmp_path / name).exists() for name in ("training.svg", "growth.csv"))
    assert len(summary["files"]) == 8
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
    jobs = {"nothing": lambda: None}
    repeats = lambda seconds: [
        len(values)
        for values in timing.timed(jobs, repeats=3, seconds=seconds)["nothing"]
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


WORK = Work(6, 5, 3, num_clusters=2, image=4, hidden=3)
SECONDS = {"unit": [1.0, 2.0, 8.0], "ifca": [3.0, 4.0, 12.0], "local": [1.0, 1.0, 1.0]}


@pytest.fixture
def made_up(monkeypatch):
    """Rounds that are never run, and times that are known."""

    def timed(jobs, *, repeats, seconds):
        half = lambda name: np.array(SECONDS[name][:repeats])
        return {name: Times(half(name), half(name) ** 2) for name in jobs}

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
    judged = lambda busy: [
        row["reached"] for row in neural_algorithms.targets(table, busy=busy)
    ]
    assert judged(False) == ["yes", "yes", "no", "no"]
    assert judged(True) == ["open"] * 4


def test_tables_and_figure_of_algorithms_are_written(made_up, tmp_path, capsys):
    works = [WORK, Work(6, 5, 3, num_clusters=2, image=4, channels=(2,))]
    summary = neural_algorithms.main(
        ("ifca", "local"), works, Options(out=tmp_path), repeats=2, seconds=1
    )
    assert "CNN, local" in capsys.readouterr().err
    found = read_csv(tmp_path / "algorithms.csv")
    assert [(row["network"], row["algorithm"]) for row in found] == [
        (network, name) for network in ("MLP", "CNN") for name in ("ifca", "local")
    ]
    assert len(read_csv(tmp_path / "algorithm_targets.csv")) == 4
    assert len(summary["files"]) == 4
    assert all(
        tmp_path.joinpath(f"algorithms.{end}").exists() for end in ("svg", "png")
    )
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
    monkeypatch.setattr(
        neural_algorithms, "main", lambda *given, **_: seen.append(given[:2]) or {}
    )
    config = neural.Config(
        algorithms="ifca",
        algorithm_clients=7,
        algorithm_samples=3,
        algorithm_channels=(2,),
        mlp_hidden=9,
    )
    assert neural.main(config, Options(out=tmp_path)) == {}
    ((chosen, works),) = seen
    assert chosen == ("ifca",)
    sizes = lambda one: (one.name, one.num_clients, one.num_samples, one.hidden)
    assert [sizes(one) for one in works] == [("MLP", 7, 3, 9), ("CNN", 7, 3, 9)]
    assert neural.preset("quick").algorithms == ""


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_every_algorithm_is_made_from_its_row(name):
    algorithm = neural_algorithms.build(name, WORK)
    assert neural_algorithms.passes(name, WORK).units > 0
    assert callable(algorithm.step)


@pytest.mark.slow
def test_the_third_round_is_what_runs():
    program = neural_algorithms.third_round("local", WORK)
    algorithm, data = neural_algorithms.build("local", WORK), client_data(WORK)
    state = jax.jit(algorithm.init)(jax.random.key(0), data)
    states = [state]
    for index in (1, 2, 3):
        states.append(algorithm.step(jax.random.key(index), states[-1], data)[0])
    begins, ends = program.arguments[1], program()[0]
    same = lambda one, other: all(
        np.allclose(a, b, atol=1e-6)
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    )
    assert same(begins, states[2]) and same(ends, states[3])
    assert not same(begins, states[1])  # Control.


def test_bars_are_as_long_as_the_numbers(tmp_path):
    values = {"measured": np.array([1.0, np.nan]), "predicted": np.array([2.0, 3.0])}
    figure = bars([BarPanel(["a", "b"], values, "time", title="MLP")])
    drawn: list[Any] = list(figure.axes[0].patches)
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
