"""IFCA's Table 2, FEMNIST: its tests and table by hand, frozen layers, its command."""

import dataclasses
import json
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from jax.flatten_util import ravel_pytree
from toy_experiments import (
    assert_close,
    configured,
    files,
    labels,
    pick,
    run_twice,
    some_writers,
)

from cfljax import engine
from cfljax.algorithms import fedavg, ifca, oracle
from cfljax.base.types import ClientData
from cfljax.data import by_writer
from cfljax.engine.programs import _bind
from cfljax.federated.local_update import LocalUpdate
from cfljax.federated.sharing import split, with_frozen
from cfljax.models import femnist_cnn, mlp
from cfljax.report import read_csv
from experiments import plan, study
from experiments.ifca import femnist
from experiments.ifca import table2_femnist as table2
from experiments.jobs import share
from experiments.options import Options

SIZES = {"num_channels": 1, "num_hidden": 5}
TASK = femnist.network((4, 4), classes=3, **SIZES)
UPDATE = LocalUpdate(num_epochs=1)


def some_clients(seed: int, *counts: int) -> ClientData:
    random = np.random.default_rng(seed)
    shape = (len(counts), max(counts))
    inputs = random.uniform(size=(*shape, 4, 4)).astype("f4")
    targets = random.integers(0, 3, shape).astype("i4")
    mask = np.arange(shape[1]) < np.array(counts)[:, None]
    return ClientData(*jax.device_put((inputs, targets, mask)))


def some_models(count: int):
    """Random models that differ in their last layer only."""
    random = np.random.default_rng(3)
    draw = lambda shape: random.normal(size=shape).astype("f4")
    shapes = jax.eval_shape(TASK.init, jax.random.key(0))
    one = jax.tree.map(lambda leaf: draw(leaf.shape), shapes)
    stacked = jax.tree.map(lambda leaf: np.stack([leaf] * count), one)
    last = jax.tree.map(lambda leaf: 2 * draw(leaf.shape), stacked["output"])
    return jax.device_put(stacked | {"output": last})


MODELS = some_models(3)
TRAIN, TEST = some_clients(1, 4, 1, 3, 2, 4), some_clients(2, 2, 3, 1, 5, 2)
SAMPLES = femnist.Samples.of(TRAIN), femnist.Samples.of(TEST)
# Logits `[models, clients, samples, classes]`, one client at a time.
predict_of_clients = jax.vmap(TASK.predict, in_axes=(None, 0))
predict_all = jax.jit(jax.vmap(predict_of_clients, in_axes=(0, None)))


def losses_and_rights(data: ClientData) -> tuple[np.ndarray, list[list[np.ndarray]]]:
    """Mean losses `[clients, models]`, and which samples each model gets right."""
    losses, rights = [], []
    logits = np.asarray(predict_all(MODELS, data.inputs))
    every = zip(np.asarray(data.targets), np.asarray(data.mask), strict=True)
    for client, (targets, mask) in enumerate(every):
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
    states = {
        "ifca": state(models=models),
        "one_shot": state(models=models, clusters=jnp.asarray(CLUSTERS)),
        "fedavg": state(model=pick(models, 1)),
        "local": state(models=pick(models, OWN)),
    }
    return {
        name: femnist.score(KINDS[name], TASK, state, *SAMPLES, femnist.is_shared)
        for name, state in states.items()
    }


@pytest.mark.long
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


@pytest.mark.long
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
    values = samples.targets.astype(jnp.float32)[:, None]
    means = femnist.mean_of_clients(values, samples)
    targets = np.asarray(TRAIN.targets)
    expected = [row[own].mean() for row, own in zip(targets, mask, strict=True)]
    np.testing.assert_allclose(means[:, 0], expected, rtol=1e-6)


@pytest.mark.long
def test_the_last_layer_on_features_is_the_network_on_images():
    images, last = SAMPLES[0].inputs, femnist.head(TASK)
    logits = jax.jit(TASK.predict)(pick(MODELS, 0), images)
    find = jax.jit(lambda params: femnist.features(params, images, **SIZES))
    found = find(pick(MODELS, 0))
    assert found.shape == (len(images), 5) and float(found.min()) >= 0
    own, other = (split(pick(MODELS, j), femnist.is_shared)[0] for j in (0, 1))
    np.testing.assert_allclose(last.predict(own, found), logits, rtol=1e-5)
    assert np.abs(last.predict(other, found) - logits).max() > 1e-2
    key = jax.random.key(4)
    assert_close(last.init(key), TASK.init(key)["output"], rtol=0)


def test_published_sizes_make_the_network_of_leaf():
    paper = table2.preset("paper")
    sizes = {"num_channels": paper.num_channels, "num_hidden": paper.num_hidden}
    ours = femnist.network((28, 28), classes=62, **sizes)
    shape = lambda task: jax.eval_shape(task.init, jax.random.key(0))
    assert shape(ours) == shape(femnist_cnn())
    assert shape(ours) != shape(femnist_cnn(hidden=128))


@pytest.mark.long
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
    own = pick(state.models, client)
    alone, told = jax.jit(average.step)(key, start._replace(model=own), TRAIN)
    assert int(np.flatnonzero(told.received)[0]) == client
    assert_close(pick(after.models, client), alone.model, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("text", ["ifca", "ifca-0", "fedavg-2", "ifca-x", "", "IFCA-2"])
def test_methods_that_are_none_are_refused(text):
    with pytest.raises(ValueError, match="a method must be fedavg, local, or ifca"):
        femnist.method_of(text)
    assert femnist.method_of("one_shot-3") == femnist.Method("one_shot", 3)


def made_up_result(name: str = "paper", methods=("ifca-2", "fedavg", "local")):
    """60 per cent at last and 62 at best for the first seed, one more for the second;
    the third is not there."""
    trial = table2._trial(SMALL, INPUTS, 3)
    axes = ("method", "repetition", "trial", "round")
    seeds = np.array([0, 0.01, np.nan])[None, :, None, None]
    rounds = np.array([0.5, 0.62, 0.6])
    accuracy = np.broadcast_to(rounds + seeds, (len(methods), 3, 1, 3))
    data = {name: (list(axes), np.ones_like(accuracy)) for name in femnist.DIMS}
    data["accuracy"] = (list(axes), accuracy)
    data["failed"] = (list(axes[:2]), np.isnan(accuracy[:, :, 0, 0]))
    coords = {"method": list(methods), "repetition": np.arange(3.0)}
    coords |= {"round": [20, 40, 60]}
    return table2.Result(name, trial, xr.Dataset(data, coords))


def test_rows_by_hand():
    result = made_up_result()
    first = table2.rows(result)[0]
    assert (first["label"], first["trials"], first["failed"]) == ("IFCA k=2", 2, 1)
    np.testing.assert_allclose(first["accuracy_mean"], 60.5)
    np.testing.assert_allclose(first["accuracy_std"], 0.5)
    np.testing.assert_allclose(first["best_mean"], 62.5)
    np.testing.assert_allclose(first["optimism"], 2)
    assert (first["paper_mean"], first["clusters_used"]) == (87.99, "1 1")
    assert first["diverged"] == 0
    assert first["verdict"] == "not comparable"
    assert "other writers than LEAF's 188" in first["size"]
    result.data["is_finite"][0, 0] = 0
    result.data["is_finite"][0, 2] = 0  # Of a run that is not there.
    assert table2.rows(result)[0]["diverged"] == 1
    each = table2.runs(result)[:3]
    assert [run["failed"] for run in each] == [False, False, True]
    assert each[0]["best_round"] == 40 and each[2]["best"] is None


def test_pretraining_has_a_row_without_a_published_number():
    first = table2.rows(made_up_result("pretraining", ("fedavg",)))[0]
    assert (first["variant"], first["label"]) == ("reference", "pretraining")
    assert first["paper_mean"] is None
    table = table2.rows(made_up_result()) + [first]
    text = table2.markdown(table, 188)
    assert "84.45 ± 0.51" in text and "this table from 188" in text
    assert "diverged" not in text.split("\n", 1)[0]


def test_sizes_are_the_released_codes_of_both_variants():
    paper = table2.preset("paper")
    trial = table2._trial(paper, INPUTS, 3)
    trial = dataclasses.replace(trial, checksum=table2.ALL_WRITERS, num_rounds=6000)
    writers = "188 writers, not 173 to 175"
    assert str(table2.size_of(trial)) == f"paper, {writers}"
    short = dataclasses.replace(trial, num_rounds=140)
    assert str(table2.size_of(short)) == f"140 of 6000 rounds, {writers}"
    own = {"variant": "reference", "num_rounds": 4000, "pretraining_rounds": 2000}
    own |= {"pretraining_participants": 3, "warm_up_rounds": 20}
    released = dataclasses.replace(trial, **own)
    assert str(table2.size_of(released)) == f"paper, as released, {writers}"
    cold = dataclasses.replace(released, warm_up_rounds=10)
    assert table2.size_of(cold).is_reduced


def test_a_figure_has_a_panel_for_each_variant_and_seven_curves():
    many = ("ifca-2", "ifca-3", "ifca-4", "ifca-5", "ifca-6", "fedavg", "local")
    results = [made_up_result("paper", (*many, "ifca-7"))]
    results.append(made_up_result("pretraining", ("fedavg",)))
    config = table2.preset("quick")
    figure = table2.draw(results, config)
    assert figure is not None and table2.draw(results[1:], config) is None
    (axes,) = figure.axes
    names = {*labels(axes)}
    assert len(names) == 7 and "IFCA k=6" in names and "IFCA k=7" not in names
    assert axes.get_title().startswith("paper")


SMALL = configured(
    "ifca.table2_femnist",
    "--num-clients 5 --min-samples 3 --num-channels 1 --num-hidden 5 --num-rounds 4"
    " --pretraining-rounds 2 --rounds-between 2 --num-participants 2 --batch-size 3"
    " --pretraining-participants 2 --warm-up-rounds 2 --num-first-steps 2",
)
LAST = 4 * (5 * 3 + 3)  # Bytes of the last layer, then of all others.
BELOW = 4 * ((25 + 1) + (25 * 2 + 2) + (2 * 5 + 5))

# Seven writers, of whom two are left out.
WRITERS = some_writers(5, 3, 8, 6, 4, 7, 1)
CLIENTS = by_writer(WRITERS, num_clients=5, min_samples=3)
INPUTS = femnist.Inputs(femnist.Samples.of(CLIENTS[0]), femnist.Samples.of(CLIENTS[1]))
PRETRAINED = TASK.init(jax.random.key(11))
FLAT = ravel_pytree(PRETRAINED)[0]


def reference(method: str):
    """A trial of the released code."""
    changes = {"variant": "reference", "method": method, "warm_up_rounds": 2}
    return dataclasses.replace(table2._trial(SMALL, INPUTS, 3), **changes)


def compiled(method: str):
    """Such a trial's state and trace, of a step size and the pretrained layers."""
    trial, key = reference(method), jax.random.key(2)

    def run(step_size, flat):
        own = _bind(trial, {"step_size": step_size})
        return femnist.trained(own, key, INPUTS._replace(pretrained=flat[None, :]))

    return jax.jit(run)


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
    nothing = lambda *seen: ()
    state, *_ = study.run_with_tests(
        trial, algorithm, run_key, CLIENTS[0], observe=nothing, test=nothing
    )
    return state, algorithm.predict(state, CLIENTS[0], CLIENTS[1].inputs)


@pytest.mark.slow
def test_features_of_frozen_layers_give_the_numbers_of_frozen_layers():
    run = compiled("ifca-2")
    state, trace = run(0.5, FLAT)
    trial = dataclasses.replace(reference("ifca-2"), step_size=0.5)
    plain, logits = jax.jit(lambda: frozen_run(trial, jax.random.key(2)))()
    last = state.models["output"]
    assert_close(last, plain.models["output"], rtol=1e-4, atol=1e-5)
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
    # The mean of one model twice is rounded.
    assert_close(stuck.models["output"], start.models["output"], rtol=1e-6)
    np.testing.assert_array_equal(dropped["is_finite"], 1)
    assert np.isfinite(dropped["accuracy"]).all()
    assert np.isnan(run(0.5, jnp.nan * FLAT)[1]["accuracy"]).all()


@pytest.mark.long
def test_one_shot_starts_with_images_where_layers_are_frozen():
    """Data that are not traced are looked at; images are no features."""
    inputs = INPUTS._replace(pretrained=FLAT[None, :])
    found = femnist.simulate(reference("one_shot-2"), jax.random.key(2), inputs)
    assert np.isfinite(found["accuracy"]).all()
    own = fedavg(femnist.head(TASK), step_size=0.1)
    with pytest.raises(
        ValueError, match="do not fit the task: dot_general"
    ):  # Control.
        engine.run(own, jax.random.key(0), CLIENTS[0], num_rounds=1)


@pytest.mark.slow
def test_a_local_run_that_diverges_has_a_result_and_is_counted():
    run = compiled("local")
    for step_size, is_finite in ((jnp.inf, 0), (0.5, 1)):
        _, trace = run(step_size, FLAT)
        np.testing.assert_array_equal(trace["is_finite"], is_finite)
        assert np.isfinite(trace["accuracy"]).all()


@pytest.mark.slow
def test_ifca_of_one_cluster_is_the_global_model():
    key = jax.random.key(3)
    trial = dataclasses.replace(table2._trial(SMALL, INPUTS, 3), num_rounds=2)
    run = lambda method: jax.jit(
        lambda: femnist.trained(dataclasses.replace(trial, method=method), key, INPUTS)
    )()
    single, average = run("ifca-1"), run("fedavg")
    assert_close(pick(single[0].models, 0), average[0].model, rtol=1e-5, atol=1e-6)
    for name in ("accuracy", "received", "sent"):
        np.testing.assert_allclose(single[1][name], average[1][name], rtol=1e-6)
    np.testing.assert_allclose(2**20 * single[1]["sent"], 2 * (LAST + BELOW))


@pytest.fixture
def made_up_writers(monkeypatch):
    """The experiment's data are those above."""
    monkeypatch.setattr(table2, "load_writers", lambda *_, **__: WRITERS)


@pytest.mark.slow
@pytest.mark.usefixtures("made_up_writers")
def test_command_writes_all_and_resumes(tmp_path, refuse_work):
    config = dataclasses.replace(SMALL, methods=("local",), variants=("paper",))
    summary = run_twice(table2.main, config, tmp_path, refuse_work)
    found = [(row["variant"], row["label"], row["round"]) for row in summary["rows"]]
    assert found == [("paper", "local", 6)]
    assert all(row["trials"] == 2 for row in summary["rows"])
    names = {"table.csv", "runs.csv", "table.md", "config.json"}
    names |= {f"accuracy.{kind}" for kind in ("svg", "pdf", "png", "txt")}
    assert files(summary) == names
    accuracies = [run["accuracy"] for run in read_csv(tmp_path / "runs.csv")]
    assert len(accuracies) == 2
    np.testing.assert_allclose(np.mean(accuracies), summary["rows"][0]["accuracy_mean"])


@pytest.mark.slow
@pytest.mark.usefixtures("made_up_writers")
def test_every_method_runs_in_both_variants(tmp_path):
    methods = ("ifca-2", "ifca-3", "one_shot-2", "fedavg", "local")
    config = dataclasses.replace(SMALL, methods=methods)
    summary = table2.main(config, Options(out=tmp_path, progress=False))
    assert summary["failed_cells"] == 0
    assert len(summary["rows"]) == 2 * len(methods) + 1
    accuracies = [row["accuracy_mean"] for row in summary["rows"]]
    assert min(accuracies) >= 0 and len(set(accuracies)) > 1
    assert all(row["diverged"] == 0 for row in summary["rows"])


@pytest.mark.slow
@pytest.mark.usefixtures("made_up_writers")
def test_workers_together_make_the_table_of_one_run(tmp_path):
    config = dataclasses.replace(SMALL, methods=("fedavg", "local"))
    one = Options(out=tmp_path / "one", progress=False)
    alone = table2.main(config, one)
    team = Options(out=tmp_path / "team", progress=False)
    number = sum(1 for _ in (tmp_path / "one").rglob("*.npz"))
    for worker, left in ((2, 4), (1, 0)):
        own = dataclasses.replace(team, shard=(worker, 2))
        found = share("ifca.table2_femnist", own, table2.jobs(config, own))
        assert (found["open_blocks"], found["blocks"]) == (left, number)
    files = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.npz")}
    assert json.dumps(table2.main(config, team)["rows"]) == json.dumps(alone["rows"])
    table = lambda own: (own.out / "table.csv").read_bytes()
    assert table(team) == table(one)
    assert {f: f.stat().st_mtime_ns for f in tmp_path.rglob("*.npz")} == files


@pytest.mark.slow
@pytest.mark.usefixtures("made_up_writers")
def test_plan_trains_no_layers(tmp_path):
    options = Options(out=tmp_path, progress=False)
    config = dataclasses.replace(SMALL, methods=("local",))
    found = plan.plan("ifca.table2_femnist", options, table2.jobs(config, options))
    names = [row["what"] for row in found["rows"]]
    assert names == ["pretraining, fedavg", "paper, local", "reference, local"]
    assert all(row["core_hours"] > 0 for row in found["rows"])
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("made_up_writers")
def test_failed_pretraining_is_recorded_and_nothing_built_on_it(tmp_path, monkeypatch):
    asked = []

    def run(options, job):
        asked.append(job.name)
        axes = ("method", "repetition", "trial", "round")
        nothing = np.full((1, 2, 1, 1), np.nan)
        data = {name: (list(axes), nothing) for name in femnist.DIMS}
        data["failed"] = (list(axes[:2]), np.array([[True, True]]))
        coords = {"method": ["fedavg"], "repetition": [0.0, 1.0], "round": [2]}
        return xr.Dataset(data, coords, {"failures": 2})

    monkeypatch.setattr(table2, "run", run)
    config = dataclasses.replace(SMALL, variants=("reference",))
    summary = table2.main(config, Options(out=tmp_path, progress=False))
    assert asked == ["pretraining"] and summary["failed_cells"] == 2
    (row,) = summary["rows"]
    assert (row["trials"], row["failed"], row["accuracy_mean"]) == (0, 2, None)
    assert not any(path.endswith(".png") for path in summary["files"])


@pytest.mark.usefixtures("made_up_writers")
def test_more_participants_than_writers_are_refused(tmp_path):
    config = dataclasses.replace(SMALL, pretraining_participants=6)
    message = r"`pretraining_participants` must be in 1\.\.5"
    with pytest.raises(ValueError, match=message):
        table2.main(config, Options(out=tmp_path))
