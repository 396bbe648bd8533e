"""All experiments, by id. A new one is a module with `preset` and `main`, and a row."""

import dataclasses
import importlib
from collections.abc import Mapping
from types import MappingProxyType, ModuleType

__all__ = ["BENCHMARKS", "EXPERIMENTS", "PRESETS", "Entry"]

PRESETS = ("quick", "paper")


@dataclasses.dataclass(frozen=True)
class Entry:
    """One row: the module to import when the experiment is asked for.

    module: has `preset(name) -> Config` and `main(config, options) -> summary`, a
      mapping with at least `headline` (text) and `files` (paths written).
    title: one line for `list`.
    spreads_clients: whether it spreads clients over devices; on a CPU every core is
      then made one.
    """

    module: str
    title: str
    spreads_clients: bool = False

    def load(self) -> ModuleType:
        """The module; imported late, so that listing stays fast."""
        return importlib.import_module(self.module)


EXPERIMENTS: Mapping[str, Entry] = MappingProxyType(
    {
        "ifca.fig3a": Entry(
            "experiments.ifca.fig3a", "success against separation and noise, k = 2"
        ),
        "ifca.fig3b": Entry(
            "experiments.ifca.fig3b", "success against separation and noise, k = 4"
        ),
        "ifca.fig3c": Entry(
            "experiments.ifca.fig3c", "success against clients and samples, k = 2"
        ),
        "ifca.fig3d": Entry(
            "experiments.ifca.fig3d", "success against clients and samples, k = 4"
        ),
        "ifca.table1_mnist": Entry(
            "experiments.ifca.table1_mnist",
            "Rotated MNIST: IFCA against a global model and local models",
            spreads_clients=True,
        ),
        "ifca.table1_cifar": Entry(
            "experiments.ifca.table1_cifar",
            "Rotated CIFAR: IFCA against a global model and local models",
            spreads_clients=True,
        ),
        "ifca.fig4": Entry(
            "experiments.ifca.fig4",
            "accuracy of the cluster identities, round by round",
            spreads_clients=True,
        ),
        "ifca.table2_femnist": Entry(
            "experiments.ifca.table2_femnist",
            "FEMNIST: IFCA with shared layers, one-shot, global and local models",
            spreads_clients=True,
        ),
        "clove.fig3": Entry(
            "experiments.clove.fig3",
            "clusters of nearby linear models: CLoVE, IFCA and k-FED",
        ),
        "clove.table1": Entry(
            "experiments.clove.table1",
            "CLoVE's image tables: CLoVE, IFCA, FedAvg and local models, four skews",
            spreads_clients=True,
        ),
        "reviews.baselines": Entry(
            "experiments.reviews.baselines",
            "IFCA against one-shot clustering, bipartition, fine-tuning and more",
        ),
        "reviews.crit": Entry(
            "experiments.reviews.criterion",
            "the criterion of 0.6 sigma against the oracle and exact recovery",
        ),
        "reviews.idbatch": Entry(
            "experiments.reviews.identity_batch",
            "what the batch size of the identity estimate does, near and far",
        ),
        "reviews.tuning": Entry(
            "experiments.reviews.tuning",
            "restart and step size chosen by truth, training loss or held-out loss",
        ),
        "reviews.comm": Entry(
            "experiments.reviews.communication",
            "bits until near the oracle: IFCA, frozen identities, one-shot",
        ),
        "reviews.resample": Entry(
            "experiments.reviews.resampling",
            "fresh folds against reused data: floors, and runs that lock in",
        ),
        "reviews.k": Entry(
            "experiments.reviews.number_of_models",
            "what if the number of models is not that of the clusters?",
        ),
        "reviews.largek": Entry(
            "experiments.reviews.many_clusters",
            "can there be too many clusters?",
        ),
        "reviews.init": Entry(
            "experiments.reviews.initialisation",
            "is the clustering already done by the assumed initialisation?",
        ),
        "reviews.particip": Entry(
            "experiments.reviews.participation",
            "does the number of participating clients enter the rate?",
        ),
        "reviews.pool": Entry(
            "experiments.reviews.pooling",
            "the dissimilarity from which clustering beats pooling all clients",
        ),
    }
)

BENCHMARKS: Mapping[str, Entry] = MappingProxyType(
    {
        "linear": Entry(
            "experiments.bench.linear",
            "the Monte-Carlo kernel against its bare products and PyTorch",
        ),
        "law": Entry(
            "experiments.bench.law",
            "the exact-law engine at 1e9 clients, and beside raw data",
        ),
        "neural": Entry(
            "experiments.bench.neural",
            "local training and loss matrices against PyTorch and bare products",
        ),
    }
)
