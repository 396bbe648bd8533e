"""CLoVE, Table 11: clusters found in AG News and Amazon Reviews.

Command:   python -m experiments run clove.table11 --preset paper --data FOLDER
Quick:     the same with --preset quick: all clients, 10 rounds, batches of 10, 2 seeds,
           16 channels and hidden units, 2000 words, texts of 32
Measured:  see clove.table3
Paper:     `published.csv`: CLoVE 0.73 on Amazon Reviews and 0.94 on AG News, IFCA 0.29
           and 0.64

The runs are those of clove.table3.
"""

from typing import Any

from experiments.clove.config import Config
from experiments.clove.study import run
from experiments.clove.table3 import VIEW, preset
from experiments.options import Options

__all__ = ["main", "preset"]


def main(config: Config, options: Options) -> dict[str, Any]:
    """Compute what the stores lack, then write; see `study.run`."""
    return run("clove.table11", config, options, VIEW)
