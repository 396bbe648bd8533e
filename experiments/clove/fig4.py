"""CLoVE, Figure 4: fewer participants than clusters.

Command:   python -m experiments run clove.fig4 --preset paper --data FOLDER
Quick:     the same with --preset quick: 2 clients a cluster of 100 samples, 40 rounds,
           batches of 10, 2 seeds, a narrow network (4 and 8 channels, 32 hidden units)
Measured:  quick on MNIST, 2.4 minutes on two loaded cores of an Intel Xeon: the index
           moves between 0.2 and 0.7 and is 0.40 +- 0.21 after 40 rounds, without and
           with early stopping, as no seed was stable. It cannot do much better: 8 loss
           vectors in 10 clusters are one of each, so that two clients of one cluster
           who take part together are parted; with perfect models the index would be
           0.54 +- 0.16 (`python -m theory check clove.fig4`). The paper preset has not
           been run
Paper:     a figure only: 8 of 20 clients in a round, 10 clusters; the index falls, then
           rises to nearly 1 after tens of rounds, with and without early stopping

The curve is the index of all clients' latest models, of those who ever took part; the
table's "ARI" is of the last round's 8 participants.
"""

import dataclasses
from typing import Any, Literal

from experiments.clove.config import PAPER, QUICK, Config
from experiments.clove.rows import View
from experiments.clove.study import run
from experiments.options import Options

__all__ = ["main", "preset"]

VIEW = View(
    title="CLoVE, Figure 4: 8 of 20 clients in a round, 10 clusters",
    index="seen_rand_index",
)


def preset(name: Literal["quick", "paper"]) -> Config:
    """The configuration of a preset."""
    both = dataclasses.replace(
        QUICK if name == "quick" else PAPER,
        partitions=("one_class",),
        participations=(0.4,),
        methods=("clove", "clove_early_stopping"),
        cluster_sizes=(2,),
    )
    if name == "quick":
        return dataclasses.replace(
            both,
            num_rounds=40,
            rounds_between=20,
        )
    return dataclasses.replace(
        both,
        datasets=("mnist",),
        num_samples=(500,),
    )


def main(config: Config, options: Options) -> dict[str, Any]:
    """Compute what the stores lack, then write; see `study.run`."""
    return run("clove.fig4", config, options, VIEW)
