"""The partitions of CLoVE's experiments (section 5, appendices C and D), on the host.

The paper seldom gives the number of clusters and never that of test samples. Its
numbers of clients, and the few values that the adjusted Rand index of merged clusters
can take, fit five clusters of label skews 1 to 3 and four of concept shift and feature
skew only.
"""

import functools
import itertools
from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

import jax
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from cfljax.base import ClientData
from cfljax.data import (
    SWAPS,
    Images,
    Samples,
    Shared,
    Sizes,
    all_but_one_class,
    by_group,
    dominated,
    feature_skewed,
    label_skewed,
    label_swapped,
    overlapping_classes,
    unique_classes,
)

Partition = Literal[
    "label_skew_1",
    "label_skew_2",
    "label_skew_3",
    "label_skew_4",
    "concept_shift",
    "feature_skew",
    "one_class",
    "pairs_of_classes",
    "groups",
]
PARTITIONS: tuple[Partition, ...] = get_args(Partition)
_NUM_CLASSES = 10
_NUM_TOPICS = 4  # Classes of AG News.


class Published(NamedTuple):
    """Sizes of a partition in the paper."""

    num_clusters: int  # K, mostly inferred
    cluster_size: int  # clients of a cluster
    num_samples: int  # training samples of a client


PUBLISHED: dict[Partition, Published] = {
    "label_skew_1": Published(5, 5, 500),
    "label_skew_2": Published(5, 5, 500),
    "label_skew_3": Published(5, 5, 500),
    "label_skew_4": Published(10, 5, 500),
    "concept_shift": Published(len(SWAPS), 5, 1000),
    "feature_skew": Published(4, 10, 500),
    "one_class": Published(10, 5, 1000),
    "pairs_of_classes": Published(6, 5, 100),
    # 1000 samples in the paper, of which not so many exist: 2000 a group, with tests.
    "groups": Published(4, 5, 312),
}
_OF_CIFAR10: dict[Partition, Published] = {
    "label_skew_1": Published(5, 3, 500),
    "label_skew_2": Published(5, 3, 500),
    "label_skew_4": Published(6, 5, 500),
    "concept_shift": Published(len(SWAPS), 3, 1000),
    "feature_skew": Published(4, 5, 500),
}


def published_sizes(
    partition: Partition, dataset: str, num_clusters: int | None = None
) -> Published:
    """Sizes of a partition of a set in the paper (Table 6), or of another K there.

    AG News then keeps its 30 clients, or as many as K divides.
    """
    found = PUBLISHED[partition]
    if dataset == "cifar10":
        found = _OF_CIFAR10.get(partition, found)
    if num_clusters is None or partition == "groups":
        return found
    if partition == "pairs_of_classes":
        size = found.num_clusters * found.cluster_size // num_clusters
        found = found._replace(cluster_size=size)
    return found._replace(num_clusters=num_clusters)


def belongs(partition: Partition, dataset: str) -> bool:
    """Whether a set can be shared out so."""
    texts = {"ag_news": "pairs_of_classes", "amazon_reviews": "groups"}
    if dataset in texts:
        return partition == texts[dataset]
    return partition not in texts.values()


class Clients(NamedTuple):
    """The data of all repetitions of one partition, leaves `[repetitions, ...]`."""

    train: ClientData  # training samples
    clusters: Int[Array, "repetitions clients"]  # true ones
    test: ClientData  # each client's own test samples, in the same order of clients


def draw(
    partition: Partition,
    samples: Images | Samples,
    *,
    seed: int,
    repetitions: int,
    **sizes: int,
) -> Clients:
    """The data of all repetitions; `sizes` are those of `share_out`. Memory: float32
    pixels of all samples, twice.

    Each follows from the seed and its number alone, so a sweep may compute some later.
    """
    shared = functools.partial(share_out, partition, samples, **sizes)
    return repeated(shared, seed=seed, repetitions=repetitions)


def repeated(shared: Callable[..., Shared], *, seed: int, repetitions: int) -> Clients:
    """`shared`, with a key for each repetition: train, truth, test and its truth."""
    key = jax.random.fold_in(jax.random.key(seed), 1)  # Runs draw from 0.
    found = []
    for repetition in range(repetitions):
        train, truth, test, _ = shared(key=jax.random.fold_in(key, repetition))
        found.append(Clients(train, truth.clusters, test))
    together = jax.tree.map(lambda *leaves: np.stack(leaves), *found)
    return jax.device_put(together)  # Nothing to compile for each size.


def share_out(
    partition: Partition,
    samples: Images | Samples,
    *,
    key: PRNGKeyArray,
    num_clusters: int,
    num_clients: int,
    num_samples: int,
    num_test_samples: int,
) -> Shared:
    """Clients of one partition, each with samples to train on and others to test on:
    training clients, their truth, test clients in the same order, their truth.

    Label skew 1: two classes that no other cluster has. Label skew 2: four classes, two
    of which each neighbour shares. Label skew 3: all classes but one, the last cluster
    all. In these three, Dirichlet proportions of concentration 0.5 divide a class among
    the clusters that have it. Label skew 4: two thirds of one class, the rest of all.
    Concept shift: all classes, two pairs of labels exchanged. Feature skew: quarter
    turns. One class: of each cluster its own. Pairs of classes: of four, all six pairs,
    or fewer in a ring. Groups: those of the samples. The clients of a cluster, as many
    in each, are consecutive; the key decides everything, with the sizes.

    Raises:
      ValueError: if the samples do not suffice, or the partition does not have so many
        clusters.
    """
    sizes = Sizes(
        num_clients=num_clients,
        num_samples=num_samples,
        num_test_clients=num_clients,
        num_test_samples=num_test_samples,
    )
    if partition == "groups":
        assert isinstance(samples, Samples)
        return by_group(samples, key=key, sizes=sizes)
    if partition == "feature_skew":
        assert isinstance(samples, Images)
        return feature_skewed(samples, key=key, sizes=sizes, num_clusters=num_clusters)
    if partition == "concept_shift":
        if num_clusters > len(SWAPS):
            raise ValueError(
                f"`num_clusters` must be at most {len(SWAPS)} for a concept shift, got "
                f"{num_clusters}."
            )
        return label_swapped(samples, key=key, sizes=sizes, swaps=SWAPS[:num_clusters])
    if partition == "label_skew_4":
        return dominated(samples, key=key, num_clusters=num_clusters, sizes=sizes)
    if partition == "label_skew_1":
        classes = unique_classes(_NUM_CLASSES, num_clusters, num_owned=2)
    elif partition == "label_skew_2":
        classes = overlapping_classes(_NUM_CLASSES, num_clusters)
    elif partition == "label_skew_3":
        classes = all_but_one_class(_NUM_CLASSES, num_clusters)
    elif partition == "one_class":
        classes = unique_classes(_NUM_CLASSES, num_clusters, num_owned=1)
    else:
        classes = tuple(itertools.combinations(range(_NUM_TOPICS), 2))
        if num_clusters != len(classes):
            classes = overlapping_classes(
                _NUM_TOPICS, num_clusters, num_owned=2, num_shared=1
            )
    return label_skewed(samples, key=key, classes=classes, sizes=sizes)
