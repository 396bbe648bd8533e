"""CLoVE over several rounds: stability, newcomers, limits, misuse."""

import functools

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from cfljax import engine
from cfljax.algorithms import clove, fedavg, oracle
from cfljax.base.types import NO_CLUSTER
from cfljax.data import mixed_linear
from cfljax.models import linear

CLIENTS, CLUSTERS, FEATURES, ROUNDS = 12, 3, 8, 8


@functools.cache
def problem():
    return mixed_linear(
        jax.random.key(2),
        num_clients=CLIENTS,
        num_clusters=CLUSTERS,
        num_samples=60,
        num_features=FEATURES,
        separation=3.0,
        noise=0.1,
    )


@functools.cache
def program(num_rounds, num_clusters, **settings):
    """A compiled run: last state, and every round's info and models."""
    algorithm = clove(
        linear(FEATURES),
        num_clusters=num_clusters,
        step_size=0.1,
        **settings,
    )
    keep = lambda state, info: (info, state.models)
    data, _ = problem()
    return jax.jit(
        lambda key: engine.run(
            algorithm, key, data, num_rounds=num_rounds, observe=keep
        )
    )


def trace(seed=0, num_rounds=ROUNDS, num_clusters=CLUSTERS, **settings):
    run = program(num_rounds, num_clusters, **settings)
    return jax.tree.map(np.asarray, run(jax.random.key(seed)))


def groups(assignment):
    """The partition, whatever its names."""
    first = {label: index for index, label in reversed(list(enumerate(assignment)))}
    return [first[label] for label in assignment]


def is_right(assignment):
    return groups(assignment.tolist()) == groups(problem()[1].clusters.tolist())


def test_clusters_are_found_and_kept():
    _, (info, _) = trace()
    assert all(is_right(row) for row in info.assignment[2:])
    assert not info.stable.any()


def test_early_stop_changes_the_messages_and_nothing_else():
    _, (plain, models) = trace()
    last, (info, stopped) = trace(stable_rounds=3)
    np.testing.assert_array_equal(plain.assignment, info.assignment)
    np.testing.assert_allclose(models, stopped, rtol=1e-5, atol=1e-6)
    begin = int(np.argmax(info.stable))
    # The last three rounds before it, and not the four, had equal assignments.
    before = info.assignment[begin - 3 : begin]
    assert (before == before[0]).all()
    assert begin == 3 or (info.assignment[begin - 4] != before[0]).any()
    assert info.stable[begin:].all() and last.stability.stable
    model, vector = 4 * FEATURES, 4 * CLUSTERS
    assert (info.received[:begin] == CLUSTERS * model).all()
    assert (info.received[begin:] == model).all()
    assert (info.sent[:begin] == model + vector).all()
    assert (info.sent[begin:] == model).all()
    assert np.isnan(info.losses[begin:]).all()
    # The anchor is that of the last clustering.
    np.testing.assert_array_equal(last.anchor.models, stopped[begin - 2])


def test_newcomers_find_their_cluster_after_stability():
    last, _ = trace(stable_rounds=3)
    data, _ = problem()
    late = np.array([0, 5, 11])
    identities = last.stability.identities.copy()
    identities[late] = NO_CLUSTER
    state = last._replace(stability=last.stability._replace(identities=identities))
    algorithm = clove(
        linear(FEATURES),
        num_clusters=CLUSTERS,
        step_size=0.1,
        stable_rounds=3,
    )
    after, info = jax.jit(algorithm.step)(jax.random.key(5), state, data)
    np.testing.assert_array_equal(info.assignment, last.stability.identities)
    np.testing.assert_array_equal(after.stability.identities, info.assignment)
    model, vector = 4 * FEATURES, 4 * CLUSTERS
    asked = np.isin(np.arange(CLIENTS), late)
    np.testing.assert_array_equal(  # All saved models, then the present one.
        info.received, np.where(asked, (CLUSTERS + 1) * model, model)
    )
    np.testing.assert_array_equal(info.sent, model + vector * asked)
    # Centroids decide: with those of two clusters exchanged, newcomers are too.
    wrong = last.anchor.centroids[[1, 0, 2]]
    moved = state._replace(anchor=state.anchor._replace(centroids=wrong))
    _, misled = jax.jit(algorithm.step)(jax.random.key(5), moved, data)
    assert (misled.assignment != info.assignment)[late].any()
    answers = jax.jit(algorithm.predict)(state, data, data.inputs)
    own = last.models[last.stability.identities]
    expected = np.einsum("csf,cf->cs", data.inputs, own)
    np.testing.assert_allclose(answers, expected, rtol=1e-4, atol=1e-4)


def test_partial_participation_reaches_the_same_clusters():
    last, (info, _) = trace(participation=0.5, num_rounds=12)
    assert ((info.assignment >= 0).sum(axis=1) == 6).all()
    assert is_right(last.stability.identities)


@pytest.mark.slow
def test_fewer_participants_than_clusters_leave_models_alone():
    _, (info, models) = trace(participation=1 / 6, num_rounds=5)
    for index in range(1, 5):
        used = set(info.assignment[index]) - {NO_CLUSTER}
        assert 1 <= len(used) <= 2
        for model in range(CLUSTERS):
            same = np.array_equal(models[index][model], models[index - 1][model])
            assert same == (model not in used)


@pytest.mark.parametrize(
    ("first_round", "start"), [("random", "identical"), ("random", "independent")]
)
def test_clusters_are_found_from_random_first_rounds(first_round, start):
    right = 0
    for seed in range(3):
        _, (info, _) = trace(seed, first_round=first_round, start=start)
        assert not is_right(info.assignment[0])
        right += is_right(info.assignment[-1])
    assert right == 3


def test_number_of_clusters_is_found():
    settings = {"clustering": "agglomerative", "select_number": True}
    _, (info, _) = trace(num_clusters=5, **settings)
    assert is_right(info.assignment[-1])
    # Without the selection five models split three clusters.
    _, (fixed, _) = trace(num_clusters=5, clustering="agglomerative")
    assert len(set(fixed.assignment[-1])) == 5


@pytest.mark.slow
def test_one_cluster_is_fedavg():
    data, _ = problem()
    settings = {"step_size": 0.1, "num_steps": 2}
    single = clove(linear(FEATURES), num_clusters=1, **settings)
    average = fedavg(linear(FEATURES), **settings)
    state = single.init(jax.random.key(0), data)
    other = average.init(jax.random.key(0), data)._replace(model=state.models[0])
    key = jax.random.key(1)
    after, _ = jax.jit(single.step)(key, state, data)
    expected, _ = jax.jit(average.step)(key, other, data)
    np.testing.assert_allclose(after.models[0], expected.model, rtol=1e-5, atol=1e-6)
    assert np.abs(np.asarray(after.models - state.models)).max() > 0.1


def test_once_the_clusters_are_right_it_is_the_oracle():
    data, truth = problem()
    _, (info, models) = trace()
    names = info.assignment[-1][[0, 4, 8]]  # A model for each true cluster.
    known = oracle(
        linear(FEATURES),
        clusters=truth.clusters,
        num_clusters=CLUSTERS,
        step_size=0.1,
        option="model",
        weights="samples",
    )
    state = jax.eval_shape(known.init, jax.random.key(0), data)
    state = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), state)
    state = state._replace(
        models=jnp.asarray(models[-2][names]), clusters=jnp.asarray(truth.clusters)
    )
    after, _ = jax.jit(known.step)(jax.random.key(0), state, data)
    np.testing.assert_allclose(after.models, models[-1][names], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_clusters": 0}, "`num_clusters` must be at least 1"),
        ({"stable_rounds": 0}, "`stable_rounds` must be at least 1"),
        ({"first_round": "never"}, "first_round"),
        ({"start": "same"}, "start"),
        ({"select_number": True}, "give `clustering='agglomerative'`"),
        ({"participation": 0.0}, "`participation` must be in"),
        ({"option": "gradient", "num_steps": 2}, "`num_steps` belongs to"),
    ],
)
def test_misuse_is_named(arguments, message):
    settings = {"num_clusters": 2, "step_size": 0.1} | arguments
    with pytest.raises((ValueError, jaxtyping.TypeCheckError), match=message):
        clove(linear(FEATURES), **settings)
