"""Random starts, filtered as in IFCA's released code: the paper does not say so."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from cfljax.kernels.evaluate import choose_cluster, loss_matrix
from cfljax.kernels.participate import cohort
from cfljax.types import Algorithm, ClientData, Stacked, Task

__all__ = ["LEAST_SHARE", "MOST_DRAWS", "Start", "Started", "with_balanced_start"]

Start = Literal["paper", "reference"]

# Of the sampled clients, in the smallest cluster; by the number of clusters.
LEAST_SHARE = {1: 0.0, 2: 0.35, 4: 0.1}
MOST_DRAWS = 100


class Started(NamedTuple):
    """The state of an algorithm, and how it was started.

    state: of the algorithm.
    draws: number of starts that were drawn, the accepted one among them.
    share: of the sampled clients in the smallest cluster of the start that is used;
      below what was asked for if no draw was good enough.
    """

    state: Any
    draws: Int[Array, ""]
    share: Float[Array, ""]


def with_balanced_start(
    algorithm: Algorithm,
    task: Task,
    models_of: Callable[[Any], Stacked],
    *,
    participation: float,
    least_share: float,
    most_draws: int = MOST_DRAWS,
    clients_per_chunk: int | None = None,
) -> Algorithm:
    """The algorithm, started anew until some clients choose all of its models.

    For every draw a fresh sample of clients chooses the models of lowest loss; the
    first draw with at least `least_share` of the sample on every model is used, or
    else the last. No label of a cluster is needed. The first draw is the one that
    the algorithm alone would start from.

    Source: `find_good_initializer` of the released code for Rotated CIFAR, with 35 %
    for two clusters and 10 % for four; its paper has independent random models.

    Args:
      algorithm: whose rounds stay as they are.
      task: the learning problem.
      models_of: stacked models in the algorithm's state, leaves `[clusters, ...]`.
      participation: fraction of the clients in a sample.
      least_share: of the sample, in the smallest cluster.
      most_draws: at least 1.
      clients_per_chunk: clients evaluated at a time; all if None.

    Returns:
      An algorithm whose state is `Started`.

    Raises:
      ValueError: where a number is out of its range.

    Cost: a forward pass for each sampled client and model, for every draw.
    """
    if not 0 <= least_share <= 1:
        raise ValueError(f"`least_share` must be in [0, 1], got {least_share}.")
    if most_draws < 1:
        raise ValueError(f"`most_draws` must be at least 1, got {most_draws}.")

    def smallest_share(key: PRNGKeyArray, state: Any, data: ClientData) -> Array:
        models = models_of(state)
        _, sample = cohort(key, data, participation)
        losses = loss_matrix(task, models, sample, clients_per_chunk=clients_per_chunk)
        clusters = jnp.arange(losses.shape[1])
        chosen = choose_cluster(losses)[:, None] == clusters[None, :]
        return jnp.min(jnp.mean(chosen, axis=0, dtype=losses.dtype))

    def init(key: PRNGKeyArray, data: ClientData) -> Started:
        def is_wanted(now: Started) -> Array:
            return (now.draws == 0) | (
                (now.share < least_share) & (now.draws < most_draws)
            )

        def draw(now: Started) -> Started:
            again = jax.random.fold_in(key, now.draws)
            own = jnp.where(now.draws == 0, key, again)
            state = algorithm.init(own, data)
            sample_key = jax.random.fold_in(again, 1)
            share = smallest_share(sample_key, state, data)
            return Started(state, now.draws + 1, share)

        zeros = lambda leaf: jnp.zeros(leaf.shape, leaf.dtype)
        state = jax.tree.map(zeros, jax.eval_shape(algorithm.init, key, data))
        nothing = Started(state, jnp.zeros((), jnp.int32), jnp.zeros(()))
        return jax.lax.while_loop(is_wanted, draw, nothing)

    def step(key: PRNGKeyArray, now: Started, data: ClientData) -> tuple[Started, Any]:
        state, info = algorithm.step(key, now.state, data)
        return now._replace(state=state), info

    def predict(now: Started, data: ClientData, inputs: Array) -> Array:
        return algorithm.predict(now.state, data, inputs)

    return Algorithm(init=init, step=step, predict=predict)
