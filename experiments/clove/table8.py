"""CLoVE, Table 8: accuracy under label skews 3 and 4.

Command:   python -m experiments run clove.table8 --preset paper --data FOLDER
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
    title="CLoVE, Table 8: accuracy under label skews 3 and 4",
    items=("Table 8", "Table 9", "Table 10"),
)


def preset(name: Literal["quick", "paper"]) -> Config:
    """The configuration of a preset."""
    return dataclasses.replace(
        QUICK if name == "quick" else PAPER, partitions=("label_skew_3", "label_skew_4")
    )


def main(config: Config, options: Options) -> dict[str, Any]:
    """Compute what the stores lack, then write; see `study.run`."""
    return run("clove.table8", config, options, VIEW)
