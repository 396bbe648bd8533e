"""CLoVE, Table 17: parts of CLoVE left out or replaced.

Command:   python -m experiments run clove.table17 --preset paper --data FOLDER
Quick:     the same with --preset quick: MNIST only, 3 clients a cluster of 100 samples,
           10 rounds, batches of 10, step size 0.005, 2 seeds, a narrow network (4 and 8
           channels, 32 hidden units)
Measured:  quick on MNIST, 2.5 minutes on two loaded cores of an Intel Xeon: all four
           have all clusters from the first round on, and 85.1 to 85.5 %: nothing tells
           them apart at this size. The paper preset has not been run
Paper:     `published.csv`: CIFAR-10, label skew 3; 58.3 % as it is, 55.8 without
           matching, 59.3 agglomerative, 58.1 with square-root losses. Its 4.3 % are of
           58.3, not points
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
    partitions=("label_skew_3",),
)


def preset(name: Literal["quick", "paper"]) -> Config:
    """The configuration of a preset."""
    both = dataclasses.replace(
        QUICK if name == "quick" else PAPER,
        partitions=("label_skew_3",),
        methods=(
            "clove",
            "clove_no_matching",
            "clove_agglomerative",
            "clove_square_root",
        ),
    )
    if name == "quick":
        return both
    return dataclasses.replace(
        both,
        datasets=("cifar10",),
    )


def main(config: Config, options: Options) -> dict[str, Any]:
    """Compute what the stores lack, then write; see `study.run`."""
    return run("clove.table17", config, options, VIEW)
