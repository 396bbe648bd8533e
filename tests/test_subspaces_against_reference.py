"""Subspaces of clients and their angles, against NumPy's and SciPy's."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
import scipy.linalg

from cfljax.algorithms.pacfl import Subspaces, angles_between, client_subspaces
from cfljax.base.types import ClientData

CLIENTS, SAMPLES, FEATURES, CLASSES, VECTORS = 5, 9, 8, 3, 2


def draw():
    """Client 0 has every class, 1 one sample of class 0, 2 and 3 no class 1, 4 all."""
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(CLIENTS, SAMPLES, 2, 4)).astype("f4")
    targets = np.tile(np.arange(SAMPLES) % CLASSES, (CLIENTS, 1))
    mask = np.ones((CLIENTS, SAMPLES), bool)
    mask[1, 1:] = False
    mask[2:4] = targets[2:4] != 1
    inputs[4, :, 0] = 0
    # Class 2 of client 4 lies on a line, almost that of its class 1.
    inputs[4, 2::3] = inputs[4, 2:3] * np.array([1.0, -2.0, 0.5])[:, None, None]
    inputs[4, 1::3] = inputs[4, 2:3] * np.array([2.0, 1.0, 1.0])[:, None, None]
    return ClientData(jnp.asarray(inputs), jnp.asarray(targets), jnp.asarray(mask))


DATA = draw()


@functools.cache
def told():
    run = functools.partial(client_subspaces, num_vectors=VECTORS, num_classes=CLASSES)
    return jax.tree.map(np.asarray, jax.jit(run)(DATA))


@functools.cache
def compiled(angle):
    return jax.jit(functools.partial(angles_between, angle=angle))


def angles(left, right, angle="principal"):
    return np.asarray(compiled(angle)(left, right))


def of_columns(columns):
    columns = jnp.asarray(columns, jnp.float32)
    return Subspaces(columns, jnp.any(columns != 0, axis=1))


def columns_of(subspaces, client):
    return subspaces.vectors[client][:, subspaces.kept[client]].astype("f8")


def test_vectors_are_numpy_s():
    vectors, kept = told()
    assert vectors.shape == (CLIENTS, FEATURES, CLASSES * VECTORS)
    assert kept.sum(1).tolist() == [6, 1, 4, 4, 4]  # 1, 1 and 2 of client 4.
    np.testing.assert_array_equal(vectors[~np.repeat(kept[:, None], FEATURES, 1)], 0)
    for client in range(CLIENTS):
        for label in range(CLASSES):
            own = np.asarray(DATA.mask[client]) & (DATA.targets[client] == label)
            rows = np.asarray(DATA.inputs[client], "f8")[own].reshape(-1, FEATURES)
            left, sizes, _ = np.linalg.svd(rows.T, full_matrices=False)
            number = min(VECTORS, int(np.sum(sizes > 1e-4)))
            block = slice(label * VECTORS, (label + 1) * VECTORS)
            found = vectors[client][:, block][:, kept[client, block]]
            signs = np.sign(np.sum(found * left[:, :number], axis=0))
            np.testing.assert_allclose(found, left[:, :number] * signs, atol=5e-6)
            largest = np.argmax(np.abs(found), axis=0)
            assert (np.take_along_axis(found, largest[None], axis=0) > 0).all()


@pytest.mark.parametrize("shift", [0.0, 3.0])
def test_singular_vectors_are_of_inputs_as_they_are(shift):
    """Control: taking the mean off first would give others."""
    inputs = np.random.default_rng(1).normal(size=(1, SAMPLES, FEATURES)) + shift
    data = DATA._replace(
        inputs=jnp.asarray(inputs, jnp.float32),
        targets=DATA.targets[:1],
        mask=jnp.ones((1, SAMPLES), bool),
    )
    run = jax.jit(functools.partial(client_subspaces, num_vectors=1))
    found = np.asarray(run(data).vectors)[0, :, 0]
    raw = np.linalg.svd(inputs[0])[2][0]
    centred = np.linalg.svd(inputs[0] - inputs[0].mean(axis=0))[2][0]
    assert abs(found @ raw) > 1 - 1e-5
    assert abs(found @ centred) < 0.999


def test_principal_angles_are_scipy_s():
    subspaces = told()
    found = angles(subspaces, subspaces)
    for i in range(CLIENTS):
        for j in range(CLIENTS):
            # Two vectors of client 4 are one, but for rounding.
            pair = [
                scipy.linalg.orth(columns_of(subspaces, client), rcond=1e-5)
                for client in (i, j)
            ]
            expected = np.rad2deg(scipy.linalg.subspace_angles(*pair).min())
            np.testing.assert_allclose(found[i, j], expected, atol=2e-4)
    # Control: as if vectors of different classes were orthogonal.
    products = columns_of(subspaces, 2).T @ columns_of(subspaces, 3)
    naive = np.rad2deg(np.arccos(np.linalg.norm(products, 2).clip(-1, 1)))
    assert abs(naive - found[2, 3]) > 1


@pytest.mark.parametrize("degrees", [0.0, 0.002, 0.5, 45.0, 89.9, 90.0])
@pytest.mark.parametrize("angle", ["principal", "entry"])
def test_small_angles_are_precise(angle, degrees):
    """The other angle is 90 degrees, to a column that there is not, or to one that is;
    the arc cosine of single precision would be wrong by more than a tenth of .002."""
    radians = np.deg2rad(degrees)
    zeros = np.zeros(FEATURES)
    one, other = np.eye(FEATURES)[0], np.eye(FEATURES)[1]
    turned = np.cos(radians) * one + np.sin(radians) * other
    left = of_columns([np.stack([one, zeros], 1), np.stack([zeros, one], 1)])
    far = np.eye(FEATURES)[2]
    right = of_columns([np.stack([turned, zeros], 1), np.stack([far, turned], 1)])
    np.testing.assert_allclose(angles(left, right, angle), degrees, atol=1e-5)
    if degrees == 0.002:
        cosine = np.dot(one.astype("f4"), turned.astype("f4"))
        assert abs(np.rad2deg(np.arccos(cosine)) - degrees) > 2e-4


def test_missing_vectors_are_no_angle_of_90():
    one, other = np.array([1.0, 0.0, 0.0]), np.array([-0.6, 0.8, 0.0])
    zeros = np.zeros(3)
    left = of_columns([np.stack([one, zeros], 1), np.zeros((3, 2))])
    right = of_columns([np.stack([zeros, other], 1), np.zeros((3, 2))])
    found = angles(left, right, "entry")
    np.testing.assert_allclose(found[0, 0], np.rad2deg(np.arccos(-0.6)), rtol=1e-5)
    assert np.isnan(found).sum() == 3  # Nobody is near a client that told nothing.
    found = angles(left, right)
    np.testing.assert_allclose(found[0, 0], np.rad2deg(np.arccos(0.6)), rtol=1e-5)
    assert np.isnan(found).sum() == 3


def test_only_entries_hang_on_the_basis():
    """Signs and rotations of a basis are arbitrary."""
    subspaces = told()
    first = Subspaces(subspaces.vectors[:1, :, :2], subspaces.kept[:1, :2])
    turn = np.array([[0.6, -0.8], [0.8, 0.6]], "f4")
    turned = first._replace(vectors=first.vectors @ turn)
    flipped = first._replace(vectors=-first.vectors)
    for other in (turned, flipped):
        same = angles(other, subspaces), angles(first, subspaces)
        np.testing.assert_allclose(*same, atol=2e-4)
        change = angles(other, subspaces, "entry") - angles(first, subspaces, "entry")
        assert np.abs(change).max() > 1


@pytest.mark.parametrize("kind", ["integers", "not a number", "infinite", "zeros"])
def test_inputs_of_other_kinds(kind):
    """Only the client itself has no vectors where its inputs span nothing finite."""
    inputs = np.asarray(DATA.inputs)
    if kind == "integers":
        inputs = (10 * inputs).astype("i4")
    else:
        inputs = inputs.copy()
        spoiled = {"not a number": np.nan, "infinite": np.inf, "zeros": 0.0}[kind]
        inputs[0] = spoiled
    run = functools.partial(client_subspaces, num_vectors=VECTORS)
    found = jax.jit(run)(DATA._replace(inputs=jnp.asarray(inputs)))
    assert found.vectors.dtype == jnp.float32
    assert np.isfinite(found.vectors).all()
    expected = [2, 1, 2, 2, 2] if kind == "integers" else [0, 1, 2, 2, 2]
    assert np.asarray(found.kept).sum(1).tolist() == expected


def test_chunks_change_nothing():
    run = functools.partial(
        client_subspaces,
        num_vectors=VECTORS,
        num_classes=CLASSES,
        order="batched",
        clients_per_chunk=2,
    )
    found = jax.jit(run)(DATA)
    np.testing.assert_allclose(found.vectors, told().vectors, atol=1e-5)
    np.testing.assert_array_equal(found.kept, told().kept)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_vectors": 0}, "`num_vectors` must be at least 1, got 0"),
        ({"num_vectors": 1, "num_classes": 0}, "`num_classes` must be at least 1"),
        ({"num_vectors": 1, "num_classes": 2}, "`num_classes` needs targets that"),
    ],
)
def test_misuse_is_named(settings: dict[str, Any], message):
    data = DATA._replace(targets=DATA.inputs[:, :, 0, 0])
    with pytest.raises(ValueError, match=message):
        client_subspaces(data, **settings)


def test_an_unknown_angle_is_named():
    with pytest.raises((ValueError, jaxtyping.TypeCheckError), match="angle"):
        angles_between(told(), told(), angle="cosine")  # pyright: ignore
