"""The two ways to average in a round: option I, gradients, and option II, models."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from cfljax.kernels.average import gradient_step, mean_of_sums, membership
from cfljax.kernels.evaluate import loss_matrix
from cfljax.kernels.local_update import client_key, client_update
from cfljax.kernels.sharing import join, split, with_common
from cfljax.kernels.sums import sum_in_clusters
from cfljax.kernels.training import Training
from cfljax.kernels.tree import take
from cfljax.types import ClientData, Stacked, Task

__all__ = ["Cohort", "Setting", "average_gradients", "average_models"]


class Cohort(NamedTuple):
    """The participants of a round, the leading axis of everything here.

    clients: index of each among all clients.
    train: what they train on.
    estimate: what they choose a cluster by.
    moments: optimiser states that they kept; an empty tree if none are kept.
    """

    clients: Int[Array, " participants"]
    train: ClientData
    estimate: ClientData
    moments: Stacked


class Setting(NamedTuple):
    """What a round is told.

    task: the learning problem.
    training: how models are trained.
    step_size: of this round.
    num_clients: m, counting the clients that do not participate.
    choose: from the loss matrix to a cluster for each participant.
    skip: whether to leave out the losses; None for never.
    """

    task: Task
    training: Training
    step_size: Array
    num_clients: int
    choose: Callable[[Float[Array, "participants clusters"]], Array]
    skip: Bool[Array, ""] | None


Parts = tuple[Stacked, PyTree]  # What clusters have of their own, and in common.
Averaged = tuple[Parts, Int[Array, " participants"], Array, Stacked]


def average_gradients(
    key: PRNGKeyArray, setting: Setting, parts: Parts, cohort: Cohort
) -> Averaged:
    """Option I: one gradient step of every cluster model (lines 9, 14).

    Args:
      key: unused; a gradient of all samples draws nothing.
      setting: of the round.
      parts: own leaves `[clusters, ...]` and common leaves without that axis.
      cohort: the participants.

    Returns:
      New parts, the assignment, the losses that decided it, and the moments.

    Raises:
      ValueError: if the task trains on other losses than it is judged by.
    """
    del key
    task, training = setting.task, setting.training
    if task.fit is not None:
        raise ValueError(
            "`option='gradient'` takes gradients of the task's `losses`, but this task "
            "trains with dropout, augmentation or batch statistics; use "
            "`option='model'`."
        )
    matrix = lambda parts, data: _losses(setting, parts, data)
    losses, pullback = jax.vjp(lambda parts: matrix(parts, cohort.train), parts)
    if cohort.estimate is not cohort.train:
        losses = matrix(parts, cohort.estimate)
    if setting.skip is not None:
        losses = jnp.where(setting.skip, jnp.nan, losses)
    assignment = setting.choose(losses)  # line 6
    members = membership(assignment, losses.shape[1])  # line 7
    shares = _shares(training, cohort.train)
    weights = jnp.where(members, shares[:, None], 0)
    by_cluster = training.normalise == "cluster"
    total = jnp.sum(shares)
    if training.normalise == "all":
        total = jnp.asarray(setting.num_clients, shares.dtype)
    own, common = parts
    own = gradient_step(  # lines 9, 14
        own,
        lambda cotangent: (pullback(cotangent)[0][0],),
        weights,
        step_size=setting.step_size,
        total=total,
        per_cluster=by_cluster,
    )
    if common is not None and training.variant == "paper":  # section 4.3
        used = jnp.sum(weights)
        divisor = jnp.where(used > 0, used, 1) if by_cluster else total
        gradient = pullback(weights / divisor)[0][1]
        move = lambda a, g: a - setting.step_size * g
        common = jax.tree.map(move, common, gradient)
    return (own, common), assignment, losses, cohort.moments


def average_models(
    key: PRNGKeyArray, setting: Setting, parts: Parts, cohort: Cohort
) -> Averaged:
    """Option II: members train their cluster's model, which becomes their mean
    (lines 11, 15). Arguments and results as of `average_gradients`.

    Args:
      key: of the round, for what participants draw.
      setting: of the round.
      parts: own leaves `[clusters, ...]` and common leaves without that axis.
      cohort: the participants.
    """
    training = setting.training
    losses = _losses_unless_skipped(setting, parts, cohort.estimate)
    assignment = setting.choose(losses)  # line 6
    shares = jnp.where(assignment >= 0, _shares(training, cohort.train), 0)
    sums, moments = sum_in_clusters(  # line 11
        _member(setting),
        (key, setting.step_size, *parts),
        cohort.moments,
        (cohort.clients, jnp.maximum(assignment, 0), cohort.train),
        assignment=assignment,
        weights=shares,
        num_clusters=losses.shape[1],
        order=training.update.order,
        clients_per_chunk=training.update.clients_per_chunk,
    )
    members = membership(assignment, losses.shape[1])
    totals = jnp.sum(jnp.where(members, shares[:, None], 0), axis=0)
    own, common = parts
    own = mean_of_sums(sums[0], totals, empty=own)  # line 15
    if common is not None and training.variant == "paper":  # section 4.3
        row = jax.tree.map(lambda leaf: leaf[None], common)
        mean = mean_of_sums(sums[1], jnp.sum(totals)[None], empty=row)
        common = jax.tree.map(lambda leaf: leaf[0], mean)
    return (own, common), assignment, losses, moments


def _member(setting: Setting) -> Callable[..., tuple[tuple, PyTree]]:
    """What one participant trains: its own part and the common part."""
    task, training = setting.task, setting.training

    def one(
        shared: tuple, moments: PyTree, client: Array, cluster: Array, data: ClientData
    ) -> tuple[tuple, PyTree]:
        key, step_size, own, common = shared
        start, local = take(own, cluster), task
        if common is not None:
            if training.variant == "paper":
                start = join(start, common)
            else:
                local = with_common(task, common, training.shared)
        train = client_update(local, training.update, training.num_steps)
        own_key = client_key(key, client)
        trained, moments = train(own_key, step_size, start, moments, data)
        if training.shared is None or training.variant == "reference":
            return (trained, ()), moments
        return split(trained, training.shared), moments

    return one


def _losses(
    setting: Setting, parts: Parts, data: ClientData
) -> Float[Array, "participants clusters"]:
    """Losses of the participants under all models."""
    own, common = parts
    chunk = setting.training.update.clients_per_chunk
    return loss_matrix(setting.task, own, data, common=common, clients_per_chunk=chunk)


def _losses_unless_skipped(
    setting: Setting, parts: Parts, data: ClientData
) -> Float[Array, "participants clusters"]:
    """The losses, or NaN where they are skipped, which then cost nothing."""
    compute = lambda: _losses(setting, parts, data)
    if setting.skip is None:
        return compute()
    shape = jax.eval_shape(compute)
    nothing = lambda: jnp.full(shape.shape, jnp.nan, shape.dtype)
    return jax.lax.cond(setting.skip, nothing, compute)


def _shares(training: Training, data: ClientData) -> Float[Array, " participants"]:
    """Weight of each participant; none for a client without samples."""
    count = jnp.sum(data.mask, axis=1, dtype=jnp.result_type(float))
    if training.weights == "samples":
        return count
    return jnp.where(count > 0, jnp.ones_like(count), 0)
