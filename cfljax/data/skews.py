"""CLoVE's partitions with the true clusters: skews of labels, concepts and features.

Every sample is used once at most, whatever the cluster: CLoVE (section 5) partitions
"without replacement".
"""

from collections.abc import Sequence
from typing import Literal

import jax
import numpy as np
from jaxtyping import Bool, Int, PRNGKeyArray

from cfljax.base.checks import check_member
from cfljax.base.ranges import ranged
from cfljax.base.types import ClientData
from cfljax.data.images import Images, Samples
from cfljax.data.partition import (
    Rows,
    Shared,
    Sizes,
    Split,
    count_classes,
    fill,
    generator,
    rows_by_class,
    splits,
)


@ranged
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
      classes: of each cluster; `unique_classes`,
        `overlapping_classes` and their like give those of the paper.
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
    rows, clusters = rows_by_class(strata, key, owned, sizes, concentration, reserve)
    return fill(samples, rows, clusters)


# Pairs of labels that change places in each cluster, in CLoVE's released code; the
# paper says that there are two of them and no more.
SWAPS = (
    ((0, 3), (8, 9)),
    ((1, 4), (6, 9)),
    ((1, 2), (3, 6)),
    ((3, 5), (4, 7)),
)


@ranged
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
    rows, clusters = rows_by_class(strata, key, owned, sizes, None, 1.0)
    return fill(samples, rows, clusters, maps)


@ranged
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
    rows, clusters = rows_by_class(strata, key, owned, sizes, None, 1.0)
    return fill(samples, rows, clusters, maps)


@ranged
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
    rows, clusters = rows_by_class(strata, key, owned, sizes, None, 1.0)
    return fill(samples, rows, clusters)


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


@ranged
def dominated(
    samples: Images | Samples,
    *,
    key: PRNGKeyArray,
    num_clusters: int,
    sizes: Sizes,
    dominance: float = 2 / 3,
) -> Shared:
    """Clients whose cluster has one class most of the time.

    Label skew 4 of CLoVE (appendix D.1.2): one third of a client's samples is of all
    classes alike, the others are of the cluster's dominant class, here the class of the
    cluster's index. Numbers of samples are exact: `dominance` of a client's, rounded,
    and of the rest as many of every class, the dominant one included, up to one, the
    odd ones going from class to class with the clients. No sample is used twice. Runs
    on the host, not to be traced.

    Args:
      samples: images or others, to be shared out.
      key: a typed random key.
      num_clusters: k, at most the number of classes.
      sizes: how many clients there are and what they take; all take the same, so that
        `min_samples` and `min_test_samples` must be None.
      dominance: the dominant part of a client's samples, in [0, 1].

    Returns:
      Training clients, their truth, test clients, their truth, as `label_skewed`.

    Raises:
      ValueError: if the clients do not split into equal clusters, there are fewer
        classes than clusters, the samples of a class do not suffice, or a number is
        out of its range.
    """
    strata = np.asarray(samples.train_labels), np.asarray(samples.test_labels)
    num_classes = count_classes(strata)
    if not 1 <= num_clusters <= num_classes:
        raise ValueError(
            f"`num_clusters` must be in 1..{num_classes}, the number of classes, got "
            f"{num_clusters}."
        )
    if not 0 <= dominance <= 1:
        raise ValueError(f"`dominance` must be in [0, 1], got {dominance}.")
    if sizes.min_samples is not None or sizes.min_test_samples is not None:
        raise ValueError(
            "`min_samples` and `min_test_samples` must be None where all clients take "
            f"the same, got {sizes.min_samples} and {sizes.min_test_samples}."
        )
    random = generator(key)
    both = splits(sizes, num_clusters, strata)
    rows = []
    for own in both:
        counts = _checked(own, num_classes, dominance)
        rows.append(_draw(random, own.strata, counts))
    return fill(samples, rows, [own.clusters for own in both])


def _checked(
    own: Split, num_classes: int, dominance: float
) -> Int[np.ndarray, "clients classes"]:
    """Samples of each class that every client takes, once there are enough."""
    available = np.bincount(own.strata, minlength=num_classes)
    classes = np.arange(num_classes)[None]
    clusters = own.clusters[:, None]
    clients = np.arange(len(clusters))[:, None]

    def counts(num_samples: int) -> Int[np.ndarray, "clients classes"]:
        most = round(dominance * num_samples)
        each, odd = divmod(num_samples - most, num_classes)
        offsets = (classes - clients * odd) % num_classes
        return each + (offsets < odd) + most * (classes == clusters)

    def is_enough(num_samples: int) -> bool:
        return bool(np.all(np.sum(counts(num_samples), axis=0) <= available))

    if is_enough(own.num_samples):
        return counts(own.num_samples)
    needed = np.sum(counts(own.num_samples), axis=0)
    label = int(np.argmax(needed > available))
    sizes = " or ".join(map(str, sorted(set(own.cluster_sizes))))
    fitting = filter(is_enough, range(own.num_samples - 1, 0, -1))
    raise ValueError(
        f"{sizes} {own.name} clients a cluster of {own.num_samples} samples need "
        f"{needed[label]} {own.name} samples of class {label}, got {available[label]}; "
        f"at most {next(fitting, 0)} samples would fit these clients."
    )


def _draw(
    random: np.random.Generator,
    strata: Int[np.ndarray, " samples"],
    counts: Int[np.ndarray, "clients classes"],
) -> list[Rows]:
    """Rows of every client, each in an order of its own."""
    found: list[list[Rows]] = [[] for _ in counts]
    for label, own in enumerate(counts.T):
        rows = random.permutation(np.flatnonzero(strata == label))
        shares = np.split(rows, np.cumsum(own))[:-1]  # The last is nobody's.
        for parts, share in zip(found, shares, strict=True):
            parts.append(share)
    return [random.permutation(np.concatenate(parts)) for parts in found]


ClassSets = tuple[tuple[int, ...], ...]
Layout = Literal["ring", "core"]


@ranged
def all_classes(num_classes: int, num_clusters: int) -> ClassSets:
    """Every class for every cluster, so that proportions alone tell them apart.

    Args:
      num_classes: number of labels, at least 1.
      num_clusters: number of clusters, at least 1.

    Raises:
      ValueError: if a number is below 1.
    """
    return (tuple(range(num_classes)),) * num_clusters


@ranged
def unique_classes(
    num_classes: int, num_clusters: int, *, num_owned: int | None = None
) -> ClassSets:
    """Classes that one cluster alone has: {0, 1}, {2, 3} and so on.

    Label skew 1 (CLoVE, section 5) has two a cluster, the scaled experiments one.

    Args:
      num_classes: number of labels.
      num_clusters: number of clusters, at most `num_classes`.
      num_owned: classes of a cluster; as many as there are for all if None.

    Raises:
      ValueError: if the classes do not suffice.
    """
    owned = num_classes // num_clusters if num_owned is None else num_owned
    if owned < 1 or owned * num_clusters > num_classes:
        raise ValueError(
            f"`num_owned` times `num_clusters` must be at least 1 each and at most "
            f"`num_classes`, got {owned} x {num_clusters} of {num_classes}."
        )
    return tuple(
        tuple(range(cluster * owned, (cluster + 1) * owned))
        for cluster in range(num_clusters)
    )


@ranged
def overlapping_classes(
    num_classes: int,
    num_clusters: int,
    *,
    num_owned: int = 4,
    num_shared: int = 2,
    layout: Layout = "ring",
) -> ClassSets:
    """Classes of which a cluster shares some with others (label skew 2).

    CLoVE's section 5 asks for U classes a cluster, "at least V labels shared between
    the labels assigned to any two clusters", and does not say which. Images have U = 4
    and V = 2, AG News U = 2 and V = 1.

    Args:
      num_classes: number of labels.
      num_clusters: number of clusters.
      num_owned: U, classes of a cluster.
      num_shared: V, of which so many are shared.
      layout: "ring" gives consecutive classes, the last before the first; each cluster
        begins `num_owned - num_shared` later, so that neighbours share V and others
        may share none: {0, 1, 2, 3}, {2, 3, 4, 5} and so on. "core" gives all clusters
        the first V classes and others in turn, so that any two share V or more.

    Raises:
      ValueError: if the numbers do not fit, `layout` is unknown, or two clusters
        would have the same classes.
    """
    check_member(Layout, layout=layout)
    if not 0 <= num_shared < num_owned <= num_classes:
        raise ValueError(
            "`num_shared` must be below `num_owned`, which must be at most "
            f"`num_classes`, got {num_shared}, {num_owned} and {num_classes}."
        )
    step = num_owned - num_shared
    core = 0 if layout == "ring" else num_shared
    rest, length = num_classes - core, num_owned - core
    sets = tuple(
        (
            *range(core),
            *sorted(core + (cluster * step + i) % rest for i in range(length)),
        )
        for cluster in range(num_clusters)
    )
    if len(set(sets)) < num_clusters:
        raise ValueError(
            f"`num_clusters` must be at most {len(set(sets))} with `layout` "
            f"{layout!r}, {num_owned} of {num_classes} classes and {num_shared} shared "
            f"(or two would have the same), got {num_clusters}."
        )
    return sets


@ranged
def all_but_one_class(num_classes: int, num_clusters: int) -> ClassSets:
    """All classes but one that differs; the last cluster has all (label skew 3).

    CLoVE, appendix D.1.2. The paper does not say which class misses where; the
    released code leaves out 9, 0, 1 and 2 of ten, which is followed here.

    Args:
      num_classes: number of labels, at least 2.
      num_clusters: number of clusters, at most one more than `num_classes`.

    Raises:
      ValueError: if the classes do not suffice.
    """
    if num_classes < 2 or num_clusters > num_classes + 1:
        raise ValueError(
            "`num_clusters` must be at most `num_classes` + 1, of at least 2 classes, "
            f"got {num_clusters} and {num_classes}."
        )
    every = range(num_classes)
    missing = [(cluster - 1) % num_classes for cluster in range(num_clusters - 1)]
    sets = [tuple(label for label in every if label != gap) for gap in missing]
    return (*sets, tuple(every))


@ranged
def feature_skewed(
    images: Images, *, key: PRNGKeyArray, sizes: Sizes, num_clusters: int = 4
) -> Shared:
    """Clients of all classes whose cluster decides how images are turned.

    CLoVE, section 5: rotations by 0, 90, 180 and 270 degrees. As in its other
    partitions no image is used twice, whatever the cluster; `cfljax.data.rotated`,
    after Ghosh et al., gives every cluster its own copy of all images instead. Every
    class is divided evenly among the clusters. Runs on the host, not to be traced.

    Args:
      images: to be shared out; square if clusters are quarter turns apart.
      key: a typed random key, which with the sizes decides everything.
      sizes: how many clients there are and what they take.
      num_clusters: k, one of 1, 2 and 4; cluster c is turned by c of k turns.

    Returns:
      Training clients, their truth, test clients, their truth, clients of one cluster
      consecutive. Inputs are `[clients, samples, height, width(, channels)]`, pixels
      in [0, 1], zeros where the mask is false.

    Raises:
      ValueError: if the clients do not split into equal clusters, the images do not
        suffice, or quarter turns are asked of images that are not square.

    Cost: two copies of the shared-out pixels as float32.
    """
    if num_clusters not in (1, 2, 4):
        raise ValueError(f"`num_clusters` must be 1, 2 or 4, got {num_clusters}.")
    height, width = images.train_inputs.shape[1:3]
    if num_clusters == 4 and height != width:
        raise ValueError(
            f"quarter turns need square images, got {height} x {width}; use "
            "`num_clusters` 1 or 2."
        )
    strata = np.asarray(images.train_labels), np.asarray(images.test_labels)
    owned = np.ones((num_clusters, count_classes(strata)), bool)
    rows, clusters = rows_by_class(strata, key, owned, sizes, None, 1.0)
    train, truth, test, test_truth = fill(images, rows, clusters)
    pairs = zip((train, test), clusters, strict=True)
    turned = [_turned(data, own, num_clusters) for data, own in pairs]
    return turned[0], truth, turned[1], test_truth


def _turned(
    data: ClientData, clusters: Int[np.ndarray, " clients"], num_clusters: int
) -> ClientData:
    """The images of cluster c turned by c of `num_clusters` turns."""
    inputs = np.array(data.inputs)
    for cluster in range(num_clusters):
        own = clusters == cluster
        turns = cluster * 4 // num_clusters
        inputs[own] = np.rot90(inputs[own], turns, axes=(2, 3))
    return data._replace(inputs=jax.device_put(inputs))
