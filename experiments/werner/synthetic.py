"""Linear regression whose clusters differ in their inputs as well: section 4.1.

The paper says neither from which law the clusters' minimisers are drawn nor whether
clusters count from 0 or 1; the code released with it draws 100 times Bernoulli(1/2)
coordinates.
"""

from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, ScalarLike

from cfljax.base import (
    ClientData,
    Truth,
    bernoulli_models,
    check_member,
    check_positive,
    flat_normal,
)
from experiments.study import fields

# Law of the clusters' minimisers: normal, N(0, I); reference, as released.
Minimisers = Literal["normal", "reference"]

_RELEASED = 100.0  # Value of a coordinate that is not 0 in the released code.


def shifted_linear(
    key: PRNGKeyArray,
    *,
    num_clusters: int,
    num_members: int,
    num_samples: int = 9,
    num_features: int = 10,
    minimisers: Minimisers = "normal",
    first_mean: ScalarLike = 1.0,
) -> tuple[ClientData, Truth]:
    """Clients with `y = A^T x*_k` and entries of A from N(first_mean + k, 1), no noise.

    With fewer samples than features, as in the paper (section 4.1), a client's own data
    leave its minimiser open. A client's inputs depend on the key and its index only;
    client i is in cluster `i // num_members`. The first cluster's mean may be traced.
    Inputs are `[clients, samples, features]`, the transposed A_i.
    """
    check_positive(num_clusters=num_clusters, num_members=num_members)
    check_positive(num_samples=num_samples, num_features=num_features)
    check_member(Minimisers, minimisers=minimisers)
    models_key, clients_key = jax.random.split(key)
    if minimisers == "normal":
        models = flat_normal(models_key, (num_clusters, num_features))
    else:
        models = bernoulli_models(
            models_key,
            num_models=num_clusters,
            num_features=num_features,
            scale=_RELEASED,
            convention="reference",
        )
    number = num_clusters * num_members
    clusters = jnp.arange(number) // num_members

    def client(index: Array) -> Float[Array, "samples features"]:
        own = jax.random.fold_in(clients_key, index)
        centred = flat_normal(own, (num_samples, num_features))
        return centred + (first_mean + clusters[index].astype(centred.dtype))

    inputs = jax.lax.map(client, jnp.arange(number))
    targets = jnp.einsum("isd,id->is", inputs, models[clusters], precision="highest")
    mask = jnp.ones((number, num_samples), bool)
    return ClientData(inputs, targets, mask), Truth(clusters, models)


def trial_data(
    trial: Any, key: PRNGKeyArray, minimisers: Minimisers
) -> tuple[ClientData, Truth]:
    """`shifted_linear` with the sizes of a trial, and its first mean."""
    names = ("num_clusters", "num_members", "num_samples", "num_features", "first_mean")
    return shifted_linear(key, minimisers=minimisers, **fields(trial, *names))


def curvatures(data: ClientData) -> Float[Array, "clients features features"]:
    """H_i = A_i A_i^T / n, of the losses `|A_i^T x - y_i|^2 / (2 n)`.

    A client's gradient is `H_i (x - x*_k)`, without rounding errors of its own.
    """
    products = jnp.einsum("isd,ise->ide", data.inputs, data.inputs, precision="highest")
    return products / data.inputs.shape[1]
