"""Werner's Byzantine scenes: what attacks do to a centre, by hand and by theory."""

import numpy as np
import pytest

from theory.statement import Preset
from theory.werner import byzantine_breakdown, byzantine_training
from theory.werner.byzantine_scene import RADIUS, Scenes, attacked, draw_scenes


@pytest.fixture(scope="module")
def scenes() -> Scenes:
    """Three of them: few attackers, some, and many."""
    drawn = draw_scenes(Preset(), "toy")
    assert drawn.points.shape[0] == 40
    kept = [0, 15, 39]
    return drawn._replace(
        points=drawn.points[kept],
        byzantine=drawn.byzantine[kept],
        share=drawn.share[kept],
        mean=drawn.mean[kept],
    )


def settled(points: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Rule (4), one point at a time, in float64."""
    centre = start.astype(float)
    for _ in range(60):
        moved = np.array(
            [z if np.linalg.norm(z - centre) <= RADIUS else centre for z in points]
        )
        centre = np.mean(moved, axis=0)
    return centre


def test_scenes_are_what_they_say(scenes):
    assert np.all(scenes.byzantine.sum(axis=1) == np.round(25 * scenes.share))
    assert not np.any(scenes.byzantine[:, scenes.clusters == 0])
    honest = scenes.points[:, :25].astype(float)
    means = np.mean(honest, axis=1)
    np.testing.assert_allclose(means[:, 1:], 0, atol=0.4)
    np.testing.assert_allclose(means[:, 0], scenes.mean, atol=0.4)
    spread = np.mean(np.sum((honest - means[:, None]) ** 2, axis=-1))
    assert 0.7 < spread < 1.3
    others = scenes.points[:, 25:]
    assert np.min(np.linalg.norm(others - means[:, None], axis=-1)) > 190


def test_a_zero_attack_moves_the_centre_as_by_hand(scenes):
    found = attacked(scenes, "zero")
    for index, points in enumerate(scenes.points):
        sent = np.where(scenes.byzantine[index][:, None], 0, points)
        honest = np.mean(points[:25].astype(float), axis=0)
        shift = np.linalg.norm(settled(sent, points[0]) - honest)
        np.testing.assert_allclose(found.shift[index], shift, atol=1e-4)
        number = scenes.byzantine[index].sum()
        mean = np.linalg.norm(honest) * number / (25 + number)
        np.testing.assert_allclose(found.unprotected[index], mean, rtol=1e-5)


def test_the_adaptive_edge_reaches_its_fixed_point(scenes):
    found = attacked(scenes, "edge_adaptive")
    exact = 0.999 * scenes.share * RADIUS
    np.testing.assert_allclose(found.shift, exact, atol=5e-4)
    assert not np.allclose(found.shift, exact / 0.99, atol=5e-4)


def test_adaptive_errors_are_the_law_below_breakdown():
    honest = np.random.default_rng(0).standard_normal((20, 4)) / 2
    found = byzantine_breakdown.adaptive_errors(honest, 8.0, 300)
    share = np.arange(1, 21) / 20
    np.testing.assert_allclose(found[:12], (8.0 * share[:12]) ** 2, rtol=1e-6)
    assert found[-1] > 4 * 8.0**2


@pytest.mark.parametrize("kind", ["labelflip", "alternating"])
def test_gaps_start_at_nothing_and_stay_below_the_edge(kind):
    gaps, squares = byzantine_training.gradient_gaps(Preset(), kind)
    edge, _ = byzantine_training.gradient_gaps(Preset(), "time_coupled")
    assert np.all(gaps[:, 0] == 0) and np.all(gaps[:, -1] > 0)
    assert np.all(gaps[:, 20:] < edge[:, 20:])
    np.testing.assert_allclose(squares[:, 0], 4.0)  # |a_i|^2


def test_sleepers_are_awake_in_the_second_half_only():
    gaps, _ = byzantine_training.gradient_gaps(Preset(), "sleeper")
    half = gaps.shape[1] // 2
    assert np.max(gaps[:, : half + 1]) < 0.2 * np.min(gaps[:, -1])


def test_seeds_are_not_shared_between_presets():
    first, second = (draw_scenes(Preset(seed=seed), "toy").seed for seed in (0, 1))
    assert first != second
