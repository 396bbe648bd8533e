"""Prototypes, what their scatter says, and networks trained towards them."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import prototype_rounds as by_hand
import pytest
from prototype_rounds import CLASSES, DATA, FEATURES, TASK, close

from cfljax.algorithms import fedpac, fedproto
from cfljax.algorithms.fedpac import TwoStages, class_moments
from cfljax.algorithms.fedproto import prototype_scores
from cfljax.base.types import ClientData
from cfljax.federated.prototypes import Prototypes, aligned, class_means
from cfljax.federated.training import Training
from cfljax.models import cnn

KEY = jax.random.key(0)
ONE = jax.tree.map(lambda leaf: leaf[0], DATA)
MODEL = by_hand.init(KEY)
EVERY = Prototypes(jnp.zeros((CLASSES, FEATURES)), jnp.ones(CLASSES, bool))


def counting():
    """The task, and a list that grows whenever its body is run."""
    calls = []

    def embed(params, inputs):
        calls.append(1)
        return by_hand.embed(params, inputs)

    assert TASK.layers is not None
    return TASK._replace(layers=TASK.layers._replace(embed=embed)), calls


def test_the_body_is_run_once_in_a_step():
    """The two losses share one forward pass."""
    task, calls = counting()
    fit = aligned(task, EVERY, 1.0).fit
    assert fit is not None
    jax.make_jaxpr(jax.grad(lambda model: jnp.sum(fit(KEY, model, *ONE)[0])))(MODEL)
    assert len(calls) == 1


def test_the_body_is_run_for_statistics_steps_and_prototypes():
    """Training the last layer, for however long, reuses what the statistics saw."""
    task, calls = counting()
    training = Training(step_size=0.1, option="model")
    plan = TwoStages(task, training, 0.1, 9, 1.0, CLASSES)
    body, head = (
        {n: MODEL[n] if n == kept else None for n in MODEL} for kept in ("body", "head")
    )
    received = plan.broadcast(KEY, body, EVERY, None)
    jax.make_jaxpr(plan.train)(received, jnp.asarray(0), head, (), ONE)
    assert len(calls) == 3


def test_v_is_the_mean_squared_error_of_h():
    """Over all 27 ways to draw three samples anew, H is right on average, and V is the
    mean squared distance to it."""
    features = np.random.default_rng(5).normal(size=(4, FEATURES))
    labels, mask = np.array([0, 2, 2, -7]), np.array([True, True, True, False])
    outer = np.eye(3)[labels[:3]][:, :, None] * features[:3, None, :]
    draws = np.stack(
        [outer[list(d)].mean(0) for d in itertools.product(range(3), repeat=3)]
    )
    given = jnp.asarray(features, "f4"), jnp.asarray(labels, "i4"), jnp.asarray(mask)
    means, counts = class_means(*given, 3)
    moments, variance = class_moments(given[0], means, counts, given[2])
    close(moments, draws.mean(axis=0))
    close(variance, np.mean(np.sum((draws - draws.mean(axis=0)) ** 2, axis=(1, 2))))
    close(means[1], 0.0)


def test_scores_are_no_confusion_of_large_numbers():
    """A distance between far points, which a difference of squares would lose."""
    points = jnp.asarray([[3000.0, 4000.0], [3000.0, 4000.25]])
    known = Prototypes(points, jnp.ones(2, bool))
    close(prototype_scores(points, known), -np.array([[0, 1 / 32], [1 / 32, 0]]))


def blank(num_features):
    known = jnp.zeros(3, bool)
    return Prototypes(jnp.zeros((3, num_features)), known)


@pytest.mark.slow
@pytest.mark.parametrize("constructor", [fedproto, fedpac])
def test_networks_with_dropout_and_statistics(constructor):
    """Without a pull training is the task's own, draws and moved statistics included;
    and a round of the algorithm is finite."""
    task = cnn(
        (6, 6, 1),
        channels=(2,),
        hidden=(5,),
        num_classes=3,
        batch_norm=True,
        dropout=0.5,
    )
    generator = np.random.default_rng(0)
    data = ClientData(
        jnp.asarray(generator.normal(size=(4, 8, 6, 6, 1)), "f4"),
        jnp.asarray(generator.integers(3, size=(4, 8)), "i4"),
        jnp.arange(8)[None] < jnp.asarray([8, 3, 0, 5])[:, None],
    )
    one = jax.tree.map(lambda leaf: leaf[1], data)
    params = task.init(KEY)
    fit = aligned(task, blank(5), 0.0).fit
    assert fit is not None and task.fit is not None
    mine, theirs = fit(KEY, params, *one), task.fit(KEY, params, *one)
    jax.tree.map(lambda a, b: close(a, b), mine, theirs)
    algorithm = constructor(task, num_classes=3, step_size=0.1, num_steps=2)
    state = algorithm.init(KEY, data)
    step = jax.jit(algorithm.step)
    for seed in range(2):
        state, info = step(jax.random.key(seed), state, data)
    np.testing.assert_array_equal(info.assignment, [0, 0, -1, 0])
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state))
    moved = state.models if constructor is fedproto else state.body
    start = jax.tree.leaves(params.statistics)
    row = lambda leaf: leaf[0] if constructor is fedproto else leaf
    after = [row(leaf) for leaf in jax.tree.leaves(moved.statistics)]
    assert len(after) == len(start) > 0
    assert all(np.abs(a - b).max() > 1e-3 for a, b in zip(after, start, strict=True))
