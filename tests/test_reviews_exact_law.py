"""The reviewers' studies on fresh data, against the exact laws that they rest on."""

import dataclasses
import itertools
import math
import pathlib
import sys
from typing import Any

import jax
import numpy as np
import pytest
import scipy.stats
from toy_experiments import configured

from cfljax import intervals, law
from experiments.options import Options
from experiments.reviews import (
    exact_law,
    initialisation,
    many_clusters,
    number_of_models,
    participation,
)
from experiments.reviews.communication import frozen_square
from experiments.reviews.identity_batch import least_samples, misassigned_raw

# Each random check errs with at most this chance on correct code; seeds are constants.
ERROR_RATE = 1e-6
TRUTHS = np.array([[0.0], [1.0]])
TRUE = law.place(TRUTHS, TRUTHS, num_features=4.0)
CONFIG = configured(
    "reviews.init",
    "--margins 0.2 --num-samples 5 --shares 0 1 --basin-samples 100000000"
    " --num-trials 40 --num-first 1500 --num-starts 2000 --shown-margin 0.2"
    " --num-rounds 8 --num-clients 40 --num-clusters 2 --step-size 1 --failure 0.05",
    preset="paper",
)


@pytest.mark.parametrize("participants", [50, 200, 800])
def test_floor_of_random_participants_is_the_fixed_point(participants):
    """Averaging the exact mean square over subsets gives it back; control: the
    prediction that has exactly M/k members in every round does not, but at M = m."""
    config = participation.preset("quick")
    arm = "averaged over participants"
    members = [config.members] * config.num_clusters
    present = np.random.default_rng(0).multivariate_hypergeometric(
        members, participants, size=40_000
    )[:, :1]
    first = np.eye(1, config.num_clusters)

    names = ("num_samples", "num_features", "noise", "step_size")
    settings = {name: getattr(config, name) for name in names}
    counts, of_draw = np.unique(present, return_inverse=True)

    def after(square: float, count: float) -> float:
        model = first + np.sqrt(square) * np.eye(1, config.num_clusters, 1)
        present = np.array([[float(count)]])
        return law.expected_square_error(
            first, model, present, total=participants, **settings
        ).item()

    def agrees(floor: float) -> bool:
        each = np.array([after(floor**2, count) for count in counts])
        values = each[of_draw.ravel()]
        if np.ptp(values) == 0:
            return math.isclose(values[0], floor**2, rel_tol=1e-12)
        low, high = intervals.student(values, error_rate=ERROR_RATE)
        return bool(low <= floor**2 <= high)

    assert agrees(participation.predicted_floor(config, arm, participants))
    rows = config.num_samples * participants / config.num_clusters
    steady = law.stationary_floor(rows, config.num_features, config.noise, 0.5)
    assert agrees(float(steady)) == (participants == config.num_clients)


def test_absence_is_hypergeometric():
    """Control: drawing with replacement is noticed."""
    config = participation.preset("quick")
    for count in (1, 2, 8, 20, 700):
        exact = scipy.stats.hypergeom.pmf(0, 800, 200, count)
        found = participation.absence(config, count)
        assert math.isclose(found, exact, rel_tol=1e-9) or found < 1e-300 > exact
    assert not math.isclose(participation.absence(config, 8), 0.75**8)


def participation_results(exponent: float, printed: float) -> list[dict[str, Any]]:
    """What `compute` would give if floors fell as M^exponent, or were `printed` times
    the prediction."""
    config = participation.preset("quick")
    scatter = 1 + 0.002 * np.random.default_rng(0).standard_normal(config.num_draws)
    _, divided = participation.ARMS
    floors = [0.1 * (count / 50) ** exponent for count in config.num_participants]
    for count in config.num_participants:
        floors.append(printed * participation.predicted_floor(config, divided, count))
    others = {"factor": 0.5 * scatter, "strays": np.array(0.0)}
    return [others | {"square": floor**2 * scatter} for floor in floors]


@pytest.mark.parametrize(
    "exponent, printed, expected",
    [
        (-0.5, 1.0, ("yes", "yes")),
        (-0.44, 1.0, ("no", "yes")),
        (-0.5, 1.06, ("yes", "no")),
    ],
)
def test_participation_is_decided_by_its_rows(exponent, printed, expected):
    config = participation.preset("quick")
    config = dataclasses.replace(config, few_participants=(2,), num_subsets=100)
    results = participation_results(exponent, printed)
    table = participation.rows(config, participation.cells(config), results)
    assert tuple(participation.decide(config, table).values()) == expected


def test_separating_starts_are_bijections():
    random = np.random.default_rng(0)
    distances = random.random((200, 3, 3))
    nearest = distances.argmin(axis=-1)
    expected = [len(set(row)) == 3 for row in nearest.tolist()]
    assert exact_law.separating(distances).tolist() == expected
    assert 0 < sum(expected) < 200
    distances[expected.index(True), 2, 0] = np.nan
    expected[expected.index(True)] = False
    assert exact_law.separating(distances).tolist() == expected


def test_chance_of_separating_starts():
    """k!/k^k by counting all choices, and by drawing; control: starts as long as the
    truths separate less often."""
    for clusters in (2, 3, 4):
        choices = itertools.product(range(clusters), repeat=clusters)
        share = np.mean([len(set(choice)) == clusters for choice in choices])
        assert math.isclose(share, many_clusters.short_start_chance(clusters))
    chance = many_clusters.short_start_chance
    needed = [many_clusters.restarts(chance(k)) for k in (2, 4, 8)]
    assert needed == [5, 31, 1246]
    config = dataclasses.asdict(many_clusters.preset("quick"))
    cell = {"config": config, "kind": "chance", "clusters": 4}
    found = many_clusters.compute(cell)
    for name, is_short in (("short", True), ("chance", False)):
        counts = found[name], config["num_starts"]
        low, high = intervals.clopper_pearson(*counts, error_rate=ERROR_RATE)
        assert (low <= chance(4) <= high) == is_short


def test_mcnemar_is_the_binomial_test():
    for gained, lost in ((0, 0), (7, 0), (3, 12), (5, 5)):
        total = gained + lost
        expected = scipy.stats.binomtest(gained, total).pvalue if total else 1.0
        assert math.isclose(many_clusters.mcnemar(gained, lost), expected)


def largek_results(exponent: float, different: int) -> list[dict[str, Any]]:
    """What `compute` would give if floors rose as k^exponent, and if `different` of a
    cell's 60 runs succeeded from a start that does not separate."""
    config = many_clusters.preset("quick")
    scatter = 1 + 0.01 * np.random.default_rng(0).standard_normal(40)
    results: list[dict[str, Any]] = []
    for case in many_clusters.cells(config):
        if case["kind"] == "floor":
            square = 1e-5 * case["clusters"] ** (2 * exponent) * scatter
            results.append({"square": square, "wrong": np.array(0.0)})
        elif case["kind"] == "chance":
            chance = many_clusters.short_start_chance(case["clusters"])
            found = round(chance * config.num_starts)
            results.append({"chance": np.array(found // 2), "short": np.array(found)})
        else:
            start = np.arange(60) < 10
            success = np.arange(60) < 10 + different
            arrays = {"few": start[:40], "few_separating": start[:40]}
            results.append(arrays | {"many": success, "many_separating": start})
    return results


@pytest.mark.parametrize(
    "exponent, different, expected",
    [
        (0.5, 0, ("yes", "yes")),
        (0.56, 0, ("no", "yes")),
        (0.5, 2, ("yes", "undecided")),
        (0.5, 8, ("yes", "no")),
    ],
)
def test_many_clusters_are_decided_by_their_rows(exponent, different, expected):
    config = many_clusters.preset("quick")
    results = largek_results(exponent, different)
    table = many_clusters.rows(config, many_clusters.cells(config), results)
    assert tuple(many_clusters.decide(config, table).values()) == expected
    closing, slope, *_ = table[-4:]
    assert closing["gained"] == 5 * different and closing["trials"] == 300
    assert slope["slope"] == pytest.approx(exponent, abs=0.01)


def test_merging_bias_is_the_best_partitions():
    """Least over all ways to merge 4 equidistant truths, by brute force."""
    config = number_of_models.preset("quick")
    truths = np.eye(4) / math.sqrt(2)
    for models in (1, 2, 3, 4):
        spread = lambda own: np.sum((own - own.mean(0)) ** 2)
        least = min(
            sum(spread(truths[np.equal(labels, j)]) for j in set(labels))
            for labels in itertools.product(range(models), repeat=4)
        )
        bias = number_of_models.merged(config, models)
        assert math.isclose(bias, math.sqrt(least / 4), abs_tol=1e-12)


def models_results(square: float) -> list[dict[str, Any]]:
    """What `compute` would give if each cluster had as many models as there are to
    share, and a client's mean square error `square` times that."""
    config = dataclasses.replace(number_of_models.preset("quick"), num_trials=30)
    scatter = 1 + 0.02 * np.random.default_rng(0).standard_normal(config.num_trials)
    truths = np.eye(4, 12) / math.sqrt(2)
    results = []
    for case in number_of_models.cells(config):
        number, trials = case["models"], config.num_trials
        near = case["extra"] == "near a truth"
        splits = max(1.0, number / 4) if near else 1.0
        expected = splits * number_of_models.oracle(config) ** 2 * scatter
        last = np.full((trials, 8, 12), np.nan)
        last[:, :number] = truths[np.arange(number) % 4]
        results.append(
            {
                "square": square * expected,
                "expected": expected,
                "worst": 0.55 * scatter,
                "splits": np.full(trials, splits),
                "used": np.full(trials, number if near else 4),
                "waited": np.full(trials, 0 if near else 4),
                "revived": np.zeros(trials),
                "last": last,
            }
        )
    return results


@pytest.mark.slow
def test_number_of_models_is_decided_by_its_rows():
    """Control: 12 % more in mean square, 6 % in error, is too much."""
    config = dataclasses.replace(number_of_models.preset("quick"), num_trials=30)
    for square, expected in ((1.0, "yes"), (1.12, "no")):
        results = models_results(square)
        table = number_of_models.rows(config, number_of_models.cells(config), results)
        decisions = number_of_models.decide(config, table)
        splits, halves, empty, near, random = decisions.values()
        assert (splits, halves, empty, random) == (expected, "yes", "no", "yes")
        assert near == "undecided"  # None was ever empty there.
        waited = sum(row["waited"] for row in table if row["extra"] == "random")
        assert waited == 12 * config.num_trials


def test_held_out_losses_are_noise_and_squared_distances():
    """Models at the truths lose sigma^2; the first three of them more, where the last
    cluster's clients are Delta off; control: neither interval holds the other's."""
    quick = number_of_models.preset("quick")
    config = dataclasses.replace(quick, num_models=(3, 4), num_trials=30)
    last = np.full((config.num_trials, 4, 12), np.nan)
    last[:, :3] = np.eye(3, 12) / math.sqrt(2)
    full = last.copy()
    full[:, 3] = np.eye(1, 12, 3) / math.sqrt(2)
    losses = number_of_models.select(config, [{"last": last}, {"last": full}])
    low, high = intervals.student(losses["chosen"].T, error_rate=ERROR_RATE)
    truth = config.noise**2 + np.array([config.separation**2 / 4, 0.0])
    assert np.all((low <= truth) & (truth <= high))
    assert not np.any((low <= truth[::-1]) & (truth[::-1] <= high))
    assert np.all(losses["lowest"] <= losses["chosen"] + 1e-12)


@pytest.mark.parametrize("wrong_noise", [False, True])
def test_first_choices_follow_lemma_one_in_its_worst_case(wrong_noise: bool) -> None:
    """The least favourable start attains kappa = alpha0 sqrt(rho) for cluster one."""
    config = dataclasses.replace(CONFIG, num_clusters=4)
    random = np.random.default_rng(0)
    models = initialisation.starts(config, "least favourable", 0.1, random, 1)
    truths = config.separation / np.sqrt(2) * np.eye(4, config.num_features)
    kappas = law.misassignment_kappa(truths[0], models[0, 0], models[0, 1], 0.5)
    assert np.isclose(kappas, law.worst_kappa(0.1, config.rho), rtol=1e-12)
    pair, samples, trials, members = slice(0, 2), 9, 2000, 25
    wrong = initialisation.first_mistakes(
        np.random.default_rng(1),
        truths[pair],
        np.repeat(models[:, pair], trials, axis=0),
        members=members,
        num_samples=samples,
        noise=0.55 if wrong_noise else 0.5,
    )
    both = [
        law.misassignment_kappa(truths[a], models[0, a], models[0, b], 0.5)
        for a, b in ((0, 1), (1, 0))
    ]
    chances = law.misassignment_probability(np.array(both), samples)
    # Trials are independent sums of many clients: Student's interval of the mean.
    low, high = intervals.student(wrong / (2 * members), error_rate=ERROR_RATE)
    assert (low <= np.mean(chances) <= high) != wrong_noise


def test_sample_sizes_meet_assumption_two() -> None:
    config = dataclasses.replace(CONFIG, margins=(0.05, 0.2))
    for margin in config.margins:
        least = config.minimal_samples(margin)
        assert config.union_bound(margin, least) <= config.failure
        assert config.union_bound(margin, least - 1) > config.failure
        assert least <= config.sufficient_samples(margin)


def test_closeness_matches_labels() -> None:
    distances = np.array([[[0.9, 0.1], [0.2, 0.8]], [[0.1, 0.9], [0.9, 0.3]]])
    found = initialisation.closeness(distances, 1.0)
    assert np.allclose(found, [0.3, 0.2])
    assert not np.allclose(found[0], 0.5 - 0.9)  # without matching


def test_chance_of_separation_at_both_ends() -> None:
    found = initialisation.separating_chance(CONFIG, np.array([0.0, 0.4, 1.0]))
    assert found[0] == found[1] == 1
    assert found[2] < 0.9


@pytest.mark.slow
def test_a_tiny_run_and_its_rules(tmp_path: pathlib.Path) -> None:
    summary = initialisation.main(CONFIG, Options(out=tmp_path, progress=False))
    assert set(summary["decisions"].values()) <= {"yes", "no", "undecided"}
    table = summary["rows"]
    assert summary["decisions"] == initialisation.decide(CONFIG, table)
    assert summary["decisions"]["the complaint is upheld"] == "yes"
    assert all(pathlib.Path(path).stat().st_size > 0 for path in summary["files"])
    for column, value in (("any_wrong", 0.08), ("frozen_to_ifca", 1.05)):
        spoilt = [dict(row) for row in table]
        row = next(r for r in spoilt if r.get("assumed"))
        row |= {column: value, f"{column}_low": value - 0.01}
        row |= {f"{column}_high": value + 0.01}
        verdicts = initialisation.decide(CONFIG, spoilt)
        assert verdicts["the complaint is upheld"] == "no"


def one_round(identity_samples, num_trials=4000, start=TRUE, **more) -> law.Trace:
    """Of 200 clients in two clusters, whose models start at the truth."""
    sizes = {"num_samples": 100.0, "num_features": 4.0, "noise": 0.5}
    members = np.array([100.0, 100.0])
    clusters = law.population(
        TRUTHS, num_models=len(start), num_clients=members, **sizes
    )
    asked: dict = {"num_trials": num_trials, "num_rounds": 1, "step_size": 0.5, **more}
    key = jax.random.key(7)
    return law.simulate(
        key, clusters, start, identity_samples=identity_samples, **asked
    )


@pytest.mark.slow
def test_identity_samples_decide_the_choice_and_nothing_else():
    """P(t_b >= sqrt(b) / (2 noise)) of the choice, floor of n' rows of the step."""
    same, default, few = (one_round(n, divisor="cluster") for n in (100.0, None, 4.0))
    np.testing.assert_array_equal(same.models, default.models)
    wrong_ones = few.counts[:, 0, 0, 1].sum() + few.counts[:, 0, 1, 0].sum()
    counts = int(wrong_ones), 4000 * 200
    low, high = intervals.clopper_pearson(*counts, error_rate=ERROR_RATE)
    right = float(law.misassignment_probability(1.0, 4.0))
    wrong = float(law.misassignment_probability(1.0, 5.0))
    assert low <= right <= high
    assert not low <= wrong <= high, "control: one sample more"
    # From the truth, with a share w of wrong clients, E w = q, among 100: the mean
    # square is E w^2 + (d sigma^2 + (d + 1) E w) / N with N = 100 x 100 rows.
    share = float(law.misassignment_probability(1.0, 4.0))
    for trace, q in ((same, 0.0), (few, share)):
        distance = law.distances(TRUE, trace.models[:, 1])[:, 0, 0]
        low, high = intervals.student(distance**2, error_rate=ERROR_RATE)
        expected = q**2 + q * (1 - q) / 100 + (4 * 0.5**2 + 5 * q) / 1e4
        assert low <= expected <= high
        assert not low <= 1.2 * expected <= high, "control: a fifth more"


@pytest.mark.parametrize("identity_samples", [0.0, 1.5, np.nan])
def test_identity_samples_out_of_range_are_refused(identity_samples):
    with pytest.raises(ValueError, match=r"^`identity_samples`"):
        one_round(identity_samples)


@pytest.mark.parametrize(
    "identity_samples, num_rows", [(None, None), (2.0, 2), (3.0, None)]
)
def test_too_few_identity_samples_for_three_models_are_drawn_as_rows(
    identity_samples, num_rows, monkeypatch
):
    """Bartlett's factor exists from as many rows as models; n' = 100 plays no part."""
    seen = []

    def run(*arguments, **options):
        seen.append(options["num_rows"])
        return np.zeros((1, 2, 3, 4)), np.zeros((1, 1, 2, 3))

    monkeypatch.setattr(sys.modules["cfljax.law.simulate"], "_run", run)
    one_round(identity_samples, num_trials=1, start=np.zeros((3, 4)))
    assert seen == [num_rows]


def test_raw_residuals_err_as_the_law_says():
    wrong = misassigned_raw(np.random.default_rng(1), 4.0, 3, 200_000)
    low, high = intervals.clopper_pearson(wrong, 200_000, error_rate=ERROR_RATE)
    assert low <= float(law.misassignment_probability(1.0, 3)) <= high
    assert not low <= float(law.misassignment_probability(1.05, 3)) <= high, "control"


@pytest.mark.parametrize("rho", [0.3, 4.0, 40.0])
def test_the_least_number_of_samples_is_the_first_that_suffices(rho):
    found = least_samples(rho, 1e-3)
    chances = scipy.stats.t.sf(np.sqrt(np.arange(1, 999) * rho) / 2, np.arange(1, 999))
    assert found == 1 + int(np.argmax(chances <= 1e-3))


def test_frozen_identities_have_the_floor_of_raw_regressions():
    """Two clusters' clients mixed for good, gradient steps on fresh raw rows."""
    counts, noise, step, rows, d = np.array([[8.0, 1.0], [2.0, 9.0]]), 0.5, 0.5, 4, 3
    generator = np.random.default_rng(2)
    truths = np.eye(2, d) / math.sqrt(2)
    truth_of = np.repeat(truths, counts[:, 0].astype(int) * rows, axis=0)
    model, squares = truths[0], []
    for _ in range(20_000):
        inputs = generator.standard_normal(truth_of.shape)
        targets = np.sum(inputs * truth_of, axis=1)
        targets = targets + noise * generator.standard_normal(len(targets))
        slope = inputs.T @ (inputs @ model - targets) / len(targets)
        model = model - step * slope
        squares.append(np.sum((model - truths[0]) ** 2))
    means = np.array(squares[1000:]).reshape(95, -1).mean(axis=1)
    low, high = intervals.student(means, error_rate=ERROR_RATE)
    symmetric = np.array([[8.0, 2.0], [2.0, 8.0]])  # Both models as the first one.
    sizes = {"num_features": d, "rho": 4.0, "step": step}
    expected = float(frozen_square(symmetric, num_samples=float(rows), **sizes))
    assert low <= expected <= high
    fewer = float(frozen_square(symmetric, num_samples=float(rows - 1), **sizes))
    assert not low <= fewer <= high, "control: a sample less"
