"""The convolutional tasks, recomputed by hand in NumPy."""

from typing import Any

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from cfljax.base.types import Task, Variables
from cfljax.models import cnn

SHAPE = (8, 8, 2)


def small(input_shape=SHAPE, **changes) -> Task:
    """A network of few numbers."""
    sizes: dict[str, Any] = {"channels": (3, 4), "kernel_size": 3, "hidden": (6,)}
    sizes |= {"num_classes": 5}
    task = cnn(input_shape, **sizes | changes)
    # Compiled at once, a network is tested faster than operation by operation.
    fit = None if task.fit is None else jax.jit(task.fit)
    return Task(jax.jit(task.init), jax.jit(task.losses), jax.jit(task.predict), fit)


def batch(num_samples: int = 7, shape: tuple[int, ...] = SHAPE):
    inputs = jax.random.uniform(jax.random.key(1), (num_samples, *shape))
    return inputs, jnp.arange(num_samples) % 5


def doubled(tree):
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tree)


def by_hand(weights, inputs, moments=None) -> np.ndarray:
    """Logits in float64, bias and ReLU before each pool; `moments` of each layer."""
    weights, values = doubled(weights), np.asarray(inputs, np.float64)
    for index, layer in weights["convolutions"].items():
        margin = layer["kernel"].shape[0] // 2
        padded = np.pad(values, ((0, 0), (margin, margin), (margin, margin), (0, 0)))
        sizes = layer["kernel"].shape[:2]
        windows = np.lib.stride_tricks.sliding_window_view(padded, sizes, axis=(1, 2))
        values = np.einsum("nhwcij,ijco->nhwo", windows, layer["kernel"])
        if moments is None:
            values = values + layer["bias"]
        else:
            mean, variance = moments(index, values)
            affine = weights["normalisations"][index]
            values = (values - mean) / np.sqrt(variance + 1e-5)
            values = values * affine["scale"] + affine["bias"]
        values = np.maximum(values, 0)
        count, height, width, depth = values.shape
        values = values.reshape(count, height // 2, 2, width // 2, 2, depth)
        values = values.max(axis=(2, 4))
    values = values.reshape(len(values), -1)
    for layer in weights.get("hidden", {}).values():
        values = np.maximum(values @ layer["kernel"] + layer["bias"], 0)
    return values @ weights["output"]["kernel"] + weights["output"]["bias"]


def log_softmax(logits: np.ndarray) -> np.ndarray:
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def negative_scales(params: Variables) -> Variables:
    """Some scales below zero: normalisation must come before the pool."""
    scale = params.weights["normalisations"][0]["scale"]
    params.weights["normalisations"][0]["scale"] = scale.at[0].set(-1.5)
    return params


@pytest.mark.parametrize("shape, hidden", [(SHAPE, (6, 5)), ((8, 4), ())])
def test_forward_pass_and_losses_against_equations(shape, hidden):
    task = small(shape, hidden=hidden)
    params = task.init(jax.random.key(0))
    assert task.fit is None and set(params) >= {"convolutions", "output"}
    inputs, labels = batch(shape=shape)
    logits = by_hand(params, inputs.reshape(7, *shape[:2], -1))
    np.testing.assert_allclose(task.predict(params, inputs), logits, atol=1e-5)
    expected = -log_softmax(logits)[np.arange(7), np.asarray(labels)]
    np.testing.assert_allclose(task.losses(params, inputs, labels), expected, rtol=1e-5)
    shifted = by_hand(params, jnp.roll(inputs, 1, 1).reshape(7, *shape[:2], -1))
    assert not np.allclose(logits, shifted, atol=1e-4)


def test_params_stack_under_vmap_and_agree_one_by_one():
    task = small(channels=(3,))
    keys = jax.random.split(jax.random.key(0), 2)
    inputs, labels = batch()

    def trained(key):
        params = task.init(key)
        mean = lambda params: jnp.mean(task.losses(params, inputs, labels))
        return jax.grad(mean)(params)

    def compute(keys):
        return jax.vmap(trained)(keys), trained(keys[0])

    together, alone = jax.jit(compute)(keys)
    for a, b in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
        np.testing.assert_allclose(a[0], b, atol=1e-6)
    first, second = together["convolutions"][0]["kernel"]
    assert not np.allclose(first, second, atol=1e-6)  # The keys do matter.


def test_batch_normalisation_uses_and_measures_the_real_samples():
    task = small(batch_norm=True)
    assert task.fit is not None
    params = negative_scales(task.init(jax.random.key(0)))
    inputs, labels = batch()
    mask = jnp.arange(7) < 4
    measured = {}

    def moments(index, values):
        real = values[:4]
        measured[index] = real.mean((0, 1, 2)), real.var((0, 1, 2))
        return measured[index]

    logits = by_hand(params.weights, inputs, moments)
    expected = -log_softmax(logits)[np.arange(7), np.asarray(labels)]
    losses, after = task.fit(jax.random.key(5), params, inputs, labels, mask)
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    for index, (mean, variance) in measured.items():
        found = after.statistics["normalisations"][index]
        np.testing.assert_allclose(found["mean"], 0.1 * mean, atol=1e-6)
        np.testing.assert_allclose(found["var"], 0.9 + 0.1 * variance, rtol=1e-5)
    all_real, _ = task.fit(jax.random.key(5), params, inputs, labels, mask | True)
    assert not np.allclose(all_real, losses, rtol=1e-3)
    for a, b in zip(
        jax.tree.leaves(after.weights), jax.tree.leaves(params.weights), strict=True
    ):
        np.testing.assert_array_equal(a, b)

    stored = doubled(after.statistics)["normalisations"]
    running = lambda index, _: (stored[index]["mean"], stored[index]["var"])
    np.testing.assert_allclose(
        task.predict(after, inputs), by_hand(after.weights, inputs, running), atol=1e-5
    )


def test_a_batch_without_real_samples_moves_no_statistics():
    task = small(batch_norm=True)
    assert task.fit is not None
    params, nobody = task.init(jax.random.key(0)), jnp.zeros(7, bool)
    losses, after = task.fit(jax.random.key(5), params, *batch(), nobody)
    assert jnp.isfinite(losses).all()
    for a, b in zip(jax.tree.leaves(after), jax.tree.leaves(params), strict=True):
        np.testing.assert_array_equal(a, b)


def test_dropout_draws_from_the_key_and_keeps_the_mean():
    """With the layers behind it linear, the mean over draws is the value without."""
    task = small(channels=(3,), hidden=(400,), dropout=0.25)
    assert task.fit is not None
    params = task.init(jax.random.key(0))
    inputs, labels = batch()
    mask = jnp.ones(7, bool)
    fit = task.fit
    draw = lambda key: fit(key, params, inputs, labels, mask)[0]
    drawn = jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(3), 200))
    plain = task.losses(params, inputs, labels)
    spread = jnp.std(drawn, axis=0)
    assert jnp.all(spread > 1e-4)
    # Losses bend a little: the mean may be off by a tenth of the spread.
    assert jnp.all(abs(jnp.mean(drawn, axis=0) - plain) < 0.5 * spread)
    np.testing.assert_array_equal(draw(jax.random.key(7)), draw(jax.random.key(7)))
    np.testing.assert_array_equal(plain, task.losses(params, inputs, labels))


def uniform_within(values, bound) -> bool:
    """Inside the bound, with the standard deviation of the law up to 6 errors."""
    values = np.asarray(values, np.float64)
    scale = values.std() * np.sqrt(3) / bound
    return bool(
        abs(values).max() <= bound * (1 + 1e-6)
        and abs(scale - 1) < 6 / values.size**0.5
    )


def test_initial_values_of_pytorch_and_of_tensorflow():
    torch, tensorflow = (
        jax.jit(cnn((28, 28), initialiser=name).init)(jax.random.key(0))
        for name in ("fan_in", "glorot")
    )
    second = torch["convolutions"][1]
    assert uniform_within(second["kernel"], 1 / np.sqrt(25 * 32))
    assert abs(second["bias"]).max() <= 1 / np.sqrt(25 * 32) and second["bias"].any()
    assert uniform_within(torch["hidden"][0]["kernel"], 1 / np.sqrt(7 * 7 * 64))
    second = tensorflow["convolutions"][1]
    assert uniform_within(second["kernel"], np.sqrt(6 / (25 * 32 + 25 * 64)))
    assert not uniform_within(second["kernel"], np.sqrt(6 / (25 * 32)))
    assert not second["bias"].any()


@pytest.mark.parametrize(
    "changes, name",
    [
        ({"input_shape": (8,)}, "input_shape"),
        ({"input_shape": (8, 6)}, "input_shape"),
        ({"input_shape": (2, 2)}, "input_shape"),
        ({"input_shape": (0, 8)}, "input_shape"),
        ({"channels": ()}, "channels"),
        ({"channels": (3, 0)}, "channels"),
        ({"kernel_size": 0}, "kernel_size"),
        ({"hidden": (-1,)}, "hidden"),
        ({"num_classes": 1}, "num_classes"),
        ({"dropout": 1.0}, "dropout"),
        ({"dropout": -0.1}, "dropout"),
        ({"dropout": float("nan")}, "dropout"),
        ({"dropout": 0.5, "hidden": ()}, "dropout"),
    ],
)
def test_impossible_networks_are_refused(changes, name):
    with pytest.raises(ValueError, match=f"`{name}`"):
        small(**changes)


def test_impossible_inputs_are_refused():
    task = small(batch_norm=True)
    params = task.init(jax.random.key(0))
    inputs, labels = batch(shape=(8, 8))
    assert task.fit is not None
    for wrong in (inputs, inputs[..., None]):
        with pytest.raises(ValueError, match=r"`inputs` must be \[samples, 8, 8, 2\]"):
            task.predict(params, wrong)
        with pytest.raises(ValueError, match="`inputs` must be"):
            task.fit(jax.random.key(0), params, wrong, labels, labels < 9)
    with pytest.raises((ValueError, jaxtyping.TypeCheckError)):
        small(initialiser="zeros")
