"""Linear regression whose true models lie on the unit sphere, near each other."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, ScalarLike

from cfljax.data.linear import check_mixed_linear, linear_clients
from cfljax.kernels.distance import euclidean
from cfljax.kernels.draws import flat_normal
from cfljax.types import ClientData, Truth

__all__ = ["nearby_linear", "nearby_models"]

_TYPICAL = 2.5  # Typical distance of two models, in units of the separation.
_MOST_DRAWS = 1000


def nearby_linear(
    key: PRNGKeyArray,
    *,
    num_clients: int,
    num_clusters: int,
    num_samples: int,
    num_features: int,
    separation: ScalarLike,
    noise: ScalarLike,
) -> tuple[ClientData, Truth]:
    """Clients of equal clusters with the linear models of `nearby_models`.

    Source: CLoVE, section 4 (the model) and appendix D.1.1 (the distances).

    Args:
      key: of the data set.
      num_clients: M, a multiple of `num_clusters`. Client i belongs to cluster
        `i // (num_clients / num_clusters)`.
      num_clusters: K.
      num_samples: n, per client.
      num_features: d.
      separation: Delta.
      noise: sigma, the standard deviation of the additive noise.

    Raises:
      ValueError: if K exceeds M or does not divide it, or a size is below 1.

    Cost: as `mixed_linear`.
    """
    check_mixed_linear(
        num_clients=num_clients,
        num_clusters=num_clusters,
        num_samples=num_samples,
        num_features=num_features,
    )
    models_key, clients_key = jax.random.split(key)
    models = nearby_models(models_key, num_clusters, num_features, separation)
    clusters = jnp.arange(num_clients) // (num_clients // num_clusters)
    truth = Truth(clusters, models)
    return linear_clients(clients_key, truth, num_samples, noise), truth


def nearby_models(
    key: PRNGKeyArray, num_models: int, num_features: int, separation: ScalarLike
) -> Float[Array, "models features"]:
    """Unit vectors whose distances all lie in [separation, 5 x separation].

    CLoVE's appendix D.1.1 asks for that and leaves the law open. Here the vectors are
    drawn around a uniformly random direction, at a common angle to it such that two
    of them are typically 2.5 separations apart (never more than at a right angle to
    it), until all distances fit.

    Args:
      key: of the models.
      num_models: K.
      num_features: d.
      separation: Delta; may be traced.

    Returns:
      Rows of norm 1; NaN where a thousand draws did not give models that fit, as
      where Delta is above 2, so that no trial can pass for one of these distances.
    """
    sine = jnp.minimum(1, _TYPICAL * separation / jnp.sqrt(2.0))
    cosine = jnp.sqrt(1 - sine**2)

    def draw(index: Array) -> Float[Array, "models features"]:
        middle_key, key_ = jax.random.split(jax.random.fold_in(key, index))
        middle = _unit(jax.random.normal(middle_key, (1, num_features)))
        others = flat_normal(key_, (num_models, num_features))
        aside = others - (others @ middle.T) * middle
        return cosine * middle + sine * _unit(aside)

    def fits(models: Float[Array, "models features"]) -> Array:
        distances = euclidean(models, models)
        right = (distances >= separation) & (distances <= 5 * separation)
        return jnp.all(right | jnp.eye(num_models, dtype=bool))

    def goes_on(carry: tuple[Array, Array]) -> Array:
        index, models = carry
        return ~fits(models) & (index < _MOST_DRAWS)

    def again(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        return carry[0] + 1, draw(carry[0])

    first = (jnp.ones((), jnp.int32), draw(jnp.zeros((), jnp.int32)))
    _, models = jax.lax.while_loop(goes_on, again, first)
    return jnp.where(fits(models), models, jnp.nan)


def _unit(vectors: Float[Array, "rows features"]) -> Float[Array, "rows features"]:
    return vectors / jnp.linalg.norm(vectors, axis=1, keepdims=True)
