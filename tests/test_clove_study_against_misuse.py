"""CLoVE's experiments: what is refused."""

import dataclasses

import pytest
from test_clove_study_against_itself import SMALL, named

from experiments.clove.study import grids, planned


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"partitions": ()}, "`partitions` must hold different names"),
        ({"methods": ("clove", "clove")}, "`methods` must hold different names"),
        ({"cluster_sizes": (0,)}, "`cluster_sizes` must be at least 1, got"),
        ({"num_samples": ()}, "`num_samples` must hold at least one"),
        ({"gradient_step_size": -1.0}, "`gradient_step_size` must be finite"),
        ({"num_rounds": 0}, "`num_rounds` must be at least 1, got 0"),
        ({"participations": (1.5,)}, r"`participations` must be in \(0, 1\]"),
        ({"step_size": float("nan")}, "`step_size` must be finite"),
        ({"num_clients": (10,)}, "`cluster_sizes` and `num_clients` exclude"),
        ({"num_samples": (1, 2, 3), "cluster_sizes": (1, 2)}, "as many as each other"),
    ],
)
def test_impossible_configurations_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SMALL, **change)


def test_impossible_trials_are_refused():
    trial = next(grids(SMALL, named("digits"))).trial
    with pytest.raises(ValueError, match="`rounds_between` must divide"):
        dataclasses.replace(trial, rounds_between=3)


def test_a_set_without_a_partition_is_refused():
    with pytest.raises(ValueError, match="`partitions` must have one of ag_news"):
        next(grids(SMALL, named("ag_news")))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"partitions": ("concept_shift",), "num_clusters": (5,)}, "at most 4"),
        ({"partitions": ("label_skew_1",), "num_clusters": (6,)}, "`num_owned` times"),
        ({"cluster_sizes": None, "num_clients": (7,)}, "multiple of the number of"),
        ({"num_samples": (9999,)}, "samples"),
        ({"participations": (0.01, 0.02)}, "`participations` must give different"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_run(change, message):
    config = dataclasses.replace(SMALL, **change)
    with pytest.raises(ValueError, match=message):
        planned(config, [named("digits")])
    assert planned(SMALL, [named("digits")])


def test_texts_have_neither_reconstructions_nor_more_clusters_than_clients():
    texts = dataclasses.replace(
        SMALL, partitions=("pairs_of_classes",), cluster_sizes=None, num_clusters=(40,)
    )
    with pytest.raises(ValueError, match="`num_clusters` must be at most the 30"):
        next(grids(texts, named("ag_news")))
    images = dataclasses.replace(texts, num_clusters=(4,), reconstruct=True)
    with pytest.raises(ValueError, match="`reconstruct` needs images, got ag_news"):
        next(grids(images, named("ag_news")))
