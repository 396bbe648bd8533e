"""kNN-Per: a global model and, on every client, the neighbours among its own samples.

Marfoq, Neglia, Vidal, Kameni. "Personalized Federated Learning through Local
Memorization". ICML 2022: FedAvg trains the model; a client then answers with
`lambda p_neighbours + (1 - lambda) p_model`. A baseline of Werner et al., section 5.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, ScalarLike, Shaped

from cfljax.base.checks import check_member, check_positive, is_traced
from cfljax.base.constructor import constructor
from cfljax.base.types import Algorithm, ClientData, StepSize, Task, Threat
from cfljax.federated.answers import has_classes
from cfljax.federated.backend import over_clients
from cfljax.federated.local_update import LocalUpdate
from cfljax.federated.rounds import GlobalState as State
from cfljax.federated.rounds import Info, global_round, global_start
from cfljax.federated.training import Option, Training, Weights

Embed = Callable[[PyTree, Array], Shaped[Array, "samples ..."]]
Mixing = Literal["paper", "reference"]


@constructor
def knn_per(
    task: Task,
    *,
    step_size: StepSize,
    knn_weight: ScalarLike | Float[Array, " clients"] = 0.5,
    num_neighbours: int = 10,
    scale: ScalarLike = 1.0,
    embed: Embed | None = None,
    variant: Mixing = "paper",
    queries_per_chunk: int | None = None,
    option: Option = "model",
    num_steps: int = 1,
    weights: Weights = "samples",
    participation: float = 1.0,
    update: LocalUpdate | None = None,
    threat: Threat | None = None,
) -> Algorithm:
    """FedAvg, answered together with each client's k nearest training samples.

    `predict` gives logarithms of probabilities where the targets are integers, taken
    for classes: their largest is the answer, and `losses.cross_entropy` of them is
    the logarithmic loss, infinite for a class that is given probability 0. Other
    targets are averaged as numbers.

    Args:
      task: the learning problem.
      step_size: local step size; may be traced.
      knn_weight: lambda in [0, 1], the weight of the neighbours, for all clients or
        `[clients]`; may be traced. `best_weights` chooses it on validation data.
      num_neighbours: k; all samples of a client that has fewer.
      scale: of the kernel `exp(-distance^2 / (features x scale))`; may be traced.
      embed: `(model, inputs) -> [samples, ...]`, where squared Euclidean distances
        are taken, such as what the last layer receives. The default is what the
        task predicts (scores before the softmax), as in the code released with
        Werner et al.
      variant: "paper" mixes probabilities; "reference" the neighbours' probabilities
        with the model's raw scores, as the authors' released code does unless told
        otherwise. Its answers are scores of no common unit.
      queries_per_chunk: queries searched at a time; all of a client's if None.
      option: how the model is trained, as in `fedavg`.
      num_steps: local steps of `option="model"`.
      weights: of the clients in the model.
      participation: fraction of the clients drawn each round.
      update: how clients train.
      threat: what Byzantine clients do to the model.

    Raises:
      ValueError: where an argument is out of its range; in `init` and `predict`, where
        `knn_weight` has another length than there are clients.

    The losses of `Info` are those of the model alone. Neighbours are never sent. A
    newcomer answers with the model and its own samples.

    Cost of a round: that of FedAvg. Of an answer: a forward pass of all training
    samples and queries, and one search per query (`nearest_samples`).
    """
    if not is_traced(knn_weight):
        known = np.asarray(knn_weight)
        if not ((known >= 0) & (known <= 1)).all():
            raise ValueError(f"`knn_weight` must be in [0, 1], got {knn_weight}.")
    how = Interpolation(num_neighbours, scale, embed, variant, queries_per_chunk)
    training = Training(
        step_size=step_size,
        option=option,
        num_steps=num_steps,
        normalise="cluster",
        weights=weights,
        participation=participation,
        update=update or LocalUpdate(),
        threat=threat,
    )

    def weight_of_each(num_clients: int) -> Float[Array, " clients"]:
        given = jnp.asarray(knn_weight, jnp.result_type(float))
        if given.ndim and given.shape != (num_clients,):
            raise ValueError(
                f"`knn_weight` must be one number or one for each of {num_clients} "
                f"clients, got shape {given.shape}."
            )
        return jnp.broadcast_to(given, (num_clients,))

    def init(key: PRNGKeyArray, data: ClientData) -> State:
        weight_of_each(data.mask.shape[0])
        return global_start(key, task, training, data.mask.shape[0])

    def step(key: PRNGKeyArray, state: State, data: ClientData) -> tuple[State, Info]:
        return global_round(key, task, state, data, training)

    def predict(state: State, data: ClientData, inputs: Array) -> Array:
        def one(
            shared: tuple, weight: Array, data: ClientData, inputs: Array
        ) -> Shaped[Array, "queries ..."]:
            model, scale = shared
            shape, answers = _answers(task, model, data, inputs, scale, how)
            return _mixed(answers, weight, has_classes(data), variant).reshape(shape)

        each = weight_of_each(data.mask.shape[0])
        shared = state.model, jnp.asarray(scale, jnp.result_type(float))
        return over_clients(one)(shared, each, data, inputs)

    return Algorithm(init, step, predict)


@dataclasses.dataclass(frozen=True)
class Interpolation:
    """How neighbours are found and mixed with a model; fields as the arguments of
    `knn_per`.

    Raises:
      ValueError: where an argument is out of its range.
    """

    num_neighbours: int = 10
    scale: Any = 1.0
    embed: Embed | None = None
    variant: str = "paper"
    queries_per_chunk: int | None = None

    def __post_init__(self) -> None:
        check_positive(
            num_neighbours=self.num_neighbours, queries_per_chunk=self.queries_per_chunk
        )
        check_member(Mixing, variant=self.variant)
        if not is_traced(self.scale) and not self.scale > 0:
            raise ValueError(f"`scale` must be positive, got {self.scale}.")


class _Answers(NamedTuple):
    """One client's answers before they are mixed: the model's, the mean of neighbours'
    one-hot labels or targets, and whether there is any neighbour."""

    model: Float[Array, "samples outputs"]
    neighbours: Float[Array, "samples outputs"]
    known: Bool[Array, " samples"]


def _answers(
    task: Task,
    model: PyTree,
    data: ClientData,
    inputs: Array,
    scale: Array,
    how: Interpolation,
) -> tuple[tuple[int, ...], _Answers]:
    """One client's answers, and the shape that the task would give them."""
    embed = task.predict if how.embed is None else how.embed
    points = _flat(embed(model, data.inputs))
    outputs = task.predict(model, inputs)
    queries = outputs if how.embed is None else embed(model, inputs)
    number, size = how.num_neighbours, how.queries_per_chunk
    indices, squares = nearest_samples(
        points, data.mask, _flat(queries), number, queries_per_chunk=size
    )
    flat = _flat(outputs)
    if has_classes(data):
        values = jax.nn.one_hot(data.targets, flat.shape[1], dtype=flat.dtype)
    else:
        values = _flat(data.targets)
    if values.shape[1:] != flat.shape[1:]:
        raise ValueError(
            "`targets` must be one class for each sample, or numbers in the shape of "
            f"predictions, {outputs.shape[1:]}, got {data.targets.shape[1:]}."
        )
    width = points.shape[1] * scale
    means, known = neighbour_mean(values, indices, squares, width)
    return outputs.shape, _Answers(flat, means, known)


def _mixed(
    answers: _Answers, weight: Array, classes: bool, variant: str
) -> Float[Array, "samples outputs"]:
    """The mixture; the model alone where there is no neighbour."""
    model, neighbours, known = answers
    weight = jnp.where(known, weight, 0)[:, None]
    if variant == "reference" or not classes:
        return weight * neighbours + (1 - weight) * model
    # Logarithms keep what probabilities near zero would lose.
    theirs = jnp.log(weight) + jnp.log(neighbours)
    return jnp.logaddexp(theirs, jnp.log1p(-weight) + jax.nn.log_softmax(model))


def _flat(leaf: Shaped[Array, "samples ..."]) -> Float[Array, "samples features"]:
    """One row of numbers for each sample."""
    return leaf.reshape(leaf.shape[0], -1).astype(jnp.result_type(float))


def nearest_samples(
    points: Float[Array, "samples features"],
    mask: Bool[Array, " samples"],
    queries: Float[Array, "queries features"],
    num_neighbours: int,
    *,
    queries_per_chunk: int | None = None,
) -> tuple[Int[Array, "queries neighbours"], Float[Array, "queries neighbours"]]:
    """Indices and squared Euclidean distances of each query's nearest points, nearest
    first, ties in the order of the points.

    Padding, and a point that is not finite, is nobody's neighbour; a query that is not
    finite has none. Where there are fewer than k, the distances of the rest are
    infinite and their indices without meaning. Points are centred first, which keeps
    the digits that inner products of far-away points would lose. Memory grows with
    `queries_per_chunk x samples`.
    """
    check_positive(num_neighbours=num_neighbours, queries_per_chunk=queries_per_chunk)
    real = mask & jnp.all(jnp.isfinite(points), axis=1)
    kept = jnp.where(real[:, None], points, 0)
    number = jnp.maximum(jnp.sum(real, dtype=points.dtype), 1)
    middle = (jnp.sum(kept, axis=0) / number)[None, :]
    kept = jnp.where(real[:, None], points - middle, 0)
    lengths = jnp.sum(jnp.square(kept), axis=1)
    count = min(num_neighbours, points.shape[0])

    def search(query: Float[Array, " features"]) -> tuple[Array, Array]:
        inner = jnp.matmul(kept, query, precision=jax.lax.Precision.HIGHEST)
        squares = jnp.maximum(lengths + jnp.sum(jnp.square(query)) - 2 * inner, 0)
        squares = jnp.where(real & jnp.isfinite(squares), squares, jnp.inf)
        nearest, indices = jax.lax.top_k(-squares, count)
        return indices, -nearest

    centred = queries - middle
    if queries_per_chunk is None:
        return jax.vmap(search)(centred)
    size = min(queries_per_chunk, queries.shape[0])
    return jax.lax.map(search, centred, batch_size=size)


def neighbour_mean(
    values: Float[Array, "samples outputs"],
    indices: Int[Array, "queries neighbours"],
    squares: Float[Array, "queries neighbours"],
    width: ScalarLike,
) -> tuple[Float[Array, "queries outputs"], Bool[Array, " queries"]]:
    """Mean of the neighbours' values, weighted by `exp(-squares / width)`, 0 where
    there is no neighbour; and where there is one. Weights are taken relative to the
    nearest, so that far queries do not divide zero by zero."""
    used = jnp.isfinite(squares)
    known = jnp.any(used, axis=1)
    nearest = jnp.where(known, jnp.min(squares, axis=1), 0)
    beyond = jnp.where(used, squares - nearest[:, None], 0)
    weights = jnp.where(used, jnp.exp(-beyond / width), 0)
    total = jnp.where(known, jnp.sum(weights, axis=1), 1)
    means = jnp.einsum("qk,qko->qo", weights, values[indices], precision="highest")
    return means / total[:, None], known


def best_weights(
    task: Task,
    model: PyTree,
    data: ClientData,
    validation: ClientData,
    grid: Float[Array, " weights"],
    how: Interpolation | None = None,
    *,
    per_client: bool = True,
) -> Float[Array, " clients"]:
    """The weight of a grid that serves validation data best, for each client.

    Best is the most right answers, or the least squared error where targets are no
    classes; the first of several. Neighbours are searched once for all weights.

    Args:
      task: the learning problem.
      model: one for all clients.
      data: training samples, leaves `[clients, samples, ...]`.
      validation: samples that are neither trained nor tested on, likewise.
      grid: weights to choose from.
      how: how neighbours are found and mixed; the defaults if None.
      per_client: whether each client chooses by its own samples. One without any, and
        everybody if false, takes the weight that is best for all samples together.

    Cost: that of an answer of `knn_per`, and a mixture for each weight.
    """
    how = how or Interpolation()

    def one(
        shared: tuple, data: ClientData, validation: ClientData
    ) -> Float[Array, " weights"]:
        model, scale, grid = shared
        classes = has_classes(data)
        inputs, targets, mask = validation
        _, answers = _answers(task, model, data, inputs, scale, how)

        def score(weight: Array) -> Float[Array, ""]:
            mixed = _mixed(answers, weight, classes, how.variant)
            each = _scores(mixed, targets, classes)
            return jnp.sum(jnp.where(mask, each, 0))

        return jax.vmap(score)(grid)

    number = lambda value: jnp.asarray(value, jnp.result_type(float))
    shared = (model, number(how.scale), number(grid))
    scores = over_clients(one)(shared, data, validation)
    common = jnp.argmax(jnp.sum(scores, axis=0))
    own = jnp.any(validation.mask, axis=1) & per_client
    return grid[jnp.where(own, jnp.argmax(scores, axis=1), common)]


def _scores(mixed: Array, targets: Array, classes: bool) -> Float[Array, " samples"]:
    """How well each sample is answered; never NaN."""
    if not classes:
        squares = jnp.sum(jnp.square(mixed - _flat(targets)), axis=1)
        return jnp.where(jnp.isfinite(squares), -squares, -jnp.inf)
    right = (jnp.argmax(mixed, axis=1) == targets) & ~jnp.any(jnp.isnan(mixed), axis=1)
    return right.astype(mixed.dtype)
