"""Figure 3 of IFCA: its criteria, its table, when a cell has enough, and its law."""

import dataclasses
import functools
import math
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from toy_experiments import configured, save_no_figures, trial_of_fig3

from cfljax import engine, intervals, metrics
from cfljax.algorithms import ifca
from cfljax.data import split_rounds
from cfljax.models import linear
from cfljax.report import read_csv, write_csv
from experiments.ifca import fig3, fig3_law, fig3_table, fig3_trial
from experiments.ifca.fig3_figures import DATA, FRESH, draw_curves
from experiments.ifca.fig3_outcome import outcome
from experiments.options import Options

# Whole programs: half a second or more each, on a fresh machine.
pytestmark = pytest.mark.long

TRIAL = trial_of_fig3()


def cell():
    """Four runs of one trial: found, diverged, collapsed, missed; a fifth is NaN."""
    run = ("trial", "restart", "step_size")
    data = {
        "distance": (run, [[[0.01], [9.0], [2.0], [1.0], [np.nan]]]),
        "loss": (run, [[[0.1], [50.0], [3.0], [1.0], [0.1]]]),
        "used_clusters": (run, [[[2], [2], [1], [2], [1]]]),
        "first_loss": (("trial", "restart"), [[5.0] * 5]),
        "followed": (run, [[[1.0]] * 5]),
    }
    return xr.Dataset(data)


def test_shares_are_of_the_runs_that_were_followed():
    some = cell()
    some["followed"].values[0, 2:] = 0
    success = np.isfinite(some["distance"].values) & (some["distance"].values <= 0.05)
    shares = fig3_table.outcome_shares(some, success)
    assert (shares["share_succeeded"], shares["share_diverged"]) == (0.5, 0.5)
    some["followed"].values[...] = 0
    assert np.all(np.isnan(list(fig3_table.outcome_shares(some, success).values())))


def test_outcomes_are_exclusive_and_complete():
    distance = cell()["distance"].values
    success = np.isfinite(distance) & (distance <= 0.05)
    shares = fig3_table.outcome_shares(cell(), success)
    expected = {"succeeded": 0.2, "collapsed": 0.2, "diverged": 0.4, "missed": 0.2}
    assert shares == {f"share_{name}": value for name, value in expected.items()}


def test_counts_by_trial_restart_and_step_size():
    success = np.zeros((4, 3, 2), bool)
    success[0, 0] = True  # both step sizes of one restart
    success[1, 1, 0] = success[1, 2, 1] = True
    columns = fig3_table.counts(success, "", np.array([1.0, 0.1]), 0.05)
    assert (columns["successes"], columns["restart_successes"]) == (2, 3)
    assert columns["successes_step_1"] == columns["successes_step_0.1"] == 2
    assert columns["restart_successes_step_1"] == 2
    assert columns["low"] == pytest.approx(0.0676, abs=1e-3)
    assert columns["high"] == pytest.approx(0.9324, abs=1e-3)


CELL = dataclasses.replace(TRIAL, separation=0.5, num_samples=50)
SEPARATIONS = (0.5, 1.0, 2.0)
RUN_SIZES = {"restart": 3, "step_size": 2}
RANGES = {  # Of each output where it is drawn; others lie between 0 and 1.
    "distance": (0.0, 0.5),
    "recovered": (0, 2),
    "used_clusters": (1, 3),
    "loss": (0.0, 2.0),
    "first_loss": (1.0, 2.0),
    "followed": (1, 2),
}


def sweep_results(num_trials: int, seed: int = 0) -> xr.Dataset:
    """What a sweep over three separations may return."""
    rng = np.random.default_rng(seed)
    shape = (1, len(SEPARATIONS), 1, 1, 1, 100)  # More than are kept: the same ones.
    variables = {}
    for name, own in fig3_trial.DIMS.items():
        low, high = RANGES.get(name, (0.0, 1.0))
        drawn = rng.uniform(low, high, (*shape, *(RUN_SIZES[dim] for dim in own)))
        if isinstance(low, int):
            drawn = np.floor(drawn)
        kept = drawn[:, :, :, :, :, :num_trials].astype(np.float32)
        variables[name] = ((*fig3_table.AXES, "trial", *own), kept)
    variables["failed"] = (tuple(fig3_table.AXES), np.zeros(shape[:-1], bool))
    point = {axis: [getattr(CELL, axis)] for axis in fig3_table.AXES}
    coords = point | {"separation": list(SEPARATIONS), "step_size": [1.0, 0.1]}
    return xr.Dataset(variables, coords=coords)


def with_trials(results: xr.Dataset, numbers, filling: float = np.nan) -> xr.Dataset:
    """The same where cells have fewer trials, with `filling` in place of the others."""
    shape = (1, 3, 1, 1, 1)
    of_cells = xr.DataArray(np.reshape(numbers, shape), dims=tuple(fig3_table.AXES))
    index = xr.DataArray(np.arange(results.sizes["trial"]), dims="trial")
    changed = {
        name: results[name].where(index < of_cells, np.float32(filling))
        for name in fig3_trial.DIMS
    }
    return results.assign(changed | {"trials": of_cells})


def table_of(results: xr.Dataset, **more):
    return fig3_table.rows(results, CELL, tolerance=0.001, error_rate=0.03, **more)


def same(one: dict, other: dict) -> bool:
    return str(one) == str(other)  # NaN in the same places is the same, too.


@pytest.mark.parametrize("filling", [np.nan, 0.0, 1.0])
@pytest.mark.parametrize("sequential", [False, True])
def test_trials_that_were_not_computed_count_for_nothing(filling, sequential):
    numbers = (10, 20, 7)
    results = with_trials(sweep_results(20), numbers, filling)
    table = table_of(results, sequential=sequential)
    for index, number in enumerate(numbers):
        short = table_of(sweep_results(number), sequential=sequential)[index]
        assert same(table[index], short)
        assert table[index]["trials"] == number
        assert table[index]["restarts"] == 3 * number
    forgotten = table_of(results.drop_vars("trials"), sequential=sequential)
    assert same(table[1], forgotten[1])  # Control: it had all of its trials.
    assert not same(table[0], forgotten[0])


def test_all_trials_are_meant_where_nothing_else_is_said():
    results = sweep_results(20)
    assert str(table_of(with_trials(results, (20, 20, 20)))) == str(table_of(results))


@pytest.mark.parametrize("sequential", [False, True])
def test_the_intervals_are_of_the_kind_that_is_named(sequential):
    results = with_trials(sweep_results(20), (10, 20, 7))
    kinds = {
        "exact binomial": intervals.clopper_pearson,
        "confidence sequence": intervals.confidence_sequence,
    }
    name = list(kinds)[sequential]
    for row in table_of(results, sequential=sequential):
        assert row["interval"] == name
        assert row["interval_error_rate"] == pytest.approx(0.01)
        for prefix in (own.prefix for own in fig3_trial.CRITERIA.values()):
            found = row[f"{prefix}low"], row[f"{prefix}high"]
            counts = row[f"{prefix}successes"], row["trials"]
            expected = kinds[name](*counts, error_rate=0.01)
            np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_counts_by_hand():
    results = with_trials(sweep_results(20), (10, 20, 7))
    row = table_of(results)[0]
    distance = results["distance"].values[0, 0, 0, 0, 0, :10]
    good = distance <= 0.6 * 0.2 + 0.001
    assert row["successes"] == good.any(axis=(1, 2)).sum() > 0
    assert row["restart_successes"] == good.any(axis=2).sum()
    assert row["share_succeeded"] == good.mean()
    alpha = results["alpha"].values[0, 0, 0, 0, 0, :10]
    assert row["alpha_mean"] == pytest.approx(alpha.mean())
    names = ("succeeded", "collapsed", "diverged", "missed")
    assert math.fsum(row[f"share_{n}"] for n in names) == pytest.approx(1)


def test_new_columns_come_last():
    names = list(table_of(sweep_results(5))[0])
    first = ["convention", "separation", "noise", "clients", "samples", "clusters"]
    first += ["features", "trials", "failed", "successes", "low", "high"]
    assert names[: len(first)] == first
    followed = [f"runs_followed{step}" for step in ("", "_step_1", "_step_0.1")]
    last = ["interval_error_rate", "step_sizes", "interval", *followed]
    assert names[-len(last) :] == last


def test_runs_followed_are_counted():
    results = sweep_results(5)
    results["followed"].values[:, 1, :, :, :, 0, 1:] = 0
    plain, fewer, _ = table_of(results)
    step = RUN_SIZES["step_size"]
    assert plain["runs_followed"] == 5 * RUN_SIZES["restart"] * step
    fallen = plain["runs_followed"] - fewer["runs_followed"]
    assert fallen == step * (RUN_SIZES["restart"] - 1)


def test_cells_without_trials_are_open_or_failed():
    results = with_trials(sweep_results(20), (10, 0, 7))
    results["failed"].values[0, 2] = True
    table = table_of(results, sequential=True)
    assert [row["trials"] for row in table] == [10, 0, 0]
    assert [row["failed"] for row in table] == [False, False, True]
    assert all("successes" not in row for row in table[1:])
    (line,) = fig3_table.pivot(table, row_axis="noise", column_axis="separation")
    texts = [line[f"separation {value:g}"] for value in SEPARATIONS]
    assert texts == [f"{table[0]['successes']}/10", "open", "failed"]


LIMIT = 0.6 * 0.2 + 0.001  # The paper's criterion with its tolerance.
RULE: dict[str, Any] = {"tolerance": 0.001, "error_rate": 0.05, "num_cells": 20}
BLOCK = 10


def outputs_ending_at(best, recovered=0.0):
    """Of one run per trial that ends at a distance, beside runs that diverged."""
    distance = np.full((len(best), 3, 2), np.nan, np.float32)
    distance[:, 1, 0] = best
    distance[:, 2, 1] = np.inf
    return {"distance": distance, "recovered": np.full(distance.shape, recovered)}


def stops_after(best, **changes) -> int | None:
    """The first block's end at which the rule has enough of these trials."""
    usual: dict[str, Any] = {"width": 0.2, "tolerance": 0.001, "error_rate": 0.01}
    rule = fig3_table.Precision(**(usual | changes))
    ends = range(BLOCK, len(best) + 1, BLOCK)
    is_enough = lambda n: rule.enough(outputs_ending_at(best[:n]), TRIAL)
    return next(filter(is_enough, ends), None)


def shortest(successes: float, width=0.2, error_rate=0.01) -> int:
    """The first block's end at which the interval of a share is short enough."""
    for trials in range(BLOCK, 10_000, BLOCK):
        found = round(successes * trials)
        low, high = intervals.confidence_sequence(found, trials, error_rate=error_rate)
        if high - low < width:
            return trials
    raise AssertionError


@pytest.mark.parametrize(
    ("best", "share"),
    [
        ([LIMIT - 1e-4], 1.0),
        ([LIMIT + 1e-4], 0.0),
        ([np.nan], 0.0),
        ([-np.inf], 0.0),
        ([0.0, 9.0], 0.5),
    ],
)
def test_it_stops_where_the_interval_of_the_successes_is_short(best, share):
    found = stops_after(np.resize(best, 1000))
    assert found == shortest(share)
    assert shortest(0.0) == shortest(1.0) < shortest(0.5)


def test_it_depends_on_every_part_of_the_precision():
    best = np.zeros(1000)
    usual = stops_after(best)
    assert usual is not None
    for changes, later in (
        ({"width": 0.1}, True),
        ({"error_rate": 1e-4}, True),
        ({"width": 0.4}, False),
    ):
        found = stops_after(best, **changes)
        assert found is not None and (found > usual) == later
    near = np.resize([LIMIT + 1e-4, 9.0], 1000)
    assert stops_after(near, tolerance=0.01) == shortest(0.5) > shortest(0.0)


def test_the_criterion_decides_what_is_counted():
    best = np.resize([0.0, 1.0], 60)  # Half succeed by distance; all are recovered.
    rule = fig3_table.Precision(0.3, 0.001, 0.01)
    assert not rule.enough(outputs_ending_at(best, 1.0), TRIAL)
    other = dataclasses.replace(rule, criterion="recovery")
    assert other.enough(outputs_ending_at(best, 1.0), TRIAL)


def test_no_trials_are_never_enough():
    assert not fig3_table.Precision(1.0, 0.0, 0.5).enough(outputs_ending_at([]), TRIAL)


def missed_when_stopped(method, width: float, error_rate: float, horizon: int = 400):
    """The largest chance, over probabilities, to miss where a cell stops."""
    p = np.linspace(0.01, 0.99, 50)[:, None]
    missed, alive = np.zeros(len(p)), np.ones((len(p), 1))
    for trials in range(1, horizon + 1):
        missing, found = alive * (1 - p), alive * p
        alive = np.pad(missing, ((0, 0), (0, 1))) + np.pad(found, ((0, 0), (1, 0)))
        if trials % BLOCK:
            continue
        low, high = method(np.arange(trials + 1), trials, error_rate=error_rate)
        stops = (high - low < width) | (trials == horizon)
        outside = (low > p) | (high < p)
        missed += np.sum(alive * (stops & outside), axis=1)
        alive = np.where(stops, 0.0, alive)
    return missed.max()


def test_a_cell_that_stops_misses_no_more_than_stated():
    """Clopper-Pearson, the control, misses more often when it stops this way."""
    ours = missed_when_stopped(intervals.confidence_sequence, 0.3, 0.05)
    control = missed_when_stopped(intervals.clopper_pearson, 0.3, 0.05)
    assert 0 < ours <= 0.05 < control


def test_the_error_rate_is_shared_by_the_cells():
    rule = fig3_table.stopping_rule(0.2, **RULE, num_trials=1000)
    assert rule is not None
    needed = shortest(1.0, error_rate=0.05 / 20)
    assert not rule(outputs_ending_at(np.zeros(needed - BLOCK)), TRIAL)
    assert rule(outputs_ending_at(np.zeros(needed)), TRIAL)
    assert needed > shortest(1.0, error_rate=0.05)
    assert fig3_table.stopping_rule(None, **RULE, num_trials=1) is None


@pytest.mark.parametrize("width", [1.0, 0.37, 0.02])
def test_the_fewest_trials_are_the_fewest(width):
    least = fig3_table.least_trials(width, error_rate=0.01)
    for trials, is_short in ((least, True), (least - 1, False)):
        if trials:
            counts = np.arange(trials + 1)
            low, high = intervals.confidence_sequence(counts, trials, error_rate=0.01)
            assert bool(np.any(high - low < width)) == is_short


def test_a_precision_out_of_reach_is_refused():
    least = fig3_table.least_trials(0.2, error_rate=0.05 / 20)
    assert fig3_table.stopping_rule(0.2, **RULE, num_trials=least)
    message = f"`precision` 0.2 needs {least} trials or more in each of 20 cells"
    with pytest.raises(ValueError, match=message):
        fig3_table.stopping_rule(0.2, **RULE, num_trials=least - 1)
    with pytest.raises(ValueError, match="or more in each"):
        fig3_table.stopping_rule(1e-300, **RULE, num_trials=10**6)


@pytest.mark.parametrize(
    ("changes", "argument"),
    [
        ({"width": 0.0}, "precision"),
        ({"width": 1.1}, "precision"),
        ({"width": math.nan}, "precision"),
        ({"tolerance": -1.0}, "tolerance"),
        ({"tolerance": math.inf}, "tolerance"),
        ({"error_rate": 1.0}, "error_rate"),
        ({"criterion": "distance"}, "criterion"),
    ],
)
def test_misuse_names_the_argument(changes, argument):
    usual: dict[str, Any] = {"width": 0.2, "tolerance": 0.0, "error_rate": 0.05}
    with pytest.raises(ValueError, match=f"^`{argument}`"):
        fig3_table.Precision(**(usual | changes))


def test_the_legend_tells_the_trials_and_how_many_cells_are_precise():
    cell = {"interval": "confidence sequence", "low": 0.0, "high": 0.1}
    table = [
        cell | {"trials": 20},
        cell | {"trials": 100, "high": 0.3},
        {"interval": "confidence sequence", "trials": 0, "failed": True},
    ]
    text = fig3_table.describe(table, error_rate=0.05, width=0.2)
    assert "confidence sequence, 95 % for all 3 cells together" in text
    assert "20 to 100 trials a cell, 1 of 3 intervals narrower than 0.2" in text
    for some, number in ((table[:1], 20), (table[2:], 0)):
        text = fig3_table.describe(some, error_rate=0.05, width=None)
        assert text.endswith(f"{number} trials a cell")


TWO_RESTARTS = dataclasses.replace(TRIAL, num_restarts=2)
WIDTH, ERROR_RATE = 0.4, 0.05
POINT = {axis: (getattr(TWO_RESTARTS, axis),) for axis in fig3_table.AXES}
GRID = engine.Grid(
    experiment="precision",
    trial=TWO_RESTARTS,
    axes=POINT | {"separation": (0.0, 0.5, 1.0)},
    num_trials=95,
    dims=fig3_trial.DIMS,
    coords={"step_size": [1.0]},
)


def succeed_by_chance(trial, key, constants):
    """Succeeds with chance `separation`; the other run always diverges."""
    is_success = jax.random.bernoulli(key, trial.separation)
    distance = jnp.full((2, 1), jnp.nan).at[0, 0].set(jnp.where(is_success, 0.0, 1.0))
    names = ("recovered", "used_clusters", "loss", "followed")
    run = dict.fromkeys(names, jnp.ones((2, 1)))
    start = dict.fromkeys(("first_loss", "alpha"), jnp.ones(2))
    both = {"distance": distance, "nearest_distance": distance}
    return both | run | start | {"gap": jnp.float32(1.0)}


def sweep_precisely(folder, **more):
    asked = {"num_cells": math.prod(GRID.shape), "num_trials": GRID.num_trials}
    known = {"tolerance": 0.0, "error_rate": ERROR_RATE}
    more |= {"enough": fig3_table.stopping_rule(WIDTH, **known, **asked)}
    path = folder / "s"
    return engine.sweep(GRID, succeed_by_chance, path, progress=False, **more)


def table(results):
    known = {"tolerance": 0.0, "error_rate": ERROR_RATE, "sequential": True}
    return fig3_table.rows(results, TWO_RESTARTS, **known)


def test_cells_stop_at_the_first_block_that_is_precise(tmp_path):
    results = sweep_precisely(tmp_path / "whole")
    found = table(results)
    surely, maybe = [found[0], found[2]], found[1]
    assert [row["successes"] for row in surely] == [0, surely[1]["trials"]]
    assert maybe["trials"] > surely[0]["trials"] == surely[1]["trials"]
    distances = results["distance"].values[0, :, 0, 0, 0, :, 0, 0]
    for row, distance in zip(found, distances, strict=True):
        assert row["high"] - row["low"] < WIDTH or row["trials"] == GRID.num_trials
        assert np.isfinite(distance).sum() == row["trials"]
        before = row["trials"] - 10
        known = int(np.sum(distance[:before] == 0)), before
        low, high = intervals.confidence_sequence(*known, error_rate=ERROR_RATE / 3)
        assert high - low >= WIDTH
        assert row["share_diverged"] == 0.5


@pytest.mark.slow
def test_two_workers_find_the_same_table(tmp_path):
    first = sweep_precisely(tmp_path / "two", shard=(1, 2))
    assert 0 < first.attrs["open_blocks"] < 30
    assert sweep_precisely(tmp_path / "two", shard=(2, 2)).attrs["open_blocks"] == 0
    found = [table(sweep_precisely(tmp_path / name)) for name in ("two", "whole")]
    assert str(found[0]) == str(found[1])


def test_another_criterion_moves_both_curves_and_finds_nothing_of_the_first(
    tmp_path, monkeypatch, refuse_work
):
    save_no_figures(monkeypatch)
    panel = fig3.load("ifca.fig3a")
    config = configured(
        "ifca.fig3a",
        "--convention reference --separation 1 2 --noise 0.1 --num-clients 4"
        " --num-samples 10 --num-features 5 --num-trials 3 --num-restarts 2"
        " --num-rounds 5",
        preset="paper",
    )

    def run(name):
        """Successes of every cell on data and by the law."""
        out = tmp_path / name
        panel.main(config, Options(out=out, progress=False))
        tables = [read_csv(out / f"{table}.csv") for table in ("table", "law")]
        return [[row["successes"] for row in table] for table in tables]

    usual = run("usual")
    with monkeypatch.context() as patched:
        other = fig3_trial.CRITERIA["paper"]._replace(factor=100.0)
        patched.setitem(fig3_trial.CRITERIA, "paper", other)
        assert run("usual") == run("wide") == [[3, 3], [3, 3]]
    assert all(max(curve) < 3 for curve in usual)
    # What was computed under the first criterion is still there.
    refuse_work()
    monkeypatch.setattr(fig3_law, "distances", None)
    assert run("usual") == usual


# The law against fresh raw data, and its seeds, files, table and curves.

# Two proportions differ if their exact intervals do not meet: equal ones do so with a
# chance of at most this.
RATE = 1e-3
NUM_TRIALS = 300
SAMPLES, ROUNDS, STEP = 2, 12, 0.5
THRESHOLD = 0.6  # About two runs of five come as near.
SIZES = {"num_clients": 8, "num_samples": SAMPLES, "num_features": 8}
LAW = trial_of_fig3(noise=0.5, num_restarts=1, num_rounds=ROUNDS, **SIZES)


def differ(one, two):
    """Whether two arrays of distances show different success probabilities."""
    rate = RATE / 2
    (low, high), (least, largest) = (
        intervals.clopper_pearson(int(np.sum(d <= THRESHOLD)), d.size, error_rate=rate)
        for d in (one, two)
    )
    return bool(high < least or largest < low)


@functools.cache
def by_law(step_size=STEP, trial=LAW):
    steps = np.array([step_size])
    return fig3_law.distances(trial, steps, num_trials=NUM_TRIALS, seed=0).ravel()


def keys():
    return jax.random.split(jax.random.key(1), NUM_TRIALS)


@functools.cache
def on_separate_folds(step_size=STEP, trial=LAW):
    """The experiment's own runs on data, each round halved and none used twice."""
    num_samples = 2 * ROUNDS * trial.num_samples
    folds = dataclasses.replace(trial, resample=True, num_samples=num_samples)
    steps = jnp.array([step_size])
    simulate = fig3_trial.simulate
    run = jax.jit(jax.vmap(lambda key: simulate(folds, key, steps)["distance"]))
    return np.asarray(run(keys())).ravel()


@functools.cache
def on_one_fold():
    """Fresh data in every round, but one and the same to choose and to descend."""

    def run(key):
        data_key, run_key = jax.random.split(key)
        whole = dataclasses.replace(LAW, num_samples=ROUNDS * SAMPLES)
        data, truth = fig3_trial.draw_data(whole, data_key)
        task = linear(LAW.num_features)
        algorithm = ifca(task, num_clusters=LAW.num_clusters, step_size=STEP)
        own = {"num_rounds": ROUNDS, "data_per_round": True}
        folds = split_rounds(data, ROUNDS)
        state, _ = engine.run(algorithm, run_key, folds, **own)
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
    folds = dataclasses.replace(LAW, resample=True, num_samples=2 * ROUNDS * SAMPLES)
    found = fig3_law.distances(folds, np.array([STEP]), num_trials=5, seed=0)
    np.testing.assert_allclose(found.ravel(), by_law()[:5], rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("convention", ["reference", "paper"])
def test_law_and_fresh_data_agree_for_three_clusters(convention):
    """More models take another path through the engine."""
    sizes = {"num_clients": 12, "num_clusters": 3, "num_features": 12, "num_samples": 4}
    scale = {"init_unit": "separation", "separation": 2.0, "noise": 0.3}
    trial = dataclasses.replace(LAW, convention=convention, **sizes, **scale)
    data = on_separate_folds(1.0, trial)
    assert 0.1 < np.mean(data <= THRESHOLD) < 0.9
    assert not differ(by_law(1.0, trial), data)
    assert differ(by_law(0.05, trial), data)  # Control.


STEPS = (0.5, 1e6)  # The second diverges.
SMALL = trial_of_fig3(num_clients=4, num_features=10, num_restarts=2)


def grid(**changes: Any) -> engine.Grid:
    axes = {axis: (getattr(SMALL, axis),) for axis in fig3_table.AXES}
    settings: dict[str, Any] = {
        "experiment": "ifca.fig3a",
        "trial": SMALL,
        "axes": axes | {"separation": (0.5, 1.0), "noise": (0.0, 0.2)},
        "num_trials": 3,
        "dims": fig3_trial.DIMS,
        "coords": {"step_size": STEPS},
    }
    return engine.Grid(**(settings | changes))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("law")


@pytest.fixture(scope="module")
def found(folder: pathlib.Path) -> list[np.ndarray]:
    return fig3_law.sweep(grid(), folder)


def first_trial(seed):
    """Of the first cell."""
    trial = dataclasses.replace(SMALL, separation=0.5, noise=0.0)
    return fig3_law.distances(trial, np.array(STEPS), num_trials=1, seed=seed)


def test_a_trial_is_the_same_however_many_others_there_are(found):
    np.testing.assert_allclose(found[0][:1], first_trial(0), rtol=1e-12)
    assert not np.array_equal(found[0][0], found[0][1])


def test_another_seed_gives_other_runs(found):
    assert not np.any(first_trial(1)[:, :, 0] == found[0][:1, :, 0])


def test_runs_that_diverge_never_succeed(found):
    table = fig3_law.rows(grid(), found, tolerance=np.inf, error_rate=0.05)
    for row, distance in zip(table, found, strict=True):
        assert not np.any(np.isfinite(distance[:, :, 1]))
        assert row["successes_step_1e+06"] == 0
        assert row["successes"] == row["successes_step_0.5"] == 3


def test_cells_that_are_stored_are_not_computed_again(folder, found, monkeypatch):
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr(fig3_law, "distances", refuse)
    for one, two in zip(fig3_law.sweep(grid(), folder), found, strict=True):
        np.testing.assert_array_equal(one, two)
    for other in ({"seed": 1}, {"num_trials": 2}, {"coords": {"step_size": (0.25,)}}):
        with pytest.raises(AssertionError, match="again"):  # Control: not of these.
            fig3_law.sweep(grid(**other), folder)


@pytest.mark.parametrize("left", [0, 100, 400])
def test_a_torn_file_is_computed_again(folder, found, left):
    victim = sorted(folder.glob("*.npz"))[0]
    whole = victim.read_bytes()
    assert len(whole) > left
    victim.write_bytes(whole[:left])
    for one, two in zip(fig3_law.sweep(grid(), folder), found, strict=True):
        np.testing.assert_array_equal(one, two)
    assert len(list(folder.iterdir())) == 4


def test_table_counts_and_divides_the_error_rate(tmp_path):
    distance = np.full((3, 2, 2), np.nan)
    distance[0, :, 0] = 0.11  # Two runs of one trial.
    distance[1, 1, 1] = 0.12  # 0.6 sigma exactly.
    distance[2, 0, 0] = 0.13
    table = fig3_law.rows(grid(), [distance] * 4, tolerance=1e-9, error_rate=0.04)
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
    axes = {"row_axis": "noise", "column_axis": "separation"}
    texts = {"title": "title", "confidence": "confidence"}
    return draw_curves(table, tolerance=0.0, **axes, **texts, **more)


def test_each_curve_has_its_law_beside_it(found):
    data = fig3_law.rows(grid(), found, tolerance=np.inf, error_rate=0.05)
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
    data = fig3_law.rows(grid(), found, tolerance=0.1, error_rate=0.05)
    figure = look(data, law_rows=data)
    figure.canvas.draw()
    (legend,) = figure.legends
    box = legend.get_window_extent()
    assert box.x0 >= 0 and box.x1 <= figure.bbox.width
    plain = look(data)  # Control: without a law nothing is restyled.
    assert [line.get_linestyle() for line in plain.axes[0].lines][:1] == ["-"]
    assert FRESH not in [text.get_text() for text in plain.legends[0].get_texts()]


def test_law_of_other_cells_is_refused(found):
    data = fig3_law.rows(grid(), found, tolerance=0.1, error_rate=0.05)
    with pytest.raises(ValueError, match="must hold the cells"):
        look(data, law_rows=[row for row in data if row["noise"] == 0])


# Against equations: what a panel says in sentences


def counted(successes: dict[tuple, list[int]]) -> list[dict[str, Any]]:
    """Rows of 10 trials, of (convention, noise) by separation."""
    return [
        {"convention": name, "noise": noise, "separation": r, "successes": n}
        | {"trials": 10}
        for (name, noise), counts in successes.items()
        for r, n in zip((0.1, 0.5, 1.0), counts, strict=True)
    ]


def test_outcome_says_what_rises_falls_and_never_succeeds():
    table = counted(
        {("reference", 0.0): [1, 5, 9], ("reference", 0.1): [0, 0, 3]}
        | {("paper", 0.0): [0, 0, 0], ("mixed", 0.0): [1, 2, 2]}
        | {("mixed", 0.1): [7, 1, 2]}
    )
    text = outcome(table, ("noise", "separation"))
    claim, rising, never, mixed = text.strip().split("\n\n")
    assert claim == "The paper says: success rises with R."
    assert "never falls" in rising and "from 0 to 9 of 10 trials" in rising
    assert "no trial succeeds, of 10 in each of 3 cells" in never
    assert "σ = 0.1: 7, 1, 2." in mixed and "It rises for 1 of 2 σ" in mixed
    table[2]["successes"] = 4  # Control: 1, 5, 4.
    assert "never falls" not in outcome(table, ("noise", "separation"))


def test_outcomes_of_the_committed_panels_are_those_of_their_tables():
    folder = pathlib.Path(__file__).parents[1] / "figures"
    for panel in fig3.PANELS:
        table = read_csv(folder / panel.id / "table.csv")
        text = outcome(table, panel.axes)
        assert (folder / panel.id / "outcome.md").read_text() == text
