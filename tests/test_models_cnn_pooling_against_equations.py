"""Pools, local response normalisation and windows, recomputed by hand in NumPy."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.base.types import Task
from cfljax.models.convolution import local_response, max_pool, overlapping_max_pool
from cfljax.models.rotated_cifar import central_window, distort, standardise, windowed


def images(*shape: int) -> jax.Array:
    return jax.random.normal(jax.random.key(0), shape)


def xla_pool(window: int, stride: int):
    sizes, strides = (1, window, window, 1), (1, stride, stride, 1)
    return lambda x: jax.lax.reduce_window(
        x, -jnp.inf, jax.lax.max, sizes, strides, "SAME"
    )


@pytest.mark.parametrize(
    "pool, window, stride, shape",
    [
        (max_pool, 2, 2, (3, 4, 6, 2)),
        (overlapping_max_pool, 3, 2, (3, 4, 6, 2)),
        (overlapping_max_pool, 3, 2, (3, 5, 7, 2)),
        (
            functools.partial(overlapping_max_pool, window=2, stride=1),
            2,
            1,
            (3, 4, 3, 2),
        ),
    ],
)
def test_pools_without_ties_against_xla(pool, window, stride, shape):
    def weighted(pool, x):
        found = pool(x)
        return jnp.sum(jnp.sin(3 * found) * (1 + found)), found

    def both(x):
        pools = (pool, xla_pool(window, stride))
        return [jax.grad(weighted, 1, has_aux=True)(f, x) for f in pools]

    both = jax.jit(both)
    values = images(*shape)
    (ours, found), (theirs, reference) = both(values)
    np.testing.assert_array_equal(found, reference)
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert not np.allclose(both(values + 0.01)[0][0], theirs, atol=1e-5)


def test_ties_share_the_gradient_evenly():
    square = jnp.array([[1.0, 1.0], [0.0, 1.0]])[None, :, :, None]
    found = jax.jit(jax.grad(lambda x: 6 * jnp.sum(max_pool(x))))(square)
    np.testing.assert_array_equal(found[0, :, :, 0], [[2, 2], [0, 2]])
    flat = jnp.zeros((1, 4, 4, 1))  # Windows of 9, 6, 6 and 4 pixels.
    found = jax.jit(jax.grad(lambda x: 36 * jnp.sum(overlapping_max_pool(x))))(flat)
    expected = np.zeros((4, 4))
    for rows in (slice(0, 3), slice(2, 4)):
        for columns in (slice(0, 3), slice(2, 4)):
            expected[rows, columns] += 36 / expected[rows, columns].size
    np.testing.assert_allclose(found[0, :, :, 0], expected, rtol=1e-6)
    assert expected.sum() == pytest.approx(4 * 36)  # Nothing is lost or doubled.


@pytest.mark.parametrize("pool", [max_pool, overlapping_max_pool])
def test_pools_commute_with_vmap_and_scan(pool):
    stack = images(2, 3, 4, 4, 2)
    gradient = jax.grad(lambda x: jnp.sum(jnp.square(pool(x))))

    def carried(stack):
        alone = jnp.stack([gradient(part) for part in stack])
        return alone, jax.vmap(gradient)(stack), jax.lax.map(gradient, stack)

    alone, mapped, looped = jax.jit(carried)(stack)
    np.testing.assert_allclose(mapped, alone, rtol=1e-6)
    np.testing.assert_allclose(looped, alone, rtol=1e-6)
    assert not np.allclose(alone[0], alone[1])


def test_local_response_against_its_sum():
    values = 10 * np.asarray(images(2, 2, 2, 7), np.float64)
    expected = np.empty_like(values)
    for channel in range(7):
        near = values[..., max(0, channel - 2) : channel + 3]
        expected[..., channel] = (
            values[..., channel] / (2 + 0.1 * (near**2).sum(-1)) ** 0.75
        )
    given = jnp.asarray(values, jnp.float32)
    found = local_response(given, radius=2, bias=2.0, alpha=0.1)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    wider = local_response(given, radius=3, bias=2.0, alpha=0.1)
    assert not np.allclose(wider, expected, rtol=1e-3)


def distorted(seed: int, batch: jax.Array, *changes: dict[str, Any]) -> list:
    """The same draws under several settings."""
    plain: dict[str, Any] = {"brightness": 0.0, "contrast": (1.0, 1.0)}
    plain |= {"window": 3, "shared": False}
    draw = lambda key: [distort(key, batch, **plain | change) for change in changes]
    return jax.jit(draw)(jax.random.key(seed))


@pytest.mark.parametrize("shared", [True, False])
def test_windows_are_cut_from_the_image_and_mirrored(shared):
    """Every image is a grid of numbers of its own, so that windows can be located."""
    grid = np.arange(20.0).reshape(4, 5)
    batch = jnp.asarray(np.tile(grid[None, :, :, None], (64, 1, 1, 1)), jnp.float32)
    found = distorted(1, batch, {"shared": shared})[0][..., 0]
    corners, mirrored = [], []
    for window in np.asarray(found):
        mirrored.append(window[0, 0] > window[0, 1])
        window = window[:, ::-1] if mirrored[-1] else window
        row, column = divmod(round(float(window[0, 0])), 5)
        np.testing.assert_allclose(window, grid[row : row + 3, column : column + 3])
        corners.append((row, column))
    assert 10 < sum(mirrored) < 54  # Fails in 1 of 1e7 fair draws of 64.
    assert len(set(corners)) == (1 if shared else 6)


def test_brightness_and_contrast_move_each_image_as_told():
    batch = images(50, 3, 3, 2)
    contrast = {"contrast": (0.2, 1.8)}
    settings = ({"brightness": 0.5} | contrast, contrast, {})
    moved, darker, plain = map(np.asarray, distorted(2, batch, *settings))
    shift = (moved - plain).mean(axis=(1, 2))
    assert np.ptp(shift, axis=1).max() < 1e-5  # The same in both channels.
    assert 0.3 < abs(shift).max() < 0.5
    factor = moved.std(axis=(1, 2)) / plain.std(axis=(1, 2))
    np.testing.assert_allclose(factor[:, 0], factor[:, 1], rtol=1e-4)
    assert 0.2 <= factor.min() < 0.5 and 1.5 < factor.max() <= 1.8
    # Standardising takes the shift away and leaves the channels' contrast.
    moved, darker, plain = map(jax.jit(standardise), (moved, darker, plain))
    np.testing.assert_allclose(moved, darker, atol=1e-4)
    assert not np.allclose(darker, plain, atol=1e-2)


def test_standardised_images_and_central_windows():
    batch = 3 + 2 * images(4, 3, 3, 2)
    found = np.asarray(standardise(batch)).reshape(4, -1)
    np.testing.assert_allclose(found.mean(1), 0, atol=1e-6)
    np.testing.assert_allclose(found.std(1), 1, rtol=1e-5)
    np.testing.assert_array_equal(standardise(jnp.ones((1, 3, 3, 2))), 0)
    faint = jnp.zeros((1, 2, 2, 1)).at[0, 0, 0, 0].set(0.04)
    np.testing.assert_allclose(standardise(faint)[0, 0, 0, 0], 0.03 / 0.5, rtol=1e-5)
    np.testing.assert_array_equal(central_window(batch, 1)[:, 0, 0], batch[:, 1, 1])


@pytest.mark.slow
def test_a_windowed_task_trains_on_random_and_is_judged_by_central_windows():
    inner = Task(
        init=lambda key: jnp.zeros(()),
        losses=lambda params, inputs, targets: inputs[:, 0, 0, 0] + params,
        predict=lambda params, inputs: inputs,
    )
    task = windowed(inner, input_shape=(5, 5, 1), window=3)
    batch, labels, mask = images(6, 5, 5, 1), jnp.zeros(6, int), jnp.ones(6, bool)
    params = task.init(jax.random.key(0))
    middle = standardise(batch[:, 1:4, 1:4])
    np.testing.assert_array_equal(task.predict(params, batch), middle)
    np.testing.assert_array_equal(
        task.losses(params, batch, labels), middle[:, 0, 0, 0]
    )
    assert task.fit is not None
    fit = jax.jit(task.fit)
    drawn = [fit(jax.random.key(i), params, batch, labels, mask) for i in (0, 1)]
    assert not np.allclose(drawn[0][0], drawn[1][0])
    with pytest.raises(ValueError, match="`inputs` must be"):
        task.predict(params, batch[:, :4])


@pytest.mark.parametrize(
    "changes, name",
    [
        ({"window": 6}, "window"),
        ({"input_shape": (5, 5)}, "window"),
        ({"brightness": -1.0}, "brightness"),
        ({"contrast": (2.0, 1.0)}, "contrast"),
    ],
)
def test_impossible_windows_are_refused(changes, name):
    inner = Task(
        init=lambda key: key,
        losses=lambda params, inputs, targets: targets,
        predict=lambda params, inputs: inputs,
    )
    arguments: dict[str, Any] = {"input_shape": (5, 5, 1), "window": 3} | changes
    with pytest.raises(ValueError, match=f"`{name}`"):
        windowed(inner, **arguments)


def test_impossible_pools_are_refused():
    with pytest.raises(ValueError, match="`window` must divide"):
        max_pool(images(1, 4, 5, 1))
    with pytest.raises(ValueError, match="`stride` must be"):
        overlapping_max_pool(images(1, 4, 4, 1), 2, 3)
