"""CLoVE, Table 4: reconstruction of images.

Command:   python -m experiments run clove.table4 --preset paper --data FOLDER
Quick:     MNIST alone
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
    title="CLoVE, Table 4: clusters found without labels",
    items=("Table 4",),
    setting=lambda trial: "unsupervised",
)


def preset(name: Literal["quick", "paper"]) -> Config:
    """The configuration of a preset."""
    if name == "quick":
        return dataclasses.replace(
            QUICK,
            partitions=("one_class",),
            reconstruct=True,
            num_hidden=64,
            num_latent=16,
        )
    return dataclasses.replace(
        PAPER, partitions=("one_class",), reconstruct=True, num_hidden=128
    )


def main(config: Config, options: Options) -> dict[str, Any]:
    """Compute what the stores lack, then write; see `study.run`."""
    return run("clove.table4", config, options, VIEW)
