"""CLoVE, Table 15: more and more clients, supervised.

Command:   python -m experiments run clove.table15 --preset paper --data FOLDER
Quick:     MNIST, 25 and 50 clients
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
    title="CLoVE, Table 15: clusters found among many clients",
    items=("Table 15",),
    setting=lambda trial: f"clients {trial.num_clients}",
    series=lambda trial: f"M = {trial.num_clients}",
)


def preset(name: Literal["quick", "paper"]) -> Config:
    """The configuration of a preset."""
    if name == "quick":
        return dataclasses.replace(
            QUICK,
            partitions=("label_skew_1", "one_class"),
            methods=("clove", "ifca"),
            cluster_sizes=None,
            num_clients=(20, 50),
            num_samples=(50,),
            num_test_samples=(20,),
        )
    return dataclasses.replace(
        PAPER,
        partitions=("label_skew_1", "one_class"),
        methods=("clove", "ifca"),
        cluster_sizes=None,
        num_clients=(50, 100, 250, 500, 1000),
        num_samples=(200, 200, 200, 100, 50),
        num_test_samples=(100, 80, 35, 17, 8),
    )


def main(config: Config, options: Options) -> dict[str, Any]:
    """Compute what the stores lack, then write; see `study.run`."""
    return run("clove.table15", config, options, VIEW)
