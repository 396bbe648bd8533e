"""CLoVE, Table 13: early stopping of clustering.

Command:   python -m experiments run clove.table13 --preset paper --data FOLDER
Quick:     MNIST in the place of CIFAR-10
Measured:  MEASURED
Paper:     `published.csv`
"""

import dataclasses
from typing import Any, Literal

from experiments.clove.config import PAPER, QUICK, Config
from experiments.clove.rows import View
from experiments.clove.study import run
from experiments.options import Options

__all__ = ["main", "preset"]

VIEW = View(
    title="CLoVE, Table 13: clusters found with early stopping",
    items=("Table 13",),
    published={"clove": "without"},
)


def preset(name: Literal["quick", "paper"]) -> Config:
    """The configuration of a preset."""
    if name == "quick":
        return dataclasses.replace(
            QUICK,
            partitions=(
                "label_skew_1",
                "label_skew_2",
                "feature_skew",
                "concept_shift",
            ),
            methods=("clove_early_stopping", "clove"),
        )
    return dataclasses.replace(
        PAPER,
        partitions=("label_skew_1", "label_skew_2", "feature_skew", "concept_shift"),
        methods=("clove_early_stopping", "clove"),
        datasets=("cifar10",),
    )


def main(config: Config, options: Options) -> dict[str, Any]:
    """Compute what the stores lack, then write; see `study.run`."""
    return run("clove.table13", config, options, VIEW)
