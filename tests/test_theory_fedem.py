"""What the rows of FedEM compute, against Bayes, differences and the library."""

from fractions import Fraction

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import compiled
from scipy.stats import entropy, norm

from cfljax.algorithms import fedem
from cfljax.models import linear
from cfljax.statements import Preset, evaluate
from theory.fedem import answers, descent, expectation, stochastic
from theory.fedem.common import gibbs

WEIGHTS, LOSSES = np.array([[0.2, 0.5, 0.3]]), np.array([[1.0, 0.1, 3.0]])
GENERATOR = np.random.default_rng(0)
DATA = descent.draw(GENERATOR, 2, 0.3)
MODELS = GENERATOR.standard_normal((2, 3))


def mixture_loss(models, weights):
    """f, of weights `[clients, components]`."""
    return np.mean(gibbs.client_loss(weights[:, None], DATA.losses(models)))


# Against equations


def test_responsibilities_are_bayes_rule():
    joint = WEIGHTS * np.exp(-LOSSES)
    found = gibbs.responsibilities(WEIGHTS, LOSSES)
    np.testing.assert_allclose(found, joint / joint.sum(), rtol=1e-14)
    np.testing.assert_allclose(gibbs.client_loss(WEIGHTS, LOSSES), -np.log(joint.sum()))
    other = gibbs.responsibilities(WEIGHTS, LOSSES, temperature=2.0)
    assert not np.allclose(other, found, rtol=1e-2)


def test_divergence_is_relative_entropy():
    other = np.array([[0.6, 0.3, 0.1]])
    found = gibbs.divergence(WEIGHTS, other)
    np.testing.assert_allclose(found, entropy(WEIGHTS[0], other[0]), rtol=1e-14)
    sure = gibbs.divergence(np.array([[1.0, 0]]), np.array([[0.5, 0.5]]))
    assert sure == np.log(2)


def test_gradients_at_responsibilities_are_those_of_the_mixture():
    """By differences; those at equal shares are others."""
    weights = np.full((5, 2), 0.5)
    shares = gibbs.responsibilities(weights[:, None], DATA.losses(MODELS))
    step, slopes = 1e-6, np.zeros_like(MODELS)
    for place in np.ndindex(*MODELS.shape):
        moved = np.zeros_like(MODELS)
        moved[place] = step
        sides = [mixture_loss(MODELS + sign * moved, weights) for sign in (1, -1)]
        slopes[place] = (sides[0] - sides[1]) / (2 * step)
    found = np.mean(DATA.gradients(MODELS, shares), axis=0)
    np.testing.assert_allclose(found, slopes, rtol=1e-6, atol=1e-8)
    equal = np.mean(DATA.gradients(MODELS, np.full_like(shares, 0.5)), axis=0)
    assert not np.allclose(equal, slopes, rtol=1e-2)


def test_smoothness_bounds_the_change_of_every_clients_gradient():
    shares = GENERATOR.dirichlet([1, 1], (5, 20))
    ratios = []
    for _ in range(200):
        moved = GENERATOR.standard_normal(MODELS.shape)
        change = DATA.gradients(MODELS + moved, shares) - DATA.gradients(MODELS, shares)
        ratios.append(np.sqrt(np.sum(change**2, axis=(1, 2)) / np.sum(moved**2)))
    assert 0.3 * DATA.smoothness < np.max(ratios) <= DATA.smoothness


def test_answers_of_one_input_law_by_hand():
    pair = answers.Pair(0.3, 2.0, 0.0)
    # Var of the target given x is 1 + 4 pi (1 - pi) (2 x)^2.
    expected = 1 + 4 * 0.3 * 0.7 * 4
    np.testing.assert_allclose(pair.squared(pair.mixed(pair.means, 0.3)), expected)
    worse = pair.squared(pair.mixed(pair.means, 0.4))
    np.testing.assert_allclose(worse - expected, (0.1 * 2 * 2) ** 2)


def test_best_weights_follow_the_input_where_laws_differ():
    pair = answers.Pair(0.3, 1.0, 1.5)
    chance = 0.3 * norm.pdf(0.7) / (0.3 * norm.pdf(0.7) + 0.7 * norm.pdf(0.7, 1.5))
    found = np.interp(0.7, answers._PLACES, pair.best(pair.means))
    np.testing.assert_allclose(found, (2 * chance - 1) * 0.7, rtol=1e-4)
    assert pair.entropy(pair.best(pair.classes)) < pair.entropy(
        pair.mixed(pair.classes, 0.3)
    )


# Against theory


def test_f_falls_by_the_parts_that_the_row_names():
    gains = descent.maximised(DATA, MODELS, 10)
    assert np.all(gains.fallen > 0)
    np.testing.assert_allclose(
        gains.fallen, gains.weights + gains.models + gains.shares
    )
    tempered = descent.maximised(DATA, MODELS, 10, temperature=1.1)
    assert np.max(np.abs(tempered.fallen - np.sum(tempered[1:], axis=0))) > 1e-4


def test_one_step_to_the_least_of_a_quadratic_attains_the_rate():
    data = descent._isotropic()
    step = 1 / data.smoothness
    path = descent.stepped(
        data, np.array([[3.0]]), step_size=step, num_steps=1, num_rounds=1
    )
    np.testing.assert_allclose(path.average(), path.bound(data.smoothness, step, 1))
    less = path.bound(data.smoothness, step, 1, factor=Fraction(19, 10))
    assert path.average()[0] > less[0]


@pytest.mark.long
def test_clients_of_unlike_curvature_settle_beside_the_least_loss():
    """Where the mean of their local ends does not move: r_i = 1 - (1 - eta L_i)^E."""
    step, steps, rounds = 0.1, 5, 300
    path, _ = descent._two(step, steps, rounds, 1.0, 2.0)
    first, second = (1 - (1 - step * one) ** steps for one in (1.0, 0.5))
    gradient = (first / 2 - second) / (first + second)
    np.testing.assert_allclose(path.squares[-1], gradient**2, rtol=1e-9)
    np.testing.assert_allclose(descent.left_over(step, steps, 1.0, 2.0), gradient**2)
    assert descent.left_over(step, 1, 1.0, 2.0) < 1e-30
    alone, _ = descent._two(step, 1, rounds, 1.0, 2.0)
    assert alone.squares[-1] < 1e-12 < path.squares[-1]


@pytest.mark.long
@pytest.mark.parametrize("power", [1, 2])
def test_falling_step_sizes_have_the_rate_of_root_k(power):
    """E eta = 1/sqrt(K): four times the rounds halve the mean square; a fixed one does
    not (the control)."""
    means = []
    for rounds in (300, 1200):
        size = rounds**-0.5 if power == 1 else 0.5
        path, bound = descent._two(size / 5, 5, rounds, 1.0, 2.0)
        assert path.average()[-1] <= bound[-1]
        means.append(path.average()[-1])
    assert (means[1] < 0.6 * means[0]) == (power == 1)


def test_moments_under_errors_of_gradients_are_those_of_simulations():
    """Two clients with errors of either sign, within five standard errors."""
    step, steps, rounds, deviation, trials = 0.1, 3, 30, 1.5, 20_000
    generator = np.random.default_rng(4)
    curvatures, places = np.array([1.0, 0.5]), np.array([1.0, -1.0])
    server, squares = np.zeros(trials), np.zeros(trials)
    for _ in range(rounds):
        apart = server[:, None] - places
        squares += np.mean(curvatures * apart, axis=1) ** 2 / rounds
        for _ in range(steps):
            errors = generator.choice([-deviation, deviation], (trials, 2))
            apart = apart - step * (curvatures * apart + errors)
        server = np.mean(apart + places, axis=1)
    at = (step, steps, rounds, deviation, 1.0, 2.0)
    averages, fallen = stochastic.expected(*at)
    losses = np.mean(curvatures * (server[:, None] - places) ** 2, axis=1) / 2
    for found, law in ((squares, averages[-1]), (0.375 - losses, fallen[-1])):
        error = np.std(found) / np.sqrt(trials)
        assert abs(np.mean(found) - law) < 5 * error
        assert error < 0.02 * law or abs(law) < 1
    other, _ = stochastic.expected(step, steps, rounds, 1.4, 1.0, 2.0)
    assert abs(np.mean(squares) - other[-1]) > 5 * np.std(squares) / np.sqrt(trials)


def test_without_errors_the_rates_agree():
    averages, fallen = stochastic.expected(0.05, 4, 50, 0.0, 1.0, 2.0)
    path, _ = descent._two(0.05, 4, 50, 1.0, 2.0)
    np.testing.assert_allclose(averages, path.average(), rtol=1e-12)
    np.testing.assert_allclose(fallen, path.fallen, rtol=1e-12)


# Against reference: the library


@pytest.mark.long
def test_rounds_are_those_of_the_library():
    step, steps = 0.02, 3
    algorithm = compiled(
        fedem(linear(3), num_clusters=2, step_size=step, num_steps=steps)
    )
    data = by_hand.padded(DATA.inputs, DATA.targets, [20] * 5)
    state = algorithm.init(jax.random.key(0), data)
    state = state._replace(models=jnp.asarray(MODELS, jnp.float32))
    found = []
    for seed in range(3):
        state, _ = algorithm.step(jax.random.key(seed), state, data)
        weights = np.exp(np.asarray(state.log_weights, float))
        found.append(mixture_loss(np.asarray(state.models, float), weights))
    start = mixture_loss(MODELS, np.full((5, 2), 0.5))
    run = lambda steps: descent.stepped(
        DATA, MODELS, step_size=step, num_steps=steps, num_rounds=3
    )
    np.testing.assert_allclose(start - np.array(found), run(steps).fallen, rtol=1e-4)
    assert not np.allclose(start - np.array(found), run(2).fallen, rtol=1e-2)


# Against itself


@pytest.mark.long
def test_the_librarys_shares_and_weights_are_the_rows_own():
    found = expectation._drawn(Preset())
    np.testing.assert_allclose(
        found.new_weights, found.shares.mean(axis=1), rtol=2e-5, atol=1e-7
    )
    again = expectation._drawn(Preset(seed=1))
    assert not np.allclose(again.losses, found.losses)


@pytest.mark.parametrize(
    "row",
    [
        "fedem.shares",
        "fedem.rate.stochastic",
        "fedem.answers",
        pytest.param("fedem.fixed", marks=pytest.mark.long),
    ],
)
def test_rows_hold_at_their_defaults(row):
    assert evaluate(row)["verdict"].item() == "holds"


def test_what_is_not_claimed_is_said():
    """Components with inputs of their own, and steps beyond 1/L."""
    beside = [
        evaluate("fedem.answers", shift=0.5),
        evaluate("fedem.rate.stochastic", step_size=0.5, num_steps=3),
    ]
    for found in beside:
        assert found["margin"].min() < 0
        assert found["verdict"].item().startswith("not claimed")
    assert beside[0]["truth"] > beside[0]["bound"]
