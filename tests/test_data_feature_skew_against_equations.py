"""Feature skew: whose the images are, and how they are turned."""

import jax
import numpy as np
import pytest

from cfljax.data import Images, Sizes, check_clients, feature_skewed

KEY = jax.random.key(0)
SIZES = Sizes(num_clients=8, num_samples=5, num_test_clients=4, num_test_samples=3)


def images(count: int, first: int) -> np.ndarray:
    """Images of 2 x 2 pixels: a number in two of them, then 0 and 255."""
    numbers = first + np.arange(count)
    pixels = np.stack(
        [numbers // 256, numbers % 256, 0 * numbers, 0 * numbers + 255], axis=1
    )
    return pixels.reshape(-1, 2, 2).astype(np.uint8)


LABELS = np.arange(400) % 10
SAMPLES = Images(images(400, 0), LABELS, images(400, 1000), LABELS, "made up")


def unturned(data, clusters, num_clusters: int) -> np.ndarray:
    """Numbers of the images once they are turned back, `[clients, samples]`."""
    found = []
    for own, cluster in zip(np.asarray(data.inputs), clusters, strict=True):
        back = np.rot90(own, -cluster * 4 // num_clusters, axes=(1, 2))
        pixels = np.rint(255 * back.reshape(len(own), 4)).astype(int)
        assert np.all(pixels[:, 2] == 0) and np.all(pixels[:, 3] == 255)
        found.append(256 * pixels[:, 0] + pixels[:, 1])
    return np.array(found)


@pytest.mark.parametrize("num_clusters", [1, 2, 4])
def test_images_are_turned_by_cluster_and_used_once(num_clusters):
    shared = feature_skewed(SAMPLES, key=KEY, sizes=SIZES, num_clusters=num_clusters)
    train, truth, test, test_truth = shared
    for data, true, first in ((train, truth, 0), (test, test_truth, 1000)):
        check_clients(data, num_classes=10)
        clusters = np.asarray(true.clusters)
        numbers = unturned(data, clusters, num_clusters) - first
        assert len(set(numbers.ravel().tolist())) == numbers.size
        np.testing.assert_array_equal(LABELS[numbers], data.targets)
        assert np.bincount(clusters).tolist() == [len(clusters) // num_clusters] * (
            num_clusters
        )
    assert train.mask.shape == (8, 5) and test.mask.shape == (4, 3)


def test_turning_back_the_wrong_way_is_seen():
    train, truth, _, _ = feature_skewed(SAMPLES, key=KEY, sizes=SIZES)
    with pytest.raises(AssertionError):
        unturned(train, 3 - np.asarray(truth.clusters), 4)


def test_draws_follow_the_key():
    one, *_ = feature_skewed(SAMPLES, key=KEY, sizes=SIZES)
    same, *_ = feature_skewed(SAMPLES, key=KEY, sizes=SIZES)
    other, *_ = feature_skewed(SAMPLES, key=jax.random.key(1), sizes=SIZES)
    np.testing.assert_array_equal(one.inputs, same.inputs)
    assert np.any(np.asarray(one.inputs) != np.asarray(other.inputs))


def test_what_cannot_be_shared_out_is_refused():
    with pytest.raises(ValueError, match="`num_clusters` must be 1, 2 or 4, got 3"):
        feature_skewed(SAMPLES, key=KEY, sizes=SIZES, num_clusters=3)
    wide = Images(
        SAMPLES.train_inputs[:, :1], LABELS, SAMPLES.test_inputs[:, :1], LABELS, ""
    )
    with pytest.raises(ValueError, match="need square images, got 1 x 2"):
        feature_skewed(wide, key=KEY, sizes=SIZES)
    many = Sizes(num_clients=8, num_samples=60, num_test_clients=4)
    with pytest.raises(ValueError, match="samples"):
        feature_skewed(SAMPLES, key=KEY, sizes=many)
