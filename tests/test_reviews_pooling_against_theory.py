"""The study of pooling against least squares on raw rows, plain loops and curves."""

import dataclasses
import itertools
import math
import pathlib

import numpy as np
import pytest

from cfljax import intervals, law
from experiments.options import Options
from experiments.reviews import pooling, study
from experiments.reviews.pooling_predictions import (
    Setting,
    crossing_of_many,
    exact_crossing,
    grid,
    identifiable,
    leading_crossing,
    oracle_error,
    pooled_error,
)
from experiments.reviews.pooling_report import crossing
from experiments.reviews.pooling_runs import alternate, draw_gram, errors

# Each random check errs with at most this chance on correct code; seeds are constants.
ERROR_RATE = 1e-6
THREE = Setting(4, 10, 8, 3, 0.6)
PAIR = Setting(20, 20, 40, 2, 0.5)


def raw_errors(setting: Setting, separation: float, trials: int) -> np.ndarray:
    """Oracle and pooled errors `[trials, 2]` from rows and `lstsq`."""
    random = np.random.default_rng(3)
    unit = np.eye(setting.num_clusters, setting.num_features) / math.sqrt(2)
    clusters = np.repeat(np.arange(setting.num_clusters), setting.members)
    rows = np.repeat(clusters, setting.num_samples)
    truths = separation * unit
    found = np.empty((trials, 2))
    for trial in range(trials):
        inputs = random.standard_normal((len(rows), setting.num_features))
        targets = np.sum(inputs * truths[rows], axis=1)
        targets += random.standard_normal(len(rows))
        alone = [
            np.linalg.lstsq(inputs[rows == j], targets[rows == j], rcond=None)[0]
            for j in range(setting.num_clusters)
        ]
        whole = np.linalg.lstsq(inputs, targets, rcond=None)[0]
        for column, models in enumerate((np.array(alone), whole[None])):
            squares = np.sum((models - truths) ** 2, axis=1)
            found[trial, column] = setting.shares @ squares
    return found


def test_exact_errors_against_raw_rows_with_three_unequal_clusters():
    found = raw_errors(THREE, 2.0, 4000)
    predicted = (oracle_error(THREE, 1.0), pooled_error(THREE, 1.0, 2.0))
    low, high = intervals.student(found.T, error_rate=ERROR_RATE)
    assert np.all((low < predicted) & (predicted < high))
    # The leading term of the bias, without the spread of the rows, is noticed.
    spread = 4 * (1 - float(np.sum(THREE.shares**2))) / 2
    rough = spread + float(law.oracle_risk(THREE.num_rows, THREE.num_features, 1.0))
    assert rough < low[1]


def test_pooled_error_of_two_clusters_is_the_laws():
    setting = Setting(6, 20, 5, 2, 0.25)
    shares = setting.shares
    risks = law.pooled_risk(100.0, 6, 0.7, 1.3, share=shares)
    assert pooled_error(setting, 0.7, 1.3) == pytest.approx(float(shares @ risks))
    assert pooled_error(setting, 0.7, 1.3) != pytest.approx(float(risks.mean()))


def test_sufficient_statistics_give_the_errors_of_raw_rows():
    random = np.random.default_rng(5)
    members = THREE.members * THREE.num_samples
    at = np.array([0.5, 2.0])
    draws = (draw_gram(random, members, THREE.num_features) for _ in range(4000))
    found = np.array([errors(*draw, THREE, at) for draw in draws])
    predicted = [
        [oracle_error(THREE, 1.0)] * 2,
        [pooled_error(THREE, 1.0, float(x)) for x in at],
    ]
    low, high = intervals.student(np.moveaxis(found, 0, -1), error_rate=ERROR_RATE)
    assert np.all((low < predicted) & (predicted < high))
    other = oracle_error(THREE._replace(num_samples=9), 1.0)
    assert other < low[0, 0]


@pytest.mark.parametrize("num_samples", [3, 9])
def test_gram_matrices_have_the_rows_rank_and_mean(num_samples):
    random = np.random.default_rng(2)
    gram, moments = draw_gram(random, np.full(20_000, num_samples), 4)
    ranks = np.linalg.matrix_rank(gram[:50], tol=1e-9, hermitian=True)
    assert np.all(ranks == min(num_samples, 4))
    diagonal = np.diagonal(gram, axis1=1, axis2=2).T
    low, high = intervals.student(diagonal, error_rate=ERROR_RATE)
    assert np.all((low < num_samples) & (num_samples < high))
    # E|X'z|^2 = n d, as X'X has trace n d on average.
    squares = np.sum(moments**2, axis=1)
    low, high = intervals.student(squares, error_rate=ERROR_RATE)
    assert low < num_samples * 4 < high
    assert not low < num_samples * 4.5 < high


@pytest.mark.parametrize("num_samples", [2, 12])
def test_alternation_against_a_plain_loop_on_raw_rows(num_samples):
    random = np.random.default_rng(4)
    inputs = random.standard_normal((7, num_samples, 3))
    targets = random.standard_normal((2, 7, num_samples))
    starts = random.standard_normal((2, 3, 3))
    models, chosen, ended = alternate(
        np.swapaxes(inputs, 1, 2) @ inputs,
        np.einsum("msd,rms->rmd", inputs, targets),
        starts,
        num_samples=num_samples,
        num_rounds=50,
    )
    assert np.all(ended)
    for run, plain in enumerate(starts.copy()):
        for _ in range(50):
            residuals = inputs @ plain.T - targets[run][..., None]
            nearest = np.argmin(np.sum(residuals**2, axis=1), axis=1)
            for model in np.unique(nearest):
                own = inputs[nearest == model].reshape(-1, 3)
                rest = -residuals[nearest == model][..., model].ravel()
                plain[model] += np.linalg.lstsq(own, rest, rcond=None)[0]
        np.testing.assert_array_equal(chosen[run], nearest)
        np.testing.assert_allclose(models[run], plain, rtol=1e-7, atol=1e-9)
    assert not np.allclose(models, starts)


@pytest.mark.parametrize(
    ("setting", "exact"),
    [(PAIR, math.sqrt(0.1)), (Setting(20, 40, 40, 4, 0.25), math.sqrt(0.1))],
)
def test_leading_crossing_of_equal_clusters(setting, exact):
    assert leading_crossing(setting, 1.0) == pytest.approx(exact)
    assert leading_crossing(setting, 3.0) == pytest.approx(3 * exact)
    many = setting._replace(num_samples=10**7)
    assert exact_crossing(many, 1.0) == pytest.approx(leading_crossing(many, 1.0))
    found = exact_crossing(setting, 1.0)
    assert pooled_error(setting, 1.0, found) == pytest.approx(
        oracle_error(setting, 1.0)
    )
    assert found != pytest.approx(exact, rel=0.01)


def test_crossing_of_many_clients_against_one_dimensional_means():
    """Clients' positions on the line, both halves' means, and what clients get."""
    random = np.random.default_rng(6)
    for of_clients, factor in itertools.product((True, False), (0.9, 1.1)):
        half = crossing_of_many(PAIR, 1.0, of_clients=of_clients) / 2 * factor
        place = half + random.standard_normal(2_000_000) / math.sqrt(PAIR.num_samples)
        mean = float(np.mean(np.abs(place)))
        models = mean * np.sign(place) if of_clients else np.array([mean])
        assert (np.mean((models - half) ** 2) < half**2) == (factor > 1)
    assert math.isnan(crossing_of_many(THREE, 1.0))
    assert identifiable(PAIR, 2.0) == pytest.approx(2 * math.sqrt(math.log(20) / 5))


def test_crossing_of_known_curves():
    random = np.random.default_rng(1)
    at = grid(PAIR)
    shift = 0.05 * random.standard_normal((400, 1))
    pooled = 0.5 + 0.5 * at**2 + shift
    other = 1.0 + 0.05 * random.standard_normal((400, len(at))) + shift
    found = crossing(at, pooled, other, error_rate=ERROR_RATE)
    assert found.low < 1.0 < found.high
    assert found.within(0.95, 1.05) == "yes"
    shifted = crossing(at, pooled, other + 0.1, error_rate=ERROR_RATE)
    assert shifted.within(0.95, 1.05) == "no"
    exact = crossing(at, pooled, shift + 1.1 + 0 * other, error_rate=ERROR_RATE)
    assert exact.value == pytest.approx(math.sqrt(1.2))
    # Neither pooling that always wins nor one that always loses has a crossing.
    for always in (other + 100, other - 100):
        missing = crossing(at, pooled, always, error_rate=ERROR_RATE)
        assert math.isnan(missing.value)
        assert missing.within(0.95, 1.05) == "undecided"


def tiny() -> pooling.Config:
    return pooling.Config(
        num_features=(8, 4),
        num_clients=(4, 12),
        num_samples=(200, 20),
        num_clusters=(2, 3),
        shares=(0.5, 0.5),
        num_runs=(8, 4),
        num_trials=3000,
    )


@pytest.mark.slow
def test_tiny_study_crosses_where_predicted(tmp_path: pathlib.Path):
    options = Options(out=tmp_path)
    summary = pooling.main(tiny(), options)
    own = [row for row in summary["rows"] if row["kind"] == "crossing"]
    assert summary["decisions"]["known clusters cross where predicted"] == "yes"
    for row in own:
        found = study.read(row, "oracle")
        assert found.low < row["exact"] < found.high
        assert found.within(1.1 * row["exact"], 1.2 * row["exact"]) == "no"
    assert all(pathlib.Path(name).stat().st_size > 0 for name in summary["files"])
    again = pooling.main(tiny(), options)
    np.testing.assert_equal(again["rows"], summary["rows"])


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"num_clients": (5, 12)}, "shares"),
        ({"num_runs": (3,)}, "shares"),
        ({"num_samples": (2, 20)}, "num_samples"),
        ({"num_clusters": (2, 5)}, "num_clusters"),
        ({"noise": 0.0}, "noise"),
        ({"error_rate": 1.0}, "error_rate"),
    ],
)
def test_misuse_names_the_field(change, name):
    with pytest.raises(ValueError, match=f"`{name}`"):
        dataclasses.replace(tiny(), **change)
