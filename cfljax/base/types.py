"""The few types that every room of the library shares."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float, Int, Num, PRNGKeyArray, PyTree, ScalarLike

from cfljax.base.describe import short

Stacked = PyTree  # A pytree whose leaves share one leading axis.
# A number, or a schedule: from the rounds that are over to that of the next round.
StepSize = ScalarLike | Callable[[Int[Array, ""]], ScalarLike]
Numbers = int | float | np.number | Num[np.ndarray, "..."]  # Outside of JAX.


class ClientData(NamedTuple):
    """Samples of all clients, padded to a common length.

    inputs: `[clients, samples, ...]`.
    targets: `[clients, samples, ...]`.
    mask: `[clients, samples]`, false on padding.

    Inputs and targets must be finite, padding included: padding weighs 0, and 0 x NaN
    is NaN.
    """

    inputs: Array
    targets: Array
    mask: Bool[Array, "*batch clients samples"]

    def __repr__(self) -> str:
        """Clients, samples of each, and what one sample is."""
        try:
            counts = np.sum(np.asarray(self.mask), axis=-1)
            ends = sorted({int(counts.min()), int(counts.max())})
            shapes = (leaf.shape[self.mask.ndim :] for leaf in self[:2])
            own = [str(list(shape)).replace(" ", "") for shape in shapes]
        except Exception:  # Traced, or holding what is not an array.
            return f"ClientData{tuple(self)!r}"
        number = " x ".join(map(str, self.mask.shape[:-1]))
        samples = " to ".join(map(str, ends))
        one = (
            f"inputs {self.inputs.dtype}{own[0]}, targets {self.targets.dtype}{own[1]}"
        )
        return f"ClientData({number} clients, {samples} samples each: {one})"


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
      means and variances of batch normalisation. Never trained, never held
      near another model; a server averages them as it averages the weights, so
      an averaged variance leaves out how much the clients' means differ.
    """

    weights: PyTree
    statistics: PyTree


class Layers(NamedTuple):
    """A network as a body, which makes features, and a last layer, which answers.

    embed: `(params, inputs) -> [samples, features]`, what the last layer receives.
    answer: `(params, features) -> outputs`; the task's `predict` is `answer` of
      `embed`.
    losses: `(outputs, targets) -> [samples]`; the task's `losses` are these of
      `predict`.
    is_head: from a leaf's name (see `federated.sharing.paths`) to whether it belongs to
      the last layer.
    fit: `(key, params, inputs, mask) -> (features, params)`, `embed` as training sees
      it, see `Task.fit`; None where it is the same.
    """

    embed: Callable[[PyTree, Array], Float[Array, "samples features"]]
    answer: Callable[[PyTree, Float[Array, "samples features"]], Array]
    losses: Callable[[Array, Array], Float[Array, " samples"]]
    is_head: Callable[[str], bool]
    fit: (
        Callable[
            [PRNGKeyArray, PyTree, Array, Bool[Array, " samples"]],
            tuple[Float[Array, "samples features"], PyTree],
        ]
        | None
    ) = None


class Task(NamedTuple):
    """A learning problem: pure functions of one model.

    init: `key -> params`.
    losses: `(params, inputs, targets) -> [samples]`, one loss per sample. A
      client's loss is their mean over its real samples; because it is a mean, the
      clients' samples can be merged into one batch per model (see
      `federated.evaluate`), which turns the evaluation of all clients on all models
      into full matrix products. A regulariser is added to every sample's loss.
    predict: `(params, inputs) -> outputs`, `[samples, ...]` to `[samples, ...]`.
    fit: `(key, params, inputs, targets, mask) -> (losses, params)`, the losses that
      training minimises where they differ from `losses`: dropout and augmentation
      draw from the key, batch normalisation uses the real samples of the batch. The
      returned params are the given ones with their statistics moved (they are
      `Variables` if there are any). None where training sees `losses` itself.
    layers: the network as a body and a last layer; None where it has none.
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
    layers: Layers | None = None


def _same_state(key: PRNGKeyArray, state: Any, data: ClientData) -> Any:
    """The state of an algorithm that keeps nothing for single clients."""
    del key, data
    return state


def _accept(data: ClientData) -> None:
    """Finds nothing wrong."""
    del data


class Algorithm(NamedTuple):
    """A federated algorithm: pure functions, nothing hidden.

    init: `(key, data) -> state`, the least that a round needs.
    step: `(key, state, data) -> (state, info)`, one communication round.
    predict: `(state, data, inputs) -> outputs`, what each client would answer to
      its own row of `inputs`, `[clients, samples, ...]`, given its local `data`.
    join: `(key, state, data) -> state`, for clients that never took part, of any
      number, with samples of their own: the state from which `predict` tells what they
      would answer. A newcomer is sent what the server has and works on its own for as
      long as in one round; nothing of the server changes, and no round goes on from
      that state. The default keeps the state: nothing in it belongs to single clients.
    name: of its constructor.
    settings: what the constructor was given beside the task.
    check: `data -> None`, raises ValueError where data cannot be learnt from: of
      concrete ones before a compiler hides their values, of others by their sizes.
      `init` does so too.
    """

    init: Callable[[PRNGKeyArray, ClientData], Any]
    step: Callable[[PRNGKeyArray, Any, ClientData], tuple[Any, Any]]
    predict: Callable[[Any, ClientData, Array], Array]
    join: Callable[[PRNGKeyArray, Any, ClientData], Any] = _same_state
    name: str = "Algorithm"
    settings: Mapping[str, Any] = MappingProxyType({})
    check: Callable[[ClientData], None] = _accept

    def __hash__(self) -> int:
        """By its functions: settings may be arrays, which have no hash."""
        return hash(self[:4])

    def __repr__(self) -> str:
        """As it was made, without the task."""
        settings = ", ".join(f"{name}={short(v)}" for name, v in self.settings.items())
        return f"{self.name}({settings})"


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
      the server; what is `known` are further fields of an `attacks.Context`.
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


NO_CLUSTER = -1  # Assignment of a client that takes no part in a round.
