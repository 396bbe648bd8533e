"""Myopic-Clustering on the example that it fails on (Werner et al., section 2.1).

Three clients on a line, eta the step size, all starting from 1.5:
f_1 = x^2 / (6 eta); f_2 = 4 (x-1)^3 + 3 (x-1)^4 + 1 left of 1 and (x-1)^2 / (2 eta) + 1
right of it; f_3 = (x-2)^2 / (2 eta). The optima are 0, 0 and 2; 1 is a saddle of f_2.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import misuse

from cfljax.algorithms.federated_clustering import federated_clustering
from cfljax.algorithms.momentum_clustering import momentum_clustering
from cfljax.algorithms.myopic_clustering import State, myopic_clustering
from cfljax.attacks import build, threat
from cfljax.base.types import Algorithm, ClientData, Task
from cfljax.models import linear

START, ETA = 1.5, 0.25


def example(eta: float) -> Task:
    """A client's one sample says which of the three losses it has."""

    def losses(model: Any, inputs: Any, targets: Any) -> Any:
        past = model - 1
        left = 4 * past**3 + 3 * past**4 + 1
        right = past**2 / (2 * eta) + 1
        second = jnp.where(model < 1, left, right)
        first, third = model**2 / (6 * eta), (model - 2) ** 2 / (2 * eta)
        return jnp.where(inputs == 0, first, jnp.where(inputs == 1, second, third))

    predict = lambda model, inputs: jnp.broadcast_to(model, inputs.shape[:1])
    return Task(init=lambda key: jnp.full((), START), losses=losses, predict=predict)


def slopes(models: np.ndarray, eta: float) -> np.ndarray:
    """The three gradients, each at a model of its own, by hand."""
    x, y, z = models
    second = 12 * y * (y - 1) ** 2 if y < 1 else (y - 1) / eta
    return np.array([x / (3 * eta), second, (z - 2) / eta])


CODES = jnp.arange(3.0)[:, None]
DATA = ClientData(CODES, jnp.zeros_like(CODES), CODES >= 0)


def rounds_of(algorithm: Algorithm, number: int) -> Any:
    """Models and infos after each of so many rounds."""

    def one(state: Any, key: Any) -> tuple[Any, Any]:
        state, info = algorithm.step(key, state, DATA)
        return state, (state.models, info)

    keys = jax.random.split(jax.random.key(1), number)
    state = algorithm.init(jax.random.key(0), DATA)
    return jax.lax.scan(one, state, keys)[1]


# Against theory


@pytest.fixture(scope="module")
def myopic() -> Any:
    algorithm = myopic_clustering(example(ETA), num_clusters=2, step_size=ETA)
    return jax.jit(lambda: rounds_of(algorithm, 40))()


def test_the_first_round_is_right_and_the_others_are_not(myopic):
    models, info = myopic
    np.testing.assert_allclose(models[0], [1, 1, 2], rtol=1e-6)
    together = info.assignment[:, :, None] == info.assignment[:, None, :]
    pair = lambda a, b: np.asarray(together[:, a, b]).tolist()
    assert pair(0, 1) == [True] + [False] * 39
    assert pair(1, 2) == [False] + [True] * 39
    assert not any(pair(0, 2))
    expected = [START**2 / (6 * ETA), 0.25 / (2 * ETA) + 1, 0.25 / (2 * ETA)]
    np.testing.assert_allclose(info.losses[0], expected, rtol=1e-6)
    assert set(np.ravel([info.received, info.sent])) == {4}


def test_where_it_ends(myopic):
    """The second client stays at its saddle; all gradients vanish."""
    models, _ = myopic
    by_hand = np.full(3, START)
    for index, partition in enumerate([[[0, 1], [2]]] + 39 * [[[0], [1, 2]]]):
        gradients = slopes(by_hand, ETA)
        for group in partition:
            by_hand[group] -= ETA * gradients[group].mean()
        np.testing.assert_allclose(models[index], by_hand, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(models[-1], [0, 1, 2], atol=1e-6)
    assert np.abs(slopes(np.asarray(models[-1]), ETA)).max() < 1e-5


def test_federated_clustering_escapes_for_some_radii():
    """All three are right from tau eta = 1/3 up to 2/3; below, the second client stays
    at its saddle; above, the third is held back, and from 1 on the second as well."""

    def ends(radius: Any) -> Any:
        algorithm = federated_clustering(
            example(ETA), step_size=ETA, radius=radius / ETA, start="identical"
        )
        return rounds_of(algorithm, 150)[0][-1]

    radii = np.array([0.3332, 0.3334, 0.5, 0.66, 0.67, 0.9, 1.01], np.float32)
    found = np.asarray(jax.jit(jax.vmap(ends))(jnp.asarray(radii)))
    np.testing.assert_allclose(found[0], [0, 1, 2], atol=2e-3)
    np.testing.assert_allclose(found[1:4], np.tile([0, 0, 2], (3, 1)), atol=2e-3)
    np.testing.assert_allclose(found[4:6, :2], 0, atol=2e-3)
    assert (np.abs(found[4:6, 2] - 2) > 0.3).all()
    assert (np.abs(found[6, 1:] - [0, 2]) > 0.3).all()


def test_a_step_that_is_too_large_swings_about_the_optimum():
    """At 0 the mean of two second derivatives is (1 / (3 eta) + 12) / 2, which allows
    steps below 11/36."""

    def last(eta: float) -> Any:
        algorithm = federated_clustering(
            example(eta), step_size=eta, radius=0.5 / eta, start="identical"
        )
        return rounds_of(algorithm, 300)[0][-2:, 1]

    stable, unstable = jax.jit(lambda: (last(0.29), last(0.31)))()
    assert np.abs(stable).max() < 1e-3 and np.abs(unstable).min() > 1e-2


def test_momentum_clustering_is_myopic_too():
    """It also compares gradients at clients' own models."""

    def ends() -> Any:
        algorithm = momentum_clustering(
            example(ETA), step_size=ETA, radius=0.5 / ETA, gradient_weight=1.0
        )
        return rounds_of(algorithm, 20)[0]

    models = jax.jit(ends)()
    assert np.abs(np.asarray(models)[-1] - [0, 0, 2]).max() > 0.3


@pytest.mark.long
def test_one_cluster_moves_everybody_alike_and_no_number_joins_none():
    algorithm = myopic_clustering(example(ETA), num_clusters=1, step_size=ETA)
    state = State(jnp.full((3,), START), jnp.zeros((), jnp.int32))
    moved, info = jax.jit(algorithm.step)(jax.random.key(0), state, DATA)
    expected = START - ETA * slopes(np.full(3, START), ETA).mean()
    np.testing.assert_allclose(moved.models, [expected] * 3, rtol=1e-6)
    assert info.assignment.tolist() == [0, 0, 0]
    liar = threat(build("nan"), np.array([False, True, False]))
    algorithm = myopic_clustering(
        example(ETA), num_clusters=1, step_size=ETA, threat=liar
    )
    moved, info = jax.jit(algorithm.step)(jax.random.key(0), state, DATA)
    assert info.assignment.tolist() == [0, -1, 0]
    expected = START - ETA * slopes(np.full(3, START), ETA)[[0, 2]].mean()
    np.testing.assert_allclose(moved.models[::2], [expected] * 2, rtol=1e-6)
    assert np.isnan(moved.models[1])


# Against misuse


test_misuse_is_named = misuse(
    functools.partial(myopic_clustering, linear(3), num_clusters=2, step_size=0.1),
    ({"num_clusters": 0}, "`num_clusters` must be at least 1"),
    ({"num_restarts": 0}, "`num_restarts` must be at least 1"),
    ({"batch_size": 0}, "`batch_size` must be at least 1"),
    ({"clients_per_chunk": 0}, "`clients_per_chunk` must be at least 1"),
)


@pytest.mark.parametrize(
    ("constructor", "settings"),
    [
        (myopic_clustering, {"num_clusters": 2}),
        (momentum_clustering, {"radius": 1.0}),
        (federated_clustering, {"radius": 1.0}),
    ],
)
def test_tasks_that_train_otherwise_are_refused(constructor, settings):
    task = linear(3)._replace(fit=lambda key, model, *batch: (jnp.zeros(1), model))
    arguments = {"step_size": 0.1} | settings
    with pytest.raises(ValueError, match="`task` must train on the losses"):
        constructor(task, **arguments)
