"""One-shot clustering by hand: solutions, clusters for good, training by cluster."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax import engine, metrics
from cfljax.algorithms import one_shot, oracle
from cfljax.algorithms.one_shot import State
from cfljax.base.types import ClientData
from cfljax.data import mixed_linear
from cfljax.models import linear, mlp

CLIENTS, CLUSTERS, SAMPLES, FEATURES, STEP = 8, 2, 12, 4, 0.05


@pytest.fixture(scope="module")
def problem():
    return mixed_linear(
        jax.random.key(0),
        num_clients=CLIENTS,
        num_clusters=CLUSTERS,
        num_samples=SAMPLES,
        num_features=FEATURES,
        separation=3.0,
        noise=0.1,
    )


def build(**changes):
    settings = {"num_clusters": CLUSTERS, "step_size": STEP} | changes
    return one_shot(linear(FEATURES), **settings)


@functools.cache
def start(**changes):
    """What the algorithm makes of a key and data, compiled once."""
    return jax.jit(build(**changes).init)


@jax.jit
def agreement(clusters, true):
    return metrics.adjusted_rand_index(clusters, true, CLUSTERS)


# Against itself


@pytest.mark.long
def test_solutions_reveal_the_clusters_and_too_few_steps_do_not(problem):
    data, truth = problem
    found = start()(jax.random.key(1), data).clusters
    assert float(agreement(found, truth.clusters)) == 1
    # Solutions of a client's few samples are then noise around the common start.
    hasty = start(local_step_size=1e-30, num_local_steps=1)
    found = hasty(jax.random.key(1), data).clusters
    assert float(agreement(found, truth.clusters)) < 1


@pytest.mark.long
def test_rounds_are_the_oracle_s_of_the_clusters_found(problem):
    data, _ = problem
    step = jax.jit(build(num_steps=3).step)
    state = start()(jax.random.key(1), data)
    told = oracle(
        linear(FEATURES),
        clusters=state.clusters,
        num_clusters=CLUSTERS,
        step_size=STEP,
        option="model",
        num_steps=3,
    )
    expected = jax.jit(told.init)(jax.random.key(2), data)
    expected = expected._replace(models=state.models)
    after, info = step(jax.random.key(3), state, data)
    theirs, _ = jax.jit(told.step)(jax.random.key(3), expected, data)
    np.testing.assert_allclose(after.models, theirs.models, rtol=1e-6)
    np.testing.assert_array_equal(after.clusters, state.clusters)
    model = 4 * FEATURES
    assert info.received.tolist() == [model] * CLIENTS
    assert info.sent.tolist() == [2 * model + 1] * CLIENTS
    _, later = step(jax.random.key(4), after, data)
    assert later.sent.tolist() == [model + 1] * CLIENTS


@pytest.mark.long
def test_wrong_clusters_are_never_corrected(problem):
    data, truth = problem
    algorithm = build()
    wrong = np.asarray(truth.clusters).copy()
    wrong[0] = 1
    state = start()(jax.random.key(1), data)._replace(clusters=jnp.asarray(wrong))
    after: State = engine.run(
        algorithm._replace(init=lambda key, data: state),
        jax.random.key(1),
        data,
        num_rounds=5,
    )[0]
    np.testing.assert_array_equal(after.clusters, wrong)
    answers = jax.jit(algorithm.predict)(after, data, data.inputs)
    own = np.asarray(data.inputs)[0] @ np.asarray(after.models)[1]
    np.testing.assert_allclose(answers[0], own, rtol=1e-5)


@pytest.mark.long
def test_clients_without_samples_or_with_diverged_solutions_have_no_cluster(problem):
    data, truth = problem
    empty = data._replace(mask=data.mask.at[2].set(False))
    state = start()(jax.random.key(1), empty)
    clusters = np.asarray(state.clusters)
    assert clusters[2] == -1
    assert np.isfinite(state.models).all()
    assert (np.delete(clusters, 2) >= 0).all()
    wild = data._replace(inputs=data.inputs.at[3].multiply(1e10))
    clusters = np.asarray(start()(jax.random.key(1), wild).clusters)
    assert clusters[3] == -1
    others = np.arange(CLIENTS) != 3
    assert (clusters[others] >= 0).all()
    true = np.asarray(truth.clusters)[others]
    assert float(agreement(clusters[others], true)) == 1


@pytest.mark.slow
def test_another_task_may_find_the_clusters():
    key = jax.random.key(0)
    signs = jnp.array([1.0, 1.0, -1.0, -1.0])[:, None, None]
    labels = jnp.tile(jnp.array([0, 1]), (4, 5))
    levels = 2.0 * labels.astype(jnp.float32) - 1
    inputs = signs * levels[:, :, None] + 0.1 * jax.random.normal(key, (4, 10, 2))
    data = ClientData(inputs, labels, jnp.ones((4, 10), bool))
    network = mlp((2,), hidden=(3,), num_classes=2)
    simple = mlp((2,), hidden=(), num_classes=2)
    algorithm = one_shot(network, num_clusters=2, step_size=0.1, local_task=simple)
    clusters = np.asarray(algorithm.init(key, data).clusters)
    assert clusters[0] == clusters[1] != clusters[2] == clusters[3]


# Against misuse


@pytest.mark.parametrize("name", ["num_clusters", "num_local_steps", "num_restarts"])
def test_misuse_is_named(name):
    with pytest.raises(ValueError, match=f"`{name}` must be at least 1"):
        build(**{name: 0})
