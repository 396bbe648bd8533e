"""IFCA: rounds by hand in NumPy, its rules for hard cases, and released iterates."""

import functools
import json
from typing import Any

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import compiled, misuse, padded

from cfljax import engine
from cfljax.algorithms.fedavg import State as FedAvgState
from cfljax.algorithms.fedavg import fedavg
from cfljax.algorithms.ifca import State, first_history, ifca, is_settled, remember
from cfljax.algorithms.oracle import State as OracleState
from cfljax.algorithms.oracle import oracle
from cfljax.base.types import NO_CLUSTER, ClientData
from cfljax.clustering.distances import least_distance
from cfljax.data import mixed_linear
from cfljax.federated.training import Training
from cfljax.models import linear

CLIENTS, CLUSTERS, SAMPLES, FEATURES, STEP = 6, 3, 8, 4, 0.05


DATA, TRUTH = mixed_linear(
    jax.random.key(2),
    num_clients=CLIENTS,
    num_clusters=CLUSTERS,
    num_samples=SAMPLES,
    num_features=FEATURES,
    separation=2.0,
    noise=0.3,
)
MODELS = np.random.default_rng(0).normal(size=(CLUSTERS, FEATURES)).astype("f4")
SETTINGS: dict[str, Any] = {"num_clusters": CLUSTERS, "step_size": STEP}
KEY = jax.random.key(0)


@functools.cache
def build(**changes):
    return compiled(ifca(linear(FEATURES), **(SETTINGS | changes)))


def one_round(models=MODELS, data=DATA, key=KEY, **changes):
    """State and info after a round from these models."""
    return build(**changes).step(key, State(jnp.asarray(models)), data)


def losses_by_hand(data, models):
    """F_i(theta_j), one client and model at a time."""
    of = functools.partial(by_hand.loss, data)
    return np.array([[of(i, theta) for theta in models] for i in range(CLIENTS)])


# Against equations


@pytest.mark.parametrize("normalise", ["all", "participants", "cluster"])
def test_gradient_round_against_equations(normalise):
    losses = losses_by_hand(DATA, MODELS)
    chosen = losses.argmin(axis=1)
    expected = MODELS.copy()
    for j in range(CLUSTERS):
        members = np.flatnonzero(chosen == j)
        divisor = max(len(members), 1) if normalise == "cluster" else CLIENTS
        total = sum((by_hand.gradient(DATA, i, MODELS[j]) for i in members), start=0.0)
        expected[j] -= STEP / divisor * total
    state, info = one_round(normalise=normalise)
    np.testing.assert_allclose(info.losses, losses, rtol=1e-5)
    np.testing.assert_array_equal(info.assignment, chosen)
    np.testing.assert_allclose(state.models, expected, rtol=1e-5, atol=1e-6)


def test_model_round_against_equations():
    chosen = losses_by_hand(DATA, MODELS).argmin(axis=1)
    train = functools.partial(by_hand.trained, DATA, step_size=STEP, num_steps=4)
    trained = np.array([train(i, MODELS[j]) for i, j in enumerate(chosen)])
    state, _ = one_round(option="model", num_steps=4)
    for j in range(CLUSTERS):
        members = chosen == j
        expected = trained[members].mean(axis=0) if members.any() else MODELS[j]
        np.testing.assert_allclose(state.models[j], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.long
def test_participants_divide_by_their_number():
    half = functools.partial(one_round, participation=0.5)
    key, moves = jax.random.key(5), {}
    for normalise in ("all", "participants"):
        state, info = half(key=key, normalise=normalise)
        moves[normalise] = np.asarray(state.models) - MODELS
    asked = np.asarray(info.assignment) != NO_CLUSTER
    assert asked.sum() == 3
    np.testing.assert_array_equal(np.isnan(info.losses).all(axis=1), ~asked)
    np.testing.assert_allclose(
        moves["participants"], 2 * moves["all"], rtol=1e-4, atol=1e-6
    )
    others = [half(key=k)[1].assignment for k in jax.random.split(key, 8)]
    assert len({tuple(np.asarray(a) == NO_CLUSTER) for a in others}) > 1


def test_resample_trains_on_the_second_half():
    first = jax.tree.map(lambda leaf: leaf[:, : SAMPLES // 2], DATA)
    second = jax.tree.map(lambda leaf: leaf[:, SAMPLES // 2 :], DATA)
    state, info = one_round(resample=True)
    losses = losses_by_hand(first, MODELS)
    np.testing.assert_allclose(info.losses, losses, rtol=1e-5)
    expected = MODELS.copy()
    for i, j in enumerate(losses.argmin(axis=1)):
        expected[j] -= STEP / CLIENTS * by_hand.gradient(second, i, MODELS[j])
    np.testing.assert_allclose(state.models, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("option", ["gradient", "model"])
def test_a_diverged_model_captures_nobody(option):
    broken = MODELS.copy()
    broken[0] = np.nan
    state, info = one_round(broken, option=option)
    assert set(np.asarray(info.assignment)) <= {1, 2}
    assert np.isnan(state.models[0]).all()
    assert np.isfinite(state.models[1:]).all()


@pytest.mark.parametrize("option", ["gradient", "model"])
def test_an_empty_cluster_keeps_its_model(option):
    far = MODELS.copy()
    far[1] = 1e3
    state, info = one_round(far, option=option)
    assert 1 not in np.asarray(info.assignment)
    np.testing.assert_array_equal(state.models[1], far[1])


@pytest.mark.parametrize("option", ["gradient", "model"])
def test_a_client_without_samples_abstains(option):
    data = DATA._replace(mask=DATA.mask.at[2].set(False))
    state, info = one_round(data=data, option=option)
    assert info.assignment[2] == NO_CLUSTER
    assert np.isfinite(state.models).all()


@pytest.mark.long
@pytest.mark.parametrize("option", ["gradient", "model"])
@pytest.mark.parametrize("weights", ["clients", "samples"])
def test_weights_against_equations(option, weights):
    """FedAvg from one model: a mean by clients, or by their numbers of samples."""
    kept = np.array([8, 2, 5, 8, 1, 3])
    data = padded(*DATA[:2], kept)
    start = MODELS[0]
    moved = [start - STEP * by_hand.gradient(data, i, start) for i in range(CLIENTS)]
    share = kept if weights == "samples" else np.ones(CLIENTS)
    expected = np.average(moved, axis=0, weights=share)
    algorithm = fedavg(linear(FEATURES), step_size=STEP, option=option, weights=weights)
    state, _ = algorithm.step(KEY, FedAvgState(jnp.asarray(start)), data)
    np.testing.assert_allclose(state.model, expected, rtol=1e-5, atol=1e-6)


# Against itself


@pytest.mark.long
@pytest.mark.parametrize("option", ["gradient", "model"])
def test_one_cluster_against_itself_is_fedavg(option):
    one = build(num_clusters=1, option=option)
    other = fedavg(linear(FEATURES), step_size=STEP, option=option)
    left, _ = one.step(KEY, one.init(KEY, DATA), DATA)
    right, _ = other.step(KEY, other.init(KEY, DATA), DATA)
    np.testing.assert_allclose(left.models[0], right.model, rtol=1e-6)


@pytest.mark.long
def test_right_identities_against_itself_are_the_oracle():
    assert least_distance(TRUTH.models) > 1  # Or no rule could tell them apart.
    start = TRUTH.models + 0.01
    state, info = one_round(start)
    np.testing.assert_array_equal(info.assignment, TRUTH.clusters)
    told = oracle(linear(FEATURES), clusters=TRUTH.clusters, **SETTINGS)
    expected, _ = told.step(KEY, OracleState(start, TRUTH.clusters), DATA)
    np.testing.assert_allclose(state.models, expected.models, rtol=1e-6)


def test_random_first_round_then_evaluation():
    algorithm = build(first_round="random")
    state = algorithm.init(KEY, DATA)._replace(models=TRUTH.models)
    drawn = []
    for seed in range(20):
        after, info = algorithm.step(jax.random.key(seed), state, DATA)
        drawn.append(np.asarray(info.assignment))
        assert not np.any(np.isnan(info.losses))
    counts = np.bincount(np.ravel(drawn), minlength=CLUSTERS)
    assert np.all(abs(counts - 40) < 4 * np.sqrt(120 * 2 / 9))  # 120 draws of 3.
    assert np.any(np.array(drawn) != np.asarray(TRUTH.clusters)[None])
    _, info = algorithm.step(KEY, after._replace(models=TRUTH.models), DATA)
    np.testing.assert_array_equal(info.assignment, TRUTH.clusters)


def test_identical_models_train_the_first_alone():
    identical = build(start="identical")
    state = identical.init(KEY, DATA)
    assert np.ptp(np.asarray(state.models), axis=0).max() == 0
    _, info = identical.step(jax.random.key(1), state, DATA)
    assert set(np.asarray(info.assignment).tolist()) == {0}
    other = build().init(KEY, DATA)
    assert np.ptp(np.asarray(other.models), axis=0).max() > 0


def test_clients_flee_from_a_trained_model_to_its_untouched_copy():
    """The majority draws the first of identical models away from the others, who then
    lose less under the next one, and train that."""
    signs = np.where(np.arange(CLIENTS) < 4, 1, -1).astype("f4")[:, None]
    data = DATA._replace(targets=DATA.inputs.sum(axis=2) * signs)
    state = State(jnp.zeros((CLUSTERS, FEATURES)))
    step = build(start="identical").step
    for assigned in ([0] * 6, [0] * 4 + [1] * 2, [0] * 4 + [1] * 2):
        state, info = step(KEY, state, data)
        assert info.assignment.tolist() == assigned
    trained = np.abs(np.asarray(state.models)).max(axis=1) > 0
    assert trained.tolist() == [True, True, False]


@pytest.mark.long
def test_option_follows_the_number_of_steps():
    after = lambda **changes: one_round(**changes)[0].models
    one, several = after(), after(num_steps=5)
    np.testing.assert_array_equal(one, after(option="gradient"))
    np.testing.assert_array_equal(several, after(option="model", num_steps=5))
    assert np.abs(one - after(option="model")).max() > 1e-3  # Control.


# Against equations: settled identities, when the centre stops sending all models (4.3)


def history_of(*rounds):
    history = first_history(len(rounds[0]))
    for assignment in rounds:
        history = remember(history, jnp.array(assignment))
    return history


def test_rounds_without_a_change_are_counted():
    assert history_of([0, 1]).unchanged == 0  # Nothing was confirmed yet.
    assert history_of([0, 1], [0, 1], [0, 1]).unchanged == 2
    assert history_of([0, 1], [0, 1], [1, 1]).unchanged == 0
    assert history_of([0, 1], [0, NO_CLUSTER]).unchanged == 1
    newcomer = history_of([0, NO_CLUSTER], [0, NO_CLUSTER], [NO_CLUSTER, 1])
    assert newcomer.unchanged == 1
    assert newcomer.identities.tolist() == [0, 1]


def test_unknown_clients_are_never_settled():
    history = history_of([0, NO_CLUSTER], [0, NO_CLUSTER], [0, NO_CLUSTER])
    assert is_settled(history, 2).tolist() == [True, False]
    assert is_settled(history, 3).tolist() == [False, False]


def trace(stable_rounds, option):
    data, _ = mixed_linear(
        jax.random.key(0),
        num_clients=6,
        num_clusters=2,
        num_samples=20,
        num_features=4,
        separation=5.0,
        noise=0.1,
    )
    algorithm = build(
        num_clusters=2, step_size=0.1, option=option, stable_rounds=stable_rounds
    )
    keep = lambda state, info: (info, state.models)
    run = jax.jit(
        lambda key: engine.run(algorithm, key, data, num_rounds=8, observe=keep)
    )
    return run(jax.random.key(0))[1]


@pytest.mark.long
@pytest.mark.parametrize("option", ["gradient", "model"])
def test_settled_clients_receive_one_model_and_learn_the_same(option):
    info, models = trace(2, option)
    plain, expected = trace(None, option)
    same = np.all(np.asarray(plain.assignment) == np.asarray(plain.assignment)[:1])
    assert same, "the example is meant to be stable from the start"
    np.testing.assert_allclose(models, expected, rtol=1e-5)
    np.testing.assert_array_equal(info.assignment, plain.assignment)
    model = 4 * 4
    down = np.asarray(info.received)[:, 0] // model
    assert down.tolist() == [2, 2, 2, 1, 1, 1, 1, 1]
    assert np.all(np.asarray(plain.received) == 2 * model)
    assert np.isnan(np.asarray(info.losses)[3:]).all()
    assert np.isfinite(np.asarray(info.losses)[:3]).all()


# Against reference: iterates and counts printed by the released code


@pytest.fixture(scope="module")
def golden(shared):
    return json.loads((shared / "reference" / "ifca_golden.json").read_text())


def replay(record, step_size):
    """Our iterates, losses and counts from the stored data and start."""
    inputs = jnp.asarray(record["X"], jnp.float32)
    targets = jnp.asarray(record["y"], jnp.float32)
    data = ClientData(inputs, targets, jnp.ones(targets.shape, bool))
    num_clusters = record["config"]["p"]
    task = linear(inputs.shape[2])
    algorithm = ifca(task, num_clusters=num_clusters, step_size=step_size)

    def one_round(state, _):
        state, info = algorithm.step(jax.random.key(0), state, data)
        return state, (state.models, info)

    start = State(models=jnp.asarray(record["theta0"], jnp.float32))
    _, (models, info) = jax.lax.scan(
        one_round, start, None, length=len(record["iterations"])
    )
    return np.asarray(models), info


def worst_error(models, record):
    stored = np.asarray([row["theta"] for row in record["iterations"]])
    errors = np.linalg.norm(models - stored, axis=-1)
    return np.max(errors / np.linalg.norm(stored, axis=-1))


@pytest.mark.long
@pytest.mark.parametrize("index", [0, 1])
def test_iterates_against_reference(golden, index):
    record = golden["golden_small_trajectories"][index]
    models, info = replay(record, record["config"]["lr"])
    assert worst_error(models, record) < 1e-5
    stored = np.asarray([row["min_losses"] for row in record["iterations"]])
    np.testing.assert_allclose(np.min(info.losses, axis=2), stored, rtol=1e-5)
    for row, assignment in zip(record["iterations"], info.assignment, strict=True):
        counts = np.bincount(assignment, minlength=record["config"]["p"])
        np.testing.assert_array_equal(counts, row["counts"])


def test_another_step_size_leaves_the_reference(golden):
    record = golden["golden_small_trajectories"][0]
    models, _ = replay(record, record["config"]["lr"] * 1.001)
    assert worst_error(models, record) > 1e-5


# Against misuse


test_misuse_is_named = misuse(
    functools.partial(ifca, linear(FEATURES), **SETTINGS),
    ({"num_clusters": 0}, "num_clusters"),
    ({"num_steps": 0}, "num_steps"),
    ({"option": "gradient", "num_steps": 2}, "num_steps"),
    ({"participation": 0.0}, "participation"),
    ({"participation": 1.5}, "participation"),
    ({"stable_rounds": 0}, "`stable_rounds` must be at least 1"),
    ({"first_round": "neither"}, "first_round"),
    ({"start": "neither"}, "start"),
)


@pytest.mark.parametrize("named", ["option", "normalise", "weights", "variant"])
def test_unknown_words_are_named(named):
    arguments: dict[str, Any] = {"step_size": 0.1, named: "neither"}
    with pytest.raises(ValueError, match=f"`{named}` must be in"):
        Training(**arguments)
