"""Decompositions of single matrices, however many are mapped over them."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.base.decompositions import (
    eigenvectors,
    right_factor,
    singular_vectors,
)

MATRICES = np.random.default_rng(0).normal(size=(3, 4, 4)).astype("f4")
SYMMETRIC = MATRICES + MATRICES.transpose(0, 2, 1)
CASES = {
    "svd": (singular_vectors, jnp.linalg.svd, MATRICES),
    "eigh": (eigenvectors, jnp.linalg.eigh, SYMMETRIC),
    "qr": (right_factor, jnp.linalg.qr, MATRICES),
}


def decomposed(closed):
    """Numbers of axes of all that is decomposed anywhere in a program."""
    found = []
    for equation in closed.eqns:
        name = equation.primitive.name
        if name in ("svd", "eigh", "qr"):
            found.append(equation.invars[0].aval.ndim)
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                found += decomposed(inner)
    return found


@pytest.mark.parametrize("name", CASES)
def test_never_a_batch(name):
    own, plain, matrices = CASES[name]
    twice = lambda function: jax.vmap(jax.vmap(function))
    stacked = jnp.asarray(matrices)[None]
    found = decomposed(jax.make_jaxpr(twice(own))(stacked).jaxpr)
    assert found and set(found) == {2}
    control = decomposed(jax.make_jaxpr(twice(plain))(stacked).jaxpr)
    assert control and set(control) == {4}


def test_values_are_those_of_the_matrices():
    for matrix, symmetric in zip(MATRICES, SYMMETRIC, strict=True):
        sizes, vectors = map(np.asarray, singular_vectors(jnp.asarray(matrix)))
        square = matrix.T @ matrix
        np.testing.assert_allclose((vectors.T * sizes**2) @ vectors, square, atol=1e-5)
        values, vectors = map(np.asarray, eigenvectors(jnp.asarray(symmetric)))
        np.testing.assert_allclose((vectors * values) @ vectors.T, symmetric, atol=1e-5)
        upper = np.asarray(right_factor(jnp.asarray(matrix)))
        np.testing.assert_allclose(upper.T @ upper, square, atol=1e-5)


# With batches of decompositions, about every other run never ended on two cores.
PROGRAM = """
import jax, jax.numpy as jnp
from cfljax import engine
count = engine.use_cores()
from cfljax.algorithms.pacfl import angles_between, client_subspaces
from cfljax.base.types import ClientData
inputs = jax.random.normal(jax.random.key(0), (15, 100, 28, 28))
targets = jax.random.randint(jax.random.key(1), (15, 100), 0, 10)
data = ClientData(inputs, targets, jnp.ones((15, 100), bool))

def angles(data):
    found = client_subspaces(data, num_vectors=3, num_classes=10)
    return angles_between(found, found)

with engine.clients_over_devices(count):
    print(jax.jit(angles)(data).shape)
"""


@pytest.mark.slow
def test_decompositions_on_every_device_do_not_hang():
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.stdout.strip() == "(15, 15)", run.stderr
