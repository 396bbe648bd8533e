"""The methods of Figure 3, from given models and with the released code's momentum.

All take one full-batch gradient step in a round, so that methods differ in whose
gradients they use and in nothing else.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PRNGKeyArray, ScalarLike

from cfljax.algorithms import fedavg, federated_clustering, ifca, local, oracle
from cfljax.kernels.local_update import LocalUpdate
from cfljax.kernels.threshold import Edge
from cfljax.kernels.threshold_gap import gap_radius
from cfljax.kernels.threshold_radius import Radius, quantile_radius
from cfljax.types import Algorithm, ClientData, Stacked, Task

__all__ = [
    "FIXED",
    "METHODS",
    "Carried",
    "Description",
    "Method",
    "Setting",
    "build",
    "number_of_models",
    "started",
]

Method = Literal[
    "local",
    "fedavg",
    "ifca",
    "ifca_best",
    "ifca_released",
    "oracle",
    "quantile_cluster",
    "quantile_fifth",
    "quantile_strict",
    "gap_outer",
    "gap_middle",
    "gap_inner",
    "fixed",
]
FIXED: Method = "fixed"


class Description(NamedTuple):
    """What a method is.

    label: for people.
    kind: "own", a model for each client; "one", for all; "several", for clusters.
    is_baseline: whether Federated-Clustering is said to be better.
    rule: of Federated-Clustering, from K to a radius; None for other methods, and
      where the radius is a number.
    edge: whether the edge belongs to the ball.
    """

    label: str
    kind: Literal["own", "one", "several"]
    is_baseline: bool = False
    rule: Callable[[int], Radius] | None = None
    edge: Edge = "paper"

    @property
    def is_clustering(self) -> bool:
        """Whether it is Federated-Clustering."""
        return self.kind == "own" and not self.is_baseline


def _rule(label: str, rule: Callable[[int], Radius], edge: Edge) -> Description:
    return Description(f"FC, {label}", "own", rule=rule, edge=edge)


METHODS: Mapping[str, Description] = MappingProxyType(
    {
        "local": Description("Local", "own", is_baseline=True),
        "fedavg": Description("Global", "one", is_baseline=True),
        "ifca": Description("IFCA, one start", "several", is_baseline=True),
        "ifca_best": Description(
            "IFCA, best of its starts", "several", is_baseline=True
        ),
        "ifca_released": Description("IFCA as released", "several"),
        "oracle": Description("GT (oracle)", "several"),
        "quantile_cluster": _rule(
            "quantile 1/K", lambda number: quantile_radius(1 / number), "paper"
        ),
        "quantile_fifth": _rule("quantile .2", lambda _: quantile_radius(0.2), "paper"),
        "quantile_strict": _rule(
            "quantile 1/K as released",
            lambda number: quantile_radius(1 / number, variant="reference"),
            "reference",
        ),
        "gap_outer": _rule("adaptive-1", lambda _: gap_radius("outer"), "reference"),
        "gap_middle": _rule("adaptive-2", lambda _: gap_radius("middle"), "reference"),
        "gap_inner": _rule("adaptive-3", lambda _: gap_radius("inner"), "reference"),
        FIXED: Description("FC, fixed radius", "own"),
    }
)
assert tuple(METHODS) == get_args(Method)


class Setting(NamedTuple):
    """What methods are told; each uses those that it has.

    step_size: of every gradient step; may be traced.
    radius: of the method "fixed"; may be traced.
    clusters: true ones, for the oracle.
    num_clusters: K.
    num_clipping_rounds: l of Federated-Clustering.
    """

    step_size: Any
    radius: Any
    clusters: Int[Array, " clients"]
    num_clusters: int
    num_clipping_rounds: int


def number_of_models(method: Method, num_clusters: int, num_members: int) -> int:
    """Models of a method; of the released IFCA, every K-th client's start.

    That is one for each cluster only where clusters have K members.
    """
    clients = num_clusters * num_members
    if method == "ifca_released":
        return -(-clients // num_clusters)
    kinds = {"own": clients, "one": 1, "several": num_clusters}
    return kinds[METHODS[method].kind]


def build(method: Method, task: Task, given: Setting, *, models: int) -> Algorithm:
    """The algorithm of a method.

    Args:
      method: a key of `METHODS`.
      task: the learning problem.
      given: hyperparameters.
      models: how many it has, `number_of_models`.
    """
    shared: dict[str, Any] = {"step_size": given.step_size}
    gradient: dict[str, Any] = shared | {"option": "gradient", "normalise": "cluster"}
    if method == "local":
        return local(task, update=LocalUpdate(order="batched"), **shared)
    if method == "fedavg":
        return fedavg(task, option="gradient", weights="clients", **shared)
    if method == "oracle":
        return oracle(task, clusters=given.clusters, num_clusters=models, **gradient)
    if METHODS[method].kind == "several":
        return ifca(task, num_clusters=models, **gradient)
    rule = METHODS[method].rule
    return federated_clustering(
        task,
        radius=given.radius if rule is None else rule(given.num_clusters),
        num_clipping_rounds=given.num_clipping_rounds,
        edge=METHODS[method].edge,
        models_per_chunk=models,
        **shared,
    )


class Carried(NamedTuple):
    """A state with momentum.

    state: the algorithm's own.
    models: its models, leaves `[models, ...]` also of a single one.
    moves: m, of each model.
    """

    state: Any
    models: Stacked
    moves: Stacked


def started(
    algorithm: Algorithm,
    models: Stacked,
    *,
    momentum: ScalarLike,
    trained: Bool[Array, " models"],
) -> Algorithm:
    """The algorithm from given models on, its steps averaged over rounds.

    A step s of the algorithm becomes `m <- beta m + (1 - beta) s`, and the model
    moves by m: damped momentum of whatever the method makes of gradients, as the
    released code takes it of Federated-Clustering. One rule serves all methods.

    Args:
      algorithm: whose state has `models`, or a single `model`.
      models: to start from, leaves `[models, ...]`.
      momentum: beta, may be traced; 0 changes nothing but rounding.
      trained: which models ever move.
    """

    def init(key: PRNGKeyArray, data: ClientData) -> Carried:
        state = _with(algorithm.init(key, data), models)
        return Carried(state, models, jax.tree.map(jnp.zeros_like, models))

    def step(
        key: PRNGKeyArray, carried: Carried, data: ClientData
    ) -> tuple[Carried, Any]:
        state, info = algorithm.step(key, carried.state, data)

        def average(m: Array, before: Array, after: Array) -> Array:
            mean = momentum * m + (1 - momentum) * (after - before)
            return jnp.where(trained[:, None], mean, 0)

        moves = jax.tree.map(average, carried.moves, carried.models, _of(state))
        moved = jax.tree.map(jnp.add, carried.models, moves)
        return Carried(_with(state, moved), moved, moves), info

    predict = lambda carried, *rest: algorithm.predict(carried.state, *rest)
    return Algorithm(init=init, step=step, predict=predict)


def _of(state: Any) -> Stacked:
    if hasattr(state, "models"):
        return state.models
    return jax.tree.map(lambda leaf: leaf[None], state.model)


def _with(state: Any, models: Stacked) -> Any:
    if hasattr(state, "models"):
        return state._replace(models=models)
    return state._replace(model=jax.tree.map(lambda leaf: leaf[0], models))
