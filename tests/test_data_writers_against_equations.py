"""Writers as clients: who is chosen, what each one has, and what is refused."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.data import Writers, by_writer

# Images of six writers; writer 1 has none to train on, writer 4 none for the test.
TRAIN_SIZES, TEST_SIZES = (3, 0, 5, 1, 4, 2), (2, 3, 1, 1, 0, 1)


def numbered() -> Writers:
    """Images whose top left pixel is their number, the writers' images mixed up."""

    def split(sizes: tuple[int, ...], first: int):
        writers = np.repeat(np.arange(len(sizes)), sizes)
        writers = np.random.default_rng(0).permutation(writers).astype(np.int32)
        pixels = np.full((len(writers), 2, 3), 255, np.uint8)
        pixels[:, 0, 0] = first + np.arange(len(writers))
        return pixels, pixels[:, 0, 0].astype(np.int32) % 62, writers

    train, test = split(TRAIN_SIZES, 1), split(TEST_SIZES, 101)
    return Writers(*train, *test, tuple("abcdef"), 62, "test")


def own(writers: Writers, split: str, writer: int) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels of one writer, by a loop."""
    inputs, labels, owners = (
        getattr(writers, f"{split}_{leaf}") for leaf in ("inputs", "labels", "writers")
    )
    rows = [row for row, owner in enumerate(owners) if owner == writer]
    return inputs[rows], labels[rows]


@functools.cache
def of_all(invert: bool):
    """All that are eligible, as arrays of NumPy."""
    return jax.device_get(by_writer(numbered(), invert=invert))


@pytest.mark.parametrize("invert", [False, True])
def test_every_pixel_and_label_by_hand(invert):
    writers = numbered()
    both = of_all(invert)
    eligible = [0, 2, 3, 5]
    for data, split, longest in zip(both, ("train", "test"), (5, 2), strict=True):
        assert data.inputs.shape == (4, longest, 2, 3)
        assert data.inputs.dtype == jnp.float32 and data.targets.dtype == jnp.int32
        for client, writer in enumerate(eligible):
            pixels, labels = own(writers, split, writer)
            size = len(labels)
            assert data.mask[client].tolist() == [True] * size + [False] * (
                longest - size
            )
            shares = pixels.astype(float) / 255
            expected = 1 - shares if invert else shares
            np.testing.assert_allclose(
                data.inputs[client, :size], expected, rtol=1e-6, atol=1e-7
            )
            assert not np.any(data.inputs[client, size:])
            assert data.targets[client].tolist() == labels.tolist() + [0] * (
                longest - size
            )
    others = of_all(not invert)[0]  # Control: the other polarity.
    assert not np.allclose(others.inputs, both[0].inputs)


def chosen(writers: Writers, **changes) -> list[int]:
    """Who the clients are, read from their first training and test images."""
    train, test = by_writer(writers, **changes)
    first, tested = (np.asarray(d.targets)[:, 0].tolist() for d in (train, test))
    found = [int(writers.train_writers[label - 1]) for label in first]
    labels = writers.test_labels.tolist()
    assert found == [int(writers.test_writers[labels.index(t)]) for t in tested]
    return found


def test_clients_are_those_with_enough_images():
    writers = numbered()
    assert chosen(writers) == [0, 2, 3, 5]
    assert chosen(writers, min_samples=3) == [0, 2, 5]  # Writer 5 has 2 + 1.
    assert chosen(writers, min_samples=4) == [0, 2]
    assert chosen(writers, min_samples=4, num_clients=1) == [0]
    train, _ = by_writer(writers, num_clients=1)
    assert train.inputs.shape[1] == 3  # Padded to the longest of the chosen alone.


def test_key_draws_clients_without_replacement():
    writers = numbered()
    draws = [
        tuple(chosen(writers, num_clients=2, key=jax.random.key(seed)))
        for seed in range(60)
    ]
    pairs = {(a, b) for a in (0, 2, 3, 5) for b in (0, 2, 3, 5) if a < b}
    # A pair is missed by 60 fair draws with a chance of 2e-5; seeds are constants.
    assert set(draws) == pairs
    assert draws[0] == tuple(chosen(writers, num_clients=2, key=jax.random.key(0)))
    assert chosen(writers, key=jax.random.key(0)) == [0, 2, 3, 5]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_clients": 5}, r"`num_clients` must be in 1\.\.4, .* got 5"),
        ({"num_clients": 0}, r"`num_clients` must be in 1\.\.4, .* got 0"),
        ({"num_clients": 3, "min_samples": 4}, r"in 1\.\.2, .* at least 4 images"),
        ({"min_samples": 7}, "got 7; of 6 writers 4 .* most images of one are 6"),
    ],
)
def test_too_few_writers_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        by_writer(numbered(), **change)


def test_writers_without_training_or_test_images_leave_nobody():
    """As LEAF's split by user has them: nobody is in both halves."""
    writers = numbered()
    apart = dataclasses.replace(writers, train_writers=writers.train_writers * 0 + 1)
    apart = dataclasses.replace(apart, test_writers=writers.test_writers * 0)
    with pytest.raises(ValueError, match=r"of 6 writers 0 have .* `-t sample`"):
        by_writer(apart)


def test_labels_outside_the_classes_are_refused():
    writers = dataclasses.replace(numbered(), num_classes=5)
    with pytest.raises(ValueError, match=r"`targets` must be in 0\.\.4"):
        by_writer(writers)


def test_images_of_two_shapes_are_refused():
    wider = numbered()
    # Past the run-time check of annotations, which tests have and users do not.
    object.__setattr__(wider, "test_inputs", np.repeat(wider.test_inputs, 2, axis=2))
    with pytest.raises(ValueError, match=r"of shape \(2, 3\) each, got \(2, 6\)"):
        by_writer(wider)
