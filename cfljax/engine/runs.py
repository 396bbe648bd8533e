"""One run of one algorithm: a scan over communication rounds."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray, PyTree

from cfljax.base.clients import check_finite_rounds
from cfljax.base.types import Algorithm, ClientData


def nothing(state: Any, info: Any) -> tuple[()]:
    """Keeps no trace of a round."""
    del state, info
    return ()


def run(
    algorithm: Algorithm,
    key: PRNGKeyArray,
    data: ClientData,
    *,
    num_rounds: int,
    observe: Callable[[Any, Any], PyTree] = nothing,
    data_per_round: bool = False,
) -> tuple[Any, PyTree]:
    """Runs `num_rounds` communication rounds from a fresh start.

    The key's itinerary: the run's key splits into that of `init` and that of the
    rounds; round t uses the latter folded with t.

    Args:
      algorithm: what to run.
      key: of this run.
      data: leaves `[clients, samples, ...]`; with `data_per_round` one set for each
        round, leaves `[rounds, clients, samples, ...]`.
      num_rounds: T, at least 0; at least 1 with `data_per_round`.
      observe: `(state, info) -> pytree`, what to keep of each round, with the state
        after the round and the info of the round; nothing by default. What it does
        not return is not computed.
      data_per_round: see `data`.

    Returns:
      The final state, and the observations stacked along a leading axis of rounds.

    Raises:
      ValueError: if `num_rounds` is negative, or not the length of `data`'s leading
        axis with `data_per_round`; where `data` are concrete, if they are not finite
        (padding included) or hold labels outside the task's classes.
    """
    if num_rounds < 0:
        raise ValueError(f"`num_rounds` must be at least 0, got {num_rounds}.")
    if data_per_round and data.mask.shape[0] != max(num_rounds, 1):
        raise ValueError(
            f"`data` must hold {num_rounds} rounds, at least 1, got"
            f" {data.mask.shape[0]}."
        )
    if data_per_round:
        check_finite_rounds(data)
    init_key, rounds_key = jax.random.split(key)
    first = jax.tree.map(lambda leaf: leaf[0], data) if data_per_round else data
    state = algorithm.init(init_key, first)

    def one_round(state: Any, inputs: tuple) -> tuple[Any, PyTree]:
        index, fresh = inputs
        round_key = jax.random.fold_in(rounds_key, index)
        now = fresh if data_per_round else data
        state, info = algorithm.step(round_key, state, now)
        return state, observe(state, info)

    per_round = (jnp.arange(num_rounds), data if data_per_round else None)
    return jax.lax.scan(one_round, state, per_round)
