"""IFCA's Table 2, FEMNIST: its tests and table by hand, frozen layers, its command."""

import csv
import dataclasses
import functools
import json
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from jax.flatten_util import ravel_pytree

from cfljax import engine
from cfljax.algorithms import fedavg, ifca, oracle
from cfljax.base.types import ClientData
from cfljax.data import by_writer
from cfljax.data.writers import Writers
from cfljax.engine.programs import _bind
from cfljax.federated.local_update import LocalUpdate
from cfljax.federated.sharing import split, with_frozen
from cfljax.models import femnist_cnn, mlp
from experiments.__main__ import main
from experiments.ifca import femnist, table2_femnist
from experiments.options import Options

SIZES = {"num_channels": 1, "num_hidden": 5}
TASK = femnist.network((4, 4), classes=3, **SIZES)
COUNTS = np.array([4, 1, 3, 2, 4])
UPDATE = LocalUpdate(num_epochs=1)


def some_clients(seed: int, counts: np.ndarray = COUNTS) -> ClientData:
    random = np.random.default_rng(seed)
    shape = (len(counts), max(counts))
    return ClientData(
        jnp.float32(random.uniform(size=(*shape, 4, 4))),
        jnp.int32(random.integers(0, 3, shape)),
        jnp.asarray(np.arange(shape[1])[None] < counts[:, None]),
    )


def some_models(count: int):
    """Random models that differ in their last layer only."""
    random = np.random.default_rng(3)
    draw = lambda shape: jnp.float32(random.normal(size=shape))
    one = jax.tree.map(lambda leaf: draw(leaf.shape), TASK.init(jax.random.key(0)))
    stacked = jax.tree.map(lambda leaf: jnp.stack([leaf] * count), one)
    last = jax.tree.map(lambda leaf: 2 * draw(leaf.shape), stacked["output"])
    return stacked | {"output": last}


MODELS = some_models(3)
TRAIN, TEST = some_clients(1), some_clients(2, np.array([2, 3, 1, 5, 2]))
SAMPLES = femnist.Samples.of(TRAIN), femnist.Samples.of(TEST)
model = lambda j: jax.tree.map(lambda leaf: leaf[j], MODELS)


# Logits `[models, clients, samples, classes]`, one client at a time.
predict_all = jax.jit(
    jax.vmap(jax.vmap(TASK.predict, in_axes=(None, 0)), in_axes=(0, None))
)


def losses_and_rights(data: ClientData) -> tuple[np.ndarray, list[list[np.ndarray]]]:
    """Mean losses `[clients, models]`, and which samples each model gets right."""
    losses, rights = [], []
    logits = np.asarray(predict_all(MODELS, data.inputs))
    for client, (targets, mask) in enumerate(
        zip(np.asarray(data.targets), np.asarray(data.mask), strict=True)
    ):
        targets, scores = targets[mask], [each[client][mask] for each in logits]
        picked = [s[np.arange(len(s)), targets] for s in scores]
        logs = [np.log(np.exp(s).sum(axis=1)) for s in scores]
        losses.append([(a - b).mean() for a, b in zip(logs, picked, strict=True)])
        rights.append([s.argmax(axis=1) == targets for s in scores])
    return np.array(losses), rights


CLUSTERS, OWN = np.array([2, 0, -1, 1, 1]), np.array([0, 1, 2, 0, 1])
KINDS = {
    kind.name: kind
    for kind in map(femnist.method_of, ("ifca-3", "one_shot-3", "fedavg", "local"))
}


@jax.jit
def scores(models):
    """Of all methods; their clusters and models are those above, global is the second
    model."""
    state = types.SimpleNamespace
    take = lambda index: jax.tree.map(lambda leaf: leaf[index], models)
    states = {
        "ifca": state(models=models),
        "one_shot": state(models=models, clusters=jnp.asarray(CLUSTERS)),
        "fedavg": state(model=take(1)),
        "local": state(models=take(OWN)),
    }
    return {
        name: femnist.score(KINDS[name], TASK, state, *SAMPLES, femnist.is_shared)
        for name, state in states.items()
    }


def test_ifca_is_tested_by_lowest_training_loss_over_all_test_samples():
    choice = losses_and_rights(TRAIN)[0].argmin(axis=1)
    tested, rights = losses_and_rights(TEST)
    right = [rights[client][choice[client]] for client in range(5)]
    found = scores(MODELS)["ifca"]
    expected = np.concatenate(right).mean()
    np.testing.assert_allclose(found.accuracy, expected, rtol=1e-6)
    assert found.used_clusters == len(set(choice.tolist())) > 1
    assert found.is_finite == 1
    # Neither equal weights of clients nor a choice by test loss would pass.
    assert abs(np.mean([each.mean() for each in right]) - expected) > 1e-3
    assert (tested.argmin(axis=1) != choice).any()


def test_a_model_that_diverged_is_never_chosen_nor_right():
    spoil = lambda leaf: leaf.at[0].set(jnp.nan)
    spoiled = MODELS | {"output": jax.tree.map(spoil, MODELS["output"])}
    found = scores(spoiled)["ifca"]
    assert found.is_finite == 0 and found.accuracy > 0 and found.used_clusters <= 2
    lost = scores(jax.tree.map(lambda leaf: leaf * jnp.nan, MODELS))["ifca"]
    assert (lost.accuracy, lost.used_clusters, lost.is_finite) == (0, 0, 0)


def test_one_shot_keeps_its_clusters_and_global_and_local_have_theirs():
    _, rights = losses_and_rights(TEST)
    found = scores(MODELS)
    expected = {
        "one_shot": [rights[i][max(j, 0)] * (j >= 0) for i, j in enumerate(CLUSTERS)],
        "fedavg": [each[1] for each in rights],
        "local": [rights[i][j] for i, j in enumerate(OWN)],
    }
    means = {name: np.concatenate(right).mean() for name, right in expected.items()}
    assert len({found["ifca"].accuracy.item(), *means.values()}) == 4
    for name, mean in means.items():
        np.testing.assert_allclose(found[name].accuracy, mean, rtol=1e-6)
    assert found["one_shot"].used_clusters == 3
    assert np.isnan(found["local"].used_clusters)


def test_samples_are_the_clients_without_padding():
    samples = SAMPLES[0]
    again = femnist.padded(samples)
    mask = np.asarray(TRAIN.mask)
    np.testing.assert_array_equal(again.mask, mask)
    for ours, theirs in zip(again[:2], TRAIN[:2], strict=True):
        np.testing.assert_array_equal(np.asarray(ours)[mask], np.asarray(theirs)[mask])
    assert samples.inputs.shape[0] == mask.sum() < mask.size
    means = femnist.mean_of_clients(
        samples.targets.astype(jnp.float32)[:, None], samples
    )
    targets = np.asarray(TRAIN.targets)
    expected = [row[own].mean() for row, own in zip(targets, mask, strict=True)]
    np.testing.assert_allclose(means[:, 0], expected, rtol=1e-6)


def test_the_last_layer_on_features_is_the_network_on_images():
    images = SAMPLES[0].inputs
    logits, found = jax.jit(
        lambda params: (
            TASK.predict(params, images),
            femnist.features(params, images, **SIZES),
        )
    )(model(0))
    assert found.shape == (len(images), 5) and float(found.min()) >= 0
    own, _ = split(model(0), femnist.is_shared)
    np.testing.assert_allclose(
        femnist.head(TASK).predict(own, found), logits, rtol=1e-5
    )
    other, _ = split(model(1), femnist.is_shared)
    assert np.abs(femnist.head(TASK).predict(other, found) - logits).max() > 1e-2
    key = jax.random.key(4)
    drawn = jax.tree.leaves(femnist.head(TASK).init(key))
    for ours, theirs in zip(
        drawn, jax.tree.leaves(TASK.init(key)["output"]), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


def test_published_sizes_make_the_network_of_leaf():
    paper = table2_femnist.preset("paper")
    ours = femnist.network(
        (28, 28),
        num_channels=paper.num_channels,
        num_hidden=paper.num_hidden,
        classes=62,
    )
    shape = lambda task: jax.eval_shape(task.init, jax.random.key(0))
    assert shape(ours) == shape(femnist_cnn())
    assert shape(ours) != shape(femnist_cnn(hidden=128))


def test_local_models_train_only_when_drawn_and_then_as_in_fedavg():
    settings = {"step_size": 0.1, "participation": 0.2, "update": UPDATE}
    task, key = mlp((4, 4), hidden=(), num_classes=3), jax.random.key(7)
    algorithm = femnist.trained_alone(task, **settings)
    state = jax.jit(algorithm.init)(jax.random.key(1), TRAIN)
    after, info = jax.jit(algorithm.step)(key, state, TRAIN)
    kernels = np.asarray([jax.tree.leaves(s.models)[1] for s in (state, after)])
    (client,) = np.flatnonzero((kernels[0] != kernels[1]).any(axis=(1, 2)))
    assert not np.any(info.received) and not np.any(info.sent)
    # FedAvg of the same single participant, from the same model.
    average = fedavg(task, **settings)
    start = jax.eval_shape(average.init, key, TRAIN)
    own = jax.tree.map(lambda leaf: leaf[client], state.models)
    alone, told = jax.jit(average.step)(key, start._replace(model=own), TRAIN)
    assert int(np.flatnonzero(told.received)[0]) == client
    ours = jax.tree.map(lambda leaf: leaf[client], after.models)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(alone.model), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("text", ["ifca", "ifca-0", "fedavg-2", "ifca-x", "", "IFCA-2"])
def test_methods_that_are_none_are_refused(text):
    with pytest.raises(ValueError, match="a method must be fedavg, local, or ifca"):
        femnist.method_of(text)
    assert femnist.method_of("one_shot-3") == femnist.Method("one_shot", 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"methods": ("ifca-2", "ifca-2")}, "`methods` must hold different names"),
        ({"variants": ()}, "`variants` must hold different names"),
        ({"num_trials": 0}, "`num_trials` must be at least 1, got 0"),
        ({"step_size": float("nan")}, "`step_size` must be finite"),
        ({"warm_up_rounds": -1}, "`warm_up_rounds` must not be negative"),
    ],
)
def test_impossible_configurations_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(table2_femnist.preset("quick"), **change)


def made_up_result(name: str = "paper", methods=("ifca-2", "fedavg", "local")):
    """60 per cent at last and 62 at best for the first seed, one more for the second;
    the third is not there."""
    trial = table2_femnist._trial(SMALL, INPUTS, 3)
    axes = ("method", "repetition", "trial", "round")
    seeds = np.array([0, 0.01, np.nan])[None, :, None, None]
    rounds = np.array([0.5, 0.62, 0.6])
    accuracy = np.broadcast_to(rounds + seeds, (len(methods), 3, 1, 3))
    data = {name: (list(axes), np.ones_like(accuracy)) for name in femnist.DIMS}
    data["accuracy"] = (list(axes), accuracy)
    data["failed"] = (list(axes[:2]), np.isnan(accuracy[:, :, 0, 0]))
    coords = {"method": list(methods), "repetition": np.arange(3.0)}
    return table2_femnist.Result(
        name, trial, xr.Dataset(data, coords | {"round": [20, 40, 60]})
    )


def test_rows_by_hand():
    result = made_up_result()
    first = table2_femnist.rows(result)[0]
    assert (first["label"], first["trials"], first["failed"]) == ("IFCA k=2", 2, 1)
    np.testing.assert_allclose(first["accuracy_mean"], 60.5)
    np.testing.assert_allclose(first["accuracy_std"], np.sqrt(0.5))
    np.testing.assert_allclose(first["best_mean"], 62.5)
    np.testing.assert_allclose(first["optimism"], 2)
    assert (first["paper_mean"], first["clusters_used"]) == (87.99, "1 1")
    assert first["diverged"] == 0
    result.data["is_finite"][0, 0] = 0
    result.data["is_finite"][0, 2] = 0  # Of a run that is not there.
    assert table2_femnist.rows(result)[0]["diverged"] == 1
    each = table2_femnist.runs(result)[:3]
    assert [run["failed"] for run in each] == [False, False, True]
    assert each[0]["best_round"] == 40 and each[2]["best"] is None


def test_pretraining_has_a_row_without_a_published_number():
    first = table2_femnist.rows(made_up_result("pretraining", ("fedavg",)))[0]
    assert (first["variant"], first["label"]) == ("reference", "pretraining")
    assert first["paper_mean"] is None
    table = table2_femnist.rows(made_up_result()) + [first]
    text = table2_femnist.markdown(table, 188)
    assert "84.45 ± 0.51" in text and "this table from 188" in text
    assert "diverged" not in text.split("\n", 1)[0]


def test_a_figure_has_a_panel_for_each_variant_and_seven_curves():
    many = ("ifca-2", "ifca-3", "ifca-4", "ifca-5", "ifca-6", "fedavg", "local")
    results = [made_up_result(name, (*many, "ifca-7")) for name in ("paper",)]
    results.append(made_up_result("pretraining", ("fedavg",)))
    figure = table2_femnist.draw(results)
    assert figure is not None and table2_femnist.draw(results[1:]) is None
    (axes,) = figure.axes
    names = {str(line.get_label()) for line in axes.get_lines()}
    names = {name for name in names if not name.startswith("_")}
    assert len(names) == 7 and "IFCA k=6" in names and "IFCA k=7" not in names
    assert axes.get_title().startswith("paper")


SMALL = dataclasses.replace(
    table2_femnist.preset("quick"),
    num_clients=5,
    min_samples=3,
    num_channels=1,
    num_hidden=5,
    pretraining_rounds=2,
    num_rounds=4,
    rounds_between=2,
    num_participants=2,
    pretraining_participants=2,
    warm_up_rounds=2,
    batch_size=3,
    num_first_steps=2,
)
LAST = 4 * (5 * 3 + 3)  # Bytes of the last layer, then of all others.
BELOW = 4 * ((25 + 1) + (25 * 2 + 2) + (2 * 5 + 5))


def some_writers() -> Writers:
    """Seven writers of 4 x 4 images, with numbers of images of their own."""
    random = np.random.default_rng(8)
    owners = [np.repeat(np.arange(7), n) for n in ([5, 3, 8, 6, 4, 7, 1], 7 * [2])]
    images = [random.integers(0, 256, (len(o), 4, 4)).astype(np.uint8) for o in owners]
    labels = [random.integers(0, 3, len(o)).astype(np.int32) for o in owners]
    names = tuple("abcdefg")
    first, second = zip(images, labels, owners, strict=True)
    return Writers(*first, *second, names, 3, "made up")


CLIENTS = by_writer(some_writers(), num_clients=5, min_samples=3)
INPUTS = femnist.Inputs(femnist.Samples.of(CLIENTS[0]), femnist.Samples.of(CLIENTS[1]))
PRETRAINED = TASK.init(jax.random.key(11))
FLAT = ravel_pytree(PRETRAINED)[0]


def reference(method: str, **changes):
    trial = table2_femnist._trial(SMALL, INPUTS, 3)
    return dataclasses.replace(
        trial, variant="reference", method=method, warm_up_rounds=2, **changes
    )


def frozen_run(trial, key):
    """Final state and logits on test images of IFCA with layers that are frozen, on
    images throughout."""
    _, warm_key, run_key = femnist._keys(trial, key)
    task = with_frozen(TASK, PRETRAINED, femnist.is_shared)
    settings = femnist._settings(trial, INPUTS) | {
        "option": "model",
        "weights": "samples",
        "shared": femnist.is_shared,
        "variant": "reference",
        "num_clusters": 2,
    }
    group_key, warm_key = jax.random.split(warm_key)
    groups = jax.random.permutation(group_key, 5) % 2
    forced = oracle(task, clusters=groups, **settings)
    warm, _ = engine.run(forced, warm_key, CLIENTS[0], num_rounds=2)
    algorithm = femnist._started_at(ifca(task, **settings), warm.models)
    blocks = femnist._several_rounds(algorithm, trial.rounds_between)
    state, _ = engine.run(blocks, run_key, CLIENTS[0], num_rounds=2)
    return state, algorithm.predict(state, CLIENTS[0], CLIENTS[1].inputs)


@pytest.mark.slow
def test_features_of_frozen_layers_give_the_numbers_of_frozen_layers():
    trial, key = reference("ifca-2"), jax.random.key(2)
    run = jax.jit(lambda step_size, flat: femnist.trained(
        _bind(trial, {"step_size": step_size}),
        key,
        INPUTS._replace(pretrained=flat[None, :]),
    ))  # fmt: skip
    state, trace = run(0.5, FLAT)
    plain, logits = jax.jit(lambda: frozen_run(
        dataclasses.replace(trial, step_size=0.5), key
    ))()  # fmt: skip
    last = state.models["output"]
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
        last,
        plain.models["output"],
    )
    test = CLIENTS[1]
    right = np.asarray(logits.argmax(axis=-1) == test.targets)[np.asarray(test.mask)]
    np.testing.assert_allclose(trace["accuracy"][-1], right.mean(), rtol=1e-6)
    received, sent = (2**20 * trace[name] for name in ("received", "sent"))
    np.testing.assert_allclose(received, 2 * 2 * LAST)  # Two participants and models.
    np.testing.assert_allclose(sent, 2 * (LAST + 1))  # One model and its index.
    # Other layers below, or another step size, are noticed.
    for other, _ in (run(0.5, 1.1 * FLAT), run(0.4, FLAT)):
        difference = other.models["output"]["kernel"] - last["kernel"]
        assert float(jnp.abs(difference).max()) > 1e-2
    # Models that clients cannot train stay; what was never pretrained has no result.
    stuck, dropped = run(jnp.inf, FLAT)
    start, _ = run(0.0, FLAT)
    jax.tree.map(  # The mean of one model twice is rounded.
        functools.partial(np.testing.assert_allclose, rtol=1e-6),
        stuck.models["output"],
        start.models["output"],
    )
    np.testing.assert_array_equal(dropped["is_finite"], 1)
    assert np.isfinite(dropped["accuracy"]).all()
    assert np.isnan(run(0.5, jnp.nan * FLAT)[1]["accuracy"]).all()


@pytest.mark.slow
def test_a_local_run_that_diverges_has_a_result_and_is_counted():
    run = jax.jit(lambda step_size: femnist.trained(
        _bind(reference("local"), {"step_size": step_size}),
        jax.random.key(2),
        INPUTS._replace(pretrained=FLAT[None, :]),
    )[1])  # fmt: skip
    for step_size, is_finite in ((jnp.inf, 0), (0.5, 1)):
        trace = run(step_size)
        np.testing.assert_array_equal(trace["is_finite"], is_finite)
        assert np.isfinite(trace["accuracy"]).all()


@pytest.mark.slow
def test_ifca_of_one_cluster_is_the_global_model():
    key = jax.random.key(3)
    trial = dataclasses.replace(table2_femnist._trial(SMALL, INPUTS, 3), num_rounds=2)
    run = lambda method: jax.jit(
        lambda: femnist.trained(dataclasses.replace(trial, method=method), key, INPUTS)
    )()
    single, average = run("ifca-1"), run("fedavg")
    for a, b in zip(
        jax.tree.leaves(single[0].models),
        jax.tree.leaves(average[0].model),
        strict=True,
    ):
        np.testing.assert_allclose(a[0], b, rtol=1e-5, atol=1e-6)
    for name in ("accuracy", "received", "sent"):
        np.testing.assert_allclose(single[1][name], average[1][name], rtol=1e-6)
    np.testing.assert_allclose(2**20 * single[1]["sent"], 2 * (LAST + BELOW))


def run_command(config, tmp_path, monkeypatch):
    """Summary of the experiment on the made-up writers."""
    monkeypatch.setattr(table2_femnist, "load_writers", lambda *_, **__: some_writers())
    return table2_femnist.main(config, Options(out=tmp_path, progress=False))


@pytest.mark.slow
def test_command_writes_all_and_resumes(tmp_path, monkeypatch, refuse_work):
    config = dataclasses.replace(SMALL, methods=("local",), variants=("paper",))
    summary = run_command(config, tmp_path, monkeypatch)
    assert summary["failed_cells"] == 0
    found = [(row["variant"], row["label"], row["round"]) for row in summary["rows"]]
    assert found == [("paper", "local", 6)]
    assert all(row["trials"] == 2 for row in summary["rows"])
    names = {"table.csv", "runs.csv", "table.md", "config.json"}
    names |= {"accuracy.svg", "accuracy.png"}
    assert {path.rsplit("/", 1)[1] for path in summary["files"]} == names
    with (tmp_path / "runs.csv").open(newline="") as file:
        accuracies = [float(run["accuracy"]) for run in csv.DictReader(file)]
    means = np.reshape(accuracies, (1, 2)).mean(axis=1)
    expected = [row["accuracy_mean"] for row in summary["rows"]]
    np.testing.assert_allclose(means, expected)

    # Nothing is run again.
    refuse_work()
    again = run_command(config, tmp_path, monkeypatch)
    assert json.dumps(again["rows"]) == json.dumps(summary["rows"])


@pytest.mark.slow
def test_every_method_runs_in_both_variants(tmp_path, monkeypatch):
    methods = ("ifca-2", "ifca-3", "one_shot-2", "fedavg", "local")
    config = dataclasses.replace(SMALL, methods=methods)
    summary = run_command(config, tmp_path, monkeypatch)
    assert summary["failed_cells"] == 0
    assert len(summary["rows"]) == 2 * len(methods) + 1
    accuracies = [row["accuracy_mean"] for row in summary["rows"]]
    assert min(accuracies) >= 0 and len(set(accuracies)) > 1
    assert all(row["diverged"] == 0 for row in summary["rows"])


def test_failed_pretraining_is_recorded_and_nothing_built_on_it(tmp_path, monkeypatch):
    monkeypatch.setattr(table2_femnist, "load_writers", lambda *_, **__: some_writers())
    asked = []

    def sweep(config, options, trial, inputs, name):
        asked.append(name)
        axes = ("method", "repetition", "trial", "round")
        data = {
            name: (list(axes), np.full((1, 2, 1, 1), np.nan)) for name in femnist.DIMS
        }
        data["failed"] = (list(axes[:2]), np.array([[True, True]]))
        coords = {"method": ["fedavg"], "repetition": [0.0, 1.0], "round": [2]}
        return table2_femnist.Result(
            name, trial, xr.Dataset(data, coords, {"failures": 2})
        )

    monkeypatch.setattr(table2_femnist, "_sweep", sweep)
    config = dataclasses.replace(SMALL, variants=("reference",))
    summary = table2_femnist.main(config, Options(out=tmp_path, progress=False))
    assert asked == ["pretraining"] and summary["failed_cells"] == 2
    (row,) = summary["rows"]
    assert (row["trials"], row["failed"], row["accuracy_mean"]) == (0, 2, None)
    assert not any(path.endswith(".png") for path in summary["files"])


def test_without_data_one_message_says_how_to_get_them(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("CFLJAX_DATA", raising=False)
    status = main(["run", "ifca.table2_femnist", "--out", str(tmp_path / "out")])
    assert status == 2
    assert "No folder of data is named" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_more_participants_than_writers_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(table2_femnist, "load_writers", lambda *_, **__: some_writers())
    config = dataclasses.replace(SMALL, pretraining_participants=6)
    with pytest.raises(
        ValueError, match=r"`pretraining_participants` must be in 1\.\.5"
    ):
        table2_femnist.main(config, Options(out=tmp_path))
