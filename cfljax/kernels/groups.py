"""Random subgroups of clients, of sizes that differ by one at most."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

__all__ = ["draw_groups"]


def draw_groups(
    key: PRNGKeyArray, num_clients: int, num_groups: int
) -> tuple[Int[Array, "_ _"], ...]:
    """Clients split into groups at random (Werner et al., section 4.2).

    Args:
      key: of the round; a single group draws nothing.
      num_clients: N.
      num_groups: of 300 clients in 16 groups, 12 have 19 members and 4 have 18.

    Returns:
      Client indices of the larger groups, and of the others if there are any: one
      array `[groups, members]` for each size, so that no member is padding.

    Raises:
      ValueError: if a group would be empty.
    """
    if not 1 <= num_groups <= num_clients:
        raise ValueError(
            f"`num_groups` must be from 1 to the {num_clients} clients, got "
            f"{num_groups}."
        )
    if num_groups == 1:
        return (jnp.arange(num_clients)[None, :],)
    order = jax.random.permutation(key, num_clients)
    size, larger = divmod(num_clients, num_groups)
    middle = larger * (size + 1)
    smaller = order[middle:].reshape(num_groups - larger, size)
    if not larger:
        return (smaller,)
    return order[:middle].reshape(larger, size + 1), smaller
