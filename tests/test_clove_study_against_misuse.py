"""CLoVE's experiments: what is refused."""

import dataclasses

import pytest
from test_clove_study_against_itself import SMALL, named

from experiments.clove.study import grids


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"partitions": ()}, "`partitions` must hold different names"),
        ({"methods": ("clove", "clove")}, "`methods` must hold different names"),
        ({"cluster_sizes": (0,)}, "`cluster_sizes` must be at least 1, got"),
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
