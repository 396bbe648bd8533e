"""FedEM: rounds by hand in NumPy, its likelihood and limits, and weighted samples."""

import functools
from typing import Any

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import UPDATE, close, compiled, differ, misuse, once, rounds

from cfljax.algorithms import fedavg, fedem
from cfljax.base.types import ClientData, Task
from cfljax.federated.evaluate import loss_matrix, sample_losses
from cfljax.federated.local_update import client_update, weighted
from cfljax.federated.mixtures import expectation
from cfljax.losses import cross_entropy
from cfljax.models import linear

CLIENTS, CLUSTERS, FEATURES, STEP = 5, 3, 4, 0.05
KEPT = np.array([8, 2, 5, 8, 4])  # Real samples of each client.
DATA = by_hand.draw(KEPT, num_samples=8, num_features=FEATURES, seed=1, scale=0.5)
TASK = linear(FEATURES)
SETTINGS: dict[str, Any] = {"num_clusters": CLUSTERS, "step_size": STEP, "num_steps": 2}
PLAIN = compiled(fedem(TASK, **SETTINGS))
START = PLAIN.init(jax.random.key(0), DATA)._replace(
    models=jnp.asarray(np.random.default_rng(2).normal(size=(CLUSTERS, FEATURES)), "f4")
)


def each_loss(i, models):
    """`[samples, clusters]`, of a client's real samples."""
    x, y = by_hand.own(DATA, i)
    return (x @ models.T - y[:, None]) ** 2


def responsibilities_by_hand(losses, weights):
    scores = weights * np.exp(-losses)
    return scores / scores.sum(axis=1, keepdims=True)


def round_by_hand(models, weights, *, shares=KEPT, fixed=True, old=False):
    """Models, weights and losses after a round; controls: responsibilities that follow
    the training, or weights of before the round in place of the samples' mean."""
    trained, after, losses = [], [], []
    for i in range(CLIENTS):
        x, y = by_hand.own(DATA, i)
        losses.append(each_loss(i, models).mean(axis=0))
        q = responsibilities_by_hand(each_loss(i, models), weights[i])
        after.append(weights[i] if old else q.mean(axis=0))
        own = models.copy()
        for _ in range(2):
            if not fixed:
                q = responsibilities_by_hand(each_loss(i, own), weights[i])
            errors = q * (x @ own.T - y[:, None])
            own = own - STEP * 2 / len(y) * errors.T @ x
        trained.append(own)
    mean = np.average(trained, axis=0, weights=shares)
    return mean, np.array(after), np.array(losses)


def two_rounds(**changes):
    models = np.asarray(START.models, float)
    weights = np.full((CLIENTS, CLUSTERS), 1 / CLUSTERS)
    for _ in range(2):
        models, weights, losses = round_by_hand(models, weights, **changes)
    return models, weights, losses


@functools.cache
def found():
    return rounds(PLAIN, START, DATA)


def check(result, expected):
    (state, info), (models, weights, losses) = result, expected
    close(state.models, models, rtol=5e-5, atol=5e-6)
    close(np.exp(state.log_weights), weights, rtol=5e-5, atol=5e-6)
    close(info.losses, losses, rtol=5e-5, atol=5e-6)


# Against equations


def test_two_rounds_against_equations():
    check(found(), two_rounds())
    state, info = found()
    close(np.exp(state.log_weights).sum(axis=1), 1)
    np.testing.assert_array_equal(info.assignment, two_rounds()[1].argmax(axis=1))


@pytest.mark.parametrize(
    "changes",
    [
        {"fixed": False},
        {"old": True},
        {"shares": np.ones(CLIENTS)},
    ],
    ids=["shares that follow", "weights kept", "clients alike"],
)
def test_another_rule_is_another_algorithm(changes):
    with pytest.raises(AssertionError):
        check(found(), two_rounds(**changes))


def test_numbers_are_averaged_by_the_weights():
    state, _ = found()
    models, weights, _ = two_rounds()
    answers = np.einsum("csf,kf,ck->cs", DATA.inputs, models, weights)
    predict = once(PLAIN.predict, state, DATA, DATA.inputs)
    close(predict(state, DATA, DATA.inputs), answers)
    differ(np.einsum("csf,kf->cs", DATA.inputs, models) / CLUSTERS, answers, rtol=1e-2)


@pytest.mark.long
def test_probabilities_are_mixed_and_not_scores():
    """Their logarithms are the answer, and its loss is that of the mixture."""
    generator = np.random.default_rng(3)
    kernels = generator.normal(size=(2, FEATURES, 3)).astype("f4")
    inputs = generator.normal(size=(2, 6, FEATURES)).astype("f4")
    labels = generator.integers(3, size=(2, 6))
    task = Task(
        init=lambda key: jnp.zeros((FEATURES, 3)),
        losses=lambda kernel, x, y: cross_entropy(x @ kernel, y),
        predict=lambda kernel, x: x @ kernel,
    )
    data = by_hand.padded(inputs, labels, [6, 6])
    data = data._replace(targets=jnp.asarray(labels, jnp.int32))
    weights = np.array([[0.3, 0.7], [1.0, 0.0]])
    algorithm = fedem(task, num_clusters=2, step_size=STEP)
    state = algorithm.init(jax.random.key(0), data)
    lost = kernels.copy()
    lost[1] = np.nan
    with np.errstate(divide="ignore"):
        logs = jnp.asarray(np.log(weights), jnp.float32)
    answer = lambda kernels: jax.jit(algorithm.predict)(
        state._replace(models=jnp.asarray(kernels), log_weights=logs), data, data.inputs
    )
    scores = np.einsum("csf,kfo->ckso", inputs, kernels)
    chances = np.exp(scores) / np.exp(scores).sum(axis=3, keepdims=True)
    expected = np.einsum("ckso,ck->cso", chances, weights)
    close(np.exp(answer(kernels)), expected)
    close(np.exp(answer(kernels)).sum(axis=2), 1)
    mixed_scores = jax.nn.softmax(np.einsum("ckso,ck->cso", scores, weights))
    differ(mixed_scores, expected, rtol=1e-2)
    one = np.take_along_axis(expected, labels[:, :, None], axis=2)[:, :, 0]
    close(jax.vmap(cross_entropy)(answer(kernels), data.targets), -np.log(one))
    # A model without weight may be lost.
    close(np.exp(answer(lost))[1], expected[1])
    assert np.isnan(answer(lost)[0]).all()


def test_bytes_are_those_of_all_models():
    _, info = found()
    whole = np.full(CLIENTS, 4 * FEATURES * CLUSTERS)
    np.testing.assert_array_equal(info.received, whole)
    np.testing.assert_array_equal(info.sent, whole)


# Against theory


def likelihood(models, weights):
    """Mean logarithm of the mixture's likelihood of all samples, but for a constant."""
    each = [np.log(np.exp(-each_loss(i, models)) @ weights[i]) for i in range(CLIENTS)]
    return np.concatenate(each).mean()


@pytest.mark.long
def test_a_round_does_not_make_samples_less_likely():
    """Of one small step, which is a step up the bound that responsibilities give."""
    one_step: dict[str, Any] = SETTINGS | {"num_steps": 1}
    small = compiled(fedem(TASK, **one_step))
    state, seen = START, []
    for seed in range(10):
        seen.append(likelihood(*np_state(state)))
        state, _ = small.step(jax.random.key(seed), state, DATA)
    assert np.all(np.diff(seen) > 0)
    # Control: components that go to the clients whose weights they have not.
    models, weights = np_state(state)
    assert likelihood(models, weights[:, ::-1]) < seen[-1]


def np_state(state):
    return np.asarray(state.models, float), np.exp(np.asarray(state.log_weights, float))


def test_a_newcomers_weights_are_the_likeliest():
    """By the conditions of a maximum over weights of sum 1: no weight can be moved to a
    component under which samples would be likelier."""
    state, _ = found()
    new = jax.tree.map(lambda leaf: leaf[:3], DATA)
    joined = jax.jit(PLAIN.join)(jax.random.key(0), state, new)
    jax.tree.map(np.testing.assert_array_equal, joined.models, state.models)
    models, weights = np_state(joined)

    def slopes(i, weights):
        chances = np.exp(-each_loss(i, models))
        return (chances / (chances @ weights)[:, None]).mean(axis=0)

    for i in range(3):
        assert slopes(i, weights[i]).max() < 1.01
        assert slopes(i, np.full(CLUSTERS, 1 / CLUSTERS)).max() > 1.1
    assert joined.log_weights.shape == (3, CLUSTERS)


# Against itself: its limits


@pytest.mark.long
@pytest.mark.parametrize("update", [None, pytest.param(UPDATE, marks=pytest.mark.slow)])
def test_one_component_is_fedavg(update):
    settings: dict[str, Any] = {"step_size": STEP, "update": update}
    one = compiled(fedem(TASK, num_clusters=1, **settings))
    plain = compiled(fedavg(TASK, **settings))
    run = lambda a: rounds(a, a.init(jax.random.key(4), DATA), DATA)
    (state, info), (expected, theirs) = run(one), run(plain)
    close(state.models[0], expected.model)
    close(info.losses[:, 0], theirs.losses)
    np.testing.assert_array_equal(info.sent, theirs.sent)
    differ(found()[0].models[0], expected.model)


@pytest.mark.long
def test_the_absent_and_the_diverged_spoil_nothing():
    half = compiled(fedem(TASK, **SETTINGS, participation=0.4))
    before, _ = found()
    state, info = half.step(jax.random.key(3), before, DATA)
    absent = np.isnan(np.asarray(info.losses)).all(axis=1)
    assert absent.sum() == 3 and np.all((np.asarray(info.sent) == 0) == absent)
    old, new = np.asarray(before.log_weights), np.asarray(state.log_weights)
    np.testing.assert_array_equal(new[absent], old[absent])
    assert np.all(np.any(new != old, axis=1) == ~absent)
    # A client without samples, or with a sample of which nothing is finite.
    empty = DATA._replace(mask=DATA.mask.at[3].set(False))
    huge = DATA._replace(inputs=DATA.inputs.at[3].set(1e25))
    states = [PLAIN.step(jax.random.key(0), before, data) for data in (empty, huge)]
    for state, info in states:
        np.testing.assert_array_equal(state.log_weights[3], old[3])
        assert info.assignment[3] == -1 and info.sent[3] == 0
        assert np.isfinite(state.models).all()
    close(states[0][0].models, states[1][0].models)


def test_a_lost_component_spoils_no_other():
    lost = START._replace(models=START.models.at[1].set(jnp.nan))
    state, info = PLAIN.step(jax.random.key(0), lost, DATA)
    weights = np.exp(np.asarray(state.log_weights))
    assert np.all(weights[:, 1] == 0) and np.isfinite(weights).all()
    assert np.isfinite(state.models[jnp.array([0, 2])]).all()
    assert np.all(np.asarray(info.assignment) != 1)
    answers = once(PLAIN.predict, state, DATA, DATA.inputs)(state, DATA, DATA.inputs)
    assert np.isfinite(answers).all()


# Against equations: expectation, and samples that count by weights


def test_large_losses_leave_shares():
    """As in double precision, where ordinary numbers would have lost them."""
    losses = jnp.asarray([[[3000.0, 3001, np.inf], [0, 400, np.nan]]])
    mask = jnp.ones((1, 2), bool)
    logs, after = jax.jit(expectation)(jnp.log(jnp.ones((1, 3)) / 3), losses, mask)
    np.testing.assert_allclose(logs[0, 0, :2], [-0.3132617, -1.3132617], rtol=1e-3)
    np.testing.assert_allclose(logs[0, 1, :2], [0, -400], rtol=1e-6)
    assert np.all(logs[0, :, 2] == -np.inf) and after[0, 2] == -np.inf
    shares = np.exp([[-0.3132617, -1.3132617], [0, -400]]).mean(axis=0)
    np.testing.assert_allclose(np.exp(after[0, :2]), shares, rtol=1e-3)
    assert np.exp(np.float32(-400)) == 0, "a number would have been lost"


def test_sample_losses_are_those_whose_means_are_known():
    models = START.models
    run = lambda models, data: (
        sample_losses(TASK, models, data, clients_per_chunk=2),
        loss_matrix(TASK, models, data),
    )
    each, means = map(np.asarray, jax.jit(run)(models, DATA))
    for i in range(CLIENTS):
        close(each[i][: KEPT[i]], each_loss(i, np.asarray(models, float)))
        close(each[i][: KEPT[i]].mean(axis=0), means[i])


@pytest.mark.long
@pytest.mark.parametrize("batch_size", [None, 3])
def test_weights_reach_their_samples(batch_size):
    """A weight of 2 is a sample twice in the sum, 0 is none, in whole batches; in
    mini-batches weights of 1 are no weights."""
    one = ClientData(*(leaf[0] for leaf in DATA))
    update = by_hand.LocalUpdate(batch_size=batch_size)
    weights = jnp.ones(8)
    if batch_size is None:
        weights = jnp.asarray([2.0, 0, 1, 1, 0.5, 0, 1, 3])
        one = one._replace(targets=one.targets.at[1].set(1e30))  # Its loss is infinite.

    def run(model, weights):
        task, data = weighted(TASK, one, weights)
        step = lambda task, data: client_update(task, update, 3)(
            jax.random.key(0), STEP, model, (), data
        )[0]
        return step(task, data), step(TASK, one)

    with_weights, without = jax.jit(run)(START.models[0], weights)
    if batch_size is not None:
        np.testing.assert_array_equal(with_weights, without)
        other, _ = jax.jit(run)(START.models[0], weights.at[2].set(2.0))
        differ(other, without, rtol=1e-3)
        return
    theta = np.asarray(START.models[0], float)
    x, y = np.asarray(one.inputs, float), np.asarray(one.targets, float)
    for _ in range(3):
        theta = theta - STEP * 2 / 8 * x.T @ (np.asarray(weights) * (x @ theta - y))
    close(with_weights, theta)


# Against misuse


test_misuse_is_named = misuse(
    functools.partial(fedem, TASK, step_size=STEP, num_clusters=2),
    ({"num_clusters": 0}, "`num_clusters` must be at least 1"),
    ({"weights": "losses"}, "weights"),
    ({"participation": 0.0}, r"`participation` must be in \(0, 1\]"),
)
