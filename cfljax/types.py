"""The few types that every room of the library shares."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float, Int, Num, PRNGKeyArray, PyTree

__all__ = [
    "Algorithm",
    "ClientData",
    "Numbers",
    "Stacked",
    "Task",
    "Threat",
    "Truth",
    "Variables",
]

Stacked = PyTree  # A pytree whose leaves share one leading axis.
Numbers = int | float | np.number | Num[np.ndarray, "..."]  # Outside of JAX.


class ClientData(NamedTuple):
    """Samples of all clients, padded to a common length.

    inputs: `[clients, samples, ...]`.
    targets: `[clients, samples, ...]`.
    mask: `[clients, samples]`, false on padding.

    Inputs and targets must be finite, padding included: kernels weigh by zero, and
    0 x NaN is NaN.
    """

    inputs: Array
    targets: Array
    mask: Bool[Array, "*batch clients samples"]


class Truth(NamedTuple):
    """What a generator knows and an algorithm must find out.

    clusters: `[clients]`, the true cluster of each client.
    models: leaves `[clusters, ...]`, the models that made the data; None where
      the data are real.
    """

    clusters: Int[Array, "*batch clients"]
    models: Stacked


class Variables(NamedTuple):
    """Parameters of a model that measures statistics while it trains.

    weights: trained by gradients.
    statistics: measured on the batches that a model trains on, such as the running
      means and variances of batch normalisation. Never trained, never pulled
      towards another model; a server averages them as it averages the weights, so
      an averaged variance leaves out how much the clients' means differ.
    """

    weights: PyTree
    statistics: PyTree


class Task(NamedTuple):
    """A learning problem: pure functions of one model.

    init: `key -> params`.
    losses: `(params, inputs, targets) -> [samples]`, one loss per sample. A
      client's loss is their mean over its real samples; because it is a mean, the
      clients' samples can be merged into one batch per model (see
      `kernels.evaluate`), which turns the evaluation of all clients on all models
      into full matrix products. A regulariser is added to every sample's loss.
    predict: `(params, inputs) -> outputs`, `[samples, ...]` to `[samples, ...]`.
    fit: `(key, params, inputs, targets, mask) -> (losses, params)`, the losses that
      training minimises where they differ from `losses`: dropout and augmentation
      draw from the key, batch normalisation uses the real samples of the batch. The
      returned params are the given ones with their statistics moved (they are
      `Variables` if there are any). None where training sees `losses` itself.
    """

    init: Callable[[PRNGKeyArray], PyTree]
    losses: Callable[[PyTree, Array, Array], Float[Array, " samples"]]
    predict: Callable[[PyTree, Array], Array]
    fit: (
        Callable[
            [PRNGKeyArray, PyTree, Array, Array, Bool[Array, " samples"]],
            tuple[Float[Array, " samples"], PyTree],
        ]
        | None
    ) = None


class Algorithm(NamedTuple):
    """A federated algorithm: three pure functions, nothing hidden.

    init: `(key, data) -> state`, the least that a round needs.
    step: `(key, state, data) -> (state, info)`, one communication round.
    predict: `(state, data, inputs) -> outputs`, what each client would answer to
      its own row of `inputs`, `[clients, samples, ...]`, given its local `data`.
    """

    init: Callable[[PRNGKeyArray, ClientData], Any]
    step: Callable[[PRNGKeyArray, Any, ClientData], tuple[Any, Any]]
    predict: Callable[[Any, ClientData, Array], Array]


class Threat(NamedTuple):
    """What a round asks where some of its clients may lie; see `attacks.threat`.

    claim: `(assignment, clients) -> assignment`, clusters of the participants as they
      claim them.
    evaluate: `(models, clients) -> models`, leaves `[participants, ...]`: the models
      that participants really work with in place of those they were sent.
    send: `(key, messages, clients, models=None, receiver=None, **known) -> messages`,
      what the participants send in place of their messages, leaves
      `[participants, ...]`. `models`, leaves `[clusters, ...]`, are what messages
      start from, None for gradients; `receiver` is the client they are for, None for
      a centre; what is `known` are further fields of an `attacks.Context`.
    num_clients: of all clients, whoever takes part.
    target: the cluster that is claimed.
    adaptive: whether clients that are asked for points to be clustered may send others
      in each clipping round.
    """

    claim: Callable[[Array, Array], Array]
    evaluate: Callable[[Stacked, Array], Stacked]
    send: Callable[..., Stacked]
    num_clients: int
    target: int
    adaptive: bool = False
