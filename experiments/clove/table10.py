"""CLoVE, Table 10: how fast clusters are found, other partitions.

Command:   python -m experiments run clove.table10 --preset paper --data FOLDER
Quick:     MNIST alone, 10 short rounds of a narrow network, 2 seeds
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
    title="CLoVE, Table 10: clusters found, round by round",
    items=("Table 1", "Table 2", "Table 8", "Table 9", "Table 10"),
)


def preset(name: Literal["quick", "paper"]) -> Config:
    """The configuration of a preset."""
    return dataclasses.replace(
        QUICK if name == "quick" else PAPER,
        partitions=("label_skew_2", "label_skew_3", "label_skew_4", "feature_skew"),
    )


def main(config: Config, options: Options) -> dict[str, Any]:
    """Compute what the stores lack, then write; see `study.run`."""
    return run("clove.table10", config, options, VIEW)
