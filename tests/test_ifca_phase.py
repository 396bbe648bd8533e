"""IFCA's phase diagrams: their runs, their boundaries, their tables and picture."""

import dataclasses
import json
import math
import pathlib
import shutil
from typing import Any

import numpy as np
import pytest
import scipy.stats
from matplotlib.text import Text
from toy_experiments import configured

from cfljax import intervals, law, report
from experiments.ifca import phase, phase_runs, phase_theory
from experiments.ifca.phase_runs import DIVERGED, NEAR, RECOVERED, RELABELLED, Setting
from experiments.options import Options
from experiments.registry import EXPERIMENTS
from experiments.reviews import exact_law
from theory.ifca.common import linear
from theory.ifca.theorem1_corrected import failure_at_start

# Each random check errs with at most this chance on correct code; seeds are constants.
ERROR_RATE = 1e-6
GOOD = Setting(4.0, 3000, 100, 100, 0.25, 2, 0.375, 4)
SMALL = Setting(2.0, 12, 20, 10, 0.3, 2, 0.375, 4)
FLAGS = (
    "--num-rounds 4 --num-cells 4 --num-trials 50 --reused-cells 2 --reused-trials 3"
    " --num-clients 100 --num-features 50"
)


def fresh(*settings: Setting, trials: int, seed: int = 0) -> np.ndarray:
    """Outcomes on fresh folds, by calls of one size."""
    return phase_runs.fresh(settings, num_trials=trials, seed=seed, chunk=50)


def share(bits: int | np.ndarray, trials: np.ndarray) -> float:
    """Of trials with all of these bits."""
    return float(np.mean((trials & bits) == bits))


def holds(chance: float, found: np.ndarray) -> bool:
    """Whether what happened in trials may have this chance."""
    low, high = intervals.clopper_pearson(
        int(np.sum(found)), len(found), error_rate=ERROR_RATE
    )
    return bool(low <= chance <= high)


# Against theory


@pytest.mark.long
def test_a_promise_is_kept_where_it_is_made():
    promise = phase_theory.promised(phase_theory.explicit([GOOD])).item()
    assert promise > 0.99
    success = phase_runs.succeeded(fresh(GOOD, trials=200))[0]
    assert np.sum(success) >= 200 * promise - 3
    # Control: where the floor is too high nothing is promised, and nothing comes.
    bad = dataclasses.replace(GOOD, num_samples=3)
    assert phase_theory.promised(phase_theory.explicit([bad])) == 0
    assert not np.any(phase_runs.succeeded(fresh(bad, trials=200)))


def chance_of_no_mistake(setting: Setting, starts: int = 4000) -> float:
    """That the first choice has none, over starts in random directions, by the exact
    law of one client's choice; in all dimensions, unlike the runs."""
    random = np.random.default_rng(3)
    truths = exact_law.truths(
        2, int(setting.num_features), separation=setting.separation
    )
    away = random.standard_normal((starts, *truths.shape))
    away /= np.linalg.norm(away, axis=-1, keepdims=True)
    models = truths + setting.start * setting.separation * away
    kappa = law.misassignment_kappa(truths, models, models[:, ::-1], 1.0)
    chance = law.misassignment_probability(kappa, setting.num_samples)
    return float(np.mean(np.prod((1 - chance) ** setting.members, axis=1)))


@pytest.mark.long
def test_the_first_round_has_the_exact_law_of_misassignment():
    first = dataclasses.replace(SMALL, num_rounds=1, start=0.6)
    outcomes = fresh(first, trials=2000)[0]
    chance = chance_of_no_mistake(first)
    assert 0.1 < chance < 0.9
    assert holds(chance, outcomes & RECOVERED > 0)
    # Control: with one sample more.
    more = dataclasses.replace(first, num_samples=first.num_samples + 1)
    assert not holds(chance_of_no_mistake(more), outcomes & RECOVERED > 0)


@pytest.mark.long
def test_the_floor_tells_who_comes_near():
    """In high dimension, where the error hardly varies."""
    wide = dataclasses.replace(GOOD, num_features=4000, separation=20.0, start=0.02)
    edge = next(
        samples
        for samples in range(1, 1000)
        if phase_theory.score(
            phase_theory.floor([dataclasses.replace(wide, num_samples=samples)])
        )
        >= 0
    )
    settings = [
        dataclasses.replace(wide, num_samples=samples)
        for samples in (edge - 6, edge + 6)
    ]
    below, above = np.split(np.asarray(fresh(*settings, trials=100)), 2)
    assert share(NEAR, below) < 0.1 and share(NEAR, above) > 0.9


def test_typical_kappa_is_that_of_orthogonal_directions():
    separation, error = np.array([0.5, 3.0]), np.array([0.7, 0.2])
    for distance, away in zip(separation, error, strict=True):
        truths = exact_law.truths(2, 4, separation=distance)
        models = truths + away * np.eye(2, 4, 2)
        kappa = law.misassignment_kappa(truths, models, models[::-1], 1.0)
        own = phase_theory.typical_kappa(np.array([distance]), np.array([away]))
        np.testing.assert_allclose(kappa, own.item(), rtol=1e-12)


@pytest.mark.parametrize("features", [2, 5, 100])
def test_two_clusters_are_separated_by_two_coordinates(features):
    """One coordinate of a uniform direction has a beta law."""
    distances = np.array([0.3, 0.6, 1.0, 3.0, 9.0])
    beta = scipy.stats.beta(0.5, (features - 1) / 2)
    own = (1 + beta.cdf(np.minimum(1 / (2 * distances), 1) ** 2)) / 2
    found = phase_theory.separating_chance(distances, features, 2)
    spread = 5 * np.sqrt(own**2 * (1 - own**2) / 20_000) + 1e-9
    assert np.all(np.abs(found - own**2) <= spread)
    # Control: one coordinate is not enough.
    assert not np.all(np.abs(found - own) <= spread)


def test_three_clusters_are_separated_as_all_distances_say():
    random, truths = np.random.default_rng(0), exact_law.truths(3, 6)
    away = random.standard_normal((4000, 3, 6))
    away /= np.linalg.norm(away, axis=-1, keepdims=True)
    square = np.sum((truths[:, None] - (truths + away)[:, None]) ** 2, axis=-1)
    own = np.all(np.argmin(square, axis=-1) == np.arange(3), axis=-1)
    chance = phase_theory.separating_chance(np.ones(1), 6, 3).item()
    assert 0.1 < chance < 0.9 and holds(chance, own)


def test_promises_follow_the_theory_round_by_round():
    """One round fails with the explicit form's probability, which at the theory's own
    least favourable start has both clusters' chances, of which one is the largest."""
    one = dataclasses.replace(GOOD, num_rounds=1, num_samples=20, num_features=40)
    own = linear.Setting(100.0, 20.0, 40.0, 1 / one.separation, step=one.step)
    scores = phase_theory.explicit([one])
    failure = 0.5 * math.exp(-scores["the chance of failure ≤ 1/2"].item())
    assert failure_at_start(own) <= failure <= 2 * failure_at_start(own)


def test_assumption_1_ends_at_half_of_the_separation():
    near, far = (dataclasses.replace(GOOD, start=start) for start in (0.4, 0.5))
    for form in ("printed", "corrected", "explicit"):
        height = phase_theory.score(phase_theory.__dict__[form]([near, far]))
        assert height[1] < 0, form
    assert phase_theory.score(phase_theory.explicit([near])) >= 0


def test_too_few_clients_make_the_printed_form_vacuous():
    few = configured("ifca.phase", FLAGS.replace("clients 100", "clients 20"))
    assert phase.vacuous(few, "printed") == "pm ≥ 8 log(2/δ) fails"
    assert phase.vacuous(configured("ifca.phase", FLAGS), "explicit") == ""


# Against raw data


def on_raw_data(setting: Setting, trials: int, *, is_fresh: bool) -> np.ndarray:
    """The algorithm sample by sample; successes of so many trials."""
    random = np.random.default_rng(11)
    sizes = setting.num_clusters, setting.num_samples, setting.num_features
    k, n, d = map(int, sizes)
    m, found = int(setting.num_clients), np.zeros(trials, bool)
    truths = exact_law.truths(k, d, separation=setting.separation)
    own = np.repeat(np.arange(k), int(setting.members))
    for trial in range(trials):

        def fold():
            inputs = random.standard_normal((m, n, d))
            labels = np.einsum("mnd,md->mn", inputs, truths[own])
            return inputs, labels + random.standard_normal((m, n))

        away = random.standard_normal((k, d))
        away /= np.linalg.norm(away, axis=1, keepdims=True)
        models, same = truths + setting.start * setting.separation * away, fold()
        for _ in range(setting.num_rounds):
            inputs, labels = fold() if is_fresh else same
            residuals = np.einsum("mnd,kd->mnk", inputs, models) - labels[..., None]
            chosen = np.argmin(np.sum(residuals**2, axis=1), axis=1)
            inputs, labels = fold() if is_fresh else same
            new = models.copy()
            for j in range(k):
                rows, target = inputs[chosen == j], labels[chosen == j]
                errors = rows @ models[j] - target
                gradient = 2 / n * np.einsum("cnd,cn->d", rows, errors)
                new[j] -= setting.step * k / m * gradient
            models = new
        mean = np.mean(np.linalg.norm(models - truths, axis=1))
        found[trial] = mean <= 0.6 and np.all(chosen == own)
    return found


def differ(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether two shares differ, by Fisher's exact test."""
    counts = [[np.sum(own), np.sum(~own)] for own in (first, second)]
    found: Any = scipy.stats.fisher_exact(counts)  # its stub hides the fields
    return bool(found.pvalue < ERROR_RATE)


# Neither all nor none succeed; re-used data on both sides of n' = d + 1.
RAW = [
    (dataclasses.replace(SMALL, num_samples=6), True),
    (dataclasses.replace(SMALL, num_samples=12, separation=1.5), False),
    (dataclasses.replace(SMALL, num_samples=6), False),
]
_THREE = dataclasses.replace(SMALL, num_clusters=3, num_clients=30, num_samples=9)
LARGER = [(_THREE, True), (_THREE, False)]


@pytest.mark.long
@pytest.mark.parametrize(
    ("setting", "is_fresh"),
    [*RAW, *(pytest.param(*one, marks=pytest.mark.slow) for one in LARGER)],
)
def test_runs_succeed_as_often_as_on_raw_data(setting, is_fresh):
    more = dataclasses.replace(setting, num_samples=setting.num_samples + 10)
    how = {"num_trials": 400, "seed": 5}
    if is_fresh:
        how["chunk"] = 50
    run = phase_runs.fresh if is_fresh else phase_runs.reused
    own, other = (phase_runs.succeeded(run([one], **how))[0] for one in (setting, more))
    raw = on_raw_data(setting, 400, is_fresh=is_fresh)
    assert 0.1 < np.mean(raw) < 0.9
    assert not differ(own, raw)
    assert differ(other, raw)  # Control: ten samples more.


# Against definitions


def test_what_a_run_has_come_to():
    setting = dataclasses.replace(SMALL, num_clients=4)
    right, swapped = 2 * np.eye(2), 2 * np.eye(2)[::-1]
    alone, one_off = np.array([[2, 0], [2, 0]]), np.array([[2, 0], [1, 1]])
    ends = [
        ((0.5, 0.7), right, NEAR | RECOVERED),  # The mean is at the limit.
        ((0.5, 0.71), right, RECOVERED),
        ((0.1, 0.1), one_off, NEAR),
        ((0.1, 0.1), alone, NEAR),  # One model is empty.
        ((2.0, 2.0), swapped, RELABELLED),
        ((np.nan, 0.1), right, RECOVERED | DIVERGED),
        ((0.1, np.inf), right, RECOVERED | DIVERGED),
        ((1e3, 0.1), right, RECOVERED | DIVERGED),
    ]
    distances, counts, bits = (np.array(part) for part in zip(*ends, strict=True))
    found = phase_runs.outcomes(setting, distances, counts)
    assert found.tolist() == bits.tolist()
    assert phase_runs.succeeded(found).tolist() == [True, *[False] * 7]


def test_a_curve_crosses_where_it_changes_its_side():
    values = [1.0, 10.0, 100.0, 1000.0]
    assert phase.crossing(values, np.array([-1.0, -1, 1, 1])) == pytest.approx(
        31.62, 1e-3
    )
    assert phase.crossing(values, np.array([3.0, 3, 3, -1])) == pytest.approx(
        562.3, 1e-3
    )
    assert math.isnan(phase.crossing(values, np.ones(4)))


# Against itself


@pytest.mark.long
def test_trials_do_not_depend_on_how_they_are_grouped():
    settings = [SMALL, dataclasses.replace(SMALL, separation=1.0)]
    whole = fresh(*settings, trials=130, seed=4)
    parts = phase_runs.fresh(settings[::-1], num_trials=130, seed=4, chunk=25)[::-1]
    np.testing.assert_array_equal(whole, parts)
    np.testing.assert_array_equal(whole[1:, :60], fresh(settings[1], trials=60, seed=4))
    together = phase_runs.reused(settings, num_trials=30, seed=4)
    alone = phase_runs.reused(settings[1:], num_trials=12, seed=4)
    np.testing.assert_array_equal(together[1:, :12], alone)
    other = fresh(*settings, trials=130, seed=5)
    assert np.any(whole != other)  # Control: the seed matters.


@pytest.fixture(scope="module", autouse=True)
def coarse():
    """Boundaries of few points, because all types are checked at all of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(phase, "FINE", 16)
        yield


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """A small diagram: its configuration, folder and summary."""
    out = tmp_path_factory.mktemp("phase")
    config = configured("ifca.phase", FLAGS)
    return config, out, run(config, out)


def run(config: phase.Config, out: pathlib.Path) -> dict:
    return phase.load("ifca.phase").main(config, Options(out=out, progress=False))


@pytest.mark.long
def test_axes_may_be_exchanged(drawn):
    config, _, summary = drawn
    turned = dataclasses.replace(config, axes=config.axes[::-1])
    cells = phase.cells(turned)
    own = phase.rows(turned, cells, [phase.compute(cell, chunk=25) for cell in cells])
    place = lambda row: (row["data"], *(row[name] for name in config.axes))
    assert sorted(own, key=place) == sorted(summary["rows"], key=place)
    assert own != summary["rows"]


@pytest.mark.long
def test_a_run_that_was_cut_off_goes_on(drawn, tmp_path, monkeypatch):
    config, out, _ = drawn
    shutil.copytree(out / "cells", tmp_path / "cells")
    kept = sorted((tmp_path / "cells").glob("*.npz"))
    assert len(kept) == 4 + 2  # Rows, and sizes of data sets.
    for file in kept[::3]:
        file.unlink()
    computed, usual = [], phase.compute

    def compute(cell, **options):
        computed.append(cell)
        return usual(cell, **options)

    monkeypatch.setattr(phase, "compute", compute)
    run(config, tmp_path)
    assert len(computed) == len(kept[::3])
    names = ["table.csv", "boundaries.csv", "outcome.md", "diagram.svg", "diagram.pdf"]
    for name in names:
        assert (tmp_path / name).read_bytes() == (out / name).read_bytes(), name


def titled(picture: Any) -> str:
    """The picture's own title, in its caption."""
    return report.caption_of(picture)


@pytest.mark.long
def test_the_picture_says_what_it_shows(drawn):
    config, out, summary = drawn
    (picture,) = phase.figures(config, summary["rows"]).values()
    texts = [text.get_text() for text in picture.findobj(Text)]
    everything = "\n".join([*texts, titled(picture)])
    for text in (
        "k = 2 clusters, m = 100 clients, d = 50 features, start 0.25 Δ",
        "fresh folds in each round: 16 cells of 50 runs",
        "the same data in all rounds: 4 cells of 3 runs",
        "separation over noise  Δ/σ",
        "Theorem 1, explicit constants",
        "exact law of misassignment",
        "half of the runs succeed",
    ):
        assert text in everything, text
    assert titled(picture).startswith("IFCA by samples and separation: where")
    start = dataclasses.replace(config, axes=("samples", "start"), reused_trials=0)
    (other,) = phase.figures(start, summary["rows"]).values()
    assert titled(other).startswith("IFCA by samples and distance of the start: where")
    assert "promised" not in everything
    few = dataclasses.replace(config, num_clients=20, reused_trials=0)
    (picture,) = phase.figures(few, summary["rows"]).values()
    texts = [text.get_text() for text in picture.findobj(Text)]
    assert "as printed: nothing promised, as pm ≥ 8 log(2/δ) fails" in "\n".join(texts)
    assert len((out / "outcome.md").read_text().splitlines()) == 3


@pytest.mark.long
def test_rules_can_come_out_otherwise(drawn):
    config, _, summary = drawn
    table = summary["rows"]
    assert summary["decisions"]["promises kept"] == "yes"
    broken = [row | {"high": 0.5} for row in table]
    assert phase.decide(config, broken)["promises kept"] == "no"
    silent = [row | {"corrected": 0.0, "explicit": 0.0} for row in table]
    assert phase.decide(config, silent)["promises kept"] == "undecided"
    wrong = [row | {"exact": 1 - row["exact"]} for row in table]
    assert phase.decide(config, wrong)["exact laws tell"] == "no"


def test_whole_numbers_differ_and_divide():
    config = configured(
        "ifca.phase", f"{FLAGS} --axes samples clients --num-clusters 4"
    )
    samples, clients = (config.values(place, 30) for place in (0, 1))
    for values, unit in ((samples, 1), (clients, 4)):
        assert len(set(values)) == 30 and all(value % unit == 0 for value in values)
    assert (samples[0], samples[-1], clients[0], clients[-1]) == (1, 10_000, 4, 4000)


def test_presets_are_as_asked_for():
    for name in ("ifca.phase", "ifca.phase_start"):
        own = EXPERIMENTS[name].load()
        paper = own.preset("paper")
        assert (paper.num_cells, paper.num_trials) == (60, 1000)
        assert json.dumps(dataclasses.asdict(own.preset("quick")))


# Against misuse


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--axes samples samples", "`axes` must be two different ones"),
        (
            "--axes n n",
            "^argument --axes: invalid choice 'n'; choose from separation, samples, "
            "clients, features, start; see ",
        ),
        ("--axes=samples", "argument --axes: expected 2 arguments"),
        (
            "--first-range 1",
            "`--first-range` takes 2 values, got 1",
        ),
        ("--num-cells few", "argument --num-cells: must be an integer, got 'few'"),
        ("--separation nan", "--separation: must be finite, got nan"),
        ("--separation -1", "--separation: must not be negative, got -1"),
        ("--step inf", "--step: must be finite, got inf"),
        ("--start nan", "--start: must be finite, got nan"),
        ("--start -0.1", "--start: must not be negative, got -0.1"),
        (
            "--first-range 10 1",
            "`first_range` of samples must be two numbers between 1 and",
        ),
        ("--second-range 0 1", "`second_range` of separation must be two numbers"),
        ("--second-range 1 inf", "--second-range: must be finite, got inf"),
        (
            "--first-range 0.1 9",
            "`first_range` of samples must be two numbers between 1",
        ),
        ("--first-range 1 9", "20 different samples do not fit between 1 and 9"),
        ("--num-trials 0", "--num-trials: must be at least 1, got 0"),
        ("--num-cells 1", "`num_cells` must be finite and at least 2"),
        ("--num-clients 101", "`num_clients` must be a multiple of `num_clusters`"),
        ("--num-features 1", "as many features as clusters at least, got 1 and 2"),
        (
            "--num-features 20000",
            "a data set of 100 clients, 10000 samples and 20000 features takes more",
        ),
        ("--error-rate 1", "--error-rate: must be in"),
    ],
)
def test_nonsense_is_refused_in_one_line(flags, message):
    with pytest.raises(ValueError, match=message) as caught:
        configured("ifca.phase", flags)
    assert "\n" not in str(caught.value).strip()
