"""The FEMNIST experiment: features against frozen layers, its limits, its command."""

import csv
import dataclasses
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from jax.flatten_util import ravel_pytree

from cfljax import engine
from cfljax.algorithms import ifca, oracle
from cfljax.data import by_writer
from cfljax.data.writers import Writers
from cfljax.engine.batch import _bind
from cfljax.kernels.sharing import with_frozen
from experiments.__main__ import main
from experiments.ifca import femnist, table2_femnist
from experiments.ifca.femnist import trained
from experiments.ifca.femnist_network import is_shared, network
from experiments.ifca.femnist_report import Result
from experiments.ifca.femnist_samples import Samples
from experiments.ifca.femnist_trial import DIMS, Inputs
from experiments.options import Options

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
INPUTS = Inputs(Samples.of(CLIENTS[0]), Samples.of(CLIENTS[1]))
TASK = network((4, 4), num_channels=1, num_hidden=5, classes=3)
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
    task = with_frozen(TASK, PRETRAINED, is_shared)
    settings = femnist._settings(trial, INPUTS) | {
        "option": "model",
        "weights": "samples",
        "shared": is_shared,
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
    run = jax.jit(lambda step_size, flat: trained(
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
    run = jax.jit(lambda step_size: trained(
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
        lambda: trained(dataclasses.replace(trial, method=method), key, INPUTS)
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
        data = {name: (list(axes), np.full((1, 2, 1, 1), np.nan)) for name in DIMS}
        data["failed"] = (list(axes[:2]), np.array([[True, True]]))
        coords = {"method": ["fedavg"], "repetition": [0.0, 1.0], "round": [2]}
        return Result(name, trial, xr.Dataset(data, coords, {"failures": 2}))

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
