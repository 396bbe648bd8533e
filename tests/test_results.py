"""Results that explain themselves: `open_results` on stores and folders of tables."""

import json
import pathlib
import re
import shutil
from typing import Any

import matplotlib.pyplot
import numpy as np
import pandas
import pytest
import xarray

import cfljax as cfl
from cfljax import report
from cfljax.engine import QUANTITIES, Quantity, StoreError, quantity, sweep
from tests.engine_trial import draw, plain_grid

FIGURES = pathlib.Path(__file__).resolve().parents[1] / "figures"
GRID = plain_grid(
    axes={"separation": (0.5, 1.0), "noise": (0.1,)},
    num_trials=12,
    dims={"value": ("place",)},
    coords={"place": (0.25, 0.5, 1.0)},
    quantities={"value": Quantity("what was drawn", "u", "nat")},
)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store of one experiment, and what the sweep that filled it returned."""
    path = tmp_path_factory.mktemp("results") / "store"
    return path, sweep(GRID, draw, path, progress=False)


# --- Against itself: what a sweep returns, and the rows of tables.


def test_store_gives_back_what_its_sweep_returned(store):
    path, returned = store
    found = cfl.open_results(path)
    for name in ("value", "trials"):
        xarray.testing.assert_equal(
            found[name].reset_coords(drop=True), returned[name].reset_coords(drop=True)
        )
        assert found[name].attrs == returned[name].attrs
    assert found.sizes == returned.sizes and list(found["value"].dims) == list(
        returned["value"].dims
    )
    for name in ("separation", "noise", "trial", "place", "code"):
        np.testing.assert_array_equal(found[name], returned[name])
    assert {found.attrs[n] for n in ("experiment", "seed")} == {
        returned.attrs[n] for n in ("experiment", "seed")
    }


def test_store_of_an_unfinished_sweep_has_nan_where_nothing_is(store, tmp_path):
    path, returned = store
    shutil.copytree(path, tmp_path / "s")
    victim = next(iter((tmp_path / "s" / "cells").glob("*/1.npz")))
    victim.unlink()
    found = cfl.open_results(tmp_path / "s")
    missing = np.isnan(found["value"].values)
    assert missing.sum() == 2 * 3  # Trials 10 and 11 of one cell, at three places.
    assert sorted(found["trials"].values.ravel()) == [10, 12]
    there = returned["value"].values[~missing]
    np.testing.assert_array_equal(found["value"].values[~missing], there)


def test_settings_choose_and_what_is_not_there_is_refused(store):
    path, returned = store
    found = cfl.open_results(path, separation=0.5)
    assert found.sizes["separation"] == 1
    np.testing.assert_array_equal(
        found["value"].squeeze("separation"), returned["value"].sel(separation=0.5)
    )
    with pytest.raises(StoreError, match=r"has separation = .*, not 2.0"):
        cfl.open_results(path, separation=2.0)
    with pytest.raises(StoreError, match=r"no setting 'R'"):
        cfl.open_results(path, R=2.0)
    with pytest.raises(StoreError, match=r"plain; no 'other'"):
        cfl.open_results(path, "other")


def test_seeds_and_experiments_of_one_store_are_told_apart(store, tmp_path):
    shutil.copytree(store[0], tmp_path / "s")
    shared = {"num_trials": 2, "dims": GRID.dims, "coords": GRID.coords, "axes": {}}
    for number, name in ((1, "plain"), (0, "another")):
        own = plain_grid(**shared, experiment=name, seed=number)
        sweep(own, draw, tmp_path / "s", progress=False)
    with pytest.raises(StoreError, match="another, plain; choose an `experiment`"):
        cfl.open_results(tmp_path / "s")
    assert cfl.open_results(tmp_path / "s", "another").attrs["seed"] == 0
    found = cfl.open_results(tmp_path / "s", "plain")
    assert found["seed"].values.tolist() == [0, 1]
    alone = found["value"].sel(seed=0, separation=0.5, noise=0.1)
    assert np.array_equal(alone, store[1]["value"].sel(separation=0.5, noise=0.1))


def is_kept(file: pathlib.Path) -> bool:
    """Whether a table opens, and has each row at its own settings with all it says."""
    found, rows = cfl.open_results(file.parent, table=file.stem), report.read_csv(file)
    frame = found.to_dataframe().reset_index()
    own = {c: c if c in frame else f"num_{c}" for c in rows[0]}
    axes = [column for column in own if own[column] in found.dims]
    at = frame.set_index([own[column] for column in axes]) if axes else frame
    for number, row in enumerate(rows):
        place = tuple(row[column] for column in axes) or number
        if list(found.dims) == ["row"]:
            place = number
        there = at.loc[
            place[0] if isinstance(place, tuple) and len(axes) == 1 else place
        ]
        for column, value in row.items():
            kept = there[own[column]] if column not in axes else value
            missing = pandas.isna(kept) or kept == ""
            if missing if value is not None and value == value else not missing:
                return False
            if value is not None and value == value and kept != value:
                return str(kept) == str(value)
    return True


def test_rows_of_committed_tables_are_kept(tmp_path):
    """Of a grid, of one with a coordinate that depends on another, and of no grid."""
    for name in ("ifca.fig3d/law", "clove.table15/table", "reviews.crit/table"):
        assert is_kept(FIGURES / f"{name}.csv")


@pytest.mark.slow
@pytest.mark.parametrize(
    "file", sorted(FIGURES.glob("*.*/*.csv")), ids=lambda f: f"{f.parent.name}/{f.stem}"
)
def test_rows_of_every_committed_table_are_kept(file):
    assert is_kept(file)


def test_table_is_found_by_the_values_of_its_settings():
    found = cfl.open_results(FIGURES / "ifca.fig3a")
    rows = report.read_csv(FIGURES / "ifca.fig3a" / "table.csv")
    for row in rows:
        at = {name: row[name] for name in ("convention", "separation", "noise")}
        own = found.sel({**at, "num_clients": row["clients"]}).squeeze()
        assert int(own["successes"]) == row["successes"]
        assert float(own["low"]) == row["low"]
    assert found.sel(noise=0.1).sizes["separation"] == 5
    with pytest.raises(KeyError):
        found.sel(noise=0.15)
    assert json.loads(found.attrs["config"])["num_features"] == 1000
    assert found.attrs["experiment"] == "ifca.fig3a"
    assert "commit 76b1002cea" in found.attrs["source"]


def test_folder_of_nothing_says_what_it_has(tmp_path):
    with pytest.raises(StoreError, match="neither `cells` nor a table"):
        cfl.open_results(tmp_path)
    report.write_csv(tmp_path / "law.csv", [{"noise": 0.1, "error": 0.2}])
    with pytest.raises(StoreError, match="only the tables law"):
        cfl.open_results(tmp_path)
    assert float(cfl.open_results(tmp_path, table="law")["error"]) == 0.2


# --- What variables say of themselves.


def test_names_say_in_words_what_they_are(store):
    found = cfl.open_results(store[0])
    assert found["noise"].attrs == {
        "long_name": "standard deviation of the noise σ",
        "symbol": "σ",
    }
    own = {"long_name": "what was drawn u", "symbol": "u", "units": "nat"}
    assert found["value"].attrs == own  # The grid's.
    assert quantity("accuracy_low").long_name.startswith("lower end of the interval")
    assert quantity("clients") == QUANTITIES["num_clients"]
    assert quantity("never_heard") == Quantity("never heard")


def test_axes_of_a_figure_are_declared():
    """Of Figure 3(c) every axis; a stray name is seen."""
    declared = lambda name: name in QUANTITIES or f"num_{name}" in QUANTITIES
    assert not declared("never_heard")
    axes = [str(axis) for axis in cfl.open_results(FIGURES / "ifca.fig3c").dims]
    assert len(axes) == 5 and all(map(declared, axes))


# --- Against other libraries: plots and files.


def tutorial(words: str) -> str:
    """The piece of code of the page on results that has these words."""
    text = (FIGURES.parent / "docs" / "results.md").read_text()
    pieces = re.findall(
        r"```(?:python|\{code-block\} python)\n(.*?)```", text, re.DOTALL
    )
    (found,) = [piece for piece in pieces if words in piece]
    return found


def test_five_lines_plot_with_labels(monkeypatch, capsys):
    monkeypatch.chdir(FIGURES.parent)
    names: dict[str, Any] = {}
    five = tutorial("plot.line")
    exec(five, names)
    assert len(five.strip().splitlines()) == 5
    assert "successes" in capsys.readouterr().out
    axes = matplotlib.pyplot.gca()
    assert axes.get_xlabel() == "separation R"
    assert axes.get_ylabel() == "trials that succeed"
    assert len(axes.get_lines()) == 4
    drawn = axes.get_legend()
    assert drawn is not None
    legend = drawn.get_title().get_text()
    assert legend.replace("\n", " ") == "standard deviation of the noise σ"
    matplotlib.pyplot.close("all")


@pytest.mark.slow
def test_a_run_is_logged_as_the_page_says(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    exec(tutorial("log_metrics"), {})
    frame = pandas.read_csv(tmp_path / "runs" / "ifca.csv")
    assert len(frame) == 30 and frame["rand_index"].between(-1, 1).all()
    assert set(frame["cluster_sizes/0"] + frame["cluster_sizes/1"]) == {20}


def test_zarr_opens_plainly_and_without_warnings(store, tmp_path):
    """Warnings are errors; zarr's own format 3 has no texts yet."""
    pytest.importorskip("zarr", reason="zarr is not installed")
    found = cfl.open_results(store[0])
    found.to_zarr(tmp_path / "s.zarr", zarr_format=2)
    xarray.testing.assert_identical(
        xarray.open_zarr(tmp_path / "s.zarr").load(), found.load()
    )
