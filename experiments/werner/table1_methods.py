"""The methods of Table 1: all take one full-batch gradient step in a round."""

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args

from jaxtyping import Array, Int

from cfljax.algorithms import (
    ditto,
    fedavg,
    federated_clustering,
    ifca,
    knn_per,
    local,
    momentum_clustering,
    oracle,
)
from cfljax.kernels.threshold_radius import quantile_radius
from cfljax.types import Algorithm, Task

__all__ = ["METHODS", "Description", "Hyperparameters", "Method", "build"]

Method = Literal[
    "local",
    "fedavg",
    "ditto",
    "ditto_reference",
    "ifca",
    "knn_per",
    "federated_clustering",
    "momentum_clustering",
    "oracle",
]


class Description(NamedTuple):
    """What a method is.

    label: for people.
    published: its name in the paper's table; None if it is not there.
    is_baseline: whether it looks for no clusters.
    """

    label: str
    published: str | None
    is_baseline: bool = False


METHODS: Mapping[Method, Description] = MappingProxyType(
    {
        "local": Description("Local", "Local", is_baseline=True),
        "fedavg": Description("Global", "Global", is_baseline=True),
        "ditto": Description("Ditto", "Ditto", is_baseline=True),
        "ditto_reference": Description("Ditto, frozen server", None, is_baseline=True),
        "ifca": Description("IFCA", "IFCA"),
        "knn_per": Description("kNN-Per", "KNN", is_baseline=True),
        "federated_clustering": Description("Federated-Clustering", "FC"),
        "momentum_clustering": Description("Momentum-Clustering", None),
        "oracle": Description("Oracle", "GT (oracle)"),
    }
)
assert tuple(METHODS) == get_args(Method)


class Hyperparameters(NamedTuple):
    """What methods are told; each uses those that it has.

    step_size: of every gradient step.
    num_clusters: K, of IFCA and the oracle.
    num_groups: random subgroups of Federated-Clustering.
    percentile: of the distances, the radius of both clusterings.
    num_clipping_rounds: l of both clusterings.
    gradient_weight: alpha, of a new gradient in Momentum-Clustering.
    penalty: lambda of Ditto.
    knn_weight: lambda of kNN-Per.
    num_neighbours: k of kNN-Per.
    """

    step_size: Any
    num_clusters: int
    num_groups: int
    percentile: int
    num_clipping_rounds: int
    gradient_weight: float
    penalty: float
    knn_weight: float
    num_neighbours: int


def build(
    method: Method,
    task: Task,
    clusters: Int[Array, " clients"],
    given: Hyperparameters,
) -> Algorithm:
    """The algorithm of a method.

    Args:
      method: a key of `METHODS`.
      task: the learning problem.
      clusters: true ones, for the oracle.
      given: hyperparameters.
    """
    shared: dict[str, Any] = {"step_size": given.step_size}
    gradient: dict[str, Any] = shared | {"option": "gradient", "normalise": "cluster"}
    threshold: dict[str, Any] = {
        "radius": quantile_radius(given.percentile / 100),
        "num_clipping_rounds": given.num_clipping_rounds,
        "start": "identical",
    }
    own_ditto = functools.partial(ditto, task, penalty=given.penalty, **shared)
    builders: dict[Method, Callable[[], Algorithm]] = {
        "local": lambda: local(task, **shared),
        "fedavg": lambda: fedavg(task, option="gradient", weights="clients", **shared),
        "ditto": own_ditto,
        "ditto_reference": lambda: own_ditto(variant="reference"),
        "ifca": lambda: ifca(task, num_clusters=given.num_clusters, **gradient),
        "knn_per": lambda: knn_per(
            task,
            option="gradient",
            weights="clients",
            knn_weight=given.knn_weight,
            num_neighbours=given.num_neighbours,
            **shared,
        ),
        "federated_clustering": lambda: federated_clustering(
            task, num_groups=given.num_groups, **threshold, **shared
        ),
        "momentum_clustering": lambda: momentum_clustering(
            task, gradient_weight=given.gradient_weight, **threshold, **shared
        ),
        "oracle": lambda: oracle(
            task, clusters=clusters, num_clusters=given.num_clusters, **gradient
        ),
    }
    return builders[method]()
