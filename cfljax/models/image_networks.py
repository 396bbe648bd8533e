"""Convolutional networks for images: convolutions, pools, linear layers."""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from flax.typing import Initializer
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from cfljax.base.checks import check_member
from cfljax.base.ranges import ranged
from cfljax.base.types import Layers, Task, Variables
from cfljax.losses import cross_entropy
from cfljax.models.convolution import convolution, max_pool
from cfljax.models.perceptron import uniform

Initialiser = Literal["fan_in", "glorot"]


@ranged
def cnn(
    input_shape: Sequence[int],
    *,
    channels: Sequence[int] = (32, 64),
    kernel_size: int = 5,
    hidden: Sequence[int] = (512,),
    num_classes: int = 10,
    batch_norm: bool = False,
    dropout: float = 0.0,
    initialiser: Initialiser = "fan_in",
) -> Task:
    """Convolutional classifier with a cross-entropy loss.

    Every convolution keeps height and width and is followed by a 2 x 2 max-pool and
    ReLU; linear layers with ReLU between them make the logits. The default, on
    28 x 28 images, is the network of McMahan et al. (2017, section 3) for MNIST.

    Args:
      input_shape: `(height, width)` or `(height, width, channels)` of one image.
        Height and width are halved by every convolution's pool.
      channels: output channels of the convolutions, at least one.
      kernel_size: height and width of their kernels, in pixels.
      hidden: widths of the hidden linear layers, possibly none.
      num_classes: number of logits, at least 2.
      batch_norm: normalise the output of every convolution, before its pool, by the
        batch in training and by running statistics (momentum 0.9) in evaluation.
      dropout: probability in [0, 1) that a unit of a hidden linear layer is left out
        in training.
      initialiser: "fan_in" draws weights and biases uniformly on
        `(-1, 1) / sqrt(fan_in)`, the default of PyTorch's `Conv2d` and `Linear`;
        "glorot" draws weights uniformly with variance `2 / (fan_in + fan_out)` and
        sets biases to 0, the default of TensorFlow's layers.

    Returns:
      A task on images `[samples, *input_shape]` and integer labels `[samples]`;
      `predict` gives logits `[samples, num_classes]`. Its params are nested dicts
      of arrays, with keys "convolutions", "hidden" and "output" (and
      "normalisations"), a layer's number, "kernel" and "bias"; they stack under
      vmap. `batch_norm` makes them `Variables`. `fit` is None without `batch_norm`
      and `dropout`. Images of another shape raise a ValueError.

    Raises:
      ValueError: if a size is below 1, `input_shape` cannot be halved so often,
        `num_classes` is below 2, `dropout` is out of its range or has no hidden
        layer to act on, or `initialiser` is unknown.
    """
    image = _checked(input_shape, channels, kernel_size, hidden, num_classes)
    if not 0 <= dropout < 1:
        raise ValueError(f"`dropout` must be in [0, 1), got {dropout}.")
    if dropout and not hidden:
        raise ValueError(f"`dropout` needs a layer in `hidden`, got {dropout}.")
    check_member(Initialiser, initialiser=initialiser)
    start = {"fan_in": fan_in_uniform, "glorot": glorot_uniform}[initialiser]
    network = functions(
        lambda rngs: Network(
            image,
            channels=channels,
            kernel_size=kernel_size,
            hidden=hidden,
            num_classes=num_classes,
            batch_norm=batch_norm,
            dropout=dropout,
            start=start,
            rngs=rngs,
        )
    )

    task = _task(network, input_shape, image)
    if batch_norm or dropout:
        return task
    assert task.layers is not None
    return task._replace(fit=None, layers=task.layers._replace(fit=None))


def _task(
    network: Any, input_shape: Sequence[int], image: tuple[int, int, int]
) -> Task:
    """The task of a network's pure functions, `Functions`."""

    def shaped(inputs: Float[Array, "samples ..."]) -> Float[Array, "samples ..."]:
        check_images(inputs, input_shape)
        return inputs.reshape(inputs.shape[0], *image)

    def predict(
        params: PyTree, inputs: Float[Array, "samples ..."]
    ) -> Float[Array, "samples classes"]:
        return network.apply(params, shaped(inputs))[0]

    def losses(
        params: PyTree,
        inputs: Float[Array, "samples ..."],
        targets: Int[Array, " samples"],
    ) -> Float[Array, " samples"]:
        return cross_entropy(predict(params, inputs), targets)

    def fit(
        key: PRNGKeyArray,
        params: PyTree,
        inputs: Float[Array, "samples ..."],
        targets: Int[Array, " samples"],
        mask: Bool[Array, " samples"],
    ) -> tuple[Float[Array, " samples"], PyTree]:
        logits, params = network.apply(params, shaped(inputs), key, mask)
        return cross_entropy(logits, targets), params

    layers = Layers(
        embed=lambda params, inputs: network.embed(params, shaped(inputs))[0],
        answer=network.answer,
        losses=cross_entropy,
        is_head=lambda name: name.startswith("output/"),
        fit=lambda key, params, inputs, mask: network.embed(
            params, shaped(inputs), key, mask
        ),
    )
    return Task(network.init, losses, predict, fit, layers)


def check_images(inputs: Array, input_shape: Sequence[int]) -> None:
    """Raises ValueError unless `inputs` are images of `input_shape`."""
    if inputs.shape[1:] != tuple(input_shape):
        raise ValueError(
            f"`inputs` must be [samples, {', '.join(map(str, input_shape))}], the "
            f"shape that the task was made for, got {list(inputs.shape)}."
        )


def _checked(
    input_shape: Sequence[int],
    channels: Sequence[int],
    kernel_size: int,
    hidden: Sequence[int],
    num_classes: int,
) -> tuple[int, int, int]:
    """Height, width and channels, once all sizes make sense."""
    if len(input_shape) not in (2, 3):
        raise ValueError(
            "`input_shape` must be (height, width) or (height, width, channels), got "
            f"{tuple(input_shape)}."
        )
    if not channels:
        raise ValueError("`channels` must name at least one convolution, got ().")
    if min(*input_shape, *channels, *hidden, kernel_size) < 1:
        raise ValueError(
            "`input_shape`, `channels`, `hidden` and `kernel_size` must be positive "
            f"integers, got {tuple(input_shape)}, {tuple(channels)}, {tuple(hidden)} "
            f"and {kernel_size}."
        )
    height, width, depth = (*input_shape, 1)[:3]
    factor = 2 ** len(channels)
    if height % factor or width % factor:
        raise ValueError(
            f"`input_shape` must have multiples of {factor} as height and width, "
            f"since each of {len(channels)} pools halves them, got "
            f"{tuple(input_shape)}."
        )
    if num_classes < 2:
        raise ValueError(f"`num_classes` must be at least 2, got {num_classes}.")
    return height, width, depth


_MOMENTUM = 0.9  # Of running statistics: PyTorch's default.

Start = Callable[[int, int], tuple[Initializer, Initializer]]


class Convolution(nnx.Module):
    """Convolution with stride 1 that keeps height and width.

    kernel: `[size, size, channels_in, channels_out]`.
    bias: `[channels_out]`, None without; the caller adds it, after pooling where
      that saves work.
    """

    def __init__(
        self,
        size: int,
        channels_in: int,
        channels_out: int,
        *,
        kernel_init: Initializer,
        bias_init: Initializer | None,
        rngs: nnx.Rngs,
    ):
        shape = (size, size, channels_in, channels_out)
        self.kernel = nnx.Param(kernel_init(rngs.params(), shape, jnp.float32))
        if bias_init is None:
            self.bias = None
        else:
            bias = bias_init(rngs.params(), (channels_out,), jnp.float32)
            self.bias = nnx.Param(bias)

    def __call__(self, images: Array) -> Array:
        return convolution(images, self.kernel[...])


class Network(nnx.Module):
    """Convolutions, each followed by a 2 x 2 pool and ReLU, then linear layers.

    image: height, width and channels of the input.
    channels, kernel_size: of the convolutions, which keep height and width.
    hidden, num_classes: widths of the linear layers.
    batch_norm: between every convolution and its pool.
    dropout: probability that a hidden unit is left out while training.
    start: from fan-in and fan-out to the initialisers of weights and biases.
    """

    def __init__(
        self,
        image: tuple[int, int, int],
        *,
        channels: Sequence[int],
        kernel_size: int,
        hidden: Sequence[int],
        num_classes: int,
        batch_norm: bool,
        dropout: float,
        start: Start,
        rngs: nnx.Rngs,
    ):
        height, width, channels_in = image
        self.convolutions = nnx.List()
        for channels_out in channels:
            area = kernel_size**2
            weights, biases = start(area * channels_in, area * channels_out)
            layer = Convolution(
                kernel_size,
                channels_in,
                channels_out,
                kernel_init=weights,
                bias_init=None if batch_norm else biases,
                rngs=rngs,
            )
            self.convolutions.append(layer)
            height, width, channels_in = height // 2, width // 2, channels_out
        self.normalisations = nnx.List(
            nnx.BatchNorm(width, momentum=_MOMENTUM, use_fast_variance=False, rngs=rngs)
            for width in (channels if batch_norm else ())
        )
        widths = (height * width * channels_in, *hidden, num_classes)
        *hidden_layers, self.output = (
            _linear(fan_in, fan_out, start, rngs)
            for fan_in, fan_out in itertools.pairwise(widths)
        )
        self.hidden = nnx.List(hidden_layers)
        self.dropout = dropout

    def __call__(
        self,
        images: Array,
        key: PRNGKeyArray | None = None,
        mask: Array | None = None,
    ) -> Array:
        """Logits `[samples, classes]`; with a key and a mask as training sees them."""
        return self.answer(self.embed(images, key, mask))

    def embed(
        self,
        images: Array,
        key: PRNGKeyArray | None = None,
        mask: Array | None = None,
    ) -> Array:
        """What the last layer receives, `[samples, features]`."""
        for index, layer in enumerate(self.convolutions):
            images = layer(images)
            if self.normalisations:
                images = _normalise(self.normalisations[index], images, mask)
            # Pooling commutes with what follows, and leaves it a quarter of the work.
            images = max_pool(images)
            if layer.bias is not None:
                images = images + layer.bias[...][None, None, None, :]
            images = nnx.relu(images)
        features = images.reshape(images.shape[0], -1)
        for index, layer in enumerate(self.hidden):
            features = nnx.relu(layer(features))
            if key is not None and self.dropout > 0:
                features = _drop(jax.random.fold_in(key, index), features, self.dropout)
        return features

    def answer(self, features: Array) -> Array:
        """Logits of the last layer."""
        return self.output(features)


def _linear(fan_in: int, fan_out: int, start: Start, rngs: nnx.Rngs) -> nnx.Linear:
    weights, biases = start(fan_in, fan_out)
    return nnx.Linear(fan_in, fan_out, kernel_init=weights, bias_init=biases, rngs=rngs)


def _normalise(
    layer: nnx.BatchNorm, images: Array, mask: Bool[Array, " samples"] | None
) -> Array:
    """By the real samples of a batch, which move the running statistics; by those
    without a mask; by its padding, moving nothing, where no sample is real."""
    if mask is None:
        return layer(images, use_running_average=True)
    before = layer.mean[...], layer.var[...]
    is_real = jnp.any(mask)
    counted = (mask | ~is_real)[:, None, None, None]
    images = layer(images, use_running_average=False, mask=counted)
    layer.mean[...] = jnp.where(is_real, layer.mean[...], before[0])
    layer.var[...] = jnp.where(is_real, layer.var[...], before[1])
    return images


def _drop(
    key: PRNGKeyArray, features: Float[Array, "samples features"], rate: float
) -> Float[Array, "samples features"]:
    """Inverted dropout: what stays is scaled up by `1 / (1 - rate)`."""
    # One flat draw gives the same numbers and compiles several times faster.
    kept = jax.random.bernoulli(key, 1 - rate, (features.size,))
    return jnp.where(kept.reshape(features.shape), features / (1 - rate), 0)


class Functions(NamedTuple):
    """A module of flax as pure functions of plain nested dicts.

    init: `key -> params`, `Variables` where the module measures statistics.
    apply: `(params, *arguments) -> (outputs, params)`, statistics moved.
    embed: `(params, *arguments) -> (features, params)`, of its `embed`, if any.
    answer: `(params, features) -> outputs`, of its `answer`, if any.
    """

    init: Callable[[PRNGKeyArray], PyTree]
    apply: Callable[..., tuple[Any, PyTree]]
    embed: Callable[..., tuple[Any, PyTree]]
    answer: Callable[[PyTree, Array], Array]


def functions(build: Callable[[nnx.Rngs], nnx.Module]) -> Functions:
    """Pure functions of the module that `build` makes."""
    kinds = (nnx.Param, nnx.BatchStat)
    model = nnx.eval_shape(lambda: build(nnx.Rngs(0)))
    graph, _, measured = nnx.split(model, *kinds)
    has_statistics = bool(jax.tree.leaves(measured))

    def init(key: PRNGKeyArray) -> PyTree:
        _, *states = nnx.split(build(nnx.Rngs(key)), *kinds)
        weights, statistics = (nnx.to_pure_dict(state) for state in states)
        return Variables(weights, statistics) if has_statistics else weights

    def call(name: str, params: PyTree, *arguments: Any) -> tuple[Any, PyTree]:
        if not has_statistics:
            model = nnx.merge(graph, params)
            return getattr(model, name)(*arguments), params
        model = nnx.merge(graph, params.weights, params.statistics)
        outputs = getattr(model, name)(*arguments)
        statistics = nnx.to_pure_dict(nnx.state(model, nnx.BatchStat))
        return outputs, Variables(params.weights, statistics)

    return Functions(
        init=init,
        apply=functools.partial(call, "__call__"),
        embed=functools.partial(call, "embed"),
        answer=lambda params, features: call("answer", params, features)[0],
    )


def fan_in_uniform(fan_in: int, fan_out: int) -> tuple[Initializer, Initializer]:
    """Weights and biases uniform on `(-1, 1) / sqrt(fan_in)`: PyTorch's default."""
    del fan_out
    return uniform(1 / math.sqrt(fan_in)), uniform(1 / math.sqrt(fan_in))


def glorot_uniform(fan_in: int, fan_out: int) -> tuple[Initializer, Initializer]:
    """Uniform weights of variance `2 / (fan_in + fan_out)`, biases 0: TensorFlow's."""
    return uniform(math.sqrt(6 / (fan_in + fan_out))), nnx.initializers.zeros


def truncated_normal(scale: float) -> Initializer:
    """Normal draws of standard deviation `scale`, drawn again beyond two of them.

    What is left has a standard deviation of 0.88 `scale`, as in TensorFlow.
    """

    def draw(key: PRNGKeyArray, shape: Sequence[int], dtype: DTypeLike) -> Array:
        flat = jax.random.truncated_normal(key, -2, 2, (math.prod(shape),), dtype)
        return (scale * flat).reshape(shape)

    return draw


@ranged
def deep_cnn(
    *,
    channels: Sequence[int] = (32, 64, 128),
    hidden: Sequence[int] = (256,),
    dropout: float = 0.5,
    num_classes: int = 10,
) -> Task:
    """Convolutions with batch normalisation and linear layers with dropout.

    CLoVE (appendix C): "a deep convolutional neural network classifier, designed for
    32 x 32 RGB images. It uses batch normalization for stable training and dropout in
    fully connected layers". Depth, widths, kernels (here 3 x 3) and the probability
    are not given: all are a choice. Their network for MNIST, Fashion-MNIST and FEMNIST,
    of "5 x 5 kernels, Stride 1 (default) followed by ReLU and 2 x 2 max pooling", is
    the default of `cnn`, where the widths are a choice too.

    Args:
      channels: output channels of the convolutions, five at most; each halves height
        and width by its pool.
      hidden: widths of the hidden linear layers.
      dropout: probability in [0, 1) that a hidden unit is left out in training.
      num_classes: number of logits, at least 2.

    Returns:
      A task on images `[samples, 32, 32, 3]`, see `cnn`; its params are `Variables`.

    Raises:
      ValueError: see `cnn`.
    """
    return cnn(
        (32, 32, 3),
        channels=channels,
        kernel_size=3,
        hidden=hidden,
        num_classes=num_classes,
        batch_norm=True,
        dropout=dropout,
    )


@ranged
def femnist_cnn(*, hidden: int = 2048, num_classes: int = 62) -> Task:
    """LEAF's convolutional network for handwritten digits and letters.

    Two 5 x 5 convolutions of 32 and 64 channels, each with ReLU and a 2 x 2 pool, a
    hidden layer and the logits (Caldas et al. 2018, and IFCA's released code; Ghosh
    et al. 2020, section 6.3, gives the kinds of layers only). Weights start as
    TensorFlow's layers do: uniform with variance `2 / (fan_in + fan_out)`, biases 0.
    IFCA trains only what lies under the key "output" of the params in each cluster.

    Args:
      hidden: width of the hidden layer; the 2048 of the original hold 98 % of the
        6.6 million weights.
      num_classes: 62, digits and letters in both cases.

    Returns:
      A task on images `[samples, 28, 28]` in [0, 1], see `cnn`.

    Raises:
      ValueError: if `hidden` is below 1 or `num_classes` below 2.
    """
    return cnn(
        (28, 28), hidden=(hidden,), num_classes=num_classes, initialiser="glorot"
    )
