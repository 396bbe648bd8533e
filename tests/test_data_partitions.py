"""Partitions by label, feature and group: whose the samples are; refusals."""

import collections
import dataclasses
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from cfljax.data import (
    SWAPS,
    Images,
    Samples,
    Sizes,
    all_but_one_class,
    all_classes,
    by_group,
    check_clients,
    dominated,
    feature_skewed,
    label_skewed,
    label_swapped,
    load_images,
    overlapping_classes,
    partition,
    rotated,
    unique_classes,
)

KEY = jax.random.key(0)
SIZES = Sizes(num_clients=10, num_samples=8, num_test_clients=5, num_test_samples=4)


def numbered(
    num_train: int = 400, num_test: int = 100, num_classes: int = 10
) -> Samples:
    """Samples that carry their own number, negative in the test."""
    train, test = np.arange(1, 1 + num_train), -np.arange(1, 1 + num_test)
    return Samples(
        train_inputs=np.stack([train, train], axis=1).astype(np.int32),
        train_labels=(train % num_classes).astype(np.int32),
        test_inputs=np.stack([test, test], axis=1).astype(np.int32),
        test_labels=(-test % num_classes).astype(np.int32),
        source="test",
    )


def checked(shared, sizes: Sizes = SIZES):
    """Clients, once no sample is used twice and the rest is as it should be."""
    train, truth, test, test_truth = shared
    for data, true, sign in ((train, truth, 1), (test, test_truth, -1)):
        check_clients(data, num_classes=10)
        numbers = np.asarray(data.inputs)[np.asarray(data.mask)][:, 0]
        assert len(set(numbers.tolist())) == len(numbers)
        assert np.all(np.sign(numbers) == sign)
        assert np.all(np.diff(true.clusters) >= 0) and true.models is None
        assert len(set(np.bincount(true.clusters).tolist())) == 1
    assert train.mask.shape[0] == sizes.num_clients
    return train, np.asarray(truth.clusters), test, np.asarray(test_truth.clusters)


def counts(data, clusters) -> np.ndarray:
    """Samples of each class that each cluster has."""
    found = np.zeros((clusters.max() + 1, 10), int)
    owners, samples = np.nonzero(np.asarray(data.mask))
    np.add.at(found, (clusters[owners], np.asarray(data.targets)[owners, samples]), 1)
    return found


def skewed(samples=None, sizes: Sizes = SIZES, **changes):
    """Partition by the classes of five clusters, two each, unless changed."""
    arguments: dict[str, Any] = {"key": KEY, "classes": unique_classes(10, 5)}
    return label_skewed(samples or numbered(), sizes=sizes, **(arguments | changes))


def swapped(*swaps, sizes: Sizes = SIZES):
    return label_swapped(numbered(), key=KEY, sizes=sizes, swaps=swaps)


def dominant(samples=None, num_clusters: int = 5, sizes: Sizes = SIZES, **changes):
    arguments: dict[str, Any] = {"key": KEY, "num_clusters": num_clusters}
    return dominated(samples or numbered(), sizes=sizes, **arguments, **changes)


# Classes of the clusters, against equations
def test_the_sets_of_the_released_code():
    assert unique_classes(10, 5) == ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))
    every = set(range(10))
    missing = [sorted(every - set(own)) for own in all_but_one_class(10, 5)]
    assert missing == [[9], [0], [1], [2], []]
    assert all(len(own) == len(set(own)) for own in all_but_one_class(10, 11))
    assert len(set(all_but_one_class(10, 11))) == 11
    for pairs in SWAPS:
        assert len({label for pair in pairs for label in pair}) == 4


def in_common(sets) -> list[int]:
    """Numbers of classes that any two clusters share."""
    return [len(set(a) & set(b)) for a, b in itertools.combinations(sets, 2)]


def test_overlaps_of_neighbours_and_of_any_two():
    ring = overlapping_classes(10, 5)
    assert ring[:2] == ((0, 1, 2, 3), (2, 3, 4, 5)) and ring[4] == (0, 1, 8, 9)
    neighbours = zip(ring, ring[1:] + ring[:1], strict=True)
    assert all(len(set(a) & set(b)) == 2 for a, b in neighbours)
    assert min(in_common(ring)) == 0  # The paper's "any two clusters" does not hold.
    for sizes, owned, common in (((10, 4), 4, 2), ((4, 3), 2, 1)):
        core = overlapping_classes(
            *sizes, num_owned=owned, num_shared=common, layout="core"
        )
        assert {len(own) for own in core} == {owned}
        assert in_common(core) == [common] * len(in_common(core))
    assert min(in_common(overlapping_classes(9, 5, num_shared=3, layout="core"))) >= 3


def test_one_class_each_and_all_for_everyone():
    assert unique_classes(10, 10) == tuple((label,) for label in range(10))
    assert unique_classes(10, 3, num_owned=2) == ((0, 1), (2, 3), (4, 5))
    assert all_classes(3, 2) == ((0, 1, 2), (0, 1, 2))


# Label skew, against equations
@pytest.mark.parametrize(
    "make", [unique_classes, overlapping_classes, all_but_one_class, all_classes]
)
def test_clusters_have_their_classes_and_labels_are_true(make):
    classes = make(10, 5)
    train, clusters, test, test_clusters = checked(skewed(classes=classes))
    assert train.inputs.shape == (10, 8, 2) and test.inputs.shape == (5, 4, 2)
    assert train.mask.all() and test.mask.all()
    for data, own in ((train, clusters), (test, test_clusters)):
        np.testing.assert_array_equal(abs(data.inputs[..., 0]) % 10, data.targets)
        present = counts(data, own) > 0
        for cluster, labels in enumerate(classes):
            assert set(np.flatnonzero(present[cluster])) <= set(labels)


def test_dirichlet_proportions_are_uneven_and_shared_by_train_and_test():
    """All samples are dealt out, so that the counts show the proportions."""
    sizes = Sizes(4, 2000, 4, min_samples=20, min_test_samples=20)

    def shares(**changes):
        samples = numbered(4000, 4000, 2)
        found = skewed(samples, sizes, classes=all_classes(2, 2), **changes)
        train, own, test, _ = checked(found, sizes)
        return counts(train, own)[:, :2] / 2000, counts(test, own)[:, :2] / 2000

    train, test = shares(reserve=0.0)
    np.testing.assert_array_equal(train, test)
    np.testing.assert_allclose(train.sum(axis=0), 1)
    drawn = abs(train[0] - 0.5)
    assert np.all(drawn > 0.02) and abs(drawn[0] - drawn[1]) > 0.02
    even, _ = shares(concentration=None)
    np.testing.assert_array_equal(even, 0.5)
    # The reserve draws every share towards an even one, in proportion.
    reserved, _ = shares(reserve=0.4)
    np.testing.assert_allclose(reserved, 0.4 * even + 0.6 * train, atol=1e-3)


def test_reserve_is_raised_no_further_than_needed():
    free = Sizes(2, 4000, 2, min_samples=1, min_test_samples=1)

    def smallest(sizes, reserve):
        samples = numbered(4000, 4000, 2)
        found = skewed(samples, sizes, classes=all_classes(2, 2), reserve=reserve)
        return int(np.asarray(found[0].mask).sum(axis=1).min())

    natural, raised = smallest(free, 0.0), smallest(free, 0.25)
    assert natural < raised
    got = smallest(dataclasses.replace(free, min_samples=natural + 1), 0.0)
    step = 0.05 * (2000 - natural)
    assert natural + 1 <= got <= natural + step + 1


def test_clients_of_poorer_clusters_share_evenly_and_are_padded():
    sizes = Sizes(4, 150, 4, 20, min_samples=10, min_test_samples=1)
    found = skewed(sizes=sizes, classes=all_classes(10, 2), key=jax.random.key(2))
    train, clusters, _, _ = checked(found, sizes)
    lengths = np.asarray(train.mask).sum(axis=1)
    assert lengths.sum() <= 400 and lengths.min() < 150 and lengths.min() >= 10
    for cluster in range(2):
        own = lengths[clusters == cluster]
        assert own.max() - own.min() <= 1
    padding = ~np.asarray(train.mask)
    assert not np.asarray(train.inputs)[padding].any()
    assert not np.asarray(train.targets)[padding].any()


def test_samples_of_a_cluster_are_dealt_out_at_random():
    """Each client has all classes of its cluster, in no order."""
    samples, sizes = numbered(1000, 1000, 4), Sizes(4, 60, 4, 60)
    train, _, test, _ = skewed(samples, sizes, classes=unique_classes(4, 2))
    for data in (train, test):
        for client, labels in enumerate(np.asarray(data.targets)):
            # Fair halves: outside of 8 to 52 with a chance of 1e-9.
            assert 8 <= np.sum(labels == labels.max()) <= 52
            assert np.any(np.diff(labels) < 0) and np.any(np.diff(labels) > 0)
            numbers = abs(np.asarray(data.inputs[client, :, 0]))
            assert numbers.max() > 500 and np.any(np.diff(numbers) < 0)


def test_key_decides_who_has_which_samples():
    one, same, other = (skewed(key=jax.random.key(seed))[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.inputs, same.inputs)
    assert not np.array_equal(one.inputs, other.inputs)


def test_swapped_labels_against_a_table():
    sizes = Sizes(num_clients=6, num_samples=20, num_test_clients=3)
    shared = swapped(((0, 3), (8, 9)), ((1, 4),), (), sizes=sizes)
    train, clusters, test, test_clusters = checked(shared, sizes)
    tables = ({0: 3, 3: 0, 8: 9, 9: 8}, {1: 4, 4: 1}, {})
    for data, own in ((train, clusters), (test, test_clusters)):
        for client, cluster in enumerate(own):
            labels = abs(np.asarray(data.inputs[client, :, 0])) % 10
            wanted = [tables[cluster].get(label, label) for label in labels.tolist()]
            assert data.targets[client].tolist() == wanted
    assert counts(train, clusters).all()  # Nobody lacks a class.
    four = label_swapped(numbered(), key=KEY, sizes=Sizes(4, 20, 4))
    assert np.asarray(four[1].clusters).tolist() == [0, 1, 2, 3]


def test_dominant_classes_by_counting():
    sizes = Sizes(num_clients=10, num_samples=24, num_test_clients=5)
    shared = dominant(numbered(1000, 500), sizes=sizes)
    train, clusters, _, _ = checked(shared, sizes)
    for client, cluster in enumerate(clusters):
        labels = collections.Counter(train.targets[client].tolist())
        rest = [labels[label] for label in range(10) if label != cluster]
        assert np.any(np.diff(train.targets[client]) < 0)  # In no order.
        assert labels[cluster] in (16, 17) and set(rest) <= {0, 1} and sum(rest) >= 7
    totals = counts(train, clusters).sum(axis=0)
    np.testing.assert_array_equal(totals, [2 * 16 + 8] * 5 + [8] * 5)
    plain = np.asarray(dominant(dominance=0.0)[0].targets)
    assert plain.shape == (10, 8)
    assert all(len(set(row)) == 8 for row in plain.tolist())


def test_groups_are_clusters_and_targets_stay():
    samples = numbered()
    grouped = dataclasses.replace(
        samples,
        train_groups=np.asarray(samples.train_inputs)[:, 0] % 4,
        test_groups=-np.asarray(samples.test_inputs)[:, 0] % 4,
    )
    sizes = Sizes(8, 40, num_test_clients=4, num_test_samples=25)
    shared = by_group(grouped, key=KEY, sizes=sizes)
    train, clusters, test, test_clusters = checked(shared, sizes)
    for data, own in ((train, clusters), (test, test_clusters)):
        numbers = abs(np.asarray(data.inputs[..., 0]))
        assert np.all(numbers % 4 == own[:, None])
        np.testing.assert_array_equal(numbers % 10, data.targets)


def test_pixels_are_divided_by_255():
    pixels = np.arange(40 * 4, dtype=np.uint8).reshape(40, 2, 2)
    labels = np.arange(40, dtype=np.int32) % 2
    images = Images(pixels, labels, pixels[::-1], labels, "test")
    sizes = Sizes(num_clients=2, num_samples=20, num_test_clients=2)
    train = skewed(images, sizes, classes=((0,), (1,)))[0]
    assert train.inputs.dtype == np.float32 and train.inputs.shape == (2, 20, 2, 2)
    found = np.sort(np.rint(np.asarray(train.inputs[1]) * 255).ravel())
    np.testing.assert_array_equal(found, np.sort(pixels[1::2].ravel()))


@pytest.mark.long
def test_real_images_keep_their_labels(real_data):
    images = load_images("mnist", folder=real_data)
    sizes, classes = Sizes(25, 40, 25, 10), overlapping_classes(10, 5)
    train = skewed(images, sizes, classes=classes)[0]
    known = {
        pixels.tobytes(): label
        for pixels, label in zip(images.train_inputs, images.train_labels, strict=True)
    }
    back = np.rint(np.asarray(train.inputs) * 255).astype(np.uint8)
    for pixels, label in zip(
        back.reshape(-1, 28, 28), train.targets.ravel().tolist(), strict=True
    ):
        assert known[pixels.tobytes()] == label


def test_a_sample_of_two_clients_is_seen():
    """Control: the check of every partition above rejects one doubled sample."""
    train, *others = skewed()
    checked((train, *others))
    inputs = train.inputs.at[9, 0].set(train.inputs[0, 0])
    with pytest.raises(AssertionError):
        checked((train._replace(inputs=inputs), *others))


# Samples that are all needed, against equations
@pytest.mark.parametrize(("num_clusters", "class_size"), [(2, 11), (3, 10), (4, 10)])
def test_the_last_samples_are_shared_out_whatever_the_classes(num_clusters, class_size):
    """Of ten classes of 11 one of two clusters would get 6 each, and the other 5."""
    samples, size = numbered(num_train=10 * class_size), 10 * class_size // num_clusters
    classes = all_classes(10, num_clusters)
    even = np.full((num_clusters, 10), 1 / num_clusters)
    plain = partition._pool_sizes(
        partition.cuts_of(even, np.asarray(samples.train_labels))
    )
    assert min(plain) < size  # Control.
    sizes = Sizes(num_clusters, size, num_clusters, 20)
    shared = label_skewed(samples, key=KEY, sizes=sizes, classes=classes)
    train, clusters, *_ = checked(shared, sizes)
    np.testing.assert_array_equal(np.sum(train.mask, axis=1), size)
    own = counts(train, clusters)
    assert np.max(np.ptp(own, axis=0)) <= 1


def test_who_needs_more_than_there_is_hears_of_the_most_that_fits():
    """Clusters of 101 + 50 and 50 + 99 samples, or of 150 each, never 151."""
    labels = np.repeat(np.arange(3), (101, 100, 99)).astype(np.int32)
    samples = dataclasses.replace(numbered(num_train=300), train_labels=labels)
    pairs, call = ((0, 1), (0, 2)), lambda size: Sizes(2, size, 2, 4)
    share = lambda size: label_skewed(samples, key=KEY, sizes=call(size), classes=pairs)
    with pytest.raises(ValueError, match="at most 150 samples would fit"):
        share(151)
    assert share(150)[0].mask.all()


# Images that are turned, against equations
def pictures(numbers: np.ndarray) -> np.ndarray:
    """Images of 2 x 2 pixels: a number in two of them, then 0 and 255."""
    pixels = [numbers // 256, numbers % 256, 0 * numbers, 0 * numbers + 255]
    return np.stack(pixels, axis=1).reshape(-1, 2, 2).astype(np.uint8)


def unturned(data, clusters, num_clusters: int) -> np.ndarray:
    """Numbers of the images once they are turned back, `[clients, samples]`."""
    found = []
    for own, cluster in zip(np.asarray(data.inputs), clusters, strict=True):
        back = np.rot90(own, -cluster * 4 // num_clusters, axes=(1, 2))
        pixels = np.rint(255 * back.reshape(len(own), 4)).astype(int)
        found.append(256 * pixels[:, 0] + pixels[:, 1])
        np.testing.assert_allclose(back, pictures(found[-1]) / 255, rtol=1e-6)
    return np.array(found)


LABELS = np.arange(400) % 10
DIGITS = Images(
    *(pictures(np.arange(400)), LABELS),
    *(pictures(1000 + np.arange(400)), LABELS),
    source="made up",
)
FEW = Sizes(num_clients=8, num_samples=5, num_test_clients=4, num_test_samples=3)


@pytest.mark.parametrize("num_clusters", [1, 2, 4])
def test_images_are_turned_by_cluster_and_used_once(num_clusters):
    shared = feature_skewed(DIGITS, key=KEY, sizes=FEW, num_clusters=num_clusters)
    train, truth, test, test_truth = shared
    for data, true, first in ((train, truth, 0), (test, test_truth, 1000)):
        check_clients(data, num_classes=10)
        clusters = np.asarray(true.clusters)
        numbers = unturned(data, clusters, num_clusters) - first
        assert len(set(numbers.ravel().tolist())) == numbers.size
        np.testing.assert_array_equal(LABELS[numbers], data.targets)
        size = len(clusters) // num_clusters
        assert np.bincount(clusters).tolist() == [size] * num_clusters
    assert train.mask.shape == (8, 5) and test.mask.shape == (4, 3)


def test_turning_back_the_wrong_way_is_seen():
    train, truth, _, _ = feature_skewed(DIGITS, key=KEY, sizes=FEW)
    with pytest.raises(AssertionError):
        unturned(train, 3 - np.asarray(truth.clusters), 4)


def test_draws_follow_the_key():
    one, same, other = (
        feature_skewed(DIGITS, key=jax.random.key(seed), sizes=FEW)[0]
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(one.inputs, same.inputs)
    assert np.any(np.asarray(one.inputs) != np.asarray(other.inputs))


# Clients that share rotated images, against equations
ROTATED: dict[str, Any] = {"num_clients": 12, "num_samples": 5, "num_clusters": 4}
ROTATED |= {"num_test_clients": 8}
FIRST, TESTED = 1 + np.arange(20, dtype=np.int32), 101 + np.arange(16, dtype=np.int32)
# Every label is the number of its image.
PICTURES = Images(pictures(FIRST), FIRST, pictures(TESTED), TESTED, "test")


def shared_out(images: Images, **sizes):
    """Clients of the first key, by one program and as arrays of NumPy."""

    def draw(train_inputs, train_labels, test_inputs, test_labels):
        traced = Images(train_inputs, train_labels, test_inputs, test_labels, "test")
        return rotated(traced, key=jax.random.key(0), **sizes)

    arrays = (images.train_inputs, images.train_labels)
    arrays += (images.test_inputs, images.test_labels)
    return jax.device_get(jax.jit(draw)(*arrays))


@pytest.mark.long
def test_every_pixel_against_numpy():
    sizes = ROTATED | {"num_test_samples": 2}
    train, truth, test, test_truth = shared_out(PICTURES, **sizes)
    assert train.inputs.shape == (12, 5, 2, 2) and test.inputs.shape == (8, 2, 2, 2)
    assert train.inputs.dtype == jnp.float32 and bool(train.mask.all())
    assert truth.clusters.tolist() == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3
    assert test_truth.clusters.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert truth.models is None
    for data, true in ((train, truth), (test, test_truth)):
        np.testing.assert_array_equal(unturned(data, true.clusters, 4), data.targets)


@pytest.mark.long
@pytest.mark.parametrize("num_clusters", [1, 2, 4])
def test_clients_of_a_cluster_are_disjoint_and_use_all(num_clusters):
    sizes = {"num_clients": 4 * num_clusters, "num_samples": 5}
    sizes |= {"num_clusters": num_clusters, "num_test_clients": num_clusters}
    train, truth, _, _ = shared_out(PICTURES, **sizes)
    for cluster in range(num_clusters):
        labels = train.targets[truth.clusters == cluster]
        assert sorted(labels.ravel().tolist()) == list(range(1, 21))
    numbers = unturned(train, truth.clusters, num_clusters)
    np.testing.assert_array_equal(numbers, train.targets)
    orders = {tuple(row) for row in train.targets.reshape(num_clusters, -1).tolist()}
    assert len(orders) == num_clusters  # Each cluster has its own permutation.


@pytest.mark.long
def test_key_decides_and_jit_and_vmap_change_nothing():
    sizes: dict[str, Any] = {"num_clients": 8, "num_samples": 5, "num_clusters": 2}

    def draw(key, pixels):
        images = dataclasses.replace(PICTURES, train_inputs=pixels)
        return rotated(images, key=key, **sizes, num_test_clients=2)[0]

    pixels = jnp.asarray(PICTURES.train_inputs)
    keys = jax.random.split(KEY, 3)
    eager = draw(keys[1], pixels)  # Operation by operation.
    np.testing.assert_array_equal(eager.inputs, draw(keys[1], pixels).inputs)
    traced = jax.jit(jax.vmap(draw, in_axes=(0, None)))(keys, pixels)
    np.testing.assert_array_equal(eager.targets, traced.targets[1])
    np.testing.assert_array_equal(eager.inputs, traced.inputs[1])
    assert not np.array_equal(traced.targets[0], traced.targets[1])


@pytest.mark.long
def test_real_image_is_turned_not_mirrored(real_data):
    images = load_images("mnist", folder=real_data)
    sizes = {"num_clients": 8, "num_samples": 3, "num_clusters": 4}
    train, truth, test, _ = shared_out(images, num_test_clients=4, **sizes)
    rows = {row.tobytes() for row in images.train_inputs.reshape(-1, 784)}
    back = np.round(train.inputs * 255).astype(np.uint8)
    for client, cluster in enumerate(truth.clusters.tolist()):
        for pixels in back[client]:
            assert np.ascontiguousarray(np.rot90(pixels, -cluster)).tobytes() in rows
            assert np.ascontiguousarray(pixels.T).tobytes() not in rows
    assert float(test.inputs.max()) == 1.0


@pytest.mark.long
def test_colour_images_turn_in_the_plane():
    colour = dataclasses.replace(
        PICTURES,
        train_inputs=np.repeat(PICTURES.train_inputs[..., None], 3, axis=3),
        test_inputs=np.repeat(PICTURES.test_inputs[..., None], 3, axis=3),
    )
    sizes = {"num_clients": 2, "num_samples": 5, "num_clusters": 2}
    grey = shared_out(PICTURES, **sizes, num_test_clients=2)[0]
    data = shared_out(colour, **sizes, num_test_clients=2)[0]
    assert data.inputs.shape == (2, 5, 2, 2, 3)
    np.testing.assert_array_equal(data.inputs[..., 2], grey.inputs)


WIDE = Images(
    *(np.zeros((20, 3, 4), np.uint8), FIRST),
    *(np.zeros((16, 3, 4), np.uint8), TESTED),
    source="test",
)


def test_half_turns_need_no_squares():
    sizes = ROTATED | {"num_clients": 8, "num_clusters": 2, "num_test_samples": 4}
    assert shared_out(WIDE, **sizes)[0].inputs.shape[2:] == (3, 4)


# Against misuse
def turned(images=DIGITS, sizes: Sizes = FEW, **changes):
    feature_skewed(images, key=KEY, sizes=sizes, **changes)


def share(images=PICTURES, **changes):
    shared_out(images, **(ROTATED | changes))


MANY = Sizes(num_clients=8, num_samples=60, num_test_clients=4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: unique_classes(10, 11), "`num_owned` times `num_clusters`"),
        (lambda: unique_classes(10, 5, num_owned=3), "got 3 x 5 of 10"),
        (lambda: unique_classes(10, 0), "`num_clusters` must be at least 1, got 0"),
        (lambda: all_classes(0, 2), "`num_classes` must be at least 1, got 0"),
        (lambda: all_but_one_class(3, 5), "at most `num_classes` . 1"),
        (lambda: all_but_one_class(1, 1), "at least 2 classes"),
        (lambda: overlapping_classes(10, 5, num_shared=4), "below `num_owned`"),
        (lambda: overlapping_classes(3, 2), "at most `num_classes`, got 2, 4 and 3"),
        (lambda: overlapping_classes(10, 6), "`num_clusters` must be at most 5"),
        (
            lambda: overlapping_classes(10, 5, layout="core"),
            "`num_clusters` must be at most 4",
        ),
        (lambda: skewed(classes=()), "at least one cluster, got none"),
        (lambda: skewed(classes=((0, 1), ())), r"one class or more.*\(\) for clus"),
        (lambda: skewed(classes=((0, 0), (1,))), r"each once, got \(0, 0\)"),
        (lambda: skewed(classes=((0,), (10,))), r"in 0..9.*\(10,\) for cluster 1"),
        (lambda: skewed(classes=((0,), (-1,))), r"in 0..9, the labels that there"),
        (lambda: skewed(classes=unique_classes(10, 3)), "got 10 clients and 3 clus"),
        (lambda: skewed(concentration=0.0), "`concentration` must be positive"),
        (lambda: skewed(reserve=1.1), r"`reserve` must be in \[0, 1\], got 1.1"),
        (lambda: skewed(reserve=float("nan")), "`reserve` must be"),
        (
            lambda: skewed(sizes=Sizes(10, 41, 5, 4)),
            "need 82 training samples in every cluster, got 80 in one; at most 40 samp",
        ),
        (lambda: skewed(sizes=Sizes(10, 8, 15)), "at most 6 samples .* or 2 clients a"),
        (lambda: skewed(numbered(num_test=0)), "training and test samples, got none"),
        (lambda: swapped(), "`swaps` must have at least one cluster"),
        (lambda: swapped(((0, 1), (1, 2)), ()), "each once"),
        (lambda: swapped(((0, 10),), ()), "pairs of labels in 0..9"),
        (lambda: swapped(((0, 1),), ((1, 0),)), "differ from cluster to cluster"),
        (lambda: dominant(num_clusters=11), "`num_clusters` must be in 1..10"),
        (lambda: dominant(dominance=1.5), r"`dominance` must be in \[0, 1\]"),
        (lambda: dominant(sizes=Sizes(10, 8, 5, min_samples=4)), "must be None"),
        (lambda: Sizes(0, 8, 5), "`num_clients` must be at least 1, got 0"),
        (lambda: Sizes(5, 8, 5, min_samples=9), "`min_samples` must be at most 8"),
        (lambda: Sizes(5, 8, 5, 4, 8, 5), "`min_test_samples` must be at most 4"),
        (lambda: by_group(numbered(), key=KEY, sizes=SIZES), "`train_groups`"),
        (lambda: turned(num_clusters=3), "`num_clusters` must be 1, 2 or 4, got 3"),
        (lambda: turned(WIDE), "need square images, got 3 x 4"),
        (lambda: turned(sizes=MANY), "samples"),
        (lambda: share(num_clusters=3), "`num_clusters` must be 1, 2 or 4, got 3"),
        (
            lambda: share(num_clients=10),
            "multiple of `num_clusters`, got 10 clients and 4",
        ),
        (lambda: share(num_clients=0), "`num_clients` must be at least 1, got 0"),
        (lambda: share(num_test_clients=2), "number of test clients"),
        (lambda: share(num_samples=0), "`num_samples` must be at least 1, got 0"),
        (
            lambda: share(num_clients=20),
            "at most 4 samples .* or 16 clients these samples",
        ),
        (
            lambda: share(num_test_samples=9),
            "at most 8 samples would fit these clients",
        ),
        (lambda: rotated(WIDE, key=KEY, **ROTATED), "square images, got 3 x 4"),
    ],
)
def test_what_cannot_be_shared_out_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_unknown_layouts_are_refused():
    with pytest.raises((ValueError, jaxtyping.TypeCheckError)):
        overlapping_classes(10, 5, layout="star")  # pyright: ignore[reportArgumentType]


def test_the_advice_of_a_refusal_is_good():
    """What is said to fit fits, and one more does not."""
    with pytest.raises(ValueError, match=r"class 0, got 40; at most 24 samples"):
        dominant(sizes=Sizes(10, 25, 5, 4))
    dominant(sizes=Sizes(10, 24, 5, 4))
    skewed(sizes=Sizes(10, 8, 5))
    skewed(sizes=Sizes(10, 40, 5, 4))
    skewed(sizes=Sizes(10, 8, 15, 6))
    with pytest.raises(ValueError, match="test samples in every cluster"):
        skewed(sizes=Sizes(10, 8, 15, 7))
