"""CLoVE, Tables 1 and 2: accuracy and clusters found under four partitions of images.

Command:   python -m experiments run clove.table1 --preset paper --data FOLDER
Quick:     the same with --preset quick: MNIST only, 3 clients a cluster of 100 samples,
           10 rounds, batches of 10, step size 0.005, 2 seeds and a narrow network (4
           and 8 channels, 32 hidden units); without data, on the digits embedded in
           scikit-learn
Measured:  (to be filled)
Paper:     `published.csv`: 100 rounds of one local epoch of Adam at 0.001 in batches
           of 64, 3 seeds, 5 clients a cluster (feature skew 10; CIFAR-10 3 and 5), 500
           samples a client (concept shift 1000). CLoVE finds the clusters in all 12
           cells, IFCA's adjusted Rand index is between 0.55 and 0.92. Tables 5 and 10
           have the same runs' first rounds.

The paper does not give numbers of clusters, see `partitions`; nor widths of networks,
numbers of test samples, or what becomes of Adam's state: here a client begins each
round with a fresh one. The released code trains MNIST and Fashion-MNIST at 0.01 in
batches of 100.
"""

import dataclasses
from typing import Any, Literal

from experiments.clove.config import PAPER, QUICK, Config
from experiments.clove.rows import View
from experiments.clove.study import run
from experiments.options import Options

__all__ = ["VIEW", "main", "preset"]

VIEW = View(
    title="CLoVE, Tables 1 and 2: clusters found",
    items=("Table 1", "Table 2", "Table 5", "Table 10"),
    partitions=("label_skew_1", "label_skew_2", "concept_shift", "feature_skew"),
)


def preset(name: Literal["quick", "paper"]) -> Config:
    """The configuration of a preset."""
    return dataclasses.replace(
        QUICK if name == "quick" else PAPER,
        partitions=(
            "label_skew_1",
            "label_skew_2",
            "concept_shift",
            "feature_skew",
        ),
    )


def main(config: Config, options: Options) -> dict[str, Any]:
    """Compute what the stores lack, then write; see `study.run`."""
    return run("clove.table1", config, options, VIEW)
