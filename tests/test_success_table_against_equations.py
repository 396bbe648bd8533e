"""The success table's counts where cells have different numbers of trials."""

import math

import numpy as np
import pytest
import xarray as xr

from cfljax import intervals
from experiments.ifca.success import DIMS, Trial
from experiments.ifca.success_table import AXES, CRITERIA, pivot, rows

TRIAL = Trial(
    convention="reference",
    separation=0.5,
    noise=0.2,
    num_clients=10,
    num_samples=50,
    num_clusters=2,
    num_features=30,
    num_restarts=3,
    num_rounds=60,
    init_scale=1.0,
    init_unit="one",
    normalise="all",
    resample=False,
)
SEPARATIONS = (0.5, 1.0, 2.0)
SIZES = {"restart": 3, "step_size": 2}
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
    for name, own in DIMS.items():
        low, high = RANGES.get(name, (0.0, 1.0))
        drawn = rng.uniform(low, high, (*shape, *(SIZES[dim] for dim in own)))
        if isinstance(low, int):
            drawn = np.floor(drawn)
        kept = drawn[:, :, :, :, :, :num_trials].astype(np.float32)
        variables[name] = ((*AXES, "trial", *own), kept)
    variables["failed"] = (tuple(AXES), np.zeros(shape[:-1], bool))
    point = {axis: [getattr(TRIAL, axis)] for axis in AXES}
    coords = point | {"separation": list(SEPARATIONS), "step_size": [1.0, 0.1]}
    return xr.Dataset(variables, coords=coords)


def with_trials(results: xr.Dataset, numbers, filling: float = np.nan) -> xr.Dataset:
    """The same where cells have fewer trials, with `filling` in place of the others."""
    of_cells = xr.DataArray(np.reshape(numbers, (1, 3, 1, 1, 1)), dims=tuple(AXES))
    index = xr.DataArray(np.arange(results.sizes["trial"]), dims="trial")
    changed = {
        name: results[name].where(index < of_cells, np.float32(filling))
        for name in DIMS
    }
    return results.assign(changed | {"trials": of_cells})


def table_of(results: xr.Dataset, **more):
    return rows(results, TRIAL, tolerance=0.001, error_rate=0.03, **more)


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
        for prefix in CRITERIA.values():
            found = row[f"{prefix}low"], row[f"{prefix}high"]
            expected = kinds[name](
                row[f"{prefix}successes"], row["trials"], error_rate=0.01
            )
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
    shares = [
        row[f"share_{n}"] for n in ("succeeded", "collapsed", "diverged", "missed")
    ]
    assert math.fsum(shares) == pytest.approx(1)


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
    step = SIZES["step_size"]
    assert plain["runs_followed"] == 5 * SIZES["restart"] * step
    assert fewer["runs_followed"] == plain["runs_followed"] - step * (
        SIZES["restart"] - 1
    )


def test_cells_without_trials_are_open_or_failed():
    results = with_trials(sweep_results(20), (10, 0, 7))
    results["failed"].values[0, 2] = True
    table = table_of(results, sequential=True)
    assert [row["trials"] for row in table] == [10, 0, 0]
    assert [row["failed"] for row in table] == [False, False, True]
    assert all("successes" not in row for row in table[1:])
    (line,) = pivot(table, row_axis="noise", column_axis="separation")
    texts = [line[f"separation {value:g}"] for value in SEPARATIONS]
    assert texts == [f"{table[0]['successes']}/10", "open", "failed"]
