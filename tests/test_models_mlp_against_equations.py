"""The perceptron and its loss, recomputed by hand in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.losses import cross_entropy, squared_error
from cfljax.models import mlp

SHAPE = (3, 4)


def batch(num_samples: int = 6):
    inputs = jax.random.uniform(jax.random.key(1), (num_samples, *SHAPE))
    return inputs, jnp.arange(num_samples) % 5


def by_hand(params, inputs) -> np.ndarray:
    """Logits in float64."""
    layers = [params["layers"][i] for i in range(len(params["layers"]))]
    values = np.asarray(inputs, np.float64).reshape(len(inputs), -1)
    for depth, layer in enumerate(layers):
        values = values @ np.asarray(layer["kernel"], np.float64)
        values = values + np.asarray(layer["bias"], np.float64)
        if depth + 1 < len(layers):
            values = np.maximum(values, 0)
    return values


def log_softmax(logits: np.ndarray) -> np.ndarray:
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


@pytest.mark.parametrize("hidden", [(), (7,), (7, 5)])
def test_forward_pass_and_losses_against_equations(hidden):
    task = mlp(SHAPE, hidden=hidden, num_classes=5)
    params = task.init(jax.random.key(0))
    inputs, labels = batch()
    logits = by_hand(params, inputs)
    np.testing.assert_allclose(task.predict(params, inputs), logits, atol=1e-5)
    expected = -log_softmax(logits)[np.arange(6), np.asarray(labels)]
    np.testing.assert_allclose(task.losses(params, inputs, labels), expected, rtol=1e-5)
    wrong = -log_softmax(logits)[np.arange(6), (np.asarray(labels) + 1) % 5]
    assert not np.allclose(task.losses(params, inputs, labels), wrong, rtol=1e-3)


def test_params_stack_under_vmap_and_agree_one_by_one():
    task = mlp(SHAPE, hidden=(7,), num_classes=5)
    keys = jax.random.split(jax.random.key(0), 4)
    params = jax.jit(jax.vmap(task.init))(keys)
    shapes = {leaf.shape for leaf in jax.tree.leaves(params)}
    assert shapes == {(4, 12, 7), (4, 7), (4, 7, 5), (4, 5)}
    inputs, _ = batch()
    together = jax.vmap(task.predict, in_axes=(0, None))(params, inputs)
    for index, key in enumerate(keys):
        alone = task.predict(task.init(key), inputs)
        np.testing.assert_allclose(together[index], alone, atol=1e-6)
    assert not np.allclose(together[0], together[1])  # The keys do matter.


def test_initial_values_against_the_uniform_law():
    params = mlp((28, 28)).init(jax.random.key(0))["layers"]
    for layer, fan_in in ((params[0], 784), (params[1], 200)):
        bound = 1 / np.sqrt(fan_in)
        assert abs(layer["kernel"]).max() <= bound
        assert abs(layer["bias"]).max() <= bound
        scale = np.asarray(layer["kernel"]).std() * np.sqrt(12) / (2 * bound)
        assert abs(scale - 1) < 6 / np.sqrt(layer["kernel"].size)
    assert abs(params[1]["kernel"]).max() > 1 / np.sqrt(784)  # Its own fan-in.


def test_gradients_are_finite_and_match_a_finite_difference():
    task = mlp(SHAPE, hidden=(7,), num_classes=5)
    params = task.init(jax.random.key(0))
    inputs, labels = batch()
    mean = lambda params: jnp.mean(task.losses(params, inputs, labels))
    gradient = jax.grad(mean)(params)
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))
    move = jax.tree.map(lambda leaf: 1e-2 * leaf, gradient)
    ahead = mean(jax.tree.map(jnp.add, params, move))
    behind = mean(jax.tree.map(jnp.subtract, params, move))
    squares = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(gradient))
    np.testing.assert_allclose(ahead - behind, 2e-2 * squares, rtol=1e-2)


def test_cross_entropy_survives_large_logits():
    logits = jnp.array([[1e4, 0.0], [0.0, 1e4]])
    losses = cross_entropy(logits, jnp.array([0, 0]))
    np.testing.assert_allclose(losses, [0.0, 1e4])


def test_labels_that_are_no_class_have_no_loss():
    logits = jnp.array([[0.5, 0.1, 0.3]] * 4)
    labels = jnp.array([-1, 2, 3, 62])
    losses = cross_entropy(logits, labels)
    np.testing.assert_array_equal(jnp.isnan(losses), [True, False, True, True])
    expected = -log_softmax(np.asarray(logits))[1, 2]
    np.testing.assert_allclose(losses[1], expected, rtol=1e-6)
    # Where the mask hides them, as on padding, they reach no gradient.
    kept = lambda logits: jnp.nansum(cross_entropy(logits, labels))
    gradient = jax.grad(kept)(logits)
    assert jnp.isfinite(gradient).all() and jnp.any(gradient[1] != 0)
    np.testing.assert_array_equal(gradient[jnp.array([0, 2, 3])], 0)


def test_squared_error_against_equations():
    outputs, targets = jnp.array([1.0, 3.0]), jnp.array([0.0, 1.0])
    np.testing.assert_allclose(squared_error(outputs, targets), [1.0, 4.0])
    images = jnp.arange(12.0).reshape(2, 2, 3)
    np.testing.assert_allclose(
        squared_error(images, jnp.zeros((2, 2, 3))), [55 / 6, 451 / 6]
    )


@pytest.mark.parametrize(
    "arguments", [{"hidden": (0,)}, {"num_classes": 1}, {"hidden": (5, -1)}]
)
def test_impossible_sizes_are_refused(arguments):
    with pytest.raises(ValueError, match="must be"):
        mlp(SHAPE, **arguments)


def test_inputs_of_another_shape_are_refused():
    task = mlp((2, 3), hidden=(), num_classes=2)
    params = task.init(jax.random.key(0))
    assert task.predict(params, jnp.zeros((4, 2, 3))).shape == (4, 2)
    with pytest.raises(ValueError, match=r"inputs must be `\[samples, 2, 3\]`, got"):
        task.predict(params, jnp.zeros((4, 3, 3)))
