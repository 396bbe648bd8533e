"""Radii of Threshold-Clustering by hand in NumPy: rules on distances, given numbers."""

import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.clustering.threshold import (
    gap_radius,
    quantile_radius,
    threshold_clustering,
)

NUMBER = 20


def rules():
    return [
        quantile_radius(0.3),
        quantile_radius(0.0),
        quantile_radius(1.0),
        quantile_radius(0.2, variant="reference", factor=0.99),
        quantile_radius(1.0, variant="reference"),
        gap_radius("outer"),
        gap_radius("middle"),
        gap_radius("inner"),
    ]


def rules_by_hand(distances):
    number = np.isfinite(distances).sum()
    finite = distances[:number]
    with np.errstate(invalid="ignore"):
        low, high = distances[5], distances[6]  # 0.3 x 19 = 5.7
        third = low if low == high else low + 0.7 * (high - low)
    cuts = [
        np.split(finite, (i, j))
        for i in range(1, number - 1)
        for j in range(i + 1, number)
    ]
    best = min(cuts, key=lambda parts: sum(((p - p.mean()) ** 2).sum() for p in parts))
    near, middle, far = (part.mean() for part in best)
    outer = (middle + far) / 2
    inner = (near + middle) / 2 if len(best[0]) > 2 else outer
    fifth = 0.99 * distances[4]
    ends = distances[0], distances[-1]
    return [third, *ends, fifth, ends[1], outer, 0.99 * middle, inner]


ASK = jax.jit(jax.vmap(lambda row: jnp.stack([rule(row) for rule in rules()])))


def test_every_rule_by_hand():
    generator = np.random.default_rng(0)
    rows = np.sort(generator.pareto(1.5, size=(40, NUMBER)), axis=1)
    rows[20:30] += np.repeat([0.0, 20, 50], [8, 7, 5])  # Clear gaps.
    rows[::3, 17:] = np.inf
    rows[::5, 5:] = np.inf
    rows[3] = 2.5
    rows[4] = 0
    found = np.asarray(ASK(rows.astype(np.float32)))
    expected = np.array([rules_by_hand(row) for row in rows])
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert (found[3, 5] == 2.5) & (found[4] == 0).all()  # Equal ones: on the edge.
    assert (found[20:30, 5] > found[20:30, 7]).any()  # The rules differ.


def test_a_quantile_that_is_a_distance_is_that_distance():
    """0.7 of 90 is 63, whatever floating point has: its point is on the edge."""
    assert 0.7 * 90 < 63
    rows = np.random.default_rng(1).pareto(1.5, size=(40, 91)).astype(np.float32)
    rows.sort(axis=1)
    rows[:, 63:] *= 7  # Differences of numbers so far apart are rounded.
    found = jax.jit(jax.vmap(quantile_radius(0.7)))(rows)
    np.testing.assert_array_equal(found, rows[:, 63])
    between = rows[:, 62] + (rows[:, 63] - rows[:, 62])
    assert (between < rows[:, 63]).any()  # What rounding would leave out.


def test_few_distances_have_no_gap():
    rows = np.full((3, NUMBER), np.inf, np.float32)
    rows[1, 0] = 3
    rows[2, :2] = 4, 9
    np.testing.assert_array_equal(np.asarray(ASK(rows))[:, 5], [np.inf, 3, 4])


def test_radii_may_be_given_in_any_shape():
    generator = np.random.default_rng(7)
    points = jnp.asarray(generator.normal(size=(NUMBER, 6)).astype(np.float32))
    centres = points[:3]
    run = lambda radius, chunk=None: threshold_clustering(
        points, centres, num_rounds=2, radius=radius, centres_per_chunk=chunk
    )
    each = np.array([2, 3, 4], np.float32)
    shapes = [each, each[:, None], lambda distances: distances[-1] * 0 + 3, 3]
    found = jax.jit(lambda: [run(radius) for radius in shapes] + [run(each, 2)])()
    np.testing.assert_array_equal(found[0].radii, np.repeat(each[:, None], 2, axis=1))
    for left, right in [(0, 1), (2, 3), (0, 4)]:
        for one, other in zip(found[left], found[right], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6)
    schedule = jax.jit(lambda: run(np.array([[9.0, 0]], np.float32)))()
    assert schedule.radii.tolist() == [[9, 0]] * 3
    assert (np.asarray(schedule.counts)[:, 0] > 1).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: quantile_radius(1.1), "`quantile` must be from 0 to 1"),
        (lambda: quantile_radius(float("nan")), "`quantile` must be from 0 to 1"),
        (lambda: quantile_radius(0.5, factor=0.0), "`factor` must be positive"),
        (lambda: quantile_radius(0.5, variant="released"), "`variant` must be in"),
        (lambda: gap_radius("first"), "`gap` must be in"),
    ],
)
def test_misuse_of_rules_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_quantiles_cannot_be_swept_by_vmap():
    make: Any = inspect.unwrap(quantile_radius)  # Its annotation refuses them, too.
    with pytest.raises(ValueError, match="`quantile` and `factor` must be known"):
        jax.jit(lambda quantile: make(quantile)(jnp.ones(3)))(0.5)
