"""kNN-Per: answers by hand in NumPy, faulty mixtures, and nearest neighbours."""

import functools
from typing import Any

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import compiled, misuse, padded, rounds
from sklearn.neighbors import NearestNeighbors

from cfljax.algorithms import fedavg, knn_per
from cfljax.algorithms.knn_per import (
    Interpolation,
    State,
    best_weights,
    nearest_samples,
    neighbour_mean,
)
from cfljax.base.types import ClientData, Task
from cfljax.losses import cross_entropy
from cfljax.metrics import accuracy
from cfljax.models import linear

CLIENTS, SAMPLES, QUERIES, FEATURES, CLASSES = 4, 12, 5, 2, 3
KEPT = np.array([12, 7, 3, 0])  # Client 2 has fewer than k samples, client 3 none.
K = 5


def predict(kernel, inputs):
    return inputs @ kernel


TASK = Task(
    init=lambda key: jax.random.normal(key, (FEATURES, CLASSES)),
    losses=lambda kernel, x, y: cross_entropy(predict(kernel, x), y),
    predict=predict,
)


def draw(seed=0):
    generator = np.random.default_rng(seed)
    inputs = generator.normal(size=(CLIENTS, SAMPLES, FEATURES)).astype("f4")
    targets = generator.integers(0, CLASSES, (CLIENTS, SAMPLES)).astype("i4")
    return padded(inputs, targets, KEPT)._replace(targets=jnp.asarray(targets))


DATA = draw()
KERNEL = np.random.default_rng(1).normal(size=(FEATURES, CLASSES)).astype("f4")
NEW = np.random.default_rng(2).normal(size=(CLIENTS, QUERIES, FEATURES)).astype("f4")
STATE = State(jnp.asarray(KERNEL))
WEIGHTS = np.array([0.3, 0.6, 0.9, 0.5], "f4")


def softmax(logits):
    shares = np.exp(logits - logits.max())
    return shares / shares.sum()


def neighbours_by_hand(points, labels, query, *, scale=1.0):
    """p_neighbours of one query: k nearest, weights exp(-d^2 / (D scale))."""
    squares = ((points - query) ** 2).sum(axis=1)
    nearest = np.argsort(squares, kind="stable")[:K]
    shares = np.exp(-squares[nearest] / (len(query) * scale))
    votes = np.zeros(CLASSES)
    for share, label in zip(shares, labels[nearest], strict=True):
        votes[label] += share
    return votes / shares.sum()


def mixed_by_hand(data, *, embed=predict, scale=1.0, raw=False):
    """Mixed probabilities, or mixtures with raw scores."""
    answers = np.empty((CLIENTS, QUERIES, CLASSES))
    for i in range(CLIENTS):
        real = np.asarray(data.mask[i])
        points = embed(KERNEL, np.asarray(data.inputs[i])[real])
        for q, x in enumerate(NEW[i]):
            model = x @ KERNEL if raw else softmax(x @ KERNEL)
            answers[i, q] = model
            if real.any():
                labels = np.asarray(data.targets[i])[real]
                query = embed(KERNEL, x[None])[0]
                near = neighbours_by_hand(points, labels, query, scale=scale)
                answers[i, q] = WEIGHTS[i] * near + (1 - WEIGHTS[i]) * model
    return answers


close = functools.partial(by_hand.close, rtol=3e-6, atol=3e-6)
differ = functools.partial(by_hand.differ, rtol=3e-6, atol=3e-6)


def answers(data=DATA, new=NEW, **settings):
    settings = {"num_neighbours": K, "knn_weight": jnp.asarray(WEIGHTS)} | settings
    algorithm = knn_per(TASK, step_size=0.1, **settings)
    run: Any = jax.jit(algorithm.predict)
    return np.asarray(run(STATE, data, jnp.asarray(new)))


# Against equations


def test_answers_against_equations():
    found = answers()
    close(np.exp(found), mixed_by_hand(DATA))
    close(np.exp(found).sum(axis=2), 1)
    differ(np.exp(found), mixed_by_hand(DATA, scale=1.01))  # Another kernel.
    outer = lambda kernel, x: np.concatenate([x, 2 * x[:, :1]], axis=1)
    embed = lambda kernel, x: jnp.concatenate([x, 2 * x[:, :1]], axis=1)
    found = answers(embed=embed, scale=0.2, queries_per_chunk=2)
    close(np.exp(found), mixed_by_hand(DATA, embed=outer, scale=0.2))


def test_padding_is_nobodys_neighbour():
    """Where it lies on the queries; or at zero with class 0, as in a datastore with
    room for samples that a client does not have."""
    for place, label in ((NEW[:, 0], 2), (np.zeros_like(NEW[:, 0]), 0)):
        inputs = np.asarray(DATA.inputs).copy()
        targets = np.asarray(DATA.targets).copy()
        padding = ~np.asarray(DATA.mask)
        inputs[padding] = np.repeat(place, SAMPLES - KEPT, axis=0)
        targets[padding] = label
        other = ClientData(jnp.asarray(inputs), jnp.asarray(targets), DATA.mask)
        np.testing.assert_array_equal(answers(other), answers())
        everything = other._replace(mask=jnp.ones_like(DATA.mask))
        differ(np.exp(answers(other)), mixed_by_hand(everything))


def test_probabilities_are_not_mixed_with_scores():
    """Large scores drown what the neighbours say; the released code has it so."""
    paper, reference = answers(), answers(variant="reference")
    close(np.exp(paper), mixed_by_hand(DATA))
    close(reference, mixed_by_hand(DATA, raw=True))
    assert (paper.argmax(axis=2) != reference.argmax(axis=2)).any()


@pytest.mark.long
def test_weights_at_their_ends():
    model = np.asarray(jax.nn.log_softmax(NEW @ KERNEL))
    close(answers(knn_weight=0.0), model)
    alone = np.exp(answers(knn_weight=1.0))
    for i in range(3):
        real = np.asarray(DATA.mask[i])
        points, labels = np.asarray(DATA.inputs[i])[real], DATA.targets[i][real]
        near = [
            neighbours_by_hand(points @ KERNEL, np.asarray(labels), x @ KERNEL)
            for x in NEW[i]
        ]
        close(alone[i], near)
    close(answers(knn_weight=1.0)[3], model[3])  # It has no samples.


@pytest.mark.long
def test_answers_can_be_measured():
    found = jnp.asarray(answers())
    labels = jnp.asarray(np.random.default_rng(3).integers(0, 3, (CLIENTS, QUERIES)))
    losses = jax.vmap(cross_entropy)(found, labels)
    shares = np.take_along_axis(mixed_by_hand(DATA), np.asarray(labels)[..., None], 2)
    close(losses, -np.log(shares[..., 0]), rtol=1e-5, atol=1e-5)
    right = mixed_by_hand(DATA).argmax(axis=2) == np.asarray(labels)
    close(accuracy(found, labels, jnp.ones(labels.shape, bool)), right.mean())


def test_far_queries_have_neighbours():
    """Where all weights underflow, and divided by their sum would be no number."""
    far = NEW + 300
    found = answers(new=far, embed=lambda kernel, x: x)
    points = np.asarray(DATA.inputs[0])
    squares = ((points.astype("f8") - far[0, 0]) ** 2).sum(axis=1)
    assert np.exp(-squares / FEATURES).max() == 0.0
    assert np.all(np.isfinite(found[:3].max(axis=2)))
    label = int(DATA.targets[0, squares.argmin()])  # The next one is far behind.
    assert np.exp(found[0, 0, label]) > WEIGHTS[0] * 0.99


def test_a_model_that_is_not_finite_answers_nothing():
    algorithm = knn_per(TASK, step_size=0.1, num_neighbours=K)
    broken = State(jnp.full_like(STATE.model, jnp.nan))
    found = algorithm.predict(broken, DATA, jnp.asarray(NEW))
    assert np.all(np.isnan(found))


# Against itself


@pytest.mark.long
def test_a_round_is_one_of_fedavg():
    settings: dict[str, Any] = {"step_size": 0.1, "num_steps": 2, "participation": 0.5}
    run = lambda a: rounds(a, a.init(jax.random.key(0), DATA), DATA, 1)
    left, info = run(compiled(knn_per(TASK, **settings)))
    right, theirs = run(compiled(fedavg(TASK, **settings)))
    np.testing.assert_array_equal(left.model, right.model)
    jax.tree.map(np.testing.assert_array_equal, tuple(info), tuple(theirs))
    assert np.asarray(info.received).sum() == 2 * 4 * FEATURES * CLASSES


# Against equations: numbers, and the best weights


def test_numbers_are_averaged():
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(1, SAMPLES, FEATURES)).astype("f4")
    targets = generator.normal(size=(1, SAMPLES)).astype("f4")
    data = padded(inputs, targets, [SAMPLES])
    model = np.array([1.0, -2.0], "f4")
    algorithm = knn_per(
        linear(FEATURES),
        step_size=0.1,
        knn_weight=0.25,
        num_neighbours=K,
        embed=lambda model, x: x,
    )
    found = algorithm.predict(State(jnp.asarray(model)), data, jnp.asarray(NEW[:1]))
    for q, x in enumerate(NEW[0]):
        squares = ((inputs[0] - x) ** 2).sum(axis=1)
        nearest = squares.argsort()[:K]
        mean = np.average(targets[0, nearest], weights=np.exp(-squares[nearest] / 2))
        close(found[0, q], 0.25 * mean + 0.75 * x @ model)
    wide = data._replace(targets=jnp.zeros((1, SAMPLES, 2)))
    with pytest.raises(ValueError, match="`targets` must be one class for each sample"):
        algorithm.predict(State(jnp.asarray(model)), wide, jnp.asarray(NEW[:1]))


@pytest.mark.long
def test_the_best_weight_on_validation_data():
    """Client 0's neighbours are right and the model wrong, client 1's the reverse."""
    kernel = jnp.asarray([[5.0, -5.0, 0.0], [0.0, 0.0, 0.0]])
    inputs = np.zeros((CLIENTS, SAMPLES, FEATURES), "f4")
    inputs[:, :, 0] = np.where(np.arange(SAMPLES) % 2, 1, -1)
    right = (inputs[:, :, 0] < 0).astype("i4")  # As the model has it.
    data = ClientData(*map(jnp.asarray, (inputs, right, np.ones(right.shape, bool))))
    train = data._replace(targets=data.targets.at[:2].set(1 - data.targets[:2]))
    validation = data._replace(
        targets=data.targets.at[0].set(1 - data.targets[0]),
        mask=data.mask.at[2].set(False),
    )
    grid = jnp.asarray([0.0, 0.4, 0.7, 1.0])
    run = lambda **more: np.asarray(
        best_weights(TASK, kernel, train, validation, grid, Interpolation(K), **more)
    )
    # 0.7 is the first that overrules the model; most samples ask for 0.
    close(run(), [0.7, 0, 0, 0])
    close(run(per_client=False), [0, 0, 0, 0])
    assert np.abs(run() - run(per_client=False)).max() > 0.5
    chosen = knn_per(TASK, step_size=0.1, knn_weight=jnp.asarray(run()))
    found = chosen.predict(State(kernel), train, data.inputs)
    share = accuracy(found, validation.targets, validation.mask)
    close(share, 1)


def test_weights_may_be_swept():
    new = jnp.asarray(NEW)

    def one(weight):
        algorithm = knn_per(
            TASK, step_size=0.1, knn_weight=weight, scale=weight, num_neighbours=K
        )
        return algorithm.predict(STATE, DATA, new)

    both = jax.jit(jax.vmap(one))(jnp.asarray([0.25, 0.75]))
    close(both[1], answers(knn_weight=0.75, scale=0.75))


# Against reference: nearest neighbours by scikit-learn, and where digits are lost


POINTS = np.random.default_rng(0).normal(size=(30, 6)).astype("f4")
ASKED = np.random.default_rng(1).normal(size=(7, 6)).astype("f4")


def search(points, queries, mask=None, num_neighbours=4, **settings):
    mask = np.ones(len(points), bool) if mask is None else mask
    run = jax.jit(lambda p, m, q: nearest_samples(p, m, q, num_neighbours, **settings))
    return map(np.asarray, run(jnp.asarray(points), jnp.asarray(mask), queries))


@pytest.mark.parametrize("offset", [0.0, 1000.0])
@pytest.mark.parametrize("chunk", [None, 3])
def test_neighbours_against_scikit_learn(offset, chunk):
    points, queries = POINTS + np.float32(offset), ASKED + np.float32(offset)
    indices, squares = search(points, queries, queries_per_chunk=chunk)
    known = NearestNeighbors(n_neighbors=4, algorithm="brute").fit(points.astype("f8"))
    distances, expected = known.kneighbors(queries.astype("f8"))
    np.testing.assert_array_equal(indices, expected)
    np.testing.assert_allclose(squares, distances**2, rtol=1e-4)


def test_inner_products_far_from_zero_would_be_wrong():
    """Control: without centring, the digits are gone."""
    points, queries = POINTS + np.float32(1000), ASKED + np.float32(1000)
    _, squares = search(points, queries, num_neighbours=30)
    plain = (points**2).sum(1)[None] + (queries**2).sum(1)[:, None]
    plain = np.sort(plain - 2 * queries @ points.T, axis=1)
    exact = ((points[None].astype("f8") - queries[:, None]) ** 2).sum(axis=2)
    exact = np.sort(exact, axis=1)
    assert np.abs(squares - exact).max() < 1e-3 < np.abs(plain - exact).max()


def test_what_is_masked_or_not_finite_is_no_neighbour():
    points = POINTS[:5].copy()
    points[1] = np.nan
    mask = np.array([True, True, False, True, False])
    indices, squares = search(points, ASKED, mask, num_neighbours=3)
    assert set(indices[:, :2].ravel().tolist()) == {0, 3}
    assert np.all(np.isinf(squares[:, 2])) and np.all(np.isfinite(squares[:, :2]))
    queries = ASKED.copy()
    queries[0] = np.inf
    _, squares = search(points, queries, mask)
    assert np.all(np.isinf(squares[0])) and np.all(np.isfinite(squares[1:, :2]))


def test_ties_go_to_the_first_point():
    points = np.repeat(POINTS[:2], 3, axis=0)
    indices, _ = search(points, POINTS[:1])
    assert indices[0].tolist() == [0, 1, 2, 3]


def test_means_without_neighbours_are_zero_and_known_to_be():
    values = jnp.asarray([[1.0], [3.0]])
    indices = jnp.zeros((3, 2), jnp.int32).at[:, 1].set(1)
    squares = jnp.asarray([[0.0, 2.0], [1e4, np.inf], [np.inf, np.inf]])
    means, known = neighbour_mean(values, indices, squares, 2.0)
    share = np.exp(-1) / (1 + np.exp(-1))
    np.testing.assert_allclose(means[:, 0], [1 + 2 * share, 1, 0], rtol=1e-6)
    assert known.tolist() == [True, True, False]


# Against misuse


test_misuse_is_named = misuse(
    answers,
    ({"num_neighbours": 0}, "`num_neighbours` must be at least 1"),
    ({"queries_per_chunk": 0}, "`queries_per_chunk` must be at least 1"),
    ({"knn_weight": 1.5}, r"`knn_weight` must be in \[0, 1\], got 1.5"),
    ({"knn_weight": jnp.ones(3)}, "`knn_weight` must be one number or one for"),
    (
        {"knn_weight": jnp.array([0.0, 2, 0, 0])},
        r"`knn_weight` must be in \[0, 1\]",
    ),
    ({"knn_weight": jnp.array([0, jnp.nan, 1, 0])}, "`knn_weight` must be finite"),
    ({"scale": 0.0}, "`scale` must be positive, got 0.0"),
    ({"variant": "code"}, "variant"),
)


def test_weights_of_other_clients_are_named_before_training():
    algorithm = knn_per(TASK, step_size=0.1, knn_weight=jnp.ones(3))
    with pytest.raises(ValueError, match="one for each of 4 clients, got shape"):
        algorithm.init(jax.random.key(0), DATA)
