"""Decompositions of matrices, one at a time whatever is mapped over them.

On a CPU, jaxlib spreads a batch of decompositions over the threads of XLA's pool and
waits for them. Where clients are spread over as many devices as there are threads, and
all of them wait, nobody is left to work: the program hangs. A loop over single matrices
waits for nobody.
"""

import jax.numpy as jnp
from jax.custom_batching import sequential_vmap
from jaxtyping import Array, Float

Matrix = Float[Array, "rows columns"]


def singular_vectors(
    matrix: Matrix,
) -> tuple[Float[Array, " rank"], Float[Array, "rank columns"]]:
    """Singular values, largest first, and right singular vectors, of arbitrary signs.

    Cost: `rows columns^2`, or `rows^2 columns` where there are fewer rows.
    """
    return _SVD(matrix)


def eigenvectors(
    matrix: Float[Array, "rows rows"],
) -> tuple[Float[Array, " rows"], Float[Array, "rows rows"]]:
    """Eigenvalues of a symmetric matrix, smallest first, and eigenvectors as columns.

    Cost: cubic in the rows.
    """
    return _EIGH(matrix)


def right_factor(matrix: Matrix) -> Float[Array, "rank columns"]:
    """The upper triangle of a QR decomposition.

    Cost: `rows columns^2`.
    """
    return _QR(matrix)


def _svd(matrix: Matrix) -> tuple[Array, Array]:
    _, sizes, vectors = jnp.linalg.svd(matrix, full_matrices=False)
    return sizes, vectors


def _eigh(matrix: Matrix) -> tuple[Array, Array]:
    values, vectors = jnp.linalg.eigh(matrix)
    return values, vectors


_SVD = sequential_vmap(_svd)
_EIGH = sequential_vmap(_eigh)
_QR = sequential_vmap(lambda matrix: jnp.linalg.qr(matrix, mode="r"))
