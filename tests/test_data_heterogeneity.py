"""Samples dealt out as the field does: laws, hand computations, refusals, a picture."""

from typing import Any

import jax
import numpy as np
import pytest

from cfljax import intervals
from cfljax.base.types import ClientData, Truth
from cfljax.data import (
    Sizes,
    consecutive,
    deal,
    dirichlet_rows,
    drifting,
    feature_skewed,
    from_clients,
    label_swapped,
    mixed_linear,
    mixed_truth,
    nearby_linear,
    over_rounds,
    plot_partition,
    quantity_rows,
    relabelled,
    rotated,
    shard_rows,
    turned,
)
from cfljax.data.images import Images

KEY = jax.random.key(3)
LABELS = np.random.default_rng(0).integers(0, 4, 200)


def uses_each_once(rows, number):
    """All samples are somebody's, and no one else's."""
    return sorted(np.concatenate(rows).tolist()) == list(range(number))


# Against theory


def squares(concentration):
    """Of a thousand classes: the sum of the three clients' squared shares."""
    each, classes = 100, 1000
    labels = np.repeat(np.arange(classes), each)
    rows, _ = dirichlet_rows(
        labels, key=KEY, num_clients=3, concentration=concentration, min_samples=0
    )
    counts = [np.bincount(labels[own], minlength=classes) for own in rows]
    return np.sum((np.array(counts) / each) ** 2, axis=0)


def test_shares_have_the_moments_of_their_law():
    """E sum p^2 = (alpha + 1) / (N alpha + 1). The ends of a share are rounded to half
    a sample, so that squares of three shares are moved by less than 4 / 100."""
    found = squares(0.5)
    interval = intervals.betting(found, error_rate=1e-6)  # Fails once in a million.
    low, high = np.min(interval) - 0.04, np.max(interval) + 0.04
    expected = lambda alpha: (alpha + 1) / (3 * alpha + 1)
    assert low < expected(0.5) < high
    assert not low < expected(1.0) < high  # Control: twice the concentration.


def test_quantities_differ_and_laws_do_not():
    rows, clusters = quantity_rows(300, key=KEY, num_clients=6, min_samples=7)
    assert uses_each_once(rows, 300) and clusters.tolist() == [0] * 6
    sizes = [len(own) for own in rows]
    assert min(sizes) >= 7 and max(sizes) > 2 * min(sizes)
    even, _ = quantity_rows(300, key=KEY, num_clients=6, concentration=1e6)
    assert {len(own) for own in even} <= {49, 50, 51}


# Against equations


def test_shards_by_hand():
    labels = np.array([1, 0, 1, 0, 2, 2, 0, 1])
    in_order = [1, 3, 6, 0, 2, 7, 4, 5]  # Indices, sorted by label.
    shards = [set(in_order[i : i + 2]) for i in range(0, 8, 2)]
    rows, clusters = shard_rows(labels, key=KEY, num_clients=2)
    assert uses_each_once(rows, 8) and clusters.tolist() == [0, 1]
    order = np.random.default_rng(
        np.asarray(jax.random.key_data(KEY)).ravel().tolist()
    ).permutation(4)
    for own, mine in zip(rows, order.reshape(2, 2), strict=True):
        assert set(own.tolist()) == shards[mine[0]] | shards[mine[1]]


def test_shards_leave_clients_few_classes():
    labels = np.sort(LABELS)
    rows, _ = shard_rows(labels, key=KEY, num_clients=20)
    assert uses_each_once(rows, 200)
    assert {len(own) for own in rows} == {10}
    few = np.mean([len(set(labels[own])) for own in rows])
    assert few < 2.2 < np.mean([len(set(LABELS[own])) for own in rows])  # Unsorted.


def test_clients_of_a_cluster_share_its_law():
    """Two clusters of 3 and 1: the first's clients have equal shares of each class."""
    labels = np.repeat(np.arange(4), 3000)
    rows, clusters = dirichlet_rows(
        labels, key=KEY, num_clients=4, cluster_sizes=(3, 1), concentration=0.5
    )
    assert uses_each_once(rows, len(labels)) and clusters.tolist() == [0, 0, 0, 1]
    shares = np.array([np.bincount(labels[own], minlength=4) for own in rows])
    shares = shares / shares.sum(axis=1, keepdims=True)
    within = np.abs(shares[:3] - shares[:3].mean(axis=0)).max()
    across = np.abs(shares[3] - shares[:3].mean(axis=0)).max()
    assert within < 0.05 < 0.2 < across
    alone = dirichlet_rows(labels, key=KEY, num_clients=4, min_samples=200)
    assert alone.clusters.tolist() == [0, 1, 2, 3]
    assert min(map(len, alone.rows)) >= 200


def test_dealt_rows_become_clients():
    inputs = np.arange(200.0)[:, None]
    dealt = dirichlet_rows(LABELS, key=KEY, num_clients=5)
    data, truth = deal(inputs, LABELS, dealt)
    for index, own in enumerate(dealt.rows):
        kept = np.asarray(data.mask[index])
        assert np.asarray(data.inputs)[index, kept, 0].tolist() == own.tolist()
        assert np.asarray(data.targets)[index, kept].tolist() == LABELS[own].tolist()
    assert truth.models is None and truth.clusters.tolist() == [0, 1, 2, 3, 4]


PIXELS = [np.arange(9.0).reshape(1, 3, 3) + client for client in range(3)]
IMAGES = from_clients([(own, [0]) for own in [*PIXELS, np.ones((1, 3, 3))]])


def test_images_turn_by_their_clusters():
    data, truth = turned(IMAGES, clusters=(0, 1, 1, 2), angles=(0, 90, 45))
    assert truth.clusters.tolist() == [0, 1, 1, 2]
    np.testing.assert_array_equal(data.inputs[0], IMAGES.inputs[0])
    for client in (1, 2):
        expected = np.rot90(IMAGES.inputs[client, 0])
        np.testing.assert_array_equal(data.inputs[client, 0], expected)
    # Of a white picture the corners go out, and darkness comes in.
    found = np.asarray(data.inputs[3, 0])
    assert found[0, 0] < 0.5 < found[1, 1]
    halves, _ = turned(IMAGES, clusters=(0, 0, 1, 1))  # 0 and 180 degrees
    np.testing.assert_array_equal(halves.inputs[2, 0], IMAGES.inputs[2, 0][::-1, ::-1])
    # In the direction of quarter turns.
    nearly, _ = turned(IMAGES, clusters=(0, 0, 0, 0), angles=(89.9,))
    quarter = np.rot90(np.asarray(IMAGES.inputs), axes=(2, 3))
    np.testing.assert_allclose(nearly.inputs[:, :, 1, 1], quarter[:, :, 1, 1], atol=0.1)
    np.testing.assert_allclose(nearly.inputs[0, 0, 0, 1], quarter[0, 0, 0, 1], atol=0.2)


def test_concepts_shift_by_permutations():
    labels = np.tile(np.arange(4), 3)
    pairs = [(np.ones((12, 1)), labels)] * 2 + [(np.ones((4, 1)), range(4))]
    data = from_clients(pairs)
    found, truth = relabelled(data, key=KEY, clusters=(0, 1, 2), num_classes=4)
    assert truth.clusters.tolist() == [0, 1, 2]
    maps = [tuple(np.asarray(found.targets[c, :4]).tolist()) for c in range(3)]
    assert maps[0] == (0, 1, 2, 3) and len(set(maps)) == 3
    assert all(sorted(one) == [0, 1, 2, 3] for one in maps)
    np.testing.assert_array_equal(found.targets[1], np.array(maps[1])[labels])
    assert not np.any(found.targets[2, 4:])  # Padding stays 0.
    other, _ = relabelled(
        data, key=jax.random.key(4), clusters=(0, 1, 2), num_classes=4
    )
    assert not np.array_equal(other.targets, found.targets)


def test_clients_drift_at_their_rounds():
    calls = []

    def make(clusters):
        calls.append(clusters.tolist())
        return turned(IMAGES, clusters=clusters)

    at = drifting(make, {0: (0, 0, 1, 1), 3: (0, 1, 1, 1)})
    data, clusters = over_rounds(at, 5)
    assert calls == [[0, 0, 1, 1], [0, 1, 1, 1]]
    assert clusters[:, 1].tolist() == [0, 0, 0, 1, 1]
    assert data.inputs.shape == (5, *IMAGES.inputs.shape)
    back = np.asarray(IMAGES.inputs[1, 0])
    np.testing.assert_array_equal(data.inputs[2, 1, 0], back)
    np.testing.assert_array_equal(data.inputs[3, 1, 0], back[::-1, ::-1])
    np.testing.assert_array_equal(data.inputs[3, 0], IMAGES.inputs[0])


# Clusters of unequal sizes in the partitions that were there before


def test_linear_clusters_of_unequal_sizes():
    """Of the same models as equal ones."""
    shape: dict[str, Any] = {"num_clients": 4, "num_clusters": 2, "num_features": 3}
    draw = lambda **own: mixed_truth(
        KEY, separation=1.0, convention="paper", **shape, **own
    )[0]
    truth, equal = draw(cluster_sizes=(3, 1)), draw()
    assert truth.clusters.tolist() == [0, 0, 0, 1]
    assert equal.clusters.tolist() == [0, 0, 1, 1]
    np.testing.assert_array_equal(truth.models, equal.models)
    sizes = shape | {"num_samples": 2, "separation": 1.0, "noise": 0.1}
    with pytest.raises(ValueError, match=r"add up to `num_clients`, 4, got .3, 2.: 5"):
        mixed_linear(KEY, cluster_sizes=(3, 2), **sizes)
    with pytest.raises(ValueError, match="be as many as `num_clusters`, 2"):
        nearby_linear(KEY, cluster_sizes=(2, 1, 1), **sizes)


@pytest.mark.slow
def test_linear_clients_of_unequal_clusters_have_their_models():
    settings: dict[str, Any] = {"num_samples": 2, "num_features": 3}
    settings |= {"separation": 1.0, "noise": 0.0}
    draw = lambda **own: mixed_linear(
        KEY, num_clients=4, num_clusters=2, **settings, **own
    )
    data, truth = draw(cluster_sizes=(3, 1))
    assert truth.clusters.tolist() == [0, 0, 0, 1]
    clean = np.einsum("mnd,md->mn", data.inputs, truth.models[truth.clusters])
    np.testing.assert_allclose(data.targets, clean, rtol=1e-5, atol=1e-6)
    same, equal = draw()
    np.testing.assert_array_equal(same.inputs, data.inputs)
    np.testing.assert_array_equal(same.targets[3], data.targets[3])
    assert equal.clusters.tolist() == [0, 0, 1, 1]


def numbered_images(number=120):
    """Images whose pixels tell their number; ten classes."""
    pixels = np.zeros((number, 2, 2), np.uint8)
    pixels[:, 0, 0], pixels[:, 0, 1] = np.arange(number), 255
    labels = np.arange(number, dtype=np.int32) % 10
    return Images(pixels, labels, pixels, labels, "test")


@pytest.mark.parametrize("partition", [feature_skewed, label_swapped])
def test_partitions_of_images_into_clusters_of_unequal_sizes(partition):
    sizes = Sizes(8, 10, 4, 10, cluster_sizes=(1, 4, 1, 2), test_cluster_sizes=(1,) * 4)
    train, truth, test, test_truth = partition(numbered_images(), key=KEY, sizes=sizes)
    assert truth.clusters.tolist() == [0, 1, 1, 1, 1, 2, 3, 3]
    assert test_truth.clusters.tolist() == [0, 1, 2, 3]
    assert np.all(train.mask) and test.inputs.shape[:2] == (4, 10)
    numbers = np.rint(np.asarray(train.inputs) * 255)
    if partition is feature_skewed:  # Where the bright pixel of a turned image is.
        for client, cluster in enumerate(truth.clusters):
            back = np.rot90(numbers[client], -int(cluster), axes=(1, 2))
            assert np.all(back[:, 0, 1] == 255)
            numbers[client] = back
    assert len(set(numbers[:, :, 0, 0].ravel().tolist())) == 80  # None twice.


@pytest.mark.slow
def test_rotated_clusters_of_unequal_sizes():
    own: dict[str, Any] = {"num_samples": 20, "num_clusters": 4, "num_test_clients": 4}
    train, truth, test, _ = rotated(
        numbered_images(), key=KEY, num_clients=9, cluster_sizes=(1, 5, 1, 2), **own
    )
    assert truth.clusters.tolist() == [0, 1, 1, 1, 1, 1, 2, 3, 3]
    assert train.inputs.shape[:2] == (9, 20) and test.inputs.shape[:2] == (4, 20)
    for client, cluster in enumerate(truth.clusters):
        back = np.rot90(train.inputs[client], -int(cluster), axes=(1, 2))
        assert np.all(back[:, 0, 1] == 1)
    with pytest.raises(ValueError, match="at most 17 samples would fit"):
        rotated(
            numbered_images(),
            key=KEY,
            num_clients=10,
            cluster_sizes=(1, 7, 1, 1),
            **own,
        )


# Against misuse

UNEQUAL = Sizes(8, 1, 6, cluster_sizes=(1, 3, 2, 2))
SAME = Truth(jax.device_put(np.zeros(3, np.int32)), None)
SHARDS = shard_rows(LABELS, key=KEY, num_clients=2)
CLIENTS = from_clients([(np.ones((2, 1)), [0, 1])] * 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: consecutive(()), "must be 1 or more for every cluster"),
        (lambda: consecutive((2, 0)), "`cluster_sizes` must be at least 1"),
        (
            lambda: dirichlet_rows(LABELS, key=KEY, num_clients=30, min_samples=10),
            "30 clients of 10 samples need 300, got 200; at most 20 clients",
        ),
        (
            lambda: dirichlet_rows(
                LABELS, key=KEY, num_clients=20, min_samples=9, concentration=0.05
            ),
            "1000 draws left a client fewer than 9 of 200.*raise `concentration`",
        ),
        (
            lambda: dirichlet_rows(LABELS, key=KEY, num_clients=3, concentration=0.0),
            "`concentration` must be positive",
        ),
        (
            lambda: dirichlet_rows(LABELS - 1, key=KEY, num_clients=3),
            "`labels` must be 0, 1, .*got -1",
        ),
        (
            lambda: dirichlet_rows(
                LABELS, key=KEY, num_clients=3, cluster_sizes=(1, 1)
            ),
            "add up to `num_clients`, 3, got .1, 1.: 2",
        ),
        (
            lambda: shard_rows(LABELS, key=KEY, num_clients=101),
            "101 clients of 2 shards need 202 samples, got 200; at most 100",
        ),
        (lambda: quantity_rows(0, key=KEY, num_clients=1), "`num_samples` must be at"),
        (
            lambda: deal(
                np.ones((9, 1)), LABELS, shard_rows(LABELS, key=KEY, num_clients=2)
            ),
            "`dealt` asks for 200 samples, got 9 inputs",
        ),
        (lambda: turned(CLIENTS, clusters=(0, 1)), "one integer for each of 3 clients"),
        (lambda: turned(CLIENTS, clusters=(0, 2, 2)), "0, 1, ... without a gap"),
        (
            lambda: turned(CLIENTS, clusters=(0, 1, 1)),
            "images .clients, samples, he",
        ),
        (
            lambda: turned(IMAGES, clusters=(0, 0, 1, 1), angles=(0, 1, 2)),
            "one finite number for each of 2 clusters",
        ),
        (
            lambda: turned(
                from_clients([(np.ones((1, 2, 3)), [0])] * 4), clusters=(0, 1, 2, 3)
            ),
            "quarter turns need square images, got 2 x 3",
        ),
        (
            lambda: relabelled(CLIENTS, key=KEY, clusters=(0, 1, 2), num_classes=2),
            "2 classes have 2 permutations, got 3 clusters",
        ),
        (
            lambda: relabelled(CLIENTS, key=KEY, clusters=(0, 1, 1), num_classes=1),
            r"labels in 0..0, .* from 0 to 1",
        ),
        (
            lambda: drifting(lambda _: (CLIENTS, SAME), {1: [0]}),
            "begin with round 0, got rounds .1.",
        ),
        (
            lambda: over_rounds(lambda _: (CLIENTS, SAME), 0),
            "`num_rounds`",
        ),
        (lambda: Sizes(4, 1, 4, cluster_sizes=(1, 2)), "add up to `num_clients`, 4"),
        (
            lambda: feature_skewed(
                numbered_images(),
                key=KEY,
                sizes=Sizes(8, 1, 6, cluster_sizes=(1, 3, 2, 2)),
            ),
            "multiple of the number of `cluster_sizes`' parts, got 6 clients and 8",
        ),
        (
            lambda: plot_partition(CLIENTS, Truth(SAME.clusters[:2], None)),
            "one cluster for each of 3 clients",
        ),
    ],
)
def test_what_cannot_be_dealt_is_refused(call, message):
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


# The picture


def test_the_picture_shows_the_counts():
    from matplotlib import pyplot as plt

    pairs = [(np.ones((len(y), 1)), y) for y in ([0, 0, 2], [1], [2, 2, 2, 2])]
    truth = Truth(jax.device_put(np.array([1, 0, 1], np.int32)), None)
    ax = plot_partition(from_clients(pairs), truth)
    shown: Any = ax.get_images()[0].get_array()
    shown = np.ma.filled(shown, 0)
    # Client 1 is of cluster 0 and comes first.
    np.testing.assert_array_equal(shown, [[0, 2, 0], [1, 0, 0], [0, 1, 4]])
    assert [t.get_text() for t in ax.get_xticklabels()] == ["1", "0", "2"]
    assert sorted(t.get_text() for t in ax.texts) == ["1", "1", "2", "4"]
    assert len(ax.lines) == 1  # Between the two clusters.
    numbers = plot_partition(
        ClientData(CLIENTS.inputs, CLIENTS.inputs[..., 0], CLIENTS.mask)
    )
    shown = numbers.get_images()[0].get_array()
    assert shown.tolist() == [[2, 2, 2]]
    plt.close("all")
