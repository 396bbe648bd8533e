"""The FEMNIST experiment's table and figure by hand."""

import numpy as np
import xarray as xr

from experiments.ifca.femnist_report import Result, draw, markdown, rows, runs
from experiments.ifca.femnist_trial import DIMS, Trial


def made_up_result(name: str = "paper", methods=("ifca-2", "fedavg", "local")):
    """60 per cent at last and 62 at best for the first seed, one more for the second;
    the third is not there."""
    trial = Trial(
        variant="paper",
        method=methods[0],
        checksum="0",
        num_classes=3,
        num_rounds=60,
        rounds_between=20,
        num_participants=2,
        batch_size=2,
        num_epochs=1,
        step_size=0.1,
        pretraining_rounds=0,
        pretraining_participants=0,
        warm_up_rounds=0,
        num_first_steps=1,
        first_step_size=0.1,
        repetition=0.0,
        num_channels=1,
        num_hidden=5,
    )
    axes = ("method", "repetition", "trial", "round")
    seeds = np.array([0, 0.01, np.nan])[None, :, None, None]
    rounds = np.array([0.5, 0.62, 0.6])
    accuracy = np.broadcast_to(rounds + seeds, (len(methods), 3, 1, 3))
    data = {name: (list(axes), np.ones_like(accuracy)) for name in DIMS}
    data["accuracy"] = (list(axes), accuracy)
    data["failed"] = (list(axes[:2]), np.isnan(accuracy[:, :, 0, 0]))
    coords = {"method": list(methods), "repetition": np.arange(3.0)}
    return Result(name, trial, xr.Dataset(data, coords | {"round": [20, 40, 60]}))


def test_rows_by_hand():
    result = made_up_result()
    first = rows(result)[0]
    assert (first["label"], first["trials"], first["failed"]) == ("IFCA k=2", 2, 1)
    np.testing.assert_allclose(first["accuracy_mean"], 60.5)
    np.testing.assert_allclose(first["accuracy_std"], np.sqrt(0.5))
    np.testing.assert_allclose(first["best_mean"], 62.5)
    np.testing.assert_allclose(first["optimism"], 2)
    assert (first["paper_mean"], first["clusters_used"]) == (87.99, "1 1")
    assert first["diverged"] == 0
    result.data["is_finite"][0, 0] = 0
    result.data["is_finite"][0, 2] = 0  # Of a run that is not there.
    assert rows(result)[0]["diverged"] == 1
    each = runs(result)[:3]
    assert [run["failed"] for run in each] == [False, False, True]
    assert each[0]["best_round"] == 40 and each[2]["best"] is None


def test_pretraining_has_a_row_without_a_published_number():
    first = rows(made_up_result("pretraining", ("fedavg",)))[0]
    assert (first["variant"], first["label"]) == ("reference", "pretraining")
    assert first["paper_mean"] is None
    table = rows(made_up_result()) + [first]
    text = markdown(table, 188)
    assert "84.45 ± 0.51" in text and "this table from 188" in text
    assert "diverged" not in text.split("\n", 1)[0]


def test_a_figure_has_a_panel_for_each_variant_and_seven_curves():
    many = ("ifca-2", "ifca-3", "ifca-4", "ifca-5", "ifca-6", "fedavg", "local")
    results = [made_up_result(name, (*many, "ifca-7")) for name in ("paper",)]
    results.append(made_up_result("pretraining", ("fedavg",)))
    figure = draw(results)
    assert figure is not None and draw(results[1:]) is None
    (axes,) = figure.axes
    names = {str(line.get_label()) for line in axes.get_lines()}
    names = {name for name in names if not name.startswith("_")}
    assert len(names) == 7 and "IFCA k=6" in names and "IFCA k=7" not in names
    assert axes.get_title().startswith("paper")
