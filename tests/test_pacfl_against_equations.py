"""PACFL: clusters and rounds by hand in NumPy, its limits, and who joins whom."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.spatial.distance

from cfljax.algorithms import fedavg, pacfl
from cfljax.base.types import ClientData
from cfljax.models import linear

CLIENTS, SAMPLES, FEATURES, VECTORS, STEP, STEPS = 5, 8, 6, 2, 0.05, 2
KEPT = np.array([8, 2, 5, 8, 4])  # Real samples of each client.
PLANES = np.array([0, 1, 0, 1, 1])  # Which plane a client's inputs are next to.
HEIGHT = 40.0  # Degrees between those within a group and those of two groups.


def draw(planes, kept, seed=1):
    generator = np.random.default_rng(seed)
    bases = np.eye(FEATURES).reshape(3, 2, FEATURES)[np.asarray(planes)]
    number = len(planes)
    inputs = generator.normal(size=(number, SAMPLES, 2)) @ bases
    inputs = inputs + 0.1 * generator.normal(size=inputs.shape)
    truth = generator.normal(size=(number, FEATURES))
    targets = np.einsum("csf,cf->cs", inputs, truth)
    mask = np.arange(SAMPLES)[None] < np.asarray(kept)[:, None]
    return ClientData(
        jnp.asarray(inputs, jnp.float32),
        jnp.asarray(targets, jnp.float32),
        jnp.asarray(mask),
    )


DATA = draw(PLANES, KEPT)
TASK = linear(FEATURES)
SETTINGS: dict[str, Any] = {
    "step_size": STEP,
    "num_steps": STEPS,
    "num_vectors": VECTORS,
}


def build(**changes):
    return pacfl(TASK, **(SETTINGS | changes))


@functools.cache
def two_rounds(max_clusters):
    """Both rounds and the start, of a threshold that is traced; compiled once."""

    def run(threshold, data):
        algorithm = build(threshold=threshold, max_clusters=max_clusters)
        state = algorithm.init(jax.random.key(0), data)
        after, first = algorithm.step(jax.random.key(1), state, data)
        last, second = algorithm.step(jax.random.key(2), after, data)
        answers = algorithm.predict(last, data, data.inputs)
        return state, last, first, second, answers

    return jax.jit(run)


def run(threshold, max_clusters=CLIENTS, data=DATA):
    return two_rounds(max_clusters)(threshold, data)


def samples(i, data=DATA):
    keep = np.asarray(data.mask[i])
    return np.asarray(data.inputs[i], "f8")[keep], np.asarray(data.targets[i])[keep]


def distances_by_hand():
    """Smallest principal angles, degrees."""
    spans = [np.linalg.svd(samples(i)[0].T)[0][:, :VECTORS] for i in range(CLIENTS)]
    return np.array(
        [
            [np.rad2deg(scipy.linalg.subspace_angles(a, b).min()) for b in spans]
            for a in spans
        ]
    )


def trained(theta, i, data=DATA):
    x, y = samples(i, data)
    for _ in range(STEPS):
        theta = theta - STEP * 2 / len(y) * x.T @ (x @ theta - y)
    return theta


def rounds_by_hand(start, clusters, weights=KEPT):
    """Models after two rounds, one for each client."""
    models = np.tile(start, (CLIENTS, 1))
    for _ in range(2):
        sent = np.array([trained(models[i], i) for i in range(CLIENTS)])
        for k in set(clusters):
            own = clusters == k
            models[own] = np.average(sent[own], axis=0, weights=weights[own])
    return models


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)


def test_two_rounds_against_equations():
    angles = distances_by_hand()
    tree = scipy.cluster.hierarchy.linkage(
        scipy.spatial.distance.squareform(angles, checks=False), "weighted"
    )
    clusters = scipy.cluster.hierarchy.fcluster(tree, HEIGHT, "distance") - 1
    assert len(set(clusters)) == 2, "control: nobody is alone, nor all together"
    clusters = np.where(clusters == clusters[0], 0, 1)
    state, last, first, second, answers = run(HEIGHT)
    np.testing.assert_array_equal(state.clusters, clusters)
    assert int(first.found) == int(second.found) == 2
    start = np.asarray(state.start, "f8")
    models = rounds_by_hand(start, clusters)
    close(np.asarray(last.models)[clusters], models)
    close(answers, np.einsum("csf,cf->cs", DATA.inputs, models))
    np.testing.assert_array_equal(last.models[2], start)  # Nobody's.
    for i in range(CLIENTS):
        x, y = samples(i)
        close(first.losses[i], np.mean((x @ start - y) ** 2))
    wrong = clusters.copy()
    wrong[3] = 0
    for other in (
        rounds_by_hand(start, clusters, np.ones(CLIENTS)),
        rounds_by_hand(start, wrong),
    ):
        with pytest.raises(AssertionError):  # Controls.
            close(np.asarray(last.models)[clusters], other)


def test_a_threshold_above_all_angles_is_fedavg():
    algorithm = fedavg(TASK, step_size=STEP, num_steps=STEPS)

    @jax.jit
    def theirs(data):
        state = algorithm.init(jax.random.key(0), data)
        state, _ = algorithm.step(jax.random.key(1), state, data)
        return algorithm.step(jax.random.key(2), state, data)

    expected, info = theirs(DATA)
    _, last, _, second, _ = run(90.0)
    np.testing.assert_allclose(last.models[0], expected.model, rtol=1e-6)
    np.testing.assert_allclose(second.losses, info.losses, rtol=1e-5)
    np.testing.assert_array_equal(second.assignment, info.assignment)
    with pytest.raises(AssertionError):  # Control.
        close(run(HEIGHT)[1].models[0], expected.model)


@pytest.mark.slow
def test_a_single_model_is_fedavg_s_and_says_how_many_it_stands_for():
    expected = run(90.0)[1].models[0]
    _, alone, _, second, _ = run(HEIGHT, max_clusters=1)
    np.testing.assert_allclose(alone.models[0], expected, rtol=1e-6)
    assert int(second.found) == 2


def test_a_threshold_below_all_angles_is_local_training():
    state, last, _, second, _ = run(0.0)
    assert state.clusters.tolist() == list(range(CLIENTS))
    assert int(second.found) == CLIENTS
    close(last.models, rounds_by_hand(np.asarray(state.start, "f8"), np.arange(5)))


def test_too_few_models_merge_the_nearest_and_say_so():
    state, _, first, _, _ = run(0.0, max_clusters=2)
    assert int(first.found) == CLIENTS > 2
    np.testing.assert_array_equal(state.clusters, PLANES)


def test_bytes_are_those_of_vectors_once_and_of_one_model():
    _, _, first, second, _ = run(HEIGHT)
    model = 4 * FEATURES
    for info in (first, second):
        np.testing.assert_array_equal(info.received, np.full(CLIENTS, model))
    np.testing.assert_array_equal(second.sent, np.full(CLIENTS, model))
    np.testing.assert_array_equal(first.sent - second.sent, [VECTORS * model] * CLIENTS)
    fewer = DATA._replace(mask=DATA.mask.at[3, 1:].set(False))
    _, _, first, _, _ = run(HEIGHT, data=fewer)
    assert int(first.sent[3]) == 2 * model, "a client with one sample has a vector"


@pytest.mark.parametrize("kind", ["no samples", "zeros", "not a number"])
def test_clients_without_vectors_have_no_cluster(kind):
    value = {"no samples": 1.0, "zeros": 0.0, "not a number": np.nan}[kind]
    data = DATA._replace(inputs=DATA.inputs.at[1].set(value))
    if kind == "no samples":
        data = data._replace(mask=data.mask.at[1].set(False))
    state, last, first, _, _ = run(HEIGHT, data=data)
    assert state.clusters.tolist() == [0, -1, 0, 1, 1]
    assert first.assignment.tolist() == [0, -1, 0, 1, 1]
    assert np.isnan(np.asarray(first.losses)).tolist() == [0, 1, 0, 0, 0]
    assert int(first.received[1]) == int(first.sent[1]) == 0
    start = np.asarray(state.start, "f8")
    close(last.models[0], rounds_by_hand(start, PLANES)[0])
    expected = rounds_by_hand(start, PLANES, np.where(np.arange(5) == 1, 0, KEPT))
    close(last.models[1], expected[3])


def test_a_diverged_client_does_not_spoil_its_cluster():
    data = DATA._replace(targets=DATA.targets.at[1].set(1e30))
    state, last, first, _, _ = run(HEIGHT, data=data)
    np.testing.assert_array_equal(state.clusters, PLANES)
    assert first.assignment.tolist() == [0, -1, 0, 1, 1]
    assert np.isfinite(last.models).all()


@functools.cache
def joined(threshold):
    grouped = {"max_clusters": 2, "threshold": threshold}
    algorithm = build(**grouped if threshold else {"num_clusters": 2})

    def join(state, data):
        after = algorithm.join(jax.random.key(5), state, data)
        return after, algorithm.predict(after, data, data.inputs)

    return jax.jit(join)


def test_newcomers_join_the_nearest_or_stay_alone():
    """The third is near nobody, the fourth has no samples."""
    state = run(HEIGHT, max_clusters=2)[1]
    data = draw([1, 0, 2, 1, 0, 0], [3, 8, 6, 0, 1, 8], seed=9)
    after, answers = joined(HEIGHT)(state, data)
    assert after.clusters.tolist() == [1, 0, 4, -1, 0, 0]
    np.testing.assert_array_equal(after.models[:2], state.models)
    alone = trained(np.asarray(state.start, "f8"), 2, data)
    close(after.models[4], alone)
    close(answers[2], np.asarray(data.inputs)[2] @ alone)
    close(answers[0], np.asarray(data.inputs)[0] @ np.asarray(state.models)[1])
    with pytest.raises(AssertionError):  # Control: it is not given a cluster's model.
        close(answers[2], np.asarray(data.inputs)[2] @ np.asarray(state.models)[0])
    told, _ = joined(None)(state, data)
    assert told.clusters[2] in (0, 1), "without a threshold nobody is too far"
    np.testing.assert_array_equal(np.delete(told.clusters, 2), [1, 0, -1, 0, 0])


@pytest.mark.slow
def test_the_absent_take_no_part():
    algorithm = build(threshold=HEIGHT, max_clusters=2, participation=0.4)
    state = jax.jit(algorithm.init)(jax.random.key(0), DATA)
    np.testing.assert_array_equal(state.clusters, PLANES)
    after, info = jax.jit(algorithm.step)(jax.random.key(3), state, DATA)
    there = np.asarray(info.assignment) >= 0
    assert there.sum() == 2
    np.testing.assert_array_equal(~there, np.isnan(info.losses))
    start = np.asarray(state.start, "f8")
    for k in range(2):
        own = [i for i in range(CLIENTS) if there[i] and PLANES[i] == k]
        mean = start
        if own:
            sent = [trained(start, i) for i in own]
            mean = np.average(sent, axis=0, weights=KEPT[own])
        close(after.models[k], mean)
