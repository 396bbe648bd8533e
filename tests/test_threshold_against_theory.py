"""Threshold-Clustering obeys what is proved of it: exact laws and a corrected bound.

All of these hold for every set of points, random ones included, so that no check may
fail by chance: the means and variances in them are those of the points at hand.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.clustering.threshold import threshold_clustering

NUMBER, ROUNDS = 60, 60


@pytest.fixture(autouse=True, scope="module")
def double_precision():
    with jax.enable_x64(True):
        yield


def path(points, start, radius):
    """The centre before and after each round."""

    def move(centre, _):
        found = threshold_clustering(points, centre, num_rounds=1, radius=radius)
        return found.centres, found.centres[0]

    return jnp.vstack([start, jax.lax.scan(move, start, None, length=ROUNDS)[1]])


PATH: Any = jax.jit(path)


def clusters(seed, number, separation, law="gauss"):
    """Balanced clusters on a line, of total variance about 1 in three dimensions."""
    generator = np.random.default_rng(seed)
    if law == "gauss":
        noise = generator.normal(size=(NUMBER, 3))
    elif law == "student":
        noise = generator.standard_t(3, size=(NUMBER, 3)) / np.sqrt(3)
    else:  # Rare and far, all to one side.
        noise = 3 * (generator.random((NUMBER, 3)) < 0.1)
    truth = np.arange(NUMBER) % number
    points = noise / np.sqrt(3)
    points[:, 0] += separation * truth
    return points, truth


@pytest.mark.parametrize("number", [2, 4, 10])
def test_the_distance_to_the_mean_shrinks_by_one_less_the_share(number):
    """v_l - m = (1 - delta)^l (v_0 - m), where the ball holds the cluster and no more.

    Lemma 1 asks of the squared error only 1 - delta / 2.
    """
    points, truth = clusters(0, number, 100)
    mean = points[truth == 0].mean(axis=0)
    start = mean[None] + np.array([[1.0, -2, 2]])
    share = (1 - 1 / number) ** np.arange(ROUNDS + 1)
    expected = mean + share[:, None] * (start - mean)
    np.testing.assert_allclose(PATH(points, start, 20.0), expected, atol=1e-12)
    wide = np.asarray(PATH(points, start, 120.0))
    assert np.abs(wide[1:] - expected[1:]).max() > 1


BAD = 2  # Of 60: beta below delta / 12 for two clusters.


def instance(seed, separation, law):
    """Points with attackers on the edge of the last ball, a start, and the margins."""
    points, truth = clusters(seed, 2, separation, law)
    generator = np.random.default_rng([seed, 1])
    honest = np.arange(NUMBER) >= BAD
    own, other = (points[honest & (truth == cluster)] for cluster in (0, 1))
    mean = own.mean(axis=0)
    spread = np.sqrt(
        max(((p - p.mean(axis=0)) ** 2).sum(axis=1).mean() for p in (own, other))
    )
    gap = np.linalg.norm(other.mean(axis=0) - mean)
    delta, beta = len(own) / NUMBER, BAD / NUMBER
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
    return points, mean, start[None], spread, gap, delta, beta, radius, margins


def errors_and_bounds(seed, separation, law):
    """Errors |v_l - mu|, their bound, and the part of it that bad points have.

    Theorem 1 as corrected: with |v_0 - mu| <= tau / 2, 24 sigma^2 <= tau^2,
    tau <= Delta / 3, 48 sigma^2 <= delta Delta^2 and beta <= delta / 12,

        |v_l - mu| <= (1 - delta/2)^l |v_0 - mu| + 4 sigma^2 / tau
                      + 8 tau sigma^2 / (delta Delta^2) + 2 beta tau / delta.

    Chebyshev's inequality, all that its proof needs, holds for the points at hand with
    their own mean and variance.
    """
    found = instance(seed, separation, law)
    points, mean, start, spread, gap, delta, beta, radius, margins = found
    assert min(margins) >= 1
    errors = np.linalg.norm(np.asarray(PATH(points, start, radius)) - mean, axis=1)
    good = 4 * spread**2 / radius + 8 * radius * spread**2 / (delta * gap**2)
    shrunk = (1 - delta / 2) ** np.arange(ROUNDS + 1) * errors[0]
    bad = 2 * beta * radius / delta
    return errors, shrunk + good + bad, bad


@pytest.mark.parametrize("law", ["gauss", "student", "skew"])
def test_errors_stay_below_the_corrected_bound_of_theorem_1(law):
    for seed in range(4):
        for separation in (120, 3000):
            errors, bounds, bad = errors_and_bounds(seed, separation, law)
            assert (errors <= bounds * (1 + 1e-12)).all()
            if separation == 3000:  # Control: without their part it is false.
                assert errors[-1] > (bounds - bad)[-1]


def test_attackers_that_follow_the_edge_pull_by_their_odds():
    """Error beta tau / delta: bad points at v + tau u, anew in each round.

    So does the squared error of order beta^2 sigma Delta / delta come about. Above
    beta = delta, whoever follows the attackers loses the cluster.
    """

    def last(bad, radius):
        others = jnp.zeros((NUMBER, 3)).at[NUMBER // 2 :, 1].set(1000.0)

        def move(_, centre):
            edge = centre + jnp.array([[radius * (1 - 1e-9), 0, 0]])
            points = jnp.where(bad[:, None], edge, others)
            found = threshold_clustering(points, centre, num_rounds=1, radius=radius)
            return found.centres

        return jax.lax.fori_loop(0, 400, move, jnp.zeros((1, 3)))[0]

    run = jax.jit(last, static_argnums=1)
    for number in (1, 5, 10, 14, 16):
        error = np.linalg.norm(run(np.arange(NUMBER) < number, 2.0))
        odds = number / (NUMBER // 2 - number)
        if odds < 1:
            np.testing.assert_allclose(error, 2.0 * odds, rtol=1e-6)
        else:
            assert error > 100


def test_a_start_at_an_outlier_never_moves():
    """Why a start of bounded variance is not enough for Theorem 1.

    A law on {-s, 0, s} with s just above tau: from s the ball holds equal points
    only; from 0 the centre is at the cluster's mean for good.
    """
    points = np.zeros((NUMBER, 3))
    points[:3, 0], points[3:6, 0] = 5.005, -5.005
    stuck = np.asarray(PATH(points, points[:1], 5.0))
    assert (stuck == points[:1]).all()
    freed = np.asarray(PATH(points, points[:1], 5.01))
    assert np.linalg.norm(freed[-1]) < 0.3


def test_a_start_without_points_around_it_breaks_the_bound():
    """Theorem 1 says nothing about v_0; far from all points it never gets nearer."""
    points, truth = clusters(3, 2, 100)
    mean = points[truth == 0].mean(axis=0)
    start = mean[None] - np.array([[20.0, 0, 0]])
    lost = np.asarray(PATH(points, start, 7.0))
    assert (lost == start).all()
    found = np.asarray(PATH(points, mean[None] - np.array([[3.0, 0, 0]]), 7.0))
    assert np.linalg.norm(found[-1] - mean) < 1e-6
