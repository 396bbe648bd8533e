"""What clients answer, and how newcomers come to a model: `predict` and `join`.

Closures for an `Algorithm`, made for states of five kinds: one `model`; `models`, and a
row of them for each client in `clusters`; `models` of the clients' own; `models` of
which every client takes the one it loses least with; or `models` that every client
mixes by weights of its own.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from cfljax.base.tree import length, repeat, rows, take
from cfljax.base.types import ClientData, Stacked, Task
from cfljax.federated.backend import over_clients
from cfljax.federated.evaluate import choose_cluster, loss_matrix, predict_own

Predict = Callable[[Any, ClientData, Array], Array]
Join = Callable[[PRNGKeyArray, Any, ClientData], Any]


def check_clients(known: int, data: ClientData, inputs: Array) -> None:
    """Raises ValueError where other clients are asked than a state knows."""
    for name, number in (("data", len(data.mask)), ("inputs", len(inputs))):
        if number != known:
            raise ValueError(
                f"`{name}` must be of the {known} clients that the state knows, got "
                f"{number}; `join` makes a state for others."
            )


def has_classes(data: ClientData) -> bool:
    """Whether targets are classes, by their type."""
    return jnp.issubdtype(data.targets.dtype, jnp.integer)


def predict_one_model(task: Task) -> Predict:
    """All clients answer with the `model` of the state."""

    def predict(state: Any, data: ClientData, inputs: Array) -> Array:
        everyone = jnp.zeros(data.mask.shape[0], jnp.int32)
        return predict_own(task, repeat(state.model, 1), everyone, inputs)

    return predict


def predict_own_cluster(task: Task) -> Predict:
    """Each client answers with the model of its cluster in `clusters`; with the first
    where that is `NO_CLUSTER`."""

    def predict(state: Any, data: ClientData, inputs: Array) -> Array:
        check_clients(len(state.clusters), data, inputs)
        return predict_own(task, state.models, state.clusters, inputs)

    return predict


def predict_own_model(task: Task, field: str = "models") -> Predict:
    """Each client answers with its own row of a field of the state."""

    def predict(state: Any, data: ClientData, inputs: Array) -> Array:
        models = getattr(state, field)
        check_clients(length(models), data, inputs)
        return predict_own(task, models, jnp.arange(data.mask.shape[0]), inputs)

    return predict


def predict_best_model(task: Task, clients_per_chunk: int | None = None) -> Predict:
    """Each client answers with the model that it loses least with on its `data`, at a
    forward pass of them for each model; so many clients choose at a time."""

    def predict(state: Any, data: ClientData, inputs: Array) -> Array:
        losses = loss_matrix(
            task, state.models, data, clients_per_chunk=clients_per_chunk
        )
        return predict_own(task, state.models, choose_cluster(losses), inputs)

    return predict


def predict_mixture(task: Task) -> Predict:
    """Each client answers with a mixture of all `models`, weighed by its row of
    `log_weights`, logarithms of weights of sum 1.

    Where targets are classes, softmaxes of the models' scores are mixed, and answers
    are logarithms of probabilities, of which `losses.cross_entropy` is the logarithmic
    loss; other outputs are averaged. A model without weight is left out, not even NaN.
    """

    def predict(state: Any, data: ClientData, inputs: Array) -> Array:
        check_clients(len(state.log_weights), data, inputs)
        mix = _mixed_classes if has_classes(data) else _mixed_numbers

        def one(models: Stacked, log_weights: Array, inputs: Array) -> Array:
            outputs = jax.vmap(lambda model: task.predict(model, inputs))(models)
            return mix(outputs, rows(log_weights, outputs))

        return over_clients(one)(state.models, state.log_weights, inputs)

    return predict


def _mixed_classes(
    outputs: Float[Array, "models samples *rest"],
    log_weights: Float[Array, "models *ones"],
) -> Float[Array, "samples *rest"]:
    """Logarithms of mixed probabilities."""
    each = log_weights + jax.nn.log_softmax(outputs, axis=-1)
    used = jnp.where(jnp.exp(log_weights) > 0, each, -jnp.inf)
    return jax.nn.logsumexp(used, axis=0)


def _mixed_numbers(
    outputs: Float[Array, "models samples *rest"],
    log_weights: Float[Array, "models *ones"],
) -> Float[Array, "samples *rest"]:
    """Weighted means."""
    weights = jnp.exp(log_weights)
    return jnp.sum(jnp.where(weights > 0, weights * outputs, 0), axis=0)


def join_best_cluster(task: Task, clients_per_chunk: int | None = None) -> Join:
    """A newcomer takes the cluster whose model it loses least with; `NO_CLUSTER` where
    no loss is finite."""

    def join(key: PRNGKeyArray, state: Any, data: ClientData) -> Any:
        del key
        losses = loss_matrix(
            task, state.models, data, clients_per_chunk=clients_per_chunk
        )
        best = choose_cluster(losses)
        return state._replace(clusters=best.astype(state.clusters.dtype))

    return join


def join_best_model(task: Task, clients_per_chunk: int | None = None) -> Join:
    """A newcomer takes the model of the client that it loses least with; the first
    client's where no loss is finite."""

    def join(key: PRNGKeyArray, state: Any, data: ClientData) -> Any:
        del key
        losses = loss_matrix(
            task, state.models, data, clients_per_chunk=clients_per_chunk
        )
        best = jnp.maximum(choose_cluster(losses), 0)
        return state._replace(models=take(state.models, best))

    return join
