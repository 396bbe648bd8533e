"""IFCA on linear regression followed exactly for a fraction of its products."""

import dataclasses
import functools
import threading
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from cfljax import engine
from cfljax.algorithms import ifca
from cfljax.algorithms.ifca import State
from cfljax.base.types import ClientData
from cfljax.federated.average import Normalise
from cfljax.models import linear
from cfljax.montecarlo import (
    Ends,
    error_cache,
    group_gradients,
    lookahead,
    partitions,
    prepare,
    rounds,
    run_ifca,
    schedule,
    state,
)
from cfljax.montecarlo.lookahead import Lookahead
from cfljax.montecarlo.partitions import Partitions
from cfljax.montecarlo.state import Runs

# Whole programs: half a second or more each, on a fresh machine.
pytestmark = pytest.mark.long

# Runs twice: round by round on all samples, and by the exact Monte-Carlo

ROUNDS, STARTS, NOISE = 60, 4, 0.3
# Shares of the largest step size at which no set of clients is unstable.
SLOW, GOOD, UNSTABLE, HOPELESS = 0.02, 0.9, 2.5, 40.0
SHARES = np.repeat((SLOW, GOOD, UNSTABLE, HOPELESS), STARTS)
STABLE = SHARES < 1
# Losses closer than this, relative to them, may change places by rounding.
NEAR = 3e-6


class Problem(NamedTuple):
    """Two regression problems, and as many runs as there are starts and step sizes."""

    inputs: np.ndarray
    targets: np.ndarray
    truths: np.ndarray
    clusters: np.ndarray
    starts: np.ndarray
    which: np.ndarray
    normalise: Normalise


def draw(clients, samples, features, models, normalise) -> Problem:
    draws = np.random.default_rng(0)
    inputs = draws.normal(size=(clients, samples, features)).astype(np.float32)
    truths = draws.normal(size=(2, models, features))
    clusters = np.arange(clients) // (clients // models)
    targets = np.einsum("csf,pcf->pcs", inputs, truths[:, clusters])
    targets = (targets + NOISE * draws.normal(size=targets.shape)).astype(np.float32)
    which = np.arange(len(SHARES)) % 2
    near = (np.arange(STARTS) < STARTS // 2)[:, None, None]  # Of them, some succeed.
    starts = draws.normal(size=(STARTS, models, features))
    starts = np.where(near, truths[which[:STARTS]] + 0.5 * starts, starts)
    starts = np.tile(starts.astype(np.float32), (len(SHARES) // STARTS, 1, 1))
    return Problem(inputs, targets, truths, clusters, starts, which, normalise)


def largest_stable(inputs: np.ndarray, normalise: str) -> float:
    """Step size below which no set S of clients is unstable.

    A model's step is `I - (gamma / divisor) (2 / n) X_S^T X_S`. With the divisor m the
    norm is largest for all clients together, with S's own size for one client alone.
    """
    clients, samples, features = inputs.shape
    every = inputs.reshape(1, -1, features) / np.sqrt(clients)
    blocks = inputs if normalise == "cluster" else every
    return samples / np.max(np.linalg.norm(blocks, 2, axis=(1, 2))) ** 2


@functools.partial(jax.jit, static_argnames="normalise")
def in_full(inputs, targets, starts, step_sizes, normalise):
    """Final models `[runs, models, features]`, and the losses that rounds begin with,
    `[runs, rounds, clients, models]`."""

    def one(start, own, step_size):
        algorithm = ifca(
            linear(start.shape[1]),
            num_clusters=start.shape[0],
            step_size=step_size,
            normalise=normalise,
        )
        state, losses = engine.run(
            algorithm._replace(init=lambda key, data: State(start)),
            jax.random.key(0),
            ClientData(inputs, own, jnp.ones(own.shape, bool)),
            num_rounds=ROUNDS,
            observe=lambda state, info: info.losses,
        )
        return state.models, losses

    return jax.vmap(one)(starts, targets, step_sizes)


def in_short(problem, step_sizes, *, clusters=None, slopes=1.0, **options) -> Ends:
    """The same runs, by shortcuts."""
    samples = prepare(
        jax.device_put(problem.inputs),
        jax.device_put(problem.targets),
        problem.clusters if clusters is None else clusters,
    )
    samples = dataclasses.replace(samples, lipschitz=slopes * samples.lipschitz)
    settings = {"num_rounds": ROUNDS, "normalise": problem.normalise} | options
    which = problem.which[: len(step_sizes)]
    starts = problem.starts[: len(step_sizes)]
    return run_ifca(samples, starts, which, step_sizes, **settings)


class Case(NamedTuple):
    """Both, of the same runs."""

    problem: Problem
    most: float
    step_sizes: np.ndarray
    models: np.ndarray
    losses: np.ndarray
    ends: Ends


# Sizes at which sets of clients are built at once, after some rounds, and never; and
# the largest share of the products that stable runs may need.
SIZES = {
    "built": ((12, 20, 8, 4, "all"), 1 / 3),
    "later": ((24, 30, 40, 3, "cluster"), 1 / 3),
    "never": ((12, 10, 60, 2, "participants"), 2 / 3),
}


@functools.cache
def make(name: str) -> Case:
    sizes, most = SIZES[name]
    problem = draw(*sizes)
    steps = SHARES * largest_stable(problem.inputs, problem.normalise)
    steps = steps.astype(np.float32)
    models, losses = full_runs(problem, steps)
    return Case(problem, most, steps, models, losses, in_short(problem, steps))


def full_runs(problem: Problem, step_sizes: np.ndarray) -> tuple[np.ndarray, ...]:
    """`in_full` of a problem's runs, one for each step size."""
    targets = problem.targets[problem.which]
    given = (problem.inputs, targets, problem.starts, step_sizes, problem.normalise)
    return tuple(map(np.asarray, in_full(*given)))


def assignments(losses):
    """Of losses `[..., clients, models]`; -1 where none is finite."""
    finite = np.isfinite(losses)
    best = np.argmin(np.where(finite, losses, np.inf), axis=-1)
    return np.where(finite.any(axis=-1), best, -1)


def clear(losses: np.ndarray) -> np.ndarray:
    """Runs in which no client was ever as good as undecided, `[runs]`."""
    best, other = np.moveaxis(np.sort(losses, axis=3)[..., :2], 3, 0)
    return np.all((best < (1 - NEAR) * other) | ~np.isfinite(other), axis=(1, 2))


def furthest(models: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Largest difference of each run, relative to its largest coordinate."""
    scale = np.max(np.abs(models), axis=(1, 2))
    return np.max(np.abs(models - others), axis=(1, 2)) / scale


def apart(case: Case, models: np.ndarray, others: np.ndarray) -> np.ndarray:
    """`furthest` of stable runs, but for those with clients that were undecided."""
    return furthest(models, others)[clear(case.losses[STABLE])]


# Against IFCA as it is


@pytest.fixture(
    scope="module",
    params=[
        "later",
        pytest.param("built", marks=pytest.mark.slow),
        pytest.param("never", marks=pytest.mark.slow),
    ],
)
def case(request):
    return make(request.param)


@pytest.fixture(scope="module")
def usual():
    return make("later")


def distances(case: Case, models: np.ndarray) -> np.ndarray:
    """Mean distance to the truth, matched one to one, `[runs]`."""
    found = []
    for own, which in zip(models, case.problem.which, strict=True):
        apart = own[:, None].astype(float) - case.problem.truths[which][None]
        lengths = np.linalg.norm(np.nan_to_num(apart, nan=np.inf), axis=2)
        lengths = np.minimum(lengths, 1e30)
        found.append(np.mean(lengths[linear_sum_assignment(lengths)]))
    return np.array(found)


def test_stable_runs_end_where_they_would(case):
    assert np.mean(clear(case.losses[STABLE])) > 0.9
    ours, theirs = case.ends.models[STABLE], case.models[STABLE]
    assert np.all(apart(case, theirs, ours) < 1e-4)
    assert np.all(case.ends.is_done)


def test_control_one_round_less_ends_elsewhere(case):
    less = in_short(case.problem, case.step_sizes[STABLE], num_rounds=ROUNDS - 1)
    # Good step sizes may have converged long before.
    slow = SHARES[STABLE] == SLOW
    assert np.all(furthest(case.models[STABLE], less.models)[slow] > 1e-4)


def test_control_a_false_certificate_is_noticed(usual):
    """Slopes far below the true ones let clients change their minds unseen."""
    false = in_short(usual.problem, usual.step_sizes[STABLE], slopes=1 / 64)
    assert np.any(apart(usual, usual.models[STABLE], false.models) > 1e-3)


def test_final_losses_and_choices_are_those_of_the_final_models(case):
    ours = case.ends.models[STABLE].astype(float)
    which = case.problem.which[: len(ours)]
    outputs = np.einsum("csf,rjf->rcjs", case.problem.inputs, ours)
    errors = outputs - case.problem.targets[which][:, :, None]
    losses = np.mean(np.square(errors), axis=3)
    own = np.swapaxes(case.ends.losses[STABLE], 1, 2)
    size = np.sqrt(np.mean(np.square(case.problem.targets)))
    roots = np.sqrt(own), np.sqrt(losses)
    np.testing.assert_allclose(*roots, rtol=1e-5, atol=1e-6 * size)
    assert np.array_equal(assignments(own), assignments(losses))


def test_every_run_has_the_same_kind_of_end(case):
    """Unstable ones are chaotic: what becomes of them is all that can be compared."""
    finite = lambda models: np.all(np.isfinite(models), axis=(1, 2))
    assert np.array_equal(finite(case.ends.models), finite(case.models))
    ours = distances(case, case.ends.models) < 0.6 * NOISE
    assert np.array_equal(ours, distances(case, case.models) < 0.6 * NOISE)
    assert not np.any(ours[SHARES == HOPELESS])


def test_some_runs_succeed_and_others_do_not(usual):
    near = distances(usual, usual.ends.models) < 0.6 * NOISE
    assert 0 < np.sum(near[STABLE]) < np.sum(STABLE)


def test_diverged_runs_end_and_are_recorded(case):
    hopeless = SHARES == HOPELESS
    assert not np.any(np.isfinite(case.losses[hopeless, -1]))
    assert not np.any(np.isfinite(case.ends.losses[hopeless]))
    assert np.all(case.ends.is_done[hopeless])


def test_groups_are_split_on_the_way(case):
    """Many stable runs leave the partitions whose Gram matrices are at hand."""
    chosen = assignments(case.losses[STABLE])
    members = case.problem.clusters
    split = np.zeros(len(chosen), bool)
    for group in np.unique(members):
        own = chosen[:, :, members == group]
        split |= np.any(own != own[:, :, :1], axis=(1, 2))
    assert np.mean(split & clear(case.losses[STABLE])) > 0.25


def test_most_products_are_left_out(case):
    """By stable runs, whose clients come to rest."""
    stable = case.step_sizes[STABLE]
    work = in_short(case.problem, stable).work
    columns = len(stable) * case.models.shape[1]
    assert work.full == 2 * ROUNDS * columns
    assert work.forward + work.backward < case.most * work.full


@pytest.mark.parametrize("columns", [1, 8])
def test_the_number_of_columns_changes_nothing(usual, columns):
    other = in_short(usual.problem, usual.step_sizes[STABLE], columns=columns)
    assert np.all(apart(usual, other.models, usual.ends.models[STABLE]) < 1e-4)
    assert np.all(other.is_done)


@pytest.mark.parametrize("by_client", [False, True])
def test_errors_of_models_that_stayed_are_theirs(usual, monkeypatch, by_client):
    """All runs, for as long as rounding stays small; no rounds as of few runs."""
    monkeypatch.setattr(schedule, "_FEW", 0)
    monkeypatch.setattr(state, "pays_by_client", lambda *_: by_client)
    steps, expected = usual.step_sizes, np.swapaxes(usual.losses[:, 20], 1, 2)
    ends = in_short(usual.problem, steps, num_rounds=20)
    np.testing.assert_allclose(ends.losses, expected, rtol=1e-4)
    place = error_cache.ErrorCache.place
    wrong = lambda self, key: min(place(self, key), len(self.errors[0]))
    # Control: all one column.
    monkeypatch.setattr(error_cache.ErrorCache, "place", wrong)
    ends = in_short(usual.problem, steps, num_rounds=20)
    assert not np.allclose(ends.losses, expected, rtol=1e-2)


@pytest.mark.parametrize(
    "grouping", ["one", "mixed", pytest.param("each", marks=pytest.mark.slow)]
)
def test_groups_need_not_be_the_true_clusters(usual, grouping):
    count = len(usual.problem.inputs)
    clusters = {
        "one": np.zeros(count, int),
        "each": np.arange(count),
        "mixed": np.random.default_rng(1).permutation(usual.problem.clusters),
    }[grouping]
    other = in_short(usual.problem, usual.step_sizes[STABLE], clusters=clusters)
    assert np.all(apart(usual, other.models, usual.ends.models[STABLE]) < 1e-4)


@pytest.mark.parametrize("is_alone", [False, True])
@pytest.mark.parametrize("normalise", ["all", "cluster"])
@pytest.mark.parametrize("what", ["inputs", "targets"])
def test_a_client_without_finite_losses_takes_no_part(usual, what, normalise, is_alone):
    """Its numbers are finite, but their squares are not."""
    problem = usual.problem._replace(normalise=normalise)
    spoiled = getattr(problem, what).copy()
    spoiled[(5,) if what == "inputs" else (slice(None), 5)] *= 1e20
    changed = problem._replace(**{what: spoiled})
    models, losses = full_runs(changed, usual.step_sizes)
    assert not np.any(np.isfinite(losses[STABLE][:, :, 5]))
    clusters = problem.clusters.copy()
    clusters[5] = np.max(clusters) + 1 if is_alone else clusters[5]
    ours = in_short(changed, usual.step_sizes[STABLE], clusters=clusters)
    decided = clear(losses[STABLE])
    assert np.mean(decided) > 0.8
    assert np.all(furthest(models[STABLE], ours.models)[decided] < 1e-4)
    assert ours.work.frozen > 0
    before, _ = full_runs(problem, usual.step_sizes)
    assert np.all(furthest(before[STABLE], ours.models) > 1e-4)  # Control.


@pytest.mark.parametrize("size", [1e2, 1e4])
def test_a_client_far_out_does_not_blur_the_others(usual, size):
    """It has a model of its own, or shares none; sums that it leaves are made anew."""
    targets = usual.problem.targets.copy()
    targets[:, 5] *= size
    problem = usual.problem._replace(targets=targets)
    models, losses = full_runs(problem, usual.step_sizes)
    ours = in_short(problem, usual.step_sizes[STABLE])
    choice = np.argmin(losses[STABLE, -1], axis=2)
    others = np.ones((np.count_nonzero(STABLE), models.shape[1]), bool)
    others[np.arange(len(others)), choice[:, 5]] = False
    decided = clear(losses[STABLE])[:, None] & others
    assert np.sum(decided) >= 6
    away = np.linalg.norm(models[STABLE] - ours.models, axis=2)
    assert np.all((away / np.linalg.norm(models[STABLE], axis=2))[decided] < 1e-4)


def test_without_rounds_starts_are_evaluated_and_stay(usual):
    problem, steps = usual.problem, usual.step_sizes[STABLE]
    ends = in_short(problem, steps, num_rounds=0)
    assert np.array_equal(ends.models, problem.starts[STABLE])
    first = np.swapaxes(usual.losses[STABLE, 0], 1, 2)
    np.testing.assert_allclose(ends.losses, first, rtol=1e-5)
    assert np.all(ends.is_done)
    assert ends.work.full == ends.work.backward == 0


def test_no_runs_at_all(usual):
    ends = in_short(usual.problem, usual.step_sizes[:0])
    assert ends.models.shape == (0, *usual.models.shape[1:])
    assert ends.is_done.shape == (0,)
    assert ends.work.full == ends.work.forward == 0


def test_a_later_turn_waits_for_the_runs_before_it(usual):
    """It is spared where the first run to end decides; all end the same without."""
    steps = usual.step_sizes[STABLE]
    turns = (SHARES[STABLE] == SLOW).astype(int)
    told = []

    def finished(run, models, losses):
        told.append((run, models, losses))
        return range(len(steps)) if deciding else ()

    deciding = True
    spared = in_short(usual.problem, steps, turns=turns, finished=finished)
    assert told and not any(turns[run] for run, _, _ in told)
    hurried = in_short(usual.problem, steps, finished=finished)
    assert spared.work.forward < 0.8 * hurried.work.forward
    deciding = False
    told.clear()
    ends = in_short(usual.problem, steps, turns=turns, finished=finished)
    assert sorted(run for run, _, _ in told) == list(range(len(steps)))
    for run, models, losses in told:
        assert np.array_equal(models, ends.models[run])
        assert np.array_equal(losses, ends.losses[run])
    plain = in_short(usual.problem, steps)
    assert np.all(apart(usual, ends.models, plain.models) < 1e-4)


def test_a_run_is_given_up_when_a_model_is_lost_for_ever(usual):
    """It has failed, as it does when it is followed; others are what they were."""
    steps = usual.step_sizes
    ends = in_short(usual.problem, steps, gives_up=True)
    assert np.all(ends.is_done)
    plain = usual.ends
    lost = ~np.any(np.isfinite(ends.losses), axis=2)
    given_up = np.any(lost, axis=1)
    assert np.all(given_up[SHARES == HOPELESS]) and not np.any(given_up[STABLE])
    assert ends.work.forward < plain.work.forward
    for each in (ends, plain):
        assert np.all(distances(usual, each.models)[given_up] > 1e15)
    assert np.all(distances(usual, ends.models)[STABLE] < 1e2)  # Control.
    assert np.all(apart(usual, plain.models[STABLE], ends.models[STABLE]) < 1e-4)


def test_dropped_runs_are_not_followed(usual):
    """The first to end, of each problem, has all others of its problem dropped."""
    steps = usual.step_sizes[STABLE]
    which = usual.problem.which[: len(steps)]
    told = []

    def finished(run, models, losses):
        told.append(run)
        return np.flatnonzero(which == which[run])

    turns = np.arange(len(steps))
    ends = in_short(usual.problem, steps, turns=turns, finished=finished)
    assert told == np.flatnonzero(ends.is_done).tolist() == [0, 1]
    decided = clear(usual.losses[STABLE])[:2]
    assert np.all(furthest(usual.models[:2], ends.models[:2])[decided] < 1e-4)
    assert ends.work.forward < usual.ends.work.forward / 2


def test_runs_that_are_dropped_on_their_way_change_nothing_for_others(usual):
    """Run 0 has half of the others dropped at its end, which are in the same turn."""
    steps = usual.step_sizes[STABLE]
    odd = np.arange(len(steps)) % 2 == 1
    quick = np.where(odd, steps[0], steps[-1]).astype(np.float32)
    finished = lambda run, models, losses: np.flatnonzero(odd) if run == 0 else ()
    dropped = in_short(usual.problem, quick, finished=finished)
    alone = in_short(usual.problem, quick)
    assert not np.all(dropped.is_done)
    assert np.all(dropped.is_done | odd)
    assert np.all(furthest(alone.models, dropped.models)[dropped.is_done] < 1e-4)


# Against itself: Gram matrices of groups, and clients that dissent


@pytest.fixture(params=["later", pytest.param("never", marks=pytest.mark.slow)])
def by_group(request, monkeypatch):
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


def test_stable_runs_by_group_end_where_they_would(by_group, dissenters):
    ends = in_short(by_group.problem, by_group.step_sizes)
    assert np.all(apart(by_group, by_group.models[STABLE], ends.models[STABLE]) < 1e-4)
    assert np.all(ends.is_done)
    numbers = np.concatenate(dissenters)
    assert np.sum(numbers > 0) > 10
    assert np.max(numbers) <= len(by_group.problem.clusters) / 2


def test_rounds_are_those_of_all_samples(by_group, dissenters):
    """All runs, unstable ones for as long as rounding stays small."""
    expected = np.swapaxes(by_group.losses[:, 20], 1, 2)
    ends = in_short(by_group.problem, by_group.step_sizes, num_rounds=20)
    np.testing.assert_allclose(ends.losses, expected, rtol=1e-4)
    assert np.any(np.concatenate(dissenters) > 0)


def test_control_clients_that_stay_with_their_group_are_noticed(by_group, monkeypatch):
    """In stable runs and in others."""
    rows = group_gradients._rows
    wrong = lambda choices, expected, places: rows(expected, expected, places)
    monkeypatch.setattr(group_gradients, "_rows", wrong)
    ends = in_short(by_group.problem, by_group.step_sizes)
    assert np.any(apart(by_group, by_group.models[STABLE], ends.models[STABLE]) > 1e-2)
    expected = np.swapaxes(by_group.losses[~STABLE, 20], 1, 2)
    early = in_short(by_group.problem, by_group.step_sizes, num_rounds=20).losses[
        ~STABLE
    ]
    assert not np.allclose(early, expected, rtol=1e-2)


@pytest.mark.parametrize("is_spoiled", [False, True])
def test_coming_rounds_are_guessed_by_group(by_group, monkeypatch, is_spoiled):
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
    in_short(by_group.problem, by_group.step_sizes)
    assert went
    assert any(went) != is_spoiled


# Against equations: Gram matrices built from others, and what they take

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
    known = Partitions(prepare(jax.device_put(inputs), jax.device_put(targets), groups))
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


# Against equations: clients that lose all models; programs and threads

NUM_CLIENTS, NUM_SAMPLES, NUM_FEATURES, RUNS = 4, 3, 2, 2


def two_clients():
    """One client of large inputs, one of small ones, and a step too long for either."""
    draws = np.random.default_rng(0)
    scales = np.array([1e4, 1e-1])[:, None, None]
    inputs = (draws.normal(size=(2, NUM_SAMPLES, NUM_FEATURES)) * scales).astype(
        np.float32
    )
    targets = draws.normal(size=(1, 2, NUM_SAMPLES)).astype(np.float32)
    start = draws.normal(size=(1, 1, NUM_FEATURES)).astype(np.float32)
    largest = np.linalg.norm(inputs[0].astype(float), 2) ** 2 / NUM_SAMPLES
    return inputs, targets, start, np.float32(4.4 / largest)


def plain(inputs, targets, model, step, number):
    """Rounds of one model; a client whose loss overflows takes no part."""
    dropped = None
    for turn in range(number):
        with np.errstate(over="ignore"):
            errors = np.einsum("csf,f->cs", inputs, model) - targets
            takes_part = np.isfinite(np.mean(np.square(errors), axis=1))
        if dropped is None and not np.all(takes_part):
            dropped = turn
        own = np.flatnonzero(takes_part)
        gradient = 2 / NUM_SAMPLES * np.einsum("csf,cs->f", inputs[own], errors[own])
        model = model - np.float32(step / len(inputs)) * gradient.astype(np.float32)
    return model, dropped


@pytest.mark.parametrize("number", [20, 60, 300])
def test_a_client_that_loses_the_only_model_moves_it_no_more(number):
    inputs, targets, start, step = two_clients()
    samples = prepare(jax.device_put(inputs), jax.device_put(targets), np.array([0, 1]))
    steps, which = np.array([step]), np.zeros(1, int)
    ends = run_ifca(samples, start, which, steps, num_rounds=number)
    expected, dropped = plain(inputs, targets[0], start[0, 0], step, number)
    assert (dropped is not None) == (number > 20)
    np.testing.assert_allclose(ends.models[0, 0], expected, rtol=1e-3)


def test_many_numbers_of_runs_need_few_programs(monkeypatch):
    draws = np.random.default_rng(0)
    inputs = draws.normal(size=(6, NUM_SAMPLES, NUM_FEATURES)).astype(np.float32)
    targets = draws.normal(size=(1, 6, NUM_SAMPLES)).astype(np.float32)
    samples = prepare(
        jax.device_put(inputs), jax.device_put(targets), np.arange(6) // 3
    )
    number = 192
    starts = draws.normal(size=(number, 1, NUM_FEATURES)).astype(np.float32)
    which, steps = np.zeros(number, int), np.full(number, 0.1)
    runs = Runs(samples, starts, which, steps, num_rounds=number, per_cluster=False)
    seen = set()  # One is compiled for each.

    def told(*arguments, **options):
        seen.add(tuple(np.shape(each) for each in arguments))
        return rounds.sample_rounds(*arguments, **options)

    monkeypatch.setattr(state, "sample_rounds", told)
    for some in (186, 187, 188, 189, 190, 191, 192):
        runs.rounds(np.arange(some), 1)
    assert len(seen) == 1
    runs.rounds(np.arange(5), 1)  # Control: programs are counted.
    assert len(seen) == 2


def test_threads_compute_where_the_samples_are(monkeypatch):
    """JAX's settings of a thread are its own: each must be told of the device."""
    seen = []

    def told(device):
        seen.append((threading.get_ident(), device))
        return default_device(device)

    default_device = jax.default_device
    monkeypatch.setattr(jax, "default_device", told)
    monkeypatch.setattr(state, "pays_by_client", lambda *_: True)
    inputs, targets, start, step = two_clients()
    samples = prepare(jax.device_put(inputs), jax.device_put(targets), np.array([0, 1]))
    which, steps = np.zeros(1, int), np.array([step])
    runs = Runs(samples, start, which, steps, num_rounds=1, per_cluster=False)
    errors, _ = runs.evaluate(which, start[0])
    runs.descend(which, which, np.ones((1, 2), bool), (errors,), which)
    assert [device for _, device in seen] == [samples.device] * 2
    assert threading.get_ident() not in dict(seen)
    moved, _ = plain(inputs, targets[0], start[0, 0], step, 1)
    np.testing.assert_allclose(runs.models[0, 0], moved, rtol=1e-5)


# Against misuse

INPUTS = jax.device_put(np.ones((NUM_CLIENTS, NUM_SAMPLES, NUM_FEATURES), np.float32))
TARGETS = jax.device_put(np.ones((1, NUM_CLIENTS, NUM_SAMPLES), np.float32))
GROUPS = np.array([0, 0, 1, 1])
FINITE = "`inputs` and `targets` must be finite"


@pytest.fixture
def checks_of_our_own():
    """What users meet: the type checker of the tests would speak first."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def run(**changed):
    arguments: dict[str, Any] = {
        "starts": np.ones((RUNS, 2, NUM_FEATURES), np.float32),
        "problems": np.zeros(RUNS, int),
        "step_sizes": np.full(RUNS, 0.1),
        "num_rounds": 0,
    }
    return run_ifca(prepare(INPUTS, TARGETS, GROUPS), **(arguments | changed))


def test_the_same_call_without_fault_runs():
    assert np.all(run(turns=np.zeros(RUNS, int)).is_done)


@pytest.mark.usefixtures("checks_of_our_own")
@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"num_rounds": -1}, "`num_rounds` must be at least 0, got -1"),
        ({"columns": 0}, "`columns` must be at least 1, got 0"),
        ({"normalise": "none"}, "`normalise` must be in .*cluster.*got .none."),
        ({"starts": np.ones((RUNS, 2, 3), np.float32)}, "must have 2 features, got 3"),
        ({"problems": np.zeros(3, int)}, "must be of 2 runs, got 3 and 2"),
        ({"step_sizes": np.ones(1)}, "must be of 2 runs, got 2 and 1"),
        ({"problems": np.array([0, 1])}, "rows of the 1 targets, got 0 to 1"),
        ({"problems": np.array([-1, 0])}, "rows of the 1 targets, got -1 to 0"),
        ({"turns": np.zeros(3, int)}, "`turns` must be of 2 runs, got 3"),
    ],
)
def test_runs_that_cannot_be(changed, words):
    with pytest.raises(ValueError, match=words):
        run(**changed)


@pytest.mark.usefixtures("checks_of_our_own")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x, y, groups: (x, y[:, :3], groups), "of 4 clients with 3 samples"),
        (lambda x, y, groups: (x, y[:, :, :2], groups), "of 4 clients with 3 samples"),
        (lambda x, y, groups: (x, y, groups[:3]), "of 4 clients with 3 samples"),
        (lambda x, y, groups: (x, y, 2 * groups), "must use every number"),
        (
            lambda x, y, groups: (x.astype(float), y, groups),
            "`inputs` must be float32, got float64",
        ),
        (
            lambda x, y, groups: (x, y.astype(float), groups),
            "`targets` must be float32, got float64",
        ),
        *(
            (lambda x, y, groups, v=v: (x.at[0, 0, 0].set(v), y, groups), FINITE)
            for v in (np.nan, np.inf)
        ),
        *(
            (lambda x, y, groups, v=v: (x, y.at[0, 3, 2].set(v), groups), FINITE)
            for v in (np.nan, np.inf)
        ),
    ],
)
def test_samples_that_cannot_be(change, words):
    with jax.enable_x64(True), pytest.raises(ValueError, match=words):
        prepare(*change(INPUTS, TARGETS, GROUPS))
