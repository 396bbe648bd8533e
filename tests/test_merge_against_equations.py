"""Merging two models: its exact ends, its slices, and which leaves it touches."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.algorithms.fedala import (
    Rates,
    learn_weights,
    merged,
    merged_models,
    part_of,
    random_slice,
    with_part,
)
from cfljax.base.types import ClientData, Task, Variables

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


TASK = Task(init=lambda key: tree(0.0, 0.0), losses=losses, predict=lambda params, x: x)
LOCAL, RECEIVED = tree(1.0, 2.0), tree(-1.0, 2.5)
SAMPLES = np.array([0.01, 9.0, 0.02, 0.03, 0.04, 9.0, 0.05, 9.0], "f4")


@jax.jit
def learn(scale, share, is_new, received):
    inputs = jnp.asarray(SAMPLES) * scale
    half = jax.tree.map(lambda leaf: jnp.full_like(leaf, 0.5), part_of(LOCAL, is_head))
    return learn_weights(
        TASK,
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
    wrong = np.mean(SAMPLES[MASK])  # Control: one full batch for each epoch.
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
