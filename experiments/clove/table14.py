"""CLoVE, Table 14: partial participation.

Command:   python -m experiments run clove.table14 --preset paper --data FOLDER
Quick:     the same with --preset quick: 20 samples a client, 10 rounds, batches of 10,
           2 seeds, a narrow network (4 and 8 channels, 32 hidden units)
Measured:  quick on MNIST, 4.5 minutes on two loaded cores of an Intel Xeon: all
           clusters from the first round on with 31 participants of 125 or more; with 12
           an index of 0.88 after 10 rounds, 0.9 first in round 1 or 2. The paper preset
           has not been run
Paper:     `published.csv`: MNIST, 125 clients of 100 samples, 5 clusters; an index of 1
           down to a participation of 0.1, first in round 2 or 3

The partition is not given: label skew 1 here. As in the paper the index of a round is
that of the clients who took part in it.
"""

import dataclasses
from typing import Any, Literal

from experiments.clove.config import PAPER, QUICK, Config
from experiments.clove.rows import View
from experiments.clove.study import run
from experiments.clove.trial import Trial
from experiments.options import Options

__all__ = ["main", "preset"]


_RATES = (1.0, 0.9, 0.75, 0.5, 0.25, 0.1)


def _rate(trial: Trial) -> float:
    """The paper's rho that is nearest: participants are whole clients."""
    own = trial.num_participants / trial.num_clients
    return min(_RATES, key=lambda rate: abs(rate - own))


def _setting(trial: Trial) -> str:
    return f"participation {_rate(trial)}"


VIEW = View(
    title="CLoVE, Table 14: clusters found under partial participation",
    items=("Table 14",),
    setting=_setting,
    series=lambda trial: f"ρ = {_rate(trial)}",
    partitions=("label_skew_1",),
    is_partial=True,
)


def preset(name: Literal["quick", "paper"]) -> Config:
    """The configuration of a preset."""
    both = dataclasses.replace(
        QUICK if name == "quick" else PAPER,
        participations=_RATES,
        methods=("clove",),
        cluster_sizes=(25,),
        num_test_samples=(20,),
    )
    if name == "quick":
        return dataclasses.replace(
            both,
            num_samples=(20,),
        )
    return dataclasses.replace(
        both,
        datasets=("mnist",),
        num_samples=(100,),
    )


def main(config: Config, options: Options) -> dict[str, Any]:
    """Compute what the stores lack, then write; see `study.run`."""
    return run("clove.table14", config, options, VIEW)
