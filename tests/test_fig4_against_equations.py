"""Figure 4: what counts as found, its rows and its picture."""

import csv
import dataclasses
import pathlib

import jax
import numpy as np
import pytest
import xarray as xr
from test_table1_against_equations import digits

from experiments.ifca import fig4, rotated, table1_mnist
from experiments.ifca.fig4_report import draw, found_since, rounds, row
from experiments.ifca.rotated_report import Result
from experiments.options import Options

TINY = {
    "num_clients": (8, 8),
    "num_samples": (5, 6),
    "num_participants": (8, 4),
    "num_hidden": (4, 4),
    "num_channels": (1, 2),
    "num_rounds": (3, 3),
    "network": ("mlp", "mlp"),  # Compiles fast.
}


def config(**changes) -> fig4.Config:
    return dataclasses.replace(fig4.preset("quick"), **{**TINY, **changes})


def made_up(matched: list[list[float]]) -> Result:
    trial = fig4._grid(config(), 0, digits("mnist")).trial
    values = np.array(matched)[:, None, :]
    dims = ("repetition", "trial", "round")
    data = {
        name: (dims[: 2 + len(own)], np.ones(values.shape[: 2 + len(own)]))
        for name, own in rotated.IDENTITY_DIMS.items()
    }
    data |= {"matched_accuracy": (dims, values)}
    coords = {"repetition": np.arange(len(values)) * 1.0, "round": np.arange(4)}
    return Result(trial, xr.Dataset(data, coords))


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
    assert found_since(np.array(matched)) == since


def test_rows_and_picture_show_each_seed():
    result = made_up([[0.5, 0.5, 1, 1], [0.5, 1, 1, 1], [0.5, 0.5, 0.5, 0.75]])
    line = row(result)
    assert (line["found"], line["first_round"], line["trials"]) == ("2/3", 1.5, 3)
    assert line["paper_round"] == 30 and line["mib"] == 2
    np.testing.assert_allclose(line["matched"], 2.75 / 3)
    assert len(rounds([result])) == 12
    (axes,) = draw([result]).axes
    lines = [line for line in axes.get_lines() if "_mean" not in str(line.get_label())]
    drawn = [np.asarray(line.get_ydata()) for line in lines]  # All but the caps.
    assert len(drawn) == 4  # The mean and three seeds.
    np.testing.assert_allclose(drawn[0], [0.5, 2 / 3, 2.5 / 3, 2.75 / 3])
    np.testing.assert_array_equal(drawn[3], [0.5, 0.5, 0.5, 0.75])


@pytest.mark.slow
def test_identities_are_those_of_the_run_that_is_tested():
    mnist = table1_mnist.preset("quick")
    small = dataclasses.replace(
        mnist,
        num_clients=(8,),
        num_samples=(5,),
        num_test_clients=(4,),
        num_rounds=2,
        rounds_between=1,
        num_hidden=4,
    )
    images = digits()
    trial = table1_mnist._grid(small, 8, 5, 4, images).trial
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
def test_command_writes_all(tmp_path, monkeypatch):
    monkeypatch.delenv("CFLJAX_DATA", raising=False)
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "none"))
    options = Options(out=tmp_path / "out", progress=False)
    summary = fig4.main(config(num_trials=2), options)
    assert summary["headline"].count("digits: 8 x 8") == 2
    names = {pathlib.Path(path).name for path in summary["files"]}
    assert {"identities.csv", "identities.svg", "identities.png"} <= names
    with (tmp_path / "out" / "identities.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 2 * 2 * 3
    assert {"matched_accuracy", "rand_index", "received_mib"} <= set(lines[0])
    assert {line["start_draws"] for line in lines[:6]} == {""}
    assert all(float(line["start_draws"]) >= 1 for line in lines[6:])


def test_panels_must_have_all_their_settings():
    with pytest.raises(ValueError, match="`num_rounds` must have one entry for each"):
        config(num_rounds=(3,))
    with pytest.raises(ValueError, match="`images` must hold different"):
        config(images=("mnist", "mnist"))
