"""Partitions by label, with the true clusters: label skews, concept shift, groups.

Feature skew is in `feature_skew`. Here every sample is used once at most, whatever
the cluster: CLoVE (section 5) partitions "without replacement".
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Int, PRNGKeyArray

from cfljax.data.class_sets import SWAPS, all_classes
from cfljax.data.images import Images
from cfljax.data.pools import rows_by_class
from cfljax.data.samples import Samples
from cfljax.data.shares import Shared, Sizes, count_classes, fill

__all__ = ["by_group", "label_shifted", "label_skewed", "label_swapped"]


def label_skewed(
    samples: Images | Samples,
    *,
    key: PRNGKeyArray,
    classes: Sequence[Sequence[int]],
    sizes: Sizes,
    concentration: float | None = 0.5,
    reserve: float = 0.1,
) -> Shared:
    """Clients whose cluster decides which classes they have, and in what proportions.

    Label skews 1 to 3 of CLoVE (section 5 and appendix D.1.2): the samples of a class
    are divided among the clusters that have it in proportions drawn from a Dirichlet
    law, and what a cluster gets is dealt out to its clients at random. Training and
    test share one draw, so that a client's both samples have one distribution. The
    paper does not say how clients get equal numbers of samples out of unequal
    clusters; as in the released code, a part of every class, the reserve, is divided
    evenly, and raised by 0.05 until all clusters have enough.

    Clients of one cluster are consecutive. Runs on the host, not to be traced.

    Args:
      samples: images or others, to be shared out.
      key: a typed random key, which with the sizes decides everything.
      classes: of each cluster; see `class_sets` for those of the paper.
      sizes: how many clients there are and what they take.
      concentration: alpha of the Dirichlet law; None divides evenly.
      reserve: the least part of a class that is divided evenly, in [0, 1].

    Returns:
      Training clients, their truth, test clients, their truth. Inputs are
      `[clients, samples, ...]`, pixels in [0, 1]; targets are the labels; the mask is
      false only where `sizes` lets a client have fewer samples.

    Raises:
      ValueError: if the clients do not split into equal clusters, a class is not there,
        the samples do not suffice, or a number is out of its range.

    Cost: one copy of the shared-out samples; pixels as float32.
    """
    strata = np.asarray(samples.train_labels), np.asarray(samples.test_labels)
    owned = _owned(classes, count_classes(strata))
    rows = rows_by_class(strata, key, owned, sizes, concentration, reserve)
    return fill(samples, rows, len(classes))


def label_swapped(
    samples: Images | Samples,
    *,
    key: PRNGKeyArray,
    sizes: Sizes,
    swaps: Sequence[Sequence[tuple[int, int]]] = SWAPS,
) -> Shared:
    """Clients of all classes whose cluster exchanges labels (concept shift).

    CLoVE, section 5: "clients within each cluster receive data with two unique label
    swaps". Every class is divided evenly among the clusters; training and test labels
    are swapped alike.

    Args:
      samples: images or others, to be shared out.
      key: a typed random key.
      sizes: how many clients there are and what they take.
      swaps: pairs of labels that change places, for each cluster. The default, of
        four clusters, is the released code's.

    Returns:
      As `label_skewed`.

    Raises:
      ValueError: as `label_skewed`, and if a label is swapped twice in a cluster, is
        not there, or two clusters have the same swaps.
    """
    strata = np.asarray(samples.train_labels), np.asarray(samples.test_labels)
    num_classes = count_classes(strata)
    maps = _maps(swaps, num_classes)
    owned = _owned(all_classes(num_classes, len(swaps)), num_classes)
    rows = rows_by_class(strata, key, owned, sizes, None, 1.0)
    return fill(samples, rows, len(swaps), maps)


def label_shifted(
    samples: Images | Samples, *, key: PRNGKeyArray, sizes: Sizes, num_clusters: int = 4
) -> Shared:
    """Clients of all classes whose cluster counts labels on (private labels).

    Werner et al., section 4.2: in cluster k of K the label y becomes
    `(y + k) mod C`, for training and test alike. Every class is divided evenly among
    the clusters. Whatever one model for all calls an image is right in one cluster of
    K at best.

    Args:
      samples: images or others, to be shared out.
      key: a typed random key.
      sizes: how many clients there are and what they take.
      num_clusters: K, from 1 to the number of classes C.

    Returns:
      As `label_skewed`.

    Raises:
      ValueError: as `label_skewed`, and if there are more clusters than classes.
    """
    strata = np.asarray(samples.train_labels), np.asarray(samples.test_labels)
    num_classes = count_classes(strata)
    if not 1 <= num_clusters <= num_classes:
        raise ValueError(
            f"`num_clusters` must be from 1 to the {num_classes} classes, got "
            f"{num_clusters}."
        )
    shifts = np.arange(num_clusters)[:, None]
    maps = (np.arange(num_classes)[None, :] + shifts) % num_classes
    owned = _owned(all_classes(num_classes, num_clusters), num_classes)
    rows = rows_by_class(strata, key, owned, sizes, None, 1.0)
    return fill(samples, rows, num_clusters, maps)


def by_group(samples: Samples, *, key: PRNGKeyArray, sizes: Sizes) -> Shared:
    """Clients of one group of samples each, the groups being the true clusters.

    CLoVE's Amazon Reviews: a group is a category of products, targets are the
    sentiments (section 5: "no data mixing is employed").

    Args:
      samples: with `train_groups` and `test_groups`; every group is a cluster.
      key: a typed random key.
      sizes: how many clients there are and what they take.

    Returns:
      As `label_skewed`.

    Raises:
      ValueError: as `label_skewed`, and if the samples have no groups.
    """
    if samples.train_groups is None or samples.test_groups is None:
        raise ValueError(
            "`samples` must have `train_groups` and `test_groups`, got none; partition "
            "by label with `label_skewed`."
        )
    strata = np.asarray(samples.train_groups), np.asarray(samples.test_groups)
    owned = np.eye(count_classes(strata), dtype=bool)
    rows = rows_by_class(strata, key, owned, sizes, None, 1.0)
    return fill(samples, rows, len(owned))


def _owned(
    classes: Sequence[Sequence[int]], num_classes: int
) -> Bool[np.ndarray, "clusters classes"]:
    """Which classes a cluster has, once all are there."""
    if not classes:
        raise ValueError("`classes` must have at least one cluster, got none.")
    owned = np.zeros((len(classes), num_classes), bool)
    for cluster, own in enumerate(classes):
        labels = tuple(own)
        if not labels or len(set(labels)) < len(labels):
            raise ValueError(
                "`classes` must give every cluster one class or more, each once, got "
                f"{labels} for cluster {cluster}."
            )
        if min(labels) < 0 or max(labels) >= num_classes:
            raise ValueError(
                f"`classes` must be in 0..{num_classes - 1}, the labels that there "
                f"are, got {labels} for cluster {cluster}."
            )
        owned[cluster, list(labels)] = True
    return owned


def _maps(
    swaps: Sequence[Sequence[tuple[int, int]]], num_classes: int
) -> Int[np.ndarray, "clusters classes"]:
    """The label that each cluster gives to each class."""
    if not swaps:
        raise ValueError("`swaps` must have at least one cluster, got none.")
    maps = np.tile(np.arange(num_classes), (len(swaps), 1))
    for cluster, pairs in enumerate(swaps):
        labels = [label for pair in pairs for label in pair]
        inside = all(0 <= label < num_classes for label in labels)
        if not inside or len(set(labels)) < len(labels):
            raise ValueError(
                f"`swaps` must be pairs of labels in 0..{num_classes - 1}, each once, "
                f"got {tuple(pairs)} for cluster {cluster}."
            )
        for first, second in pairs:
            maps[cluster, [first, second]] = second, first
    if len(np.unique(maps, axis=0)) < len(maps):
        raise ValueError("`swaps` must differ from cluster to cluster, got the same.")
    return maps
