"""CLoVE, Figure 7: clusters found, by number of clients.

Command:   python -m experiments run clove.fig7 --preset paper --data FOLDER
Quick:     the same with --preset quick: MNIST only, 3 clients a cluster of 100 samples,
           10 rounds, batches of 10, step size 0.005, 2 seeds, hidden widths 64 and 16,
           and 5 clients a cluster
Measured:  quick on MNIST, 61 s on two loaded cores of an Intel Xeon: 30 clients reach 1
           in rounds 2 and 3, 50 in round 2. The paper preset has not been run
Paper:     a figure only: an index of 1 in a few rounds with 50 to 200 clients of 100
           samples
"""

import dataclasses
from typing import Any, Literal

from experiments.clove.config import PAPER, QUICK, Config
from experiments.clove.rows import View
from experiments.clove.study import run
from experiments.options import Options

__all__ = ["main", "preset"]

VIEW = View(
    title="CLoVE, Figure 7: clusters found, by number of clients",
    series=lambda trial: f"M = {trial.num_clients}",
)


def preset(name: Literal["quick", "paper"]) -> Config:
    """The configuration of a preset."""
    both = dataclasses.replace(
        QUICK if name == "quick" else PAPER,
        partitions=("one_class",),
        reconstruct=True,
        methods=("clove",),
    )
    if name == "quick":
        return dataclasses.replace(
            both,
            num_hidden=64,
            num_latent=16,
            cluster_sizes=(3, 5),
        )
    return dataclasses.replace(
        both,
        datasets=("mnist",),
        num_hidden=128,
        cluster_sizes=(5, 10, 20),
        num_samples=(100,),
    )


def main(config: Config, options: Options) -> dict[str, Any]:
    """Compute what the stores lack, then write; see `study.run`."""
    return run("clove.fig7", config, options, VIEW)
