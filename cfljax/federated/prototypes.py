"""Prototypes: what a network's features are on average in each class."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, ScalarLike

from cfljax.base.types import ClientData, Layers, Task
from cfljax.federated.backend import everywhere
from cfljax.federated.traffic import identity_bytes


class Prototypes(NamedTuple):
    """A point in feature space for every class.

    means: `[classes, features]`, 0 for a class that is not known.
    known: `[classes]`.
    """

    means: Float[Array, "*batch classes features"]
    known: Bool[Array, "*batch classes"]


def layers_of(task: Task) -> Layers:
    """Body and last layer of the task's network.

    Raises:
      ValueError: if it has none.
    """
    if task.layers is None:
        raise ValueError(
            "`task` must have `layers`, a body that makes features and a last layer, "
            "such as `models.mlp` has, or `task(..., head=NAME)`; got one without."
        )
    return task.layers


def first_prototypes(
    task: Task, params: PyTree, data: ClientData, num_classes: int
) -> Prototypes:
    """Prototypes before anybody has sent one, in the shape of the network's features;
    raises ValueError unless the network has a score for each class, and targets are
    integers."""
    layers = layers_of(task)
    one = jax.tree.map(lambda leaf: leaf[0], data.inputs)
    features = jax.eval_shape(layers.embed, params, one)
    outputs = jax.eval_shape(layers.answer, params, features)
    if outputs.shape[1:] != (num_classes,):
        raise ValueError(
            "`num_classes` must be the number of the network's outputs, "
            f"{outputs.shape[1:]}, got {num_classes}."
        )
    if not jnp.issubdtype(data.targets.dtype, jnp.integer):
        raise ValueError(
            f"`targets` must be integer labels of classes, got {data.targets.dtype}."
        )
    means = jnp.zeros((num_classes, features.shape[1]), features.dtype)
    return Prototypes(means, jnp.zeros(num_classes, bool))


def class_means(
    features: Float[Array, "samples features"],
    labels: Int[Array, " samples"],
    mask: Bool[Array, " samples"],
    num_classes: int,
) -> tuple[Float[Array, "classes features"], Float[Array, " classes"]]:
    """Mean feature of each class over a client's real samples, 0 for a class without
    any, and their numbers. A label that is no class counts nowhere, nor does that of
    padding."""
    classes = jnp.arange(num_classes, dtype=labels.dtype)
    members = (labels[None, :] == classes[:, None]) & mask[None, :]
    members = members.astype(features.dtype)
    counts = jnp.sum(members, axis=1)
    # 0 x NaN is NaN, also on padding.
    real = jnp.where(mask[:, None], features, 0)
    sums = jnp.matmul(members, real, precision="highest")
    return sums / jnp.maximum(counts, 1)[:, None], counts


@everywhere
def mean_prototypes(
    means: Float[Array, "participants classes features"],
    weights: Float[Array, "participants classes"],
    before: Prototypes,
) -> Prototypes:
    """Weighted means of clients' prototypes, class by class. A row that is not finite
    has no weight; a class without weight keeps the prototype from before."""
    finite = jnp.all(jnp.isfinite(means), axis=2)
    weights = jnp.where(finite, weights, 0)
    used = weights > 0
    usable = jnp.where(used[:, :, None], means, 0)
    sums = jnp.einsum("ij,ijf->jf", weights, usable, precision="highest")
    total = jnp.sum(weights, axis=0)
    found = total > 0
    after = sums / jnp.where(found, total, 1)[:, None]
    after = jnp.where(found[:, None], after, before.means)
    return Prototypes(after, before.known | found)


def aligned(task: Task, prototypes: Prototypes, penalty: ScalarLike) -> Task:
    """The task, trained to keep features at the prototypes of their classes as well.

    To every sample's loss it adds `penalty` times the mean over the features of the
    squared distance to its own class's prototype; nothing where that is not known.
    Features are computed once for both, and nothing is differentiated by prototypes.
    With penalty 0 training is that of the task.
    """
    fit = aligned_fit(layers_of(task), prototypes, penalty)

    def without_features(*batch: Any) -> tuple[Float[Array, " samples"], PyTree]:
        losses, _, after = fit(*batch)
        return losses, after

    return task._replace(fit=without_features)


def aligned_fit(
    layers: Layers, prototypes: Prototypes, penalty: ScalarLike
) -> Callable[..., tuple[Float[Array, " samples"], Float[Array, "samples _"], PyTree]]:
    """`Task.fit` of an `aligned` task, which gives the features of the batch between
    the losses and the params."""

    def fit(
        key: PRNGKeyArray,
        params: PyTree,
        inputs: Array,
        targets: Int[Array, " samples"],
        mask: Bool[Array, " samples"],
    ) -> tuple[Float[Array, " samples"], Float[Array, "samples features"], PyTree]:
        if layers.fit is None:
            features, after = layers.embed(params, inputs), params
        else:
            features, after = layers.fit(key, params, inputs, mask)
        losses = layers.losses(layers.answer(params, features), targets)
        number = prototypes.known.shape[0]
        row = jnp.clip(targets, 0, number - 1)
        known = prototypes.known[row] & (row == targets)
        away = jnp.mean(jnp.square(features - prototypes.means[row]), axis=1)
        return losses + penalty * jnp.where(known, away, 0), features, after

    return fit


def prototype_bytes(
    numbers: Int[Array, "*clients"], prototypes: Prototypes, *, per_class: int = 0
) -> Int[Array, "*clients"]:
    """Bytes of messages with prototypes of so many classes, the classes' names, and
    `per_class` bytes besides."""
    num_classes, num_features = prototypes.means.shape
    row = num_features * prototypes.means.dtype.itemsize + identity_bytes(num_classes)
    return (numbers * (row + per_class)).astype(jnp.int32)
