"""Mixed linear regression: the synthetic data of IFCA's sections 5.1 and 6.1."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, ScalarLike

from cfljax.base.checks import check_cluster_sizes
from cfljax.base.draws import Convention, bernoulli_models, flat_normal
from cfljax.base.ranges import ranged
from cfljax.base.types import ClientData, Truth
from cfljax.clustering.distances import euclidean


@ranged
def check_mixed_linear(
    *,
    num_clients: int,
    num_clusters: int,
    num_samples: int,
    num_features: int,
    cluster_sizes: Sequence[int] | None = None,
) -> None:
    """Raises ValueError, naming the argument, where one is out of its range."""
    if num_clusters > num_clients:
        raise ValueError(
            f"`num_clusters` must be at most `num_clients`, got {num_clusters} > "
            f"{num_clients}."
        )
    if cluster_sizes is not None:
        check_cluster_sizes(
            cluster_sizes, num_clusters=num_clusters, num_clients=num_clients
        )
    elif num_clients % num_clusters:
        nearest = num_clients - num_clients % num_clusters
        raise ValueError(
            f"`num_clients` must be divisible by `num_clusters`, got {num_clients} "
            f"and {num_clusters}; {nearest} or {nearest + num_clusters} would do."
        )


@ranged
def mixed_linear(
    key: PRNGKeyArray,
    *,
    num_clients: int,
    num_clusters: int,
    num_samples: int,
    num_features: int,
    separation: ScalarLike,
    noise: ScalarLike,
    convention: Convention = "paper",
    cluster_sizes: Sequence[int] | None = None,
) -> tuple[ClientData, Truth]:
    """Clients of clusters, each with its cluster's linear model.

    Rows are x ~ N(0, I_d), y = <x, theta*_c> + noise * N(0, 1). Clients of one cluster
    are consecutive, `num_clients / num_clusters` of each by default. A client's inputs
    and noise depend on the key and its index only, not on how many clients there are.

    Args:
      key: of the data set.
      num_clients: m, a multiple of `num_clusters` unless `cluster_sizes` are given.
      num_clusters: k.
      num_samples: n, per client.
      num_features: d.
      separation: R. With convention "paper" the l2 norm of every theta*_j; with
        "reference" the value of its non-zero coordinates, as in the released code
        (the norm and the distances are then near `R sqrt(d/2)`).
      noise: sigma, the standard deviation of the additive noise.
      convention: which of the two; both draw the same Bernoulli pattern.
      cluster_sizes: clients of each cluster, which may differ; equal ones if None.

    Returns:
      Data with inputs `[clients, samples, features]`, and the truth with models
      `[clusters, features]`.

    Raises:
      ValueError: if k exceeds m or does not divide it, `cluster_sizes` are not k of sum
        m, or a size is below 1.

    Cost: `num_clients * num_samples * num_features` normal draws, one client at a
    time, so that peak memory is the data set and one client's share.
    """
    check_mixed_linear(
        num_clients=num_clients,
        num_clusters=num_clusters,
        num_samples=num_samples,
        num_features=num_features,
        cluster_sizes=cluster_sizes,
    )
    truth, clients_key = mixed_truth(
        key,
        num_clients=num_clients,
        num_clusters=num_clusters,
        num_features=num_features,
        separation=separation,
        convention=convention,
        cluster_sizes=cluster_sizes,
    )
    return linear_clients(clients_key, truth, num_samples, noise), truth


@ranged
def mixed_truth(
    key: PRNGKeyArray,
    *,
    num_clients: int,
    num_clusters: int,
    num_features: int,
    separation: ScalarLike,
    convention: Convention,
    cluster_sizes: Sequence[int] | None = None,
) -> tuple[Truth, PRNGKeyArray]:
    """The truth of `mixed_linear`, and the key of its clients' samples."""
    models_key, clients_key = jax.random.split(key)
    models = bernoulli_models(
        models_key,
        num_models=num_clusters,
        num_features=num_features,
        scale=separation,
        convention=convention,
    )
    clusters = _consecutive(num_clients, num_clusters, cluster_sizes)
    return Truth(clusters, models), clients_key


def _consecutive(
    num_clients: int, num_clusters: int, cluster_sizes: Sequence[int] | None
) -> Int[Array, " clients"]:
    """The cluster of each client."""
    if cluster_sizes is None:
        return jnp.arange(num_clients) // (num_clients // num_clusters)
    return jnp.asarray(np.repeat(np.arange(num_clusters), cluster_sizes))


@ranged
def linear_clients(
    key: PRNGKeyArray, truth: Truth, num_samples: int, noise: ScalarLike
) -> ClientData:
    """Samples of given linear models: x ~ N(0, I_d), y = <x, theta*_c> + noise N(0, 1).

    Args:
      key: of the samples; a client's are those of the key and its index.
      truth: clusters of the clients, and models `[clusters, features]`.
      num_samples: n, per client.
      noise: sigma.

    Cost: as `mixed_linear`.
    """
    models, clusters = truth.models, truth.clusters
    num_features = models.shape[1]

    def client(index: Array) -> tuple[Array, Array]:
        inputs, error = _standard_client(key, index, num_samples, num_features)
        clean = jnp.dot(inputs, models[clusters[index]], precision="highest")
        return inputs, clean + noise * error

    num_clients = clusters.shape[0]
    inputs, targets = jax.lax.map(client, jnp.arange(num_clients))
    return ClientData(inputs, targets, jnp.ones((num_clients, num_samples), bool))


def standard_samples(
    key: PRNGKeyArray, *, num_clients: int, num_samples: int, num_features: int
) -> tuple[Float[Array, "clients samples features"], Float[Array, "clients samples"]]:
    """Inputs, and noise of unit variance, of `linear_clients` with the same key.

    They are what all problems have in common that differ in their true models or in
    sigma only; see `linear_targets`.

    Args:
      key: of the samples.
      num_clients: m.
      num_samples: n.
      num_features: d.

    Cost: as `mixed_linear`.
    """
    client = lambda index: _standard_client(key, index, num_samples, num_features)
    return jax.lax.map(client, jnp.arange(num_clients))


@ranged
def linear_targets(
    inputs: Float[Array, "clients samples features"],
    errors: Float[Array, "clients samples"],
    truth: Truth,
    noise: ScalarLike,
) -> Float[Array, "clients samples"]:
    """y = <x, theta*_c> + noise * error, with the truth's clusters c.

    Those of `linear_clients`, up to the rounding of the products.
    """
    own = truth.models[truth.clusters]
    clean = jnp.einsum("mnd,md->mn", inputs, own, precision="highest")
    return clean + noise * errors


def _standard_client(
    key: PRNGKeyArray, index: Array, num_samples: int, num_features: int
) -> tuple[Array, Array]:
    inputs_key, noise_key = jax.random.split(jax.random.fold_in(key, index))
    inputs = flat_normal(inputs_key, (num_samples, num_features))
    return inputs, jax.random.normal(noise_key, (num_samples,))


@ranged
def split_rounds(data: ClientData, num_rounds: int) -> ClientData:
    """The same samples dealt out over the rounds, none used twice.

    With `ifca(resample=True)`, which halves each round's share, these are the 2T
    disjoint folds of IFCA's analysis (section 5).

    Args:
      data: leaves `[clients, samples, ...]`.
      num_rounds: T.

    Returns:
      Leaves `[rounds, clients, samples / rounds, ...]`, for
      `engine.run(..., data_per_round=True)`.

    Raises:
      ValueError: if the samples cannot be dealt out evenly.
    """
    num_samples = data.mask.shape[1]
    if num_rounds < 1 or num_samples % num_rounds:
        raise ValueError(
            "`num_samples` must be a multiple of `num_rounds`, got "
            f"{num_samples} samples and {num_rounds} rounds."
        )
    share = num_samples // num_rounds

    def deal(leaf: Array) -> Array:
        dealt = leaf.reshape((leaf.shape[0], num_rounds, share) + leaf.shape[2:])
        return jnp.moveaxis(dealt, 1, 0)

    return jax.tree.map(deal, data)


_TYPICAL = 2.5  # Typical distance of two models, in units of the separation.
_MOST_DRAWS = 1000


@ranged
def nearby_linear(
    key: PRNGKeyArray,
    *,
    num_clients: int,
    num_clusters: int,
    num_samples: int,
    num_features: int,
    separation: ScalarLike,
    noise: ScalarLike,
    cluster_sizes: Sequence[int] | None = None,
) -> tuple[ClientData, Truth]:
    """Clients of clusters with the linear models of `nearby_models`.

    Source: CLoVE, section 4 (the model) and appendix D.1.1 (the distances).

    Args:
      key: of the data set.
      num_clients: M, a multiple of `num_clusters` unless `cluster_sizes` are given.
        Clients of one cluster are consecutive.
      num_clusters: K.
      num_samples: n, per client.
      num_features: d.
      separation: Delta.
      noise: sigma, the standard deviation of the additive noise.
      cluster_sizes: clients of each cluster; equal ones if None.

    Raises:
      ValueError: as `mixed_linear`.

    Cost: as `mixed_linear`.
    """
    check_mixed_linear(
        num_clients=num_clients,
        num_clusters=num_clusters,
        num_samples=num_samples,
        num_features=num_features,
        cluster_sizes=cluster_sizes,
    )
    models_key, clients_key = jax.random.split(key)
    models = nearby_models(models_key, num_clusters, num_features, separation)
    clusters = _consecutive(num_clients, num_clusters, cluster_sizes)
    truth = Truth(clusters, models)
    return linear_clients(clients_key, truth, num_samples, noise), truth


@ranged
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
