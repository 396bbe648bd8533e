"""How a function of one client is carried to all clients on this machine."""

from collections.abc import Callable
from typing import Literal

import jax

__all__ = ["Order", "over_clients"]

Order = Literal["sequential", "batched"]


def over_clients(function: Callable, order: Order | None = None) -> Callable:
    """`jax.vmap(function)`, computed in the order that suits the backend.

    Clients that train weights of their own share no matrix product. On a CPU they
    run one after the other, so that one client's weights stay in cache through all
    its local steps; on an accelerator they run batched. Both give the same numbers
    up to rounding, and both may be nested in further transformations.

    Args:
      function: of one client; all arguments are mapped over their leading axis. It
        must not close over values that an outer transformation maps: pass them.
      order: forces the choice.
    """
    if order is None:
        order = "sequential" if jax.default_backend() == "cpu" else "batched"
    if order == "sequential":
        function = jax.custom_batching.sequential_vmap(function)
    return jax.vmap(function)
