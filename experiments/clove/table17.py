"""CLoVE, Table 17: parts of CLoVE left out or replaced.

Command:   python -m experiments run clove.table17 --preset paper --data FOLDER
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
    title="CLoVE, Table 17: clusters found by its variants",
    items=("Table 17",),
    published={"clove": "Original CLoVE"},
)


def preset(name: Literal["quick", "paper"]) -> Config:
    """The configuration of a preset."""
    if name == "quick":
        return dataclasses.replace(
            QUICK,
            partitions=("label_skew_3",),
            methods=(
                "clove",
                "clove_no_matching",
                "clove_agglomerative",
                "clove_square_root",
            ),
        )
    return dataclasses.replace(
        PAPER,
        partitions=("label_skew_3",),
        methods=(
            "clove",
            "clove_no_matching",
            "clove_agglomerative",
            "clove_square_root",
        ),
        datasets=("cifar10",),
    )


def main(config: Config, options: Options) -> dict[str, Any]:
    """Compute what the stores lack, then write; see `study.run`."""
    return run("clove.table17", config, options, VIEW)
