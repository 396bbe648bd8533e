"""The methods of CLoVE's experiments: what is compared, and CLoVE's own variants."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args

from cfljax.algorithms import REGISTRY

Method = Literal[
    "clove",
    "ifca",
    "fedavg",
    "local",
    "per_fedavg",
    "fedproto",
    "fedala",
    "fedpac",
    "cfl_s",
    "fesem",
    "flexcfl",
    "pacfl",
    "per_fedavg_reference",
    "fedproto_reference",
    "fedpac_reference",
    "cfl_s_reference",
    "fesem_reference",
    "pacfl_reference",
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
    """What a method is."""

    label: str  # for people
    algorithm: str  # its name in `cfljax.algorithms.REGISTRY`
    # Of the algorithm, where they differ from its own first choice.
    options: Mapping[str, Any] = MappingProxyType({})
    # Its name in the paper's tables, where that is not its label.
    published: str | None = None
    # The method whose public code it is, defects included, and which gives it its
    # published name; None if it has the formulas of its own paper.
    reference_of: Method | None = None

    @property
    def is_told(self) -> bool:
        """Whether, if it finds clusters, it is told how many there are."""
        return REGISTRY[self.algorithm].clustered and "threshold" not in self.options


def _public_code(label: str, of: Method, options: Mapping[str, Any]) -> Description:
    """The method that public code makes of another."""
    return Description(label, of, options, reference_of=of)


_MODELS = {"option": "model"}  # Averages of models, not of gradients.
# Adam's updates do not vanish as a cluster converges, and have a scale of their own: on
# label skew 1 of MNIST, at the quick preset's sizes, the mean's norm stays above the
# released code's 0.4. These find most of the clusters there, and later split true ones.
_SPLITS = {
    "thresholds": "relative",
    "mean_norm": 0.8,
    "largest_norm": 0.4,
    "incongruence": 0.65,
}
_RANDOM = {"first_round": "random"}
_IDENTICAL = {"start": "identical"}

METHODS: Mapping[Method, Description] = {
    "clove": Description("CLoVE", "clove"),
    "ifca": Description("IFCA", "ifca", _MODELS),
    "fedavg": Description("FedAvg", "fedavg"),
    "local": Description("Local-only", "local"),
    "per_fedavg": Description(
        "Per-FedAvg", "per_fedavg", {"adaptation_step_size": 0.01}
    ),
    "fedproto": Description("FedProto", "fedproto"),
    "fedala": Description("FedALA", "fedala"),
    "fedpac": Description("FedPAC", "fedpac"),
    "cfl_s": Description("CFL-S", "cfl_s", _SPLITS),
    "fesem": Description("FeSEM", "fesem"),
    "flexcfl": Description("FlexCFL", "flexcfl"),
    "pacfl": Description("PACFL", "pacfl"),
    "per_fedavg_reference": _public_code(
        "Per-FedAvg as in PFLlib", "per_fedavg", {"variant": "reference"}
    ),
    "fedproto_reference": _public_code(
        "FedProto as in PFLlib", "fedproto", {"variant": "reference"}
    ),
    "fedpac_reference": _public_code(
        "FedPAC as in PFLlib", "fedpac", {"prototype_weights": "clients"}
    ),
    "cfl_s_reference": _public_code(
        "CFL-S as released", "cfl_s", _SPLITS | {"variant": "reference"}
    ),
    "fesem_reference": _public_code(
        "FeSEM as in FlexCFL's code",
        "fesem",
        {"variant": "reference", "start": "independent"},
    ),
    "pacfl_reference": _public_code(
        "PACFL as released",
        "pacfl",
        {"angle": "entry", "threshold": 4.9, "num_clusters": None},
    ),
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
    "ifca_random_first": Description("IFCA init:d first:r", "ifca", _MODELS | _RANDOM),
    "ifca_identical": Description("IFCA init:s first:e", "ifca", _MODELS | _IDENTICAL),
    "ifca_identical_random_first": Description(
        "IFCA init:s first:r", "ifca", _MODELS | _RANDOM | _IDENTICAL
    ),
}
assert tuple(METHODS) == get_args(Method)

# What the paper's tables compare.
COMPARED: tuple[Method, ...] = tuple(METHODS)[:12]
# Those of them that find clusters.
CLUSTERED: tuple[Method, ...] = ("clove", "ifca", "cfl_s", "fesem", "flexcfl", "pacfl")


def clusters(method: Method) -> bool:
    """Whether a method finds clusters."""
    return METHODS[method].algorithm in CLUSTERED


def first_split(num_rounds: int) -> int:
    """Rounds that pass before CFL may split: the released code's 20 of 100."""
    return max(1, num_rounds // 5)
