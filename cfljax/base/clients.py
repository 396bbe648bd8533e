"""Whether the data of all clients are what algorithms take for granted."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool

from cfljax.base.checks import is_traced
from cfljax.base.types import ClientData, Task

_AT_ONCE = 2**22  # Numbers that are looked at together.


def check_clients(
    data: ClientData,
    *,
    num_classes: int | None = None,
    input_shape: tuple[int, ...] | None = None,
) -> None:
    """Raises one ValueError that names the first thing wrong with the clients' data.

    What is checked, in this order: that inputs, targets and mask have the same
    clients and samples, that there is a client and every client has a sample, the
    shape of an input, that everything is finite, and the labels. Padding is checked
    like samples, since means weigh it by zero and 0 x NaN is NaN.

    Args:
      data: leaves `[clients, samples, ...]`; concrete, not traced.
      num_classes: targets must then be integers in `0..num_classes - 1`; None where
        they are no labels.
      input_shape: shape of one input; None for any.

    Raises:
      ValueError: naming the leaf, the requirement, how many clients break it and the
        index of the first.

    Cost: one pass over the data; memory of some MiB.
    """
    if not all(isinstance(leaf, jax.Array | np.ndarray) for leaf in data):
        raise ValueError("`data` must hold arrays in `inputs`, `targets` and `mask`.")
    _check_shapes(data, input_shape)
    present = np.any(np.asarray(data.mask), axis=1)
    _refuse(present, "`mask` must leave every client a sample", "have none")
    _check_finite(data)
    if num_classes is not None:
        _check_labels(data, num_classes)


def check_concrete(task: Task, data: ClientData) -> None:
    """Raises ValueError if data cannot be learnt from; of traced ones by sizes alone.

    Args:
      task: whose outputs `[samples, classes]` say which labels there are, where targets
        are integers `[clients, samples]`.
      data: leaves `[clients, samples, ...]`.

    Raises:
      ValueError: if the leaves are of different clients or samples, of none, or of
        other shapes than the task takes; if a value is not finite or a label is outside
        the classes, padding included.

    Cost: one pass over the data on the host; memory of some MiB.
    """
    if not isinstance(data, ClientData):
        raise ValueError(f"`data` must be `ClientData`, got {type(data).__name__}.")
    _check_shapes(data, None)
    if not _is_concrete(data):
        return
    answers = _answers(task, data)
    if not np.any(np.asarray(data.mask)):
        raise ValueError("`mask` must leave some client a sample, it leaves none.")
    _check_finite(data)
    is_label = np.issubdtype(data.targets.dtype, np.integer)
    if is_label and data.targets.ndim == getattr(answers, "ndim", 0) == 2:
        _check_labels(data, answers.shape[1])


def _answers(task: Task, data: ClientData) -> Any:
    """Shapes of what the task answers to the first client's inputs; ValueError if these
    do not fit it."""
    params = jax.eval_shape(task.init, jax.random.key(0))
    one = jax.ShapeDtypeStruct(data.inputs.shape[1:], data.inputs.dtype)
    try:
        return jax.eval_shape(task.predict, params, one)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"`inputs` {one.dtype}{list(data.inputs.shape)} do not fit the task: "
            f"{str(error).splitlines()[0]}"
        ) from error


def check_finite_rounds(data: ClientData) -> None:
    """Raises ValueError if concrete data of several rounds, leaves `[rounds, clients,
    samples, ...]`, are not finite, padding included; says nothing of traced."""
    for index in range(data.mask.shape[0] if _is_concrete(data) else 0):
        _check_finite(ClientData(*(np.asarray(leaf)[index] for leaf in data)))


def _is_concrete(data: ClientData) -> bool:
    is_array = all(isinstance(leaf, jax.Array | np.ndarray) for leaf in data)
    return is_array and not any(map(is_traced, data))


def _check_finite(data: ClientData) -> None:
    """Raise ValueError unless all inputs and targets are finite, padding included."""
    for name, leaf in (("inputs", data.inputs), ("targets", data.targets)):
        if jnp.issubdtype(leaf.dtype, np.inexact):
            numbers = np.asarray(leaf)
            own = tuple(range(2, numbers.ndim))
            blocks = np.array_split(numbers, 1 + numbers.size // _AT_ONCE)
            _refuse(
                np.concatenate([np.all(np.isfinite(b), axis=own) for b in blocks]),
                f"`{name}` must be finite, padding included",
                "have a value that is not",
            )


def _check_shapes(data: ClientData, input_shape: tuple[int, ...] | None) -> None:
    """Raise ValueError unless the leaves agree on clients and samples."""
    shape = data.mask.shape
    if data.mask.dtype != bool or len(shape) != 2:
        raise ValueError(
            "`mask` must be boolean, `[clients, samples]`, got "
            f"{data.mask.dtype} of shape {shape}."
        )
    for name, leaf in (("inputs", data.inputs), ("targets", data.targets)):
        if leaf.shape[:2] != shape:
            raise ValueError(
                f"`{name}` must begin with the shape of `mask`, {shape}, got "
                f"{leaf.shape}."
            )
    if not shape[0]:
        raise ValueError("`data` must have at least one client, got none.")
    if input_shape is not None and data.inputs.shape[2:] != tuple(input_shape):
        raise ValueError(
            f"`inputs` must be of shape {tuple(input_shape)} each, got "
            f"{data.inputs.shape[2:]}."
        )


def _check_labels(data: ClientData, num_classes: int) -> None:
    """Raise ValueError unless all targets are labels of the classes."""
    targets = np.asarray(data.targets)
    if not np.issubdtype(targets.dtype, np.integer):
        raise ValueError(f"`targets` must be integer labels, got {targets.dtype}.")
    inside = (targets >= 0) & (targets < num_classes)
    if not np.all(inside):
        _refuse(
            np.asarray(inside),
            f"`targets` must be in 0..{num_classes - 1}, padding included",
            f"have others, such as {targets[~inside][0]}",
        )


def _refuse(good: Bool[np.ndarray, "clients *rest"], rule: str, fault: str) -> None:
    """Raise ValueError if any client breaks the rule: how many do, and the first."""
    bad = np.any(~good.reshape(good.shape[0], -1), axis=1)
    count = np.count_nonzero(bad)
    if count:
        raise ValueError(
            f"{rule}; {count} of {good.shape[0]} clients {fault}, the first is client "
            f"{np.argmax(bad)}."
        )
