"""Convolutional network over the words of a text."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int, PyTree

from cfljax.base.ranges import ranged
from cfljax.base.types import Layers, Task
from cfljax.losses import cross_entropy
from cfljax.models.convolution import convolution
from cfljax.models.image_networks import fan_in_uniform, functions


@ranged
def text_cnn(
    num_tokens: int,
    *,
    embedding: int = 64,
    windows: Sequence[int] = (3, 4, 5),
    channels: int = 64,
    num_classes: int = 4,
) -> Task:
    """Embedding, convolutions over time side by side, largest over time, logits.

    The network of Kim (2014), which CLoVE (appendix C) names for AG News ("a TextCNN
    with an embedding layer") without any width: those here are a choice, without
    dropout. Windows begin at every word and reach into zeros behind the last one;
    padding, token 0, is embedded as zero and begins no window, so that the length to
    which a text is padded changes nothing. Embeddings start standard normal, weights
    and biases uniform on `(-1, 1) / sqrt(fan_in)`: PyTorch's defaults.

    Args:
      num_tokens: number of token ids, padding included.
      embedding: width of a word's embedding.
      windows: how many words each convolution sees at once.
      channels: output channels of each convolution.
      num_classes: number of logits, at least 2.

    Returns:
      A task on token ids `[samples, tokens]`, padded behind, and integer labels
      `[samples]`; `predict` gives logits `[samples, num_classes]`. A text with an id
      that is no token has logits and loss NaN. Params are nested dicts with the keys
      "embedding", "convolutions" and "output"; they stack under vmap.

    Raises:
      ValueError: if a number is below 1, there is no window, or `num_tokens` or
        `num_classes` is below 2.

    Cost: `channels * embedding * sum(windows)` products a word.
    """
    if not windows:
        raise ValueError("`windows` must name at least one convolution, got ().")
    if min(embedding, channels, *windows) < 1:
        raise ValueError(
            "`embedding`, `windows` and `channels` must be positive integers, got "
            f"{embedding}, {tuple(windows)} and {channels}."
        )
    for name, value in (("num_tokens", num_tokens), ("num_classes", num_classes)):
        if value < 2:
            raise ValueError(f"`{name}` must be at least 2, got {value}.")
    network = functions(
        lambda rngs: TextNetwork(
            num_tokens,
            embedding=embedding,
            windows=windows,
            channels=channels,
            num_classes=num_classes,
            rngs=rngs,
        )
    )

    def predict(
        params: PyTree, tokens: Int[Array, "samples tokens"]
    ) -> Float[Array, "samples classes"]:
        return network.apply(params, tokens)[0]

    def losses(
        params: PyTree,
        tokens: Int[Array, "samples tokens"],
        targets: Int[Array, " samples"],
    ) -> Float[Array, " samples"]:
        return cross_entropy(predict(params, tokens), targets)

    layers = Layers(
        embed=lambda params, tokens: network.embed(params, tokens)[0],
        answer=network.answer,
        losses=cross_entropy,
        is_head=lambda name: name.startswith("output/"),
    )
    return Task(network.init, losses, predict, layers=layers)


class TextNetwork(nnx.Module):
    """Embedding, convolutions over time side by side, logits; see `text_cnn`.

    num_tokens: number of token ids; 0 is padding.
    embedding: width of a word's embedding.
    windows, channels: lengths of the convolutions, and output channels of each.
    num_classes: number of logits.
    """

    def __init__(
        self,
        num_tokens: int,
        *,
        embedding: int,
        windows: Sequence[int],
        channels: int,
        num_classes: int,
        rngs: nnx.Rngs,
    ):
        # One flat draw gives the same numbers and compiles several times faster.
        flat = jax.random.normal(rngs.params(), (num_tokens * embedding,))
        self.embedding = nnx.Param(flat.reshape(num_tokens, embedding))
        self.convolutions = nnx.List(
            _TimeConvolution(length, embedding, channels, rngs) for length in windows
        )
        width = len(windows) * channels
        weights, biases = fan_in_uniform(width, num_classes)
        self.output = nnx.Linear(
            width, num_classes, kernel_init=weights, bias_init=biases, rngs=rngs
        )

    def __call__(
        self, tokens: Int[Array, "samples tokens"]
    ) -> Float[Array, "samples classes"]:
        logits = self.answer(self.embed(tokens))
        # Not the features: their NaN would reach the weights through the products.
        return jnp.where(self._is_text(tokens)[:, None], logits, jnp.nan)

    def embed(
        self, tokens: Int[Array, "samples tokens"]
    ) -> Float[Array, "samples features"]:
        """What the last layer receives. Ids that are no token are left out."""
        table = self.embedding[...]
        is_token = self._is_token(tokens)
        is_word = (tokens != 0)[:, :, None]
        words = jnp.where(is_word, table[jnp.where(is_token, tokens, 0)], 0)
        # Where there is no word, zero: no more than any ReLU.
        features = [
            jnp.max(jnp.where(is_word, nnx.relu(layer(words)), 0), axis=1)
            for layer in self.convolutions
        ]
        return jnp.concatenate(features, axis=1)

    def answer(
        self, features: Float[Array, "samples features"]
    ) -> Float[Array, "samples classes"]:
        """Logits of the last layer."""
        return self.output(features)

    def _is_token(
        self, tokens: Int[Array, "samples tokens"]
    ) -> Bool[Array, "samples tokens"]:
        return (tokens >= 0) & (tokens < self.embedding[...].shape[0])

    def _is_text(self, tokens: Int[Array, "samples tokens"]) -> Bool[Array, " samples"]:
        return jnp.all(self._is_token(tokens), axis=1)


class _TimeConvolution(nnx.Module):
    """Convolution over time whose windows begin at every word, with a kernel `[length,
    width, channels]`."""

    def __init__(self, length: int, width: int, channels: int, rngs: nnx.Rngs):
        weights, biases = fan_in_uniform(length * width, length * channels)
        kernel = weights(rngs.params(), (length, width, channels), jnp.float32)
        self.kernel = nnx.Param(kernel)
        self.bias = nnx.Param(biases(rngs.params(), (channels,), jnp.float32))

    def __call__(
        self, words: Float[Array, "samples tokens width"]
    ) -> Float[Array, "samples tokens channels"]:
        kernel = self.kernel[...]
        # A text is an image of height 1.
        pads = ((0, 0), (0, kernel.shape[0] - 1))
        sums = convolution(words[:, None], kernel[None], pads)[:, 0]
        return sums + self.bias[...][None, None, :]
