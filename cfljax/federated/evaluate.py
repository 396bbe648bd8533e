"""Evaluation of models on clients: losses, choices and predictions, all at once."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from cfljax.base.tree import take
from cfljax.base.types import NO_CLUSTER, ClientData, Stacked, Task
from cfljax.federated.backend import Order, clients_in_chunks, over_clients
from cfljax.federated.sharing import merge_shared


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
    the products are those of `[clients x samples]` rows, not `clients` small ones.

    Args:
      task: the learning problem.
      models: leaves `[clusters, ...]`.
      data: leaves `[clients, samples, ...]`.
      common: what all models have in common, without that axis, where `models` is
        only the rest (`sharing.split`); it is evaluated once for all of them.
      clients_per_chunk: clients evaluated at a time; all if None.

    Cost: one forward pass for each pair of sample and model; peak memory grows with
    `clients_per_chunk x samples x clusters` activations.
    """

    def losses(parts: tuple, data: ClientData) -> Float[Array, "chunk clusters"]:
        models, common = parts
        clients, samples = data.mask.shape
        merge = lambda leaf: leaf.reshape((clients * samples,) + leaf.shape[2:])
        of_model = lambda model, common, *batch: task.losses(
            merge_shared(model, common), *batch
        )
        over_clusters = jax.vmap(of_model, in_axes=(0, None, None, None))
        # [clusters, clients x samples]
        each = over_clusters(models, common, merge(data.inputs), merge(data.targets))
        each = each.reshape(each.shape[0], clients, samples)
        return masked_mean(each, jnp.broadcast_to(data.mask, each.shape)).T

    return clients_in_chunks(losses, (models, common), data, clients_per_chunk)


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
