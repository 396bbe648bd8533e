"""Clients of rotated images: whose they are, how they are turned, what is refused."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.data import Images, load_images, rotated

SIZES = {"num_clients": 12, "num_samples": 5, "num_clusters": 4, "num_test_clients": 8}


def numbered(num_train: int = 20, num_test: int = 16) -> Images:
    """Images that carry their own number in the top left corner, and in the label."""

    def pictures(count: int, first: int) -> np.ndarray:
        pixels = np.zeros((count, 3, 3), np.uint8)
        pixels[:, 0, 0] = first + np.arange(count)
        pixels[:, 0, 1] = 255  # Tells a turn from a reflection.
        return pixels

    return Images(
        train_inputs=pictures(num_train, 1),
        train_labels=1 + np.arange(num_train, dtype=np.int32),
        test_inputs=pictures(num_test, 101),
        test_labels=101 + np.arange(num_test, dtype=np.int32),
        source="test",
    )


def shared_out(images: Images, **sizes):
    """Clients of the first key, by one program and as arrays of NumPy."""

    def draw(train_inputs, train_labels, test_inputs, test_labels):
        traced = Images(train_inputs, train_labels, test_inputs, test_labels, "test")
        return rotated(traced, key=jax.random.key(0), **sizes)

    arrays = (images.train_inputs, images.train_labels)
    arrays += (images.test_inputs, images.test_labels)
    return jax.device_get(jax.jit(draw)(*arrays))


def test_every_pixel_against_numpy():
    images = numbered()
    sizes = SIZES | {"num_test_samples": 2}
    train, truth, test, test_truth = shared_out(images, **sizes)
    assert train.inputs.shape == (12, 5, 3, 3) and test.inputs.shape == (8, 2, 3, 3)
    assert train.inputs.dtype == jnp.float32 and bool(train.mask.all())
    assert truth.clusters.tolist() == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3
    assert test_truth.clusters.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert truth.models is None
    halves = ((train, truth, images.train_inputs, 1),)
    halves += ((test, test_truth, images.test_inputs, 101),)
    for data, true, pictures, first in halves:
        for client, cluster in enumerate(true.clusters.tolist()):
            for pixels, label in zip(
                data.inputs[client], data.targets[client].tolist(), strict=True
            ):
                expected = np.rot90(pictures[label - first], cluster) / 255
                np.testing.assert_allclose(pixels, expected, rtol=1e-6)


@pytest.mark.parametrize("num_clusters", [1, 2, 4])
def test_clients_of_a_cluster_are_disjoint_and_use_all(num_clusters):
    sizes = {"num_clients": 4 * num_clusters, "num_samples": 5}
    sizes |= {"num_clusters": num_clusters, "num_test_clients": num_clusters}
    train, truth, _, _ = shared_out(numbered(), **sizes)
    for cluster in range(num_clusters):
        labels = train.targets[truth.clusters == cluster]
        assert sorted(labels.ravel().tolist()) == list(range(1, 21))
    corner = train.inputs[truth.clusters == num_clusters - 1]
    turned = {1: corner[..., 0, 1], 2: corner[..., 2, 1], 4: corner[..., 1, 2]}
    assert (turned[num_clusters] == 1).all()  # The 255 beside the corner, moved.
    orders = {tuple(row) for row in train.targets.reshape(num_clusters, -1).tolist()}
    assert len(orders) == num_clusters  # Each cluster has its own permutation.


def test_key_decides_and_jit_and_vmap_change_nothing():
    images = numbered()
    sizes = {"num_clients": 8, "num_samples": 5, "num_clusters": 2}
    sizes["num_test_clients"] = 2

    def draw(key, pixels):
        return rotated(
            dataclasses.replace(images, train_inputs=pixels), key=key, **sizes
        )[0]

    pixels = jnp.asarray(images.train_inputs)
    keys = jax.random.split(jax.random.key(0), 3)
    eager = draw(keys[1], pixels)  # Operation by operation.
    np.testing.assert_array_equal(eager.inputs, draw(keys[1], pixels).inputs)
    traced = jax.jit(jax.vmap(draw, in_axes=(0, None)))(keys, pixels)
    np.testing.assert_array_equal(eager.targets, traced.targets[1])
    np.testing.assert_array_equal(eager.inputs, traced.inputs[1])
    assert not np.array_equal(traced.targets[0], traced.targets[1])


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


def test_colour_images_turn_in_the_plane():
    images = numbered()
    colour = dataclasses.replace(
        images,
        train_inputs=np.repeat(images.train_inputs[..., None], 3, axis=3),
        test_inputs=np.repeat(images.test_inputs[..., None], 3, axis=3),
    )
    sizes = {"num_clients": 2, "num_samples": 5, "num_clusters": 2}
    grey = shared_out(images, **sizes, num_test_clients=2)[0]
    data = shared_out(colour, **sizes, num_test_clients=2)[0]
    assert data.inputs.shape == (2, 5, 3, 3, 3)
    np.testing.assert_array_equal(data.inputs[..., 2], grey.inputs)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_clusters": 3}, "`num_clusters` must be 1, 2 or 4, got 3"),
        ({"num_clients": 10}, "multiple of `num_clusters`, got 10 clients and 4"),
        ({"num_clients": 0}, "multiple of `num_clusters`, got 0"),
        ({"num_clusters": 4, "num_test_clients": 2}, "number of test clients"),
        ({"num_samples": 0}, "`num_samples` must be positive"),
        ({"num_clients": 20}, "at most 4 samples .* or 16 clients these samples"),
        ({"num_test_samples": 9}, "at most 8 samples would fit these clients"),
    ],
)
def test_impossible_sizes_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        shared_out(numbered(), **(SIZES | change))


def test_images_that_are_not_square_cannot_make_quarter_turns():
    images = numbered()
    wide = dataclasses.replace(
        images,
        train_inputs=np.zeros((20, 3, 4), np.uint8),
        test_inputs=np.zeros((16, 3, 4), np.uint8),
    )
    with pytest.raises(ValueError, match="square images, got 3 x 4"):
        rotated(wide, key=jax.random.key(0), **SIZES)
    sizes = SIZES | {"num_clients": 8, "num_clusters": 2, "num_test_samples": 4}
    assert shared_out(wide, **sizes)[0].inputs.shape[2:] == (3, 4)
