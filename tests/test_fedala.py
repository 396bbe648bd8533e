"""FedALA: merging two models, weights of each client's own, rounds by hand in NumPy."""

import collections
import functools
from typing import Any

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import UPDATE, compiled, misuse, rounds

from cfljax.algorithms import fedala, fedavg, local
from cfljax.algorithms.fedala import (
    Own,
    Rates,
    State,
    learn_weights,
    merged,
    merged_models,
    part_of,
    random_slice,
    with_part,
)
from cfljax.base.tree import repeat
from cfljax.base.types import NO_CLUSTER, ClientData, Task, Variables
from cfljax.federated.sharing import paths
from cfljax.models import linear, mlp

CLIENTS, FEATURES, STEP, ETA = 5, 3, 0.1, 0.1
KEPT = np.array([6, 2, 5, 6, 3])  # Real samples of each client.
FIRST, TOLERANCE = 16, 0.1


DATA = by_hand.draw(KEPT, num_samples=6, num_features=FEATURES, seed=6, scale=2)
TASK = linear(FEATURES)
MODEL = np.array([1.0, -1.0, 0.5], "f4")
MODELS = np.broadcast_to(MODEL, (CLIENTS, FEATURES))
SETTINGS: dict[str, Any] = {
    "step_size": STEP,
    "weight_step_size": ETA,
    "num_steps": 2,
    "sample_share": 1.0,
    "tolerance": TOLERANCE,
    "num_initial_epochs": FIRST,
}


PAPER = fedala(TASK, **SETTINGS)
NEVER: dict[str, Any] = {"weight_step_size": 0.0}


@jax.jit
def traced_step(key, state, data, weight_step_size):
    changed = SETTINGS | {"weight_step_size": weight_step_size}
    return fedala(TASK, **changed).step(key, state, data)


def step(key, state, data, weight_step_size=ETA):
    """A round; the rate of learning is traced, so that all share one program."""
    return traced_step(key, state, data, weight_step_size)


def begin(models=MODELS, weights=1.0, model=MODEL):
    """A state before the first round, without an optimiser's moments."""
    given = jnp.full((CLIENTS, FEATURES), weights, jnp.float32)
    own = Own(jnp.asarray(models), given, jnp.ones(CLIENTS, bool), ())
    return State(jnp.asarray(model), own, jnp.zeros((), jnp.int32))


def learned(i, weights, own, received, is_new, clips=True):
    """Weights after learning, and its epochs."""
    if np.array_equal(own, received):
        return weights, 0
    losses = []
    while True:
        theta = own + (received - own) * weights
        slope = by_hand.gradient(DATA, i, theta)
        weights = weights - ETA * slope * (received - own)
        if clips:
            weights = np.clip(weights, 0, 1)
        losses.append(by_hand.loss(DATA, i, theta))
        settled = len(losses) > 10 and np.std(losses[-10:]) < TOLERANCE
        if not is_new or settled or len(losses) == FIRST:
            return weights, len(losses)


def round_by_hand(models, weights, received, is_new, one_for_all=False, **how):
    """A round: models, weights, epochs, losses before training, and the mean."""
    weights, trained, epochs, losses = weights.copy(), models.copy(), [], []
    for i in range(CLIENTS):
        before = weights[i - 1] if one_for_all and i else weights[i]
        weights[i], count = learned(i, before, models[i], received, is_new, **how)
        theta = models[i] + (received - models[i]) * weights[i]
        losses.append(by_hand.loss(DATA, i, theta))
        trained[i] = by_hand.trained(DATA, i, theta, step_size=STEP, num_steps=2)
        epochs.append(count)
    mean = np.average(trained, axis=0, weights=KEPT)
    return trained, weights, epochs, losses, mean


close = functools.partial(by_hand.close, rtol=1e-4, atol=1e-5)
differ = functools.partial(by_hand.differ, rtol=1e-4, atol=1e-5)


# Against equations


def test_three_rounds_against_equations():
    """Nothing is learned in the first, until losses settle in the second, and for an
    epoch in the third."""
    state, models, model = begin(), MODELS, MODEL
    weights = np.ones((CLIENTS, FEATURES), "f4")
    for round_index in range(3):
        before = models, weights, model, round_index < 2
        state, info = step(jax.random.key(round_index), state, DATA)
        models, weights, epochs, losses, model = round_by_hand(*before)
        close(state.own.models, models)
        close(state.own.weights, weights)
        close(state.model, model)
        close(info.losses, losses)
        np.testing.assert_array_equal(info.epochs, epochs)
        np.testing.assert_array_equal(state.own.is_new, round_index == 0)
        if round_index == 1:  # Some settle early, some late, some never.
            assert len(set(epochs)) > 3
            assert {11, FIRST} <= set(epochs)
            assert weights.min() == 0 < np.mean(weights) < weights.max() == 1
            for wrong in ({"one_for_all": True}, {"clips": False}):
                differ(state.own.weights, round_by_hand(*before, **wrong)[1])
    after = PAPER, fedala(TASK, **SETTINGS, answer="merged")
    expected = models, models + (model - models) * weights
    for algorithm, own in zip(after, expected, strict=True):
        answers = jax.jit(algorithm.predict)(state, DATA, DATA.inputs)
        close(answers, np.einsum("csf,cf->cs", DATA.inputs, own))


# Against itself


@pytest.mark.parametrize("update", [None, pytest.param(UPDATE, marks=pytest.mark.slow)])
def test_with_weights_of_one_it_is_fedavg_bit_for_bit(update):
    settings: dict[str, Any] = {"step_size": STEP, "update": update}
    settings |= {} if update else {"num_steps": 2}
    plain = compiled(fedavg(TASK, **settings))
    start = plain.init(jax.random.key(0), DATA)
    if update is None:
        state = begin(models=repeat(start.model, CLIENTS), model=start.model)
        frozen = PAPER._replace(step=functools.partial(step, **NEVER))
    else:
        frozen = compiled(fedala(TASK, **settings, **NEVER))
        state = frozen.init(jax.random.key(0), DATA)
    start, theirs = rounds(plain, start, DATA)
    state, info = rounds(frozen, state, DATA)
    np.testing.assert_array_equal(state.model, start.model)
    np.testing.assert_array_equal(info.sent, theirs.sent)
    np.testing.assert_allclose(info.losses, theirs.losses, rtol=1e-6)
    assert np.all(np.asarray(info.epochs) >= 11), "control: it did try to learn"


def test_with_weights_of_zero_it_is_local():
    alone = compiled(local(TASK, step_size=STEP, num_steps=2))
    theirs = alone.init(jax.random.key(0), DATA)._replace(models=jnp.asarray(MODELS))
    theirs, _ = rounds(alone, theirs, DATA)
    frozen = PAPER._replace(step=functools.partial(step, **NEVER))
    zero, half = (rounds(frozen, begin(weights=w), DATA)[0] for w in (0.0, 0.5))
    np.testing.assert_allclose(zero.own.models, theirs.models, rtol=1e-6)
    differ(half.own.models, theirs.models, rtol=1e-2, atol=0)


def test_the_last_layer_is_merged_unless_told_otherwise():
    task = mlp((FEATURES,), hidden=(4,), num_classes=2)
    assert task.layers is not None
    key = jax.random.key(0)
    state = jax.eval_shape(fedala(task, step_size=STEP).init, key, DATA)
    names = paths(state.own.weights)
    assert names == [n for n in paths(state.model) if task.layers.is_head(n)]
    assert 0 < len(names) < len(paths(state.model))


def test_a_diverged_client_spoils_nobody_and_comes_back():
    """Its loss overflows. The others do as if it had no samples."""
    state, _ = step(jax.random.key(0), begin(), DATA)
    hopeless = DATA._replace(targets=DATA.targets.at[3].set(1e30))
    without = DATA._replace(mask=DATA.mask.at[3].set(False))
    spoiled, info = step(jax.random.key(1), state, hopeless)
    expected, _ = step(jax.random.key(1), state, without)
    assert info.assignment.tolist() == [0, 0, 0, NO_CLUSTER, 0]
    assert not np.isfinite(info.losses[3])
    assert info.sent[3] == 0 < info.sent[0]
    jax.tree.map(np.testing.assert_array_equal, tuple(spoiled), tuple(expected))
    back, info = step(jax.random.key(2), spoiled, DATA)
    assert info.assignment[3] == 0
    assert np.isfinite(back.own.models).all()


@pytest.mark.slow
def test_the_absent_keep_all_that_is_theirs():
    half = compiled(fedala(TASK, participation=0.4, **SETTINGS))
    before, _ = step(jax.random.key(0), begin(), DATA)
    state, info = half.step(jax.random.key(3), before, DATA)
    absent = np.isnan(np.asarray(info.losses))
    assert absent.sum() == 3
    np.testing.assert_array_equal(state.own.is_new, absent)
    rows = lambda own: jax.tree.map(lambda leaf: np.asarray(leaf)[absent], own)
    jax.tree.map(np.testing.assert_array_equal, rows(state.own), rows(before.own))
    moved = np.asarray(state.own.models) != np.asarray(before.own.models)
    assert moved.any(axis=1).tolist() == (~absent).tolist()


def test_newcomers_train_the_global_model_once():
    state = begin(models=np.zeros((CLIENTS, FEATURES), "f4"))
    new = jax.tree.map(lambda leaf: leaf[:2], DATA)
    joined = jax.jit(PAPER.join)(jax.random.key(0), state, new)
    expected, weights, *_ = round_by_hand(MODELS, np.ones_like(MODELS), MODEL, True)
    close(joined.own.models, expected[:2])
    np.testing.assert_array_equal(joined.own.weights, weights[:2])
    np.testing.assert_array_equal(joined.own.is_new, [True, True])
    np.testing.assert_array_equal(joined.model, MODEL)


# Against equations: merging two models, its exact ends, its slices and its leaves


MASK = np.array([True, False, True, True, True, False, True, False])


def test_merging_is_exact_at_its_ends():
    """Where `a local + (1 - a) received` would round, or spread what is not finite."""
    local = np.array([0.1, 0.1, 0.7, np.nan, 4.0], "f4")
    received = np.array([0.3, 0.3, 0.7, 0.3, 2.0], "f4")
    weights = np.array([0.0, 1.0, 0.3, 1.0, 0.25], "f4")
    found = jax.jit(merged)(*map(jnp.asarray, (weights, local, received)))
    np.testing.assert_array_equal(found, np.array([0.1, 0.3, 0.7, 0.3, 3.5], "f4"))


@jax.jit
def slices(share):
    draw = jax.vmap(random_slice, in_axes=(0, None, None))
    keys = jax.random.split(jax.random.key(0), 400)
    return draw(keys, jnp.asarray(MASK), share)


@pytest.mark.parametrize(("share", "number"), [(0.8, 4), (0.5, 2), (0.1, 1), (1.0, 5)])
def test_slices_are_runs_of_real_samples(share, number):
    """Every start is as likely as another."""
    taken = np.asarray(slices(share))
    assert not taken[:, ~MASK].any()
    real = taken[:, MASK]
    np.testing.assert_array_equal(real.sum(axis=1), number)
    starts = collections.Counter(real.argmax(axis=1).tolist())
    for row, start in zip(real, real.argmax(axis=1), strict=True):
        assert row[start : start + number].all(), "no gap"
    assert sorted(starts) == list(range(5 - number + 1))
    # Six standard deviations of a binomial count: fails once in 10^8 correct runs.
    expected = 400 / len(starts)
    assert all(abs(n - expected) <= 6 * np.sqrt(expected) for n in starts.values())


def tree(body, head, statistics=0.0):
    weights = {"body": {"kernel": body}, "head": {"bias": head}}
    weights = jax.tree.map(lambda value: jnp.full(2, value, jnp.float32), weights)
    return Variables(weights, {"body": {"mean": jnp.asarray(statistics, jnp.float32)}})


def is_head(name):
    return name.startswith("head/")


def test_leaves_that_are_not_merged_are_the_received_ones():
    local, received = tree(1.0, 2.0, 3.0), tree(-1.0, 4.0, -3.0)
    part = part_of(local, is_head)
    assert part["body"]["kernel"] is None
    kernel = with_part(received, part).weights["body"]["kernel"]
    assert kernel is received.weights["body"]["kernel"]
    weights = jax.tree.map(lambda leaf: jnp.full_like(leaf, 0.5), part)
    found = merged_models(local, received, weights, is_head)
    expected = tree(-1.0, 3.0, -3.0)
    jax.tree.map(np.testing.assert_array_equal, tuple(found), tuple(expected))
    everything = part_of(local, lambda name: True)
    assert everything == local.weights, "statistics are never merged"


def losses(params, inputs, targets):
    """Linear in all weights, so that a gradient is the same everywhere."""
    total = sum(jnp.sum(leaf) for leaf in jax.tree.leaves(params.weights))
    return inputs * total


LINEAR = Task(
    init=lambda key: tree(0.0, 0.0), losses=losses, predict=lambda params, x: x
)
LOCAL, RECEIVED = tree(1.0, 2.0), tree(-1.0, 2.5)
INPUTS = np.array([0.01, 9.0, 0.02, 0.03, 0.04, 9.0, 0.05, 9.0], "f4")


@jax.jit
def learn(scale, share, is_new, received):
    inputs = jnp.asarray(INPUTS) * scale
    half = jax.tree.map(lambda leaf: jnp.full_like(leaf, 0.5), part_of(LOCAL, is_head))
    return learn_weights(
        LINEAR,
        jax.random.key(0),
        (half, is_new),
        LOCAL,
        received,
        ClientData(inputs, inputs, jnp.asarray(MASK)),
        rates=Rates(jnp.asarray(0.2), share, jnp.asarray(1.0)),
        num_epochs=(30, 2),
        batch_size=2,
        chosen=is_head,
    )


@pytest.mark.parametrize("is_new", [False, True])
def test_steps_go_through_the_batches_of_the_slice(is_new):
    """Five samples in batches of two: an epoch's gradients add up to those of two full
    batches and one of a single sample. The order of the batches is drawn."""
    found = learn(np.float32(1), 1.0, is_new, RECEIVED)
    epochs = 11 if is_new else 2  # Losses vary little from the start.
    assert found.epochs == epochs
    assert not found.is_new
    (weights,) = jax.tree.leaves(found.weights)
    moved = (0.5 - np.asarray(weights)) / (0.2 * 0.5)  # By eta and the difference.
    # The mean of means hangs on who is alone: all samples once, one of them twice.
    low, high = 0.5 * (0.15 + 0.01), 0.5 * (0.15 + 0.05)
    assert np.all((epochs * low <= moved) & (moved <= epochs * high))
    wrong = np.mean(INPUTS[MASK])  # Control: one full batch for each epoch.
    assert np.all(moved > epochs * wrong)


def test_equal_leaves_leave_nothing_to_learn():
    """Other leaves may differ; the first time is still to come."""
    found = learn(np.float32(1), 0.8, True, tree(-1.0, 2.0))
    assert found.epochs == 0
    assert found.is_new
    np.testing.assert_array_equal(jax.tree.leaves(found.weights)[0], [0.5, 0.5])


def test_a_step_that_is_not_finite_is_not_taken():
    """And learning ends, however much there was still to do."""
    found = learn(np.float32(np.nan), 1.0, True, RECEIVED)
    assert found.epochs < 11
    np.testing.assert_array_equal(jax.tree.leaves(found.weights)[0], [0.5, 0.5])


# Against misuse


test_misuse_is_named = misuse(
    functools.partial(fedala, TASK, step_size=STEP),
    ({"adaptive": lambda name: False}, "`adaptive` must be true of a leaf"),
    ({"weight_step_size": -1.0}, "`weight_step_size` must not be negative"),
    ({"sample_share": 0.0}, r"`sample_share` must be in \(0, 1\], got 0.0"),
    ({"sample_share": 1.5}, r"`sample_share` must be in \(0, 1\], got 1.5"),
    ({"tolerance": -0.1}, "`tolerance` must not be negative"),
    ({"num_initial_epochs": 0}, "`num_initial_epochs` must be at least 1"),
    ({"num_weight_epochs": 0}, "`num_weight_epochs` must be at least 1"),
    ({"answer": "received"}, "answer"),
)
