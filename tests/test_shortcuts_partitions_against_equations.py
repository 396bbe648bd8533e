"""Gram matrices built from others against double precision, and what they take."""

import jax.numpy as jnp
import numpy as np
import pytest
from shortcut_runs import clear, draw, full_runs, furthest, in_short, largest_stable

from cfljax.montecarlo import lookahead, partitions, prepare
from cfljax.montecarlo.partitions import Partitions

CLIENTS, SAMPLES, FEATURES, HEAVY = 40, 4, 3, 8
# Clients whose Gram matrices are so many times what all lighter ones have together.
RATIO = 25.0


def nested(ratio):
    """Samples with heavy clients first, each `ratio` times as heavy as the rest."""
    draws = np.random.default_rng(0)
    rest = float(CLIENTS - HEAVY)
    scales = np.ones(CLIENTS)
    scales[:HEAVY] = np.sqrt(rest * ratio ** np.arange(HEAVY, 0, -1))
    inputs = draws.normal(size=(CLIENTS, SAMPLES, FEATURES)) * scales[:, None, None]
    targets = draws.normal(size=(1, CLIENTS, SAMPLES)) * scales[:, None]
    return inputs.astype(np.float32), targets.astype(np.float32)


def worst_error(inputs, targets):
    """Of sets that lose one client after the other, the heaviest first."""
    groups = np.zeros(CLIENTS, int)
    known = Partitions(prepare(jnp.asarray(inputs), jnp.asarray(targets), groups))
    inside, errors = np.ones(CLIENTS, bool), []
    for client in range(HEAVY):
        inside[client] = False
        while not known.is_known((inside.tobytes(),)):
            known.spend((inside.tobytes(),), 1.0)
        found = known.normal(inside.tobytes())
        flat = inputs[inside].reshape(-1, FEATURES).astype(float)
        gram = 2 / SAMPLES * flat.T @ flat
        moments = 2 / SAMPLES * targets[:, inside].reshape(1, -1).astype(float) @ flat
        for own, exact in ((found.gram, gram), (found.moments, moments)):
            apart = np.linalg.norm(np.asarray(own, float) - exact)
            errors.append(apart / np.linalg.norm(exact))
    return max(errors)


@pytest.mark.parametrize("ratio", [1.0, RATIO])
def test_what_went_through_a_sum_does_not_blur_what_is_left(ratio, monkeypatch):
    monkeypatch.setattr(partitions, "_MATRIX_VECTOR", 0)  # However few the samples.
    assert worst_error(*nested(ratio)) < 5e-6


def test_control_a_chain_of_differences_blurs(monkeypatch):
    monkeypatch.setattr(partitions, "_MATRIX_VECTOR", 0)
    monkeypatch.setattr(partitions, "_MOST_SUMMED", np.inf)
    assert worst_error(*nested(RATIO)) > 1e-3


@pytest.fixture(scope="module")
def many():
    """Runs enough to freeze on many partitions, and where they end in full."""
    problem = draw(24, 30, 8, 3, "all")
    steps = np.tile(0.3, len(problem.starts)) * largest_stable(problem.inputs, "all")
    steps = steps.astype(np.float32)
    return problem, steps, *full_runs(problem, steps)


@pytest.mark.parametrize("most", [8, 1000])
def test_matrices_in_use_are_no_more_than_there_is_room_for(many, most, monkeypatch):
    """Runs without room for theirs go on on the samples, and end where they would."""
    problem, steps, models, losses = many
    size = 4 * problem.inputs.shape[2] ** 2
    monkeypatch.setattr(lookahead, "_MOST_BYTES", most * size)
    monkeypatch.setattr(partitions, "_MOST_BYTES", most * size)
    monkeypatch.setattr(partitions, "PASS", 1)  # Sets are built at once.
    in_use, kept = [], []
    step, keep = lookahead.FrozenRuns.step, Partitions._keep

    def noted(self):
        groups = [partition for partition, _ in self._groups.values()]
        in_use.append(len({id(own.gram) for one in groups for own in one.normal}))
        return step(self)

    def kept_then(self, key, normal):
        keep(self, key, normal)
        kept.append(len(self._kept))

    monkeypatch.setattr(lookahead.FrozenRuns, "step", noted)
    monkeypatch.setattr(Partitions, "_keep", kept_then)
    ends = in_short(problem, steps)
    assert (max(in_use) <= most) and (max(kept) <= most)
    # Control: without a limit there are more.
    assert most == 8 or (max(in_use) > 8 and max(kept) > 8)
    decided = clear(losses)
    assert np.sum(decided) > 8
    assert np.all(furthest(models, ends.models)[decided] < 1e-4)
