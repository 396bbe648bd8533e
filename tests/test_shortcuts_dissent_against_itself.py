"""Runs by Gram matrices of groups and clients that dissent, against plain rounds."""

import numpy as np
import pytest
from shortcut_runs import STABLE, clear, furthest, in_short, make

from cfljax.montecarlo import group_gradients, partitions, state
from cfljax.montecarlo.lookahead import Lookahead


@pytest.fixture(params=["later", "never"])
def case(request, monkeypatch):
    """Whose samples count as many."""
    found = make(request.param)  # Kept for other tests, so as it is.
    monkeypatch.setattr(partitions, "_SAMPLES", 0)
    monkeypatch.setattr(partitions, "_BY_GROUP", 0)
    return found


@pytest.fixture
def dissenters(monkeypatch):
    """How many clients dissent in each run, in each step by group."""
    found, gradients = [], group_gradients.gradients

    def noted(samples, problems, models, choices, majorities, errors, places):
        found.append(np.sum(choices != majorities[:, samples.clusters], axis=1))
        return gradients(samples, problems, models, choices, majorities, errors, places)

    monkeypatch.setattr(state, "gradients", noted)
    return found


def test_stable_runs_end_where_they_would(case, dissenters):
    ends = in_short(case.problem, case.step_sizes)
    decided = clear(case.losses[STABLE])
    apart = furthest(case.models[STABLE], ends.models[STABLE])
    assert np.all(apart[decided] < 1e-4)
    assert np.all(ends.is_done)
    numbers = np.concatenate(dissenters)
    assert np.sum(numbers > 0) > 10
    assert np.max(numbers) <= len(case.problem.clusters) / 2


def test_rounds_are_those_of_all_samples(case, dissenters):
    """All runs, unstable ones for as long as rounding stays small."""
    expected = np.swapaxes(case.losses[:, 20], 1, 2)
    ends = in_short(case.problem, case.step_sizes, num_rounds=20)
    np.testing.assert_allclose(ends.losses, expected, rtol=1e-4)
    assert np.any(np.concatenate(dissenters) > 0)


def test_control_clients_that_stay_with_their_group_are_noticed(case, monkeypatch):
    """In stable runs and in others."""
    rows = group_gradients._rows
    wrong = lambda choices, expected, places: rows(expected, expected, places)
    monkeypatch.setattr(group_gradients, "_rows", wrong)
    ends = in_short(case.problem, case.step_sizes)
    decided = clear(case.losses[STABLE])
    apart = furthest(case.models[STABLE], ends.models[STABLE])
    assert np.any(apart[decided] > 1e-2)
    expected = np.swapaxes(case.losses[~STABLE, 20], 1, 2)
    early = in_short(case.problem, case.step_sizes, num_rounds=20).losses[~STABLE]
    assert not np.allclose(early, expected, rtol=1e-2)


@pytest.mark.parametrize("is_spoiled", [False, True])
def test_coming_rounds_are_guessed_by_group(case, monkeypatch, is_spoiled):
    """After a round in which some dissented; those that come true are kept."""
    went, walk = [], Lookahead.walk

    def noted(self, path, losses):
        held, before = self._frozen.held(path.run), self._runs.left[path.run]
        if is_spoiled:
            path = path._replace(choices=path.choices + 1)
        places = walk(self, path, losses)
        if held == ():
            went.append(before - self._runs.left[path.run])
        return places

    monkeypatch.setattr(Lookahead, "walk", noted)
    in_short(case.problem, case.step_sizes)
    assert went
    assert any(went) != is_spoiled
