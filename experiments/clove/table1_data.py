"""The four partitions of CLoVE's Tables 1 and 2 (section 5), drawn on the host.

The paper gives neither the number of clusters nor that of test samples. Its numbers of
clients, and the few values that the adjusted Rand index of merged clusters can take,
fit five clusters of label skew and four of the others only.
"""

from typing import Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from cfljax.data import (
    SWAPS,
    Images,
    Sizes,
    label_skewed,
    label_swapped,
    overlapping_classes,
    rotated,
    unique_classes,
)
from cfljax.data.shares import Shared
from cfljax.data.sources import Arrays
from cfljax.types import ClientData

__all__ = ["PARTITIONS", "PUBLISHED", "Clients", "Partition", "draw", "share_out"]

Partition = Literal["label_skew_1", "label_skew_2", "concept_shift", "feature_skew"]
PARTITIONS: tuple[Partition, ...] = get_args(Partition)
_NUM_CLASSES = 10


class Published(NamedTuple):
    """Sizes of a partition in the paper.

    num_clusters: K, inferred.
    cluster_size: clients of a cluster.
    cluster_size_cifar10: likewise, of CIFAR-10.
    num_samples: training samples of a client.
    """

    num_clusters: int
    cluster_size: int
    cluster_size_cifar10: int
    num_samples: int


PUBLISHED: dict[Partition, Published] = {
    "label_skew_1": Published(5, 5, 3, 500),
    "label_skew_2": Published(5, 5, 3, 500),
    "concept_shift": Published(len(SWAPS), 5, 3, 1000),
    "feature_skew": Published(4, 10, 5, 500),
}


class Clients(NamedTuple):
    """The data of all repetitions of one partition, leaves `[repetitions, ...]`.

    train: training samples.
    clusters: true ones.
    test: each client's own test samples, in the same order of clients.
    """

    train: ClientData
    clusters: Int[Array, "repetitions clients"]
    test: ClientData


def draw(
    partition: Partition, images: Arrays, *, seed: int, repetitions: int, **sizes: int
) -> Clients:
    """The data of all repetitions.

    Each follows from the seed and its number alone, so that a sweep may compute some
    of them now and others later.

    Args:
      partition: a member of `PARTITIONS`.
      images: to be shared out.
      seed: of the sweep.
      repetitions: how many.
      sizes: of `share_out`.

    Memory: float32 pixels of all samples, twice.
    """
    key = jax.random.fold_in(jax.random.key(seed), 1)  # Runs draw from 0.
    found = []
    for repetition in range(repetitions):
        own = jax.random.fold_in(key, repetition)
        train, truth, test, _ = share_out(partition, images, key=own, **sizes)
        found.append(Clients(train, truth.clusters, test))
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *found)


def share_out(
    partition: Partition,
    images: Arrays,
    *,
    key: PRNGKeyArray,
    num_clients: int,
    num_samples: int,
    num_test_samples: int,
) -> Shared:
    """Clients of one partition, each with samples to train on and others to test on.

    Label skew 1: two classes that no other cluster has. Label skew 2: four classes, two
    of which each neighbour shares; Dirichlet proportions, of concentration 0.5, divide
    a class among the clusters that have it. Concept shift: all classes, two pairs of
    labels exchanged. Feature skew: quarter turns.

    Args:
      partition: a member of `PARTITIONS`.
      images: to be shared out, of ten classes.
      key: decides everything, with the sizes.
      num_clients: a multiple of the number of clusters, those of a cluster consecutive.
      num_samples: of each for training.
      num_test_samples: of each for the test.

    Returns:
      Training clients, their truth, test clients in the same order, their truth.

    Raises:
      ValueError: if the images do not suffice.
    """
    samples = Images(*images, source="")
    num_clusters = PUBLISHED[partition].num_clusters
    if partition == "feature_skew":
        return rotated(
            samples,
            key=key,
            num_clients=num_clients,
            num_samples=num_samples,
            num_clusters=num_clusters,
            num_test_clients=num_clients,
            num_test_samples=num_test_samples,
        )
    sizes = Sizes(
        num_clients=num_clients,
        num_samples=num_samples,
        num_test_clients=num_clients,
        num_test_samples=num_test_samples,
    )
    if partition == "concept_shift":
        return label_swapped(samples, key=key, sizes=sizes)
    of_skew = unique_classes if partition == "label_skew_1" else overlapping_classes
    classes = of_skew(_NUM_CLASSES, num_clusters)
    return label_skewed(samples, key=key, classes=classes, sizes=sizes)
