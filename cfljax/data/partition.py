"""Partitions of real images among clients, with the true cluster of each."""

import dataclasses
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Num, PRNGKeyArray, UInt8

from cfljax.base.checks import check_cluster_sizes, check_positive
from cfljax.base.ranges import ranged
from cfljax.base.types import ClientData, Truth
from cfljax.data.images import Images, Samples


@ranged
def rotated(
    images: Images,
    *,
    key: PRNGKeyArray,
    num_clients: int,
    num_samples: int,
    num_clusters: int,
    num_test_clients: int,
    num_test_samples: int | None = None,
    cluster_sizes: Sequence[int] | None = None,
    test_cluster_sizes: Sequence[int] | None = None,
) -> tuple[ClientData, Truth, ClientData, Truth]:
    """Clients whose images are rotated by a multiple of 90 degrees, their cluster's.

    Ghosh et al. 2020, section 6.2 (Rotated MNIST, Rotated CIFAR). Every cluster owns
    a copy of all images, turned counter-clockwise by `360 / num_clusters` degrees
    times its index; its clients hold disjoint samples of that copy, drawn without
    replacement. The paper's sizes use the copy up: `num_clients * num_samples =
    60000 * num_clusters`. Clients of one cluster are consecutive.

    Pixels are divided by 255 and not normalised further. The draw depends on `key`
    and the cluster alone. Everything but the sizes may be traced.

    Args:
      images: the images to share out. Inside jit, pass its arrays as arguments of
        the compiled function, or they become constants of the program.
      key: a typed random key.
      num_clients: training clients m, a multiple of `num_clusters` unless
        `cluster_sizes` are given.
      num_samples: samples n of a training client.
      num_clusters: k, one of 1, 2 and 4.
      num_test_clients: clients that share out the test images, likewise.
      num_test_samples: samples of a test client; `num_samples` if None.
      cluster_sizes: training clients of each cluster, of sum m; equal ones if None.
      test_cluster_sizes: likewise.

    Returns:
      Training clients, their truth, test clients, their truth. Inputs are
      `[clients, samples, height, width(, channels)]` in `[0, 1]`, targets the labels
      and masks all true.

    Raises:
      ValueError: if the clients do not split into equal clusters, if the images do
        not suffice, or if quarter turns are asked of images that are not square.

    Cost: float32 pixels, 4 bytes each: 750 MB for the paper's 240,000 images.
    """
    train_key, test_key = jax.random.split(key)
    train, truth = _share_out(
        train_key,
        jnp.asarray(images.train_inputs),
        jnp.asarray(images.train_labels),
        num_clients=num_clients,
        num_samples=num_samples,
        num_clusters=num_clusters,
        cluster_sizes=cluster_sizes,
        split="training",
    )
    test, test_truth = _share_out(
        test_key,
        jnp.asarray(images.test_inputs),
        jnp.asarray(images.test_labels),
        num_clients=num_test_clients,
        num_samples=num_samples if num_test_samples is None else num_test_samples,
        num_clusters=num_clusters,
        cluster_sizes=test_cluster_sizes,
        split="test",
    )
    return train, truth, test, test_truth


def _share_out(
    key: PRNGKeyArray,
    inputs: UInt8[Array, "images height width *channels"],
    labels: Int[Array, " images"],
    *,
    num_clients: int,
    num_samples: int,
    num_clusters: int,
    cluster_sizes: Sequence[int] | None,
    split: str,
) -> tuple[ClientData, Truth]:
    """Clients of one split, cluster after cluster."""
    if cluster_sizes is None:
        _check_sizes(inputs.shape, num_clients, num_samples, num_clusters, split)
        cluster_sizes = (num_clients // num_clusters,) * num_clusters
    else:
        check_cluster_sizes(
            cluster_sizes, num_clusters=num_clusters, num_clients=num_clients
        )
        most = max(cluster_sizes) * num_clusters  # If all were as large as the largest.
        _check_sizes(inputs.shape, most, num_samples, num_clusters, split)
    pixels, targets = [], []
    for cluster, size in enumerate(cluster_sizes):
        order = jax.random.permutation(
            jax.random.fold_in(key, cluster), inputs.shape[0]
        )
        chosen = order[: size * num_samples].reshape(size, num_samples)
        turns = cluster * 4 // num_clusters
        pixels.append(jnp.rot90(inputs[chosen], turns, axes=(2, 3)))
        targets.append(labels[chosen])
    mask = jnp.ones((num_clients, num_samples), bool)
    shares = jnp.concatenate(pixels).astype(jnp.float32) / 255
    clusters = jnp.asarray(np.repeat(np.arange(num_clusters), cluster_sizes))
    data = ClientData(inputs=shares, targets=jnp.concatenate(targets), mask=mask)
    return data, Truth(clusters=clusters, models=None)


def _check_sizes(
    shape: tuple[int, ...],
    num_clients: int,
    num_samples: int,
    num_clusters: int,
    split: str,
) -> None:
    """Raise ValueError unless the images of one split can be shared out so."""
    if num_clusters not in (1, 2, 4):
        raise ValueError(f"`num_clusters` must be 1, 2 or 4, got {num_clusters}.")
    if num_samples < 1:
        raise ValueError(f"{split} `num_samples` must be positive, got {num_samples}.")
    if num_clients < num_clusters or num_clients % num_clusters:
        raise ValueError(
            f"the number of {split} clients must be a positive multiple of "
            f"`num_clusters`, got {num_clients} clients and {num_clusters} clusters."
        )
    if num_clusters == 4 and shape[1] != shape[2]:
        raise ValueError(
            f"quarter turns need square images, got {shape[1]} x {shape[2]}; use "
            "`num_clusters` 1 or 2."
        )
    needed = num_clients * num_samples // num_clusters
    if needed > shape[0]:
        samples = shape[0] * num_clusters // num_clients
        clients = shape[0] // num_samples * num_clusters
        raise ValueError(
            f"{num_clients} {split} clients of {num_samples} samples in "
            f"{num_clusters} clusters need {needed} {split} images per cluster, got "
            f"{shape[0]}; at most {samples} samples would fit these clients, or "
            f"{clients} clients these samples."
        )


_STEP = 0.05  # By which the reserve is raised until all clusters have enough.


def proportions(
    random: np.random.Generator,
    owned: Bool[np.ndarray, "clusters classes"],
    concentration: float | None,
    weights: Sequence[int],
) -> Float[np.ndarray, "clusters classes"]:
    """Each cluster's share of each class's samples, evenly without a concentration;
    columns add up to 1, or to 0 where no cluster has the class. Means of a draw are
    those of an even division by `weights`, clients of each cluster."""
    shares = even_shares(owned, weights)
    if concentration is None:
        return shares
    for label, owners in enumerate(owned.T):
        if np.any(owners):
            own = np.asarray(weights)[owners]
            alpha = concentration * (own / np.mean(own))
            shares[owners, label] = random.dirichlet(alpha)
    return shares


def even_shares(
    owned: Bool[np.ndarray, "clusters classes"], weights: Sequence[int]
) -> Float[np.ndarray, "clusters classes"]:
    """Shares of a class in proportion to the weights of the clusters that have it."""
    weighed = owned * np.asarray(weights)[:, None]
    return weighed / np.maximum(np.sum(weighed, axis=0), 1)


Cuts = Int[np.ndarray, "clusters_and_one classes"]


def cuts_of(
    shares: Float[np.ndarray, "clusters classes"], strata: Int[np.ndarray, " samples"]
) -> Cuts:
    """Where each class's samples are cut into the shares of the clusters."""
    counts = _counts(shares, strata)
    ends = np.rint(np.cumsum(shares, axis=0) * counts).astype(np.int64)
    return np.concatenate([np.zeros_like(ends[:1]), ends])


def _level_cuts(
    owned: Bool[np.ndarray, "clusters classes"],
    strata: Int[np.ndarray, " samples"],
    weights: Sequence[int],
) -> Cuts:
    """Even cuts whose remainders go to the clusters whose clients have least so far."""
    counts, weighed = _counts(owned, strata), owned * np.asarray(weights)[:, None]
    owners = np.sum(weighed, axis=0)
    parts = weighed * counts // np.maximum(owners, 1)
    for label in np.flatnonzero(owners):
        own = np.flatnonzero(owned[:, label])
        each = np.sum(parts[own], axis=1) / np.asarray(weights)[own]
        least = own[np.argsort(each, kind="stable")]
        parts[least[: counts[label] - np.sum(parts[:, label])], label] += 1
    return np.concatenate([np.zeros_like(parts[:1]), np.cumsum(parts, axis=0)])


def _counts(
    shares: Num[np.ndarray, "clusters classes"] | Bool[np.ndarray, "clusters classes"],
    strata: Int[np.ndarray, " samples"],
) -> Int[np.ndarray, " classes"]:
    """Number of samples of each class."""
    return np.bincount(strata, minlength=shares.shape[1])[: shares.shape[1]]


@dataclasses.dataclass(frozen=True)
class Split:
    """One split and what its clients take.

    name: "training" or "test", for messages.
    strata: `[samples]`, the class (or group) that decides whose a sample may become.
    cluster_sizes: clients of each cluster.
    num_samples: samples that a client takes.
    min_samples: samples that it has at least.
    """

    name: str
    strata: Int[np.ndarray, " samples"]
    cluster_sizes: tuple[int, ...]
    num_samples: int
    min_samples: int

    @property
    def clusters(self) -> Int[np.ndarray, " clients"]:
        """Of each client; those of one cluster are consecutive."""
        return np.repeat(np.arange(len(self.cluster_sizes)), self.cluster_sizes)


Rows = Int[np.ndarray, "_"]  # Indices of samples, or their labels.


def pools(
    random: np.random.Generator, cuts: Cuts, strata: Int[np.ndarray, " samples"]
) -> list[Rows]:
    """Rows of the samples that each cluster has, no row in two of them."""
    found: list[list[np.ndarray]] = [[] for _ in cuts[1:]]
    for label in range(cuts.shape[1]):
        rows = random.permutation(np.flatnonzero(strata == label))
        parts = np.split(rows, cuts[1:, label])[:-1]
        for cluster, part in zip(found, parts, strict=True):
            cluster.append(part)
    return [np.concatenate(parts) for parts in found]


def _pool_sizes(cuts: Cuts) -> Int[np.ndarray, " clusters"]:
    """Number of samples that `pools` would give each cluster."""
    return np.sum(np.diff(cuts, axis=0), axis=1)


def _deal(
    random: np.random.Generator, pool: Rows, size: int, num_samples: int
) -> list[Rows]:
    """Rows of each client of one cluster; they share evenly what is too little."""
    taken = random.permutation(pool)[: size * num_samples]
    return np.array_split(taken, size)


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How many clients there are, and how many samples they take.

    num_clients: training clients, a multiple of the number of clusters unless
      `cluster_sizes` are given.
    num_samples: samples that a training client takes where its cluster has them.
    num_test_clients: clients that share out the test samples, likewise.
    num_test_samples: of a test client; `num_samples` if None.
    min_samples: samples that every training client has at least; `num_samples` if
      None, so that all have the same number.
    min_test_samples: likewise.
    cluster_sizes: training clients of each cluster, of sum `num_clients`; equal ones if
      None. What is divided evenly among clusters is so in these proportions.
    test_cluster_sizes: likewise; None for the proportions of `cluster_sizes`, which
      `num_test_clients` must then be a multiple of.

    Raises:
      ValueError: if a number is below 1, a least number above the number, or sizes do
        not add up.
    """

    num_clients: int
    num_samples: int
    num_test_clients: int
    num_test_samples: int | None = None
    min_samples: int | None = None
    min_test_samples: int | None = None
    cluster_sizes: tuple[int, ...] | None = None
    test_cluster_sizes: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        numbers = dataclasses.asdict(self)
        for name, total in (
            ("cluster_sizes", "num_clients"),
            ("test_cluster_sizes", "num_test_clients"),
        ):
            if (sizes := numbers.pop(name)) is not None:
                check_cluster_sizes(sizes, **{total: numbers[total]}, name=name)
        check_positive(**numbers)
        for name, least, most in (
            ("min_samples", self.min_samples, self.num_samples),
            ("min_test_samples", self.min_test_samples, self.test_samples),
        ):
            if least is not None and least > most:
                raise ValueError(f"`{name}` must be at most {most}, got {least}.")

    @property
    def test_samples(self) -> int:
        """Samples that a test client takes."""
        if self.num_test_samples is None:
            return self.num_samples
        return self.num_test_samples


def rows_by_class(
    strata: tuple[np.ndarray, np.ndarray],
    key: PRNGKeyArray,
    owned: Bool[np.ndarray, "clusters classes"],
    sizes: Sizes,
    concentration: float | None,
    reserve: float,
) -> tuple[list[list[np.ndarray]], list[Int[np.ndarray, "_"]]]:
    """Rows of every training client, and of every test client, no row in two, and the
    clusters of both.

    Args:
      strata: class of every training sample and of every test sample.
      key: a typed random key.
      owned: which classes a cluster has; their samples are divided among those who do.
      sizes: how many clients there are and what they take.
      concentration: of the Dirichlet law that divides a class, the same draw for both
        splits; None divides evenly.
      reserve: the least part of a class that is divided evenly.

    Raises:
      ValueError: if the clients do not split into clusters, the samples do not
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
    drawn = proportions(random, owned, concentration, both[0].cluster_sizes)
    cuts = _sufficient(drawn, owned, both, reserve)
    rows = [
        [
            rows
            for pool, size in zip(
                pools(random, split_cuts, own.strata), own.cluster_sizes, strict=True
            )
            for rows in _deal(random, pool, size, own.num_samples)
        ]
        for own, split_cuts in zip(both, cuts, strict=True)
    ]
    return rows, [own.clusters for own in both]


def _sufficient(
    drawn: Float[np.ndarray, "clusters classes"],
    owned: Bool[np.ndarray, "clusters classes"],
    both: tuple[Split, Split],
    reserve: float,
) -> list[Cuts]:
    """Cuts of both splits by shares as drawn, but for the least reserve with which all
    clusters suffice; where even shares do not, only because they are rounded class by
    class, by what evens the clusters out.
    """
    even = even_shares(owned, both[0].cluster_sizes)
    for raised in [*np.arange(reserve, 1, _STEP), 1.0]:
        shares = raised * even + (1 - raised) * drawn
        found = [cuts_of(shares, own.strata) for own in both]
        if all(map(_suffices, both, found)):
            return found
    least = lambda cuts, own: np.min(_pool_sizes(cuts) / np.array(own.cluster_sizes))
    found = [  # The last shares were even.
        max(
            cuts,
            _level_cuts(owned, own.strata, own.cluster_sizes),
            key=lambda cuts, own=own: least(cuts, own),
        )
        for own, cuts in zip(both, found, strict=True)
    ]
    for own, cuts in zip(both, found, strict=True):
        if not _suffices(own, cuts):
            sizes, needed = np.array(own.cluster_sizes), own.min_samples
            worst = int(np.argmin(_pool_sizes(cuts) / sizes))
            clients, size = sizes[worst], int(_pool_sizes(cuts)[worst])
            raise ValueError(
                f"{clients} {own.name} clients of {needed} samples need "
                f"{clients * needed} {own.name} samples in every cluster, got {size} "
                f"in one; at most {size // clients} samples would fit these clients, "
                f"or {size // needed} clients a cluster these samples."
            )
    return found


def _suffices(own: Split, cuts: Cuts) -> bool:
    """Whether every cluster has what its clients need."""
    needed = np.array(own.cluster_sizes) * own.min_samples
    return bool(np.all(_pool_sizes(cuts) >= needed))


Shared = tuple[ClientData, Truth, ClientData, Truth]


def generator(key: PRNGKeyArray) -> np.random.Generator:
    """NumPy's generator, seeded by a typed key of JAX."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel().tolist())


def count_classes(strata: Sequence[Int[np.ndarray, "_"]]) -> int:
    """Number of classes: one more than the largest label of either split.

    Raises:
      ValueError: if a split is empty or a label negative.
    """
    if not all(len(labels) for labels in strata):
        raise ValueError("`samples` must have training and test samples, got none.")
    least = min(int(labels.min()) for labels in strata)
    if least < 0:
        raise ValueError(f"labels of `samples` must not be negative, got {least}.")
    return 1 + max(int(labels.max()) for labels in strata)


def splits(
    sizes: Sizes, num_clusters: int, strata: Sequence[Int[np.ndarray | Array, "_"]]
) -> tuple[Split, Split]:
    """Training and test split.

    Args:
      sizes: of all clients.
      num_clusters: k.
      strata: of the training and of the test samples.

    Raises:
      ValueError: if the clients do not split into so many clusters.
    """
    found = []
    train, test = sizes.cluster_sizes, sizes.test_cluster_sizes
    for name, own, clients, samples, least, given in (
        ("training", strata[0], sizes.num_clients, sizes.num_samples, 0, train),
        ("test", strata[1], sizes.num_test_clients, sizes.test_samples, 1, test),
    ):
        minimum = (sizes.min_samples, sizes.min_test_samples)[least] or samples
        each = _sizes_of(name, clients, num_clusters, given, train)
        found.append(Split(name, np.asarray(own), each, samples, minimum))
    return found[0], found[1]


def _sizes_of(
    name: str,
    num_clients: int,
    num_clusters: int,
    given: tuple[int, ...] | None,
    train: tuple[int, ...] | None,
) -> tuple[int, ...]:
    """Clients of each cluster of a split: as given, else as those that train."""
    if given is not None:
        check_cluster_sizes(given, num_clusters=num_clusters)
        return tuple(given)
    shares = (1,) * num_clusters if train is None else train
    check_cluster_sizes(shares, num_clusters=num_clusters)
    divisor = math.gcd(*shares)
    units = [share // divisor for share in shares]
    if num_clients % sum(units):
        what = "clusters" if train is None else "`cluster_sizes`' parts"
        raise ValueError(
            f"the number of {name} clients must be a multiple of the number of "
            f"{what}, got {num_clients} clients and {sum(units)} {what}."
        )
    return tuple(unit * (num_clients // sum(units)) for unit in units)


def fill(
    samples: Images | Samples,
    rows: Sequence[Sequence[Rows]],
    clusters: Sequence[Int[np.ndarray, "_"]],
    maps: Int[np.ndarray, "clusters classes"] | None = None,
) -> Shared:
    """Clients of both splits and their clusters.

    Args:
      samples: what is shared out.
      rows: of every training client and of every test client.
      clusters: of every training client and of every test client.
      maps: the label that each cluster gives to each class; None leaves them.
    """
    found = []
    for inputs, labels, own, groups in (
        (samples.train_inputs, samples.train_labels, rows[0], clusters[0]),
        (samples.test_inputs, samples.test_labels, rows[1], clusters[1]),
    ):
        targets = [np.asarray(labels)[chosen] for chosen in own]
        if maps is not None:
            pairs = zip(groups, targets, strict=True)
            targets = [maps[cluster][label] for cluster, label in pairs]
        truth = Truth(clusters=jax.device_put(groups.astype(np.int32)), models=None)
        found += [_padded(np.asarray(inputs), targets, own), truth]
    return found[0], found[1], found[2], found[3]


def _padded(
    inputs: Num[np.ndarray, "samples *shape"],
    targets: Sequence[Rows],
    rows: Sequence[Rows],
) -> ClientData:
    """Clients of the rows, then zeros; bytes are pixels, which are divided by 255."""
    is_pixels = inputs.dtype == np.uint8
    shape = (len(rows), max(len(own) for own in rows))
    dtype = np.float32 if is_pixels else inputs.dtype
    filled = np.zeros((*shape, *inputs.shape[1:]), dtype)
    labels, mask = np.zeros(shape, np.int32), np.zeros(shape, bool)
    for client, own in enumerate(rows):
        chosen = inputs[own]
        filled[client, : len(own)] = chosen / np.float32(255) if is_pixels else chosen
        labels[client, : len(own)] = targets[client]
        mask[client, : len(own)] = True
    return ClientData(*jax.device_put((filled, labels, mask)))
