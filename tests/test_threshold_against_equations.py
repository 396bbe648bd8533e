"""Threshold-Clustering, equation (4), by hand in NumPy, in both of its forms."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.clustering.gram import combine, gram_matrix
from cfljax.clustering.linkage import squared_distances
from cfljax.clustering.threshold import (
    quantile_radius,
    threshold_clustering,
    threshold_clustering_gram,
    threshold_members,
)

ROUNDS = 4
NUMBER = 20


def both(points, weights, radius, **options):
    """Coordinates and inner products, from the same centres."""
    options = {"num_rounds": ROUNDS, "radius": radius} | options
    coordinates = threshold_clustering(points, combine(weights, points), **options)
    products = threshold_clustering_gram(gram_matrix(points), weights, **options)
    return coordinates, products, combine(products.weights, points)


STATIC = ("num_rounds", "edge", "centres_per_chunk")
BOTH: Any = jax.jit(both, static_argnames=STATIC)
THIRD: Any = jax.jit(
    lambda points, weights: both(
        points, weights, quantile_radius(0.3, variant="reference")
    )
)


def points_of(seed, dtype: Any = np.float32, offset=5.0):
    generator = np.random.default_rng(seed)
    centres = offset + 3 * generator.normal(size=(3, 6))
    noise = generator.normal(size=(NUMBER, 6))
    return (centres[np.arange(NUMBER) % 3] + noise).astype(dtype)


def some_weights(dtype: Any = np.float32):
    """Two points and the mean of four others."""
    weights = np.zeros((3, NUMBER), dtype)
    weights[0, 3] = weights[1, 7] = 1
    weights[2, 8:12] = 0.25
    return weights


RADII = np.array([[3.0, 4, 5, 3], [6, 5, 4, 3], [2, 2, 2, 20]])


def by_hand(points, centres, rule, divide_by="points"):
    """The four arrays of a result; `rule(k, turn, distances)` is the radius."""
    centres, members, counts, radii = [*centres], [], [], []
    for k in range(len(centres)):
        for turn in range(ROUNDS):
            with np.errstate(invalid="ignore", over="ignore"):
                distances = np.sqrt(((points - centres[k]) ** 2).sum(axis=1))
            known = np.isfinite(distances)
            radius = rule(k, turn, np.sort(np.where(known, distances, np.inf)))
            inside = known & (distances <= radius)
            total = points[inside].sum(axis=0)
            if divide_by == "points":
                centre = (total + (~inside).sum() * centres[k]) / len(points)
            else:
                centre = total / max(inside.sum(), 1)
            centres[k] = centre if inside.any() else centres[k]
            counts.append(inside.sum())
            radii.append(radius)
        members.append(inside)
    shape = (len(centres), ROUNDS)
    return (
        np.array(centres),
        np.array(members),
        np.reshape(counts, shape),
        np.reshape(radii, shape),
    )


def assert_same(found, expected, rtol):
    """Both forms against the four arrays by hand."""
    coordinates, products, combined = found
    for centres, form in [
        (coordinates.centres, coordinates),
        (combined, products),
    ]:
        np.testing.assert_allclose(centres, expected[0], rtol=rtol, atol=rtol)
        np.testing.assert_array_equal(form.members, expected[1])
        np.testing.assert_array_equal(form.counts, expected[2])
        np.testing.assert_allclose(form.radii, expected[3], rtol=rtol)


def with_gaps(points):
    """Points as attackers send them: not numbers, infinite, and of any size."""
    points = points.copy()
    points[[1, 4], [0, 2]] = np.nan
    points[5] = np.inf
    points[13] = 1e30
    return points


@pytest.mark.parametrize(
    "points", [points_of(0), points_of(1), with_gaps(points_of(2))]
)
def test_rounds_are_equation_4(points):
    weights = some_weights()
    found = BOTH(points, weights, RADII.astype(np.float32))
    kept = np.isfinite(points).all(axis=1)
    centres = weights[:, kept].astype(float) @ points[kept]
    rule = lambda k, turn, distances: RADII[k, turn]
    expected = by_hand(points.astype(float), centres, rule)
    assert_same(found, expected, rtol=2e-5)
    assert len(np.unique(expected[2])) > 3  # Balls of many sizes.
    means = by_hand(points.astype(float), centres, rule, divide_by="members")[0]
    assert np.abs(means - expected[0]).max() > 0.1


def test_inner_products_are_as_good_as_coordinates_in_double_precision():
    with jax.enable_x64(True):
        points = points_of(3, float, offset=1000.0)
        weights = some_weights(float)
        found = BOTH(points, weights, RADII)
        expected = by_hand(points, weights @ points, lambda k, turn, _: RADII[k, turn])
        assert_same(found, expected, rtol=1e-12)
        moved = lambda centres: np.asarray(centres) - weights @ points
        np.testing.assert_allclose(
            moved(found[2]), moved(found[0].centres), rtol=1e-6, atol=1e-11
        )


def test_squared_distances_stand_in_for_inner_products():
    points = with_gaps(points_of(4, offset=3e4))  # Far from the origin, in single.
    weights, radii = jnp.asarray(some_weights()), RADII.astype(np.float32)
    run: Any = jax.jit(
        lambda gram: threshold_clustering_gram(
            gram, weights, num_rounds=ROUNDS, radius=radii
        )
    )
    exact = points.astype(float)
    kept = np.isfinite(exact).all(axis=1)
    centres = some_weights()[:, kept] @ exact[kept]
    expected = by_hand(exact, centres, lambda k, turn, _: RADII[k, turn])
    moved = jnp.asarray(points)
    for gram in (-squared_distances(moved) / 2, gram_matrix(moved)):
        np.testing.assert_array_equal(run(gram).members, expected[1])
    # Control: about the far origin nothing is left of the distances.
    assert (np.asarray(run(moved @ moved.T).members) != expected[1]).any()


def test_a_rule_is_asked_in_every_round():
    for points in (points_of(5), with_gaps(points_of(6))):
        weights = some_weights()
        found = THIRD(points, weights)
        kept = np.isfinite(points).all(axis=1)
        centres = weights[:, kept].astype(float) @ points[kept]
        rule = lambda k, turn, distances: distances[6]  # floor(0.3 x 20)
        expected = by_hand(points.astype(float), centres, rule)
        assert_same(found, expected, rtol=2e-5)
        # The point whose distance is the radius is on the edge, and inside.
        assert (found[0].counts == 7).all() and (found[1].counts == 7).all()
        first = np.asarray(found[0].radii)[:, :1]
        assert not np.allclose(found[0].radii, first, rtol=1e-3)


def test_the_edge_belongs_to_the_ball_but_not_in_the_synthetic_code():
    points = np.array([[3.0, 4], [0, 0], [0, 5.000001]], np.float32)
    start = np.array([[0.0, 1, 0]], np.float32)
    radius = np.full((1, 1), 5, np.float32)
    counts = {}
    for edge in ("paper", "reference"):
        found = BOTH(points, start, radius, num_rounds=1, edge=edge)
        counts[edge] = [form.counts.item() for form in found[:2]]
    assert counts == {"paper": [2, 2], "reference": [1, 1]}


def test_nobody_inside_leaves_a_centre_bit_for_bit():
    points = with_gaps(points_of(8))
    weights = some_weights()
    weights[0] = np.eye(NUMBER)[4]  # From a point that is not a number.
    radii = np.full((3, ROUNDS), np.inf, np.float32)
    everyone = BOTH(points, weights, radii)
    nobody = BOTH(points, weights, np.full_like(radii, 1e-9))
    negative = BOTH(points, weights, -radii)
    start = jax.jit(combine)(weights, points)
    np.testing.assert_array_equal(nobody[0].centres[::2], start[::2])
    np.testing.assert_array_equal(negative[0].centres, start)
    for found in (nobody, negative):
        np.testing.assert_array_equal(found[1].weights[::2], weights[::2])
    for form in everyone[:2]:
        # Infinitely large balls hold the 16 points that have a distance.
        assert form.counts.tolist() == [[0] * 4] + [[16] * 4] * 2
    assert np.isnan(everyone[0].centres[0]).all() and np.isnan(everyone[2][0]).all()
    assert np.isfinite(everyone[0].centres[1:]).all()


def test_no_finite_points_and_more_centres_than_points():
    lost = np.full((NUMBER, 6), np.nan, np.float32)
    centres = jnp.asarray(points_of(9))
    run: Any = jax.jit(
        lambda points, radius: threshold_clustering(
            points, centres, num_rounds=ROUNDS, radius=radius
        )
    )
    found = run(lost, 1e9)
    np.testing.assert_array_equal(found.centres, centres)
    assert not found.members.any() and not found.counts.any()
    same = run(centres[:2], 0.0)  # 20 centres, two of them on a point.
    assert same.counts[:, 0].tolist() == [1, 1] + [0] * 18
    np.testing.assert_array_equal(same.centres, centres)


def test_batches_of_clusterings_and_chunks_of_centres():
    points = np.stack([points_of(10), with_gaps(points_of(11))])
    weights, radii = some_weights(), RADII.astype(np.float32)
    together = jax.jit(jax.vmap(both, in_axes=(0, None, None)))(points, weights, radii)
    for index in range(2):
        chunks = BOTH(points[index], weights, radii, centres_per_chunk=2)
        for one, other in zip(
            jax.tree.leaves(together), jax.tree.leaves(chunks), strict=True
        ):
            np.testing.assert_allclose(one[index], other, rtol=1e-5, atol=1e-5)


POINTS, CENTRES = jnp.ones((4, 2)), jnp.ones((2, 2))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_rounds": 0}, "`num_rounds` must be at least 1, got 0"),
        ({"radius": -1.0}, "`radius` must not be negative, got -1.0"),
        ({"radius": float("nan")}, "`radius` must not be negative, got nan"),
        ({"radius": np.ones(3)}, r"`radius` must be a number, \[centres\]"),
        ({"radius": np.ones((2, 2))}, "`radius` must be a number"),
        ({"edge": "strict"}, "`edge` must be in"),
        ({"centres_per_chunk": 0}, "`centres_per_chunk` must be at least 1"),
        ({"points": POINTS[:0]}, "`points` must be at least 1"),
        ({"centres": CENTRES[:0]}, "`centres` must be at least 1"),
        ({"centres": jnp.ones((2, 3))}, "`centres` must have the features"),
    ],
)
def test_misuse_is_named(change, message):
    given = {"points": POINTS, "centres": CENTRES, "num_rounds": 3, "radius": 1.0}
    # Shapes that do not fit are refused here even where nothing checks annotations.
    function: Any = getattr(threshold_clustering, "__wrapped__", threshold_clustering)
    with pytest.raises(ValueError, match=message):
        function(**(given | change))


def test_misuse_of_inner_products_is_named():
    function: Any = threshold_clustering_gram
    function = getattr(function, "__wrapped__", function)
    for gram in (jnp.ones((3, 3)), jnp.ones((3, 4))):
        with pytest.raises(ValueError, match="`gram` must be square"):
            function(gram, jnp.ones((2, 4)) / 4, num_rounds=1, radius=1.0)


@pytest.mark.parametrize("form", ["coordinates", "gram"])
def test_leaves_are_clustered_as_if_side_by_side(form):
    points = np.random.default_rng(4).normal(size=(6, 7)).astype(np.float32)
    points[3, 6] = np.nan

    @jax.jit
    def run(points):
        starts = jnp.arange(5)
        return threshold_members(points, starts, num_rounds=3, radius=3.5, form=form)

    leaves = {"a": points[:, :1], "b": points[:, 1:].reshape(6, 3, 2)}
    found, expected = run(leaves), run(jnp.asarray(points))
    np.testing.assert_array_equal(found.members, expected.members)
    assert 0 < found.counts.sum() < found.counts.size * 5
    rows = [found.centres["a"], found.centres["b"].reshape(5, 6)]
    rows = np.concatenate(rows, axis=1)
    np.testing.assert_allclose(rows, expected.centres, rtol=1e-5, atol=1e-6)
    assert np.isnan(rows[3]).any() and not np.isnan(rows[:3]).any()
    assert np.abs(rows[:3] - points[:3]).max() > 0.1  # Control: centres moved.
