"""All experiments, by id. A new one is a module with `preset` and `main`, and a row."""

import dataclasses
import importlib
from collections.abc import Mapping
from types import MappingProxyType, ModuleType

__all__ = ["BENCHMARKS", "COMPARISON", "EXPERIMENTS", "PRESETS", "Entry"]

PRESETS = ("quick", "paper")


@dataclasses.dataclass(frozen=True)
class Entry:
    """One row: the module to import when the experiment is asked for.

    module: has `preset(name) -> Config` and `main(config, options) -> summary`, a
      mapping with at least `headline` (text) and `files` (paths written).
    title: one line for `list`.
    spreads_clients: whether it spreads clients over devices; on a CPU every core is
      then made one.
    is_sweep: whether all it computes is one sweep of independent trials, which can
      stop at a precision, be shared by several workers, and spread its trials over
      devices.
    """

    module: str
    title: str
    spreads_clients: bool = False
    is_sweep: bool = False

    def load(self) -> ModuleType:
        """The module; imported late, so that listing stays fast."""
        return importlib.import_module(self.module)


EXPERIMENTS: Mapping[str, Entry] = MappingProxyType(
    {
        "ifca.fig3a": Entry(
            "experiments.ifca.fig3a",
            "success against separation and noise, k = 2",
            is_sweep=True,
        ),
        "ifca.fig3b": Entry(
            "experiments.ifca.fig3b",
            "success against separation and noise, k = 4",
            is_sweep=True,
        ),
        "ifca.fig3c": Entry(
            "experiments.ifca.fig3c",
            "success against clients and samples, k = 2",
            is_sweep=True,
        ),
        "ifca.fig3d": Entry(
            "experiments.ifca.fig3d",
            "success against clients and samples, k = 4",
            is_sweep=True,
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
        "clove.table1": Entry(
            "experiments.clove.table1",
            "four partitions of images: CLoVE, IFCA, FedAvg, local",
            spreads_clients=True,
        ),
        "clove.table2": Entry(
            "experiments.clove.table2",
            "clusters found, four partitions of images",
            spreads_clients=True,
        ),
        "clove.table3": Entry(
            "experiments.clove.table3",
            "accuracy on texts: CLoVE, IFCA, FedAvg, local",
            spreads_clients=True,
        ),
        "clove.table4": Entry(
            "experiments.clove.table4",
            "reconstruction of images: CLoVE, IFCA, FedAvg, local",
            spreads_clients=True,
        ),
        "clove.table5": Entry(
            "experiments.clove.table5",
            "rounds until clusters are found: label skew 1, concept shift",
            spreads_clients=True,
        ),
        "clove.table8": Entry(
            "experiments.clove.table8",
            "accuracy under label skews 3 and 4",
            spreads_clients=True,
        ),
        "clove.table9": Entry(
            "experiments.clove.table9",
            "clusters found under label skews 3 and 4",
            spreads_clients=True,
        ),
        "clove.table10": Entry(
            "experiments.clove.table10",
            "rounds until clusters are found: other partitions",
            spreads_clients=True,
        ),
        "clove.table11": Entry(
            "experiments.clove.table11",
            "clusters found in texts",
            spreads_clients=True,
        ),
        "clove.table12": Entry(
            "experiments.clove.table12",
            "rounds until clusters of texts are found",
            spreads_clients=True,
        ),
        "clove.table13": Entry(
            "experiments.clove.table13",
            "early stopping of clustering",
            spreads_clients=True,
        ),
        "clove.table14": Entry(
            "experiments.clove.table14",
            "partial participation",
            spreads_clients=True,
        ),
        "clove.table15": Entry(
            "experiments.clove.table15",
            "50 to 1000 clients, supervised, K of 5 and of 10",
            spreads_clients=True,
        ),
        "clove.table16": Entry(
            "experiments.clove.table16",
            "100 to 1000 clients, unsupervised",
            spreads_clients=True,
        ),
        "clove.table17": Entry(
            "experiments.clove.table17",
            "parts of CLoVE left out or replaced",
            spreads_clients=True,
        ),
        "clove.fig2": Entry(
            "experiments.clove.fig2",
            "how models start and how the first round chooses: CLoVE, IFCA",
            spreads_clients=True,
        ),
        "clove.fig3": Entry(
            "experiments.clove.fig3",
            "clusters of nearby linear models: CLoVE, IFCA and k-FED",
        ),
        "clove.fig4": Entry(
            "experiments.clove.fig4",
            "fewer participants than clusters",
            spreads_clients=True,
        ),
        "clove.fig5": Entry(
            "experiments.clove.fig5",
            "losses of all clusters under all models: CLoVE, IFCA, FedAvg, local",
            spreads_clients=True,
        ),
        "clove.fig6": Entry(
            "experiments.clove.fig6",
            "averages of models or of gradients",
            spreads_clients=True,
        ),
        "clove.fig7": Entry(
            "experiments.clove.fig7",
            "clusters found, by number of clients",
            spreads_clients=True,
        ),
        "clove.unknown_k": Entry(
            "experiments.clove.unknown_k",
            "FEMNIST: CLoVE with an unknown number of clusters",
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
        "werner.table1": Entry(
            "experiments.werner.table1",
            "rotation and private labels: Federated-Clustering against baselines",
        ),
        "werner.fig1": Entry(
            "experiments.werner.fig1",
            "three methods that fail, and the radii by which clipping escapes",
        ),
        "werner.fig2": Entry(
            "experiments.werner.fig2",
            "constants of Assumptions 4 and 5 along gradient descent",
        ),
        "werner.fig3": Entry(
            "experiments.werner.fig3",
            "Federated-Clustering against baselines on synthetic data",
        ),
        "werner.fig4": Entry(
            "experiments.werner.fig4",
            "rounds of Threshold-Clustering on blobs, and where the elbow is",
        ),
        "werner.byzantine": Entry(
            "experiments.werner.byzantine",
            "attacks on Threshold-Clustering: influence and breakdown",
        ),
    }
)

BENCHMARKS: Mapping[str, Entry] = MappingProxyType(
    {
        "linear": Entry(
            "experiments.bench.linear",
            "the Monte-Carlo kernel against its bare products and PyTorch",
        ),
        "fig3": Entry(
            "experiments.bench.fig3",
            "Figure 3 at full size: against PyTorch, its growth, hours of its panels",
        ),
        "law": Entry(
            "experiments.bench.law",
            "the exact-law engine at 1e9 clients, and beside raw data",
        ),
        "clustering": Entry(
            "experiments.bench.clustering",
            "a clustering step of CLoVE against scikit-learn and SciPy",
        ),
        "thresholding": Entry(
            "experiments.bench.thresholding",
            "Federated-Clustering's rounds against bare products, and Gram matrices",
        ),
        "neural": Entry(
            "experiments.bench.neural",
            "local training and loss matrices against PyTorch and bare products",
        ),
    }
)

# What `compare` runs, which the user and no paper decides.
COMPARISON = Entry(
    "experiments.compare.study",
    "any registered algorithms, side by side",
    spreads_clients=True,
)
