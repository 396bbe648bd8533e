"""Who takes how many samples, and clients made of the rows that they take.

Partitions whose sizes are drawn run on the host, in NumPy: shapes follow from values.
What is random is decided by a key of JAX all the same.
"""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Num, PRNGKeyArray

from cfljax.data.images import Images
from cfljax.data.samples import Samples
from cfljax.types import ClientData, Truth

__all__ = [
    "Rows",
    "Shared",
    "Sizes",
    "Split",
    "count_classes",
    "fill",
    "generator",
    "splits",
]

Rows = Int[np.ndarray, "_"]  # Indices of samples, or their labels.
Shared = tuple[ClientData, Truth, ClientData, Truth]


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How many clients there are, and how many samples they take.

    num_clients: training clients, a multiple of the number of clusters.
    num_samples: samples that a training client takes where its cluster has them.
    num_test_clients: clients that share out the test samples, likewise.
    num_test_samples: of a test client; `num_samples` if None.
    min_samples: samples that every training client has at least; `num_samples` if
      None, so that all have the same number.
    min_test_samples: likewise.

    Raises:
      ValueError: if a number is below 1, or a least number above the number.
    """

    num_clients: int
    num_samples: int
    num_test_clients: int
    num_test_samples: int | None = None
    min_samples: int | None = None
    min_test_samples: int | None = None

    def __post_init__(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            if value is not None and value < 1:
                raise ValueError(f"`{name}` must be at least 1, got {value}.")
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


@dataclasses.dataclass(frozen=True)
class Split:
    """One split and what its clients take.

    name: "training" or "test", for messages.
    strata: `[samples]`, the class (or group) that decides whose a sample may become.
    size: clients of a cluster.
    num_samples: samples that a client takes.
    min_samples: samples that it has at least.
    """

    name: str
    strata: Int[np.ndarray, " samples"]
    size: int
    num_samples: int
    min_samples: int


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
      ValueError: if the clients do not split into equal clusters.
    """
    found = []
    for name, own, clients, samples, least in (
        ("training", strata[0], sizes.num_clients, sizes.num_samples, 0),
        ("test", strata[1], sizes.num_test_clients, sizes.test_samples, 1),
    ):
        if clients % num_clusters:
            raise ValueError(
                f"the number of {name} clients must be a multiple of the number of "
                f"clusters, got {clients} clients and {num_clusters} clusters."
            )
        minimum = (sizes.min_samples, sizes.min_test_samples)[least] or samples
        size = clients // num_clusters
        found.append(Split(name, np.asarray(own), size, samples, minimum))
    return found[0], found[1]


def fill(
    samples: Images | Samples,
    rows: Sequence[Sequence[Rows]],
    num_clusters: int,
    maps: Int[np.ndarray, "clusters classes"] | None = None,
) -> Shared:
    """Clients of both splits and their clusters.

    Args:
      samples: what is shared out.
      rows: of every training client and of every test client, those of one cluster
        consecutive.
      num_clusters: k.
      maps: the label that each cluster gives to each class; None leaves them.
    """
    found = []
    for inputs, labels, own in (
        (samples.train_inputs, samples.train_labels, rows[0]),
        (samples.test_inputs, samples.test_labels, rows[1]),
    ):
        clusters = np.repeat(np.arange(num_clusters), len(own) // num_clusters)
        targets = [np.asarray(labels)[chosen] for chosen in own]
        if maps is not None:
            pairs = zip(clusters, targets, strict=True)
            targets = [maps[cluster][label] for cluster, label in pairs]
        truth = Truth(clusters=jnp.asarray(clusters, jnp.int32), models=None)
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
    return ClientData(jnp.asarray(filled), jnp.asarray(labels), jnp.asarray(mask))
