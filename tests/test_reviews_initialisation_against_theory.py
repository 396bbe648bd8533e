"""The study of the initialisation against the laws that it rests on."""

import dataclasses
import pathlib

import numpy as np
import pytest

from cfljax import intervals, law
from experiments.options import Options
from experiments.reviews import initialisation, initialisation_runs
from experiments.reviews.initialisation_report import decide, half_way

# Each random check errs with at most this chance on correct code; seeds are constants.
ERROR_RATE = 1e-6

CONFIG = initialisation.Config(
    margins=(0.2,),
    num_samples=(5,),
    shares=(0.0, 1.0),
    basin_samples=(100_000_000,),
    num_trials=40,
    num_first=1500,
    num_starts=2000,
    shown_margin=0.2,
    num_rounds=8,
    num_clients=40,
    num_clusters=2,
    step_size=1.0,
    failure=0.05,
)


@pytest.mark.parametrize("wrong_noise", [False, True])
def test_first_choices_follow_lemma_one_in_its_worst_case(wrong_noise: bool) -> None:
    """The least favourable start attains kappa = alpha0 sqrt(rho) for cluster one."""
    config = dataclasses.replace(CONFIG, num_clusters=4)
    models = initialisation_runs.starts(
        config, "least favourable", 0.1, np.random.default_rng(0), 1
    )
    truths = config.separation / np.sqrt(2) * np.eye(4, config.num_features)
    kappas = law.misassignment_kappa(truths[0], models[0, 0], models[0, 1], 0.5)
    assert np.isclose(kappas, law.worst_kappa(0.1, config.rho), rtol=1e-12)
    pair, samples, trials, members = slice(0, 2), 9, 2000, 25
    wrong = initialisation_runs.first_mistakes(
        np.random.default_rng(1),
        truths[pair],
        np.repeat(models[:, pair], trials, axis=0),
        members=members,
        num_samples=samples,
        noise=0.55 if wrong_noise else 0.5,
    )
    chances = law.misassignment_probability(
        np.array(
            [
                law.misassignment_kappa(truths[a], models[0, a], models[0, b], 0.5)
                for a, b in ((0, 1), (1, 0))
            ]
        ),
        samples,
    )
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
    found = initialisation_runs.closeness(distances, 1.0)
    assert np.allclose(found, [0.3, 0.2])
    assert not np.allclose(found[0], 0.5 - 0.9)  # without matching


def test_chance_of_separation_at_both_ends() -> None:
    found = initialisation_runs.separating_chance(CONFIG, np.array([0.0, 0.4, 1.0]))
    assert found[0] == found[1] == 1
    assert found[2] < 0.9


@pytest.mark.slow
def test_a_tiny_run_and_its_rules(tmp_path: pathlib.Path) -> None:
    summary = initialisation.main(CONFIG, Options(out=tmp_path, progress=False))
    assert set(summary["decisions"].values()) <= {"yes", "no", "undecided"}
    table = summary["rows"]
    assert summary["decisions"] == decide(CONFIG, table)
    assert summary["decisions"]["the complaint is upheld"] == "yes"
    assert all(pathlib.Path(path).stat().st_size > 0 for path in summary["files"])
    for column, value in (("any_wrong", 0.08), ("frozen_to_ifca", 1.05)):
        spoilt = [dict(row) for row in table]
        row = next(r for r in spoilt if r.get("assumed"))
        row |= {column: value, f"{column}_low": value - 0.01}
        row |= {f"{column}_high": value + 0.01}
        assert decide(CONFIG, spoilt)["the complaint is upheld"] == "no"
    runs = [
        {"kind": "basin", "samples": 9, "share": s, "closeness": -s} for s in (0, 1)
    ]
    places = [run | {"success": 1 - 0.8 * run["share"]} for run in runs]
    assert half_way(places, 9)["share"] == pytest.approx(0.625)
    assert half_way(places[:1], 9)["share"] is None


@pytest.mark.parametrize(
    ("field", "value"),
    [("margins", (0.5,)), ("num_samples", (1,)), ("shares", (1.0, 0.0))],
)
def test_misuse_is_named(field: str, value: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match=f"`{field}`"):
        dataclasses.replace(CONFIG, **{field: value})
