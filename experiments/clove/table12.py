"""CLoVE, Table 12: how fast clusters of texts are found.

Command:   python -m experiments run clove.table12 --preset paper --data FOLDER
Quick:     the same with --preset quick: all clients, 10 rounds, batches of 10, 2 seeds,
           16 channels and hidden units, 2000 words, texts of 32
Measured:  see clove.table3
Paper:     `published.csv`: CLoVE's index first reaches 0.9 in round 2 on AG News, on
           Amazon Reviews never

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
    return run("clove.table12", config, options, VIEW)
