"""One round of training cluster models, whatever chooses the clusters."""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, ScalarLike

from cfljax.kernels.average import Normalise, cluster_mean, gradient_step, membership
from cfljax.kernels.descent import local_descent
from cfljax.kernels.evaluate import NO_CLUSTER, loss_matrix
from cfljax.kernels.participate import cohort, spread
from cfljax.kernels.tree import take
from cfljax.types import ClientData, Stacked, Task

__all__ = ["Option", "Weights", "check_training", "train_clusters", "train_round"]

Option = Literal["gradient", "model"]
Weights = Literal["clients", "samples"]


def check_training(
    *,
    option: str,
    num_steps: int,
    normalise: str = "all",
    participation: float = 1.0,
    num_clusters: int = 1,
    weights: str = "clients",
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
    if weights not in get_args(Weights):
        raise ValueError(f"`weights` must be in {get_args(Weights)}, got {weights!r}.")
    if weights == "samples" and option == "gradient" and normalise == "all":
        raise ValueError(
            "`weights='samples'` needs `normalise` 'participants' or 'cluster' with "
            "`option='gradient'`: the samples of absent clients are not counted."
        )
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
    weights: Weights,
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
      weights: of the clients in both averages, "clients" for equal ones, "samples"
        for their numbers of real samples.
      num_clients: m, counting the clients that do not participate.
      estimate: other samples of the same clients for `choose`; `data` if None.

    Returns:
      New models, the assignment, and the losses that `choose` saw.

    Cost: a forward pass per client and model; then a backward pass per client and
    model (option "gradient", merged over clients), or `num_steps` forward and
    backward passes per client (option "model").
    """
    shares = jnp.ones(data.mask.shape[0])
    if weights == "samples":
        shares = jnp.sum(data.mask, axis=1, dtype=shares.dtype)
    if option == "gradient":
        losses, pullback = jax.vjp(partial(loss_matrix, task, data=data), models)
        if estimate is not None:
            losses = loss_matrix(task, models, estimate)
        assignment = choose(losses)  # line 6
        members = membership(assignment, losses.shape[1])  # line 7
        models = gradient_step(  # lines 9, 14
            models,
            pullback,
            jnp.where(members, shares[:, None], 0),
            step_size=step_size,
            total=num_clients if normalise == "all" else jnp.sum(shares),
            per_cluster=normalise == "cluster",
        )
        return models, assignment, losses

    losses = loss_matrix(task, models, data if estimate is None else estimate)
    assignment = choose(losses)  # line 6
    received = take(models, jnp.maximum(assignment, 0))
    trained = local_descent(  # line 11
        task, received, data, step_size=step_size, num_steps=num_steps
    )
    models = cluster_mean(trained, assignment, shares, empty=models)  # line 15
    return models, assignment, losses


def train_round(
    key: PRNGKeyArray,
    task: Task,
    models: Stacked,
    data: ClientData,
    *,
    choose: Callable[
        [Float[Array, "participants clusters"], Int[Array, " participants"]],
        Int[Array, " participants"],
    ],
    participation: float,
    resample: bool = False,
    **training: Any,
) -> tuple[Stacked, Int[Array, " clients"], Float[Array, "clients clusters"]]:
    """`train_clusters` with the participants of a round (lines 4-15).

    Args:
      key: of the round, for the participants.
      task: the learning problem.
      models: leaves `[clusters, ...]`.
      data: all clients' samples.
      choose: from the participants' losses and their indices to their clusters.
      participation: fraction of the clients that take part.
      resample: choose on the first half of the padded samples, train on the second.
      **training: the remaining arguments of `train_clusters`.

    Returns:
      New models; the assignment, `NO_CLUSTER` for clients that took no part; and the
      losses that decided it, NaN for these clients.

    Raises:
      ValueError: if `resample` meets an odd number of samples.
    """
    num_clients = data.mask.shape[0]
    participants, present = cohort(key, data, participation)  # line 4
    estimate, train = _halves(present) if resample else (None, present)
    models, assignment, losses = train_clusters(  # lines 5-15
        task,
        models,
        train,
        choose=lambda losses: choose(losses, participants),  # line 6
        num_clients=num_clients,
        estimate=estimate,
        **training,
    )
    assignment = spread(assignment, participants, num_clients, absent=NO_CLUSTER)
    return models, assignment, spread(losses, participants, num_clients, absent=jnp.nan)


def _halves(data: ClientData) -> tuple[ClientData, ClientData]:
    """First and second half of every client's samples."""
    num_samples = data.mask.shape[1]
    if num_samples % 2:
        raise ValueError(
            "`resample` needs an even number of samples per client and round, got "
            f"{num_samples}."
        )
    middle = num_samples // 2
    first = jax.tree.map(lambda leaf: leaf[:, :middle], data)
    return first, jax.tree.map(lambda leaf: leaf[:, middle:], data)
