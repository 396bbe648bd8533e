"""The rows of IFCA's Table 2: how each is trained, and how it is tested."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from cfljax import metrics
from cfljax.algorithms import fedavg, ifca, one_shot
from cfljax.kernels.descent import local_descent
from cfljax.kernels.evaluate import choose_cluster, client_losses
from cfljax.kernels.local_update import LocalUpdate
from cfljax.kernels.participate import cohort
from cfljax.kernels.sharing import Shared, split
from cfljax.kernels.tree import take
from cfljax.types import Algorithm, ClientData, Stacked, Task
from experiments.ifca.femnist_samples import (
    Samples,
    mean_of_clients,
    padded,
    per_sample,
)

__all__ = ["Method", "Name", "Score", "is_right", "method_of", "score", "trained_alone"]

Name = Literal["ifca", "one_shot", "fedavg", "local"]


class Method(NamedTuple):
    """A row of the table.

    name: of the algorithm.
    num_clusters: k; 1 where the algorithm has no clusters.
    """

    name: Name
    num_clusters: int

    def algorithm(
        self,
        task: Task,
        *,
        shared: Shared | None,
        first: Task,
        num_first_steps: int,
        first_step_size: Any,
        **settings: Any,
    ) -> Algorithm:
        """The algorithm, averaging models weighted by samples.

        Args:
          task: the learning problem.
          shared: leaves that all clusters have in common, trained by all.
          first: problem of one-shot clustering's line 1.
          num_first_steps: full-batch steps of the same line.
          first_step_size: of these steps.
          settings: `step_size`, `participation` and `update` of every algorithm.
        """
        if self.name == "local":
            return trained_alone(task, **settings)
        if self.name == "fedavg":
            return fedavg(task, **settings)
        settings |= {"weights": "samples", "option": "model"}
        if self.name == "ifca":
            return ifca(task, num_clusters=self.num_clusters, shared=shared, **settings)
        del settings["option"]
        return one_shot(
            task,
            num_clusters=self.num_clusters,
            shared=shared,
            local_task=first,
            local_step_size=first_step_size,
            num_local_steps=num_first_steps,
            **settings,
        )


def method_of(text: str) -> Method:
    """The method of a text such as "ifca-2", "one_shot-3", "fedavg" or "local".

    Raises:
      ValueError: if it is none of these, or has less than one cluster.
    """
    if text == "fedavg" or text == "local":
        return Method(text, 1)
    name, _, number = text.partition("-")
    if (name == "ifca" or name == "one_shot") and number.isdigit() and int(number):
        return Method(name, int(number))
    raise ValueError(
        "a method must be fedavg, local, or ifca or one_shot with a number of "
        f"clusters, such as ifca-2; got {text!r}."
    )


class Alone(NamedTuple):
    """State of `trained_alone`: leaves `[clients, ...]`."""

    models: Stacked


class NoTraffic(NamedTuple):
    """Info of `trained_alone`: nothing is sent."""

    received: Int[Array, " clients"]
    sent: Int[Array, " clients"]


def trained_alone(
    task: Task, *, step_size: Any, participation: float, update: LocalUpdate
) -> Algorithm:
    """Local models that train only in the rounds in which their client is drawn.

    As in the released code; `cfljax.algorithms.local` trains everybody in each round.

    Args:
      task: the learning problem.
      step_size: may be traced.
      participation: fraction of the clients drawn in each round.
      update: how a client trains.
    """

    def init(key: PRNGKeyArray, data: ClientData) -> Alone:
        return Alone(jax.vmap(task.init)(jax.random.split(key, data.mask.shape[0])))

    def step(
        key: PRNGKeyArray, state: Alone, data: ClientData
    ) -> tuple[Alone, NoTraffic]:
        clients, present = cohort(key, data, participation)
        trained, _ = local_descent(
            task,
            take(state.models, clients),
            present,
            key=key,
            step_size=step_size,
            num_steps=1,
            update=update,
            clients=clients,
        )
        put = lambda old, new: old.at[clients].set(new)
        nothing = jnp.zeros(data.mask.shape[0], jnp.int32)
        return Alone(jax.tree.map(put, state.models, trained)), NoTraffic(
            received=nothing, sent=nothing
        )

    def predict(state: Alone, data: ClientData, inputs: Array) -> Array:
        del data
        return jax.vmap(task.predict)(state.models, inputs)

    return Algorithm(init=init, step=step, predict=predict)


class Score(NamedTuple):
    """How good the models are after a round.

    accuracy: share of all test samples that are right, each under its client's model.
    used_clusters: models that some client has; NaN for local models.
    is_finite: whether all parameters are. An average leaves out clients whose
      parameters are not.
    """

    accuracy: Float[Array, ""]
    used_clusters: Float[Array, ""]
    is_finite: Float[Array, ""]


def is_right(task: Task) -> Callable[[PyTree, Array, Array], Array]:
    """1 for a sample whose predicted class is the target, else 0; NaN is wrong."""

    def right(params: PyTree, inputs: Array, targets: Array) -> Array:
        logits = task.predict(params, inputs)
        defined = ~jnp.any(jnp.isnan(logits), axis=1)
        same = jnp.argmax(logits, axis=1) == targets
        return (same & defined).astype(logits.dtype)

    return right


def score(
    method: Method,
    task: Task,
    state: Any,
    train: Samples,
    test: Samples,
    shared: Shared | None,
) -> Score:
    """Accuracy on the test samples, as the released code counts it.

    IFCA's clients take the model of lowest training loss, and none if no loss is
    finite, which makes their samples wrong. One-shot clustering never asks again.

    Args:
      method: what was trained.
      task: the learning problem.
      state: of the algorithm.
      train: by which clients choose.
      test: which are counted.
      shared: leaves that all models have in common.

    Cost: a forward pass of the common layers for each sample, and of the others for
    each sample and model; test samples only where nothing is chosen.
    """
    if method.name == "local":
        return _score_alone(task, state.models, test)
    models = (
        jax.tree.map(lambda leaf: leaf[None], state.model)
        if method.name == "fedavg"
        else state.models
    )
    own, common = split(models, shared)
    common = jax.tree.map(lambda leaf: leaf[0], common)
    if method.name == "one_shot":
        choice = state.clusters
    elif method.name == "fedavg":
        choice = jnp.zeros(train.mask.shape[0], jnp.int32)
    else:
        losses = per_sample(task.losses, own, common, train)
        choice = choose_cluster(mean_of_clients(losses, train))
    right = per_sample(is_right(task), own, common, test)
    chosen = choice[test.owners]
    right = jnp.take_along_axis(right, jnp.maximum(chosen, 0)[:, None], axis=1)[:, 0]
    used = metrics.num_used_clusters(choice, method.num_clusters)
    return Score(
        accuracy=jnp.mean(jnp.where(chosen >= 0, right, 0)),
        used_clusters=used.astype(right.dtype),
        is_finite=_is_finite(models),
    )


def _score_alone(task: Task, models: Stacked, test: Samples) -> Score:
    """Score of one model for each client."""
    right = task._replace(losses=is_right(task))
    shares = client_losses(right, models, padded(test))
    counts = jnp.sum(test.mask, axis=1, dtype=shares.dtype)
    accuracy = jnp.sum(shares * counts) / jnp.sum(counts)
    return Score(accuracy, jnp.full((), jnp.nan), _is_finite(models))


def _is_finite(models: Stacked) -> Float[Array, ""]:
    """1 if all parameters are finite, else 0."""
    each = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(models)]
    return jnp.all(jnp.stack(each)).astype(jnp.result_type(float))
