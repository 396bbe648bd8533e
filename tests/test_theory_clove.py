"""CLoVE's statements: verdicts, what checks rest on, and claims close to theirs."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from toy_theory import each

from cfljax import intervals, law, metrics
from cfljax.statements import Preset, Status, same_law
from experiments.published import published
from theory.clove import (
    appendix_a1,
    figure3,
    lemma_a1,
    lemma_a2,
    lemma_a4,
    lemma_a16,
    lemma_a17,
    published_claims,
    theorem41,
    theorem41_all_noise,
    theorem42,
    theorem_a9,
)
from theory.clove import figures_and_tables as tables
from theory.clove import lemmas_a3_to_a8 as lemmas
from theory.clove.common import recovery
from theory.clove.common.loss_means import (
    alphas,
    ortho_separation,
    random_units,
    separation,
)
from theory.clove.common.published import TABLES
from theory.clove.common.recovery import Cell

QUICK = Preset()

SPECTRA = (lemmas.SPECTRAL, lemmas.TRACE)
CLOSE = [
    *each(appendix_a1.check_mean, slope=(-0.25, 0.2499, 0.2501), constant=(0.52,)),
    *each(appendix_a1.check_mean, slope=(0.25,), constant=(0.5, 0.507)),
    *each(lemma_a1.check_separation, square=(3.41, lemma_a1.BEST - 1e-5)),
    *each(lemma_a2.check_infimum, scale=(1 - 1e-8, 1 + 1e-6)),
    *each(lemma_a2.check_step, squared=(True,)),
    *each(lemmas.check_length, limit=(1.4999, 1.4)),
    *each(lemmas.check_projection, factor=(0.9, 1 - 1e-9)),
    *each(lemmas.check_covariance, square=(8.97,), name=SPECTRA),
    *each(lemma_a4.check_step, from_ratio=(1.0, 3.0, 3.999)),
    *each(lemma_a16.check_order, c2=(0.12116,)),
    *each(lemma_a16.check_rewriting, factor=(2.7, 2.718), capped=(True,)),
    *each(lemma_a17.check_k_means, spread=(100.0,)),
    *each(theorem_a9.check_enough, constant=(60.0, 85.0)),
    *each(theorem_a9.check_proximity, power=(0.75, 0.9)),
    *each(theorem42.check_certificate, num_rounds=(150,)),
    *each(theorem42.check_contracts, shares=((0.1,),)),
    *each(theorem42.check_lemma, steps=(theorem42._ALLOWED[:4],)),
    *each(theorem42.check_noise, constant=(1.75, 1.966)),
    *each(tables.check_clusters, num_clusters=(10,), correction=(0, 1)),
    *each(theorem41.check_curve, factor=(0.3,), slow=True),
    *each(theorem41.check_curve, features=(0.0,), slow=True),
    *each(theorem41.check_condition, constant=(1 / 32,), slow=True),
    *each(theorem41.check_more, factor=(32.0,), slow=True),
    *each(theorem41.check_remark_corrected, share=(0.3,), slow=True),
    *each(theorem_a9.check_theorem, constant=(1 / 8,), slow=True),
    *each(theorem_a9.check_loose, factor=(500.0,), slow=True),
]


@pytest.mark.parametrize("check", CLOSE)
def test_a_claim_close_to_a_certified_one_is_refused(check):
    assert check().status is Status.VIOLATED


def test_the_least_constant_of_the_order_holds():
    assert appendix_a1.check_variance_order(QUICK, "toy.a").status is Status.HOLDS


def test_the_printed_mean_is_that_of_one_less():
    """sqrt(n-1) (1 - 1/(4n)) is E chi_{n-1}, up to 1/n^2."""
    counts = np.array([10.0, 1e3, 1e5])
    printed = np.sqrt(counts - 1) * (1 - 1 / (4 * counts))
    for shift, power in ((0, 1), (1, 2)):
        gap = np.abs(law.chi_mean(counts - shift) / printed - 1) * counts**power
        assert np.all((gap > 0.1) & (gap < 0.6))


@pytest.mark.long
def test_raw_losses_notice_a_wrong_law(monkeypatch):
    """Control: data with a tenth more noise than the law is told."""
    assert appendix_a1.check_expansion(QUICK, "toy.a").status is Status.HOLDS
    appendix_a1._raw_roots(QUICK)
    monkeypatch.setattr(appendix_a1, "_RAW_ALPHA", float(np.hypot(0.9, 0.6)))
    assert appendix_a1.check_expansion(QUICK, "toy.a").status is Status.VIOLATED
    variance = appendix_a1.check_root_variance(QUICK, "toy.a")
    assert variance.status is not Status.HOLDS


def test_coincident_means_are_what_they_say():
    first, second = appendix_a1.coincident_truths(5, 0.8, 0.3)
    np.testing.assert_allclose([first @ first, second @ second], 1, rtol=1e-12)
    models = np.eye(5)
    one, two = (alphas(truth, models, 0.3) for truth in (first, second))
    np.testing.assert_allclose(np.sqrt(0.8) * one, two, rtol=1e-12)
    assert np.linalg.norm(first - second) > 0.1
    with pytest.raises(ValueError, match=r"^`ratio`"):
        appendix_a1.coincident_truths(5, 0.2, 0.3)


def test_equal_samples_lose_only_a_factor():
    one, two = random_units(np.random.default_rng(0), (2, 20, 7))
    ratio = law.chi_mean_ratio(3)
    found = appendix_a1._true_separation(one, two, (ratio, ratio), 0.2)
    exact = ratio * ortho_separation(one, two, 0.2)
    np.testing.assert_allclose(found, exact, rtol=1e-12)
    basis = np.broadcast_to(np.eye(7), (20, 7, 7))
    other = ratio * separation(one, two, basis, 0.2)
    np.testing.assert_allclose(other, exact, rtol=1e-12)


@pytest.mark.parametrize("name", [lemma_a4.ROOT, lemma_a4.LOSS])
def test_single_entries_against_draws(name):
    """The two-sided tail itself, at n = 2 and t = 3, by counting."""
    draws = np.random.default_rng(1).chisquare(2, 400_000)
    if name == lemma_a4.ROOT:
        centre, variance = float(law.chi_mean(2)), float(law.chi_variance(2))
        share = np.mean((np.sqrt(draws) - centre) ** 2 >= 3 * variance)
        above, below = (centre + np.sqrt(3 * variance)) ** 2 - 2, -2.0
        near = max(centre - np.sqrt(3 * variance), 0.0)
        below = near**2 - 2
    else:
        share = np.mean((draws - 2) ** 2 >= 12)
        above, below = np.sqrt(12), -np.sqrt(12)
    two = np.array([2.0])
    exact = lemma_a4.two_sided(two, np.array([above]), np.array([below]))
    assert np.exp(exact[0]) == pytest.approx(share, abs=5 * np.sqrt(share / 4e5))
    assert share > 0.02


def test_three_ways_to_one_separation():
    """Orthonormal models by formula, as models, and as a plain difference."""
    generator = np.random.default_rng(0)
    first, second = random_units(generator, (2, 6))
    basis, _ = np.linalg.qr(generator.standard_normal((6, 6)))
    plain = np.linalg.norm(alphas(first, basis, 0.3) - alphas(second, basis, 0.3))
    found = separation(first, second, basis, 0.3)
    rotated = ortho_separation(basis @ first, basis @ second, 0.3)
    np.testing.assert_allclose([found, rotated], plain, rtol=1e-12)
    assert not np.isclose(ortho_separation(first, second, 0.3), plain, rtol=1e-3)


def test_close_truths_keep_their_digits():
    first = np.array([0.6, 0.8])
    angle = 1e-9
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    found = float(ortho_separation(first, turn @ first, 0.0)) / angle
    slope = np.linalg.norm(np.array([-0.8, 0.6]) / np.sqrt(2 - 2 * first))
    assert found == pytest.approx(slope, rel=1e-6)


@pytest.mark.parametrize("noise", [0.0, 0.5, 2.0])
def test_the_best_constant_is_approached(noise):
    angle = np.pi / 4 + 1e-4 * np.array([1, -1])
    first, second = -np.stack([np.cos(angle), np.sin(angle)], axis=1)
    distance = np.linalg.norm(first - second)
    found = float(ortho_separation(first, second, noise) / distance)
    least = 1 / np.sqrt(lemma_a1.BEST + noise**2)
    assert least <= found <= least * (1 + 1e-6)


def test_independent_truths_by_the_law_of_the_plane():
    """The three-number law of a random unit model against whole models."""
    trials, features = 10_000, 3
    generator = np.random.default_rng(2)
    truths = np.zeros((2, features))
    truths[:, 0], truths[:, 1] = np.sqrt(0.75), (0.5, -0.5)
    models = random_units(generator, (trials, features, features))
    noise = lemma_a1._NOISE
    one, two = np.broadcast_to(truths[:, None], (2, trials, features))
    raw = separation(one, two, models, noise) * np.sqrt(4 + noise**2)
    found = lemma_a1.independent_ratios(generator, features, 40_000)
    same = same_law("toy.a", [raw], [found], resolution=0.15)
    assert same.status is Status.HOLDS
    other = lemma_a1.independent_ratios(generator, features + 2, 40_000)
    wrong = same_law("toy.a", [raw], [other], resolution=0.15)
    assert wrong.status is Status.VIOLATED, "control: two dimensions more"


def test_adversaries_are_unit_vectors_one_apart():
    generator = np.random.default_rng(3)
    models = random_units(generator, (7, 7))
    truths, least = lemma_a1.adversarial_truths(models, generator)
    np.testing.assert_allclose(np.linalg.norm(truths, axis=1), 1, rtol=1e-12)
    gap = truths[0] - truths[1]
    assert np.linalg.norm(gap) == pytest.approx(1, rel=1e-12)
    assert np.linalg.norm(models @ gap) == pytest.approx(least, rel=1e-9)


def test_orthonormal_models_have_no_adversary():
    """Control: the same construction cannot hurt an isometry."""
    generator = np.random.default_rng(4)
    models, _ = np.linalg.qr(generator.standard_normal((30, 30)))
    truths, least = lemma_a1.adversarial_truths(models, generator)
    assert least == pytest.approx(1, rel=1e-12)
    assert float(separation(truths[0], truths[1], models, 0.1)) > 1 / np.sqrt(4.01)


def test_the_factor_of_lemma_2():
    found = lemma_a2.factor(np.array([0.0, 0.25, 0.5, 1.0, 2.0]))
    np.testing.assert_allclose(found, [0.7071, 0.6180, 0.4842, 0.310, 0.170], atol=5e-4)
    threshold = np.array([lemma_a2.THRESHOLD])
    np.testing.assert_allclose(lemma_a2.factor(threshold), 0.5, rtol=1e-14)


def test_descent_ends_in_places_the_lemma_speaks_of():
    flat = np.array([0.3, 3.0, 0, 0, 0.1, 0.1, 0.1])
    truths, models = lemma_a2._place(flat)
    lengths = np.linalg.norm(models - truths, axis=1)
    np.testing.assert_allclose(lengths, [0.25, 0.1 * np.sqrt(3)], rtol=1e-12)
    assert np.linalg.norm(truths[0] - truths[1]) == pytest.approx(1.09)


def test_the_printed_step_is_one_of_units():
    """With lengths well below 1 it happens to be true."""
    far, near = 0.03, 0.01
    assert far - near > far**2 - near**2 + 0.01**2


def test_gaps_are_what_they_say():
    generator = np.random.default_rng(5)
    clusters = np.array([0, 2, 1, 2])
    losses = lemma_a17.gapped(generator, clusters, 3, spread=5.0)
    np.testing.assert_array_equal(np.argmin(losses, axis=1), clusters)
    ordered = np.sort(losses, axis=1)
    np.testing.assert_allclose(ordered[:, 1] - ordered[:, 0], 1, rtol=1e-12)


def test_k_means_recovers_narrow_clusters():
    """Control: the same check holds where the spread is small."""
    assert lemma_a17.check_k_means(QUICK, "toy.a", spread=0.1).status is Status.HOLDS


def test_agreement_by_hand():
    first, second = np.array([0, 0, 1]), np.array([0, 1, 1])
    assert tables.agreement(first, second) == pytest.approx(1 / 3)
    assert tables.agreement(first, first) == 1


@pytest.mark.parametrize("kind", ["orthonormal", "level", "random", "few", "proximal"])
def test_models_are_of_their_kind(kind):
    cell = Cell(kind, 6, 2, 4, 5, 0.8)
    models, truths = recovery.models_and_truths(np.random.default_rng(0), cell)
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
    _, truths = recovery.models_and_truths(np.random.default_rng(1), cell)
    gaps = np.linalg.norm(truths[:, None] - truths, axis=-1)[np.triu_indices(5, 1)]
    np.testing.assert_allclose(gaps, 1.1)


def test_margins_and_their_unit_by_hand():
    generator = np.random.default_rng(2)
    points, centres = generator.standard_normal((3, 4, 5)), np.eye(3, 5)
    found = recovery.margins(points, centres)
    for cluster, member in np.ndindex(3, 4):
        away = [np.linalg.norm(points[cluster, member] - one) for one in centres]
        foreign = min(np.delete(away, cluster))
        assert found[cluster, member] == pytest.approx(foreign - away[cluster])
    norm = np.linalg.norm((points - centres[:, None]).reshape(12, 5), 2)
    threshold = 3 / np.sqrt(4) + 3 / np.sqrt(4)
    largest = recovery.largest_constant(points, centres)
    assert largest * threshold * norm == pytest.approx(np.min(found))


def test_copies_leave_the_largest_constant_alone():
    """With the roots; without them it would grow like their root."""
    generator = np.random.default_rng(3)
    points, centres = generator.standard_normal((2, 4, 3)), np.eye(2, 3)
    one = recovery.largest_constant(points, centres)
    nine = recovery.largest_constant(np.tile(points, (1, 9, 1)), centres)
    assert nine == pytest.approx(one, rel=1e-12)


@pytest.mark.long
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
    found = recovery.recovered(generator, trials)
    np.testing.assert_array_equal(found, truth)


def test_a_lost_label_is_no_success():
    present = np.ones((4, 2, 2), bool)
    labels = np.array([[[0, 0], [1, 1]], [[1, 1], [1, 1]], [[-1, -1], [0, 0]]] * 2)[:4]
    found = recovery._is_partition(labels, present)
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
        assert recovery.is_fixed_point(points) is stays
    assert stays, "control: far apart they stay"


def test_all_clients_are_right_with_the_power_of_one():
    """P(all of M margins > 0) = (1 - p)^M, on groups of M = 30 clients."""
    cell = Cell("orthonormal", 5, 2, 60_000, 15)
    drawn = recovery.draw(np.random.default_rng(5), cell)
    right = recovery.margins(np.sqrt(drawn.losses), drawn.centres(15))[0] > 0
    groups = np.all(right.reshape(1000, 30), axis=1)
    low, high = intervals.clopper_pearson(np.sum(groups), 1000, error_rate=1e-6)
    power = float(np.mean(right)) ** 30
    assert low < power < high and low > 0
    assert not low < np.mean(right) < high, "control: not the power of one"


@pytest.mark.long
def test_a_single_client_is_no_safer():
    """The weaker reading of Theorem A.9: delta = 10^-3 and 1/log(M) = 0.007."""
    for share in theorem_a9.negative_margins(QUICK)[:2]:
        low, _ = intervals.clopper_pearson(*share, error_rate=1e-6)
        assert low > 1e-3 + 1 / np.log(1e60)


@pytest.mark.long
def test_many_samples_mend_the_printed_theorems(monkeypatch):
    """With n large the same checks find nothing wrong."""
    other = Preset(seed=1)
    monkeypatch.setattr(theorem_a9, "_NUM_SAMPLES", (20_000,))
    monkeypatch.setattr(theorem_a9, "_NUM_CLIENTS", np.array([1000.0]))
    assert theorem_a9.check_all(other, "toy.a").status is Status.HOLDS
    cell = Cell("orthonormal", 2, 2, 1000, 10**6)
    monkeypatch.setattr(theorem41, "_FIXED", {theorem41.THEOREM: (cell,)})
    found = theorem41.check_printed(other, name=theorem41.THEOREM, risk=0.6)
    assert found.status is Status.HOLDS


def test_the_fixed_cells_meet_condition_7():
    for cells in theorem41._FIXED.values():
        assert max(theorem41.condition_ratio(cell) for cell in cells) <= 0.05


def test_the_error_law_is_free_of_d():
    """Turned at random: Phi(-Delta sqrt(n)/(2 sqrt(2))), and far more for level."""
    generator = np.random.default_rng(6)
    for size in (50, 200):
        cell = Cell("orthonormal", size, 2, 2, 40)
        found = {}
        for kind in ("orthonormal", "level"):
            turned = cell._replace(kind=kind)
            models, truths = recovery.models_and_truths(generator, turned)
            one, two = (law.loss_factor(models, truth, cell.noise) for truth in truths)
            found[kind] = scipy.special.ndtri(theorem41.pair_error(one, two, 40))
        rule = -np.sqrt(40) / (2 * np.sqrt(2))
        assert found["orthonormal"] == pytest.approx(rule, rel=0.3)
        ratio = np.sqrt(2 / (1.5 + size / 2))  # of w' Sigma w, see the module
        assert found["level"] == pytest.approx(rule * ratio, rel=0.15)


def test_the_covariance_of_the_law_is_nearly_exact():
    cell = Cell("random", 8, 2, 2, 100)
    models, truths = recovery.models_and_truths(np.random.default_rng(7), cell)
    own, foreign = (law.loss_factor(models, one, cell.noise) for one in truths)
    gap = np.linalg.norm(foreign, axis=0) - np.linalg.norm(own, axis=0)
    gap *= law.chi_mean_ratio(100)
    spread = np.sqrt(gap @ law.root_loss_covariance(own, 100) @ gap)
    found = scipy.special.ndtri(theorem41.pair_error(own, foreign, 100))
    assert found == pytest.approx(-(gap @ gap) / (2 * spread), rel=0.01)
    naive = theorem41.pair_error(own, foreign, 100, dependent=False)
    assert scipy.special.ndtri(naive) != pytest.approx(found, rel=0.01), "control"


@pytest.mark.long
def test_rows_of_losses_follow_their_roots():
    """|L - E L| <= |F - c| (2 max c + |F - c|) + |Var F|, whatever was drawn."""
    cell = Cell("orthonormal", 6, 2, 2000, 3)
    drawn = recovery.draw(np.random.default_rng(8), cell)
    roots, means = np.sqrt(drawn.losses[0]), drawn.centres(3)[0]
    away = np.linalg.norm(roots - means, axis=1)
    variance = np.linalg.norm(drawn.squares[0] - means**2)
    bound = away * (2 * np.max(means) + away) + variance
    rows = np.linalg.norm(drawn.losses[0] - drawn.squares[0], axis=1)
    assert np.all(rows <= bound * (1 + 1e-12))
    assert np.any(rows > bound - variance), "control: the variance is needed"
    ratios = theorem41._largest_rows(QUICK)
    assert np.max(ratios) > 0.4, "the bound is of the right order"


def test_brackets_of_known_curves():
    """A curve that falls, one that never does, and one too short to tell."""
    cell = Cell("orthonormal", 10, 2, 40, 1)
    factors, never, always = (0.1, 1.5), np.zeros(200, bool), np.ones(200, bool)
    runs = [[always, never], [always, always], [always[:1], never[:1]]]
    measured = theorem41.Curves((cell,) * 3, factors, runs, runs)
    low, high = theorem41.brackets(measured)
    few, many = (recovery.samples_turned(cell, one).num_samples for one in factors)
    np.testing.assert_array_equal(low, [few, many, 0])
    np.testing.assert_array_equal(high, [many, np.inf, np.inf])


@pytest.mark.slow
def test_d_models_recover_where_k_do_not():
    found = theorem41._at_the_same(QUICK, 64.0)
    assert np.max(np.mean(found[1], axis=1)) < 0.1
    assert np.min(np.mean(found[0], axis=1)) > 0.3


def brute_force(points: np.ndarray) -> float:
    """The least cost of two sets, over all of them."""
    best = np.inf
    for bits in itertools.product((False, True), repeat=len(points) - 1):
        one = np.array((*bits, True))
        if not one.all():
            total = theorem_a9.cost(points[one]) + theorem_a9.cost(points[~one])
            best = min(best, total)
    return best


@pytest.mark.parametrize("seed", range(4))
def test_lines_find_the_best_two_means(seed):
    points = np.random.default_rng(seed).standard_normal((8, 2))
    if seed == 3:  # points on a grid: many pairs come level at once
        points = np.array(list(itertools.product(range(4), range(2))), float)
    found = theorem_a9.best_cost(points)
    assert found == pytest.approx(brute_force(points), rel=1e-12)
    halves = theorem_a9.cost(points[:4]) + theorem_a9.cost(points[4:])
    assert seed == 3 or found < halves, "control: an arbitrary split costs more"


def test_strips_of_a_thousand_points():
    """m = 1000, c' = 1: margin 0.2361, threshold 0.2068, with the roots 6.5."""
    along = np.linspace(-2, 2, 1000)
    points = np.stack([np.stack([along, np.full(1000, y)], 1) for y in (0.0, 1.0)])
    margin = theorem_a9.least_margin(points)
    norm = np.linalg.norm((points - points.mean(axis=1, keepdims=True))[..., 0])
    assert margin == pytest.approx(0.2361, abs=1e-4)
    assert 4 / 1000 * norm == pytest.approx(0.2068, abs=1e-4)
    assert 4 / np.sqrt(1000) * norm == pytest.approx(6.54, abs=0.01)
    truth = theorem_a9.cost(points[0]) + theorem_a9.cost(points[1])
    halves = points[:, :500].reshape(-1, 2), points[:, 500:].reshape(-1, 2)
    across = sum(theorem_a9.cost(half) for half in halves)
    assert (truth, across) == pytest.approx((2672, 1168), abs=1)


def test_spikes_are_what_they_say():
    """The counts against raw matrices, and the condition on E Y'Y."""
    generator = np.random.default_rng(0)
    norms = lemmas.spike_norms(generator, 20, 3, 4000)
    chosen = generator.integers(20, size=(4000, 20))
    matrices = np.sqrt(20.0) * (chosen[..., None] == np.arange(3))
    raw = np.linalg.norm(matrices, 2, axis=(1, 2)) ** 2 / 20
    gram = np.mean(np.einsum("tna,tnb->tab", matrices, matrices), axis=0) / 20
    np.testing.assert_allclose(gram, np.eye(3), atol=5 / np.sqrt(4000))
    for level in (1.5, 2.5):
        share, other = np.mean(norms > level), np.mean(raw > level)
        assert share == pytest.approx(other, abs=5 * np.sqrt(0.5 / 4000))
        assert share > 0.05


def test_concentration_far_below_the_boundary():
    """N < 4.5 log^2(NM/delta): the printed lemma holds, its log hides the error."""
    small = tuple(one for one in lemma_a4._draws(QUICK) if len(one.variances) < 60)
    assert small
    for one in small:
        pairs = one.cell.num_features * one.cell.num_clients
        bound = 4.5 * np.log(pairs / one.cell.delta) ** 2 * np.max(one.variances)
        assert np.sum(one.variances) < bound and np.all(one.largest < bound)


def test_the_mean_of_a_row_is_the_trace():
    """E|a_i - c|^2 = sum Var, on the cell that refutes the lemma."""
    (one,) = (one for one in lemma_a4._draws(QUICK) if len(one.variances) == 300)
    cell = one.cell
    bound = 4.5 * np.log(2 * 300 / cell.delta) ** 2 * np.max(one.variances)
    truth = random_units(np.random.default_rng(0), (300,))
    factor = law.loss_factor(np.eye(300), truth, 0.1)
    trace = np.trace(law.root_loss_covariance(factor, cell.num_samples))
    assert trace == pytest.approx(np.sum(one.variances), rel=0.01)
    assert np.sum(one.variances) > bound and np.median(one.largest) > bound
    limit = (1 + np.sqrt(300)) ** 2 + 0.1**2 * 300
    assert one.operator**2 <= limit


@pytest.mark.parametrize("name", SPECTRA)
def test_nine_is_nearly_the_least(name):
    found = lemmas.check_covariance(QUICK, name=name, square=8.99)
    assert found.status is Status.HOLDS


@pytest.mark.long
def test_the_operator_norm_is_the_smaller():
    operator, frobenius = lemmas._norms(QUICK)
    assert np.all(operator <= frobenius * (1 + 1e-12))
    mean = np.mean(frobenius**2, axis=1)
    assert np.all((mean > 0.1) & (mean < 1))


def test_terms_of_the_last_step():
    """Ratios of the first to the second at c' = 1, delta = 0.05, n = 100."""
    models, clusters = np.array([10.0, 10, 10, 100]), np.array([2.0, 2, 2, 5])
    clients, samples = np.array([1e3, 1e4, 1e6, 1e6]), np.full(4, 100.0)
    first, second = theorem_a9.terms(models, clusters, clients, samples, 0.05)
    np.testing.assert_allclose(first / second, [9.4, 26, 232, 13], rtol=0.04)


def test_one_feature_has_an_exact_operator_norm():
    """chi2_N > N + 6 sqrt(N) for d = 1, where the claim says nothing."""
    rows = np.arange(4.0, 200.0)
    above = law.log_chi_square_tail(rows, 6 * np.sqrt(rows))
    assert np.all(above < np.log(0.01)) and 2 * np.exp(-0.5) > 1


def test_the_printed_step_fails_for_small_steps_only():
    """Control: the same check holds in the corrected range."""
    corrected = theorem42._CORRECTED[:4]
    found = theorem42.check_lemma(QUICK, name="toy.a", steps=corrected)
    assert found.status is Status.HOLDS


def test_corrected_steps_meet_their_condition():
    for step in theorem42._CORRECTED:
        share = np.sqrt(step.num_features / step.num_rows)
        assert abs(1 - 2 * step.step_size) <= 1 / 24 + 1e-12
        assert (36 + 6 * step.noise) * step.step_size * share <= 1 / 8
    loose = theorem42._CORRECTED[0]._replace(num_rows=10_000)
    share = np.sqrt(loose.num_features / loose.num_rows)
    assert (36 + 6 * loose.noise) * loose.step_size * share > 1 / 8


def test_errors_shrink_far_from_the_floor():
    found = theorem42.check_contracts(QUICK, name="toy.a", shares=(3.0, 30.0))
    assert found.status is Status.HOLDS


def test_the_order_of_two_losses_by_counting():
    """The exact law of a mis-order, on the summed losses of 3 clients of 2 samples."""
    generator = np.random.default_rng(1)
    trials, rho, alpha = 40_000, 4.0, 0.25
    kappa = law.worst_kappa(alpha, rho, one_dimensional=True)
    inputs = generator.standard_normal((trials, 6))
    noise = generator.standard_normal((trials, 6)) / np.sqrt(rho)
    own, other = (np.sum((inputs * e - noise) ** 2, axis=1) for e in (-0.25, 0.75))
    exact = float(law.misassignment_probability(kappa, 6))
    share = float(np.mean(other < own))
    assert share == pytest.approx(exact, abs=5 * np.sqrt(exact / trials))
    wrong = float(law.misassignment_probability(kappa, 8))
    assert abs(share - wrong) > 5 * np.sqrt(exact / trials), "control: 8 samples"


def test_the_best_constant_of_the_order():
    assert lemma_a16.check_order(QUICK, "toy.a", c2=0.12113).status is Status.HOLDS
    rho = np.geomspace(0.1, 10, 2001)
    kappa = law.worst_kappa(0.25, rho)
    rate = law.error_exponent(kappa) * (1 + 1 / rho) ** 2
    assert np.min(rate) == pytest.approx(0.12113, abs=1e-5)
    assert rho[np.argmin(rate)] == pytest.approx(1.065, abs=0.01)


def test_raw_models_are_proximal():
    truths = np.eye(3) / np.sqrt(2)
    models = truths + (np.roll(truths, 1, axis=0) - truths) / 4
    np.testing.assert_allclose(np.linalg.norm(models - truths, axis=1), 0.25)
    gap = np.linalg.norm(truths[:, None] - truths, axis=2)
    np.testing.assert_allclose(gap + np.eye(3), 1)


def test_the_certificate_bounds_what_steps_do():
    """P(|e_1| <= radius) from the floor itself, by counting, below the certificate."""
    floor = float(law.error_floor(10, 4000, theorem42._STEP, 0.1))
    sizes = {"num_features": 10, "num_rows": 4000, "num_rounds": theorem42._ROUNDS}
    start, step = np.full(2000, floor), theorem42._STEP
    steps = law.gradient_steps(1, start, noise=0.1, step_size=step, **sizes)
    for radius in (0.5 * floor, floor, 1.5 * floor):
        bound = theorem42.log_certificate(np.array([radius]), np.array([0.1]))
        share = np.mean(steps[1] <= radius)
        assert share <= np.exp(bound[0]) + 5 * np.sqrt(0.25 / 2000)
        assert share >= np.exp(bound[0]) - 0.1, "nearly tight at the floor"


def test_the_theorem_holds_for_few_rounds():
    """Control: up to round 2 the certificate leaves room."""
    first = theorem42.log_certificate(np.array([1 / 4.0]), np.array([0.1]))
    assert np.exp(first[0]) > 0.99


def test_ways_to_merge_are_all_there():
    """Numbers of integer partitions, and those of 4 by hand."""
    counts = [len(set(tables.block_sizes(total))) for total in range(11)]
    assert counts == [1, 1, 2, 3, 5, 7, 11, 15, 22, 30, 42]
    found = list(tables.block_sizes(4))
    assert found == [(4,), (3, 1), (2, 2), (2, 1, 1), (1, 1, 1, 1)]


@pytest.mark.long
def test_merged_index_is_the_librarys():
    for blocks in tables.block_sizes(4):
        assignment = np.repeat(np.repeat(np.arange(len(blocks)), blocks), 3)
        both = jnp.asarray(assignment), jnp.asarray(np.repeat(np.arange(4), 3))
        index = float(metrics.adjusted_rand_index(*both, 4))
        assert tables.merged_index(blocks, 3) == pytest.approx(index, abs=1e-6)


def test_indices_in_the_registry():
    """One merge of 5 clusters of 10 gives 0.768, and all in one gives 0."""
    assert tables.merged_index((2, 1, 1, 1), 10) == pytest.approx(0.768, abs=5e-4)
    assert tables.merged_index((5,), 10) == 0
    assert tables.merged_index((1,) * 5, 10) == 1


@pytest.mark.parametrize(
    ("num_clusters", "correction", "fit"),
    [(5, 0, 15), (10, 0, 2), (2, 0, 0), (5, 1, 0)],
)
def test_cells_that_fit(num_clusters, correction, fit):
    found = tables.misses(num_clusters, correction=correction)
    assert np.sum(found <= 0.005) == fit


def test_five_clusters_do_not_fit_whatever_is_printed():
    """Power: of what 10 clusters of 5 can give, 5 of 10 match less than 4 %."""
    ten, five = (
        np.stack([ways.mean(axis=1), ways.std(axis=1)])
        for ways in (tables.triples(k, 50) for k in (10, 5))
    )
    apart = np.max(np.abs(np.round(ten, 2)[:, :, None] - five[:, None]), axis=0)
    assert apart.shape == (3654, 84)
    assert 0.02 < np.mean(np.min(apart, axis=1) <= 0.005) < 0.04


def test_printed_means_are_those_of_the_ledger():
    """All of them, dashes included, and none besides."""
    wanted = {}
    for one in published("clove"):
        column = f"{one.dataset} {one.setting}".strip()
        place = int(one.item.split()[1]), one.metric, column, one.algorithm
        wanted[place] = one.mean
    found = {
        (number, metric, column, algorithm): mean
        for (number, metric), table in TABLES.items()
        for algorithm, means in table.means.items()
        for column, mean in zip(table.columns, means, strict=True)
    }
    assert found.keys() == wanted.keys() and len(found) == 724
    for place, mean in found.items():
        printed = wanted[place]
        assert np.isnan(mean) if printed is None else mean == printed, place


def test_ranks_count_ties_as_the_better():
    ranks = published_claims._ranks(2, "ARI", least=False)
    assert ranks["CLoVE"] == (1,) * 12 and ranks["FlexCFL"][0] == 1
    losses = published_claims._ranks(4, "reconstruction loss", least=True)
    assert losses["CLoVE"] == (1, 2, 1) and losses["Local-only"] == (2, 3, 4)


def test_rounds_of_three_seeds():
    """6.3 +- 1.2: 5, 6, 8 by the population's deviation, 5, 7, 7 by the sample's."""
    assert published_claims.latest_round(6.3, 1.2) == 8
    assert published_claims.latest_round(6.3, 1.2, correction=1) == 7
    assert published_claims.latest_round(4.0, 0.0) == 4
    assert published_claims.latest_round(4.0, 0.1) == 0


def test_truths_of_figure_3_are_where_they_should_be():
    generator = np.random.default_rng(0)
    truths = figure3.place_truths(generator, 0.01)
    apart = np.linalg.norm(truths[:, None] - truths, axis=-1)[np.triu_indices(5, 1)]
    assert np.min(apart) >= 0.01 and np.max(apart) <= 0.05
    np.testing.assert_allclose(np.linalg.norm(truths, axis=1), 1, rtol=1e-12)


def test_k_means_of_figure_3_finds_what_is_apart():
    generator = np.random.default_rng(1)
    points = np.repeat(10.0 * np.eye(5), 5, axis=0)
    points += 0.01 * generator.standard_normal(points.shape)
    labels = figure3.k_means(generator, points).reshape(5, 5)
    assert np.all(labels == labels[:, :1]) and len(set(labels[:, 0])) == 5


def test_furthest_points_find_clusters_below_a_quarter():
    """4 r < D: one assignment is right, as the proof of Theorem 4.1 has it."""
    generator = np.random.default_rng(2)
    centres = 4.01 * np.eye(3) / np.sqrt(2)  # D = 4.01
    steps = random_units(generator, (3, 20, 3))  # r = 1
    points = centres[:, None] + steps
    assert recovery.spread_ratio(points, centres) < 1
    labels = recovery.furthest_first(points.reshape(60, 3), 3).reshape(3, 20)
    assert np.all(labels == labels[:, :1]) and len(set(labels[:, 0])) == 3
    close = recovery.spread_ratio(centres[:, None] + 1.1 * steps, centres)
    assert close == pytest.approx(4.4 / 4.01)


def test_the_proved_theorem_needs_more_where_it_should():
    """Its n grows like sigma^4 and d for orthonormal models, with Delta^-4 for proximal
    ones at large sigma."""
    cell = Cell("orthonormal", 10, 2, 40, 1, 1.0, 10.0)
    least = theorem41_all_noise.least_samples
    more = least(cell._replace(noise=20.0), 0.1) / least(cell, 0.1)
    assert more == pytest.approx(((2 + 2**0.5 + 400) / (2 + 2**0.5 + 100)) ** 2)
    near = Cell("proximal", 10, 2, 40, 1, 0.5, 10.0)
    ratio = least(near._replace(separation=0.25), 0.1) / least(near, 0.1)
    assert ratio == pytest.approx(16 * (20.25 / 20.5) ** 2)


def test_the_second_derivation_has_the_same_order():
    """By Lipschitz vectors instead of entry by entry: within a constant factor, with
    log(M/delta) for log(2 d M/delta), at every sigma and d."""
    for noise in (0.0, 0.1, 1.0, 10.0):
        for features in (2, 10, 100):
            cell = Cell("orthonormal", features, 2, 1000, 1, 1.0, noise)
            variance = noise**2
            level = np.log(1000 / 0.1)
            spread = np.sqrt(features * (2 + variance) / 2 + np.sqrt(features))
            operator = np.sqrt((1 + np.sqrt(features)) ** 2 + variance * features)
            reach = spread + operator * np.sqrt(2 * level)
            other = 16 * reach**2 * (2 + np.sqrt(2) + variance)
            first = theorem41_all_noise.least_samples(cell, 0.1)
            assert 0.2 < first / other < 12


def test_published_cells_are_the_papers():
    wanted = {
        (row.dataset, row.setting): (row.mean, row.std)
        for row in published("clove")
        if (row.item, row.algorithm, row.metric) == ("Table 15", "IFCA", "final ARI")
    }
    datasets = ("MNIST", "CIFAR-10", "FMNIST")
    found = {
        (dataset, f"clients {num_clients}"): cell
        for num_clients, cells in tables._PUBLISHED.items()
        for dataset, cell in zip(datasets, cells, strict=True)
    }
    assert found == wanted and len(found) == 15


def test_clusters_must_be_equal():
    with pytest.raises(ValueError, match=r"^`num_clusters` must .* 50 clients, got 4"):
        tables.misses(4)
    with pytest.raises(ValueError, match=r"^`blocks` must hold at least 2 .* 5 of 1\."):
        tables.merged_index((5,), 1)
    with pytest.raises(ValueError, match=r"^`blocks` must hold at least 2 .* 1 of 5\."):
        tables.merged_index((1,), 5)
