"""Clusters with a dominant class each, among some of all others: label skew 4."""

import numpy as np
from jaxtyping import Int, PRNGKeyArray

from cfljax.data.images import Images
from cfljax.data.samples import Samples
from cfljax.data.shares import (
    Rows,
    Shared,
    Sizes,
    Split,
    count_classes,
    fill,
    generator,
    splits,
)

__all__ = ["dominated"]


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
    rows = []
    for own in splits(sizes, num_clusters, strata):
        counts = _checked(own, num_clusters, num_classes, dominance)
        rows.append(_draw(random, own.strata, counts))
    return fill(samples, rows, num_clusters)


def _counts(
    size: int, num_samples: int, num_clusters: int, num_classes: int, dominance: float
) -> Int[np.ndarray, "clients classes"]:
    """Samples of each class that every client takes."""
    clients = np.arange(size * num_clusters)[:, None]
    most = round(dominance * num_samples)
    each, odd = divmod(num_samples - most, num_classes)
    offsets = (np.arange(num_classes)[None] - clients * odd) % num_classes
    is_dominant = np.arange(num_classes)[None] == clients // size
    return each + (offsets < odd) + most * is_dominant


def _checked(
    own: Split, num_clusters: int, num_classes: int, dominance: float
) -> Int[np.ndarray, "clients classes"]:
    """Samples of each class that every client takes, once there are enough."""
    available = np.bincount(own.strata, minlength=num_classes)

    def counts(num_samples: int) -> Int[np.ndarray, "clients classes"]:
        return _counts(own.size, num_samples, num_clusters, num_classes, dominance)

    def is_enough(num_samples: int) -> bool:
        return bool(np.all(np.sum(counts(num_samples), axis=0) <= available))

    if is_enough(own.num_samples):
        return counts(own.num_samples)
    needed = np.sum(counts(own.num_samples), axis=0)
    label = int(np.argmax(needed > available))
    fitting = filter(is_enough, range(own.num_samples - 1, 0, -1))
    raise ValueError(
        f"{own.size} {own.name} clients a cluster of {own.num_samples} samples need "
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
