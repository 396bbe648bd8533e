"""CLoVE, Table 15: 50 to 1000 clients, supervised.

Command:   python -m experiments run clove.table15 --preset paper --data FOLDER
Quick:     the same with --preset quick: MNIST only, 20 and 50 clients of 50 samples, 10
           rounds, batches of 10, 2 seeds, a narrow network (4 and 8 channels, 32 hidden
           units)
Measured:  quick on MNIST, 4.6 minutes on two loaded cores of an Intel Xeon: CLoVE's
           index is 1 from the first round on, with 5 clusters and with 10; IFCA's is
           0.74 and 0.77 with 5, 0.64 and 0.70 with 10. The paper preset has not been
           run
Paper:     `published.csv`: 100 to 200 samples a client; CLoVE's index is 1 everywhere,
           IFCA's from 0.65 to 0.93

The text says 10 clusters, but the published values fit 5: both are run, 5 of two
classes each and 10 of one. A thousand clients of 100 samples would need 100,000 of the
60,000 images of MNIST, or the 50,000 of CIFAR-10: they hold 50 here.
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
    splits_algorithms=True,
    partitions=("label_skew_1", "one_class"),
    note="The paper's one row for each number of clients stands beside K = 5 and "
    "beside K = 10. Its clients have 100 to 200 samples; of 1000 clients each has "
    "50 here, for want of images.",
)


def preset(name: Literal["quick", "paper"]) -> Config:
    """The configuration of a preset."""
    both = dataclasses.replace(
        QUICK if name == "quick" else PAPER,
        partitions=("label_skew_1", "one_class"),
        methods=("clove", "ifca"),
        cluster_sizes=None,
    )
    if name == "quick":
        return dataclasses.replace(
            both,
            num_clients=(20, 50),
            num_samples=(50,),
            num_test_samples=(20,),
        )
    return dataclasses.replace(
        both,
        num_clients=(50, 100, 250, 500, 1000),
        num_samples=(200, 200, 200, 100, 50),
        num_test_samples=(100, 80, 35, 17, 8),
    )


def main(config: Config, options: Options) -> dict[str, Any]:
    """Compute what the stores lack, then write; see `study.run`."""
    return run("clove.table15", config, options, VIEW)
