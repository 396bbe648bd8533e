"""FEMNIST's network and its last layer alone, on what the other layers make."""

import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from cfljax.kernels.backend import clients_in_chunks
from cfljax.kernels.sharing import split
from cfljax.losses import cross_entropy
from cfljax.models import cnn
from cfljax.types import Task
from experiments.ifca.femnist_samples import SAMPLES_AT_ONCE

__all__ = ["features", "head", "is_shared", "network"]


def network(
    input_shape: tuple[int, ...], *, num_channels: int, num_hidden: int, classes: int
) -> Task:
    """Two convolutions, each with a pool, and two linear layers.

    32 channels and 2048 hidden units make it `models.femnist_cnn`.

    Args:
      input_shape: of one image.
      num_channels: of the first convolution; the second has twice as many.
      num_hidden: width of the hidden layer.
      classes: number of logits.
    """
    return cnn(
        input_shape,
        channels=(num_channels, 2 * num_channels),
        hidden=(num_hidden,),
        num_classes=classes,
        initialiser="glorot",
    )


def is_shared(name: str) -> bool:
    """Whether all clusters have a leaf in common: all but the last layer's."""
    return not name.startswith("output/")


def features(
    params: PyTree,
    inputs: Float[Array, "samples ..."],
    *,
    num_channels: int,
    num_hidden: int,
) -> Float[Array, "samples hidden"]:
    """What the last layer of a network sees of each image.

    Args:
      params: of `network`.
      inputs: images.
      num_channels: of the same network.
      num_hidden: likewise.
    """
    # The logits of a last layer that passes on what it sees.
    task = network(
        inputs.shape[1:],
        num_channels=num_channels,
        num_hidden=num_hidden,
        classes=num_hidden,
    )
    passing = {"kernel": jnp.eye(num_hidden), "bias": jnp.zeros(num_hidden)}
    params = params | {"output": passing}
    return clients_in_chunks(task.predict, params, inputs, SAMPLES_AT_ONCE)


def head(task: Task) -> Task:
    """The last layer of a network, on `features` instead of images.

    Its params are those of `kernels.sharing.split(params, is_shared)[0]`, drawn as the
    network draws them: with frozen layers below it, training it on their features
    gives the numbers of training the network on images.
    """

    def predict(params: PyTree, inputs: Array) -> Array:
        last = params["output"]
        return jnp.matmul(inputs, last["kernel"]) + last["bias"][None, :]

    def losses(params: PyTree, inputs: Array, targets: Array) -> Array:
        return cross_entropy(predict(params, inputs), targets)

    return Task(
        init=lambda key: split(task.init(key), is_shared)[0],
        losses=losses,
        predict=predict,
    )
