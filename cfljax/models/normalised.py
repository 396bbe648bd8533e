"""Any task behind a layer that normalises its inputs by the batch."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from cfljax.base.ranges import ranged
from cfljax.base.types import Layers, Task, Variables

_MOMENTUM = 0.9  # Of running statistics: PyTorch's default.
_LEAST = 1e-5  # Added to variances, likewise.


@ranged
def normalised(task: Task, input_shape: Sequence[int]) -> Task:
    """The task whose inputs are normalised first, entry by entry, then scaled and
    shifted: batch normalisation (Ioffe, Szegedy. ICML 2015, Algorithm 1), by the real
    samples of the batch in training and by running statistics (momentum 0.9) in
    evaluation. What `algorithms.fedbn` asks for, where a network has none.

    Args:
      task: whose training sees what evaluation sees; its params must measure nothing.
      input_shape: of one input of numbers.

    Returns:
      A task with params `Variables`: weights "normalisation", of "scale" and "bias",
      and "network", those of the task; statistics "normalisation", of "mean" and
      "var". Both have the shape of an input.

    Raises:
      ValueError: if the task trains with dropout, augmentation or batch statistics, or
        a size is below 1.
    """
    if task.fit is not None:
        raise ValueError(
            "`task` must train on what it is judged by, without dropout, augmentation "
            "or batch statistics of its own."
        )
    if min(input_shape, default=1) < 1:
        raise ValueError(
            f"`input_shape` must be positive integers, got {tuple(input_shape)}."
        )
    shape = tuple(input_shape)

    def init(key: PRNGKeyArray) -> Variables:
        zero, one = jnp.zeros(shape), jnp.ones(shape)
        weights = {
            "network": task.init(key),
            "normalisation": {"scale": one, "bias": zero},
        }
        return Variables(weights, {"normalisation": {"mean": zero, "var": one}})

    def by_running(params: Variables, inputs: Array) -> Array:
        own = params.statistics["normalisation"]
        return _normalise(params, inputs, own["mean"], own["var"])

    def losses(
        params: Variables, inputs: Array, targets: Array
    ) -> Float[Array, " samples"]:
        return task.losses(
            params.weights["network"], by_running(params, inputs), targets
        )

    def predict(params: Variables, inputs: Array) -> Array:
        return task.predict(params.weights["network"], by_running(params, inputs))

    def fit(
        key: PRNGKeyArray,
        params: Variables,
        inputs: Array,
        targets: Array,
        mask: Bool[Array, " samples"],
    ) -> tuple[Float[Array, " samples"], Variables]:
        del key
        inputs, params = _by_batch(params, inputs, mask)
        return task.losses(params.weights["network"], inputs, targets), params

    layers = None if task.layers is None else _layers(task.layers, by_running)
    return Task(init=init, losses=losses, predict=predict, fit=fit, layers=layers)


def _normalise(params: Variables, inputs: Array, mean: Array, var: Array) -> Array:
    """`scale (inputs - mean) / sqrt(var) + bias`."""
    own = params.weights["normalisation"]
    inverse = own["scale"] / jnp.sqrt(var + _LEAST)
    return (inputs - mean[None]) * inverse[None] + own["bias"][None]


def _by_batch(
    params: Variables, inputs: Array, mask: Bool[Array, " samples"]
) -> tuple[Array, Variables]:
    """Inputs normalised by the real samples, which move the running statistics; by
    these, moving nothing, where there are none."""
    running = params.statistics["normalisation"]
    number = jnp.maximum(jnp.sum(mask, dtype=inputs.dtype), 1)
    real = mask.reshape((-1,) + (1,) * (inputs.ndim - 1))
    mean = jnp.sum(jnp.where(real, inputs, 0), axis=0) / number
    away = jnp.where(real, inputs - mean[None], 0)
    var = jnp.sum(jnp.square(away), axis=0) / number
    found, any_real = {"mean": mean, "var": var}, jnp.any(mask)
    used = jax.tree.map(lambda a, b: jnp.where(any_real, a, b), found, running)
    move = lambda old, new: old + (1 - _MOMENTUM) * (new - old)
    moved = jax.tree.map(move, running, used)
    after = Variables(params.weights, {"normalisation": moved})
    return _normalise(params, inputs, used["mean"], used["var"]), after


def _layers(inner: Layers, by_running: Callable[[Variables, Array], Array]) -> Layers:
    """Body and last layer of the network; the normalisation belongs to the body."""
    within = lambda params: params.weights["network"]

    def fit(
        key: PRNGKeyArray, params: Variables, inputs: Array, mask: Array
    ) -> tuple[Array, Variables]:
        del key
        inputs, params = _by_batch(params, inputs, mask)
        return inner.embed(within(params), inputs), params

    return Layers(
        embed=lambda params, inputs: inner.embed(
            within(params), by_running(params, inputs)
        ),
        answer=lambda params, features: inner.answer(within(params), features),
        losses=inner.losses,
        is_head=lambda name: (
            name.startswith("network/") and inner.is_head(name.removeprefix("network/"))
        ),
        fit=fit,
    )
