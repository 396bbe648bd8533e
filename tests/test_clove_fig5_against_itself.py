"""CLoVE's Figure 5: models in the order of clusters, rows by hand, and the command."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from experiments.clove import fig5
from experiments.clove.fig5 import DIMS, draw, markdown, models_of_clusters, rows
from experiments.clove.sources import load_source
from experiments.clove.study import Result, grids
from experiments.options import Options

NAMES = ("clove", "ifca", "fedavg", "local")
NAN = np.nan
order = jax.jit(models_of_clusters)


def made_up(tmp_path, num_clusters=3) -> Result:
    """Three clusters: CLoVE's diagonal is the least of each row, IFCA has one model."""
    config = dataclasses.replace(fig5.preset("quick"), datasets=("digits",))
    images = load_source(
        "digits", Options(out=tmp_path), fall_back=False, num_words=1, num_tokens=1
    )
    trial = next(grids(config, images)).trial
    trial = dataclasses.replace(trial, num_clusters=num_clusters, num_clients=6)
    clove = [[0.01, 0.2, 0.3], [0.2, 0.02, 0.3], [0.2, 0.3, 0.03]]
    ifca = [[0.04, 0.9, 0.8], [0.05, 0.9, 0.8], [0.06, 0.9, 0.8]]
    fedavg = [[0.02, NAN, NAN], [0.02, NAN, NAN], [0.02, NAN, NAN]]
    local = [[0.02, 0.2, 0.3], [0.2, 0.01, 0.3], [0.2, 0.3, NAN]]
    losses = np.array([clove, ifca, fedavg, local])[:, None, None]
    members = np.array([[2, 2, 2], [6, 0, 0], [6, NAN, NAN], [1, 1, 1]])
    axes = ("method", "repetition", "trial")
    data = {
        "model_losses": ((*axes, *DIMS["model_losses"]), losses),
        "members": ((*axes, *DIMS["members"]), members[:, None, None].astype(float)),
        "score": (axes, np.array([0.02, 0.05, 0.02, 0.03])[:, None, None]),
        "rand_index": (axes, np.array([1, 0, NAN, NAN])[:, None, None]),
        "failed": (axes[:2], np.zeros((4, 1), bool)),
    }
    coords = {"method": list(NAMES), "repetition": [0.0]}
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


def test_rows_by_hand(tmp_path):
    result = made_up(tmp_path)
    clove, ifca, fedavg, local = table = rows(result)
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
    text = markdown(table)
    assert "IFCA | 0 | 580.0 | 1/3 | 3/3 | 1 | 50.0 | 0.00" in text

    # Control: another order of CLoVE's models has another diagonal.
    cell = result.data["model_losses"].values
    cell[0] = np.roll(cell[0], 1, axis=-1)
    rolled = rows(result)[0]
    assert rolled["smallest"] == 0 and rolled["diagonal"] > 0.02


def test_a_failed_run_has_neither_numbers_nor_panel(tmp_path):
    result = made_up(tmp_path)
    result.data["failed"].values[1] = True
    table = rows(result)
    assert table[1]["failed"] and "diagonal" not in table[1]
    assert markdown(table).count("IFCA") == 1
    figure = draw([result])
    assert figure is not None and len(figure.axes) == 4  # One is the colour bar.
    result.data["failed"].values[:] = True
    assert draw([result]) is None


def test_the_figure_shows_every_loss_where_it_belongs(tmp_path):
    figure = draw([made_up(tmp_path)])
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
def test_command_writes_all_and_resumes(tmp_path, refuse_work):
    config = dataclasses.replace(
        fig5.preset("quick"),
        datasets=("digits",),
        cluster_sizes=(2,),
        num_samples=(4,),
        num_test_samples=(4,),
        num_hidden=4,
        num_latent=2,
        num_rounds=2,
        rounds_between=1,
        batch_size=4,
    )
    options = Options(out=tmp_path, progress=False)
    summary = fig5.main(config, options)
    assert summary["failed_cells"] == 0
    clove, ifca, fedavg, local = summary["rows"]
    assert {row["clusters"] for row in summary["rows"]} == {10}
    assert fedavg["used_models"] == 1 and local["used_models"] == 10
    assert ifca["used_models"] <= clove["used_models"] == 10
    assert all(0 < row["diagonal"] < 1 for row in summary["rows"])
    names = {"table.csv", "table.md", "config.json", "losses.svg", "losses.png"}
    assert {path.rsplit("/", 1)[1] for path in summary["files"]} == names

    # Nothing is run again.
    refuse_work()
    again = fig5.main(config, options)
    assert json.dumps(again["rows"]) == json.dumps(summary["rows"])


def test_sizes_are_the_papers(tmp_path):
    config = fig5.preset("paper")
    images = load_source(
        "digits", Options(out=tmp_path), fall_back=False, num_words=1, num_tokens=1
    )
    trial = next(grids(config, dataclasses.replace(images, name="mnist"))).trial
    sizes = trial.num_clusters, trial.num_clients, trial.num_samples, trial.network
    assert sizes == (10, 50, 250, "autoencoder")
    training = config.num_rounds, config.batch_size, config.num_trials
    assert training == (100, 64, 1)
