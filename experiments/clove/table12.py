"""CLoVE, Table 12: how fast clusters of texts are found.

Command:   python -m experiments run clove.table12 --preset paper --data FOLDER
Quick:     20 rounds, 2 seeds
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
    title="CLoVE, Table 12: how fast clusters of texts are found",
    items=("Table 3", "Table 11", "Table 12"),
    setting=lambda trial: "",
    series=lambda trial: f"K = {trial.num_clusters}",
)


def preset(name: Literal["quick", "paper"]) -> Config:
    """The configuration of a preset."""
    if name == "quick":
        return dataclasses.replace(
            QUICK,
            datasets=("ag_news", "amazon_reviews"),
            partitions=("pairs_of_classes", "groups"),
            num_clusters=(4, 6),
            cluster_sizes=None,
            num_samples=None,
            num_test_samples=(75,),
            num_channels=64,
            num_hidden=64,
            batch_size=64,
            rounds_between=10,
                num_rounds=20,
            num_trials=2,
        )
    return dataclasses.replace(
        PAPER,
        datasets=("ag_news", "amazon_reviews"),
        partitions=("pairs_of_classes", "groups"),
        num_clusters=(4, 6),
        cluster_sizes=None,
        num_samples=None,
        num_test_samples=(75,),
        num_channels=64,
        num_hidden=64,
        batch_size=64,
        rounds_between=10,
        num_rounds=100,
        num_trials=3,
    )


def main(config: Config, options: Options) -> dict[str, Any]:
    """Compute what the stores lack, then write; see `study.run`."""
    return run("clove.table12", config, options, VIEW)
