"""CLoVE, Table 5: how fast clusters are found.

Command:   python -m experiments run clove.table5 --preset paper --data FOLDER
Quick:     MNIST alone, 10 short rounds of a narrow network, 2 seeds
Measured:  MEASURED
Paper:     `published.csv`: CLoVE has an ARI of 0.9 in round 2 (concept shift of
           CIFAR-10 2.3)
"""

import dataclasses
from typing import Any, Literal

from experiments.clove.config import PAPER, QUICK, Config
from experiments.clove.rows import View
from experiments.clove.study import run
from experiments.options import Options

__all__ = ["main", "preset"]

VIEW = View(
    title="CLoVE, Table 5: clusters found, round by round",
    items=("Table 1", "Table 2", "Table 5"),
)


def preset(name: Literal["quick", "paper"]) -> Config:
    """The configuration of a preset."""
    return dataclasses.replace(
        QUICK if name == "quick" else PAPER,
        partitions=("label_skew_1", "concept_shift"),
    )


def main(config: Config, options: Options) -> dict[str, Any]:
    """Compute what the stores lack, then write; see `study.run`."""
    return run("clove.table5", config, options, VIEW)
