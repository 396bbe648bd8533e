"""Table 15: how many clusters its indices tell of, and how many images there are.

IFCA often sends several whole clusters to one model. With K true clusters of m clients
each the adjusted Rand index then depends only on how many clusters each model got, and
takes few values: 7 for K = 5, 27 for K = 10. A published mean and standard deviation
over three seeds thus tell K.
"""

import functools
import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float

from theory.judges import never_exceeds
from theory.statement import Preset, Statement
from theory.verdict import Status, Verdict

__all__ = [
    "STATEMENTS",
    "block_sizes",
    "check_clusters",
    "check_sizes",
    "merged_index",
    "misses",
    "triples",
]

CLUSTERS, SIZES = "clove.T15K", "clove.T15K.sizes"

_PUBLISHED = {  # IFCA's final index by M: mean and sd on MNIST, CIFAR-10 and FMNIST
    50: ((0.92, 0.11), (0.85, 0.11), (0.74, 0.22)),
    100: ((0.85, 0.11), (0.65, 0.25), (0.93, 0.11)),
    250: ((0.87, 0.18), (0.85, 0.10), (0.85, 0.10)),
    500: ((0.93, 0.10), (0.85, 0.10), (0.85, 0.10)),
    1000: ((0.85, 0.10), (0.93, 0.10), (0.75, 0.21)),
}
_TRAINING_IMAGES = (60_000, 50_000, 60_000)  # of the same three data sets


def block_sizes(total: int, largest: int | None = None) -> Iterator[tuple[int, ...]]:
    """Integer partitions: ways to merge `total` equal clusters, up to their names.

    Args:
      total: clusters to share out, at least 0.
      largest: most clusters in one block; `total` if None.

    Yields:
      Sizes of the blocks, falling.
    """
    if total == 0:
        yield ()
        return
    for first in range(min(total, total if largest is None else largest), 0, -1):
        for rest in block_sizes(total - first, first):
            yield (first, *rest)


def merged_index(blocks: Sequence[int], cluster_size: int) -> float:
    """Adjusted Rand index against equal clusters of a partition that merges them whole.

    Source: Hubert and Arabie, "Comparing partitions", 1985, equation 5; pairs that both
    join are here all pairs that the truth joins.

    Args:
      blocks: true clusters in each merged one, two or more in all.
      cluster_size: clients in each true cluster, at least 2.

    Raises:
      ValueError: if the truth is one cluster or all clients alone.
    """
    if sum(blocks) < 2 or cluster_size < 2:
        raise ValueError(
            "`blocks` must hold at least 2 clusters of a `cluster_size` of at least 2, "
            f"got {sum(blocks)} of {cluster_size}."
        )
    joined, merged, pairs = (
        sum(size * cluster_size * (size * cluster_size - 1) / 2 for size in sizes)
        for sizes in ([1] * sum(blocks), blocks, [sum(blocks)])
    )
    chance = joined * merged / pairs
    return (joined - chance) / ((joined + merged) / 2 - chance)


def triples(num_clusters: int, num_clients: int) -> Float[np.ndarray, "ways 3"]:
    """Indices that three seeds can give, in rising order.

    Args:
      num_clusters: equal true clusters K.
      num_clients: M, a multiple of it.

    Raises:
      ValueError: if the clusters cannot be equal.
    """
    if num_clusters < 2 or num_clients % num_clusters:
        raise ValueError(
            f"`num_clusters` must be at least 2 and divide {num_clients} clients, got "
            f"{num_clusters}."
        )
    size = num_clients // num_clusters
    values = {merged_index(blocks, size) for blocks in block_sizes(num_clusters)}
    return np.array(list(itertools.combinations_with_replacement(sorted(values), 3)))


def misses(num_clusters: int, *, correction: int = 0) -> Float[np.ndarray, " cells"]:
    """By how much each published cell misses the nearest mean and sd of three indices.

    Args:
      num_clusters: K, a divisor of every M of the table.
      correction: 0 for the population's standard deviation, 1 for the sample's.

    Returns:
      `[15]`, the larger of the two distances, M by M.
    """
    found = []
    for num_clients, cells in _PUBLISHED.items():
        ways = triples(num_clusters, num_clients)
        possible = np.stack([ways.mean(axis=1), ways.std(axis=1, ddof=correction)], 1)
        for cell in cells:
            apart = np.max(np.abs(possible - np.array(cell)[None]), axis=1)
            found.append(np.min(apart))
    return np.array(found)


def check_clusters(
    preset: Preset,
    *,
    name: str,
    num_clusters: int,
    half: float = 0.005,
    correction: int = 0,
) -> Verdict:
    """Every published mean and sd is within `half` of those of three merged indices.

    Args:
      preset: unused: all ways to merge are gone through.
      name: id of the row.
      num_clusters: K.
      half: half a unit of the last published digit.
      correction: see `misses`.
    """
    del preset
    values = misses(num_clusters, correction=correction)
    ways = len(list(block_sizes(num_clusters)))
    return never_exceeds(
        name,
        values,
        np.full(len(values), half),
        rounding=1e-14,
        detail=f"{np.sum(values <= half)} of {len(values)} means and standard "
        f"deviations fit K = {num_clusters}, {ways} ways to merge, three seeds; "
        f"largest miss {np.max(values):.3g}",
    )


def check_sizes(
    preset: Preset, *, name: str, samples: tuple[int, int, int], more_images: int = 0
) -> Verdict:
    """M = 1000 clients of `samples` images need no more than there are.

    Args:
      preset: unused.
      name: id of the row.
      samples: images of each client on MNIST, CIFAR-10 and FMNIST.
      more_images: what each data set has beyond its training images.
    """
    del preset
    needed = max(_PUBLISHED) * np.array(samples, float)
    there = np.array(_TRAINING_IMAGES, float) + more_images
    return never_exceeds(
        name,
        needed,
        there,
        rounding=float(np.finfo(float).eps),  # whole numbers, hence exact
        detail=f"{', '.join(f'{one:,.0f}' for one in needed)} images needed of "
        f"{', '.join(f'{one:,.0f}' for one in there)}",
    )


_row = functools.partial(Statement, paper="clove", place="Appendix D.3, Table 15")
_clusters = functools.partial(
    _row,
    preconditions=(
        "K equal clusters, and IFCA sends whole ones to a model",
        "three seeds, mean and population standard deviation, both rounded to 0.01",
    ),
)
_sizes = functools.partial(
    _row,
    preconditions=("M = 1000", "images are dealt out without replacement (Section 5)"),
)

STATEMENTS = (
    _clusters(
        id=CLUSTERS,
        text="the indices of IFCA in Table 15 are those of 10 clusters",
        expected=Status.VIOLATED,
        check=functools.partial(check_clusters, name=CLUSTERS, num_clusters=10),
        control=functools.partial(
            check_clusters, name=CLUSTERS, num_clusters=10, half=0.01
        ),
        note="Only 2 of 15 means and standard deviations can come from 10 clusters. "
        "Evidence, not proof: a model that got a part of a cluster could give other "
        "indices. The control allows twice the rounding.",
    ),
    _clusters(
        id=f"{CLUSTERS}.corrected",
        text="the indices of IFCA in Table 15 are those of 5 clusters",
        check=functools.partial(
            check_clusters, name=f"{CLUSTERS}.corrected", num_clusters=5
        ),
        control=functools.partial(
            check_clusters, name=f"{CLUSTERS}.corrected", num_clusters=5, correction=1
        ),
        note="All 15 fit, which is no matter of course: of the 3654 triples that 10 "
        "clusters can give, 5 clusters match less than 4 %. The control takes the "
        "sample's standard deviation.",
    ),
    _sizes(
        id=SIZES,
        text="each of 1000 clients holds 100 images or more of its own",
        expected=Status.VIOLATED,
        check=functools.partial(check_sizes, name=SIZES, samples=(100, 100, 100)),
        control=functools.partial(
            check_sizes, name=SIZES, samples=(100, 100, 100), more_images=10_000
        ),
        note="100,000 images, more than MNIST, CIFAR-10 or FMNIST has. The control "
        "deals out the test images too.",
    ),
    _sizes(
        id=f"{SIZES}.corrected",
        text="each of 1000 clients can hold 60 images of MNIST or FMNIST, or 50 of "
        "CIFAR-10, of its own",
        check=functools.partial(
            check_sizes, name=f"{SIZES}.corrected", samples=(60, 50, 60)
        ),
        control=functools.partial(
            check_sizes, name=f"{SIZES}.corrected", samples=(61, 51, 61)
        ),
        note="Exactly all training images. The control has one more a client.",
    ),
)
