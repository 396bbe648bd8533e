"""The convolution and its gradients against XLA's own, however they are nested."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.models.convolution import convolution

PADDINGS = ["SAME", "VALID", ((1, 0), (2, 3)), ((4, 3), (0, 5))]
IMAGES, KERNEL = (10, 6, 7, 2), (3, 4, 2, 3)


@pytest.fixture(autouse=True, scope="module")
def double_precision():
    with jax.enable_x64(True):
        yield


def arrays(*leading: int, kernels: tuple[int, ...] = ()):
    keys = jax.random.split(jax.random.key(0), 2)
    images = jax.random.normal(keys[0], leading + IMAGES, jnp.float64)
    return images, jax.random.normal(keys[1], kernels + KERNEL, jnp.float64)


def loss(order, padding, images, kernel):
    """Not linear, so that the gradients depend on everything."""
    return jnp.sum(jnp.sin(convolution(images, kernel, padding, order=order)))


def both(nest, padding, *arguments):
    """`nest(loss)` in the form for CPUs and in XLA's."""
    return [
        jax.jit(nest(functools.partial(loss, order, padding)))(*arguments)
        for order in ("sequential", "batched")
    ]


def agree(ours, reference, tolerance=1e-10):
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(reference), strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance)


@pytest.mark.parametrize("padding", PADDINGS)
def test_values_against_sums_over_windows(padding):
    images, kernel = arrays()
    named = {"SAME": ((1, 1), (1, 2)), "VALID": ((0, 0), (0, 0))}
    rows, columns = named[padding] if isinstance(padding, str) else padding
    padded = np.pad(images, ((0, 0), rows, columns, (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 4), axis=(1, 2))
    expected = np.einsum("nhwcij,ijco->nhwo", windows, kernel)
    for order in ("sequential", "batched"):
        found = convolution(images, kernel, padding, order=order)
        agree(found, expected)
        assert not np.allclose(found, -expected)
    if padding == "SAME":
        assert expected.shape[:3] == images.shape[:3]


@pytest.mark.parametrize(
    "padding, samples",
    [("SAME", 0), ("SAME", 1), ("SAME", 70), *((padding, 10) for padding in PADDINGS)],
)
def test_gradients_for_any_number_of_samples(padding, samples):
    images = jnp.tile(arrays()[0], (7, 1, 1, 1))[:samples]
    nest = lambda f: jax.grad(f, (0, 1))
    agree(*both(nest, padding, images, arrays()[1]))


NESTS = {
    "vmap of grad": lambda f, axes: jax.vmap(jax.grad(f, (0, 1)), axes),
    "grad of vmap": lambda f, axes: jax.grad(
        lambda *a: jnp.sum(jax.vmap(f, axes)(*a) ** 2), (0, 1)
    ),
    "scan of vmap of grad": lambda f, axes: (
        lambda images, kernel: jax.lax.scan(
            lambda carry, _: (
                carry * 0.9,
                jax.vmap(jax.grad(f, (0, 1)), axes)(images, carry),
            ),
            kernel,
            None,
            length=2,
        )
    ),
}


@pytest.mark.parametrize("axes", [(0, 0), (None, 0), (0, None)])
@pytest.mark.parametrize(
    "nest, padding",
    [("vmap of grad", "VALID"), ("grad of vmap", "SAME")],
)
def test_nested_transformations(nest, padding, axes):
    images, kernel = arrays(
        *([3] if axes[0] == 0 else []), kernels=(3,) if axes[1] == 0 else ()
    )
    agree(*both(lambda f: NESTS[nest](f, axes), padding, images, kernel))


def test_scan_of_vmap_of_grad():
    images, kernel = arrays(kernels=(3,))
    nest = lambda f: NESTS["scan of vmap of grad"](f, (None, 0))
    agree(*both(nest, "SAME", images, kernel))


def test_scan_of_grad_and_grad_of_scan():
    images, kernel = arrays(3)

    def trained(f):
        def descend(kernel, images):
            return kernel - 0.1 * jax.grad(f, 1)(images, kernel), None

        return lambda images, kernel: jax.lax.scan(descend, kernel, images)[0]

    agree(*both(trained, "SAME", images, kernel))
    # Through the steps of training: second derivatives.
    through = lambda f: jax.grad(lambda *a: jnp.sum(trained(f)(*a) ** 2), (0, 1))
    agree(*both(through, "VALID", images, kernel), tolerance=1e-9)


def test_two_nested_axes():
    """Trials over clients: images of both, kernels of the inner axis only."""
    images, kernel = arrays(2, 3, kernels=(3,))
    nest = lambda f: jax.vmap(jax.vmap(jax.grad(f, (0, 1))), (0, None))
    agree(*both(nest, "SAME", images, kernel))


def test_rounding_in_single_precision():
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


@pytest.mark.parametrize("order", ["sequential", "batched"])
def test_kernels_under_vmap_are_not_grouped_on_a_cpu(order):
    """What the form is for: no convolution of several groups is left."""
    images, kernel = arrays(kernels=(3,))
    nest = jax.vmap(jax.grad(functools.partial(loss, order, "SAME"), (0, 1)), (None, 0))
    text = jax.jit(nest).lower(images, kernel).as_text()
    assert ("feature_group_count = 3" in text) == (order == "batched")


def test_misuse_is_refused():
    images, kernel = arrays()
    with pytest.raises(ValueError, match="`padding` must be"):
        convolution(images, kernel, "CAUSAL")
    with pytest.raises(ValueError, match="`padding` must be"):
        convolution(images, kernel, ((1, 2),))
    with pytest.raises(ValueError, match="`kernel` of"):
        convolution(images[:, :2], kernel, "VALID")
