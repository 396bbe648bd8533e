"""Mini-batches of one client, drawn without replacement from its real samples."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from cfljax.types import ClientData

__all__ = ["Schedule", "batch_at", "first_order", "schedule"]


class Schedule(NamedTuple):
    """How a client goes through its samples.

    size: samples of a full batch.
    num_samples: real samples of the client.
    batches: of one epoch, `ceil(num_samples / size)`, at least 1; the last may be
      smaller than the others.
    """

    size: int
    num_samples: Int[Array, ""]
    batches: Int[Array, ""]


def schedule(mask: Bool[Array, " samples"], batch_size: int) -> Schedule:
    """The schedule of a client; batches larger than its data hold all of them."""
    size = min(batch_size, mask.shape[0])
    real = jnp.sum(mask, dtype=jnp.int32)
    return Schedule(size, real, jnp.maximum(-(-real // size), 1))


def first_order(mask: Bool[Array, " samples"], plan: Schedule) -> Int[Array, " slots"]:
    """An order of the right shape, to be replaced by `batch_at` at once."""
    slots = -(-mask.shape[0] // plan.size) * plan.size
    return jnp.zeros(slots, jnp.int32)


def batch_at(
    key: PRNGKeyArray,
    step: Int[Array, ""],
    order: Int[Array, " slots"],
    plan: Schedule,
    data: ClientData,
) -> tuple[ClientData, Int[Array, " slots"]]:
    """Batch number `step` of an endless row of freshly shuffled epochs.

    Args:
      key: of the client and the round; epoch e is shuffled by the key folded with e.
      step: counted from 0, without gaps.
      order: of the epoch that the previous step was in.
      plan: of the client.
      data: its own rows, `[samples, ...]`.

    Returns:
      The batch, `[size, ...]`, whose mask is false on slots that the last batch of an
      epoch leaves empty; and the order to pass on. The real samples that are drawn
      do not depend on how far the client is padded at its end.

    Cost: sorts the client's samples once an epoch.
    """
    inputs, targets, mask = data
    epoch, place = step // plan.batches, step % plan.batches

    def shuffled() -> Int[Array, " slots"]:
        scores = jax.random.uniform(jax.random.fold_in(key, epoch), mask.shape)
        real_first = jnp.argsort(jnp.where(mask, scores, 2.0)).astype(jnp.int32)
        return jnp.pad(real_first, (0, order.shape[0] - mask.shape[0]))

    order = jax.lax.cond(place == 0, shuffled, lambda: order)
    slots = place * plan.size + jnp.arange(plan.size, dtype=jnp.int32)
    chosen = jax.lax.dynamic_slice(order, (place * plan.size,), (plan.size,))
    take = lambda leaf: leaf[chosen]
    return ClientData(take(inputs), take(targets), slots < plan.num_samples), order
