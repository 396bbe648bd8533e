"""Werner's experiments in small: gradients, elbows, radii and odds, by hand."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.kernels.threshold import threshold_clustering
from cfljax.kernels.threshold_radius import quantile_radius
from theory.statement import Preset
from theory.werner import digits_proxy, figure4, table1
from theory.werner.theorem1_setting import asked_rounds

GENERATOR = np.random.default_rng(1)


def test_gradients_are_those_of_the_cross_entropy():
    inputs = GENERATOR.standard_normal((2, 3, 4))
    labels = GENERATOR.integers(0, 5, (2, 3))
    models = GENERATOR.standard_normal((2, 4, 5))

    def loss(model: np.ndarray, client: int) -> float:
        logits = inputs[client] @ model
        odds = np.exp(logits) / np.sum(np.exp(logits), axis=1, keepdims=True)
        return -float(np.mean(np.log(odds[np.arange(3), labels[client]])))

    found = digits_proxy.batch_gradients(models, inputs, np.eye(5)[labels])
    width = 1e-6
    for model, client, row, column in itertools.product((0, 1), (0, 1), (0, 3), (2,)):
        step = np.zeros((4, 5))
        step[row, column] = width
        ends = [loss(models[model] + sign * step, client) for sign in (1, -1)]
        slope = (ends[0] - ends[1]) / (2 * width)
        np.testing.assert_allclose(found[model, client, row, column], slope, rtol=1e-6)


def test_centres_are_the_librarys():
    points = GENERATOR.standard_normal((6, 6, 3)).astype(np.float32)
    found = digits_proxy.clipped_centres(points)
    for index in (0, 4):
        own = threshold_clustering(
            jnp.asarray(points[index]),
            jnp.asarray(points[index, index][None]),
            num_rounds=10,
            radius=quantile_radius(0.2),
        )
        np.testing.assert_allclose(found[index], own.centres[0], atol=1e-5)


@pytest.mark.parametrize(("group", "needed"), [(3, 2), (4, 3)])
def test_strangers_against_all_groups(group, needed, monkeypatch):
    monkeypatch.setattr(table1, "_CLIENTS", 8)
    monkeypatch.setattr(table1, "_OWN", 3)
    groups = list(itertools.combinations(range(1, 8), group - 1))  # 0 is the client.
    few = [1 + sum(one < 3 for one in others) < needed for others in groups]
    assert table1.strangers(group, needed) == pytest.approx(np.mean(few), rel=1e-12)


def test_the_elbow_by_hand():
    curve = np.array([10.0, 5.0, 4.0, 3.95, 3.94])
    assert figure4.elbow(curve) == 3
    assert figure4.elbow(curve, threshold=0.2) == 2
    assert figure4.elbow(curve, threshold=0.005) == 4


def test_the_asked_rounds_by_hand():
    found = asked_rounds(np.array([1.0, 2.0, 8.0]), 8.0, 0.5)
    np.testing.assert_allclose(found, [np.log(8), np.log(4), 0] / np.log(4 / 3))


def test_blobs_have_their_deviation_and_centres():
    blobs = figure4.draw_blobs(np.random.default_rng(2), 2.0, 50)
    again = figure4.draw_blobs(np.random.default_rng(2), 4.0, 50)
    away = blobs.points - blobs.centres[:, :, None]
    np.testing.assert_array_equal(blobs.centres, again.centres)
    np.testing.assert_allclose(np.std(away), 2.0, rtol=0.02)
    assert np.max(np.abs(blobs.centres)) <= 10


def test_curves_start_where_they_say():
    near = figure4.curves(Preset(), "near")
    member = figure4.curves(Preset(), "member")
    norm = np.sqrt(10)  # Of a standard normal vector in 10 dimensions, about.
    np.testing.assert_allclose(near[:, 0], 3 * norm, rtol=0.1)
    np.testing.assert_allclose(member[:, 0], np.array([0.5, 1, 2, 4]) * norm, rtol=0.1)
    assert np.all(member[:, -1] < 0.6 * member[:, 0])
