"""CLoVE, Table 2: clusters found under four partitions of images.

Command:   python -m experiments run clove.table2 --preset paper --data FOLDER
Quick:     the same with --preset quick: MNIST only, 3 clients a cluster of 100 samples,
           10 rounds, batches of 10, step size 0.005, 2 seeds, a narrow network (4 and 8
           channels, 32 hidden units)
Measured:  see clove.table1
Paper:     `published.csv`: CLoVE's index is 1 in all 12 cells, IFCA's between 0.55 and
           0.92

The runs are those of clove.table1.
"""

from typing import Any

from experiments.clove.config import Config
from experiments.clove.study import run
from experiments.clove.table1 import VIEW, preset
from experiments.options import Options

__all__ = ["main", "preset"]


def main(config: Config, options: Options) -> dict[str, Any]:
    """Compute what the stores lack, then write; see `study.run`."""
    return run("clove.table2", config, options, VIEW)
