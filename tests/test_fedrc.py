"""FedRC: rounds by hand in NumPy, labels that part nobody, concepts that do, limits."""

import functools
from typing import Any

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import close, compiled, differ, misuse, once, rounds

from cfljax.algorithms import fedavg, fedem, fedrc
from cfljax.algorithms.fedrc import next_shares
from cfljax.base.types import Task
from cfljax.losses import cross_entropy
from cfljax.models import linear

CLIENTS, SAMPLES, CLUSTERS, FEATURES, CLASSES, STEP = 5, 6, 2, 3, 4, 0.4
KEPT = np.array([6, 2, 5, 6, 4])  # Real samples of each client.
# A fourth class belongs to nobody; padding has the label -7.
LABELS = np.array(
    [
        [0, 1, 0, 1, 1, 0],
        [1, 1, -7, -7, -7, -7],
        [0, 0, 0, 1, 0, -7],
        [0, 1, 2, 2, 1, 2],
        [1, 0, 1, 1, -7, -7],
    ]
)
ROWS = np.random.default_rng(3).normal(size=(CLIENTS, SAMPLES, FEATURES))
DATA = by_hand.padded(ROWS, LABELS, KEPT)._replace(targets=jnp.asarray(LABELS, "i4"))
TASK = Task(
    init=lambda key: jax.random.normal(key, (FEATURES, CLASSES)),
    losses=lambda kernel, x, y: cross_entropy(x @ kernel, y),
    predict=lambda kernel, x: x @ kernel,
)
SETTINGS: dict[str, Any] = {
    "num_clusters": CLUSTERS,
    "num_classes": CLASSES,
    "step_size": STEP,
    "num_steps": 2,
}
PLAIN = compiled(fedrc(TASK, **SETTINGS))
START = PLAIN.init(jax.random.key(0), DATA)
close = functools.partial(close, rtol=5e-5, atol=5e-6)
differ = functools.partial(differ, rtol=5e-5, atol=5e-6)


def chances(x, kernel):
    scores = np.exp(x @ kernel)
    return scores / scores.sum(axis=1, keepdims=True)


def likelihoods(i, models):
    """Of a client's real samples under every model, `[samples, clusters]`."""
    x, y = by_hand.own(DATA, i)
    return np.stack([chances(x, k)[np.arange(len(y)), y] for k in models], axis=1)


def weigh(i, models, weights, shares):
    """Responsibilities of a client's samples."""
    y = by_hand.own(DATA, i)[1]
    scores = weights * likelihoods(i, models) / shares[:, y].T
    return scores / scores.sum(axis=1, keepdims=True)


def round_by_hand(models, weights, shares, divide=True):
    """Models, weights and label shares after a round; without division it is FedEM."""
    trained, after, losses = [], [], []
    sums = np.zeros((CLUSTERS, CLASSES))
    for i in range(CLIENTS):
        x, y = by_hand.own(DATA, i)
        losses.append(-np.log(likelihoods(i, models)).mean(axis=0))
        gamma = weigh(i, models, weights[i], shares if divide else np.ones_like(shares))
        after.append(gamma.mean(axis=0))
        np.add.at(sums.T, y, gamma)
        own = models.copy()
        for k in range(CLUSTERS):
            for _ in range(2):
                errors = gamma[:, [k]] * (chances(x, own[k]) - np.eye(CLASSES)[y])
                own[k] -= STEP * x.T @ errors / len(y)
        trained.append(own)
    shares = np.where(sums.sum(axis=0) > 0, sums / sums.sum(1, keepdims=True), shares)
    shares /= shares.sum(axis=1, keepdims=True)
    return np.average(trained, axis=0, weights=KEPT), np.array(after), shares, losses


def three_rounds(**changes):
    models = np.asarray(START.models, float)
    weights = np.full((CLIENTS, CLUSTERS), 1 / CLUSTERS)
    shares, losses = np.full((CLUSTERS, CLASSES), 1 / CLASSES), []
    for _ in range(3):
        models, weights, shares, losses = round_by_hand(
            models, weights, shares, **changes
        )
    return models, weights, shares, losses


@functools.cache
def found():
    return rounds(PLAIN, START, DATA, 3)


# Against equations


def test_three_rounds_against_equations():
    state, info = found()
    models, weights, shares, losses = three_rounds()
    close(state.models, models)
    close(np.exp(state.log_weights), weights)
    close(state.label_shares, shares)
    close(info.losses, losses)
    np.testing.assert_array_equal(info.assignment, weights.argmax(axis=1))
    plain, other, *_ = three_rounds(divide=False)
    differ(state.models, plain)
    differ(np.exp(state.log_weights), other)


def test_bytes_are_those_of_models_and_labels():
    _, info = found()
    whole = 4 * CLUSTERS * FEATURES * CLASSES
    row = 4 * CLUSTERS  # A number for each cluster.
    held = np.array([2, 1, 2, 3, 2])
    np.testing.assert_array_equal(
        info.received, np.full(CLIENTS, whole + CLASSES * row)
    )
    np.testing.assert_array_equal(info.sent, whole + held * (row + 1))


def test_shares_of_labels():
    before = jnp.asarray([[0.5, 0.25, 0.25], [0.2, 0.2, 0.6]])
    sums = jnp.asarray([[3.0, 0, 0], [1, 0, 1]])
    after = jax.jit(next_shares)(sums, before)
    # The second label is nobody's in this round, the third has left the first cluster.
    expected = np.array([[1, 0.25, 1e-8], [0.5, 0.2, 0.5]])
    close(after, expected / expected.sum(axis=1, keepdims=True))
    close(jax.jit(next_shares)(sums.at[0].set(0), before)[0], before[0])


# Against theory


def prior_models(shares):
    """Models that know nothing but how common labels are, on inputs of ones."""
    first = jnp.log(jnp.asarray(shares, jnp.float32))[:, None, :]
    return jnp.pad(first, ((0, 0), (0, FEATURES - 1), (0, 0)))


def test_labels_alone_part_nobody():
    """A model that has learned its cluster's labels says no more than their shares: no
    client is drawn to it. FedEM parts clients by their labels."""
    shares = np.array([[0.85, 0.05, 0.05, 0.05], [0.05, 0.05, 0.85, 0.05]])
    ones = DATA._replace(inputs=DATA.inputs.at[:, :, 0].set(1.0))
    state = START._replace(
        models=prior_models(shares), label_shares=jnp.asarray(shares, jnp.float32)
    )
    weights = np.exp(PLAIN.step(jax.random.key(0), state, ones)[0].log_weights)
    close(weights, np.full((CLIENTS, CLUSTERS), 1 / CLUSTERS))
    alone = START._replace(models=prior_models(shares))  # Equal shares: FedEM.
    parted = np.exp(PLAIN.step(jax.random.key(0), alone, ones)[0].log_weights)
    assert parted[2, 0] > 0.8 and parted[3, 0] < 0.6


def test_concepts_part_clients():
    """The same inputs and as many of each label, which mean opposite things."""
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(CLIENTS, SAMPLES, FEATURES)).astype("f4")
    inputs[:, :, 0] = np.where(np.arange(SAMPLES) % 2, 2, -2)
    swapped = np.arange(CLIENTS) % 2
    labels = ((inputs[:, :, 0] > 0) ^ swapped[:, None].astype(bool)).astype("i4")
    data = DATA._replace(
        inputs=jnp.asarray(inputs),
        targets=jnp.asarray(labels),
        mask=jnp.ones((CLIENTS, SAMPLES), bool),
    )
    state, info = rounds(PLAIN, PLAIN.init(jax.random.key(5), data), data, 40)
    weights = np.exp(np.asarray(state.log_weights))
    one = info.assignment[0]
    np.testing.assert_array_equal(info.assignment, np.where(swapped, 1 - one, one))
    assert weights.max(axis=1).min() > 0.95
    close(state.label_shares[:, :2], np.full((2, 2), 0.5), rtol=0.05, atol=0)
    answers = once(PLAIN.predict, state, data, data.inputs)(state, data, data.inputs)
    np.testing.assert_array_equal(answers.argmax(axis=2), labels)


# Against itself: its limits


@pytest.mark.long
def test_the_first_round_is_one_of_fedem():
    """Until shares of labels differ; and not later."""
    settings = {name: one for name, one in SETTINGS.items() if name != "num_classes"}
    other = compiled(fedem(TASK, **settings))
    begin = other.init(jax.random.key(0), DATA)
    for number, check in ((1, close), (2, differ)):
        state, _ = rounds(PLAIN, START, DATA, number)
        expected, _ = rounds(other, begin, DATA, number)
        check(state.log_weights, expected.log_weights)
        check(state.models, expected.models)


@pytest.mark.long
def test_one_cluster_is_fedavg():
    settings: dict[str, Any] = {"step_size": STEP, "num_steps": 2}
    one = compiled(fedrc(TASK, num_clusters=1, num_classes=CLASSES, **settings))
    plain = compiled(fedavg(TASK, **settings))
    run = lambda a: rounds(a, a.init(jax.random.key(4), DATA), DATA)
    (state, info), (expected, theirs) = run(one), run(plain)
    close(state.models[0], expected.model)
    close(info.losses[:, 0], theirs.losses)
    differ(found()[0].models[0], expected.model)


@pytest.mark.long
def test_the_absent_and_the_diverged_spoil_nothing():
    half = compiled(fedrc(TASK, **SETTINGS, participation=0.4))
    before, _ = found()
    state, info = half.step(jax.random.key(3), before, DATA)
    absent = np.isnan(np.asarray(info.losses)).all(axis=1)
    assert absent.sum() == 3 and np.all((np.asarray(info.sent) == 0) == absent)
    old, new = np.asarray(before.log_weights), np.asarray(state.log_weights)
    np.testing.assert_array_equal(new[absent], old[absent])
    close(state.label_shares.sum(axis=1), 1)
    empty = DATA._replace(mask=DATA.mask.at[3].set(False))
    huge = DATA._replace(inputs=DATA.inputs.at[3].set(3e38))
    states = [PLAIN.step(jax.random.key(0), before, data) for data in (empty, huge)]
    for state, info in states:
        np.testing.assert_array_equal(state.log_weights[3], old[3])
        assert info.assignment[3] == -1 and info.sent[3] == 0
    jax.tree.map(close, *(state for state, _ in states))


def test_a_newcomer_learns_its_weights_alone():
    state, _ = found()
    new = jax.tree.map(lambda leaf: leaf[2:4], DATA)
    joined = jax.jit(PLAIN.join)(jax.random.key(0), state, new)
    models, shares = np.asarray(state.models, float), np.asarray(state.label_shares)
    for i in (2, 3):
        weights = np.full(CLUSTERS, 1 / CLUSTERS)
        for _ in range(100):
            weights = weigh(i, models, weights, shares).mean(axis=0)
        close(np.exp(joined.log_weights[i - 2]), weights, rtol=1e-3, atol=1e-5)
    for name in ("models", "label_shares"):
        np.testing.assert_array_equal(getattr(joined, name), getattr(state, name))


# Against misuse


test_misuse_is_named = misuse(
    functools.partial(fedrc, TASK, **SETTINGS),
    ({"num_clusters": 0}, "`num_clusters` must be at least 1"),
    ({"num_classes": 0}, "`num_classes` must be at least 1"),
    ({"weights": "losses"}, "weights"),
)


def test_tasks_without_classes_are_named():
    three: dict[str, Any] = SETTINGS | {"num_classes": 3}
    few = fedrc(TASK, **three)
    with pytest.raises(ValueError, match=r"`num_classes` must be .* \(4,\), got 3"):
        jax.eval_shape(few.init, jax.random.key(0), DATA)
    numbers = DATA._replace(targets=DATA.targets.astype(float))
    line = fedrc(linear(FEATURES), **SETTINGS)
    with pytest.raises(ValueError, match="`targets` must be integer labels"):
        jax.eval_shape(line.init, jax.random.key(0), numbers)
