"""Evaluation of models on clients: losses, choices and predictions, all at once."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree, Shaped

from cfljax.base.tree import take
from cfljax.base.types import NO_CLUSTER, ClientData, Stacked, Task
from cfljax.federated.backend import (
    Order,
    clients_in_chunks,
    over_clients,
    resolve,
)
from cfljax.federated.sharing import merge_shared

_BLOCK_BYTES = 2**18  # Of samples whose activations fit a core's cache.
_BLOCK_SAMPLES = 64  # Beyond, products of matrices become no faster.


def masked_mean(
    values: Float[Array, "*batch samples"],
    mask: Bool[Array, "*batch samples"],
    *,
    least: int = 0,
) -> Float[Array, "*batch"]:
    """Mean over the samples where `mask` is true.

    A masked value never reaches the result, not even if it is NaN.

    Args:
      values: to average.
      mask: which of them count.
      least: that the sum is divided by. With 0 the mean of nothing is NaN, with 1 it
        is 0 and so is its gradient.
    """
    total = jnp.sum(jnp.where(mask, values, 0), axis=-1)
    count = jnp.sum(mask, axis=-1, dtype=values.dtype)
    return total / (jnp.maximum(count, least) if least else count)


def loss_matrix(
    task: Task,
    models: Stacked,
    data: ClientData,
    *,
    common: PyTree = None,
    clients_per_chunk: int | None = None,
) -> Float[Array, "clients clusters"]:
    """Loss of every client under every model.

    Entry `[i, j]` is the mean of model j's losses over client i's real samples, in
    the units of `task.losses`; NaN for a client without samples. Rows are the loss
    vectors that CLoVE embeds, their argmin is the choice that IFCA makes.

    Clients share the models, so their samples are merged into one batch per model:
    the products are those of `[clients x samples]` rows, not `clients` small ones. On
    a CPU, networks take that batch in blocks whose activations stay in its cache, one
    model after the other.

    Args:
      task: the learning problem.
      models: leaves `[clusters, ...]`.
      data: leaves `[clients, samples, ...]`.
      common: what all models have in common, without that axis, where `models` is
        only the rest (`sharing.split`); it is evaluated once for all of them.
      clients_per_chunk: clients evaluated at a time; if None all of them, on an
        accelerator a hundred.

    Cost: one forward pass for each pair of sample and model; peak memory grows with
    `clients_per_chunk x samples x clusters` activations, for networks on a CPU with
    those of one block.
    """

    def losses(parts: tuple, data: ClientData) -> Float[Array, "chunk clusters"]:
        each = _losses_of_each(task, parts, data)
        return masked_mean(each, jnp.broadcast_to(data.mask, each.shape)).T

    return clients_in_chunks(losses, (models, common), data, clients_per_chunk)


def sample_losses(
    task: Task,
    models: Stacked,
    data: ClientData,
    *,
    clients_per_chunk: int | None = None,
) -> Float[Array, "clients samples clusters"]:
    """Loss of every sample under every model, without meaning for padding; arguments
    and cost as those of `loss_matrix`, whose entries are the means of these."""

    def losses(models: Stacked, data: ClientData) -> Float[Array, "chunk samples of"]:
        return jnp.moveaxis(_losses_of_each(task, (models, None), data), 0, 2)

    return clients_in_chunks(losses, models, data, clients_per_chunk)


def mean_losses(
    losses: Float[Array, "clients samples clusters"],
    mask: Bool[Array, "clients samples"],
) -> Float[Array, "clients clusters"]:
    """The `loss_matrix` of `sample_losses`."""
    by_cluster = jnp.moveaxis(losses, 2, 0)
    return masked_mean(by_cluster, jnp.broadcast_to(mask, by_cluster.shape)).T


def _losses_of_each(
    task: Task, parts: tuple[Stacked, PyTree], data: ClientData
) -> Float[Array, "clusters clients samples"]:
    """Loss of every sample of some clients under every model, own and common parts."""
    models, common = parts
    clients, samples = data.mask.shape
    merge = lambda leaf: leaf.reshape((clients * samples,) + leaf.shape[2:])
    of_model = lambda model, common, *batch: task.losses(
        merge_shared(model, common), *batch
    )
    over_clusters = jax.vmap(of_model, in_axes=(0, None, None, None))
    batch = merge(data.inputs), merge(data.targets)
    size = _block_size(models, batch[0])
    if size >= clients * samples:
        each = over_clusters(models, common, *batch)
    elif jax.tree.leaves(common):  # Its features are computed once for all.
        each = _in_blocks(
            lambda *block: over_clusters(models, common, *block), batch, size
        )
    else:
        each = jax.lax.map(
            lambda model: _in_blocks(
                lambda *block: of_model(model, common, *block), batch, size
            ),
            models,
        )
    return each.reshape(each.shape[0], clients, samples)


def _block_size(models: Stacked, inputs: Shaped[Array, "samples ..."]) -> int:
    """Samples evaluated at a time; all of them where models are vectors, whose products
    with a sample merge into one, or the backend is no CPU."""
    samples = inputs.shape[0]
    are_vectors = all(leaf.ndim <= 2 for leaf in jax.tree.leaves(models))
    if are_vectors or not inputs.size or resolve(None) == "batched":
        return samples
    fitting = _BLOCK_BYTES * samples // inputs.nbytes
    return min(max(fitting, 1), _BLOCK_SAMPLES, samples)


def _in_blocks(
    function: Callable[..., Float[Array, "*models block"]],
    batch: tuple[Array, ...],
    size: int,
) -> Float[Array, "*models samples"]:
    """`function(*batch)` from `size` samples at a time; the last block repeats some of
    the one before, so that all are alike and nothing is padded."""
    samples = batch[0].shape[0]
    blocks = math.ceil(samples / size)
    starts = np.minimum(np.arange(blocks) * size, samples - size)

    def at(start: Int[Array, ""]) -> Float[Array, "*models block"]:
        cut = lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start, size)
        return function(*map(cut, batch))

    each = jnp.moveaxis(jax.lax.map(at, jnp.asarray(starts)), 0, -2)
    each = each.reshape(*each.shape[:-2], blocks * size)
    repeated = blocks * size - samples
    kept = np.delete(np.arange(blocks * size), np.s_[-size : repeated - size])
    return each[..., kept] if repeated else each


def client_losses(
    task: Task,
    models: Stacked,
    data: ClientData,
    *,
    order: Order | None = None,
    clients_per_chunk: int | None = None,
) -> Float[Array, " clients"]:
    """Loss of every client under a model of its own, leaves `[clients, ...]`, at one
    forward pass for each sample."""

    def one(_: None, model: PyTree, data: ClientData) -> Float[Array, ""]:
        return masked_mean(task.losses(model, data.inputs, data.targets), data.mask)

    return over_clients(one, order, clients_per_chunk)(None, models, data)


def assigned_losses(
    task: Task,
    models: Stacked,
    choice: Int[Array, " clients"],
    data: ClientData,
    *,
    order: Order | None = None,
    clients_per_chunk: int | None = None,
) -> Float[Array, " clients"]:
    """Loss of every client under the row of `models` that it is assigned to; NaN for a
    client without samples or, negative, without a row.

    Cost: a forward pass for each client, where `loss_matrix` takes one for each client
    and model.
    """

    def one(models: Stacked, choice: Array, data: ClientData) -> Float[Array, ""]:
        model = take(models, choice)
        return masked_mean(task.losses(model, data.inputs, data.targets), data.mask)

    apply = over_clients(one, order, clients_per_chunk)
    losses = apply(models, jnp.maximum(choice, 0), data)
    return jnp.where(choice >= 0, losses, jnp.nan)


def choose_cluster(losses: Float[Array, "clients clusters"]) -> Int[Array, " clients"]:
    """Cluster of lowest loss for each client (IFCA, Algorithm 2, line 6).

    Ties go to the lowest index. A loss that is not finite never wins: NumPy's and
    PyTorch's argmin return the first NaN, so that a diverged model would capture
    all clients. A client without any finite loss gets `NO_CLUSTER`.
    """
    finite = jnp.isfinite(losses)
    best = jnp.argmin(jnp.where(finite, losses, jnp.inf), axis=1)
    return jnp.where(jnp.any(finite, axis=1), best, NO_CLUSTER)


def keep_cluster(
    losses: Float[Array, "clients clusters"], clusters: Int[Array, " clients"]
) -> Int[Array, " clients"]:
    """Clusters that were chosen before, of the clients that can train their models:
    `NO_CLUSTER` for a client without one, or whose loss under its model is not finite,
    so that what it trained would spoil the cluster's mean."""
    own = jnp.take_along_axis(losses, jnp.maximum(clusters, 0)[:, None], axis=1)[:, 0]
    can = (clusters >= 0) & jnp.isfinite(own)
    return jnp.where(can, clusters, jnp.asarray(NO_CLUSTER, clusters.dtype))


def predict_own(
    task: Task, models: Stacked, choice: Int[Array, " clients"], inputs: Array
) -> Array:
    """What each client answers, `[clients, samples, ...]`, with the row of `models`
    that it chose; `NO_CLUSTER` falls back on row 0."""

    def one(models: Stacked, choice: Array, inputs: Array) -> Array:
        return task.predict(take(models, choice), inputs)

    return over_clients(one)(models, jnp.maximum(choice, 0), inputs)
