"""Projection on the simplex and best mixtures, against exact solvers."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from prototype_rounds import least_by_enumeration, matrix
from scipy.optimize import minimize

from cfljax.algorithms.fedpac import best_mixtures, project_on_simplex

PROJECT = jax.jit(project_on_simplex)


@functools.cache
def mixtures(num_iterations):
    return jax.jit(functools.partial(best_mixtures, num_iterations=num_iterations))


def example(seed=0, number=6):
    generator = np.random.default_rng(seed)
    points = generator.normal(size=(number, 3)) + 5.0
    points[1] = points[0] + 0.1  # Two that are nearly alike.
    return points, generator.uniform(0.1, 1.0, number)


def solve(points, variances, allowed=None, num_iterations=1000):
    allowed = np.ones(len(points), bool) if allowed is None else allowed
    return mixtures(num_iterations)(
        jnp.asarray(points, "f4"), jnp.asarray(variances, "f4"), jnp.asarray(allowed)
    )


@pytest.mark.parametrize("solver", ["enumeration", "slsqp"])
def test_best_mixtures_against_exact_solvers(solver):
    points, variances = example()
    found = solve(points, variances)
    assert 4 < np.sum(np.asarray(found.weights) < 1e-6) < 25, "on faces"
    for i in range(len(points)):
        quadratic = matrix(points, variances, i)
        if solver == "enumeration":
            exact = least_by_enumeration(quadratic)
        else:
            exact = minimize(
                lambda a, quadratic=quadratic: a @ quadratic @ a,
                np.full(6, 1 / 6),
                method="SLSQP",
                bounds=[(0, 1)] * 6,
                constraints={"type": "eq", "fun": lambda a: a.sum() - 1},
                options={"ftol": 1e-14, "maxiter": 500},
            ).x
        np.testing.assert_allclose(found.weights[i], exact, atol=3e-5)
        assert np.sort(exact)[-2] > 0.01, "no corner"
        wrong = least_by_enumeration(matrix(points, variances, (i + 2) % 6))
        with pytest.raises(AssertionError):  # Control: another client's matrix.
            np.testing.assert_allclose(found.weights[i], wrong, atol=1e-2)


def test_the_gap_bounds_the_error():
    """Where the descent is stopped early, and where it is not."""
    points, variances = example()
    exact = [least_by_enumeration(matrix(points, variances, i)) for i in range(6)]
    for number, is_close in ((3, False), (1000, True)):
        found = solve(points, variances, num_iterations=number)
        for i in range(6):
            value = lambda a, i=i: a @ matrix(points, variances, i) @ a
            error = value(np.asarray(found.weights[i], float)) - value(exact[i])
            assert -1e-6 < error < found.gaps[i] + 1e-6
        assert bool(np.max(found.gaps) < 1e-5) == is_close


@pytest.mark.slow
def test_a_thousand_iterations_are_enough_for_many_clients():
    """Means of skewed classes of 100 clients with about 100 samples each, whose
    objective is then at most a thousandth above the least."""
    generator = np.random.default_rng(1)
    centres = np.maximum(generator.normal(size=(10, 64)), 0)
    shares = generator.dirichlet([0.3] * 10, size=100)
    points = (shares[:, :, None] * centres[None]).reshape(100, -1)
    points += generator.normal(size=points.shape) * 0.02
    variances = generator.uniform(0.2, 0.6, 100)
    found = solve(points, variances)
    weights = np.asarray(found.weights, float)
    values = np.sum((points - weights @ points) ** 2, axis=1) + weights**2 @ variances
    assert np.max(found.gaps / values) < 1e-3
    early = solve(points, variances, num_iterations=30)
    assert np.max(early.gaps / values) > 1e-2, "control"


def test_points_that_are_alike_are_weighed_by_precision():
    """`sum a_j^2 V_j` is least where a is proportional to 1 / V."""
    variances = np.array([0.5, 1.0, 2.0, 4.0])
    found = solve(np.full((4, 3), 7.0), variances)
    expected = 1 / variances / np.sum(1 / variances)
    np.testing.assert_allclose(found.weights, np.tile(expected, (4, 1)), atol=1e-5)
    exact = solve(np.eye(4) * 10, np.full(4, 1e-3))
    np.testing.assert_allclose(exact.weights, np.eye(4), atol=1e-4)
    nothing = solve(np.ones((4, 3)), np.zeros(4))  # Whatever: stays with equal ones.
    np.testing.assert_allclose(nothing.weights, np.full((4, 4), 0.25), atol=1e-6)


def test_who_is_not_allowed_may_hold_anything():
    points, variances = example()
    allowed = np.arange(6) != 2
    spoilt = points.copy()
    spoilt[2] = np.nan
    noisy = np.where(allowed, variances, np.inf)
    found = solve(spoilt, noisy, allowed)
    alone = solve(points[allowed], variances[allowed])
    kept = np.ix_(allowed, allowed)
    np.testing.assert_allclose(
        np.asarray(found.weights)[kept], alone.weights, atol=3e-5
    )
    assert np.all(np.asarray(found.weights)[:, 2] == 0)
    with pytest.raises(AssertionError):  # Control.
        everybody = np.asarray(solve(points, variances).weights)
        np.testing.assert_allclose(everybody[kept], alone.weights, atol=1e-3)


def test_projection_against_sorting():
    """The level by the sorted entries (Held, Wolfe, Crowder, 1974)."""
    points = np.random.default_rng(2).normal(size=(20, 7)) * 3
    points[0] = 0.0
    points[1] = [5, 5, 5, -9, -9, -9, -9]
    ranked = -np.sort(-points, axis=1)
    levels = (np.cumsum(ranked, axis=1) - 1) / np.arange(1, 8)
    last = np.sum(ranked > levels, axis=1) - 1
    expected = np.maximum(points - levels[np.arange(20), last][:, None], 0)
    found = PROJECT(jnp.asarray(points, "f4"), jnp.ones(7, bool))
    np.testing.assert_allclose(found, expected, atol=2e-6)
    np.testing.assert_allclose(np.sum(found, axis=1), 1, atol=1e-6)
    clipped = np.maximum(points, 0) + 1e-9  # Control: clipping and scaling is another.
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(
            clipped / clipped.sum(1)[:, None], expected, atol=0.1
        )
