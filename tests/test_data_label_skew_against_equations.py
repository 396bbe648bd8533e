"""Partitions by label: whose the samples are, in what proportions, what is refused."""

import collections
import dataclasses
from typing import Any

import jax
import numpy as np
import pytest
from numbered import numbered

from cfljax.data import (
    Images,
    Sizes,
    all_but_one_class,
    all_classes,
    by_group,
    check_clients,
    dominated,
    label_skewed,
    label_swapped,
    load_images,
    overlapping_classes,
    unique_classes,
)

KEY = jax.random.key(0)
SIZES = Sizes(num_clients=10, num_samples=8, num_test_clients=5, num_test_samples=4)


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
    mask = np.asarray(data.mask)
    owners = np.broadcast_to(clusters[:, None], mask.shape)[mask]
    np.add.at(found, (owners, np.asarray(data.targets)[mask]), 1)
    return found


@pytest.mark.parametrize(
    "classes",
    [
        unique_classes(10, 5),
        overlapping_classes(10, 5),
        all_but_one_class(10, 5),
        all_classes(10, 5),
    ],
)
def test_clusters_have_their_classes_and_labels_are_true(classes):
    shared = label_skewed(numbered(), key=KEY, classes=classes, sizes=SIZES)
    train, clusters, test, test_clusters = checked(shared)
    assert train.inputs.shape == (10, 8, 2) and test.inputs.shape == (5, 4, 2)
    assert train.mask.all() and test.mask.all()
    for data, own in ((train, clusters), (test, test_clusters)):
        np.testing.assert_array_equal(abs(data.inputs[..., 0]) % 10, data.targets)
        present = counts(data, own) > 0
        for cluster, labels in enumerate(classes):
            assert set(np.flatnonzero(present[cluster])) <= set(labels)


def test_dirichlet_proportions_are_uneven_and_shared_by_train_and_test():
    """All samples are dealt out, so that the counts show the proportions."""
    samples = numbered(4000, 4000, 2)
    sizes = Sizes(4, 2000, 4, min_samples=20, min_test_samples=20)
    arguments: dict[str, Any] = {"classes": all_classes(2, 2), "sizes": sizes}

    def shares(**changes):
        found = label_skewed(samples, key=KEY, **arguments, **changes)
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
    samples = numbered(4000, 4000, 2)
    free = Sizes(2, 4000, 2, min_samples=1, min_test_samples=1)

    def smallest(sizes, reserve):
        arguments: dict[str, Any] = {"classes": all_classes(2, 2), "sizes": sizes}
        found = label_skewed(samples, key=KEY, reserve=reserve, **arguments)
        return int(np.asarray(found[0].mask).sum(axis=1).min())

    natural, raised = smallest(free, 0.0), smallest(free, 0.25)
    assert natural < raised
    wanted = dataclasses.replace(free, min_samples=natural + 1)
    got = smallest(wanted, 0.0)
    step = 0.05 * (2000 - natural)
    assert natural + 1 <= got <= natural + step + 1


def test_clients_of_poorer_clusters_share_evenly_and_are_padded():
    sizes = Sizes(4, 150, 4, 20, min_samples=10, min_test_samples=1)
    arguments: dict[str, Any] = {"classes": all_classes(10, 2), "sizes": sizes}
    shared = label_skewed(numbered(), key=jax.random.key(2), **arguments)
    train, clusters, _, _ = checked(shared, sizes)
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
    sizes = Sizes(4, 60, 4, 60)
    samples = numbered(1000, 1000, 4)
    classes = unique_classes(4, 2)
    shared = label_skewed(samples, key=KEY, classes=classes, sizes=sizes)
    for data in (shared[0], shared[2]):
        for client, labels in enumerate(np.asarray(data.targets)):
            # Fair halves: outside of 8 to 52 with a chance of 1e-9.
            assert 8 <= np.sum(labels == labels.max()) <= 52
            assert np.any(np.diff(labels) < 0) and np.any(np.diff(labels) > 0)
            numbers = abs(np.asarray(data.inputs[client, :, 0]))
            assert numbers.max() > 500 and np.any(np.diff(numbers) < 0)


def test_key_decides():
    def draw(seed):
        classes = unique_classes(10, 5)
        key = jax.random.key(seed)
        return label_skewed(numbered(), key=key, classes=classes, sizes=SIZES)[0]

    np.testing.assert_array_equal(draw(1).inputs, draw(1).inputs)
    assert not np.array_equal(draw(1).inputs, draw(2).inputs)


def test_swapped_labels_against_a_table():
    swaps = (((0, 3), (8, 9)), ((1, 4),), ())
    sizes = Sizes(num_clients=6, num_samples=20, num_test_clients=3)
    shared = label_swapped(numbered(), key=KEY, sizes=sizes, swaps=swaps)
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
    shared = dominated(numbered(1000, 500), key=KEY, num_clusters=5, sizes=sizes)
    train, clusters, _, _ = checked(shared, sizes)
    for client, cluster in enumerate(clusters):
        labels = collections.Counter(train.targets[client].tolist())
        rest = [labels[label] for label in range(10) if label != cluster]
        assert np.any(np.diff(train.targets[client]) < 0)  # In no order.
        assert labels[cluster] in (16, 17) and set(rest) <= {0, 1} and sum(rest) >= 7
    np.testing.assert_array_equal(
        counts(train, clusters).sum(axis=0), [2 * 16 + 8] * 5 + [8] * 5
    )
    plain = dominated(numbered(), key=KEY, num_clusters=5, sizes=SIZES, dominance=0.0)
    assert np.asarray(plain[0].targets).shape == (10, 8)
    assert all(len(set(row)) == 8 for row in np.asarray(plain[0].targets).tolist())


def test_groups_are_clusters_and_targets_stay():
    samples = numbered()
    grouped = dataclasses.replace(
        samples,
        train_groups=np.asarray(samples.train_inputs)[:, 0] % 4,
        test_groups=-np.asarray(samples.test_inputs)[:, 0] % 4,
    )
    sizes = Sizes(num_clients=8, num_samples=40, num_test_clients=4)
    shared = by_group(
        grouped, key=KEY, sizes=dataclasses.replace(sizes, num_test_samples=25)
    )
    train, clusters, test, test_clusters = checked(shared, sizes)
    for data, own in ((train, clusters), (test, test_clusters)):
        numbers = abs(np.asarray(data.inputs[..., 0]))
        assert np.all(numbers % 4 == own[:, None])
        np.testing.assert_array_equal(numbers % 10, data.targets)
    with pytest.raises(ValueError, match="`train_groups`"):
        by_group(samples, key=KEY, sizes=sizes)


def test_pixels_are_divided_by_255():
    pixels = np.arange(40 * 4, dtype=np.uint8).reshape(40, 2, 2)
    labels = np.arange(40, dtype=np.int32) % 2
    images = Images(pixels, labels, pixels[::-1], labels, "test")
    sizes = Sizes(num_clients=2, num_samples=20, num_test_clients=2)
    train = label_skewed(images, key=KEY, classes=((0,), (1,)), sizes=sizes)[0]
    assert train.inputs.dtype == np.float32 and train.inputs.shape == (2, 20, 2, 2)
    found = np.sort(np.rint(np.asarray(train.inputs[1]) * 255).ravel())
    np.testing.assert_array_equal(found, np.sort(pixels[1::2].ravel()))


def test_real_images_keep_their_labels(real_data):
    images = load_images("mnist", folder=real_data)
    sizes = Sizes(25, 40, 25, 10)
    arguments: dict[str, Any] = {"classes": overlapping_classes(10, 5)}
    train = label_skewed(images, key=KEY, sizes=sizes, **arguments)[0]
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
    shared = label_skewed(
        numbered(), key=KEY, classes=unique_classes(10, 5), sizes=SIZES
    )
    checked(shared)
    inputs = shared[0].inputs.at[9, 0].set(shared[0].inputs[0, 0])
    with pytest.raises(AssertionError):
        checked((shared[0]._replace(inputs=inputs), *shared[1:]))
