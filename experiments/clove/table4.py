"""CLoVE, Table 4: reconstruction of images without labels.

Command:   python -m experiments run clove.table4 --preset paper --data FOLDER
Quick:     the same with --preset quick: MNIST only, 3 clients a cluster of 100 samples,
           10 rounds, batches of 10, step size 0.005, 2 seeds, hidden widths 64 and 16
Measured:  quick on MNIST, 77 s on two loaded cores of an Intel Xeon: CLoVE 0.035, local
           models 0.037, IFCA 0.051 and FedAvg 0.060; CLoVE has all clusters by round 3,
           IFCA's index is 0.23 +- 0.10. The paper preset has not been run
Paper:     `published.csv`: 50 clients of 1000 samples; CLoVE 0.014, 0.021 and 0.016
           against IFCA's 0.024, 0.019 and 0.020. Local models' 0.170 on FMNIST may be a
           slip for 0.017

The paper does not say how images are shared out: here each cluster has one class. The
convolutional autoencoder of CIFAR-10 ends in a tanh, images are in [0, 1].
"""

import dataclasses
from typing import Any, Literal

from experiments.clove.config import PAPER, QUICK, Config
from experiments.clove.rows import View
from experiments.clove.study import run
from experiments.options import Options

__all__ = ["main", "preset"]

VIEW = View(
    title="CLoVE, Table 4: clusters found without labels",
    items=("Table 4",),
    setting=lambda trial: "unsupervised",
    partitions=("one_class",),
    reconstructs=True,
)


def preset(name: Literal["quick", "paper"]) -> Config:
    """The configuration of a preset."""
    both = dataclasses.replace(
        QUICK if name == "quick" else PAPER,
        partitions=("one_class",),
        reconstruct=True,
    )
    if name == "quick":
        return dataclasses.replace(
            both,
            num_hidden=64,
            num_latent=16,
        )
    return dataclasses.replace(
        both,
        num_hidden=128,
    )


def main(config: Config, options: Options) -> dict[str, Any]:
    """Compute what the stores lack, then write; see `study.run`."""
    return run("clove.table4", config, options, VIEW)
