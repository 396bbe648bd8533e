"""A network of two layers, its data and its training, all by hand in NumPy.

Features are `tanh(x W)`, scores `features U`. Clients hold 6, 2, 5, 6 and 4 samples of
the classes 0, 1 and 2; a fourth class belongs to nobody, and padding has the label -7.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from by_hand import padded

from cfljax.base.types import Layers, Task
from cfljax.losses import cross_entropy

CLIENTS, SAMPLES, INPUTS, FEATURES, CLASSES = 5, 6, 3, 2, 4
KEPT = np.array([6, 2, 5, 6, 4])
LABELS = np.array(
    [
        [0, 1, 0, 1, 1, 0],
        [1, 1, -7, -7, -7, -7],
        [0, 0, 0, 1, 0, -7],
        [0, 1, 2, 2, 1, 2],
        [1, 0, 1, 1, -7, -7],
    ]
)
Model = dict[str, Any]


def embed(params, inputs):
    return jnp.tanh(inputs @ params["body"])


def answer(params, features):
    return features @ params["head"]


def predict(params, inputs):
    return answer(params, embed(params, inputs))


def init(key):
    body, head = jax.random.split(key)
    return {
        "body": jax.random.normal(body, (INPUTS, FEATURES)),
        "head": jax.random.normal(head, (FEATURES, CLASSES)),
    }


TASK = Task(
    init=init,
    losses=lambda params, x, y: cross_entropy(predict(params, x), y),
    predict=predict,
    layers=Layers(embed, answer, cross_entropy, lambda name: name == "head"),
)


ROWS = np.random.default_rng(3).normal(size=(CLIENTS, SAMPLES, INPUTS))
DATA = padded(ROWS, LABELS, KEPT)._replace(targets=jnp.asarray(LABELS, jnp.int32))


def slopes(model: Model, x, y, means, known, penalty) -> tuple[float, Model]:
    """Loss without the pull, and the gradient of loss and pull."""
    h = np.tanh(x @ model["body"])
    scores = h @ model["head"]
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    loss = -np.mean(np.log(shares[np.arange(len(y)), y]))
    errors = (shares - np.eye(CLASSES)[y]) / len(y)
    pull = np.where(known[y][:, None], h - means[y], 0) * 2 / FEATURES / len(y)
    back = (errors @ model["head"].T + penalty * pull) * (1 - h**2)
    return loss, {"body": x.T @ back, "head": h.T @ errors}


def class_means(model: Model, x, y):
    h = np.tanh(x @ model["body"])
    counts = np.array([np.sum(y == k) for k in range(CLASSES)])
    sums = np.array([h[y == k].sum(axis=0) for k in range(CLASSES)])
    return sums / np.maximum(counts, 1)[:, None], counts


def mean_prototypes(means, weights, before, known):
    """Class by class; what nobody holds stays as it was."""
    total = weights.sum(axis=0)
    found = np.einsum("ij,ijf->jf", weights, means) / np.maximum(total, 1e-9)[:, None]
    return np.where((total > 0)[:, None], found, before), known | (total > 0)


def models_of(state_models) -> list[Model]:
    leaves = {name: np.asarray(leaf, float) for name, leaf in state_models.items()}
    return [{n: leaf[i] for n, leaf in leaves.items()} for i in range(CLIENTS)]


def counting():
    """The task, and a list that grows whenever its body is run."""
    calls = []

    def counted(params, inputs):
        calls.append(1)
        return embed(params, inputs)

    assert TASK.layers is not None
    return TASK._replace(layers=TASK.layers._replace(embed=counted)), calls
