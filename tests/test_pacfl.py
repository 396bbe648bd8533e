"""PACFL: clusters and rounds in NumPy, its limits, who joins whom, and subspaces."""

import functools
from typing import Any

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.cluster.hierarchy
import scipy.linalg
import scipy.spatial.distance
from by_hand import close, differ, misuse, padded

from cfljax.algorithms import fedavg, pacfl
from cfljax.algorithms.pacfl import (
    Subspaces,
    angles_between,
    client_subspaces,
    group_subspaces,
    nearest_groups,
)
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
    return padded(inputs, np.einsum("csf,cf->cs", inputs, truth), kept)


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


def distances_by_hand():
    """Smallest principal angles, degrees."""
    span = lambda x: np.linalg.svd(x.T)[0][:, :VECTORS]
    spans = [span(by_hand.own(DATA, i)[0]) for i in range(CLIENTS)]
    angle = lambda a, b: np.rad2deg(scipy.linalg.subspace_angles(a, b).min())
    return np.array([[angle(a, b) for b in spans] for a in spans])


def trained(theta, i, data=DATA):
    return by_hand.trained(data, i, theta, step_size=STEP, num_steps=STEPS)


def rounds_by_hand(start, clusters, weights=KEPT):
    """Models after two rounds, one for each client."""
    models = np.tile(start, (CLIENTS, 1))
    for _ in range(2):
        sent = np.array([trained(models[i], i) for i in range(CLIENTS)])
        for k in set(clusters):
            members = clusters == k
            models[members] = np.average(
                sent[members], axis=0, weights=weights[members]
            )
    return models


# Against equations


@pytest.mark.long
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
        close(first.losses[i], by_hand.loss(DATA, i, start))
    wrong = clusters.copy()
    wrong[3] = 0
    for other in (
        rounds_by_hand(start, clusters, np.ones(CLIENTS)),
        rounds_by_hand(start, wrong),
    ):
        differ(np.asarray(last.models)[clusters], other)


# Against itself


@pytest.mark.long
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
    differ(run(HEIGHT)[1].models[0], expected.model)


@pytest.mark.slow
def test_a_single_model_is_fedavg_s_and_says_how_many_it_stands_for():
    expected = run(90.0)[1].models[0]
    _, alone, _, second, _ = run(HEIGHT, max_clusters=1)
    np.testing.assert_allclose(alone.models[0], expected, rtol=1e-6)
    assert int(second.found) == 2


@pytest.mark.long
def test_a_threshold_below_all_angles_is_local_training():
    state, last, _, second, _ = run(0.0)
    assert state.clusters.tolist() == list(range(CLIENTS))
    assert int(second.found) == CLIENTS
    close(last.models, rounds_by_hand(np.asarray(state.start, "f8"), np.arange(5)))


@pytest.mark.long
def test_too_few_models_merge_the_nearest_and_say_so():
    state, _, first, _, _ = run(0.0, max_clusters=2)
    assert int(first.found) == CLIENTS > 2
    np.testing.assert_array_equal(state.clusters, PLANES)


@pytest.mark.long
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
    # What it trains overflows and is left out of the mean.
    assert first.assignment.tolist() == [0, 1, 0, 1, 1]
    assert np.isfinite(last.models).all()


@functools.cache
def joined(threshold):
    grouped = {"max_clusters": 2, "threshold": threshold}
    algorithm = build(**grouped if threshold else {"num_clusters": 2})

    def join(state, data):
        after = algorithm.join(jax.random.key(5), state, data)
        return after, algorithm.predict(after, data, data.inputs)

    return jax.jit(join)


@pytest.mark.long
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
    # It is not given a cluster's model.
    differ(answers[2], np.asarray(data.inputs)[2] @ np.asarray(state.models)[0])
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
        members = [i for i in range(CLIENTS) if there[i] and PLANES[i] == k]
        mean = start
        if members:
            sent = [trained(start, i) for i in members]
            mean = np.average(sent, axis=0, weights=KEPT[members])
        close(after.models[k], mean)


def in_classes(groups, counts):
    """Clients whose classes lie on lines of their own: group 0 has classes 0 and 1."""
    inputs = np.zeros((len(groups), 6, FEATURES), "f4")
    targets = np.zeros((len(groups), 6), "i4")
    generator = np.random.default_rng(3)
    for i, group in enumerate(groups):
        targets[i] = 2 * group + np.arange(6) % 2
        inputs[i] = 3 * np.eye(FEATURES)[targets[i]]
    inputs += 0.1 * generator.normal(size=inputs.shape)
    return padded(inputs, targets, counts)._replace(targets=jnp.asarray(targets))


@pytest.mark.parametrize(
    "angle", ["principal", pytest.param("entry", marks=pytest.mark.slow)]
)
def test_label_skew_is_recovered(angle):
    """Also of clients with one sample, or with a single class."""
    settings: dict[str, Any] = {"num_classes": 4, "num_vectors": 1, "angle": angle}
    algorithm = build(**settings, threshold=HEIGHT, max_clusters=3)
    start = jax.jit(algorithm.init)
    state = start(jax.random.key(0), in_classes([0, 1, 1, 0, 1], [6, 6, 1, 1, 5]))
    assert state.clusters.tolist() == [0, 1, 1, 0, 1]
    assert state.subspaces.kept.sum(1).tolist() == [2, 2, 1, 1, 2]
    state = start(jax.random.key(0), in_classes([1, 1, 1, 1, 1], [6, 6, 1, 1, 5]))
    assert int(state.found) == 1, "control: one group is not torn"


# Against reference: subspaces of clients and their angles, by NumPy and SciPy


SEEN, PIXELS, CLASSES = 9, 8, 3  # Of images of five clients.


def images():
    """Client 0 has every class, 1 one sample of class 0, 2 and 3 no class 1, 4 all."""
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(CLIENTS, SEEN, 2, 4)).astype("f4")
    targets = np.tile(np.arange(SEEN) % CLASSES, (CLIENTS, 1))
    mask = np.ones((CLIENTS, SEEN), bool)
    mask[1, 1:] = False
    mask[2:4] = targets[2:4] != 1
    inputs[4, :, 0] = 0
    # Class 2 of client 4 lies on a line, almost that of its class 1.
    inputs[4, 2::3] = inputs[4, 2:3] * np.array([1.0, -2.0, 0.5])[:, None, None]
    inputs[4, 1::3] = inputs[4, 2:3] * np.array([2.0, 1.0, 1.0])[:, None, None]
    return ClientData(jnp.asarray(inputs), jnp.asarray(targets), jnp.asarray(mask))


IMAGES = images()


@functools.cache
def told():
    run = functools.partial(client_subspaces, num_vectors=VECTORS, num_classes=CLASSES)
    return jax.tree.map(np.asarray, jax.jit(run)(IMAGES))


@functools.cache
def angles_of(angle):
    return jax.jit(functools.partial(angles_between, angle=angle))


def angles(left, right, angle="principal"):
    return np.asarray(angles_of(angle)(left, right))


def of_columns(columns):
    columns = jnp.asarray(columns, jnp.float32)
    return Subspaces(columns, jnp.any(columns != 0, axis=1))


def columns_of(subspaces, client):
    return subspaces.vectors[client][:, subspaces.kept[client]].astype("f8")


def test_vectors_are_numpy_s():
    vectors, kept = told()
    assert vectors.shape == (CLIENTS, PIXELS, CLASSES * VECTORS)
    assert kept.sum(1).tolist() == [6, 1, 4, 4, 4]  # 1, 1 and 2 of client 4.
    np.testing.assert_array_equal(vectors[~np.repeat(kept[:, None], PIXELS, 1)], 0)
    for client in range(CLIENTS):
        for label in range(CLASSES):
            own = np.asarray(IMAGES.mask[client]) & (IMAGES.targets[client] == label)
            rows = np.asarray(IMAGES.inputs[client], "f8")[own].reshape(-1, PIXELS)
            left, sizes, _ = np.linalg.svd(rows.T, full_matrices=False)
            number = min(VECTORS, int(np.sum(sizes > 1e-4)))
            block = slice(label * VECTORS, (label + 1) * VECTORS)
            found = vectors[client][:, block][:, kept[client, block]]
            signs = np.sign(np.sum(found * left[:, :number], axis=0))
            np.testing.assert_allclose(found, left[:, :number] * signs, atol=5e-6)
            largest = np.argmax(np.abs(found), axis=0)
            assert (np.take_along_axis(found, largest[None], axis=0) > 0).all()


@pytest.mark.parametrize("shift", [0.0, 3.0])
def test_singular_vectors_are_of_inputs_as_they_are(shift):
    """Control: taking the mean off first would give others."""
    inputs = np.random.default_rng(1).normal(size=(1, SEEN, PIXELS)) + shift
    data = IMAGES._replace(
        inputs=jnp.asarray(inputs, jnp.float32),
        targets=IMAGES.targets[:1],
        mask=jnp.ones((1, SEEN), bool),
    )
    run = jax.jit(functools.partial(client_subspaces, num_vectors=1))
    found = np.asarray(run(data).vectors)[0, :, 0]
    raw = np.linalg.svd(inputs[0])[2][0]
    centred = np.linalg.svd(inputs[0] - inputs[0].mean(axis=0))[2][0]
    assert abs(found @ raw) > 1 - 1e-5
    assert abs(found @ centred) < 0.999


def test_principal_angles_are_scipy_s():
    subspaces = told()
    found = angles(subspaces, subspaces)
    for i in range(CLIENTS):
        for j in range(CLIENTS):
            # Two vectors of client 4 are one, but for rounding.
            pair = [
                scipy.linalg.orth(columns_of(subspaces, client), rcond=1e-5)
                for client in (i, j)
            ]
            expected = np.rad2deg(scipy.linalg.subspace_angles(*pair).min())
            np.testing.assert_allclose(found[i, j], expected, atol=2e-4)
    # Control: as if vectors of different classes were orthogonal.
    products = columns_of(subspaces, 2).T @ columns_of(subspaces, 3)
    naive = np.rad2deg(np.arccos(np.linalg.norm(products, 2).clip(-1, 1)))
    assert abs(naive - found[2, 3]) > 1


@pytest.mark.parametrize("degrees", [0.0, 0.002, 0.5, 45.0, 89.9, 90.0])
@pytest.mark.parametrize("angle", ["principal", "entry"])
def test_small_angles_are_precise(angle, degrees):
    """The other angle is 90 degrees, to a column that there is not, or to one that is;
    the arc cosine of single precision would be wrong by more than a tenth of .002."""
    radians = np.deg2rad(degrees)
    zeros = np.zeros(PIXELS)
    one, other = np.eye(PIXELS)[0], np.eye(PIXELS)[1]
    turned = np.cos(radians) * one + np.sin(radians) * other
    left = of_columns([np.stack([one, zeros], 1), np.stack([zeros, one], 1)])
    far = np.eye(PIXELS)[2]
    right = of_columns([np.stack([turned, zeros], 1), np.stack([far, turned], 1)])
    np.testing.assert_allclose(angles(left, right, angle), degrees, atol=1e-5)
    if degrees == 0.002:
        cosine = np.dot(one.astype("f4"), turned.astype("f4"))
        assert abs(np.rad2deg(np.arccos(cosine)) - degrees) > 2e-4


def test_missing_vectors_are_no_angle_of_90():
    one, other = np.array([1.0, 0.0, 0.0]), np.array([-0.6, 0.8, 0.0])
    zeros = np.zeros(3)
    left = of_columns([np.stack([one, zeros], 1), np.zeros((3, 2))])
    right = of_columns([np.stack([zeros, other], 1), np.zeros((3, 2))])
    found = angles(left, right, "entry")
    np.testing.assert_allclose(found[0, 0], np.rad2deg(np.arccos(-0.6)), rtol=1e-5)
    assert np.isnan(found).sum() == 3  # Nobody is near a client that told nothing.
    found = angles(left, right)
    np.testing.assert_allclose(found[0, 0], np.rad2deg(np.arccos(0.6)), rtol=1e-5)
    assert np.isnan(found).sum() == 3


def test_only_entries_hang_on_the_basis():
    """Signs and rotations of a basis are arbitrary."""
    subspaces = told()
    first = Subspaces(subspaces.vectors[:1, :, :2], subspaces.kept[:1, :2])
    turn = np.array([[0.6, -0.8], [0.8, 0.6]], "f4")
    turned = first._replace(vectors=first.vectors @ turn)
    flipped = first._replace(vectors=-first.vectors)
    for other in (turned, flipped):
        same = angles(other, subspaces), angles(first, subspaces)
        np.testing.assert_allclose(*same, atol=2e-4)
        change = angles(other, subspaces, "entry") - angles(first, subspaces, "entry")
        assert np.abs(change).max() > 1


@pytest.mark.parametrize("kind", ["integers", "not a number", "infinite", "zeros"])
def test_inputs_of_other_kinds(kind):
    """Only the client itself has no vectors where its inputs span nothing finite."""
    inputs = np.asarray(IMAGES.inputs)
    if kind == "integers":
        inputs = (10 * inputs).astype("i4")
    else:
        inputs = inputs.copy()
        spoiled = {"not a number": np.nan, "infinite": np.inf, "zeros": 0.0}[kind]
        inputs[0] = spoiled
    run = functools.partial(client_subspaces, num_vectors=VECTORS)
    found = jax.jit(run)(IMAGES._replace(inputs=jnp.asarray(inputs)))
    assert found.vectors.dtype == jnp.float32
    assert np.isfinite(found.vectors).all()
    expected = [2, 1, 2, 2, 2] if kind == "integers" else [0, 1, 2, 2, 2]
    assert np.asarray(found.kept).sum(1).tolist() == expected


def test_chunks_change_nothing():
    batched: dict[str, Any] = {"order": "batched", "clients_per_chunk": 2}
    run = functools.partial(client_subspaces, num_vectors=VECTORS, num_classes=CLASSES)
    found = jax.jit(functools.partial(run, **batched))(IMAGES)
    np.testing.assert_allclose(found.vectors, told().vectors, atol=1e-5)
    np.testing.assert_array_equal(found.kept, told().kept)


# Against reference: lines of a plane, grouped by SciPy's trees


# Degrees. At 45 the plain mean to the three lines below is 34.3, that of WPGMA 31.5.
LINES = np.array([0.0, 10.0, 22.0, 45.0, 85.0])
LINKAGES = ["weighted", "average", "complete", "single"]
SLOWLY = ["weighted", *(pytest.param(x, marks=pytest.mark.slow) for x in LINKAGES[1:])]


def lines(degrees):
    """One vector for each client; none where the angle is not a number."""
    radians = np.deg2rad(np.asarray(degrees))
    vectors = np.stack([np.cos(radians), np.sin(radians)], axis=1)[:, :, None]
    kept = np.isfinite(vectors).all(axis=1)
    vectors = np.where(np.isnan(vectors), 0, vectors).astype("f4")
    return Subspaces(jnp.asarray(vectors), jnp.asarray(kept))


@functools.cache
def grouped_by(linkage, number):
    """Groups at a threshold."""
    run = lambda threshold, sent: group_subspaces(
        angles_between(sent, sent),
        jnp.any(sent.kept, axis=1),
        number,
        threshold=threshold,
        linkage=linkage,
    )
    return jax.jit(run)


def tree(linkage):
    pairs = scipy.spatial.distance.pdist(LINES[:, None])
    return scipy.cluster.hierarchy.linkage(pairs, linkage)


def numbered(labels):
    """Labels in the order of their first points."""
    return [list(dict.fromkeys(labels)).index(label) for label in labels]


@pytest.mark.long
@pytest.mark.parametrize("linkage", SLOWLY)
def test_groups_are_scipy_s(linkage):
    told, run = lines(LINES), grouped_by(linkage, len(LINES))
    for threshold in (0.0, 11.0, 21.0, 33.0, 50.0, 90.0):
        cut = scipy.cluster.hierarchy.fcluster(tree(linkage), threshold, "distance")
        clusters, found = run(threshold, told)
        assert clusters.tolist() == numbered(cut)
        assert int(found) == len(set(cut))


@pytest.mark.long
def test_what_the_released_code_calls_average_is_not():
    told = lines(LINES)
    weighted, _ = grouped_by("weighted", len(LINES))(33.0, told)
    average, _ = grouped_by("average", len(LINES))(33.0, told)
    assert weighted.tolist() == [0, 0, 0, 0, 1]
    assert average.tolist() == [0, 0, 0, 1, 2]


def test_too_few_groups_go_on_merging():
    told, run = lines(LINES), grouped_by("weighted", 3)
    clusters, found = run(11.0, told)
    assert clusters.tolist() == [0, 0, 0, 1, 2]
    assert int(found) == 4
    clusters, found = run(33.0, told)
    assert int(found) == 2 == len(set(clusters.tolist())), "control: enough"
    clusters, found = run(11.0, lines([np.nan, 0.0, 80.0, np.nan, 3.0]))
    assert clusters.tolist() == [-1, 0, 1, -1, 0]
    assert int(found) == 2
    clusters, found = run(11.0, lines([np.nan] * 5))
    assert clusters.tolist() == [-1] * 5
    assert int(found) == 0


@pytest.mark.parametrize("linkage", LINKAGES)
def test_newcomers_go_to_the_nearest(linkage):
    clusters = np.array([0, 1, 0, 3, -1])
    degrees = np.array([8.0, 14.0, 40.0, 80.0])
    run = lambda *sent: nearest_groups(
        angles_between(*sent), jnp.asarray(clusters), 4, linkage=linkage
    )
    found, angles = jax.jit(run)(lines([*degrees, np.nan]), lines(LINES))
    rule = {"single": np.min, "complete": np.max}.get(linkage, np.mean)
    apart = np.abs(degrees[:, None] - LINES[None])
    expected = np.full((4, 4), np.inf)  # Nobody is in cluster 2.
    for k in (0, 1, 3):
        expected[:, k] = rule(apart[:, clusters == k], axis=1)
    assert found.tolist() == [*expected.argmin(axis=1), -1]
    np.testing.assert_allclose(angles[:4], expected.min(axis=1), rtol=1e-4)
    assert np.isinf(angles[4])
    with pytest.raises(AssertionError):  # Control: the last client is in no cluster.
        np.testing.assert_allclose(angles[:4], apart.min(axis=1), rtol=1e-4)


# Against misuse


test_misuse_is_named = misuse(
    build,
    ({}, "one of `threshold` and `num_clusters` must be given"),
    ({"threshold": 3.0, "num_clusters": 2}, "one of `threshold` and"),
    ({"threshold": 3.0}, "`max_clusters` must be given beside `threshold`"),
    ({"num_clusters": 2, "max_clusters": 2}, "`max_clusters` must be given"),
    ({"num_clusters": 0}, "`num_clusters` must be at least 1, got 0"),
    ({"threshold": 3.0, "max_clusters": 0}, "`max_clusters` must be at least 1"),
    ({"threshold": -1.0, "max_clusters": 2}, "`threshold` must not be negative"),
    ({"threshold": np.nan, "max_clusters": 2}, "`threshold` must not be negative"),
    ({"num_clusters": 2, "num_vectors": 0}, "`num_vectors` must be at least 1"),
    ({"num_clusters": 2, "num_classes": 0}, "`num_classes` must be at least 1"),
    ({"num_clusters": 2, "angle": "cosine"}, "angle"),
    ({"num_clusters": 2, "linkage": "ward"}, "linkage"),
)


NUMBERED = IMAGES._replace(targets=IMAGES.inputs[:, :, 0, 0])
test_misuse_of_subspaces_is_named = misuse(
    functools.partial(client_subspaces, NUMBERED),
    ({"num_vectors": 0}, "`num_vectors` must be at least 1, got 0"),
    ({"num_vectors": 1, "num_classes": 0}, "`num_classes` must be at least 1"),
    ({"num_vectors": 1, "num_classes": 2}, "`num_classes` needs targets that"),
)
test_an_unknown_angle_is_named = misuse(
    lambda angle: angles_between(told(), told(), angle=angle),
    ({"angle": "cosine"}, "angle"),
)
