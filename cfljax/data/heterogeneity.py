"""How clients differ, as the field makes them: whose samples are whose, and then what
clusters see of them.

    dealt = cfl.data.dirichlet_rows(labels, key=key, num_clients=20, concentration=0.3)
    data, truth = cfl.data.deal(images, labels, dealt)
    data, truth = cfl.data.turned(data, clusters=cfl.data.consecutive((12, 8)))

All run on the host, not to be traced, and use no sample twice.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from cfljax.base.checks import check_cluster_sizes, check_positive
from cfljax.base.ranges import ranged
from cfljax.base.types import ClientData, Truth
from cfljax.data.own import from_clients
from cfljax.data.partition import Rows, cuts_of, generator, pools, proportions

_MOST_DRAWS = 1000


class Dealt(NamedTuple):
    """Which samples each client has, and which clients have one law of data.

    rows: of each client, indices of its samples in ascending order.
    clusters: `[clients]`, numbered from 0 on.
    """

    rows: tuple[Rows, ...]
    clusters: Int[np.ndarray, " clients"]


@ranged
def consecutive(cluster_sizes: Sequence[int]) -> Int[np.ndarray, " clients"]:
    """The cluster of each client, where those of one are consecutive.

    Args:
      cluster_sizes: clients of each cluster, which may differ.

    Raises:
      ValueError: if a size is below 1 or there is none.
    """
    check_cluster_sizes(cluster_sizes)
    return np.repeat(np.arange(len(cluster_sizes), dtype=np.int32), cluster_sizes)


@ranged
def dirichlet_rows(
    labels: Int[np.ndarray | Array, " samples"],
    *,
    key: PRNGKeyArray,
    num_clients: int,
    concentration: float = 0.5,
    min_samples: int = 1,
    cluster_sizes: Sequence[int] | None = None,
) -> Dealt:
    """Label skew by a Dirichlet law: of each class the clients' shares are one draw.

    Li et al., ICDE 2022 (NIID-Bench), "distribution-based label imbalance", after
    Yurochkin et al., ICML 2019: `p_k ~ Dir_N(alpha)`, and client i gets the share
    p_ki of class k's samples. All is drawn again until every client has
    `min_samples`, so that the law is conditioned on that. With `cluster_sizes` the
    shares are those of clusters, `Dir(alpha N_c / mean N)`, of mean N_c / N, and are
    dealt out evenly to the N_c members at random: clients of one cluster have one law.

    Args:
      labels: 0, 1, ... of all samples.
      key: a typed random key.
      num_clients: N.
      concentration: alpha; small ones leave clients few classes.
      min_samples: that every client has, 10 in NIID-Bench; may be 0.
      cluster_sizes: clients of each cluster, of sum N; None for a cluster of each
        client.

    Raises:
      ValueError: if a number is out of its range, there are not enough samples, or a
        thousand draws leave some client too few.
    """
    found = _labels(labels)
    sizes = (1,) * num_clients if cluster_sizes is None else tuple(cluster_sizes)
    check_cluster_sizes(sizes, num_clients=num_clients)
    _check_enough(len(found), num_clients, min_samples, concentration)
    random, weights = generator(key), np.array(sizes)
    owned = np.ones((len(sizes), int(found.max()) + 1), bool)
    for _ in range(_MOST_DRAWS):
        cuts = cuts_of(proportions(random, owned, concentration, sizes), found)
        if np.all(np.sum(np.diff(cuts, axis=0), axis=1) // weights >= min_samples):
            break
    else:
        raise ValueError(
            f"{_MOST_DRAWS} draws left a client fewer than {min_samples} of "
            f"{len(found)} samples; raise `concentration`, {concentration}, or lower "
            f"`num_clients`, {num_clients}, or `min_samples`."
        )
    rows = [
        np.sort(own)
        for pool, size in zip(pools(random, cuts, found), sizes, strict=True)
        for own in np.array_split(random.permutation(pool), size)
    ]
    return Dealt(tuple(rows), consecutive(sizes))


@ranged
def shard_rows(
    labels: Int[np.ndarray | Array, " samples"],
    *,
    key: PRNGKeyArray,
    num_clients: int,
    shards_per_client: int = 2,
) -> Dealt:
    """Pathological label skew: most clients have samples of two classes.

    McMahan et al., AISTATS 2017, section 3: samples sorted by label are cut into
    `num_clients * shards_per_client` shards, of one size up to one sample, and every
    client draws its shards without replacement. Every client is a cluster.

    Args:
      labels: of all samples; those of one label keep their order.
      key: a typed random key.
      num_clients: 100 in the paper.
      shards_per_client: 2 in the paper.

    Raises:
      ValueError: if a number is below 1, or there are fewer samples than shards.
    """
    found = _labels(labels)
    check_positive(shards_per_client=shards_per_client)
    number = num_clients * shards_per_client
    if number > len(found):
        raise ValueError(
            f"{num_clients} clients of {shards_per_client} shards need {number} "
            f"samples, got {len(found)}; at most {len(found) // shards_per_client} "
            "clients would do."
        )
    shards = np.array_split(np.argsort(found, kind="stable"), number)
    order = generator(key).permutation(number).reshape(num_clients, -1)
    rows = [np.sort(np.concatenate([shards[i] for i in own])) for own in order]
    return Dealt(tuple(rows), consecutive((1,) * num_clients))


@ranged
def quantity_rows(
    num_samples: int,
    *,
    key: PRNGKeyArray,
    num_clients: int,
    concentration: float = 0.5,
    min_samples: int = 1,
) -> Dealt:
    """Quantity skew: samples of one law, of which some clients have many.

    Li et al., ICDE 2022 (NIID-Bench): shares of the samples are a draw of `Dir_N(
    alpha)`, repeated until every client has `min_samples`. All clients are one cluster.

    Args:
      num_samples: to be dealt out, at random.
      key: a typed random key.
      num_clients: N.
      concentration: alpha.
      min_samples: that every client has; may be 0.

    Raises:
      ValueError: as `dirichlet_rows`.
    """
    one_class = np.zeros(num_samples, np.int32)
    dealt = dirichlet_rows(
        one_class,
        key=key,
        num_clients=num_clients,
        concentration=concentration,
        min_samples=min_samples,
    )
    return dealt._replace(clusters=consecutive((num_clients,)))


def _labels(labels: Any) -> Int[np.ndarray, " samples"]:
    """Labels as NumPy has them; ValueError where they are none."""
    found = np.asarray(labels)
    if found.ndim != 1 or found.dtype.kind not in "iu" or not found.size:
        raise ValueError(
            "`labels` must be one integer for each of one or more samples, got "
            f"{found.dtype} of shape {found.shape}."
        )
    if found.min() < 0:
        raise ValueError(f"`labels` must be 0, 1, ..., got {found.min()}.")
    return found


def _check_enough(
    num_samples: int, num_clients: int, min_samples: int, concentration: float
) -> None:
    """Raise ValueError unless so many samples may be enough for all."""
    if not 0 < concentration < np.inf:
        raise ValueError(
            f"`concentration` must be positive and finite, got {concentration}."
        )
    if min_samples < 0:
        raise ValueError(f"`min_samples` must not be negative, got {min_samples}.")
    if num_clients * min_samples > num_samples:
        raise ValueError(
            f"{num_clients} clients of {min_samples} samples need "
            f"{num_clients * min_samples}, got {num_samples}; at most "
            f"{num_samples // min_samples} clients would do, or `min_samples` "
            f"{num_samples // num_clients}."
        )


def deal(inputs: Any, targets: Any, dealt: Dealt) -> tuple[ClientData, Truth]:
    """The clients that have these rows, see `from_clients`, and their true clusters.

    Args:
      inputs: `[samples, ...]`.
      targets: `[samples, ...]`.
      dealt: whose rows are whose.

    Raises:
      ValueError: as `from_clients`, and if there are fewer samples than rows ask for.
    """
    inputs, targets = np.asarray(inputs), np.asarray(targets)
    least = 1 + max(int(own.max(initial=-1)) for own in dealt.rows)
    if min(len(inputs), len(targets)) < least:
        raise ValueError(
            f"`dealt` asks for {least} samples, got {len(inputs)} inputs and "
            f"{len(targets)} targets; deal out the labels of these samples."
        )
    data = from_clients([(inputs[own], targets[own]) for own in dealt.rows])
    return data, Truth(jax.device_put(dealt.clusters), None)


def _checked_clusters(
    data: ClientData, clusters: Sequence[int] | Int[np.ndarray | Array, " clients"]
) -> Int[np.ndarray, " clients"]:
    """The cluster of each client, numbered from 0 on without a gap."""
    found = np.asarray(clusters)
    if found.shape != data.mask.shape[:1] or found.dtype.kind not in "iu":
        raise ValueError(
            "`clusters` must be one integer for each of "
            f"{data.mask.shape[0]} clients, got {found.dtype} of shape {found.shape}."
        )
    missing = np.setdiff1d(np.arange(found.max() + 1), found)
    if found.min() < 0 or missing.size:
        raise ValueError(
            f"`clusters` must be 0, 1, ... without a gap, got {np.unique(found)}."
        )
    return found.astype(np.int32)


def turned(
    data: ClientData,
    *,
    clusters: Sequence[int] | Int[np.ndarray | Array, " clients"],
    angles: Sequence[float | int] | None = None,
) -> tuple[ClientData, Truth]:
    """Feature skew: images turned by their cluster's angle.

    Args:
      data: inputs `[clients, samples, height, width(, channels)]`.
      clusters: of each client, such as `consecutive((5, 3))`.
      angles: of each cluster in degrees, counter-clockwise; `360 c / k` for cluster c
        of k if None. Multiples of 90 move pixels of square images; others interpolate
        between four pixels, with zeros from outside.

    Returns:
      The clients and their true clusters.

    Raises:
      ValueError: if inputs are no images, clusters do not fit the clients, there is not
        one finite angle for each, or quarter turns are asked of images that are not
        square.
    """
    found = _checked_clusters(data, clusters)
    number = int(found.max()) + 1
    if angles is None:
        angles = [360 * cluster / number for cluster in range(number)]
    if len(angles) != number or not np.all(np.isfinite(angles)):
        raise ValueError(
            f"`angles` must be one finite number for each of {number} clusters, got "
            f"{tuple(angles)}."
        )
    inputs = np.array(data.inputs)
    if inputs.ndim not in (4, 5):
        raise ValueError(
            "`data` must have images [clients, samples, height, width(, channels)] as "
            f"inputs, got shape {inputs.shape}."
        )
    for cluster, angle in enumerate(angles):
        own = found == cluster
        inputs[own] = _rotated(inputs[own], float(angle) % 360)
    truth = Truth(jax.device_put(found), None)
    return data._replace(inputs=jax.device_put(inputs)), truth


def _rotated(
    images: Float[np.ndarray, "clients samples height width *channels"], angle: float
) -> Float[np.ndarray, "clients samples height width *channels"]:
    """Images of the same size, turned counter-clockwise by so many degrees."""
    turns, rest = divmod(angle, 90)
    if not rest:
        height, width = images.shape[2:4]
        if turns % 2 and height != width:
            raise ValueError(
                f"quarter turns need square images, got {height} x {width}; give other "
                "`angles`, such as 0 and 180."
            )
        return np.rot90(images, int(turns), axes=(2, 3))
    from scipy import ndimage  # Slow to import and seldom needed.

    return ndimage.rotate(images, angle, axes=(3, 2), reshape=False, order=1)


@ranged
def relabelled(
    data: ClientData,
    *,
    key: PRNGKeyArray,
    clusters: Sequence[int] | Int[np.ndarray | Array, " clients"],
    num_classes: int,
) -> tuple[ClientData, Truth]:
    """Concept shift: the labels of every cluster changed by a permutation of its own.

    Sattler et al., TNNLS 2021, section VI. Cluster 0 keeps its labels; the others'
    permutations are drawn uniformly among those that no earlier cluster has.

    Args:
      data: targets are labels `[clients, samples]`.
      key: a typed random key.
      clusters: of each client, such as `consecutive((5, 3))`.
      num_classes: C.

    Raises:
      ValueError: if targets are no labels of so many classes, clusters do not fit the
        clients, or there are more of them than permutations.
    """
    found = _checked_clusters(data, clusters)
    targets, number = labels_of(data, num_classes), int(found.max()) + 1
    random, maps = generator(key), [tuple(range(num_classes))]
    most = np.prod(np.arange(1, min(num_classes, 12) + 1))
    if number > most:
        raise ValueError(
            f"{num_classes} classes have {most} permutations, got {number} clusters."
        )
    while len(maps) < number:
        drawn = tuple(random.permutation(num_classes).tolist())
        maps += [drawn] * (drawn not in maps)
    changed = np.array(maps, targets.dtype)[found[:, None], targets]
    changed = np.where(np.asarray(data.mask), changed, 0)
    truth = Truth(jax.device_put(found), None)
    return data._replace(targets=jax.device_put(changed)), truth


def labels_of(data: ClientData, num_classes: int) -> Int[np.ndarray, "clients samples"]:
    """The targets; raises ValueError unless they are labels of so many classes."""
    targets = np.asarray(data.targets)
    is_label = targets.dtype.kind in "iu" and targets.shape == data.mask.shape
    if not is_label or targets.min() < 0 or targets.max() >= num_classes:
        raise ValueError(
            f"targets must be labels in 0..{num_classes - 1}, one for each sample, got "
            f"{targets.dtype} of shape {targets.shape} from {targets.min()} to "
            f"{targets.max()}."
        )
    return targets


Scene = tuple[ClientData, Truth]


def drifting(
    make: Callable[[Int[np.ndarray, " clients"]], Scene],
    clusters_from: Mapping[int, Sequence[int] | Int[np.ndarray, " clients"]],
) -> Callable[[int], Scene]:
    """Drift: clients whose cluster, and so their data, change at given rounds.

        at = cfl.data.drifting(
            lambda clusters: cfl.data.turned(data, clusters=clusters),
            {0: [0, 0, 1, 1], 20: [0, 1, 1, 1]},  # one client drifts in round 20
        )

    Args:
      make: from the clusters of all clients to their data and truth.
      clusters_from: from the first round on which they hold, one of which is 0, to the
        clusters.

    Returns:
      From a round, counted from 0, to the data and truth in it. Each is made once.
      For `cfl.run`, train in stretches, `at(20)[0]` from round 20 on by its `state` and
      `first_round`, or stack the rounds by `over_rounds`.

    Raises:
      ValueError: if nothing is said of round 0, or a round is negative; where it is
        called, if the round is negative.
    """
    rounds = sorted(clusters_from)
    if not rounds or rounds[0] != 0:
        raise ValueError(
            f"`clusters_from` must begin with round 0, got rounds {rounds}."
        )
    made: dict[int, Scene] = {}

    def at(round_index: int) -> Scene:
        if round_index < 0:
            raise ValueError(f"`round_index` must not be negative, got {round_index}.")
        first = max(begin for begin in rounds if begin <= round_index)
        if first not in made:
            made[first] = make(np.asarray(clusters_from[first]))
        return made[first]

    return at


@ranged
def over_rounds(
    at: Callable[[int], Scene], num_rounds: int
) -> tuple[ClientData, Int[Array, "rounds clients"]]:
    """Data of all rounds, for `cfl.run(..., data_per_round=True)`.

    Args:
      at: as of `drifting`.
      num_rounds: T, at least 1.

    Returns:
      Leaves `[rounds, clients, samples, ...]`, and the true clusters of each round.

    Raises:
      ValueError: if `num_rounds` is below 1, or shapes change from round to round.

    Cost: a copy of the data for each round.
    """
    scenes = [at(index) for index in range(num_rounds)]
    shapes = {tuple(leaf.shape for leaf in data) for data, _ in scenes}
    if len(shapes) > 1:
        raise ValueError(
            f"data must have the same shapes in all rounds, got {sorted(shapes)}."
        )
    datas = [data for data, _ in scenes]
    stack = lambda *leaves: jax.device_put(np.stack(leaves))
    clusters = np.stack([np.asarray(truth.clusters) for _, truth in scenes])
    return jax.tree.map(stack, *datas), jax.device_put(clusters)
