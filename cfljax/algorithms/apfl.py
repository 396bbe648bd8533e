"""APFL: every client answers with a mixture of a model of its own and the global one.

Deng, Kamani, Mahdavi. "Adaptive Personalized Federated Learning". 2020 (arXiv
2003.13461), Algorithm 1. Of the paper its abstract and introduction were at hand; the
rules below are Algorithm 1 and the adaptive mixture as they are widely quoted. The
authors' released code (MLOPTPSU/FedTorch: trainings/federated/apfl.py and
comms/utils/flow_utils.py) was read and not copied; where it differs, the card says how.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, ScalarLike

from cfljax.base.checks import is_traced
from cfljax.base.constructor import constructor
from cfljax.base.describe import summary
from cfljax.base.tree import length, repeat, rows, trained_part, with_trained
from cfljax.base.types import (
    Algorithm,
    ClientData,
    Stacked,
    StepSize,
    Task,
    Threat,
    Variables,
)
from cfljax.federated.answers import check_clients
from cfljax.federated.backend import kept_apart
from cfljax.federated.evaluate import masked_mean, predict_own
from cfljax.federated.exchange import (
    Worked,
    exchange,
    first_moments,
    work_of_newcomers,
)
from cfljax.federated.local_update import LocalUpdate, client_update, step_size_at
from cfljax.federated.rounds import Info as RoundInfo
from cfljax.federated.rounds import global_start
from cfljax.federated.training import Start, Weights, averaging, start_own_models


class Own(NamedTuple):
    """What clients keep, a row for each.

    models: v, leaves `[clients, ...]`, local models.
    share: alpha, of the local model in the mixture.
    moments: optimiser states of both models, an empty tree if none are kept.
    """

    models: Stacked
    share: Float[Array, "*clients"]
    moments: Stacked


class State(NamedTuple):
    """All that the next round needs.

    model: w, the global model, leaves without a leading axis.
    own: what clients keep.
    round: rounds that are over.
    """

    model: PyTree
    own: Own
    round: Int[Array, ""]

    __repr__ = summary


class Info(NamedTuple):
    """What one round did; nothing here is carried over.

    assignment: 0 for a client that trained, `NO_CLUSTER` for one that was not asked,
      has no samples, or whose loss or trained models are not finite.
    losses: client losses under their mixtures, before training; NaN for a client that
      was not asked.
    share: alpha of every client after the round.
    received: bytes from the server to each client: the global model.
    sent: bytes from each client to the server; local models and shares are never sent.
    """

    assignment: Int[Array, " clients"]
    losses: Float[Array, " clients"]
    share: Float[Array, " clients"]
    received: Int[Array, " clients"]
    sent: Int[Array, " clients"]


@constructor
def apfl(
    task: Task,
    *,
    step_size: StepSize,
    mixing_share: ScalarLike = 0.5,
    is_adaptive: bool = False,
    num_steps: int = 1,
    weights: Weights = "clients",
    participation: float = 1.0,
    update: LocalUpdate | None = None,
    start: Start = "identical",
    threat: Threat | None = None,
) -> Algorithm:
    """FedAvg, and local models trained for their mixture with it.

    A participant trains the global model w it received and its own model v, each step
    of both on one batch, at the models before the step:

        w <- w - step grad F_i(w),
        v <- v - step alpha grad F_i(alpha v + (1 - alpha) w).

    It sends w, and answers with `alpha v + (1 - alpha) w`, w being the global model.

    Args:
      task: the learning problem.
      step_size: eta, of both models; may be traced.
      mixing_share: alpha in [0, 1], may be traced; with `is_adaptive`, at first.
        With 0 everybody answers with FedAvg's model, with 1 it trains alone.
      is_adaptive: whether each client changes its alpha in every step, by
        `alpha - step <v - w, grad F_i(alpha v + (1 - alpha) w)>` and back onto [0, 1].
        The inner product is 0 where v and w agree, as they do at first with identical
        starts.
      num_steps: local steps of both models in each round.
      weights: of the clients in the global model; the paper's are equal.
      participation: fraction of the clients drawn each round; the others keep their
        models and shares.
      update: how clients train both models; alpha always takes plain steps. A proximal
        term holds w near what was received.
      start: of the local models: "identical" with the global one, or "independent"
        draws, those of `local`.
      threat: what Byzantine clients do to the models they send.

    Raises:
      ValueError: where an argument is out of its range.

    A client whose loss, models or share is not finite has no weight and keeps what it
    had. A newcomer trains a local model for one round, from the global one and with
    the first `mixing_share`.

    Cost of a round: `2 num_steps` passes forward and backward and a forward pass for
    each participant. Memory: a model of every client.
    """
    if not is_traced(mixing_share) and not 0 <= np.asarray(mixing_share) <= 1:
        raise ValueError(f"`mixing_share` must be in [0, 1], got {mixing_share}.")
    training = averaging(step_size, num_steps, weights, participation, update, threat)

    def first_own(models: Stacked, num_clients: int) -> Own:
        """Before anybody worked."""
        share = jnp.asarray(mixing_share, jnp.result_type(float))
        one = jax.tree.map(lambda leaf: leaf[0], trained_part(models))
        moments = first_moments(training, (one, one), num_clients)
        return Own(models, jnp.full(num_clients, share), moments)

    def init(key: PRNGKeyArray, data: ClientData) -> State:
        num_clients = data.mask.shape[0]
        model, _ = global_start(key, task, training, num_clients)
        own = first_own(start_own_models(task, key, num_clients, start), num_clients)
        return State(model, own, jnp.zeros((), jnp.int32))

    def step(key: PRNGKeyArray, state: State, data: ClientData) -> tuple[State, Info]:
        after = exchange(
            key,
            state.model,
            state.own,
            data,
            training,
            work,
            shared=step_size_at(training.update, step_size, state.round),
            origin=state.model,
            round_index=state.round,
        )
        seen: RoundInfo = after.info
        share = after.kept.share
        info = Info(seen.assignment, seen.losses, share, seen.received, seen.sent)
        return State(after.mean, after.kept, state.round + 1), info

    def work(
        size: Array, key: PRNGKeyArray, model: PyTree, own: Own, data: ClientData
    ) -> Worked:
        mixture = mixed(own.models, model, own.share)
        loss = masked_mean(task.losses(mixture, *data[:2]), data.mask)
        pair = _pair(model, own.models, own.share)
        train = client_update(
            _both(task), _beside(training.update, pair, is_adaptive), num_steps
        )
        after, moments = train(key, size, pair, own.moments, data)
        common, local, share = _parts(after)
        return Worked(common, Own(local, share, moments), loss)

    def predict(state: State, data: ClientData, inputs: Array) -> Array:
        models, share = state.own[:2]
        num_clients = length(models)
        check_clients(num_clients, data, inputs)
        answers = mixed(models, repeat(state.model, num_clients), share)
        return predict_own(task, answers, jnp.arange(num_clients), inputs)

    def join(key: PRNGKeyArray, state: State, data: ClientData) -> State:
        num_clients = data.mask.shape[0]
        own = work_of_newcomers(
            key,
            state.model,
            first_own(repeat(state.model, num_clients), num_clients),
            data,
            training,
            work,
            shared=step_size_at(training.update, step_size, state.round),
        )
        return state._replace(own=own)

    return Algorithm(init, step, predict, join)


def mixed(local: PyTree, common: PyTree, share: Float[Array, "*clients"]) -> PyTree:
    """`share local + (1 - share) common` of the weights, and the local statistics; of
    one client, or of several with leaves `[clients, ...]`."""

    def one(v: Array, w: Array) -> Array:
        alpha = rows(share, v) if share.ndim else share
        return alpha * v + (1 - alpha) * w

    weights = jax.tree.map(one, trained_part(local), trained_part(common))
    return with_trained(local, weights)


# Both models and the share as the params of one task, which descend together.


def _pair(common: PyTree, local: PyTree, share: Array) -> PyTree:
    weights = trained_part(common), trained_part(local), share
    if isinstance(common, Variables):
        return Variables(weights, (common.statistics, local.statistics))
    return weights


def _parts(pair: PyTree) -> tuple[PyTree, PyTree, Array]:
    """The inverse of `_pair`."""
    common, local, share = trained_part(pair)
    if isinstance(pair, Variables):
        common, local = map(Variables, (common, local), pair.statistics)
    return common, local, share


def _both(task: Task) -> Task:
    """The task whose training gradient is that of Algorithm 1's three steps: the loss
    of the global model, and that of the mixture at a global model that stays."""

    def losses(pair: PyTree, inputs: Array, targets: Array) -> Array:
        common, local, share = _parts(pair)
        own = mixed(local, jax.lax.stop_gradient(common), share)
        again = kept_apart(targets)
        return task.losses(common, inputs, targets) + task.losses(own, inputs, again)

    def fit(
        key: PRNGKeyArray,
        pair: PyTree,
        inputs: Array,
        targets: Array,
        mask: Bool[Array, " samples"],
    ) -> tuple[Float[Array, " samples"], PyTree]:
        assert task.fit is not None
        common, local, share = _parts(pair)
        batch = inputs, targets, mask
        own = mixed(local, jax.lax.stop_gradient(common), share)
        keys = jax.random.split(key)
        first, common = task.fit(keys[0], common, *batch)
        batch = inputs, kept_apart(targets), mask
        second, own = task.fit(keys[1], own, *batch)
        after = with_trained(own, trained_part(local))
        return first + second, _pair(common, after, share)

    fit_both = None if task.fit is None else fit
    return task._replace(losses=losses, fit=fit_both, layers=None)


def _beside(update: LocalUpdate, pair: PyTree, is_adaptive: bool) -> LocalUpdate:
    """The update of both models from a pair: its optimiser has a state for the models,
    and the share takes plain steps that end in [0, 1], or none."""
    received = trained_part(pair)[0]

    def optimizer(size: Any) -> optax.GradientTransformation:
        inner = update.optimizer(size)

        def change(
            updates: PyTree, state: PyTree, params: PyTree | None = None
        ) -> tuple[PyTree, PyTree]:
            assert params is not None
            (common, local, slope), (w, v, share) = updates, params
            if update.proximal:
                pull = lambda g, at, start: g + update.proximal * (at - start)
                common = jax.tree.map(pull, common, w, received)
            moves: Any
            moves, state = inner.update((common, local), state, (w, v))
            moved = jnp.clip(share - size * slope, 0, 1) if is_adaptive else share
            return (*moves, moved - share), state

        first = lambda params: inner.init(params[:2])
        return optax.GradientTransformation(first, change)

    return dataclasses.replace(update, optimizer=optimizer, proximal=0.0)
