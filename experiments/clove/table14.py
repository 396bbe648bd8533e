"""CLoVE, Table 14: partial participation.

Command:   python -m experiments run clove.table14 --preset paper --data FOLDER
Quick:     5 clients a cluster
Measured:  MEASURED
Paper:     `published.csv`
"""

import dataclasses
from typing import Any, Literal

from experiments.clove.config import PAPER, QUICK, Config
from experiments.clove.rows import View
from experiments.clove.study import run
from experiments.clove.trial import Trial
from experiments.options import Options

__all__ = ["main", "preset"]


def _rate(trial: Trial) -> float:
    """Rho, to the digits that the paper gives."""
    return round(trial.num_participants / trial.num_clients, 2)


def _setting(trial: Trial) -> str:
    return f"participation {_rate(trial)}"


VIEW = View(
    title="CLoVE, Table 14: clusters found under partial participation",
    items=("Table 14",),
    setting=_setting,
    series=lambda trial: f"ρ = {_rate(trial)}",
)


def preset(name: Literal["quick", "paper"]) -> Config:
    """The configuration of a preset."""
    if name == "quick":
        return dataclasses.replace(
            QUICK,
            participations=(1.0, 0.9, 0.75, 0.5, 0.25, 0.1),
            methods=("clove",),
            cluster_sizes=(10,),
            num_samples=(50,),
            num_test_samples=(20,),
        )
    return dataclasses.replace(
        PAPER,
        participations=(1.0, 0.9, 0.75, 0.5, 0.25, 0.1),
        methods=("clove",),
        datasets=("mnist",),
        cluster_sizes=(25,),
        num_samples=(100,),
        num_test_samples=(20,),
    )


def main(config: Config, options: Options) -> dict[str, Any]:
    """Compute what the stores lack, then write; see `study.run`."""
    return run("clove.table14", config, options, VIEW)
