"""One round of training cluster models, whatever chooses the clusters."""

from collections.abc import Callable
from functools import partial
from typing import Literal, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, ScalarLike

from cfljax.kernels.average import Normalise, cluster_mean, gradient_step, membership
from cfljax.kernels.descent import local_descent
from cfljax.kernels.evaluate import loss_matrix
from cfljax.kernels.tree import take
from cfljax.types import ClientData, Stacked, Task

__all__ = ["Option", "check_training", "train_clusters"]

Option = Literal["gradient", "model"]


def check_training(
    *,
    option: str,
    num_steps: int,
    normalise: str = "all",
    participation: float = 1.0,
    num_clusters: int = 1,
) -> None:
    """Raises ValueError, naming the argument, where one is out of its range."""
    if num_clusters < 1:
        raise ValueError(f"`num_clusters` must be at least 1, got {num_clusters}.")
    if num_steps < 1:
        raise ValueError(f"`num_steps` must be at least 1, got {num_steps}.")
    if option not in get_args(Option):
        raise ValueError(f"`option` must be in {get_args(Option)}, got {option!r}.")
    if option == "gradient" and num_steps != 1:
        raise ValueError(
            "`num_steps` belongs to `option='model'`: gradient averaging takes one "
            f"step a round, got {num_steps}."
        )
    if normalise not in get_args(Normalise):
        allowed = get_args(Normalise)
        raise ValueError(f"`normalise` must be in {allowed}, got {normalise!r}.")
    if not 0 < participation <= 1:
        raise ValueError(f"`participation` must be in (0, 1], got {participation}.")


def train_clusters(
    task: Task,
    models: Stacked,
    data: ClientData,
    *,
    choose: Callable[[Float[Array, "clients clusters"]], Int[Array, " clients"]],
    option: Option,
    step_size: ScalarLike,
    num_steps: int,
    normalise: Normalise,
    num_clients: int,
    estimate: ClientData | None = None,
) -> tuple[Stacked, Int[Array, " clients"], Float[Array, "clients clusters"]]:
    """Each participant chooses a cluster, its members train the cluster's model.

    IFCA's Algorithm 2, lines 5-15, with the choice of line 6 left open.

    Args:
      task: the learning problem.
      models: leaves `[clusters, ...]`, as broadcast.
      data: the participants' samples.
      choose: from the loss matrix to a cluster for each participant.
      option: "gradient" averages gradients, "model" averages trained models.
      step_size: gamma; may be traced.
      num_steps: local steps of option "model".
      normalise: divisor of option "gradient", see `average.gradient_step`.
      num_clients: m, counting the clients that do not participate.
      estimate: other samples of the same clients for `choose`; `data` if None.

    Returns:
      New models, the assignment, and the losses that `choose` saw.

    Cost: a forward pass per client and model; then a backward pass per client and
    model (option "gradient", merged over clients), or `num_steps` forward and
    backward passes per client (option "model").
    """
    if option == "gradient":
        losses, pullback = jax.vjp(partial(loss_matrix, task, data=data), models)
        if estimate is not None:
            losses = loss_matrix(task, models, estimate)
        assignment = choose(losses)  # line 6
        members = membership(assignment, losses.shape[1])  # line 7
        models = gradient_step(  # lines 9, 14
            models,
            pullback,
            members,
            step_size=step_size,
            num_clients=num_clients,
            normalise=normalise,
        )
        return models, assignment, losses

    losses = loss_matrix(task, models, data if estimate is None else estimate)
    assignment = choose(losses)  # line 6
    received = take(models, jnp.maximum(assignment, 0))
    trained = local_descent(  # line 11
        task, received, data, step_size=step_size, num_steps=num_steps
    )
    ones = jnp.ones(assignment.shape, losses.dtype)
    models = cluster_mean(trained, assignment, ones, empty=models)  # line 15
    return models, assignment, losses
