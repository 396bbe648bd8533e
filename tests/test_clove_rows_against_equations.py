"""Rows, tables and figures of CLoVE's experiments, by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from test_clove_study_against_itself import named

from experiments.clove import fig4, table1
from experiments.clove.rows import Result, first_found, markdown, rows
from experiments.clove.scores import rand_index
from experiments.clove.study import grids
from experiments.clove.write import draw as draw_figure
from experiments.clove.write import runs

NAMES = ("clove", "ifca", "fedavg", "local")


def made_up_result() -> Result:
    """Three seeds of MNIST: CLoVE is right from round 2, IFCA never, one run failed."""
    trial = next(grids(table1.preset("paper"), named("mnist"))).trial
    shape = (len(NAMES), 3, 1, 100)
    found = np.full(shape, np.nan)
    found[0], found[1] = 1.0, 0.72
    found[0, :, :, 0] = 0.5
    score = np.broadcast_to([[[[0.9]]], [[[0.8]]], [[[0.7]]], [[[0.6]]]], shape)
    score = score[..., ::10] + np.array([0, 0.01, 0.05])[:, None, None]
    failed = np.zeros((len(NAMES), 3), bool)
    failed[1, 2] = True
    score[1, 2], found[1, 2] = np.nan, np.nan
    stable = np.zeros(shape)
    stable[0, 0, 0, 6:] = 1
    axes = ("method", "repetition", "trial")
    data = {
        "score": ((*axes, "tested"), score),
        "rand_index": ((*axes, "round"), found),
        "seen_rand_index": ((*axes, "round"), found.copy()),
        "used_models": ((*axes, "round"), np.full(shape, 5.0)),
        "stable": ((*axes, "round"), stable),
        "received": ((*axes, "round"), np.full(shape, 2.0)),
        "sent": ((*axes, "round"), np.full(shape, 1.0)),
        "failed": (axes[:2], failed),
    }
    coords = {"method": list(NAMES), "repetition": [0.0, 1.0, 2.0]}
    return Result(trial, xr.Dataset(data, coords | {"round": np.arange(1, 101)}))


def test_first_found_by_hand():
    nan = np.nan
    assert first_found(np.array([0.5, 0.89, 0.9, 0.2])) == 3
    assert first_found(np.array([nan, 1.0])) == 2
    assert first_found(np.array([nan, nan, 0.89])) is None


def test_rows_by_hand_beside_the_published_numbers():
    clove, ifca, fedavg, local = rows(made_up_result(), table1.VIEW)
    assert clove["trials"] == 3 and ifca["trials"] == 2  # One run failed.
    np.testing.assert_allclose(clove["accuracy_mean"], 92)
    np.testing.assert_allclose(clove["accuracy_std"], np.std([90, 91, 95]))
    np.testing.assert_allclose(ifca["accuracy_mean"], 80.5)
    assert (clove["found"], clove["first_mean"], clove["first_std"]) == (3, 2, 0)
    assert (ifca["found"], ifca["first_mean"]) == (0, None)
    assert (clove["stable_mean"], ifca["stable_mean"]) == (6, None)
    assert clove["mebibytes_mean"] == 3 and "rand_mean" not in local
    published = [row["paper_accuracy_mean"] for row in (clove, ifca, fedavg, local)]
    assert published == [99.8, 99.1, 87.4, 99.5]
    assert [row["paper_rand_mean"] for row in (clove, ifca)] == [1, 0.83]
    assert (clove["paper_first_mean"], ifca["paper_rand_early_mean"]) == (2, 0.83)
    text = markdown([clove, ifca, fedavg, local], table1.VIEW)
    assert "0.72 ± 0.00 | 0.83 ± 0.12 | 0/2" in text


def test_a_reconstruction_has_a_loss_and_no_accuracy():
    result = made_up_result()
    trial = dataclasses.replace(result.trial, network="autoencoder")
    row = rows(dataclasses.replace(result, trial=trial), table1.VIEW)[0]
    assert "accuracy_mean" not in row
    np.testing.assert_allclose(row["loss_mean"], 0.92)


@pytest.mark.parametrize(
    "change",
    [
        {"dataset": "digits"},
        {"num_participants": 5},
        {"num_clusters": 3},
        {"partition": "label_skew_3"},
        {"network": "autoencoder"},
    ],
)
def test_other_trials_have_no_published_numbers(change):
    result = made_up_result()
    trial = dataclasses.replace(result.trial, **change)
    table = rows(dataclasses.replace(result, trial=trial), table1.VIEW)
    assert not any(name.startswith("paper_") for row in table for name in row)


def test_what_is_missing_is_said():
    clove, ifca, *_ = rows(made_up_result(), table1.VIEW)
    one = {**clove, "accuracy_std": None, "rand_mean": float("nan")}
    text = markdown([one, ifca], table1.VIEW)
    assert "| 92.0 |" in text and "| undefined |" in text and "| never |" in text
    assert "undefined" not in markdown([clove, ifca], table1.VIEW)


def test_a_figure_of_few_participants_shows_all_who_were_seen():
    result = made_up_result()
    result.data["seen_rand_index"].values[...] = 0.25
    assert rows(result, table1.VIEW)[0]["rand_mean"] == 1
    assert rows(result, fig4.VIEW)[0]["rand_mean"] == 0.25


def test_index_where_there_is_something_to_find():
    truth = jnp.arange(6) // 2
    index = jax.jit(lambda own: rand_index(own, truth))
    assert index(jnp.array([3, 3, 1, -1, -1, -1])) == 1
    assert index(jnp.array([3, 2, 1, -1, -1, -1])) == 0
    for apart in ([3, -1, 2, -1, 1, -1], [0, -1, -1, -1, -1, -1], [-1] * 6):
        assert np.isnan(index(jnp.array(apart)))


def test_a_run_without_an_index_spoils_the_mean_and_is_not_found():
    result = made_up_result()
    result.data["rand_index"].values[0, 1] = np.nan
    clove = rows(result, table1.VIEW)[0]
    assert np.isnan(clove["rand_mean"]) and (clove["found"], clove["trials"]) == (2, 3)


def test_the_figure_has_the_methods_that_find_clusters():
    result = made_up_result()
    figure = draw_figure([result], table1.VIEW)
    assert figure is not None and len(figure.axes) == 1
    names = {str(line.get_label()) for line in figure.axes[0].get_lines()}
    assert {name for name in names if name[0] != "_"} == {"CLoVE", "IFCA"}
    alone = Result(result.trial, result.data.sel({"method": ["local"]}))
    assert draw_figure([alone], table1.VIEW) is None
    failed = [run["failed"] for run in runs(result, table1.VIEW)]
    assert failed == [False] * 5 + [True] + [False] * 6
