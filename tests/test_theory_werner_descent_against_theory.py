"""Runs of Federated- and Momentum-Clustering against rule (4) and known laws."""

import numpy as np
import pytest

from theory.statement import Preset
from theory.werner import (
    momentum_runs,
    one_client,
    plane_runs,
    theorem3,
    theorem4_proof,
)
from theory.werner.descent_families import Level, corrected, printed
from theory.werner.one_client import Cluster
from theory.werner.population_map import Mixture, settle
from theory.werner.theorem4 import pair

RNG = np.random.default_rng(0)


def crowd(trials: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points all over the place, so that balls win and lose members on the way."""
    places = RNG.normal(size=(trials, 30)) * RNG.choice([0.3, 1, 5], size=(trials, 1))
    masses = RNG.dirichlet(np.ones(30)) * 0.9
    return places, masses, RNG.normal(size=trials)


@pytest.mark.parametrize("push", [0.0, 0.04, -0.1])
def test_settled_centres_follow_rule_4(push):
    places, masses, starts = crowd(300)
    for rounds in (1, 2, 7, 60):
        found = one_client.settled(
            places, masses, starts, 0.8, num_rounds=rounds, push=push
        )
        everywhere = np.broadcast_to(masses, places.shape)
        plain = settle(
            Mixture(places, everywhere), starts, 0.8, num_rounds=rounds, push=push
        )
        np.testing.assert_allclose(found, plain, rtol=0, atol=1e-12)


def test_a_jump_over_a_change_of_members_would_show():
    """Control: with the members of round 1 for ever the centres are elsewhere."""
    places, masses, starts = crowd(300)
    found = one_client.settled(places, masses, starts, 0.8, num_rounds=60)
    inside = np.abs(places - starts[:, None]) <= 0.8
    weight = np.sum(masses * inside, axis=1)
    mean = np.sum(masses * inside * places, axis=1) / np.maximum(weight, 1e-300)
    frozen = mean + (1 - weight) ** 60 * (starts - mean)
    assert np.sum(np.abs(found - frozen) > 0.01) > 50


def test_mean_square_is_that_of_the_recursion():
    start, step, first, second, rounds = 1.3, 0.4, 0.2, 0.5, 25
    mean, spread, squares = start, 0.0, []
    for _ in range(rounds):
        squares.append(mean**2 + spread)
        mean = (1 - step) * mean - step * first
        spread = (1 - step) ** 2 * spread + step**2 * (second - first**2)
    found = one_client.mean_square(start, step, first, second, rounds)
    assert found == pytest.approx(np.mean(squares), rel=1e-12)
    found = one_client.mean_square(start, 1.0, first, second, rounds)
    last = (start**2 + (rounds - 1) * second) / rounds
    assert found == pytest.approx(last, rel=1e-12)


def test_moments_of_e_tell_the_mean_square_of_whole_runs():
    """Algorithm 2 step by step, with bad clients, against the closed form."""
    cluster, rounds, trials, step = Cluster(bad=2), 12, 4000, 0.5
    radius = cluster.radius(1.0)
    errors = one_client.centre_errors(
        cluster, RNG.normal(size=(trials, cluster.good)), radius
    )
    found = one_client.moments(errors, points=1)
    ends = one_client.mean_square_between(2.0, step, found, float(rounds))
    gradient, squares = np.full(trials, 2.0), np.zeros(trials)
    for _ in range(rounds):
        squares += gradient**2 / rounds
        noise = RNG.normal(size=(trials, cluster.good))
        centre = gradient + one_client.centre_errors(cluster, noise, radius)
        gradient = gradient - step * centre
    error = np.std(squares) / np.sqrt(trials)
    assert ends[0] - 5 * error <= np.mean(squares) <= ends[1] + 5 * error
    assert ends[1] - ends[0] < 0.1 * ends[0]


def test_sure_members_give_the_known_error():
    """e = (1 - delta)^l xi_i + (1 - (1 - delta)^l) (mean + beta tau/delta)."""
    cluster = Cluster(bad=2)
    noise = RNG.uniform(-1, 1, size=(50, cluster.good))
    radius = cluster.radius(1.0)
    found = one_client.centre_errors(cluster, noise, radius)
    kept = (1 - cluster.delta) ** cluster.num_rounds
    pull = cluster.beta * radius / cluster.delta
    exact = kept * noise[:, 0] + (1 - kept) * (np.mean(noise, axis=1) + pull)
    np.testing.assert_allclose(found, exact, atol=1e-12)
    assert np.all(np.abs(found - noise[:, 0]) > 1e-3)


def test_bounds_by_hand():
    level = Level(1.0, Cluster(10, 8, 2, 40.0, 2.0, 4.0), start=3.0, rounds=50.0)
    assert level.cluster.delta == 0.5 and level.cluster.beta == 0.1
    assert level.cluster.rho == 1.0
    assert printed(level) == pytest.approx(np.sqrt((0.4 + 0.2 + 8.0) / 50))
    noise = 1 / 10 + 1 / (0.5 * 40) + 0.01 * 40 / 0.5
    assert corrected(level) == pytest.approx(4.5 / 50 + noise)
    assert level.radius == pytest.approx(np.sqrt(0.5 * 2 * 40))
    closer = level._replace(by_batch=True)
    assert closer.radius == pytest.approx(np.sqrt(0.5 * 1 * 40))


def test_clusters_of_the_plane_meet_assumption_4():
    for similarity in (0.1, 0.5, 1.0, 2.0, 4.0):
        run = plane_runs.Plane(similarity, 1.0)
        slopes, masses = plane_runs.slopes((run,))
        assert np.sum(masses) == pytest.approx(run.share)
        assert np.sum(masses * slopes) == pytest.approx(run.share)
        assert np.max(np.abs(slopes - 1)) == pytest.approx(similarity)
        assert np.all(slopes >= 0) and np.all(masses >= 0)


def test_a_captured_client_ends_where_the_average_gradient_vanishes():
    """delta x + (1 - delta) (x - 2 R) = 0 at x = 2 R (1 - delta) = 150."""
    ends = plane_runs.follow(
        (plane_runs.Plane(2.0, 4.0), plane_runs.Plane(0.5, 4.0)), 300
    )[:, -1]
    assert np.sqrt(ends[0]) == pytest.approx(150, rel=1e-3)
    assert ends[1] < 1e-20


def test_noise_in_the_plane_is_averaged_over_the_cluster():
    squares = theorem3.noisy_runs(Preset(), np.array([0.0]), 40)[0]
    settled = np.mean(squares[:, 20:])
    # e has variance sigma^2/8, of which x = x - e/2 keeps a third.
    assert settled == pytest.approx(1 / 24, rel=0.1)


def test_momenta_next_to_a_sure_ball_are_those_of_one_momentum_run():
    cluster = Cluster(good=6, other=6, separation=1e6)
    runs = [momentum_runs.Run(cluster, 9, 0.2, 0.4, 1.5)]
    squares = momentum_runs.follow(
        runs, RNG, lambda stream, shape: np.zeros(shape), trials=2
    )
    gradient, momentum, exact = 1.5, 0.0, []
    for _ in range(9):
        exact.append(gradient**2)
        momentum += 0.4 * (gradient - momentum)
        gradient -= 0.2 * momentum
    np.testing.assert_allclose(squares[0, 1], exact, rtol=1e-9)
    mean = momentum_runs.mean_squares(runs, squares)[0, 0]
    assert mean == pytest.approx(np.mean(exact), rel=1e-9)
    _, alike = pair(np.array([0.2]), np.array([0.4]), 9)
    np.testing.assert_allclose(1.5**2 * alike[0], exact, rtol=1e-12)


def test_the_least_alpha_is_the_root_of_two():
    step = np.logspace(-6, -0.2, 2000)
    root = np.sqrt(2) * (1 + 1e-9)
    steps = step[root * step <= 1]
    good = theorem4_proof.absorption(steps, root * steps)
    assert np.all(good <= (1 - steps) / 2)
    bad = theorem4_proof.absorption(steps, 1.41 * steps)
    assert np.any(bad > (1 - steps) / 2)


def test_absorption_is_the_sum_of_its_recursion():
    step, alpha, velocity = 0.2, 0.35, RNG.normal(size=4000) ** 2
    velocity[2000:] = 0
    error, total = 0.0, 0.0
    for square in velocity:
        error = (1 - alpha) ** 2 * (1 + alpha) * (error + step**2 / alpha * square)
        total += error
    bound = theorem4_proof.absorption(np.array([step]), np.array([alpha]))[0]
    assert total == pytest.approx(bound * np.sum(velocity), rel=1e-9)
