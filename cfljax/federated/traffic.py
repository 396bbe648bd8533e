"""Bytes that clients and server send each other in a round."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PyTree

from cfljax.base.tree import length
from cfljax.base.types import Stacked

_LARGEST = 2**31 - 1


class MessageBytes(NamedTuple):
    """Bytes of one participant's messages.

    all_models: from the server, with a model of every cluster and one copy of what
      they have in common.
    one_model: from the server, with one cluster's model.
    answer: to the server, with a model or gradient and the cluster's index.
    """

    all_models: int
    one_model: int
    answer: int


def single(message: int) -> MessageBytes:
    """One message down and one of the same size up: the server chose the cluster, so
    that no index is sent."""
    return MessageBytes(message, message, message)


def num_bytes(params: PyTree) -> int:
    """Bytes of an uncompressed message with these arrays, or shapes of arrays."""
    size = lambda leaf: math.prod(leaf.shape) * jnp.dtype(leaf.dtype).itemsize
    return sum(map(size, jax.tree.leaves(params)))


def identity_bytes(num_clusters: int) -> int:
    """Whole bytes of a cluster's index: none for one cluster, one up to 256."""
    return math.ceil(math.log2(num_clusters) / 8)


def traffic(
    sizes: MessageBytes,
    present: Bool[Array, " clients"],
    assignment: Int[Array, " clients"],
    alone: Bool[Array, " clients"] | None = None,
) -> tuple[Int[Array, " clients"], Int[Array, " clients"]]:
    """Bytes that each client received and sent in a round, 0 for absent ones;
    `assignment` is negative for clients that had nothing to send, `alone` says who was
    sent a single model.

    Raises ValueError where one client's messages exceed 2 GiB, as do the functions
    below.
    """
    _check_size(max(sizes))
    down = jnp.asarray(sizes.all_models, jnp.int32)
    if alone is not None:
        down = jnp.where(alone, sizes.one_model, down)
    received = jnp.where(present, down, 0)
    sent = jnp.where(present & (assignment >= 0), sizes.answer, 0)
    return received.astype(jnp.int32), sent.astype(jnp.int32)


def exchanged(models: Stacked) -> tuple[Int[Array, " clients"], Int[Array, " clients"]]:
    """Bytes where every client sends a message of its model's size and gets one
    back."""
    number = length(models)
    message = num_bytes(models) // number
    _check_size(message)
    each = jnp.full(number, message, jnp.int32)
    return each, each


def pairwise_traffic(
    models: Stacked, groups: tuple[Int[Array, "_ _"], ...]
) -> tuple[Int[Array, " clients"], Int[Array, " clients"]]:
    """Bytes where every member of a group sends every other its model, and gets back a
    gradient at it. `groups` are client indices, `[groups, members]` of one size each;
    each client is in one of them."""
    number = length(models)
    message = num_bytes(models) // number
    largest = max(block.shape[1] for block in groups)
    _check_size(2 * (largest - 1) * message)
    total = jnp.zeros(number, jnp.int32)
    for block in groups:
        total = total.at[block.reshape(-1)].set(2 * (block.shape[1] - 1) * message)
    return total, total


def _check_size(number: int) -> None:
    """Raises ValueError where a client's bytes leave 32 bits."""
    if number > _LARGEST:
        raise ValueError(
            f"messages of one client and round must stay below 2 GiB, got {number} "
            "bytes."
        )
