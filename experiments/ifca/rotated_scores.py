"""How the models of IFCA's rotated images are tested (section 6.2)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from cfljax import metrics
from cfljax.kernels.backend import clients_in_chunks, over_clients
from cfljax.kernels.evaluate import choose_cluster, masked_mean
from cfljax.types import ClientData, Stacked, Task

__all__ = ["Accuracy", "accuracy_of_best", "accuracy_of_each"]


class Accuracy(NamedTuple):
    """Test accuracy where each test client takes the model of lowest loss.

    own_labels: chosen and judged on all of its samples, as in paper and code: the
      choice sees the labels that it is judged by.
    held_out: chosen on the first half of its samples, judged on the rest.
    """

    own_labels: Float[Array, ""]
    held_out: Float[Array, ""]


def accuracy_of_best(
    task: Task,
    models: Stacked,
    test: ClientData,
    *,
    clients_per_chunk: int | None = None,
) -> Accuracy:
    """Accuracy of the model that each test client chooses.

    Args:
      task: the learning problem.
      models: leaves `[clusters, ...]`.
      test: the test clients.
      clients_per_chunk: test clients computed at a time; all if None.

    Cost: a forward pass for each model and test image.
    """
    num_samples = test.mask.shape[1]
    is_first = np.arange(num_samples) < num_samples // 2

    def chosen_logits(models: Stacked, data: ClientData) -> tuple[Array, Array]:
        inputs, targets, mask = data
        clients, samples = mask.shape
        merge = lambda leaf: leaf.reshape(clients * samples, *leaf.shape[2:])
        split = lambda leaf: leaf.reshape(-1, clients, samples, *leaf.shape[2:])
        inputs, targets = merge(inputs), merge(targets)
        # Both need the same forward pass, which is compiled once.
        losses = jax.vmap(task.losses, in_axes=(0, None, None))(models, inputs, targets)
        logits = jax.vmap(task.predict, in_axes=(0, None))(models, inputs)
        losses, logits = split(losses), split(logits)

        def of_choice(mask: Array) -> Array:
            means = masked_mean(losses, jnp.broadcast_to(mask, losses.shape))
            choice = choose_cluster(means.T)
            # Without any finite loss a client has chosen -1, and is wrong by any model.
            return logits[jnp.maximum(choice, 0), jnp.arange(clients)]

        return of_choice(mask), of_choice(mask & is_first[None, :])

    whole, half = clients_in_chunks(chosen_logits, models, test, clients_per_chunk)
    return Accuracy(
        metrics.accuracy(whole, test.targets, test.mask),
        metrics.accuracy(half, test.targets, test.mask & ~is_first[None, :]),
    )


def accuracy_of_each(
    task: Task,
    models: Stacked,
    clusters: Int[Array, " models"],
    test: ClientData,
    num_clusters: int,
    *,
    clients_per_chunk: int | None = None,
) -> Float[Array, " models"]:
    """Accuracy of each model on all test clients of one cluster.

    Args:
      task: the learning problem.
      models: leaves `[models, ...]`.
      clusters: whose test clients judge each model.
      test: the test clients, those of a cluster consecutive.
      num_clusters: number of rotations.
      clients_per_chunk: models computed at a time where they are computed together.

    Cost: a forward pass for each model and test image of its cluster.
    """
    by_cluster = lambda leaf: leaf.reshape(num_clusters, -1, *leaf.shape[1:])

    def of_model(tests: ClientData, model: PyTree, cluster: Array) -> Array:
        # One test client at a time, whose images stay in cache.
        logits = jax.lax.map(
            lambda client: task.predict(model, tests.inputs[cluster, client]),
            jnp.arange(tests.mask.shape[1]),
        )
        return metrics.accuracy(logits, tests.targets[cluster], tests.mask[cluster])

    tests = jax.tree.map(by_cluster, test)
    return over_clients(of_model, None, clients_per_chunk)(tests, models, clusters)
