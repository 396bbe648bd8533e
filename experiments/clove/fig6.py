"""CLoVE, Figure 6: averages of models or of gradients.

Command:   python -m experiments run clove.fig6 --preset paper --data FOLDER
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

VIEW = View(title="CLoVE, Figure 6: averages of models or of gradients")


def preset(name: Literal["quick", "paper"]) -> Config:
    """The configuration of a preset."""
    if name == "quick":
        return dataclasses.replace(
            QUICK,
            partitions=("one_class",),
            reconstruct=True,
            methods=("clove", "clove_gradient"),
            num_hidden=64,
            num_latent=16,
        )
    return dataclasses.replace(
        PAPER,
        partitions=("one_class",),
        reconstruct=True,
        methods=("clove", "clove_gradient"),
        datasets=("mnist",),
        num_hidden=128,
        cluster_sizes=(5,),
        num_samples=(100,),
    )


def main(config: Config, options: Options) -> dict[str, Any]:
    """Compute what the stores lack, then write; see `study.run`."""
    return run("clove.fig6", config, options, VIEW)
