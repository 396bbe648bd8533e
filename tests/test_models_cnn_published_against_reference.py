"""The networks of published experiments against their descriptions."""

import functools

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from cfljax.models import femnist_cnn, rotated_cifar_cnn


def test_femnist_has_the_layers_and_weights_of_leaf():
    params = jax.eval_shape(femnist_cnn().init, jax.random.key(0))
    shapes = jax.tree.map(lambda leaf: leaf.shape, params)
    assert shapes["convolutions"][0]["kernel"] == (5, 5, 1, 32)
    assert shapes["convolutions"][1]["kernel"] == (5, 5, 32, 64)
    assert shapes["hidden"] == {0: {"kernel": (3136, 2048), "bias": (2048,)}}
    assert shapes["output"] == {"kernel": (2048, 62), "bias": (62,)}
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == 6_603_710


@functools.cache
def cifar() -> dict:
    return jax.jit(rotated_cifar_cnn().init)(jax.random.key(0))


def tutorial(params: dict, inputs: jax.Array) -> jax.Array:
    """Logits from XLA's own convolution and pool, in the tutorial's order."""
    values = inputs[:, 4:28, 4:28]
    over = (1, 2, 3)
    values = values - values.mean(over, keepdims=True)
    values = values / values.std(over, keepdims=True)
    near = abs(np.subtract.outer(np.arange(64), np.arange(64))) <= 4
    norm = lambda x: x / (1 + 0.001 / 9 * (x**2 @ near.astype(np.float32))) ** 0.75
    pool = lambda x: jax.lax.reduce_window(
        x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME"
    )

    def convolve(index, x):
        layer = params["convolutions"][index]
        names = ("NHWC", "HWIO", "NHWC")
        x = jax.lax.conv_general_dilated(
            x, layer["kernel"], (1, 1), "SAME", dimension_numbers=names
        )
        return jax.nn.relu(x + layer["bias"][None, None, None, :])

    values = norm(pool(convolve(0, values)))
    values = pool(norm(convolve(1, values))).reshape(len(inputs), -1)
    for layer in params["hidden"].values():
        values = jax.nn.relu(values @ layer["kernel"] + layer["bias"][None, :])
    return values @ params["output"]["kernel"] + params["output"]["bias"][None, :]


def test_rotated_cifar_against_the_tutorial():
    params, labels = cifar(), jnp.arange(3)
    inputs = jax.random.uniform(jax.random.key(1), (3, 32, 32, 3))

    def compute(params, inputs):
        task, free = rotated_cifar_cnn(), rotated_cifar_cnn(l2=0.0)
        losses = [each.losses(params, inputs, labels) for each in (task, free)]
        found = task.predict(params, inputs)
        moved = tutorial(params, jnp.roll(inputs, 1, axis=1))
        return found, tutorial(params, inputs), moved, *losses

    found, logits, moved, losses, free = jax.jit(compute)(params, inputs)
    np.testing.assert_allclose(found, logits, atol=1e-4)
    assert not np.allclose(moved, logits, atol=1e-3)
    squares = sum(np.sum(np.square(params["hidden"][i]["kernel"])) for i in (0, 1))
    expected = -np.asarray(jax.nn.log_softmax(logits))[np.arange(3), np.arange(3)]
    np.testing.assert_allclose(losses, expected + 0.002 * squares, rtol=1e-4)
    np.testing.assert_allclose(free, expected, rtol=1e-3, atol=1e-4)
    assert (losses - free > 1).all()


def test_rotated_cifar_starts_as_the_tutorial():
    params = cifar()
    kept = 0.8796  # Standard deviation of a normal number cut at two.
    layers = [*params["convolutions"].values(), *params["hidden"].values()]
    for layer, scale, bias in zip(
        [*layers, params["output"]],
        (0.05, 0.05, 0.04, 0.04, 1 / 192),
        (0.0, 0.1, 0.1, 0.1, 0.0),
        strict=True,
    ):
        kernel = np.asarray(layer["kernel"])
        assert abs(kernel).max() <= 2 * scale * (1 + 1e-6)
        assert abs(kernel.std() / scale / kept - 1) < 6 / kernel.size**0.5
        np.testing.assert_allclose(layer["bias"], bias)
    text = jax.eval_shape(rotated_cifar_cnn(variant="text").init, jax.random.key(0))
    assert text["output"]["kernel"].shape == (384, 10) and len(text["hidden"]) == 1


def test_impossible_arguments_are_refused():
    with pytest.raises((ValueError, jaxtyping.TypeCheckError)):
        rotated_cifar_cnn(variant="paper")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="`num_classes`"):
        rotated_cifar_cnn(num_classes=1)
    with pytest.raises(ValueError, match="`input_shape`, `channels`, `hidden`"):
        femnist_cnn(hidden=0)
