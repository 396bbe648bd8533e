"""Figure 3's law: against fresh raw data, and its seeds, files, table and curves.

Two proportions differ if their exact intervals do not meet; at the rate below, equal
ones do so with a chance of at most 1e-3 in each comparison.
"""

import dataclasses
import functools
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax import engine, metrics
from cfljax.algorithms import ifca
from cfljax.data import split_rounds
from cfljax.intervals import clopper_pearson
from cfljax.models import linear
from cfljax.report import read_csv, write_csv
from experiments.ifca import fig3_law
from experiments.ifca.fig3_figures import DATA, FRESH, draw_curves
from experiments.ifca.fig3_law import distances, rows, sweep
from experiments.ifca.fig3_table import AXES
from experiments.ifca.fig3_trial import DIMS, Trial, draw_data, simulate

RATE = 1e-3
NUM_TRIALS = 300
SAMPLES, ROUNDS, STEP = 2, 12, 0.5
THRESHOLD = 0.6  # About two runs of five come as near.
TRIAL = Trial(
    convention="reference",
    separation=1.0,
    noise=0.5,
    num_clients=8,
    num_samples=SAMPLES,
    num_clusters=2,
    num_features=8,
    num_restarts=1,
    num_rounds=ROUNDS,
    init_scale=1.0,
    init_unit="one",
    normalise="all",
    resample=False,
)


def differ(one, two):
    """Whether two arrays of distances show different success probabilities."""
    ends = [
        clopper_pearson(int(np.sum(d <= THRESHOLD)), d.size, error_rate=RATE / 2)
        for d in (one, two)
    ]
    return bool(ends[0][1] < ends[1][0] or ends[1][1] < ends[0][0])


@functools.cache
def by_law(step_size=STEP, trial=TRIAL):
    found = distances(trial, np.array([step_size]), num_trials=NUM_TRIALS, seed=0)
    return found.ravel()


def keys():
    return jax.random.split(jax.random.key(1), NUM_TRIALS)


@functools.cache
def on_separate_folds():
    """The experiment's own runs on data, each round halved and none used twice."""
    trial = dataclasses.replace(TRIAL, resample=True, num_samples=2 * ROUNDS * SAMPLES)
    steps = jnp.array([STEP])
    run = jax.jit(jax.vmap(lambda key: simulate(trial, key, steps)["distance"]))
    return np.asarray(run(keys())).ravel()


@functools.cache
def on_one_fold():
    """Fresh data in every round, but one and the same to choose and to descend."""

    def run(key):
        data_key, run_key = jax.random.split(key)
        whole = dataclasses.replace(TRIAL, num_samples=ROUNDS * SAMPLES)
        data, truth = draw_data(whole, data_key)
        task = linear(TRIAL.num_features)
        state, _ = engine.run(
            ifca(task, num_clusters=TRIAL.num_clusters, step_size=STEP),
            run_key,
            split_rounds(data, ROUNDS),
            num_rounds=ROUNDS,
            data_per_round=True,
        )
        return metrics.centre_distance(state.models, truth.models)

    return np.asarray(jax.jit(jax.vmap(run))(keys()))


def test_law_and_fresh_data_succeed_equally_often():
    law, data = by_law(), on_separate_folds()
    assert 0.2 < np.mean(data <= THRESHOLD) < 0.8  # Or any law would do.
    assert not differ(law, data)


def test_a_wrong_step_size_is_noticed():
    """Control: the law of half the step."""
    assert differ(by_law(STEP / 2), on_separate_folds())


def test_choosing_on_the_gradients_samples_is_noticed():
    """Control: it is another law where samples are few, see the module's docstring."""
    assert differ(by_law(), on_one_fold())


def test_a_resampled_trials_law_has_the_samples_of_one_use():
    folds = dataclasses.replace(TRIAL, resample=True, num_samples=2 * ROUNDS * SAMPLES)
    found = distances(folds, np.array([STEP]), num_trials=5, seed=0)
    np.testing.assert_allclose(found.ravel(), by_law()[:5], rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("convention", ["reference", "paper"])
def test_law_and_fresh_data_agree_for_three_clusters(convention):
    """More models take another path through the engine."""
    trial = dataclasses.replace(
        TRIAL,
        convention=convention,
        num_clients=12,
        num_clusters=3,
        num_features=12,
        num_samples=4,
        noise=0.3,
        init_unit="separation",
        separation=2.0,
    )
    steps = jnp.array([1.0])
    folds = dataclasses.replace(trial, resample=True, num_samples=2 * ROUNDS * 4)
    run = jax.jit(jax.vmap(lambda key: simulate(folds, key, steps)["distance"]))
    data = np.asarray(run(keys())).ravel()
    assert 0.1 < np.mean(data <= THRESHOLD) < 0.9
    assert not differ(by_law(1.0, trial), data)
    assert differ(by_law(0.05, trial), data)  # Control.


STEPS = (0.5, 1e6)  # The second diverges.
SMALL = dataclasses.replace(
    TRIAL,
    noise=0.2,
    num_clients=4,
    num_samples=20,
    num_features=10,
    num_restarts=2,
    num_rounds=60,
)


def grid(**changes: Any) -> engine.Grid:
    axes = {axis: (getattr(SMALL, axis),) for axis in AXES}
    settings: dict[str, Any] = {
        "experiment": "ifca.fig3a",
        "trial": SMALL,
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
    one = fig3_law.distances(
        dataclasses.replace(SMALL, separation=0.5, noise=0.0),
        np.array(STEPS),
        num_trials=1,
        seed=0,
    )
    np.testing.assert_allclose(found[0][:1], one, rtol=1e-12)
    assert not np.array_equal(found[0][0], found[0][1])


def test_another_seed_gives_other_runs(found):
    other = fig3_law.distances(
        dataclasses.replace(SMALL, separation=0.5, noise=0.0),
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

    monkeypatch.setattr(fig3_law, "distances", refuse)
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
