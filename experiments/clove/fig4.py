"""CLoVE, Figure 4: fewer participants than clusters.

Command:   python -m experiments run clove.fig4 --preset paper --data FOLDER
Quick:     MNIST
Measured:  MEASURED
Paper:
"""

import dataclasses
from typing import Any, Literal

from experiments.clove.config import PAPER, QUICK, Config
from experiments.clove.rows import View
from experiments.clove.study import run
from experiments.options import Options

__all__ = ["main", "preset"]

VIEW = View(title="CLoVE, Figure 4: 8 of 20 clients in a round, 10 clusters")


def preset(name: Literal["quick", "paper"]) -> Config:
    """The configuration of a preset."""
    if name == "quick":
        return dataclasses.replace(
            QUICK,
            partitions=("one_class",),
            participations=(0.4,),
            methods=("clove", "clove_early_stopping"),
            cluster_sizes=(2,),
            num_rounds=40,
            rounds_between=20,
        )
    return dataclasses.replace(
        PAPER,
        partitions=("one_class",),
        participations=(0.4,),
        methods=("clove", "clove_early_stopping"),
        datasets=("mnist",),
        cluster_sizes=(2,),
        num_samples=(500,),
    )


def main(config: Config, options: Options) -> dict[str, Any]:
    """Compute what the stores lack, then write; see `study.run`."""
    return run("clove.fig4", config, options, VIEW)
