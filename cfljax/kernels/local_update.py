"""LocalUpdate: what one client does between two messages (IFCA, lines 18-21)."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, ScalarLike

from cfljax.kernels.backend import Order, check_order
from cfljax.kernels.batches import batch_at, first_order, schedule
from cfljax.kernels.tree import trained_part, with_trained
from cfljax.types import ClientData, Task

__all__ = ["LocalUpdate", "client_key", "client_update", "step_size_at"]


@dataclasses.dataclass(frozen=True)
class LocalUpdate:
    """How a client trains, besides its step size and number of steps.

    batch_size: samples of a mini-batch; all of the client's samples if None. Batches
      run through the client's own samples in an order shuffled for every epoch; the
      last of an epoch may be smaller, and a batch larger than a client's data holds
      all of them.
    num_epochs: passes over the client's own samples instead of a number of steps, so
      that clients with more samples take more steps.
    decay: the step size of round t is `step_size * decay**t`.
    proximal: mu of FedProx, `mu / 2 |theta - theta_received|^2` is added to the loss.
    optimizer: from a step size to an optax optimiser, e.g.
      `functools.partial(optax.sgd, momentum=0.9)`.
    keep_optimizer: whether a client goes on with its optimiser's state when it next
      takes part, instead of a fresh one. The server's averaging never touches it.
    clients_per_chunk: clients computed at a time, where they are computed together
      (evaluation of cluster models; all training in batched order). Bounds memory and
      changes no result beyond the rounding of sums.
    order: "sequential" or "batched" over clients; by backend if None.

    Raises:
      ValueError: where an argument is out of its range.
    """

    batch_size: int | None = None
    num_epochs: int | None = None
    decay: float = 1.0
    proximal: float = 0.0
    optimizer: Callable[[Any], optax.GradientTransformation] = optax.sgd
    keep_optimizer: bool = False
    clients_per_chunk: int | None = None
    order: Order | None = None

    def __post_init__(self) -> None:
        for name in ("batch_size", "num_epochs"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"`{name}` must be at least 1, got {value}.")
        if not (math.isfinite(self.decay) and self.decay > 0):
            raise ValueError(f"`decay` must be positive, got {self.decay}.")
        if not (math.isfinite(self.proximal) and self.proximal >= 0):
            raise ValueError(f"`proximal` must not be negative, got {self.proximal}.")
        check_order(self.order, self.clients_per_chunk)


Data = ClientData  # One client's rows, `[samples, ...]`.
Client = Callable[[PRNGKeyArray, ScalarLike, PyTree, PyTree, Data], tuple]


def step_size_at(
    update: LocalUpdate, step_size: ScalarLike, round_index: Int[Array, ""] | None
) -> Array:
    """The step size of a round; without a round, that of the first."""
    step_size = jnp.asarray(step_size, jnp.result_type(float))
    if round_index is None or update.decay == 1:
        return step_size
    return step_size * update.decay ** round_index.astype(step_size.dtype)


def client_key(key: PRNGKeyArray, client: Int[Array, ""]) -> PRNGKeyArray:
    """Key of a client's own draws in a round, whoever else takes part."""
    # Folded twice: the round's key itself has drawn the participants.
    return jax.random.fold_in(jax.random.fold_in(key, 0), client)


def client_update(task: Task, update: LocalUpdate, num_steps: int) -> Client:
    """LocalUpdate of one client, to be carried to all by `backend` or `sums`.

    Returns:
      `(key, step_size, params, moments, data) -> (params, moments)`. The
      moments are the optimiser's state that the client kept, or an empty tree for a
      fresh one, and likewise what it returns. A client must have samples.

    Cost: a forward and a backward pass over a batch for each step.
    """
    steps = _full_steps if update.batch_size is None else _batch_steps

    def train(
        key: PRNGKeyArray,
        step_size: ScalarLike,
        received: PyTree,
        moments: PyTree,
        data: Data,
    ) -> tuple[PyTree, PyTree]:
        optimizer = update.optimizer(step_size)
        kept = moments if update.keep_optimizer else None
        if kept is None:
            kept = optimizer.init(trained_part(received))
        one = _one_step(task, update, optimizer, received)
        params, kept = steps(key, one, update, num_steps, (received, kept), data)
        return params, kept if update.keep_optimizer else moments

    return train


Model = tuple[PyTree, PyTree]  # Params and the optimiser's state.
Step = Callable[[PRNGKeyArray, Model, Data], Model]


def _one_step(
    task: Task,
    update: LocalUpdate,
    optimizer: optax.GradientTransformation,
    received: PyTree,
) -> Step:
    """One step of the optimiser on one batch (line 19)."""

    def step(key: PRNGKeyArray, model: Model, batch: Data) -> Model:
        params, moments = model
        inputs, targets, mask = batch

        def loss(weights: PyTree) -> tuple[Float[Array, ""], PyTree]:
            whole = with_trained(params, weights)
            if task.fit is None:
                losses, after = task.losses(whole, inputs, targets), params
            else:
                losses, after = task.fit(key, whole, inputs, targets, mask)
            total = jnp.sum(jnp.where(mask, losses, 0))
            # A batch without samples asks for no step.
            real = jnp.maximum(jnp.sum(mask, dtype=losses.dtype), 1)
            return total / real, jax.lax.stop_gradient(after)

        weights = trained_part(params)
        gradient, after = jax.grad(loss, has_aux=True)(weights)
        if update.proximal:
            gradient = jax.tree.map(
                lambda g, w, start: g + update.proximal * (w - start),
                gradient,
                weights,
                trained_part(received),
            )
        changes, moments = optimizer.update(gradient, moments, weights)
        weights = optax.apply_updates(weights, changes)
        return with_trained(after, weights), moments

    return step


def _full_steps(
    key: PRNGKeyArray,
    one: Step,
    update: LocalUpdate,
    num_steps: int,
    model: Model,
    data: Data,
) -> Model:
    """Steps on all of the client's samples."""

    def step(model: Model, index: Int[Array, ""]) -> tuple[Model, None]:
        return one(jax.random.fold_in(key, index), model, data), None

    number = num_steps if update.num_epochs is None else update.num_epochs
    return jax.lax.scan(step, model, jnp.arange(number))[0]


def _batch_steps(
    key: PRNGKeyArray,
    one: Step,
    update: LocalUpdate,
    num_steps: int,
    model: Model,
    data: Data,
) -> Model:
    """Steps on mini-batches."""
    assert update.batch_size is not None
    plan = schedule(data.mask, update.batch_size)
    order_key, noise_key = jax.random.split(key)
    number, mine = num_steps, jnp.asarray(num_steps, jnp.int32)
    if update.num_epochs is not None:
        number = update.num_epochs * -(-data.mask.shape[0] // plan.size)
        mine = update.num_epochs * plan.batches

    def step(carry: tuple, index: Int[Array, ""]) -> tuple[tuple, None]:
        def train() -> tuple:
            model, order = carry
            batch, order = batch_at(order_key, index, order, plan, data)
            return one(jax.random.fold_in(noise_key, index), model, batch), order

        return jax.lax.cond(index < mine, train, lambda: carry), None

    carry = (model, first_order(data.mask, plan))
    return jax.lax.scan(step, carry, jnp.arange(number, dtype=jnp.int32))[0][0]
