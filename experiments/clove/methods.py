"""The methods of CLoVE's experiments: what is compared, and CLoVE's own variants."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args

from cfljax.algorithms import clove, fedavg, ifca, local
from cfljax.types import Algorithm, Task

__all__ = ["METHODS", "Description", "Method", "build", "clusters"]

Method = Literal[
    "clove",
    "ifca",
    "fedavg",
    "local",
    "clove_gradient",
    "clove_early_stopping",
    "clove_select_number",
    "clove_no_matching",
    "clove_agglomerative",
    "clove_square_root",
    "clove_random_first",
    "clove_identical",
    "clove_identical_random_first",
    "ifca_random_first",
    "ifca_identical",
    "ifca_identical_random_first",
]


class Description(NamedTuple):
    """What a method is.

    label: for people.
    algorithm: "clove", "ifca", "fedavg" or "local".
    options: of the algorithm, where they differ from the paper's first choice.
    published: its name in the paper's tables; the label if None.
    """

    label: str
    algorithm: Literal["clove", "ifca", "fedavg", "local"]
    options: Mapping[str, Any] = MappingProxyType({})
    published: str | None = None


_RANDOM = {"first_round": "random"}
_IDENTICAL = {"start": "identical"}

METHODS: Mapping[Method, Description] = MappingProxyType(
    {
        "clove": Description("CLoVE", "clove"),
        "ifca": Description("IFCA", "ifca"),
        "fedavg": Description("FedAvg", "fedavg"),
        "local": Description("Local-only", "local"),
        "clove_gradient": Description(
            "CLoVE, gradient averaging", "clove", {"option": "gradient"}
        ),
        "clove_early_stopping": Description(
            "CLoVE, early stopping", "clove", {"stable_rounds": 3}
        ),
        "clove_select_number": Description(
            "CLoVE, unknown K",
            "clove",
            {"clustering": "agglomerative", "select_number": True},
        ),
        "clove_no_matching": Description(
            "CLoVE, no matching", "clove", {"matching": False}, "No matching"
        ),
        "clove_agglomerative": Description(
            "CLoVE, agglomerative",
            "clove",
            {"clustering": "agglomerative"},
            "Agglomerative clustering",
        ),
        "clove_square_root": Description(
            "CLoVE, square-root loss",
            "clove",
            {"embedding": "square_root"},
            "Square root loss",
        ),
        "clove_random_first": Description("CLoVE init:d first:r", "clove", _RANDOM),
        "clove_identical": Description("CLoVE init:s first:e", "clove", _IDENTICAL),
        "clove_identical_random_first": Description(
            "CLoVE init:s first:r", "clove", _RANDOM | _IDENTICAL
        ),
        "ifca_random_first": Description("IFCA init:d first:r", "ifca", _RANDOM),
        "ifca_identical": Description("IFCA init:s first:e", "ifca", _IDENTICAL),
        "ifca_identical_random_first": Description(
            "IFCA init:s first:r", "ifca", _RANDOM | _IDENTICAL
        ),
    }
)
assert tuple(METHODS) == get_args(Method)


def clusters(method: Method) -> bool:
    """Whether a method finds clusters."""
    return METHODS[method].algorithm in ("clove", "ifca")


def build(
    method: Method, task: Task, *, num_clusters: int, **settings: Any
) -> Algorithm:
    """The algorithm of a method.

    Args:
      method: a key of `METHODS`.
      task: the learning problem.
      num_clusters: K, for methods that find clusters.
      settings: that all algorithms share, such as `step_size` and `update`.
    """
    name = METHODS[method].algorithm
    options: dict[str, Any] = settings | dict(METHODS[method].options)
    if name == "local":
        return local(task, **settings)
    if name == "fedavg":
        return fedavg(task, **settings)
    if name == "ifca":
        options = {"option": "model"} | options
        return ifca(task, num_clusters=num_clusters, **options)
    return clove(task, num_clusters=num_clusters, **options)
