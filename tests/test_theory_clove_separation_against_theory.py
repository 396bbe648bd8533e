"""How far apart mean loss vectors are: independent computations and close claims."""

import numpy as np
import pytest

from theory.clove import (
    definitions,
    loss_gap,
    norms,
    separation_ortho,
    separation_proximal,
    separation_random,
    separation_step,
)
from theory.clove.loss_means import alphas, ortho_separation, random_units, separation
from theory.judges import same_law
from theory.statement import Preset
from theory.verdict import Status

QUICK = Preset()


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
    least = 1 / np.sqrt(separation_ortho.BEST + noise**2)
    assert least <= found <= least * (1 + 1e-6)


@pytest.mark.parametrize("square", [3.41, separation_ortho.BEST - 1e-5])
def test_a_better_constant_is_noticed(square):
    found = separation_ortho.check_separation(QUICK, name="toy.a", square=square)
    assert found.status is Status.VIOLATED


def test_independent_truths_by_the_law_of_the_plane():
    """The three-number law of a random unit model against whole models."""
    trials, features = 10_000, 3
    generator = np.random.default_rng(2)
    truths = np.zeros((2, features))
    truths[:, 0], truths[:, 1] = np.sqrt(0.75), (0.5, -0.5)
    models = random_units(generator, (trials, features, features))
    noise = separation_random._NOISE
    one, two = np.broadcast_to(truths[:, None], (2, trials, features))
    raw = separation(one, two, models, noise) * np.sqrt(4 + noise**2)
    found = separation_random.independent_ratios(generator, features, 40_000)
    same = same_law("toy.a", [raw], [found], resolution=0.15)
    assert same.status is Status.HOLDS
    other = separation_random.independent_ratios(generator, features + 2, 40_000)
    wrong = same_law("toy.a", [raw], [other], resolution=0.15)
    assert wrong.status is Status.VIOLATED, "control: two dimensions more"


def test_adversaries_are_unit_vectors_one_apart():
    generator = np.random.default_rng(3)
    models = random_units(generator, (7, 7))
    truths, least = separation_random.adversarial_truths(models, generator)
    np.testing.assert_allclose(np.linalg.norm(truths, axis=1), 1, rtol=1e-12)
    gap = truths[0] - truths[1]
    assert np.linalg.norm(gap) == pytest.approx(1, rel=1e-12)
    assert np.linalg.norm(models @ gap) == pytest.approx(least, rel=1e-9)


def test_orthonormal_models_have_no_adversary():
    """Control: the same construction cannot hurt an isometry."""
    generator = np.random.default_rng(4)
    models, _ = np.linalg.qr(generator.standard_normal((30, 30)))
    truths, least = separation_random.adversarial_truths(models, generator)
    assert least == pytest.approx(1, rel=1e-12)
    assert float(separation(truths[0], truths[1], models, 0.1)) > 1 / np.sqrt(4.01)


def test_the_factor_of_lemma_2():
    found = separation_proximal.factor(np.array([0.0, 0.25, 0.5, 1.0, 2.0]))
    np.testing.assert_allclose(found, [0.7071, 0.6180, 0.4842, 0.310, 0.170], atol=5e-4)
    threshold = np.array([separation_proximal.THRESHOLD])
    np.testing.assert_allclose(separation_proximal.factor(threshold), 0.5, rtol=1e-14)


def test_descent_ends_in_places_the_lemma_speaks_of():
    flat = np.array([0.3, 3.0, 0, 0, 0.1, 0.1, 0.1])
    truths, models = separation_proximal._place(flat)
    lengths = np.linalg.norm(models - truths, axis=1)
    np.testing.assert_allclose(lengths, [0.25, 0.1 * np.sqrt(3)], rtol=1e-12)
    assert np.linalg.norm(truths[0] - truths[1]) == pytest.approx(1.09)


@pytest.mark.parametrize("scale", [1 - 1e-8, 1 + 1e-6])
def test_only_the_infimum_passes(scale):
    found = separation_proximal.check_infimum(QUICK, scale=scale)
    assert found.status is Status.VIOLATED


def test_the_printed_step_is_one_of_units():
    """With lengths well below 1 it happens to be true."""
    small = np.array([0.03, 0.01])
    left = small[0] - small[1]
    right = small[0] ** 2 - small[1] ** 2 + 0.01**2
    assert left > right
    found = separation_step.check_step(QUICK, name="toy.a", squared=True)
    assert found.status is Status.VIOLATED


@pytest.mark.parametrize("limit", [1.4999, 1.4])
def test_shorter_models_are_noticed(limit):
    assert norms.check_length(QUICK, limit=limit).status is Status.VIOLATED


def test_gaps_are_what_they_say():
    generator = np.random.default_rng(5)
    clusters = np.array([0, 2, 1, 2])
    losses = loss_gap.gapped(generator, clusters, 3, spread=5.0)
    np.testing.assert_array_equal(np.argmin(losses, axis=1), clusters)
    ordered = np.sort(losses, axis=1)
    np.testing.assert_allclose(ordered[:, 1] - ordered[:, 0], 1, rtol=1e-12)


def test_k_means_recovers_narrow_clusters():
    """Control: the same check holds where the spread is small."""
    narrow = loss_gap.check_k_means(QUICK, spread=0.1)
    assert narrow.status is Status.HOLDS
    assert loss_gap.check_k_means(QUICK, spread=100.0).status is Status.VIOLATED


def test_agreement_by_hand():
    first, second = np.array([0, 0, 1]), np.array([0, 1, 1])
    assert definitions.agreement(first, second) == pytest.approx(1 / 3)
    assert definitions.agreement(first, first) == 1
