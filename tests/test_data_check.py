"""Data that are as they should be pass; each single fault is named, with its client."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.base.types import ClientData
from cfljax.data import check_clients, mixed_linear, rotated
from cfljax.data.images import Images

CLIENTS, SAMPLES, CLASSES = 5, 3, 4


def good() -> ClientData:
    """Labelled images of 2 x 2; clients 1 and 4 have padding."""
    mask = np.ones((CLIENTS, SAMPLES), bool)
    mask[1, 2] = mask[4, 1] = mask[4, 2] = False
    return ClientData(
        jnp.full((CLIENTS, SAMPLES, 2, 2), 0.5, jnp.float32),
        jnp.arange(CLIENTS * SAMPLES, dtype=jnp.int32).reshape(5, 3) % CLASSES,
        jnp.asarray(mask),
    )


def check(data: ClientData) -> None:
    check_clients(data, num_classes=CLASSES, input_shape=(2, 2))


def of_labels(labels: np.ndarray) -> Images:
    """Black images."""
    pixels = np.zeros((len(labels), 2, 2), np.uint8)
    return Images(pixels, labels, pixels, labels, "test")


def test_good_data_pass():
    check(good())
    check(jax.tree.map(np.asarray, good()))  # Arrays of NumPy as well.
    check_clients(good())


@pytest.mark.long
def test_data_of_the_generators_pass():
    data, _ = mixed_linear(
        jax.random.key(0),
        num_clients=4,
        num_clusters=2,
        num_samples=3,
        num_features=5,
        separation=1.0,
        noise=0.1,
    )
    check_clients(data, input_shape=(5,))
    images = of_labels(np.arange(8, dtype=np.int32))
    sizes: dict[str, Any] = {"num_clients": 2, "num_clusters": 2, "num_samples": 4}
    sizes["num_test_clients"] = 2
    train, _, test, _ = rotated(images, key=jax.random.key(0), **sizes)
    for data in (train, test):
        check_clients(data, num_classes=8, input_shape=(2, 2))


FAULTS = {
    "two clients without samples": (
        {"mask": good().mask.at[jnp.array([2, 4])].set(False)},
        "`mask` must leave every client a sample; 2 of 5 clients have none, the first "
        "is client 2.",
    ),
    "an input that is not a number": (
        {"inputs": good().inputs.at[3, 0, 1, 1].set(jnp.nan)},
        "`inputs` must be finite, padding included; 1 of 5 clients have a value that "
        "is not, the first is client 3.",
    ),
    "infinite padding": (
        {"inputs": good().inputs.at[4, 2].set(jnp.inf)},
        "`inputs` must be finite, padding included; 1 of 5 clients .* client 4.",
    ),
    "targets that are not finite": (
        {"targets": jnp.zeros((5, 3)).at[:2, 1].set(-jnp.inf)},
        "`targets` must be finite, .* 2 of 5 clients .* client 0.",
    ),
    "a label too large": (
        {"targets": good().targets.at[1, 1].set(CLASSES)},
        "`targets` must be in 0..3, padding included; 1 of 5 clients have others, such "
        "as 4, the first is client 1.",
    ),
    "padding labelled -1": (
        {"targets": jnp.where(good().mask, good().targets, -1)},
        "`targets` must be in 0..3, padding included; 2 of 5 clients have others, such "
        "as -1, the first is client 1.",
    ),
    "labels that are not integers": (
        {"targets": jnp.zeros((5, 3))},
        "`targets` must be integer labels, got float32.",
    ),
    "images of another shape": (
        {"inputs": jnp.zeros((5, 3, 4))},
        r"`inputs` must be of shape \(2, 2\) each, got \(4,\).",
    ),
    "a mask of other clients": (
        {"mask": jnp.ones((4, 3), bool)},
        r"`inputs` must begin with the shape of `mask`, \(4, 3\), got \(5, 3, 2, 2\).",
    ),
    "targets of fewer samples": (
        {"targets": jnp.zeros((5, 2), jnp.int32)},
        r"`targets` must begin with the shape of `mask`, \(5, 3\), got \(5, 2\).",
    ),
    "a mask of numbers": (
        {"mask": jnp.ones((5, 3))},
        r"`mask` must be boolean, `\[clients, samples\]`, got float32 of shape",
    ),
    "a mask with rounds": (
        {"mask": jnp.ones((2, 5, 3), bool)},
        r"got bool of shape \(2, 5, 3\).",
    ),
    "no client": (
        {name: leaf[:0] for name, leaf in good()._asdict().items()},
        "`data` must have at least one client, got none.",
    ),
    "lists": ({"inputs": [[1.0]]}, "`data` must hold arrays"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_named(fault):
    changes, message = FAULTS[fault]
    with pytest.raises(ValueError, match=message) as caught:
        check(good()._replace(**changes))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("fault", ["labels that are not integers", "a label too large"])
def test_without_classes_targets_are_numbers(fault):
    check_clients(good()._replace(**FAULTS[fault][0]))


def test_without_a_shape_inputs_have_any():
    check_clients(good()._replace(**FAULTS["images of another shape"][0]))
    with pytest.raises(ValueError, match="`mask` must leave every client a sample"):
        check_clients(good()._replace(mask=jnp.zeros((5, 3), bool)))


def test_faults_of_images_are_found_in_the_clients_made_of_them():
    def train(*labels: int) -> ClientData:
        sizes: dict[str, Any] = {"num_clients": 1, "num_samples": 4, "num_clusters": 1}
        images = of_labels(np.array(labels, np.int32))
        return rotated(images, key=jax.random.key(0), **sizes, num_test_clients=1)[0]

    with pytest.raises(ValueError, match="such as 7"):
        check_clients(train(0, 1, 2, 7), num_classes=4)
    check_clients(train(0, 1, 2, 3), num_classes=4)
