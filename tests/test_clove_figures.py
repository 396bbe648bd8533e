"""CLoVE's Figures 3 and 5 and an unknown number of clusters: rows by hand, commands."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from toy_experiments import configured, digits, files, labels, run_twice, some_writers

from cfljax.intervals import clopper_pearson
from experiments.clove import fig3, fig5, unknown_k
from experiments.clove.study import Result, grids

# Figure 3: what k-FED cannot find

SIZES = {"num_clients": 6, "num_clusters": 3, "num_samples": 100, "num_features": 10}
ROUNDS = {"num_rounds": 6, "num_steps": 10, "step_size": 0.05}


@pytest.mark.slow
def test_clove_finds_what_k_fed_cannot():
    def run(method):
        trial = fig3.Trial(method, separation=0.5, noise=0.01, **SIZES, **ROUNDS)
        found = jax.jit(lambda key: fig3.simulate(trial, key))(jax.random.key(0))
        assert set(found) == set(fig3.DIMS)
        assert 1 <= found["least_distance"] <= found["largest_distance"] <= 5
        return np.asarray(found["rand_index"])

    clove, k_fed = run("clove"), run("k_fed")
    assert clove.shape == k_fed.shape == (6,)
    assert clove[-1] == 1 > k_fed[-1]
    assert (k_fed == k_fed[0]).all()


def made_up_separations():
    """Two data sets for each of two separations."""
    rand = np.array([[[[0.2, 1.0], [0.1, 1.0]], [[0.0, 0.9], [0.0, np.nan]]]])
    axes = ("method", "noise", "separation", "trial", "round")
    coords = {"method": ["clove"], "noise": [0.1], "separation": [1.0, 0.1]}
    return xr.Dataset({"rand_index": (axes, rand[None])}, coords | {"round": [1, 2]})


def test_rows_of_separations_by_hand():
    right, wrong = fig3.rows(made_up_separations(), num_samples=100, error_rate=0.1)
    assert right["method"] == "CLoVE" and right["trials"] == 2
    assert right["exact"] == 1 and wrong["exact"] == 0
    low, high = clopper_pearson(2, 2, error_rate=0.05)  # Two settings share .1.
    assert (right["exact_low"], right["exact_high"]) == (low, high)
    np.testing.assert_allclose(right["rand_first"], 0.15)
    np.testing.assert_allclose(wrong["rand_last"], 0.45)  # Without one counts as 0.
    assert right["reached"] == wrong["reached"] == 2
    np.testing.assert_allclose(right["signal"], 100 * 10)
    np.testing.assert_allclose(wrong["signal"], 10)
    (line,) = fig3.overview([right, wrong])
    assert line["Δ = 1"] == "1.00 (2/2)" and line["Δ = 0.1"] == "0.45 (0/2)"


# Figure 5: losses of models on clusters

NAN = np.nan
order = jax.jit(fig5.models_of_clusters)


def made_up_losses() -> Result:
    """Three clusters: CLoVE's diagonal is the least of each row, IFCA has one model."""
    config = dataclasses.replace(fig5.preset("quick"), datasets=("digits",))
    trial = next(grids(config, digits())).trial
    trial = dataclasses.replace(trial, num_clusters=3, num_clients=6)
    clove = [[0.01, 0.2, 0.3], [0.2, 0.02, 0.3], [0.2, 0.3, 0.03]]
    ifca = [[0.04, 0.9, 0.8], [0.05, 0.9, 0.8], [0.06, 0.9, 0.8]]
    fedavg = [[0.02, NAN, NAN], [0.02, NAN, NAN], [0.02, NAN, NAN]]
    local = [[0.02, 0.2, 0.3], [0.2, 0.01, 0.3], [0.2, 0.3, NAN]]
    losses = np.array([clove, ifca, fedavg, local])[:, None, None]
    members = np.array([[2, 2, 2], [6, 0, 0], [6, NAN, NAN], [1, 1, 1]])
    axes = ("method", "repetition", "trial")
    data = {
        "model_losses": ((*axes, *fig5.DIMS["model_losses"]), losses),
        "members": (
            (*axes, *fig5.DIMS["members"]),
            members[:, None, None].astype(float),
        ),
        "score": (axes, np.array([0.02, 0.05, 0.02, 0.03])[:, None, None]),
        "rand_index": (axes, np.array([1, 0, NAN, NAN])[:, None, None]),
        "failed": (axes[:2], np.zeros((4, 1), bool)),
    }
    coords = {"method": ["clove", "ifca", "fedavg", "local"], "repetition": [0.0]}
    return Result(trial, xr.Dataset(data, coords))


def test_models_come_in_the_order_of_the_clusters():
    truth = jnp.array([0, 0, 1, 1, 2, 2])
    alike = jnp.ones((3, 3))
    clear = jnp.array([2, 2, 0, 0, 1, 1])
    assert order(alike, clear, truth).tolist() == [2, 0, 1]
    # Who has a model counts more than whom it fits: here all losses say otherwise.
    against = 1 - 0.9 * jnp.eye(3)
    assert order(against, clear, truth).tolist() == [2, 0, 1]
    assert order(against, jnp.full(6, -1), truth).tolist() == [0, 1, 2]
    # All clients have model 1, which fits cluster 2 best, however large that loss is.
    losses = jnp.array([[0.5, 9.0, 0.6], [0.6, 9.0, 0.5], [0.6, 1.0, 0.6]])
    shared = jnp.ones(6, jnp.int32)
    assert order(losses, shared, truth).tolist() == [0, 2, 1]
    # One loss that is not a number takes no cluster from another.
    broken = losses.at[2, 1].set(NAN)
    assert order(broken, shared, truth).tolist()[2] != 1


def test_rows_of_losses_by_hand():
    result = made_up_losses()
    clove, ifca, fedavg, local = table = fig5.rows(result)
    np.testing.assert_allclose(clove["diagonal"], 0.02)
    np.testing.assert_allclose(ifca["diagonal"], (0.04 + 0.9 + 0.8) / 3)
    np.testing.assert_allclose(fedavg["diagonal"], 0.02)
    assert np.isnan(local["diagonal"])
    assert clove["smallest"] == 1 and "smallest" not in fedavg
    # A loss that is not a number is not the smallest, and is not larger than CLoVE's.
    assert ifca["smallest"] == 1 / 3 and local["smallest"] == 2 / 3
    lower = [row.get("clove_lower") for row in table]
    assert lower == [None, 1, 1 / 3, 1 / 3]
    assert [row["used_models"] for row in table] == [3, 1, 1, 3]
    assert [row.get("rand_index") for row in table] == [1, 0, None, None]
    text = fig5.markdown(table)
    assert "IFCA | 0 | 580.0 | 1/3 | 3/3 | 1 | 50.0 | 0.00" in text

    # Control: another order of CLoVE's models has another diagonal.
    cell = result.data["model_losses"].values
    cell[0] = np.roll(cell[0], 1, axis=-1)
    rolled = fig5.rows(result)[0]
    assert rolled["smallest"] == 0 and rolled["diagonal"] > 0.02


def test_a_failed_run_has_neither_numbers_nor_panel():
    result = made_up_losses()
    result.data["failed"].values[1] = True
    table = fig5.rows(result)
    assert table[1]["failed"] and "diagonal" not in table[1]
    assert fig5.markdown(table).count("IFCA") == 1
    figure = fig5.draw([result], fig5.preset("quick"))
    assert figure is not None and len(figure.axes) == 4  # One is the colour bar.
    result.data["failed"].values[:] = True
    assert fig5.draw([result], fig5.preset("quick")) is None


def test_the_figure_shows_every_loss_where_it_belongs():
    figure = fig5.draw([made_up_losses()], fig5.preset("quick"))
    assert figure is not None
    clove, ifca, fedavg, local, _ = figure.axes
    texts = [text.get_text() for text in clove.texts]
    # From the bottom: the last cluster first.
    assert texts == ["200", "300", "30", "200", "20", "300", "10", "200", "300"]
    assert [label.get_text() for label in clove.get_yticklabels()] == ["2", "1", "0"]
    names = [label.get_text() for label in ifca.get_xticklabels()]
    assert names == ["0", "(1)", "(2)"]
    assert len(fedavg.texts) == 3 and local.texts[2].get_text() == "–"
    # Models that nobody has do not stretch the colours.
    assert ifca.images[0].get_clim() == (0, 300)


@pytest.mark.slow
@jax.numpy_dtype_promotion("standard")  # Optax's Adam: a float to an integer's power.
def test_losses_are_written_and_resume(tmp_path, refuse_work):
    config = configured(
        "clove.fig5",
        "--datasets digits --cluster-sizes 2 --num-samples 4 --num-test-samples 4"
        " --num-hidden 4 --num-latent 2 --num-rounds 2 --rounds-between 1"
        " --batch-size 4",
    )
    summary = run_twice(fig5.main, config, tmp_path, refuse_work)
    clove, ifca, fedavg, local = summary["rows"]
    assert {row["clusters"] for row in summary["rows"]} == {10}
    assert fedavg["used_models"] == 1 and local["used_models"] == 10
    assert ifca["used_models"] <= clove["used_models"] == 10
    assert all(0 < row["diagonal"] < 1 for row in summary["rows"])
    names = {"table.csv", "table.md", "config.json"}
    names |= {f"losses.{kind}" for kind in ("svg", "pdf", "png", "txt")}
    assert files(summary) == names


def test_sizes_of_losses_are_the_papers():
    config = fig5.preset("paper")
    trial = next(grids(config, digits("mnist"))).trial
    sizes = trial.num_clusters, trial.num_clients, trial.num_samples, trial.network
    assert sizes == (10, 50, 250, "autoencoder")
    training = config.num_rounds, config.batch_size, config.num_trials
    assert training == (100, 64, 1)


# An unknown number of clusters

WRITERS = some_writers(5, 3, 8, 6, 4, 7)
SMALL = configured(
    "clove.unknown_k",
    "--num-clients 5 --num-channels 1 --num-hidden 3 --num-rounds 2 --batch-size 3"
    " --max-clusters 15",
)


def made_up_rounds() -> xr.Dataset:
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
    coords = {
        "method": ["clove", "ifca-2", "local"],
        "repetition": [0.0, 1.0],
        "round": [1, 2, 3],
    }
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


def test_rows_of_rounds_by_hand():
    clove, ifca, local = table = unknown_k.rows(made_up_rounds())
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
    failed = [run["failed"] for run in unknown_k.runs(made_up_rounds())]
    assert failed == [False, False, False, True, False, False]


def test_the_figure_has_models_of_those_that_find_clusters():
    figure = unknown_k.draw(made_up_rounds(), unknown_k.preset("quick"))
    assert figure is not None
    models, accuracy = map(labels, figure.axes)
    assert models == ["CLoVE, unknown K", "IFCA, K = 2"]
    assert accuracy == [*models, "Local-only"]
    only = made_up_rounds().sel({"method": ["local"]})
    alone = unknown_k.draw(only, unknown_k.preset("quick"))
    assert alone is not None and len(alone.axes) == 1
    broken = made_up_rounds()
    broken["failed"].values[:] = True
    assert unknown_k.draw(broken, unknown_k.preset("quick")) is None


def test_the_preset_is_the_papers():
    paper = unknown_k.preset("paper")
    sizes = paper.num_clients, paper.num_epochs, paper.max_clusters, paper.first_round
    assert sizes == (100, 1, 15, "random")
    assert paper.methods[0] == "clove" and len(paper.methods) == 7


@pytest.mark.slow
@jax.numpy_dtype_promotion("standard")  # Optax's Adam: a float to an integer's power.
def test_command_writes_all_and_one_cluster_is_the_global_model(
    tmp_path, monkeypatch, refuse_work
):
    monkeypatch.setattr(unknown_k, "load_writers", lambda *_, **__: WRITERS)
    methods = ("clove", "clove-1", "ifca-1", "fedavg", "local")
    config = dataclasses.replace(SMALL, methods=methods)
    summary = run_twice(unknown_k.main, config, tmp_path, refuse_work)
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
    names |= {f"rounds.{kind}" for kind in ("svg", "pdf", "png", "txt")}
    assert files(summary) == names
