"""What clusterings by balls are judged by."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


def balls(
    members: Bool[Array, "clients clients"], clusters: Int[Array, " clients"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Purity and company of all receivers' balls, without themselves: share of the ball
    that is of the own cluster (or NaN), of the cluster that is in the ball.
    """
    stranger = ~jnp.eye(clusters.shape[0], dtype=bool)
    alike = (clusters[:, None] == clusters[None, :]) & stranger
    count = lambda mask: jnp.sum(mask, dtype=jnp.result_type(float))
    right = count(members & alike)
    return right / count(members & stranger), right / count(alike)
