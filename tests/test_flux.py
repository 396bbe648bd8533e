"""FLUX: descriptors, radius and rounds against scikit-learn and NumPy, its limits, its
noise, and whom newcomers join."""

import functools
from typing import Any

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import prototype_rounds as network
import pytest
import scipy.stats
from by_hand import close, compiled, differ, misuse
from prototype_rounds import CLASSES, FEATURES, INPUTS, TASK
from sklearn.cluster import DBSCAN
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import MinMaxScaler

from cfljax.algorithms import fedavg, flux
from cfljax.algorithms.flux import elbow, group, laplace
from cfljax.base.streams import Stream
from cfljax.models import linear, mlp

SAMPLES, STEP, STEPS, WARM_UP = 18, 0.3, 2, 1
GROUPS = np.array([0, 1, 0, 1, 1, 0, 2])
CLIENTS = len(GROUPS)
KEPT = np.array([18, 12, 18, 18, 12, 18, 18])  # Real samples of each client.
FOUND = [0, 1, 0, 1, 1, 0, 6]  # Clusters by their first members.
KEY = jax.random.key(0)


def draw(groups, kept, seed=1):
    """Each group has six samples of its own, two of each class, which its clients hold
    once and again, hardly moved; the last group has class 2 once. Class 3 belongs to
    nobody."""
    own = np.random.default_rng(5).normal(size=(3, 6, INPUTS))
    noise = np.random.default_rng(seed).normal(size=(len(groups), SAMPLES, INPUTS))
    inputs = np.tile(own, (1, 3, 1))[groups] + 0.02 * noise
    labels = np.arange(SAMPLES) % 3 * np.ones((len(groups), 1), int)
    labels[groups == 2, 3:] %= 2
    data = by_hand.padded(inputs, labels, kept)
    return data._replace(targets=jnp.asarray(labels, jnp.int32))


DATA = draw(GROUPS, KEPT)
NEW = draw(np.array([1, 0, 2, 1]), np.array([18, 6, 12, 18]), seed=2)
SETTINGS: dict[str, Any] = {
    "num_classes": CLASSES,
    "num_components": FEATURES,
    "step_size": STEP,
    "num_steps": STEPS,
    "warm_up_rounds": WARM_UP,
}


def build(**changes):
    return compiled(flux(TASK, **(SETTINGS | changes)))


PLAIN = build()
START = PLAIN.init(KEY, DATA)
NO_MEANS = np.zeros((CLASSES, FEATURES))  # Nothing pulls at the features.


@functools.cache
def after(number):
    """The state and what the last of so many rounds told."""
    return by_hand.rounds(PLAIN, START, DATA, number)


def models_by_hand(models, clusters):
    """Each client's model after a round within the clusters."""
    trained = []
    for i, model in enumerate(models):
        for _ in range(STEPS):
            no = np.zeros(CLASSES, bool)
            slope = network.slopes(model, *by_hand.own(DATA, i), NO_MEANS, no, 0)[1]
            model = {name: model[name] - STEP * slope[name] for name in model}
        trained.append(model)
    return [
        {
            name: np.average(
                [trained[j][name] for j in np.flatnonzero(clusters == own)],
                axis=0,
                weights=KEPT[clusters == own],
            )
            for name in model
        }
        for own, model in zip(clusters, models, strict=True)
    ]


def features_of(model, data, i):
    x, y = by_hand.own(data, i)
    return np.tanh(x @ model["body"]), y


class Server:
    """The released code's server, of scikit-learn's parts, given the global model."""

    def __init__(self, model, *, absent=-1.0, together=False):
        self.model = model
        own = jax.random.fold_in(KEY, Stream.ALGORITHM)
        points = np.asarray(jax.random.uniform(own, (200, FEATURES)), float)
        largest = max(features_of(model, DATA, i)[0].max() for i in range(CLIENTS))
        self.points = 1.02 * largest * points
        self.projection = PCA(FEATURES).fit(self.points)
        described = np.array([self.describe(DATA, i, absent) for i in range(CLIENTS)])
        self.described = described
        self.scalers = [
            MinMaxScaler().fit((described if together else block).reshape(-1, 1))
            for block in np.moveaxis(described, 1, 0)
        ]
        self.scaled = self.scale(described)
        flat = self.scaled.reshape(CLIENTS, -1)
        nearest = NearestNeighbors(n_neighbors=2).fit(flat).kneighbors(flat)[0][:, 1]
        self.radius = elbow_by_hand(np.sort(nearest))
        # The farthest pair is at just the radius, of which the two parts differ.
        self.clusters = dbscan(flat, self.radius * (1 + 1e-6))

    def describe(self, data, i, absent=-1.0):
        features, labels = features_of(self.model, data, i)
        points = self.projection.transform(features)
        blocks = [points.mean(0), points.std(0)]
        own = [points[labels == k] for k in range(CLASSES)]
        nobody = np.full(FEATURES, absent)
        blocks += [rows.mean(0) if len(rows) > 1 else nobody for rows in own]
        blocks += [rows.std(0) if len(rows) > 1 else nobody for rows in own]
        return np.array(blocks)

    def scale(self, described):
        own = zip(self.scalers, np.moveaxis(described, 1, 0), strict=False)
        moved = [s.transform(b.reshape(-1, 1)).reshape(b.shape) for s, b in own]
        return np.stack(moved, axis=1)

    def nearest(self, data, i):
        """The cluster of a newcomer."""
        own = self.scale(self.describe(data, i)[None, :2])[0]
        names = np.unique(self.clusters)
        centroids = [self.scaled[self.clusters == k, :2].mean(0) for k in names]
        return names[np.argmin([np.linalg.norm(own - c) for c in centroids])]


def dbscan(points, radius, min_samples=2):
    """Clusters by their first members; a point of noise is one of its own."""
    found = DBSCAN(eps=radius, min_samples=min_samples).fit_predict(points)
    first = [np.flatnonzero(found == k)[0] for k in found]
    return np.where(found < 0, np.arange(len(found)), first)


def elbow_by_hand(rising):
    """Kneedle of a convex, rising curve, one rank after the other; the last where
    there is no elbow."""
    falling = rising[::-1]
    number = len(falling)
    width = falling[0] - falling[-1]
    if width == 0:
        return falling[0]
    curve = (falling[0] - falling) / width - np.arange(number) / (number - 1)
    edged = np.concatenate([curve[:1], curve, curve[-1:]])
    tops = (curve >= edged[:-2]) & (curve >= edged[2:])
    lows = (curve <= edged[:-2]) & (curve <= edged[2:])
    top, bound = None, 0.0
    for i in range(number - 1):
        if tops[i]:
            top, bound = i, curve[i] - 1 / (number - 1)
        if lows[i]:
            bound = 0.0
        if top is not None and curve[i + 1] < bound:
            return falling[top]
    return falling[0]


def unstacked(models):
    leaves = {name: np.asarray(leaf, float) for name, leaf in models.items()}
    return [{n: leaf[i] for n, leaf in leaves.items()} for i in range(CLIENTS)]


def same_models(state, expected, check=close):
    for name in ("body", "head"):
        rows = np.stack([model[name] for model in expected])
        check(state.models[name], rows, rtol=3e-5, atol=3e-6)


@functools.cache
def server(**changes):
    return Server(unstacked(after(WARM_UP)[0].models)[0], **changes)


# Against equations


def test_rounds_against_equations():
    everybody = np.zeros(CLIENTS, int)
    warm = models_by_hand(unstacked(START.models), everybody)
    same_models(after(WARM_UP)[0], warm)
    found = server().clusters
    np.testing.assert_array_equal(found, FOUND)
    expected = models_by_hand(warm, found)
    state, info = after(WARM_UP + 1)
    same_models(state, expected)
    np.testing.assert_array_equal(state.clusters, found)
    np.testing.assert_array_equal(info.assignment, found)
    assert int(info.found) == 3
    assert int(after(WARM_UP)[1].found) == 1
    same_models(after(WARM_UP + 2)[0], models_by_hand(expected, found))
    same_models(state, models_by_hand(warm, everybody), differ)


def test_descriptors_against_the_released_servers():
    """In the units of the state that newcomers are compared in."""
    sight, there = after(WARM_UP + 1)[0].sight, server()
    projection = START.projection
    close(projection.components, there.projection.components_, rtol=1e-4, atol=1e-5)
    close(sight.origin, there.projection.components_ @ there.points.mean(0), 1e-4)
    close(sight.low, [s.data_min_[0] for s in there.scalers[:2]], 1e-4)
    close(sight.width, [s.data_range_[0] for s in there.scalers[:2]], 1e-4)
    expected = [there.scaled[there.clusters == k, :2].mean(0) for k in there.clusters]
    close(sight.centroids, expected, 1e-3, 1e-5)
    differ(sight.centroids, there.scaled[:, :2], 1e-3, 1e-5)


@pytest.mark.long
def test_other_descriptors_have_other_distances():
    """Control: of the radius, which the clusters of these clients need not show."""
    flat = lambda there: there.scaled.reshape(CLIENTS, -1)
    found = group(
        jnp.asarray(server().scaled), jnp.ones(CLIENTS, bool), radius_scale=1.0
    )
    np.testing.assert_array_equal(
        np.unique(found, return_index=True)[1][found], server().clusters
    )
    for changes in ({"absent": 0.0}, {"together": True}):
        differ(flat(server(**changes)), flat(server()), 1e-2, 1e-2)


@pytest.mark.parametrize("scale", [0.5, 1.0, 1.5])
def test_groups_are_those_of_dbscan(scale):
    run = jax.jit(group)
    for seed in range(6):
        points = np.random.default_rng(seed).normal(size=(14, 2, 2)).astype("f4")
        found = np.asarray(run(points, np.ones(14, bool), scale))
        flat = points.reshape(14, -1)
        distances = np.linalg.norm(flat[:, None] - flat[None], axis=2)
        np.fill_diagonal(distances, np.inf)
        radius = scale * elbow_by_hand(np.sort(distances.min(1)))
        # Neighbours at just the radius are in; the two differ by rounding.
        expected = dbscan(flat, radius * (1 + 1e-6))
        first = np.unique(found, return_index=True)[1][found]
        np.testing.assert_array_equal(first, expected)


def test_a_core_of_three_points_is_another_clustering():
    """Control."""
    points = np.random.default_rng(1).normal(size=(14, 4))
    assert (dbscan(points, 1.0, 3) != dbscan(points, 1.0)).any()


# Where `KneeLocator(range(n), sorted, curve="convex", direction="increasing")` of kneed
# 0.8.5 finds the elbow; 0.9.0 finds none of the fourth.
ELBOWS = [
    ("uniform", 8, 8),
    ("uniform", 9, None),
    ("uniform", 13, 7),
    ("uniform", 20, 5),
    ("exponential", 13, 2),
    ("exponential", 16, 7),
    ("exponential", 23, 6),
    ("clusters", 9, None),
    ("clusters", 16, 8),
    ("clusters", 22, 5),
]


@pytest.mark.parametrize(("kind", "seed", "place"), ELBOWS)
def test_elbows_are_those_of_the_released_library(kind, seed, place):
    distances = curve(kind, seed)
    rising = np.sort(distances)
    expected = rising[-1 if place is None else place]
    padding = np.zeros(20 - len(rising))
    present = np.arange(20) < len(rising)
    found = jax.jit(elbow)(np.concatenate([distances, padding]), present)
    close(found, expected)
    close(elbow_by_hand(rising), expected)


def curve(kind, seed):
    generator, number = np.random.default_rng(seed), 4 + seed % 9
    if kind == "uniform":
        return generator.uniform(size=number)
    if kind == "exponential":
        return generator.exponential(size=number) ** 2
    near = generator.uniform(0.1, 0.2, size=number - 2)
    return np.concatenate([near, generator.uniform(1, 2, size=2)])


def test_a_radius_without_an_elbow():
    """Equal distances, two points, one and none; and a fall of just a rank, which
    rounding must not take for more."""
    run = jax.jit(elbow)
    each = lambda number: np.arange(6) < number
    distances = np.array([3, 3, 3, 3, 3, 3], "f4")
    close(run(distances, each(6)), 3.0)
    close(run(distances, each(2)), 3.0)
    assert [float(run(distances, each(number))) for number in (1, 0)] == [0, 0]
    ties = np.array([0.7, 0.3, 0.3, 0.25, 0.1, 0.1], "f4")
    close(run(ties, each(6)), 0.3)


# Against theory: limits


@pytest.mark.long
def test_before_the_clustering_it_is_fedavg():
    late = build(warm_up_rounds=9)
    state, info = by_hand.rounds(late, START, DATA, 3)
    other = compiled(fedavg(TASK, step_size=STEP, num_steps=STEPS))
    expected, told = by_hand.rounds(other, other.init(KEY, DATA), DATA, 3)
    for name, leaf in expected.model.items():
        close(state.models[name], np.broadcast_to(leaf, state.models[name].shape))
    np.testing.assert_array_equal(info.received, told.received)
    np.testing.assert_array_equal(info.assignment, 0)


@pytest.mark.long
def test_the_radius_is_between_nobody_and_everybody():
    state, _ = after(WARM_UP)  # Kept for other tests: not of what is traced.

    @jax.jit
    def clusters(scale):
        algorithm = flux(TASK, **SETTINGS, radius_scale=scale)
        return algorithm.step(KEY, state, DATA)[0].clusters

    assert clusters(0.0).tolist() == list(range(CLIENTS))
    assert clusters(1.0).tolist() == FOUND
    assert clusters(1e3).tolist() == [0] * CLIENTS


# Noise


def test_noise_has_the_variance_of_its_scale():
    """Of Laplace's law, which is twice the scale squared: by the largest distance of
    distribution functions, and by the sum of n absolute numbers in units of the scale,
    which is Gamma(n). Fails once in a million draws."""
    scale = np.array([0.5, 2.0], "f4")
    noise = np.asarray(laplace(KEY, jnp.asarray(scale), (2, 100, 100)))
    own = (noise / scale[:, None, None]).reshape(2, -1).astype(float)
    low, high = scipy.stats.gamma(own.shape[1]).interval(1 - 2.5e-7)
    is_laplace = lambda found: scipy.stats.kstest(found, "laplace").pvalue > 2.5e-7
    for found in own:
        assert low < np.abs(found).sum() < high and is_laplace(found)
        assert not low < np.abs(1.1 * found).sum() < high  # Control.
    differ(own[0], own[1], 1e-2)
    # Control: of the same variance.
    assert not is_laplace(np.random.default_rng(0).normal(size=10_000) * np.sqrt(2))


@pytest.mark.long
def test_noise_is_added_to_descriptors():
    """The descriptors' least and largest numbers, with the noise of the round's key."""
    there, budget = server(), 3.0

    @jax.jit
    def run(budget):
        algorithm = flux(TASK, **SETTINGS, privacy_budget=budget)
        return algorithm.step(KEY, after(WARM_UP)[0], DATA)[0]

    state = run(budget)
    projected = there.projection.transform(there.points)
    scales = []
    for i in range(CLIENTS):
        own = there.projection.transform(features_of(there.model, DATA, i)[0])
        both = np.concatenate([own, projected])
        scales.append((both.max() - both.min()) / len(own) / budget)
    own = jax.random.fold_in(KEY, Stream.ALGORITHM)
    noise = laplace(own, jnp.asarray(scales, jnp.float32), there.described.shape)
    described = there.described + np.asarray(noise)
    close(state.sight.low, described.min((0, 2))[:2], 1e-3, 1e-4)
    close(state.sight.low + state.sight.width, described.max((0, 2))[:2], 1e-3, 1e-4)
    differ(state.sight.low, there.described.min((0, 2))[:2], 1e-2)
    np.testing.assert_array_equal(run(1e9).clusters, there.clusters)


# Newcomers


@pytest.mark.long
def test_newcomers_take_the_nearest_centroid_without_labels():
    state = after(WARM_UP + 2)[0]
    joined = PLAIN.join(KEY, state, NEW)
    nearest = [server().nearest(NEW, i) for i in range(len(NEW.mask))]
    assert nearest == [1, 0, 6, 1]
    for name, leaf in joined.models.items():
        np.testing.assert_array_equal(leaf, state.models[name][np.array(nearest)])
    swapped = NEW._replace(targets=(NEW.targets + 1) % CLASSES)
    again = PLAIN.join(KEY, state, swapped)
    np.testing.assert_array_equal(again.models["body"], joined.models["body"])
    answers = PLAIN.predict(joined, NEW, NEW.inputs)
    assert answers.shape == (*NEW.mask.shape, CLASSES)


# Against itself


def test_messages_count_the_descriptors_once():
    model = 4 * (INPUTS * FEATURES + FEATURES * CLASSES)
    described = 4 * 2 * (CLASSES + 1) * FEATURES
    for number in (WARM_UP, WARM_UP + 2):
        info = after(number)[1]
        assert info.received.tolist() == info.sent.tolist() == [model] * CLIENTS
    info = after(WARM_UP + 1)[1]
    assert info.received.tolist() == [model + 4] * CLIENTS
    assert info.sent.tolist() == [model + described + 4] * CLIENTS


def test_lost_and_empty_clients_have_no_cluster():
    """And spoil no other: the largest feature is of clients that have finite ones."""
    empty = DATA._replace(mask=DATA.mask.at[2].set(False))
    expected = [0, 1, -1, 1, 1, 0, 6]
    state, info = PLAIN.step(KEY, after(WARM_UP)[0], empty)
    assert info.assignment.tolist() == expected == state.clusters.tolist()
    kept = after(WARM_UP)[0].models["body"][2]
    np.testing.assert_array_equal(state.models["body"][2], kept)
    broken = DATA._replace(inputs=DATA.inputs.at[2].set(jnp.nan))
    state, info = PLAIN.step(KEY, after(WARM_UP)[0], broken)
    assert info.assignment.tolist() == expected
    assert all(np.isfinite(leaf).all() for leaf in state.models.values())
    nobody = DATA._replace(inputs=jnp.full_like(DATA.inputs, jnp.nan))
    state, info = PLAIN.step(KEY, after(WARM_UP)[0], nobody)
    assert info.assignment.tolist() == [-1] * CLIENTS and int(info.found) == 0
    assert np.isfinite(state.sight.low).all()


@pytest.mark.long
def test_the_absent_follow_their_clusters():
    half = build(participation=0.3)
    state, info = half.step(jax.random.key(3), after(WARM_UP)[0], DATA)
    asked = np.isfinite(np.asarray(info.losses))
    assert asked.sum() == 2
    model = 4 * (INPUTS * FEATURES + FEATURES * CLASSES)
    described = 4 * 2 * (CLASSES + 1) * FEATURES
    assert info.received.tolist() == [model + 4] * CLIENTS  # All describe by it.
    expected = np.where(asked, model, 0) + described + 4
    np.testing.assert_array_equal(info.sent, expected)
    np.testing.assert_array_equal(state.clusters, server().clusters)
    for i, own in enumerate(np.asarray(state.clusters)):
        close(state.models["body"][i], state.models["body"][own])


# Against misuse


def test_a_task_without_layers_is_refused():
    with pytest.raises(ValueError, match="`task` must have `layers`"):
        flux(linear(INPUTS), **SETTINGS)


def test_more_components_than_features_are_refused():
    with pytest.raises(ValueError, match="`num_components` must be at most 2, the net"):
        build(num_components=3).init(KEY, DATA)


def test_components_are_as_many_as_classes_or_features():
    """Whichever are fewer, where nothing is asked."""
    assert FEATURES < CLASSES
    few = flux(TASK, num_classes=CLASSES, step_size=STEP).init(KEY, DATA)
    assert few.projection.components.shape[0] == FEATURES
    wide = mlp((INPUTS,), hidden=(5,), num_classes=CLASSES)
    many = flux(wide, num_classes=CLASSES, step_size=STEP).init(KEY, DATA)
    assert many.projection.components.shape[0] == CLASSES


test_misuse_is_named = misuse(
    lambda **changes: flux(TASK, **(SETTINGS | changes)),
    ({"num_components": 0}, "`num_components` must be at least 1"),
    ({"num_classes": 0}, "`num_classes` must be at least 1"),
    ({"warm_up_rounds": -1}, "`warm_up_rounds` must be at least 0"),
    ({"radius_scale": -1.0}, "`radius_scale` must not be negative"),
    ({"privacy_budget": 0.0}, "`privacy_budget` must be positive"),
    ({"weights": "equal"}, "weights"),
)
