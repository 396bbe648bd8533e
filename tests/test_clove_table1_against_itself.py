"""CLoVE's image tables: their sizes, partitions, rows by hand, and the command."""

import dataclasses
import json
import pathlib
import sys

import jax
import numpy as np
import pytest
import xarray as xr

from cfljax.report import read_csv
from experiments.clove import table1
from experiments.clove.table1_data import PARTITIONS, PUBLISHED, draw
from experiments.clove.table1_report import Result, first_found, markdown, rows
from experiments.clove.table1_trial import METHODS
from experiments.clove.table1_write import draw as draw_figure
from experiments.clove.table1_write import runs
from experiments.ifca.rotated_sweep import Loaded, load
from experiments.options import Options

SMALL = dataclasses.replace(
    table1.preset("quick"),
    images=("digits",),
    cluster_size=2,
    num_samples=6,
    num_test_samples=4,
    num_channels=1,
    num_hidden=4,
    num_rounds=4,
    rounds_between=2,
    batch_size=4,
)
PAPER = table1.preset("paper")
DIGITS = load("digits", Options(out=pathlib.Path("unused")), fall_back=False)


def digits(name: str = "digits") -> Loaded:
    """The embedded images, by another name for tests of what stands beside it."""
    return dataclasses.replace(DIGITS, name=name)


def made_up_result() -> Result:
    """Three seeds of MNIST: CLoVE is right from round 2, IFCA never, one run failed."""
    trial = table1._grid(PAPER, "label_skew_1", digits("mnist")).trial
    shape = (len(METHODS), 3, 1, 100)
    found = np.full(shape, np.nan)
    found[0], found[1] = 1.0, 0.72
    found[0, :, :, 0] = 0.5
    accuracy = np.broadcast_to([[[[0.9]]], [[[0.8]]], [[[0.7]]], [[[0.6]]]], shape)
    accuracy = accuracy[..., ::10] + np.array([0, 0.01, 0.05])[:, None, None]
    failed = np.zeros((len(METHODS), 3), bool)
    failed[1, 2] = True
    accuracy[1, 2], found[1, 2] = np.nan, np.nan
    axes = ("method", "repetition", "trial")
    data = {
        "accuracy": ((*axes, "tested"), accuracy),
        "rand_index": ((*axes, "round"), found),
        "used_models": ((*axes, "round"), np.full(shape, 5.0)),
        "received": ((*axes, "round"), np.full(shape, 2.0)),
        "sent": ((*axes, "round"), np.full(shape, 1.0)),
        "failed": (axes[:2], failed),
    }
    coords = {"method": list(METHODS), "repetition": [0.0, 1.0, 2.0]}
    return Result(trial, xr.Dataset(data, coords | {"round": np.arange(1, 101)}))


def test_sizes_are_the_papers():
    sizes = {}
    for images in ("mnist", "fashion_mnist", "cifar10"):
        for partition in PARTITIONS:
            trial = table1._grid(PAPER, partition, digits(images)).trial
            sizes[images, partition] = trial.num_clients, trial.num_samples
            assert (trial.network == "deep_cnn") == (images == "cifar10")
    for images in ("mnist", "fashion_mnist"):
        own = [sizes[images, partition] for partition in PARTITIONS]
        assert own == [(25, 500), (25, 500), (20, 1000), (40, 500)]
    own = [sizes["cifar10", partition] for partition in PARTITIONS]
    assert own == [(15, 500), (15, 500), (12, 1000), (20, 500)]
    training = PAPER.num_rounds, PAPER.num_epochs, PAPER.batch_size, PAPER.step_size
    assert (*training, PAPER.num_trials) == (100, 1, 64, 0.001, 3)


@pytest.mark.parametrize("partition", PARTITIONS)
def test_clients_of_a_repetition_are_the_same_whatever_the_others(partition):
    images = digits().arrays
    number = 2 * PUBLISHED[partition].num_clusters
    sizes = {"num_clients": number, "num_samples": 8, "num_test_samples": 4}
    one = draw(partition, images, seed=3, repetitions=1, **sizes)
    two = draw(partition, images, seed=3, repetitions=2, **sizes)
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, b[:1]), one, two)
    assert two.train.mask.shape == (2, number, 8)
    assert two.test.mask.shape == (2, number, 4)
    assert bool(two.train.mask.all()) and bool(two.test.mask.all())
    assert np.any(two.train.inputs[0] != two.train.inputs[1])


def test_a_client_is_tested_on_the_classes_of_its_cluster():
    sizes = {"num_clients": 10, "num_samples": 8, "num_test_samples": 8}
    own = draw("label_skew_1", digits().arrays, seed=0, repetitions=1, **sizes)
    cluster = np.asarray(own.clusters[0])[:, None]
    for data in (own.train, own.test):
        assert np.all(np.asarray(data.targets[0]) // 2 == cluster)
    # Control: clients in another order have others.
    assert np.any(np.asarray(own.test.targets[0])[::-1] // 2 != cluster)


def test_first_found_by_hand():
    nan = np.nan
    assert first_found(np.array([0.5, 0.89, 0.9, 0.2])) == 3
    assert first_found(np.array([nan, 1.0])) == 2
    assert first_found(np.array([nan, nan, 0.89])) is None


def test_rows_by_hand_beside_the_published_numbers():
    clove, ifca, fedavg, local = rows(made_up_result())
    assert clove["trials"] == 3 and ifca["trials"] == 2  # One run failed.
    np.testing.assert_allclose(clove["accuracy_mean"], 92)
    np.testing.assert_allclose(clove["accuracy_std"], np.std([90, 91, 95]))
    np.testing.assert_allclose(ifca["accuracy_mean"], 80.5)
    assert (clove["found"], clove["first_mean"], clove["first_std"]) == (3, 2, 0)
    assert (ifca["found"], ifca["first_mean"]) == (0, None)
    assert clove["mebibytes_mean"] == 3 and "rand_mean" not in local
    published = [row["paper_accuracy_mean"] for row in (clove, ifca, fedavg, local)]
    assert published == [99.8, 99.1, 87.4, 99.5]
    assert [row["paper_rand_mean"] for row in (clove, ifca)] == [1, 0.83]
    text = markdown([clove, ifca, fedavg, local])
    assert "0.72 ± 0.00 | 0.83 ± 0.12 | 0/2" in text


def test_other_images_have_no_published_numbers():
    result = made_up_result()
    trial = dataclasses.replace(result.trial, images="digits")
    table = rows(dataclasses.replace(result, trial=trial))
    assert {row["paper_accuracy_mean"] for row in table} == {None}


def test_a_run_without_an_index_spoils_the_mean_and_is_not_found():
    result = made_up_result()
    result.data["rand_index"].values[0, 1] = np.nan
    clove = rows(result)[0]
    assert np.isnan(clove["rand_mean"]) and (clove["found"], clove["trials"]) == (2, 3)


def test_the_figure_has_the_methods_that_find_clusters():
    result = made_up_result()
    figure = draw_figure([result, result])
    assert figure is not None and len(figure.axes) == 2
    names = {str(line.get_label()) for line in figure.axes[0].get_lines()}
    assert {name for name in names if name[0] != "_"} == {"CLoVE", "IFCA"}
    alone = Result(result.trial, result.data.sel({"method": ["local"]}))
    assert draw_figure([alone]) is None
    failed = [run["failed"] for run in runs(result)]
    assert failed == [False] * 5 + [True] + [False] * 6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"partitions": ()}, "`partitions` must hold different names"),
        ({"methods": ("clove", "clove")}, "`methods` must hold different names"),
        ({"cluster_size": 0}, "`cluster_size` must be at least 1, got 0"),
        ({"step_size": float("nan")}, "`step_size` must be finite"),
    ],
)
def test_impossible_configurations_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SMALL, **change)


def test_impossible_trials_are_refused():
    trial = table1._grid(SMALL, "label_skew_1", digits()).trial
    with pytest.raises(ValueError, match="`rounds_between` must divide"):
        dataclasses.replace(trial, rounds_between=3)


@pytest.mark.slow
@jax.numpy_dtype_promotion("standard")  # Optax's Adam: a float to an integer's power.
def test_command_writes_all_and_resumes_whatever_was_done_before(tmp_path, monkeypatch):
    config = dataclasses.replace(SMALL, partitions=("label_skew_1",))
    options = Options(out=tmp_path / "whole", progress=False)
    summary = table1.main(config, options)
    assert summary["failed_cells"] == 0 and len(summary["rows"]) == 4
    names = {"table.csv", "runs.csv", "table.md", "config.json"}
    names |= {"rand_index.svg", "rand_index.png"}
    assert {path.rsplit("/", 1)[1] for path in summary["files"]} == names
    found = read_csv(options.out / "runs.csv")
    assert len(found) == 8 and all(0 <= run["accuracy"] <= 100 for run in found)
    received = {run["method"]: run["received_mib"] for run in found}
    assert received["local"] == 0 < received["fedavg"]
    for name in ("clove", "ifca"):  # All models of K = 5, where FedAvg has one.
        np.testing.assert_allclose(received[name] / received["fedavg"], 5, rtol=1e-5)

    # Of fewer methods, in another chunk, interrupted after a cell: the same numbers.
    fewer = dataclasses.replace(config, methods=("clove", "fedavg"))
    other = dataclasses.replace(options, out=tmp_path / "parts", chunk=1)
    sweeping = sys.modules["cfljax.engine.sweep"]
    run_cells = sweeping.run_cells

    def interrupted(job, cells):
        run_cells(job, cells[:1])
        raise KeyboardInterrupt

    with monkeypatch.context() as context, pytest.raises(KeyboardInterrupt):
        context.setattr(sweeping, "run_cells", interrupted)
        table1.main(fewer, other)
    resumed = table1.main(fewer, other)["rows"]
    assert json.dumps(resumed) == json.dumps(summary["rows"][::2])

    # Nothing is run again.
    monkeypatch.setattr(sweeping, "run_cells", None)
    again = table1.main(config, options)
    assert json.dumps(again["rows"]) == json.dumps(summary["rows"])
