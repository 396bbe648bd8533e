"""The network over words, recomputed by hand in NumPy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.base.types import Task
from cfljax.models import text_cnn

TOKENS = np.array(
    [[3, 1, 4, 1, 5, 2], [2, 6, 0, 0, 0, 0], [0] * 6, [6, 5, 4, 3, 2, 0]], np.int32
)
LABELS = jnp.array([0, 1, 2, 0])


@functools.cache
def small() -> Task:
    task = text_cnn(7, embedding=3, windows=(2, 4), channels=5, num_classes=3)
    return Task(jax.jit(task.init), jax.jit(task.losses), jax.jit(task.predict))


def by_hand(params, tokens) -> np.ndarray:
    """Logits in float64, word by word."""
    params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    rows = []
    for text in np.asarray(tokens):
        words = [params["embedding"][token] for token in text if token != 0]
        features = []
        for _, layer in sorted(params["convolutions"].items()):
            length, width, channels = layer["kernel"].shape
            behind = [np.zeros(width)] * (length - 1)
            largest = np.zeros(channels)
            for start in range(len(words)):
                window = np.stack((words + behind)[start : start + length])
                sums = np.einsum("tw,twc->c", window, layer["kernel"]) + layer["bias"]
                largest = np.maximum(largest, sums)
            features.append(largest)
        rows.append(np.concatenate(features))
    return np.stack(rows) @ params["output"]["kernel"] + params["output"]["bias"]


def test_logits_and_losses_against_equations():
    task = small()
    params = task.init(jax.random.key(0))
    logits = by_hand(params, TOKENS)
    tokens = jnp.asarray(TOKENS)
    np.testing.assert_allclose(task.predict(params, tokens), logits, atol=1e-5)
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    expected = -np.log(probabilities[np.arange(4), np.asarray(LABELS)])
    losses = task.losses(params, tokens, LABELS)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    assert task.fit is None
    # Controls: the order of words matters, and so does every word.
    for other in (TOKENS[:1, ::-1], np.where(TOKENS[:1] == 5, 6, TOKENS[:1])):
        assert not np.allclose(by_hand(params, other), logits[:1], atol=1e-4)


def test_padding_changes_nothing():
    task = small()
    params = task.init(jax.random.key(0))
    longer = jnp.pad(jnp.asarray(TOKENS), ((0, 0), (0, 3)))
    short = task.predict(params, jnp.asarray(TOKENS))
    np.testing.assert_allclose(task.predict(params, longer), short, atol=1e-6)
    # A text without words has the output's bias alone.
    np.testing.assert_allclose(short[2], params["output"]["bias"], atol=1e-7)
    one = jnp.asarray(TOKENS[1:2, :2])  # Shorter than the longest window.
    np.testing.assert_allclose(
        task.predict(params, one), by_hand(params, one), atol=1e-6
    )
    # Control: a word in the place of padding is not the same.
    assert not np.allclose(
        task.predict(params, longer.at[:, -1].set(1)), short, atol=1e-4
    )


@pytest.mark.slow
def test_params_stack_and_training_lowers_the_loss():
    task = small()
    tokens = jnp.asarray(TOKENS)

    def train(key):
        def step(params, _):
            mean = lambda params: jnp.mean(task.losses(params, tokens, LABELS))
            loss, gradient = jax.value_and_grad(mean)(params)
            move = lambda leaf, change: leaf - 0.3 * change
            return jax.tree.map(move, params, gradient), loss

        start = task.init(key)
        params, losses = jax.lax.scan(step, start, None, length=20)
        return start, params, losses

    keys = jax.random.split(jax.random.key(0), 2)
    start, params, losses = jax.jit(jax.vmap(train))(keys)
    assert jnp.all(losses[:, -1] < losses[:, 0])
    np.testing.assert_array_equal(  # Padding is never trained.
        params["embedding"][:, 0], start["embedding"][:, 0]
    )
    assert not np.allclose(params["embedding"][:, 1], start["embedding"][:, 1])
    assert not np.allclose(start["embedding"][0], start["embedding"][1])


def test_ids_that_are_no_token_have_no_loss_and_no_gradient():
    task = small()
    params = task.init(jax.random.key(0))
    tokens = jnp.asarray(TOKENS).at[0, 0].set(7).at[1, 1].set(-1)
    losses = task.losses(params, tokens, LABELS)
    np.testing.assert_array_equal(jnp.isnan(losses), [True, True, False, False])

    def kept(params):
        return jnp.nansum(task.losses(params, tokens, LABELS))

    gradient = jax.jit(jax.grad(kept))(params)
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))
    rows = np.abs(gradient["embedding"]).max(axis=1)
    assert rows[1] == 0  # The word 1 is in the first text alone.
    assert np.all(rows[2:6] > 0)


def test_initial_values_and_default_sizes():
    params = jax.jit(text_cnn(500).init)(jax.random.key(0))
    assert params["embedding"].shape == (500, 64)
    assert abs(float(params["embedding"].std()) - 1) < 6 / np.sqrt(2 * 500 * 64)
    lengths = [layer["kernel"].shape for layer in params["convolutions"].values()]
    assert lengths == [(3, 64, 64), (4, 64, 64), (5, 64, 64)]
    bound = 1 / np.sqrt(5 * 64)
    assert 0.99 * bound < abs(params["convolutions"][2]["kernel"]).max() <= bound
    assert abs(params["output"]["kernel"]).max() <= 1 / np.sqrt(192)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: text_cnn(1), "`num_tokens` must be at least 2, got 1"),
        (lambda: text_cnn(9, num_classes=1), "`num_classes` must be at least 2"),
        (lambda: text_cnn(9, windows=()), "`windows` must name at least one"),
        (lambda: text_cnn(9, windows=(3, 0)), "must be positive integers"),
        (
            lambda: text_cnn(9, embedding=0),
            "`embedding`, `windows` and `channels`",
        ),
        (lambda: text_cnn(9, channels=0), "must be positive integers"),
    ],
)
def test_impossible_networks_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
