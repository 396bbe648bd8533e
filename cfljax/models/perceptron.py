"""Multi-layer perceptron for classification, with ReLU between the layers."""

import itertools
import math
from collections.abc import Sequence

import jax
from flax import nnx
from flax.typing import Initializer
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from cfljax.base.ranges import ranged
from cfljax.base.types import Layers, Task
from cfljax.losses import cross_entropy


@ranged
def mlp(
    input_shape: Sequence[int], *, hidden: Sequence[int] = (200,), num_classes: int = 10
) -> Task:
    """Fully connected classifier with ReLU and a cross-entropy loss.

    The default, on 28 x 28 images, is the network of IFCA's Rotated MNIST (Ghosh et
    al. 2020, section 6.2): 784-200-10. Weights and biases start uniform on
    `(-1, 1) / sqrt(fan_in)`, which is the default of PyTorch's `Linear` and
    therefore what the experiment's released code used.

    Args:
      input_shape: shape of one input, flattened here, such as `(28, 28)`.
      hidden: widths of the hidden layers. Empty gives softmax regression.
      num_classes: number of logits, at least 2.

    Returns:
      A task on inputs `[samples, *input_shape]` and integer labels `[samples]`;
      `predict` gives logits `[samples, num_classes]`. Its params are nested dicts of
      arrays and stack under vmap.

    Raises:
      ValueError: if a width is below 1 or `num_classes` below 2; when called, if
        inputs have another number of entries than `input_shape`.
    """
    if min((*input_shape, *hidden), default=0) < 1:
        raise ValueError(
            "`input_shape` and `hidden` must be positive integers, got "
            f"{tuple(input_shape)} and {tuple(hidden)}."
        )
    if num_classes < 2:
        raise ValueError(f"`num_classes` must be at least 2, got {num_classes}.")
    widths = (math.prod(input_shape), *hidden, num_classes)
    graph = nnx.graphdef(nnx.eval_shape(lambda: LinearLayers(widths, nnx.Rngs(0))))

    def init(key: PRNGKeyArray) -> PyTree:
        return nnx.to_pure_dict(nnx.state(LinearLayers(widths, nnx.Rngs(key))))

    def embed(
        params: PyTree, inputs: Float[Array, "samples ..."]
    ) -> Float[Array, "samples features"]:
        if math.prod(inputs.shape[1:]) != widths[0]:
            raise ValueError(
                f"inputs must be `[samples, {', '.join(map(str, input_shape))}]`, got "
                f"shape {inputs.shape}."
            )
        flat = inputs.reshape(inputs.shape[0], -1)
        return nnx.merge(graph, params).embed(flat)

    def predict(
        params: PyTree, inputs: Float[Array, "samples ..."]
    ) -> Float[Array, "samples classes"]:
        return nnx.merge(graph, params).answer(embed(params, inputs))

    def losses(
        params: PyTree,
        inputs: Float[Array, "samples ..."],
        targets: Int[Array, " samples"],
    ) -> Float[Array, " samples"]:
        return cross_entropy(predict(params, inputs), targets)

    last = f"layers/{len(widths) - 2}/"
    layers = Layers(
        embed=embed,
        answer=lambda params, features: nnx.merge(graph, params).answer(features),
        losses=cross_entropy,
        is_head=lambda name: name.startswith(last),
    )
    return Task(init=init, losses=losses, predict=predict, layers=layers)


class LinearLayers(nnx.Module):
    """Linear layers with ReLU between them.

    widths: of the input, the hidden layers and the output.
    rngs: where weights and biases are drawn from, uniformly on
      `(-1, 1) / sqrt(fan_in)`.
    """

    def __init__(self, widths: Sequence[int], rngs: nnx.Rngs):
        self.layers = nnx.List(
            nnx.Linear(
                fan_in,
                fan_out,
                kernel_init=uniform(1 / math.sqrt(fan_in)),
                bias_init=uniform(1 / math.sqrt(fan_in)),
                rngs=rngs,
            )
            for fan_in, fan_out in itertools.pairwise(widths)
        )

    def __call__(self, inputs: Array) -> Array:
        return self.answer(self.embed(inputs))

    def embed(self, inputs: Array) -> Array:
        """What the last layer receives."""
        for layer in list(self.layers)[:-1]:
            inputs = nnx.relu(layer(inputs))
        return inputs

    def answer(self, features: Array) -> Array:
        """What the last layer makes of it."""
        *_, last = self.layers
        return last(features)


def uniform(bound: float) -> Initializer:
    """Uniform initialiser on `[-bound, bound)`."""

    def draw(key: PRNGKeyArray, shape: Sequence[int], dtype: DTypeLike) -> Array:
        # One flat draw gives the same numbers and compiles several times faster.
        flat = jax.random.uniform(
            key, (math.prod(shape),), dtype, minval=-bound, maxval=bound
        )
        return flat.reshape(shape)

    return draw
