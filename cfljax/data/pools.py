"""Every cluster's part of each class, and each client's part of its cluster's."""

import numpy as np
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from cfljax.data.shares import Rows, Sizes, Split, generator, splits

__all__ = ["rows_by_class"]

_STEP = 0.05  # By which the reserve is raised until all clusters have enough.


def _proportions(
    random: np.random.Generator,
    owned: Bool[np.ndarray, "clusters classes"],
    concentration: float | None,
) -> Float[np.ndarray, "clusters classes"]:
    """Each cluster's share of each class's samples, drawn class by class.

    Columns add up to 1, or to 0 where no cluster has the class. Without a
    concentration the clusters that have a class share it evenly.
    """
    shares = np.zeros(owned.shape)
    for label, owners in enumerate(owned.T):
        count = np.count_nonzero(owners)
        if count and concentration is None:
            shares[owners, label] = 1 / count
        elif count:
            shares[owners, label] = random.dirichlet(np.full(count, concentration))
    return shares


def _cuts(
    shares: Float[np.ndarray, "clusters classes"], strata: Int[np.ndarray, " samples"]
) -> Int[np.ndarray, "clusters_and_one classes"]:
    """Where each class's samples are cut into the shares of the clusters."""
    counts = np.bincount(strata, minlength=shares.shape[1])[: shares.shape[1]]
    ends = np.rint(np.cumsum(shares, axis=0) * counts).astype(np.int64)
    return np.concatenate([np.zeros_like(ends[:1]), ends])


def _pools(
    random: np.random.Generator,
    shares: Float[np.ndarray, "clusters classes"],
    own: Split,
) -> list[Rows]:
    """Rows of the samples that each cluster has, no row in two of them."""
    cuts = _cuts(shares, own.strata)
    found: list[list[np.ndarray]] = [[] for _ in shares]
    for label in range(shares.shape[1]):
        rows = random.permutation(np.flatnonzero(own.strata == label))
        parts = np.split(rows, cuts[1:, label])[:-1]
        for cluster, part in zip(found, parts, strict=True):
            cluster.append(part)
    return [np.concatenate(parts) for parts in found]


def _pool_sizes(
    shares: Float[np.ndarray, "clusters classes"], own: Split
) -> Int[np.ndarray, " clusters"]:
    """Number of samples that `_pools` would give each cluster."""
    return np.sum(np.diff(_cuts(shares, own.strata), axis=0), axis=1)


def _deal(random: np.random.Generator, pool: Rows, own: Split) -> list[Rows]:
    """Rows of each client of one cluster; they share evenly what is too little."""
    taken = random.permutation(pool)[: own.size * own.num_samples]
    return np.array_split(taken, own.size)


def rows_by_class(
    strata: tuple[np.ndarray, np.ndarray],
    key: PRNGKeyArray,
    owned: Bool[np.ndarray, "clusters classes"],
    sizes: Sizes,
    concentration: float | None,
    reserve: float,
) -> list[list[np.ndarray]]:
    """Rows of every training client, and of every test client, no row in two.

    Args:
      strata: class of every training sample and of every test sample.
      key: a typed random key.
      owned: which classes a cluster has; their samples are divided among those who do.
      sizes: how many clients there are and what they take.
      concentration: of the Dirichlet law that divides a class, the same draw for both
        splits; None divides evenly.
      reserve: the least part of a class that is divided evenly.

    Raises:
      ValueError: if the clients do not split into equal clusters, the samples do not
        suffice whatever the reserve, or a number is out of its range.
    """
    if concentration is not None and not 0 < concentration < np.inf:
        raise ValueError(
            f"`concentration` must be positive and finite, got {concentration}."
        )
    if not 0 <= reserve <= 1:
        raise ValueError(f"`reserve` must be in [0, 1], got {reserve}.")
    both = splits(sizes, len(owned), strata)
    random = generator(key)
    drawn = _proportions(random, owned, concentration)
    shares = _sufficient(drawn, _proportions(random, owned, None), both, reserve)
    return [
        [
            rows
            for pool in _pools(random, shares, own)
            for rows in _deal(random, pool, own)
        ]
        for own in both
    ]


def _sufficient(
    drawn: Float[np.ndarray, "clusters classes"],
    even: Float[np.ndarray, "clusters classes"],
    both: tuple[Split, Split],
    reserve: float,
) -> Float[np.ndarray, "clusters classes"]:
    """Shares as drawn but for the least reserve with which all clusters suffice."""
    for raised in [*np.arange(reserve, 1, _STEP), 1.0]:
        shares = raised * even + (1 - raised) * drawn
        if all(
            np.all(_pool_sizes(shares, own) >= own.size * own.min_samples)
            for own in both
        ):
            return shares
    own, least = next(
        (own, least)
        for own in both
        if (least := int(np.min(_pool_sizes(even, own)))) < own.size * own.min_samples
    )
    raise ValueError(
        f"{own.size} {own.name} clients of {own.min_samples} samples need "
        f"{own.size * own.min_samples} {own.name} samples in every cluster, got "
        f"{least} in one; at most {least // own.size} samples would fit these clients, "
        f"or {least // own.min_samples} clients a cluster these samples."
    )
