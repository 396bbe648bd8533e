"""CLoVE with an unknown number of clusters: methods, rows by hand, and the command."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from cfljax.data.writers import Writers
from experiments.__main__ import main as command
from experiments.clove import unknown_k
from experiments.options import Options

SMALL = dataclasses.replace(
    unknown_k.preset("quick"),
    num_clients=5,
    num_channels=1,
    num_hidden=3,
    num_rounds=2,
    batch_size=3,
    max_clusters=15,
)
NAMES = ("clove", "ifca-2", "local")


def some_writers() -> Writers:
    """Six writers of 4 x 4 images, with numbers of images of their own."""
    random = np.random.default_rng(8)
    owners = [np.repeat(np.arange(6), n) for n in ([5, 3, 8, 6, 4, 7], 6 * [2])]
    images = [random.integers(0, 256, (len(o), 4, 4)).astype(np.uint8) for o in owners]
    labels = [random.integers(0, 3, len(o)).astype(np.int32) for o in owners]
    first, second = zip(images, labels, owners, strict=True)
    return Writers(*first, *second, tuple("abcdef"), 3, "made up")


def made_up() -> xr.Dataset:
    """Two seeds of three rounds; the second of IFCA failed."""
    axes = ("method", "repetition", "trial", "round")
    shape = (3, 2, 1, 3)
    values = {name: np.full(shape, np.nan) for name in unknown_k.DIMS}
    values["accuracy"][:] = [0.1, 0.2, 0.6]
    values["accuracy"][0, 1] += 0.2
    values["client_accuracy"][:] = 0.5
    values["used_models"][0, :, 0] = [[9, 3, 2], [11, 4, 5]]
    values["used_models"][1, :, 0] = [1, 2, 1]
    values["largest_cluster"][:2] = 0.75
    values["received"][:], values["sent"][:] = 4.0, 1.0
    failed = np.array([[False, False], [False, True], [False, False]])
    for name in unknown_k.DIMS:
        values[name][1, 1] = np.nan
    data = {name: (axes, values[name]) for name in unknown_k.DIMS}
    coords = {"method": list(NAMES), "repetition": [0.0, 1.0], "round": [1, 2, 3]}
    return xr.Dataset(data | {"failed": (axes[:2], failed)}, coords)


def test_methods_by_name():
    assert unknown_k.method_of("clove") == unknown_k.Method("clove", None)
    assert unknown_k.method_of("clove-3") == unknown_k.Method("clove", 3)
    assert (
        unknown_k.method_of("ifca-2").clusters
        and not unknown_k.method_of("local").clusters
    )
    assert (unknown_k.label("clove"), unknown_k.label("clove-2")) == (
        "CLoVE, unknown K",
        "CLoVE, K = 2",
    )
    for wrong in ("ifca", "clove-0", "fedavg-2", "clove-", "other", "clove-x"):
        with pytest.raises(ValueError, match="a method must be clove"):
            unknown_k.method_of(wrong)


def test_clusters_by_hand():
    found = jax.jit(unknown_k.clusters_of, static_argnums=1)
    used, largest = found(jnp.array([3, 0, 3, 3, -1]), 4)
    assert (float(used), round(float(largest), 6)) == (2, 0.6)
    # A client without a model is in no cluster, not even in the last.
    used, largest = found(jnp.array([-1, -1, -1, -1, 1]), 4)
    assert (float(used), round(float(largest), 6)) == (1, 0.2)


def test_rows_by_hand():
    clove, ifca, local = table = unknown_k.rows(made_up())
    np.testing.assert_allclose(clove["accuracy_mean"], 70)
    np.testing.assert_allclose(clove["accuracy_std"], 10)
    assert (clove["trials"], ifca["trials"], ifca["failed"]) == (2, 1, 1)
    assert ifca["accuracy_std"] is None  # Of a single run.
    np.testing.assert_allclose(ifca["accuracy_mean"], 60)
    # The random first round is no clustering.
    assert (clove["used_models"], clove["fewest_models"]) == ("2 5", 2)
    assert (clove["most_models"], ifca["most_models"]) == (5, 2)
    assert "used_models" not in local and local["received"] == 4
    published = [row["paper_accuracy_mean"] for row in table]
    assert published == [68.2, None, None]
    text = unknown_k.markdown(table)
    assert "CLoVE, unknown K | 3 | 2 | 70.0 ± 10.0 | 50.0 ± 0.0 | 68.2 ± 1.3" in text
    assert "IFCA, K = 2 | 3 | 1 | 60.0 | 50.0 |" in text
    failed = [run["failed"] for run in unknown_k.runs(made_up())]
    assert failed == [False, False, False, True, False, False]


def test_the_figure_has_models_of_those_that_find_clusters():
    figure = unknown_k.draw(made_up())
    assert figure is not None
    models, accuracy = (
        [
            unknown_k.label
            for line in axes.get_lines()
            if (label := str(line.get_label()))[0] != "_"
        ]
        for axes in figure.axes
    )
    assert models == ["CLoVE, unknown K", "IFCA, K = 2"]
    assert accuracy == [*models, "Local-only"]
    alone = unknown_k.draw(made_up().sel({"method": ["local"]}))
    assert alone is not None and len(alone.axes) == 1
    broken = made_up()
    broken["failed"].values[:] = True
    assert unknown_k.draw(broken) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"methods": ()}, "`methods` must hold different names"),
        ({"methods": ("clove", "clove")}, "`methods` must hold different names"),
        ({"methods": ("ifca",)}, "a method must be clove"),
        ({"max_clusters": 1}, "`max_clusters` must be at least 2, got 1"),
        ({"num_clients": 1}, "`num_clients` must be at least 2, got 1"),
        ({"num_epochs": 0}, "`num_epochs` must be at least 1, got 0"),
        ({"step_size": float("nan")}, "`step_size` must be finite"),
    ],
)
def test_impossible_configurations_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SMALL, **change)


def test_the_preset_is_the_papers():
    paper = unknown_k.preset("paper")
    sizes = paper.num_clients, paper.num_epochs, paper.max_clusters, paper.first_round
    assert sizes == (100, 1, 15, "random")
    assert paper.methods[0] == "clove" and len(paper.methods) == 7


def test_without_data_one_message_says_how_to_get_them(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("CFLJAX_DATA", raising=False)
    status = command(["run", "clove.unknown_k", "--out", str(tmp_path / "out")])
    assert status == 2
    assert "No folder of data is named" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@jax.numpy_dtype_promotion("standard")  # Optax's Adam: a float to an integer's power.
def test_command_writes_all_and_one_cluster_is_the_global_model(
    tmp_path, monkeypatch, refuse_work
):
    monkeypatch.setattr(unknown_k, "load_writers", lambda *_, **__: some_writers())
    methods = ("clove", "clove-1", "ifca-1", "fedavg", "local")
    config = dataclasses.replace(SMALL, methods=methods)
    options = Options(out=tmp_path, progress=False)
    summary = unknown_k.main(config, options)
    assert summary["failed_cells"] == 0
    found = {row["method"]: row for row in summary["rows"]}
    assert 2 <= found["clove"]["fewest_models"] <= found["clove"]["most_models"] < 5
    for name in ("clove-1", "ifca-1"):
        for value in ("accuracy_mean", "client_accuracy_mean", "received"):
            assert found[name][value] == found["fedavg"][value]
        assert found[name]["used_models"] == "1"
        assert found[name]["largest_cluster_mean"] == 100
    # Where CLoVE chooses, all five models are sent, in all rounds but the first.
    assert found["clove"]["received"] == 3 * found["fedavg"]["received"]
    assert found["local"]["received"] == 0
    names = {"table.csv", "runs.csv", "table.md", "config.json"}
    names |= {"rounds.svg", "rounds.png"}
    assert {path.rsplit("/", 1)[1] for path in summary["files"]} == names

    # Nothing is run again.
    refuse_work()
    again = unknown_k.main(config, options)
    assert json.dumps(again["rows"]) == json.dumps(summary["rows"])
