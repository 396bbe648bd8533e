"""The autoencoders, recomputed by hand in NumPy; the deeper network's layers."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.base.tree import trained_part
from cfljax.base.types import Task, Variables
from cfljax.models import autoencoder, cnn, convolutional_autoencoder, deep_cnn

DENSE, IMAGE = (3, 4), (4, 8, 2)
LABELS = jnp.arange(5) % 3


@functools.cache
def dense() -> Task:
    return compiled(autoencoder(DENSE, hidden=(6, 5), latent=2))


@functools.cache
def convolutional() -> Task:
    sizes = {"channels": (3, 4), "kernel_size": 3, "latent": 5}
    return compiled(convolutional_autoencoder(IMAGE, **sizes))


def compiled(task: Task) -> Task:
    return Task(jax.jit(task.init), jax.jit(task.losses), jax.jit(task.predict))


def batch(shape) -> jax.Array:
    return jax.random.uniform(jax.random.key(1), (5, *shape))


def doubled(tree):
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tree)


def dense_by_hand(params, images) -> np.ndarray:
    layers = [layer for _, layer in sorted(doubled(params)["layers"].items())]
    values = np.asarray(images, np.float64).reshape(len(images), -1)
    for layer in layers[:-1]:
        values = np.maximum(values @ layer["kernel"] + layer["bias"], 0)
    values = values @ layers[-1]["kernel"] + layers[-1]["bias"]
    return (1 / (1 + np.exp(-values))).reshape(images.shape)


def convolve(images, layer) -> np.ndarray:
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    return np.einsum("nhwcij,ijco->nhwo", windows, layer["kernel"]) + layer["bias"]


def convolutional_by_hand(params, images) -> np.ndarray:
    params, values = doubled(params), np.asarray(images, np.float64)
    for _, layer in sorted(params["encoder"].items()):
        values = np.maximum(convolve(values, layer), 0)
        count, height, width, depth = values.shape
        values = values.reshape(count, height // 2, 2, width // 2, 2, depth)
        values = values.max(axis=(2, 4))
    small = values.shape
    values = values.reshape(len(values), -1)
    for name in ("bottleneck", "widening"):
        values = values @ params[name]["kernel"] + params[name]["bias"]
    values = np.maximum(values, 0).reshape(small)
    for index, layer in sorted(params["decoder"].items()):
        larger = np.kron(values, np.ones((1, 2, 2, 1)))
        values = convolve(larger, layer)
        values = np.maximum(values, 0) if index == 0 else np.tanh(values)
    return values


CASES = [
    (dense, dense_by_hand, DENSE),
    (convolutional, convolutional_by_hand, IMAGE),
]


@pytest.mark.parametrize("build, by_hand, shape", CASES)
def test_reconstructions_and_losses_against_equations(build, by_hand, shape):
    task, images = build(), batch(shape)
    params = task.init(jax.random.key(0))
    expected = by_hand(params, images)
    outputs = task.predict(params, images)
    assert outputs.shape == images.shape and task.fit is None
    np.testing.assert_allclose(outputs, expected, atol=1e-6)
    axes = tuple(range(1, images.ndim))
    errors = ((expected - np.asarray(images)) ** 2).mean(axis=axes)
    losses = task.losses(params, images, LABELS)
    np.testing.assert_allclose(losses, errors, rtol=1e-5)
    np.testing.assert_array_equal(losses, task.losses(params, images, LABELS + 1))
    # Controls: the other image's error, and that of a shifted reconstruction.
    assert not np.allclose(losses, errors[::-1], rtol=1e-4)
    assert not np.allclose(outputs, np.roll(expected, 1, axis=1), atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("build, shape", [(build, shape) for build, _, shape in CASES])
def test_params_stack_and_training_lowers_the_loss(build, shape):
    task, images = build(), batch(shape)
    keys = jax.random.split(jax.random.key(0), 2)

    def mean(params):
        return jnp.mean(task.losses(params, images, LABELS))

    def train(key):
        def step(params, _):
            loss, gradient = jax.value_and_grad(mean)(params)
            move = lambda leaf, change: leaf - 0.5 * change
            return jax.tree.map(move, params, gradient), loss

        params = task.init(key)
        return jax.lax.scan(step, params, None, length=20)

    params, losses = jax.jit(jax.vmap(train))(keys)
    assert jnp.all(losses[:, -1] < losses[:, 0]) and losses.shape == (2, 20)
    first, second = jax.tree.leaves(params)[0]
    assert not np.allclose(first, second)  # The keys do matter.
    assert trained_part(params) is params


def test_initial_values_and_default_sizes():
    params = jax.eval_shape(autoencoder((28, 28)).init, jax.random.key(0))
    shapes = [layer["kernel"].shape for _, layer in sorted(params["layers"].items())]
    assert shapes == [(784, 128), (128, 32), (32, 128), (128, 784)]
    params = jax.eval_shape(convolutional_autoencoder().init, jax.random.key(0))
    assert params["bottleneck"]["kernel"].shape == (8 * 8 * 64, 128)
    assert params["decoder"][1]["kernel"].shape == (3, 3, 32, 3)
    layers = dense().init(jax.random.key(0))["layers"]
    for index, fan_in in enumerate((12, 6, 5, 2, 5, 6)):
        largest = abs(layers[index]["kernel"]).max() * np.sqrt(fan_in)
        assert 0.8 < largest <= 1 + 1e-6


def program(task: Task) -> str:
    """What training computes, but for the addresses of functions."""
    assert task.fit is not None
    key, images, labels = jax.random.key(0), jnp.zeros((2, 32, 32, 3)), jnp.arange(2)
    params = jax.eval_shape(task.init, key)
    assert isinstance(params, Variables)
    found = jax.make_jaxpr(task.fit)(key, params, images, labels, labels < 2)
    return re.sub("0x[0-9a-f]+", "", str(found))


def test_the_deeper_network_is_the_general_one():
    sizes = {"channels": (2, 3), "hidden": (4,), "num_classes": 3}
    general = cnn((32, 32, 3), **sizes, kernel_size=3, batch_norm=True, dropout=0.5)
    assert program(deep_cnn(**sizes)) == program(general)
    assert program(deep_cnn(**sizes, dropout=0.4)) != program(general)
    deeper = jax.eval_shape(deep_cnn().init, jax.random.key(0))
    assert len(deeper.weights["convolutions"]) == 3


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: autoencoder((3, 0)), "`input_shape`, `hidden` and `latent` must be"),
        (lambda: autoencoder((3, 4), hidden=(0,)), "must be positive"),
        (lambda: autoencoder((3, 4), latent=0), "must be positive"),
        (lambda: convolutional_autoencoder((8, 8)), "height, width, channels"),
        (lambda: convolutional_autoencoder((6, 8, 1)), "multiples of 4"),
        (lambda: convolutional_autoencoder(channels=()), "`channels` must name"),
        (lambda: convolutional_autoencoder(latent=0), "`latent` must be positive"),
        (lambda: convolutional_autoencoder(kernel_size=0), "must be positive"),
        (lambda: deep_cnn(dropout=1.0), "`dropout`"),
    ],
)
def test_impossible_networks_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("build, shape", [(dense, (4, 3)), (convolutional, (8, 4, 2))])
def test_images_of_another_shape_are_refused(build, shape):
    """The same number of pixels in another order is another image."""
    task = build()
    params = task.init(jax.random.key(0))
    with pytest.raises(ValueError, match=r"`inputs` must be \[samples, "):
        task.predict(params, batch(shape))
