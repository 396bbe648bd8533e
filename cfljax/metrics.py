"""How well clusters, models and answers agree with the truth.

Every function is pure, serves one trial and can be compiled and batched by vmap.
A client may abstain: its label is then outside `[0, num_clusters)`, usually -1.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Num, ScalarLike

from cfljax.clustering.distances import euclidean, match_clusters

__all__ = [
    "accuracy",
    "adjusted_rand_index",
    "centre_distance",
    "exact_recovery",
    "is_success",
    "matched_accuracy",
    "mebibytes",
    "nearest_centre_distance",
    "num_used_clusters",
]


def adjusted_rand_index(
    assignment: Int[Array, " clients"],
    truth: Int[Array, " clients"],
    num_clusters: int,
    num_true_clusters: int | None = None,
    *,
    present: Bool[Array, " clients"] | None = None,
) -> Float[Array, ""]:
    """Agreement of two partitions, corrected for chance.

    1 for the same partition under any names, 0 in expectation for a random one of
    the same cluster sizes, and negative below that. Two trivial partitions that
    agree (one cluster, or every client alone) give 1. All clients that abstain
    together count as one more cluster.

    Source: Hubert and Arabie, "Comparing partitions", 1985, equation 5.

    Args:
      assignment: estimated cluster of each client.
      truth: true cluster of each client.
      num_clusters: number of estimated clusters, at least 1.
      num_true_clusters: number of true clusters; `num_clusters` if None.
      present: clients that count, all if None; NaN if there is none.

    Raises:
      ValueError: if a number of clusters is below 1.

    Cost: a product of two one-hot matrices, `[clients, clusters]` each.
    """
    num_true_clusters = _checked(num_clusters, num_true_clusters)
    table = _contingency(assignment, truth, num_clusters, num_true_clusters, present)
    together = jnp.sum(_pairs(table))
    in_rows = jnp.sum(_pairs(jnp.sum(table, axis=1)))
    in_columns = jnp.sum(_pairs(jnp.sum(table, axis=0)))
    pairs = jnp.maximum(_pairs(jnp.sum(table)), 1)
    expected = in_rows * (in_columns / pairs)
    spread = (in_rows + in_columns) / 2 - expected
    # Zero only if both partitions are one cluster or both are all singletons.
    trivial = spread == 0
    index = (together - expected) / jnp.where(trivial, 1, spread)
    return jnp.where(jnp.sum(table) > 0, jnp.where(trivial, 1, index), jnp.nan)


def matched_accuracy(
    assignment: Int[Array, " clients"],
    truth: Int[Array, " clients"],
    num_clusters: int,
) -> Float[Array, ""]:
    """Share of the clients in their true cluster, under the best renaming.

    Cluster names are arbitrary, so the one-to-one renaming that makes most clients
    right is used. A client that abstains is wrong.

    Source: Ghosh et al., "An Efficient Framework for Clustered Federated
    Learning", Figure 4 (whose code compares without renaming).

    Args:
      assignment: estimated cluster of each client.
      truth: true cluster of each client, in `[0, num_clusters)`.
      num_clusters: number of clusters of either, at least 1.

    Raises:
      ValueError: if `num_clusters` is below 1.
    """
    _checked(num_clusters, None)
    table = _contingency(assignment, truth, num_clusters, num_clusters)
    table = table[:num_clusters, :num_clusters]
    return jnp.sum(_matched(table, match_clusters(-table))) / assignment.shape[0]


def centre_distance(
    models: Float[Array, "clusters features"],
    truth: Float[Array, "clusters features"],
) -> Float[Array, ""]:
    """Mean distance of the models to the truth, matched one to one.

    `(1/k) sum_j ||theta_hat_j - theta*_p(j)||` under the matching p of least sum.
    NaN if a model is NaN: a diverged run has no distance, rather than a small one.

    Source: Ghosh et al., "An Efficient Framework for Clustered Federated
    Learning", section 6.1, where the matching is implied.

    Args:
      models: estimated models, one per cluster.
      truth: true models, one per cluster, in any order.
    """
    distances = euclidean(models, truth)
    return jnp.mean(_matched(distances, match_clusters(distances)))


def nearest_centre_distance(
    models: Float[Array, "clusters features"],
    truth: Float[Array, "true_clusters features"],
) -> Float[Array, ""]:
    """Mean distance of each model to the nearest truth, which may be shared.

    `(1/k) sum_j min_l ||theta_hat_j - theta*_l||`: never above `centre_distance`,
    and small when all models found the same truth. NaN if a model is NaN.

    Source: the code released with Ghosh et al. (repository jichan3751/ifca).

    Args:
      models: estimated models, one per cluster.
      truth: true models, in any number and order.
    """
    return jnp.mean(jnp.min(euclidean(models, truth), axis=1))


def is_success(
    distance: Float[Array, "*batch"], threshold: ScalarLike
) -> Bool[Array, "*batch"]:
    """Whether a distance is finite and at most the threshold.

    NaN and infinity are failures whatever the threshold.

    Source: Ghosh et al., section 6.1, with threshold `0.6 * noise`. The released
    code asks for strictly less, and counts a trial of NaN distances as a success.

    Args:
      distance: any distance of this module.
      threshold: largest distance that counts as success, in the same unit.
    """
    return jnp.isfinite(distance) & (distance <= threshold)


def exact_recovery(
    assignment: Int[Array, " clients"], truth: Int[Array, " clients"]
) -> Bool[Array, ""]:
    """Whether the assignment is the true partition, up to the clusters' names.

    False if any client abstains (has a negative label).

    Args:
      assignment: estimated cluster of each client, negative if it abstains.
      truth: true cluster of each client.

    Cost: two sorts of the clients, so that memory stays linear in their number.
    """
    order = jnp.lexsort((truth, assignment))
    starts_cluster = _changes(assignment[order])
    num_pairs = jnp.sum(starts_cluster | _changes(truth[order]))
    # As many pairs of labels as labels on either side: the pairs are a renaming.
    same = (num_pairs == jnp.sum(starts_cluster)) & (
        num_pairs == jnp.sum(_changes(jnp.sort(truth)))
    )
    return same & jnp.all(assignment >= 0)


def num_used_clusters(
    assignment: Int[Array, " clients"], num_clusters: int
) -> Int[Array, ""]:
    """Number of clusters that have at least one client; 1 is a collapse.

    Abstaining clients use no cluster, so 0 means that all of them abstained.

    Args:
      assignment: estimated cluster of each client.
      num_clusters: number of clusters, at least 1.

    Raises:
      ValueError: if `num_clusters` is below 1.
    """
    _checked(num_clusters, None)
    chosen = jax.nn.one_hot(assignment, num_clusters, dtype=bool)
    return jnp.sum(jnp.any(chosen, axis=0))


def accuracy(
    outputs: Num[Array, "*shape"],
    targets: Int[Array, "*batch samples"],
    mask: Bool[Array, "*batch samples"],
) -> Float[Array, ""]:
    """Share of the real samples whose predicted class is the target.

    All samples weigh the same, over all leading axes: total correct by total, as
    IFCA's Table 1 reports it. For one number per client, vmap over clients. A
    sample with a NaN among its outputs is wrong. NaN if no sample is real.

    Args:
      outputs: `[*batch, samples, classes]`, one score per class, the largest wins;
        or `[*batch, samples]`, predicted classes as integers.
      targets: true class of each sample.
      mask: false on padding, which does not count.

    Raises:
      ValueError: if the leading axes of `outputs` are not those of `targets`, or
        predicted classes are not integers.
    """
    predicted = _predicted(outputs, targets.shape).astype(targets.dtype)
    return jnp.mean(predicted == targets, where=mask)


def _changes(sorted_labels: Int[Array, " clients"]) -> Bool[Array, " changes"]:
    """Where a label differs from the one before it."""
    return sorted_labels[1:] != sorted_labels[:-1]


def _predicted(outputs: Array, shape: tuple[int, ...]) -> Array:
    """Predicted class of each sample, -1 where a score is NaN."""
    if outputs.shape == shape and jnp.issubdtype(outputs.dtype, jnp.integer):
        return outputs
    if outputs.ndim != len(shape) + 1 or outputs.shape[:-1] != shape:
        raise ValueError(
            f"`outputs` must be scores `[*batch, samples, classes]` or integer "
            f"classes `[*batch, samples]` for targets of shape {shape}, got shape "
            f"{outputs.shape} and type {outputs.dtype}."
        )
    undefined = jnp.any(jnp.isnan(outputs), axis=-1)
    return jnp.where(undefined, -1, jnp.argmax(outputs, axis=-1))


def _checked(num_clusters: int, num_true_clusters: int | None) -> int:
    """The number of true clusters, after both numbers are found positive."""
    if num_true_clusters is None:
        num_true_clusters = num_clusters
    if min(num_clusters, num_true_clusters) < 1:
        raise ValueError(
            f"`num_clusters` and `num_true_clusters` must be at least 1, got "
            f"{num_clusters} and {num_true_clusters}."
        )
    return num_true_clusters


def _contingency(
    assignment: Int[Array, " clients"],
    truth: Int[Array, " clients"],
    num_clusters: int,
    num_true_clusters: int,
    present: Bool[Array, " clients"] | None = None,
) -> Float[Array, "rows columns"]:
    """Clients in each pair of clusters; the last row and column have abstained."""
    rows = _one_hot(assignment, num_clusters)
    if present is not None:
        rows = jnp.where(present[:, None], rows, 0)
    columns = _one_hot(truth, num_true_clusters)
    return jnp.matmul(rows.T, columns, precision="highest")


def _one_hot(labels: Int[Array, " clients"], num_clusters: int) -> Array:
    """`[clients, num_clusters + 1]`; labels out of range go to the last column."""
    valid = (labels >= 0) & (labels < num_clusters)
    return jax.nn.one_hot(jnp.where(valid, labels, num_clusters), num_clusters + 1)


def _pairs(counts: Array) -> Array:
    """Number of pairs that can be drawn from each count."""
    return counts * (counts - 1) / 2


def _matched(table: Array, permutation: Array) -> Array:
    """Entry `[j, permutation[j]]` of each row j."""
    return jnp.take_along_axis(table, permutation[:, None], axis=1)[:, 0]


def mebibytes(sizes: Int[Array, "..."]) -> Float[Array, ""]:
    """Sum of sizes in bytes, such as `Info.received` of all clients, in MiB.

    Added up in float32: a sum of many models is beyond int32.
    """
    return jnp.sum(sizes.astype(jnp.float32)) / 2**20
