"""Answers between a model's and those of a client's nearest training samples."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree, Shaped

from cfljax.kernels.backend import over_clients
from cfljax.kernels.checks import (
    check_member,
    check_optional,
    check_positive,
    is_traced,
)
from cfljax.kernels.neighbours import nearest_samples, neighbour_mean
from cfljax.types import ClientData, Task

__all__ = ["Embed", "Interpolation", "Mixing", "best_weights", "interpolated"]

Embed = Callable[[PyTree, Array], Shaped[Array, "samples ..."]]
Mixing = Literal["paper", "reference"]


@dataclasses.dataclass(frozen=True)
class Interpolation:
    """How neighbours are found and mixed with a model.

    num_neighbours: k.
    scale: of the kernel `exp(-distance^2 / (features x scale))`, as in the code
      released with kNN-Per; positive, may be traced.
    embed: `(model, inputs) -> [samples, ...]`, where distances are taken; what the
      task predicts if None.
    variant: of the mixture of class scores: "paper" mixes probabilities, "reference"
      the neighbours' probabilities with the model's raw outputs.
    queries_per_chunk: queries searched at a time; all at once if None.

    Raises:
      ValueError: where an argument is out of its range.
    """

    num_neighbours: int = 10
    scale: Any = 1.0
    embed: Embed | None = None
    variant: str = "paper"
    queries_per_chunk: int | None = None

    def __post_init__(self) -> None:
        check_positive(num_neighbours=self.num_neighbours)
        check_optional(queries_per_chunk=self.queries_per_chunk)
        check_member(Mixing, variant=self.variant)
        if not is_traced(self.scale) and not self.scale > 0:
            raise ValueError(f"`scale` must be positive, got {self.scale}.")


class Answers(NamedTuple):
    """One client's answers, `[samples, outputs]`, before they are mixed.

    model: what the model predicts.
    neighbours: mean of the neighbours' one-hot labels, or of their targets.
    known: whether there is any neighbour.
    """

    model: Float[Array, "samples outputs"]
    neighbours: Float[Array, "samples outputs"]
    known: Bool[Array, " samples"]


def interpolated(
    task: Task,
    model: PyTree,
    data: ClientData,
    inputs: Array,
    weights: Float[Array, " clients"],
    how: Interpolation,
) -> Array:
    """What each client answers with one model and its own training samples.

    Args:
      task: the learning problem. Integer targets are classes, whose scores it
        predicts; others are numbers, predicted as they are.
      model: one for all clients.
      data: training samples, leaves `[clients, samples, ...]`.
      inputs: `[clients, queries, ...]`.
      weights: lambda of the neighbours in each client's answers, in [0, 1].
      how: everything else.

    Returns:
      `[clients, queries, ...]`: logarithms of mixed probabilities for classes (mixed
      scores with "reference"), mixed numbers otherwise. A client without training
      samples answers with the model alone.

    Raises:
      ValueError: if targets are neither one class for each sample nor numbers in the
        shape of predictions.

    Cost: a forward pass of all training samples and queries, one search per query
    (`neighbours.nearest_samples`).
    """

    def one(
        shared: tuple, weight: Array, data: ClientData, inputs: Array
    ) -> Shaped[Array, "queries ..."]:
        model, scale = shared
        shape, answers = _answers(task, model, data, inputs, scale, how)
        mixed = _mixed(answers, weight, _has_classes(data), how.variant)
        return mixed.reshape(shape)

    shared = (model, jnp.asarray(how.scale, jnp.result_type(float)))
    return over_clients(one)(shared, weights, data, inputs)


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
      how: as for `interpolated`; its defaults if None.
      per_client: whether each client chooses by its own samples. One without any, and
        everybody if false, takes the weight that is best for all samples together.

    Cost: that of `interpolated`, and a mixture for each weight.
    """
    how = how or Interpolation()

    def one(
        shared: tuple, data: ClientData, validation: ClientData
    ) -> Float[Array, " weights"]:
        model, scale, grid = shared
        classes = _has_classes(data)
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


def _answers(
    task: Task,
    model: PyTree,
    data: ClientData,
    inputs: Array,
    scale: Array,
    how: Interpolation,
) -> tuple[tuple[int, ...], Answers]:
    """One client's answers, and the shape that the task would give them."""
    embed = task.predict if how.embed is None else how.embed
    points = _flat(embed(model, data.inputs))
    outputs = task.predict(model, inputs)
    queries = outputs if how.embed is None else embed(model, inputs)
    indices, squares = nearest_samples(
        points,
        data.mask,
        _flat(queries),
        how.num_neighbours,
        queries_per_chunk=how.queries_per_chunk,
    )
    flat = _flat(outputs)
    if _has_classes(data):
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
    return outputs.shape, Answers(flat, means, known)


def _mixed(
    answers: Answers, weight: Array, classes: bool, variant: str
) -> Float[Array, "samples outputs"]:
    """The mixture; the model alone where there is no neighbour."""
    model, neighbours, known = answers
    weight = jnp.where(known, weight, 0)[:, None]
    if variant == "reference" or not classes:
        return weight * neighbours + (1 - weight) * model
    # Logarithms keep what probabilities near zero would lose.
    theirs = jnp.log(weight) + jnp.log(neighbours)
    return jnp.logaddexp(theirs, jnp.log1p(-weight) + jax.nn.log_softmax(model))


def _scores(mixed: Array, targets: Array, classes: bool) -> Float[Array, " samples"]:
    """How well each sample is answered; never NaN."""
    if not classes:
        squares = jnp.sum(jnp.square(mixed - _flat(targets)), axis=1)
        return jnp.where(jnp.isfinite(squares), -squares, -jnp.inf)
    right = (jnp.argmax(mixed, axis=1) == targets) & ~jnp.any(jnp.isnan(mixed), axis=1)
    return right.astype(mixed.dtype)


def _has_classes(data: ClientData) -> bool:
    """Whether targets are classes, by their type."""
    return jnp.issubdtype(data.targets.dtype, jnp.integer)


def _flat(leaf: Shaped[Array, "samples ..."]) -> Float[Array, "samples features"]:
    """One row of numbers for each sample."""
    return leaf.reshape(leaf.shape[0], -1).astype(jnp.result_type(float))
