"""A learning problem whose training can be counted by hand."""

import jax.numpy as jnp

from cfljax.base.types import Task, Variables


def counting(with_statistics=False):
    """Loss `theta * input`: its gradient is the mean input of the batch.

    With statistics, training also counts its batches and adds up their real samples.
    """
    init = lambda key: jnp.zeros(())
    losses = lambda params, inputs, targets: params * inputs
    predict = lambda params, inputs: params * inputs
    if not with_statistics:
        return Task(init, losses, predict)

    def fit(key, params, inputs, targets, mask):
        moved = {
            "batches": params.statistics["batches"] + 1,
            "samples": params.statistics["samples"] + jnp.sum(mask, dtype=jnp.float32),
        }
        return params.weights * inputs, Variables(params.weights, moved)

    none = {"batches": jnp.zeros(()), "samples": jnp.zeros(())}
    of_weights = lambda function: (
        lambda params, *batch: function(params.weights, *batch)
    )
    return Task(
        lambda key: Variables(init(key), none),
        of_weights(losses),
        of_weights(predict),
        fit,
    )
