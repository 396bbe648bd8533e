"""SCAFFOLD: one global model, whose clients correct their steps for their own drift.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh. "SCAFFOLD: Stochastic Controlled
Averaging for Federated Learning". ICML 2020, Algorithm 1. Of the paper its abstract and
introduction were at hand; the rules below are Algorithm 1 as it is widely quoted, and
as public code by others has it (PFLlib, FedTorch and the repository of FedRep, read
and not copied). No code of the authors was found.
"""

import dataclasses
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, ScalarLike

from cfljax.base.checks import check_member
from cfljax.base.constructor import constructor
from cfljax.base.describe import summary
from cfljax.base.tree import repeat, trained_part, with_trained
from cfljax.base.types import Algorithm, ClientData, Stacked, StepSize, Task, Threat
from cfljax.federated.answers import predict_one_model
from cfljax.federated.evaluate import masked_mean
from cfljax.federated.exchange import Worked, exchange, first_moments, server_step
from cfljax.federated.local_update import (
    LocalUpdate,
    batch_loss,
    client_update,
    step_size_at,
)
from cfljax.federated.rounds import Info, global_start
from cfljax.federated.training import Weights, averaging

Control = Literal["received", "steps"]


class Own(NamedTuple):
    """What clients keep, a row for each.

    control: c_i, leaves `[clients, ...]` of the weights.
    moments: optimiser states, an empty tree if none are kept.
    """

    control: Stacked
    moments: Stacked


class State(NamedTuple):
    """All that the next round needs.

    model: x, the global model, leaves without a leading axis.
    control: c, of the form of its weights.
    own: what clients keep.
    round: rounds that are over.
    """

    model: PyTree
    control: PyTree
    own: Own
    round: Int[Array, ""]

    __repr__ = summary


@constructor
def scaffold(
    task: Task,
    *,
    step_size: StepSize,
    server_step_size: ScalarLike = 1.0,
    control: Control = "steps",
    num_steps: int = 1,
    weights: Weights = "clients",
    participation: float = 1.0,
    update: LocalUpdate | None = None,
    threat: Threat | None = None,
) -> Algorithm:
    """FedAvg whose clients step along `g_i(y) - c_i + c` instead of `g_i(y)`.

    The control variate c_i estimates client i's gradient, c their mean: what they
    differ by is each client's drift. All are 0 at first. A participant changes its own
    one after its steps and sends the change with its model.

    Args:
      task: the learning problem.
      step_size: eta_l, local step size; may be traced.
      server_step_size: eta_g: the model becomes `x + eta_g (mean - x)`; not negative,
        may be traced. Statistics become the mean.
      control: what c_i becomes. "steps" is option II, `c_i - c + (x - y_i) / (K
        eta_l)`, which for gradient descent is the mean of the gradients of the K steps
        taken, and is computed as that: so it keeps its meaning with any optimiser, and
        with step size 0. "received" is option I, the gradient at the model received,
        on all of the client's samples.
      num_steps: K, local steps in each round.
      weights: of the clients in the model and in c; the paper's are equal.
      participation: fraction of the clients drawn each round; the others keep their
        control variates.
      update: how clients take their steps; a proximal term is part of the gradient.
      threat: what Byzantine clients send for their model and the change of their
        control variate, which starts from 0.

    Raises:
      ValueError: where an argument is out of its range.

    A client whose loss, trained model or control variate is not finite has no weight
    and keeps what it had. So c stays the weighted mean of all clients' c_i, whoever
    takes part.

    Cost of a round: that of FedAvg, and a pass forward and backward with
    `control="received"`. Memory: a control variate of every client.
    """
    check_member(Control, control=control)
    training = averaging(step_size, num_steps, weights, participation, update, threat)

    def init(key: PRNGKeyArray, data: ClientData) -> State:
        model, _ = global_start(key, task, training, data.mask.shape[0])
        zero = jax.tree.map(jnp.zeros_like, trained_part(model))
        own = Own(
            control=repeat(zero, data.mask.shape[0]),
            moments=first_moments(training, model, data.mask.shape[0]),
        )
        return State(model, zero, own, jnp.zeros((), jnp.int32))

    def step(key: PRNGKeyArray, state: State, data: ClientData) -> tuple[State, Info]:
        size = step_size_at(training.update, step_size, state.round)
        zero = jax.tree.map(jnp.zeros_like, state.control)
        after = exchange(
            key,
            state.model,
            state.own,
            data,
            training,
            work,
            shared=(size, state.control),
            origin=(state.model, zero),
            round_index=state.round,
        )
        mean, change = after.mean
        model = server_step(state.model, mean, server_step_size)
        # Of all clients' weights: |S| / N of the mean change.
        add = lambda c, d: c + after.share * d
        common = jax.tree.map(add, state.control, change)
        return State(model, common, after.kept, state.round + 1), after.info

    def work(
        shared: tuple, key: PRNGKeyArray, model: PyTree, own: Own, data: ClientData
    ) -> Worked:
        size, common = shared
        update, start = training.update, trained_part(model)
        loss = masked_mean(task.losses(model, *data[:2]), data.mask)
        correction = jax.tree.map(jnp.subtract, common, own.control)
        corrected = dataclasses.replace(
            update,
            keep_optimizer=True,  # Of the steps, which the control variate is made of.
            optimizer=lambda size: _corrected(update.optimizer(size), correction),
        )
        moments = own.moments
        if not update.keep_optimizer:
            moments = update.optimizer(size).init(start)
        train = client_update(task, corrected, num_steps)
        trained, steps = train(key, size, model, _first_steps(start, moments), data)
        if control == "steps":
            new = jax.tree.map(lambda total: total / steps.number, steps.total)
        else:
            first = jax.random.fold_in(key, 0)  # What the first of all steps draws.
            at = lambda weights: batch_loss(
                task, with_trained(model, weights), data, first
            )
            new = jax.grad(at, has_aux=True)(start)[0]
        kept = Own(new, steps.moments if update.keep_optimizer else ())
        return Worked(
            (trained, jax.tree.map(jnp.subtract, new, own.control)), kept, loss
        )

    return Algorithm(init, step, predict_one_model(task))


class _Steps(NamedTuple):
    """An optimiser's state, and the gradients that it was given, summed and counted."""

    moments: PyTree
    total: PyTree
    number: Float[Array, ""]


def _first_steps(weights: PyTree, moments: PyTree) -> _Steps:
    """Before the first step."""
    zero = jax.tree.map(jnp.zeros_like, weights)
    return _Steps(moments, zero, jnp.zeros((), jnp.result_type(float)))


def _corrected(
    optimizer: optax.GradientTransformation, correction: PyTree
) -> optax.GradientTransformation:
    """The optimiser of corrected gradients, whose state is `_Steps`."""

    def update(
        updates: PyTree, state: PyTree, params: PyTree | None = None
    ) -> tuple[PyTree, PyTree]:
        total = jax.tree.map(jnp.add, state.total, updates)
        moved = jax.tree.map(jnp.add, updates, correction)  # g_i(y) - c_i + c
        changes, moments = optimizer.update(moved, state.moments, params)
        return changes, _Steps(moments, total, state.number + 1)

    first = lambda params: _first_steps(params, optimizer.init(params))
    return optax.GradientTransformation(first, update)
