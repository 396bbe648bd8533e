"""Table 1 in small: softmax regression on scikit-learn's 8 x 8 digits.

Four clusters of clients see images turned by k 90 degrees (rotation), or labels y + k
mod 10 (private). Everybody takes the same steps of full-batch gradient descent; only
what a client's step is made of differs.
"""

import functools
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from cfljax.data.images import load_images
from theory.statement import Preset

__all__ = ["Arm", "Task", "accuracies", "batch_gradients", "clipped_centres"]

Task = Literal["rotation", "private"]
Arm = Literal["local", "global", "clustered", "oracle"]

_CLUSTERS, _CLIENTS, _SAMPLES, _CLASSES = 4, 6, 30, 10
_STEP, _ROUNDS, _QUANTILE, _CLIPPINGS = 0.5, 40, 0.2, 10


class _Data(NamedTuple):
    """One client to a row.

    inputs: `[clients, samples, features]`, the last of them 1.
    targets: `[clients, samples, classes]`, one of them 1.
    tests: `[clusters, images, features]`.
    labels: `[clusters, images]`.
    """

    inputs: Float[np.ndarray, "clients samples features"]
    targets: Float[np.ndarray, "clients samples classes"]
    tests: Float[np.ndarray, "clusters images features"]
    labels: Int[np.ndarray, "clusters images"]


def _seen(
    images: np.ndarray, labels: np.ndarray, cluster: int, task: Task
) -> tuple[np.ndarray, np.ndarray]:
    """Features and labels as a cluster sees them."""
    if task == "rotation":
        images = np.rot90(images, cluster, axes=(-2, -1))
    else:
        labels = (labels + cluster) % _CLASSES
    features = images.reshape(*images.shape[:-2], -1) / 255.0
    ones = np.ones((*features.shape[:-1], 1))
    return np.concatenate([features, ones], axis=-1), labels


def _data(generator: np.random.Generator, task: Task) -> _Data:
    digits = load_images("digits")
    size = _CLUSTERS * _CLIENTS * _SAMPLES
    chosen = generator.permutation(len(digits.train_labels))[:size]
    shape = (_CLUSTERS, _CLIENTS, _SAMPLES)
    images = np.asarray(digits.train_inputs)[chosen].reshape(*shape, 8, 8)
    labels = np.asarray(digits.train_labels)[chosen].reshape(shape)
    trained = [_seen(images[k], labels[k], k, task) for k in range(_CLUSTERS)]
    test_images = np.asarray(digits.test_inputs).reshape(-1, 8, 8)
    test_labels = np.asarray(digits.test_labels)
    tests = [_seen(test_images, test_labels, k, task) for k in range(_CLUSTERS)]
    return _Data(
        np.concatenate([one for one, _ in trained]),
        np.eye(_CLASSES)[np.concatenate([one for _, one in trained])],
        np.array([one for one, _ in tests]),
        np.array([one for _, one in tests]),
    )


def batch_gradients(
    models: Float[np.ndarray, "models features classes"],
    inputs: Float[np.ndarray, "clients samples features"],
    targets: Float[np.ndarray, "clients samples classes"],
) -> Float[np.ndarray, "models clients features classes"]:
    """Gradients of every client's mean cross-entropy at every model."""
    logits = np.einsum("jsf,ifc->jsic", inputs, models, optimize=True)
    odds = np.exp(logits - np.max(logits, axis=-1, keepdims=True))
    error = odds / np.sum(odds, axis=-1, keepdims=True) - targets[:, :, None]
    found = np.einsum("jsf,jsic->ijfc", inputs, error, optimize=True)
    return found / inputs.shape[1]


def _own_gradients(
    models: Float[np.ndarray, "clients features classes"],
    inputs: Float[np.ndarray, "clients samples features"],
    targets: Float[np.ndarray, "clients samples classes"],
) -> Float[np.ndarray, "clients features classes"]:
    """The diagonal of `batch_gradients`."""
    logits = inputs @ models
    odds = np.exp(logits - np.max(logits, axis=-1, keepdims=True))
    error = odds / np.sum(odds, axis=-1, keepdims=True) - targets
    return np.swapaxes(inputs, 1, 2) @ error / inputs.shape[1]


def clipped_centres(
    points: Float[np.ndarray, "models clients numbers"],
) -> Float[np.ndarray, "models numbers"]:
    """Rule (4) from a model's own client's point, tau the 20 % quantile, 10 rounds."""
    number = points.shape[1]
    centres = points[np.arange(len(points)), np.arange(len(points))]
    for _ in range(_CLIPPINGS):
        apart = points - centres[:, None]
        distance = np.sqrt(np.einsum("ijp,ijp->ij", apart, apart))
        radius = np.quantile(distance, _QUANTILE, axis=1, keepdims=True)
        inside = (distance <= radius).astype(float)
        centres = centres + np.einsum("ij,ijp->ip", inside, apart) / number
    return centres


@functools.lru_cache(maxsize=16)
def accuracies(preset: Preset, task: Task, draw: int) -> dict[Arm, float]:
    """Mean test accuracy of all clients' models, in percent.

    "local": own gradients; "global": one model for all, the mean gradient; "clustered":
    Federated-Clustering; "oracle": the mean over the true cluster.

    Args:
      preset: gives the random numbers.
      task: what clusters differ in.
      draw: of the division of images among clients.
    """
    data = _data(preset.generator("werner.table1", draw), task)
    number, _, features = data.inputs.shape
    cluster = np.arange(number) // _CLIENTS
    found: dict[Arm, float] = {}
    weights: dict[Arm, np.ndarray | None] = {
        "local": np.eye(number),
        "global": np.full((number, number), 1 / number),
        "oracle": (cluster[:, None] == cluster) / _CLIENTS,
        "clustered": None,
    }
    for arm, weight in weights.items():
        models = np.zeros((number, features, _CLASSES))
        for _ in range(_ROUNDS):
            if weight is None:
                received = batch_gradients(models, data.inputs, data.targets)
                flat = clipped_centres(received.reshape(number, number, -1))
                step = flat.reshape(models.shape)
            else:  # Clients that share their steps share the model.
                own = _own_gradients(models, data.inputs, data.targets)
                step = np.tensordot(weight, own, axes=1)
            models = models - _STEP * step
        logits = np.einsum("itf,ifc->itc", data.tests[cluster], models)
        right = np.argmax(logits, axis=-1) == data.labels[cluster]
        found[arm] = 100 * float(np.mean(right))
    return found
