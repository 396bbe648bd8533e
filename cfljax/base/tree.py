"""Stacked pytrees: leaves that share one leading axis."""

import math
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree, Shaped

from cfljax.base.types import Stacked, Variables

Tree = TypeVar("Tree")


def length(stacked: Stacked) -> int:
    """Size of the leading axis that all leaves share."""
    return jax.tree.leaves(stacked)[0].shape[0]


def repeat(tree: PyTree, number: int) -> Stacked:
    """The same tree in each of `number` rows: leaves `[...]` become `[number, ...]`."""
    row = lambda leaf: jnp.broadcast_to(leaf, (number,) + jnp.shape(leaf))
    return jax.tree.map(row, tree)


def take(stacked: Tree, indices: Int[Array, " *rows"]) -> Tree:
    """Entries of the leading axis: leaves `[n, ...]` become `[*rows, ...]`. Indices
    must be in range; JAX clamps others. Clients that share a model each get a copy of
    it."""
    return jax.tree.map(lambda leaf: leaf[indices], stacked)


def put(stacked: Tree, indices: Int[Array, " rows"], rows: Tree) -> Tree:
    """The inverse of `take`: entries of the leading axis, all different, replaced by
    other rows."""
    return jax.tree.map(lambda old, new: old.at[indices].set(new), stacked, rows)


def is_finite(tree: PyTree) -> Bool[Array, ""]:
    """Whether all numbers of a tree are finite.

    Cost: a pass over the leaves.
    """
    each = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]
    return jnp.all(jnp.stack(each))


def finite_rows(stacked: Stacked) -> Bool[Array, " rows"]:
    """`is_finite` of each row of leaves `[rows, ...]`."""
    return jax.vmap(is_finite)(stacked)


def nonzero_rows(stacked: Stacked) -> Bool[Array, " rows"]:
    """Which rows of leaves `[rows, ...]` have a number that is not 0."""
    any_of = lambda leaf: jnp.any(leaf.reshape(leaf.shape[0], -1) != 0, axis=1)
    return jnp.any(jnp.stack(list(map(any_of, jax.tree.leaves(stacked)))), axis=0)


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


def flat(stacked: Stacked) -> Float[Array, "rows features"]:
    """All leaves side by side: `[n, ...]` become `[n, features]`, one copy."""
    leaves = jax.tree.leaves(stacked)
    return jnp.concatenate([leaf.reshape(leaf.shape[0], -1) for leaf in leaves], axis=1)


def num_features(stacked: Stacked) -> int:
    """Numbers in each row of all leaves, the width of `flat`."""
    return sum(math.prod(leaf.shape[1:]) for leaf in jax.tree.leaves(stacked))


def like(points: Float[Array, "rows features"], stacked: Stacked) -> Stacked:
    """The inverse of `flat`: rows of any number in the shapes of the leaves of
    `stacked`."""
    leaves, form = jax.tree.flatten(stacked)
    ends = np.cumsum([math.prod(leaf.shape[1:]) for leaf in leaves])
    parts = jnp.split(points, ends[:-1], axis=1)
    pairs = zip(parts, leaves, strict=True)
    shaped = [part.reshape((points.shape[0],) + leaf.shape[1:]) for part, leaf in pairs]
    return jax.tree.unflatten(form, shaped)


def trained_part(params: PyTree) -> PyTree:
    """What gradients train: all params, or the weights of `Variables`."""
    return params.weights if isinstance(params, Variables) else params


def with_trained(params: PyTree, weights: PyTree) -> PyTree:
    """`params` with other weights, and their statistics as they are."""
    if isinstance(params, Variables):
        return params._replace(weights=weights)
    return weights
