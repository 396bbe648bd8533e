"""Clients grouped by their loss vectors: embedding, clustering, matching to models."""

import dataclasses
from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from cfljax.kernels.checks import check_member, check_positive
from cfljax.kernels.cluster import match_clusters
from cfljax.kernels.evaluate import NO_CLUSTER, choose_cluster
from cfljax.kernels.kmeans import k_means
from cfljax.kernels.linkage import agglomerate
from cfljax.kernels.silhouette import select_clusters
from cfljax.kernels.spectral import spectral_k_means

__all__ = [
    "Clustering",
    "Embedding",
    "Grouping",
    "embed",
    "group_clients",
    "match_to_models",
]

_LARGEST = 1e15  # Loss of a model that has not diverged.

Embedding = Literal["loss", "square_root", "log"]
Clustering = Literal["k_means", "kumar_kannan", "agglomerative"]


@dataclasses.dataclass(frozen=True)
class Grouping:
    """How loss vectors become clusters, and clusters choose models.

    embedding: what is clustered: "loss" vectors as in the experiments, "square_root"
      of them as in the theory of CLoVE's section 4, or their "log".
    clustering: "k_means" with k-means++ starts; "kumar_kannan", `spectral_k_means`,
      the start for which the theory is stated; or "agglomerative" (Ward).
    matching: whether clusters are matched to models at least total loss; otherwise
      the cluster of the first client takes the first model, that of the first client
      of another cluster the second, and so on, as in CLoVE's ablation (appendix D.5).
    select_number: whether the number of clusters is the one of largest silhouette,
      from 2 to the number of models (Algorithm 2).
    num_restarts: of k-means.
    num_iterations: of Lloyd, at most.

    Raises:
      ValueError: where an argument is out of its range.
    """

    embedding: str = "loss"
    clustering: str = "k_means"
    matching: bool = True
    select_number: bool = False
    num_restarts: int = 10
    num_iterations: int = 50

    def __post_init__(self) -> None:
        check_member(Embedding, embedding=self.embedding)
        check_member(Clustering, clustering=self.clustering)
        check_positive(
            num_restarts=self.num_restarts, num_iterations=self.num_iterations
        )
        if self.select_number and self.clustering != "agglomerative":
            raise ValueError(
                "`select_number` compares agglomerative partitions; give "
                f"`clustering='agglomerative'`, got {self.clustering!r}."
            )


def embed(
    losses: Float[Array, "clients clusters"], embedding: str
) -> Float[Array, "clients clusters"]:
    """The points that are clustered.

    Args:
      losses: of every client under every model. Negative ones have no square root or
        logarithm and make the client's row NaN; a loss of exactly 0 counts as the
        smallest number that is not, for the logarithm.
      embedding: "loss", "square_root" or "log".

    Returns:
      Rows of the clients, NaN for a client with a loss that is not finite, or above
      1e15, whose squares single precision cannot add up; but a model under which
      nobody has such a loss tells clients apart by nothing and is a column of zeros.
    """
    finite = losses <= _LARGEST  # Not where it is NaN.
    heard = jnp.any(finite, axis=1)  # Clients that sent anything at all.
    dead = ~jnp.any(finite, axis=0)
    if embedding == "square_root":
        losses = jnp.sqrt(losses)
    if embedding == "log":
        losses = jnp.log(jnp.where(losses == 0, jnp.finfo(losses.dtype).tiny, losses))
    points = jnp.where(finite, losses, jnp.nan)
    points = jnp.where(dead[None, :], 0, points)
    return jnp.where(heard[:, None], points, jnp.nan)


def group_clients(
    key: PRNGKeyArray,
    losses: Float[Array, "clients clusters"],
    grouping: Grouping,
) -> Int[Array, " clients"]:
    """The model of each client (CLoVE, Algorithm 1, lines 10-12).

    Args:
      key: of the clustering's starts.
      losses: of every client under every model.
      grouping: how to cluster and match.

    Returns:
      `NO_CLUSTER` for a client with a loss that is not finite, unless nobody's is
      under that model. With fewer clients than models some models go without. A
      cluster left with a model that diverged trains those of its clients' least
      losses instead.

    Cost: the clustering's, see `k_means` and `agglomerate`; then `match_clusters`.
    """
    points, number = embed(losses, grouping.embedding), losses.shape[1]
    settings = {
        "num_restarts": grouping.num_restarts,
        "num_iterations": grouping.num_iterations,
    }
    if grouping.select_number:
        clusters = select_clusters(points, number).assignment  # line 10
    elif grouping.clustering == "agglomerative":
        clusters = agglomerate(points, number)[number - 1]
    elif grouping.clustering == "kumar_kannan":
        clusters = spectral_k_means(key, points, number, **settings).assignment
    else:
        clusters = k_means(key, points, number, **settings).assignment  # line 11
    if grouping.matching:
        models = match_to_models(losses, clusters)  # line 12
    else:
        models = _ranks(clusters, number)
    chosen = models[jnp.maximum(clusters, 0)].astype(clusters.dtype)
    alive = jnp.any(losses <= _LARGEST, axis=0)[chosen]
    chosen = jnp.where(alive, chosen, choose_cluster(losses))
    return jnp.where(clusters >= 0, chosen, NO_CLUSTER)


def match_to_models(
    losses: Float[Array, "clients clusters"], clusters: Int[Array, " clients"]
) -> Int[Array, " clusters"]:
    """The model of each cluster, one for each, at the least sum of losses (line 12).

    Args:
      losses: of every client under every model.
      clusters: of the clients, below the number of models. Clusters without members
        take the models that the others leave.
    """
    number = losses.shape[1]
    members = clusters[:, None] == jnp.arange(number)[None, :]  # [clients, clusters]
    of_members = jnp.where(members[:, :, None], losses[:, None, :], 0)
    return match_clusters(jnp.sum(of_members, axis=0))


def _ranks(clusters: Int[Array, " clients"], number: int) -> Int[Array, " clusters"]:
    """Place of each cluster in the order of their first clients; empty ones last."""
    num_clients = clusters.shape[0]
    members = clusters[:, None] == jnp.arange(number)[None, :]  # [clients, clusters]
    places = jnp.where(members, jnp.arange(num_clients)[:, None], num_clients)
    return jnp.argsort(jnp.argsort(jnp.min(places, axis=0)))
