"""Linear regression without an intercept: the model of IFCA's section 5.1."""

import jax
from jaxtyping import Array, Float, PRNGKeyArray, ScalarLike

from cfljax.base.draws import Convention, bernoulli_models
from cfljax.base.ranges import ranged
from cfljax.base.types import Task
from cfljax.losses import squared_error


@ranged
def linear(
    num_features: int,
    *,
    init_scale: ScalarLike = 1.0,
    convention: Convention = "reference",
) -> Task:
    """Squared-error regression, loss `(<theta, x> - y)^2` without a factor 1/2.

    Args:
      num_features: d, at least 1.
      init_scale: scale of the random Bernoulli start, a parameter of its own: the
        released code starts at coordinates in {0, 1} whatever the separation. May
        be traced.
      convention: what the scale means, see `base.draws.bernoulli_models`.

    Raises:
      ValueError: if `num_features` is below 1.
    """
    if num_features < 1:
        raise ValueError(f"`num_features` must be at least 1, got {num_features}.")

    def init(key: PRNGKeyArray) -> Float[Array, " features"]:
        (start,) = bernoulli_models(
            key,
            num_models=1,
            num_features=num_features,
            scale=init_scale,
            convention=convention,
        )
        return start

    def predict(
        params: Float[Array, " features"], inputs: Float[Array, "samples features"]
    ) -> Float[Array, " samples"]:
        # Models on the left: stacked models then meet the samples in one product
        # whose result is already in the order that the backward product reads.
        return jax.lax.dot_general(
            params,
            inputs,
            (((0,), (1,)), ((), ())),
            precision=jax.lax.Precision.HIGHEST,  # not TF32 on an accelerator
        )

    def losses(
        params: Float[Array, " features"],
        inputs: Float[Array, "samples features"],
        targets: Float[Array, " samples"],
    ) -> Float[Array, " samples"]:
        return squared_error(predict(params, inputs), targets)

    return Task(init=init, losses=losses, predict=predict)
