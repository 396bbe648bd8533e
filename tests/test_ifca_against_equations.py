"""One round of IFCA by hand in NumPy, and its rules for the hard cases."""

from typing import Any

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from cfljax.algorithms.fedavg import State as FedAvgState
from cfljax.algorithms.fedavg import fedavg
from cfljax.algorithms.ifca import State, ifca
from cfljax.algorithms.oracle import State as OracleState
from cfljax.algorithms.oracle import oracle
from cfljax.base.types import NO_CLUSTER, ClientData
from cfljax.clustering.distances import least_distance
from cfljax.data import mixed_linear
from cfljax.federated.evaluate import choose_cluster
from cfljax.federated.training import Training
from cfljax.models import linear

CLIENTS, CLUSTERS, SAMPLES, FEATURES, STEP = 6, 3, 8, 4, 0.05


@pytest.fixture(scope="module")
def problem():
    return mixed_linear(
        jax.random.key(2),
        num_clients=CLIENTS,
        num_clusters=CLUSTERS,
        num_samples=SAMPLES,
        num_features=FEATURES,
        separation=2.0,
        noise=0.3,
    )


@pytest.fixture(scope="module")
def models():
    return np.random.default_rng(0).normal(size=(CLUSTERS, FEATURES)).astype("f4")


def losses_by_hand(data, models):
    """F_i(theta_j), one client and model at a time."""
    losses = np.empty((data.mask.shape[0], len(models)))
    for i, (x, y) in enumerate(zip(data.inputs, data.targets, strict=True)):
        for j, theta in enumerate(models):
            losses[i, j] = np.mean((np.asarray(x) @ theta - np.asarray(y)) ** 2)
    return losses


def gradient_by_hand(data, client, theta):
    x, y = np.asarray(data.inputs[client]), np.asarray(data.targets[client])
    return 2 / len(y) * x.T @ (x @ theta - y)


@pytest.mark.parametrize("normalise", ["all", "participants", "cluster"])
def test_gradient_round_against_equations(problem, models, normalise):
    data, _ = problem
    losses = losses_by_hand(data, models)
    chosen = losses.argmin(axis=1)
    expected = models.copy()
    for j in range(CLUSTERS):
        members = np.flatnonzero(chosen == j)
        divisor = max(len(members), 1) if normalise == "cluster" else CLIENTS
        total = sum((gradient_by_hand(data, i, models[j]) for i in members), start=0.0)
        expected[j] -= STEP / divisor * total
    algorithm = ifca(
        linear(FEATURES),
        num_clusters=CLUSTERS,
        step_size=STEP,
        normalise=normalise,
    )
    state, info = algorithm.step(jax.random.key(0), State(jnp.asarray(models)), data)
    np.testing.assert_allclose(info.losses, losses, rtol=1e-5)
    np.testing.assert_array_equal(info.assignment, chosen)
    np.testing.assert_allclose(state.models, expected, rtol=1e-5, atol=1e-6)


def test_model_round_against_equations(problem, models):
    data, _ = problem
    chosen = losses_by_hand(data, models).argmin(axis=1)
    trained = []
    for i in range(CLIENTS):
        theta = models[chosen[i]].copy()
        for _ in range(4):
            theta = theta - STEP * gradient_by_hand(data, i, theta)
        trained.append(theta)
    algorithm = ifca(
        linear(FEATURES),
        num_clusters=CLUSTERS,
        step_size=STEP,
        option="model",
        num_steps=4,
    )
    state, _ = algorithm.step(jax.random.key(0), State(jnp.asarray(models)), data)
    for j in range(CLUSTERS):
        members = np.flatnonzero(chosen == j)
        mean = np.mean([trained[i] for i in members], axis=0) if len(members) else 0
        expected = mean if len(members) else models[j]
        np.testing.assert_allclose(state.models[j], expected, rtol=1e-5, atol=1e-6)


def test_participants_divide_by_their_number(problem, models):
    data, _ = problem
    settings = {"num_clusters": CLUSTERS, "step_size": STEP, "participation": 0.5}
    start, key = State(jnp.asarray(models)), jax.random.key(5)
    moves = {}
    for normalise in ("all", "participants"):
        algorithm = ifca(linear(FEATURES), normalise=normalise, **settings)
        state, info = algorithm.step(key, start, data)
        moves[normalise] = np.asarray(state.models) - models
    asked = np.asarray(info.assignment) != NO_CLUSTER
    assert asked.sum() == 3
    np.testing.assert_array_equal(np.isnan(info.losses).all(axis=1), ~asked)
    np.testing.assert_allclose(
        moves["participants"], 2 * moves["all"], rtol=1e-4, atol=1e-6
    )
    others = [
        ifca(linear(FEATURES), **settings).step(k, start, data)[1].assignment
        for k in jax.random.split(key, 8)
    ]
    assert len({tuple(np.asarray(a) == NO_CLUSTER) for a in others}) > 1


def test_resample_trains_on_the_second_half(problem, models):
    data, _ = problem
    first = jax.tree.map(lambda leaf: leaf[:, : SAMPLES // 2], data)
    second = jax.tree.map(lambda leaf: leaf[:, SAMPLES // 2 :], data)
    algorithm = ifca(
        linear(FEATURES),
        num_clusters=CLUSTERS,
        step_size=STEP,
        resample=True,
    )
    state, info = algorithm.step(jax.random.key(0), State(jnp.asarray(models)), data)
    losses = losses_by_hand(first, models)
    np.testing.assert_allclose(info.losses, losses, rtol=1e-5)
    expected = models.copy()
    for i, j in enumerate(losses.argmin(axis=1)):
        expected[j] -= STEP / CLIENTS * gradient_by_hand(second, i, models[j])
    np.testing.assert_allclose(state.models, expected, rtol=1e-5, atol=1e-6)


def test_ties_go_to_the_lowest_index():
    losses = jnp.array([[2.0, 1.0, 1.0], [3.0, 3.0, 3.0]])
    np.testing.assert_array_equal(choose_cluster(losses), [1, 0])


def test_what_is_not_finite_is_never_chosen():
    nan, inf = jnp.nan, jnp.inf
    losses = jnp.array([[nan, 5.0, 7.0], [-inf, inf, 2.0], [nan, inf, -inf]])
    np.testing.assert_array_equal(choose_cluster(losses), [1, 2, NO_CLUSTER])
    assert np.argmin(np.asarray(losses[0])) == 0  # What a plain argmin would do.


@pytest.mark.parametrize("option", ["gradient", "model"])
def test_a_diverged_model_captures_nobody(problem, models, option):
    data, _ = problem
    broken = models.copy()
    broken[0] = np.nan
    algorithm = ifca(
        linear(FEATURES),
        num_clusters=CLUSTERS,
        step_size=STEP,
        option=option,
    )
    state, info = algorithm.step(jax.random.key(0), State(jnp.asarray(broken)), data)
    assert set(np.asarray(info.assignment)) <= {1, 2}
    assert np.isnan(state.models[0]).all()
    assert np.isfinite(state.models[1:]).all()


@pytest.mark.parametrize("option", ["gradient", "model"])
def test_an_empty_cluster_keeps_its_model(problem, models, option):
    data, _ = problem
    far = models.copy()
    far[1] = 1e3
    algorithm = ifca(
        linear(FEATURES),
        num_clusters=CLUSTERS,
        step_size=STEP,
        option=option,
    )
    state, info = algorithm.step(jax.random.key(0), State(jnp.asarray(far)), data)
    assert 1 not in np.asarray(info.assignment)
    np.testing.assert_array_equal(state.models[1], far[1])


@pytest.mark.parametrize("option", ["gradient", "model"])
def test_a_client_without_samples_abstains(problem, models, option):
    data, _ = problem
    mask = data.mask.at[2].set(False)
    algorithm = ifca(
        linear(FEATURES),
        num_clusters=CLUSTERS,
        step_size=STEP,
        option=option,
    )
    start = State(jnp.asarray(models))
    state, info = algorithm.step(
        jax.random.key(0), start, ClientData(data.inputs, data.targets, mask)
    )
    assert info.assignment[2] == NO_CLUSTER
    assert np.isfinite(state.models).all()


@pytest.mark.parametrize("option", ["gradient", "model"])
@pytest.mark.parametrize("weights", ["clients", "samples"])
def test_weights_against_equations(problem, models, option, weights):
    """FedAvg from one model: a mean by clients, or by their numbers of samples."""
    data, _ = problem
    kept = np.array([8, 2, 5, 8, 1, 3])
    mask = np.arange(SAMPLES)[None, :] < kept[:, None]
    start = models[0]
    moved = []
    for i, n in enumerate(kept):
        x = np.asarray(data.inputs[i, :n])
        error = x @ start - np.asarray(data.targets[i, :n])
        moved.append(start - STEP * 2 / n * x.T @ error)
    share = kept if weights == "samples" else np.ones(CLIENTS)
    expected = np.average(moved, axis=0, weights=share)
    algorithm = fedavg(linear(FEATURES), step_size=STEP, option=option, weights=weights)
    state, _ = algorithm.step(
        jax.random.key(0),
        FedAvgState(jnp.asarray(start)),
        ClientData(data.inputs, data.targets, jnp.asarray(mask)),
    )
    np.testing.assert_allclose(state.model, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("option", ["gradient", "model"])
def test_one_cluster_against_itself_is_fedavg(problem, option):
    data, _ = problem
    task, key = linear(FEATURES), jax.random.key(1)
    one = ifca(task, num_clusters=1, step_size=STEP, option=option)
    other = fedavg(task, step_size=STEP, option=option)
    left, _ = one.step(key, one.init(key, data), data)
    right, _ = other.step(key, other.init(key, data), data)
    np.testing.assert_allclose(left.models[0], right.model, rtol=1e-6)


def test_right_identities_against_itself_are_the_oracle(problem):
    data, truth = problem
    assert least_distance(truth.models) > 1  # Or no rule could tell them apart.
    settings = {"num_clusters": CLUSTERS, "step_size": STEP}
    start = State(truth.models + 0.01)
    task, key = linear(FEATURES), jax.random.key(1)
    state, info = ifca(task, **settings).step(key, start, data)
    np.testing.assert_array_equal(info.assignment, truth.clusters)
    told = oracle(task, clusters=truth.clusters, **settings)
    expected, _ = told.step(key, OracleState(start.models, truth.clusters), data)
    np.testing.assert_allclose(state.models, expected.models, rtol=1e-6)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"num_clusters": 0}, "num_clusters"),
        ({"num_steps": 0}, "num_steps"),
        ({"option": "gradient", "num_steps": 2}, "num_steps"),
        ({"participation": 0.0}, "participation"),
        ({"participation": 1.5}, "participation"),
    ],
)
def test_constructor_names_misuse(changes, named):
    arguments = {"num_clusters": 2, "step_size": 0.1} | changes
    with pytest.raises(ValueError, match=named):
        ifca(linear(3), **arguments)


@pytest.mark.parametrize("named", ["option", "normalise", "weights", "variant"])
def test_unknown_words_are_named(named):
    arguments: dict[str, Any] = {"step_size": 0.1, named: "neither"}
    with pytest.raises(ValueError, match=f"`{named}` must be in"):
        Training(**arguments)


def test_random_first_round_then_evaluation(problem):
    data, truth = problem
    algorithm = ifca(
        linear(FEATURES),
        num_clusters=CLUSTERS,
        step_size=STEP,
        first_round="random",
    )
    state = algorithm.init(jax.random.key(0), data)._replace(models=truth.models)
    step = jax.jit(algorithm.step)
    drawn = []
    for seed in range(20):
        after, info = step(jax.random.key(seed), state, data)
        drawn.append(np.asarray(info.assignment))
        assert not np.any(np.isnan(info.losses))
    counts = np.bincount(np.ravel(drawn), minlength=CLUSTERS)
    assert np.all(abs(counts - 40) < 4 * np.sqrt(120 * 2 / 9))  # 120 draws of 3.
    assert np.any(np.array(drawn) != np.asarray(truth.clusters)[None])
    _, info = step(jax.random.key(0), after._replace(models=truth.models), data)
    np.testing.assert_array_equal(info.assignment, truth.clusters)


def test_identical_models_train_the_first_alone(problem):
    data, _ = problem
    settings: dict[str, Any] = {"num_clusters": CLUSTERS, "step_size": STEP}
    identical = ifca(linear(FEATURES), start="identical", **settings)
    state = identical.init(jax.random.key(0), data)
    assert np.ptp(np.asarray(state.models), axis=0).max() == 0
    _, info = identical.step(jax.random.key(1), state, data)
    assert set(np.asarray(info.assignment).tolist()) == {0}
    other = ifca(linear(FEATURES), **settings).init(jax.random.key(0), data)
    assert np.ptp(np.asarray(other.models), axis=0).max() > 0


def test_clients_flee_from_a_trained_model_to_its_untouched_copy(problem):
    """The majority draws the first of identical models away from the others, who then
    lose less under the next one, and train that."""
    data, _ = problem
    signs = np.where(np.arange(CLIENTS) < 4, 1, -1).astype("f4")[:, None]
    data = data._replace(targets=data.inputs.sum(axis=2) * signs)
    algorithm = ifca(
        linear(FEATURES), num_clusters=CLUSTERS, step_size=STEP, start="identical"
    )
    state = State(jnp.zeros((CLUSTERS, FEATURES)))
    step = jax.jit(algorithm.step)
    for assigned in ([0] * 6, [0] * 4 + [1] * 2, [0] * 4 + [1] * 2):
        state, info = step(jax.random.key(0), state, data)
        assert info.assignment.tolist() == assigned
    trained = np.abs(np.asarray(state.models)).max(axis=1) > 0
    assert trained.tolist() == [True, True, False]


def test_option_follows_the_number_of_steps(problem):
    data, _ = problem
    given: dict[str, Any] = {"num_clusters": CLUSTERS, "step_size": STEP}

    def after(**changes):
        algorithm = ifca(linear(FEATURES), **(given | changes))
        state = algorithm.init(jax.random.key(0), data)
        return jax.jit(algorithm.step)(jax.random.key(1), state, data)[0].models

    one, several = after(), after(num_steps=5)
    np.testing.assert_array_equal(one, after(option="gradient"))
    np.testing.assert_array_equal(several, after(option="model", num_steps=5))
    assert np.abs(one - after(option="model")).max() > 1e-3  # Control.


@pytest.mark.parametrize("named", ["first_round", "start"])
def test_unknown_starts_are_named(named):
    arguments: dict[str, Any] = {named: "neither"}
    with pytest.raises((ValueError, jaxtyping.TypeCheckError), match=named):
        ifca(linear(3), num_clusters=2, step_size=0.1, **arguments)
