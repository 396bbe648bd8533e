"""A network as a body and a last layer: together they are the network."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.federated.sharing import paths
from cfljax.losses import cross_entropy
from cfljax.models import cnn, linear, mlp, text_cnn

SAMPLES, CLASSES = 3, 4
IMAGES = jax.random.uniform(jax.random.key(0), (SAMPLES, 4, 4))
TOKENS = jnp.array([[1, 2, 0], [3, 4, 5], [5, 0, 0]])
TARGETS = jnp.array([0, 3, 1])
SIZES = {"channels": (2,), "kernel_size": 3, "num_classes": CLASSES}
CASES: dict[str, Any] = {
    "mlp": (mlp((4, 4), hidden=(5, 6), num_classes=CLASSES), IMAGES, 6),
    "softmax regression": (
        mlp((4, 4), hidden=(), num_classes=CLASSES),
        IMAGES,
        16,
    ),
    "cnn": (cnn((4, 4), hidden=(5,), **SIZES), IMAGES, 5),
    "batch norm": (
        cnn((4, 4), hidden=(5,), batch_norm=True, **SIZES),
        IMAGES,
        5,
    ),
    "dropout": (cnn((4, 4), hidden=(16,), dropout=0.5, **SIZES), IMAGES, 16),
    "text": (text_cnn(6, embedding=3, channels=2, num_classes=CLASSES), TOKENS, 6),
}


@pytest.mark.parametrize("name", CASES)
def test_body_and_head_are_the_network(name):
    task, inputs, width = CASES[name]
    params = task.init(jax.random.key(1))
    features = task.layers.embed(params, inputs)
    assert features.shape == (SAMPLES, width)
    outputs = task.layers.answer(params, features)
    np.testing.assert_array_equal(outputs, task.predict(params, inputs))
    np.testing.assert_array_equal(
        task.layers.losses(outputs, TARGETS), task.losses(params, inputs, TARGETS)
    )
    np.testing.assert_array_equal(
        cross_entropy(outputs, TARGETS), task.losses(params, inputs, TARGETS)
    )


@pytest.mark.parametrize("name", CASES)
def test_the_head_is_the_last_layer_and_nothing_else(name):
    task, _, width = CASES[name]
    params = task.init(jax.random.key(1))
    names = paths(params)
    head = [n for n in names if task.layers.is_head(n)]
    assert [n.split("/")[-1] for n in head] == ["bias", "kernel"]
    leaves, form = jax.tree.flatten(params)
    others = [
        leaf if task.layers.is_head(name) else leaf + 1
        for name, leaf in zip(names, leaves, strict=True)
    ]
    features = jnp.ones((SAMPLES, width))
    moved = form.unflatten(others)
    same = task.layers.answer(params, features), task.layers.answer(moved, features)
    np.testing.assert_array_equal(*same)
    doubled = jax.tree.map(lambda leaf: 2 * leaf, params)
    assert not np.allclose(task.layers.answer(doubled, features), same[0])


@pytest.mark.parametrize("name", ["batch norm", "dropout"])
def test_training_sees_the_body_that_fit_sees(name):
    task, inputs, _ = CASES[name]
    params, key = task.init(jax.random.key(1)), jax.random.key(2)
    mask = jnp.array([True, True, False])
    features, after = task.layers.fit(key, params, inputs, mask)
    losses, expected = task.fit(key, params, inputs, TARGETS, mask)
    answers = task.layers.answer(params, features)
    np.testing.assert_array_equal(task.layers.losses(answers, TARGETS), losses)
    jax.tree.map(np.testing.assert_array_equal, after, expected)
    assert not np.allclose(features, task.layers.embed(params, inputs))


def test_who_has_none():
    assert linear(3).layers is None
    assert CASES["cnn"][0].layers.fit is None
