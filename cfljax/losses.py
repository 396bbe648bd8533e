"""Losses of one batch, one number per sample, for `Task.losses`."""

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

__all__ = ["cross_entropy", "squared_error"]


def squared_error(
    outputs: Float[Array, "samples *dims"], targets: Float[Array, "samples *dims"]
) -> Float[Array, " samples"]:
    """Squared error of each sample, without the factor one half.

    Outputs of more than one number (a reconstruction) are averaged over their
    entries, so the loss has the units of one squared entry.
    """
    errors = jnp.square(outputs - targets)
    return jnp.mean(errors, axis=tuple(range(1, errors.ndim)))


def cross_entropy(
    logits: Float[Array, "samples classes"], labels: Int[Array, " samples"]
) -> Float[Array, " samples"]:
    """Negative log-probability, in nats, of each sample's label under a softmax.

    Computed from logits by log-sum-exp, so large logits neither overflow nor lose
    the loss of a confident mistake. A label that is no class, such as that of a
    network made for fewer, has the loss NaN, which wins no comparison, and adds
    nothing to a gradient.
    """
    is_class = (labels >= 0) & (labels < logits.shape[1])
    labels = jnp.where(is_class, labels, 0)
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    return jnp.where(is_class, losses, jnp.nan)
