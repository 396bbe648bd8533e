"""The law's cells: seeds, files, table and figure."""

import dataclasses
import pathlib
from typing import Any

import numpy as np
import pytest

from cfljax import engine
from cfljax.report import read_csv, write_csv
from experiments.ifca import success_law, success_law_table
from experiments.ifca.success import DIMS, Trial
from experiments.ifca.success_figures import draw_curves
from experiments.ifca.success_law_table import rows, sweep
from experiments.ifca.success_pairs import DATA, FRESH
from experiments.ifca.success_table import AXES

STEPS = (0.5, 1e6)  # The second diverges.
TRIAL = Trial(
    convention="reference",
    separation=1.0,
    noise=0.2,
    num_clients=4,
    num_samples=20,
    num_clusters=2,
    num_features=10,
    num_restarts=2,
    num_rounds=60,
    init_scale=1.0,
    init_unit="one",
    normalise="all",
    resample=False,
)


def grid(**changes: Any) -> engine.Grid:
    axes = {axis: (getattr(TRIAL, axis),) for axis in AXES}
    settings: dict[str, Any] = {
        "experiment": "ifca.fig3a",
        "trial": TRIAL,
        "axes": axes | {"separation": (0.5, 1.0), "noise": (0.0, 0.2)},
        "num_trials": 3,
        "dims": DIMS,
        "coords": {"step_size": STEPS},
    }
    return engine.Grid(**(settings | changes))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("law")


@pytest.fixture(scope="module")
def found(folder: pathlib.Path) -> list[np.ndarray]:
    return sweep(grid(), folder)


def test_a_trial_is_the_same_however_many_others_there_are(found):
    one = success_law.distances(
        dataclasses.replace(TRIAL, separation=0.5, noise=0.0),
        np.array(STEPS),
        num_trials=1,
        seed=0,
    )
    np.testing.assert_allclose(found[0][:1], one, rtol=1e-12)
    assert not np.array_equal(found[0][0], found[0][1])


def test_another_seed_gives_other_runs(found):
    other = success_law.distances(
        dataclasses.replace(TRIAL, separation=0.5, noise=0.0),
        np.array(STEPS),
        num_trials=1,
        seed=1,
    )
    assert not np.any(other[:, :, 0] == found[0][:1, :, 0])


def test_runs_that_diverge_never_succeed(found):
    table = rows(grid(), found, tolerance=np.inf, error_rate=0.05)
    for row, distance in zip(table, found, strict=True):
        assert not np.any(np.isfinite(distance[:, :, 1]))
        assert row["successes_step_1e+06"] == 0
        assert row["successes"] == row["successes_step_0.5"] == 3


def test_cells_that_are_stored_are_not_computed_again(folder, found, monkeypatch):
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr(success_law_table, "distances", refuse)
    for one, two in zip(sweep(grid(), folder), found, strict=True):
        np.testing.assert_array_equal(one, two)
    for other in ({"seed": 1}, {"num_trials": 2}, {"coords": {"step_size": (0.25,)}}):
        with pytest.raises(AssertionError, match="again"):  # Control: not of these.
            sweep(grid(**other), folder)


@pytest.mark.parametrize("left", [0, 100, 400])
def test_a_torn_file_is_computed_again(folder, found, left):
    victim = sorted(folder.glob("*.npz"))[0]
    whole = victim.read_bytes()
    assert len(whole) > left
    victim.write_bytes(whole[:left])
    for one, two in zip(sweep(grid(), folder), found, strict=True):
        np.testing.assert_array_equal(one, two)
    assert len(list(folder.iterdir())) == 4


def test_table_counts_and_divides_the_error_rate(tmp_path):
    distance = np.full((3, 2, 2), np.nan)
    distance[0, :, 0] = 0.11  # Two runs of one trial.
    distance[1, 1, 1] = 0.12  # 0.6 sigma exactly.
    distance[2, 0, 0] = 0.13
    table = rows(grid(), [distance] * 4, tolerance=1e-9, error_rate=0.04)
    row = next(r for r in table if r["noise"] == 0.2)
    assert (row["trials"], row["successes"], row["restart_successes"]) == (3, 2, 3)
    assert (row["successes_step_0.5"], row["successes_step_1e+06"]) == (1, 1)
    assert row["restart_successes_step_0.5"] == 2
    assert row["interval_error_rate"] == pytest.approx(0.01)
    # Clopper and Pearson's upper end u for 2 of 3: 1 - u^3 = 0.995.
    assert row["high"] == pytest.approx((1 - 0.005) ** (1 / 3))
    assert row["identity_samples"] == row["gradient_samples"] == 20
    assert next(r for r in table if r["noise"] == 0.0)["successes"] == 0
    write_csv(tmp_path / "law.csv", table)
    assert read_csv(tmp_path / "law.csv") == table


def look(table: list[dict[str, Any]], **more: Any) -> Any:
    return draw_curves(
        table,
        row_axis="noise",
        column_axis="separation",
        title="title",
        tolerance=0.0,
        confidence="confidence",
        **more,
    )


def test_each_curve_has_its_law_beside_it(found):
    data = rows(grid(), found, tolerance=np.inf, error_rate=0.05)
    none = [row | {"successes": 0} for row in data]
    figure = look(data, law_rows=none)
    (axes,) = figure.axes
    lines = {line.get_label(): line for line in axes.lines}
    for name in ("σ = 0", "σ = 0.2"):
        solid, dashed = lines[name], lines[f"_{name} (law)"]
        assert solid.get_linestyle() == "-" and dashed.get_linestyle() == "--"
        assert solid.get_color() == dashed.get_color()
        np.testing.assert_array_equal(solid.get_ydata(), 1)
        np.testing.assert_array_equal(dashed.get_ydata(), 0)
    (legend,) = figure.legends
    labels = [text.get_text() for text in legend.get_texts()]
    assert labels == ["σ = 0", "σ = 0.2", DATA, FRESH]


def test_legend_lies_within_the_figure(found):
    data = rows(grid(), found, tolerance=0.1, error_rate=0.05)
    figure = look(data, law_rows=data)
    figure.canvas.draw()
    (legend,) = figure.legends
    box = legend.get_window_extent()
    assert box.x0 >= 0 and box.x1 <= figure.bbox.width
    plain = look(data)  # Control: without a law nothing is restyled.
    assert [line.get_linestyle() for line in plain.axes[0].lines][:1] == ["-"]
    assert FRESH not in [text.get_text() for text in plain.legends[0].get_texts()]


def test_law_of_other_cells_is_refused(found):
    data = rows(grid(), found, tolerance=0.1, error_rate=0.05)
    with pytest.raises(ValueError, match="must hold the cells"):
        look(data, law_rows=[row for row in data if row["noise"] == 0])
