"""Convolution, pools and windows, however they are nested, and the network of them."""

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from cfljax.base.types import Task
from cfljax.models import rotated_cifar_cnn
from cfljax.models.convolution import (
    convolution,
    local_response,
    max_pool,
    overlapping_max_pool,
)
from cfljax.models.rotated_cifar import central_window, distort, standardise, windowed

PADDINGS = ["SAME", "VALID", ((1, 0), (2, 3)), ((4, 3), (0, 5))]
ORDERS = ("sequential", "batched")


@pytest.fixture
def arrays():
    """Draws images and kernels, in double precision as long as they are used."""

    def draw(*leading: int, kernels: tuple[int, ...] = ()):
        keys = jax.random.split(jax.random.key(0), 2)
        images = jax.random.normal(keys[0], (*leading, 10, 6, 7, 2), jnp.float64)
        return images, jax.random.normal(keys[1], (*kernels, 3, 4, 2, 3), jnp.float64)

    with jax.enable_x64(True):
        yield draw


def loss(order, padding, images, kernel):
    """Not linear, so that the gradients depend on everything."""
    return jnp.sum(jnp.sin(convolution(images, kernel, padding, order=order)))


def both(nest, padding, *arguments):
    """`nest(loss)` in the form for CPUs and in XLA's."""
    return [
        jax.jit(nest(functools.partial(loss, order, padding)))(*arguments)
        for order in ORDERS
    ]


def agree(ours, reference, tolerance=1e-10):
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(reference), strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance)


# Against equations
@pytest.mark.parametrize("padding", PADDINGS)
def test_values_against_sums_over_windows(arrays, padding):
    images, kernel = arrays()
    named = {"SAME": ((1, 1), (1, 2)), "VALID": ((0, 0), (0, 0))}
    rows, columns = named[padding] if isinstance(padding, str) else padding
    padded = np.pad(images, ((0, 0), rows, columns, (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 4), axis=(1, 2))
    expected = np.einsum("nhwcij,ijco->nhwo", windows, kernel)
    for order in ORDERS:
        found = convolution(images, kernel, padding, order=order)
        agree(found, expected)
        assert not np.allclose(found, -expected)
    if padding == "SAME":
        assert expected.shape[:3] == images.shape[:3]


# Against reference
@pytest.mark.parametrize(
    "padding, samples",
    [("SAME", 0), ("SAME", 1), ("SAME", 70), *((padding, 10) for padding in PADDINGS)],
)
def test_gradients_for_any_number_of_samples(arrays, padding, samples):
    images, kernel = arrays()
    images = jnp.tile(images, (7, 1, 1, 1))[:samples]
    agree(*both(lambda f: jax.grad(f, (0, 1)), padding, images, kernel))


def scanned(f, axes):
    """Kernels that shrink between two gradients."""
    gradients = jax.vmap(jax.grad(f, (0, 1)), axes)
    step = lambda images, kernel: (kernel * 0.9, gradients(images, kernel))
    return lambda images, kernel: jax.lax.scan(
        lambda kernel, _: step(images, kernel), kernel, None, length=2
    )


NESTS = {
    "vmap of grad": lambda f, axes: jax.vmap(jax.grad(f, (0, 1)), axes),
    "grad of vmap": lambda f, axes: jax.grad(
        lambda *a: jnp.sum(jax.vmap(f, axes)(*a) ** 2), (0, 1)
    ),
    "scan of vmap of grad": scanned,
}
AXES = [(0, 0), (None, 0), (0, None)]


@pytest.mark.long
@pytest.mark.parametrize(
    "nest, padding, axes",
    [
        *(("vmap of grad", "VALID", axes) for axes in AXES),
        *(("grad of vmap", "SAME", axes) for axes in AXES),
        ("scan of vmap of grad", "SAME", (None, 0)),
    ],
)
def test_nested_transformations(arrays, nest, padding, axes):
    several = [() if axis is None else (3,) for axis in axes]
    images, kernel = arrays(*several[0], kernels=several[1])
    agree(*both(lambda f: NESTS[nest](f, axes), padding, images, kernel))


def test_scan_of_grad_and_grad_of_scan(arrays):
    images, kernel = arrays(3)

    def trained(f):
        def descend(kernel, images):
            return kernel - 0.1 * jax.grad(f, 1)(images, kernel), None

        return lambda images, kernel: jax.lax.scan(descend, kernel, images)[0]

    agree(*both(trained, "SAME", images, kernel))
    # Through the steps of training: second derivatives.
    through = lambda f: jax.grad(lambda *a: jnp.sum(trained(f)(*a) ** 2), (0, 1))
    agree(*both(through, "VALID", images, kernel), tolerance=1e-9)


def test_two_nested_axes(arrays):
    """Trials over clients: images of both, kernels of the inner axis only."""
    images, kernel = arrays(2, 3, kernels=(3,))
    nest = lambda f: jax.vmap(jax.vmap(jax.grad(f, (0, 1))), (0, None))
    agree(*both(nest, "SAME", images, kernel))


@pytest.mark.long
def test_rounding_in_single_precision(arrays):
    """A sum of n products is off by at most n units of the sum of their sizes."""
    images, kernel = arrays()
    weights = jax.random.normal(jax.random.key(2), (10, 6, 7, 3), jnp.float64)

    @functools.partial(jax.jit, static_argnums=0)
    def gradients(order, images, kernel, weights):
        total = lambda *pair: jnp.vdot(convolution(*pair, order=order), weights)
        return jax.grad(total, (0, 1))(images, kernel)

    exact = gradients("batched", images, kernel, weights)
    sizes = gradients("batched", *(abs(a) for a in (images, kernel, weights)))
    rounded = (leaf.astype(jnp.float32) for leaf in (images, kernel, weights))
    single = gradients("sequential", *rounded)
    unit = np.finfo(np.float32).eps
    for found, true, size, terms in zip(
        single, exact, sizes, (3 * 4 * 3, 10 * 6 * 7), strict=True
    ):
        assert found.dtype == jnp.float32
        limit = float((terms + 2) * unit) * size
        found = found.astype(jnp.float64)
        assert (abs(found - true) <= limit).all()
        assert not (abs(1.01 * found - true) <= limit).all()


@pytest.mark.parametrize("order", ORDERS)
def test_kernels_under_vmap_are_not_grouped_on_a_cpu(arrays, order):
    """What the form is for: no convolution of several groups is left."""
    images, kernel = arrays(kernels=(3,))
    nest = jax.vmap(jax.grad(functools.partial(loss, order, "SAME"), (0, 1)), (None, 0))
    text = jax.jit(nest).lower(images, kernel).as_text()
    assert ("feature_group_count = 3" in text) == (order == "batched")


# Pools and windows
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
        (lambda x: overlapping_max_pool(x, 2, 1), 2, 1, (3, 4, 3, 2)),
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
    expected, halves = np.zeros((4, 4)), (slice(0, 3), slice(2, 4))
    for window in itertools.product(halves, halves):
        expected[window] += 36 / expected[window].size
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


@pytest.mark.long
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


@pytest.mark.long
def test_standardised_images_and_central_windows():
    batch = 3 + 2 * images(4, 3, 3, 2)
    found = np.asarray(standardise(batch)).reshape(4, -1)
    np.testing.assert_allclose(found.mean(1), 0, atol=1e-6)
    np.testing.assert_allclose(found.std(1), 1, rtol=1e-5)
    np.testing.assert_array_equal(standardise(jnp.ones((1, 3, 3, 2))), 0)
    faint = jnp.zeros((1, 2, 2, 1)).at[0, 0, 0, 0].set(0.04)
    np.testing.assert_allclose(standardise(faint)[0, 0, 0, 0], 0.03 / 0.5, rtol=1e-5)
    np.testing.assert_array_equal(central_window(batch, 1)[:, 0, 0], batch[:, 1, 1])


FIRST_PIXEL = Task(
    init=lambda key: jnp.zeros(()),
    losses=lambda params, inputs, targets: inputs[:, 0, 0, 0] + params,
    predict=lambda params, inputs: inputs,
)


@pytest.mark.slow
def test_a_windowed_task_trains_on_random_and_is_judged_by_central_windows():
    task = windowed(FIRST_PIXEL, input_shape=(5, 5, 1), window=3)
    batch, labels, mask = images(6, 5, 5, 1), jnp.zeros(6, int), jnp.ones(6, bool)
    params = task.init(jax.random.key(0))
    middle = standardise(batch[:, 1:4, 1:4])
    np.testing.assert_array_equal(task.predict(params, batch), middle)
    losses = task.losses(params, batch, labels)
    np.testing.assert_array_equal(losses, middle[:, 0, 0, 0])
    assert task.fit is not None
    fit = jax.jit(task.fit)
    drawn = [fit(jax.random.key(i), params, batch, labels, mask) for i in (0, 1)]
    assert not np.allclose(drawn[0][0], drawn[1][0])
    with pytest.raises(ValueError, match="`inputs` must be"):
        task.predict(params, batch[:, :4])


# Against reference: the tutorial's network
@functools.cache
def cifar() -> dict:
    return jax.jit(rotated_cifar_cnn().init)(jax.random.key(0))


def tutorial(params: dict, inputs: jax.Array) -> jax.Array:
    """Logits from XLA's own convolution and pool, in the tutorial's order."""
    values = inputs[:, 4:28, 4:28]
    over = (1, 2, 3)
    values = values - values.mean(over, keepdims=True)
    values = values / values.std(over, keepdims=True)
    near = abs(np.subtract.outer(np.arange(64), np.arange(64))) <= 4
    norm = lambda x: x / (1 + 0.001 / 9 * (x**2 @ near.astype(np.float32))) ** 0.75
    pool = xla_pool(3, 2)

    def convolve(index, x):
        layer = params["convolutions"][index]
        names = ("NHWC", "HWIO", "NHWC")
        x = jax.lax.conv_general_dilated(
            x, layer["kernel"], (1, 1), "SAME", dimension_numbers=names
        )
        return jax.nn.relu(x + layer["bias"][None, None, None, :])

    values = norm(pool(convolve(0, values)))
    values = pool(norm(convolve(1, values))).reshape(len(inputs), -1)
    for layer in params["hidden"].values():
        values = jax.nn.relu(values @ layer["kernel"] + layer["bias"][None, :])
    return values @ params["output"]["kernel"] + params["output"]["bias"][None, :]


@pytest.mark.long
def test_rotated_cifar_against_the_tutorial():
    params, labels = cifar(), jnp.arange(3)
    inputs = jax.random.uniform(jax.random.key(1), (3, 32, 32, 3))

    def compute(params, inputs):
        task, free = rotated_cifar_cnn(), rotated_cifar_cnn(l2=0.0)
        losses = [each.losses(params, inputs, labels) for each in (task, free)]
        found = task.predict(params, inputs)
        moved = tutorial(params, jnp.roll(inputs, 1, axis=1))
        return found, tutorial(params, inputs), moved, *losses

    found, logits, moved, losses, free = jax.jit(compute)(params, inputs)
    np.testing.assert_allclose(found, logits, atol=1e-4)
    assert not np.allclose(moved, logits, atol=1e-3)
    squares = sum(np.sum(np.square(params["hidden"][i]["kernel"])) for i in (0, 1))
    expected = -np.asarray(jax.nn.log_softmax(logits))[np.arange(3), np.arange(3)]
    np.testing.assert_allclose(losses, expected + 0.002 * squares, rtol=1e-4)
    np.testing.assert_allclose(free, expected, rtol=1e-3, atol=1e-4)
    assert (losses - free > 1).all()


@pytest.mark.long
def test_rotated_cifar_starts_as_the_tutorial():
    params = cifar()
    kept = 0.8796  # Standard deviation of a normal number cut at two.
    layers = [*params["convolutions"].values(), *params["hidden"].values()]
    for layer, scale, bias in zip(
        [*layers, params["output"]],
        (0.05, 0.05, 0.04, 0.04, 1 / 192),
        (0.0, 0.1, 0.1, 0.1, 0.0),
        strict=True,
    ):
        kernel = np.asarray(layer["kernel"])
        assert abs(kernel).max() <= 2 * scale * (1 + 1e-6)
        assert abs(kernel.std() / scale / kept - 1) < 6 / kernel.size**0.5
        np.testing.assert_allclose(layer["bias"], bias)
    text = jax.eval_shape(rotated_cifar_cnn(variant="text").init, jax.random.key(0))
    assert text["output"]["kernel"].shape == (384, 10) and len(text["hidden"]) == 1


# Against misuse
KERNEL = jnp.zeros((3, 4, 2, 3))


def windowed_by(input_shape=(5, 5, 1), window=3, **changes):
    windowed(FIRST_PIXEL, input_shape=input_shape, window=window, **changes)


@pytest.mark.parametrize(
    "call, message",
    [
        (
            lambda: convolution(images(2, 6, 7, 2), KERNEL, "CAUSAL"),
            "`padding` must be",
        ),
        (
            lambda: convolution(images(2, 6, 7, 2), KERNEL, ((1, 2),)),
            "`padding` must be",
        ),
        (lambda: convolution(images(2, 2, 7, 2), KERNEL, "VALID"), "`kernel` of"),
        (lambda: max_pool(images(1, 4, 5, 1)), "`window` must divide"),
        (lambda: overlapping_max_pool(images(1, 4, 4, 1), 2, 3), "`stride` must be"),
        (lambda: windowed_by(window=6), "`window`"),
        (lambda: windowed_by(input_shape=(5, 5)), "`window`"),
        (lambda: windowed_by(brightness=-1.0), "`brightness`"),
        (lambda: windowed_by(contrast=(2.0, 1.0)), "`contrast`"),
        (lambda: rotated_cifar_cnn(num_classes=1), "`num_classes`"),
    ],
)
def test_misuse_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_unknown_variants_are_refused():
    with pytest.raises((ValueError, jaxtyping.TypeCheckError)):
        rotated_cifar_cnn(variant="paper")  # pyright: ignore[reportArgumentType]
