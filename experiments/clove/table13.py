"""CLoVE, Table 13: clustering that stops after three stable rounds.

Command:   python -m experiments run clove.table13 --preset paper --data FOLDER
Quick:     the same with --preset quick: MNIST only, 3 clients a cluster of 100 samples,
           10 rounds, batches of 10, step size 0.005, 2 seeds, a narrow network (4 and 8
           channels, 32 hidden units)
Measured:  quick on MNIST, 4.6 minutes on two loaded cores of an Intel Xeon. Label
           skews: stable after 3 rounds, all clusters found, 2.5 MiB a round instead of
           4.7. Concept shift: all clusters found, one seed stable after 7 rounds, none
           of the accuracy lost. Feature skew: stable after 5 and 9 rounds, with two of
           four clusters merged (an index of 0.54, without stopping 0.54 and 1): three
           rounds without a change are no sign of the right clusters. The paper preset
           has not been run
Paper:     `published.csv`: CIFAR-10; stable after 4 rounds (feature skew 6.3), with an
           index of 1 and the accuracies of Table 1
"""

import dataclasses
from typing import Any, Literal

from experiments.clove.config import PAPER, QUICK, Config
from experiments.clove.rows import View
from experiments.clove.study import run
from experiments.options import Options

__all__ = ["main", "preset"]

VIEW = View(
    title="CLoVE, Table 13: clusters found with early stopping",
    items=("Table 13",),
    published={"clove_early_stopping": "CLoVE", "clove": "without"},
    partitions=("label_skew_1", "label_skew_2", "feature_skew", "concept_shift"),
)


def preset(name: Literal["quick", "paper"]) -> Config:
    """The configuration of a preset."""
    both = dataclasses.replace(
        QUICK if name == "quick" else PAPER,
        partitions=(
            "label_skew_1",
            "label_skew_2",
            "feature_skew",
            "concept_shift",
        ),
        methods=("clove_early_stopping", "clove"),
    )
    if name == "quick":
        return both
    return dataclasses.replace(
        both,
        datasets=("cifar10",),
    )


def main(config: Config, options: Options) -> dict[str, Any]:
    """Compute what the stores lack, then write; see `study.run`."""
    return run("clove.table13", config, options, VIEW)
