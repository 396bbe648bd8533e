"""Exact shortcuts against IFCA as it is, round by round on all samples."""

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from shortcut_runs import (
    HOPELESS,
    NOISE,
    ROUNDS,
    SHARES,
    SLOW,
    STABLE,
    Case,
    assignments,
    clear,
    full_runs,
    furthest,
    in_short,
    make,
)

from cfljax.montecarlo import error_cache, schedule, state


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
    decided = clear(case.losses[STABLE])
    assert np.mean(decided) > 0.9
    ours, theirs = case.ends.models[STABLE], case.models[STABLE]
    assert np.all(furthest(theirs, ours)[decided] < 1e-4)
    assert np.all(case.ends.is_done)


def test_control_one_round_less_ends_elsewhere(case):
    less = in_short(case.problem, case.step_sizes[STABLE], num_rounds=ROUNDS - 1)
    # Good step sizes may have converged long before.
    slow = SHARES[STABLE] == SLOW
    assert np.all(furthest(case.models[STABLE], less.models)[slow] > 1e-4)


def test_control_a_false_certificate_is_noticed(usual):
    """Slopes far below the true ones let clients change their minds unseen."""
    false = in_short(usual.problem, usual.step_sizes[STABLE], slopes=1 / 64)
    assert np.any(
        furthest(usual.models[STABLE], false.models)[clear(usual.losses[STABLE])] > 1e-3
    )


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
    decided = clear(usual.losses[STABLE])
    assert np.all(furthest(other.models, usual.ends.models[STABLE])[decided] < 1e-4)
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
    monkeypatch.setattr(
        error_cache.ErrorCache, "place", wrong
    )  # Control: all one column.
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
    decided = clear(usual.losses[STABLE])
    assert np.all(furthest(other.models, usual.ends.models[STABLE])[decided] < 1e-4)


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
    decided = clear(usual.losses[STABLE])
    assert np.all(furthest(ends.models, plain.models)[decided] < 1e-4)


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
    decided = clear(usual.losses[STABLE])
    ours, theirs = ends.models[STABLE], plain.models[STABLE]
    assert np.all(furthest(theirs, ours)[decided] < 1e-4)


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
    apart = furthest(usual.models[:2], ends.models[:2])
    assert np.all(apart[decided] < 1e-4)
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
