"""States in files: trained models that are kept, and found again as they were.

The leaves of a tree lie in a file by the names that Python reaches them by, such as
`state.models['layers'][0]['bias']`; the structure around them is the algorithm's. What
NumPy has no type for lies there as bits: keys of random numbers, bfloat16.
"""

import os
import pathlib
from collections.abc import Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree, Shaped

from cfljax.base.checks import is_traced
from cfljax.base.describe import short
from cfljax.base.types import Algorithm, ClientData
from cfljax.engine import kept
from cfljax.engine.store import disk_errors

Tree = TypeVar("Tree")
Leaf = Array | np.ndarray | jax.ShapeDtypeStruct

ROOT = "state"  # What the names of a state's leaves begin with.


def save(path: str | os.PathLike[str], state: PyTree) -> None:
    """Writes a state to a file, whole or not at all; an older one is replaced.

        state, _ = cfl.run(algorithm, key, data, num_rounds=300)
        cfl.save("models.npz", state)

    and in another process, with the same algorithm and clients,

        state = cfl.load("models.npz", algorithm, data)
        outputs = algorithm.predict(state, data, inputs)
        state, _ = cfl.run(
            algorithm, key, data, num_rounds=100, state=state, first_round=300
        )

    `numpy.load` opens it too: arrays by name, as `state.models['weights']`.

    Args:
      path: the file; missing folders are made.
      state: of any algorithm, leaves of any shapes, on any devices of this process.

    Raises:
      StoreError: a ValueError, if the disk refuses; an older file then stays.
      ValueError: if `state` is traced.

    Cost: the state's bytes on disk, three times that in memory while it is written.
    """
    if any(map(is_traced, jax.tree.leaves(state))):
        raise ValueError("`state` must be concrete: save it outside of `jit` and such.")
    path = pathlib.Path(path)
    with disk_errors(path):
        about = {ROOT: kinds(state, ROOT)}
        kept.write(path, arrays_of(state, ROOT), about, compress=False)


def load(path: str | os.PathLike[str], algorithm: Algorithm, data: ClientData) -> Any:
    """The state in a file, from `save` or a checkpoint of `run`.

    Args:
      path: the file.
      algorithm: whose state it is; says the structure.
      data: leaves `[clients, samples, ...]` of the shapes that the state was made for;
        their values are not looked at.

    Returns:
      The state, bit for bit, on the first device.

    Raises:
      ValueError: if the file is missing, damaged or something else, or a leaf is not of
        the shape and type that `algorithm.init` makes for such data; the first one is
        named.

    Cost: the file's bytes three times in memory; `algorithm.init` is only traced.
    """
    path = pathlib.Path(path)
    found = kept.read(path)
    there = found.about.get(ROOT) if found and isinstance(found.about, dict) else None
    if found is None or not isinstance(there, dict):
        fault = "damaged or holds no state" if path.exists() else "missing"
        raise ValueError(f"`path` must be a file that `save` wrote, {path} is {fault}.")
    expected = jax.eval_shape(algorithm.init, jax.random.key(0), data)
    check_kinds(there, kinds(expected, ROOT))
    return tree_of(found.arrays, expected, ROOT)


def check_state(state: PyTree, expected: PyTree) -> None:
    """Raises ValueError, naming the first leaf that differs, unless a state has the
    structure, shapes and types that are expected."""
    check_kinds(kinds(state, ROOT), kinds(expected, ROOT))
    here, there = jax.tree.structure(expected), jax.tree.structure(state)
    if here != there:
        raise ValueError(
            f"`state` must have the structure that `init` makes for these data, {here},"
            f" got {there}."
        )


def check_kinds(there: Mapping[str, str], here: Mapping[str, str]) -> None:
    """Raises ValueError for the first leaf that is not of the kind expected `here`."""
    for name in dict(here) | dict(there):
        mine, other = here.get(name, "absent"), there.get(name, "absent")
        if mine != other:
            raise ValueError(
                f"`{name}` must be {mine}, as `init` makes it for these data, got"
                f" {other}."
            )


def named(tree: PyTree, root: str) -> dict[str, Any]:
    """The leaves by the names that Python reaches them by from `root`."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {root + jax.tree_util.keystr(path): leaf for path, leaf in leaves}


def kinds(tree: PyTree, root: str) -> dict[str, str]:
    """Type and shape of each leaf by its name: `float32[2,200]`, `key<fry>[]`."""
    has_type = lambda leaf: hasattr(leaf, "dtype")
    return {
        name: short(leaf if has_type(leaf) else jnp.asarray(leaf))
        for name, leaf in named(tree, root).items()
    }


def arrays_of(tree: PyTree, root: str) -> dict[str, np.ndarray]:
    """The leaves by name, as bits where NumPy has no type for them."""
    return {name: bits_of(leaf) for name, leaf in named(tree, root).items()}


def tree_of(arrays: Mapping[str, np.ndarray], expected: Tree, root: str) -> Tree:
    """The inverse of `arrays_of` for leaves of the kinds of `expected`."""
    leaves = [
        from_bits(arrays[name], leaf) for name, leaf in named(expected, root).items()
    ]
    return jax.tree.unflatten(jax.tree.structure(expected), leaves)


def bits_of(leaf: Any) -> Shaped[np.ndarray, "..."]:
    """The array in types of NumPy; keys are their data."""
    if is_key(leaf):
        return np.asarray(jax.random.key_data(leaf))
    plain = np.asarray(leaf if hasattr(leaf, "dtype") else jnp.asarray(leaf))
    return plain.view(_stored(plain.dtype))


def from_bits(bits: Shaped[np.ndarray, "..."], kind: Leaf) -> Array:
    """The inverse of `bits_of` for a leaf of some type: a copy on the first device."""
    if is_key(kind):
        return jax.random.wrap_key_data(jnp.array(bits), impl=_impl(kind))
    return jnp.array(bits.view(kind.dtype))


def blank(kind: Leaf) -> Shaped[np.ndarray, "..."]:
    """`bits_of` a leaf of zeros."""
    if is_key(kind):
        kind = jax.eval_shape(jax.random.key_data, kind)
    return np.zeros(kind.shape, _stored(np.dtype(kind.dtype)))


def is_key(leaf: Any) -> bool:
    """Whether a leaf holds keys of random numbers."""
    dtype = getattr(leaf, "dtype", np.dtype(float))
    return jnp.issubdtype(dtype, jax.dtypes.prng_key)


def _stored(dtype: np.dtype) -> np.dtype:
    """The type itself if it is NumPy's own, else unsigned numbers of its size."""
    return dtype if dtype.isbuiltin == 1 else np.dtype(f"u{dtype.itemsize}")


def _impl(keys: Leaf) -> Any:
    """The generator that keys are for, also of those that are only a shape."""
    found = []
    jax.eval_shape(lambda one: found.append(jax.random.key_impl(one)), keys)
    return found[0]
