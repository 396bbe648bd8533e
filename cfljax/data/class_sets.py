"""Which classes each cluster has: the label skews of CLoVE's experiments."""

from typing import Literal, get_args

__all__ = [
    "SWAPS",
    "ClassSets",
    "Layout",
    "all_but_one_class",
    "all_classes",
    "overlapping_classes",
    "unique_classes",
]

ClassSets = tuple[tuple[int, ...], ...]
Layout = Literal["ring", "core"]

# Pairs of labels that change places in each cluster, in CLoVE's released code; the
# paper says that there are two of them and no more.
SWAPS = (
    ((0, 3), (8, 9)),
    ((1, 4), (6, 9)),
    ((1, 2), (3, 6)),
    ((3, 5), (4, 7)),
)


def all_classes(num_classes: int, num_clusters: int) -> ClassSets:
    """Every class for every cluster, so that proportions alone tell them apart.

    Args:
      num_classes: number of labels, at least 1.
      num_clusters: number of clusters, at least 1.

    Raises:
      ValueError: if a number is below 1.
    """
    _check(num_classes, num_clusters)
    return (tuple(range(num_classes)),) * num_clusters


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
    _check(num_classes, num_clusters)
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
    _check(num_classes, num_clusters)
    if layout not in get_args(Layout):
        allowed = get_args(Layout)
        raise ValueError(f"`layout` must be in {allowed}, got {layout!r}.")
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
    _check(num_classes, num_clusters)
    if num_classes < 2 or num_clusters > num_classes + 1:
        raise ValueError(
            "`num_clusters` must be at most `num_classes` + 1, of at least 2 classes, "
            f"got {num_clusters} and {num_classes}."
        )
    every = range(num_classes)
    missing = [(cluster - 1) % num_classes for cluster in range(num_clusters - 1)]
    sets = [tuple(label for label in every if label != gap) for gap in missing]
    return (*sets, tuple(every))


def _check(num_classes: int, num_clusters: int) -> None:
    """Raise ValueError unless both numbers are positive."""
    for name, value in (("num_classes", num_classes), ("num_clusters", num_clusters)):
        if value < 1:
            raise ValueError(f"`{name}` must be at least 1, got {value}.")
