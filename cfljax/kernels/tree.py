"""Stacked pytrees: leaves that share one leading axis."""

from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PyTree, Shaped

from cfljax.types import Stacked, Variables

__all__ = ["length", "repeat", "rows", "select", "take", "trained_part", "with_trained"]

Tree = TypeVar("Tree")


def length(stacked: Stacked) -> int:
    """Size of the leading axis that all leaves share."""
    return jax.tree.leaves(stacked)[0].shape[0]


def repeat(tree: PyTree, number: int) -> Stacked:
    """The same tree in each of `number` rows: leaves `[...]` become `[number, ...]`."""
    row = lambda leaf: jnp.broadcast_to(leaf, (number,) + jnp.shape(leaf))
    return jax.tree.map(row, tree)


def take(stacked: Tree, indices: Int[Array, " *rows"]) -> Tree:
    """Entries of the leading axis: leaves `[n, ...]` become `[*rows, ...]`.

    Indices must be in range; JAX clamps those that are not. Memory grows with the
    number of rows: clients that share a model each get a copy of it.
    """
    return jax.tree.map(lambda leaf: leaf[indices], stacked)


def rows(values: Shaped[Array, " rows"], leaf: Array) -> Shaped[Array, "rows ..."]:
    """One value per row, shaped to broadcast against `leaf`, `[rows, ...]`."""
    return values.reshape((-1,) + (1,) * (leaf.ndim - 1))


def select(
    condition: Bool[Array, " rows"], on_true: Stacked, on_false: Stacked
) -> Stacked:
    """Rows of `on_true` where `condition` holds, of `on_false` elsewhere."""
    return jax.tree.map(
        lambda a, b: jnp.where(rows(condition, a), a, b), on_true, on_false
    )


def trained_part(params: PyTree) -> PyTree:
    """What gradients train: all params, or the weights of `Variables`."""
    return params.weights if isinstance(params, Variables) else params


def with_trained(params: PyTree, weights: PyTree) -> PyTree:
    """`params` with other weights, and their statistics as they are."""
    if isinstance(params, Variables):
        return params._replace(weights=weights)
    return weights
