"""Federated algorithms, one file each, and the registry that lists them.

What averages models takes `option="model"` and `weights="samples"` by default, as
FedAvg does (`federated.training` says what they mean). Others differ where what they
reproduce does:

    algorithm   option        weights  because
    ifca        by num_steps  clients  Algorithm 2 prints a sum of gradients; with more
                                       than one local step, models are averaged
    oracle      by num_steps  clients  it is ifca without the choice
    one_shot    model         clients  Algorithm 1 of the same paper
    per_fedavg  model         clients  Algorithm 1 averages alike; PFLlib by samples
    cfl_s       model         clients  the released code does; the paper by samples
    fedproto    none          clients  of prototypes, as in the released code; equation
                                       6 has samples
    ditto       model         samples  FedAvg's; the released code averages alike
    scaffold    none          clients  Algorithm 1 averages alike
    fedrep      none          clients  Algorithm 1 averages alike; the released code by
                                       samples
    fedbn       none          clients  Algorithm 1 averages alike
    apfl        none          clients  Algorithm 1 averages alike
    pfedme      none          clients  Algorithm 1 averages alike; the released code by
                                       samples
    stocfl      model         clients  the released code does
    rr_cluster  none          clients  no client may move a mean further than others
    emd_cfl, fedavg, fedprox, knn_per, fedala, feddrift, fedpac, clove, hyp_cluster,
    k_fed, pacfl, flux, fesem, flexcfl, fedem, fedrc, fedsoft and icfl
                model         samples  FedAvg, or the paper itself

`local` averages nothing; `federated_clustering`, `momentum_clustering` and
`myopic_clustering` cluster gradients, which count alike.
"""

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from cfljax.algorithms.apfl import apfl
from cfljax.algorithms.cfl_s import cfl_s
from cfljax.algorithms.clove import Grouping, clove, group_clients
from cfljax.algorithms.ditto import ditto
from cfljax.algorithms.emd_cfl import emd_cfl
from cfljax.algorithms.fedala import fedala
from cfljax.algorithms.fedavg import fedavg
from cfljax.algorithms.fedbn import fedbn, measuring_layers
from cfljax.algorithms.feddrift import feddrift
from cfljax.algorithms.fedem import fedem
from cfljax.algorithms.federated_clustering import federated_clustering
from cfljax.algorithms.fedpac import fedpac
from cfljax.algorithms.fedproto import fedproto
from cfljax.algorithms.fedprox import fedprox
from cfljax.algorithms.fedrc import fedrc
from cfljax.algorithms.fedrep import fedrep
from cfljax.algorithms.fedsoft import fedsoft
from cfljax.algorithms.fesem import fesem
from cfljax.algorithms.flexcfl import flexcfl
from cfljax.algorithms.flux import flux
from cfljax.algorithms.hyp_cluster import hyp_cluster
from cfljax.algorithms.icfl import icfl
from cfljax.algorithms.ifca import ifca
from cfljax.algorithms.k_fed import k_fed
from cfljax.algorithms.knn_per import knn_per
from cfljax.algorithms.local import local
from cfljax.algorithms.momentum_clustering import momentum_clustering
from cfljax.algorithms.myopic_clustering import myopic_clustering
from cfljax.algorithms.one_shot import one_shot
from cfljax.algorithms.oracle import oracle
from cfljax.algorithms.pacfl import pacfl
from cfljax.algorithms.per_fedavg import per_fedavg
from cfljax.algorithms.pfedme import pfedme
from cfljax.algorithms.rr_cluster import privacy_spent, rr_cluster
from cfljax.algorithms.scaffold import scaffold
from cfljax.algorithms.stocfl import stocfl
from cfljax.base.types import Algorithm, Task
from cfljax.cards import CARDS, Card, Sizes
from cfljax.federated.partial import leaves_of
from cfljax.federated.prototypes import layers_of
from cfljax.federated.sharing import Shared

__all__ = [
    "REGISTRY",
    "Grouping",
    "Registration",
    "apfl",
    "cfl_s",
    "clove",
    "ditto",
    "emd_cfl",
    "fedala",
    "fedavg",
    "fedbn",
    "feddrift",
    "fedem",
    "federated_clustering",
    "fedpac",
    "fedproto",
    "fedprox",
    "fedrc",
    "fedrep",
    "fedsoft",
    "fesem",
    "flexcfl",
    "flux",
    "group_clients",
    "hyp_cluster",
    "icfl",
    "ifca",
    "k_fed",
    "knn_per",
    "local",
    "momentum_clustering",
    "myopic_clustering",
    "one_shot",
    "oracle",
    "pacfl",
    "per_fedavg",
    "pfedme",
    "privacy_spent",
    "rr_cluster",
    "scaffold",
    "stocfl",
]


def _one(of: Sizes) -> int:
    del of
    return 1


def _none(of: Sizes) -> int:
    del of
    return 0


@dataclasses.dataclass(frozen=True)
class Registration:
    """One row of the registry: all that others need to know of an algorithm.

    constructor: `(task, **hyperparameters) -> Algorithm`; its name is the algorithm's.
    paper: where the algorithm is defined; the place in it after the last comma.
    defaults: hyperparameters that must be given and have no default of their own:
      values that work on a small problem.
    needs_truth: whether the constructor takes the true `clusters`.
    clustered: whether it takes `num_clusters`.
    needs_classes: whether it takes `num_classes`, and a task whose targets are classes;
      most of these ask for one with `layers`.
    needs_layers: whether it takes a task with `layers` alone.
    needs_normalisation: whether it takes a task with layers that measure statistics.
    keeps: from a task to whether clients keep a leaf to themselves, by its name; all
      leaves are sent if None.
    received: models' worth of bytes that a participant is sent in a round, once what
      the first rounds do is over; of the leaves that are sent.
    sent: likewise, from the participant.
    besides: bytes that it sends besides; if None, the index of a cluster, which takes a
      byte, where it is told how many there are, and else nothing.
    of_classes: from the features of a prototype and the sizes to the bytes received of
      every class and sent of each that the client holds, if any.
    """

    constructor: Callable[..., Algorithm]
    paper: str
    defaults: Mapping[str, Any] = dataclasses.field(
        default_factory=lambda: MappingProxyType({"step_size": 0.1})
    )
    needs_truth: bool = False
    clustered: bool = False
    needs_classes: bool = False
    needs_layers: bool = False
    needs_normalisation: bool = False
    keeps: Callable[[Task], Shared] | None = None
    received: Callable[[Sizes], int] = _one
    sent: Callable[[Sizes], int] = _one
    besides: Callable[[Sizes], int] | None = None
    of_classes: Callable[[int, Sizes], tuple[int, int]] | None = None

    @property
    def name(self) -> str:
        """Of the algorithm."""
        return self.constructor.__name__

    @property
    def card(self) -> Card:
        """What it does, costs and sends, and when it fails."""
        return CARDS[self.name]

    def sent_besides(self, sizes: Sizes) -> int:
        """Bytes besides models that a participant sends, but for those of classes."""
        return int(self.clustered) if self.besides is None else self.besides(sizes)


def _defaults(**values: Any) -> Mapping[str, Any]:
    return MappingProxyType({"step_size": 0.1, **values})


_ROWS = (
    Registration(fedavg, "McMahan et al., AISTATS 2017, Algorithm 1"),
    Registration(
        fedprox, "Li et al., MLSys 2020, Algorithm 2", _defaults(proximal=0.1)
    ),
    Registration(
        scaffold,
        "Karimireddy et al., ICML 2020, Algorithm 1",
        received=lambda of: 2,  # A model and a control variate; up what changed.
        sent=lambda of: 2,
    ),
    Registration(
        local,
        "Ghosh et al., NeurIPS 2020, section 6.2",
        received=_none,
        sent=_none,
    ),
    Registration(
        oracle,
        "Werner et al., TMLR 2023, ground truth of section 4",
        needs_truth=True,
        clustered=True,
    ),
    Registration(
        ifca,
        "Ghosh et al., NeurIPS 2020, Algorithm 2",
        clustered=True,
        received=lambda of: of.num_clusters,
    ),
    Registration(
        hyp_cluster,
        "Mansour et al., 2020, HypCluster",
        clustered=True,
        received=lambda of: of.num_clusters,
    ),
    Registration(
        rr_cluster,
        "Yang et al., 2025, RR-Cluster",
        _defaults(min_cluster_size=1, clip_norm=1.0, noise_multiplier=0.1),
        clustered=True,
        received=lambda of: of.num_clusters,
    ),
    Registration(
        clove,
        "CLoVE, Algorithms 1 and 2",
        clustered=True,
        received=lambda of: of.num_clusters,
        besides=lambda of: 4 * of.num_clusters,  # Its losses.
    ),
    Registration(one_shot, "Ghosh et al., NeurIPS 2020, Algorithm 1", clustered=True),
    Registration(k_fed, "Dennis et al., ICML 2021, Algorithms 1 and 2", clustered=True),
    Registration(
        cfl_s,
        "Sattler et al., TNNLS 2021, clustered federated learning",
        _defaults(max_clusters=2),
    ),
    Registration(
        fedem,
        "Marfoq et al., NeurIPS 2021, Algorithm 1",
        clustered=True,
        received=lambda of: of.num_clusters,
        sent=lambda of: of.num_clusters,
        besides=_none,
    ),
    Registration(
        fedrc,
        "Guo et al., ICML 2024, FedRC",
        clustered=True,
        needs_classes=True,
        received=lambda of: of.num_clusters,
        sent=lambda of: of.num_clusters,
        besides=_none,
        # A number for each cluster; up besides the class.
        of_classes=lambda _, of: (4 * of.num_clusters, 4 * of.num_clusters + 1),
    ),
    Registration(
        fedsoft,
        "Ruan and Joe-Wong, AAAI 2022, Algorithm 1",
        clustered=True,
        received=lambda of: of.num_clusters,
        besides=lambda of: 4 * of.num_clusters,  # Its importance.
    ),
    Registration(fesem, "Long et al., WWW 2023, FeSEM", clustered=True, besides=_none),
    Registration(
        flexcfl, "Duan et al., TPDS 2022, FlexCFL", clustered=True, besides=_none
    ),
    Registration(
        pacfl,
        "Vahidian et al., AAAI 2023, PACFL",
        _defaults(num_vectors=2),
        clustered=True,
        besides=_none,
    ),
    Registration(
        stocfl,
        "Zeng et al., 2023, StoCFL",
        _defaults(similarity=0.9),
        received=lambda of: 2,  # The cluster's and the global model.
        sent=lambda of: 2,
    ),
    Registration(icfl, "Yan et al., TNNLS 2023, ICFL", _defaults(max_clusters=2)),
    Registration(
        feddrift,
        "Jothimurugesan et al., AISTATS 2023, FedDrift",
        _defaults(threshold=0.5, step_rounds=2),
        clustered=True,
        besides=_none,
    ),
    Registration(
        emd_cfl,
        "Zhang et al., 2025, EMD-CFL",
        _defaults(tolerance=0.1, num_points=4),
        needs_layers=True,
    ),
    Registration(
        flux,
        "Fenoglio et al., NeurIPS 2025, FLUX",
        _defaults(warm_up_rounds=0),
        needs_classes=True,
    ),
    Registration(
        federated_clustering,
        "Werner et al., TMLR 2023, Algorithms 2 and 3",
        _defaults(radius=1.0),
        received=lambda of: 2 * (of.num_clients - 1),  # There and back.
        sent=lambda of: 2 * (of.num_clients - 1),
    ),
    Registration(
        momentum_clustering,
        "Werner et al., TMLR 2023, Algorithm 4",
        _defaults(radius=1.0),
    ),
    Registration(
        myopic_clustering,
        "Werner et al., TMLR 2023, Algorithm 1",
        clustered=True,
        besides=_none,
    ),
    Registration(ditto, "Li et al., ICML 2021, Algorithm 1"),
    Registration(knn_per, "Marfoq et al., ICML 2022, kNN-Per"),
    Registration(
        per_fedavg,
        "Fallah et al., NeurIPS 2020, Algorithm 1",
        _defaults(adaptation_step_size=0.1),
    ),
    Registration(apfl, "Deng et al., 2020, Algorithm 1"),
    Registration(
        fedrep,
        "Collins et al., ICML 2021, Algorithm 1",
        needs_layers=True,
        keeps=lambda task: layers_of(task).is_head,
    ),
    Registration(
        fedbn,
        "Li et al., ICLR 2021, Algorithm 1",
        needs_normalisation=True,
        keeps=lambda task: measuring_layers(leaves_of(task)),
    ),
    Registration(
        pfedme,
        "T. Dinh et al., NeurIPS 2020, Algorithm 1",
        _defaults(personal_step_size=0.01),
    ),
    Registration(
        fedproto,
        "Tan et al., AAAI 2022, Algorithm 1",
        needs_classes=True,
        received=_none,
        sent=_none,
        of_classes=lambda features, _: (4 * features + 1, 4 * features + 1),
    ),
    Registration(fedala, "Zhang et al., AAAI 2023, Algorithm 1"),
    Registration(
        fedpac,
        "Xu et al., ICLR 2023, FedPAC",
        needs_classes=True,
        besides=lambda of: 4,  # Its number of samples.
        # A prototype and its class; up besides the class's moment and its count.
        of_classes=lambda features, _: (4 * features + 1, 8 * features + 1 + 4),
    ),
)
REGISTRY: Mapping[str, Registration] = MappingProxyType(
    {row.name: row for row in _ROWS}
)
