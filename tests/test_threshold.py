"""Threshold-Clustering by hand in both of its forms, its radii, and what is proved.

All that is checked against theory holds for every set of points, random ones included,
so that no check may fail by chance: the means and variances in it are those of the
points at hand.
"""

import inspect
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from leaves import as_leaves, side_by_side

from cfljax.clustering.gram import combine, gram_matrix
from cfljax.clustering.linkage import squared_distances
from cfljax.clustering.threshold import (
    gap_radius,
    quantile_radius,
    threshold_clustering,
    threshold_clustering_gram,
    threshold_members,
)

ROUNDS = 4
NUMBER = 20


# Equation (4), against equations
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


def by_radii(k, turn, _):
    return RADII[k, turn]


def starts_of(points, weights):
    """Centres in double precision, without the points that are no numbers."""
    kept = np.isfinite(points).all(axis=1)
    return weights[:, kept].astype(float) @ points[kept].astype(float)


def by_hand(points, centres, rule, divide_by="points"):
    """The four arrays of a result; `rule(k, turn, distances)` is the radius."""
    points, centres = points.astype(float), [*centres]
    members, counts, radii = [], [], []
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
    by_round = np.reshape(counts, shape), np.reshape(radii, shape)
    return np.array(centres), np.array(members), *by_round


def assert_same(found, expected, rtol):
    """Both forms against the four arrays by hand."""
    coordinates, products, combined = found
    for centres, form in ((coordinates.centres, coordinates), (combined, products)):
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
    centres = starts_of(points, weights)
    expected = by_hand(points, centres, by_radii)
    assert_same(found, expected, rtol=2e-5)
    assert len(np.unique(expected[2])) > 3  # Balls of many sizes.
    means = by_hand(points, centres, by_radii, divide_by="members")[0]
    assert np.abs(means - expected[0]).max() > 0.1


def test_inner_products_are_as_good_as_coordinates_in_double_precision():
    with jax.enable_x64(True):
        points = points_of(3, float, offset=1000.0)
        weights = some_weights(float)
        found = BOTH(points, weights, RADII)
        expected = by_hand(points, weights @ points, by_radii)
        assert_same(found, expected, rtol=1e-12)
        moved = lambda centres: np.asarray(centres) - weights @ points
        np.testing.assert_allclose(
            moved(found[2]), moved(found[0].centres), rtol=1e-6, atol=1e-11
        )


@pytest.mark.long
def test_squared_distances_stand_in_for_inner_products():
    points = with_gaps(points_of(4, offset=3e4))  # Far from the origin, in single.
    weights, radii = jnp.asarray(some_weights()), RADII.astype(np.float32)
    run: Any = jax.jit(
        lambda gram: threshold_clustering_gram(
            gram, weights, num_rounds=ROUNDS, radius=radii
        )
    )
    expected = by_hand(points, starts_of(points, some_weights()), by_radii)
    moved = jnp.asarray(points)
    for gram in (-squared_distances(moved) / 2, gram_matrix(moved)):
        np.testing.assert_array_equal(run(gram).members, expected[1])
    # Control: about the far origin nothing is left of the distances.
    assert (np.asarray(run(moved @ moved.T).members) != expected[1]).any()


@pytest.mark.long
def test_a_rule_is_asked_in_every_round():
    for points in (points_of(5), with_gaps(points_of(6))):
        weights = some_weights()
        found = THIRD(points, weights)
        rule = lambda k, turn, distances: distances[6]  # floor(0.3 x 20)
        expected = by_hand(points, starts_of(points, weights), rule)
        assert_same(found, expected, rtol=2e-5)
        # The point whose distance is the radius is on the edge, and inside.
        assert (found[0].counts == 7).all() and (found[1].counts == 7).all()
        first = np.asarray(found[0].radii)[:, :1]
        assert not np.allclose(found[0].radii, first, rtol=1e-3)


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.parametrize("form", ["coordinates", "gram"])
def test_leaves_are_clustered_as_if_side_by_side(form):
    points = np.random.default_rng(4).normal(size=(6, 7)).astype(np.float32)
    points[3, 6] = np.nan

    @jax.jit
    def run(points):
        starts = jnp.arange(5)
        return threshold_members(points, starts, num_rounds=3, radius=3.5, form=form)

    found, expected = run(as_leaves(points)), run(jnp.asarray(points))
    np.testing.assert_array_equal(found.members, expected.members)
    assert 0 < found.counts.sum() < found.counts.size * 5
    rows = side_by_side(found.centres)
    np.testing.assert_allclose(rows, expected.centres, rtol=1e-5, atol=1e-6)
    assert np.isnan(rows[3]).any() and not np.isnan(rows[:3]).any()
    assert np.abs(rows[:3] - points[:3]).max() > 0.1  # Control: centres moved.


# Radii, against equations
RULES = (
    quantile_radius(0.3),
    quantile_radius(0.0),
    quantile_radius(1.0),
    quantile_radius(0.2, variant="reference", factor=0.99),
    quantile_radius(1.0, variant="reference"),
    gap_radius("outer"),
    gap_radius("middle"),
    gap_radius("inner"),
)
ASK = jax.jit(jax.vmap(lambda row: jnp.stack([rule(row) for rule in RULES])))


def rules_by_hand(distances):
    number = np.isfinite(distances).sum()
    finite = distances[:number]
    with np.errstate(invalid="ignore"):
        low, high = distances[5], distances[6]  # 0.3 x 19 = 5.7
        third = low if low == high else low + 0.7 * (high - low)
    pairs = itertools.combinations(range(1, number), 2)
    cuts = [np.split(finite, pair) for pair in pairs]
    best = min(cuts, key=lambda parts: sum(((p - p.mean()) ** 2).sum() for p in parts))
    near, middle, far = (part.mean() for part in best)
    outer = (middle + far) / 2
    inner = (near + middle) / 2 if len(best[0]) > 2 else outer
    fifth = 0.99 * distances[4]
    ends = distances[0], distances[-1]
    return [third, *ends, fifth, ends[1], outer, 0.99 * middle, inner]


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


@pytest.mark.long
def test_few_distances_have_no_gap():
    rows = np.full((3, NUMBER), np.inf, np.float32)
    rows[1, 0] = 3
    rows[2, :2] = 4, 9
    np.testing.assert_array_equal(np.asarray(ASK(rows))[:, 5], [np.inf, 3, 4])


@pytest.mark.long
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


# Against theory
MANY, STEPS = 60, 60


def walk(points, start, radius):
    """The centre before and after each round."""

    def move(centre, _):
        found = threshold_clustering(points, centre, num_rounds=1, radius=radius)
        return found.centres, found.centres[0]

    return jnp.vstack([start, jax.lax.scan(move, start, None, length=STEPS)[1]])


WALK = jax.jit(walk)


@pytest.fixture
def path():
    """The centre before and after each round, in double precision."""
    with jax.enable_x64(True):
        yield lambda *arguments: np.asarray(WALK(*arguments))


def clusters(seed, number, separation, law="gauss"):
    """Balanced clusters on a line, of total variance about 1 in three dimensions."""
    generator = np.random.default_rng(seed)
    if law == "gauss":
        noise = generator.normal(size=(MANY, 3))
    elif law == "student":
        noise = generator.standard_t(3, size=(MANY, 3)) / np.sqrt(3)
    else:  # Rare and far, all to one side.
        noise = 3 * (generator.random((MANY, 3)) < 0.1)
    truth = np.arange(MANY) % number
    points = noise / np.sqrt(3)
    points[:, 0] += separation * truth
    return points, truth


@pytest.mark.parametrize("number", [2, 4, 10])
def test_the_distance_to_the_mean_shrinks_by_one_less_the_share(path, number):
    """v_l - m = (1 - delta)^l (v_0 - m), where the ball holds the cluster and no more.

    Lemma 1 asks of the squared error only 1 - delta / 2.
    """
    points, truth = clusters(0, number, 100)
    mean = points[truth == 0].mean(axis=0)
    start = mean[None] + np.array([[1.0, -2, 2]])
    share = (1 - 1 / number) ** np.arange(STEPS + 1)
    expected = mean + share[:, None] * (start - mean)
    np.testing.assert_allclose(path(points, start, 20.0), expected, atol=1e-12)
    wide = path(points, start, 120.0)
    assert np.abs(wide[1:] - expected[1:]).max() > 1


BAD = 2  # Of 60: beta below delta / 12 for two clusters.


def errors_and_bounds(path, seed, separation, law):
    """Errors |v_l - mu|, their bound, and the part of it that bad points have.

    Theorem 1 as corrected: with |v_0 - mu| <= tau / 2, 24 sigma^2 <= tau^2,
    tau <= Delta / 3, 48 sigma^2 <= delta Delta^2 and beta <= delta / 12,

        |v_l - mu| <= (1 - delta/2)^l |v_0 - mu| + 4 sigma^2 / tau
                      + 8 tau sigma^2 / (delta Delta^2) + 2 beta tau / delta.

    Chebyshev's inequality, all that its proof needs, holds for the points at hand with
    their own mean and variance. Attackers are on the edge of the last ball.
    """
    points, truth = clusters(seed, 2, separation, law)
    generator = np.random.default_rng([seed, 1])
    honest = np.arange(MANY) >= BAD
    own, other = (points[honest & (truth == cluster)] for cluster in (0, 1))
    mean = own.mean(axis=0)
    spread = np.sqrt(
        max(((p - p.mean(axis=0)) ** 2).sum(axis=1).mean() for p in (own, other))
    )
    gap = np.linalg.norm(other.mean(axis=0) - mean)
    delta, beta = len(own) / MANY, BAD / MANY
    radius = np.sqrt(delta * spread * gap)
    away = generator.normal(size=3)
    away /= np.linalg.norm(away)
    start = mean + 0.49 * radius * away
    points[:BAD] = mean + 0.999 * radius * away
    margins = [
        radius**2 / (24 * spread**2),
        gap / (3 * radius),
        delta * gap**2 / (48 * spread**2),
        delta / (12 * beta),
    ]
    assert min(margins) >= 1
    errors = np.linalg.norm(path(points, start[None], radius) - mean, axis=1)
    good = 4 * spread**2 / radius + 8 * radius * spread**2 / (delta * gap**2)
    shrunk = (1 - delta / 2) ** np.arange(STEPS + 1) * errors[0]
    bad = 2 * beta * radius / delta
    return errors, shrunk + good + bad, bad


@pytest.mark.parametrize("law", ["gauss", "student", "skew"])
def test_errors_stay_below_the_corrected_bound_of_theorem_1(path, law):
    for seed in range(4):
        for separation in (120, 3000):
            errors, bounds, bad = errors_and_bounds(path, seed, separation, law)
            assert (errors <= bounds * (1 + 1e-12)).all()
            if separation == 3000:  # Control: without their part it is false.
                assert errors[-1] > (bounds - bad)[-1]


@pytest.mark.usefixtures("path")
def test_attackers_that_follow_the_edge_pull_by_their_odds():
    """Error beta tau / delta: bad points at v + tau u, anew in each round.

    So does the squared error of order beta^2 sigma Delta / delta come about. Above
    beta = delta, whoever follows the attackers loses the cluster.
    """

    def last(bad, radius):
        others = jnp.zeros((MANY, 3)).at[MANY // 2 :, 1].set(1000.0)

        def move(_, centre):
            edge = centre + jnp.array([[radius * (1 - 1e-9), 0, 0]])
            points = jnp.where(bad[:, None], edge, others)
            found = threshold_clustering(points, centre, num_rounds=1, radius=radius)
            return found.centres

        return jax.lax.fori_loop(0, 400, move, jnp.zeros((1, 3)))[0]

    run = jax.jit(last, static_argnums=1)
    for number in (1, 5, 10, 14, 16):
        error = np.linalg.norm(run(np.arange(MANY) < number, 2.0))
        odds = number / (MANY // 2 - number)
        if odds < 1:
            np.testing.assert_allclose(error, 2.0 * odds, rtol=1e-6)
        else:
            assert error > 100


def test_a_start_at_an_outlier_never_moves(path):
    """Why a start of bounded variance is not enough for Theorem 1.

    A law on {-s, 0, s} with s just above tau: from s the ball holds equal points
    only; from 0 the centre is at the cluster's mean for good.
    """
    points = np.zeros((MANY, 3))
    points[:3, 0], points[3:6, 0] = 5.005, -5.005
    stuck = path(points, points[:1], 5.0)
    assert (stuck == points[:1]).all()
    freed = path(points, points[:1], 5.01)
    assert np.linalg.norm(freed[-1]) < 0.3


def test_a_start_without_points_around_it_breaks_the_bound(path):
    """Theorem 1 says nothing about v_0; far from all points it never gets nearer."""
    points, truth = clusters(3, 2, 100)
    mean = points[truth == 0].mean(axis=0)
    start = mean[None] - np.array([[20.0, 0, 0]])
    lost = path(points, start, 7.0)
    assert (lost == start).all()
    found = path(points, mean[None] - np.array([[3.0, 0, 0]]), 7.0)
    assert np.linalg.norm(found[-1] - mean) < 1e-6


# Against misuse
# Shapes that do not fit are refused even where nothing checks annotations.
BARE: list[Any] = [
    inspect.unwrap(function)
    for function in (threshold_clustering, threshold_clustering_gram, quantile_radius)
]


def clip(**changes):
    given = {"points": jnp.ones((4, 2)), "centres": jnp.ones((2, 2))}
    BARE[0](**(given | {"num_rounds": 3, "radius": 1.0} | changes))


def of_products(gram):
    BARE[1](gram, np.ones((2, 4)) / 4, num_rounds=1, radius=1.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: clip(num_rounds=0), "`num_rounds` must be at least 1, got 0"),
        (lambda: clip(radius=-1.0), "`radius` must not be negative, got -1.0"),
        (lambda: clip(radius=np.nan), "`radius` must not be negative, got nan"),
        (
            lambda: clip(radius=np.ones(3)),
            r"`radius` must be a number, \[centres\]",
        ),
        (lambda: clip(radius=np.ones((2, 2))), "`radius` must be a number"),
        (lambda: clip(edge="strict"), "`edge` must be in"),
        (lambda: clip(centres_per_chunk=0), "`centres_per_chunk` must be at least 1"),
        (lambda: clip(points=jnp.ones((0, 2))), "`points` must be at least 1"),
        (lambda: clip(centres=jnp.ones((0, 2))), "`centres` must be at least 1"),
        (lambda: clip(centres=jnp.ones((2, 3))), "`centres` must have the features"),
        (lambda: of_products(np.ones((3, 3))), "`gram` must be square"),
        (lambda: of_products(np.ones((3, 4))), "`gram` must be square"),
        (lambda: quantile_radius(1.1), "`quantile` must be from 0 to 1"),
        (lambda: quantile_radius(np.nan), "`quantile` must be from 0 to 1"),
        (lambda: quantile_radius(0.5, factor=0.0), "`factor` must be positive"),
        (lambda: quantile_radius(0.5, variant="released"), "`variant` must be in"),
        (lambda: gap_radius("first"), "`gap` must be in"),
        (
            lambda: jax.jit(lambda q: BARE[2](q)(jnp.ones(3)))(0.5),
            "`quantile` and `factor` must be known",
        ),
    ],
)
def test_misuse_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
