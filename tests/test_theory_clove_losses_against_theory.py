"""Recovery from loss vectors: what the checks rest on, and claims close to theirs."""

import numpy as np
import pytest
import scipy.cluster.vq
import scipy.special

from cfljax import intervals, law
from theory.clove import (
    few_models,
    proximity_implied,
    proximity_losses,
    recovery,
    recovery_curve,
    recovery_law,
    recovery_losses,
    recovery_models,
    recovery_runs,
)
from theory.clove.recovery_models import NOISE, Cell
from theory.statement import Preset
from theory.verdict import Status

QUICK = Preset()


@pytest.mark.parametrize("kind", ["orthonormal", "level", "random", "few", "proximal"])
def test_models_are_of_their_kind(kind):
    cell = Cell(kind, 6, 2, 4, 5, 0.8)
    models, truths = recovery_models.models_and_truths(np.random.default_rng(0), cell)
    np.testing.assert_allclose(np.linalg.norm(truths, axis=1), 1)
    assert np.linalg.norm(truths[0] - truths[1]) == pytest.approx(0.8)
    assert models.shape == (2 if kind in ("few", "proximal") else 6, 6)
    if kind == "proximal":
        np.testing.assert_allclose(np.linalg.norm(models - truths, axis=1), 0.2)
        return
    np.testing.assert_allclose(np.linalg.norm(models, axis=1), 1)
    isometric = np.allclose(models @ models.T, np.eye(len(models)))
    assert isometric == (kind in ("orthonormal", "level"))
    along = np.sum(models, axis=0) / np.linalg.norm(np.sum(models, axis=0))
    share = abs((truths[0] - truths[1]) @ along) / 0.8
    assert (share > 1 - 1e-9) == (kind == "level")


def test_all_truths_are_equally_far_apart():
    cell = Cell("orthonormal", 7, 5, 10, 5, 1.1)
    _, truths = recovery_models.models_and_truths(np.random.default_rng(1), cell)
    gaps = np.linalg.norm(truths[:, None] - truths, axis=-1)[np.triu_indices(5, 1)]
    np.testing.assert_allclose(gaps, 1.1)


def test_margins_and_their_unit_by_hand():
    generator = np.random.default_rng(2)
    points, centres = generator.standard_normal((3, 4, 5)), np.eye(3, 5)
    found = recovery_models.margins(points, centres)
    for cluster, member in np.ndindex(3, 4):
        away = [np.linalg.norm(points[cluster, member] - one) for one in centres]
        foreign = min(np.delete(away, cluster))
        assert found[cluster, member] == pytest.approx(foreign - away[cluster])
    norm = np.linalg.norm((points - centres[:, None]).reshape(12, 5), 2)
    threshold = 3 / np.sqrt(4) + 3 / np.sqrt(4)
    largest = recovery_models.largest_constant(points, centres)
    assert largest * threshold * norm == pytest.approx(np.min(found))


def test_copies_leave_the_largest_constant_alone():
    """With the roots; without them it would grow like their root."""
    generator = np.random.default_rng(3)
    points, centres = generator.standard_normal((2, 4, 3)), np.eye(2, 3)
    one = recovery_models.largest_constant(points, centres)
    nine = recovery_models.largest_constant(np.tile(points, (1, 9, 1)), centres)
    assert nine == pytest.approx(one, rel=1e-12)


def test_recovery_is_all_or_nothing():
    """Trials of several sizes and K; a single point on the wrong side spoils one."""
    generator = np.random.default_rng(4)
    trials, truth = [], []
    for number, members, models in ((2, 3, 2), (2, 5, 4), (3, 3, 3), (2, 5, 2)):
        for spoilt in (False, True):
            points = 0.01 * generator.standard_normal((number, members, models))
            points += 5 * np.eye(number, models)[:, None]
            if spoilt:
                points[0, 0], points[1, 1] = points[1, 1].copy(), points[0, 0].copy()
            trials.append(points)
            truth.append(not spoilt)
    found = recovery_runs.recovered(generator, trials)
    np.testing.assert_array_equal(found, truth)


def test_a_lost_label_is_no_success():
    present = np.ones((4, 2, 2), bool)
    labels = np.array([[[0, 0], [1, 1]], [[1, 1], [1, 1]], [[-1, -1], [0, 0]]] * 2)[:4]
    found = recovery_runs._is_partition(labels, present)
    np.testing.assert_array_equal(found, [True, False, False, True])


@pytest.mark.parametrize("seed", range(3))
def test_fixed_points_are_where_lloyd_stays(seed):
    generator = np.random.default_rng(seed)
    for height in (1.0, 4.0, 8.0):
        points = generator.standard_normal((2, 30, 3))
        points[1, :, 0] += height
        means = points.mean(axis=1)
        flat = points.reshape(60, 3)
        _, labels = scipy.cluster.vq.kmeans2(flat, means, minit="matrix", iter=1)
        stays = bool(np.all(labels == np.repeat([0, 1], 30)))
        assert recovery_runs.is_fixed_point(points) is stays
    assert stays, "control: far apart they stay"


def test_all_clients_are_right_with_the_power_of_one():
    """P(all of M margins > 0) = (1 - p)^M, on groups of M = 30 clients."""
    cell = Cell("orthonormal", 5, 2, 60_000, 15)
    drawn = recovery_models.draw(np.random.default_rng(5), cell)
    right = recovery_models.margins(np.sqrt(drawn.losses), drawn.centres(15))[0] > 0
    groups = np.all(right.reshape(1000, 30), axis=1)
    low, high = intervals.clopper_pearson(np.sum(groups), 1000, error_rate=1e-6)
    power = float(np.mean(right)) ** 30
    assert low < power < high and low > 0
    assert not low < np.mean(right) < high, "control: not the power of one"


def test_a_single_client_is_no_safer():
    """The weaker reading of Theorem A.9: delta = 10^-3 and 1/log(M) = 0.007."""
    for share in proximity_losses.negative_margins(QUICK)[:2]:
        low, _ = intervals.clopper_pearson(*share, error_rate=1e-6)
        assert low > 1e-3 + 1 / np.log(1e60)


def test_many_samples_mend_the_printed_theorems(monkeypatch):
    """With n large the same checks find nothing wrong."""
    other = Preset(seed=1)
    monkeypatch.setattr(proximity_losses, "_SAMPLES", (20_000,))
    monkeypatch.setattr(proximity_losses, "_CLIENTS", np.array([1000.0]))
    assert proximity_losses.check_all(other).status is Status.HOLDS
    cell = Cell("orthonormal", 2, 2, 1000, 10**6)
    monkeypatch.setattr(recovery, "_FIXED", {recovery.THEOREM: (cell,)})
    found = recovery.check_printed(other, name=recovery.THEOREM, risk=0.5)
    assert found.status is Status.HOLDS


def test_the_fixed_cells_meet_condition_7():
    for cells in recovery._FIXED.values():
        assert max(recovery.condition_ratio(cell) for cell in cells) <= 0.01


def test_the_error_law_is_free_of_d():
    """Turned at random: Phi(-Delta sqrt(n)/(2 sqrt(2))), and far more for level."""
    generator = np.random.default_rng(6)
    for size in (50, 200):
        cell = Cell("orthonormal", size, 2, 2, 40)
        found = {}
        for kind in ("orthonormal", "level"):
            turned = cell._replace(kind=kind)
            models, truths = recovery_models.models_and_truths(generator, turned)
            one, two = (law.loss_factor(models, truth, NOISE) for truth in truths)
            found[kind] = scipy.special.ndtri(recovery_law.pair_error(one, two, 40))
        rule = -np.sqrt(40) / (2 * np.sqrt(2))
        assert found["orthonormal"] == pytest.approx(rule, rel=0.3)
        ratio = np.sqrt(2 / (1.5 + size / 2))  # of w' Sigma w, see the module
        assert found["level"] == pytest.approx(rule * ratio, rel=0.15)


def test_the_covariance_of_the_law_is_nearly_exact():
    cell = Cell("random", 8, 2, 2, 100)
    models, truths = recovery_models.models_and_truths(np.random.default_rng(7), cell)
    own, foreign = (law.loss_factor(models, one, NOISE) for one in truths)
    gap = np.linalg.norm(foreign, axis=0) - np.linalg.norm(own, axis=0)
    gap *= law.chi_mean_ratio(100)
    spread = np.sqrt(gap @ law.root_loss_covariance(own, 100) @ gap)
    found = scipy.special.ndtri(recovery_law.pair_error(own, foreign, 100))
    assert found == pytest.approx(-(gap @ gap) / (2 * spread), rel=0.01)
    naive = recovery_law.pair_error(own, foreign, 100, dependent=False)
    assert scipy.special.ndtri(naive) != pytest.approx(found, rel=0.01), "control"


def test_rows_of_losses_follow_their_roots():
    """|L - E L| <= |F - c| (2 max c + |F - c|) + |Var F|, whatever was drawn."""
    cell = Cell("orthonormal", 6, 2, 2000, 3)
    drawn = recovery_models.draw(np.random.default_rng(8), cell)
    roots, means = np.sqrt(drawn.losses[0]), drawn.centres(3)[0]
    away = np.linalg.norm(roots - means, axis=1)
    variance = np.linalg.norm(drawn.squares[0] - means**2)
    bound = away * (2 * np.max(means) + away) + variance
    rows = np.linalg.norm(drawn.losses[0] - drawn.squares[0], axis=1)
    assert np.all(rows <= bound * (1 + 1e-12))
    assert np.any(rows > bound - variance), "control: the variance is needed"
    ratios = recovery_losses._largest_rows(QUICK)
    assert np.max(ratios) > 0.4, "the bound is of the right order"


def test_brackets_of_known_curves():
    """A curve that falls, one that never does, and one too short to tell."""
    cell = Cell("orthonormal", 10, 2, 40, 1)
    factors, never, always = (5.0, 50.0), np.zeros(200, bool), np.ones(200, bool)
    runs = [[always, never], [always, always], [always[:1], never[:1]]]
    measured = recovery_curve.Curves((cell,) * 3, factors, runs, runs)
    low, high = recovery_curve.brackets(measured)
    np.testing.assert_array_equal(low, [19, 185, 0])  # 5 and 50 log(40), rounded up
    np.testing.assert_array_equal(high, [185, np.inf, np.inf])


@pytest.mark.slow
def test_claims_close_to_the_certified_ones():
    below = (
        recovery.check_curve(QUICK, constant=8.0),
        recovery.check_condition(QUICK, constant=1 / 32),
        proximity_losses.check_corrected(QUICK, constant=1 / 8),
        proximity_implied.check_loose(QUICK, factor=500.0),
        few_models.check_more(QUICK, factor=32.0),
        recovery_losses.check_corrected(QUICK, share=0.3),
    )
    assert [found.status for found in below] == [Status.VIOLATED] * len(below)
    assert recovery_losses.check_printed(QUICK, share=0.95).status is not Status.HOLDS


@pytest.mark.slow
def test_d_models_recover_where_k_do_not():
    found = few_models._at_the_same(QUICK, 64.0)
    assert np.max(np.mean(found.many, axis=1)) < 0.1
    assert np.min(np.mean(found.few, axis=1)) > 0.3
