"""CLoVE, Figure 2: how models start and how the first round chooses.

Command:   python -m experiments run clove.fig2 --preset paper --data FOLDER
Quick:     the same with --preset quick: MNIST only, 3 clients a cluster of 100 samples,
           10 rounds, batches of 10, step size 0.005, 2 seeds, hidden widths 64 and 16
Measured:  quick on MNIST, 2.2 minutes on two loaded cores of an Intel Xeon: CLoVE's
           index is 1 from round 2 or 3 on under all four starts; IFCA's is 0.23 (init:d
           first:e), 0.70 (init:d first:r), 0 (init:s first:e) and 0.59 (init:s first:r)
           after 10 rounds. The paper preset has not been run
Paper:     a figure only: CLoVE's index becomes 1 under all four starts, IFCA's mostly
           stays low; 50 clients of 500 samples

`init:d` are independent models, `init:s` identical ones; `first:e` chooses by losses in
the first round, `first:r` at random. The partition is not given: one class a cluster.
"""

import dataclasses
from typing import Any, Literal

from experiments.clove.config import PAPER, QUICK, Config
from experiments.clove.rows import View
from experiments.clove.study import run
from experiments.options import Options

__all__ = ["main", "preset"]

VIEW = View(
    title="CLoVE, Figure 2: starts and first rounds",
    splits_algorithms=True,
    curves={
        "clove": "init:d first:e",
        "clove_random_first": "init:d first:r",
        "clove_identical": "init:s first:e",
        "clove_identical_random_first": "init:s first:r",
        "ifca": "init:d first:e",
        "ifca_random_first": "init:d first:r",
        "ifca_identical": "init:s first:e",
        "ifca_identical_random_first": "init:s first:r",
    },
)


def preset(name: Literal["quick", "paper"]) -> Config:
    """The configuration of a preset."""
    both = dataclasses.replace(
        QUICK if name == "quick" else PAPER,
        partitions=("one_class",),
        reconstruct=True,
        methods=(
            "clove",
            "clove_random_first",
            "clove_identical",
            "clove_identical_random_first",
            "ifca",
            "ifca_random_first",
            "ifca_identical",
            "ifca_identical_random_first",
        ),
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
        num_samples=(500,),
    )


def main(config: Config, options: Options) -> dict[str, Any]:
    """Compute what the stores lack, then write; see `study.run`."""
    return run("clove.fig2", config, options, VIEW)
