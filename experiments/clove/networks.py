"""The networks of CLoVE's experiments: the paper gives kinds of layers, no widths."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal, get_args

from cfljax.base import Task
from cfljax.data import NUM_RESERVED
from cfljax.models import (
    autoencoder,
    cnn,
    convolutional_autoencoder,
    deep_cnn,
    mlp,
    text_cnn,
)

Network = Literal[
    "cnn", "deep_cnn", "autoencoder", "convolutional_autoencoder", "text_cnn", "mlp"
]

_IMAGES = {"num_channels": 32, "num_hidden": 512}
# Those that each network has, in the paper presets.
WIDTHS: Mapping[Network, Mapping[str, int]] = MappingProxyType(
    {
        "cnn": _IMAGES,
        "deep_cnn": _IMAGES,
        "autoencoder": {"num_hidden": 128, "num_latent": 32},
        "convolutional_autoencoder": {"num_channels": 32, "num_latent": 32},
        "text_cnn": {"num_channels": 64, "num_hidden": 64, "num_words": 5000}
        | {"num_tokens": 64},
        "mlp": {"num_hidden": 64, "num_words": 5000},
    }
)


def network_of(dataset: str, *, reconstructs: bool) -> Network:
    """The kind of network that the paper trains on a set (appendix C)."""
    if reconstructs and dataset in ("ag_news", "amazon_reviews"):
        raise ValueError(f"`reconstruct` needs images, got {dataset}.")
    if dataset == "cifar10":
        return "convolutional_autoencoder" if reconstructs else "deep_cnn"
    if dataset in ("ag_news", "amazon_reviews"):
        return "text_cnn" if dataset == "ag_news" else "mlp"
    return "autoencoder" if reconstructs else "cnn"


def is_classifier(name: Network) -> bool:
    """Whether a network answers with a class, rather than with its input."""
    return name not in ("autoencoder", "convolutional_autoencoder")


def num_classes(name: Network) -> int | None:
    """How many classes a network tells apart; None for an autoencoder."""
    if not is_classifier(name):
        return None
    return {"text_cnn": 4, "mlp": 2}.get(name, 10)


def network(
    name: Network,
    input_shape: Sequence[int],
    *,
    num_channels: int,
    num_hidden: int,
    num_latent: int,
    num_words: int,
) -> Task:
    """The task of a network for samples of `input_shape`, which "deep_cnn" has fixed.

    It uses the widths it has: channels of the first convolution, each further one
    having twice as many, or of every one over words; units of the hidden layer, or of a
    word's embedding; units of an autoencoder's bottleneck; and the vocabulary of a set
    of texts.
    """
    width, hidden = num_channels, (num_hidden,)
    if name == "cnn":
        return cnn(input_shape, channels=(width, 2 * width), hidden=hidden)
    if name == "deep_cnn":
        return deep_cnn(channels=(width, 2 * width, 4 * width), hidden=hidden)
    if name == "autoencoder":
        return autoencoder(input_shape, hidden=hidden, latent=num_latent)
    if name == "convolutional_autoencoder":
        return convolutional_autoencoder(
            input_shape, channels=(width, 2 * width), latent=num_latent
        )
    if name == "text_cnn":
        return text_cnn(num_words + NUM_RESERVED, embedding=num_hidden, channels=width)
    if name == "mlp":
        return mlp(input_shape, hidden=hidden, num_classes=2)
    raise ValueError(f"`network` must be in {get_args(Network)}, got {name!r}.")
