"""The eight worlds that all algorithms are compared in, out of one set of images.

All have the same numbers of clients, samples and classes, so that one program trains an
algorithm in each of them. Every client's samples are dealt out once, to train, to
validate and to test; no sample is used twice.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from cfljax.base import NO_CLUSTER, ClientData
from cfljax.data import (
    Images,
    Writers,
    blended,
    by_writer,
    consecutive,
    dirichlet_rows,
    dirichlet_shares,
    moves,
    relabelled,
    split_samples,
    turned,
)

NUM_CLUSTERS = 4
NUM_CLASSES = 10

# Of a stored trial the index counts: a new world goes to the end.
WORLDS = {
    "label_skew": "two classes a cluster",
    "dirichlet": "classes of each client by Dirichlet(.1)",
    "feature_rotation": "images turned by cluster",
    "concept_shift": "labels permuted by cluster",
    "mixture": "samples of each client of several concepts",
    "unequal_clusters": "turned, clusters of 8 : 4 : 2 : 2",
    "drift": "permuted, half the clients move halfway",
    "writers": "digits of FEMNIST by writer",
}
# Where nobody knows true clusters, or there are none.
WITHOUT_CLUSTERS = ("dirichlet", "mixture", "writers")
NEEDS_WRITERS = "writers"


class Sizes(NamedTuple):
    """How many of everything, the same in all worlds.

    One further client of each cluster never trains.
    """

    num_clients: int  # that train, a multiple of eight
    num_samples: int  # of a client, to train
    num_validation_samples: int
    num_test_samples: int

    @property
    def whole(self) -> int:
        """Samples of a client."""
        return self.num_samples + self.num_validation_samples + self.num_test_samples

    @property
    def everybody(self) -> int:
        """Clients, newcomers with them."""
        return self.num_clients + NUM_CLUSTERS


class Scene(NamedTuple):
    """One world: all clients, newcomers last, before and behind what may change."""

    before: ClientData
    behind: ClientData
    clusters: Int[np.ndarray, " clients"]  # true ones, behind; `NO_CLUSTER` if unknown


class Clients(NamedTuple):
    """What trials use, leaves `[worlds * seeds, ...]`, seeds varying fastest."""

    inputs: Float[Array, "cells clients samples ..."]  # to train on
    targets: Int[Array, "cells 2 clients samples"]  # before and behind the change
    mask: Bool[Array, "cells clients samples"]
    clusters: Int[Array, "cells clients"]  # `NO_CLUSTER` where nobody knows them
    validation: ClientData
    test: ClientData
    new_train: ClientData
    new_test: ClientData


@dataclasses.dataclass(frozen=True)
class Pool:
    """Labelled images to be dealt out, and those of writers, of the same size."""

    inputs: Float[np.ndarray, "samples height width"]  # ink 1, paper 0
    labels: Int[np.ndarray, " samples"]
    writers: Writers | None  # whose digits alone are there; None if not found


def pool_of(images: Images, writers: Writers | None) -> Pool:
    """All images of a set, training and test, and the digits of writers."""
    inputs = np.concatenate([images.train_inputs, images.test_inputs])
    labels = np.concatenate([images.train_labels, images.test_labels])
    scaled = inputs.astype(np.float32) / np.float32(255)
    own = None if writers is None else _digits(writers, inputs.shape[1])
    return Pool(scaled, labels.astype(np.int32), own)


def _digits(writers: Writers, size: int) -> Writers:
    """The digits among the characters, of images as large as the others."""
    parts: dict[str, Any] = {"num_classes": NUM_CLASSES}
    for split in ("train", "test"):
        names = [f"{split}_{what}" for what in ("inputs", "labels", "writers")]
        inputs, labels, whose = (np.asarray(getattr(writers, name)) for name in names)
        kept = labels < NUM_CLASSES
        small = _shrunk(inputs[kept], size)
        parts |= zip(names, (small, labels[kept], whose[kept]), strict=True)
    return dataclasses.replace(writers, **parts)


def _shrunk(images: np.ndarray, size: int) -> np.ndarray:
    """Means over squares of the middle, as many pixels a side as asked for."""
    side = images.shape[1] // size
    margin = (images.shape[1] - side * size) // 2
    middle = images[:, margin : margin + side * size, margin : margin + side * size]
    blocks = middle.reshape(-1, size, side, size, side).mean(axis=(2, 4))
    return np.rint(blocks).astype(np.uint8)


def worlds_of(pool: Pool) -> list[str]:
    """The worlds that can be made."""
    return [
        name for name in WORLDS if name != NEEDS_WRITERS or pool.writers is not None
    ]


def draw_clients(pool: Pool, sizes: Sizes, *, seed: int, repetitions: int) -> Clients:
    """The data of all worlds and seeds; each follows from the seed, the world and the
    number of the repetition alone. A world that cannot be made is left zero.

    Raises:
      ValueError: if the samples do not suffice.

    Cost: float32 pixels of all cells.
    """
    key = jax.random.fold_in(jax.random.key(seed), 1)  # Runs draw from 0.
    made, found = worlds_of(pool), []
    for index, world in enumerate(WORLDS):
        for repetition in range(repetitions):
            own = jax.random.fold_in(jax.random.fold_in(key, index), repetition)
            there = world in made
            cell = _cell(
                scene(world if there else made[0], pool, sizes, own), own, sizes
            )
            found.append(cell if there else jax.tree.map(np.zeros_like, cell))
    return jax.device_put(jax.tree.map(lambda *leaves: np.stack(leaves), *found))


def _cell(own: Scene, key: PRNGKeyArray, sizes: Sizes) -> Clients:
    """One world, its samples dealt out to train, to validate and to test."""
    part_key = jax.random.fold_in(key, 99)
    before, behind = (split(data, part_key, sizes) for data in (own.before, own.behind))
    old, new = slice(sizes.num_clients), slice(sizes.num_clients, None)
    take = lambda data, rows: ClientData(*(leaf[rows] for leaf in data))
    train = take(behind[0], old)
    return Clients(
        inputs=train.inputs,
        targets=jax.device_put(np.stack([before[0].targets[old], train.targets])),
        mask=train.mask,
        clusters=jax.device_put(own.clusters[old]),
        validation=take(behind[1], old),
        test=take(behind[2], old),
        new_train=take(behind[0], new),
        new_test=take(behind[2], new),
    )


def split(
    data: ClientData, key: PRNGKeyArray, sizes: Sizes
) -> tuple[ClientData, ClientData, ClientData]:
    """Every client's samples in a random order, dealt out in the proportions of the
    sizes. The draw is of the mask alone."""
    widths = (sizes.num_samples, sizes.num_validation_samples, sizes.num_test_samples)
    parts = split_samples(key, data, [width / sizes.whole for width in widths])
    train, validation, test = map(_widened, parts, widths)
    return train, validation, test


def _widened(data: ClientData, width: int) -> ClientData:
    """The same with padding up to so many samples."""
    missing = width - data.mask.shape[1]

    def padded(leaf: Array) -> np.ndarray:
        return np.pad(leaf, [(0, 0), (0, missing), *[(0, 0)] * (leaf.ndim - 2)])

    return ClientData(*jax.device_put(tuple(map(padded, data))))


def scene(world: str, pool: Pool, sizes: Sizes, key: PRNGKeyArray) -> Scene:
    """The clients of a world.

    Raises:
      ValueError: if the samples do not suffice.
    """
    number, unknown = sizes.everybody, np.full(sizes.everybody, NO_CLUSTER, np.int32)
    even = members(sizes, (1, 1, 1, 1))
    if world == "writers":
        return _still(_by_writers(pool, sizes, key), unknown)
    if world == "dirichlet":
        dealt = dirichlet_rows(
            pool.labels,
            key=key,
            num_clients=number,
            concentration=0.1,
            min_samples=min(10, sizes.whole),
        )
        return _still(
            _filled(pool, [own.tolist() for own in dealt.rows], sizes, key), unknown
        )
    if world == "label_skew":
        return _still(
            _filled(pool, _by_class(pool, even, sizes, key), sizes, key), even
        )
    plain = _filled(pool, _alike(pool, sizes, key), sizes, key)
    permuted = lambda data, own: relabelled(
        data, key=key, clusters=own, num_classes=NUM_CLASSES
    )
    if world == "mixture":
        shares = dirichlet_shares(
            key, num_clients=number, num_clusters=NUM_CLUSTERS, concentration=0.4
        )
        data, _ = blended(plain, key=key, shares=shares, see=permuted)
        return _still(data, unknown)
    if world == "concept_shift":
        return _still(permuted(plain, even)[0], even)
    if world == "drift":
        after = moves(even, key=key, num_rounds=2, begin=1)[1]
        return Scene(permuted(plain, even)[0], permuted(plain, after)[0], after)
    own = members(sizes, (4, 2, 1, 1)) if world == "unequal_clusters" else even
    return _still(turned(plain, clusters=own)[0], own)


def members(sizes: Sizes, parts: tuple[int, ...]) -> Int[np.ndarray, " clients"]:
    """The cluster of each client in these proportions, newcomers of each one last."""
    each = [sizes.num_clients * part // sum(parts) for part in parts]
    newcomers = np.arange(NUM_CLUSTERS, dtype=np.int32)
    return np.concatenate([consecutive(each), newcomers])


def _still(data: ClientData, clusters: Int[np.ndarray, " clients"]) -> Scene:
    return Scene(data, data, clusters)


def _random(key: PRNGKeyArray) -> np.random.Generator:
    return np.random.default_rng([*np.asarray(jax.random.key_data(key)).tolist(), 7])


def _alike(pool: Pool, sizes: Sizes, key: PRNGKeyArray) -> list[list[int]]:
    """Rows of clients of one law."""
    needed = sizes.everybody * sizes.whole
    if len(pool.labels) < needed:
        raise ValueError(
            f"{sizes.everybody} clients of {sizes.whole} samples need {needed}, got "
            f"{len(pool.labels)}; ask for fewer clients or samples."
        )
    order = _random(key).permutation(len(pool.labels))[:needed]
    return order.reshape(sizes.everybody, sizes.whole).tolist()


def _by_class(
    pool: Pool, clusters: Int[np.ndarray, " clients"], sizes: Sizes, key: PRNGKeyArray
) -> list[list[int]]:
    """Rows of clients whose cluster has two classes that no other has."""
    random = _random(key)
    classes = random.permutation(NUM_CLASSES)
    rows: list[list[int]] = [[] for _ in clusters]
    for cluster in range(NUM_CLUSTERS):
        own = np.isin(pool.labels, classes[2 * cluster : 2 * cluster + 2])
        order, whose = random.permutation(np.flatnonzero(own)), clusters == cluster
        if len(order) < whose.sum() * sizes.whole:
            raise ValueError(
                f"two classes have {len(order)} samples, {whose.sum()} clients of "
                f"{sizes.whole} need {whose.sum() * sizes.whole}; ask for fewer."
            )
        for place, client in enumerate(np.flatnonzero(whose)):
            start = place * sizes.whole
            rows[client] = order[start : start + sizes.whole].tolist()
    return rows


def _filled(
    pool: Pool, rows: list[list[int]], sizes: Sizes, key: PRNGKeyArray
) -> ClientData:
    """Clients of these rows, of some of them where there are more than they take."""
    random = _random(key)
    shape = (sizes.everybody, sizes.whole)
    inputs = np.zeros((*shape, *pool.inputs.shape[1:]), np.float32)
    targets, mask = np.zeros(shape, np.int32), np.zeros(shape, bool)
    for client, own in enumerate(rows):
        chosen = random.permutation(own)[: sizes.whole]
        inputs[client, : len(chosen)] = pool.inputs[chosen]
        targets[client, : len(chosen)] = pool.labels[chosen]
        mask[client, : len(chosen)] = True
    return ClientData(*jax.device_put((inputs, targets, mask)))


def _by_writers(pool: Pool, sizes: Sizes, key: PRNGKeyArray) -> ClientData:
    """Clients of one writer each, with all of their digits that they take."""
    assert pool.writers is not None
    parts = by_writer(
        pool.writers, num_clients=sizes.everybody, min_samples=10, key=key, invert=True
    )
    both = [np.concatenate([np.asarray(p[i]) for p in parts], axis=1) for i in range(3)]
    inputs, targets, mask = both
    own = Pool(inputs.reshape(-1, *inputs.shape[2:]), targets.ravel(), None)
    places = np.arange(mask.size).reshape(mask.shape)
    rows = [places[client][kept].tolist() for client, kept in enumerate(mask)]
    return _filled(own, rows, sizes, key)
