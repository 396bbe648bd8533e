"""Weight sharing: layers that all clusters have in common (IFCA, section 4.3)."""

from collections.abc import Callable
from typing import Literal

import jax
from jaxtyping import Array, PRNGKeyArray, PyTree

from cfljax.base.types import Task, Variables

Shared = Callable[[str], bool]
SharingVariant = Literal["paper", "reference"]


def paths(params: PyTree) -> list[str]:
    """Names of all leaves, such as "output/kernel", in the order of the tree.

    Weights and statistics of one layer (`Variables`) have the same names.
    """
    leaves = jax.tree_util.tree_flatten_with_path(params)[0]
    return [_name(params, path) for path, _ in leaves]


def split(params: PyTree, shared: Shared | None) -> tuple[PyTree, PyTree]:
    """The part of each cluster's own, and the part that all have in common: two trees
    of the same form, each None where the other has the leaf. All is own if `shared`,
    from a leaf's name to whether it is common, is None.

    Raises ValueError if it leaves a cluster nothing of its own, or shares nothing.
    """
    if shared is None:
        return params, None
    names = paths(params)
    common = [bool(shared(name)) for name in names]
    if all(common) or not any(common):
        raise ValueError(
            f"`shared` must be true of some and false of other leaves, got "
            f"{common[0]} for all of {', '.join(names)}."
        )
    leaves, form = jax.tree.flatten(params)
    pick = lambda wanted: [
        leaf if is_common == wanted else None
        for leaf, is_common in zip(leaves, common, strict=True)
    ]
    return form.unflatten(pick(False)), form.unflatten(pick(True))


def merge_shared(own: PyTree, common: PyTree) -> PyTree:
    """The inverse of `split`."""
    if common is None:
        return own
    return jax.tree.map(
        lambda a, b: b if a is None else a, own, common, is_leaf=lambda x: x is None
    )


def with_common(task: Task, common: PyTree, shared: Shared | None) -> Task:
    """The task of the leaves that clusters have of their own, the others given."""

    def fit(key: PRNGKeyArray, own: PyTree, *batch: Array) -> tuple[Array, PyTree]:
        assert task.fit is not None
        losses, after = task.fit(key, merge_shared(own, common), *batch)
        return losses, split(after, shared)[0]

    return Task(
        init=lambda key: split(task.init(key), shared)[0],
        losses=lambda own, *batch: task.losses(merge_shared(own, common), *batch),
        predict=lambda own, inputs: task.predict(merge_shared(own, common), inputs),
        fit=None if task.fit is None else fit,
    )


def with_frozen(task: Task, params: PyTree, shared: Shared) -> Task:
    """The task with every start's common layers taken from trained params.

    Together with `variant="reference"` of an algorithm, which never trains them, this
    is what IFCA's released code does for FEMNIST: it pretrains one model and trains
    only the last layer of each cluster.
    """
    _, common = split(params, shared)
    start = lambda key: merge_shared(split(task.init(key), shared)[0], common)
    return task._replace(init=start)


def _name(params: PyTree, path: tuple) -> str:
    """Keys from the root to a leaf, without the field of `Variables`."""
    steps = path[1:] if isinstance(params, Variables) else path
    return jax.tree_util.keystr(steps, simple=True, separator="/")
