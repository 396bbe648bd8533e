"""IFCA on rotated images: Table 1 of MNIST and CIFAR, and Figure 4."""

import csv
import dataclasses
import functools
import importlib
import json
import os
import pathlib
import subprocess
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from toy_experiments import configured, files, labels, pick, run_twice

from cfljax import engine
from cfljax.algorithms import fedavg, ifca, local
from cfljax.base.types import ClientData
from cfljax.data import mixed_linear
from cfljax.models import linear, mlp
from cfljax.report import read_csv
from experiments import study
from experiments.ifca import fig4, rotated, table1
from experiments.ifca.rotated_report import (
    NAMES,
    draw,
    markdown,
    published_number,
    rows,
    size_of,
)
from experiments.images import Loaded, find_images
from experiments.options import Options

checkpoints = importlib.import_module("cfljax.engine.checkpoints")

MNIST = table1.load("ifca.table1_mnist")
TASK = mlp((2, 2), hidden=(3,), num_classes=3)
SMALL = configured(
    "ifca.table1_mnist",
    "--num-clients 8 --num-samples 5 --num-test-clients 8 --num-rounds 4"
    " --rounds-between 2 --num-hidden 6 --num-steps 2 --num-trials 2",
)


@pytest.fixture
def no_data(tmp_path, monkeypatch):
    """No folder of images is named or found."""
    monkeypatch.delenv("CFLJAX_DATA", raising=False)
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "none"))


def some_clients(num_clients: int = 6, num_samples: int = 4) -> ClientData:
    key = jax.random.key(5)
    inputs = jax.random.uniform(key, (num_clients, num_samples, 2, 2))
    targets = jax.random.randint(key, (num_clients, num_samples), 0, 3)
    return ClientData(inputs, targets, jnp.ones((num_clients, num_samples), bool))


def some_models(count: int):
    random = np.random.default_rng(3)
    shapes = jax.eval_shape(TASK.init, jax.random.key(0))
    draw = lambda leaf: jnp.float32(random.normal(size=(count, *leaf.shape)))
    return jax.tree.map(draw, shapes)


def logits(models, index: int, inputs) -> np.ndarray:
    """What model `index` answers, computed by hand."""
    layers = jax.tree.map(np.asarray, models["layers"])
    first, last = (pick(layers[i], index) for i in range(2))
    hidden = np.asarray(inputs).reshape(-1, 4) @ first["kernel"] + first["bias"]
    return np.maximum(hidden, 0) @ last["kernel"] + last["bias"]


def rights(models, choice, data: ClientData) -> np.ndarray:
    """Whether the model that each client chose is right, `[clients, samples]`."""
    scores = [logits(models, j, data.inputs[i]) for i, j in enumerate(choice)]
    return np.argmax(scores, axis=2) == np.asarray(data.targets)


def choices(models, data: ClientData, number: int = 3) -> list[int]:
    """Of each client, the one of so many models with the least mean loss."""
    losses = []
    for j in range(number):
        scores = [np.exp(logits(models, j, own)) for own in data.inputs]
        sums = np.sum(scores, axis=2)
        targets = np.asarray(data.targets)[..., None]
        own = np.take_along_axis(np.array(scores), targets, axis=2)[..., 0]
        losses.append(-np.log(own / sums).mean(axis=1))
    return np.argmin(losses, axis=0).tolist()


best = functools.partial(rotated.accuracy_of_best, TASK, clients_per_chunk=4)
best_of = jax.jit(best)


@pytest.mark.long
def test_accuracy_of_best_against_a_loop():
    models, data = some_models(3), some_clients()
    best = choices(models, data)
    assert len(set(best)) > 1  # Else any fixed choice would pass.
    right = rights(models, best, data).mean()
    np.testing.assert_allclose(best_of(models, data).own_labels, right, rtol=1e-6)
    assert abs(right - rights(models, [0] * 6, data).mean()) > 1e-3


def test_held_out_accuracy_against_a_loop():
    models, data = some_models(3), some_clients()
    seen, rest = pick(data, np.s_[:, :2]), pick(data, np.s_[:, 2:])
    best = choices(models, seen)
    right = rights(models, best, rest).mean()
    np.testing.assert_allclose(best_of(models, data).held_out, right, rtol=1e-6)
    # Where it was chosen.
    assert abs(right - rights(models, best, seen).mean()) > 1e-3


def test_accuracy_of_each_against_a_loop():
    models, data = some_models(4), some_clients()
    right = np.array([rights(models, [j] * 6, data) for j in range(4)])
    own = [*right[:2, :3].mean(axis=(1, 2)), *right[2:, 3:].mean(axis=(1, 2))]
    result = rotated.accuracy_of_each(TASK, models, jnp.array([0, 0, 1, 1]), data, 2)
    np.testing.assert_allclose(result, own, rtol=1e-6)
    last = rotated.accuracy_of_each(TASK, models, jnp.ones(4, int), data, 2)
    np.testing.assert_allclose(last, right[:, 3:].mean(axis=(1, 2)), rtol=1e-6)
    assert np.abs(last - result).max() > 1e-3


def test_a_diverged_model_is_never_chosen_nor_right():
    models, data = some_models(3), some_clients()
    spoiled = jax.tree.map(lambda leaf: leaf.at[0].set(jnp.nan), models)
    doubled = jax.tree.map(lambda leaf: leaf.at[0].set(leaf[1]), models)
    np.testing.assert_array_equal(best_of(spoiled, data), best_of(doubled, data))
    assert min(best_of(spoiled, data)) > 0
    lost = jax.tree.map(lambda leaf: leaf * jnp.nan, models)
    assert tuple(best_of(lost, data)) == (0, 0)


def digits(name: str = "digits") -> Loaded:
    """The embedded images, by another name for tests of what stands beside it."""
    images = find_images("digits", Options(out=pathlib.Path("unused")), fall_back=False)
    return dataclasses.replace(images, name=name)


def mnist_trial(config: table1.MnistConfig, images: Loaded) -> rotated.Trial:
    """Of the first setting."""
    return table1.mnist_grids(config, images)[0].trial


def filled(dims, axes, values):
    """The same values for every output; axes are those of a cell, trial and round."""
    of = {0: (axes[:-1], values[..., 0]), 1: (axes, values)}
    return {name: of[len(own)] for name, own in dims.items()}


def made_up_result(images: str = "mnist") -> rotated.Result:
    """Results of the paper's first setting: 90, 80 and 70 per cent, less before."""
    config = dataclasses.replace(table1.mnist_preset("paper"), num_trials=2)
    trial = mnist_trial(config, digits(images))
    rounds = np.arange(10, 301, 10)
    axes = ("algorithm", "repetition", "trial", "round")
    levels = np.array([0.9, 0.8, 0.7])[:, None, None, None]
    accuracy = levels - 0.1 / rounds + np.array([0, 0.01])[:, None, None]
    data = filled(rotated.DIMS, axes, np.ones((3, 2, 1, 30)))
    coords = {"algorithm": list(rotated.ALGORITHMS), "round": rounds}
    data |= {"accuracy": (axes, accuracy)}
    return rotated.Result(trial, xr.Dataset(data, coords))


def test_another_setting_names_the_papers_nearest():
    result = made_up_result()
    sizes = {"num_clients": 60, "num_local_clients": 60, "num_participants": 60}
    trial = dataclasses.replace(result.trial, **sizes, num_samples=25)
    text = markdown(rows(dataclasses.replace(result, trial=trial)))
    assert "94.20 ± 0.03 | 4800 x 50" in text
    (panel,) = draw([dataclasses.replace(result, trial=trial)], "a title").axes
    assert not any("paper" in str(line.get_label()) for line in panel.lines)


def test_published_local_numbers_stand_beside_both_forms_of_local_models():
    result = made_up_result()
    table = rows(result)
    paper = [(row["label"], row["round"], row["paper_mean"]) for row in table]
    assert paper == [
        ("IFCA", 300, 94.2),
        ("global", 300, 86.74),
        ("local", 300, 63.32),
        ("local, 10 rounds (as released)", 10, 63.32),
    ]
    assert [row["size"] for row in table] == 3 * ["paper"] + ["paper, as released"]
    text = markdown(table)
    assert text.count("63.32") == 2 and "may stem from 10 rounds" in text
    alone = rotated.Result(result.trial, result.data.isel(round=[-1]))
    assert "released" not in markdown(rows(alone))


def test_a_run_of_fewer_rounds_is_reduced_but_for_local_models_as_released():
    """Two seeds of five: what has the paper's size has an unknown spread."""
    result = made_up_result()
    short = dataclasses.replace(result.trial, num_rounds=20)
    table = rows(rotated.Result(short, result.data.isel(round=slice(2))))
    heads = [(row["label"], row["size"], row["verdict"].split(",")[0]) for row in table]
    short, few = "20 of 300 rounds", "reduced (2 of 5 seeds)"
    assert heads == [
        ("IFCA", short, few),
        ("global", short, few),
        ("local", short, few),
        ("local, 10 rounds (as released)", "paper, as released", "spread unknown"),
    ]
    ten = dataclasses.replace(result.trial, num_rounds=10)
    both = rows(rotated.Result(ten, result.data.isel(round=[0])))[2:]
    assert [row["size"] for row in both] == ["10 of 300 rounds", "paper, as released"]


def test_published_numbers_are_levels_of_the_figure_and_no_curves():
    (axes,) = draw([made_up_result()], "a title").axes
    assert axes.get_title() == "Rotated MNIST, 4800 clients x 50 samples"
    lines = {str(line.get_label()): line for line in axes.get_lines()}
    assert {*labels(axes)} == {"IFCA", "global", "local"}
    for name, value in (("IFCA", 94.2), ("global", 86.74), ("local", 63.32)):
        level = lines[f"_{name}, paper"]
        np.testing.assert_array_equal(level.get_ydata(), [value, value])
        assert level.get_color() == lines[name].get_color()
    (other,) = draw([made_up_result("fashion_mnist")], "a title").axes
    assert other.get_title().startswith("Rotated Fashion-MNIST, ")
    assert len(other.get_lines()) == 3


@pytest.mark.slow
def test_global_baseline_weighs_clients_alike():
    """IFCA's averages count clients, FedAvg's their samples."""
    trial = mnist_trial(SMALL, digits())
    trial = dataclasses.replace(trial, algorithm="fedavg", num_steps=1)
    data = some_clients()
    uneven = data._replace(mask=data.mask.at[0, 1:].set(False))
    key = jax.random.key(2)

    def after_a_round(algorithm) -> np.ndarray:
        state, _ = engine.run(algorithm, key, uneven, num_rounds=1)
        return np.asarray(jax.tree.leaves(state.model)[0])

    ours, _ = rotated.algorithm_of(TASK, trial)
    settings = {"step_size": trial.step_size, "num_steps": 1}
    alike = after_a_round(fedavg(TASK, weights="clients", **settings))
    by_samples = after_a_round(fedavg(TASK, **settings))
    np.testing.assert_array_equal(after_a_round(ours), alike)
    assert np.abs(alike - by_samples).max() > 1e-6


@pytest.mark.slow
@pytest.mark.usefixtures("no_data")
def test_command_writes_all_and_resumes_and_ifca_of_one_cluster_is_fedavg(
    tmp_path, refuse_work
):
    config = dataclasses.replace(SMALL, num_clusters=1)
    summary = run_twice(MNIST.main, config, tmp_path, refuse_work)
    assert "NOT mnist" in summary["headline"] and "digits" in summary["images"]
    row, fedavg, local = summary["rows"]
    assert (row["algorithm"], row["round"], row["trials"]) == ("ifca", 4, 2)
    assert row["paper_mean"] is None and row["found"] == 2
    np.testing.assert_allclose(row["accuracy_mean"], fedavg["accuracy_mean"], rtol=1e-5)
    assert abs(row["accuracy_mean"] - local["accuracy_mean"]) > 1e-3
    names = {"table.csv", "runs.csv", "table.md", "config.json"}
    names |= {f"accuracy.{kind}" for kind in ("svg", "pdf", "png", "txt")}
    assert files(summary) == names
    assert markdown(summary["rows"]) in summary["headline"]
    runs = [run["accuracy"] for run in read_csv(tmp_path / "runs.csv")]
    assert len(runs) == 6
    np.testing.assert_allclose(np.mean(runs[:2]), row["accuracy_mean"])
    assert runs[0] != runs[1]  # Seeds differ.


@pytest.mark.usefixtures("no_data")
def test_missing_images_are_an_error_unless_one_may_fall_back(tmp_path):
    strict = dataclasses.replace(SMALL, fall_back=False)
    with pytest.raises(FileNotFoundError, match="No data of `mnist`"):
        MNIST.main(strict, Options(out=tmp_path))
    with pytest.raises(FileNotFoundError, match="No data of `mnist`"):
        MNIST.main(SMALL, Options(out=tmp_path, data=tmp_path))


def test_sizes_that_the_images_do_not_allow_are_refused_at_once(tmp_path):
    big = dataclasses.replace(SMALL, images="digits", num_samples=(800,))
    with pytest.raises(ValueError, match="images per cluster, got 1437"):
        MNIST.main(big, Options(out=tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_tests_must_divide_the_rounds():
    trial = mnist_trial(SMALL, digits())
    assert isinstance(trial, rotated.Trial)
    with pytest.raises(ValueError, match="`rounds_between` must divide"):
        dataclasses.replace(trial, rounds_between=3)


def test_published_numbers_against_reference(shared):
    with (shared / "published" / "numbers.csv").open(newline="") as file:
        theirs = [
            (row["setting"], row["algorithm"], float(row["mean"]), float(row["std"]))
            for row in csv.DictReader(file)
            if (row["item"], row["dataset"]) == ("Table 1", "Rotated MNIST")
        ]
    config = table1.mnist_preset("paper")
    ours = []
    for grid in table1.mnist_grids(config, digits("mnist")):
        trial = grid.trial
        assert trial.num_clients * trial.num_samples == 60000 * 4
        assert trial.num_test_clients * trial.num_samples == 10000 * 4
        for algorithm, name in NAMES.items():
            cell = published_number(trial, algorithm)
            assert cell is not None
            assert size_of(trial, algorithm).is_paper
            sizes = f"{trial.num_clients} x {trial.num_samples}"
            assert cell.setting == f"clients x samples {sizes}"
            ours.append((cell.setting, name, cell.mean, cell.std))
        for change in ({"num_rounds": 60}, {"num_hidden": 100}, {"num_samples": 25}):
            other = dataclasses.replace(trial, **change)
            assert published_number(other, "ifca") is not None
            assert size_of(other, "ifca").is_reduced
        digit = dataclasses.replace(trial, images="digits")
        assert published_number(digit, "ifca") is None
        assert size_of(digit, "ifca").other_data == "Rotated digits"
    assert sorted(ours) == sorted(theirs) and len(theirs) == 9


PAPER = table1.cifar_preset("paper")


def test_presets_are_the_released_setting():
    trial = table1.cifar_trial(PAPER, digits("cifar10"), "paper")
    assert (trial.num_clients, trial.num_samples, trial.num_clusters) == (200, 500, 2)
    assert (trial.num_participants, trial.num_rounds) == (20, 600)
    assert (trial.step_size, trial.decay, trial.batch_size) == (0.25, 0.99, 50)
    assert (trial.num_epochs, trial.num_test_clients) == (5, 40)
    assert rotated.LEAST_SHARE[2] == 0.35 and rotated.LEAST_SHARE[4] == 0.1


def test_published_numbers_stand_beside_the_published_setting_only():
    trial = table1.cifar_trial(PAPER, digits("cifar10"), "reference")
    for name, value in zip(NAMES, (81.51, 77.87, 33.97), strict=True):
        cell = published_number(trial, name)
        assert cell is not None and cell.mean == value
        assert size_of(trial, name).is_paper
    others = {"network": "narrow", "num_epochs": 4, "num_rounds": 300, "decay": 1.0}
    for change in ({name: value} for name, value in others.items()):
        assert not size_of(dataclasses.replace(trial, **change), "ifca").is_paper
    text = dataclasses.replace(trial, network="text", num_epochs=0, num_steps=5)
    assert size_of(text, "ifca").is_paper
    few = dataclasses.replace(trial, num_local_clients=100)
    assert size_of(few, "ifca").is_paper
    assert str(size_of(few, "local")) == "100 of 200 local clients"


@functools.cache
def starting(least_share: float, most_draws: int):
    """Compiled once for all seeds."""
    algorithm = rotated.with_balanced_start(
        ifca(TASK, num_clusters=2, step_size=0.1),
        TASK,
        lambda state: state.models,
        participation=1.0,
        least_share=least_share,
        most_draws=most_draws,
    )
    return jax.jit(lambda key: algorithm.init(key, some_clients()))


@pytest.mark.long
def test_starts_are_drawn_until_balanced():
    found = []
    for seed in range(4):
        now = starting(0.35, 50)(jax.random.key(seed))
        chosen = choices(now.state.models, some_clients(), 2)
        own = np.bincount(chosen, minlength=2) / 6
        np.testing.assert_allclose(now.share, own.min(), rtol=1e-6)
        assert own.min() >= 0.35
        found.append(int(now.draws))
    assert min(found) == 1 < max(found)  # Else nothing was filtered.


@pytest.mark.long
def test_a_start_that_is_never_balanced_is_the_last_draw():
    key = jax.random.key(0)
    now = starting(1.0, 3)(key)
    assert int(now.draws) == 3 and float(now.share) < 1
    init, clients = ifca(TASK, num_clusters=2, step_size=0.1).init, some_clients()
    third, first = init(jax.random.fold_in(key, 2), clients), init(key, clients)
    leaves = lambda state: np.asarray(jax.tree.leaves(state.models)[0])
    np.testing.assert_array_equal(leaves(now.state), leaves(third))
    assert np.abs(leaves(third) - leaves(first)).max() > 1e-3
    alone = starting(0.0, 3)(key)  # The first draw is the algorithm's own start.
    np.testing.assert_array_equal(leaves(alone.state), leaves(first))


@pytest.mark.parametrize(
    ("least_share", "most_draws", "message"),
    [(1.5, 3, "`least_share` must be in"), (0.35, 0, "`most_draws` must be at least")],
)
def test_impossible_filters_are_refused(least_share, most_draws, message):
    with pytest.raises(ValueError, match=message):
        starting(least_share, most_draws)


@pytest.mark.long
def test_groups_in_turn_are_runs_of_each_and_go_on_in_any_of_them(
    tmp_path, monkeypatch
):
    groups, size = 3, 2
    data, _ = mixed_linear(
        jax.random.key(1),
        num_clients=groups * size,
        num_samples=5,
        num_clusters=2,
        num_features=3,
        separation=1.0,
        noise=0.1,
    )
    each = jax.tree.map(lambda leaf: leaf.reshape(groups, size, *leaf.shape[1:]), data)
    own, key = local(linear(3), step_size=0.1), jax.random.key(2)
    trial = types.SimpleNamespace(num_rounds=4, rounds_between=2)
    play = functools.partial(study.run_with_tests, observe=lambda state, info: ())
    expected = [
        play(
            trial,
            own,
            jax.random.fold_in(key, group),
            jax.tree.map(lambda leaf, group=group: leaf[group], each),
            test=lambda state: state.models,
        )[2]
        for group in range(groups)
    ]

    def together(file=None):
        in_turn = rotated.groups_in_turn(own, groups, 4, 2)
        lanes = jax.tree.map(rotated._one_after_the_other, each)
        long = types.SimpleNamespace(num_rounds=12, rounds_between=2)
        start = in_turn.init(key, lanes)
        models = lambda state: state.own.models
        saved = {"checkpoint": file, "every": 0.0}
        return play(long, in_turn, key, lanes, test=models, state=start, **saved)[2]

    found = jax.tree.leaves(together())
    rows = jax.tree.leaves(jax.tree.map(lambda *own: jnp.concatenate(own), *expected))
    for mine, right in zip(found, rows, strict=True):
        np.testing.assert_array_equal(mine, right)
    # Cut in the middle of the second group.
    monkeypatch.setattr(checkpoints, "_SEGMENT", 0.0)
    write = checkpoints.Checkpoint.write
    seen = []

    def cut(self, done):
        write(self, done)
        seen.append(done.rounds)
        if done.rounds == 7:
            raise KeyboardInterrupt

    monkeypatch.setattr(checkpoints.Checkpoint, "write", cut)
    with pytest.raises(KeyboardInterrupt):
        together(tmp_path / "run.npz")
    again = jax.tree.leaves(together(tmp_path / "run.npz"))
    assert seen == list(range(1, 13))
    for mine, right in zip(again, rows, strict=True):
        np.testing.assert_array_equal(mine, right)


def test_local_models_are_taken_from_all_clusters_and_some_come_first():
    trial = table1.cifar_trial(table1.cifar_preset("quick"), digits(), "paper")
    sizes = {"num_clients": 12, "num_participants": 3, "num_local_clients": 6}
    trial = dataclasses.replace(trial, num_released=2, **sizes)
    clients, is_released = rotated._in_order(trial)
    assert clients is not None
    assert sorted(np.asarray(clients).tolist()) == [0, 2, 4, 6, 8, 10]
    assert np.asarray(clients)[np.asarray(is_released)].tolist() == [0, 6]
    everyone = dataclasses.replace(trial, num_local_clients=12, num_released=0)
    clients, is_released = rotated._in_order(everyone)
    assert clients is None and not np.any(is_released)


@pytest.mark.slow
def test_local_models_are_tested_on_their_own_and_on_the_last_rotation():
    """Models that never move are as good in every round, by either test."""
    config = configured(
        "ifca.table1_cifar",
        "--num-clients 4 --num-samples 8 --num-test-clients 4 --num-test-samples 8"
        " --num-local-clients 4 --num-released 4 --network mlp --num-hidden 3"
        " --num-rounds 2 --rounds-between 1",
    )
    trial = table1.cifar_trial(config, digits(), "paper")
    trial = dataclasses.replace(trial, algorithm="local", step_size=0.0)
    arrays = digits().arrays
    run = jax.jit(functools.partial(rotated.simulate, trial))
    still = run(jax.random.key(0), arrays)
    for name in ("accuracy", "last_cluster"):
        np.testing.assert_array_equal(still[name][0], still[name][1])
    assert float(still["accuracy"][0]) != float(still["last_cluster"][0])
    assert np.all(np.isnan(still["held_out"])) and not np.any(still["received"])


STARTS: tuple[rotated.Start, ...] = ("paper", "reference")


def made_up() -> list[rotated.Result]:
    """Results of both starts: 80 and 82 per cent, global 70, local 40 and 30."""
    results = []
    levels = {"ifca": 0.8, "fedavg": 0.7, "local": 0.4}
    for start, names in zip(STARTS, (levels, {"ifca": 0.82}), strict=True):
        trial = table1.cifar_trial(PAPER, digits("cifar10"), start)
        rounds = np.arange(10, 601, 10)
        shape = (len(names), 2, 1, len(rounds))
        axes = ("algorithm", "repetition", "trial", "round")
        data = filled(rotated.DIMS, axes, np.full(shape, np.nan))
        accuracy = np.array(list(names.values()))[:, None, None, None] + np.zeros(shape)
        accuracy[..., 3] += 0.05  # The best round is the fourth.
        data |= {"accuracy": (axes, accuracy), "held_out": (axes, accuracy - 0.01)}
        last = np.where(rounds <= 300, 0.3, 0.9) + np.zeros(shape)
        data |= {"last_cluster": (axes, last)}
        data |= {"matched_accuracy": (axes, np.ones(shape))}
        coords = {"algorithm": list(names), "repetition": [0.0, 1.0], "round": rounds}
        results.append(rotated.Result(trial, xr.Dataset(data, coords)))
    return results


def test_rows_say_which_form_they_have():
    table = [row for result in made_up() for row in rows(result)]
    shown = {(row["label"], row.get("start")): row for row in table}
    own = shown["IFCA", "paper"]
    np.testing.assert_allclose(own["accuracy_mean"], 80)
    np.testing.assert_allclose(own["best_mean"], 85)
    np.testing.assert_allclose(own["held_out_mean"], 79)
    assert "independent" in own["variant"] and "5 epochs (code)" in own["variant"]
    assert "redrawn" in shown["IFCA", "reference"]["variant"]
    released = shown["local, as released", None]
    np.testing.assert_allclose(released["accuracy_mean"], 30)
    assert released["round"] == 300 and released["size"] == "paper, as released"
    assert shown["local", None]["paper_mean"] == released["paper_mean"] == 33.97
    text = markdown(table)
    assert text.count("81.51") == 2 and "A stale loop variable" in text
    (axes,) = draw(made_up(), "a title").axes  # Both starts share a panel.
    assert {"IFCA", "IFCA, start redrawn"} <= {*labels(axes)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"participation": 0.0}, "`participation` must be in"),
        ({"decay": float("nan")}, "`decay` must be finite"),
        ({"starts": ("paper", "paper")}, "`starts` must hold different"),
        ({"batch_size": 0}, "`batch_size` must be at least 1"),
        ({"num_epochs": 0}, "one of `num_epochs` and `num_steps` must be 0"),
        ({"num_steps": 5}, "one of `num_epochs` and `num_steps` must be 0"),
        ({"num_local_clients": 3}, "`num_local_clients` must be a multiple"),
        ({"num_released": 500}, "`num_released` must be in 0..200"),
    ],
)
def test_impossible_configurations_of_cifar_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        table1.cifar_trial(dataclasses.replace(PAPER, **change), digits(), "paper")


def test_only_ifca_has_more_than_one_start():
    grids = table1.cifar_grids(table1.cifar_preset("quick"), digits())
    asked = [grid.axes["algorithm"] for grid in grids]
    assert asked == [("ifca", "fedavg", "local"), ("ifca",)]


ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAM = """
import dataclasses, json, pathlib, sys
from cfljax import engine
devices = int(sys.argv[1])
assert engine.use_cores(devices) == devices
from experiments.ifca import rotated, table1
from experiments.images import find_images
from experiments.options import Options

config = dataclasses.replace(
    table1.cifar_preset("quick"), num_clients=8, num_samples=20, num_test_clients=4,
    num_test_samples=20, num_local_clients=4, num_released=2, num_rounds=2,
    rounds_between=1, num_channels=2, num_hidden=4, num_trials=1, clients_per_chunk=2,
    images="digits",
)
options = Options(out=pathlib.Path(sys.argv[2]), devices=devices, progress=False)
images = find_images("digits", options, fall_back=False)
grids = [(grid, images) for grid in table1.cifar_grids(config, images)]
results = []
for found in rotated.compute(options, rotated.jobs_of(grids, rotated.simulate)):
    data = found.data
    assert not data.attrs["failures"]
    results.append({name: data[name].values.tolist() for name in rotated.DIMS})
print(json.dumps(results))
"""


@pytest.mark.slow
def test_devices_change_no_bit(tmp_path):
    found = []
    env = os.environ | {"JAX_PLATFORMS": "cpu"}
    for devices in ("1", "2"):
        command = [sys.executable, "-c", PROGRAM, devices, str(tmp_path / devices)]
        done = subprocess.run(
            command, cwd=ROOT, env=env, capture_output=True, text=True
        )
        assert not done.returncode, done.stderr
        found.append(json.loads(done.stdout.splitlines()[-1]))
    for one, two in zip(*found, strict=True):
        for name, values in one.items():
            np.testing.assert_array_equal(two[name], values, err_msg=name)
    first, second = found[0]  # Another start is another result.
    assert first["start_share"] != second["start_share"]


def config(**changes) -> fig4.Config:
    """Of two panels, whose network compiles fast."""
    own = configured(
        "ifca.fig4",
        "--num-clients 8 8 --num-samples 5 6 --num-participants 8 4 --num-hidden 4 4"
        " --num-channels 1 2 --num-rounds 3 3 --network mlp mlp",
    )
    return dataclasses.replace(own, **changes)


def made_up_panel(matched: list[list[float]]) -> rotated.Result:
    trial = fig4.grid(config(), 0, digits("mnist")).trial
    values = np.array(matched)[:, None, :]
    dims = ("repetition", "trial", "round")
    data = filled(rotated.IDENTITY_DIMS, dims, np.ones(values.shape))
    data |= {"matched_accuracy": (dims, values)}
    coords = {"repetition": np.arange(len(values)) * 1.0, "round": np.arange(4)}
    return rotated.Result(trial, xr.Dataset(data, coords))


@pytest.mark.parametrize(
    ("matched", "since"),
    [
        ([1, 1, 1], 0),
        ([0.5, 1, 1], 1),
        ([1, 0.9, 1], 2),
        ([1, 1, 0.9], None),
        ([1, 1, np.nan], None),
    ],
)
def test_found_is_what_stays_found(matched, since):
    assert fig4.found_since(np.array(matched)) == since


def test_rows_and_picture_show_each_seed():
    result = made_up_panel([[0.5, 0.5, 1, 1], [0.5, 1, 1, 1], [0.5, 0.5, 0.5, 0.75]])
    line = fig4.row(result)
    assert (line["found"], line["first_round"], line["trials"]) == ("2/3", 1.5, 3)
    assert line["paper_round"] == 30 and line["mib"] == 2
    np.testing.assert_allclose(line["matched"], 2.75 / 3)
    assert len(fig4.rounds([result])) == 12
    (axes,) = fig4.draw([result], fig4.preset("paper")).axes
    lines = [line for line in axes.get_lines() if "_mean" not in str(line.get_label())]
    drawn = [np.asarray(line.get_ydata()) for line in lines]  # All but the caps.
    assert len(drawn) == 4  # The mean and three seeds.
    np.testing.assert_allclose(drawn[0], [0.5, 2 / 3, 2.5 / 3, 2.75 / 3])
    np.testing.assert_array_equal(drawn[3], [0.5, 0.5, 0.5, 0.75])


@pytest.mark.slow
def test_identities_are_those_of_the_run_that_is_tested():
    small = configured(
        "ifca.table1_mnist",
        "--num-clients 8 --num-samples 5 --num-test-clients 4 --num-rounds 2"
        " --rounds-between 1 --num-hidden 4",
    )
    images = digits()
    trial = mnist_trial(small, images)
    key = jax.random.key(1)
    tested = jax.jit(lambda key, arrays: rotated.simulate(trial, key, arrays))
    alone = jax.jit(lambda key, arrays: rotated.identities(trial, key, arrays))
    ours, theirs = alone(key, images.arrays), tested(key, images.arrays)
    assert set(ours) == set(rotated.IDENTITY_DIMS)
    for name, values in ours.items():
        np.testing.assert_allclose(values, theirs[name], rtol=1e-6, err_msg=name)
    models = 4 * (64 * 4 + 4 + 4 * 10 + 10)  # Bytes of one.
    np.testing.assert_allclose(ours["received"], 8 * 4 * models / 2**20, rtol=1e-6)
    np.testing.assert_allclose(ours["sent"], 8 * (models + 1) / 2**20, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.usefixtures("no_data")
def test_command_writes_all(tmp_path):
    options = Options(out=tmp_path / "out", progress=False)
    summary = fig4.main(config(num_trials=2), options)
    assert summary["headline"].count("digits: 8 x 8") == 2
    names = {"identities.csv", "identities.svg", "identities.png"}
    assert names <= files(summary)
    lines = read_csv(tmp_path / "out" / "identities.csv")
    assert len(lines) == 2 * 2 * 3
    assert {"matched_accuracy", "rand_index", "received_mib"} <= set(lines[0])
    assert {line["start_draws"] for line in lines[:6]} == {None}
    assert all(line["start_draws"] >= 1 for line in lines[6:])
