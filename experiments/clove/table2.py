"""CLoVE, Table 2: clusters found under four partitions of images.

Command:   python -m experiments run clove.table2 --preset paper --data FOLDER
Quick:     as clove.table1, whose folder of results it can share by --out
Measured:  MEASURED
Paper:     `published.csv`: CLoVE 1 everywhere, IFCA between 0.55 and 0.92
"""

import dataclasses
from typing import Any, Literal

from experiments.clove.config import PAPER, QUICK, Config
from experiments.clove.rows import View
from experiments.clove.study import run
from experiments.options import Options

__all__ = ["main", "preset"]

VIEW = View(
    title="CLoVE, Table 2: clusters found",
    items=("Table 1", "Table 2", "Table 5", "Table 10"),
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
    return run("clove.table2", config, options, VIEW)
