"""CLoVE, Figure 6: averages of models or of gradients.

Command:   python -m experiments run clove.fig6 --preset paper --data FOLDER
Quick:     the same with --preset quick: MNIST only, 3 clients a cluster of 100 samples,
           10 rounds, batches of 10, step size 0.005, 2 seeds, hidden widths 64 and 16
Measured:  quick on MNIST, 49 s on two loaded cores of an Intel Xeon: models reach 1 in
           rounds 2 and 3, gradients in round 5 of both seeds. The paper preset has not
           been run
Paper:     a figure only: both reach 1, gradients some rounds later; 50 clients of 100
           samples

The step size of gradient averaging is not given. One step a round on a loss that is
averaged over 784 pixels needs a large one.
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
    both = dataclasses.replace(
        QUICK if name == "quick" else PAPER,
        partitions=("one_class",),
        reconstruct=True,
        methods=("clove", "clove_gradient"),
        gradient_step_size=30.0,
    )
    if name == "quick":
        return dataclasses.replace(
            both,
            num_hidden=64,
            num_latent=16,
        )
    return dataclasses.replace(
        both,
        datasets=("mnist",),
        num_hidden=128,
        cluster_sizes=(5,),
        num_samples=(100,),
    )


def main(config: Config, options: Options) -> dict[str, Any]:
    """Compute what the stores lack, then write; see `study.run`."""
    return run("clove.fig6", config, options, VIEW)
