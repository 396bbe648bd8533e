"""Per-FedAvg: one model that is good after a gradient step on a client's own data.

Fallah, Mokhtari, Ozdaglar. "Personalized Federated Learning with Theoretical
Guarantees: A Model-Agnostic Meta-Learning Approach". NeurIPS 2020, Algorithm 1, and
its two approximations, FO and HF. A baseline of CLoVE.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree, ScalarLike

from cfljax.base.checks import (
    check_member,
    check_not_negative,
    check_positive,
    is_traced,
)
from cfljax.base.constructor import constructor
from cfljax.base.tree import repeat, trained_part, with_trained
from cfljax.base.types import Algorithm, ClientData, Stacked, StepSize, Task, Threat
from cfljax.federated.backend import kept_apart
from cfljax.federated.evaluate import predict_own
from cfljax.federated.local_update import LocalUpdate, batch_loss, losses_of_gradient
from cfljax.federated.robust import Aggregate
from cfljax.federated.rounds import GlobalState as State
from cfljax.federated.rounds import Info, global_round, global_start
from cfljax.federated.training import Weights, averaging

Variant = Literal["paper", "reference"]
Method = Literal["first_order", "hessian_free", "exact"]


@constructor
def per_fedavg(
    task: Task,
    *,
    step_size: StepSize,
    adaptation_step_size: ScalarLike | None = None,
    method: Method = "first_order",
    difference: ScalarLike = 1e-3,
    num_steps: int = 1,
    num_adaptation_steps: int = 1,
    weights: Weights = "clients",
    participation: float = 1.0,
    update: LocalUpdate | None = None,
    variant: Variant = "paper",
    threat: Threat | None = None,
    aggregate: Aggregate | None = None,
) -> Algorithm:
    """Federated averaging of the loss after adaptation, `F_i(w - alpha grad F_i(w))`.

    Each local step draws three batches D, D', D'' of the client's samples and does

        v = grad F_i(w - alpha grad F_i(w; D); D')
        w <- w - beta (v - alpha hess F_i(w; D'') v).

    A client answers with what the model becomes by gradient steps of alpha on all of
    its own samples, and so does a newcomer: nothing is kept for single clients.

    Args:
      task: the learning problem. Where training sees other losses than `losses`
        (`Task.fit`), it does so in each pass of a step; adaptation before an answer
        uses `losses`, and statistics as they are.
      step_size: beta; may be traced.
      adaptation_step_size: alpha, not negative; must be given with "paper" and may be
        traced, but mapped by `vmap` only where clients are in batched order. With 0
        this is FedAvg, up to rounding.
      method: "first_order" leaves the last term out (FO); "hessian_free" is
        `(grad F_i(w + delta v; D'') - grad F_i(w - delta v; D'')) / (2 delta)` in place
        of `hess F_i(w; D'') v` (HF); "exact" computes that product.
      difference: delta, positive; traced as alpha may be. The rounding error of the
        product is about that of a gradient divided by delta.
      num_steps: tau, local steps in each round.
      num_adaptation_steps: before an answer; the paper's is one.
      weights: of the clients; "clients" as in the paper, "samples" as in PFLlib.
      participation: fraction of the clients drawn each round.
      update: how clients train; its optimiser is given the gradient after adaptation,
        its `batch_size` is that of each batch. The two or three batches of a step share
        no sample, and an epoch deals out each sample once. A step on fewer samples than
        batches has one sample in several of them. Without a batch size each holds all
        samples.
      variant: "paper"; or "reference", as PFLlib does it, from which CLoVE's table is:
        alpha is `step_size`, a number, whatever the decay, and each client trains twice
        in a round, one training going on from the other. `adaptation_step_size` must
        then be None.
      threat: what Byzantine clients do to the models they send.
      aggregate: mean of the messages; needs `weights="clients"`.

    Raises:
      ValueError: where an argument is out of its range.

    The losses of `Info` are those of the model received, neither adapted nor trained.

    Cost of a round: that of FedAvg, whose local steps have 2 forward and backward
    passes over a batch with "first_order", 4 with "hessian_free", as much as 4 with
    "exact". Of an answer: `num_adaptation_steps` passes over the client's samples, and
    a model for each client.
    """
    check_member(Method, method=method)
    check_member(Variant, variant=variant)
    check_positive(num_steps=num_steps)
    if num_adaptation_steps < 0:
        raise ValueError(
            f"`num_adaptation_steps` must not be negative, got {num_adaptation_steps}."
        )
    alpha = _alpha(step_size, adaptation_step_size, variant)
    if not is_traced(difference) and not float(np.asarray(difference)) > 0:
        raise ValueError(f"`difference` must be positive, got {difference}.")
    update = update or LocalUpdate()
    size, epochs = update.batch_size, update.num_epochs
    if size is not None:  # All batches of a step are drawn as one.
        size = size * _batches_of(method)
    if variant == "reference":  # Trained twice.
        num_steps = num_steps if epochs else 2 * num_steps
        epochs = epochs and 2 * epochs
    dealt = dataclasses.replace(update, batch_size=size, num_epochs=epochs)
    training = averaging(
        step_size, num_steps, weights, participation, dealt, threat, aggregate
    )
    meta = meta_task(task, Adaptation(alpha, method, difference), update)

    def init(key: PRNGKeyArray, data: ClientData) -> State:
        return global_start(key, task, training, data.mask.shape[0])

    def step(key: PRNGKeyArray, state: State, data: ClientData) -> tuple[State, Info]:
        return global_round(key, meta, state, data, training)

    def predict(state: State, data: ClientData, inputs: Array) -> Array:
        models = _adapted_models(
            task, state.model, data, alpha, num_adaptation_steps, update
        )
        return predict_own(task, models, jnp.arange(data.mask.shape[0]), inputs)

    return Algorithm(init, step, predict)


def _alpha(
    step_size: StepSize, adaptation_step_size: ScalarLike | None, variant: Variant
) -> ScalarLike:
    """The step size of adaptation."""
    if variant == "reference":
        if adaptation_step_size is not None:
            raise ValueError(
                "`adaptation_step_size` must be None with `variant='reference'`, where "
                f"it is `step_size`, got {adaptation_step_size}."
            )
        if callable(step_size):
            raise ValueError(
                "`step_size` must be a number with `variant='reference'`, where "
                "clients adapt by it, got a schedule; use `variant='paper'`."
            )
        return step_size
    if adaptation_step_size is None:
        raise ValueError(
            "`adaptation_step_size` must be given with `variant='paper'`, got None."
        )
    check_not_negative(adaptation_step_size=adaptation_step_size)
    return adaptation_step_size


_Gradient = Callable[[PyTree], PyTree]


@dataclasses.dataclass(frozen=True)
class Adaptation:
    """How a model adapts, and how the gradient sees through it; fields as the arguments
    of `per_fedavg`, `step_size` being alpha."""

    step_size: Any
    method: Method
    difference: Any


def _batches_of(method: Method) -> int:
    """Batches that a step wants: to adapt on, to judge by, and to curve by."""
    return 2 if method == "first_order" else 3


def parts(batch: ClientData, number: int) -> list[ClientData]:
    """A batch of one client dealt out like cards, `[samples / number, ...]` each, its
    real samples first. Parts share no sample; one that would get none, because the
    batch has fewer real samples than there are parts, takes one that another part
    has."""
    real = jnp.sum(batch.mask, dtype=jnp.int32)
    found = []
    for part in range(number):
        slots = jnp.arange(part, batch.mask.shape[0], number, dtype=jnp.int32)
        if not slots.shape[0]:  # Fewer slots than parts.
            slots = jnp.full(1, part, jnp.int32)
        lent = slots[0] % jnp.maximum(real, 1)
        slots = slots.at[0].set(jnp.where(slots[0] < real, slots[0], lent))
        inputs, targets, mask = jax.tree.map(lambda leaf, at=slots: leaf[at], batch)
        found.append(ClientData(inputs, targets, mask))
    return found


def meta_task(task: Task, how: Adaptation, update: LocalUpdate) -> Task:
    """The task whose training gradient is that of the loss after adaptation,

        (I - alpha H(w; D'')) g(w - alpha g(w; D); D'),

    g and H being gradient and Hessian of the task's training loss, and D, D', D'' the
    parts of a batch, or all samples each where `update` draws no batches. Losses,
    answers and models are those of `task`. Statistics (`Variables`) move with the
    passes over D and D', in this order. Under `vmap`, a step size or a difference that
    is mapped needs clients in batched order.
    """
    number = _batches_of(how.method)

    def fit(
        key: PRNGKeyArray,
        params: PyTree,
        inputs: Array,
        targets: Array,
        mask: Bool[Array, " samples"],
    ) -> tuple[Float[Array, " samples"], PyTree]:
        batch = ClientData(inputs, targets, mask)
        dealt = [batch]
        while len(dealt) < number:
            dealt.append(batch._replace(targets=kept_apart(dealt[-1].targets)))
        if update.batch_size is not None:
            dealt = parts(batch, number)
        here = jax.lax.stop_gradient(params)
        gradient, after = _meta_gradient(task, how, key, here, dealt)
        return losses_of_gradient(gradient, trained_part(params), mask), after

    return task._replace(fit=fit)


def _meta_gradient(
    task: Task,
    how: Adaptation,
    key: PRNGKeyArray,
    params: PyTree,
    dealt: list[ClientData],
) -> tuple[PyTree, PyTree]:
    """The gradient after adaptation, and the params with their statistics moved."""
    weights = trained_part(params)

    def of_part(index: int) -> Callable[[PyTree], tuple[PyTree, PyTree]]:
        own, part = jax.random.fold_in(key, index), dealt[index]

        def gradient(params: PyTree) -> tuple[PyTree, PyTree]:
            """Of the training loss on a part, and the params with statistics moved."""
            loss = lambda at: batch_loss(task, with_trained(params, at), part, own)
            return jax.grad(loss, has_aux=True)(trained_part(params))

        return gradient

    adapt, judge, *rest = map(of_part, range(len(dealt)))
    first, params = adapt(params)
    moved = _along(weights, first, -jnp.asarray(how.step_size))
    gradient, params = judge(with_trained(params, moved))
    if rest:
        slope: _Gradient = lambda at: rest[0](with_trained(params, at))[0]
        change = _directional(slope, weights, gradient, how)
        gradient = _along(gradient, change, -jnp.asarray(how.step_size))
    return gradient, with_trained(params, weights)


def _directional(
    slope: _Gradient, weights: PyTree, direction: PyTree, how: Adaptation
) -> PyTree:
    """The Hessian times a direction."""
    if how.method == "exact":
        # It is symmetric. Forward mode would stop at rules for backward passes.
        return jax.vjp(slope, weights)[1](direction)[0]
    delta = jnp.asarray(how.difference, jnp.result_type(float))
    ahead = slope(_along(weights, direction, delta))
    behind = slope(_along(weights, direction, -delta))
    return jax.tree.map(lambda a, b: (a - b) / (2 * delta), ahead, behind)


def _along(weights: PyTree, direction: PyTree, length: ScalarLike) -> PyTree:
    """`weights + length * direction`."""
    return jax.tree.map(lambda w, d: w + length * d, weights, direction)


def _adapted_models(
    task: Task,
    model: PyTree,
    data: ClientData,
    step_size: ScalarLike,
    num_steps: int,
    update: LocalUpdate,
) -> Stacked:
    """What each client makes of one model by gradient steps on all of its samples, by
    the losses that the task is judged by; the model itself without samples."""
    if not num_steps:
        return repeat(model, data.mask.shape[0])

    def one(shared: tuple, data: ClientData) -> PyTree:
        model, alpha = shared
        loss = lambda at: batch_loss(task, with_trained(model, at), data)[0]
        descend = lambda _, at: _along(at, jax.grad(loss)(at), -alpha)
        weights = jax.lax.fori_loop(0, num_steps, descend, trained_part(model))
        return with_trained(model, weights)

    alpha = jnp.asarray(step_size, jnp.result_type(float))
    return update.over_clients(one)((model, alpha), data)
